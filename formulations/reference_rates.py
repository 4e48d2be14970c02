"""Reference throughputs T_kj and the normalisers of the Gavel family that are made of them.

T_kj is the throughput of a job of class k that has pool j to itself at its gang: of its columns
alone on that pool the one with the fewest GPUs, and among these the fastest. For gangs that is
simply the job's throughput on the pool; for an elastic job it is the throughput at its smallest
count there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optsched.arrays import SMALL_TABLE, FloatArray, IntArray, blocks, increases, is_range
from optsched.candidates import Classes
from optsched.errors import InvalidInput


def reference_columns(C: Classes) -> tuple[IntArray, FloatArray]:
    """Column of each T_kj (-1: none) and T itself (0 where none), both of shape (K, pools)."""
    pools = len(C.instance.cluster.pools)
    (order,) = (C.alone & (C.pool >= 0)).nonzero()
    cell = C.class_a[order] * pools + C.pool[order]
    if not increases(cell):  # several columns of a class on a pool
        order = order[np.lexsort((-C.rate_a[order], C.gpus[order], cell))]
        cell = C.class_a[order] * pools + C.pool[order]
        first = np.ones(len(order), bool)
        first[1:] = cell[1:] != cell[:-1]
        cell, order = cell[first], order[first]
    column = np.full(len(C) * pools, -1, np.int64)
    column[cell] = order
    rate = np.where(column >= 0, C.rate_a[column], 0.0) if C.columns else np.zeros(len(column))
    return column.reshape(len(C), pools), rate.reshape(len(C), pools)


def reference_rates(C: Classes) -> FloatArray:
    """T alone, shape (K, pools)."""
    T = np.empty((len(C), len(C.instance.cluster.pools)))
    for part, rates in _some_by_some(C):
        T[part] = rates
    return T


def _some_by_some(C: Classes) -> Iterator[tuple[slice, FloatArray]]:
    """T of some classes after the other, as (classes, their rows of T):
    it is made at once only where it must be.
    """
    pools = len(C.instance.cluster.pools)
    begin = C.throughput.indptr
    # Of a few classes T takes no room.
    many = len(C) > SMALL_TABLE
    class_by_class = many and C.alone.all() and is_range(C.throughput.indices, C.columns)
    if class_by_class:
        for part in blocks(len(C)):
            columns = slice(begin[part.start], begin[part.stop])
            pool = C.configurations.pool[C.configuration[columns]]
            cell = (C.class_a[columns] - part.start) * pools + pool
            if (pool < 0).any() or not increases(cell):  # several columns of a class on a pool
                yield slice(part.start, len(C)), reference_columns(C)[1][part.start :]
                return
            rates = np.zeros(((part.stop - part.start), pools))
            rates.ravel()[cell] = C.rate_a[columns]
            yield part, rates
    else:
        yield slice(0, len(C)), reference_columns(C)[1]


def pool_gpus(C: Classes) -> FloatArray:
    """W_j, usable GPUs of each pool."""
    return C.instance.pool_sizes.gpus.astype(np.float64)


def proportional(C: Classes) -> FloatArray:
    """prop_k = sum_j T_kj W_j / sum_j W_j:
    the throughput of a job whose time is split in proportion to the pools.

    A job that uses no pool at all has its fastest column instead. Raises `InvalidInput` for a job
    without any rate.
    """
    W = pool_gpus(C)
    prop = np.empty(len(C))
    for part, T in _some_by_some(C):
        # Without a usable GPU it is 0, and the fastest column counts.
        prop[part] = T @ W / max(W.sum(), 1.0)
    bare = np.flatnonzero(prop <= 0)
    if len(bare):
        best = np.zeros(len(C))
        np.maximum.at(best, C.class_a, C.rate_a)
        prop[bare] = best[bare]
        rateless = np.flatnonzero(prop <= 0)
        if len(rateless):
            raise without_rate(C, rateless)
    return prop


def fastest(C: Classes) -> FloatArray:
    """best_k = max_c T_kc over the columns of class k alone:
    the throughput of a job that picks its configuration.

    A job that runs in pairs only has its fastest pair instead. Raises `InvalidInput` for a job
    without any rate.
    """
    best, paired = np.zeros(len(C)), np.zeros(len(C))
    np.maximum.at(best, C.class_a[C.alone], C.rate_a[C.alone])
    np.maximum.at(paired, C.class_a, C.rate_a)
    pair = ~C.alone
    np.maximum.at(paired, C.class_b[pair], C.rate_b[pair])
    best = np.where(best > 0, best, paired)
    rateless = np.flatnonzero(best <= 0)
    if len(rateless):
        raise without_rate(C, rateless)
    return best


def refuse_endless(C: Classes, k: IntArray) -> None:
    """Raise `InvalidInput` for one of the classes ``k`` that would never end:
    no option has a duration or a rate.

    Classes that cannot run alone are left to others.
    """
    alone, ends = np.zeros(len(C), bool), np.zeros(len(C), bool)
    alone[C.class_a[C.alone]] = True
    ends[C.class_a[C.alone & np.isfinite(C.duration)]] = True
    endless = k[alone[k] & ~ends[k]]
    if len(endless):
        raise without_rate(C, endless, "one of them, as jobs run to their end")


def refuse_rateless(C: Classes) -> None:
    """Raise `InvalidInput` if no class has a rate in any column:
    a sum of throughputs has no meaning for such jobs.
    """
    if len(C) and not C.throughput.sum() > 0:
        raise without_rate(C, np.arange(len(C)))


def without_rate(
    C: Classes, k: IntArray, expected: str = "a rate, as fractions of time are asked for"
) -> InvalidInput:
    """The error of jobs, of the classes ``k``,
    whose options state neither throughput nor duration.
    """
    job = int(C.first[k[0]])
    name = C.instance.jobs_table.names[job]
    if C.instance.options.value.any() or C.instance.options.cost.any():
        wanted = "multiple-choice" if C.instance.options.value.any() else "gap"
        stated = "values" if wanted == "multiple-choice" else "costs"
        expected = f"{expected}; -f {wanted} needs no rates, but {stated} of options"
    return InvalidInput(
        f"jobs[{job}].options",
        f"no throughput or duration (job {name!r})",
        expected,
    ).of_jobs(C.jobs_among(np.isin(np.arange(len(C)), k)))
