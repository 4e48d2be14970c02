"""Models of a step's time, and how they speak for the workloads and pools of an instance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import FloatArray
from optsched.instance import Instance
from optsched.performance.adaptive import AdaptiveBatches
from optsched.performance.batches import Batches
from optsched.performance.configurations import Configurations
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Edges, Feasibility, JobBatch, Observations, Prediction, expand_edges
from optsched.performance.ways import Ways


@dataclass(frozen=True)
class Times:
    """What a model says of ways to run, arrays of length E.

    Attributes
    ----------
    seconds : FloatArray
        Of one step, median; NaN where the model cannot say.
    log_sd : FloatArray
        Standard deviation of the log of it.
    source : NDArray[uint8]
        `optsched.performance.Source`.
    """

    seconds: FloatArray
    log_sd: FloatArray
    source: NDArray[np.uint8]

    @classmethod
    def of(cls, seconds: FloatArray, source: int, log_sd: float | FloatArray = 0.0) -> Times:
        """One source for all."""
        count = len(seconds)
        return cls(seconds, np.broadcast_to(np.float64(log_sd), count).copy(), np.full(count, source, np.uint8))


class TimeModel(ABC):
    """A model of how long a step of a workload takes on GPUs of a type; it knows no instance.

    A fitted model is a document: what `document` returns is the ``performance`` object of an instance, or a file, and
    `from_document` makes exactly the same model of it.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        """Fit the model to measurements; raises `InvalidInput` where they cannot determine it."""

    @classmethod
    @abstractmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The model of a document (without ``model``); raises `InvalidInput` with paths below ``performance``."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Everything that the model is, as JSON, with its ``model`` name."""

    @abstractmethod
    def times(self, ways: Ways) -> Times:
        """How long a step takes in each way; names that the model does not know give NaN."""

    @classmethod
    def from_instance(cls, instance: Instance, options: Mapping[str, Any]) -> TimesOnInstance:
        """The model, speaking for an instance."""
        return TimesOnInstance(instance, cls.from_document(options))


class TimesOnInstance:
    """A `TimeModel` as the performance model of an instance.

    With B samples per step of the job (`Batches`) and t seconds for a step of k x passes x m samples, the rate is
    k x passes x m / (t B) steps/s. Workloads with gradient noise take the batch size with the best goodput in each way
    (`AdaptiveBatches`); their rate is goodput / B0, in steps/s of their first batch size.
    """

    per_workload = True

    def __init__(self, instance: Instance, model: TimeModel) -> None:
        self.name = model.name
        self.version = 0
        self.model = model
        self.batches = Batches.of(instance)
        self.adaptive = AdaptiveBatches.of(instance)
        self._gpu_types = tuple(pool.gpu for pool in instance.cluster.pools)

    def predict(self, jobs: JobBatch, configurations: Configurations, *, edges: Edges | None = None) -> Prediction:
        """Rates of the workloads whose batch is known; `optsched.performance.PerformanceModel`."""
        job, configuration, shape = expand_edges(jobs, configurations, edges)
        workload, pool = jobs.workload[job], configurations.pool[configuration]
        gpus, nodes = configurations.gpus[configuration], configurations.nodes[configuration]
        samples, passes = self.batches.split(workload, gpus)
        adaptive = self.adaptive.known[workload]
        samples[adaptive] = 1.0  # until it is chosen
        asked = np.flatnonzero(
            (samples > 0) & (pool >= 0) & (gpus > 0) & (nodes > 0) & (configurations.share[configuration] == 1)
        )
        ways = Ways(
            workload[asked], pool[asked], gpus[asked], nodes[asked], samples[asked], passes[asked],
            self.batches.names, self._gpu_types,
        )  # fmt: skip
        ways, steps = self._with_steps(ways)
        times = self.model.times(ways)
        rate, log_sd = np.zeros(len(job)), np.zeros(len(job))
        feasible = np.full(len(job), Feasibility.NO_RATE, np.uint8)
        feasible[samples == 0] = Feasibility.ZERO_RATE  # more GPUs than samples
        feasible[asked[steps == 0]] = Feasibility.ZERO_RATE  # more GPUs than the largest batch
        source = np.zeros(len(job), np.uint8)
        said = np.isfinite(times.seconds) & (steps > 0)
        rows = asked[said]
        rate[rows] = steps[said] / times.seconds[said]
        log_sd[rows], source[rows] = times.log_sd[said], times.source[said]
        feasible[rows] = Feasibility.OK
        return Prediction(rate.reshape(shape), log_sd.reshape(shape), feasible.reshape(shape), source.reshape(shape))

    def _with_steps(self, ways: Ways) -> tuple[Ways, FloatArray]:
        """The ways with the batch sizes that they take, and how many of the job's steps one step of each is worth."""
        steps = self.batches.steps(ways.workload, ways.samples_per_step)
        adaptive = np.flatnonzero(self.adaptive.known[ways.workload])
        if len(adaptive) == 0:
            return ways, steps
        some = ways.take(adaptive)
        best = self.adaptive.choose(some, lambda asked: self.model.times(asked).seconds)
        samples, passes = ways.samples.copy(), ways.passes.copy()
        samples[adaptive], passes[adaptive] = best.samples, best.passes
        ways = ways.with_batches(samples, passes)
        gain = self.adaptive.noise.take(some.workload).gain(ways.samples_per_step[adaptive])
        steps[adaptive] = np.where(best.goodput > 0, gain, best.goodput)  # else 0 or NaN
        return ways, steps

    def observe(self, observations: Observations) -> set[int]:
        """A fitted model does not learn while it runs; `online` wraps it for that."""
        return set()
