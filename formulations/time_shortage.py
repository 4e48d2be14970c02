"""Jobs that together need more of a resource in some window of time than there is.

Sets
    k: classes of n_k equal jobs that must meet a deadline;  c in C_k: their columns;
    r: sums of renewable resources with weights w >= 0: each alone, and the GPUs of all pools, as
        they are and by the speed of the pools.
Parameters
    a_k: arrival;  D_k: the last deadline;  d_c: duration of all work in column c;
    u_rc: what c holds of r;  G_r(t): capacity of r, both by these weights.

Outside of a window from A to T a job has l_k = max(0, min(A, D_k) - a_k) + max(0, D_k - max(T, a_k))
seconds, in which it does at most l_k / min_c d_c of its work. Every schedule therefore keeps, even
if jobs may be stopped and moved at any moment without cost,

    sum_k n_k max(0, 1 - l_k / min_c d_c) min_c u_rc d_c  <=  integral of G_r(t) from A to T

for all r, A and T (energetic reasoning: P. Baptiste, C. Le Pape, W. Nuijten, "Constraint-Based
Scheduling", 2001).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray

MOST_COUNTED = 20_000_000
"""Classes times windows for which needs are added up."""
MOST_STARTS = 20
"""Moments at which windows begin: most sets that cannot be kept are too much from now on."""
OFF = 1e-6
"""Part of an amount by which a certificate lets rows be violated."""


class Overload(NamedTuple):
    """A window of time in which jobs need more of a resource than there is; times in s from now.

    Attributes
    ----------
    resource : int
        Row of ``amount`` in `TimeNeeded`.
    start, end : float
    classes : IntArray
        The fewest classes that need too much.
    asked, available : float
        Amounts times seconds.
    """

    resource: int
    start: float
    end: float
    classes: IntArray
    asked: float
    available: float


@dataclass(frozen=True)
class TimeNeeded:
    """The time on resources that jobs need, and what there is; times in s from now.

    Attributes
    ----------
    arrival, due, fastest : FloatArray, shape (K,)
        a_k, D_k and min_c d_c.
    amount : FloatArray, shape (R, K)
        n_k min_c u_rc d_c.
    moments : FloatArray, shape (M,)
        When capacities begin, ascending; the first is 0.
    capacity : FloatArray, shape (R, M)
        G_r from each moment on.
    """

    arrival: FloatArray
    due: FloatArray
    fastest: FloatArray
    amount: FloatArray
    moments: FloatArray
    capacity: FloatArray

    def greatest_overload(self) -> Overload | None:
        """The window in which most is needed, relative to what there is; None if no window is
        overloaded.

        Of many windows some are left out: fewer show less, and nothing false.
        """
        if not len(self.due):
            return None
        starts = _some(np.unique(np.append(0.0, self.arrival)), MOST_STARTS)
        ends = np.unique(self.due)
        ends = _some(ends, max(MOST_COUNTED // (len(starts) * len(self.due)), 1))
        found: Overload | None = None
        for start in starts.tolist():
            later = ends[ends > start]
            needed = self._inside(start, later) @ self.amount.T
            there = self._available(later) - self._available(np.array([start]))
            exceeds = needed > beyond(there)
            if exceeds.any():
                ratio = np.where(exceeds, needed / np.maximum(there, OFF), 0.0)
                at, r = np.unravel_index(int(ratio.argmax()), ratio.shape)
                best = self._fewest(int(r), start, float(later[at]), float(there[at, r]))
                if found is None or best.asked * found.available > found.asked * best.available:
                    found = best
        return found

    def _inside(self, start: float, ends: FloatArray) -> FloatArray:
        """The least part of its work that a job of each class does from the start to each end,
        shape (ends, K).
        """
        before = np.maximum(np.minimum(start, self.due) - self.arrival, 0.0)
        after = np.maximum(self.due - np.maximum(ends[:, np.newaxis], self.arrival), 0.0)
        return np.asarray(np.maximum(1.0 - (before + after) / self.fastest, 0.0))

    @cached_property
    def _before(self) -> FloatArray:
        """What there is of each resource before each moment, shape (R, M)."""
        length = np.diff(self.moments)
        return np.pad(np.cumsum(self.capacity[:, :-1] * length, axis=1), ((0, 0), (1, 0)))

    def _available(self, times: FloatArray) -> FloatArray:
        """What there is of each resource before some times, shape (times, R)."""
        at = np.searchsorted(self.moments, times, "right") - 1
        since = times - self.moments[at]
        return np.asarray((self._before[:, at] + self.capacity[:, at] * since).T)

    def _fewest(self, r: int, start: float, end: float, there: float) -> Overload:
        """The fewest classes whose jobs need more of a resource in a window than there is."""
        needed = self._inside(start, np.array([end]))[0] * self.amount[r]
        classes, asked = fewest_beyond(needed, there)
        return Overload(r, start, end, classes, asked, there)


def fewest_beyond(needed: FloatArray, there: float) -> tuple[IntArray, float]:
    """The fewest classes that together need more than there is, ascending, and how much it is."""
    greatest = np.argsort(-needed, kind="stable")
    added = np.cumsum(needed[greatest])
    enough = 1 + int(np.searchsorted(added, float(beyond(there)), "right"))
    return np.sort(greatest[:enough]).astype(np.int64), float(added[enough - 1])


def beyond(amount: FloatArray | float) -> FloatArray:
    """What is more than an amount even where a row may be violated as far as a certificate
    accepts.
    """
    return np.asarray(amount + OFF * np.maximum(amount, 1.0))


def _some(times: FloatArray, most: int) -> FloatArray:
    """At most so many of some times, the first and then evenly."""
    return times[:: -(-len(times) // most)]
