"""Places in the orders of machines that jobs are assigned to:
the cheapest of each job, and whole assignments.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, owners, ranges
from optsched.arrays.matrices import sum_by
from optsched.errors import UsageError

BISECTIONS = 50
WHOLE = 1e-6
"""Values this near to a whole number are that number, and values above it are no noise."""


@dataclass(frozen=True)
class Slots:
    """Variables x_kgi: a job of class k at place i (from the end) of a machine of group g.

    Attributes
    ----------
    k, g, i : IntArray, shape (S,)
        In order of (k, g, i).
    cost : FloatArray, shape (S,)
        a_g + i p_kg.
    depth : IntArray, shape (K, G)
        Places of each class in each group: i = 1, ..., depth.
    """

    k: IntArray
    g: IntArray
    i: IntArray
    cost: FloatArray
    depth: IntArray

    def __len__(self) -> int:
        return len(self.k)

    @cached_property
    def _start(self) -> IntArray:
        """First variable of each (k, g), shape (K, G)."""
        flat = self.depth.ravel()
        return (np.cumsum(flat) - flat).reshape(self.depth.shape)

    def find(self, k: IntArray, g: IntArray, i: IntArray) -> IntArray:
        """Number of each variable, -1 where there is none."""
        return np.where(i <= self.depth[k, g], self._start[k, g] + i - 1, -1)

    @cached_property
    def _deepest(self) -> IntArray:
        """Places of each group that some class has, shape (G,)."""
        return np.asarray(self.depth.max(axis=0, initial=0))

    @cached_property
    def at(self) -> IntArray:
        """Place (g, i) of each variable, as a number, shape (S,)."""
        start = np.cumsum(self._deepest) - self._deepest
        return start[self.g] + self.i - 1

    @property
    def place_g(self) -> IntArray:
        """Group of each place (g, i)."""
        return owners(self._deepest)

    @property
    def place_i(self) -> IntArray:
        """i of each place (g, i)."""
        return ranges(np.ones(len(self._deepest), np.int64), self._deepest)

    @property
    def place(self) -> sp.csr_matrix:
        """1 where a variable is at a place, shape (places, S)."""
        return sum_by(self.at, 1.0, int(self._deepest.sum()))

    def one(self, classes: IntArray) -> sp.csr_matrix:
        """1 where a variable is of a class,
        for some of them in increasing order, shape (classes, S).
        """
        return sum_by(np.searchsorted(classes, self.k), 1.0, len(classes))


def cheapest_slots(p: FloatArray, n: FloatArray, a: FloatArray, N: IntArray, most: int) -> Slots:
    """For every class the places (g, i) that cost at most tau_k:
    with their N_g machines at least sum_k n_k of them.

    tau_k is found by bisection, so that nothing is sorted and a place is as cheap as any that is
    left out.

    Parameters
    ----------
    p : FloatArray, shape (K, G)
        Seconds; inf where the class cannot run.
    n : FloatArray, shape (K,)
        Jobs; 0 for classes that get no place.
    a : FloatArray, shape (G,)
    N : IntArray, shape (G,)
    most : int
        Raises `UsageError` for more variables than that.
    """
    jobs = float(n.sum())
    # So many places hold all jobs, on this group alone.
    enough = np.ceil(jobs / N)
    asked = np.flatnonzero(n > 0)
    p = p[asked]

    def depth(tau: FloatArray) -> FloatArray:
        """Places of each class in each group that cost at most tau: those with a_g + i p <= tau."""
        budget = tau[:, np.newaxis] - a
        with np.errstate(divide="ignore", invalid="ignore"):
            places = np.floor(budget / p)
        # Jobs without any length cost the same at all places.
        places = np.where(p > 0, places, np.where(tau[:, np.newaxis] >= a, enough, 0.0))
        return np.clip(np.where(np.isfinite(p), places, 0.0), 0.0, enough)

    # At this cost a class has places for all jobs in its cheapest group alone.
    high = (a + enough * p).min(axis=1, initial=np.inf) * (1 + 1e-9)
    low = np.zeros(len(asked))
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        holds = depth(middle) @ N >= jobs
        high, low = np.where(holds, middle, high), np.where(holds, low, middle)
    places = np.zeros((len(n), len(N)), np.int64)
    # A little more than tau: rounding must not leave out a place that costs exactly as much.
    places[asked] = depth(high * (1 + 1e-9)).astype(np.int64)
    if places.sum() > most:
        raise UsageError(
            f"allox: {int(jobs)} jobs on {len(N)} groups of equal GPUs make {places.sum()} "
            f"variables, at most {most} are taken: alpha plans fewer jobs"
        )
    k, g = np.divmod(np.repeat(np.arange(places.size), places.ravel()), max(len(N), 1))
    i = ranges(np.ones(places.size, np.int64), places.ravel())
    whole_p = np.full(places.shape, np.inf)
    whole_p[asked] = p
    return Slots(k, g, i, a[g] + i * whole_p[k, g], places)


def whole_assignment(slots: Slots, n: IntArray, N: IntArray, x: FloatArray | None) -> IntArray:
    """Whole numbers of jobs per variable:
    x itself if it is whole, else the cheapest assignment among its entries.

    The entries of an optimal x have reduced cost 0, and x is a mean of vertices: an optimal whole
    assignment lies among them. For an x without any (of a solver that was stopped), or None, all
    variables are tried.

    Parameters
    ----------
    slots : Slots
    n : IntArray, shape (K,)
    N : IntArray, shape (G,)
    x : FloatArray, shape (S,), or None
    """
    if x is not None:
        whole = np.round(x).astype(np.int64)
        if (np.abs(x - whole) <= WHOLE).all() and _fits(slots, whole, n, N):
            return whole
        found = _matched(slots, n, N, np.flatnonzero(x > WHOLE))
        if found is not None:
            return found
    found = _matched(slots, n, N, np.arange(len(slots)))
    assert found is not None  # every class has as many places as there are jobs
    return found


def _fits(slots: Slots, whole: IntArray, n: IntArray, N: IntArray) -> bool:
    each = np.bincount(slots.k, whole, minlength=len(n))
    held = np.bincount(slots.at, whole, minlength=len(slots.place_g))
    return bool((whole >= 0).all() and (each == n).all() and (held <= N[slots.place_g]).all())


def _matched(slots: Slots, n: IntArray, N: IntArray, among: IntArray) -> IntArray | None:
    """The cheapest assignment over some variables,
    each job and each machine's place a node; None if there is none.
    """
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    k, at = slots.k[among], slots.at[among]
    # A place has a copy per machine of its group, but no more than jobs that may have it.
    wanted = np.bincount(at, n[k], minlength=len(slots.place_g))
    copies = np.minimum(N[slots.place_g], wanted).astype(np.int64)
    shape = (int(n.sum()), int(copies.sum()))
    if shape[0] > shape[1]:
        return None
    # An edge for each job of the class and each copy of the place, of every variable.
    edges = n[k] * copies[at]
    edge = np.repeat(among, edges)
    number_here = ranges(np.zeros(len(among), np.int64), edges)
    width = np.maximum(np.repeat(copies[at], edges), 1)
    job = (np.cumsum(n) - n)[slots.k[edge]] + number_here // width
    place = (np.cumsum(copies) - copies)[slots.at[edge]] + number_here % width
    # + 1: an entry of 0 would be no edge.
    weight = sp.csr_matrix((slots.cost[edge] + 1.0, (job, place)), shape=shape)
    number = sp.csr_matrix((np.arange(1, len(edge) + 1), (job, place)), shape=shape)
    try:
        rows, columns = min_weight_full_bipartite_matching(weight)
    except ValueError:
        return None
    taken = edge[np.asarray(number[rows, columns]).ravel() - 1]
    return np.bincount(taken, minlength=len(slots)).astype(np.int64)
