"""What each job has had so far: time and GPU time, starts, and since when it waits."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray


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
    """

    executed: FloatArray
    attained: FloatArray
    waiting_since: FloatArray
    first_run: FloatArray
    starts: IntArray

    @classmethod
    def new(cls, arrival: FloatArray, running: BoolArray, now: float) -> Service:
        """Of jobs that nothing is known of, but whether they run."""
        count = len(arrival)
        since = np.where(running, np.inf, np.minimum(arrival, now))
        return cls(
            np.zeros(count), np.zeros(count), since, np.where(running, now, np.inf), running.astype(np.int64)
        )  # fmt: skip

    def revised(self, rows: IntArray, added: Service) -> Service:
        """Those at these rows, in that order, then the added ones."""
        names = [field.name for field in fields(self)]
        return Service(**{name: np.concatenate([getattr(self, name)[rows], getattr(added, name)]) for name in names})

    def after(self, seconds: float, gpus: FloatArray) -> Service:
        """After some seconds in which each job held so many GPUs."""
        return replace(
            self, executed=self.executed + seconds * (gpus > 0), attained=self.attained + seconds * gpus
        )

    def set_running(self, started: BoolArray, running: BoolArray, now: float) -> Service:
        """After a plan: which jobs were put on GPUs, and which run."""
        return replace(
            self,
            waiting_since=np.where(running, np.inf, np.where(np.isinf(self.waiting_since), now, self.waiting_since)),
            first_run=np.where(started, np.minimum(self.first_run, now), self.first_run),
            starts=self.starts + started,
        )

    def waited(self, now: float) -> FloatArray:
        """Seconds that each job has waited; 0 for those that run."""
        return np.where(np.isinf(self.waiting_since), 0.0, np.maximum(now - self.waiting_since, 0.0))
