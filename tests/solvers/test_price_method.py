"""The price method against HiGHS, exact rationals, and itself: every answer is proved."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import allocation, scattered
from refusals import refuses

import optsched

# Private names: sessions and steps of one back-end, without the engine
from optsched.arrays import compiling
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.program import AllocationProgram, Minimum
from optsched.registry import load_solver
from optsched.solution import Status, Termination
from optsched.solvers import Limits
from optsched.solvers.prices.kernels import compiled
from optsched.solvers.prices.market import market_of
from optsched.solvers.prices.oracle import Oracle
from optsched.solving import Engine, Outcome
from optsched.solving.certify import certified_allocation

pytestmark = pytest.mark.property

KINDS = ("plain", "equal", "proportional", "huge", "zeros", "whole numbers")


def solved(program: AllocationProgram, solver: str = "prices", **limits: Any) -> Outcome:
    return Engine(load_solver, solver, Limits(**limits)).solve_directly(program)


def drawn(seed: int, most: int = 60, kind: str | None = None) -> AllocationProgram:
    """A small instance of a random sort."""
    random = np.random.default_rng(seed)
    jobs, pools = int(random.integers(1, most + 1)), int(random.integers(1, 9))
    kind = kind or KINDS[seed % len(KINDS)]
    rates = random.lognormal(0.0, 1.0, (jobs, pools))
    if kind == "equal":
        rates = rates[random.integers(0, max(1, jobs // 3), jobs)]
    elif kind == "proportional":
        rates = rates[:1] * random.lognormal(0.0, 1.0, (jobs, 1))
    elif kind == "huge":
        rates = 10.0 ** random.uniform(-6.0, 6.0, (jobs, pools))
    elif kind == "zeros":
        rates *= random.random((jobs, pools)) > 0.4
    elif kind == "whole numbers":
        rates = random.integers(0, 4, (jobs, pools)).astype(float)
    gangs = random.choice([1, 2, 4, 8], jobs)
    total = int(gangs.sum() / random.choice([1, 2, 8])) + 1
    sizes = random.integers(0 if random.random() < 0.1 else 1, max(2, total), pools)
    program = allocation(rates, gangs, sizes)
    weight = random.choice([0.25, 1.0, 2.0, 8.0], len(program.classes))
    return AllocationProgram(
        program.classes, Minimum(), sp.csr_matrix(sp.diags_array(weight) @ program.levels)
    )


def test_random_instances_agree_with_simplex() -> None:
    for seed in range(90):
        program = drawn(seed)
        if not len(program.classes):
            continue
        ours, theirs = solved(program), solved(program, "highs", tolerance=1e-10)
        assert ours.status is Status.OPTIMAL and ours.certificate.ok, (
            seed,
            ours.certificate.problems,
        )
        assert ours.value == pytest.approx(theirs.value, rel=1e-8), seed
        assert ours.bound == pytest.approx(ours.value, rel=1e-9), seed


@pytest.mark.study
@pytest.mark.parametrize("walk", ["numpy", "compiled"])
def test_thousands_of_random_instances_agree_with_simplex(
    walk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "COMPILED", 0 if walk == "compiled" else 10**12)
    for seed in range(1000, 3000):
        program = drawn(seed, 150)
        if len(program.classes):
            ours, theirs = solved(program), solved(program, "highs", tolerance=1e-10)
            assert ours.value == pytest.approx(theirs.value, rel=1e-8), seed
            assert ours.bound == pytest.approx(ours.value, rel=1e-9), seed


def exact_level(program: AllocationProgram) -> Fraction:
    """The optimum in rationals: simplex from the idle allocation, by Bland's rule."""
    C = program.classes
    blocks = [
        (C.member, C.count, 0),
        (C.usage, C.capacity, 0),
        (-program.levels, np.zeros(len(C)), 1),
    ]
    table: list[list[Fraction]] = []
    for matrix, side, level in blocks:
        for row, limit in zip(matrix.toarray().tolist(), side.tolist(), strict=True):
            members = (
                Fraction(C.count[len(table) - len(C) - len(C.capacity)]) if level else Fraction(0)
            )
            table.append([Fraction(value) for value in row] + [members, Fraction(limit)])
    columns, rows = C.columns + 1, len(table)
    for at, row in enumerate(table):
        row[columns:columns] = [Fraction(int(at == other)) for other in range(rows)]
    goal = [Fraction(0)] * (columns + rows + 1)
    goal[columns - 1] = Fraction(1)
    basis = list(range(columns, columns + rows))
    while True:
        entering = next((j for j, gain in enumerate(goal[:-1]) if gain > 0), None)
        if entering is None:
            return -goal[-1]
        ratios = [
            (row[-1] / row[entering], basis[i], i)
            for i, row in enumerate(table)
            if row[entering] > 0
        ]
        _, _, leaving = min(ratios)
        pivot = table[leaving][entering]
        table[leaving] = [value / pivot for value in table[leaving]]
        basis[leaving] = entering
        for row in (*table[:leaving], *table[leaving + 1 :], goal):
            factor = row[entering]
            if factor:
                row[:] = [
                    value - factor * other for value, other in zip(row, table[leaving], strict=True)
                ]


