"""Lagrangian relaxation: rows are priced instead of enforced; a bundle method finds the prices."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import BoolArray, FloatArray
from optsched.decomposition.master import CoupledRows
from optsched.decomposition.proof import status_of
from optsched.display import Displayed, TableColumns, number
from optsched.errors import InvalidArgument
from optsched.instance.durations import Timer
from optsched.program.integers import rounded_up
from optsched.solution import Status, gap_of
from optsched.solvers import Limits, Progress
from optsched.solvers.interrupt import interrupted
from optsched.solving.limits import LimitOptions, make_limits, takes_limits

log = logging.getLogger("optsched")

SERIOUS, GOOD = 0.1, 0.5
"""Fractions of the predicted increase of the bound: from the first on, the centre moves (a serious
step); from the second on, steps also get longer.
"""
NULL_STEPS = 5
"""After this many consecutive null steps (the centre does not move), steps get shorter."""
LARGEST_BUNDLE = 100
"""Most points in the bundle; beyond it, points with weight 0 in the average are removed."""
CONVERGED = 1e-7
"""The search has converged when the predicted increase of the bound, relative to it, is at most
this.
"""
KEPT, LONGER = 5e-3, 10.0
"""The search ends only if the cost of the violation of the average, relative to the bound, is at
most the first. Otherwise steps get longer by the second factor.
"""
LARGEST_PRICE, SHORTEST = 1e12, 1e-10
"""The search ends if a price exceeds the first (the bound is then taken to be unlimited), or if
steps are shorter or longer than the first step by the second factor.
"""
FLAT = 1e-6
"""Smallest Lipschitz constant of the dual problem that is used, relative to the differences between
its slopes.
"""
ROUNDS_OF_WEIGHTS = 300
"""Most gradient steps to find the weights of the points."""


class Relaxed(NamedTuple):
    """An optimum of the problem without the rows, at some prices ``y``.

    Attributes
    ----------
    point : array
        x, of any shape; averages of these points are formed.
    cost : float
        c'x, without prices.
    activity : array, shape (rows,)
        A x.
    least : float or None
        A lower bound on ``c'x - y'A x`` over all x, if ``point`` is not known to be optimal; None:
        it is. The bound of the relaxation depends on this number.
    """

    point: ArrayLike
    cost: float
    activity: ArrayLike
    least: float | None = None


class Repaired(NamedTuple):
    """A solution that satisfies all rows, and its cost."""

    objective: float
    solution: Any


Solve = Callable[[FloatArray], Relaxed]
"""Prices of the rows -> an optimum of the problem without the rows."""
Repair = Callable[[FloatArray, FloatArray], Repaired | None]
"""(prices, average point) -> a solution of the whole problem, or None."""


@dataclass(frozen=True, repr=False, eq=False)
class LagrangianBound(Displayed):
    """Result of a Lagrangian relaxation.

    Attributes
    ----------
    status : Status
        ``optimal``: the solution reaches the bound. ``feasible``: there is one. ``limit``: none is
        known.
    converged : bool
        Whether the bound cannot increase any more, up to rounding; it is then the value of the
        relaxation.
    bound : float
        The best value of the relaxation, rounded up to a multiple of ``step``: no solution costs
        less, if the numbers of ``solve`` are right.
    y : FloatArray, shape (rows,)
        The prices of that bound.
    average : FloatArray
        A convex combination of the points that nearly satisfies the rows: a fractional solution.
    violation : float
        Largest violation of a row by ``average``.
    objective : float or None
        Cost of the best solution that ``repair`` found.
    solution : object
        That solution, as ``repair`` returned it.
    evaluations : int
        Calls of ``solve``.
    history : tuple of (seconds, bound, objective)
        One entry after each evaluation that raised the bound or found a better solution.
    """

    status: Status
    converged: bool
    bound: float
    y: FloatArray
    average: FloatArray
    violation: float
    objective: float | None = None
    solution: Any = None
    evaluations: int = 0
    history: tuple[tuple[float, float, float | None], ...] = ()

    @property
    def gap(self) -> float | None:
        """Relative gap between the solution and the bound."""
        return gap_of(self.objective, self.bound)

    def _headline(self) -> str:
        cost = "none" if self.objective is None else number(self.objective)
        return (
            f"{self.status}, {cost}, bound {number(self.bound)}, {self.evaluations:,} evaluations"
        )

    def to_columns(self) -> TableColumns:
        """The history: bound and best objective by time."""
        names = ("seconds", "bound", "objective")
        rows = zip(*self.history, strict=True) if self.history else ((), (), ())
        return {name: list(values) for name, values in zip(names, rows, strict=True)}


@takes_limits
def lagrangian(
    rows: CoupledRows,
    solve: Solve,
    repair: Repair | None = None,
    *,
    start: ArrayLike | None = None,
    step: float | None = None,
    **limits: Unpack[LimitOptions],
) -> LagrangianBound:
    """Bound a program by pricing the rows that make it hard (Lagrangian relaxation).

    ::

        minimise  c'x   s.t.  lower <= A x <= upper,  x in X

        L(y)  =  min_{x in X} (c - y'A) x  +  min { y'a : lower <= a <= upper }

    L(y) is at most the optimum for all prices y, of the right sign where a row has one side.
    ``solve`` minimises over X, which is easy without the rows. A proximal bundle method raises L.
    The weights of its points make an average, which tends to an optimum over the convex hull of X
    that keeps the rows. ``repair`` starts from this average.

    Parameters
    ----------
    rows : CoupledRows
        ``lower`` and ``upper``.
    solve : callable
        Prices y -> `Relaxed`.
    repair : callable, optional
        (y, average) -> `Repaired`, a solution that satisfies all rows, or None. It is called
        whenever the bound increases.
    start : array, shape (rows,), optional
        The first prices (default: 0).
    step : float, optional
        The costs of all solutions are multiples of it: the bound is rounded up to one.
    **limits : LimitOptions
        As of `optsched.solve`. ``work_limit`` counts evaluations of ``solve``, which is not
        interrupted; ``gap`` ends the search.

    Returns
    -------
    LagrangianBound

    Raises
    ------
    UsageError

    References
    ----------
    M. L. Fisher, "The Lagrangian relaxation method for solving integer programming problems",
    Management Science 27 (1981); K. C. Kiwiel, "Proximity control in bundle methods for convex
    nondifferentiable minimization", Mathematical Programming 46 (1990).
    """
    given = make_limits(**limits)
    y = np.zeros(len(rows)) if start is None else np.asarray(start, np.float64)
    if y.shape != (len(rows),) or not np.isfinite(y).all():
        raise InvalidArgument("start", f"shape {y.shape}", f"({len(rows)},), finite numbers")
    search = _BundleSearch(
        rows, solve, repair, step, given, Timer.after(given.time), rows.signed(y)
    )
    search.begin()
    while not search.ends():
        search.turn()
    return search.answer()


class _Bundle(NamedTuple):
    """Points that were optima of the relaxed problem, or averages of them. They define the
    cutting-plane model of the bound: at prices y it is at most ``cost_i - y'activity_i`` plus the
    term of the sides, for each i.

    Attributes
    ----------
    cost : FloatArray, shape (k,)
    activity : FloatArray, shape (k, rows)
    point : FloatArray, shape (k, ...)
    """

    cost: FloatArray
    activity: FloatArray
    point: FloatArray

    def with_point(self, other: _Bundle) -> _Bundle:
        """The bundle with the points of another one added."""
        return _Bundle(*(np.concatenate(parts) for parts in zip(self, other, strict=True)))

    def average(self, weight: FloatArray) -> _Bundle:
        """A bundle of one point, the average."""
        return _Bundle(*(np.tensordot(weight, part, axes=1)[np.newaxis] for part in self))

    def take(self, which: BoolArray) -> _Bundle:
        """Some of the points."""
        return _Bundle(*(part[which] for part in self))


@dataclass(eq=False)
class _BundleSearch:
    """One run of the proximal bundle method: ``y`` is the centre, the prices of the best bound.

    The next prices maximise the cutting-plane model minus the squared distance from the centre:

        max_y  min_i (cost_i - y'a_i) + min { y's : lower <= s <= upper } - |y - centre|^2 / 2t

    The dual variables of this problem are weights of the points, which define the average. Any
    weights give valid prices, so they are computed only approximately.
    """

    rows: CoupledRows
    solve: Solve
    repair: Repair | None
    step: float | None
    limits: Limits
    timer: Timer
    y: FloatArray
    bound: float = -np.inf
    best: Repaired | None = None
    evaluations: int = 0
    length: float = 1.0
    failures: int = 0
    converged: bool = False
    history: list[tuple[float, float, float | None]] = field(default_factory=list)
    _first_length: float = 1.0
    _bundle: _Bundle = field(init=False)
    _weight: FloatArray = field(init=False)
    _average: _Bundle = field(init=False)

    def begin(self) -> None:
        """Evaluate the first prices; they are the first centre."""
        self._bundle, self.bound = self._evaluated(self.y)
        self._weight = np.ones(1)
        self._average = self._bundle
        missing = self.rows.missing(self.y, self._bundle.activity[0])
        # Length of the first step: it would raise the bound by its own size, at the slope of the
        # first point
        size = float(missing @ missing)
        self.length = max(1.0, abs(self.bound)) / size if size > 0 else 1.0
        self._first_length = self.length
        self._look_for_solution()

    def turn(self) -> None:
        """One step: evaluate new prices, then move the centre (serious step) or keep it (null
        step).
        """
        y, predicted = self._proposed()
        size = max(1.0, abs(self.bound))
        if predicted <= CONVERGED * size:
            # If steps are short, the prediction is small even if the average violates expensive
            # rows: try longer steps
            self.converged = self._cost_of_violation() <= KEPT * size
            self.length *= LONGER
            return
        new, value = self._evaluated(y)
        rise = value - self.bound
        self._remember(new)
        if rise > SERIOUS * predicted:
            self.y, self.bound, self.failures = y, value, 0
            if rise > GOOD * predicted:
                self.length *= 2.0
            self._look_for_solution()
            return
        self.failures += 1
        if self.failures >= NULL_STEPS:
            self.length, self.failures = self.length / 2.0, 0

    def _proposed(self) -> tuple[FloatArray, float]:
        """The next prices, and the predicted increase of the bound."""
        bundle, t = self._bundle, self.length
        self._weight = self._weights(self._weight)
        self._average = bundle.average(self._weight)
        activity = self._average.activity[0]
        sides = self._sides(activity)
        y = self.rows.signed(self.y + t * (sides - activity))
        way = y - self.y
        allowed = (
            float(self._average.cost[0] - self.y @ activity)
            + float(self.y @ sides)
            + float(way @ way) / (2 * t)
        )
        return y, allowed - self.bound

    def _cost_of_violation(self) -> float:
        """Estimated cost of the violation of the average, at prices as large as those of the
        centre.
        """
        activity = self._average.activity[0]
        missing = self._sides(activity) - activity
        return float(np.linalg.norm(missing)) * max(1.0, float(np.linalg.norm(self.y)))

    def _sides(self, activity: FloatArray) -> FloatArray:
        """The minimiser s in the problem above for a given average activity."""
        return np.clip(activity - self.y / self.length, self.rows.lower, self.rows.upper)

    def _weights(self, first: FloatArray) -> FloatArray:
        """Weights of the points, which solve the dual of the problem above, by accelerated
        projected gradients.
        """
        bundle, t = self._bundle, self.length
        centred = bundle.activity - bundle.activity.mean(axis=0)
        # If all points have equal activity, they differ in cost only. The minimum makes one step go
        # to the cheapest
        slopes = bundle.cost - bundle.activity @ self.y
        least = FLAT * max(float(np.ptp(slopes)), 1e-12)
        steepness = max(t * float(np.linalg.norm(centred, 2)) ** 2, least)
        weight = ahead = first
        momentum = 1.0
        for _ in range(ROUNDS_OF_WEIGHTS):
            activity = ahead @ bundle.activity
            y = self.y + t * (self._sides(activity) - activity)
            slope = bundle.cost - bundle.activity @ y
            new = _on_simplex(ahead - slope / steepness)
            if float(slope @ (new - weight)) > 0:  # restart: the momentum increased the objective
                momentum = 1.0
            later = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
            ahead = new + (momentum - 1.0) / later * (new - weight)
            small = float(np.abs(new - weight).max()) < 1e-9
            weight, momentum = new, later
            if small:
                break
        return weight

    def _remember(self, new: _Bundle) -> None:
        """Add a point. From a full bundle, points of weight 0 are removed first; if there are none,
        the average replaces it.
        """
        if len(self._weight) >= LARGEST_BUNDLE:
            used = self._weight > 0
            if used.sum() >= LARGEST_BUNDLE - 1:
                self._bundle, self._weight = self._average, np.ones(1)
            else:
                self._bundle, self._weight = self._bundle.take(used), self._weight[used]
        self._bundle = self._bundle.with_point(new)
        self._weight = np.append(self._weight, 0.0)

    def _evaluated(self, y: FloatArray) -> tuple[_Bundle, float]:
        """The relaxed optimum at some prices, and the bound that it gives."""
        found = self.solve(y)
        self.evaluations += 1
        activity = np.asarray(found.activity, np.float64)
        if activity.shape != y.shape:
            raise InvalidArgument("activity", f"shape {activity.shape}", f"{y.shape}")
        least = found.cost - float(y @ activity) if found.least is None else float(found.least)
        value = float(least + self.rows.least_worth(y))
        if not np.isfinite(value):
            raise InvalidArgument("cost", f"{value:g}", "a finite number")
        point = np.asarray(found.point, np.float64)
        return _Bundle(
            np.array([float(found.cost)]), activity[np.newaxis], point[np.newaxis]
        ), value

    def _look_for_solution(self) -> None:
        found = None if self.repair is None else self.repair(self.y, self._average.point[0])
        if found is not None and (self.best is None or found.objective < self.best.objective):
            self.best = found
            log.info("lagrangian: a solution of cost %.9g", found.objective)
        objective = None if self.best is None else float(self.best.objective)
        self.history.append((self.timer.spent, self._rounded, objective))
        if self.limits.on_progress is not None:
            words = f"{self.evaluations} evaluations"
            self.limits.on_progress(Progress(self.timer.spent, objective, self._rounded, words))

    @property
    def _rounded(self) -> float:
        return rounded_up(self.bound, self.step)

    def ends(self) -> bool:
        """Whether the search has converged, reached a limit, or was interrupted."""
        work = self.limits.work
        return (
            self.converged
            or self.timer.left <= 0
            or interrupted()
            or float(np.abs(self.y).max(initial=0.0)) > LARGEST_PRICE
            or not SHORTEST < self.length / self._first_length < 1 / SHORTEST
            or (work is not None and self.evaluations >= work)
            or self._status() is Status.OPTIMAL
        )

    def _status(self) -> Status:
        objective = None if self.best is None else self.best.objective
        return status_of(objective, self._rounded, self.limits.gap)

    def answer(self) -> LagrangianBound:
        """The result so far."""
        best = self.best
        outside = self.rows.missing(np.zeros(len(self.rows)), self._average.activity[0])
        return LagrangianBound(
            self._status(),
            self.converged,
            self._rounded,
            self.y,
            self._average.point[0],
            float(np.abs(outside).max(initial=0.0)),
            None if best is None else float(best.objective),
            None if best is None else best.solution,
            self.evaluations,
            tuple(self.history),
        )


def _on_simplex(point: FloatArray) -> FloatArray:
    """Projection onto the simplex: the nearest point with entries >= 0 and sum 1."""
    point = point - point.max()
    falling = np.sort(point)[::-1]
    over = (np.cumsum(falling) - 1.0) / np.arange(1, len(point) + 1)
    threshold = over[np.flatnonzero(falling > over)[-1]]
    return np.asarray(np.maximum(point - threshold, 0.0), np.float64)
