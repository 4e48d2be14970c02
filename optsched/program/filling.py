"""Water filling: the state of a lexicographic max-min, and the linear program of each stage.

All levels rise along a path that is known in advance as long as only jobs drop out that have
reached the highest level that they can have at all (alone, all the time): the clock of these events
and the level of every class at any clock are in closed form. How far along the path the cluster's
capacity reaches is for a linear program to say, one segment of the path between two events at a
time:

    maximise  d   s.t.  level_k(x) >= L_k + r_k e d   for every class k,  time, capacity, side rows,  e d <= width

L_k is the level at the segment's start, r_k the rate there (0 for who is frozen or waits), and e
the clock at its end, the unit of the rise: clocks may differ by eighteen orders of magnitude where
weights do, d does not. Where the optimum lies inside the segment, somebody is held: a class with a
positive dual has this level in every optimal solution, as complementary slackness says, and so
cannot rise while nobody falls. It is frozen, and the others go on. A column with a negative reduced
cost is 0 in every optimal solution, and stays so in all that follows: it is closed, and the highest
level of its class is that of the columns still open. So after a stage whose prices say that some
pools are full, all jobs rise at once to what the other pools can give them; there are about as many
stages as sets of full pools, and not one for each job. The duals so prove the whole vector of
levels, stage by stage.

Side rows may ask for a level that the path has not come to. Who is held there by a dual of that row
can never have more: it leaves the path where that reaches the floor, and needs no stage for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, quotient
from optsched.arrays.values import cached_property, replace
from optsched.program.allocation import AllocationProgram
from optsched.program.arrays import LinearArrays
from optsched.program.minimum import LexicographicMinimum
from optsched.program.side_rows import FloorMeasure, SameWords, SideRows
from optsched.program.total import Total

if TYPE_CHECKING:  # a solver in another process loads no candidates
    from optsched.candidates import Classes

SAME = 1e-12
"""Relative difference of two clocks at which events coincide."""
HELD = 1e-6
"""Fraction of the largest dual above which a class counts as held."""
SURE = 1e-6
"""Largest rise that a held class may still have, in units of the clock at the segment's end."""
CURVED = 10.0
"""Relative error of prices over the root of the gap, at most."""
HOLDING = 1e-3
"""Least sum of the duals of the levels, which is 1 where they alone hold the rise."""
REACHED = 1e-9
"""Relative distance from its highest level at which a class counts as there."""
LOOSE, LOOSEST = 1e-10, 1e-7
"""Relative slack of levels that were reached before,
which a solver meets up to its tolerance only; and the most. Stages by prices need none.
"""

CLOSED_ROW = "closed"
CLOSED_WORDS = "no allocation with the levels that filling gives uses these columns"
"""Name of the row of the last program that keeps closed columns empty, and what it says."""