def test_jobs_on_a_few_of_many_pools_agree_with_simplex() -> None:
    """Their tables have a place for each of their columns, not for each of 200 pools."""
    random = np.random.default_rng(5)
    jobs, pools = 60, 200
    rates = random.lognormal(0.0, 1.0, (jobs, pools)) * (random.random((jobs, pools)) < 0.05)
    rates[:, -1] = 1.0
    program = allocation(rates, random.choice([1, 2], jobs), random.integers(1, 3, pools))
    assert market_of(program).width < pools
    ours, theirs = solved(program), solved(program, "highs", tolerance=1e-10)
    assert ours.status is Status.OPTIMAL and ours.certificate.ok, ours.certificate.problems
    assert ours.value == pytest.approx(theirs.value, rel=1e-8)


def test_small_instances_agree_with_rationals() -> None:
    known = [program for seed in range(60) if len((program := drawn(seed, 6)).classes)]
    for program in known:
        assert solved(program).value == pytest.approx(
            float(exact_level(program)), rel=1e-9, abs=1e-300
        )
    assert len(known) > 40


@pytest.mark.parametrize("kind", KINDS)
def test_numpy_and_the_compiled_walk_agree(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    for seed in range(6):
        program = drawn(seed, 200, kind)
        if not len(program.classes):
            continue
        found = []
        for least in (0, 10**12):
            monkeypatch.setattr(compiling, "COMPILED", least)
            found.append(solved(program))
        assert found[0].value == pytest.approx(found[1].value, rel=2e-9)
        assert all(outcome.status is Status.OPTIMAL for outcome in found)


def test_without_numba_there_is_no_compiled_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    compiled.cache_clear()
    try:
        assert compiled() is None
        monkeypatch.setattr(compiling, "COMPILED", 0)
        assert solved(scattered(60)).status is Status.OPTIMAL
    finally:
        compiled.cache_clear()


# --- the oracle ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=["numpy", "compiled"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "compiled":
        pytest.importorskip("numba")
    monkeypatch.setattr(compiling, "COMPILED", 0 if request.param == "compiled" else 10**12)
    yield request.param


def test_any_prices_and_level_bound_the_optimum(walk: str) -> None:
    random = np.random.default_rng(0)
    for seed in range(12):
        program = drawn(seed)
        if not len(program.classes) or not program.highest > 0:
            continue
        market, best = market_of(program), solved(program, "highs", tolerance=1e-10).value
        oracle = Oracle(market)
        for _ in range(12):
            prices = random.random(len(market.capacity)) * (
                random.random(len(market.capacity)) > 0.3
            )
            response = oracle.ask(prices, market.highest * random.random())
            assert response.bound * market.unit >= best * (1.0 - 1e-9)


def test_a_response_is_the_cheapest_way_to_the_level(walk: str) -> None:
    """Against a linear program of two rows for each job; and at most two places are used."""
    from scipy.optimize import linprog

    random = np.random.default_rng(1)
    program = drawn(6, 40, "plain")
    market = market_of(program)
    oracle = Oracle(market)
    for warm in range(4):
        prices, level = random.random(len(market.capacity)), market.highest * (0.3 + 0.15 * warm)
        oracle.ask(prices, level, whole=True)
        cost = np.broadcast_to(market.costs(prices), market.level.shape)
        for k in range(len(market)):
            best = linprog(cost[k], [-market.level[k], np.ones(market.width)], [-level, 1.0])
            paid = oracle.share[k] * cost[k, oracle.upper[k]]
            if oracle.lower[k] >= 0:
                paid += (1.0 - oracle.share[k]) * cost[k, oracle.lower[k]]
            assert paid == pytest.approx(best.fun, rel=1e-9, abs=1e-12)
        assert (oracle.margin >= -1e-9).all()


def test_a_place_that_gives_a_job_nothing_is_no_other_choice(walk: str) -> None:
    """Nobody is in doubt because a pool where it cannot run costs nothing."""
    rates = np.array([[1.0, 0.0], [1.0, 2.0]])
    oracle = Oracle(market_of(allocation(rates, np.ones(2, int), np.ones(2, int))))
    oracle.ask(np.array([1.0, 0.0]), oracle.market.highest / 2, whole=True)
    assert oracle.margin[0] > 0.5


# --- invariances --------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.floats(1e-3, 1e3))
def test_scale_and_order_change_nothing(seed: int, factor: float) -> None:
    random = np.random.default_rng(seed)
    rates, gangs = random.lognormal(0.0, 1.0, (12, 3)), random.choice([1, 2], 12)
    level = solved(allocation(rates, gangs, [3, 2, 4])).value
    order, pools = random.permutation(12), random.permutation(3)
    moved = allocation(rates[order][:, pools], gangs[order], np.array([3, 2, 4])[pools])
    assert solved(moved).value == pytest.approx(level, rel=1e-9)
    assert solved(allocation(rates * factor, gangs, [3, 2, 4])).value == pytest.approx(
        level * factor, rel=1e-9
    )
    assert solved(allocation(rates, gangs, [6, 4, 8], copies=2)).value == pytest.approx(
        level, rel=1e-9
    )
    assert solved(allocation(rates, gangs, [4, 2, 4])).value >= level * (1.0 - 1e-9)


def test_where_one_slow_job_holds_the_level_all_prices_are_zero() -> None:
    rates = np.vstack([np.full((1, 3), 1e-3), np.random.default_rng(2).random((50, 3)) + 1.0])
    outcome = solved(allocation(rates, 1, [40, 40, 40]))
    assert outcome.value == pytest.approx(1e-3, rel=1e-9) and outcome.values.iterations <= 6
    assert outcome.duals is not None and not outcome.duals["capacity"].any()


def test_who_can_have_nothing_makes_the_level_zero() -> None:
    program = allocation([[1.0], [2.0]])
    nothing = AllocationProgram(
        program.classes, Minimum(), sp.csr_matrix(sp.diags_array([0.0, 1.0]) @ program.levels)
    )
    outcome = solved(nothing)
    assert (outcome.value, outcome.bound, outcome.status) == (0.0, 0.0, Status.OPTIMAL)


@pytest.mark.parametrize("need", [1.0, 1e-6])
def test_who_needs_what_there_is_none_of_makes_the_level_zero(need: float) -> None:
    option = {"pool": "p", "gpus": 1, "throughput": 2.0, "uses": {"licence": need}}
    document = instance_document(
        {"p": 4},
        [{"id": "a", "throughput": {"p": 1.0}}, {"id": "b", "options": [option]}],
        resources=[{"name": "licence", "kind": "consumable", "capacity": 0.0}],
    )
    solution = optsched.solve(optsched.Instance.from_document(document), solver="prices")
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 0.0, 0.0)
    assert solution.certificate.ok and solution.prices["licence"] > 0


