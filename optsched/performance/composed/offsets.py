"""Nested Gaussian offsets of log rates: workload, workload x GPU type, cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray, find_sorted, group_rows

MOST = 2**20
"""More GPUs or nodes than this count as this many: cells have keys of 64 bits."""
FORGOTTEN = 1e-9
"""A cell whose measurements weigh less than this is dropped."""
RELEASE = 100.0
"""A cell that has long been measured is held by its prior with a variance at most so many times larger."""


@dataclass(frozen=True)
class Scales:
    """Variances s_a^2, s_b^2, s_d^2 of the offsets and s_o^2 of a measurement, the forgetting, and the clip in sd."""

    workload: float
    gpu: float
    cell: float
    observation: float
    forget: float
    clip: float

    @property
    def prior(self) -> float:
        """Variance of a cell before anything was measured."""
        return self.workload + self.gpu + self.cell


@dataclass(frozen=True)
class Posterior:
    """Means and conditional variances of the three levels.

    ``b | a`` has mean (m - a) t and variance v_b; ``d | a + b`` has mean (r - a - b) s and variance v_d, with the
    shares t = s_b^2 / (s_b^2 + 1/P) and s = s_d^2 / (s_d^2 + s_o^2/n).
    """

    a: FloatArray
    var_a: FloatArray
    b: FloatArray
    t: FloatArray
    var_b: FloatArray
    d: FloatArray
    s: FloatArray
    var_d: FloatArray
    measured: FloatArray


@dataclass(frozen=True)
class Cells:
    """What has been measured of cells, arrays of one length: all that `Offsets` knows.

    Attributes
    ----------
    workload, gpu : IntArray
        Rows.
    gpus, nodes : IntArray
        At most `MOST` - 1.
    weight, mean : FloatArray
        n and r.
    calls : FloatArray
        Calls that measured the workload since the cell was measured first.
    """

    workload: IntArray
    gpu: IntArray
    gpus: IntArray
    nodes: IntArray
    weight: FloatArray
    mean: FloatArray
    calls: FloatArray


class Offsets:
    """What measurements say of W workloads on G GPU types, kept as two numbers a cell: weight n and mean residual r.

    The levels are a tree, so the posterior is exact in two passes:

        up     a cell says r of a + b with precision          p = 1 / (s_d^2 + s_o^2 / n)
               a type says m = sum p r / sum p of a           q = 1 / (s_b^2 + 1 / sum p)
        down   a = sum q m / (1/s_a^2 + sum q),  then b given a, then d given a + b
    """

    def __init__(
        self, scales: Scales, workloads: int, types: int, cells: Cells | None = None
    ) -> None:
        self.scales = scales
        self._shape = (workloads, types)
        if cells is None:
            nobody, nothing = np.zeros(0, np.int64), np.zeros(0)
            cells = Cells(nobody, nobody, nobody, nobody, nothing, nothing, nothing)
        owner, way = cells.workload * types + cells.gpu, _way(cells.gpus, cells.nodes)
        self._keep(owner, way, cells.weight, cells.mean, cells.calls)

    def _keep(
        self,
        owner: IntArray,
        way: IntArray,
        weight: FloatArray,
        mean: FloatArray,
        calls: FloatArray,
    ) -> None:
        """Remember these cells and no others: owner is workload * types + type, the way tells GPUs and nodes."""
        self._ways = np.unique(way)
        key = owner * len(self._ways) + find_sorted(self._ways, way)
        order = np.argsort(key).astype(np.int64)
        self._key, self._owner, self._way = key[order], owner[order], way[order]
        self._weight, self._mean, self._calls = weight[order], mean[order], calls[order]
        self._posterior = self._solve()

    @property
    def cells(self) -> Cells:
        """Everything that was learnt; offsets that begin with it go on in the same way, to the last bit."""
        workload, gpu = np.divmod(self._owner, max(self._shape[1], 1))
        gpus, nodes = np.divmod(self._way, MOST)
        return Cells(workload, gpu, gpus, nodes, self._weight, self._mean, self._calls)

    def of(
        self, workload: IntArray, gpu: IntArray, gpus: IntArray, nodes: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Offset and its variance for each (workload, type, GPUs, nodes); 0 and NaN where nothing was measured."""
        p, types = self._posterior, self._shape[1]
        known = (workload >= 0) & (gpu >= 0)
        w = np.where(known, workload, 0)
        owner = np.where(known, w * types + gpu, 0)
        if self._shape[0] * types == 0 or len(self._key) == 0:
            return np.zeros(len(workload)), np.full(len(workload), np.nan)
        cell = np.where(known, self._find(owner, gpus, nodes), -1)
        var_u = p.var_b[owner] + (1 - p.t[owner]) ** 2 * p.var_a[w]
        here = cell >= 0
        d, s, var_d = (
            np.where(here, x[cell], y)
            for x, y in ((p.d, 0.0), (p.s, 0.0), (p.var_d, self.scales.cell))
        )
        offset = np.where(known, p.a[w] + p.b[owner] + d, 0.0)
        variance = np.where(known & (p.measured[w] > 0), var_d + (1 - s) ** 2 * var_u, np.nan)
        return offset, variance

    def by_workload(self) -> FloatArray:
        """a of each workload."""
        return self._posterior.a.copy()

    def learn(
        self,
        workload: IntArray,
        gpu: IntArray,
        gpus: IntArray,
        nodes: IntArray,
        residual: FloatArray,
    ) -> None:
        """Take in residuals log(measured / rate before offsets); several of one cell in a call count each."""
        scales, types = self.scales, self._shape[1]
        offset, variance = self.of(workload, gpu, gpus, nodes)
        reach = scales.clip * np.sqrt(
            np.where(np.isnan(variance), scales.prior, variance) + scales.observation
        )
        clipped = offset + np.clip(residual - offset, -reach, reach)

        again = np.isin(self._owner // max(types, 1), workload)
        faded = np.where(again, self._weight * scales.forget, self._weight)
        kept = np.flatnonzero(faded >= FORGOTTEN)
        owner, way = workload * types + gpu, _way(gpus, nodes)
        every_owner, every_way = (
            np.concatenate([self._owner[kept], owner]),
            np.concatenate([self._way[kept], way]),
        )
        weight = np.concatenate([faded[kept], np.ones(len(residual))])
        value = np.concatenate([self._mean[kept], clipped])
        calls: FloatArray = np.concatenate([(self._calls + again)[kept], np.zeros(len(residual))])
        groups = group_rows((every_owner, every_way), len(every_owner))
        total = np.bincount(groups.inverse, weight, minlength=len(groups)).astype(np.float64)
        mean = np.bincount(groups.inverse, weight * value, minlength=len(groups)) / total
        oldest = np.zeros(len(groups))
        np.maximum.at(oldest, groups.inverse, calls)
        self._keep(every_owner[groups.first], every_way[groups.first], total, mean, oldest)

    def _find(self, owner: IntArray, gpus: IntArray, nodes: IntArray) -> IntArray:
        way = find_sorted(self._ways, _way(gpus, nodes))
        return np.where(way >= 0, find_sorted(self._key, owner * len(self._ways) + way), -1)

    def _solve(self) -> Posterior:
        s, (workloads, types) = self.scales, self._shape
        noise = s.observation / self._weight
        p = 1.0 / (s.cell + noise)
        P = np.bincount(self._owner, p, minlength=workloads * types)
        m = np.bincount(self._owner, p * self._mean, minlength=workloads * types) / np.where(
            P > 0, P, 1.0
        )
        spread = np.divide(1.0, P, out=np.full(len(P), np.inf), where=P > 0)
        q = np.where(P > 0, 1.0 / (s.gpu + np.where(P > 0, spread, 0.0)), 0.0)
        Q, qm = (
            q.reshape(workloads, types).sum(axis=1),
            (q * m).reshape(workloads, types).sum(axis=1),
        )
        var_a = s.workload / (1.0 + s.workload * Q)
        a = var_a * qm
        t = s.gpu * P / (1.0 + s.gpu * P)
        b: FloatArray = (m - np.repeat(a, types)) * t
        # A cell that has been measured for long needs no prior: without this, forgetting would pull it back for ever.
        own = s.cell * np.minimum(RELEASE, s.forget**-self._calls)
        share = own / (own + noise)
        d = (self._mean - a[self._owner // max(types, 1)] - b[self._owner]) * share
        measured = np.bincount(self._owner // max(types, 1), minlength=workloads).astype(np.float64)
        return Posterior(a, var_a, b, t, s.gpu * (1 - t), d, share, own * (1 - share), measured)


def _way(gpus: IntArray, nodes: IntArray) -> IntArray:
    return np.minimum(gpus, MOST - 1) * MOST + np.minimum(nodes, MOST - 1)
