"""Deadlines met by jobs that may be stopped, resumed and moved at any moment: an event-interval
program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from formulations.constraints.holdings import gpus_held
from formulations.deadline_program import DeadlineProgram
from formulations.horizon import (
    DONE,
    NO_TIME_FOR_RULE,
    ROUNDING,
    Calendar,
    Supply,
    candidates_of_plan,
    column_deadlines,
    column_values,
    columns_with_deadline,
    durations,
    each_deadline,
    without_column,
)
from formulations.level_planner import (
    MOST_REPAIRED,
    Level,
    LevelJob,
    LevelPlan,
    Piece,
    Profile,
    Run,
    plan_levels,
    schedule_of,
    stretches_of,
)
from formulations.level_table import LevelTable
from formulations.priced_time import DualPrices, PricedTime
from formulations.time_shortage import Overload, TimeNeeded
from formulations.wrap_around import wrapped
from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, owners, ranges
from optsched.arrays.matrices import sum_by
from optsched.candidates import Candidates, Classes, JobRows
from optsched.display.text import enumerated
from optsched.formulation import Formulation, FormulationOptions
from optsched.instance.durations import UNLIMITED, OutOfTime, Timer
from optsched.program import LinearProgram
from optsched.solution import Conflict, Schedule
from optsched.solution.plan import LinearPlan, Relaxation, Shortage, Sifting, Slices

MOST_COLUMNS = 1_000_000
"""Columns y above which intervals are merged: a program of so many is solved in half a minute."""
SIFTED_FROM, MOST_SIFTED = 300_000, 4_000_000
"""Columns y from which a program without a choice is sifted, and above which its intervals are
merged.
"""
WORK = 1.2
"""Sifting adds the cheapest columns of each job, until together they could do this multiple of its
work.
"""
MOST_PRICING = (400_000, 20_000)
"""Columns y of the merged programs whose prices of time begin the sifting: the second where the
first is too hard.
"""
TO_MISS = 20.0
"""What a job that is not done costs in these, relative to the least cost of its work; of work without
a cost, to its least duration.
"""
WORK_IS_MISSING = 1e-5
"""Part of the work that is missing at the highest bound by prices from which on it is no rounding."""
MOST_REFUTING_PRICES = (200_000, 800_000)
"""Columns y of the merged programs in which prices of time are sought that refute a set of jobs, one
after the other.
"""
MOST_REFUTING = 200_000
"""Columns y of the merged program that shows in seconds that a sifted one is infeasible."""
MOST_BOUNDING = 20_000
"""Columns y towards which intervals are merged if only a bound is asked for: such a program is solved
in a fraction of a second. Each column keeps an interval.
"""
COUNTED_FROM = 4_000
"""Columns times moments from which on sums of needs come before the program: duals of a smaller one
name fewer requirements, in less time than a user notices.
"""
MOST_DETAILED = 8
"""Jobs of which a shortage says what each needs; of more it has the names alone."""
NOTHING, NO_WORK = 1e-10, 1e-7
"""A time below the first, as a fraction of an interval, is rounding of a solver, if it also does
less than the second of the job's work.
"""
FOR_RULE = 0.5
"""Largest fraction of the time limit that the search for the plan by rule takes."""
FOR_BUILDING = 0.7
"""Fraction of the time limit after which a large program is not built further."""
FOR_PRICES = 0.7
"""Fraction of the time limit after which no prices of time are sought."""


class DeadlineFluid(Formulation):
    """Meet deadlines with jobs that may be stopped, resumed and moved at any moment;
    least GPU time, or the least value of jobs that are declined.

    Sets
        k in K: classes of n_k equal jobs with a deadline;  c in C_k: their columns without a
        partner;
        t: intervals, of length L_t, between two successive moments at which a job arrives, a
        deadline passes or capacity changes;  r in R: renewable resources;  b in B: consumable
        resources.
    Parameters
        d_c: duration of all work that is left, in column c; with the option ``quantile`` q a
        duration from a rate is kept with probability q (stated durations are exact);
        g_c: GPUs of column c;  u_rc: what it holds of r;  u_bc: what all work in it uses up of b;
        G_rt: capacity of r in t;  G_b: amount of b;
        D_km: deadlines of class k, ascending: the job's, or those of options (attribute
        ``deadline``, seconds on the clock of now), for soft deadlines: later, with less value;
        v_km: value of the option;
        the job's weight, if none of its options has a value.
    Variables
        y_ct: seconds that jobs of the class run in column c during t, added up; only between
        arrival and deadline of c;
        a_km: jobs of class k that are done by D_km, and not by an earlier one;  the constant n_k
        for a class without a choice (none of its jobs may be declined, and it has one deadline).
    Program
        minimise  sum_c sum_t g_c (1 + ``early`` start_t / end of the last interval) y_ct      without a choice
        minimise  sum_k n_k max_m v_km - sum_k sum_m v_km a_km                                 classes with a choice
        time      sum_c y_ct  <=  L_t sum_m a_km   (n_k = 1:  <= L_t)                          classes, intervals
        work      sum_c sum_{t until D_km} y_ct / d_c  >=  sum_{l <= m} a_kl                   classes, deadlines
        capacity  sum_c u_rc y_ct  <=  G_rt L_t                                                resources, intervals
        budget    sum_c sum_t (u_bc / d_c) y_ct  <=  G_b                                       consumable resources
        take      sum_m a_km  =  n_k   (<= n_k if soft, or ``admission``)                      classes with a choice
        y >= 0;  a >= 0 integer

    A job may change its GPUs and its pool at any moment, without cost: this bounds every other way
    to meet the deadlines. Jobs without a deadline are unplaced; in rounds they run on GPUs that the
    plan leaves idle. Jobs that run in rounds and cannot be preempted go on to their ends, and the
    plan has what they leave.

    Inside an interval the jobs of a pool are laid end to end over its GPUs
    (`formulations.wrap_around`). Where a job is in several pools, or jobs hold unlike numbers of
    GPUs, the times are cut into slices in which whole jobs run side by side (`optsched.realise`).
    For jobs on one GPU each this is exact. For gangs the program is a relaxation. If no such
    schedule is found for some interval, each interval is filled with jobs while there is room, and
    the remaining work runs wherever room is left. The other candidate is the plan by rule of
    `deadline-elastic`, without restarts: jobs by deadline or by slack, each at the level with the
    least GPU time that still meets its deadline. The better one is the answer, within the bound of
    the program; a note says which it is. If neither keeps all deadlines, the answer is undecided.
    If this program is infeasible, no schedule keeps all deadlines. Work of less than 1e-4 s counts
    as so much, as in `deadline-elastic`.

    Order of the steps
        1. Each job alone: one that cannot keep its deadline on an empty cluster is named.
        2. Sums, of many jobs: in some window of time jobs may need more of a resource than there is
           (`formulations.time_shortage`).
        3. The plan by rule, under a time limit for at most half of it, so that the answer is at least
           as good. No solver runs where every job has its largest value, or its least GPU time, by
           rule.
        4. Prices of time, where a program that would be sifted has no plan by rule. If work is missing
           at the highest bound, jobs may have to pay more for their work than all time costs
           (`formulations.priced_time`).
        5. The program. If a large one is not built once seven tenths of the limit are over, one with
           merged intervals takes its place.
        6. The schedule of its optimum. Where the limit ends the search for it, the plan by rule is
           the answer.
    Steps 1, 2 and 4 may show that no schedule keeps all deadlines; then no program is solved.

    A program of 300,000 columns y or more without a choice is solved by sifting
    (`optsched.solving.sifting`): it begins with the columns that cost least at prices of time in
    merged intervals. With more than 4,000,000 columns y, or 1,000,000 with a choice, intervals are
    merged. In a merged interval a job runs for at most the time between its arrival and its
    deadline; the program is then a relaxation even for jobs on one GPU.

    Options
        admission   jobs may be declined; otherwise all must be done by their deadlines, or the
                    instance is infeasible.
        early       how much more a GPU second costs at the end of the last interval than now.
        capacity    {resource: [capacity in round 0, 1, ...]}: calendars; the last number goes on.
        schedule    whether a schedule is made. ``false``: only a lower bound on the number of jobs
                    that miss their deadlines (perhaps no whole number), by a linear program of about
                    20,000 columns y at most.

    References
        E. L. Lawler, J. Labetoulle, "On preemptive scheduling of unrelated parallel processors by
        linear programming", Journal of the ACM 25 (1978); R. McNaughton, "Scheduling with deadlines
        and loss functions", Management Science 6 (1959).
    """

    name = "deadline-fluid"
    reads = frozenset({"steps_left", "arrival", "deadline", "soft_deadline", "weight"})
    also_reads = frozenset({"value"})
    reads_pairs = False
    sense = "min"
    takes_rows = False
    plans_ahead = True
    awaits_nodes = True
    hard_deadlines = True
    in_rounds = MappingProxyType({"admission": True})
    objective_words = "GPU seconds, or the value of declined jobs"

    class Options(FormulationOptions):
        """Options of the event-interval program."""

        admission: bool = False
        early: Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False)] = 0.0
        capacity: Calendar = Field(default_factory=dict)
        schedule: bool = True

    def classes(self, candidates: Candidates) -> Classes:
        """Classes of the jobs that a plan may run (`candidates_of_plan`).

        Jobs of a class share all times equally, so that they must have one deadline.
        """
        candidates = candidates_of_plan(self, candidates)
        C = super().classes(candidates)
        deadlines = column_deadlines(C)
        last = np.full(len(C), -np.inf)
        np.maximum.at(last, C.class_a, deadlines)
        several = (deadlines < last[C.class_a]) & (C.count[C.class_a] > 1)
        return super().classes(candidates.per_job()) if several.any() else C

    def build(self, C: Classes) -> LinearPlan:
        options = self.options
        supply = Supply.of(C, options.capacity, self.name, self.restarts_of(C.instance))
        promised = np.zeros(len(C), bool) if self.promised is None else self.promised[C.first]
        optional = C.soft_deadline | (options.admission & ~promised) | (not options.schedule)
        # Jobs that can run nowhere are counted in the bound, if other jobs have a program.
        leaves_out = options.admission or (not options.schedule and len(C) > 0)
        early, schedule = options.early, options.schedule
        return FluidProgram(C, supply, optional, leaves_out, early, schedule, self.timer).plan()


@dataclass(frozen=True)
class FluidProgram(DeadlineProgram):
    """Columns, intervals and variables of one program, in the symbols of `DeadlineFluid`.

    Attributes
    ----------
    timer : Timer
        Time limit. When it is over, points are no longer turned into schedules, and the search for
        the plan by rule stops.
    merges_above : int or None
        Columns y above which intervals are merged. None: as many as can be solved.
    """

    early: float = 0.0
    has_schedule: bool = True
    timer: Timer = UNLIMITED
    merges_above: int | None = None

    @property
    def most(self) -> int:
        """Columns y above which intervals are merged."""
        if self.merges_above is not None:
            return self.merges_above
        if not self.has_schedule:
            return MOST_BOUNDING
        return MOST_COLUMNS if self.chooses.any() else MOST_SIFTED

    # --- columns and intervals --------------------------------------------------------------------

    @cached_property
    def release(self) -> FloatArray:
        """Seconds from now until jobs of each class arrive, shape (K,)."""
        return np.maximum(self.C.arrival - self.now, 0.0)

    @cached_property
    def c(self) -> IntArray:
        """Class columns without a partner that end and have a deadline."""
        return columns_with_deadline(self.C)

    @cached_property
    def k(self) -> IntArray:
        """Class of each of these columns, (c,)."""
        return self.C.class_a[self.c]

    @cached_property
    def d(self) -> FloatArray:
        """Duration of all work in each, s, (c,)."""
        return durations(self.C, self.c)

    @cached_property
    def value(self) -> FloatArray:
        """Value of each class column, (columns,); only counted where no schedule is made."""
        return column_values(self.C) if self.has_schedule else np.ones(self.C.columns)

    @cached_property
    def moments(self) -> FloatArray:
        """Seconds from now to all moments at which anything changes, ascending."""
        open_ = self.due > self.release[self.k]
        changes = self._changes
        events = (self.release[self.k][open_], self.due[open_])
        return np.unique(np.concatenate([[0.0], *events, changes]))

    @cached_property
    def _changes(self) -> FloatArray:
        changes = self.supply.changes
        return np.asarray(changes[changes < self.due.max(initial=0.0)])

    @cached_property
    def edges(self) -> FloatArray:
        """Seconds from now to the ends of intervals, shape (intervals + 1,).

        All moments. If that makes too many columns: the first and the last moment, all changes of
        capacity, and arrivals and deadlines at equal steps of their sorted list.
        """
        release = self.release[self.k]
        open_ = self.due > release
        events = np.sort(np.concatenate([release[open_], self.due[open_]]))
        edges, kept = self.moments, len(events)
        while (columns := self._columns(edges)) > self.most and kept > 1:
            kept = min(kept - 1, int(0.9 * len(edges) * self.most / columns))
            among = events[np.linspace(0, len(events) - 1, max(kept, 2)).astype(np.int64)]
            edges = np.unique(np.concatenate([self.moments[[0, -1]], among, self._changes]))
        return edges

    def _columns(self, edges: FloatArray) -> int:
        """How many y there are with such intervals."""
        first = np.searchsorted(edges, self.release[self.k], "right") - 1
        return int(np.maximum(np.searchsorted(edges, self.due) - first, 0).sum())

    @property
    def merged(self) -> bool:
        """Whether jobs may arrive or be due inside an interval: then the program is a
        relaxation.
        """
        return len(self.edges) < len(self.moments)

    @cached_property
    def length(self) -> FloatArray:
        """Lengths L_t of the intervals in seconds, shape (intervals,)."""
        return np.diff(self.edges)

    @cached_property
    def G(self) -> FloatArray:
        """Capacity of these in each interval, shape (R, intervals)."""
        return self.supply.at(self.edges[:-1])[self.renewable]

    @cached_property
    def consumes(self) -> FloatArray:
        """What all work in each column uses up of these, shape (B, c)."""
        used = self.C.usage.tocsr()[self.consumable][:, self.c]
        return np.asarray(used.todense(), np.float64)

    @cached_property
    def g(self) -> FloatArray:
        """GPUs of each column, (c,)."""
        return gpus_held(self.C)[self.c]

    # --- the columns y ----------------------------------------------------------------------------

    @cached_property
    def first(self) -> IntArray:
        """First interval of each column, (c,)."""
        return np.asarray(np.searchsorted(self.edges, self.release[self.k], "right") - 1, np.int64)

    @cached_property
    def size(self) -> IntArray:
        """Number of intervals of each column, (c,): 0 where the deadline is not after the
        arrival.
        """
        last = np.asarray(np.searchsorted(self.edges, self.due), np.int64)
        return np.where(self.due > self.release[self.k], last - self.first, 0)

    @cached_property
    def fits(self) -> BoolArray:
        """Whether the empty cluster has room for one job, for each y."""
        uses, where, column = self._entries
        none = uses > self.G.ravel()[where] + ROUNDING
        return ~mask_of(column[none], len(self.of))

    @cached_property
    def span(self) -> FloatArray:
        """Seconds of its interval between arrival and deadline, for each y."""
        begin = np.maximum(self.edges[self.t], self.release[self.k[self.of]])
        return np.minimum(self.edges[self.t + 1], self.due[self.of]) - begin

    @cached_property
    def cost(self) -> FloatArray:
        """Cost of a second of each y, where no class has a choice."""
        later = 1.0 + self.early * self.edges[self.t] / self.edges[-1]
        return np.asarray(self.g[self.of] * later)

    # --- deadlines of classes: the columns a ------------------------------------------------------

    @cached_property
    def deadlines(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """(k, D_km - now, v_km) of each class and deadline, in this order."""
        return each_deadline(self.k, self.due, self.value[self.c])

    @cached_property
    def planned(self) -> IntArray:
        """Classes with such columns."""
        return np.unique(self.k)

    @cached_property
    def chooses(self) -> BoolArray:
        """Classes with a choice: of declining jobs, or among deadlines; shape (K,)."""
        several = np.bincount(self.deadlines[0], minlength=len(self.C)) > 1
        return (self.asked & self.optional) | several

    @cached_property
    def chosen(self) -> IntArray:
        """Class and deadline of each a, an index of `deadlines`."""
        return np.flatnonzero(self.chooses[self.deadlines[0]]).astype(np.int64)

    # --- the program ------------------------------------------------------------------------------

    def plan(self) -> LinearPlan:
        """The first steps that `DeadlineFluid` states; the program is built, not solved.

        Without a time limit the plan by rule of a program that is not sifted is made later. Raises
        `OutOfTime` if the rule finds no plan in time.
        """
        self._refuse_impossible()
        if self.shortage is not None:  # a small program for the plan to be complete: none is solved
            return self._merged(MOST_BOUNDING).to_plan(witness_first=False)
        began = self.timer.clock()
        try:
            if self._is_sifted and self.witness is None and self._shortage_by_prices is not None:
                plan = self._merged(MOST_BOUNDING).to_plan(witness_first=False)
                return replace(plan, shortage=lambda: self._shortage_by_prices)
            if self.timer.seconds is None or not self.has_schedule:
                return self.to_plan(witness_first=self.has_schedule)
            if self.witness is None:
                self.timer.check()
            else:
                self._check_building()
            searched = self.timer.clock() - began
            return replace(self.to_plan(witness_first=True), searched=searched)
        except OutOfTime:
            if self.witness is None or not self._has_smaller:
                raise
            return self._merged(MOST_BOUNDING).to_plan(witness_first=True)

    def program_first(self) -> LinearPlan:
        """The same, but the plan by rule is made only once it is needed: a proof that there is no
        schedule needs none.
        """
        self._refuse_impossible()
        return self.to_plan(witness_first=False)

    def to_plan(self, *, witness_first: bool) -> LinearPlan:
        """The plan; ``witness_first`` as of `Relaxation`."""
        relaxation = Relaxation(
            self.realise, lambda: self.witness, lambda: self._note, witness_first
        )
        return LinearPlan(
            self.C,
            self.program,
            self._read,
            self.complete,
            self._describe,
            declined=self._declined,
            shortage=lambda: self.shortage,
            relaxation=relaxation,
            sifting=self._sifting if self._is_sifted else None,
            refuted_by=self._merged(MOST_REFUTING).program_first if self._is_sifted else None,
        )

    # --- more work than time ----------------------------------------------------------------------

    @cached_property
    def shortage(self) -> Shortage | None:
        """Jobs that need more time on a resource than there is, by sums (`time_shortage`); None of
        small programs.
        """
        if len(self.c) * len(self.moments) < COUNTED_FROM:
            return None
        columns = np.flatnonzero(self.must[self.k] & np.isfinite(self.d))
        if not len(columns):
            return None
        k, d = self.k[columns], self.d[columns]
        first = np.flatnonzero(np.diff(k, prepend=-1))
        planned, moments = k[first], np.append(0.0, self._changes)
        weights, uses = self._weights_of_sums, self.uses[:, columns].toarray()
        needed = TimeNeeded(
            self.release[planned],
            np.maximum.reduceat(self.due[columns], first),
            np.minimum.reduceat(d, first),
            self.C.count[planned] * np.minimum.reduceat(weights @ uses * d, first, axis=1),
            moments,
            weights @ self.supply.at(moments)[self.renewable],
        )
        overload = needed.greatest_overload()
        return None if overload is None else self._shortage_of_sum(overload, planned)

    @cached_property
    def _weights_of_sums(self) -> FloatArray:
        """Weights of the resources in each sum that is formed, (sums, R): each alone, then the GPUs
        of all pools, then these by their speed.
        """
        of_pool = self.C.resources.pool[self.renewable] >= 0
        held = np.where(self.uses.toarray() > 0, self.uses.toarray() * self.d, np.inf)[of_pool]
        first = np.flatnonzero(np.diff(self.k, prepend=-1))
        gpu_time = np.minimum.reduceat(held, first, axis=1)
        # The least GPU time of each class, relative to that in each pool; NaN where it cannot run.
        speed = np.divide(
            gpu_time.min(axis=0),
            gpu_time,
            out=np.full(gpu_time.shape, np.nan),
            where=np.isfinite(gpu_time),
        )
        by_speed = 1.0 * of_pool
        runs = ~np.isnan(speed).all(axis=1)
        by_speed[np.flatnonzero(of_pool)[runs]] = np.nanmedian(speed[runs], axis=1)
        return np.vstack([np.eye(len(of_pool)), 1.0 * of_pool, by_speed])

    def _unit_of_sum(self, row: int) -> str:
        """What a row of `_weights_of_sums` adds up, in words."""
        resources = self.C.resources
        if row < len(self.renewable):
            resource = int(self.renewable[row])
            name, of_pool = resources.names[resource], resources.pool[resource] >= 0
            return f"GPU seconds of pool {name}" if of_pool else f"seconds of {name}"
        if row == len(self.renewable):
            return "GPU seconds of all pools"
        counted = [
            f"{weight:.4g} on {resources.names[self.renewable[r]]}"
            for r, weight in enumerate(self._weights_of_sums[row].tolist())
            if weight
        ]
        return f"GPU seconds of all pools, by speed (a second is {enumerated(counted, 'and')})"

    def _shortage_of_sum(self, overload: Overload, planned: IntArray) -> Shortage:
        """An overload in words; its classes are indices of ``planned``."""
        unit = self._unit_of_sum(overload.resource)
        start, end = self.now + overload.start, self.now + overload.end
        words = (
            f"from {start:g} s to {end:g} s there are {overload.available:,.10g} {unit}, "
            f"and these jobs need at least {overload.asked:,.10g}"
        )
        return self._shortage_in_words(
            words, planned[overload.classes], overload.asked, overload.available
        )

    @cached_property
    def _shortage_by_prices(self) -> Shortage | None:
        """Jobs that must pay more for time than all time costs (`priced_time`), in relaxations with
        merged intervals. Not looked for where the prices of the highest bound leave no work out.
        """
        found = self._prices_of_time
        if found is not None and found[1].missing < WORK_IS_MISSING:
            return None
        timer = self.timer.part(FOR_PRICES)
        shown = (self._merged(most).shown_by_prices(timer) for most in MOST_REFUTING_PRICES)
        return next((shortage for shortage in shown if shortage is not None), None)

    def shown_by_prices(self, timer: Timer) -> Shortage | None:
        """What prices of time in the intervals of this program show."""
        planned, priced = self.priced
        found = priced.unaffordable(timer)
        if found is None:
            return None
        start, end = self.now + self.edges[found.first], self.now + self.edges[found.last + 1]
        words = (
            f"there are prices of time from {start:g} s to {end:g} s at which all time costs "
            f"{found.available:,.10g}, and these jobs pay at least {found.asked:,.10g} for theirs"
        )
        return self._shortage_in_words(words, planned[found.classes], found.asked, found.available)

    @cached_property
    def priced(self) -> tuple[IntArray, PricedTime]:
        """Classes that must meet their deadlines, and their columns in intervals."""
        y = np.flatnonzero(self.fits & self.must[self.k[self.of]])
        y = y[np.lexsort((self.t[y], self.k[self.of[y]]))]
        planned, k = np.unique(self.k[self.of[y]], return_inverse=True)
        uses = sp.csr_matrix(self.uses.T)[self.of[y]].tocoo()
        k_row, _, row, length = self._time
        least, shortest = np.full((2, len(planned)), np.inf)
        np.minimum.at(least, k, self.cost[y] * self.d[self.of[y]])
        np.minimum.at(shortest, k, self.d[self.of[y]])
        return planned, PricedTime(
            k=k,
            t=self.t[y],
            rate=1.0 / self.d[self.of[y]],
            cost=self.cost[y],
            entry=uses.row.astype(np.int64),
            resource=uses.col.astype(np.int64),
            amount=uses.data.astype(np.float64),
            seconds=(length * self.C.count[k_row])[np.unique(row[y])],
            there=(self.G * self.length).T,
            count=self.C.count[planned].astype(np.float64),
            worth=TO_MISS * np.where(least > 0, least, shortest),
        )

    def _shortage_in_words(
        self, words: str, classes: IntArray, asked: float, available: float
    ) -> Shortage:
        """That classes need more than there is; the words say what."""
        short = classes.tolist()
        jobs = [Conflict("work", k, self._of_class(k)) for k in short]
        if len(short) > MOST_DETAILED:
            names = [self.C.job_name(k).removeprefix("job ") for k in short]
            jobs = [Conflict("work", -1, f"they are {enumerated(names, 'and')}")]
        conflicts = (Conflict("capacity", -1, words), *jobs)
        return Shortage(conflicts, asked, available)

    # --- a smaller program ------------------------------------------------------------------------

    @property
    def _has_smaller(self) -> bool:
        """Whether a smaller program with the same objective can be built instead."""
        fewer = self.merges_above is None and len(self.of) > MOST_BOUNDING
        return fewer and not (self.early and not self.chooses.any())

    def _check_building(self) -> None:
        """Raise `OutOfTime` of a large program: where the time is over, or that for building if
        `plan` has made a plan by rule, which needs a program, and can build a smaller one.
        """
        if len(self.of) <= MOST_BOUNDING:
            return
        if "by_rule" not in vars(self) or self.witness is None:
            self.timer.check()
        elif self._has_smaller:
            self.timer.part(FOR_BUILDING).strict().check()

    # --- sifting: the columns that may be in an optimum -------------------------------------------

    @property
    def _is_sifted(self) -> bool:
        """Whether the program has so many columns that it is solved by sifting."""
        is_whole = self.has_schedule and self.merges_above is None
        return is_whole and not self.chooses.any() and len(self.of) >= SIFTED_FROM

    def _merged(self, most: int) -> FluidProgram:
        """The relaxation with fewer intervals; what is known without intervals holds for it, too."""
        merged = replace(self, merges_above=most)
        for name in ("jobs", "by_rule", "shortage"):
            if name in vars(self):
                vars(merged)[name] = vars(self)[name]
        return merged

    @property
    def _sifting(self) -> Sifting:
        return Sifting(self._duals_by_prices, lambda y: self._cheapest(*self.prices(y)))

    @cached_property
    def _prices_of_time(self) -> tuple[FluidProgram, DualPrices] | None:
        """A relaxation with merged intervals, and the prices of its highest bound; None if none are
        found.
        """
        timer = self.timer.part(FOR_PRICES)
        for merged in (self._merged(most) for most in MOST_PRICING):
            _, priced = merged.priced
            found = priced.prices(timer)
            if found is not None:
                return merged, found
        return None

    def _duals_by_prices(self) -> FloatArray:
        """Duals of the rows: prices of time in merged intervals, at which budgets cost nothing; 0 if
        no prices are found.
        """
        if self._prices_of_time is None:
            return np.zeros(self.program.arrays.shape[0])
        merged, found = self._prices_of_time
        middle = 0.5 * (self.edges[1:] + self.edges[:-1])
        at = np.searchsorted(merged.edges, middle, "right") - 1
        work = np.zeros(len(self.C))
        work[merged.priced[0]] = found.work
        return self._duals_of(found.time[at].T, work)

    def _duals_of(self, price: FloatArray, work: FloatArray) -> FloatArray:
        """Duals of the rows from prices of time (R, intervals) and of the work of a job (K,)."""
        arrays = self.program.arrays
        duals = np.zeros(arrays.shape[0])
        held, used = self._held
        price = price.ravel()[used]
        earned = work[self.k[self.of]] / self.d[self.of] - self.cost - held.T @ price
        row = self._time[2]
        most = np.zeros(len(arrays.row_block("time")))
        np.maximum.at(most, row[self.fits], earned[self.fits])
        of_deadline = self.deadlines[0]
        duals[arrays.row_block("time").slice] = -most
        duals[arrays.row_block("capacity").slice] = -price
        duals[arrays.row_block("work").slice] = work[of_deadline] / self._shortest[of_deadline]
        return duals

    def prices(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Prices by the duals y of the rows: of a unit of each resource for a second, shape (R,
        intervals), and of a unit of each consumable resource, shape (B,).
        """
        arrays = self.program.arrays
        capacity = np.zeros(self.G.size)
        capacity[self._held[1]] = np.maximum(-y[arrays.row_block("capacity").slice], 0.0)
        budget = np.zeros(len(self.consumable))
        if len(budget):
            budget = np.maximum(-y[arrays.row_block("budget").slice], 0.0)
        return capacity.reshape(self.G.shape), budget

    def _cheapest(self, capacity: FloatArray, budget: FloatArray) -> IntArray:
        """For each job the cheapest column y of each interval at these prices, cheapest intervals
        first, until together they could do `WORK` times its work.
        """
        held, used = self._held
        of, k = self.of, self.k[self.of]
        cost = self.cost + held.T @ capacity.ravel()[used]
        cost += (budget @ self.consumes / self.d)[of]
        fits = np.flatnonzero(self.fits)
        order = fits[np.lexsort(((cost * self.d[of])[fits], k[fits]))]
        interval = k[order] * len(self.length) + self.t[order]
        order = order[np.sort(np.unique(interval, return_index=True)[1])]
        part = (self.span / self.d[of])[order]
        before = np.cumsum(part) - part
        begins = np.append(True, np.diff(k[order]) != 0)[: len(order)]
        before -= np.repeat(before[begins], np.diff(np.append(np.flatnonzero(begins), len(order))))
        return np.sort(order[before < WORK])

    @cached_property
    def program(self) -> LinearProgram:
        """Variables, rows and objective."""
        C, k, of = self.C, self.k, self.of
        n = C.count
        of_deadline, _, value = self.deadlines
        lp = LinearProgram()
        upper = np.where(self.fits, self.span * n[k[of]], 0.0)
        y = lp.variables(len(of), name="y", upper=upper)
        k_a = of_deadline[self.chosen]
        able = self.able[self.chosen]
        a = lp.variables(len(k_a), name="a", upper=n[k_a] * able, integer=self.has_schedule)
        a_of_class = sp.csr_matrix(sum_by(k_a, 1.0, len(C)))

        self._check_building()
        k_row, _, row, length = self._time
        shared = self.chooses[k_row] & (n[k_row] > 1)
        time = sum_by(row, 1.0, len(length)) @ y
        time -= sp.diags_array(np.where(shared, length, 0.0)) @ a_of_class[k_row] @ a
        lp.constrain(time <= np.where(shared, 0.0, length * n[k_row]), name="time")

        self._check_building()
        scale = self._shortest[of_deadline]
        done = sp.diags_array(scale) @ (self._work @ y - self._by_deadline @ a)
        lp.constrain(
            done >= np.where(self.chooses[of_deadline], 0.0, scale * n[of_deadline]), name="work"
        )

        self._check_building()
        held, used = self._held
        lp.constrain(held @ y <= (self.G * self.length).ravel()[used], name="capacity")
        if len(self.consumable):
            spent = sp.csr_matrix(self.consumes[:, of] / self.d[of])
            lp.constrain(spent @ y <= C.capacity[self.consumable], name="budget")
        self._check_building()
        if len(k_a):
            least = np.where(self.optional, 0.0, n)[self._choosing]
            take = a_of_class[self._choosing] @ a
            lp.constrain(take.between(least, n[self._choosing]), name="take")

        if self.chooses.any():
            # Jobs that can run nowhere are counted in the bound.
            lost = 0 if self.has_schedule else len(without_column(C))
            lp.minimise(
                float(n @ np.where(self.chooses, self.highest_value, 0.0))
                + lost
                - value[self.chosen][np.newaxis, :] @ a
            )
        else:
            lp.minimise(self.cost[np.newaxis, :] @ y)
        if self.timer.seconds is not None:
            _ = lp.arrays  # built now, so that their time counts: half as long as the rows
            self._check_building()
        return lp

    @cached_property
    def _choosing(self) -> IntArray:
        """Class of each row ``take``."""
        return self.planned[self.chooses[self.planned]]

    @cached_property
    def _shortest(self) -> FloatArray:
        """The shortest duration of each class, s, shape (K,)."""
        shortest = np.full(len(self.C), np.inf)
        np.minimum.at(shortest, self.k, self.d)
        return shortest

    @cached_property
    def _work(self) -> sp.csr_matrix:
        """Part of a job's work that a second of each y does by each deadline, shape (deadlines,
        y).
        """
        k, due, _ = self.deadlines
        intervals = len(self.length)
        end = k * (intervals + 1) + np.searchsorted(self.edges, due)
        k_y = self.k[self.of]
        since = np.searchsorted(end, k_y * (intervals + 1) + self.t, "right")
        count = np.searchsorted(k, k_y, "right") - since
        data = np.repeat(1.0 / self.d[self.of], count)
        where = (ranges(since, count), owners(count))
        return sp.csr_matrix((data, where), shape=(len(k), len(k_y)))

    @cached_property
    def _by_deadline(self) -> sp.csr_matrix:
        """1 for each a with the same or an earlier deadline of the class, shape (deadlines, a)."""
        k = self.deadlines[0]
        count = np.searchsorted(k, k[self.chosen], "right") - self.chosen
        where = (ranges(self.chosen, count), owners(count))
        return sp.csr_matrix((np.ones(len(where[0])), where), shape=(len(k), len(self.chosen)))

    @cached_property
    def _time(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Class and interval of each row ``time``, row of each y, and the seconds of each row."""
        rows, row = np.unique(self.k[self.of] * len(self.length) + self.t, return_inverse=True)
        seconds = np.zeros(len(rows))
        np.maximum.at(seconds, row, self.span)
        return *np.divmod(rows, max(len(self.length), 1)), row, seconds

    @cached_property
    def _work_alone(self) -> FloatArray:
        """The most work that a job does by each deadline, alone on the cluster, (deadlines,); twice
        its work in an interval counts for any more, which would leave no digits for other jobs.
        """
        (k, t, row, length), (of_deadline, due, _) = self._time, self.deadlines
        fastest = np.zeros(len(k))
        np.maximum.at(fastest, row, np.where(self.fits, 1.0 / self.d[self.of], 0.0))
        done = np.append(0.0, np.cumsum(np.minimum(fastest * length, 2.0)))
        first = np.searchsorted(k, of_deadline)
        # Intervals that begin at or after a deadline do not count for it.
        ends = of_deadline * len(self.edges) + np.searchsorted(self.edges, due)
        last = np.maximum(np.searchsorted(k * len(self.edges) + t, ends), first)
        return np.asarray(done[last] - done[first])

    @property
    def able(self) -> BoolArray:
        """Whether a job alone on the cluster could keep each deadline, (deadlines,)."""
        return np.asarray(self._work_alone >= 1.0 - DONE)

    @cached_property
    def _entries(self) -> tuple[FloatArray, IntArray, IntArray]:
        """(u_rc, resource and interval as one number, y) of every entry of the rows
        ``capacity``.
        """
        uses = self.uses[:, self.of].tocoo()
        column = uses.col.astype(np.int64)
        return uses.data, uses.row.astype(np.int64) * len(self.length) + self.t[column], column

    @cached_property
    def _held(self) -> tuple[sp.csr_matrix, IntArray]:
        """What each y holds, shape (used, y); resource and interval of the rows that are used."""
        uses, where, column = self._entries
        used, row = np.unique(where, return_inverse=True)
        return sp.csr_matrix((uses, (row, column)), shape=(len(used), len(self.of))), used

    # --- from points to schedules -----------------------------------------------------------------

    def _read(self, x: FloatArray) -> Schedule:
        schedule = self.realise(x, lambda rows, there: None)
        if schedule is None:
            raise ValueError("no schedule of the jobs in some interval was found")
        return schedule

    def realise(self, x: FloatArray, slices: Slices, timer: Timer = UNLIMITED) -> Schedule | None:
        """The schedule of a point: interval by interval, where the times of all can be cut into
        slices, else by filling intervals with jobs; None once the time is over.
        """
        if not self.has_schedule:
            return None
        rows, interval = self._rows(x)
        try:
            found = None if self.merged else self._cut(rows, interval, slices, timer)
            return self._filled(rows, interval, timer) if found is None else found
        except OutOfTime:
            return None

    def _cut(
        self, rows: JobRows, interval: IntArray, slices: Slices, timer: Timer
    ) -> Schedule | None:
        """The schedule in which jobs run for just these fractions of intervals; None if they are
        not known to fit.
        """
        key = rows.job * self.C.columns + rows.column
        step = key * (len(self.length) + 1) + interval
        ran_before, runs_after = np.isin(step - 1, step), np.isin(step + 1, step)
        place, machines = self._lines(rows, interval)
        alone = np.flatnonzero(place >= 0)
        row, begin, end = wrapped(
            place[alone],
            machines[alone],
            rows.fraction[alone],
            ran_before[alone],
            runs_after[alone],
        )
        parts = [(alone[row], begin, end)]
        at_end = mask_of(alone[row[end == 1.0]], len(place))

        first = np.searchsorted(interval, np.arange(len(self.length) + 1))
        for t in timer.watching(np.unique(interval[place < 0]).tolist()):
            in_t = np.arange(first[t], first[t + 1])
            cut = slices(rows.take(in_t), self.supply.at(self.edges[t : t + 1])[:, 0])
            if cut is None:
                return None
            before = np.arange(first[max(t - 1, 0)], first[t])
            length, runs = _running_first(*cut, np.isin(key[in_t], key[before[at_end[before]]]))
            moments = np.append(0.0, np.minimum(np.cumsum(length), 1.0))
            moments[moments > 1.0 - ROUNDING] = 1.0
            number, running = runs.nonzero()
            parts.append((in_t[running], moments[number], moments[number + 1]))
            at_end[in_t[running[moments[number + 1] == 1.0]]] = True
        row, begin, end = (np.concatenate(each) for each in zip(*parts, strict=True))
        t = interval[row]
        moment = self.edges[t] + np.stack([begin, end]) * self.length[t]
        moment = np.where(np.stack([begin, end]) == 1.0, self.edges[t + 1], moment)
        return schedule_of(self.C, np.column_stack([rows.job[row], rows.column[row], *moment]))

    def _lines(self, rows: JobRows, interval: IntArray) -> tuple[IntArray, IntArray]:
        """A place of identical machines in which each row runs, and how many rows it takes at a time.

        The place is -1 in intervals that have to be cut in another way: a job is in two places, a row
        holds two resources that others want too, rows of a place hold unlike amounts or together
        more than there is, or jobs hold shares of GPUs. A row beside which everything fits has a
        place of its own.
        """
        intervals, count = len(self.length), len(interval)
        if self._has_shares:
            return np.full(count, -1), np.ones(count, np.int64)
        # Entries of rows at resources that cannot hold all rows of the interval at once.
        uses = self.uses[:, np.searchsorted(self.c, rows.column)].tocoo()
        row, amount = uses.col.astype(np.int64), uses.data
        where = uses.row.astype(np.int64) * intervals + interval[row]
        capacity, held = self.G.ravel(), np.bincount(where, amount, self.G.size)
        binds = (held > capacity * (1.0 + ROUNDING))[where]
        row, where, amount = row[binds], where[binds], amount[binds]

        place = self.G.size + np.arange(count)
        place[row] = where
        most = np.zeros(self.G.size)
        np.maximum.at(most, where, amount)
        takes = capacity * (1.0 + ROUNDING) // np.where(most > 0, most, np.inf)
        machines = np.append(takes, np.ones(count))[place].astype(np.int64)

        twice = (np.diff(interval) == 0) & (np.diff(rows.job) == 0)
        two_resources = np.bincount(row, minlength=count) > 1
        unlike = amount < most[where] * (1.0 - ROUNDING)
        asked = np.bincount(where, rows.fraction[row], self.G.size)
        too_much = (asked > takes * (1.0 + ROUNDING))[where]
        otherwise = mask_of(interval[1:][twice], intervals)
        otherwise[interval[two_resources]] = True
        otherwise[interval[row[unlike | too_much]]] = True
        return np.where(otherwise[interval], -1, place), machines

    def _filled(self, rows: JobRows, interval: IntArray, timer: Timer) -> Schedule | None:
        """The schedule in which each job runs in each interval about as long as in the point.

        In each interval the jobs with the least time between arrival and deadline come first, among
        equal ones those that run longest. Work that finds no room runs by rule wherever there is
        room.
        """
        if self._has_shares:
            return None
        profile, jobs = self._profile(), {job.job: job for job in self.jobs}
        column = np.searchsorted(self.c, rows.column)
        work = rows.fraction * self.length[interval] / self.d[column]
        end = np.minimum(self.edges[interval + 1], self.due[column])
        begin = np.maximum(self.edges[interval], self.release[self.k[column]])
        order = np.lexsort((rows.job, -rows.fraction, end - begin, interval))
        runs: dict[int, list[Run]] = {job: [] for job in np.unique(rows.job).tolist()}
        done = dict.fromkeys(runs, 0.0)

        def pieces(job: int) -> list[Piece]:
            return [piece for run in runs[job] for piece in run.pieces]

        def run(job: int, levels: Sequence[Level], **part: Any) -> bool:
            found = profile.earliest(jobs[job], levels, taken=pieces(job), **part)
            if found is not None:
                profile.take(found)
                runs[job].append(found)
                done[job] += sum((end - begin) / at.duration for at, begin, end in found.pieces)
            return found is not None

        def finish(job: int) -> bool:
            rest = 1.0 - done[job]
            return any(run(job, levels, work=rest) for levels in jobs[job].choices)

        parts = (part[order].tolist() for part in (rows.job, rows.column, begin, end, work))
        for job, c, start, stop, part in timer.watching(zip(*parts, strict=True)):
            level = next(level for level in jobs[job].levels if level.column == c)
            run(job, [level], begin=start, end=stop, work=part, whole=False)
        short = [jobs[job] for job in runs if done[job] < 1.0 - ROUNDING]
        for job in sorted(short, key=lambda job: job.deadline):
            if not finish(job.job):
                if job.promised:
                    return None
                for dropped in runs[job.job]:
                    profile.take(dropped, -1.0)
                runs[job.job] = []
        return schedule_of(self.C, stretches_of({job: pieces(job) for job in runs}))

    def _rows(self, x: FloatArray) -> tuple[JobRows, IntArray]:
        """Which job runs in which column for which fraction of an interval, and the intervals; in
        order of interval, job, column.

        Jobs of a class share its time equally. Time beyond their work is left out, the latest
        first.
        """
        C, k, of = self.C, self.k, self.of
        y, jobs = x[: len(of)], self._jobs_done(x)
        each = np.where(jobs[k[of]] > 0, np.maximum(y, 0.0), 0.0) / np.maximum(jobs[k[of]], 1)
        order = np.lexsort((self.t, k[of]))
        part = (each / self.d[of])[order]
        total = np.cumsum(part)
        start = np.searchsorted(k[of][order], np.arange(len(C)))
        before = np.append(0.0, total)[np.append(start, 0)][k[of][order]]
        part = np.clip(1.0 - (total - part - before), 0.0, part)
        seconds = np.zeros(len(of))
        seconds[order] = part * self.d[of][order]
        fraction = np.minimum(seconds / self.length[self.t], 1.0)
        some = np.flatnonzero((fraction > NOTHING) | (seconds > NO_WORK * self.d[of]))
        count = jobs[k[of[some]]]
        members, of_class = C.jobs_by_class
        job = members[ranges(of_class[k[of[some]]], count)]
        entry = np.repeat(some, count)
        order = np.lexsort((self.c[of[entry]], job, self.t[entry]))
        entry, job = entry[order], job[order]
        column = self.c[of[entry]]
        alone = np.full(len(job), -1, np.int64)
        rows = JobRows(job, alone, column, fraction[entry], C.rate_a[column], np.zeros(len(job)))
        return rows, self.t[entry]

    def _jobs_done(self, x: FloatArray) -> IntArray:
        """How many jobs of each class a point keeps, (K,)."""
        jobs = np.where(self.asked & ~self.chooses, self.C.count, 0).astype(np.int64)
        a = np.round(x[len(self.of) :]).astype(np.int64)
        np.add.at(jobs, self.deadlines[0][self.chosen], a)
        return jobs

    # --- a plan by rule ---------------------------------------------------------------------------

    @cached_property
    def jobs(self) -> list[LevelJob]:
        """The jobs that have a column, ascending."""
        value = self.value[self.c]
        return LevelTable.of(self.C, self.c, self.due, value, ~self.optional).jobs(self.timer)

    @cached_property
    def by_rule(self) -> LevelPlan | None:
        """The plan by rule; None where no schedule is made, or for which there is no time."""
        if self._has_shares or not self.has_schedule:
            return None
        try:
            jobs = self.jobs
        except OutOfTime:
            return None
        timer = self.timer.part(FOR_RULE)
        return plan_levels(jobs, self._profile(), timer=timer, only_all=len(jobs) > MOST_REPAIRED)

    @cached_property
    def witness(self) -> Schedule | None:
        """The schedule of the plan by rule; None if it leaves out a job that must be done. Jobs
        that would have no value are left out.
        """
        plan, jobs = self.by_rule, self.jobs
        if plan is None or any(job.promised and n not in plan.runs for n, job in enumerate(jobs)):
            return None
        runs = {n: run for n, run in plan.runs.items() if run.value > 0 or jobs[n].promised}
        return replace(plan, runs=runs).schedule(self.C)

    @property
    def _note(self) -> str:
        stopped = self.by_rule is not None and self.by_rule.stopped
        return NO_TIME_FOR_RULE if stopped else ""

    @property
    def _has_shares(self) -> bool:
        """Whether jobs hold shares of GPUs, which would have to be packed."""
        return bool((self.C.configurations.share < 1.0).any())

    def _profile(self) -> Profile:
        """What the cluster has over time, before any job is planned."""
        times = np.append(0.0, self._changes)
        free = self.supply.at(times)[self.renewable]
        return Profile(times, free, self.C.capacity[self.consumable])

    # --- from schedules to points -----------------------------------------------------------------

    def complete(self, schedule: Schedule) -> FloatArray:
        """The point (y, a) of a schedule; raises ValueError where it cannot be carried out, and
        where a job is not done by its deadline.
        """
        column = self._columns_of(schedule)
        start, end = schedule.start - self.now, schedule.end - self.now
        self._check_times(schedule.job, start, end)
        self._check_room(column, start, end, self.edges[:-1], self.G)

        first = np.searchsorted(self.edges, start + self._slack(start), "right") - 1
        # An interval far from now may be shorter than what the clock rounds off.
        first = np.minimum(first, self.first[column] + self.size[column] - 1)
        # A stretch of rounding is in one interval, too.
        count = np.maximum(np.searchsorted(self.edges, end - self._slack(end), "left") - first, 1)
        stretch, t = owners(count), ranges(first, count)
        c, job = column[stretch], schedule.job[stretch]
        outside = start < self.release[self.k[column]] - self._slack(start)
        outside |= end > self.due[column] + self._slack(end)
        if outside.any():
            name = self.C.instance.jobs_table.names[int(schedule.job[np.argmax(outside)])]
            raise ValueError(f"job {name} runs before it arrives or after its deadline")
        seconds = np.minimum(end[stretch], self.edges[t + 1]) - np.maximum(
            start[stretch], self.edges[t]
        )
        number = self._variable(c, t)
        y = np.bincount(number, seconds, minlength=len(self.of)).astype(np.float64)
        # Seconds that the clock rounds off count as run.
        seconds += self._slack(end[stretch])
        return np.concatenate([y, self._done_by(job, number, seconds)])

    def _check_times(self, job: IntArray, start: FloatArray, end: FloatArray) -> None:
        order = np.lexsort((start, job))
        start, end, job = start[order], end[order], job[order]
        slack = self._slack(end)
        twice = (np.diff(job) == 0) & (start[1:] < (end - slack)[:-1])
        if twice.any():
            name = self.C.instance.jobs_table.names[int(job[np.argmax(twice)])]
            raise ValueError(f"job {name} runs twice at a time")
        if (start < -self._slack(0.0)).any() or (end > self.edges[-1] + slack).any():
            raise ValueError("a job runs before now, or after all deadlines")

    def _done_by(self, job: IntArray, number: IntArray, seconds: FloatArray) -> FloatArray:
        """How many jobs are done by each deadline with a choice, (a,)."""
        C, (of_deadline, _, value) = self.C, self.deadlines
        jobs, row = np.unique(job, return_inverse=True)
        by_job = sp.csr_matrix((seconds, (number, row)), shape=(len(self.of), len(jobs)))
        done = sp.csr_matrix(self._work @ by_job)
        k = C.of_job[jobs]
        first = np.searchsorted(of_deadline, k)
        last = np.searchsorted(of_deadline, k, "right") - 1
        total = np.asarray(done[last, np.arange(len(jobs))]).ravel()
        if len(jobs) and (total < 1.0 - DONE).any():
            short = int(np.argmin(total))
            name = C.instance.jobs_table.names[int(jobs[short])]
            raise ValueError(f"job {name} does {total[short]:.6g} of its work by its deadline")
        earliest = last.copy()
        for back in range(int((last - first).max(initial=0)), 0, -1):
            number = np.maximum(last - back, first)
            enough = np.asarray(done[number, np.arange(len(jobs))]).ravel() >= 1.0 - DONE
            earliest = np.where(enough, np.minimum(earliest, number), earliest)
        # A job is done by all deadlines from that on, and may be worth more by a later one.
        met = earliest.copy()
        for later in range(1, int((last - first).max(initial=0)) + 1):
            number = np.minimum(earliest + later, last)
            met = np.where(value[number] > value[met], number, met)
        return np.bincount(met, minlength=len(of_deadline))[self.chosen].astype(np.float64)

    # --- words ------------------------------------------------------------------------------------

    def _refuse_impossible(self) -> None:
        able = mask_of(self.deadlines[0][self._work_alone >= 1.0 - ROUNDING], len(self.C))
        self._refuse_stuck(np.flatnonzero(self.must & ~able))

    def _describe(self, block: str, number: int) -> str:
        if block == "capacity":
            row, t = divmod(int(self._held[1][number]), len(self.length))
            return self._capacity(row, float(self.G[row, t]), *self.edges[t : t + 2].tolist())
        if block == "budget":
            return self._budget(number)
        if block == "take":
            return self._of_class(int(self._choosing[number]))
        if block == "work":
            return self._of_class(int(self.deadlines[0][number]))
        return f"{self.C.job_name(int(self._time[0][number]))} can run in only one place at a time"


def _running_first(
    length: FloatArray, runs: sp.csr_matrix, running: BoolArray
) -> tuple[FloatArray, sp.csr_matrix]:
    """Slices of an interval, in reverse order where more of the running rows are in the last one."""
    runs_on = runs @ running.astype(np.float64)
    if len(length) > 1 and runs_on[-1] > runs_on[0]:
        return length[::-1], sp.csr_matrix(runs[::-1])
    return length, runs
