"""The ``interference`` model:
rates of jobs that share GPUs, from their rates alone and the fractions that they keep.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optsched.arrays import IntArray
from optsched.instance import Instance
from optsched.instance.documents import Document
from optsched.performance.batches import Batches
from optsched.performance.composed.base import WrappedModel, corrects
from optsched.performance.configurations import Configurations
from optsched.performance.files import PERFORMANCE
from optsched.performance.learned import Pairs, make_pair_model
from optsched.performance.protocol import (
    Edges,
    Feasibility,
    JobBatch,
    PairPrediction,
    PerformanceModel,
    Prediction,
)


class InterferenceDocument(Document):
    """Options of the interference model beside ``of``."""

    pairs: Any


class Interference(WrappedModel):
    """Jobs that share GPUs keep a fraction of their rates, given by a model of pairs.

    Beside job b, in one configuration, job a runs at  rate(a) x fraction_g(a | b).

    rate(a) is the rate of a alone in the configuration by the base model, g the GPU type of its
    pool, and fraction the prediction of a model of pairs for the two workloads. A workload is found
    by its name if the pair model knows it, else by its ``profile``.

    Pairs are profiled on one GPU; the same fractions are assumed on several. Jobs alone have the
    rates of the base model.

    Options: ``of``, a performance object, the base; ``pairs``, the document of a model of pairs.
    """

    name = "interference"
    Options = InterferenceDocument
    pairs_by_workload = True

    def __init__(
        self, instance: Instance, of: PerformanceModel, options: InterferenceDocument
    ) -> None:
        super().__init__(instance, of)
        self.corrects = corrects(of)
        self.pairs = make_pair_model(options.pairs, f"{PERFORMANCE}.pairs")
        known = set(self.pairs.workloads)
        # A measured pair may have the name of the workload, or of the profile that several
        # workloads share.
        names = zip(
            (workload.name for workload in instance.workloads),
            Batches.of(instance).names,
            strict=True,
        )
        self._workloads = tuple(name if name in known else profile for name, profile in names)
        self._gpu_types = tuple(pool.gpu for pool in instance.cluster.pools)

    def predict(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        *,
        edges: Edges | None = None,
    ) -> Prediction:
        return self.of.predict(jobs, configurations, edges=edges)

    def pair_fractions(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        first: IntArray,
        second: IntArray,
        configuration: IntArray,
    ) -> PairPrediction:
        """`optsched.performance.ColocatingModel`.

        `NO_RATE` if the model of pairs does not know a pair or a job has no workload;
        `OUT_OF_MEMORY` if the pair was measured and could not run together.
        """
        a = jobs.workload[first]
        b = jobs.workload[second]
        asked = np.flatnonzero((a >= 0) & (b >= 0) & (configurations.pool[configuration] >= 0))
        fractions = self.pairs.fractions(
            Pairs(
                configurations.pool[configuration[asked]],
                a[asked],
                b[asked],
                self._gpu_types,
                self._workloads,
            )
        )
        # Three answers are distinguished: unknown, measured as impossible (0 and 0), a fraction.
        known = ~np.isnan(fractions.first) & ~np.isnan(fractions.second)
        runs = known & (fractions.first > 0) & (fractions.second > 0)
        keeps, other_keeps, log_sd = (np.zeros(len(first)) for _ in range(3))
        feasible = np.full(len(first), Feasibility.NO_RATE, np.uint8)
        source = np.zeros(len(first), np.uint8)
        keeps[asked] = np.where(runs, fractions.first, 0.0)
        other_keeps[asked] = np.where(runs, fractions.second, 0.0)
        log_sd[asked] = np.where(runs, fractions.log_sd, 0.0)
        feasible[asked[known]] = Feasibility.OUT_OF_MEMORY
        feasible[asked[runs]] = Feasibility.OK
        source[asked] = fractions.source
        return PairPrediction(keeps, other_keeps, log_sd, feasible, source)
