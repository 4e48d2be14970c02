"""What each job has had so far: time and GPU time, starts, and since when it waits."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.instance.documents import LARGEST


@dataclass(frozen=True)
class Service:
    """Arrays of shape (jobs,).

    Attributes
    ----------
    executed : FloatArray
        Seconds that a job has held GPUs.
    attained : FloatArray
        GPU seconds; where two jobs share a GPU, each has had all of it.
    waiting_since : FloatArray
        When it last had none; inf while it runs.
    first_run : FloatArray
        When it first had some; inf before.
    starts : IntArray
        How often it was put on GPUs.
    speed : FloatArray
        steps/s that it is reckoned to make while it runs as it does now; 0 while it waits.
    resumes : FloatArray
        Seconds from which on it makes progress: a job that is started again restores its state
        first.
    executed_before, attained_before : FloatArray
        What it had when a ranking last renewed it (`optsched.ranking.Ranking.renews`): that does
        not count for its rank any more; 0 before.
    isolated : FloatArray
        steps/s at which its steps count as isolated time (``history.isolated_time``); 0 where they
        do not.
    counted : FloatArray
        Steps that have been counted so.
    """

    executed: FloatArray
    attained: FloatArray
    waiting_since: FloatArray
    first_run: FloatArray
    starts: IntArray
    speed: FloatArray
    resumes: FloatArray
    executed_before: FloatArray
    attained_before: FloatArray
    isolated: FloatArray
    counted: FloatArray

    @classmethod
    def new(cls, arrival: FloatArray, running: BoolArray, now: float) -> Service:
        """Of jobs that nothing is known of, but whether they run."""
        count = len(arrival)
        since = np.where(running, np.inf, np.minimum(arrival, now))
        first = np.where(running, now, np.inf)
        zero = np.zeros(count)
        return cls(zero, zero, since, first, running.astype(np.int64), *(zero for _ in range(6)))

    def revised(self, rows: IntArray, added: Service) -> Service:
        """Those at these rows, in that order, then the added ones."""
        names = [field.name for field in fields(self)]
        return Service(
            **{
                name: np.concatenate([getattr(self, name)[rows], getattr(added, name)])
                for name in names
            }
        )

    def after(self, seconds: float, gpus: FloatArray) -> Service:
        """After some seconds in which each job held so many GPUs."""
        return replace(
            self,
            executed=np.minimum(self.executed + seconds * (gpus > 0), LARGEST),
            attained=np.minimum(self.attained + seconds * gpus, LARGEST),
        )

    def progress(self, now: float, seconds: float) -> FloatArray:
        """Steps that each job is reckoned to make in the seconds after ``now``."""
        return self.speed * np.clip(now + seconds - np.maximum(self.resumes, now), 0.0, seconds)

    def isolated_time(self, steps_done: FloatArray) -> FloatArray:
        """Seconds that the steps done since they were counted last would have taken in isolation."""
        return isolated_seconds(steps_done - self.counted, self.isolated)

    def planned(
        self,
        started: BoolArray,
        running: BoolArray,
        speed: FloatArray,
        cost: FloatArray,
        now: float,
    ) -> Service:
        """After a plan.

        Parameters
        ----------
        started, running : BoolArray
            Jobs that are put on GPUs, and all that run.
        speed : FloatArray
            steps/s of those that run.
        cost : FloatArray
            Seconds that a restart takes; a job that never ran has nothing to restore.
        now : float
        """
        # A job that never ran has no state to restore.
        again = started & (self.starts > 0)
        return replace(
            self,
            waiting_since=np.where(
                running, np.inf, np.where(np.isinf(self.waiting_since), now, self.waiting_since)
            ),
            first_run=np.where(started, np.minimum(self.first_run, now), self.first_run),
            starts=self.starts + started,
            speed=np.where(running, speed, 0.0),
            resumes=np.where(again, now + cost, np.where(started, now, self.resumes)),
        )

    def renewed(self, jobs: BoolArray) -> Service:
        """After a ranking renewed the jobs of a mask."""
        return replace(
            self,
            executed_before=np.where(jobs, self.executed, self.executed_before),
            attained_before=np.where(jobs, self.attained, self.attained_before),
        )

    def stopped(self, jobs: BoolArray, now: float) -> Service:
        """After the jobs of a mask stopped running."""
        ran = jobs & np.isinf(self.waiting_since)
        return replace(
            self,
            waiting_since=np.where(ran, now, self.waiting_since),
            speed=np.where(jobs, 0.0, self.speed),
        )

    def waited(self, now: float) -> FloatArray:
        """Seconds that each job has waited; 0 for those that run."""
        return np.where(
            np.isinf(self.waiting_since), 0.0, np.maximum(now - self.waiting_since, 0.0)
        )


def isolated_seconds(steps: FloatArray, rate: FloatArray) -> FloatArray:
    """Seconds that steps take at the rate of isolation (steps/s); 0 where that is 0."""
    counts = rate > 0
    made = np.where(counts, np.maximum(steps, 0.0), 0.0)
    return np.divide(made, rate, out=np.zeros(len(made)), where=counts)
