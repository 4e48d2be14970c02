"""The ``online`` model: another one, corrected by what is measured while jobs run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import Document, NonNegative, Positive, Share
from optsched.instance.reading import show, validate
from optsched.performance.composed.base import WrappedModel, the_one
from optsched.performance.composed.learnt import LearntDocument, learnt_document, read_learnt
from optsched.performance.composed.offsets import Offsets, Scales
from optsched.performance.configurations import Configurations
from optsched.performance.protocol import (
    Edges,
    Feasibility,
    JobBatch,
    Observations,
    PerformanceModel,
    Prediction,
    expand_edges,
)

LEARNT = "learnt"
"""The option that holds what was learnt."""


class SdDocument(Document):
    """Standard deviations, in log rate, of what a model may be wrong by."""

    workload: NonNegative = 0.106
    gpu: NonNegative = 0.075
    cell: Positive = 0.075


class OnlineDocument(Document):
    """Options of the online model beside ``of``."""

    sd: SdDocument = SdDocument()
    observation_sd: Positive = 0.05
    forget: Share = 0.9
    clip: Positive = 3.0
    learnt: LearntDocument = LearntDocument()


class OnlineModel(WrappedModel):
    """Rates of another model times what measurements say that it is wrong by.

    For workload w, GPU type g and cell c (w on k GPUs and n nodes of g), with the rate r_c of the other model,

        log rate_c = log r_c + a_w + b_wg + d_c,    a ~ N(0, s_a^2),  b ~ N(0, s_b^2),  d ~ N(0, s_d^2),

    and a measured rate o_c has log o_c = log rate_c + N(0, s_o^2). What is returned is the posterior median and its
    standard deviation (`Offsets`). A measurement further than ``clip`` standard deviations from what was expected
    counts as one at that distance (Huber). With each call that measures a workload its older measurements count
    ``forget`` times as much.

    The parts of s = (s_a, s_b, s_d) make 0.15 together by default, the error of a good model. Until a workload has been
    measured, its rates and uncertainties are those of the other model.

    Options
        of              the performance object that is corrected.
        sd              {workload, gpu, cell}: s_a, s_b, s_d (0.106, 0.075, 0.075).
        observation_sd  s_o (0.05: a mean over 50 steps or more).
        forget          in (0, 1] (0.9).
        clip            in standard deviations (3).
        learnt          what has been measured so far, by names (`LearntDocument`); `with_learnt` writes it. Cells of
                        workloads and GPU types that the instance has not now are kept until it has them again.
    """

    name = "online"
    corrects = True

    def __init__(
        self, instance: Instance, of: PerformanceModel, document: OnlineDocument | None = None
    ) -> None:
        document = OnlineDocument() if document is None else document
        super().__init__(of)
        self._learnt = 0
        scales = Scales(
            document.sd.workload**2, document.sd.gpu**2, document.sd.cell**2, document.observation_sd**2,
            document.forget, document.clip,
        )  # fmt: skip
        types: dict[str, int] = {}
        rows = [types.setdefault(pool.gpu, len(types)) for pool in instance.cluster.pools]
        self._type = np.array([*rows, -1], np.int64)
        workloads = {workload.name: row for row, workload in enumerate(instance.workloads)}
        self._names = (tuple(workloads), tuple(types))
        cells, self._away = read_learnt(document.learnt, workloads, types)
        self._offsets = Offsets(scales, len(workloads), len(types), cells)

    @property
    def version(self) -> int:
        """Grows with every call that measures something."""
        return self.of.version + self._learnt

    @classmethod
    def from_parts(
        cls, instance: Instance, options: Mapping[str, Any], parts: Sequence[PerformanceModel]
    ) -> Self:
        """The corrected version of one model."""
        return cls(
            instance, the_one(parts, cls.name), validate(OnlineDocument, options, "performance")
        )

    def predict(
        self, jobs: JobBatch, configurations: Configurations, *, edges: Edges | None = None
    ) -> Prediction:
        job, configuration, shape = expand_edges(jobs, configurations, edges)
        before = self.of.predict(jobs, configurations, edges=(job, configuration))
        offset, variance = self._offsets.of(
            jobs.workload[job], *self._cell(configurations, configuration)
        )
        runs = before.feasible == Feasibility.OK
        rate = np.where(runs, before.rate * np.exp(offset), 0.0)
        known = runs & ~np.isnan(variance)
        log_sd = np.where(known, np.sqrt(np.where(known, variance, 0.0)), before.log_sd)
        return Prediction(
            rate.reshape(shape),
            log_sd.reshape(shape),
            before.feasible.reshape(shape),
            before.source.reshape(shape),
        )

    def observe(self, observations: Observations) -> set[int]:
        """Learn from measured rates, steps/s; returns the workloads whose rates changed.

        Measurements of jobs without a workload, and where the other model knows no rate, teach nothing.

        Raises
        ------
        InvalidInput
            Where a measured rate is not a finite number above 0; nothing is learnt then.
        """
        wrong = np.flatnonzero(~((observations.rate > 0) & np.isfinite(observations.rate)))
        if len(wrong):
            raise InvalidInput(
                f"observations[{wrong[0]}].rate",
                show(float(observations.rate[wrong[0]])),
                "a finite rate above 0",
            )
        below = self.of.observe(observations)
        job = np.arange(len(observations.rate), dtype=np.int64)
        edges = (job, observations.configuration)
        before = self.of.predict(observations.jobs, observations.configurations, edges=edges)
        workload = observations.jobs.workload
        teaches = np.flatnonzero((before.feasible == Feasibility.OK) & (workload >= 0))
        if len(teaches) == 0:
            return below
        cell = self._cell(observations.configurations, observations.configuration[teaches])
        self._offsets.learn(
            workload[teaches], *cell, np.log(observations.rate[teaches] / before.rate[teaches])
        )
        self._learnt += 1
        return below | set(workload[teaches].tolist())

    def with_learnt(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """`optsched.performance.LearningModel`: the option ``learnt``, left out while nothing has been measured."""
        told = {
            name: value for name, value in super().with_learnt(document).items() if name != LEARNT
        }
        learnt = learnt_document(self._offsets.cells, *self._names, self._away)
        return told | ({LEARNT: learnt} if learnt["workload"] else {})

    def offsets(self) -> FloatArray:
        """a_w of each workload, shape (W,): how far the other model is off, in log rate."""
        return self._offsets.by_workload()

    def _cell(
        self, configurations: Configurations, rows: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        return (
            self._type[configurations.pool[rows]],
            configurations.gpus[rows],
            configurations.nodes[rows],
        )
