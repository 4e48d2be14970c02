"""Options of generated traces."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from optsched.generate.generator import (
    Conditions,
    GeneratorOptions,
    LargeCount,
    Share,
    refused,
    split,
)
from optsched.generate.job_sizes import Gangs, Median, Shape, Sigma
from optsched.generate.rows import TYPES

Multiple = Annotated[float, Field(ge=0.01, le=1e6, allow_inf_nan=False)]


class TraceOptions(GeneratorOptions):
    """Options of `trace`."""

    only_if: ClassVar[Conditions] = {
        "amplitude": ("arrivals is diurnal", lambda given: given.arrivals == "diurnal"),
        "peak": ("arrivals is diurnal", lambda given: given.arrivals == "diurnal"),
        "median": ("durations is lognormal or pareto", lambda given: given.durations != "gavel"),
        "sigma": ("durations is lognormal", lambda given: given.durations == "lognormal"),
        "shape": ("durations is pareto", lambda given: given.durations == "pareto"),
        "slack": ("deadlines is above 0", lambda given: given.deadlines > 0),
        "load": ("there is no rate", lambda given: given.rate is None),
    }

    jobs: Annotated[LargeCount, Field(description="Jobs.")] = 1000
    pools: Annotated[
        int,
        Field(
            ge=1, le=len(TYPES), description="Pools: V100, A100, H100, T4, P100, A100 80 GB, K80."
        ),
    ] = 1
    nodes: Annotated[int, Field(ge=1, le=100_000, description="Nodes of each pool.")] = 8
    gpus_per_node: Annotated[int, Field(ge=1, le=64, description="GPUs of a node.")] = 8
    arrivals: Annotated[
        Literal["poisson", "diurnal", "even"],
        Field(
            description="poisson: at a constant rate; diurnal: more by day than by night; even: at equal distances."
        ),
    ] = "poisson"
    load: Annotated[
        float,
        Field(
            ge=0.001, le=1000, allow_inf_nan=False,
            description="GPU-hours that arrive over those of the cluster, if pools are as likely as they have GPUs.",
        ),
    ] = 0.8  # fmt: skip
    rate: Annotated[
        float | None,
        Field(
            gt=0, le=1e9, allow_inf_nan=False, description="Arrivals per hour, instead of a load.",
            json_schema_extra={"metavar": "X"},
        ),
    ] = None  # fmt: skip
    amplitude: Annotated[
        Share, Field(description="How far the rate goes up and down, as a share of its mean.")
    ] = 0.6
    peak: Annotated[
        float,
        Field(
            ge=0, le=24, allow_inf_nan=False, description="Hour of the day with the most arrivals."
        ),
    ] = 14.0
    durations: Annotated[
        Literal["lognormal", "pareto", "gavel"],
        Field(
            description="Distribution of the hours of a job in its fastest pool; gavel: that of its generator."
        ),
    ] = "lognormal"
    median: Median = 1.0
    sigma: Sigma = 1.5
    shape: Shape = 1.5
    gangs: Gangs = (0.1, 0.15, 0.05)
    deadlines: Annotated[Share, Field(description="Share of jobs with a deadline.")] = 0.0
    slack: Annotated[
        tuple[Multiple, Multiple], split(2, "numbers"),
        Field(
            description="Least and most time to a deadline over the hours in the fastest pool; uniform between them.",
            json_schema_extra={"metavar": "X,X"},
        ),
    ] = (1.2, 10.0)  # fmt: skip
    tenants: Annotated[
        int,
        Field(
            ge=0, le=1000, description="Tenants; the k-th has jobs in proportion to 1/k. 0: none."
        ),
    ] = 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if sum(self.gangs) > 1 + 1e-9:
            raise refused("gangs", list(self.gangs), "shares that add up to at most 1")
        if self.slack[0] > self.slack[1]:
            raise refused("slack", list(self.slack), "the smaller one first")
        return self
