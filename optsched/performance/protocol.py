"""The interface of performance models:
arrays in, arrays out, over interned kinds of jobs and configurations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.columns import Columns
from optsched.instance import Instance
from optsched.performance.configurations import Configurations


class Source(IntEnum):
    """Source of a rate; the first five are in order, best first.

    ``EXTRAPOLATED`` marks rates of a fitted model outside of its measured range.
    """

    MEASURED = 0
    INTERPOLATED = 1
    PARAMETRIC = 2
    LEARNED = 3
    PRIOR = 4
    EXTRAPOLATED = 5


class Feasibility(IntEnum):
    """Why a rate is usable or not; the three kinds of "nothing" are kept apart."""

    OK = 0
    ZERO_RATE = 1
    NO_RATE = 2
    OUT_OF_MEMORY = 3


@dataclass(frozen=True, repr=False, eq=False)
class JobBatch(Columns):
    """Kinds of jobs in a query, structure of arrays of length J.

    Attributes
    ----------
    workload : IntArray
        Row of the instance's workloads (which have the features), -1 for none.
    profile : IntArray
        Row of the instance's rate table (the profile of the job, else of its workload), -1 for
        none.
    own : BoolArray
        Whether the profile is stated by the job itself.
    gang : IntArray
        Smallest GPU count of the job.
    """

    workload: IntArray
    profile: IntArray
    own: BoolArray
    gang: IntArray


Edges = tuple[IntArray, IntArray]
"""Rows of jobs and rows of configurations, pair by pair."""


@dataclass(frozen=True, repr=False, eq=False)
class Prediction(Columns):
    """Throughputs, dense (J, C), or (E,) when edges were given.

    Attributes
    ----------
    rate : FloatArray
        steps/s of the whole job, median; 0 where not feasible, never NaN.
    log_sd : FloatArray
        Standard deviation of the log rate.
    feasible : NDArray[uint8]
        `Feasibility` of each entry.
    source : NDArray[uint8]
        `Source` of each entry.
    """

    rate: FloatArray
    log_sd: FloatArray
    feasible: NDArray[np.uint8]
    source: NDArray[np.uint8]

    def reshape(self, shape: tuple[int, ...]) -> Prediction:
        """The same entries in arrays of another shape."""
        return Prediction(*(column.reshape(shape) for column in self.arrays))

    @classmethod
    def unknown(cls, count: int) -> Prediction:
        """A prediction without answers: `Feasibility.NO_RATE` everywhere."""
        # One allocation for both arrays needs fewer new memory pages.
        rate, log_sd = np.zeros((2, count))
        feasible = np.full(count, Feasibility.NO_RATE, np.uint8)
        return cls(rate, log_sd, feasible, np.zeros(count, np.uint8))

    def put(self, rows: IntArray | slice, part: Prediction) -> None:
        """Write the entries of another prediction into these rows."""
        for column, values in zip(self.arrays, part.arrays, strict=True):
            column[rows] = values


class Observations(NamedTuple):
    """Measured throughputs:
    O jobs, each in a row of the configurations, with its rate in steps/s.
    """

    jobs: JobBatch
    configurations: Configurations
    configuration: IntArray
    rate: FloatArray


@runtime_checkable
class PerformanceModel(Protocol):
    """A model of throughput. ``version`` changes whenever a prediction may change.

    A model is made by its class's ``from_instance(instance, options)``, where ``options`` is the
    instance's ``performance`` object without ``model``.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int:
        """Changes whenever a prediction may change."""
        ...

    def predict(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        *,
        edges: Edges | None = None,
    ) -> Prediction:
        """Predict every (job, configuration),
        or the pairs ``edges = (job rows, configuration rows)`` only.
        """
        ...

    def observe(self, observations: Observations) -> set[int]:
        """Learn from measurements; returns the rows of the workloads whose predictions changed.

        A model that learns is a `LearningModel` too.
        """
        ...


class RateModel(ABC):
    """Base of a performance model that answers cell by cell,
    (job, configuration), and never learns.
    """

    @property
    def version(self) -> int:
        """Changes whenever a prediction may change."""
        return 0

    def predict(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        *,
        edges: Edges | None = None,
    ) -> Prediction:
        """`PerformanceModel.predict`: the cells of the edges, or of the whole matrix."""
        if edges is not None:
            return self.rates(jobs, configurations, *edges)
        shape = (len(jobs), len(configurations))
        job, configuration = (index.ravel() for index in np.indices(shape))
        return self.rates(jobs, configurations, job, configuration).reshape(shape)

    @abstractmethod
    def rates(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        job: IntArray,
        configuration: IntArray,
    ) -> Prediction:
        """The prediction of each cell, given by a row of the jobs and one of the configurations."""

    def observe(self, observations: Observations) -> set[int]:
        """`PerformanceModel.observe`: this model ignores measurements; ``online`` wraps a model to
        make it learn.
        """
        return set()


class PairPrediction(NamedTuple):
    """Predictions for pairs of jobs that share all their GPUs, arrays of length E.

    Attributes
    ----------
    first, second : FloatArray
        Fraction of its rate alone, in (0, 1], that each of the two jobs keeps; 0 if not feasible.
    log_sd : FloatArray
        Standard deviation of the logs of the fractions.
    feasible, source : NDArray[uint8]
        As in `Prediction`; `Feasibility.NO_RATE` where the model does not know.
    """

    first: FloatArray
    second: FloatArray
    log_sd: FloatArray
    feasible: NDArray[np.uint8]
    source: NDArray[np.uint8]


@runtime_checkable
class ColocatingModel(Protocol):
    """A performance model that also predicts how much two jobs on the same GPUs slow each other
    down.

    If the fractions depend only on the two workloads and the configuration, the model may declare
    this with an attribute ``pairs_by_workload = True``; column generation then groups pairs by
    workload.
    """

    def pair_fractions(
        self,
        jobs: JobBatch,
        configurations: Configurations,
        first: IntArray,
        second: IntArray,
        configuration: IntArray,
    ) -> PairPrediction:
        """Fractions of the pairs (first job, second job, configuration),
        rows of jobs and of configurations.
        """
        ...


@runtime_checkable
class LearningModel(Protocol):
    """A performance model that may learn while it runs, and can export its learnt state.

    Rounds recognise it by `with_learnt` (`learns`): they keep no columns of such a model, and
    journals store what it has learnt.
    """

    def with_learnt(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The performance object of the model, including all that it has learnt.

        A model made from it, for the same instance or another one, predicts and learns identically,
        to the last bit.
        """
        ...


def with_learnt(model: PerformanceModel, document: Mapping[str, Any]) -> dict[str, Any]:
    """The performance object ``document`` of a model, including what the model has learnt;
    unchanged for a model that does not learn.
    """
    return model.with_learnt(document) if learns(model) else dict(document)


def learns(model: PerformanceModel) -> TypeGuard[LearningModel]:
    """Whether a model may learn. Rounds ask this of every model, and isinstance with a protocol is
    slower.
    """
    return hasattr(model, "with_learnt")


class ModelFactory(Protocol):
    """The type of a registry entry of ``optsched.models``: a class with this constructor."""

    @classmethod
    def from_instance(cls, instance: Instance, options: Mapping[str, Any]) -> PerformanceModel:
        """Make the model for an instance; refuses options it does not know with `InvalidInput`."""
        ...
