"""`TimelineProgram`: activities in time, in integers; knows no solver.

Every activity runs once, without interruption, in one of its modes. Times are whole units from 0; a
mode has a duration and takes amounts of resources while it runs. Identical GPUs are one resource
with a capacity, never n machines; a resource of capacity 1 is what other texts call a machine with
no overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.arrays.matrices import sum_by
from optsched.arrays.values import cached_property
from optsched.display import Displayed, count
from optsched.program.least_time import least_time
from optsched.program.linear import LinearProgram


@dataclass(frozen=True)
class TimelineCost:
    """Linear costs; every array may be None for no such cost.

    Attributes
    ----------
    makespan : int
        Cost of a unit of the makespan (the latest end).
    start, end : IntArray or None, shape (A,)
        Cost of a unit of the start and of the end of each activity.
    tardiness : IntArray or None, shape (A,)
        Cost of a unit after the due date.
    due : IntArray or None, shape (A,)
        Due dates; may be missed.
    mode : IntArray or None, shape (M,)
        Cost of choosing a mode.
    """

    makespan: int = 0
    start: IntArray | None = None
    end: IntArray | None = None
    tardiness: IntArray | None = None
    due: IntArray | None = None
    mode: IntArray | None = None


@dataclass(frozen=True, repr=False)
class TimelineProgram(Displayed):
    """minimise a linear cost of when and how A activities run, on R renewable resources.

        every activity a: one mode m of a;  release_a <= start_a,  start_a + duration_m <=
        deadline_a
        every resource r, time t:  sum over running modes of usage_rm  <=  capacity_r - closed_r(t)
        every budget b:            sum over chosen modes of budget_usage_bm  <=  budget_b
        every precedence (a, b):   end_a <= start_b

    Attributes
    ----------
    release, deadline : IntArray, shape (A,)
        Deadlines are also the horizon of an activity: always finite.
    activity : IntArray, shape (M,)
        Activity of each mode, ascending.
    duration : IntArray, shape (M,)
        At least 1.
    usage : csr_matrix of integers, shape (R, M)
    capacity : IntArray, shape (R,)
    closed : IntArray, shape (L, 4)
        Calendars: (resource, start, end, amount) takes an amount away from start to end.
    budget_usage : csr_matrix of integers, shape (B, M)
    budget : IntArray, shape (B,)
    precedence : IntArray, shape (P, 2)
    cost : TimelineCost
    most : int or None
        Schedules that cost more than this are refused (a cut-off).
    """

    release: IntArray
    deadline: IntArray
    activity: IntArray
    duration: IntArray
    usage: sp.csr_matrix
    capacity: IntArray
    cost: TimelineCost = field(default_factory=lambda: TimelineCost(makespan=1))
    closed: IntArray = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    budget_usage: sp.csr_matrix | None = None
    budget: IntArray = field(default_factory=lambda: EMPTY)
    precedence: IntArray = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    most: int | None = None

    def _headline(self) -> str:
        return (
            f"{count(len(self), 'activity', 'activities')}, {count(len(self.duration), 'mode')}, "
            f"{count(len(self.capacity), 'resource')}"
        )

    def __post_init__(self) -> None:
        A, M = len(self.release), len(self.duration)
        if (np.diff(self.activity) < 0).any() or (
            M and not 0 <= self.activity.min() <= self.activity.max() < A
        ):
            raise ValueError("modes must be in ascending order of their activities")
        if (self.duration < 1).any():
            raise ValueError("a mode lasts at least one unit of time")
        if self.usage.shape != (len(self.capacity), M):
            raise ValueError(
                f"usage has the shape {self.usage.shape}, expected {(len(self.capacity), M)}"
            )
        if (np.bincount(self.activity, minlength=A) == 0).any():
            raise ValueError("an activity has no mode")

    def __len__(self) -> int:
        return len(self.release)

    @property
    def modes(self) -> int:
        """Number of modes of all activities together, M."""
        return len(self.duration)

    @cached_property
    def first_mode(self) -> IntArray:
        """First mode of each activity, and the number of modes at the end; shape (A + 1,)."""
        return np.searchsorted(self.activity, np.arange(len(self) + 1)).astype(np.int64)

    @property
    def horizon(self) -> int:
        """Latest end of all."""
        return int(self.deadline.max(initial=0))

    @cached_property
    def least_makespan(self) -> int:
        """No schedule has a smaller makespan:
        that of the longest activity, and of the work on all resources.
        """
        shortest = np.minimum.reduceat(self.duration, self.first_mode[:-1]) if len(self) else EMPTY
        work = sp.csr_matrix(self.usage @ sp.diags_array(self.duration.astype(np.float64)))
        needed = least_time(work, self.activity, np.ones(len(self)), self.capacity)
        return max(int((self.release + shortest).max(initial=0)), int(np.ceil(needed)))

    def objective(self, start: IntArray, mode: IntArray) -> int:
        """Cost of a schedule, exactly."""
        cost, end = self.cost, start + self.duration[mode]
        total = cost.makespan * int(end.max(initial=0))
        for weight, amount in ((cost.start, start), (cost.end, end)):
            if weight is not None:
                total += int(weight @ amount)
        if cost.tardiness is not None and cost.due is not None:
            total += int(cost.tardiness @ np.maximum(end - cost.due, 0))
        if cost.mode is not None:
            total += int(cost.mode[mode].sum())
        return total

    def violations(self, start: IntArray, mode: IntArray) -> Iterator[tuple[str, int, int]]:
        """(requirement, number, by how much)
        of everything that a schedule breaks; integers, no tolerance.

        Requirements are ``mode``, ``release``, ``deadline`` and ``precedence`` (number of the
        activity or pair), ``capacity`` (of the resource, its worst moment), ``budget`` and
        ``most``.
        """
        wrong = np.flatnonzero((mode < 0) | (mode >= self.modes))
        if not len(wrong):
            wrong = np.flatnonzero(self.activity[mode] != np.arange(len(self)))
        if len(wrong):
            yield from (("mode", int(a), 1) for a in wrong)
            return
        end = start + self.duration[mode]
        for name, excess in (
            ("release", self.release - start),
            ("deadline", end - self.deadline),
            ("precedence", end[self.precedence[:, 0]] - start[self.precedence[:, 1]]),
            ("capacity", self._overload(start, end, mode)),
            ("budget", self._overspent(mode)),
        ):
            for number in np.flatnonzero(excess > 0).tolist():
                yield name, number, int(excess[number])
        if self.most is not None and self.objective(start, mode) > self.most:
            yield "most", 0, self.objective(start, mode) - self.most

    def choice_of_modes(self) -> LinearProgram:
        """The modes of a schedule, whenever they run.

        ::

            budget   sum_m budget_usage_bm x_m    <=  budget_b   every budget b
            one      sum over modes m of a of x_m  =  1          every activity a
            x binary

        Every schedule has a point. Where nothing must end by a deadline, every point has a
        schedule: its activities one after the other.
        """
        lp = LinearProgram()
        x = lp.variables(self.modes, name="x", upper=1.0, integer=True)
        if self.budget_usage is not None:
            spent = sp.csr_matrix(self.budget_usage, dtype=np.float64) @ x
            lp.constrain(spent <= self.budget.astype(np.float64), name="budget")
        lp.constrain(sum_by(self.activity, 1.0, len(self)) @ x == 1.0, name="one")
        lp.minimise(np.zeros((1, self.modes)) @ x)
        return lp

    @property
    def only_makespan(self) -> bool:
        """Whether the makespan is all that costs."""
        cost = self.cost
        others = (cost.start, cost.end, cost.tardiness, cost.mode)
        return cost.makespan > 0 and not any(part is not None and part.any() for part in others)

    @property
    def is_regular(self) -> bool:
        """Whether to end earlier never costs more."""
        return not any(
            part is not None and (part < 0).any() for part in (self.cost.start, self.cost.end)
        )

    def _overload(self, start: IntArray, end: IntArray, mode: IntArray) -> IntArray:
        """Most that each resource is used beyond its capacity at any time, shape (R,)."""
        uses = self.usage.tocsc()[:, mode].tocoo()
        closed = self.closed
        resource = np.concatenate([uses.row, closed[:, 0]])
        amount = np.concatenate([np.round(uses.data).astype(np.int64), closed[:, 3]])
        begin = np.concatenate([start[uses.col], closed[:, 1]])
        stop = np.concatenate([end[uses.col], closed[:, 2]])
        resource, time = np.tile(resource, 2), np.concatenate([stop, begin])
        change = np.concatenate([-amount, amount])
        # An activity that ends at a moment makes room for one that starts then.
        ends = np.repeat([0, 1], len(amount))
        order = np.lexsort((ends, time, resource))
        resource, change = resource[order], change[order]
        level = np.cumsum(change)  # every stretch ends, so the level is 0 again after each resource
        peak = np.zeros(len(self.capacity), np.int64)
        np.maximum.at(peak, resource, level)
        return peak - self.capacity

    def _overspent(self, mode: IntArray) -> IntArray:
        if self.budget_usage is None:
            return EMPTY
        spent = self.budget_usage.tocsc()[:, mode].sum(axis=1)
        return np.round(np.asarray(spent).ravel()).astype(np.int64) - self.budget


def split_point(program: TimelineProgram, x: FloatArray) -> tuple[IntArray, IntArray]:
    """(start, mode) of every activity from the point that a solver returns: starts, then modes."""
    whole = np.round(x).astype(np.int64)
    return whole[: len(program)], whole[len(program) : 2 * len(program)]
