"""Fluid mode: between two events every job runs exactly for the fractions of time of its
allocation.
"""

from __future__ import annotations

import time

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, quotient
from optsched.instance import with_nodes
from optsched.rounds.policy import RoundPolicy
from optsched.simulation.allocator import Allocator, TimeShares
from optsched.simulation.history import IsolatedHistory
from optsched.simulation.options import SimulationOptions
from optsched.simulation.recording import Stint
from optsched.simulation.run import SimulationRun
from optsched.simulation.truth import Truth
from optsched.traces import Trace


class Fluid(SimulationRun):
    """A trace under a formulation whose allocation is followed exactly.

    A new allocation is made when a job arrives, ends, or changes its rates, and when a node
    changes. Jobs are not placed on GPUs: gangs may be split, no job is preempted or restarted, and
    a failed node costs no steps. GPUs that the formulation leaves unused stay unused (mode
    ``rounds`` backfills them).

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
        super().__init__(trace, options, truth)
        instance = trace.instance
        self.allocator = Allocator(instance, policy, "mode fluid")
        if not instance.jobs_table.preemptible.all():
            self.notices.append(
                "fluid mode stops and starts nothing: jobs that cannot be preempted share too"
            )
        self._history = IsolatedHistory(truth.alone[: truth.jobs], instance.jobs_table.gpus_min)
        self._now = self.origin

    def run(self) -> None:
        now = self.origin
        number = 0
        while self._goes_on(now):
            number += 1
            self._count(number, "events")
            self._now = now
            for _, node, state in self.changes.until(now):
                self.allocator.instance = with_nodes(self.allocator.instance, {node: state})
            jobs = np.flatnonzero((self.arrival <= now) & ~self.gone)
            jobs = self._ready(self._without_work(jobs))
            coming = float(self.arrival[self.arrival > now].min(initial=np.inf))
            event = min(coming, self.changes.next, self.end)
            if not len(jobs):
                if not np.isfinite(event):
                    break
                gpus = self._gpus().astype(float)
                self.recorder.round(
                    now, event, running=0, waiting=0, busy=np.zeros(len(gpus)), gpus=gpus
                )
                now = event
                continue
            started = time.perf_counter()
            # Steps up to now have counted at the old rates; the new rates apply from now on.
            self._history.count(self.world.done)
            shares = self.allocator.shares(jobs, self.world, self._history.seconds, now)
            self._history.share(jobs, self._gpus())
            seconds = time.perf_counter() - started
            speed = self._speed(shares)
            until = min(event, now + self._next_end(jobs, speed))
            # There is always a next random failure, so it is no reason to go on.
            stuck = (
                not (speed[jobs] > 0).any()
                and not np.isfinite(coming)
                and not self.changes.lies_ahead
            )
            if stuck and not np.isfinite(self.end):
                self.notices.append(
                    f"{len(jobs)} jobs make no progress, and nothing lies ahead: "
                    f"given up at {now:g} s"
                )
                return
            # Time must advance, even if rounding puts the next end at now.
            until = max(until, float(np.nextafter(now, np.inf)))
            busy = self._advance(jobs, shares, speed, now, until)
            running = int((speed[jobs] > 0).sum())
            self.recorder.round(
                now,
                until,
                running=running,
                waiting=len(jobs) - running,
                busy=busy,
                gpus=self._gpus().astype(float),
                seconds=seconds,
                solved=True,
            )
            now = until
        self._note_end(now)

    def _without_work(self, jobs: IntArray) -> IntArray:
        """The jobs that have steps left; the others are complete at their arrival."""
        empty = jobs[self.world.steps[jobs] <= 0]
        self.gone[empty] = True
        self.recorder.finish[empty] = self.arrival[empty]
        return np.setdiff1d(jobs, empty)

    def _ready(self, jobs: IntArray) -> IntArray:
        """The jobs whose predecessors are complete."""
        after = self.instance.jobs_table.after
        waits = [
            job
            for job in jobs.tolist()
            if any(not self.gone[other] for other in after.get(job, ()))
        ]
        return np.setdiff1d(jobs, waits) if waits else jobs

    def _gpus(self) -> IntArray:
        pools = self.allocator.instance.cluster.pools
        return np.array([pool.capacity(self._now) for pool in pools], np.int64)

    def _speed(self, shares: TimeShares) -> FloatArray:
        """True steps/s of each job of the trace, over the time."""
        speed = np.zeros(len(self.arrival))
        # True rates are known for jobs alone only; a pair that shares GPUs runs at the rates of the
        # allocation.
        nobody = np.full(len(shares.job), -1)
        for job, rate in ((shares.job, shares.rate), (shares.partner, shares.partner_rate)):
            valid = np.flatnonzero(job >= 0)
            row = self.truth.row(job[valid], self.world.stage[job[valid]])
            known = self.truth.rates(
                row, nobody[valid], shares.pool[valid], shares.gpus[valid], shares.nodes[valid]
            )
            alone = (shares.partner[valid] < 0) & ~np.isnan(known)
            true = np.where(alone, known, rate[valid]) * self.world.factor[job[valid]]
            np.add.at(speed, job[valid], true * shares.fraction[valid])
        return speed

    def _next_end(self, jobs: IntArray, speed: FloatArray) -> float:
        """Seconds until a job ends or changes its rates."""
        world = self.world
        goal = np.minimum(world.steps[jobs], self.truth.next_change(jobs, world.stage[jobs]))
        left = quotient(goal - world.done[jobs], speed[jobs], np.inf)
        return float(np.maximum(left, 0.0).min(initial=np.inf))

    def _advance(
        self, jobs: IntArray, shares: TimeShares, speed: FloatArray, now: float, until: float
    ) -> FloatArray:
        """Advance the jobs to the time ``until``; returns GPU seconds by pool."""
        world = self.world
        world.done[jobs] += speed[jobs] * (until - now)
        goal = self.truth.next_change(jobs, world.stage[jobs])
        # A job within rounding of a change of rates takes it now. Otherwise the next step of time
        # would be 0.
        changed = jobs[world.done[jobs] >= goal * (1 - 1e-12)]
        world.done[changed] = np.maximum(
            world.done[changed], self.truth.next_change(changed, world.stage[changed])
        )
        world.stage[changed] += 1
        ended = jobs[world.finished[jobs]]
        world.done[ended] = world.steps[ended]
        self.gone[ended] = True
        self.recorder.finish[ended] = until
        # Both jobs of a pair have an entry, each with half of the GPUs.
        shared = np.flatnonzero(shares.partner >= 0)
        entry = np.concatenate([np.arange(len(shares.job)), shared])
        job = np.concatenate([shares.job, shares.partner[shared]])
        share = (shares.share * np.where(shares.partner >= 0, 0.5, 1.0))[entry]
        first = np.isnan(self.recorder.first_start[job])
        return self.recorder.stint(
            Stint(
                job,
                shares.pool[entry],
                shares.gpus[entry],
                shares.nodes[entry],
                np.full(len(job), -1),
                share,
                shares.fraction[entry],
                np.full(len(job), now),
                np.full(len(job), until),
                _once(job, first),
                np.zeros(len(job)),
            )
        )


def _once(job: IntArray, wanted: BoolArray) -> IntArray:
    """1 at the first entry of each job that is wanted, else 0."""
    first = np.zeros(len(job), np.int64)
    first[np.unique(job, return_index=True)[1]] = 1
    first[~wanted] = 0
    return first
