"""Local search around a whole point: moves of one or two jobs at a time.

The gap of a rounded point is mostly due to unused resources. Few single moves fit into them, but
some pairs of moves use nearly all of them: one job takes more, and another one frees what is
missing. The gain of a pair is at most the value of the unused resources at the duals minus the
losses of its moves (`Core`), so only the moves that lose least are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.solving.core import ROUNDING, Core

MOVES = 256
"""Moves whose pairs are all tried."""
IDLE = -1
"""The column of a job that waits."""


class Reassignments(NamedTuple):
    """Moves of one job of a class from a column to another one; `IDLE` is no column."""

    job_class: IntArray
    source: IntArray
    target: IntArray


def exchanged(core: Core, point: FloatArray, enough: Callable[[float], bool]) -> FloatArray:
    """Improve a whole point pair by pair, until its value is enough or no pair gains."""
    while not enough(core.value(point)):
        better = _better(core, point)
        if better is None:
            break
        point = better
    return point


def _better(core: Core, point: FloatArray) -> FloatArray | None:
    """The point after the pair of moves that gains most; None where none gains."""
    moves = _moves(core, point)
    # A move that changes nothing: a pair with it is a single move.
    moves = Reassignments(*(np.append(columns, IDLE) for columns in moves))
    cost = np.append(core.arrays.cost, 0.0)
    gain = cost[moves.target] - cost[moves.source]
    together = np.add.outer(gain, gain)
    allowed = together > ROUNDING * abs(core.bound)
    # All moves of a class are of the same job (`_moves`).
    allowed &= np.not_equal.outer(moves.job_class, moves.job_class)
    more, less = _room(core, point)
    change = (_columns(core, moves.target) - _columns(core, moves.source)).tocsr()
    # Row by row, of those that some move changes: what two moves do together is (moves, moves).
    for row in np.flatnonzero(np.diff(change.indptr)).tolist():
        amount = change[[row]].toarray()[0]
        both = np.add.outer(amount, amount)
        allowed &= (both <= more[row]) & (both >= -less[row])
    if not allowed.any():
        return None
    best = int(np.where(allowed, together, -np.inf).argmax())
    point = point.copy()
    for move in divmod(best, len(gain)):
        for column, jobs in ((moves.source[move], -1.0), (moves.target[move], 1.0)):
            if column != IDLE:
                point[column] += jobs
    return point


def _moves(core: Core, point: FloatArray) -> Reassignments:
    """Moves of the job of each class that is in the worst column; those that lose least."""
    C, arrays = core.classes, core.arrays
    columns = len(core.loss)
    x, job_class = point[:columns], np.append(C.class_a, np.arange(len(C)))
    loss = np.append(core.loss, core.idle_loss)
    column = np.append(np.arange(columns), np.full(len(C), IDLE))
    movable = C.alone & arrays.integer[:columns]
    waits = C.time(x) <= C.count - 1.0
    # Places that a job may leave: columns in use, then idleness of each class (K entries).
    taken = np.flatnonzero(np.append(movable & (x >= arrays.lower[:columns] + 1.0), waits))
    source = np.full(len(C), -1)
    # Of several assignments the last one counts: the largest loss.
    taken = taken[np.argsort(loss[taken], kind="stable")]
    source[job_class[taken]] = taken
    open_to = np.append(movable & (x <= arrays.upper[:columns] - 1.0), np.ones(len(C), bool))
    target = np.flatnonzero(open_to & (source[job_class] >= 0))
    origin = source[job_class[target]]
    target, origin = target[origin != target], origin[origin != target]
    more = loss[target] - loss[origin]
    if len(more) > MOVES:
        nearest = np.sort(np.argpartition(more, MOVES)[:MOVES])
        target, origin = target[nearest], origin[nearest]
    return Reassignments(job_class[target], column[origin], column[target])


def _room(core: Core, point: FloatArray) -> tuple[FloatArray, FloatArray]:
    """By how much each row may grow and shrink; 0 where it is violated already."""
    arrays = core.arrays
    activity = arrays.A @ point
    sides = (arrays.row_upper, activity), (activity, arrays.row_lower)
    more, less = (np.maximum(high - low, 0.0) for high, low in sides)
    return more, less


def _columns(core: Core, columns: IntArray) -> sp.csc_matrix:
    """Columns of the matrix; those of `IDLE` are zero."""
    taken = (columns != IDLE).astype(np.float64)
    return sp.csc_matrix(core.arrays.A[:, columns] @ sp.diags_array(taken))
