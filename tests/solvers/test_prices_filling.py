"""Water filling by prices: brute force, two regimes, full pools, and what it leaves to others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocks import first_of

import optsched
from optsched import Instance, Solution
from optsched.arrays.values import replace
from optsched.program import AllocationProgram, LexicographicMinimum

# Private names: states of a filling that searches come to with 100,000 classes only
from optsched.program.filling import Filling
from optsched.program.filling import Path as FillingPath
from optsched.solvers.prices import clock, solve_filling
from optsched.solvers.prices.watch import Watch

sys.path.insert(0, str(Path(__file__).parents[1] / "formulations"))
import filling_reference as reference

pytestmark = pytest.mark.property

NAME = "water-filling"
FAMILIES: dict[str, dict[str, bool]] = {
    "flat": {},
    "ties": {"weights": True, "twins": True},
    "gangs": {"gangs": True, "weights": True, "zeros": True},
    "tenants": {"tenants": True, "weights": True},
    "equal jobs of tenants": {"tenants": True, "twins": True, "zeros": True, "gangs": True},
}


def solve(instance: Instance, gap: float = 1e-9, **options: Any) -> Solution:
    """Solved by prices, certified, and verified from its file."""
    found = optsched.solve(instance, NAME, **({"solver": "prices"} | options))
    assert found.status == "optimal" and found.solver.name == "prices" and found.gap <= gap
    report = optsched.verify(instance, found.to_document())
    assert report.ok and report.bound == "verified", report
    return found


def levels(found: Solution) -> np.ndarray:
    """nt of every job, 0 for those that have no column."""
    nt = found.figures["normalised throughput"]
    return np.array([nt.get(name, 0.0) for name in found.instance.jobs_table.names])


def rates(jobs: int, pools: int, seed: int = 0) -> np.ndarray:
    """Jobs that all differ; some run in few pools."""
    random = np.random.default_rng(seed)
    rate = random.lognormal(0, 1, (jobs, pools))
    rate[:, 1:][random.random((jobs, pools - 1)) < 0.25] = 0.0
    return rate


def drawn(jobs: int, pools: dict[str, int], seed: int = 0, **fields: Any) -> Instance:
    """Jobs of one GPU and weight 1 or 2 in turns."""
    weight = 1.0 + np.arange(jobs) % 2
    throughput = rates(jobs, len(pools), seed)
    return Instance.from_arrays(pools=pools, throughput=throughput, weight=weight, **fields)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", first_of(12, blocks=6))
def test_levels_are_those_of_brute_force(
    family: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To 1e-9, where linear programs with slack are right to 1e-6."""
    monkeypatch.setattr(reference, "SLACK", 1e-12)
    case = reference.random_case(seed, 3 + seed, **FAMILIES[family])
    case.capacity = np.asarray(case.capacity) * (1 + seed % 3)
    expected = reference.filled(case)
    for classes in (True, False):
        found = levels(solve(case.instance(), classes=classes))
        assert found == pytest.approx(expected, abs=1e-9 * expected.max())


def test_where_capacity_binds_all_are_held_in_one_stage() -> None:
    found = solve(drawn(3000, {"a": 200, "b": 300, "c": 200}))
    assert len(found.stages) == 1 and all(price > 0 for price in found.prices.values())
    highest = rates(3000, 3).max(axis=1) / (rates(3000, 3) @ [200, 300, 200] / 700)
    clock = np.minimum(found.stages[0].value * (1.0 + np.arange(3000) % 2), highest)
    assert levels(found) == pytest.approx(clock, rel=1e-9)


def test_where_there_is_room_all_reach_their_own_top_in_one_stage() -> None:
    found, rate = solve(drawn(3000, {"a": 9000, "b": 9000, "c": 9000})), rates(3000, 3)
    assert len(found.stages) == 1 and not any(found.prices.values())
    assert levels(found) == pytest.approx(rate.max(axis=1) / rate.mean(axis=1))


