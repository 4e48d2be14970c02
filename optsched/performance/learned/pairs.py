"""Pairs of jobs that share GPUs: what is asked, what was measured, and the interface of the models that learn it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import FloatArray, IntArray, group_rows
from optsched.errors import InvalidInput
from optsched.instance.reading import show
from optsched.performance.protocol import Source


@dataclass(frozen=True)
class Pairs:
    """Pairs of workloads on one kind of GPU, structure of arrays of length E; names stand beside the arrays.

    Attributes
    ----------
    gpu : IntArray
        Row of ``gpu_types``, -1 for none.
    first, second : IntArray
        Rows of ``workloads``, -1 for none; a workload may be paired with itself.
    gpu_types, workloads : tuple of str
    """

    gpu: IntArray
    first: IntArray
    second: IntArray
    gpu_types: tuple[str, ...]
    workloads: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.gpu)

    def take(self, rows: IntArray) -> Pairs:
        """The pairs at these rows."""
        return replace(self, gpu=self.gpu[rows], first=self.first[rows], second=self.second[rows])

    def swapped(self) -> Pairs:
        """First and second exchanged."""
        return replace(self, first=self.second, second=self.first)

    def among(self, gpu_types: Sequence[str], workloads: Sequence[str]) -> Pairs:
        """The same pairs by other lists of names; -1 for what is not in them."""
        gpus, names = (
            {name: row for row, name in enumerate(known)} for known in (gpu_types, workloads)
        )
        gpu = np.array([*(gpus.get(name, -1) for name in self.gpu_types), -1], np.int64)
        workload = np.array([*(names.get(name, -1) for name in self.workloads), -1], np.int64)
        return Pairs(
            gpu[self.gpu],
            workload[self.first],
            workload[self.second],
            tuple(gpu_types),
            tuple(workloads),
        )


@dataclass(frozen=True)
class WorkloadFeatures:
    """What is known of W workloads alone, on G GPU types; everything may be unknown.

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
        """Whether nothing is known but the names."""
        return not (
            any(self.family) or np.isfinite(self.batch).any() or np.isfinite(self.isolated).any()
        )


@dataclass(frozen=True)
class PairProfiles:
    """Measured pairs, structure of arrays of length E.

    Attributes
    ----------
    pairs : Pairs
        Named by the lists of ``features``.
    first, second : FloatArray
        Throughput of each job beside the other divided by its throughput alone, in (0, 1]; both 0 for a pair that
        could not run together.
    features : WorkloadFeatures
        Also of workloads that no pair has: a model of features speaks for them.
    """

    pairs: Pairs
    first: FloatArray
    second: FloatArray
    features: WorkloadFeatures

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: IntArray) -> PairProfiles:
        """The measurements at these rows; all features are kept."""
        return PairProfiles(
            self.pairs.take(rows), self.first[rows], self.second[rows], self.features
        )

    @property
    def ran(self) -> PairProfiles:
        """The pairs that could run together."""
        return self.take(np.flatnonzero(self.first > 0))

    @property
    def symmetric(self) -> bool:
        """Whether pairs of different workloads were measured and all slowed both of their jobs alike."""
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
        """Measurements from columns of equal length, and features by (workload, GPU type) or by workload.

        ``workloads`` may name some that have neither.

        The rows are put in the order of the names, so that a fit does not depend on the order in which they come.

        Raises
        ------
        InvalidInput
            With the column and the row, counted from 0.
        """
        isolated, utilisation, family, batch = (
            isolated or {},
            utilisation or {},
            family or {},
            batch or {},
        )
        count = len(gpu)
        given = {
            "second": second,
            "fraction_first": fraction_first,
            "fraction_second": fraction_second,
        }
        for name, column in {"first": first, **given}.items():
            if len(column) != count:
                raise InvalidInput(name, f"{len(column)} values", f"{count}, as many as gpu")
        cells = [*isolated, *utilisation]
        names = {*workloads, *first, *second, *family, *batch, *(workload for workload, _ in cells)}
        workloads = tuple(sorted(names))
        gpu_types = tuple(sorted({*gpu, *(name for _, name in cells)}))
        features = WorkloadFeatures(
            workloads,
            gpu_types,
            _by_cell("isolated", isolated, workloads, gpu_types, np.inf),
            _by_cell("utilisation", utilisation, workloads, gpu_types, 1.0),
            tuple(family.get(name, "") for name in workloads),
            _by_cell(
                "batch",
                {(name, ""): value for name, value in batch.items()},
                workloads,
                ("",),
                np.inf,
            )[:, 0],
        )
        fractions = [np.asarray(column, np.float64) for column in (fraction_first, fraction_second)]
        for name, fraction in zip(("fraction_first", "fraction_second"), fractions, strict=True):
            wrong = np.flatnonzero(~((fraction >= 0) & (fraction <= 1)))
            if len(wrong):
                raise InvalidInput(
                    f"{name}[{wrong[0]}]", show(float(fraction[wrong[0]])), "a number from 0 to 1"
                )
        half = np.flatnonzero((fractions[0] == 0) != (fractions[1] == 0))
        if len(half):
            raise InvalidInput(
                f"fraction_second[{half[0]}]",
                show(float(fractions[1][half[0]])),
                f"0 for both jobs or for none beside fraction_first {fractions[0][half[0]]:g}",
            )
        rows = {name: row for row, name in enumerate(workloads)}
        gpu_rows = {name: row for row, name in enumerate(gpu_types)}
        gpu_row, one, other = (
            np.array([known[name] for name in column], np.int64)
            for known, column in ((gpu_rows, gpu), (rows, first), (rows, second))
        )
        order = np.lexsort((*fractions, other, one, gpu_row))
        pairs = Pairs(gpu_row[order], one[order], other[order], gpu_types, workloads)
        return cls(pairs, fractions[0][order], fractions[1][order], features)


