"""Local search for assignments: the jobs of a few agents are divided among them anew.

At duals of the relaxation, a job loses ``loss_ij`` with agent i, and a unit of room that stays free
loses the ``price_i`` of the agent. The value of an assignment is the bound minus its losses
(`Core`), so a good one has small losses and full agents. Few exchanges of two jobs leave agents
full; among the millions of ways to divide the jobs of four agents some do.

They are found by meeting in the middle: the jobs are cut into two halves, the ways to divide each
half that lose least are listed, and pairs of ways are kept that overload no agent and lose no more
than the present assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray, owners
from optsched.program.assignment import ROUNDING, Assignment

if TYPE_CHECKING:
    from optsched.program import AllocationProgram
    from optsched.solving.core import Core

FEWEST, MOST = 2, 4
"""Agents whose jobs are divided anew."""
NEAR = 4.0
"""Typical losses above the best assignment up to which worse assignments are accepted."""
MOVABLE = 60
"""Jobs that may move at once; the code of a half has two bits for each, of 62."""
LISTED = 3000
"""Ways to divide half of the jobs that are kept."""
PAIRS = 2_000_000
"""Pairs of such ways that are looked at."""
DRAWS = 20
"""Jobs that are drawn until there are enough agents, at most."""
ALWAYS = 0.05
"""Weight of a job when agents are drawn, in addition to its loss: a fraction of the typical
loss."""
OTHERS = 0.2
"""Relative weight of jobs whose agents are not drawn yet."""


class AssignmentPrices(NamedTuple):
    """Losses of assignments against a bound.

    Attributes
    ----------
    loss : FloatArray, shape (agents, jobs)
        At least 0; infinite where a job cannot be.
    price : FloatArray, shape (agents,)
        Of a unit of free room.
    """

    loss: FloatArray
    price: FloatArray

    def lost(self, of: Assignment, agent: IntArray) -> float:
        """Difference between the bound and the value of an assignment."""
        free = of.room - of.load(agent)
        return float(self.loss[agent, np.arange(of.jobs)].sum() + self.price @ free)


def searched_from(
    program: AllocationProgram,
    core: Core,
    start: FloatArray | None,
    seed: int,
    late: Callable[[], bool] = lambda: False,
) -> Reassignment | None:
    """A search at the prices of a core, from a start or a rule; None where no assignment is known.

    Parameters
    ----------
    program : AllocationProgram
        One that is an assignment.
    core : Core
    start : FloatArray or None
        Totals of the columns of classes, whole.
    seed : int
    late : callable
        Whether the time is over.
    """
    of = program.assignment
    assert of is not None
    price = program.limit_duals(core.duals)[of.row]
    loss = np.where(of.column >= 0, core.loss[of.column], np.inf)
    prices = AssignmentPrices(loss, np.maximum(price, 0.0))
    given = None if start is None else of.agents_of(start, program.classes)
    starts = (
        given if given is not None and of.fits(given) else None,
        of.within_room(of.greedy(loss, prices.price), loss, prices.price, late),
    )
    known = [agent for agent in starts if agent is not None]
    if not known:
        by_rule = of.by_rule(late)
        known = [] if by_rule is None else [by_rule]
    if not known:
        return None
    best = min(known, key=of.total)
    return Reassignment(of, prices, best, np.random.default_rng(seed))


class _Ways(NamedTuple):
    """Ways to divide some jobs among g agents.

    Attributes
    ----------
    loss : FloatArray, shape (ways,)
    load : FloatArray, shape (g, ways)
    code : IntArray, shape (ways,)
        Agent of each job, two bits each, the last one lowest.
    """

    loss: FloatArray
    load: FloatArray
    code: IntArray

    def take(self, which: IntArray) -> _Ways:
        return _Ways(self.loss[which], self.load[:, which], self.code[which])


class _Neighbourhood(NamedTuple):
    """Some agents, the jobs of theirs that may move, and the room for these.

    Attributes
    ----------
    agents : IntArray, shape (g,)
    jobs : IntArray, shape (jobs,)
    loss, use : FloatArray, shape (g, jobs)
    room, price : FloatArray, shape (g,)
    most : float
        What they may lose together, free room included.
    """

    agents: IntArray
    jobs: IntArray
    loss: FloatArray
    use: FloatArray
    room: FloatArray
    price: FloatArray
    most: float


@dataclass(eq=False)
class Reassignment:
    """A search that moves from one feasible assignment to the next.

    It accepts assignments that lose no more than the present one. Within `NEAR` typical losses of the
    best one it accepts more, a random amount whose mean is the typical loss: mostly little, sometimes
    enough to leave a valley.

    Attributes
    ----------
    of : Assignment
    prices : AssignmentPrices
    agent : IntArray, shape (jobs,)
    random : Generator
    """

    of: Assignment
    prices: AssignmentPrices
    agent: IntArray
    random: np.random.Generator
    best: IntArray = field(init=False)
    lost: float = field(init=False)
    """What the present assignment loses."""
    least: float = field(init=False)
    """What the best one loses."""
    typical: float = field(init=False)

    def __post_init__(self) -> None:
        self.best, self.least = self.agent, self.prices.lost(self.of, self.agent)
        self.lost = self.least
        second = np.partition(self.prices.loss, min(1, self.of.agents - 1), axis=0)
        some = second[min(1, self.of.agents - 1)]
        some = some[np.isfinite(some)]
        self.typical = max(float(np.median(some)) if len(some) else 0.0, ROUNDING)

    def run(self, stale: int, enough: Callable[[float], bool]) -> None:
        """Search until ``stale`` neighbourhoods in a row brought no improvement, or ``enough``
        accepts the loss of the best assignment.
        """
        since = 0
        while since < stale and not enough(self.least):
            since = 0 if self.turn() else since + 1

    def start_from(self, agent: IntArray) -> None:
        """Go on from another assignment, if it is better than the best one."""
        lost = self.prices.lost(self.of, agent)
        if lost < self.least:
            self.agent, self.best = agent, agent
            self.lost = self.least = lost

    def turn(self) -> bool:
        """Divide the jobs of some agents anew; returns whether that improved the best
        assignment.
        """
        wanted = int(self.random.integers(FEWEST, MOST + 1))
        near = self.lost <= self.least + NEAR * self.typical
        spare = float(self.random.exponential(self.typical)) if near else 0.0
        if not self.divide(self._drawn(min(wanted, self.of.agents)), spare):
            return False
        self.lost = self.prices.lost(self.of, self.agent)
        if self.lost >= self.least - ROUNDING * max(1.0, abs(self.least)):
            return False
        self.best, self.least = self.agent, self.lost
        return True

    def divide(self, agents: IntArray, spare: float) -> bool:
        """Divide the jobs of some agents in another way that loses at most ``spare`` more than now;
        returns whether there is one.
        """
        found = self._divided(self._part(agents, spare))
        if found is not None:
            self.agent = found
        return found is not None

    def _drawn(self, count: int) -> IntArray:
        """Draw agents of jobs that lose much, and agents with whom these jobs would lose little."""
        loss, agent = self.prices.loss, self.agent
        weight = loss[agent, np.arange(len(agent))] + ALWAYS * self.typical
        drawn = np.zeros(self.of.agents, bool)
        for _ in range(DRAWS):  # some agents may be out of reach
            if drawn.sum() >= count:
                break
            of_job = np.where(drawn[agent], weight, OTHERS * weight) if drawn.any() else weight
            job = _one_of(self.random, of_job)
            drawn[agent[job]] = True
            if drawn.sum() < count:
                near = np.exp(-(loss[:, job] - loss[:, job].min()) / (2.0 * self.typical))
                drawn[_one_of(self.random, near)] = True
        return np.flatnonzero(drawn).astype(np.int64)

    def _part(self, agents: IntArray, spare: float) -> _Neighbourhood:
        """The neighbourhood of some agents: their jobs that may move, and their largest loss."""
        number = np.full(self.of.agents, -1)
        number[agents] = np.arange(len(agents))
        jobs = np.flatnonzero(number[self.agent] >= 0).astype(np.int64)
        if len(jobs) > MOVABLE:
            loss = self.prices.loss[np.ix_(agents, jobs)]
            at = number[self.agent[jobs]], np.arange(len(jobs))
            now = loss[at]
            loss[at] = np.inf
            more = loss.min(axis=0) - now + self.random.exponential(self.typical, len(jobs))
            jobs = jobs[np.sort(np.argpartition(more, MOVABLE)[:MOVABLE])]
        loss, use = (table[np.ix_(agents, jobs)] for table in (self.prices.loss, self.of.use))
        at = number[self.agent[jobs]], np.arange(len(jobs))
        free = (self.of.room - self.of.load(self.agent))[agents]
        room = free + np.bincount(at[0], use[at], minlength=len(agents))
        price = self.prices.price[agents]
        loss -= loss.min(axis=0)
        most = float(loss[at].sum() + price @ free) + spare + ROUNDING
        return _Neighbourhood(agents, jobs, loss, use, room, price, most)

    def _divided(self, part: _Neighbourhood) -> IntArray | None:
        """The assignment after the best change; None without one."""
        order = self.random.permutation(len(part.jobs))
        halves = np.array_split(order, 2)
        ways = [_ways(part, half) for half in halves]
        if not all(len(each.loss) for each in ways):
            return None
        loss, first, second = _joined(part, *ways)
        for pair in np.argsort(loss, kind="stable")[:2].tolist():
            agent = self.agent.copy()
            for half, code in zip(
                halves, (ways[0].code[first[pair]], ways[1].code[second[pair]]), strict=True
            ):
                place = 2 * np.arange(len(half))[::-1]
                agent[part.jobs[half]] = part.agents[(code >> place) & 3]
            if not np.array_equal(agent, self.agent):
                return agent
        return None


def _one_of(random: np.random.Generator, weight: FloatArray) -> int:
    """A number drawn by weight."""
    sums = np.cumsum(weight)
    return int(min(np.searchsorted(sums, random.random() * sums[-1], "right"), len(weight) - 1))


def _ways(part: _Neighbourhood, jobs: IntArray) -> _Ways:
    """Ways to divide some jobs of a neighbourhood, built job by job; those that lose least."""
    g = len(part.agents)
    found = _Ways(np.zeros(1), np.zeros((g, 1)), np.zeros(1, np.int64))
    for job in jobs.tolist():
        loss = found.loss + part.loss[:, job, np.newaxis]
        load = found.load + part.use[:, job, np.newaxis]
        agent, way = np.nonzero((loss <= part.most) & (load <= part.room[:, np.newaxis] + ROUNDING))
        loss = loss[agent, way]
        if len(way) > LISTED:
            least = np.argpartition(loss, LISTED)[:LISTED]
            agent, way, loss = agent[least], way[least], loss[least]
        loads = found.load[:, way]
        loads[agent, np.arange(len(way))] = load[agent, way]
        found = _Ways(loss, loads, found.code[way] << 2 | agent)
    return found


def _joined(
    part: _Neighbourhood, one: _Ways, other: _Ways
) -> tuple[FloatArray, IntArray, IntArray]:
    """Pairs of ways that together overload no agent and lose little: losses, and the two ways."""
    # The free room of an agent may cost at most what all may lose
    spare = np.minimum(part.most / np.maximum(part.price, ROUNDING), part.room)
    narrow = int(np.argmax(other.load.std(axis=1) / np.maximum(spare, ROUNDING)))
    other_order = np.argsort(other.load[narrow], kind="stable")
    load = other.load[narrow][other_order]
    order = np.argsort(one.loss, kind="stable")
    left = part.room[narrow] - one.load[narrow][order] + ROUNDING
    begin = np.searchsorted(load, left - spare[narrow] - 2 * ROUNDING)
    count = np.searchsorted(load, left, "right") - begin
    # Of too many pairs those with the ways that lose least
    kept = max(1, int(np.searchsorted(np.cumsum(count), PAIRS)))
    order, begin, count = order[:kept], begin[:kept], count[:kept]
    first = owners(count)
    start = np.cumsum(count) - count
    second = other_order[np.arange(len(first)) + (begin - start)[first]]
    first = order[first]
    loss = one.loss[first] + other.loss[second]
    for agent in [narrow, *(a for a in range(len(part.agents)) if a != narrow)]:
        free = part.room[agent] - one.load[agent][first] - other.load[agent][second]
        loss = loss + part.price[agent] * free
        fits = np.flatnonzero((free >= -ROUNDING) & (loss <= part.most))
        loss, first, second = loss[fits], first[fits], second[fits]
    return loss, first, second
