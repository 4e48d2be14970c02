"""What two jobs of equal size gain when they share GPUs instead of taking turns on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from formulations.reference_rates import reference_columns
from optsched.arrays import EMPTY, FloatArray, IntArray, find_sorted, ranges
from optsched.candidates import Classes
from optsched.program import LinearProgram

GAIN = 1e-9
"""Smaller gains are rounding."""

Pairs = tuple[IntArray, IntArray]
"""Two rows of the job table, for every pair."""


@dataclass(frozen=True)
class PairRatios:
    """Columns in which two jobs share the GPUs that either would have alone,
    one per pair of classes and pool.

    Attributes
    ----------
    column : IntArray, shape (P,)
        Columns of the classes, sorted by (class, partner, pool).
    ratio : FloatArray, shape (P,)
        Sum over both jobs of their throughput together by that alone; more than 1 is a gain over
        taking turns.
    """

    column: IntArray
    ratio: FloatArray

    def at_least(self, ratio: float) -> PairRatios:
        """Those with at least this ratio."""
        keep = self.ratio >= ratio
        return PairRatios(self.column[keep], self.ratio[keep])


def pair_ratios(C: Classes) -> PairRatios:
    """Every pair of equal size:
    it holds as many GPUs as each of the two on the pool alone (its reference column).

    Pairs of which one cannot run alone on the pool have no ratio. Where a pool offers several
    spreads over nodes, the one with the largest ratio counts.
    """
    reference, T = reference_columns(C)
    pair = np.flatnonzero(~C.alone & (C.pool >= 0))
    a, b, pool = C.class_a[pair], C.class_b[pair], C.pool[pair]
    held = C.gpus * C.configurations.share[C.configuration]
    runs_alone = (T[a, pool] > 0) & (T[b, pool] > 0)
    as_many_as_a = held[reference[a, pool]] == held[pair]
    as_many_as_b = held[reference[b, pool]] == held[pair]
    equal = runs_alone & as_many_as_a & as_many_as_b
    pair, a, b, pool = pair[equal], a[equal], b[equal], pool[equal]
    ratio = C.rate_a[pair] / T[a, pool] + C.rate_b[pair] / T[b, pool]
    # Of each pair of classes and pool the first in order, which has the largest ratio.
    order = np.lexsort((-ratio, pool, b, a))
    first = np.ones(len(order), bool)
    first[1:] = np.diff(np.stack([a, b, pool])[:, order]).any(axis=0)
    best = order[first]
    return PairRatios(pair[best], ratio[best])


@dataclass(frozen=True)
class Gains:
    """Pairs of kinds that may share, with the pools on which they do not lose by it.

    Attributes
    ----------
    kinds : Classes
    ratios : PairRatios
    """

    kinds: Classes
    ratios: PairRatios

    @cached_property
    def _key(self) -> IntArray:
        """The pair of kinds of each column of ``ratios``, ascending."""
        K, column = self.kinds, self.ratios.column
        return K.class_a[column] * len(K) + K.class_b[column]

    @cached_property
    def _edges(self) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """(start among ``ratios``, a, b, w) of every pair of kinds."""
        start = np.flatnonzero(np.diff(self._key, prepend=-1))
        column = self.ratios.column[start]
        w = np.maximum.reduceat(self.ratios.ratio, start) - 1.0 if len(start) else np.zeros(0)
        return start, self.kinds.class_a[column], self.kinds.class_b[column], w

    @cached_property
    def worth(self) -> tuple[IntArray, IntArray, FloatArray]:
        """E: (a, b, w) of the pairs of kinds with a gain."""
        _, a, b, w = self._edges
        gain = w > GAIN
        return a[gain], b[gain], w[gain]

    def matching(self, integral: bool) -> LinearProgram | None:
        """The program that `formulations.gandiva.Matching` states, or its relaxation;
        None if no pair has a gain.
        """
        a, b, w = self.worth
        if len(w) == 0:
            return None
        n = self.kinds.count
        edge = np.arange(len(w))
        most = np.where(a == b, n[a] // 2, np.minimum(n[a], n[b]))
        # A pair inside a kind takes two of its jobs: entries at the same place are added up.
        ends = (np.append(a, b), np.append(edge, edge))
        jobs = sp.csr_matrix((np.ones(2 * len(w)), ends), (len(n), len(w)))
        lp = LinearProgram()
        z = lp.variables(len(w), name="z", upper=most, integer=integral)
        lp.constrain(jobs @ z <= n, name="jobs")
        lp.maximise(w[np.newaxis, :] @ z)
        return lp

    def greedy(self) -> IntArray:
        """z of E by falling gain, each as large as the jobs left allow."""
        a, b, w = self.worth
        left = self.kinds.count.astype(np.int64)
        z = np.zeros(len(w), np.int64)
        for edge in np.argsort(-w, kind="stable").tolist():
            i, j = a[edge], b[edge]
            z[edge] = left[i] // 2 if i == j else min(left[i], left[j])
            left[i] -= z[edge]
            left[j] -= z[edge]
        return z

    def jobs_of(self, z: IntArray) -> Pairs:
        """Fill z, over E, with jobs: the jobs of every kind in order."""
        a, b, _ = self.worth
        taken = np.zeros(len(self.kinds), np.int64)
        first = [EMPTY]
        second = [EMPTY]
        for edge in np.flatnonzero(z).tolist():
            for side, kind in ((first, int(a[edge])), (second, int(b[edge]))):
                side.append(self.kinds.jobs_of(kind)[taken[kind] : taken[kind] + z[edge]])
                taken[kind] += z[edge]
        return np.concatenate(first), np.concatenate(second)

    def columns_of(self, first: IntArray, second: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Pairs with the columns (of the candidates) in which they share;
        pairs without any are left out.
        """
        K = self.kinds
        start, a, b, _ = self._edges
        low = np.minimum(K.of_job[first], K.of_job[second])
        high = np.maximum(K.of_job[first], K.of_job[second])
        edge = find_sorted(a * len(K) + b, low * len(K) + high)
        known = edge >= 0
        first, second, edge = first[known], second[known], edge[known]
        length = np.diff(start, append=len(self.ratios.column))[edge]
        column = self.ratios.column[ranges(start[edge], length)]
        return np.repeat(first, length), np.repeat(second, length), K.kind_column[column]
