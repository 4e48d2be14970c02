"""What all models of pairs have in common: they keep what was measured, say it unchanged, and learn the rest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field

from optsched.arrays import FloatArray, IntArray, find_sorted
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, Name, Positive
from optsched.instance.reading import join, listed, show, validate
from optsched.performance.learned.pairs import (
    LEARNED,
    MEASURED,
    Fractions,
    PairModel,
    PairProfiles,
    Pairs,
    WorkloadFeatures,
    distinct_pairs,
)

Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class WorkloadDocument(Document):
    """`WorkloadFeatures` of one workload; rates and utilisation by GPU type."""

    family: str = ""
    batch: Positive | None = None
    isolated: dict[Name, Positive] = Field(default_factory=dict)
    utilisation: dict[Name, Fraction] = Field(default_factory=dict)


class MeasuredDocument(Document):
    """One measured pair."""

    gpu: Name
    first: Name
    second: Name
    fractions: Annotated[list[Fraction], Field(min_length=2, max_length=2)]


class PairDocument(Document):
    """What every document of a `LearnedPairs` holds."""

    workloads: dict[Name, WorkloadDocument]
    measured: list[MeasuredDocument]


@dataclass(frozen=True)
class Estimate:
    """Logs of what an estimate says of pairs, and its standard deviation; NaN where it cannot say."""

    first: FloatArray
    second: FloatArray
    log_sd: FloatArray


class LearnedPairs(PairModel):
    """A `PairModel` that keeps the measured pairs.

    - A measured pair is said unchanged (the mean of the logs where it was measured more than once), in either order.
    - Others are estimated: exp of the estimate, at most 1.
    - Where every measured pair slowed both of its jobs alike, so does every estimate: both are the mean of the logs.
    """

    Stored: ClassVar[type[PairDocument]]

    def __init__(self, profiles: PairProfiles) -> None:
        self.profiles = profiles
        self.features = profiles.features
        self.symmetric = profiles.symmetric

    @property
    def workloads(self) -> tuple[str, ...]:
        """`PairModel`."""
        return self.features.workloads

    @abstractmethod
    def estimate(self, pairs: Pairs) -> Estimate:
        """Estimates for pairs that are named by the lists of ``features`` (no row is -1)."""

    @abstractmethod
    def learned(self) -> dict[str, Any]:
        """The part of the document that is the model's own."""

    @classmethod
    @abstractmethod
    def restore(cls, profiles: PairProfiles, told: Any, path: str) -> Self:
        """The model of its checked document, whose common part has been read."""

    def fractions(self, pairs: Pairs) -> Fractions:
        """`PairModel`; equal pairs are asked once."""
        named = pairs.among(self.features.gpu_types, self.features.workloads)
        asked, back = distinct_pairs(named)
        count = len(asked)
        first, second, log_sd = np.full(count, np.nan), np.full(count, np.nan), np.zeros(count)
        source = np.full(count, LEARNED)
        known = (asked.gpu >= 0) & (asked.first >= 0) & (asked.second >= 0)
        at = np.where(known, find_sorted(self._measured[0], self._keys(asked)), -1)
        seen, new = np.flatnonzero(at >= 0), np.flatnonzero(known & (at < 0))
        first[seen], second[seen], source[seen] = (
            self._measured[1][at[seen]],
            self._measured[2][at[seen]],
            MEASURED,
        )
        if len(new):
            said = self.estimate(asked.take(new))
            both = (said.first + said.second) / 2
            one, other = (both, both) if self.symmetric else (said.first, said.second)
            first[new], second[new] = np.exp(np.minimum(one, 0.0)), np.exp(np.minimum(other, 0.0))
            log_sd[new] = said.log_sd
        return Fractions(first[back], second[back], log_sd[back], source[back])

    def _keys(self, pairs: Pairs) -> Any:
        count = len(self.features.workloads)
        return (pairs.gpu * count + pairs.first) * count + pairs.second

    @cached_property
    def _measured(self) -> tuple[Any, FloatArray, FloatArray]:
        """Sorted keys of the measured pairs in both orders, and the fractions of each."""
        told = self.profiles
        keys = np.concatenate((self._keys(told.pairs), self._keys(told.pairs.swapped())))
        first = np.concatenate((told.first, told.second))
        second = np.concatenate((told.second, told.first))
        distinct, row, times = np.unique(keys, return_inverse=True, return_counts=True)
        return distinct, _middle(first, row, times), _middle(second, row, times)

    # --- documents ----------------------------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """`PairModel`."""
        told, known = self.profiles, self.features
        workloads = {}
        for row, name in enumerate(known.workloads):
            one: dict[str, Any] = {"family": known.family[row]} if known.family[row] else {}
            if np.isfinite(known.batch[row]):
                one["batch"] = float(known.batch[row])
            for field in ("isolated", "utilisation"):
                values = getattr(known, field)[row].tolist()
                by_gpu = {
                    gpu: value
                    for gpu, value in zip(known.gpu_types, values, strict=True)
                    if value == value
                }
                one |= {field: by_gpu} if by_gpu else {}
            workloads[name] = one
        columns = (
            column.tolist() for column in (told.pairs.gpu, told.pairs.first, told.pairs.second)
        )
        measured = [
            {
                "gpu": known.gpu_types[gpu],
                "first": known.workloads[first],
                "second": known.workloads[second],
                "fractions": [one, other],
            }
            for gpu, first, second, one, other in zip(
                *columns, told.first.tolist(), told.second.tolist(), strict=True
            )
        ]
        return {"model": self.name, "workloads": workloads, "measured": measured, **self.learned()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any], path: str = "performance.pairs") -> Self:
        """`PairModel`."""
        told = validate(cls.Stored, dict(document), path)
        return cls.restore(_profiles_of(told, path), told, path)


