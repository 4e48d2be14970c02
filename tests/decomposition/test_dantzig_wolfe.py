"""Dantzig-Wolfe: programs whose columns can all be written down, assignments, packings, and what pricing may say."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from scipy.optimize import linprog

import optsched
from optsched.decomposition import (
    Decomposition,
    Master,
    MasterColumns,
    Priced,
    best_items,
    dantzig_wolfe,
)
from optsched.errors import UsageError
from optsched.libraries import AssignmentProblem, read_problem

seeds = st.integers(0, 2**32 - 1)
ORLIB = SHARED / "data" / "orlib"


# --- knapsacks -----------------------------------------------------------------------------------------------------


@given(seed=seeds)
@settings(max_examples=50, deadline=None)
def test_best_items_against_all_subsets(seed: int) -> None:
    random = np.random.default_rng(seed)
    n, capacity = int(random.integers(0, 8)), int(random.integers(0, 20))
    value, weight = random.uniform(-2, 10, n), random.integers(0, 12, n)
    subsets = np.array(list(product([False, True], repeat=n)), bool).reshape(2**n, n)
    inside = subsets[subsets @ weight <= capacity]
    total, chosen = best_items(value, weight, capacity)
    assert total == pytest.approx((inside @ value).max())
    assert value[chosen].sum() == pytest.approx(total) and weight[chosen].sum() <= capacity


@pytest.mark.parametrize("capacity", [1e12, np.inf])
def test_more_room_than_all_items_need(capacity: float) -> None:
    total, chosen = best_items([3.0, -1.0, 2.0], [5, 1, 6], capacity)
    assert total == 5.0 and chosen.tolist() == [True, False, True]


def test_items_that_are_refused() -> None:
    with refuses("capacity: found nan, expected a number", UsageError):
        best_items([1.0], [1], np.nan)
    with refuses("weight: found 1.5, expected whole numbers", UsageError):
        best_items([1.0], [1.5], 3)
    with refuses("weight: found shape (2,), expected that of value, (1,)", UsageError):
        best_items([1.0], [1, 2], 3)
    with refuses("capacity: found 2 items and a capacity of 999,999,999", UsageError):
        best_items([1.0, 1.0], [1, 999_999_999], 999_999_999)


# --- any program ---------------------------------------------------------------------------------------------------


def listed(seed: int) -> tuple[Master, MasterColumns]:
    """A master with all its columns, which is feasible: some of them are taken to set its sides."""
    random = np.random.default_rng(seed)
    rows, blocks, each = 3, 2, 6
    matrix = random.integers(0, 5, (rows, blocks * each)).astype(float)
    cost, block = random.uniform(-5, 10, blocks * each), np.repeat(np.arange(blocks), each)
    taken = np.zeros(blocks * each)
    taken[[0, each]] = 1.0
    activity = matrix @ taken
    kind = random.integers(0, 3, rows)  # at least, at most, equal
    lower = np.where(kind == 1, -np.inf, activity)
    upper = np.where(kind == 0, np.inf, activity)
    master = Master.of(lower, upper, random.integers(0, 2, blocks), np.ones(blocks))
    return master, MasterColumns.of(cost, matrix, block)


def least_of(master: Master, columns: MasterColumns, y: np.ndarray) -> np.ndarray:
    reduced = columns.cost - columns.matrix.T @ y
    return np.array([reduced[columns.block == k].min() for k in range(master.blocks)])


@pytest.mark.parametrize("smoothing", [0.0, 0.7])
@given(seed=seeds)
@settings(max_examples=40, deadline=None)
def test_against_the_program_of_all_columns(smoothing: float, seed: int) -> None:
    master, columns = listed(seed)

    def price(y: np.ndarray) -> Priced:
        reduced = columns.cost - columns.matrix.T @ y
        best = [np.where(columns.block == k, reduced, np.inf).argmin() for k in range(2)]
        return Priced(columns.take(best), least_of(master, columns, y))

    A, member = columns.matrix.toarray(), np.eye(master.blocks)[:, columns.block]
    sides = [(A, master.lower, master.upper), (member, master.least, master.most)]
    rows = np.vstack(
        [part for M, low, up in sides for part in (-M[np.isfinite(low)], M[np.isfinite(up)])]
    )
    right = np.concatenate(
        [part for _, low, up in sides for part in (-low[np.isfinite(low)], up[np.isfinite(up)])]
    )
    best = linprog(columns.cost, A_ub=rows, b_ub=right)
    found = dantzig_wolfe(master, price, smoothing=smoothing, whole=False)
    assert found.converged and found.status == "optimal"
    assert found.value == pytest.approx(best.fun, abs=1e-6)
    assert found.bound <= best.fun + 1e-6 and found.bound == pytest.approx(best.fun, abs=1e-5)
    # The bound is one at any duals
    random = np.random.default_rng(seed)
    for _ in range(5):
        y = master.sides.signed(random.normal(size=master.rows) * 3)
        assert master.bound(y, least_of(master, columns, y)) <= best.fun + 1e-6


# --- assignments ---------------------------------------------------------------------------------------------------


def assigned(problem: AssignmentProblem, **limits: Any) -> Decomposition:
    """Generalised assignment: a column is what an agent does, priced by a knapsack."""
    m, n = problem.cost.shape
    use, capacity = problem.use.astype(int), problem.capacity.astype(int)

    def price(y: np.ndarray) -> Priced:
        found = [best_items(y - problem.cost[i], use[i], capacity[i]) for i in range(m)]
        chosen = np.array([items for _, items in found], float)
        cost = (chosen * problem.cost).sum(axis=1)
        least = -np.array([value for value, _ in found])
        return Priced(MasterColumns.of(cost, chosen.T, np.arange(m)), least)

    return dantzig_wolfe(
        Master.of(np.ones(n), np.full(n, np.inf), np.zeros(m), np.ones(m)),
        price,
        step=1.0,
        **limits,
    )


def relaxed(problem: AssignmentProblem) -> float:
    """The optimum of the linear relaxation."""
    m, n = problem.cost.shape
    one = np.tile(np.eye(n), m)
    load = np.kron(np.eye(m), np.ones(n)) * problem.use.ravel()
    best = linprog(
        problem.cost.ravel(),
        A_ub=load,
        b_ub=problem.capacity,
        A_eq=one,
        b_eq=np.ones(n),
        bounds=(0, 1),
    )
    return float(best.fun)


@given(seed=seeds)
@settings(max_examples=15, deadline=None)
def test_assignments_are_bounded_between_relaxation_and_optimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    m, n = 3, 8
    use = random.integers(5, 25, (m, n))
    cost = 60 - use + random.integers(-9, 9, (m, n))
    problem = AssignmentProblem(cost, use, np.floor(0.9 * use.sum(axis=1) / m))
    best = optsched.solve(problem.instance("some"), "gap")
    if best.status != "optimal":
        return
    found = assigned(problem)
    assert found.converged and relaxed(problem) - 1e-6 <= found.bound <= best.objective + 1e-6
    assert found.value <= best.objective + 1e-6
    if found.whole is not None:
        assert found.objective >= best.objective - 1e-6
        chosen = found.columns.take(found.whole > 0.5)
        assert (chosen.matrix.sum(axis=1) >= 1).all() and len(chosen) <= m


def test_the_history_is_a_table_whose_bound_rises() -> None:
    told = []
    from optsched.generate import gap  # the draw itself, without an instance

    p, c, b = gap.draw(gap.GapOptions(jobs=20, agents=4, type="d", seed=9))
    found = assigned(AssignmentProblem(c, p, b), on_progress=told.append)
    table = found.to_columns()
    assert table["bound"] == sorted(table["bound"]) and len(told) == len(table["bound"])
    assert 1151 <= found.bound <= 1182  # relaxation 1,150.5, optimum 1,182
    assert repr(found).startswith("<Decomposition ")


@needs(ORLIB)
@pytest.mark.oracle
@pytest.mark.parametrize(("name", "optimum"), [("gap1-0", 261), ("gap1-1", 269), ("gap6-0", 525)])
def test_the_root_bound_is_above_the_relaxation(name: str, optimum: int) -> None:
    """The relaxation is 6 to 16 below the published optimum, the bound at most 1."""
    path = ORLIB / "gap" / "data" / "cattrysse1994" / name
    document = read_problem(path).instance.to_document()
    agents = [each["name"] for each in document["cluster"]["resources"]]
    options = [job["options"] for job in document["jobs"]]
    problem = AssignmentProblem(
        np.array([[option["cost"] for option in row] for row in options]).T,
        np.array(
            [
                [option["uses"][agent] for option, agent in zip(row, agents, strict=True)]
                for row in options
            ]
        ).T,
        np.array([each["capacity"] for each in document["cluster"]["resources"]]),
    )
    found = assigned(problem, time_limit=60)
    assert found.converged and relaxed(problem) + 5 < found.bound
    assert optimum - 1 <= found.bound <= optimum


# --- what goes wrong -----------------------------------------------------------------------------------------------


def test_a_master_that_nothing_meets_has_no_value() -> None:
    master = Master.of([3.0], [np.inf], [0], [1])
    columns = MasterColumns.of([1.0], [[1.0]], [0])
    found = dantzig_wolfe(master, lambda y: Priced(columns, np.minimum(1.0 - y, 0.0)))
    assert found.status == "limit" and found.value is None and found.whole is None


def test_a_pricing_that_claims_too_little_gives_a_weak_bound_and_no_proof() -> None:
    master = Master.of([1.0], [1.0], [0], [1])
    columns = MasterColumns.of([5.0], [[1.0]], [0])
    found = dantzig_wolfe(master, lambda y: Priced(columns, 5.0 - y - 100.0))
    assert found.status == "feasible" and found.objective == 5.0 and found.bound < 5.0


def test_no_time_is_no_answer() -> None:
    master = Master.of([1.0], [1.0], [0], [1])
    columns = MasterColumns.of([5.0], [[1.0]], [0])
    found = dantzig_wolfe(master, lambda y: Priced(columns, 5.0 - y), time_limit=1e-9)
    assert found.status == "limit" and found.whole is None and not found.converged


def test_what_is_refused() -> None:
    with refuses("lower[1]: found 3, expected at most 2", UsageError):
        Master.of([0.0, 3.0], [1.0, 2.0], [0], [1])
    with refuses(
        "columns: found 2 costs, 1 columns, 1 blocks, expected as many of each", UsageError
    ):
        MasterColumns.of([1.0, 2.0], [[1.0]], [0])
    master = Master.of([1.0], [1.0], [0], [1])
    good = MasterColumns.of([5.0], [[1.0]], [0])
    for columns, least, words in (
        (
            MasterColumns.of([5.0], [[1.0], [1.0]], [0]),
            [0.0],
            "columns: found 2 rows, expected 1, as the ...",
        ),
        (
            MasterColumns.of([5.0], [[1.0]], [1]),
            [0.0],
            "columns.block: found another block, expected 0 to 0",
        ),
        (
            MasterColumns.of([np.nan], [[1.0]], [0]),
            [0.0],
            "columns: found an infinite number or NaN, ...",
        ),
        (good, [0.0, 0.0], "least: found shape (2,), expected (1,)"),
    ):
        with refuses(words.replace(", ...", ""), UsageError):
            dantzig_wolfe(master, lambda y, c=columns, d=least: Priced(c, np.array(d)))
    with refuses("smoothing: found 1, expected a number from 0 to below 1", UsageError):
        dantzig_wolfe(master, lambda y: Priced(good, np.zeros(1)), smoothing=1.0)
