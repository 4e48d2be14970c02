"""Rows that ask for GPUs for groups of jobs, solved by limits on all others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from blocks import first_of
from programs import allocation

import optsched
from optsched.assembly import make_formulation
from optsched.program import AllocationProgram, DelayedMinimum, Minimum, SideRows, Total
from optsched.registry import load_solver
from optsched.solution import Status, Termination, Values
from optsched.solvers import Limits
from optsched.solving import Engine, Outcome
from optsched.solving.delayed_minimum import solve_delayed

# Private names: the engine decides who gets such a program, and goes on where one way has no optimum
from optsched.solving.group_floors import GroupFloors
from optsched.solving.water_filling import _fill_for_groups
from optsched.verify import verify

pytestmark = pytest.mark.property

ENDLESS = np.array([np.inf])


def asking(seed: int) -> AllocationProgram:
    """Random jobs of which one or two groups ask for GPUs, some of one pool alone; some deadlines."""
    random = np.random.default_rng(seed)
    jobs, pools = int(random.integers(4, 40)), int(random.integers(1, 5))
    rates = random.lognormal(0.0, 1.0, (jobs, pools)) * (random.random((jobs, pools)) > 0.2)
    rates[:, 0] = np.maximum(rates[:, 0], 0.1)
    gangs = random.choice([1, 2, 4], jobs)
    sizes = random.integers(4, max(5, int(gangs.sum())), pools)
    program = allocation(rates, gangs, sizes)
    C = program.classes
    used = C.usage.toarray()
    group = random.integers(0, 3, len(C))[C.class_a]
    side = []
    for number in range(int(random.integers(1, 3))):
        pool = used[: 1 + int(random.integers(0, pools))].sum(axis=0)
        matrix = sp.csr_matrix(np.where(group == number, pool, 0.0))
        matrix.eliminate_zeros()
        if matrix.nnz:
            lower = np.array([random.uniform(0.05, 0.6) * min(matrix.sum(), sizes.sum())])
            side.append(SideRows(f"share {number}", matrix, lower, ENDLESS, str))
    if random.random() < 0.3:
        price = sp.csr_matrix(used.sum(axis=0) * random.uniform(0.5, 2.0, C.columns))
        most = np.array([0.6 * price.sum()])
        side.append(SideRows("budget", price, np.array([-np.inf]), most, str))
    if random.random() < 0.3:
        k = np.flatnonzero(random.random(len(C)) < 0.2)
        lower = program.highest_level[k] * C.count[k] * random.uniform(0.0, 0.5, len(k))
        floors = sp.csr_matrix(program.levels[k])
        side.append(SideRows("deadlines", floors, lower, np.full(len(k), np.inf), str))
    weight = random.choice([0.5, 1.0, 2.0], len(C))
    utilities = (
        Minimum(),
        Total(weight, "linear"),
        Total(weight, "log"),
        DelayedMinimum(random.uniform(0.0, 2.0, len(C))),
    )
    return replace(program, utility=utilities[seed % 4], side=tuple(side))


def by_general(program: AllocationProgram) -> Outcome:
    solver = "clarabel" if program.conic else "highs"
    engine = Engine(load_solver, solver, Limits(tolerance=1e-10))
    if isinstance(program.utility, DelayedMinimum):
        return solve_delayed(engine, program)
    return engine.solve_directly(program)


@pytest.fixture
def prices_for_few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "optsched.solving.engine.pick_for_allocation", lambda *_, **__: ("prices", "in a test")
    )


@pytest.mark.parametrize("block", first_of(5, blocks=2))
def test_groups_get_what_they_ask_for_at_the_optimum_of_general_solvers(
    prices_for_few_jobs: None, block: int
) -> None:
    ended = Counter[Status]()
    for seed in range(40 * block, 40 * block + 40):
        program = asking(seed)
        engine = Engine(load_solver, "auto", Limits(tolerance=1e-10))
        groups = engine.for_groups(program)
        if groups is None:
            continue  # a group asks for more than there is
        ours, theirs = engine.solve_for_groups(groups), by_general(program)
        ended[ours.status] += 1
        if ours.status is Status.OPTIMAL:
            assert ours.certificate.ok, (seed, ours.certificate.problems)
            assert ours.value == pytest.approx(theirs.value, rel=1e-7, abs=1e-9), seed
        elif ours.status is Status.INFEASIBLE:
            assert theirs.status is Status.INFEASIBLE, seed
    assert ended[Status.OPTIMAL] > 10, ended


def test_what_is_no_share_of_pools_means_nothing_here() -> None:
    program = allocation(np.ones((3, 2)), np.ones(3, np.int64), np.array([2, 2]))
    C = program.classes
    halves = sp.csr_matrix(np.where(C.class_a == 0, 1.0, np.where(C.class_a == 1, 0.5, 0.0)))
    halves.eliminate_zeros()
    rows = SideRows("odd", halves, np.array([0.5]), ENDLESS, str)
    assert GroupFloors.of(replace(program, side=(rows,))) is None
    assert GroupFloors.of(program) is None


def test_the_price_of_a_share_is_that_of_the_gpus_which_it_takes_from_others(
    prices_for_few_jobs: None,
) -> None:
    program = allocation(np.array([[1.0], [1.2], [1.1]]), np.ones(3, np.int64), np.array([1]))
    rates = np.asarray(program.gain)
    mine = sp.csr_matrix(np.where(rates == 1.1, 0.0, 1.0))
    mine.eliminate_zeros()
    share = SideRows("share", mine, np.array([0.7]), ENDLESS, str)
    groups = GroupFloors.of(replace(program, utility=Minimum(), side=(share,)))
    assert groups is not None
    outcome = Engine(load_solver, "auto", Limits(tolerance=1e-10)).solve_for_groups(groups)
    assert outcome.status is Status.OPTIMAL and outcome.duals is not None
    assert outcome.value == pytest.approx(0.33)
    assert outcome.duals["share"] == pytest.approx([-1.1])
    assert outcome.duals["capacity"] == pytest.approx([1.1])


def market(jobs: int = 60, due: bool = False) -> optsched.Instance:
    """Jobs of five tenants on three pools of different prices; some have deadlines that can be kept."""
    random = np.random.default_rng(3)
    rates = random.lognormal(0.0, 1.0, (jobs, 3))
    deadline = np.where(np.arange(jobs) % 4 == 0, 1e6 / rates.max(axis=1) * 12.0, np.inf)
    return optsched.Instance.from_arrays(
        pools=[
            {"name": name, "nodes": 5, "gpus_per_node": 1, "cost_per_gpu_hour": 1.0 + place}
            for place, name in enumerate("abc")
        ],
        throughput=rates,
        steps=np.full(jobs, 1e6),
        deadline=deadline if due else np.full(jobs, np.inf),
        tenant=np.arange(jobs) % 5,
        tenants=[{"name": f"t{row}"} for row in range(5)],
    )


SHARE = {"kind": "minimum-share", "tenant": "t2", "share": 0.4}
BUDGET = {"kind": "budget", "limit": 20.0}


@pytest.mark.parametrize("formulation", ["water-filling", "drf"])
@pytest.mark.parametrize(
    "beside", [[], [{"kind": "deadlines"}], [BUDGET], [{"kind": "deadlines"}, BUDGET]]
)
def test_stages_of_a_filling_are_proved_by_prices_of_the_others(
    prices_for_few_jobs: None, tmp_path: Path, formulation: str, beside: list[dict[str, Any]]
) -> None:
    instance, asked = market(due={"kind": "deadlines"} in beside), [SHARE, *beside]
    ours = optsched.solve(instance, formulation, constraints=asked)
    theirs = optsched.solve(instance, formulation, constraints=asked, solver="highs")
    free = optsched.solve(instance, formulation, constraints=beside)
    assert ours.solver.name == "prices" and ours.status == "optimal"
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-7)
    assert ours.objective != pytest.approx(free.objective, rel=1e-3)
    for mine, other in zip(ours.stages, theirs.stages, strict=True):
        assert mine.value == pytest.approx(other.value, rel=1e-6)
    optsched.write_solution(ours, tmp_path / "solution.json")
    checked = verify(instance, tmp_path / "solution.json")
    assert not checked.findings and checked.bound == "verified"


def test_a_filling_that_is_stopped_leaves_the_point_that_keeps_all_rows(
    prices_for_few_jobs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> Values:
        return Values(Termination.TIME_LIMIT)

    monkeypatch.setattr("optsched.solvers.prices.solve_filling.solve_linear", stopped)
    formulation = make_formulation("water-filling", constraints=[SHARE])
    program = formulation.program(formulation.classes(optsched.compile(market())))
    engine = Engine(load_solver, "auto", Limits())
    groups = engine.for_groups(program)
    assert groups is not None
    answer = _fill_for_groups(engine, groups)
    assert answer.outcome.status is Status.FEASIBLE and answer.outcome.certificate.ok
    assert answer.outcome.x is not None and not groups.lacks(answer.outcome.x)


@pytest.mark.parametrize("limit", [13.0, 17.0, 22.0])
@pytest.mark.parametrize("formulation", ["max-min-fairness", "max-throughput", "alpha-fairness"])
def test_a_budget_that_is_used_up_leaves_the_group_what_it_asks_for(
    prices_for_few_jobs: None, formulation: str, limit: float
) -> None:
    asked = [SHARE, {"kind": "budget", "limit": limit}]
    ours = optsched.solve(market(), formulation, constraints=asked)
    general = "clarabel" if formulation == "alpha-fairness" else "highs"
    theirs = optsched.solve(market(), formulation, constraints=asked, solver=general)
    assert ours.solver.name == "prices" and ours.status == "optimal"
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-6)
    assert ours.duals is not None
    assert ours.duals["minimum-share"][0] < 0 < ours.duals["budget"][0]