@pytest.mark.parametrize("seed", range(6))
def test_stages_are_counted_by_full_pools(seed: int) -> None:
    pools = {"a": 8, "b": 15, "c": 90, "d": 400}
    instance = drawn(200, pools, seed)
    found, other = solve(instance, gap=1e-7), optsched.solve(instance, NAME, solver="highs")
    assert 2 <= len(found.stages) <= len(pools) + 1
    # One job may have the slack of all others; only levels below the other answer's are wrong.
    assert (levels(found) >= levels(other) - 1e-6 * levels(other).max()).all()
    assert found.objective == pytest.approx(other.objective, rel=1e-6)


def test_two_pools_on_which_a_job_is_equally_fast_at_its_top() -> None:
    """Rounding puts the level above both, and a segment between them would have no slope."""
    instance = Instance.from_arrays(
        pools={"a": 1, "b": 1, "c": 8, "d": 4},
        throughput=np.array([[0.0, 0.0, 2.0, 2.0], [4.0, 1.0, 4.0, 1.0]]),
        gpus=[2, 1],
        steps=[1000.0, 100.0],
    )
    by_rows = optsched.solve(instance, NAME, solver="highs")
    assert solve(instance).objective == pytest.approx(by_rows.objective, rel=1e-9)


def test_budgets_and_barred_pools_are_resources() -> None:
    tenants = [{"name": "vision"}, {"name": "speech"}]
    constraints = [
        {"kind": "forbidden", "jobs": ["j1"], "pools": ["a"]},
        {"kind": "quota", "tenant": "vision", "gpus": 30},
    ]
    owner = np.arange(120) // 60
    instance = drawn(120, {"a": 40, "b": 60}, tenants=tenants, tenant=owner)
    found = solve(instance, constraints=constraints)
    other = optsched.solve(instance, NAME, solver="highs", constraints=constraints)
    assert levels(found) == pytest.approx(levels(other), abs=1e-6)


