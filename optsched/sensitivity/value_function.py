"""The optimum of a held program as a function of one capacity:
values, slopes, and where pieces end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from optsched.sensitivity.held import HeldProgram
from optsched.solution import Status
from optsched.solution.certificate import alike, noise_of
from optsched.solving.outcome import NO_OPTIMUM

# Relative distance from a line at which a value counts as lying on it.
ON_LINE = 1e-8
# Capacities closer than this, relative to the larger, are one.
SAME_PLACE = 1e-9
# By this the least feasible capacity is raised, relatively, where it is not quite feasible.
NUDGE = 1e-7


# Part of the capacity that the first trial is away.
FIRST_STEP = 0.02


@dataclass(frozen=True, slots=True)
class Tangent:
    """A line that touches the optimum at a capacity: it lies on or above it everywhere."""

    capacity: float
    value: float
    slope: float

    def at(self, capacity: float) -> float:
        """Height of the line."""
        return self.value + self.slope * (capacity - self.capacity)

    def meets(self, other: Tangent) -> float:
        """Capacity at which two lines meet; NaN if they are parallel."""
        rise = self.slope - other.slope
        return (other.at(0.0) - self.at(0.0)) / rise if rise else float("nan")


class LimitReached(Exception):
    """A run ended without an optimum: a limit was reached."""


class ValueFunction:
    """v(b), the optimum of a held linear program over the capacity b
    of one resource (its row of ``usage``).
    """

    def __init__(self, held: HeldProgram, row: int) -> None:
        self._held, self._row = held, row
        self._capacity = held.classes.capacity.copy()
        self._noise = noise_of(held.arrays)

    @cached_property
    def saturation(self) -> float:
        """A capacity beyond which more never helps:
        what all jobs could use, each in its greediest column.

        sum_r: usage_rc x_c = sum_k (usage_rc / M_c) member_kc x_c <= sum_k n_k max_c usage_rc /
        M_c, where M_c is the number of jobs in column c.
        """
        C = self._held.classes
        use = (
            np.asarray(C.usage[[self._row]].todense()).ravel()
            / np.asarray(C.member.sum(axis=0)).ravel()
        )
        members = C.member.tocoo()
        greediest = np.zeros(len(C))
        np.maximum.at(greediest, members.row, use[members.col])
        return float(C.count @ greediest)

    def at(self, capacity: float) -> Tangent | None:
        """Value and slope; None if nothing is feasible.

        Raises `LimitReached` where a limit ends the run.
        """
        trial = self._capacity.copy()
        trial[self._row] = capacity
        outcome = self._held.run(self._held.with_capacity(trial))
        if outcome.status is Status.INFEASIBLE:
            return None
        if outcome.status is not Status.OPTIMAL or outcome.value is None or outcome.duals is None:
            raise LimitReached
        return Tangent(capacity, outcome.value, float(outcome.duals["capacity"][self._row]))

    def lowest(self, low: float) -> Tangent | None:
        """The tangent at ``low``,
        or at the least capacity above it with which the program is feasible.
        """
        found = self.at(low)
        if found is not None:
            return found
        # Solvers meet the least use up to their tolerance only: a little more may be needed.
        least = self._least()
        found = self.at(least)
        return self.at(least * (1 + NUDGE) + NUDGE * ON_LINE) if found is None else found

    def _least(self) -> float:
        """Least use of the resource that meets all other rows:
        minimise usage @ x without its own row.
        """
        held = self._held
        row = self._row
        trial = self._capacity.copy()
        # Its own capacity must not bind while the least use is sought
        trial[row] = np.inf
        arrays = held.right_sides(held.with_capacity(trial))
        cost = np.zeros(arrays.shape[1])
        use = held.classes.usage[[row]].tocoo()
        cost[use.col] = -use.data
        held.session.set_rows(arrays.row_lower, arrays.row_upper)
        held.session.set_cost(cost)
        held.runs += 1
        values = held.engine.run(held.session)
        held.session.set_cost(held.arrays.cost)
        if values.x is None or values.termination in NO_OPTIMUM:
            raise LimitReached
        return float(-(replace(arrays, cost=cost, offset=0.0).objective(values.x)))

    def end_of_line(self, here: Tangent, bound: float) -> tuple[float, Tangent | None, bool]:
        """How far a line that touches v lies on it, towards a bound:
        (end, line beyond, whether it was found).

        There is no line beyond where the first one lies on v up to the bound, or up to the least
        feasible capacity. Trials go outwards in growing steps until one is off the line: warm runs
        are the cheaper the nearer they are.
        """
        beyond: Tangent | None = None
        try:
            # Concave and piecewise linear, so one trial off the line bounds the end of the line
            step = FIRST_STEP * (here.capacity or abs(bound))
            while True:
                place = (
                    max(bound, here.capacity - step)
                    if bound < here.capacity
                    else min(bound, here.capacity + step)
                )
                trial = self.lowest(place) if bound < here.capacity else self.at(place)
                if (
                    place == bound
                    or trial is None
                    or trial.capacity != place
                    or not self._on(here, trial)
                ):
                    break
                step *= 4.0
            while trial is not None and not self._on(here, trial):
                beyond = trial
                end = here.meets(trial)
                between = (
                    min(here.capacity, trial.capacity) < end < max(here.capacity, trial.capacity)
                )
                # They meet at one of both places: there the first ends and the other goes on.
                if not between or _same(end, trial.capacity) or _same(end, here.capacity):
                    return (
                        (here.capacity if _same(end, here.capacity) or not between else end),
                        beyond,
                        True,
                    )
                trial = self.at(end)
        except LimitReached:
            return here.capacity, None, False
        return (bound if trial is None else trial.capacity), beyond, True

    def breakpoints(
        self, low: float, high: float, most: int
    ) -> tuple[list[tuple[float, float]], bool]:
        """(capacity, value) of both ends and of all breakpoints between them, rising;
        and whether these are all.

        Empty if nothing is feasible. At most so many runs.
        """
        left = self.lowest(low)
        right = self.at(high)
        if left is None or right is None or left.capacity > high:
            return [], True
        found = {left.capacity: left.value, right.capacity: right.value}
        # Two tangents meet at a breakpoint, or above v: then the point below splits the stretch in
        # two
        stack = [(left, right)]
        last = self._held.runs + most
        while stack:
            left, right = stack.pop()
            if self._on(left, right) or self._on(right, left):
                continue
            place = left.meets(right)
            if (
                not left.capacity < place < right.capacity
                or _same(place, left.capacity)
                or _same(place, right.capacity)
            ):
                # A dual at a breakpoint is the slope of its other side: the end itself is the
                # breakpoint
                continue
            if self._held.runs >= last:
                return sorted(found.items()), False
            try:
                middle = self.at(place)
            except LimitReached:
                return sorted(found.items()), False
            # Feasible at both ends, hence between them
            assert middle is not None
            found[place] = middle.value
            if not self._on(left, middle):
                stack += [(left, middle), (middle, right)]
        return self._corners(sorted(found.items())), True

    def is_flat(self, line: Tangent) -> bool:
        """Whether a line does not rise over all capacities that could be used."""
        return alike(line.at(self.saturation), line.at(0.0), ON_LINE, self._noise)

    def _on(self, line: Tangent, other: Tangent) -> bool:
        """Whether v at the other place lies on a line."""
        return alike(line.at(other.capacity), other.value, ON_LINE, self._noise)

    def _corners(self, points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        """The points without those that lie on the line between their neighbours."""
        kept = points[:1]
        for place, after in pairwise(points[1:]):
            before = kept[-1]
            part = (place[0] - before[0]) / (after[0] - before[0])
            if not alike(before[1] + part * (after[1] - before[1]), place[1], ON_LINE, self._noise):
                kept.append(place)
        return [*kept, *points[1:][-1:]]


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= SAME_PLACE * max(abs(one), abs(other))
