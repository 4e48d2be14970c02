"""Pairs of jobs that share GPUs:
queries, measurements, and the interface of the models fitted to them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from optsched.arrays import FloatArray, IntArray, find_sorted, finite, group_rows
from optsched.arrays.columns import Columns
from optsched.arrays.values import cached_property, replace
from optsched.display import count
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, Name, Positive, refused
from optsched.instance.reading import show, validate
from optsched.performance.files import PERFORMANCE, FittedModel
from optsched.performance.parametric.fitting import flat
from optsched.performance.protocol import Source
from optsched.performance.ways import numbered, rows_among

LEARNED, MEASURED = np.uint8(Source.LEARNED), np.uint8(Source.MEASURED)


@dataclass(frozen=True, repr=False)
class Pairs(Columns):
    """Pairs of workloads on one kind of GPU, structure of arrays of length E.

    Attributes
    ----------
    gpu : IntArray
        Row of ``gpu_types``, -1 for none.
    first, second : IntArray
        Rows of ``workloads``, -1 for none; a workload may be paired with itself.
    gpu_types, workloads : tuple of str
        The names.
    """

    gpu: IntArray
    first: IntArray
    second: IntArray
    gpu_types: tuple[str, ...]
    workloads: tuple[str, ...]

    def swapped(self) -> Pairs:
        """The pairs with first and second exchanged."""
        return replace(self, first=self.second, second=self.first)

    def among(self, gpu_types: tuple[str, ...], workloads: tuple[str, ...]) -> Pairs:
        """The same pairs with rows of other lists of names; -1 for names that are not in them."""
        gpu = rows_among(self.gpu_types, numbered(gpu_types))
        workload = rows_among(self.workloads, numbered(workloads))
        first = workload[self.first]
        second = workload[self.second]
        return Pairs(gpu[self.gpu], first, second, gpu_types, workloads)

    def keys(self) -> IntArray:
        """A number for each (GPU type, first, second)."""
        count = len(self.workloads)
        return (self.gpu * count + self.first) * count + self.second


@dataclass(frozen=True)
class WorkloadFeatures:
    """Features of W workloads alone, on G GPU types; every entry may be unknown.

    Attributes
    ----------
    workloads, gpu_types : tuple of str
        Sorted.
    isolated : FloatArray, shape (W, G)
        steps/s alone, above 0; NaN where unknown.
    utilisation : FloatArray, shape (W, G)
        Share of the GPU that is busy when the workload runs alone, in [0, 1]; NaN where unknown.
    family : tuple of str
        Of each workload, e.g. the name of its architecture; "" where unknown.
    batch : FloatArray, shape (W,)
        Samples of one GPU in a step, above 0; NaN where unknown.
    """

    workloads: tuple[str, ...]
    gpu_types: tuple[str, ...]
    isolated: FloatArray
    utilisation: FloatArray
    family: tuple[str, ...]
    batch: FloatArray

    @property
    def bare(self) -> bool:
        """Whether all features are unknown."""
        numbers_known = np.isfinite(self.batch).any() or np.isfinite(self.isolated).any()
        return not (any(self.family) or numbers_known)


@dataclass(frozen=True, repr=False)
class PairProfiles(Columns):
    """Measured pairs, structure of arrays of length E.

    Attributes
    ----------
    pairs : Pairs
        Their names are the lists of ``features``.
    first, second : FloatArray
        Throughput of each job beside the other divided by its throughput alone, in (0, 1]; both 0
        for a pair that could not run together.
    features : WorkloadFeatures
        It may have workloads without measured pairs; a model of features can estimate these.
    """

    pairs: Pairs
    first: FloatArray
    second: FloatArray
    features: WorkloadFeatures

    def _headline(self) -> str:
        workloads = count(len(self.features.workloads), "workload")
        gpu_types = count(len(self.features.gpu_types), "GPU type")
        return f"{count(len(self), 'measured pair')} of {workloads} on {gpu_types}"

    @property
    def ran(self) -> PairProfiles:
        """The pairs that could run together."""
        return self.take(np.flatnonzero(self.first > 0))

    @cached_property
    def symmetric(self) -> bool:
        """Whether pairs of different workloads were measured and all of them slowed both jobs
        equally.
        """
        apart = self.pairs.first != self.pairs.second
        return bool(apart.any() and np.all((self.first == self.second)[apart]))

    @classmethod
    def of(
        cls,
        *,
        gpu: Sequence[str],
        first: Sequence[str],
        second: Sequence[str],
        fraction_first: Sequence[float] | FloatArray,
        fraction_second: Sequence[float] | FloatArray,
        workloads: Sequence[str] = (),
        isolated: Mapping[tuple[str, str], float] | None = None,
        utilisation: Mapping[tuple[str, str], float] | None = None,
        family: Mapping[str, str] | None = None,
        batch: Mapping[str, float] | None = None,
    ) -> PairProfiles:
        """Measurements from columns of equal length,
        and features by (workload, GPU type) or by workload.

        ``workloads`` may have additional names. The rows are sorted by names, so that a fit does
        not depend on their order.

        Raises
        ------
        InvalidInput
            With the column and the row, counted from 0.
        """
        isolated = isolated or {}
        utilisation = utilisation or {}
        family = family or {}
        batch = batch or {}
        fractions = {"fraction_first": fraction_first, "fraction_second": fraction_second}
        for name, column in {"first": first, "second": second, **fractions}.items():
            if len(column) != len(gpu):
                raise InvalidInput(name, f"{len(column)} values", f"{len(gpu)}, as many as gpu")
        cells = [*isolated, *utilisation]
        named = {*workloads, *first, *second, *family, *batch, *(name for name, _ in cells)}
        rows = tuple(sorted(named))
        gpu_types = tuple(sorted({*gpu, *(name for _, name in cells)}))
        by_name = {(name, ""): value for name, value in batch.items()}
        features = WorkloadFeatures(
            rows,
            gpu_types,
            isolated=_table("isolated", isolated, rows, gpu_types),
            utilisation=_table("utilisation", utilisation, rows, gpu_types, share=True),
            family=tuple(family.get(name, "") for name in rows),
            batch=_table("batch", by_name, rows, ("",))[:, 0],
        )
        one, other = _checked_fractions(fractions)
        of_gpu = numbered(gpu_types)
        of_name = numbered(rows)
        pairs = Pairs(
            np.array([of_gpu[name] for name in gpu], np.int64),
            np.array([of_name[name] for name in first], np.int64),
            np.array([of_name[name] for name in second], np.int64),
            gpu_types,
            rows,
        )
        order = np.lexsort((one, other, pairs.second, pairs.first, pairs.gpu))
        return cls(pairs, one, other, features).take(order)

    # --- documents --------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """The entries ``workloads`` and ``measured`` of a `PairDocument`;
        what is unknown is left out.
        """
        known = self.features
        pairs = self.pairs
        workloads = {}
        for row, name in enumerate(known.workloads):
            features = {
                "family": known.family[row],
                "batch": finite(known.batch[row]),
                "isolated": _finite_by_name(known.gpu_types, known.isolated[row]),
                "utilisation": _finite_by_name(known.gpu_types, known.utilisation[row]),
            }
            workloads[name] = {field: value for field, value in features.items() if value}
        columns = (pairs.gpu, pairs.first, pairs.second, self.first, self.second)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        measured = [
            {
                "gpu": known.gpu_types[gpu],
                "first": known.workloads[first],
                "second": known.workloads[second],
                "fractions": [one, other],
            }
            for gpu, first, second, one, other in rows
        ]
        return {"workloads": workloads, "measured": measured}

    @classmethod
    def from_document(cls, stored: PairDocument) -> PairProfiles:
        """The measurements of a checked document."""
        known = stored.workloads.items()
        try:
            return cls.of(
                gpu=[pair.gpu for pair in stored.measured],
                first=[pair.first for pair in stored.measured],
                second=[pair.second for pair in stored.measured],
                fraction_first=[pair.fractions[0] for pair in stored.measured],
                fraction_second=[pair.fractions[1] for pair in stored.measured],
                workloads=tuple(stored.workloads),
                isolated=flat({name: workload.isolated for name, workload in known}),
                utilisation=flat({name: workload.utilisation for name, workload in known}),
                family={name: workload.family for name, workload in known},
                batch={
                    name: workload.batch for name, workload in known if workload.batch is not None
                },
            )
        except InvalidInput as error:
            where = f"{PERFORMANCE}.measured: {error.path}"
            raise InvalidInput(where, error.found, error.expected) from None


def _table(
    name: str,
    values: Mapping[tuple[str, str], float],
    rows: Sequence[str],
    columns: Sequence[str],
    share: bool = False,
) -> FloatArray:
    """Values by (row, column) as an array, NaN for missing ones; a share must be in [0, 1]."""
    table = np.full((len(rows), len(columns)), np.nan)
    of_row = numbered(rows)
    of_column = numbered(columns)
    expected = "a number from 0 to 1" if share else "a finite number above 0"
    for (row, column), value in values.items():
        valid = 0 <= value <= 1 if share else 0 < value < np.inf
        if not valid:
            where = ".".join(part for part in (name, row, column) if part)
            raise InvalidInput(where, show(value), expected)
        table[of_row[row], of_column[column]] = value
    return table


def _checked_fractions(given: Mapping[str, Sequence[float] | FloatArray]) -> list[FloatArray]:
    """The fractions of the first and of the second jobs; refuses other values."""
    columns = [np.asarray(column, np.float64) for column in given.values()]
    for name, column in zip(given, columns, strict=True):
        for row in np.flatnonzero(~((column >= 0) & (column <= 1))).tolist():
            found = show(float(column[row]))
            raise InvalidInput(f"{name}[{row}]", found, "a number from 0 to 1")
    first, second = columns
    # 0 means that the pair could not run, so both fractions must be 0.
    for row in np.flatnonzero((first == 0) != (second == 0)).tolist():
        expected = f"0 for both jobs or for none beside fraction_first {first[row]:g}"
        raise InvalidInput(f"fraction_second[{row}]", show(float(second[row])), expected)
    return columns


def _finite_by_name(names: Sequence[str], values: FloatArray) -> dict[str, float]:
    by_name = zip(names, values.tolist(), strict=True)
    return {name: value for name, value in by_name if np.isfinite(value)}


Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class FeaturesDocument(Document):
    """`WorkloadFeatures` of one workload; rates and utilisation by GPU type."""

    family: str = ""
    batch: Positive | None = None
    isolated: dict[Name, Positive] = Field(default_factory=dict)
    utilisation: dict[Name, Fraction] = Field(default_factory=dict)


class MeasuredDocument(Document):
    """One measured pair, by names."""

    gpu: Name
    first: Name
    second: Name
    fractions: Annotated[list[Fraction], Field(min_length=2, max_length=2)]


class PairDocument(Document):
    """The common fields of documents of `LearnedPairs`; the model adds its own."""

    workloads: dict[Name, FeaturesDocument]
    measured: list[MeasuredDocument]

    @model_validator(mode="after")
    def _known(self) -> Self:
        for row, pair in enumerate(self.measured):
            for field, job in (("first", pair.first), ("second", pair.second)):
                if job not in self.workloads:
                    raise refused(show(job), "one of workloads", f".measured[{row}].{field}")
        return self


@dataclass(frozen=True, repr=False)
class Fractions(Columns):
    """Predictions for pairs, arrays of length E.

    Attributes
    ----------
    first, second : FloatArray
        Throughput of each job beside the other, divided by its throughput alone: in (0, 1], median;
        NaN if the model does not know, 0 if the pair was measured and could not run together.
    log_sd : FloatArray
        Standard deviation of the log of either; 0 where measured.
    source : NDArray[uint8]
        `optsched.performance.Source`.
    """

    first: FloatArray
    second: FloatArray
    log_sd: FloatArray
    source: NDArray[np.uint8]


class PairModel(FittedModel):
    """A model of the rates of jobs that share GPUs, independent of an instance."""

    @property
    @abstractmethod
    def workloads(self) -> tuple[str, ...]:
        """Names of the workloads that the model may know."""

    @classmethod
    @abstractmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        """Fit the model to measurements; raises `InvalidInput` where they cannot determine it."""

    @abstractmethod
    def fractions(self, pairs: Pairs) -> Fractions:
        """Fractions of the jobs of each pair; NaN for names that the model does not know."""


@dataclass(frozen=True)
class Estimate:
    """Logs of the estimated fractions of pairs, and their standard deviation; NaN where unknown."""

    first: FloatArray
    second: FloatArray
    log_sd: FloatArray


@dataclass(frozen=True, eq=False)
class LearnedPairs(PairModel):
    """A `PairModel` that keeps the measured pairs and estimates the others.

    - A measured pair has its measured fractions (the mean of the logs where it was measured more
      than once), in either order.
    - Others are estimated: exp of the estimate, at most 1.
    - If every measured pair slowed both of its jobs equally, estimates do too: both are the mean of
      the logs.

    A subclass is a dataclass. Its fields after ``profiles`` are what was learned, and the entries
    of its document, which `Stored` checks: numbers, arrays (lists there), and objects with a
    their own ``document``.
    """

    Stored: ClassVar[type[PairDocument]]

    profiles: PairProfiles

    @property
    def features(self) -> WorkloadFeatures:
        """What is known of the workloads alone."""
        return self.profiles.features

    @property
    def workloads(self) -> tuple[str, ...]:
        return self.features.workloads

    @abstractmethod
    def estimate(self, pairs: Pairs) -> Estimate:
        """Estimates for pairs that are named by the lists of ``features`` (no row is -1)."""

    def fractions(self, pairs: Pairs) -> Fractions:
        """`PairModel`; equal pairs are estimated once."""
        pairs = pairs.among(self.features.gpu_types, self.features.workloads)
        groups = group_rows([pairs.gpu, pairs.first, pairs.second], len(pairs))
        # Columns of pairs repeat the same workloads thousands of times, so estimate each distinct
        # pair once.
        pairs = pairs.take(groups.first)
        count = len(groups.first)
        first, second = np.full((2, count), np.nan)
        log_sd = np.zeros(count)
        source = np.full(count, LEARNED)

        named = (pairs.gpu >= 0) & (pairs.first >= 0) & (pairs.second >= 0)
        keys, measured_first, measured_second = self._measured
        position = np.where(named, find_sorted(keys, pairs.keys()), -1)
        measured = np.flatnonzero(position >= 0)
        first[measured] = measured_first[position[measured]]
        second[measured] = measured_second[position[measured]]
        source[measured] = MEASURED

        new = np.flatnonzero(named & (position < 0))
        if len(new):
            estimate = self.estimate(pairs.take(new))
            of_first = estimate.first
            of_second = estimate.second
            # Tables with one number per pair do not say which job is slowed more.
            if self.profiles.symmetric:
                of_first = of_second = (of_first + of_second) / 2
            first[new] = np.exp(np.minimum(of_first, 0.0))
            second[new] = np.exp(np.minimum(of_second, 0.0))
            log_sd[new] = estimate.log_sd
        return Fractions(first, second, log_sd, source).take(groups.inverse)

    @cached_property
    def _measured(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Sorted keys of the measured pairs in both orders, and the fractions of each."""
        profiles = self.profiles
        keys = np.concatenate((profiles.pairs.keys(), profiles.pairs.swapped().keys()))
        first = np.concatenate((profiles.first, profiles.second))
        second = np.concatenate((profiles.second, profiles.first))
        distinct, row, times = np.unique(keys, return_inverse=True, return_counts=True)
        return distinct, _geometric_mean(first, row, times), _geometric_mean(second, row, times)

    def document(self) -> dict[str, Any]:
        learned = {
            field.name: _plain(getattr(self, field.name))
            for field in fields(self)
            if field.name != "profiles"
        }
        return {"model": self.name, **self.profiles.document(), **learned}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        stored = validate(cls.Stored, dict(document), PERFORMANCE)
        profiles = PairProfiles.from_document(stored)
        return cls(profiles, **cls.learned_of(stored, profiles.features))

    @classmethod
    def learned_of(cls, stored: Any, features: WorkloadFeatures) -> dict[str, Any]:
        """The fields of the model from those of its checked document: lists become arrays.

        A subclass refuses values that do not fit the features, with `InvalidInput`.
        """
        learned = stored.model_dump(exclude=set(PairDocument.model_fields))
        return {
            name: np.array(value, np.float64) if isinstance(value, tuple) else value
            for name, value in learned.items()
        }


