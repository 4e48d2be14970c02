"""`realise`: from fractions of time to slices of time in which whole jobs run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, owners
from optsched.candidates import Classes, JobRows
from optsched.errors import InvalidArgument, UsageError
from optsched.instance.durations import OutOfTime
from optsched.instance.staying import must_stay
from optsched.placement.instant import (
    Instant,
    first_fit,
    priority_slices,
    run_matrix,
)
from optsched.placement.node_room import NodeRoom
from optsched.placement.open_shop import as_open_shop, decompose
from optsched.placement.patterns import Items, shortest, spread
from optsched.placement.shares import FULL
from optsched.program.space import PLACEABLE, TenantCells
from optsched.solution import Allocation, Rounds
from optsched.solving.engine import Engine

METHODS = ("auto", "open-shop", "patterns", "priority")
PRIORITY_ROUNDS = 100
"""Default number of rounds of a window that the priority rule fills."""
MOST_ROUNDS = 100_000
"""Most rounds of a window."""


def realise(
    allocation: Allocation,
    engine: Engine | None = None,
    method: str = "auto",
    rounds: int | None = None,
    constraints: Iterable[Mapping[str, Any]] = (),
    cells: Sequence[TenantCells] = (),
) -> Rounds:
    """Cut an allocation of fractions of time into slices in which whole jobs run side by side.

    Parameters
    ----------
    allocation : Allocation
    engine : Engine, optional
        Runs the programs of ``patterns``; only that method needs one.
    method : str
        ``open-shop``
            Exact, for jobs on one GPU each (or gangs of one size per pool) that share no GPUs.
        ``patterns``
            For all allocations: the largest share of the allocation that can be realised, with a
            bound.
        ``priority``
            Gavel's rule, round by round; converges over many rounds.
        ``auto``
            All rows start together if they fit side by side; else open-shop if it applies, else
            patterns.
    rounds : int, optional
        Number of rounds of the window. Default: 100 for ``priority``, otherwise one per slice.
    constraints : iterable of mappings
        Side constraints. With ``placeable``, rows that run at one time have room on nodes, except
        by ``priority``.
    cells : sequence of TenantCells
        Cells that are reserved for tenants: rows that run at one time have room beside them.

    Returns
    -------
    Rounds
        Its ``scale`` is 1 if the allocation is realised in full.

    Raises
    ------
    UsageError
        The method is unknown, the number of rounds is out of range, ``open-shop`` does not apply,
        an engine is missing, or ``priority`` is to keep reserved cells.
    """
    if method not in METHODS:
        raise InvalidArgument("method", repr(method), f"one of {', '.join(METHODS)}")
    if rounds is not None and not 1 <= rounds <= MOST_ROUNDS:
        raise InvalidArgument("rounds", str(rounds), f"a number from 1 to {MOST_ROUNDS:,}")
    rows = allocation.rows
    constraints = list(constraints)
    nodes, counted = None, any(item["kind"] == PLACEABLE for item in constraints)
    if cells and (engine is None or method == "priority"):
        raise UsageError(
            f"cells of tenant {cells[0].tenant} are reserved: the method {method} counts GPUs in "
            "total, and auto finds nodes"
        )
    if (counted or cells) and engine is not None and method != "priority":
        nodes = NodeRoom.of(allocation.classes, rows.column, engine, constraints, cells)
    instant = Instant.of(allocation.classes, rows, nodes=nodes)
    # A rule: its only bound is 1, and a row may get more than ``scale`` of its fraction.
    if method == "priority":
        rounds = PRIORITY_ROUNDS if rounds is None else rounds
        length, runs = priority_slices(instant, rounds)
        scale = _smallest_share(instant, length, runs)
        return Rounds(
            allocation.classes,
            rows,
            length,
            runs,
            scale,
            1.0,
            method,
            rounds,
            True,
        )
    used, cut = _cut_by(method, instant, engine)
    length, runs = _firm_first(allocation, cut.length, cut.runs)
    if rounds is None:
        rounds = max(len(length), 1)
    return Rounds(
        classes=allocation.classes,
        rows=rows,
        length=length,
        runs=runs,
        scale=cut.scale,
        bound=cut.bound,
        method=used,
        rounds=rounds,
        finished=cut.finished,
    )


def slices_of(
    engine: Engine, classes: Classes, rows: JobRows, capacities: FloatArray
) -> tuple[FloatArray, sp.csr_matrix] | None:
    """Slices of an interval of time in which rows run for their fractions of it.

    Parameters
    ----------
    engine : Engine
        Solves the programs of patterns if they are needed.
    classes : Classes
    rows : JobRows
    capacities : FloatArray, shape (R,)
        Capacity of each resource.

    Returns
    -------
    lengths : FloatArray, shape (S,)
        As parts of the interval.
    runs : csr_matrix of 0/1, shape (S, rows)
        The result is None if it is unknown whether the rows can run so.
    """
    _, cut = _cut_by("auto", Instant.of(classes, rows, capacities), engine)
    # The tolerance is for rounding of sums of fractions.
    return (cut.length, cut.runs) if cut.scale >= 1.0 / FULL else None


class _Cut(NamedTuple):
    """Slices of the window, the share of the allocation that they realise, and a bound on that
    share.
    """

    length: FloatArray
    runs: sp.csr_matrix
    scale: float
    bound: float
    finished: bool = True


def _cut_by(method: str, instant: Instant, engine: Engine | None) -> tuple[str, _Cut]:
    """The method that is used, and its result."""
    # If jobs and pools form a bipartite matching, an exact decomposition needs no program.
    bipartite = method in ("auto", "open-shop") and instant.nodes is None
    shop = as_open_shop(instant) if bipartite else None
    if method == "open-shop" and shop is None:
        raise InvalidArgument(
            "method",
            "open-shop",
            "patterns",
            sentence="method: open-shop takes jobs that hold one GPU (or gangs of one size per "
            "pool) and share with "
            "nobody; use patterns",
        )
    if instant.impossible.any():
        nothing = _Cut(np.zeros(0), run_matrix([], len(instant)), 0.0, 0.0)
        return "patterns" if method == "auto" else method, nothing
    if len(instant) == 0 or (method == "auto" and instant.all_fit()):
        return "at-once", _at_once(instant)
    if shop is not None:
        return "open-shop", _open_shop(instant, *shop)
    if engine is None:
        raise UsageError("method: patterns runs linear programs, for which it needs an engine")
    return "patterns", _patterns(instant, engine)


def _firm_first(
    allocation: Allocation, length: FloatArray, runs: sp.csr_matrix
) -> tuple[FloatArray, sp.csr_matrix]:
    """Sort slices by the number of running jobs that cannot be preempted, most first."""
    rows = allocation.rows
    firm = np.append(must_stay(allocation.classes.instance), False)
    firm_rows = firm[rows.job] | firm[rows.partner]
    if not firm_rows.any():
        return length, runs
    order = np.argsort(-np.asarray(runs @ firm_rows.astype(np.float64)), kind="stable")
    return length[order], sp.csr_matrix(runs[order])


def _at_once(instant: Instant) -> _Cut:
    """All rows start together; a slice ends where some fraction ends."""
    ends = np.unique(instant.fraction)
    running = [np.flatnonzero(instant.fraction >= end) for end in ends.tolist()]
    runs = run_matrix(running, len(instant))
    return _into_window(np.diff(ends, prepend=0.0), runs, ends.max(initial=0.0))


def _open_shop(instant: Instant, place: IntArray, takes: IntArray) -> _Cut:
    length, running, total = decompose(instant.job, place, instant.fraction, takes)
    length, runs = in_order(length, run_matrix(running, len(instant)))
    return _into_window(length, runs, total)


def _patterns(instant: Instant, engine: Engine) -> _Cut:
    items = Items.of(instant)
    bound, finished = 1.0, False
    try:
        packing = shortest(items, engine)
        bound = packing.bound
        length, runs = spread(items, packing.lengths, packing.counts, engine)
        finished = packing.finished
    except OutOfTime:
        # Partial results are dropped: all other rows would have to run after them. `_exactly` runs
        # rows side by side in far less time.
        length, runs = np.zeros(0), run_matrix([], len(instant))
    length, runs = in_order(length, runs)
    length, runs = _exactly(instant, length, runs)
    cut = _into_window(length, runs, float(length.sum()))
    return cut._replace(bound=max(bound, cut.scale), finished=finished or cut.scale == 1.0)


def _exactly(
    instant: Instant, length: FloatArray, runs: sp.csr_matrix
) -> tuple[FloatArray, sp.csr_matrix]:
    """Slices in which every row runs for exactly its fraction: more is cut off, and missing time is
    added at the end.

    Time is missing within the solver's tolerance, and for rows without room on GPUs or nodes in a
    slice.
    """
    length, runs = trimmed(length, runs, instant.fraction)
    if instant.shares is not None or instant.nodes is not None:
        parts = (
            runs.indices[start:end].astype(np.int64)
            for start, end in pairwise(runs.indptr.tolist())
        )
        runs = run_matrix([instant.packed(part) for part in parts], len(instant))
    missing = instant.fraction - np.asarray(runs.T @ length)
    more = []
    added = []
    while (left := np.flatnonzero(missing > NOTHING)).size:
        running = first_fit(instant, left[np.argsort(-missing[left], kind="stable")])
        if instant.nodes is not None:
            running = instant.packed(running)
        more.append(float(missing[running].min()))
        added.append(running)
        missing[running] -= more[-1]
    return np.append(length, more), sp.csr_matrix(
        sp.vstack([runs, run_matrix(added, len(instant))])
    )


def _smallest_share(instant: Instant, length: FloatArray, runs: sp.csr_matrix) -> float:
    """The smallest share of its fraction that some row receives, at most 1."""
    wanted = instant.fraction > 0
    received = np.asarray(runs.T @ length)
    return float(min(1.0, (received[wanted] / instant.fraction[wanted]).min(initial=1.0)))


def _into_window(length: FloatArray, runs: sp.csr_matrix, total: float) -> _Cut:
    """Shorten all slices in the same proportion if they exceed the window."""
    if total <= FULL:
        return _Cut(length, runs, 1.0, 1.0)
    return _Cut(length / total, runs, 1.0 / total, 1.0 / total)


NOTHING = 1e-13
"""Shares of the window below this are rounding."""
ORDERED = 1024
"""Slices up to which they are ordered: the comparison of all pairs is quadratic."""


def trimmed(
    length: FloatArray, runs: sp.csr_matrix, need: FloatArray
) -> tuple[FloatArray, sp.csr_matrix]:
    """Cut off the last part of the time of each row beyond its need; at most one slice per row is
    cut.

    Parameters
    ----------
    length : FloatArray, shape (S,)
    runs : csr_matrix, shape (S, A)
    need : FloatArray, shape (A,)
    """
    by_row = runs.tocsc()
    by_row.sort_indices()
    number = by_row.indices.astype(np.int64)
    row = owners(np.diff(by_row.indptr))
    # The time that a row has run before each of its slices.
    total = np.concatenate(([0.0], np.cumsum(length[number])))
    before = total[:-1] - total[by_row.indptr[row]]
    stays = np.clip(need[row] - before, 0.0, length[number])
    stays[stays < NOTHING] = 0.0
    whole = stays > length[number] - NOTHING
    stays[whole] = length[number][whole]
    number = number[stays > 0]
    row = row[stays > 0]
    stays = stays[stays > 0]
    # A slice is cut where a row in it ends; the row runs in all parts up to there.
    ends, end = np.unique(np.stack([number, stays], axis=1), axis=0, return_inverse=True)
    slice_of = ends[:, 0].astype(np.int64)
    start = np.where(
        np.diff(slice_of, prepend=-1) != 0,
        0.0,
        np.concatenate(([0.0], ends[:-1, 1])),
    )
    first = np.searchsorted(slice_of, number)
    cuts = end.ravel() - first + 1
    place = np.repeat(first - np.concatenate(([0], np.cumsum(cuts)[:-1])), cuts) + np.arange(
        cuts.sum()
    )
    made = sp.csr_matrix(
        (np.ones(len(place), np.int8), (place, np.repeat(row, cuts))),
        shape=(len(ends), len(need)),
    )
    return ends[:, 1] - start, made


def in_order(length: FloatArray, runs: sp.csr_matrix) -> tuple[FloatArray, sp.csr_matrix]:
    """Remove empty slices, and order the others so that each is followed by the one with the fewest
    switches of rows.

    The given order is kept if it has no more switches, or if there are too many slices to compare.
    """
    kept = np.flatnonzero((length > 0) & (np.diff(runs.indptr) > 0))
    length = length[kept]
    runs = sp.csr_matrix(runs[kept])
    if not 2 < len(length) <= ORDERED:
        return length, runs
    # float32 halves the memory; counts of rows are exact in it up to 16 million.
    dense = runs.toarray().astype(np.float32)
    shared = dense @ dense.T
    size = np.diagonal(shared).copy()
    unused = np.ones(len(length), bool)
    order = [int(np.argmax(size))]
    for _ in range(len(length) - 1):
        unused[order[-1]] = False
        # Rows that start or stop between the two slices.
        change = size + size[order[-1]] - 2 * shared[order[-1]]
        order.append(int(np.argmin(np.where(unused, change, np.inf))))
    given = np.arange(len(length))
    best = (
        np.array(order)
        if _switches(shared, size, np.array(order)) < _switches(shared, size, given)
        else given
    )
    return length[best], sp.csr_matrix(runs[best])


def _switches(shared: np.ndarray, size: np.ndarray, order: np.ndarray) -> float:
    return float(size.sum() - shared[order[:-1], order[1:]].sum())
