"""The record of a simulation as arrays: jobs, rounds, and which job held which GPUs when."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, group_rows
from optsched.arrays.columns import Columns
from optsched.display import Displayed, count
from optsched.instance import Instance
from optsched.instance.durations import HOUR


@dataclass(frozen=True, repr=False)
class JobLog(Displayed):
    """The record of each job; arrays of shape (jobs,), times in seconds on the clock of the trace.

    Attributes
    ----------
    first_start, finish : FloatArray
        NaN for a job that never started, or was not complete at the end of the simulation.
    steps_done : FloatArray
    held : FloatArray
        Seconds that it held GPUs.
    gpu_seconds : FloatArray
        GPU seconds; of GPUs that two jobs share, each has half.
    restoring : FloatArray
        GPU seconds of these in which the job made no progress because it restored its state.
    starts : IntArray
        How often the job was started: once, and again after each preemption, migration or failure.
    lost : FloatArray
        Steps that were done and then lost because a node failed.
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

    def _headline(self) -> str:
        return f"of {count(len(self.finish), 'job')}"


@dataclass(frozen=True, repr=False)
class RoundLog(Columns):
    """Rounds, or intervals between two events; arrays of shape (rounds,) unless stated.

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
        Free GPUs on nodes where other GPUs are in use, a measure of fragmentation.
    seconds : FloatArray
        Wall time of the plan.
    solved : BoolArray
        Whether a program was solved or a ranking was computed for this round.
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

    def _headline(self) -> str:
        return f"of {count(len(self), 'round')}"


@dataclass(frozen=True, repr=False)
class Segments(Columns):
    """Which job held which GPUs, from when to when; arrays of length S, sorted by start.

    Attributes
    ----------
    job : IntArray
    start, end : FloatArray
    pool, gpus, nodes : IntArray
        Pool, number of GPUs, and nodes that they are spread over.
    first_gpu : IntArray
        Number of the lowest GPU (`optsched.instance.cluster.Numbering`); -1 where none is known
        (fluid mode).
    """

    job: IntArray
    start: FloatArray
    end: FloatArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    first_gpu: IntArray


@dataclass(frozen=True, repr=False)
class Stint(Columns):
    """The jobs that run in an interval; arrays of length k, one entry per job.

    Attributes
    ----------
    job, pool, gpus, nodes, first_gpu : IntArray
        As in `Segments`.
    share, time : FloatArray
        Fraction of its GPUs that is counted for the job: 0.5 if two jobs share them. And fraction
        of the time for which it holds them; less than 1 in fluid mode only.
    start, end : FloatArray
        Seconds; the GPUs are held in between.
    fresh : IntArray
        1 if the job was started on these GPUs at the start of the interval, else 0.
    restoring : FloatArray
        Seconds at the start of the interval in which the job makes no progress because it restores
        its state.
    """

    job: IntArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    first_gpu: IntArray
    share: FloatArray
    time: FloatArray
    start: FloatArray
    end: FloatArray
    fresh: IntArray
    restoring: FloatArray


class Recorder:
    """Collects totals of jobs, and one entry per round."""

    def __init__(self, instance: Instance, segments: bool = True) -> None:
        count = len(instance.jobs_table)
        pools = instance.cluster.pools
        self._pools = len(pools)
        self._price = np.array([pool.cost_per_gpu_hour or 0.0 for pool in pools])
        self.first_start = np.full(count, np.nan)
        self.finish = np.full(count, np.nan)
        self.held = np.zeros(count)
        self.gpu_seconds = np.zeros(count)
        self.cost = np.zeros(count)
        self.restoring: FloatArray = np.zeros(count)
        self.starts = np.zeros(count, np.int64)
        self._rounds: list[dict[str, Any]] = []
        self._stints: list[Stint] | None = [] if segments else None

    def stint(self, stint: Stint) -> FloatArray:
        """Record the jobs that ran in an interval; returns GPU seconds by pool."""
        seconds = stint.end - stint.start
        gpu_seconds = seconds * stint.time * stint.gpus * stint.share
        job = stint.job
        count = len(self.held)
        for total, more in (
            (self.held, seconds * stint.time),
            (self.gpu_seconds, gpu_seconds),
            (self.cost, gpu_seconds * self._price[stint.pool] / HOUR),
            (self.restoring, np.minimum(stint.restoring, seconds) * stint.gpus * stint.share),
        ):
            total += np.bincount(
                job, more, minlength=count
            )  # a job may have several parts in fluid mode
        self.starts += np.bincount(job, stint.fresh, minlength=count).astype(np.int64)
        self.first_start[job] = np.fmin(self.first_start[job], stint.start)
        if self._stints is not None and len(job):
            self._stints.append(stint)
        return np.bincount(stint.pool, gpu_seconds, minlength=self._pools).astype(np.float64)

    def round(
        self,
        start: float,
        end: float,
        *,
        running: int,
        waiting: int,
        busy: FloatArray,
        gpus: FloatArray,
        stranded: float = 0.0,
        seconds: float = 0.0,
        solved: bool = False,
        fallback: bool = False,
    ) -> None:
        """Record one round; the arguments are fields of `RoundLog`."""
        self._rounds.append({name: value for name, value in locals().items() if name != "self"})

    def jobs(self, steps_done: FloatArray, lost: FloatArray) -> JobLog:
        """The `JobLog` of what was recorded."""
        return JobLog(
            self.first_start,
            self.finish,
            steps_done,
            self.held,
            self.gpu_seconds,
            self.restoring,
            self.starts,
            lost,
            self.cost,
        )

    def rounds(self) -> RoundLog:
        """The `RoundLog` of what was recorded."""
        types = {"running": np.int64, "waiting": np.int64, "solved": bool, "fallback": bool}
        columns = {
            field.name: np.array(
                [record[field.name] for record in self._rounds], types.get(field.name, float)
            )
            for field in fields(RoundLog)
        }
        for name in ("busy", "gpus"):
            columns[name] = columns[name].reshape(-1, self._pools)
        return RoundLog(**columns)

    def segments(self) -> Segments:
        """The `Segments` of what was recorded. Consecutive stints of a job on the same GPUs are
        merged.
        """
        if not self._stints:
            times = np.zeros(0)
            return Segments(EMPTY, times, times, EMPTY, EMPTY, EMPTY, EMPTY)
        stints = Stint.join(self._stints)
        stints = stints.take(np.lexsort((stints.start, stints.job)))
        # A job that is restarted on the same GPUs begins a new segment.
        same = (stints.start[1:] <= stints.end[:-1]) & (stints.fresh[1:] == 0)
        for name in ("job", "pool", "gpus", "nodes", "first_gpu"):
            column = getattr(stints, name)
            same &= column[1:] == column[:-1]
        begins = stints.take(np.append(True, ~same))
        segments = Segments(
            begins.job,
            begins.start,
            stints.end[np.append(~same, True)],
            begins.pool,
            begins.gpus,
            begins.nodes,
            begins.first_gpu,
        )
        return segments.take(np.lexsort((segments.job, segments.start)))


def spread_of(
    owner: IntArray, gpu: IntArray, node: IntArray, count: int
) -> tuple[IntArray, IntArray]:
    """Number of nodes that the GPUs of each of ``count`` owners are on, and its lowest GPU (-1 for
    none).
    """
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, owner, gpu)
    pairs = group_rows([owner, node], len(owner)).first
    return np.bincount(owner[pairs], minlength=count).astype(np.int64), np.where(
        first == np.iinfo(np.int64).max, -1, first
    )