# --- as a solver --------------------------------------------------------------------------------------------------


def test_what_it_does_not_take_is_told() -> None:
    with pytest.raises(
        SolverUnavailable, match="solver prices cannot take this program: jobs share GPUs"
    ):
        optsched.solve("@packing", "max-min-fairness", solver="prices")


@pytest.mark.parametrize(
    ("formulation", "task"),
    [
        ("lease", "plans of what runs when"),
        ("makespan-unrelated", "plans of what runs when"),
    ],
)
def test_what_needs_rows_and_columns_is_told_by_its_name(formulation: str, task: str) -> None:
    told = f"solver prices takes allocation programs as they are, and no {task}: choose auto, highs or clarabel"
    with pytest.raises(SolverUnavailable, match=told):
        optsched.solve("@quickstart", formulation, solver="prices")


def test_other_right_sides_and_columns_on_demand_are_told_by_their_names() -> None:
    told = r"and no programs whose right sides change \(what-if, ranges, fronts\): choose auto, highs or clarabel"
    with pytest.raises(SolverUnavailable, match=told):
        optsched.whatif("@quickstart", add={"v100": 4}, solver="prices")
    with pytest.raises(SolverUnavailable, match=told):
        optsched.capacity_curve(optsched.solve("@quickstart"), "v100", solver="prices")
    with pytest.raises(SolverUnavailable, match=told):
        optsched.pareto("@quickstart", ("max-min-fairness", "max-throughput"), solver="prices")
    with pytest.raises(
        SolverUnavailable, match="and no programs whose columns are generated: choose auto"
    ):
        optsched.solve("@packing", solver="prices", generate_columns=True)
    give_way = [{"kind": "deadlines", "give_way": "shortfall"}]
    with pytest.raises(
        SolverUnavailable, match="and no requirements that give way: choose auto, highs or clarabel"
    ):
        optsched.solve("@quickstart", solver="prices", constraints=give_way)


