"""Generalised assignment: brute force, bounds, jobs without room, and jobs that are no assignment."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from optsched.api import make_formulation
from optsched.arrays import FloatArray, IntArray
from optsched.generate import generate
from optsched.program import AllocationProgram, knapsack
from optsched.program.assignment import AgentKnapsacks, Assignment
from optsched.program.knapsack import best_items, best_of_each, losses_of_each
from optsched.solution import certify_point
from optsched.solving.knapsack_bound import knapsack_bound, knapsack_losses, with_job_prices

ITEMS = 6
"""Of each random knapsack."""


def document(seed: int, jobs: int = 5, agents: int = 3) -> dict[str, Any]:
    """Jobs of which two are equal; costs may be negative, and an option may use several agents."""
    random = np.random.default_rng(seed)

    def option(agent: int) -> dict[str, Any]:
        uses = {f"a{agent}": float(random.integers(0, 6))}
        if random.random() < 0.2:
            uses[f"a{random.integers(agents)}"] = 1.0
        way: dict[str, Any] = {"uses": uses, "cost": float(random.integers(-3, 20))}
        if random.random() < 0.2:
            way["throughput"] = 0.0  # no rate is needed
        return way

    lists = [[option(agent) for agent in range(agents)] for _ in range(jobs)]
    lists[-1] = lists[0]
    return instance_document(
        {"none": (0, 1)},
        [{"id": f"j{row}", "options": options} for row, options in enumerate(lists)],
        resources=[
            {"name": f"a{agent}", "capacity": float(random.integers(3, 12))}
            for agent in range(agents)
        ],
    )


def least_cost(given: dict[str, Any]) -> float | None:
    """The optimum by trying all choices; None if there is none."""
    capacity = {item["name"]: item["capacity"] for item in given["cluster"]["resources"]}
    found = []
    for choice in product(*(job["options"] for job in given["jobs"])):
        use = dict.fromkeys(capacity, 0.0)
        for option in choice:
            for name, amount in option["uses"].items():
                use[name] += amount
        if all(use[name] <= capacity[name] for name in capacity):
            found.append(sum(option["cost"] for option in choice))
    return min(found, default=None)


@pytest.mark.parametrize("solver", ["auto", "cp-sat"])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12, deadline=None)
def test_against_all_assignments(solver: str, seed: int) -> None:
    plain = document(seed)
    best = least_cost(plain)
    solution = optsched.solve(plain, "gap", solver=solver)
    assert solution.certificate.ok
    if best is None:
        assert solution.status == "infeasible"
        return
    assert solution.status == "optimal" and solution.objective == pytest.approx(best, abs=1e-9)
    assert solution.bound <= best + 1e-6
    assert optsched.verify(solution).ok
    apart = optsched.solve(plain, "gap", classes=False)
    assert apart.objective == pytest.approx(best, abs=1e-9)


def test_many_different_jobs_need_no_second_solver() -> None:
    """The prices of the easier program, in which nobody must be assigned, rule nothing out."""
    instance = generate("gap", jobs=200, agents=20, type="a", seed=1).instance
    solution = optsched.solve(instance, "gap")
    assert (solution.status, solution.solver.name) == ("optimal", "highs")
    other = optsched.solve(instance, "gap", solver="highs")
    assert solution.objective == other.objective


def test_a_job_without_room_is_an_infeasible_instance() -> None:
    plain = document(1, jobs=2, agents=1)
    plain["jobs"][0]["options"] = [{"uses": {"a0": 99.0}, "cost": 1.0}]
    solution = optsched.solve(plain, "gap")
    assert solution.status == "infeasible" and solution.objective is None
    plain["cluster"]["pools"] = [{"name": "g", "nodes": 1, "gpus_per_node": 1}]
    plain["jobs"][0]["options"] = [{"pool": "g", "gpus": 3, "duration": 1.0, "cost": 1.0}]
    solution = optsched.solve(plain, "gap")
    assert solution.status == "infeasible"
    (conflict,) = solution.conflicts
    assert conflict.words.startswith(
        "job j0 can run nowhere: g: needs 3 GPUs, but only 1 is usable"
    )


def test_an_overloaded_agent_is_named() -> None:
    plain = document(1, jobs=3, agents=1)
    for job in plain["jobs"]:
        job["options"] = [{"uses": {"a0": 2.0}, "cost": 1.0}]
    plain["cluster"]["resources"][0]["capacity"] = 5.0
    solution = optsched.solve(plain, "gap")
    assert solution.status == "infeasible"
    words = [conflict.words for conflict in solution.conflicts]
    assert any("must have one of its options" in text for text in words)
    assert any("a0" in text for text in words)


def test_jobs_without_options_have_no_costs() -> None:
    with refuses("jobs[0].options: found none (job ..."):
        optsched.solve("@quickstart", "gap")


@pytest.mark.property
def test_the_assignment_that_ships() -> None:
    solution = optsched.solve("@assignment", "gap")
    assert (solution.status, solution.objective) == ("optimal", 1182.0)
    assert solution.allocation is not None
    table = solution.allocation.to_columns()
    assert table["uses"][0].startswith("agent") and sum(table["cost"]) == 1182.0


@pytest.mark.parametrize("kind", ["c", "d", "e"])
def test_a_rule_assigns_all_jobs_before_any_solver(kind: str) -> None:
    instance = generate("gap", jobs=100, agents=10, type=kind, seed=3).instance
    formulation = make_formulation("gap")
    program = formulation.build(formulation.classes(optsched.compile(instance)))
    assert isinstance(program, AllocationProgram)
    arrays, x = program.to_linear().arrays, program.known_point()
    point = program.complete(x)
    assert certify_point(arrays, point, arrays.objective(point), "none").ok


@pytest.mark.property
def test_the_search_comes_close_to_the_bound_of_priced_jobs() -> None:
    """With one node of branch and bound, which alone ends .7 % above the bound."""
    instance = generate("gap", jobs=30, agents=6, type="d", seed=1).instance
    solution = optsched.solve(instance, "gap", work_limit=1, seed=1)
    assert solution.certificate.ok and optsched.verify(solution).ok
    assert solution.objective is not None and solution.bound is not None
    assert solution.objective <= 1.005 * solution.bound
    again = optsched.solve(instance, "gap", work_limit=1, seed=1)
    assert again.allocation is not None and solution.allocation is not None
    assert np.array_equal(again.allocation.x, solution.allocation.x)


@pytest.mark.property
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_of_priced_jobs_holds(seed: int) -> None:
    """It is between the bound of the relaxation and the optimum."""
    instance = generate("gap", jobs=24, agents=4, type="d", seed=seed).instance
    best = optsched.solve(instance, "gap", solver="cp-sat")
    assert best.status == "optimal" and best.objective is not None
    searched = optsched.solve(instance, "gap", work_limit=1)
    assert searched.bound is not None and searched.bound <= best.objective
    assert searched.bound == round(searched.bound)
    assert (searched.bound_source, searched.certificate.proof) == ("dual", "dual")
    checked = optsched.verify(searched)
    assert checked.ok and checked.bound == "verified"


@pytest.mark.property
def test_verify_solves_the_knapsacks_of_the_agents_again() -> None:
    """The bound of other prices of the jobs is another one, and a tighter bound is none of these prices."""
    instance = generate("gap", jobs=24, agents=4, type="d", seed=1).instance
    solution = optsched.solve(instance, "gap", work_limit=1)
    document = solution.to_document()
    document["bound"] += 1.0
    document["gap"] = (document["objective"] - document["bound"]) / document["objective"]
    findings = optsched.verify(instance, document).findings
    assert any(finding.field == "bound" for finding in findings)
    document = solution.to_document()
    document["duals"]["assignment"][0] -= 50.0
    findings = optsched.verify(instance, document).findings
    assert {"bound", "duals"} <= {finding.field for finding in findings}


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1.0, 0.25, 1 / 3, 1e-7]))
@settings(max_examples=40, deadline=None)
def test_any_prices_of_jobs_bound_the_optimum(seed: int, scale: float) -> None:
    """Also where equal jobs are a class, and where what they use has no unit."""
    plain = document(seed)
    best = least_cost(plain)
    if best is None:
        return
    for job in plain["jobs"]:
        for option in job["options"]:
            option["uses"] = {name: scale * amount for name, amount in option["uses"].items()}
            agent = next(iter(option["uses"]))
            option["uses"] = {agent: option["uses"][agent] or scale}
    for resource in plain["cluster"]["resources"]:
        resource["capacity"] *= scale
    best = least_cost(plain)
    formulation = make_formulation("gap")
    program = formulation.build(formulation.classes(optsched.compile(plain)))
    assert isinstance(program, AllocationProgram) and program.assignment is not None
    arrays, random = program.to_linear().arrays, np.random.default_rng(seed)
    y = with_job_prices(
        program, random.normal(0, 5, arrays.shape[0]), random.normal(5, 10, program.assignment.jobs)
    )
    bound = knapsack_bound(program, arrays, y)
    assert bound is not None and (best is None or -bound <= best + 1e-6)


def test_agents_without_a_unit_solve_a_knapsack_of_rounded_sizes() -> None:
    """Its maximum is at least that of the true sizes, and nearly the same."""
    random = np.random.default_rng(3)
    use = random.random((1, 12)) / 3
    of = Assignment(
        cost=np.zeros((1, 12)),
        use=use,
        room=np.array([1.0]),
        column=np.arange(12)[np.newaxis],
        row=np.zeros(1, np.int64),
    )
    worth = random.integers(1, 30, (1, 12)).astype(float)
    most = max(
        worth[0] @ np.array(z)
        for z in product((0.0, 1.0), repeat=12)
        if use[0] @ np.array(z) <= 1.0
    )
    found, _ = AgentKnapsacks.of(of).best(worth)
    assert most <= found <= 1.05 * most


@pytest.mark.property
def test_a_search_starts_from_a_given_assignment() -> None:
    instance = generate("gap", jobs=12, agents=3, type="d", seed=5).instance
    first = optsched.solve(instance, "gap", work_limit=1)
    again = optsched.solve(instance, "gap", work_limit=1, start=first)
    assert first.objective is not None and again.objective is not None
    assert again.objective <= first.objective


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_what_a_knapsack_loses_where_an_item_must_be_taken_or_left_out(seed: int) -> None:
    random = np.random.default_rng(seed)
    value, weight, capacity = three_knapsacks(random)
    total, _ = best_of_each(value, weight, capacity)
    most = float(random.integers(0, 6))
    exact = losses_of_each(value, weight, capacity)
    enough = losses_of_each(value, weight, capacity, most)
    for row, sets in enumerate(sets_that_fit(weight, capacity)):
        for item, one in product(range(ITEMS), (0, 1)):
            best = max((float(value[row] @ z) for z in sets if z[item] != one), default=-np.inf)
            loss, found = total[row] - best, enough[one][row, item]
            assert exact[one][row, item] == pytest.approx(loss, abs=1e-9)
            assert found == pytest.approx(loss, abs=1e-9) or min(found, loss) > most


@given(seed=st.integers(0, 2**32 - 1), together=st.sampled_from([1, 60, 2**20]))
@settings(max_examples=40, deadline=None)
def test_knapsacks_side_by_side_are_those_one_by_one(seed: int, together: int) -> None:
    value, weight, capacity = three_knapsacks(np.random.default_rng(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knapsack, "SIDE_BY_SIDE", together)
        total, chosen = best_of_each(value, weight, capacity)
    for row, sets in enumerate(sets_that_fit(weight, capacity)):
        assert total[row] == pytest.approx(max(float(value[row] @ z) for z in sets), abs=1e-9)
        assert total[row] == pytest.approx(float(value[row] @ chosen[row]), abs=1e-9)
        assert weight[row] @ chosen[row] <= capacity[row]
        alone, _ = best_items(value[row], weight[row], int(capacity[row]))
        assert alone == total[row]


def test_compiled_knapsacks_are_those_without_numba() -> None:
    pytest.importorskip("numba")
    random = np.random.default_rng(0)
    for most in (0.0, 3.0, np.inf) * 10:
        some = three_knapsacks(random)
        found = (*best_of_each(*some), *losses_of_each(*some, most))
        fast = (*best_of_each(*some, fast=True), *losses_of_each(*some, most, fast=True))
        assert all(map(np.array_equal, found, fast))


def three_knapsacks(random: np.random.Generator) -> tuple[FloatArray, IntArray, IntArray]:
    """Values, some of them negative, weights and capacities."""
    size = (3, ITEMS)
    value = random.integers(-5, 20, size) * random.choice([1.0, 0.37])
    return value, random.integers(0, 9, size), random.integers(0, 25, 3)


def sets_that_fit(weight: IntArray, capacity: IntArray) -> list[list[IntArray]]:
    """Of each knapsack all sets of items within its capacity."""
    every = [np.array(z) for z in product((0, 1), repeat=ITEMS)]
    return [[z for z in every if z @ w <= most] for w, most in zip(weight, capacity, strict=True)]


@pytest.mark.parametrize("seed", range(6))
def test_an_assignment_is_short_of_the_bound_by_what_its_columns_lose(seed: int) -> None:
    plain = document(seed)
    for job in plain["jobs"]:
        for agent, option in enumerate(job["options"]):
            option["uses"] = {f"a{agent}": 1.0 + sum(option["uses"].values())}
    for resource in plain["cluster"]["resources"]:
        resource["capacity"] = 12.0
    formulation = make_formulation("gap")
    program = formulation.build(formulation.classes(optsched.compile(plain)))
    assert isinstance(program, AllocationProgram) and program.assignment is not None
    of, arrays = program.assignment, program.to_linear().arrays
    random = np.random.default_rng(seed)
    prices = random.normal(8, 5, of.jobs)
    losses = knapsack_losses(
        program, arrays, with_job_prices(program, np.zeros(arrays.shape[0]), prices)
    )
    assert losses is not None
    bound, loss = losses
    fitting = [
        agents for choice in product(range(of.agents), repeat=of.jobs)
        if of.fits(agents := np.array(choice))
    ]  # fmt: skip
    assert fitting
    for agents in fitting:
        point = of.point(agents, program.classes.columns)
        assert arrays.cost @ point <= bound - loss[point > 0].max() + 1e-9
