"""Unrelated machines, R || Cmax: every job has a duration on every machine."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from optsched.arrays import IntArray
from optsched.generate.generator import (
    Conditions,
    Generated,
    Generator,
    GeneratorOptions,
    SmallCount,
)
from optsched.instance.documents import refused
from optsched.instance.reading import show
from optsched.libraries import UnrelatedMachines

Whole = Annotated[int, Field(ge=1, le=10**9)]


class UnrelatedOptions(GeneratorOptions):
    only_if: ClassVar[Conditions] = {
        "noise": ("correlation is jobs or machines", lambda given: given.correlation != "none")
    }

    jobs: SmallCount = Field(100, description="Jobs.")
    machines: int = Field(10, ge=1, le=1000, description="Machines, one pool of one GPU each.")
    low: Whole = Field(10, description="Shortest duration drawn, whole seconds.")
    high: Whole = Field(100, description="Longest duration drawn, whole seconds.")
    correlation: Literal["none", "jobs", "machines"] = Field(
        "none",
        description=(
            "none: all durations drawn alone; jobs, machines: a drawn base per job or machine, "
            "plus noise."
        ),
    )
    noise: Whole = Field(20, description="Largest noise on a base, whole seconds.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.high < self.low:
            raise refused(show(self.high), f"at least low, {self.low}", "high")
        return self


def durations(options: UnrelatedOptions) -> IntArray:
    """p_ij, whole seconds, shape (jobs, machines).

    ::

        none      p_ij ~ U{low..high}
        jobs      p_ij = b_i + d_ij,  b_i ~ U{low..high},  d_ij ~ U{1..noise}
        machines  p_ij = a_j + d_ij,  a_j ~ U{low..high},  d_ij ~ U{1..noise}

    These are the three classes that studies of R || Cmax use (for example Fanjul-Peyro and Ruiz
    2010, Iterated greedy local search methods for unrelated parallel machine scheduling), with
    ranges that can be chosen.
    """
    random = options.random()
    shape = (options.jobs, options.machines)
    if options.correlation == "none":
        return random.integers(options.low, options.high, shape, endpoint=True)
    bases = {"jobs": (options.jobs, 1), "machines": (1, options.machines)}[options.correlation]
    base = random.integers(options.low, options.high, bases, endpoint=True)
    return base + random.integers(1, options.noise, shape, endpoint=True)


def unrelated(options: UnrelatedOptions) -> Generated:
    """Machines m0, m1, ... are pools of one GPU;
    each job has one option per machine with its exact duration.
    """
    name = options.titled(f"unrelated-{options.jobs}x{options.machines}")
    return Generated(UnrelatedMachines(durations(options)).instance(name))


UNRELATED = Generator(
    UnrelatedOptions,
    unrelated,
    "Unrelated machines (R || Cmax): exact durations, job by machine.",
    lambda options: "makespan-unrelated",
)
