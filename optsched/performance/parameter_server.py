"""Speed laws of jobs with workers and parameter servers: posynomials, as arrays of laws."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, owners, quotient, ranges
from optsched.arrays.values import cached_property

KEY = "parameter_server"
"""Key of the law in the parameters of a workload."""
TERMS = ((-1, 0), (0, 0), (1, -1), (1, 0), (0, 1), (0, -1), (-1, 1))
"""Powers of (w, p) in each term of a step's time."""
LAWS = {
    "ps-sync": {"a": (-1, 0), "b": (0, 0), "c": (1, -1), "d": (1, 0), "e": (0, 1)},
    "ps-async": {"a": (-1, 0), "b": (0, -1), "c": (0, 0), "d": (-1, 1)},
}
"""The term that each coefficient of a law belongs to;
of ``ps-sync`` a is multiplied by the batch.
"""
SLACK = 1e-9
"""Relative slack when integer numbers of workers and servers are compared with a limit, so that 3 x
0.1 fits into 0.3.
"""


@dataclass(frozen=True, eq=False)
class ParameterServers:
    """Laws of L workloads whose jobs run on w workers and p parameter servers, each 1, 2, 3, ...

    Time of a step, s, with coefficients >= 0; all laws are sums of the `TERMS`:

        ps-sync   t(w, p) = a B / w + b + c w / p + d w + e p         B: the batch of all workers together
        ps-async  t(w, p) = (a + b w / p + c w + d p) / w

    A job of K steps takes tau = K t(w, p) seconds, runs at K / tau = 1 / t steps/s and holds O_r w
    + G_r p of resource r, within its limit and the capacity:  O_r w + G_r p <= min(v_r, C_r). Its
    value is mu(tau), either a constant g_1 or the sigmoid

        mu(tau) = g_1 / (1 + exp(g_2 (tau - g_3)))      g_1, g_2 >= 0, so that mu never grows with tau.

    Attributes
    ----------
    workload : IntArray, shape (L,)
        Row of the instance's workloads.
    terms : FloatArray, shape (L, 7)
        Coefficients of the `TERMS`, s.
    names : tuple of str
        The R resources that some law names: pools (their GPUs), ``<pool>.cpu``, ``<pool>.memory``,
        others.
    pool_of : IntArray, shape (R,)
        Pool whose GPUs a resource is, else -1.
    worker, server, limit : FloatArray, shape (L, R)
        O, G and v; 0 for what a law doesn't name.
    capacity : FloatArray, shape (R,)
        C.
    value : FloatArray, shape (L, 3)
        g_1, g_2, g_3.
    constant : BoolArray, shape (L,)
        Whether the value is g_1, whatever the duration.

    References
    ----------
    Y. Peng et al., "Optimus: an efficient dynamic resource scheduler for deep learning clusters",
    EuroSys 2018, and its repository, ``scheduler/estimator.py`` (both laws); M. Yu et al., "A
    sum-of-ratios multi-dimensional-knapsack decomposition for DNN resource scheduling", INFOCOM
    2021 (limits and values).
    """

    workload: IntArray
    terms: FloatArray
    names: tuple[str, ...]
    pool_of: IntArray
    worker: FloatArray
    server: FloatArray
    limit: FloatArray
    capacity: FloatArray
    value: FloatArray
    constant: BoolArray

    @classmethod
    @cache
    def none(cls) -> ParameterServers:
        """No laws; always the same."""
        empty = np.zeros((0, 0))
        return cls(
            workload=EMPTY,
            terms=np.zeros((0, len(TERMS))),
            names=(),
            pool_of=EMPTY,
            worker=empty,
            server=empty,
            limit=empty,
            capacity=np.zeros(0),
            value=np.zeros((0, 3)),
            constant=np.zeros(0, bool),
        )

    def __len__(self) -> int:
        return len(self.workload)

    def step_seconds(self, law: IntArray, w: IntArray, p: IntArray) -> FloatArray:
        """t(w, p) of rows of laws, elementwise."""
        terms = self.terms[law]
        workers = w.astype(np.float64)
        servers = p.astype(np.float64)
        total = np.zeros(len(law))
        for number, (of_w, of_p) in enumerate(TERMS):
            total += terms[:, number] * workers**of_w * servers**of_p
        return total

    def utility(self, law: IntArray, tau: FloatArray) -> FloatArray:
        """mu(tau) of rows of laws, elementwise."""
        g1, g2, g3 = self.value[law].T
        with np.errstate(over="ignore"):
            # 1 / (1 + exp(z)) without overflow.
            sigmoid = g1 * np.exp(-np.logaddexp(0.0, g2 * (tau - g3)))
        value: FloatArray = np.where(self.constant[law], g1, sigmoid)
        return value

    # --- pairs (w, p) that fit
    # --------------------------------------------------------------------------------

    @cached_property
    def room(self) -> FloatArray:
        """min(v, C), shape (L, R)."""
        return np.minimum(self.limit, self.capacity)

    @cached_property
    def most_workers(self) -> IntArray:
        """W: most workers beside one server, shape (L,); 0 if not even one fits."""
        rows = np.arange(len(self), dtype=np.int64)
        return self._most(rows, self.room - self.server, self.worker)

    def most_servers(self, law: IntArray, w: IntArray) -> IntArray:
        """P_max(w): most servers beside w workers; 0 if not even one fits."""
        return self._most(
            law, self.room[law] - self.worker[law] * w[:, np.newaxis], self.server[law]
        )

    def _most(self, law: IntArray, left: FloatArray, each: FloatArray) -> IntArray:
        """Largest integer n with n * each <= left in every resource."""
        # Slack relative to the limit: 3 x 0.1 must fit into 0.3.
        slack = SLACK * np.maximum(self.room[law], np.abs(left))
        unlimited = np.where(left < -slack, 0.0, np.inf)
        most = np.where(each > 0, np.floor(quotient(left + slack, each)), unlimited)
        whole: IntArray = np.clip(most.min(axis=1, initial=np.inf), 0.0, 2.0**53).astype(np.int64)
        return whole

    def pairs(self) -> tuple[IntArray, IntArray, IntArray]:
        """Every (w, p) that fits, as rows (law, w, p) in this order."""
        law, w, servers = self._workers()
        return (
            np.repeat(law, servers),
            np.repeat(w, servers),
            ranges(1, servers),
        )

    def count_pairs(self) -> IntArray:
        """Number of pairs of each law that fit, shape (L,)."""
        law, _, servers = self._workers()
        return np.bincount(law, servers, minlength=len(self)).astype(np.int64)

    def _workers(self) -> tuple[IntArray, IntArray, IntArray]:
        """Rows (law, w, P_max(w)) for all w beside which a server fits."""
        law = owners(self.most_workers)
        w = ranges(1, self.most_workers)
        servers = self.most_servers(law, w)
        fits = servers > 0
        return law[fits], w[fits], servers[fits]

    # --- the inner problem ------------------------------------------------------------------------

    def fastest(self, epsilon: float = 0.0) -> tuple[IntArray, IntArray, FloatArray]:
        """The (w, p) that minimises t within the limit, and its t: the inner problem of SMD. It is
        exact, in O(W); with epsilon, to a factor of 1 + epsilon in O(log W / epsilon).

        For fixed w the time is beta / p + gamma p + constant, convex in p, with its minimum at
        sqrt(beta / gamma); the best whole p is this rounded down or up, clipped to [1, P_max(w)].
        With gamma = 0 more servers never increase the time, with beta = 0 they never reduce it. Of
        pairs that are equally fast the one with the fewest workers, then servers, is taken.

        With epsilon only numbers of workers of a grid are tried (`grid_of`). Let w' be the greatest
        of them up to the best w: w' <= w <= (1 + epsilon) w'. So the best p fits beside w' too, and
        no term is more than 1 + epsilon times as long at (w', p) as at (w, p): those in 1/w and p/w
        grow by w / w' at most, the others do not grow.
        Hence  t(w', p')  <=  (1 + epsilon) t(w, p)  for the best whole p' beside w'.

        Parameters
        ----------
        epsilon : float
            At least 0.

        Returns
        -------
        w, p : IntArray, shape (L,)
            0 where nothing fits.
        t : FloatArray, shape (L,)
            s per step; inf where nothing fits.
        """
        law, w, most = self._workers()
        if epsilon > 0:
            tried = np.isin(w, grid_of(int(w.max(initial=0)), epsilon))
            law, w, most = law[tried], w[tried], most[tried]
        beta = self.terms[law, 2] * w + self.terms[law, 5]
        gamma = self.terms[law, 4] + self.terms[law, 6] / w
        ideal = np.where(beta > 0, np.sqrt(quotient(beta, gamma, np.inf)), 1.0)
        # The time is convex in p, so one of the two integers around the minimum is the best.
        low = np.clip(np.floor(ideal), 1, most).astype(np.int64)
        high = np.clip(np.ceil(ideal), 1, most).astype(np.int64)
        slower = self.step_seconds(law, w, low)
        faster = self.step_seconds(law, w, high)
        p = np.where(faster < slower, high, low)
        t = np.minimum(slower, faster)

        # Sort by time, then workers, then servers; the first pair of each law is the best.
        order = np.lexsort((p, w, t, law))
        fits, first = np.unique(law[order], return_index=True)
        best_w, best_p = np.zeros((2, len(self)), np.int64)
        best_t = np.full(len(self), np.inf)
        best_w[fits] = w[order[first]]
        best_p[fits] = p[order[first]]
        best_t[fits] = t[order[first]]
        return best_w, best_p, best_t


def grid_of(most: int, epsilon: float) -> IntArray:
    """Whole numbers from 1 on such that each number up to ``most`` is at most 1 + epsilon times the
    greatest of these that is not above it.

    Parameters
    ----------
    most : int
    epsilon : float
        Above 0.
    """
    grid = [1]
    while grid[-1] < most:
        grid.append(max(grid[-1] + 1, int((1.0 + epsilon) * grid[-1])))
    return np.array(grid, np.int64)
