"""A formulation remembers nothing: what one program means does not depend on others that were built before or after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optsched
from optsched.api import compile_for, make_formulation
from optsched.arrays import FloatArray
from optsched.candidates import Candidates, Classes
from optsched.formulation import Formulation

# Private names: the inner steps of an answer are compared with a reference
from optsched.formulation.procedure import Auxiliary, Optimum, Reduced
from optsched.program import AllocationProgram, Minimum
from optsched.registry import load_formulation, load_solver, names
from optsched.solution import Solution, Status, Termination
from optsched.solving import Engine

NAMES = sorted({load_formulation(name).name for name in names("formulation")})


@pytest.mark.parametrize("name", NAMES)
def test_build_leaves_nothing_on_the_formulation(name: str) -> None:
    formulation = make_formulation(name)
    before = dict(vars(formulation))
    built = 0
    for instance in ("@quickstart", "@packing", "@knapsack", "@smd"):
        try:
            classes = formulation.classes(compile_for(formulation, optsched.load(instance)))
            formulation.build(classes)
        except optsched.OptschedError:
            continue  # it does not take such an instance
        built += 1
    assert built and vars(formulation) == before


@pytest.mark.parametrize("name", ["makespan", "alpha-fairness", "partial-allocation"])
def test_the_objective_of_a_program_does_not_depend_on_a_program_built_later(name: str) -> None:
    formulation = make_formulation(name)
    first, later = (
        formulation.classes(compile_for(formulation, optsched.load(instance)))
        for instance in ("@quickstart", "@large")
    )
    program = formulation.build(first)
    x = program.even()
    alone = program.objective(x)
    other = formulation.build(later)
    assert other.units != program.units
    assert program.objective(x) == alone


def by_hand(program: AllocationProgram, x: FloatArray, price: float) -> Optimum:
    """The optimum of a program whose one GPU has this price; time is worth nothing."""
    duals = {"time": np.zeros(len(x)), "capacity": np.array([price])}
    value = program.value(x)
    return Optimum(x, value, value, Status.OPTIMAL, Termination.OPTIMAL, duals)


def test_a_procedure_runs_on_optima_written_by_hand() -> None:
    """Two jobs share one GPU; each could have all of it without the other."""
    builder = optsched.InstanceBuilder("pair")
    pool = builder.add_pool("p", nodes=1, gpus_per_node=1)
    builder.add_job("a", throughput={pool: 1.0})
    builder.add_job("b", throughput={pool: 3.0})
    formulation = make_formulation("partial-allocation")
    C = formulation.classes(compile_for(formulation, builder.instance()))
    procedure = formulation.procedure(C, seed=0)
    own = next(procedure)
    assert isinstance(own, AllocationProgram)
    x, alone = np.full(2, 0.5), np.ones(1)
    optimum = by_hand(own, x, price=2.0)
    with pytest.raises(StopIteration) as end:
        while True:
            rest = procedure.send(optimum)
            assert isinstance(rest, Auxiliary) and isinstance(rest.program, AllocationProgram)
            optimum = by_hand(rest.program, alone, price=1.0)
    assert isinstance(end.value.value, Reduced)
    assert end.value.value.figures["discount"] == pytest.approx(np.full(2, 0.5))
    assert end.value.value.x == pytest.approx(0.5 * x)


class TwoRuns(Formulation):
    """A third party's formulation that runs the engine itself, as docs/how-to/extending.md allows."""

    name = "two-runs"

    def build(self, C: Classes) -> AllocationProgram:
        return AllocationProgram(C, Minimum(), C.throughput)

    def solve(self, candidates: Candidates, engine: Any) -> Solution:
        C = self.classes(candidates)
        program = self.build(C)
        first = engine.solve_directly(program)
        again = engine.solve_directly(program)
        assert first.value == again.value
        return self.solution(C.candidates, program, again, engine)


def test_a_formulation_may_run_the_engine_itself() -> None:
    formulation = TwoRuns()
    candidates = compile_for(formulation, optsched.load("@quickstart"))
    solution = formulation.solve(candidates, Engine(load_solver))
    assert solution.status is Status.OPTIMAL and solution.certificate.ok
    assert not formulation.is_one_program
