"""Gavel mode: rounds by the rules of Gavel's simulator, so that its published numbers can be
reproduced.

D. Narayanan et al., OSDI 2020, section 5, and the repository's ``scheduler.py`` (commit c4fa400).
The rules that differ from our rounds: A new job has no share until the next reset. A reset comes at
least ``reset_interval`` seconds after the last one (a reset at the very beginning does not count).
A job that is not in the allocation yet takes up GPUs in the selection, but does not run. A round
ends when its last job ends; a job that ends earlier keeps its GPUs, idle, until then. A job makes
whole steps in a round. Preemption loses no steps. As in Shockwave's variant of the simulator, jobs
may have regimes, and with ``restart_cost`` a job that did not run in the previous round makes no
progress for that time.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, owners, quotient
from optsched.assembly import make_formulation
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.rounds.policy import RoundPolicy
from optsched.simulation.allocator import Allocator
from optsched.simulation.gavel_allox import MODE, AlloxAllocator
from optsched.simulation.gavel_rows import GavelRows
from optsched.simulation.history import IsolatedHistory
from optsched.simulation.options import SimulationOptions
from optsched.simulation.recording import Stint, spread_of
from optsched.simulation.run import SimulationRun
from optsched.simulation.truth import Truth
from optsched.traces import Trace

FIFO = "fifo"
"""With this formulation a job without a share does not run on GPUs that are left over."""
ALLOX = "allox"
INTERIOR = "clarabel"
LAST_SECONDS = 5.0
"""A job that ends this many seconds before the end of a round is in its last round."""
SHUFFLER = 5
"""Gavel shuffles the pools with the seed plus this number."""
FAILED_ROUNDS = 5
"""A job is dropped after this many consecutive rounds without a whole step."""


@dataclass(frozen=True)
class _Placed:
    """Rows that run in a round; arrays of length k.

    Attributes
    ----------
    row, job, partner, pool : IntArray
        The partner is -1 for a job alone.
    gpus : list of tuple of int
    stays : BoolArray
        Whether the row had the same GPUs in the previous round.
    """

    row: IntArray
    job: IntArray
    partner: IntArray
    pool: IntArray
    gpus: list[tuple[int, ...]]
    stays: BoolArray


class GavelRounds(SimulationRun):
    """A trace under a formulation, by Gavel's rules.

    Parameters
    ----------
    trace : Trace
    policy : RoundPolicy
        Only its formulation and its solver are used.
    options : SimulationOptions
    truth : Truth
    """

    def __init__(
        self, trace: Trace, policy: RoundPolicy, options: SimulationOptions, truth: Truth
    ) -> None:
        _check_gavel_can(trace)
        super().__init__(trace, options, truth)
        self._check_length()
        instance = trace.instance
        self.allocator = _allocator(instance, policy, truth.alone[: truth.jobs])
        self._sizes = np.array(
            [pool.capacity(instance.now) for pool in instance.cluster.pools], np.int64
        )
        numbering = instance.cluster.numbering
        self._gpus = [
            np.flatnonzero(
                numbering.pool[numbering.node_of(np.arange(numbering.gpus))] == pool
            ).tolist()
            for pool in range(len(self._sizes))
        ]
        self._length = instance.round
        self._widest = np.array(
            [int(pool.node_gpus.max(initial=1)) for pool in instance.cluster.pools], np.int64
        )
        self._ran = np.zeros(len(self.arrival), bool)
        self._gang = instance.jobs_table.gpus_min
        self._order = random.Random(options.seed + SHUFFLER)
        self._rows = GavelRows.none(len(self._sizes))
        self._pool_time: FloatArray = np.zeros(len(self._sizes))
        self._stale = True
        self._last_reset: float | None = None
        self._seats: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
        self._failed = np.zeros(len(self.arrival), np.int64)
        self._history = IsolatedHistory(truth.alone[: truth.jobs], self._gang)

    def run(self) -> None:
        """Simulate until all jobs are complete or none can run."""
        queue = np.argsort(self.arrival, kind="stable")
        number = 0
        now = self.origin
        # The end of the previous round. The next round measures its length from there.
        before: float | None = None
        idle = 0
        while self._goes_on(now):
            stop = number + int(np.searchsorted(self.arrival[queue[number:]], now, side="right"))
            self._come(queue[number:stop])
            number = stop
            started = time.perf_counter()
            solved = self._renew(now)
            placed = self._placed()
            seconds = time.perf_counter() - started
            if not len(placed.row):
                # No job arrives any more. Try an immediate reset first; if still nothing runs, give
                # up the jobs that are left.
                if number == len(queue):
                    idle += 1
                    self._last_reset = None
                    if idle > 1:
                        self.notices.append(
                            f"{int((~self.gone).sum())} jobs cannot run: given up at {now:g} s"
                        )
                        return
                    continue
                ahead = float(self.arrival[queue[number]])
                self._note(now, ahead, 0, np.zeros(len(self._sizes)), seconds, solved)
                now = ahead
                continue
            idle = 0
            jobs = len(placed.row) + int((placed.partner >= 0).sum())
            until, busy = self._run(placed, now, before, min(self._length, self.end - now))
            self._note(now, until, jobs, busy, seconds, solved)
            before = now = until
        self._note_end(now)

    # --- jobs that come and go ----------------------------------------------------------------

    def _come(self, jobs: IntArray) -> None:
        """Add rows for arriving jobs. If the policy packs jobs, each new job also pairs with all
        present ones.
        """
        for job in jobs.tolist():
            present = self._rows.job[self._rows.partner < 0]
            # The two jobs of a pair hold the same GPUs, so their gangs are equal.
            mates = (
                present[self._gang[present] == self._gang[job]]
                if self.instance.colocation
                else present[:0]
            )
            first = np.concatenate([[job], np.minimum(mates, job)]).astype(np.int64)
            second = np.concatenate([[-1], np.maximum(mates, job)]).astype(np.int64)
            rate, beside = self._rates(first, second)
            pools = len(self._sizes)
            begun = np.where(second[:, np.newaxis] < 0, self._length / 2.0, np.zeros((1, pools)))
            zero = np.zeros((len(first), pools))
            more = GavelRows(
                first, second, rate, beside, begun, zero, zero, np.zeros(len(first), bool)
            )
            alive = (second < 0) | more.possible.any(axis=1)
            self._rows = self._rows.with_more(more.take(np.flatnonzero(alive)))
            self._stale = True

    def _rates(self, first: IntArray, second: IntArray) -> tuple[FloatArray, FloatArray]:
        """steps/s of rows on each pool, of the first and of the second job."""
        rate = self.truth.alone[first] * self.world.factor[first, np.newaxis]
        beside = np.zeros_like(rate)
        pairs = np.flatnonzero(second >= 0)
        if len(pairs):
            first, second = first[pairs], second[pairs]
            for pool in range(len(self._sizes)):
                rate[pairs, pool] = self._rate_on(pool, first, second)
                beside[pairs, pool] = self._rate_on(pool, second, first)
        return rate, beside

    def _rate_on(self, pool: int, job: IntArray, partner: IntArray) -> FloatArray:
        """steps/s of jobs with partners on a pool, on as few nodes as possible; 0 where unknown."""
        gang = self._gang[job]
        nodes = -(-gang // self._widest[pool])
        rate = self.truth.rates(job, partner, np.full(len(job), pool), gang, nodes)
        return np.nan_to_num(rate) * self.world.factor[job]

    # --- the allocation -----------------------------------------------------------------------

    def _renew(self, now: float) -> bool:
        """A new allocation, if jobs came or went and the last one is old enough."""
        since = self._last_reset
        due = since is None or since == self.origin or now - since >= self.options.reset_interval
        if not (self._stale and due and len(self._rows)):
            return False
        self._rows = self._rows.reset(0.0 if since is None else now - since, self._length / 2.0)
        self._pool_time = self._rows.time.sum(axis=0)
        self._last_reset = now
        jobs = self._rows.job[self._rows.partner < 0]
        self._history.count(self.world.done)
        shares = self.allocator.shares(jobs, self.world, self._history.seconds, now)
        self._history.share(jobs, self._sizes)
        self._rows = self._rows.allocated(shares)
        self._stale = False
        return True

    # --- a round ------------------------------------------------------------------------------

    def _placed(self) -> _Placed:
        """Select the rows that run: pool by pool, by priority, then deficit, then share. Rows for
        which no GPUs are left are dropped.
        """
        rows = self._rows
        pools = list(range(len(self._sizes)))
        if self.options.pool_order == "random":
            self._order.shuffle(pools)
        priority = rows.priorities(self._pool_time)
        possible = rows.possible
        queue = self.allocator.policy.formulation == FIFO
        taken = set()
        chosen = []
        gang = self._gang[rows.job].tolist()
        job = rows.job.tolist()
        partner = rows.partner.tolist()
        for pool in pools:
            left = int(self._sizes[pool])
            order = np.lexsort((-rows.share[:, pool], -rows.deficit[:, pool], -priority[:, pool]))
            for row in order.tolist():
                if left == 0:
                    break
                # A job runs in one row at a time.
                if not possible[row, pool] or job[row] in taken or partner[row] in taken:
                    continue
                if (queue and priority[row, pool] <= 0) or gang[row] > left:
                    continue
                left -= gang[row]
                taken.add(job[row])
                if partner[row] >= 0:
                    taken.add(partner[row])
                chosen.append((row, pool))
        return self._seated(chosen)

    def _seated(self, chosen: list[tuple[int, int]]) -> _Placed:
        """Assign GPUs to the selected rows, larger gangs first. A row that stays on its pool keeps
        its GPUs if they are free.
        """
        rows = self._rows
        seats = {}
        name = {row: (int(rows.job[row]), int(rows.partner[row])) for row, _ in chosen}
        for pool in dict.fromkeys(pool for _, pool in chosen):
            in_pool = [row for row, other in chosen if other == pool]
            in_pool.sort(key=lambda row: -int(self._gang[rows.job[row]]))
            used: set[int] = set()
            for gang in dict.fromkeys(int(self._gang[rows.job[row]]) for row in in_pool):
                # As in Gavel's simulator: within one gang size, rows that stay are seated before
                # new rows.
                same = [row for row in in_pool if self._gang[rows.job[row]] == gang]
                for row in same:
                    where, held = self._seats.get(name[row], (-1, ()))
                    if where == pool and used.isdisjoint(held):
                        seats[row] = held
                        used.update(held)
                for row in same:
                    # A row that is newer than the allocation was selected, but does not run (a rule
                    # of Gavel's simulator).
                    if row not in seats and rows.known[row]:
                        free = (gpu for gpu in self._gpus[pool] if gpu not in used)
                        seats[row] = tuple(gpu for gpu, _ in zip(free, range(gang), strict=False))
                        used.update(seats[row])
        placed = [(row, pool) for row, pool in chosen if row in seats]
        before = self._seats
        self._seats = {name[row]: (pool, seats[row]) for row, pool in placed}
        stays = np.array(
            [before.get(name[row]) == (pool, seats[row]) for row, pool in placed], bool
        )
        gpus = [seats[row] for row, _ in placed]
        seated, pools = np.array(placed, np.int64).reshape(-1, 2).T
        return _Placed(seated, rows.job[seated], rows.partner[seated], pools, gpus, stays)

    def _run(
        self, placed: _Placed, now: float, before: float | None, length: float
    ) -> tuple[float, FloatArray]:
        """Run the placed rows for a round; returns its end, and GPU seconds by pool."""
        rows = self._rows
        world = self.world
        job, partner = placed.job, placed.partner
        # A job that ran in the previous round is not restarted.
        cost = np.where(self._ran[job], 0.0, self.options.restart_cost or 0.0)
        made = world.done.copy()
        takes = (
            self._staged(placed, now, cost, length)
            if len(self.truth.regimes)
            else self._whole_steps(placed, cost, length)
        )
        made = world.done - made
        until = float((now + takes).max())
        spent = (
            now + takes - (now if before is None else before) - cost
        )  # a gap before the round counts, as in Gavel's simulator
        np.add.at(rows.time, (placed.row, placed.pool), spent)
        self._pool_time += np.bincount(placed.pool, spent, minlength=len(self._pool_time))
        busy = self._stint(placed, now, now + takes, cost)
        ended = np.concatenate([job, partner[partner >= 0]])
        when = np.concatenate([now + takes, (now + takes)[partner >= 0]])
        done = world.finished[ended]
        self.recorder.finish[ended[done]] = when[done]
        leaves = mask_of(ended[done], len(self.gone))
        # Number of consecutive rounds in which a job alone made no step; any step resets the count.
        without_steps = job[(made[job] <= 0) & (partner < 0)]
        self._failed[job] += 1
        self._failed[np.setdiff1d(job, without_steps)] = 0
        dropped = without_steps[self._failed[without_steps] >= FAILED_ROUNDS]
        if len(dropped):
            self.notices.append(f"{len(dropped)} jobs dropped: they make no whole step in a round")
            leaves[dropped] = True
        self._ran = np.zeros(len(self.gone), bool)
        self._ran[ended] = True
        if leaves.any():
            self.gone |= leaves
            self._rows = rows.without(self.gone)
            self._stale = True
        return until, busy

    def _whole_steps(self, placed: _Placed, cost: FloatArray, length: float) -> FloatArray:
        """Every job makes the whole steps of a round, or its remaining steps; returns the seconds
        that each row takes.
        """
        rows = self._rows
        world = self.world
        row, pool = placed.row, placed.pool
        job, partner = placed.job, placed.partner
        takes = np.zeros(len(row))
        steps = []
        for who, rate in (
            (job, rows.rate[row, pool]),
            (np.maximum(partner, 0), rows.beside[row, pool]),
        ):
            # Both jobs of a pair hold the GPUs until the later one has its steps.
            runs = np.ones(len(row), bool) if who is job else partner >= 0
            left = world.steps[who] - world.done[who]
            made = np.where(runs, np.minimum(np.floor(rate * length), np.ceil(left)), 0.0)
            takes = np.maximum(takes, quotient(made, rate))
            steps.append(made)
        # A job that ends early, in its last round, pays no restart cost, as in Gavel's simulator.
        pays = (cost > 0) & (takes > length - LAST_SECONDS)
        part = quotient(takes - cost, takes)
        cost[~pays] = 0.0
        world.done[job] += np.where(pays, np.floor(steps[0] * part), steps[0])
        shared = partner >= 0
        world.done[partner[shared]] += np.where(pays, np.floor(steps[1] * part), steps[1])[shared]
        return takes

    def _staged(self, placed: _Placed, now: float, cost: FloatArray, length: float) -> FloatArray:
        """Run a round of jobs with regimes, whose rates change within it; returns the seconds that
        each row takes.
        """
        rows = self._rows
        world = self.world
        job, pool = placed.job, placed.pool
        gang = self._gang[job]
        stage = world.stage[job]
        world.resumes[job] = now + cost
        nodes = -(-gang // self._widest[pool])
        ends = world.run(
            job,
            rows.rate[placed.row, pool],
            (placed.partner, pool, gang, nodes),
            now,
            np.full(len(job), now + length),
        )
        changed = job[world.stage[job] != stage]
        if len(changed):
            of_changed = np.isin(rows.job, changed)
            rows.rate[of_changed] = (
                self.truth.alone[
                    self.truth.row(rows.job[of_changed], world.stage[rows.job[of_changed]])
                ]
                * world.factor[rows.job[of_changed], np.newaxis]
            )
            self._stale = True
        return ends - now

    def _stint(self, placed: _Placed, now: float, ends: FloatArray, cost: FloatArray) -> FloatArray:
        """Record which rows held which GPUs."""
        job, partner = placed.job, placed.partner
        pairs = partner >= 0
        owner = owners([len(held) for held in placed.gpus])
        gpu = np.array([number for held in placed.gpus for number in held], np.int64)
        nodes, first = spread_of(owner, gpu, self.instance.cluster.numbering.node_of(gpu), len(job))
        both = np.concatenate([np.arange(len(job)), np.flatnonzero(pairs)])
        fresh = np.where(placed.stays, 0, 1)
        return self.recorder.stint(
            Stint(
                np.concatenate([job, partner[pairs]]),
                placed.pool[both],
                self._gang[job][both],
                nodes[both],
                first[both],
                np.where(pairs, 0.5, 1.0)[both],
                np.ones(len(both)),
                np.full(len(both), now),
                ends[both],
                fresh[both],
                cost[both],
            )
        )

    def _note(
        self, start: float, end: float, running: int, busy: FloatArray, seconds: float, solved: bool
    ) -> None:
        there = int(((self.arrival <= start) & ~self.gone).sum())
        self.recorder.round(
            start,
            end,
            running=running,
            waiting=max(there - running, 0),
            busy=busy,
            gpus=self._sizes.astype(float),
            seconds=seconds,
            solved=solved,
        )


def _check_gavel_can(trace: Trace) -> None:
    """Refuse a trace that uses a feature which Gavel's simulator does not have."""
    table = trace.instance.jobs_table
    if len(trace.node_events):
        raise UsageError("mode gavel has no nodes that fail: use mode rounds")
    if table.after or (table.options >= 0).any():
        raise UsageError(
            "mode gavel has neither predecessors nor explicit options: use mode rounds"
        )
    if not table.preemptible.all():
        raise UsageError("mode gavel has no jobs that cannot be preempted: use mode rounds")
    if len(trace.regimes) and trace.instance.colocation:
        raise UsageError("mode gavel does not pack jobs that have regimes: use mode rounds")
    if (table.gpus_min != table.gpus_max).any():
        raise UsageError("mode gavel has jobs of a fixed number of GPUs only: use mode rounds")


def _allocator(instance: Instance, policy: RoundPolicy, alone: FloatArray) -> Allocator:
    """The allocator of the policy. If the policy names no solver, it is an interior point method on
    one class per job, as in Gavel's simulator.

    If there are several optimal allocations, an interior point method returns one in the interior
    of the optimal face (which one depends on the variables), and a simplex method returns a vertex.
    The rounds that follow differ by up to 6 % of the makespan of 60 jobs.
    """
    formulation = make_formulation(policy.formulation, policy.options)
    if policy.formulation == ALLOX:
        return AlloxAllocator(instance, policy, alone)
    if policy.solver == "auto" and formulation.takes_rows and not formulation.integral:
        policy = policy.model_copy(update={"solver": INTERIOR})
    return Allocator(instance, policy, MODE, classes=False)