def test_what_it_does_not_take_auto_gives_to_another_solver() -> None:
    assert optsched.solve("@quickstart", "finish-time-fairness").status == "optimal"
    changed = optsched.whatif(
        "@quickstart", "proportional-fairness", add={"v100": 4}, solver="prices"
    )
    assert changed.base.solver.name == "prices"  # a utility that is not linear is solved anew
    curve = optsched.capacity_curve(
        optsched.solve("@quickstart", solver="prices"), "v100", high=12.0
    )
    assert curve.resource == "v100"


def test_resources_beside_gpus_have_prices_too() -> None:
    document = instance_document(
        [{"name": "p", "nodes": 1, "gpus_per_node": 8, "cpus_per_node": 10}],
        [{"id": f"j{k}", "workload": "w", "weight": 1.0 + k} for k in range(6)],
        workloads={"w": {"throughput": {"p": 1.0}, "demand": {"cpu": 4}}},
    )
    instance = optsched.Instance.from_document(document)
    ours, theirs = (optsched.solve(instance, solver=name) for name in ("prices", "highs"))
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-9) and ours.status == "optimal"
    assert ours.prices == pytest.approx(theirs.prices, abs=1e-9) and any(ours.prices.values())


def test_elastic_jobs_have_several_places_in_a_pool() -> None:
    rates, gpus = {str(count): count**0.7 for count in (1, 2, 4, 8)}, {"min": 1, "max": 8}
    document = {
        "format": "optsched-instance/1",
        "cluster": {"pools": [{"name": "p", "nodes": 1, "gpus_per_node": 8}]},
        "jobs": [
            {"id": f"j{k}", "gpus": gpus, "throughput": {"p": {g: r + 0.1 * k for g, r in rates.items()}}}
            for k in range(5)
        ],
    }  # fmt: skip
    instance = optsched.Instance.from_document(document)
    ours, theirs = (optsched.solve(instance, solver=name) for name in ("prices", "highs"))
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-9) and ours.status == "optimal"


def test_a_wrong_point_or_wrong_prices_fail_the_certificate() -> None:
    program = scattered(80)
    engine = Engine(load_solver, "prices")
    values = load_solver("prices")().solve_allocation(program, Limits())
    engine.chosen = load_solver("prices")
    assert values.x is not None and values.y is not None
    from dataclasses import replace

    certified = partial(certified_allocation, engine, program, matrix=False)
    assert certified(values, values.y).certificate.ok
    more = replace(values, x=values.x * 1.01)
    assert not certified(more, values.y).certificate.ok
    stated = replace(values, objective=values.x[-1] * 1.01)
    assert not certified(stated, values.y).certificate.ok
    assert not certified(values, values.y * 0.9).certificate.ok