def _by_cell(
    name: str,
    values: Mapping[tuple[str, str], float],
    rows: Sequence[str],
    columns: Sequence[str],
    most: float,
) -> FloatArray:
    table = np.full((len(rows), len(columns)), np.nan)
    row_of, column_of = ({key: row for row, key in enumerate(names)} for names in (rows, columns))
    for (row, column), value in values.items():
        if not (0 < value <= most and np.isfinite(value)) and not (value == 0 and most == 1):
            where = ".".join(part for part in (name, row, column) if part)
            raise InvalidInput(
                where,
                show(value),
                "a finite number above 0" if most > 1 else "a number from 0 to 1",
            )
        table[row_of[row], column_of[column]] = value
    return table


@dataclass(frozen=True)
class Fractions:
    """What a model says of pairs, arrays of length E.

    Attributes
    ----------
    first, second : FloatArray
        Throughput of each job beside the other, divided by its throughput alone: in (0, 1], median; NaN where the model
        cannot say, 0 where the pair was measured and could not run together.
    log_sd : FloatArray
        Standard deviation of the log of either; 0 where measured.
    source : NDArray[uint8]
        `optsched.performance.Source`.
    """

    first: FloatArray
    second: FloatArray
    log_sd: FloatArray
    source: NDArray[np.uint8]


class PairModel(ABC):
    """A model of how fast jobs run that share their GPUs; it knows no instance.

    A fitted model is a document: `document` returns it, and `from_document` makes exactly the same model of it.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def workloads(self) -> tuple[str, ...]:
        """Names of the workloads that it may know something of."""

    @classmethod
    @abstractmethod
    def fit(cls, profiles: PairProfiles, options: Mapping[str, Any]) -> Self:
        """Fit the model to measurements; raises `InvalidInput` where they cannot determine it."""

    @classmethod
    @abstractmethod
    def from_document(cls, document: Mapping[str, Any], path: str = "performance.pairs") -> Self:
        """The model of a document (without ``model``); raises `InvalidInput` with paths below ``path``."""

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Everything that the model is, as JSON, with its ``model`` name."""

    @abstractmethod
    def fractions(self, pairs: Pairs) -> Fractions:
        """How fast the jobs of each pair run; names that the model does not know give NaN."""


def distinct_pairs(pairs: Pairs) -> tuple[Pairs, IntArray]:
    """Pairs without repetition, and for each pair given its row among them."""
    groups = group_rows([pairs.gpu, pairs.first, pairs.second], len(pairs))
    return pairs.take(groups.first), groups.inverse


LEARNED, MEASURED = np.uint8(Source.LEARNED), np.uint8(Source.MEASURED)
