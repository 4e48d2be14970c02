"""What came of a simulation: arrays over jobs and rounds, and who held which GPUs when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.simulation.options import RHO
from optsched.traces import Trace


@dataclass(frozen=True)
class JobLog:
    """What became of each job; arrays of shape (jobs,), times in seconds on the clock of the trace.

    Attributes
    ----------
    first_start, finish : FloatArray
        NaN for a job that never started, or was not complete in the end.
    steps_done : FloatArray
    held : FloatArray
        Seconds that it held GPUs.
    gpu_seconds : FloatArray
        GPU seconds; of GPUs that two jobs share, each has half.
    restoring : FloatArray
        GPU seconds of these in which it made no progress, as it restored its state.
    starts : IntArray
        How often it was put on GPUs: once, and after each preemption, move or failure again.
    lost : FloatArray
        Steps that were made and lost with nodes that failed.
    cost : FloatArray
        USD, at the prices of the pools; 0 where these are not known.
    """

    first_start: FloatArray
    finish: FloatArray
    steps_done: FloatArray
    held: FloatArray
    gpu_seconds: FloatArray
    restoring: FloatArray
    starts: IntArray
    lost: FloatArray
    cost: FloatArray


@dataclass(frozen=True)
class RoundLog:
    """Rounds, or the times between two events; arrays of shape (rounds,) unless stated.

    Attributes
    ----------
    start, end : FloatArray
        Seconds.
    running, waiting : IntArray
        Jobs that have arrived and are not complete.
    busy : FloatArray, shape (rounds, pools)
        GPU seconds.
    gpus : FloatArray, shape (rounds, pools)
        GPUs of the nodes that are up.
    stranded : FloatArray
        GPUs that are free on nodes that are in use, a measure of fragmentation.
    seconds : FloatArray
        Wall time of the plan.
    solved : BoolArray
        Whether a program was solved, or an order made, for it.
    fallback : BoolArray
        Whether the plan did not follow a new allocation.
    """

    start: FloatArray
    end: FloatArray
    running: IntArray
    waiting: IntArray
    busy: FloatArray
    gpus: FloatArray
    stranded: FloatArray
    seconds: FloatArray
    solved: BoolArray
    fallback: BoolArray

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Segments:
    """Who held what, from when to when; arrays of length S, by start.

    Attributes
    ----------
    job : IntArray
    start, end : FloatArray
    pool, gpus, nodes : IntArray
        Pool, number of GPUs, and nodes that they are spread over.
    first_gpu : IntArray
        Number of the lowest GPU (`optsched.instance.cluster.Numbering`); -1 where none is known (fluid mode).
    """

    job: IntArray
    start: FloatArray
    end: FloatArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    first_gpu: IntArray

    def __len__(self) -> int:
        return len(self.job)


@dataclass(frozen=True)
class Simulation:
    """A simulated trace.

    Attributes
    ----------
    trace : Trace
        With the performance object by which jobs ran.
    policy : str
        What decided, in one word or two.
    options : mapping
        Options of the simulation, as given.
    measured : BoolArray, shape (jobs,)
        Jobs that count in the metrics: those between warm-up and cool-down.
    jobs : JobLog
    rounds : RoundLog
    segments : Segments
    notices : tuple of str
        What the user should know of.
    """

    trace: Trace
    policy: str
    options: Mapping[str, Any]
    measured: BoolArray
    jobs: JobLog
    rounds: RoundLog
    segments: Segments
    notices: tuple[str, ...] = field(default=())

    @cached_property
    def completed(self) -> BoolArray:
        """Jobs that were complete in the end, shape (jobs,)."""
        return ~np.isnan(self.jobs.finish)

    @cached_property
    def completion_times(self) -> FloatArray:
        """Seconds from the arrival of a job to its end (JCT), shape (jobs,); NaN where it has none."""
        return self.jobs.finish - self.trace.instance.jobs_table.arrival

    def metrics(self, *, rho: RHO = "isolated", unfair: float = 1.0) -> dict[str, float | None]:
        """The numbers that describe it (`optsched.simulation.metrics.metrics`)."""
        from optsched.simulation.metrics import metrics

        return metrics(self, rho=rho, unfair=unfair)
