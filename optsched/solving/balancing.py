"""Local search for schedules of unrelated machines: the jobs of a few machines are divided anew, so
that all end by a time that is lowered step by step.

Let C be the least makespan where jobs may be split, with prices u_i >= 0 of the machines that add
up to
1, and let job j lose  l_ij = u_i p_ij - min_h u_h p_hj  on machine i. For every assignment

    sum_j l_{i(j) j}  +  sum_i u_i (T - load_i)  =  T - sum_j min_h u_h p_hj

which is T - C at optimal prices. So an assignment that ends by T near C has small losses and full
machines, like a good generalised assignment, and `reassignment` can search for it. Of several ways
to divide jobs the one with the least losses is taken, because it leaves most room. Machines that
end in time are divided anew as well, to reduce losses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.program.assignment import ROUNDING, Assignment
from optsched.solving.reassignment import AssignmentPrices, Reassignment

TURNS = 10_000
"""Divisions that are tried for one end time."""
IN_TIME = 0.4
"""Fraction of divisions that begin with a random machine; the others begin with the last to end."""
MOST_OTHERS = 3
"""Machines that share with the first one."""
TILT = 0.1
"""Fraction by which the price of room is reduced, so that losses decide among divisions."""
FULL = 0.2
"""Weight of a full machine when machines are drawn, in steps of free time."""
NEAR = 1.005
"""First end time over the bound; the repair of a greedy assignment mostly ends at once there."""


@dataclass(eq=False)
class Balancing:
    """A search for an assignment whose last machine ends early.

    Attributes
    ----------
    of : Assignment
        Of jobs to machines; the room is not read.
    price : FloatArray, shape (machines,)
        u.
    agent : IntArray, shape (jobs,)
        The machine of each job, in the best assignment so far.
    random : Generator
    """

    of: Assignment
    price: FloatArray
    agent: IntArray
    random: np.random.Generator

    @classmethod
    def begun(
        cls,
        seconds: FloatArray,
        price: FloatArray,
        seed: int,
        late: Callable[[], bool] = lambda: False,
    ) -> Balancing:
        """A search from an assignment that loses little.

        Parameters
        ----------
        seconds : FloatArray, shape (machines, jobs)
            Infinite where a job cannot run.
        price : FloatArray, shape (machines,)
            At least 0; they need not add up to 1.
        seed : int
        late : callable
            Whether to begin with a greedy assignment as it is, because time is short.
        """
        u = np.maximum(price, 0.0)
        u = u / u.sum() if u.any() else np.full(len(u), 1.0 / len(u))
        there = np.isfinite(seconds)
        cost = np.full(seconds.shape, np.inf)
        np.multiply(u[:, np.newaxis], seconds, out=cost, where=there)
        column = np.where(there, np.arange(seconds.size).reshape(seconds.shape), -1)
        near = np.full(len(u), NEAR * float(cost.min(axis=0).sum()))
        of = Assignment(
            cost - cost.min(axis=0), np.where(there, seconds, 0.0), near, column, np.arange(len(u))
        )
        greedy = of.greedy(of.cost, u)
        repaired = of.within_room(greedy, of.cost, u, late)
        return cls(of, u, greedy if repaired is None else repaired, np.random.default_rng(seed))

    @property
    def makespan(self) -> float:
        """When the last machine ends."""
        return float(self.of.load(self.agent).max())

    def run(self, least: float, step: float, enough: Callable[[], bool]) -> None:
        """Lower the makespan by a step at least, again and again, until the next one would be below
        ``least`` or is not found.
        """
        while self.makespan - step >= least - ROUNDING * max(1.0, least):
            if not self._ends_by(self.makespan - step, step, enough):
                break

    def _ends_by(self, time: float, step: float, enough: Callable[[], bool]) -> bool:
        """Whether an assignment that ends by a time was found; it is the best one then."""
        of = self.of._replace(room=np.full(self.of.agents, time))
        prices = AssignmentPrices(of.cost, (1.0 - TILT) * self.price)
        search = Reassignment(of, prices, self.agent, self.random)
        for _ in range(TURNS):
            free = of.room - of.load(search.agent)
            if (free >= -ROUNDING * max(1.0, time)).all():
                self.agent = search.agent
                return True
            if enough():
                return False
            machines = self._drawn(free, step)
            spare = TILT * float(self.price[machines] @ free[machines])
            search.divide(machines, spare)
        return False

    def _drawn(self, free: FloatArray, step: float) -> IntArray:
        """The machine that ends last or any other, and some with much free time; one machine
        alone.
        """
        count = len(free)
        late = self.random.random() >= IN_TIME
        first = int(np.argmin(free)) if late else int(self.random.integers(count))
        if count == 1:
            return np.array([first])
        weight = np.maximum(free, 0.0) + FULL * step
        weight[first] = 0.0
        others = min(int(self.random.integers(1, MOST_OTHERS + 1)), count - 1)
        drawn = self.random.choice(count, others, replace=False, p=weight / weight.sum())
        return np.sort(np.append(drawn, first)).astype(np.int64)
