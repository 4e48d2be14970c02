"""Rounding of split jobs by slots and a matching (Shmoys and Tardos)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, owners, ranges, sum_before

ROUNDING = 1e-9
"""Parts of a unit that are rounding."""


class CutRows(NamedTuple):
    """Parts of rows that were cut.

    Attributes
    ----------
    row : IntArray, shape (P,)
    unit : IntArray, shape (P,)
        Number of the unit of its group that a piece is in, from 0.
    amount : FloatArray, shape (P,)
    """

    row: IntArray
    unit: IntArray
    amount: FloatArray


def cut(amount: FloatArray, group: IntArray, size: FloatArray) -> CutRows:
    """Lay the rows of each group end to end, and cut at multiples of a size.

    Parameters
    ----------
    amount : FloatArray, shape (rows,)
    group : IntArray, shape (rows,)
        Groups are consecutive rows.
    size : FloatArray, shape (rows,)
        Of a unit of the row's group.

    Returns
    -------
    CutRows
        In order of the rows.
    """
    start = sum_before(amount, group) / size
    end = start + amount / size
    first = np.floor(start + ROUNDING).astype(np.int64)
    last = np.maximum(np.ceil(end - ROUNDING).astype(np.int64), first + 1)
    row = owners(last - first)
    unit = ranges(first, last - first)
    part = np.minimum(end[row], unit + 1.0) - np.maximum(start[row], unit)
    return CutRows(row, unit, np.maximum(part, 0.0) * size[row])


def whole_jobs(
    amount: FloatArray, job: IntArray, machine: IntArray, size: FloatArray, cost: FloatArray
) -> IntArray:
    """A row for each job, such that no machine has more than its amounts of size and one job of
    largest size.

    Machine i has ceil(sum of its amounts) slots, filled in order of decreasing size: each holds an
    amount of 1. Jobs and slots are matched at the least cost. The amounts are such a matching in
    fractions, so one in whole jobs costs no more. A job in slot s + 1 is no larger than any part of
    slot s, so the jobs of slots 2, 3, ... are no larger than what the machine was given.

    Parameters
    ----------
    amount : FloatArray, shape (rows,)
        Of a job on a machine; those of a job add up to 1.
    job, machine : IntArray, shape (rows,)
        Jobs are numbered from 0, each with a row.
    size, cost : FloatArray, shape (rows,)
        What a job adds to its machine there, and what it costs.

    Returns
    -------
    IntArray, shape (jobs,)

    References
    ----------
    D. B. Shmoys, E. Tardos, "An approximation algorithm for the generalized assignment problem",
    Mathematical Programming 62 (1993).
    """
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching  # loads much

    if not len(job):
        return job
    order = np.lexsort((-size, machine))
    pieces = cut(amount[order], machine[order], np.ones(len(order)))
    row = order[pieces.row]
    _, slot = np.unique(np.stack([machine[row], pieces.unit]), axis=1, return_inverse=True)
    # Of several rows of a job in a slot the cheapest; rounding of amounts leaves edges that are
    # none
    edges = np.flatnonzero(pieces.amount > ROUNDING)
    edges = edges[np.lexsort((cost[row[edges]], slot[edges], job[row[edges]]))]
    pair = job[row[edges]] * (int(slot.max()) + 1) + slot[edges]
    pair, first = np.unique(pair, return_index=True)
    edges = edges[first]
    # A weight of 0 would be no edge
    weight = cost[row[edges]] - cost.min() + 1.0
    shape = (int(job.max()) + 1, int(slot.max()) + 1)
    graph = sp.csr_matrix((weight, (job[row[edges]], slot[edges])), shape=shape)
    of_job, in_slot = min_weight_full_bipartite_matching(graph)
    of_pair = np.searchsorted(pair, of_job * shape[1] + in_slot)
    chosen = np.empty(shape[0], np.int64)
    chosen[of_job] = row[edges][of_pair]
    return chosen
