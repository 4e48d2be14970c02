"""Tiresias: two-dimensional least attained service in a few queues."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field, field_validator

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.instance.documents import Positive, refused
from optsched.ranking import RankedJobs, Ranking, RankingOptions

LIMITS, LIMITS_OF_CLASSES = (3250.0, 7200.0), (3600.0,)
"""Limits that the published simulator uses, in GPU seconds.
It lists a third one, 18000, for a fourth queue that it does not have."""


class Tiresias(Ranking):
    """Jobs in few queues by the GPU time that they have had; first in, first out inside a queue.

    Sets and parameters
        L_1 < ... < L_k     limits, GPU seconds; k limits divide k + 1 queues, the first of them queue 0
        a_j, t_j            GPU seconds and seconds that job j has had, since it was last renewed
        s_j                 seconds that it has waited since it last ran
        p                   knob

    Key
        (q_j, arrival_j)    q_j = |{i: a_j >= L_i}|, the queue of job j

    A job whose a_j reaches the limit of its queue is demoted, and goes behind all jobs of the
    queues before. As jobs do not overtake each other inside a queue, there are far fewer stops than
    with `2d-las`; with ever more limits, ever closer to each other, the order becomes that of
    `2d-las`, and without any it is that of `fcfs`.

    With a knob, a job that waits, q_j > 0, and has waited long enough for what it has had,

        s_j >= p t_j,

    is renewed: it returns to queue 0 with a_j = t_j = 0.

    With ``classes``, jobs with the same number of GPUs have their own queues, and the classes go
    side by side, each with a part of the GPUs in proportion to its demand. With D_c the GPUs that
    the jobs of class c need, and G_j those of job j and of all jobs before it in its class, the
    key is

        (G_j / D_c, g_j)

    so that on M GPUs, with D the demand of all classes, those jobs come first that have room in
    their part of them: G_j <= M D_c / D.

    The published simulator differs in three things: a job goes down one queue at a time, and inside
    a queue jobs stand in the order in which they came into it, those that run before those that
    wait; s_j adds up all that a job has waited since it was last in queue 0; and parts of the GPUs
    are rounded and kept for a while.

    Options
        limits   L, rising GPU seconds (default: 3250, 7200; with classes 3600).
        knob     p; without it nothing is renewed.
        classes  queues for each number of GPUs.

    References
        J. Gu, M. Chowdhury, K. G. Shin, Y. Zhu, M. Jeon, J. Qian, H. Liu, C. Guo, "Tiresias: A GPU
        cluster manager for distributed deep learning", NSDI 2019; its simulator
        (SymbioticLab/Tiresias) for the numbers and the classes.
    """

    name = "tiresias"
    reads = frozenset({"arrival"})

    class Options(RankingOptions):
        limits: list[Positive] | None = None
        knob: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None
        classes: bool = False

        @field_validator("limits")
        @classmethod
        def _rising(cls, limits: list[float] | None) -> list[float] | None:
            for row, (one, other) in enumerate(pairwise(limits or ())):
                if other <= one:
                    expected = f"more than the limit before it, {one:g}"
                    raise refused(f"{other:g}", expected, f"[{row + 1}]")
            return limits

    options: Options

    @property
    def limits(self) -> FloatArray:
        """Limits L of the queues, GPU seconds, shape (k,)."""
        given = self.options.limits
        return np.array(
            (LIMITS_OF_CLASSES if self.options.classes else LIMITS) if given is None else given,
            np.float64,
        )

    def queue(self, jobs: RankedJobs) -> IntArray:
        """Queue q of each job, shape (n,)."""
        return np.searchsorted(self.limits, jobs.attained, side="right")

    def renews(self, jobs: RankedJobs) -> BoolArray:
        p = self.options.knob
        if p is None:
            return super().renews(jobs)
        return np.asarray(
            (jobs.waited > 0) & (self.queue(jobs) > 0) & (jobs.waited >= p * jobs.executed)
        )

    def keys(self, jobs: RankedJobs) -> tuple[FloatArray | IntArray, ...]:
        q, g = self.queue(jobs), np.maximum(jobs.gpus, 1)
        if not self.options.classes:
            return q, jobs.arrival
        order = np.lexsort((jobs.job, jobs.arrival, q, g))
        _, first, number = np.unique(g[order], return_index=True, return_inverse=True)
        total = np.cumsum(g[order])
        before = np.concatenate(([0], total))[first]  # GPUs of the classes before
        D = np.diff(np.append(before, total[-1:]))
        share = np.empty(len(jobs))
        share[order] = (total - before[number]) / D[number]
        return share, g