@dataclass(frozen=True)
class Path:
    """The level of every class at any clock, if only jobs at their highest level drop out.

    Attributes
    ----------
    start : float
        Clock now.
    ends : FloatArray, shape (K,)
        Clock at which each class is at its highest level; inf for those that are frozen.
    begins : FloatArray, shape (K,)
        Clock from which it rises.
    breaks : FloatArray, shape (B,)
        ``start`` and all different ends, ascending.
    """

    filling: Filling
    start: float
    begins: FloatArray
    ends: FloatArray
    breaks: FloatArray

    def segment(self, number: int) -> tuple[float, float]:
        """Clocks at which a segment begins and ends; the last one has no width."""
        low, high = self.breaks[number], self.breaks[min(number + 1, len(self.breaks) - 1)]
        return float(low), max(float(high), np.finfo(float).tiny)

    def at(self, clock: float) -> tuple[FloatArray, FloatArray]:
        """Level and rate of every class at a clock (after the events of
        that clock), both of shape (K,).
        """
        filling, utility = self.filling, self.filling.utility
        over = self.ends <= clock * (1 + SAME)
        rising = ~filling.frozen & ~over & (self.begins <= clock * (1 + SAME))
        rate = np.where(rising, filling.unit_rate, 0.0)
        level = np.where(over, filling.highest, filling.level)
        alone, queued = filling.alone, filling.in_queue
        straight = rising & (alone | queued)
        level = np.where(
            straight, level + rate * (clock - np.where(queued, self.begins, self.start)), level
        )
        shared = rising & ~alone & ~queued
        if shared.any():
            weight = np.bincount(
                utility.group[shared], filling.mass[shared], minlength=len(utility.group_weight)
            )
            # All members rise by the clock of their group, which runs the faster the fewer of them
            # are left.
            pace = quotient(utility.group_weight, weight)
            out = over & ~alone & ~queued
            # When the last member dropped out, at `since`, the group's clock stood at what that one
            # needed.
            since = np.full(len(weight), self.start)
            np.maximum.at(since, utility.group[out], self.ends[out])
            risen = np.zeros(len(weight))  # of the group's own clock, in units of p / s
            np.maximum.at(
                risen,
                utility.group[out],
                ((filling.highest - filling.level) / filling.unit_rate)[out],
            )
            risen = risen + pace * (clock - since)
            level = np.where(
                shared, filling.level + filling.unit_rate * risen[utility.group], level
            )
            rate = np.where(shared, rate * pace[utility.group], rate)
        return np.minimum(level, filling.highest), rate


