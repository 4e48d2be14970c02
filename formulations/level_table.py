"""The levels of jobs as arrays, from which plans by rule and programs of levels begin."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from formulations.constraints.holdings import gpus_held
from formulations.horizon import ROUNDING, durations, shortest_work
from formulations.lease_room import Holds
from formulations.level_planner import Level, LevelJob, Profile
from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.candidates import Classes
from optsched.formulation import Restarts
from optsched.instance.durations import UNLIMITED, Timer
from optsched.instance.restart import restart_costs

CLASSES_A_CHECK = 1000
"""Classes after which the time is looked at: fewer have their levels, and so a plan by rule, even
where it is over.
"""


@dataclass(frozen=True, eq=False)
class LevelTable:
    """The levels of the jobs of some classes. Times are seconds from now.

    Attributes
    ----------
    C : Classes
    column : IntArray, shape (levels,)
        Columns of the classes that are levels, ascending.
    due, value : FloatArray, shape (levels,)
        The deadline of each, and the value of a job that is done there.
    gpus, duration, first, again, onward : FloatArray, shape (levels,)
        As of a `Level`; ``onward`` is NaN where the job does not run so. Of a job in its exempt
        time they are of what is left after it.
    promised : BoolArray, shape (K,)
        Classes whose jobs must meet their deadlines.
    preemptible : BoolArray, shape (K,)
        Classes whose jobs may run in several pieces.
    release : FloatArray, shape (K,)
        When the jobs of each class arrive, or their exempt time ends.
    left : FloatArray, shape (K,)
        Part of the work of each class that is left then.
    current : IntArray, shape (K,)
        The level in which a job goes on: to its end where it is not preemptible, else until its
        exempt time ends; -1 without.
    """

    C: Classes
    column: IntArray
    due: FloatArray
    value: FloatArray
    gpus: FloatArray
    duration: FloatArray
    first: FloatArray
    again: FloatArray
    onward: FloatArray
    promised: BoolArray
    preemptible: BoolArray
    release: FloatArray
    left: FloatArray
    current: IntArray

    @classmethod
    def of(
        cls,
        C: Classes,
        column: IntArray,
        due: FloatArray,
        value: FloatArray,
        promised: BoolArray,
        restarts: Restarts | None = None,
    ) -> LevelTable:
        """The table of some columns of the classes.

        Without ``restarts`` jobs may stop and change at any moment without cost; with them each
        class has one job.
        """
        no_time = np.zeros(len(column))
        table = cls(
            C,
            column,
            due,
            value,
            gpus_held(C)[column],
            durations(C, column),
            no_time,
            no_time,
            np.full(len(column), np.nan),
            promised,
            np.ones(len(C), bool),
            np.maximum(C.arrival - C.instance.now, 0.0),
            np.ones(len(C)),
            np.full(len(C), -1, np.int64),
        )
        if restarts is None:
            return table
        held = np.where(restarts.preemptible(C.instance), restarts.held, 0.0)
        return table.with_restarts(restarts).with_exempt_times(held[C.first])

    @cached_property
    def k(self) -> IntArray:
        """Class of each level."""
        return self.C.class_a[self.column]

    @property
    def has_level(self) -> BoolArray:
        """Classes that have a level, shape (K + 1,); the last entry is for jobs without a class."""
        return mask_of(self.k, len(self.C) + 1)

    # --- running jobs -----------------------------------------------------------------------------

    def with_restarts(self, restarts: Restarts) -> LevelTable:
        """The same where restarts cost time, and running jobs may have to go on."""
        C, k = self.C, self.k
        job, as_now = C.first[k], self._as_now
        again = restart_costs(C.instance, job, C.pool[self.column], C.gpus[self.column])
        onward = np.where(as_now, restarts.restoring[job], np.nan)
        may_stop = restarts.preemptible(C.instance)[C.first]
        # The first level of those in which it can go on.
        current = np.full(len(C), -1, np.int64)
        goes_on = np.flatnonzero(~np.isnan(onward) & ~may_stop[k])[::-1]
        current[k[goes_on]] = goes_on
        return replace(
            self,
            first=np.where(restarts.ran[job], again, 0.0),
            again=again,
            onward=onward,
            preemptible=may_stop,
            current=current,
        )

    @property
    def _as_now(self) -> BoolArray:
        """Levels in which their job runs now: in its pool, on as many GPUs."""
        C, places = self.C, self.C.instance.jobs_table.places
        runs = np.full((2, len(C.instance.jobs_table)), -1, np.int64)
        runs[:, places.job] = places.pool, places.length
        job, c = C.first[self.k], self.column
        return np.asarray((runs[0, job] == C.pool[c]) & (runs[1, job] == C.gpus[c]))

    def with_exempt_times(self, held: FloatArray) -> LevelTable:
        """The same where jobs are not preempted for some seconds, shape (K,): they go on as they
        run, and their levels are of what is left then.
        """
        if not held.any():
            return self
        k, left, current = self.k, self.left.copy(), self.current.copy()
        # The slowest of these levels counts, the first of equal ones.
        runs = np.flatnonzero(self._as_now & (held[k] > 0))
        runs = runs[np.lexsort((-runs, self.duration[runs]))]
        current[k[runs]] = runs
        some = np.flatnonzero((held > 0) & (current >= 0))
        at = current[some]
        delay = np.nan_to_num(self.onward[at])
        is_last = held[some] >= delay + self.duration[at]
        onward, waits = self.onward.copy(), some[~is_last]
        onward[at[is_last]] = delay[is_last]
        over, delay, at = held[waits], delay[~is_last], at[~is_last]
        left[waits] = 1.0 - np.maximum(over - delay, 0.0) / self.duration[at]
        restoring = np.zeros(len(left))
        restoring[waits] = np.maximum(delay - over, 0.0)
        again_on = mask_of(waits, len(left))[k] & ~np.isnan(onward)
        to_its_end = mask_of(some[is_last], len(left))
        return replace(
            self,
            duration=np.maximum(self.duration * left[k], shortest_work(self.C.instance.now)),
            onward=np.where(again_on, restoring[k], onward),
            preemptible=self.preemptible & ~to_its_end,
            release=np.where((held > 0) & ~to_its_end, held, self.release),
            left=left,
            current=current,
        )

    @cached_property
    def stays(self) -> BoolArray:
        """Classes whose job goes on to its end, (K,)."""
        return ~self.preemptible & (self.current >= 0)

    @cached_property
    def shortest(self) -> FloatArray:
        """Seconds from the release of a job to its end if nothing interrupts it, (levels,)."""
        return self.duration + np.where(np.isnan(self.onward), self.first, self.onward)

    @cached_property
    def in_time(self) -> BoolArray:
        """Levels in which a job alone would be in time, (levels,)."""
        end = self.release[self.k] + self.shortest
        return np.asarray(end <= self.due + ROUNDING * np.maximum(self.due, 1.0))

    @cached_property
    def stays_in_time(self) -> BoolArray:
        """Classes whose job goes on to its end, and is in time, (K,)."""
        return np.asarray(self.stays & np.append(self.in_time, False)[self.current])

    @cached_property
    def exempt(self) -> BoolArray:
        """Classes whose job is in its exempt time, and can be stopped after it, (K,)."""
        return self.preemptible & (self.current >= 0)

    @cached_property
    def goes_on_until(self) -> FloatArray:
        """Seconds from now until which the job of each class goes on as it runs now: to its end, or
        until its exempt time ends; 0 without such a job; (K,).
        """
        to_its_end = np.append(self.shortest, 0.0)[self.current]
        return np.where(self.stays, to_its_end, np.where(self.exempt, self.release, 0.0))

    def held_on(self, classes: BoolArray) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """What each job of some classes holds that goes on, shape (R, jobs), and what it uses up
        until it stops, shape (B, jobs).
        """
        k, renewable = np.flatnonzero(classes), self.C.resources.renewable
        usage = sp.csc_matrix(self.C.usage)[:, self.column[self.current[k]]].tocsr()
        part = np.where(self.exempt[k], 1.0 - self.left[k], self.left[k])
        spends = usage[~renewable].multiply(part[np.newaxis, :])
        return usage[renewable], sp.csr_matrix(spends)

    def beside(self, profile: Profile, classes: BoolArray) -> Profile:
        """What is left beside jobs of some classes that go on as they run now."""
        held, spent = self.held_on(classes)
        used = np.asarray(spent.sum(axis=1), np.float64).ravel()
        return profile.beside(held, self.goes_on_until[classes], used)

    # --- as objects -------------------------------------------------------------------------------

    def jobs(self, timer: Timer = UNLIMITED, among: BoolArray | None = None) -> list[LevelJob]:
        """The jobs that have a level, ascending, or those of some classes; raises `OutOfTime` once
        the time is over.
        """
        by_class: dict[int, list[Level]] = {}
        rows = np.arange(len(self.k)) if among is None else np.flatnonzero(among[self.k])
        of_rows = self.k[rows]
        for k, level in zip(of_rows.tolist(), self._levels(rows, self.left[of_rows]), strict=True):
            if k not in by_class and len(by_class) % CLASSES_A_CHECK == CLASSES_A_CHECK - 1:
                timer.check()
            by_class.setdefault(k, []).append(level)
        for k in np.intersect1d(np.flatnonzero(self.stays), of_rows).tolist():
            current = int(self.column[self.current[k]])
            place = next(n for n, level in enumerate(by_class[k]) if level.column == current)
            by_class[k].insert(0, by_class[k].pop(place))
        exempt = self.C.instance.jobs_table.exempt_time
        jobs = [
            LevelJob(
                job,
                levels,
                float(self.release[k]),
                bool(self.promised[k]),
                bool(self.preemptible[k]),
                float(exempt[job]),
            )
            for k, levels in by_class.items()
            for job in self.C.jobs_of(k).tolist()
        ]
        return sorted(jobs, key=lambda job: job.job)

    def _levels(self, rows: IntArray, part: FloatArray) -> Iterator[Level]:
        """Some levels; each spends a part of what all work in it does."""
        if not len(rows):
            return
        usage, renewable = self.C.usage.tocsc(), self.C.resources.renewable
        place = np.where(renewable, np.cumsum(renewable), np.cumsum(~renewable)) - 1
        starts, resources, amounts = (
            field.tolist() for field in (usage.indptr, usage.indices, usage.data)
        )
        renews, places = renewable.tolist(), place.tolist()
        # Few of them differ, and objects that are shared cost the cycle collector no time.
        uses: dict[tuple[tuple[int, ...], tuple[float, ...], float], tuple[Holds, Holds]] = {}
        fields = (
            self.column,
            self.gpus,
            self.duration,
            self.due,
            self.value,
            self.first,
            self.again,
            self.onward,
        )
        entries = zip(part.tolist(), *(field[rows].tolist() for field in fields), strict=True)
        for share, c, gpus, duration, due, value, first, again, onward in entries:
            of_column = slice(starts[c], starts[c + 1])
            key = tuple(resources[of_column]), tuple(amounts[of_column]), share
            if key not in uses:
                used = list(zip(*key[:2], strict=True))
                uses[key] = (
                    [(places[r], amount) for r, amount in used if renews[r] and amount > 0],
                    [(places[r], share * amount) for r, amount in used if not renews[r]],
                )
            holds, spends = uses[key]
            goes_on = None if math.isnan(onward) else onward
            yield Level(c, holds, gpus, duration, due, value, first, again, goes_on, spends)