def with_quotas(jobs: int, tenants: int) -> tuple[Instance, list[dict[str, Any]]]:
    """Jobs of tenants, of which every fourth has a quota that fills up before the others."""
    pools = {"a": jobs // 20, "b": jobs // 15, "c": jobs // 25, "d": jobs // 12}
    names = [{"name": f"t{number}"} for number in range(tenants)]
    owner = np.random.default_rng(0).integers(0, tenants, jobs)
    part = 0.6 / tenants
    quotas = [
        {"kind": "quota", "tenant": f"t{number}", "share": part} for number in range(tenants // 4)
    ]
    return drawn(jobs, pools, tenants=names, tenant=owner), quotas


def test_levels_beside_full_quotas_are_those_of_linear_programs() -> None:
    instance, quotas = with_quotas(400, 8)
    found = solve(instance, constraints=quotas)
    other = optsched.solve(instance, NAME, solver="highs", constraints=quotas)
    assert levels(found) == pytest.approx(levels(other), abs=1e-6 * levels(other).max())
    assert len(found.stages) >= 3


def test_full_quotas_of_earlier_stages_do_not_slow_down_later_ones() -> None:
    """Their jobs are set aside: a little below the clock, a quota that is full has room."""
    instance, quotas = with_quotas(3000, 20)
    found = solve(instance, constraints=quotas)
    assert len(found.stages) == 6 and found.solver.iterations < 170


def test_auto_takes_it_for_many_jobs_and_goes_on_where_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = drawn(1200, {"a": 300, "b": 300})
    by_prices = solve(instance, solver="auto")
    monkeypatch.setattr(solve_filling, "UNCLEAR", -1.0)
    found = optsched.solve(instance, NAME)
    assert found.status == "optimal" and found.solver.name != "prices"
    assert found.objective == pytest.approx(by_prices.objective, rel=1e-7)


@pytest.mark.parametrize("work", [1, 5, 9])
def test_a_limit_leaves_what_there_is(work: int) -> None:
    instance = drawn(300, {"a": 20, "b": 30, "c": 300})
    found = optsched.solve(instance, NAME, solver="prices", work_limit=work)
    assert found.status in ("feasible", "limit", "optimal") and found.certificate.ok


DEADLINES = [{"kind": "deadlines"}]


def due(jobs: int, pools: dict[str, int], seed: int, slack: float, **fields: Any) -> Instance:
    """A third of the jobs have deadlines, some with little slack."""
    random = np.random.default_rng([1, seed])
    alone = 1e4 / rates(jobs, len(pools), seed).max(axis=1)
    late = alone * random.uniform(slack, 12.0, jobs)
    deadline = np.where(random.random(jobs) < 0.35, late, np.inf)
    return drawn(jobs, pools, seed, steps=np.full(jobs, 1e4), deadline=deadline, **fields)


@pytest.mark.parametrize("tenants", [0, 4])
@pytest.mark.parametrize("seed", range(5))
def test_deadlines_are_floors_under_the_path(seed: int, tenants: int) -> None:
    owned: dict[str, Any] = {}
    if tenants:
        owned["tenants"] = [{"name": f"t{row}", "weight": 1.0 + row} for row in range(tenants)]
        owned["tenant"] = np.arange(150) % tenants
    pools = {"a": 12, "b": 20, "c": 30 + 60 * (seed % 2)}
    instance = due(150, pools, seed, slack=3.0, **owned)
    found = solve(instance, gap=1e-7, constraints=DEADLINES)
    other = optsched.solve(instance, NAME, solver="highs", constraints=DEADLINES)
    assert levels(found) == pytest.approx(levels(other), abs=1e-6 * levels(other).max())
    without = solve(instance, gap=1e-7)
    assert (levels(found) - levels(without)).max() > 1e-3


def test_deadlines_that_cannot_be_kept_are_refuted_by_prices() -> None:
    instance = due(150, {"a": 1, "b": 1}, 0, slack=1.0)
    found = optsched.solve(instance, NAME, solver="prices", constraints=DEADLINES)
    assert found.status == "infeasible"


@pytest.mark.parametrize("work", [1, 5, 9, 30])
def test_a_limit_above_floors_leaves_what_there_is(work: int) -> None:
    instance = due(150, {"a": 12, "b": 20, "c": 90}, 0, slack=3.0)
    found = optsched.solve(instance, NAME, solver="prices", constraints=DEADLINES, work_limit=work)
    assert found.status in ("feasible", "limit", "optimal") and found.certificate.ok


@pytest.mark.parametrize("cpu", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_dominant_shares_and_the_throughput_among_them(seed: int, cpu: bool) -> None:
    random = np.random.default_rng(seed)
    builder = optsched.InstanceBuilder(round="6m")
    pools = [
        builder.add_pool(name, nodes=5, gpus_per_node=4, cpus_per_node=24, cost_per_gpu_hour=price)
        for name, price in (("fast", 3.0), ("slow", 1.0))
    ]
    for job, rate in enumerate(rates(80, 2, seed).tolist()):
        cpus = float(random.integers(1, 12)) if cpu else 0.0
        options = [
            {"pool": str(pool), "gpus": 1, "throughput": one, "uses": {"cpu": cpus}}
            for pool, one in zip(pools, rate, strict=True)
            if one
        ]
        builder.add_job(f"job-{job}", steps=1e6, options=options)
    instance = builder.instance()
    constraints = [{"kind": "budget", "limit": 50.0}]
    found = optsched.solve(instance, "drf", solver="prices", constraints=constraints)
    other = optsched.solve(instance, "drf", solver="highs", constraints=constraints)
    assert found.status == "optimal" and found.solver.name == "prices" and found.gap <= 1e-7
    assert optsched.verify(instance, found.to_document()).ok
    assert found.objective == pytest.approx(other.objective, rel=1e-6)


@pytest.mark.parametrize("kind", ["deadlines", "minimum-service", "both", "time"])
@pytest.mark.parametrize("seed", range(6))
def test_dominant_shares_above_floors_of_throughput(seed: int, kind: str) -> None:
    """Shares and throughput are two measures: pairs of columns balance them."""
    asked = {
        "deadlines": DEADLINES,
        "minimum-service": [{"kind": "minimum-service", "fraction": 0.3, "of": "isolated"}],
        "both": [*DEADLINES, {"kind": "minimum-service", "fraction": 0.3, "of": "isolated"}],
        "time": [{"kind": "minimum-service", "fraction": 0.03}],
    }[kind]
    pools = {"a": 12, "b": 20, "c": 30 + 60 * (seed % 2)}
    instance = due(150, pools, seed, slack=3.0, gpus=1 + np.arange(150) % 3)
    found = optsched.solve(instance, "drf", solver="prices", constraints=asked)
    other = optsched.solve(instance, "drf", solver="highs", constraints=asked)
    assert found.status == other.status
    if found.status == "infeasible":
        return
    assert found.status == "optimal" and found.gap <= 1e-7
    assert found.objective == pytest.approx(other.objective, rel=1e-6)
    assert optsched.verify(instance, found.to_document()).ok
    ours, theirs = found.figures["dominant share"], other.figures["dominant share"]
    assert ours == pytest.approx(theirs, abs=1e-6 * max(theirs.values()))


def test_prices_are_no_higher_than_columns_closed_by_stages_ask_for() -> None:
    """A column that saves hardly any GPU time would be kept empty by very high prices alone."""
    jobs = 1000
    instance = due(jobs, {"a": 62, "b": 62, "c": 62}, 2, slack=3.0, gpus=1 + np.arange(jobs) % 3)
    found = optsched.solve(instance, "drf", solver="prices", constraints=DEADLINES)
    duals = found.to_document()["duals"]
    assert found.status == "optimal" and found.gap <= 1e-9
    assert duals["closed"][0] > 0 and max(duals["capacity"]) < 20.0
    assert optsched.verify(instance, found.to_document()).ok


def test_time_in_a_closed_column_is_made_up_for_in_the_others() -> None:
    """A gap of all classes may leave one of them some time there; its level must not fall."""
    C = optsched.compile(drawn(6, {"a": 2, "b": 4}, 1)).classes(frozenset({"weight"}))
    nobody, ones = np.zeros(0), np.ones(len(C))
    alone = np.full(len(C), -1), nobody, np.zeros(0, bool), np.zeros(len(C))
    utility = LexicographicMinimum(ones, ones, *alone)
    program = AllocationProgram(C, utility, C.throughput)
    filling = Filling(program, empties=True, empties_last=True)
    wide = int(np.flatnonzero(np.bincount(C.class_a) > 1)[0])
    closed, other = np.flatnonzero(C.class_a == wide)[:2]
    filling.open[closed] = False
    stages = solve_filling.PricedFilling(program)
    stages.x[[closed, other]] = 1e-6, 0.25
    moved = stages._on_open_columns(filling.final())
    assert moved[closed] == 0.0
    assert program.level(moved) == pytest.approx(program.level(stages.x), rel=1e-14)


def test_levels_that_lack_rounding_are_met_where_one_class_of_many_stops_the_rise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a class has a hundred-millionth of all worth, so that rounding of all levels is much of its rise."""
    instance, run = drawn(12, {"a": 3, "b": 2}), clock.ClockSearch.run
    exact = solve(instance)

    def rounded(search: clock.ClockSearch, path: FillingPath, watch: Watch) -> clock.ClockAnswer:
        found = run(search, path, watch)
        if found.multipliers is None:
            return found
        m, part = found.multipliers, 1e-8
        small = replace(
            m,
            prices=m.prices * part,
            rent=m.rent * part,
            of_level=m.of_level * part,
            of_floors=[each * part for each in m.of_floors],
        )
        return replace(found, reached=found.reached - 5e-13, multipliers=small)

    monkeypatch.setattr(clock.ClockSearch, "run", rounded)
    assert levels(solve(instance)) == pytest.approx(levels(exact), rel=1e-9)