def test_the_form_without_a_matrix_is_that_of_the_lowered_program() -> None:
    from optsched.program.linear_form import AllocationForm

    program = drawn(13)
    form, arrays = AllocationForm.smallest_level(program), program.to_linear().arrays
    random = np.random.default_rng(3)
    x, y = random.random(arrays.shape[1]), random.normal(size=arrays.shape[0])
    for ours, theirs in (
        *zip(form.activity_and_terms(x), arrays.activity_and_terms(x), strict=True),
        (form.transpose_times(y)[:], arrays.transpose_times(y)),
        *zip(form.activity_and_terms(-x), arrays.activity_and_terms(-x), strict=True),
        (form.transpose_terms(np.abs(y))[:], arrays.transpose_terms(np.abs(y))),
        (form.largest_in_rows(x), arrays.largest_in_rows(x)), (form.row_lower, arrays.row_lower),
        (form.row_upper, arrays.row_upper), (form.implied_upper, arrays.implied_upper), (form.cost, arrays.cost),
    ):  # fmt: skip
        assert np.allclose(ours, theirs, rtol=1e-12, atol=0.0)
    assert form.shape == arrays.shape and form.rows == arrays.rows


def test_auto_takes_it_for_many_different_jobs(caplog: pytest.LogCaptureFixture) -> None:
    random = np.random.default_rng(4)
    instance = optsched.Instance.from_arrays(
        pools={"a": 20, "b": 30},
        throughput=random.lognormal(0.0, 1.0, (1600, 2)),
        gpus=np.ones(1600, int),
    )
    with caplog.at_level("INFO", "optsched"):
        solution = optsched.solve(instance)
    assert solution.solver.name == "prices" and "by prices of the resources" in caplog.text
    assert optsched.solve(instance, solver="clarabel").objective == pytest.approx(
        solution.objective, rel=1e-7
    )
    name = instance.jobs_table.names[0]
    pinned = [{"kind": "pinned", "jobs": [name], "pools": ["a"]}]
    assert optsched.solve(instance, constraints=pinned).solver.name == "prices"
    served = [{"kind": "minimum-service", "jobs": [name], "fraction": 0.5}]
    serving = optsched.solve(instance, constraints=served)
    assert serving.solver.name == "prices"
    assert optsched.solve(
        instance, constraints=served, solver="clarabel"
    ).objective == pytest.approx(serving.objective, rel=1e-7)


def test_limits_stop_it_with_what_there_is() -> None:
    program = scattered(3000, 8)
    stopped = solved(program, work=3)
    assert stopped.values.termination is Termination.WORK_LIMIT and stopped.certificate.ok
    assert stopped.value is not None and stopped.bound is not None
    assert 0 < stopped.value < stopped.bound
    late = solved(program, time=1e-3)
    assert late.values.termination in (Termination.TIME_LIMIT, Termination.OPTIMAL)


@pytest.mark.unit
def test_where_nothing_can_be_kept_it_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def njit(**options: Any) -> Any:
        def compiled(function: Any) -> Any:
            asked.append(options)
            if options.get("cache"):
                raise RuntimeError("cannot cache function: no locator available")
            return function

        return compiled

    monkeypatch.setitem(sys.modules, "numba", SimpleNamespace(njit=njit))
    made = compiling.compiler(fastmath=True)
    assert made is not None and made(lambda x: x + 1)(2) == 3
    assert asked == [
        {"cache": True, "nogil": True, "fastmath": True},
        {"nogil": True, "fastmath": True},
    ]


def test_options_and_starts_that_it_does_not_know_are_refused() -> None:
    with pytest.raises(UsageError, match="solver prices has no option 'foo'"):
        optsched.solve("@quickstart", solver="prices", solver_options={"foo": 1})
    with refuses("solver: found prices, expected one with start", SolverUnavailable):
        engine = Engine(load_solver, "prices")
        engine.start = np.zeros(scattered(60).classes.columns)
        engine.solve_directly(scattered(60))


def test_its_passes_are_told_to_who_asks_for_the_log() -> None:
    pieces: list[str] = []
    assert solved(scattered(), on_log=pieces.append).status is Status.OPTIMAL
    assert pieces and all(piece.startswith("pass ") and piece.endswith("\n") for piece in pieces)


def test_where_it_breaks_down_auto_takes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise SolverCrashed("a small program was refused")

    program = scattered(1200, 3)
    expected = solved(program)
    monkeypatch.setattr(load_solver("prices"), "solve_allocation", broken)
    with pytest.raises(SolverCrashed, match="a small program was refused"):
        solved(program)
    engine = Engine(load_solver)
    ours = engine.solve_directly(program)
    assert ours.status is Status.OPTIMAL and ours.value == pytest.approx(expected.value, rel=1e-6)
    assert engine.attempts == [("prices", "a small program was refused"), ("clarabel", "optimal")]
