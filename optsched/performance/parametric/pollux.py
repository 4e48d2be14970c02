"""The ``pollux`` model: data-parallel training with compute and synchronisation that overlap in part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field

from optsched.instance.documents import Document, Name, NonNegative, PlainObject
from optsched.instance.reading import join, validate
from optsched.performance.parametric.cells import (
    CHUNK,
    Cells,
    by_names,
    chunks,
    columns,
    flat,
    gather,
    split,
)
from optsched.performance.parametric.fitting import check_compute, check_some, within
from optsched.performance.parametric.overlap import overlapped
from optsched.performance.parametric.pollux_fit import PolluxFit, fit_adaptdl, fit_robust
from optsched.performance.parametric.pollux_law import A_C, A_N, A_R, B_C, B_N, B_R, NAMES, G
from optsched.performance.parametric.uncertainty import LogSd
from optsched.performance.profiles import Profiles
from optsched.performance.protocol import Source
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways

PRIOR_LOG_SD = 0.3
"""Of ways whose synchronisation was never measured: linear scaling was off by 27 to 35 % on Sia's profiles."""
LEVELS = 3
"""One GPU, one node, several nodes."""


class PolluxOptions(Document):
    """How to fit; see `Pollux.fit`."""

    method: Literal["robust", "adaptdl"] = "robust"


class PolluxLawDocument(Document):
    """Coefficients of one workload on one GPU type."""

    a_c: NonNegative
    b_c: NonNegative
    a_n: NonNegative = 0.0
    b_n: NonNegative = 0.0
    a_r: NonNegative = 0.0
    b_r: NonNegative = 0.0
    g: Annotated[float, Field(ge=1, le=10)] = 1.0
    log_sd: LogSd = 0.1
    inside: bool = True
    across: bool = True


class PolluxDocument(Document):
    """The model: laws by workload, then GPU type; what its fit was asked for is kept with it."""

    coefficients: dict[Name, dict[Name, PolluxLawDocument]]
    fitted: PlainObject = Field(default_factory=dict)


class Pollux(TimeModel):
    """Seconds of a step of k GPUs on n nodes, m samples each, in one law per (workload, GPU type).

        T_grad = a_c + b_c m
        T_sync = 0                         k = 1
                 a_r + b_r max(k - 2, 0)   n = 1
                 a_n + b_n max(k - 2, 0)   n > 1
        t = (passes - 1) T_grad + (T_grad^g + T_sync^g)^(1/g)        1 <= g <= 10

    Coefficients in s, s per sample and s per GPU. ``log_sd`` of a law is that of its fit's log residuals by their
    degrees of freedom (`optsched.performance.parametric.uncertainty`). ``inside`` and ``across`` tell whether several
    GPUs on one node, and on several nodes, were measured: where not, T_sync is AdaptDL's optimistic guess (0, or 1.1
    times that of one node), the source is `PRIOR` and the log_sd at least 0.3.

    Options of `fit`: ``method``, ``robust`` (default; soft_l1 of log t) or ``adaptdl`` (the published objective, which
    needs measured sync times, with several starts where AdaptDL has one).

    References
    ----------
    A. Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning", OSDI 2021, section
    3.2; AdaptDL (Apache-2.0), ``adaptdl/goodput.py``.
    """

    name = "pollux"

    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        laws: Sequence[PolluxFit],
        fitted: Mapping[str, Any] | None = None,
    ) -> None:
        self.cells = Cells(tuple(pairs))
        self.laws = tuple(laws)
        self._fitted = dict(fitted or {})
        self._table = columns([row for law in laws for row in _levels(law)], 7, LEVELS)
        self._source = np.nan_to_num(self._table[-1], nan=float(Source.PRIOR)).astype(np.uint8)

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        """One law per (workload, GPU type) that was measured."""
        chosen = validate(PolluxOptions, dict(options), "performance")
        check_some(profiles)
        fit = fit_robust if chosen.method == "robust" else fit_adaptdl
        laws = {}
        for pair, part in split(profiles.sorted()).items():
            with within(pair):
                laws[pair] = fit(part)
        return cls(tuple(laws), tuple(laws.values()), {"method": chosen.method})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """The model of a document."""
        given = validate(PolluxDocument, dict(document), "performance")
        for pair, law in flat(given.coefficients).items():
            check_compute(join("performance.coefficients", pair), {"a_c": law.a_c, "b_c": law.b_c})
        laws = {pair: _fit_of(law) for pair, law in flat(given.coefficients).items()}
        return cls(tuple(laws), tuple(laws.values()), given.fitted)

    def document(self) -> dict[str, Any]:
        """Coefficients by workload and GPU type."""
        laws = [
            dict(zip(NAMES, law.law.tolist(), strict=True))
            | {"log_sd": law.log_sd, "inside": law.inside, "across": law.across}
            for law in self.laws
        ]
        document = {"model": self.name, "coefficients": by_names(self.cells.pairs, laws)}
        return document | ({"fitted": self._fitted} if self._fitted else {})

    def times(self, ways: Ways) -> Times:
        """The law of each way."""
        count = len(ways)
        (seconds, log_sd), source = (
            np.empty((2, count)),
            np.empty(count, np.uint8),
        )  # two at once: fewer new pages
        find = self.cells.finder(ways, LEVELS)
        work = np.empty((5, CHUNK))
        for rows in chunks(count):
            gpus = ways.gpus[rows]
            cell = find(rows) + np.add(gpus > 1, ways.nodes[rows] > 1, dtype=np.int64)
            a_c, b_c, g, a, b = (gather(self._table[row], cell, work[row]) for row in range(5))
            gather(self._table[5], cell, log_sd[rows])
            gather(self._source, cell, source[rows])
            compute = np.multiply(b_c, ways.samples[rows], out=b_c)
            compute += a_c
            sync = np.multiply(b, np.maximum(gpus - 2, 0).astype(np.float64), out=b)
            sync += a
            seconds[rows] = overlapped(compute, sync, g)
            several = ways.passes[rows] - 1
            if several.any():
                seconds[rows] += several * compute
        return Times(seconds, log_sd, source)


def _levels(fit: PolluxFit) -> list[tuple[float, ...]]:
    """a_c, b_c, g, a and b of T_sync, log_sd and source: of steps on one GPU, on one node, on several."""
    law, guess = fit.law, max(fit.log_sd, PRIOR_LOG_SD)
    compute = (law[A_C], law[B_C], law[G])
    return [
        (*compute, 0.0, 0.0, fit.log_sd, Source.PARAMETRIC),
        (
            *compute,
            law[A_R],
            law[B_R],
            *((fit.log_sd, Source.PARAMETRIC) if fit.inside else (guess, Source.PRIOR)),
        ),
        (
            *compute,
            law[A_N],
            law[B_N],
            *((fit.log_sd, Source.PARAMETRIC) if fit.across else (guess, Source.PRIOR)),
        ),
    ]


def _fit_of(given: PolluxLawDocument) -> PolluxFit:
    law = np.array([getattr(given, name) for name in NAMES])
    return PolluxFit(law, np.nan, given.log_sd, given.inside, given.across)