class Filling:
    """The state of water filling: levels, frozen classes, and the clock.

    Parameters
    ----------
    program : AllocationProgram
        With a lexicographic minimum of positive weights.
    closes, caps : bool
        Whether columns are closed, and floors cap levels. False: as stages were solved that do not
        say so.
    empties, empties_last : bool
        Whether closed columns are empty in the programs of later stages, and in the last one. A
        solver that is less exact may need a little of them.
    """

    def __init__(
        self,
        program: AllocationProgram,
        closes: bool = True,
        caps: bool = True,
        empties: bool = False,
        empties_last: bool = False,
    ) -> None:
        assert isinstance(program.utility, LexicographicMinimum)
        self.program, self.utility, self.closes = program, program.utility, closes
        self.empties, self.empties_last = empties, empties_last
        self.open = np.ones(program.classes.columns, bool)
        if closes:
            self.open[program.limit_rows.closed_columns] = False
        classes = len(program.classes)
        alone = caps and program.classes.all_alone
        self.floors = program.job_floors if alone else None
        self.on_floor = [np.zeros(classes, bool) for _ in self._measures]
        self.is_full = np.zeros(classes, bool)
        self.highest = self._highest()
        self.level = np.zeros(classes)
        self.frozen = self.highest <= 0
        self.clock = 0.0
        self.loose = LOOSE
        group = self.utility.group
        self.alone = group < 0
        # Three ways to rise: alone, as the head of a queue, and together with others of a group.
        self.in_queue = (
            ~self.alone & self.utility.queued[group]
            if len(self.utility.queued)
            else np.zeros_like(self.alone)
        )
        self.mass = program.classes.count * self.utility.weight
        queue_rate = np.where(
            self.in_queue,
            self.utility.group_weight[group] if len(self.utility.queued) else 1.0,
            0.0,
        )
        self.unit_rate = (
            np.where(self.in_queue, queue_rate, self.utility.weight) / self.utility.gang
        )

    @property
    def has_floors(self) -> bool:
        """Whether side rows ask for levels, which cap them."""
        return self.floors is not None and bool(self.floors.side)

    @property
    def done(self) -> bool:
        """Whether no class can rise."""
        return bool(self.frozen.all())

    # --- the path ---------------------------------------------------------------------------------

    def path(self) -> Path:
        """The path from here on."""
        free = ~self.frozen
        begins, ends = np.full(len(free), self.clock), np.full(len(free), np.inf)
        with np.errstate(divide="ignore"):
            need = np.where(free, (self.highest - self.level) / self.unit_rate, 0.0)
        alone = free & self.alone
        ends[alone] = self.clock + need[alone]
        self._queue(np.flatnonzero(free & self.in_queue), need, begins, ends)
        self._share(np.flatnonzero(free & ~self.alone & ~self.in_queue), need, ends)
        clocks = np.sort(ends[free])
        clocks = (
            clocks[np.append(True, np.diff(clocks) > SAME * clocks[:-1])] if len(clocks) else clocks
        )
        clocks = clocks[clocks > self.clock * (1 + SAME)]
        return Path(self, self.clock, begins, ends, np.append(self.clock, clocks))

    def _queue(
        self, members: IntArray, need: FloatArray, begins: FloatArray, ends: FloatArray
    ) -> None:
        """Members of a queue take their turns one after the other."""
        if not len(members):
            return
        members = members[np.lexsort((self.utility.place[members], self.utility.group[members]))]
        group = self.utility.group[members]
        ends[members] = self.clock + _cumulated(need[members], group)
        begins[members] = ends[members] - need[members]
        first = np.append(True, group[1:] != group[:-1])
        # The difference may be off by rounding, and the first one must rise from now on.
        begins[members[first]] = self.clock

    def _share(self, members: IntArray, need: FloatArray, ends: FloatArray) -> None:
        """Members of a group that shares its weight rise the faster the fewer they are."""
        if not len(members):
            return
        members = members[np.lexsort((need[members], self.utility.group[members]))]
        group, mass, clock = self.utility.group[members], self.mass[members], need[members]
        first = np.append(True, group[1:] != group[:-1])
        total = np.bincount(group, mass, minlength=len(self.utility.group_weight))
        # From one dropping out to the next, the group's clock runs at its weight over the mass that
        # is left.
        before = np.where(first, 0.0, np.append(0.0, clock[:-1]))
        left = total[group] - (_cumulated(mass, group) - mass)
        ends[members] = self.clock + _cumulated(
            (clock - before) * np.maximum(left, mass) / self.utility.group_weight[group], group
        )

    # --- one stage --------------------------------------------------------------------------------

    @cached_property
    def _base(self) -> LinearArrays:
        lp, variables = self.program.bare()
        rise = lp.variables(1, name="rise")
        ones = np.ones((len(self.level), 1))
        lp.constrain(self.program.levels @ variables["x"] - ones @ rise >= 0.0, name="levels")
        lp.maximise(rise)
        return self.program.with_own_rows(lp, variables).arrays

    def segment(self, path: Path, number: int) -> LinearArrays:
        """The linear program of one segment of a path; all have the same rows and columns."""
        base, C = self._base, self.program.classes
        low, high = path.segment(number)
        level, rate = path.at(low)
        column, rows = C.columns, base.row_block("levels").slice
        data = base.A.data.copy()
        # The column of d has an entry in each row of the levels, and in no other: -n_k r_k e.
        data[base.A.indptr[column] : base.A.indptr[column + 1]] = -C.count * rate * high
        row_lower, lower, upper = base.row_lower.copy(), base.lower.copy(), base.upper.copy()
        row_lower[rows] = C.count * np.where(rate > 0, level, level * (1.0 - self.loose))
        # Where rows leave little to a job that rises, that is the scale of d, and not the segment.
        # Twice as much, as a row has to hold the job, and not the bound of a column.
        possible = quotient(2.0 * self.program.level_limit, rate * high, 1.0)
        most = float(possible[possible > 0].min(initial=1.0))
        lower[column], upper[column] = -most, min(most, (high - low) / high)
        implied_lower, implied_upper = base.implied_lower.copy(), base.implied_upper.copy()
        implied_lower[column], implied_upper[column] = lower[column], upper[column]
        if self.empties:
            upper[:column][~self.open] = implied_upper[:column][~self.open] = 0.0
        return replace(
            base,
            A=sp.csc_matrix((data, base.A.indices, base.A.indptr), shape=base.shape),
            row_lower=row_lower,
            lower=lower,
            upper=upper,
            implied_lower=implied_lower,
            implied_upper=implied_upper,
        )

    def freeze(
        self,
        path: Path,
        number: int,
        arrays: LinearArrays,
        clock: float,
        y: FloatArray,
        bound: float | None,
        reached: float = 1.0,
    ) -> BoolArray:
        """Advance the clock within a segment, and freeze the classes that duals hold there.

        ``arrays`` is the program of the segment, ``bound`` the bound on the rise that the duals
        prove. All levels that the clock gives are lowered by the factor ``reached``, so that there
        is a point with them: what is missing by rounding would otherwise be taken from those who
        still rise, where it is not small. Duals of the wrong sign count as 0. A class can rise by
        at most the gap over its part of the duals; it is frozen if that part is large enough to
        exclude a rise.

        Returns
        -------
        BoolArray, shape (K,)
            The classes that are newly frozen.
        """
        C = self.program.classes
        y = np.where(np.isposinf(arrays.row_upper), np.minimum(y, 0.0), y)
        y = np.where(np.isneginf(arrays.row_lower), np.maximum(y, 0.0), y)
        _, rate = path.at(float(path.breaks[number]))
        level, _ = path.at(clock)
        before = self.frozen.copy()
        self.frozen = self.frozen | (path.ends <= clock * (1 + SAME))
        low, high = path.segment(number)
        # The part of each class in the duals: the sum is 1 if the levels alone stop the rise.
        pull = C.count * rate * high * np.maximum(-y[arrays.row_block("levels").slice], 0.0)
        # If the end of the segment stops the rise, the duals of the levels are rounding.
        most = float(pull.max(initial=0.0))
        gap = 0.0 if bound is None else max(bound - (clock - low) / high, 0.0)
        doubt = min(gap / SURE, most / 10.0, self._off(gap) * most)
        clear = max(HELD * most, doubt)
        held = (pull > clear) & (pull.sum() > HOLDING)
        self.level, self.clock = np.where(before, self.level, level) * reached, clock
        self.frozen |= held
        if held.any():
            # The row of a class that waits at level 0 demands nothing, so its dual proves nothing.
            y[arrays.row_block("levels").slice][(rate <= 0) & (level <= 0)] = 0.0
            lost = self._lost(arrays, y, gap)
            if self.closes:
                self.open &= ~lost
                self._hold_floors(arrays, y, rate > 0, clear)
                self.highest = np.maximum(self._highest(), self.level)
                self.frozen |= self.highest <= self.level * (1 + REACHED)
            else:
                nothing = self.program.highest_among(~lost) <= 0
                self.frozen |= nothing & (rate <= 0)
        return self.frozen & ~before

    def _hold_floors(
        self, arrays: LinearArrays, y: FloatArray, rises: BoolArray, clear: float
    ) -> None:
        """Record the classes that are exactly at their floor, or run all the time, in every optimal
        solution; this holds for all later stages.
        """
        C, floors = self.program.classes, self.floors
        if floors is None or not floors.side:
            return
        of_rows = np.concatenate([y[arrays.row_block(rows.name).slice] for rows in floors.side])
        for measure, on_floor in zip(floors.measures, self.on_floor, strict=True):
            worth = np.maximum(-of_rows[measure.row], 0.0) * measure.lower
            on_floor |= rises & (measure.row >= 0) & (worth > clear)
        self.is_full |= C.count * y[arrays.row_block("time").slice] > clear

    def _highest(self) -> FloatArray:
        """The highest level that a job of each class can have on its open columns beside its
        floors.
        """
        program, highest = self.program, self.program.highest_among(self.open)
        for measure, on_floor in zip(self._measures, self.on_floor, strict=True):
            cap = measure.highest_level(
                program.classes, program.gain, self.open, on_floor, self.is_full
            )
            highest = np.minimum(highest, cap)
        return highest

    @property
    def _measures(self) -> tuple[FloorMeasure, ...]:
        return () if self.floors is None else self.floors.measures

    def _lost(self, arrays: LinearArrays, y: FloatArray, gap: float) -> BoolArray:
        """Columns whose reduced cost is negative beyond doubt: no optimal solution has them.

        A solution with x in a column loses x times minus its reduced cost, and no solution within
        the gap loses more than the gap. Pools that were full before may have prices of any size, so
        that rounding is relative to the terms of each column, not to the largest.
        """
        columns = slice(self.program.classes.columns)
        reduced = -(arrays.A.T @ y)[columns]
        terms = (abs(arrays.A).T @ np.abs(y))[columns]
        doubt = np.minimum(gap / SURE, self._off(gap) * terms)
        return reduced < -np.maximum(HELD * terms, doubt)

    def _off(self, gap: float) -> float:
        """Relative error of duals; 1 if nothing is known of it.

        The whole gap may be due to one class, which would leave the duals of very many small
        classes in doubt. But with prices to which every class responds exactly (``loose`` is 0) the
        dual problem is curved: the further prices are off, the more classes respond otherwise. Such
        prices are off by about the root of the gap. An interior point has duals everywhere, so this
        does not hold for it.
        """
        return CURVED * gap**0.5 if self.loose == 0 else 1.0

    # --- the end ----------------------------------------------------------------------------------

    def final(self) -> AllocationProgram:
        """Maximise the total of the levels (or of what comes ``then``),
        nobody below the level that filling gave.
        """
        C, level = self.program.classes, self.level
        floor = SideRows(
            name="filling",
            matrix=self.program.levels,
            lower=C.count * level * (1.0 - self.loose),
            upper=np.full(len(level), np.inf),
            slack=C.count * level * self.loose,
            describe=partial(_kept_words, C, level),
        )
        side = (*self.program.side, *self._closing, floor)
        return replace(
            self.program, utility=Total(np.ones(len(level))), levels=self._then, side=side
        )

    @property
    def _closing(self) -> tuple[SideRows, ...]:
        """The row that keeps closed columns empty in the last program, where there is one.

        Without it the prices of the last program would have to rise until no class gains by these
        columns: very far where a column uses hardly more of the resources than an open one.
        """
        closes = ~self.open
        closes[self.program.limit_rows.closed_columns] = False
        closed = np.flatnonzero(closes)
        if not (self.empties_last and len(closed)):
            return ()
        shape = 1, self.program.classes.columns
        row = sp.csr_matrix((np.ones(len(closed)), closed, [0, len(closed)]), shape=shape)
        return (SideRows.bar(CLOSED_ROW, row, SameWords(CLOSED_WORDS)),)

    @property
    def _then(self) -> sp.csr_matrix:
        return self.program.levels if self.utility.then is None else self.utility.then

    def last(self) -> LinearArrays:
        """The linear program of `final`, with the column of the rise, fixed at 0:
        what a stage's session can become.
        """
        base, C = self._base, self.program.classes
        column, rows = C.columns, base.row_block("levels").slice
        data, row_lower = base.A.data.copy(), base.row_lower.copy()
        data[base.A.indptr[column] : base.A.indptr[column + 1]] = 0.0
        row_lower[rows] = C.count * self.level * (1.0 - self.loose)
        cost, lower, upper = np.zeros(base.shape[1]), base.lower.copy(), base.upper.copy()
        cost[:column] = np.asarray(self._then.sum(axis=0)).ravel()
        lower[column] = upper[column] = 0.0
        return replace(
            base,
            A=sp.csc_matrix((data, base.A.indices, base.A.indptr), shape=base.shape),
            row_lower=row_lower,
            cost=cost,
            lower=lower,
            upper=upper,
        )


def _cumulated(values: FloatArray, group: IntArray) -> FloatArray:
    """Running sums within groups of consecutive entries."""
    total = np.cumsum(values)
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    before = np.append(0.0, total)[first]
    lengths = np.diff(np.append(first, len(values)))
    return np.asarray(total - np.repeat(before, lengths))


def _kept_words(C: Classes, level: FloatArray, k: int) -> str:
    return f"{C.job_name(k)} keeps the level {level[k]:.6g} that filling gives"
