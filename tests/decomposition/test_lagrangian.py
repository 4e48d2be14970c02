"""Lagrangian relaxation: bounds against the convex hull of all points, averages, repairs, limits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from scipy.optimize import linprog

from optsched.decomposition import (
    CoupledRows,
    LagrangianBound,
    Relaxed,
    Repaired,
    best_items,
    lagrangian,
)
from optsched.errors import UsageError

seeds = st.integers(0, 2**32 - 1)


class Listed(NamedTuple):
    """A problem whose points can all be written down: costs (N,), activities (N, rows)."""

    rows: CoupledRows
    cost: np.ndarray
    activity: np.ndarray

    def solve(self, y: np.ndarray) -> Relaxed:
        best = int(np.argmin(self.cost - self.activity @ y))
        return Relaxed(np.eye(len(self.cost))[best], self.cost[best], self.activity[best])

    def value(self, y: np.ndarray) -> float:
        return float((self.cost - self.activity @ y).min()) + self.rows.least_worth(y)

    def over_convex_hull(self) -> float:
        """The best average of points that keeps the rows."""
        low, up = np.isfinite(self.rows.lower), np.isfinite(self.rows.upper)
        matrix = np.vstack([-self.activity.T[low], self.activity.T[up]])
        sides = np.concatenate([-self.rows.lower[low], self.rows.upper[up]])
        one = np.ones((1, len(self.cost)))
        return float(linprog(self.cost, A_ub=matrix, b_ub=sides, A_eq=one, b_eq=[1.0]).fun)


def drawn(seed: int) -> Listed:
    """Rows of all kinds, which an average of some points keeps."""
    random = np.random.default_rng(seed)
    rows, points = int(random.integers(1, 5)), 12
    activity = random.integers(-4, 5, (points, rows)).astype(float)
    inside = random.dirichlet(np.ones(points)) @ activity
    kind = random.integers(0, 4, rows)  # at least, at most, equal, between
    lower = np.where(kind == 1, -np.inf, inside - (kind == 3))
    upper = np.where(kind == 0, np.inf, inside + (kind == 3))
    return Listed(CoupledRows.of(lower, upper), random.uniform(-20, 20, points), activity)


@given(seed=seeds)
@settings(max_examples=60, deadline=None)
def test_the_bound_is_the_best_average_of_points_that_keeps_the_rows(seed: int) -> None:
    listed = drawn(seed)
    found = lagrangian(listed.rows, listed.solve, work_limit=2000)
    best = listed.over_convex_hull()
    assert found.bound <= best + 1e-6 * max(1.0, abs(best))
    assert found.converged and found.bound == pytest.approx(best, rel=1e-3, abs=1e-3)
    # The average is made of points, nearly keeps the rows and costs about as much
    assert found.average.min() >= -1e-9 and found.average.sum() == pytest.approx(1.0)
    activity = found.average @ listed.activity
    outside = np.maximum(listed.rows.lower - activity, activity - listed.rows.upper)
    assert found.violation == pytest.approx(max(0.0, outside.max()))
    assert found.violation <= 0.1


@given(seed=seeds)
@settings(max_examples=40, deadline=None)
def test_every_price_gives_a_bound_and_missing_is_its_subgradient(seed: int) -> None:
    listed, random = drawn(seed), np.random.default_rng(seed)
    best = listed.over_convex_hull()
    y, z = (listed.rows.signed(random.normal(size=len(listed.rows)) * 5) for _ in range(2))
    assert listed.value(y) <= best + 1e-6
    slope = listed.rows.missing(y, np.asarray(listed.solve(y).activity))
    assert listed.value(z) <= listed.value(y) + slope @ (z - y) + 1e-7
    assert lagrangian(listed.rows, listed.solve, start=y, work_limit=1).bound == pytest.approx(
        listed.value(y)
    )


# --- a knapsack whose capacity is priced ---------------------------------------------------------------------------


def knapsack(random: np.random.Generator, **limits: Any) -> tuple[float, LagrangianBound]:
    """(optimum, answer) of a knapsack; ``repair`` takes items in the order of the average."""
    n = 12
    value, weight = random.integers(1, 30, n), random.integers(1, 15, n)
    capacity = int(weight.sum() // 2)

    def solve(y: np.ndarray) -> Relaxed:
        x = (-value - y[0] * weight < 0).astype(float)
        return Relaxed(x, float(-value @ x), [weight @ x])

    def repair(y: np.ndarray, average: np.ndarray) -> Repaired:
        order = np.argsort(-average, kind="stable")
        taken = np.zeros(n, bool)
        for j in order:
            taken[j] = weight[taken].sum() + weight[j] <= capacity
        return Repaired(float(-value[taken].sum()), taken)

    rows = CoupledRows.of([-np.inf], [capacity])
    found = lagrangian(rows, solve, repair, step=1.0, **limits)
    assert found.solution is not None and weight[found.solution].sum() <= capacity
    assert found.objective == -value[found.solution].sum()
    return -best_items(value, weight, capacity)[0], found


@given(seed=seeds)
@settings(max_examples=40, deadline=None)
def test_a_repair_is_bounded_and_proved_where_it_meets_the_bound(seed: int) -> None:
    best, found = knapsack(np.random.default_rng(seed))
    assert found.bound <= best <= found.objective
    assert (found.status == "optimal") == (found.objective == found.bound)
    assert found.gap is not None and found.gap >= 0


def test_the_bound_is_rounded_up_to_what_objectives_can_be() -> None:
    # One item of weight 2 and value 3 into half its room: the relaxation is worth 1.5
    rows = CoupledRows.of([-np.inf], [1.0])

    def solve(y: np.ndarray) -> Relaxed:
        x = float(-3 - 2 * y[0] < 0)
        return Relaxed([x], -3 * x, [2 * x])

    assert lagrangian(rows, solve).bound == pytest.approx(-1.5, abs=1e-5)
    assert lagrangian(rows, solve, step=1.0).bound == -1.0


def test_history_and_progress_have_a_rising_bound() -> None:
    told: list[Any] = []
    _, found = knapsack(np.random.default_rng(3), on_progress=told.append)
    table = found.to_columns()
    assert table["bound"] == sorted(table["bound"]) and len(told) == len(table["bound"])
    assert told[-1].bound == found.bound and told[-1].incumbent == found.objective
    assert repr(found).startswith("<LagrangianBound ")


# --- limits and what goes wrong ------------------------------------------------------------------------------------


def test_limits_end_the_search() -> None:
    _, found = knapsack(np.random.default_rng(5), work_limit=3)
    assert found.evaluations <= 3
    listed = drawn(1)
    found = lagrangian(listed.rows, listed.solve, time_limit=1e-9)
    assert found.evaluations == 1 and not found.converged and found.status == "limit"
    _, loose = knapsack(np.random.default_rng(5), gap=0.9)
    assert loose.status == "optimal" and loose.evaluations <= 10


def test_rows_that_no_average_keeps_let_the_bound_rise_without_end() -> None:
    rows = CoupledRows.of([3.0], [np.inf])
    found = lagrangian(rows, lambda y: Relaxed([1.0], 1.0, [1.0]))
    assert found.status == "limit" and not found.converged and found.bound > 1e9


def test_a_point_that_is_not_the_best_counts_as_what_it_says() -> None:
    rows = CoupledRows.of([1.0], [np.inf])
    found = lagrangian(
        rows, lambda y: Relaxed([1.0], 5.0, [1.0], least=min(0.0, 5.0 - y[0]) - 2.0), work_limit=50
    )
    assert found.bound <= 3.0 + 1e-6  # 5 less what each evaluation may be wrong by


def test_what_is_refused() -> None:
    rows = CoupledRows.of([1.0], [np.inf])
    good = Relaxed([1.0], 1.0, [1.0])
    with refuses("lower[0]: found 2, expected at most 1", UsageError):
        CoupledRows.of([2.0], [1.0])
    with refuses("start: found shape (2,), expected (1,), finite numbers", UsageError):
        lagrangian(rows, lambda y: good, start=[0.0, 0.0])
    with refuses("activity: found shape (2,), expected (1,)", UsageError):
        lagrangian(rows, lambda y: good._replace(activity=[1.0, 2.0]))
    with refuses("cost: found nan, expected a finite number", UsageError):
        lagrangian(rows, lambda y: good._replace(cost=np.nan))
