"""The roofline: an operation takes as long as its arithmetic
or its memory traffic, whichever is longer.

    t = max(F / (peak e_c), Q / (bandwidth e_m)) + launch           ridge = peak / bandwidth, FLOP per byte

F FLOPs, Q bytes; e_c and e_m are the shares of the datasheet's figures that kernels reach. A
workload is a list of operations; one with c instances, F and Q per sample and R bytes that are
moved whatever the batch (weights) takes, for m samples,

    c (max(m F / (peak e_c), (m Q + R) / (bandwidth e_m)) + launch).

On a slice of a GPU both peak and bandwidth are the slice's shares of them
(`optsched.performance.analytic.hardware`).

References
----------
S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
multicore architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import (
    FloatArray,
    IntArray,
    owners,
    pointers,
    ranges,
)
from optsched.performance.analytic.collectives import Numbers


def roofline(
    flops: Numbers,
    moved: Numbers,
    peak: Numbers,
    bandwidth: Numbers,
    launch: Numbers = 0.0,
) -> FloatArray:
    """Seconds of operations; arrays that broadcast together, with reached peak and bandwidth."""
    return np.maximum(np.divide(flops, peak), np.divide(moved, bandwidth)) + launch


@dataclass(frozen=True)
class Operations:
    """Lists of operations of W workloads; workload w owns the rows ``indptr[w]:indptr[w + 1]``.

    Attributes
    ----------
    indptr : IntArray, shape (W + 1,)
    flops, moved, fixed, count : FloatArray, shape (R,)
        F, Q, R, c.
    """

    indptr: IntArray
    flops: FloatArray
    moved: FloatArray
    fixed: FloatArray
    count: FloatArray

    @classmethod
    def of(cls, lists: Sequence[Sequence[tuple[float, float, float, float]]]) -> Operations:
        """From rows (F, Q, R, c) of each workload."""
        length = [len(rows) for rows in lists]
        table = np.array([row for rows in lists for row in rows], np.float64).reshape(-1, 4)
        return cls(pointers(length), *table.T)

    def seconds(
        self,
        workload: IntArray,
        samples: FloatArray,
        peak: FloatArray,
        bandwidth: FloatArray,
        launch: float,
    ) -> FloatArray:
        """Seconds of all operations of a workload for m samples, elementwise."""
        # One row for each operation of each (workload, samples); the rows are summed at the end.
        length = self.indptr[workload + 1] - self.indptr[workload]
        row = ranges(self.indptr[workload], length)
        way = owners(length)
        m = samples[way]
        each = roofline(
            m * self.flops[row],
            m * self.moved[row] + self.fixed[row],
            peak[way],
            bandwidth[way],
            launch,
        )
        return np.asarray(
            np.bincount(way, self.count[row] * each, minlength=len(workload)), np.float64
        )
