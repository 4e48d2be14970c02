"""Totals of concave utilities by prices against Clarabel, closed forms, and themselves: every answer is proved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from documents import instance_document

import optsched

# Private names: sessions and steps of one back-end, without the engine
from optsched.arrays import compiling
from optsched.candidates import compile
from optsched.errors import SolverUnavailable
from optsched.instance import Instance
from optsched.performance import TableModel
from optsched.program import AllocationProgram, Total
from optsched.registry import load_solver
from optsched.solution import Status, Termination, dual_bound
from optsched.solvers import Limits, Progress
from optsched.solvers.prices import solve_concave as back_end
from optsched.solvers.prices.best_response import best_responses
from optsched.solvers.prices.interior import Curve
from optsched.solvers.prices.steps_compiled import compiled
from optsched.solvers.prices.watch import Watch
from optsched.solving import Engine, Outcome

pytestmark = pytest.mark.property

KINDS = ("plain", "wide rows", "wide entries", "whole numbers", "ample", "equal")
EXPONENTS = (0.0, -1.0, 0.5, 0.9)


def total(
    rates: np.ndarray,
    gangs: Any,
    pools: Any,
    exponent: float,
    weight: Any = None,
    instance: Instance | None = None,
) -> AllocationProgram:
    if instance is None:
        sizes = {f"pool{j}": int(size) for j, size in enumerate(np.ravel(pools))}
        instance = Instance.from_arrays(
            pools=sizes, throughput=rates, gpus=np.broadcast_to(gangs, len(rates))
        )
    classes = compile(instance, TableModel(instance.rates, instance)).classes(frozenset())
    weights = (
        np.ones(len(classes))
        if weight is None
        else np.resize(np.asarray(weight, float), len(classes))
    )
    function = {0.0: "log", 1.0: "linear"}.get(exponent, "power")
    return AllocationProgram(
        classes, Total(weights, function, exponent), sp.csr_matrix(classes.throughput)
    )


def drawn(seed: int, exponent: float | None = None) -> AllocationProgram:
    """A small program of a random sort; every job can run."""
    random = np.random.default_rng(seed)
    jobs, pools = int(random.choice([1, 2, 3, 5, 12, 30, 60])), int(random.choice([1, 2, 3, 5, 8]))
    kind = KINDS[seed % len(KINDS)]
    exponent = EXPONENTS[seed // len(KINDS) % len(EXPONENTS)] if exponent is None else exponent
    rates = random.lognormal(0.0, 1.0, (jobs, pools))
    if kind == "wide rows":
        rates *= 10.0 ** random.uniform(-6.0, 6.0, (jobs, 1))
    elif kind == "wide entries":
        rates = 10.0 ** random.uniform(-6.0, 6.0, (jobs, pools))
    elif kind == "whole numbers":
        rates = random.integers(0, 4, (jobs, pools)).astype(float)
    elif kind == "equal":
        rates = rates[random.integers(0, max(1, jobs // 3), jobs)]
    if kind != "equal":
        rates *= random.random((jobs, pools)) > 0.15
        rates[np.arange(jobs), random.integers(0, pools, jobs)] = 1.0
    gangs = random.choice([1, 2, 4, 8], jobs)
    sizes = np.maximum(
        8, random.integers(1, 9, pools) * int(gangs.sum() * random.choice([0.02, 0.1, 0.3]))
    )
    sizes = sizes + int(gangs.sum()) if kind == "ample" else sizes
    return total(rates, gangs, sizes, exponent, random.choice([0.25, 1.0, 2.0, 8.0], jobs))


def scattered(jobs: int, pools: int, exponent: float = 0.0) -> AllocationProgram:
    """Jobs of which no two are alike, on too few GPUs."""
    random = np.random.default_rng(7)
    rates = random.lognormal(0.0, 1.0, (jobs, 1)) * random.lognormal(0.0, 0.6, (jobs, pools))
    sizes = np.full(pools, max(8, jobs // (4 * pools)))
    return total(
        rates, random.choice([1, 2, 4], jobs), sizes, exponent, random.choice([1.0, 2.0, 4.0], jobs)
    )


def with_capacity(program: AllocationProgram, capacity: np.ndarray) -> AllocationProgram:
    candidates = program.classes.candidates
    resources = replace(candidates.resources, capacity=capacity)
    return replace(
        program,
        classes=replace(program.classes, candidates=replace(candidates, resources=resources)),
    )


def solved(program: AllocationProgram, solver: str = "prices", **limits: Any) -> Outcome:
    return Engine(load_solver, solver, Limits(**limits)).solve_directly(program)


def worth(program: AllocationProgram, outcome: Outcome) -> float:
    """What the levels are worth at their slopes, by which gaps are measured: the weights, of logarithms."""
    utility, level = program.utility, np.maximum(program.level(outcome.x), 1e-30)
    assert isinstance(utility, Total)
    return float((program.classes.count * utility.weight) @ (utility.slope(level) * level))


@pytest.fixture(params=["numpy", "compiled"])
def sweeps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "compiled" and compiled() is None:
        pytest.skip("numba (the extra fast) is not installed")
    monkeypatch.setattr(compiling, "COMPILED", 0 if request.param == "compiled" else 10**12)
    yield request.param


@pytest.mark.parametrize("half", [0, 1])
def test_random_totals_agree_with_clarabel(half: int) -> None:
    for seed in range(48 * half, 48 * half + 48):
        program = drawn(seed)
        ours = solved(program)
        scale = worth(program, ours)
        assert ours.status is Status.OPTIMAL and ours.certificate.ok, (
            seed,
            ours.certificate.problems,
        )
        assert ours.certificate.proof == "dual"
        assert -1e-12 * scale <= ours.bound - ours.value <= 2e-8 * scale, seed
        theirs = solved(program, "clarabel")
        assert ours.value >= theirs.value - 2e-8 * scale, seed
        if theirs.status is Status.OPTIMAL:
            assert ours.value == pytest.approx(theirs.value, abs=1e-6 * scale), seed


def test_random_linear_totals_agree_with_simplex() -> None:
    for seed in range(72):
        program = drawn(seed, 1.0)
        ours, theirs = solved(program), solved(program, "highs", tolerance=1e-10)
        assert ours.status is Status.OPTIMAL and ours.certificate.ok, (
            seed,
            ours.certificate.problems,
        )
        assert ours.value == pytest.approx(theirs.value, rel=1e-9), seed
        assert ours.bound == pytest.approx(ours.value, rel=1e-9), seed


@pytest.mark.parametrize("pools", [1, 4, 12])
def test_linear_totals_of_many_jobs_are_exact(pools: int) -> None:
    outcome = solved(scattered(4000, pools, 1.0))
    assert outcome.values.termination is Termination.OPTIMAL
    assert outcome.bound == pytest.approx(outcome.value, rel=1e-12)


def test_a_linear_total_starts_from_given_prices() -> None:
    program, solver = scattered(2000, 4, 1.0), load_solver("prices")()
    # A resource that cannot run out has no price in the search.
    program = with_capacity(program, program.classes.capacity * [1, 1, 1e6, 1])
    cold = solver.solve_allocation(program, Limits())
    assert cold.y is not None and cold.iterations is not None
    prices = program.limit_duals(cold.y)
    again = solver.solve_allocation(program, Limits(), prices)
    assert again.iterations is not None and again.iterations < cold.iterations
    assert again.objective == pytest.approx(cold.objective, rel=1e-9)


def test_equal_rows_up_to_scale_leave_many_in_doubt_and_are_solved() -> None:
    random = np.random.default_rng(8)
    rates = np.outer(random.lognormal(0, 1, 3000), [1.0, 2.0, 4.0])
    ours = solved(total(rates, 1, [200, 300, 100], 1.0))
    theirs = solved(total(rates, 1, [200, 300, 100], 1.0), "highs")
    assert ours.status is Status.OPTIMAL and ours.value == pytest.approx(theirs.value, rel=1e-8)


@pytest.mark.study
def test_thousands_of_random_totals_are_proved(sweeps: str) -> None:
    for seed in range(1000, 2500):
        program = drawn(seed)
        ours = solved(program)
        assert ours.certificate.ok and ours.status is Status.OPTIMAL, seed
        assert ours.bound - ours.value <= 2e-8 * worth(program, ours), seed


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_kinks_leave_no_gap(exponent: float, sweeps: str) -> None:
    program = scattered(1500, 5, exponent)
    outcome = solved(program)
    assert outcome.values.termination is Termination.OPTIMAL
    assert (
        0
        <= outcome.bound - outcome.value + 1e-12 * worth(program, outcome)
        <= 1e-8 * worth(program, outcome)
    )
    assert outcome.values.iterations <= 50


@pytest.mark.unit
def test_one_job_and_one_pool_are_closed_forms() -> None:
    alone = solved(total(np.array([[3.0, 5.0]]), 1, [1, 1], 0.0))
    assert alone.value == pytest.approx(np.log(5.0), abs=1e-9)
    rates = np.array([[1.0], [2.0], [4.0], [8.0]])
    shared = solved(total(rates, 1, [1], 0.0))  # everybody gets a quarter of the GPU
    assert shared.x == pytest.approx(np.full(4, 0.25), abs=1e-6)
    weighted = solved(total(rates, 1, [1], 0.0, [1.0, 2.0, 3.0, 4.0]))
    assert weighted.x == pytest.approx(np.arange(1, 5) / 10, abs=1e-6)
    power = solved(total(rates, 1, [1], -1.0))  # shares go with the inverse root of the rates
    assert power.x == pytest.approx(rates[:, 0] ** -0.5 / (rates**-0.5).sum(), abs=1e-6)


@pytest.mark.unit
@pytest.mark.parametrize("exponent", [0.0, -1.0, 0.5, 1.0])
def test_where_there_is_room_for_all_prices_are_nothing(exponent: float) -> None:
    program = total(np.random.default_rng(1).lognormal(0, 1, (40, 3)), 1, [50, 50, 50], exponent)
    outcome = solved(program)
    assert isinstance(program.utility, Total)
    assert outcome.value == pytest.approx(
        float(program.utility.f(program.highest_level).sum()), rel=1e-13
    )
    assert outcome.bound == pytest.approx(outcome.value, rel=1e-13)
    assert not outcome.duals["capacity"].any()


@pytest.mark.unit
def test_prices_are_what_one_more_gpu_is_worth() -> None:
    base = scattered(60, 3)
    outcome, step = solved(base), 1e-3
    for resource in range(3):
        capacity = base.classes.capacity.copy()
        capacity[resource] += step
        more = solved(with_capacity(base, capacity))
        assert (more.value - outcome.value) / step == pytest.approx(
            outcome.duals["capacity"][resource], rel=1e-2
        )


def test_doubled_jobs_and_pools_get_the_same_levels() -> None:
    random = np.random.default_rng(3)
    rates, gangs = random.lognormal(0, 1, (25, 4)), random.choice([1, 2, 4], 25)
    once = solved(total(rates, gangs, [9, 8, 10, 11], 0.0))
    twice = solved(total(np.repeat(rates, 2, axis=0), np.repeat(gangs, 2), [18, 16, 20, 22], 0.0))
    assert twice.value == pytest.approx(2 * once.value, abs=1e-7)


@pytest.mark.parametrize("light", [1e-6, 1e-9])
def test_light_jobs_keep_the_little_that_is_due_to_them(light: float) -> None:
    weight = np.array([1.0, 2.0, light, 5.0, 3.0 * light])
    instance = Instance.from_arrays(pools={"a": 1}, throughput=np.ones((5, 1)), weight=weight)
    solution = optsched.solve(instance, "proportional-fairness", solver="prices")
    assert solution.status == "optimal" and solution.certificate.ok
    assert np.isfinite(solution.objective) and solution.gap < 1e-6
    rates = np.array(list(solution.throughput.values()))
    assert rates == pytest.approx(weight / weight.sum(), rel=1e-6)
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize("jobs", [40, 700])
@pytest.mark.parametrize(
    ("exponent", "lightest", "heaviest"), [(0.0, -9, 0), (0.0, 0, 9), (-1.0, -9, 0), (0.5, -2, 0)]
)
def test_light_jobs_choose_what_is_best_for_them(
    jobs: int,
    exponent: float,
    lightest: int,
    heaviest: int,
    sweeps: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(back_end, "PINNED_FROM", 500)
    random = np.random.default_rng(jobs)
    weight = np.where(
        random.random(jobs) < 0.4, 10.0 ** random.uniform(lightest, heaviest, jobs), 1.0
    )
    rates = random.lognormal(0.0, 0.7, (jobs, 3))
    values = solved(total(rates, 1, [jobs // 12] * 3, exponent, weight)).values
    assert (
        values.termination is Termination.OPTIMAL and values.x is not None and values.y is not None
    )
    level = (rates * values.x.reshape(jobs, 3)).sum(axis=1)
    prices, top = values.y[jobs : jobs + 3], rates.max(axis=1)
    choices = best_responses(
        (rates / top[:, np.newaxis]).T,
        prices[:, np.newaxis],
        Curve(weight * top**exponent, exponent),
    )
    due = (choices.slope / top / weight) ** (1.0 / (exponent - 1.0))
    assert level == pytest.approx(due, rel=1e-5)


def test_units_of_rates_do_not_matter_to_logarithms() -> None:
    random = np.random.default_rng(4)
    rates, scale = random.lognormal(0, 1, (30, 3)), 10.0 ** random.uniform(-6, 6, (30, 1))
    plain, scaled = (solved(total(table, 1, [3, 4, 3], 0.0)) for table in (rates, rates * scale))
    assert scaled.value - plain.value == pytest.approx(float(np.log(scale).sum()), abs=1e-6)


def several(jobs: int = 30) -> Instance:
    """Jobs that need CPUs beside GPUs, of which there are too few in one pool."""
    random = np.random.default_rng(6)
    pools = [
        {"name": "a", "nodes": 2, "gpus_per_node": 4, "cpus_per_node": 12},
        {"name": "b", "nodes": 3, "gpus_per_node": 4, "cpus_per_node": 64},
    ]
    workloads = {
        f"w{row}": {
            "throughput": {"a": float(random.lognormal(1, 1)), "b": float(random.lognormal(0, 1))},
            "demand": {"cpu": float(random.integers(1, 9))},
        }
        for row in range(jobs)
    }
    rates = {str(count): float(count**0.7) for count in (1, 2, 4)}
    elastic = [
        {"id": f"e{k}", "gpus": {"min": 1, "max": 4}, "throughput": {"b": rates}} for k in range(3)
    ]
    listed = [{"id": f"j{row}", "workload": f"w{row}"} for row in range(jobs)]
    return Instance.from_document(
        instance_document(pools, [*listed, *elastic], workloads=workloads)
    )


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_columns_may_hold_several_resources(exponent: float, sweeps: str) -> None:
    program = total(np.zeros(0), 1, (), exponent, instance=several())
    assert program.classes.usage.nnz > program.classes.columns  # GPUs and CPUs
    ours, theirs = solved(program), solved(program, "clarabel")
    scale = worth(program, ours)
    assert ours.status is Status.OPTIMAL and ours.bound - ours.value <= 1e-8 * scale
    assert ours.value == pytest.approx(theirs.value, abs=1e-6 * scale)


@pytest.mark.parametrize("exponent", [0.5, 1.0])
def test_the_form_without_its_matrix_is_the_linear_program(exponent: float) -> None:
    program = scattered(20, 3, exponent)
    x, random = program.even(), np.random.default_rng(0)
    arrays = program.tangent(x).arrays
    lean = program.without_matrix(x)
    point, duals = random.random(arrays.shape[1]), random.random(arrays.shape[0])
    assert lean.shape == arrays.shape
    for name in (
        "row_lower",
        "row_upper",
        "lower",
        "upper",
        "implied_lower",
        "implied_upper",
        "cost",
        "integer",
    ):
        assert getattr(lean, name) == pytest.approx(getattr(arrays, name)), name
    for name, argument in (
        ("transpose_times", duals),
        ("transpose_terms", duals),
    ):
        assert getattr(lean, name)(argument)[:] == pytest.approx(getattr(arrays, name)(argument)), (
            name
        )
    for some in (point, -point):
        both = (lean.activity_and_terms(some), arrays.activity_and_terms(some))
        for ours, theirs in zip(*both, strict=True):
            assert ours == pytest.approx(theirs)
    assert lean.largest_in_rows(point) == pytest.approx(arrays.largest_in_rows(point))
    assert lean.objective(point) == pytest.approx(arrays.objective(point))
    assert dual_bound(lean, duals) == pytest.approx(dual_bound(arrays, duals))
    assert [block.name for block in lean.rows] == [block.name for block in arrays.rows]
    assert lean.row_name(21) == arrays.row_name(21)


def test_wrong_prices_prove_nothing() -> None:
    program = scattered(50, 3)
    values = load_solver("prices")().solve_allocation(program, Limits())
    assert values.y is not None
    for factor in (0.5, 2.0):
        wrong = values.y * factor
        bound = dual_bound(program.without_matrix(values.x, wrong), wrong)
        assert bound is not None and bound > values.bound + 1.0


def test_auto_picks_prices_for_many_different_jobs() -> None:
    engine = Engine(load_solver)
    outcome = engine.solve_directly(scattered(1600, 2))
    assert outcome.solver.name == "prices" and "1600 different jobs" in engine.reason
    assert Engine(load_solver).solve_directly(scattered(1600, 2, 1.0)).solver.name == "prices"
    assert Engine(load_solver).solve_directly(scattered(40, 2)).solver.name == "clarabel"


def test_a_formulation_is_solved_and_verified(tmp_path: Any) -> None:
    random = np.random.default_rng(2)
    instance = Instance.from_arrays(
        pools={"a": 20, "b": 30}, throughput=random.lognormal(0, 1, (100, 2))
    )
    solution = optsched.solve(instance, "alpha-fairness", alpha=2.0, solver="prices")
    assert solution.ok and solution.status == "optimal" and solution.gap < 1e-8
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"exponent": 1.0, "weight": [-1.0, 1.0]}, "a job has no weight"),
        ({"weight": [0.0, 1.0]}, "a job has no weight"),
    ],
)
def test_what_prices_cannot_take_is_refused(change: dict[str, Any], why: str) -> None:
    program = total(np.array([[1.0, 2.0], [2.0, 3.0]]), 1, [1, 1], **{"exponent": 0.0, **change})
    with pytest.raises(SolverUnavailable, match=why):
        solved(program)


def test_a_job_that_can_have_nothing_is_refused_where_that_is_worth_minus_infinity() -> None:
    base = total(np.array([[1.0, 2.0], [2.0, 3.0]]), 1, [1, 1], 0.0)
    levels = sp.csr_matrix(sp.diags_array([0.0, 1.0]) @ base.levels)
    program = AllocationProgram(base.classes, base.utility, levels)
    with pytest.raises(
        SolverUnavailable, match="a job can have nothing, which is worth minus infinity"
    ):
        solved(program)
    worthless = AllocationProgram(base.classes, Total(np.ones(2), "power", 0.5), levels)
    assert solved(worthless).value == pytest.approx(2.0 * np.sqrt(3.0))


def test_no_capacity_is_a_price_or_a_refusal() -> None:
    rates = np.array([[1.0, 2.0], [2.0, 3.0], [5.0, 1.0]])
    linear = solved(with_capacity(total(rates, 1, [1, 1], 1.0), np.array([1.0, 0.0])))
    assert (linear.value, linear.bound) == pytest.approx((5.0, 5.0))
    base = total(rates, 1, [1, 1], 0.0)
    empty = with_capacity(base, np.array([1.0, 0.0]))
    outcome = solved(empty)
    assert outcome.status is Status.OPTIMAL
    assert outcome.value == pytest.approx(np.log(10.0 / 27.0))
    assert outcome.bound == pytest.approx(outcome.value, abs=1e-7)
    nothing = with_capacity(base, np.array([0.0, 0.0]))
    with pytest.raises(SolverUnavailable, match="a job needs what there is none of"):
        solved(nothing)


def test_limits_end_the_search_with_an_honest_gap() -> None:
    program, events = scattered(300, 3), list[Progress]()
    stopped = solved(program, work=3, on_progress=events.append)
    assert (
        stopped.values.termination is Termination.WORK_LIMIT and stopped.status is Status.FEASIBLE
    )
    assert stopped.certificate.ok and stopped.bound > solved(program).value > stopped.value
    linear = solved(scattered(300, 3, 1.0), work=3)
    assert linear.values.termination is Termination.WORK_LIMIT and linear.bound > linear.value > 0
    late = solved(program, time=1e-9)
    assert late.values.termination is Termination.TIME_LIMIT and late.bound > late.value


def test_the_watch_tells_and_ends() -> None:
    events, flag = list[Progress](), Event()
    watch = Watch(Limits(on_progress=events.append), flag, unit=2.0, shift=1.0)
    watch._last -= 1.0
    assert not watch(3.0, 4.0)
    assert (events[0].incumbent, events[0].bound) == (7.0, 9.0)
    flag.set()
    assert watch(3.0, 4.0) and watch.reason is Termination.INTERRUPTED
