"""The fewest pieces: among plans of leases of the same value and as early,
the one that interrupts jobs least.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from optsched.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    owners,
    pointers,
)
from optsched.program import Expression, LinearProgram, Variables
from optsched.solution import Schedule
from optsched.solution.plan import Later


@dataclass(frozen=True)
class Pieces:
    """The program of the fewest pieces, in the symbols of `formulations.lease`.

    A piece is a stretch of leases of one job without a lease between them in which it does not run.
    With V the options of classes of several jobs, and those with b_o = 1:

        minimise  sum_{o in V} S_o  +  sum Z_ot  +  sum R_ort

    Options of a single job, b_o > 1
        Z_ot  >=  X_ot - X_o,t-1,   sum_t Z_ot >= S_o,   Z >= 0                           (begins, once each)
    Options of several jobs, b_o > 1. The totals X do not say which of them goes on, so they are
    distinguished by how many leases they still need: F_ort of them have run, by the end of lease t,
    a lease
    before which they needed r.
        F_ort >= F_or,t-1,   F_ort <= F_o,r+1,t-1,   F_ort = S_o for the last t           (after, in order, all)
        X_ot  =  sum_r (F_ort - F_or,t-1)                                                 (sum)
        R_ort  >=  (F_ort - F_or,t-1) - (F_o,r+1,t-1 - F_o,r+1,t-2),   r < b_o            (resumes)
    Of the jobs that run a lease with r left, those that ran in the lease before go on; the rest, R,
    were interrupted.

    Attributes
    ----------
    b, size, n : IntArray, shape (O,)
        Leases needed, leases in which it may run (0: none), and jobs of the class of each
        option.
    of, t : IntArray, shape (X,)
        Option and lease of each X.
    rows : callable
        The program of S and X without an objective.
    point : callable
        `Schedule` -> (S, X).
    slots : callable
        `Schedule` -> job, option and number of each lease that a job has.
    schedule : callable
        (S, option, member, lease) -> the `Schedule` of these leases.
    """

    b: IntArray
    size: IntArray
    n: IntArray
    of: IntArray
    t: IntArray
    rows: Callable[[], tuple[LinearProgram, Variables, Variables]]
    point: Callable[[Schedule], FloatArray]
    slots: Callable[[Schedule], tuple[IntArray, IntArray, IntArray]]
    schedule: Callable[[IntArray, IntArray, IntArray, IntArray], Schedule]

    @cached_property
    def single(self) -> IntArray:
        """Options of a single job that may be cut."""
        return np.flatnonzero((self.size > 0) & (self.b > 1) & (self.n == 1))

    @cached_property
    def several(self) -> IntArray:
        """Options of several jobs that may be cut."""
        return np.flatnonzero((self.size > 0) & (self.b > 1) & (self.n > 1))

    def later(self) -> Later:
        """The objective, for the plan."""
        return Later(
            "pieces",
            "pieces that jobs are cut into",
            count_pieces,
            self.width,
            self.program,
            self.complete,
            self.read,
        )

    @property
    def width(self) -> int:
        """Columns of the program."""
        return len(self.b) + len(self.of) + int(self.begun.sum()) + 2 * int(self._first[-1])

    @cached_property
    def begun(self) -> BoolArray:
        """X of options of a single job, shape (X,)."""
        return np.isin(self.of, self.single)

    # --- states of options of several jobs: (o, r, t), t = b_o - r, ..., l_o - r ------------------

    @cached_property
    def _window(self) -> IntArray:
        """Leases in which a job can need r, of each option: l_o - b_o + 1."""
        return self.size - self.b + 1

    @cached_property
    def _first(self) -> IntArray:
        """First state of each option of `several`, and their number;
        within it r descends from b_o, then t.
        """
        counts = self.b[self.several] * self._window[self.several]
        return pointers(counts)

    @cached_property
    def state_of(self) -> IntArray:
        """Place in `several` of the option of each state."""
        return owners(np.diff(self._first))

    @cached_property
    def _step(self) -> IntArray:
        """b_o - r of each state: leases that its jobs have run before."""
        local = np.arange(len(self.state_of)) - self._first[self.state_of]
        return local // self._window[self.several[self.state_of]]

    @cached_property
    def _t(self) -> IntArray:
        """Lease of each state."""
        local = np.arange(len(self.state_of)) - self._first[self.state_of]
        return local % self._window[self.several[self.state_of]] + self._step

    def _state(self, place: IntArray, step: IntArray, t: IntArray) -> IntArray:
        """Number of the state of an option that has run ``step`` leases
        before lease t; -1 where there is none.
        """
        window = self._window[self.several[place]]
        there = (step >= 0) & (t >= step) & (t < step + window)
        return np.where(there, self._first[place] + step * window + t - step, -1)

    def _one(self, rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> sp.csr_matrix:
        """1 at each row and column, where the column is not -1."""
        there = columns >= 0
        return sp.csr_matrix(
            (np.ones(int(there.sum())), (rows[there], columns[there])), shape=shape
        )

    # --- the program ------------------------------------------------------------------------------

    def program(self) -> LinearProgram:
        lp, S, X = self.rows()
        # S counts the first piece of each job; of options of a single job Z counts them all.
        whole = np.ones(len(self.b))
        whole[self.single] = 0.0
        pieces = whole[np.newaxis, :] @ S
        if self.begun.any():
            pieces = pieces + self._begins(lp, S, X)
        if len(self.state_of):
            pieces = pieces + self._resumes(lp, S, X)
        lp.minimise(pieces)
        return lp

    def _begins(self, lp: LinearProgram, S: Variables, X: Variables) -> Expression:
        """Pieces of options of a single job: Z_ot is 1 where one begins."""
        X_begun = np.flatnonzero(self.begun)
        each = np.arange(len(X_begun))
        Z = lp.variables(len(X_begun), name="Z", upper=1.0)
        # X of an option follow each other, so that the lease before is the X before.
        before = np.where(self.t[X_begun] > 0, X_begun - 1, -1)
        shape = (len(X_begun), len(self.of))
        change = self._one(each, X_begun, shape) - self._one(each, before, shape)
        lp.constrain(Z - change @ X >= 0.0, name="begins")
        row = np.searchsorted(self.single, self.of[X_begun])
        by_option = self._one(row, each, (len(self.single), len(X_begun)))
        chosen = self._one(
            np.arange(len(self.single)), self.single, (len(self.single), len(self.b))
        )
        lp.constrain(by_option @ Z - chosen @ S >= 0.0, name="once each")
        return Z.sum()

    def _resumes(self, lp: LinearProgram, S: Variables, X: Variables) -> Expression:
        """Pieces after the first of options of several jobs: R_ort jobs resume."""
        count = len(self.state_of)
        square = (count, count)
        every, index, step, t = np.arange(count), self.state_of, self._step, self._t
        option = self.several[index]
        n = self.n[option]
        F = lp.variables(count, name="F", upper=n, integer=True)
        R = lp.variables(count, name="R", upper=n)

        # F_ort - F_or,t-1: those that run in lease t.
        lease_before = self._one(every, self._state(index, step, t - 1), square)
        ran = sp.eye_array(count, format="csr") - lease_before
        lp.constrain(ran @ F >= 0.0, name="after")
        step_before = self._one(every, self._state(index, step - 1, t - 1), square)
        lp.constrain(F - step_before @ F <= np.where(step > 0, 0.0, n), name="in order")

        last = np.flatnonzero(t == step + self._window[option] - 1)
        ends = np.arange(len(last))
        at_the_end = self._one(ends, last, (len(last), count))
        chosen = self._one(ends, option[last], (len(last), len(self.b)))
        lp.constrain(at_the_end @ F - chosen @ S == 0.0, name="all")

        shared = np.flatnonzero(np.isin(self.of, self.several))
        # X of an option follow each other, lease by lease.
        first = np.searchsorted(self.of, option)
        row = np.searchsorted(shared, first + t)
        add = self._one(row, every, (len(shared), count)) @ ran
        picked = self._one(np.arange(len(shared)), shared, (len(shared), len(self.of)))
        lp.constrain(picked @ X - sp.csr_matrix(add) @ F == 0.0, name="sum")

        again = np.flatnonzero(step > 0)
        goes_on = self._one(
            np.arange(len(again)), self._state(index, step - 1, t - 1)[again], (len(again), count)
        )
        resumed = self._one(np.arange(len(again)), again, (len(again), count))
        interrupted = sp.csr_matrix((resumed - goes_on) @ ran)
        lp.constrain(resumed @ R - interrupted @ F >= 0.0, name="resumes")
        resuming: Expression = (step > 0).astype(float)[np.newaxis, :] @ R
        return resuming

    # --- points and schedules ---------------------------------------------------------------------

    def complete(self, schedule: Schedule) -> FloatArray:
        """The point of a schedule."""
        x = self.point(schedule)
        X = x[len(self.b) :]
        X_begun = np.flatnonzero(self.begun)
        before = np.where(self.t[X_begun] > 0, X[X_begun - 1], 0.0)
        parts = [x, np.maximum(X[X_begun] - before, 0.0)]
        if len(self.state_of):
            job, option, t = self.slots(schedule)
            order = np.lexsort((t, job))
            job, t, option = job[order], t[order], option[order]
            step = np.arange(len(job)) - np.searchsorted(job, job)
            among = np.isin(option, self.several)
            state = self._state(np.searchsorted(self.several, option[among]), step[among], t[among])
            ran = np.bincount(state, minlength=len(self.state_of)).astype(np.float64)
            parts += [self._by_the_end(ran), self._resumed(ran)]
        return np.concatenate(parts)

    def _by_the_end(self, ran: FloatArray) -> FloatArray:
        """F from how many run in each state."""
        # A line is an option and a number of leases run; its states follow each other in time.
        line = self.state_of * (1 + int(self._step.max(initial=0))) + self._step
        total = np.cumsum(ran)
        begin = np.searchsorted(line, line)
        return total - (total[begin] - ran[begin])

    def _resumed(self, ran: FloatArray) -> FloatArray:
        """How many in each state begin anew after an interruption."""
        before = self._state(self.state_of, self._step - 1, self._t - 1)
        goes_on = np.where(before >= 0, ran[before], 0.0)
        return np.where(self._step > 0, np.maximum(ran - goes_on, 0.0), 0.0)

    def read(self, x: FloatArray) -> Schedule:
        """Members that ran in the lease before go on;
        others resume in the order in which they stopped.
        """
        width = len(self.b)
        S = np.round(x[:width]).astype(np.int64)
        X = np.round(x[width : width + len(self.of)]).astype(np.int64)
        slot = owners(X)
        slot = slot[~np.isin(self.of[slot], self.several)]
        of, t = self.of[slot], self.t[slot]
        # One job alone, or one lease each: leases go to the jobs in turn.
        turn = np.arange(len(slot)) - np.searchsorted(of, of)
        found = [(of, turn % np.maximum(S[of], 1), t)]
        if len(self.state_of):
            start = width + len(self.of) + int(self.begun.sum())
            F = np.round(x[start : start + len(self.state_of)]).astype(np.int64)
            before = self._state(self.state_of, self._step, self._t - 1)
            ran = F - np.where(before >= 0, F[before], 0)
            if (ran < 0).any():
                raise ValueError("jobs that have run are fewer from one lease to the next")
            found += [
                self._members(place, int(S[o]), ran)
                for place, o in enumerate(self.several.tolist())
                if S[o]
            ]
        of, member, t = (
            np.concatenate(parts).astype(np.int64) for parts in zip(*found, strict=True)
        )
        order = np.lexsort((t, of))
        return self.schedule(S, of[order], member[order], t[order])

    def _members(
        self, place: int, members: int, ran: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Option, member and lease of each lease of one option,
        from how many of its jobs run in each state.
        """
        o = int(self.several[place])
        b, window = int(self.b[o]), int(self._window[o])
        counts = ran[self._first[place] : self._first[place + 1]].reshape(b, window)
        # By leases run, first in first out.
        waiting = [
            list(range(members)),
            *([] for _ in range(b)),
        ]
        just: list[list[int]] = [[] for _ in range(b + 1)]
        members_running = []
        when = []
        for t in range(b + window - 1):
            now: list[list[int]] = [[] for _ in range(b + 1)]
            for step in range(max(0, t - window + 1), min(b, t + 1)):
                number = int(counts[step, t - step])
                line = just[step] + waiting[step]
                if number > len(line):
                    raise ValueError("more jobs run on than have run before")
                now[step + 1], left = line[:number], line[number:]
                just[step], waiting[step] = [], left
                members_running += now[step + 1]
                when += [t] * number
            for step in range(b + 1):  # who ran in the lease before and not in this one waits
                waiting[step] += just[step]
            just = now
        return (
            np.full(len(members_running), o),
            np.array(members_running, np.int64),
            np.array(when, np.int64),
        )


def count_pieces(schedule: Schedule) -> float:
    """Stretches of a schedule, with those of a job that follow each other counted once."""
    order = np.lexsort((schedule.start, schedule.job))
    job, start, end = schedule.job[order], schedule.start[order], schedule.end[order]
    follows = (job[1:] == job[:-1]) & (
        np.abs(start[1:] - end[:-1]) <= 1e-6 * np.maximum(np.abs(end[:-1]), 1.0)
    )
    return float(len(job) - int(follows.sum()))
