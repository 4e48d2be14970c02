"""Rates that are known of workloads, and the one that says most about a way to run that is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray, ranges

ROUNDING = 1e-9
"""Relative difference below which two doubts are equal."""


@dataclass(frozen=True)
class Spreads:
    """Standard deviations of the log rate: of another GPU type, for each doubling of GPUs, nodes, batch; at least."""

    gpu: float
    gpus: float
    nodes: float
    batch: float
    least: float


@dataclass(frozen=True)
class Setting:
    """Ways to run: GPU types, GPUs, nodes, samples of a GPU in a pass, passes of a step (NaN: not said)."""

    gpu: IntArray
    gpus: FloatArray
    nodes: FloatArray
    samples: FloatArray
    passes: FloatArray

    def __len__(self) -> int:
        return len(self.gpu)

    def take(self, rows: IntArray) -> Setting:
        """The ways at these rows."""
        return Setting(
            self.gpu[rows], self.gpus[rows], self.nodes[rows], self.samples[rows], self.passes[rows]
        )


@dataclass(frozen=True)
class KnownRates:
    """Rates of W workloads; workload w owns the rows ``indptr[w]:indptr[w + 1]``.

    Attributes
    ----------
    indptr : IntArray, shape (W + 1,)
    setting : Setting
        In which each was measured.
    rate : FloatArray
        Above 0; steps/s or samples/s.
    """

    indptr: IntArray
    setting: Setting
    rate: FloatArray

    @classmethod
    def of(
        cls, workloads: int, workload: IntArray, setting: Setting, rate: FloatArray
    ) -> KnownRates:
        """From rows in any order."""
        order = np.argsort(workload, kind="stable")
        indptr = np.concatenate(
            ([0], np.cumsum(np.bincount(workload, minlength=workloads)))
        ).astype(np.int64)
        return cls(indptr, setting.take(order), rate[order])

    def nearest(
        self, workload: IntArray, wanted: Setting, log_ratio: FloatArray, spreads: Spreads
    ) -> tuple[FloatArray, FloatArray]:
        """Rates and their log_sd from the known rate of the same workload that leaves least doubt; elementwise.

            rate' = rate x exp(log_ratio[g, g']) x k' / k
            log_sd^2 = sd_least^2 + [g' != g] sd_gpu^2 + (sd_gpus log2(k'/k))^2 + (sd_nodes log2(n'/n))^2
                       + (sd_batch log2(m'/m))^2 + (sd_batch log2(A'/A))^2        A passes

        Samples and passes that are not said cost nothing. NaN where nothing is known of the workload (or its row is
        -1), or no ratio between the GPU types. Among equals those of the
        same GPU type come first, then the first given.
        """
        known = workload >= 0
        row = np.where(known, workload, 0)
        length = (
            np.where(known, self.indptr[row + 1] - self.indptr[row], 0)
            if len(self.indptr) > 1
            else 0 * row
        )
        some = np.flatnonzero(length > 0)
        rate, log_sd = np.full(len(workload), np.nan), np.full(len(workload), np.nan)
        if len(some) == 0:
            return rate, log_sd
        entry = ranges(self.indptr[row[some]], length[some])
        way = np.repeat(some, length[some])
        here, there = self.setting.take(entry), wanted.take(way)
        change = log_ratio[here.gpu, there.gpu]
        doubt = spreads.least**2 + np.where(here.gpu != there.gpu, spreads.gpu**2, 0.0)
        doubt += (spreads.gpus * np.log2(there.gpus / here.gpus)) ** 2
        for spread, new, old in (
            (spreads.nodes, there.nodes, here.nodes),
            (spreads.batch, there.samples, here.samples),
            (spreads.batch, there.passes, here.passes),
        ):
            doubt += np.nan_to_num((spread * np.log2(new / old)) ** 2)
        doubt[np.isnan(change)] = np.inf
        first = np.cumsum(length[some]) - length[some]
        least = np.minimum.reduceat(doubt, first)
        hit = np.flatnonzero(doubt <= np.repeat(least, length[some]) * (1 + ROUNDING))
        hit = hit[np.lexsort((hit, here.gpu[hit] != there.gpu[hit], way[hit]))]
        _, at = np.unique(way[hit], return_index=True)
        best = hit[at]
        carried = (
            self.rate[entry[best]] * np.exp(change[best]) * (there.gpus[best] / here.gpus[best])
        )
        told = np.isfinite(least)
        rate[some[told]], log_sd[some[told]] = carried[told], np.sqrt(least[told])
        return rate, log_sd
