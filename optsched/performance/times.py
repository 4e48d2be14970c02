"""Models of step times, and their use as performance models of an instance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.columns import Columns
from optsched.display import count
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import Document
from optsched.instance.reading import join, show, validate
from optsched.performance.batches import KEY, AdaptiveBatches, Batches
from optsched.performance.configurations import Configurations
from optsched.performance.files import PERFORMANCE, FittedModel, split_whole_steps
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import (
    Edges,
    Feasibility,
    JobBatch,
    Prediction,
    RateModel,
)
from optsched.performance.records import Records
from optsched.performance.ways import Ways


@dataclass(frozen=True, repr=False)
class Times(Columns):
    """Predictions for ways to run, arrays of length E.

    Attributes
    ----------
    seconds : FloatArray
        Median seconds of one step; NaN if the model has no answer.
    log_sd : FloatArray
        Standard deviation of the log of the seconds.
    source : NDArray[uint8]
        `optsched.performance.Source`.
    """

    seconds: FloatArray
    log_sd: FloatArray
    source: NDArray[np.uint8]

    @property
    def known(self) -> BoolArray:
        """Mask of the ways with an answer."""
        return np.isfinite(self.seconds)

    def _headline(self) -> str:
        return f"of {count(len(self), 'way')} to run, {int(self.known.sum()):,} of them known"

    @classmethod
    def of(cls, seconds: FloatArray, source: int, log_sd: float | FloatArray = 0.0) -> Times:
        """Times with one source for all.

        Parameters
        ----------
        seconds : FloatArray
        source : int
            `optsched.performance.Source`.
        log_sd : float or FloatArray

        Returns
        -------
        Times
        """
        count = len(seconds)
        return cls(
            seconds,
            np.broadcast_to(np.float64(log_sd), count).copy(),
            np.full(count, source, np.uint8),
        )


def some_sorted(profiles: Profiles) -> Profiles:
    """Measurements in their canonical order; refuses none."""
    if len(profiles) == 0:
        raise InvalidInput("profiles", "no measurements", "at least one to fit a model to")
    # Least squares sum in the order of the rows: sorted, equal sets give equal bits
    return profiles.sorted()


class TimeModel(FittedModel):
    """A model of the seconds of a step of a workload on GPUs of a type, independent of an instance.

    Its document is the ``performance`` object of an instance, or a file.
    """

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        """Fit the model to measurements.

        The models of this package override `fit_checked` instead, and state their `Options`.

        Parameters
        ----------
        profiles : Profiles
        options : mapping
            Options of the model, by name.

        Returns
        -------
        TimeModel

        Raises
        ------
        InvalidInput
            An option is unknown, or the measurements cannot determine the model.
        """
        return cls.fit_checked(*cls._check_fit(profiles, options))

    @classmethod
    def _check_fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> tuple[Profiles, Any]:
        """Measurements in their canonical order, and checked options; refuses a fit to nothing."""
        chosen = cls.read_options(options)
        return some_sorted(profiles), chosen

    @classmethod
    def fit_checked(cls, profiles: Profiles, options: Any) -> Self:
        """`fit`, after what is the same for all models.

        Parameters
        ----------
        profiles : Profiles
            At least one measurement, in canonical order.
        options : Document
            Checked by the class `Options`.

        Returns
        -------
        TimeModel

        Raises
        ------
        InvalidInput
            The measurements cannot determine the model.
        """
        raise NotImplementedError(f"{cls.__name__} has neither fit nor fit_checked")

    @classmethod
    def fit_on(
        cls, profiles: Profiles, options: Mapping[str, Any], processes: int, executor: str
    ) -> Self:
        """`fit` in several processes, if the model is fitted in parts.

        Parameters
        ----------
        profiles, options
            As in `fit`.
        processes, executor
            As in `optsched.benchmarking.run_tasks`.

        Returns
        -------
        TimeModel
        """
        return cls.fit(profiles, options)

    @abstractmethod
    def times(self, ways: Ways) -> Times:
        """Predict the seconds of a step in each way.

        Parameters
        ----------
        ways : Ways
            Ways to run, arrays of length E; they include the names of workloads and GPU types.

        Returns
        -------
        Times
            NaN seconds for names that the model does not know.
        """

    @classmethod
    def from_instance(cls, instance: Instance, options: Mapping[str, Any]) -> TimesOnInstance:
        """The model for an instance.

        Parameters
        ----------
        instance : Instance
        options : mapping
            The document of the model, without its name.

        Returns
        -------
        TimesOnInstance
            The performance model of its workloads and pools.
        """
        whole_steps, document = split_whole_steps(options)
        return cls.on_instance(instance, cls.from_document(document), whole_steps)

    @classmethod
    def on_instance(
        cls, instance: Instance, model: Self, whole_steps: Collection[str]
    ) -> TimesOnInstance:
        """Use a model as the performance model of an instance.

        Parameters
        ----------
        instance : Instance
        model : TimeModel
        whole_steps : collection of str
            Workloads that were measured in steps without samples.

        Returns
        -------
        TimesOnInstance
            The performance model of its workloads and pools.
        """
        return TimesOnInstance(instance, model, whole_steps)


class StoredModel(TimeModel):
    """A `TimeModel` whose whole state is its document, which ``Stored`` checks.

    Parameters
    ----------
    stored : Document
        Of the class ``Stored``.
    """

    Stored: ClassVar[type[Document]]

    def __init__(self, stored: Any) -> None:
        self.stored = stored

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        return cls(validate(cls.Stored, dict(document), PERFORMANCE))

    def document(self) -> dict[str, Any]:
        return {"model": self.name, **self.stored.model_dump(mode="json")}


PIECE = 32768
"""Ways per query."""


class TimesOnInstance(RateModel):
    """A `TimeModel` as the performance model of an instance.

    With B samples per step of the job (`Batches`) and t seconds for a step of k x passes x m
    samples, the rate is k x passes x m / (t B) steps/s. Workloads with gradient noise take the
    batch size with the best goodput in each way (`AdaptiveBatches`); their rate is goodput / B0, in
    steps/s of their first batch size.
    """

    per_workload = True

    def __init__(
        self,
        instance: Instance,
        model: TimeModel,
        whole_steps: Collection[str] = (),
    ) -> None:
        self.name = model.name
        self.model = model
        self.batches = Batches.of(instance)
        self.adaptive = AdaptiveBatches.of(instance)
        if whole_steps:
            self._count_in_whole_steps(instance, whole_steps)
        self._gpu_types = tuple(pool.gpu for pool in instance.cluster.pools)

    def _count_in_whole_steps(self, instance: Instance, names: Collection[str]) -> None:
        """Predict these workloads in steps as measured, ignoring their batch, like stated rates."""
        for row, workload in enumerate(instance.workloads):
            name = self.batches.names[row]
            if name in names and self.adaptive.known[row]:
                path = f"{join('workloads', [workload.name])}.parameters.{KEY}"
                found = f"a batch that is chosen, for {show(name)}, measured without samples"
                raise InvalidInput(path, found, "a model fitted to steps with their samples")
        self.batches = self.batches.in_whole_steps(names)

    def predict(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        *,
        edges: Edges | None = None,
    ) -> Prediction:
        """Rates of the workloads whose batch is known; `optsched.performance.PerformanceModel`.

        If all configurations of many jobs are asked for, each workload is asked about only once.
        """
        # One job per workload; the last entry is for jobs without a workload, whose row is -1.
        job_of = np.full(len(self.batches.names) + 1, -1, np.int64)
        job_of[jobs.workload] = np.arange(len(jobs))
        workload = np.flatnonzero(job_of >= 0)
        # One query per workload pays off if it halves the number of queries.
        if edges is not None or 2 * len(workload) > len(jobs):
            return super().predict(jobs, configurations, edges=edges)
        records = Records(len(configurations), len(job_of))
        records.put(workload, super().predict(jobs.take(job_of[workload]), configurations))
        return records.take(np.where(jobs.workload < 0, len(job_of) - 1, jobs.workload))

    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        """Rates of the cells, in blocks; only the workload of a job is used."""
        workload = jobs.workload[job]
        predicted = Prediction.unknown(len(workload))
        for start in range(0, len(workload), PIECE):
            piece = slice(start, start + PIECE)
            part = predicted.take(piece)
            self._predict_into(part, workload[piece], configurations, configuration[piece])
        return predicted

    def _predict_into(
        self,
        predicted: Prediction,
        workload: IntArray,
        configurations: Configurations,
        configuration: IntArray,
    ) -> None:
        """Write the predictions of rows of workloads and configurations into an empty one."""
        pool = configurations.pool[configuration]
        gpus = configurations.gpus[configuration]
        nodes = configurations.nodes[configuration]
        samples, passes = self.batches.split(workload, gpus)
        # A batch that goodput chooses counts as known here.
        samples[self.adaptive.known[workload]] = 1.0
        whole = configurations.share[configuration] == 1
        asked = (samples > 0) & (pool >= 0) & (gpus > 0) & (nodes > 0) & whole
        # A way with more GPUs than samples cannot run, whatever the model predicts.
        predicted.feasible[samples == 0] = Feasibility.ZERO_RATE
        ways = Ways(
            workload,
            pool,
            gpus,
            nodes,
            samples,
            passes,
            self.batches.names,
            self._gpu_types,
        )
        rows = slice(None) if asked.all() else np.flatnonzero(asked)
        ways, steps = self._with_steps(ways.take(rows))
        times = self.model.times(ways)
        runs = np.isfinite(times.seconds) & (steps > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            predicted.rate[rows] = np.where(runs, steps / times.seconds, 0.0)
        predicted.log_sd[rows] = np.where(runs, times.log_sd, 0.0)
        predicted.source[rows] = np.where(runs, times.source, 0)
        # 0 steps means more GPUs than any allowed batch has samples.
        nothing = np.where(steps == 0, Feasibility.ZERO_RATE, Feasibility.NO_RATE)
        predicted.feasible[rows] = np.where(runs, Feasibility.OK, nothing)

    def _with_steps(self, ways: Ways) -> tuple[Ways, FloatArray]:
        """The ways with their batch sizes, and the number of the job's steps that one step of each
        way counts as.
        """
        steps = self.batches.steps(ways.workload, ways.samples_per_step)
        adaptive = np.flatnonzero(self.adaptive.known[ways.workload])
        if len(adaptive) == 0:
            return ways, steps
        some = ways.take(adaptive)
        best = self.adaptive.choose(some, lambda asked: self.model.times(asked).seconds)
        samples = ways.samples.copy()
        passes = ways.passes.copy()
        samples[adaptive] = best.samples
        passes[adaptive] = best.passes
        ways = ways.with_batches(samples, passes)
        gain = self.adaptive.noise.take(some.workload).gain(ways.samples_per_step[adaptive])
        # If goodput is 0 (no batch is allowed) or NaN (unknown), it is used as the gain.
        steps[adaptive] = np.where(best.goodput > 0, gain, best.goodput)
        return ways, steps
