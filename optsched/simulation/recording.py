"""What happens in a simulation as arrays: over jobs, over rounds, and who held which GPUs when."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows
from optsched.arrays.columns import Columns
from optsched.display import Displayed, count
from optsched.instance import Instance
from optsched.instance.durations import HOUR


@dataclass(frozen=True, repr=False)
class JobLog(Displayed):
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

    def _headline(self) -> str:
        return f"of {count(len(self.finish), 'job')}"


@dataclass(frozen=True, repr=False)
class RoundLog(Columns):
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

    def _headline(self) -> str:
        return f"of {count(len(self), 'round')}"


@dataclass(frozen=True, repr=False)
class Segments(Columns):
    """Who held what, from when to when; arrays of length S, by start.

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
    """What runs for some time; arrays of length k, one entry per job.

    Attributes
    ----------
    job, pool, gpus, nodes, first_gpu : IntArray
        As in `Segments`.
    share, time : FloatArray
        Part of its GPUs that counts as the job's own, a half where two jobs share them; and part of
        the time for which it has them, less than 1 in fluid mode only.
    start, end : FloatArray
        Seconds; the GPUs are held in between.
    fresh : IntArray
        1 where the job was put on these GPUs at the start of it, else 0.
    restoring : FloatArray
        Seconds at the start of it in which the job makes no progress: it restores its state.
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
    """Sums over jobs, and what each round was."""

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
        self._rounds: list[
            tuple[float, float, int, int, FloatArray, FloatArray, float, float, bool, bool]
        ] = []
        self._stints: list[Stint] | None = [] if segments else None

    def stint(self, stint: Stint) -> FloatArray:
        """What ran for some time; returns GPU seconds by pool."""
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
        """One round, as `RoundLog` has it."""
        self._rounds.append(
            (start, end, running, waiting, busy, gpus, stranded, seconds, solved, fallback)
        )

    def jobs(self, steps_done: FloatArray, lost: FloatArray) -> JobLog:
        """What became of the jobs."""
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
        """What the rounds were."""
        start, end, running, waiting, busy, gpus, stranded, seconds, solved, fallback = (
            zip(*self._rounds, strict=True) if self._rounds else ([],) * 10
        )
        return RoundLog(
            np.array(start, float),
            np.array(end, float),
            np.array(running, np.int64),
            np.array(waiting, np.int64),
            np.array(busy, float).reshape(-1, self._pools),
            np.array(gpus, float).reshape(-1, self._pools),
            np.array(stranded, float),
            np.array(seconds, float),
            np.array(solved, bool),
            np.array(fallback, bool),
        )

    def segments(self) -> Segments:
        """Who held what: the stints of one job that follow each other on the same GPUs are one."""
        none = np.zeros(0, np.int64)
        if not self._stints:
            return Segments(none, none.astype(float), none.astype(float), none, none, none, none)
        stints = Stint.join(self._stints)
        stints = stints.take(np.lexsort((stints.start, stints.job)))
        # A job that was put on the same GPUs anew begins a new segment.
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
    """Nodes that the GPUs of each of ``count`` owners are spread over,
    and the lowest of its GPUs (-1 for none).
    """
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, owner, gpu)
    pairs = group_rows([owner, node], len(owner)).first
    return np.bincount(owner[pairs], minlength=count).astype(np.int64), np.where(
        first == np.iinfo(np.int64).max, -1, first
    )
