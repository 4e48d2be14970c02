"""In which order assignments and knapsacks are tried: small ones by few nodes of branch and bound first."""

from __future__ import annotations

from functools import partial

import pytest

import optsched
from optsched.api import make_formulation
from optsched.generate import generate
from optsched.program import AllocationProgram
from optsched.registry import load_solver
from optsched.solvers import Limits

# Private: the ways of a program in their order, none of which is run
from optsched.solving.engine import BRIEFLY, SMALL_KNAPSACK, Engine


def ways(jobs: int, agents: int, limits: Limits, solver: str | None = None) -> list[str]:
    """How an assignment is tried at first."""
    instance = generate("gap", jobs=jobs, agents=agents, type="d", seed=1).instance
    return ways_of(instance, "gap", limits, solver)


def knapsack(jobs: int, solver: str | None = None) -> list[str]:
    """How a knapsack of five resources is tried at first."""
    instance = generate("knapsack", jobs=jobs, resources=5, seed=1).instance
    return ways_of(instance, "multiple-choice", Limits(), solver)


def ways_of(
    instance: optsched.Instance, name: str, limits: Limits, solver: str | None = None
) -> list[str]:
    """Names of the first three ways, each with the solver that is named there."""
    formulation = make_formulation(name)
    program = formulation.build(formulation.classes(optsched.compile(instance)))
    assert isinstance(program, AllocationProgram)
    engine = Engine(load_solver, limits=limits, solver=solver or "auto")
    found = []
    for way in engine._ways(program, None):
        step, args = (way.func, way.args) if isinstance(way, partial) else (way, ())
        named = [each for each in args if isinstance(each, str)]
        found.append(" ".join([step.__name__, *named]))
        if len(found) == 3:
            break
    return found


@pytest.mark.parametrize(("jobs", "agents"), [(50, 5), (BRIEFLY // 10, 10)])
def test_small_assignments_branch_first_and_then_search(jobs: int, agents: int) -> None:
    assert ways(jobs, agents, Limits())[:2] == ["branch_briefly", "search_assignments"]


def test_larger_assignments_are_searched_at_once() -> None:
    assert ways(BRIEFLY // 10 + 1, 10, Limits())[0] == "search_assignments"


def test_a_limit_on_work_is_that_of_the_user() -> None:
    """The nodes before the search would not count."""
    assert ways(50, 5, Limits(work=1))[0] == "search_assignments"


def test_a_solver_that_is_named_solves_the_program() -> None:
    assert ways(50, 5, Limits(), solver="highs")[0] == "solve"


def test_knapsacks_are_enumerated_where_a_few_nodes_do_not_settle_them() -> None:
    assert knapsack(1000)[:2] == ["branch_briefly", "enumerate_knapsack"]
    assert knapsack(50, "highs") == ["solve"]
    instance = optsched.load("@quickstart")
    assert ways_of(instance, "max-throughput", Limits())[0] != "branch_briefly"


def test_small_knapsacks_go_to_cp_sat_then() -> None:
    assert knapsack(SMALL_KNAPSACK)[2] == "solve cp-sat"
    assert knapsack(SMALL_KNAPSACK + 1)[2] == "solve"
