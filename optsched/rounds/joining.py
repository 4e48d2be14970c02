"""The row in which each job goes on that must not be stopped: alone, or beside one that shares its GPUs.

A job that cannot be preempted keeps its GPUs, but another may join it there, and leave again, while it runs on. Of all
rows in which it stays where it is the one runs that is due first, as everywhere (`optsched.rounds.selection`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered
from optsched.candidates import Classes, JobRows
from optsched.placement.instant import FULL
from optsched.placement.keeping import Keeping
from optsched.placement.priority import first_fit
from optsched.rounds.blocking import left_beside
from optsched.rounds.selection import instant_of, room_at_least, uses_of
from optsched.rounds.view import View


@dataclass(frozen=True)
class InPlace:
    """Rows in which jobs that must not be stopped stay where they are.

    Attributes
    ----------
    view : View
    classes : Classes
    rows : JobRows, A rows
    continues : BoolArray, shape (A,)
        Rows whose jobs all run so.
    sharing : IntArray, shape (jobs,)
        The job with which each stands in a pair now, -1 for none.
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    """

    view: View
    classes: Classes
    rows: JobRows
    continues: BoolArray
    sharing: IntArray
    constraints: Sequence[Mapping[str, Any]]

    @cached_property
    def firm(self) -> BoolArray:
        """Rows of jobs that must not be stopped, as they run now."""
        return self.continues & (self._ours | self._theirs)

    @cached_property
    def _ours(self) -> BoolArray:
        return self.view.must[self.rows.job]

    @cached_property
    def _theirs(self) -> BoolArray:
        return gathered(self.view.must, self.rows.partner, False)

    @cached_property
    def rowless(self) -> BoolArray:
        """Jobs that must not be stopped, and run on as they do in none of the rows; shape (jobs,)."""
        mask = np.append(self.view.must, False)
        mask[self.rows.job[self.firm]] = mask[self.rows.partner[self.firm]] = False
        return mask[:-1]

    @cached_property
    def free(self) -> FloatArray:
        """Share of each renewable resource that is free beside these."""
        renewable, capacity = self.classes.resources.renewable, self.classes.capacity
        used = capacity - left_beside(self.view, self.rowless, self.classes.resources)
        return (
            FULL - np.divide(used, capacity, out=np.zeros(len(used)), where=capacity > 0)[renewable]
        )

    @cached_property
    def joins(self) -> BoolArray:
        """Pairs of which one job cannot be preempted and holds such GPUs: the other can join it there."""
        view, rows, C = self.view, self.rows, self.classes
        mask = np.zeros(len(rows), bool)
        some = np.flatnonzero(
            (rows.partner >= 0)
            & (rows.fraction > 0)
            & (self._ours ^ self._theirs)
            & ~self.continues
        )
        if not len(some):
            return mask
        job, partner, column = rows.job[some], rows.partner[some], rows.column[some]
        host = np.where(self._ours[some], job, partner)
        running, span = view.running, np.maximum(C.configurations.nodes[C.configuration[column]], 1)
        can = (
            ~(view.outside | view.together)[host]
            & ~view.awaits[job + partner - host]
            & (C.gpus[column] > 0)
        )
        can &= (running.pool[host] == C.pool[column]) & (running.gpus[host] == C.gpus[column])
        can &= running.nodes[host] <= span
        can &= view.instance.jobs_table.options[host] < 0  # it holds its GPUs whole
        mask[some[can]] = True
        return mask

    @cached_property
    def shared(self) -> BoolArray:
        """Pairs of a job that must not be stopped and one that can be, or that does not run yet."""
        return (
            (self.continues | self.joins) & (self.rows.partner >= 0) & (self._ours ^ self._theirs)
        )

    @cached_property
    def anchor(self) -> IntArray:
        """The job of each row that must not be stopped, where the row is such a pair; else -1."""
        return np.where(self.shared, np.where(self._ours, self.rows.job, self.rows.partner), -1)

    @property
    def unable(self) -> tuple[int, int]:
        """Jobs that can be preempted and can in no row go on as they run now, and pairs of them that have to part."""
        view, rows, jobs = self.view, self.rows, len(self.view.must)
        able, together = np.zeros(jobs + 1, bool), np.zeros(jobs + 1, bool)
        for mask, some in (
            (able, self.continues),
            (together, self.continues & (rows.partner >= 0)),
        ):
            mask[rows.job[some]] = mask[rows.partner[some]] = True
        free = ~(view.must | view.running.leaves | view.running.lost | view.crowded)
        gone = view.running.runs & free & ~able[:-1]
        parts = free & able[:-1] & ~together[:-1] & gathered(free & able[:-1], self.sharing, False)
        return int(gone.sum()), int(parts.sum()) // 2

    def held(self, order: IntArray, most: float) -> BoolArray:
        """Mask of the rows that run: one of each job that must not be stopped and can stay.

        Parameters
        ----------
        order : IntArray
            All rows, the first first.
        most : float
            Running jobs that may be taken away from where they run, at most.
        """
        if not self.shared.any():
            return self.firm
        fits = self._fit if np.isinf(most) else self._fit_beside_all
        hopeful = self._chosen(order, most, lambda rows: True)
        return hopeful if fits(np.flatnonzero(hopeful)) else self._chosen(order, most, fits)

    def _fit_beside_all(self, some: IntArray) -> bool:
        """Whether rows can run side by side, and all others go on that run now: nobody is to be stopped for a guest."""
        rows, taken = self.rows, np.zeros(len(self.view.must) + 1, bool)
        taken[rows.job[some]] = taken[rows.partner[some]] = True
        taken[-1] = False
        on_gpus = self.classes.gpus[rows.column] > 0
        others = np.flatnonzero(self.continues & on_gpus & ~taken[rows.job] & ~taken[rows.partner])
        pairs_first = others[np.argsort(rows.partner[others] < 0, kind="stable")]
        ends = np.stack([rows.job[pairs_first], rows.partner[pairs_first]], axis=1)
        going = []
        for row, (job, partner) in zip(pairs_first.tolist(), ends.tolist(), strict=True):
            if not taken[job] and not taken[partner]:
                going.append(row)
                taken[job], taken[partner] = True, partner >= 0
        return self._fit(np.concatenate([some, np.array(going, np.int64)]))

    def _fit(self, some: IntArray) -> bool:
        """Whether rows can run side by side, where the jobs are that must not be stopped."""
        view, rows = self.view, self.rows
        some = some[np.argsort(~self.firm[some], kind="stable")]
        host = np.where(self.anchor[some] >= 0, self.anchor[some], rows.job[some])
        gpus = [view.instance.jobs_table.running[job][1] for job in host.tolist()]
        beside = Keeping(
            self.classes, view.standing(np.flatnonzero(self.rowless)), self.constraints
        )
        firm, uses = self.firm[some], uses_of(self.classes)
        if len(beside.keep(rows, some, gpus, firm)) < len(some):
            return False
        free = room_at_least(self.free, rows, uses, some[firm])
        return len(first_fit(instant_of(rows, uses), some, free)) == len(some)

    def _chosen(self, order: IntArray, most: float, fits: Callable[[IntArray], bool]) -> BoolArray:
        rows, anchor, firm = self.rows, self.anchor, self.firm
        runs = self.view.running.runs
        hosts = gathered(self.view.must, self.sharing, False)  # by guest: it runs on without it
        chooses = np.zeros(len(runs) + 1, bool)
        chooses[anchor] = True
        chooses[-1] = False
        alone = firm & (rows.partner < 0) & chooses[rows.job]
        chosen = firm & ~alone & ~self.shared
        others = np.flatnonzero(chosen)  # they have no choice, and need their room
        by_itself = dict(zip(rows.job[alone].tolist(), np.flatnonzero(alone).tolist(), strict=True))
        other = np.where(anchor == rows.job, rows.partner, rows.job)
        pairs = np.flatnonzero(self.shared & self.continues)
        pair_of = dict(zip(anchor[pairs].tolist(), pairs.tolist(), strict=True))
        now = {job: pair_of.get(job, row) for job, row in by_itself.items()}
        now |= {
            job: row for job, row in pair_of.items() if job not in by_itself
        }  # it cannot go on alone
        taken = {int(other[row]) for job, row in now.items() if job not in by_itself}
        decided = set(now) - set(by_itself)
        for row in order[(self.shared | alone)[order]].tolist():
            job = int(anchor[row]) if self.shared[row] else int(rows.job[row])
            guest = int(other[row]) if self.shared[row] else -1
            if job in decided or job not in now or guest in taken:
                continue
            leaves = now[job] != row and job in pair_of and int(other[pair_of[job]]) not in taken
            cost = int(leaves)
            if guest >= 0 and now[job] != row and runs[guest]:
                cost += 1 + int(
                    self.sharing[guest] >= 0 and self.sharing[guest] != job and not hosts[guest]
                )
            changed = {**now, job: row}
            beside = np.array(sorted(changed.values()), np.int64)
            if cost > most or (self.joins[row] and not fits(np.concatenate([others, beside]))):
                continue
            most, now = most - cost, changed
            decided.add(job)
            if guest >= 0:
                taken.add(guest)
                for host, pair in pair_of.items():  # whoever it leaves goes on alone
                    if host != job and int(other[pair]) == guest and now[host] == pair:
                        now[host] = by_itself[host]
        chosen[np.array(list(now.values()), np.int64)] = True
        return chosen
