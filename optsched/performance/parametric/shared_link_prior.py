"""Parameters of the shared-link model in one vector, and what is thought of them before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray

BYTES, BYTES_SD = 3e8, 1.5
"""Gradients of a workload that nothing is stated of: 300 MB, times or by 4.5."""
PER_PARAMETER, PARAMETERS_SD = 4.0, 1.0
"""Bytes of a gradient per parameter of the workload; embeddings send far fewer."""
STATED_SD = 0.1
"""Of what is stated as gradient bytes or links."""
BANDWIDTH, BANDWIDTH_SD = (8e9, 2e9), 2.0
"""Bytes/s of an average GPU type, inside a node and across nodes."""
TYPE_SD = 2.0
"""Of one GPU type around the average."""
LATENCY, LATENCY_SD, LATENCY_TYPE_SD = (1e-4, 2e-4), 0.5, 0.5
"""s per hop, with the launch of the collective. They must not be free: where only few GPUs were measured, the bytes of
a gradient look like hops, whose time goes on growing with k when that of bytes no longer does."""
OVERLAP_SD = 1.0
"""Of log(g - 1) around 0, which is g = 2."""


@dataclass(frozen=True)
class Parameters:
    """Where the parameters of W workloads, G GPU types and F pairs without a 1-GPU profile are in the vector.

    All are logs; links are numbered 2 x GPU type + level, with level 0 inside a node and 1 across nodes.
    """

    workloads: int
    gpu_types: int
    free: int

    @property
    def bytes(self) -> int:
        """log S, W of them."""
        return 0

    @property
    def bandwidth(self) -> int:
        """log B of links, 2 G."""
        return self.workloads

    @property
    def latency(self) -> int:
        """log alpha of links, 2 G."""
        return self.bandwidth + 2 * self.gpu_types

    @property
    def overlap(self) -> int:
        """log(g - 1)."""
        return self.latency + 2 * self.gpu_types

    @property
    def means(self) -> int:
        """Averages of log B and log alpha over GPU types by level, 4."""
        return self.overlap + 1

    @property
    def base_constant(self) -> int:
        """log a of pairs without a 1-GPU profile, F."""
        return self.means + 4

    @property
    def base_slope(self) -> int:
        """log b of pairs without a 1-GPU profile, F."""
        return self.base_constant + self.free

    def __len__(self) -> int:
        return self.base_slope + self.free


class Prior:
    """Independent normal distributions of the parameters; links lie around averages that are fitted as well."""

    def __init__(self, parameters: Parameters, base: Sequence[tuple[float, float]]) -> None:
        at = self._at = parameters
        size = len(at)
        self.mean, self.sd = np.zeros(size), np.ones(size)
        self._around = np.full(size, -1)
        self._set(at.bytes, at.workloads, np.log(BYTES), BYTES_SD)
        for level in range(2):
            for links, means, typical, mean_sd, sd in (
                (at.bandwidth, at.means, BANDWIDTH, BANDWIDTH_SD, TYPE_SD),
                (at.latency, at.means + 2, LATENCY, LATENCY_SD, LATENCY_TYPE_SD),
            ):
                rows = links + np.arange(level, 2 * at.gpu_types, 2)
                self.mean[rows], self.sd[rows] = np.log(typical[level]), sd
                self._around[rows] = means + level
                self.mean[means + level], self.sd[means + level] = np.log(typical[level]), mean_sd
        self._set(at.overlap, 1, 0.0, OVERLAP_SD)
        for row, (constant, slope) in enumerate(base):
            self._set(at.base_constant + row, 1, np.log(constant), 1.0)
            self._set(at.base_slope + row, 1, np.log(slope), 1.0)

    def _set(self, start: int, count: int, mean: float, sd: float) -> None:
        self.mean[start : start + count], self.sd[start : start + count] = mean, sd

    def state(self, row: int, value: float, sd: float) -> None:
        """A parameter is known to be about ``value`` (its log is normal), whatever others are."""
        self.mean[row], self.sd[row], self._around[row] = np.log(value), sd, -1

    def state_bytes(
        self, rows: Mapping[str, int], given: Mapping[str, float], each: float, sd: float
    ) -> None:
        """Gradient bytes of workloads are about ``each`` times what is given."""
        for name, amount in given.items():
            if name in rows:
                self.state(self._at.bytes + rows[name], each * amount, sd)

    @property
    def bounds(self) -> tuple[FloatArray, FloatArray]:
        """Far away from all that can be; g is at most 10."""
        lower, upper = self.mean - 30, self.mean + 30
        upper[self._at.overlap] = np.log(9.0) + 1e-9
        return lower, upper

    def residuals(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Distances in standard deviations, and their derivatives."""
        slopes = np.diag(1.0 / self.sd)
        around = np.flatnonzero(self._around >= 0)
        center = self.mean.copy()
        center[around] = z[self._around[around]]
        slopes[around, self._around[around]] -= 1.0 / self.sd[around]
        return (z - center) / self.sd, slopes
