"""The ``interference`` model: rates of jobs that share GPUs, from their rates alone and what they keep of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from optsched.arrays import IntArray
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.performance.batches import Batches
from optsched.performance.composed import ComposedModel, refuse_options, the_one
from optsched.performance.configurations import Configurations
from optsched.performance.learned.pair_models import make_pair_model
from optsched.performance.learned.pairs import PairModel, Pairs
from optsched.performance.protocol import (
    Edges,
    Feasibility,
    JobBatch,
    Observations,
    PairPrediction,
    PerformanceModel,
    Prediction,
)

PAIRS = "pairs"


class Interference(ComposedModel):
    """Beside job b, in one configuration, job a runs at  rate(a) x fraction_g(a | b).

    rate(a) is what the base says of a alone in the configuration, g the GPU type of its pool and fraction what a model
    of pairs says of the two workloads (by their ``profile``, else by their names). Pairs are profiled on one GPU; on
    several, a pair is taken to keep the same fractions.

    Alone, jobs run as the base says.

    Options: ``of``, a performance object, the base; ``pairs``, the document of a model of pairs.
    """

    name = "interference"

    def __init__(self, instance: Instance, base: PerformanceModel, pairs: PairModel) -> None:
        self.base, self.pairs = base, pairs
        self._workloads = Batches.of(instance).names
        self._gpu_types = tuple(pool.gpu for pool in instance.cluster.pools)

    @property
    def version(self) -> int:
        """That of the base."""
        return self.base.version

    @classmethod
    def from_parts(cls, instance: Instance, options: Mapping[str, Any], parts: Sequence[PerformanceModel]) -> Self:
        """The model of its base; see the class for its options."""
        others = dict(options)
        if PAIRS not in others:
            raise InvalidInput(f"performance.{PAIRS}", "nothing", "the document of a model of pairs")
        pairs = make_pair_model(others.pop(PAIRS), f"performance.{PAIRS}")
        refuse_options(cls.name, others)
        return cls(instance, the_one(parts, cls.name), pairs)

    def predict(self, jobs: JobBatch, configurations: Configurations, *, edges: Edges | None = None) -> Prediction:
        """`optsched.performance.PerformanceModel`."""
        return self.base.predict(jobs, configurations, edges=edges)

    def observe(self, observations: Observations) -> set[int]:
        """`optsched.performance.PerformanceModel`."""
        return self.base.observe(observations)

    def predict_pairs(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        first: IntArray,
        second: IntArray,
        configuration: IntArray,
    ) -> PairPrediction:
        """`optsched.performance.ColocatingModel`.

        A pair is as feasible as its jobs are alone (where neither is, as the first), `NO_RATE` where the model of pairs
        does not know it, and `OUT_OF_MEMORY` where it was measured and could not run together. ``log_sd`` adds the
        variances of the less certain of the two rates and of the fractions; ``source`` is the least of those of the
        two rates and the fractions.
        """
        alone = [self.base.predict(jobs, configurations, edges=(job, configuration)) for job in (first, second)]
        said = self.pairs.fractions(
            Pairs(
                configurations.pool[configuration],
                jobs.workload[first],
                jobs.workload[second],
                self._gpu_types,
                self._workloads,
            )
        )
        one, other = alone[0].feasible, alone[1].feasible
        feasible = np.where(one == Feasibility.OK, other, one).astype(np.uint8)
        ok = feasible == Feasibility.OK
        feasible[ok & np.isnan(said.first)] = Feasibility.NO_RATE
        feasible[ok & (said.first == 0)] = Feasibility.OUT_OF_MEMORY
        runs = feasible == Feasibility.OK
        log_sd = np.hypot(np.maximum(alone[0].log_sd, alone[1].log_sd), said.log_sd)
        return PairPrediction(
            rate_first=np.where(runs, alone[0].rate * said.first, 0.0),
            rate_second=np.where(runs, alone[1].rate * said.second, 0.0),
            log_sd=np.where(runs, log_sd, 0.0),
            feasible=feasible,
            source=np.maximum(np.maximum(alone[0].source, alone[1].source), said.source).astype(np.uint8),
        )
