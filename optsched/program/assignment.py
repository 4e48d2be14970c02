"""Generalised assignment: every job gets one column, and every column uses one row, its agent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, owners
from optsched.program.integers import common_unit
from optsched.program.knapsack import best_of_each, losses_of_each

if TYPE_CHECKING:  # a process that only solves needs no candidates
    from optsched.candidates import Classes
    from optsched.program.feasible_region import FeasibleRegion

MOST_CELLS = 5_000_000
"""Most agents times jobs: with more the tables would be too large."""
MOVES = 3000
"""Moves after which a search for a feasible assignment gives up."""
ALWAYS_MADE = 300
"""Moves that a rule makes although the time is over: most assignments need fewer."""
TABU = 10
"""A job does not return to an agent that it has left for at least this many moves."""
DEARER, CHEAPER = 1.1, 0.98
"""Each move multiplies the penalty of an agent: by the first if it is overloaded, else by the
second."""
ROUNDING = 1e-9
KNAPSACK_CELLS = 2**23
"""Most jobs times units of room: with more the units of an agent are made larger."""


class Assignment(NamedTuple):
    """Give every job j to one agent i: a row of the program that limits a sum.

    ::

        sum_{j given to i} use_ij  <=  room_i        every agent

    Attributes
    ----------
    cost : FloatArray, shape (agents, jobs)
        Infinite where there is no column.
    use : FloatArray, shape (agents, jobs)
    room : FloatArray, shape (agents,)
    column : IntArray, shape (agents, jobs)
        Of the program; -1 where there is none.
    row : IntArray, shape (agents,)
        Row of `LimitRows` that each agent is.
    """

    cost: FloatArray
    use: FloatArray
    room: FloatArray
    column: IntArray
    row: IntArray

    @classmethod
    def of(cls, program: FeasibleRegion) -> Assignment | None:
        """The assignment that a program of whole jobs is; None where it is none."""
        C, limits = program.classes, program.limit_rows
        if not (
            program.integral and C.all_alone and program.extend is None and _asks_for_all(program)
        ):
            return None
        usage = sp.csc_matrix(limits.matrix)
        usage.eliminate_zeros()
        columns = np.flatnonzero(~program.barred).astype(np.int64)
        if not len(columns) or (np.diff(usage.indptr)[columns] != 1).any():
            return None
        row, agent = np.unique(usage.indices[usage.indptr[columns]], return_inverse=True)
        size = (len(row), int(C.count.sum()))
        pair = C.class_a[columns] * len(row) + agent
        # Two columns of a job that use the same row would need the same cell of the tables
        if size[0] * size[1] > MOST_CELLS or len(np.unique(pair)) < len(pair):
            return None
        number = np.full((len(row), len(C)), -1, np.int64)
        number[agent, C.class_a[columns]] = columns
        there = number >= 0
        if not there.any(axis=0).all():
            return None
        cost, use = np.full(number.shape, np.inf), np.zeros(number.shape)
        cost[there] = -program.gain[number[there]]
        use[there] = usage.data[usage.indptr[number[there]]]
        of_job = owners(C.count.astype(np.int64))
        return cls(
            cost[:, of_job],
            use[:, of_job],
            limits.most[row],
            number[:, of_job],
            row.astype(np.int64),
        )

    @property
    def agents(self) -> int:
        return len(self.room)

    @property
    def jobs(self) -> int:
        return int(self.cost.shape[1])

    def load(self, agent: IntArray) -> FloatArray:
        """Total use of each agent by its jobs, shape (agents,)."""
        use = self.use[agent, np.arange(self.jobs)]
        return np.bincount(agent, use, minlength=self.agents).astype(np.float64)

    def fits(self, agent: IntArray) -> bool:
        """Whether no agent is overloaded."""
        return bool((self.load(agent) <= self.room + ROUNDING * np.maximum(self.room, 1.0)).all())

    def point(self, agent: IntArray, columns: int) -> FloatArray:
        """Totals of the columns of the program."""
        chosen = self.column[agent, np.arange(self.jobs)]
        return np.bincount(chosen, minlength=columns).astype(np.float64)

    def agents_of(self, x: FloatArray, classes: Classes) -> IntArray | None:
        """The agent of each job in totals of the columns; None where some job has none, or
        several.
        """
        columns = np.argsort(classes.class_a, kind="stable")
        chosen = np.repeat(columns, np.round(np.maximum(x[columns], 0.0)).astype(np.int64))
        of_job = owners(classes.count.astype(np.int64))
        if not np.array_equal(classes.class_a[chosen], of_job):
            return None
        there = self.column >= 0
        agent = np.full(classes.columns, -1, np.int64)
        agent[self.column[there]] = np.nonzero(there)[0]
        return None if (agent[chosen] < 0).any() else agent[chosen]

    def by_rule(self, late: Callable[[], bool] = lambda: False) -> IntArray | None:
        """An assignment by rule, without a solver: the cheaper one of two, or None if both fail.

        One gives each job to the agent where it costs least, the other to the agent of whose room
        it uses the smallest fraction; both then repair overloads (`within_room`).

        Parameters
        ----------
        late : callable
            Whether the time is over; then both together make `ALWAYS_MADE` moves at most.
        """
        there = self.column >= 0
        part = 1.0 / np.maximum(self.room, ROUNDING)
        usual = float(np.ptp(self.cost[there])) / max(float(self.use[there].mean()), ROUNDING)
        rules = (
            (self.cost, np.full(self.agents, usual)),
            (np.where(there, self.use * part[:, np.newaxis], np.inf), part),
        )
        moves = count()

        def over() -> bool:
            return next(moves) >= ALWAYS_MADE and late()

        tried = (
            self.within_room(self.greedy(loss, price), loss, price, over) for loss, price in rules
        )
        return min((found for found in tried if found is not None), key=self.total, default=None)

    def total(self, agent: IntArray) -> float:
        """The cost of an assignment."""
        return float(self.cost[agent, np.arange(self.jobs)].sum())

    def greedy(self, loss: FloatArray, price: FloatArray) -> IntArray:
        """An assignment by regret: first the jobs whose second best agent is worst against the best
        one.

        Each job goes to the agent with the least loss that has room. If none has room, it goes
        where the loss plus the price of the overload is least.
        """
        second = min(1, self.agents - 1)
        two = np.partition(loss, second, axis=0)
        regret = two[second] - two[0]
        agent, left = np.zeros(self.jobs, np.int64), self.room.copy()
        for job in np.argsort(-regret, kind="stable").tolist():
            after = left - self.use[:, job]
            fitting = np.where(after >= -ROUNDING, loss[:, job], np.inf)
            if not np.isfinite(fitting).any():
                fitting = loss[:, job] + DEARER * price * np.maximum(-after, 0.0)
            best = int(np.argmin(fitting))
            agent[job], left[best] = best, after[best]
        return agent

    def within_room(
        self,
        agent: IntArray,
        loss: FloatArray,
        price: FloatArray,
        late: Callable[[], bool] = lambda: False,
    ) -> IntArray | None:
        """Move and swap jobs of the most overloaded agent until no agent is overloaded; None if
        that fails.

        A tabu search: the best move is made even if it is no improvement. The penalty of an agent
        grows while it stays overloaded, and a job does not return at once.

        Parameters
        ----------
        agent : IntArray, shape (jobs,)
        loss : FloatArray, shape (agents, jobs)
            What the search keeps small.
        price : FloatArray, shape (agents,)
            First penalty of a unit of overload, in units of the loss.
        late : callable
            Whether to give up; asked before each move.
        """
        return _Repair(self, agent, loss, price).run(late)


class AgentKnapsacks(NamedTuple):
    """The knapsacks of the agents at prices of the jobs, if no job had to be assigned.

    ::

        max { sum_j worth_ij z_j : sum_j size_ij z_j <= room_i, z binary }      every agent i

    Sizes and rooms are whole: exact where what jobs use of an agent has a common unit. Else sizes
    are rounded down, and the maximum is an upper bound.

    Attributes
    ----------
    there : BoolArray, shape (agents, jobs)
        Where a job can be.
    size : IntArray, shape (agents, jobs)
    room : IntArray, shape (agents,)
    """

    there: BoolArray
    size: IntArray
    room: IntArray

    @classmethod
    def of(cls, assignment: Assignment) -> AgentKnapsacks:
        """The knapsacks of the agents of an assignment."""
        there = assignment.column >= 0
        size, room = np.zeros(there.shape, np.int64), np.zeros(len(there), np.int64)
        for agent, jobs in enumerate(there):
            use = assignment.use[agent][jobs]
            # More room than for all jobs is not used
            most = min(float(assignment.room[agent]), float(use.sum()))
            unit, least = common_unit(use), most * len(use) / KNAPSACK_CELLS
            exact = unit is not None and unit >= least
            unit = unit if unit is not None and exact else max(least, ROUNDING)
            units = use / unit
            size[agent, jobs] = np.round(units) if exact else np.floor(units - ROUNDING).clip(0)
            room[agent] = np.floor(most / unit + ROUNDING * max(1.0, most / unit))
        return cls(there, size, room)

    def best(self, worth: FloatArray, fast: bool = False) -> tuple[float, BoolArray]:
        """The total of the maxima, and the jobs that each agent takes, shape (agents, jobs).

        Parameters
        ----------
        worth : FloatArray, shape (agents, jobs)
        fast : bool
            Whether to use compiled loops; see `best_of_each`.
        """
        worth = np.where(self.there, worth, -1.0)
        value, chosen = best_of_each(worth, self.size, self.room, fast)
        return float(value.sum()), chosen

    def losses(
        self, worth: FloatArray, most: float = np.inf, fast: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """How far the maximum of an agent falls if it must take a job, and if it must not; both of
        shape (agents, jobs). Losses above ``most`` may be infinite instead.
        """
        worth = np.where(self.there, worth, -1.0)
        taken, left_out = losses_of_each(worth, self.size, self.room, most, fast)
        return np.where(self.there, taken, np.inf), left_out


def _asks_for_all(program: FeasibleRegion) -> bool:
    """Whether the rows that ask for something ask for one column of every job, and nothing else."""
    C = program.classes
    asking = [rows for rows in program.side if not rows.only_limit]
    if len(asking) != 1:
        return False
    rows = asking[0]
    return bool(
        rows.relax == "none"
        and rows.slack is None
        and rows.matrix.shape == C.member.shape
        and abs(rows.matrix - C.member).sum() == 0
        and np.array_equal(rows.lower, C.count)
        and (rows.upper >= C.count).all()
    )


class _Repair:
    """A search for an assignment within all rooms."""

    def __init__(
        self, of: Assignment, agent: IntArray, loss: FloatArray, price: FloatArray
    ) -> None:
        self.of, self.agent, self.loss = of, agent.copy(), loss
        self.load = of.load(agent)
        self.job = np.arange(of.jobs)
        # A price may be 0, but overload must cost something
        self.penalty = 2.0 * np.maximum(price, float(price.mean()) or 1.0)
        self.until = np.zeros(loss.shape, np.int64)

    def run(self, late: Callable[[], bool]) -> IntArray | None:
        """Until no agent is overloaded; None if that takes too long."""
        room = self.of.room + ROUNDING * np.maximum(self.of.room, 1.0)
        for move in range(MOVES):
            over = self.load - room
            fullest = int(np.argmax(over))
            if over[fullest] <= 0:
                return self.agent
            if late():
                return None
            self._turn(move, fullest)
            self.penalty *= np.where(self.load > room, DEARER, CHEAPER)
        return None

    def _turn(self, move: int, fullest: int) -> None:
        """Make the best move or swap of a job of the fullest agent."""
        jobs = np.flatnonzero(self.agent == fullest)
        moves, swaps = self._moves(move, fullest, jobs), self._swaps(move, fullest, jobs)
        back = move + TABU + move % 7
        least = min(moves.min(), swaps.min())
        if not np.isfinite(least):  # all have just moved
            return
        if moves.min() == least:
            to, which = divmod(int(moves.argmin()), len(jobs))
            self._give(int(jobs[which]), to, back)
        else:
            which, other = divmod(int(swaps.argmin()), len(self.job))
            self._give(int(jobs[which]), int(self.agent[other]), back)
            self._give(other, fullest, back)

    def _give(self, job: int, to: int, back: int) -> None:
        before = int(self.agent[job])
        self.until[before, job] = back
        self.load[before] -= self.of.use[before, job]
        self.load[to] += self.of.use[to, job]
        self.agent[job] = to

    def _overload(self, agent: IntArray, load: FloatArray) -> FloatArray:
        """Penalty of these loads of agents."""
        over: FloatArray = self.penalty[agent] * np.maximum(load - self.of.room[agent], 0.0)
        return over

    def _moves(self, move: int, fullest: int, jobs: IntArray) -> FloatArray:
        """Change of loss and penalty if a job of the fullest agent moves, shape (agents, its
        jobs).
        """
        every = np.arange(self.of.agents)[:, np.newaxis]
        load = self.load[:, np.newaxis] + self.of.use[:, jobs]
        less = self.load[fullest] - self.of.use[fullest, jobs]
        change: FloatArray = self.loss[:, jobs] - self.loss[fullest, jobs]
        change += self._overload(every, load) - self._overload(every, self.load[:, np.newaxis])
        change += self._overload(np.array(fullest), less)
        change -= self._overload(np.array(fullest), self.load[fullest])
        change[fullest] = np.inf
        change[self.until[:, jobs] > move] = np.inf
        return change

    def _swaps(self, move: int, fullest: int, jobs: IntArray) -> FloatArray:
        """Change of loss and penalty if a job of the fullest agent and one of another agent are
        swapped, shape (its jobs, jobs).
        """
        use, loss, agent = self.of.use, self.loss, self.agent
        there, back = loss[agent[np.newaxis, :], jobs[:, np.newaxis]], loss[fullest]
        change: FloatArray = (
            there + back - loss[fullest, jobs][:, np.newaxis] - loss[agent, self.job]
        )
        fullest_load = self.load[fullest] + use[fullest] - use[fullest, jobs][:, np.newaxis]
        other_load = (
            self.load[agent] - use[agent, self.job] + use[agent[np.newaxis, :], jobs[:, np.newaxis]]
        )
        change += self._overload(np.array(fullest), fullest_load) + self._overload(
            agent, other_load
        )
        change -= self._overload(np.array(fullest), self.load[fullest])
        change -= self._overload(agent, self.load[agent])
        change[:, agent == fullest] = np.inf
        change[:, self.until[fullest] > move] = np.inf
        change[self.until[agent[np.newaxis, :], jobs[:, np.newaxis]] > move] = np.inf
        return change