def _profiles_of(told: PairDocument, path: str) -> PairProfiles:
    by_cell: dict[str, dict[tuple[str, str], float]] = {"isolated": {}, "utilisation": {}}
    for name, workload in told.workloads.items():
        for field, values in by_cell.items():
            values |= {(name, gpu): value for gpu, value in getattr(workload, field).items()}
    for row, pair in enumerate(told.measured):
        for field, job in (("first", pair.first), ("second", pair.second)):
            if job not in told.workloads:
                raise InvalidInput(f"{path}.measured[{row}].{field}", show(job), "one of workloads")
    try:
        return PairProfiles.of(
            gpu=[pair.gpu for pair in told.measured],
            first=[pair.first for pair in told.measured],
            second=[pair.second for pair in told.measured],
            fraction_first=[pair.fractions[0] for pair in told.measured],
            fraction_second=[pair.fractions[1] for pair in told.measured],
            workloads=tuple(told.workloads),
            family={name: workload.family for name, workload in told.workloads.items()},
            batch={
                name: workload.batch
                for name, workload in told.workloads.items()
                if workload.batch is not None
            },
            **by_cell,
        )
    except InvalidInput as error:
        raise InvalidInput(f"{path}.measured: {error.path}", error.found, error.expected) from None


def _middle(values: FloatArray, row: IntArray, times: IntArray) -> FloatArray:
    """The geometric mean of the values of each row; exactly their value where they are equal."""
    least, most = np.full(len(times), np.inf), np.full(len(times), -np.inf)
    np.minimum.at(least, row, values)
    np.maximum.at(most, row, values)
    with np.errstate(divide="ignore"):
        mean = np.exp(np.bincount(row, np.log(values), minlength=len(times)) / times)
    middle: FloatArray = np.where(least == most, least, mean)
    return middle


def both_ways(profiles: PairProfiles) -> tuple[Pairs, FloatArray]:
    """Cells of measured pairs that ran: (pair, log fraction of its first), in both orders, a workload with itself once.

    Of a workload beside itself the cell is the mean of both logs.
    """
    ran = profiles.ran
    one, other = np.log(ran.first), np.log(ran.second)
    same = ran.pairs.first == ran.pairs.second
    one = np.where(same, (one + other) / 2, one)
    apart = np.flatnonzero(~same)
    swapped = ran.pairs.swapped().take(apart)
    cells = Pairs(
        np.concatenate((ran.pairs.gpu, swapped.gpu)),
        np.concatenate((ran.pairs.first, swapped.first)),
        np.concatenate((ran.pairs.second, swapped.second)),
        ran.pairs.gpu_types,
        ran.pairs.workloads,
    )
    return cells, np.concatenate((one, other[apart]))


def refuse_few(profiles: PairProfiles, fewest: int, name: str) -> None:
    """A model needs so many measured pairs that ran together."""
    if len(profiles.ran) < fewest:
        raise InvalidInput(
            "profiles",
            f"{len(profiles.ran)} pairs that ran together",
            f"at least {fewest} for the {name} model",
        )


def dense(
    values: Mapping[str, Mapping[str, float]], features: WorkloadFeatures, path: str, field: str
) -> FloatArray:
    """Values by GPU type and workload as an array (G, W); all must be there, and nothing else."""
    table = np.zeros((len(features.gpu_types), len(features.workloads)))
    _same_names(values, features.gpu_types, path)
    for row, gpu in enumerate(features.gpu_types):
        _same_names(values[gpu], features.workloads, f"{join(path, [gpu])}.{field}")
        table[row] = [values[gpu][name] for name in features.workloads]
    return table


def _same_names(given: Mapping[str, Any], expected: Sequence[str], path: str) -> None:
    for name in sorted(set(given) ^ set(expected)):
        if name in given:
            raise InvalidInput(
                join(path, [name]),
                "a name that nothing else in the model has",
                f"{listed(expected)}",
            )
        raise InvalidInput(join(path, [name]), "nothing", "this key")
