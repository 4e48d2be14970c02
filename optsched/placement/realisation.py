"""`realise`: from fractions of time to slices in which whole jobs run side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from optsched.program.space import PLACEABLE
from optsched.solution import Allocation, Rounds
from optsched.solving.engine import Engine

METHODS = ("auto", "open-shop", "patterns", "priority")
PRIORITY_ROUNDS = 100
"""Rounds of a window that is filled by the priority rule, unless another number is asked for."""
MOST_ROUNDS = 100_000
"""Most rounds of a window."""


def realise(
    allocation: Allocation,
    engine: Engine | None = None,
    method: str = "auto",
    rounds: int | None = None,
    constraints: Iterable[Mapping[str, Any]] = (),
) -> Rounds:
    """Cut an allocation of fractions of time into slices in which whole jobs run side by side.

    Parameters
    ----------
    allocation : Allocation
    engine : Engine, optional
        Runs the programs of ``patterns``; only that method needs one.
    method : str
        ``open-shop``
            Exact, for jobs that hold one GPU (or gangs of one size per pool) and share with nobody.
        ``patterns``
            For everything: the largest share of the allocation that can be realised, with a bound.
        ``priority``
            Gavel's rule, round by round; comes close over many rounds.
        ``auto``
            All rows from the start, where they fit side by side; else open-shop where it applies,
            else patterns.
    rounds : int, optional
        Rounds that the window lasts. Default: 100 for ``priority``, for the others one for each
        slice.
    constraints : iterable of mappings
        Side constraints. With ``placeable`` among them, rows that run at one time find nodes, except
        by ``priority``.

    Returns
    -------
    Rounds
        Its ``scale`` is 1 where the allocation is realised.

    Raises
    ------
    UsageError
        An unknown method, a number of rounds that is out of range, ``open-shop`` where it does not
        apply, no engine where one is needed.
    """
    if method not in METHODS:
        raise InvalidArgument("method", repr(method), f"one of {', '.join(METHODS)}")
    if rounds is not None and not 1 <= rounds <= MOST_ROUNDS:
        raise InvalidArgument("rounds", str(rounds), f"a number from 1 to {MOST_ROUNDS:,}")
    rows = allocation.rows
    constraints = list(constraints)
    nodes, counted = None, any(item["kind"] == PLACEABLE for item in constraints)
    if counted and engine is not None and method != "priority":
        nodes = NodeRoom.of(allocation.classes, rows.column, engine, constraints)
    instant = Instant.of(allocation.classes, rows, nodes=nodes)
    # A rule: no bound but 1 is known, and a row may get more than ``scale`` of its fraction.
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
    engine: Engine, classes: Classes, rows: JobRows, there: FloatArray
) -> tuple[FloatArray, sp.csr_matrix] | None:
    """Slices of an interval of time in which rows run for their fractions of it.

    Parameters
    ----------
    engine : Engine
        Runs the programs of patterns, where these are needed.
    classes : Classes
    rows : JobRows
    there : FloatArray, shape (R,)
        How much there is of each resource.

    Returns
    -------
    lengths : FloatArray, shape (S,)
        As parts of the interval.
    runs : csr_matrix of 0/1, shape (S, rows)
        None if it is not known that the rows can run so.
    """
    _, cut = _cut_by("auto", Instant.of(classes, rows, there), engine)
    # A little less than 1 is rounding of sums of fractions.
    return (cut.length, cut.runs) if cut.scale >= 1.0 / FULL else None


class _Cut(NamedTuple):
    """Slices of the window, the share of the allocation that they realise,
    and a bound on that share.
    """

    length: FloatArray
    runs: sp.csr_matrix
    scale: float
    bound: float
    finished: bool = True


def _cut_by(method: str, instant: Instant, engine: Engine | None) -> tuple[str, _Cut]:
    """The method that is used, and what it gives."""
    # Where jobs and pools are a bipartite matching, an exact decomposition is known: no program.
    bipartite = method in ("auto", "open-shop") and instant.nodes is None
    shop = as_open_shop(instant) if bipartite else None
    if method == "open-shop" and shop is None:
        raise InvalidArgument(
            "method",
            "open-shop",
            "patterns",
            sentence="method: open-shop takes jobs that hold one GPU (or gangs of one size per pool) and share with "
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
    """Slices in which most jobs run on that cannot be preempted come first."""
    rows = allocation.rows
    firm = np.append(must_stay(allocation.classes.instance), False)
    mine = firm[rows.job] | firm[rows.partner]
    if not mine.any():
        return length, runs
    order = np.argsort(-np.asarray(runs @ mine.astype(np.float64)), kind="stable")
    return length[order], sp.csr_matrix(runs[order])


def _at_once(instant: Instant) -> _Cut:
    """All rows start together; one slice ends wherever some fraction does."""
    # All rows fit side by side: they start together, and stop one after the other.
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
        # Patterns of which only some became slices are worth less than none: the other rows would
        # run after all of these. `_exactly` runs rows side by side in far less time.
        length, runs = np.zeros(0), run_matrix([], len(instant))
    length, runs = in_order(length, runs)
    length, runs = _exactly(instant, length, runs)
    cut = _into_window(length, runs, float(length.sum()))
    return cut._replace(bound=max(bound, cut.scale), finished=finished or cut.scale == 1.0)


def _exactly(
    instant: Instant, length: FloatArray, runs: sp.csr_matrix
) -> tuple[FloatArray, sp.csr_matrix]:
    """Every row runs for its fraction: the rest is cut off;
    what the solver's tolerance left out is run at the end.

    So is what finds no whole GPUs for its shares in a slice.
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
    """Slices that take longer than the window are shortened, all in the same proportion."""
    if total <= FULL:
        return _Cut(length, runs, 1.0, 1.0)
    return _Cut(length / total, runs, 1.0 / total, 1.0 / total)


NOTHING = 1e-13
"""Shares of the window below this are rounding."""
ORDERED = 1024
"""Slices are put in order up to this many: the comparison of all with all is quadratic."""


def trimmed(
    length: FloatArray, runs: sp.csr_matrix, need: FloatArray
) -> tuple[FloatArray, sp.csr_matrix]:
    """Take from each row the last part of what it runs beyond its need;
    cuts at most one slice per row.

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
    # Time that a row has run before each of its slices: running sums, from its first slice on.
    total = np.concatenate(([0.0], np.cumsum(length[number])))
    before = total[:-1] - total[by_row.indptr[row]]
    stays = np.clip(need[row] - before, 0.0, length[number])
    stays[stays < NOTHING] = 0.0
    whole = stays > length[number] - NOTHING
    stays[whole] = length[number][whole]
    number = number[stays > 0]
    row = row[stays > 0]
    stays = stays[stays > 0]
    # a slice is cut where the first part of a row in it ends; the row runs in all cuts up to there
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
    """Slices without empty ones, each followed by the one that shares the most rows with it.

    The order as it is given is kept where it has fewer switches, or where there are too many slices
    to compare.
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
        # rows that start or stop between the two
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
