"""The ``amdahl`` and ``usl`` models: scaling of a fixed batch over GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.documents import Document, Name, NonEmpty, NonNegative, Positive, refused
from optsched.instance.reading import join, key
from optsched.performance.parametric.fitting import (
    KnownPairs,
    LogSd,
    columns,
    fit_nonnegative,
    flat,
    log_sd,
    nested,
    split,
)
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import StoredModel, Times
from optsched.performance.ways import Ways

LOG_SD = 0.1
"""Default log_sd of documents."""
MOST_SHARE = 1e30
"""Largest share; with it practically nothing can be divided."""
SAME_BATCH = 1e-6
"""Batches with a smaller relative difference count as equal."""


class CurveDocument(Document):
    """The law of one batch of a workload on a GPU type."""

    batch: Positive
    work: Positive
    serial: NonNegative = 0.0
    crosstalk: NonNegative = 0.0
    log_sd: LogSd = LOG_SD


class ScalingDocument(Document):
    """Laws by workload, then GPU type, one for each batch."""

    curves: dict[Name, dict[Name, NonEmpty[CurveDocument]]]

    @model_validator(mode="after")
    def _each_batch_once(self) -> Self:
        for pair, curves in flat(self.curves).items():
            batches = [curve.batch for curve in curves]
            for number, batch in enumerate(batches):
                if batch in batches[:number]:
                    path = join(".curves", [*pair, number, "batch"])
                    raise refused(f"{batch:g} again", "each batch once", path)
        return self


class Amdahl(StoredModel):
    """Amdahl's law: a share s of the work L of a step cannot be divided.

        t = L (1 + s (k - 1)) / k

    One law per workload, GPU type and batch (samples per step of the whole job); the number of
    nodes is ignored. With L and L s at least 0 the law is linear, t = L / k + (L s) (k - 1) / k,
    and fitted by non-negative least squares of relative errors. A batch that was not measured is
    unknown (NaN). A measured batch is also known if a split over GPUs rounds it up to whole samples
    per GPU. log_sd comes from the log residuals and degrees of freedom
    (`optsched.performance.parametric.fitting`). A curve with only one k is taken to scale linearly
    (s = 0). If no part of the time shrinks with more GPUs (L = 0), the curve does not follow the
    law, and its batch stays unknown.

    References
    ----------
    G. Amdahl, "Validity of the single processor approach to achieving large scale computing
    capabilities", 1967.
    """

    name = "amdahl"
    Stored = ScalingDocument
    terms: ClassVar[int] = 2

    def __init__(self, stored: ScalingDocument) -> None:
        super().__init__(stored)
        curves = self.curves = flat(stored.curves)
        self.pairs = KnownPairs(tuple(curves))
        rows = [(row, curve) for row, pair in enumerate(curves) for curve in curves[pair]]
        self._batches = np.unique([curve.batch for _, curve in rows])
        pair = np.array([row for row, _ in rows], np.int64)
        keys = self._key(pair, np.array([curve.batch for _, curve in rows]))
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        fields = ("batch", "work", "serial", "crosstalk", "log_sd")
        # Curves sorted by key, so that one binary search finds the curve of a way.
        table = [[getattr(rows[row][1], field) for field in fields] for row in order]
        self._table = columns(table, len(fields))

    def _key(self, pair: IntArray, batch: FloatArray) -> IntArray:
        """A sort key of pairs, then batches."""
        rank = np.searchsorted(self._batches, batch, side="right")
        return pair * (len(self._batches) + 1) + rank

    @classmethod
    def fit_checked(cls, profiles: Profiles, options: Document) -> Self:
        """One law for each batch of each pair that was measured."""
        fitted = {pair: tuple(cls._fit_batches(part)) for pair, part in split(profiles).items()}
        curves = {pair: found for pair, found in fitted.items() if found}
        if not curves:
            raise InvalidInput(
                f"profiles of {' on '.join(map(key, next(iter(fitted))))}: seconds",
                "no part that shrinks with more GPUs, nor elsewhere",
                "a batch whose steps several GPUs share",
            )
        return cls(ScalingDocument(curves=nested(curves)))

    @classmethod
    def _fit_batches(cls, part: Profiles) -> list[CurveDocument]:
        """A curve for each batch that follows the law."""
        batch = part.ways.samples_per_step
        order = np.argsort(batch, kind="stable")
        ends = np.flatnonzero(np.diff(batch[order]) > SAME_BATCH * batch[order][1:]) + 1
        parts = np.split(order, ends)
        curves = [cls._fit_curve(part.take(rows), float(batch[rows].min())) for rows in parts]
        return [curve for curve in curves if curve is not None]

    @classmethod
    def _fit_curve(cls, part: Profiles, batch: float) -> CurveDocument | None:
        """The law of one batch; None if no part of its time shrinks with more GPUs."""
        k = part.ways.gpus.astype(np.float64)
        t = part.seconds
        # Two GPU counts determine Amdahl's law, three the universal one.
        counts = len(np.unique(part.ways.gpus))  # no more coefficients than counts
        terms = np.stack([1 / k, (k - 1) / k, k - 1], axis=1)
        terms = terms[:, : min(cls.terms, counts)]
        found = fit_nonnegative(terms, t)
        work, serial, crosstalk = np.append(found, np.zeros(3 - len(found))).tolist()
        if work == 0 or max(serial, crosstalk) > MOST_SHARE * work:
            return None
        return CurveDocument(
            batch=batch,
            work=work,
            serial=serial / work,
            crosstalk=crosstalk / work,
            log_sd=log_sd(np.log(terms @ found / t), terms.shape[1]),
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The model of a document; only the universal law has crosstalk."""
        model = super().from_document(document)
        for pair, curves in model.curves.items():
            for number, curve in enumerate(curves):
                if curve.crosstalk > 0 and cls.terms < 3:
                    path = join("performance.curves", [*pair, number, "crosstalk"])
                    raise InvalidInput(path, f"{curve.crosstalk:g}", f"0 in the {cls.name} model")
        return model

    def times(self, ways: Ways) -> Times:
        """The law of each way's batch."""
        pair = self.pairs.find(ways)
        wanted = self._key(pair, ways.samples_per_step * (1 + SAME_BATCH))
        # Take the largest curve batch that is at most the way's batch, because the latter may be
        # rounded up to whole samples.
        at = np.searchsorted(self._keys, wanted, side="right") - 1
        known = at >= 0
        known[known] = self._keys[at[known]] // (len(self._batches) + 1) == pair[known]
        batch, work, serial, crosstalk, log_sd = self._table[:, np.where(known, at, -1)]
        k = ways.gpus.astype(np.float64)
        seconds = work * (1 + serial * (k - 1) + crosstalk * k * (k - 1)) / k
        # Rounding up to whole samples of all GPUs adds less than one sample to each.
        least_batch = ways.samples_per_step - ways.gpus * ways.passes
        seconds = np.where(batch > least_batch, seconds, np.nan)
        return Times(seconds, log_sd, np.full(len(ways), Source.PARAMETRIC, np.uint8))


class UniversalScalability(Amdahl):
    """Amdahl's law with crosstalk, the universal scalability law:
    every GPU waits for every other one.

        t = L (1 + s (k - 1) + q k (k - 1)) / k

    Fitted as `Amdahl`, t = L / k + (L s) (k - 1) / k + (L q) (k - 1); with two measured k q is 0.

    References
    ----------
    N. Gunther, "Guerrilla Capacity Planning", 2007.
    """

    name = "usl"
    terms = 3