def _plain(value: Any) -> Any:
    """A field of a model as JSON."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.document() if hasattr(value, "document") else value


def _geometric_mean(values: FloatArray, row: IntArray, times: IntArray) -> FloatArray:
    """The geometric mean of the values of each row; exactly their value if they are equal."""
    least = np.full(len(times), np.inf)
    most = np.full(len(times), -np.inf)
    # exp(mean(log)) of equal values may differ from them in the last bit, so keep equal values as
    # they are.
    np.minimum.at(least, row, values)
    np.maximum.at(most, row, values)
    with np.errstate(divide="ignore"):
        mean = np.exp(np.bincount(row, np.log(values), minlength=len(times)) / times)
    return np.where(least == most, least, mean)


def both_orders(profiles: PairProfiles) -> tuple[Pairs, FloatArray]:
    """Cells of measured pairs that ran: (pair, log fraction of its first), in both orders.

    A workload paired with itself has one cell, the mean of both logs.
    """
    ran = profiles.ran
    of_first = np.log(ran.first)
    of_second = np.log(ran.second)
    # A job paired with itself is one cell, which was measured twice.
    same = ran.pairs.first == ran.pairs.second
    of_first = np.where(same, (of_first + of_second) / 2, of_first)
    apart = np.flatnonzero(~same)
    cells = Pairs.join([ran.pairs, ran.pairs.swapped().take(apart)])
    return cells, np.concatenate((of_first, of_second[apart]))


def require_pairs(profiles: PairProfiles, fewest: int, name: str) -> PairProfiles:
    """The measured pairs that ran together; raises if there are fewer than ``fewest``."""
    ran = profiles.ran
    if len(ran) < fewest:
        found = f"{len(ran)} pairs that ran together"
        raise InvalidInput("profiles", found, f"at least {fewest} for the {name} model")
    return ran
