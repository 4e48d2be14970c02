"""The true progress of the jobs: steps, stages, lost work. A scheduler sees only what is reported
of it.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.values import cached_property
from optsched.simulation.truth import Truth

EARLY = 1e-15
"""Relative slack of the clock: a job that ends this little after a time ends at that time."""
WHOLE = 1e-9
"""Remaining steps, relative to all steps of a job, that count as rounding errors: the job is
complete.
"""


class World:
    """The progress of every job of a trace.

    Parameters
    ----------
    truth : Truth
    noise : float
        Standard deviation of the log of a job's rate around that of its performance model.
    seed : int

    Attributes
    ----------
    steps, done : FloatArray, shape (jobs,)
    stage : IntArray, shape (jobs,)
        0 at first, then one more with each regime.
    resumes : FloatArray, shape (jobs,)
        Time (seconds) when the state of a job is restored; it makes progress after that.
    lost : FloatArray, shape (jobs,)
        Steps done since the last checkpoint of a job when its node failed or a plan stopped it.
    """

    def __init__(self, truth: Truth, noise: float = 0.0, seed: int = 0) -> None:
        table = truth.candidates.instance.jobs_table
        count = truth.jobs
        self.truth = truth
        self.steps: FloatArray = table.steps[:count].copy()
        self.done: FloatArray = np.minimum(truth.done, self.steps)
        regimes = truth.regimes
        # A job with ``steps_done`` may already be in one of its regimes.
        begun = (
            regimes.job[regimes.after <= self.done[regimes.job]] if len(regimes) else regimes.job
        )
        self.stage: IntArray = np.bincount(begun, minlength=count).astype(np.int64)
        self.resumes: FloatArray = np.full(count, -np.inf)
        self.lost: FloatArray = np.zeros(count)
        self.factor: FloatArray = np.ones(count)
        if noise > 0:
            self.factor = np.exp(np.random.default_rng(seed).normal(0.0, noise, count))

    @property
    def finished(self) -> BoolArray:
        """Jobs without steps left, shape (jobs,)."""
        return self.done >= self._nearly_all

    @cached_property
    def _nearly_all(self) -> FloatArray:
        return self.steps * (1.0 - WHOLE)

    def rates(
        self,
        job: IntArray,
        partner: IntArray,
        pool: IntArray,
        gpus: IntArray,
        nodes: IntArray,
        believed: FloatArray,
    ) -> FloatArray:
        """True steps/s of jobs on the GPUs that they hold, in their present stage; ``believed`` if
        the truth states none.
        """
        row = self.truth.row(job, self.stage[job])
        beside = partner
        if (partner >= 0).any():
            beside = np.where(partner >= 0, self.truth.row(partner, self.stage[partner]), -1)
        rate = self.truth.rates(row, beside, pool, gpus, nodes)
        return np.where(np.isnan(rate), believed, rate) * self.factor[job]

    def run(
        self,
        job: IntArray,
        rate: FloatArray,
        place: tuple[IntArray, ...],
        start: float,
        until: FloatArray,
    ) -> FloatArray:
        """Run jobs; returns the time when each ends, at most ``until``.

        Parameters
        ----------
        job : IntArray, shape (k,)
        rate : FloatArray, shape (k,)
            steps/s in the present stage.
        place : tuple of IntArray, each of shape (k,)
            Partner (-1: none), pool, GPUs and nodes, for the rate of the next stage.
        start : float
            Seconds.
        until : FloatArray, shape (k,)
            When each job is stopped at the latest.
        """
        now = np.minimum(np.maximum(self.resumes[job], start), until)
        # A job that ends at `until` up to rounding has ended.
        latest = until + EARLY * np.abs(until)
        rate = rate.copy()
        live = np.flatnonzero(rate > 0)
        # Each pass takes all jobs to the end of their stage, so there are as many passes as stages.
        while len(live):
            running = job[live]
            goal = np.minimum(
                self.truth.next_change(running, self.stage[running]), self.steps[running]
            )
            left = np.maximum(goal - self.done[running], 0.0)
            with np.errstate(over="ignore"):
                ends = now[live] + left / rate[live]
            reached = ends <= latest[live]
            stopped = live[~reached]
            self.done[job[stopped]] += rate[stopped] * (until[stopped] - now[stopped])
            now[stopped] = until[stopped]
            live, running = live[reached], running[reached]
            self.done[running] = goal[reached]
            now[live] = ends[reached]
            on = self.done[running] < self._nearly_all[running]
            live, running = live[on], running[on]
            if len(live):
                self.stage[running] += 1
                partner, pool, gpus, nodes = (array[live] for array in place)
                rate[live] = self.rates(running, partner, pool, gpus, nodes, rate[live])
                live = live[rate[live] > 0]
        return np.where(self.finished[job], now, until)

    def lose(self, job: IntArray, steps: FloatArray) -> None:
        """Take ``steps`` steps from jobs: they restart from an earlier checkpoint."""
        steps = np.minimum(steps, self.done[job])
        self.done[job] -= steps
        self.lost[job] += steps
        # A checkpoint may lie several stages back.
        while ((back := self.stage[job] > 0) & (self.done[job] < self._began(job))).any():
            falls = back & (self.done[job] < self._began(job))
            self.stage[job[falls]] -= 1

    def _began(self, job: IntArray) -> FloatArray:
        """Steps done at which the present stage of jobs began."""
        return np.where(
            self.stage[job] > 0,
            self.truth.next_change(job, np.maximum(self.stage[job] - 1, 0)),
            0.0,
        )
