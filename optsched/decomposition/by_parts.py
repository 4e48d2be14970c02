"""Dantzig-Wolfe for a plan that states its parts (`optsched.solution.plan.Parts`), such as jobs: a
column of the master is a point of a part.

The parts are those of the program itself, and the optimum is that of the whole program. The option
``parts`` is another thing: see `optsched.solving.in_parts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.decomposition.column_generation import Decomposition, dantzig_wolfe
from optsched.decomposition.master import Master, MasterColumns, Priced
from optsched.decomposition.proof import CLOSED
from optsched.instance.durations import Timer
from optsched.program import LinearArrays
from optsched.program.integers import rounded_up
from optsched.solution import PointStatus, Termination, Values
from optsched.solution.plan import Parts
from optsched.solvers import Limits

BROKEN = 1e-7
"""Relative violation of the rows of a part that counts as rounding."""
EFFORTS = (1, 8, 64)
"""Efforts of pricing: a small one first, a larger one when that finds no more columns."""
FOR_WHOLE = 0.2
"""Share of the time that is kept for whole numbers."""


def solve_by_parts(
    arrays: LinearArrays,
    parts: Parts,
    known: FloatArray | None,
    step: float | None,
    limits: Limits,
    bound: float | None = None,
) -> Values:
    """Solve a program that is minimised by column generation.

    Parameters
    ----------
    arrays : LinearArrays
    parts : Parts
    known : FloatArray or None, shape (columns,)
        A feasible point: its parts are the first columns, and the result costs no more than it.
    step : float or None
        All objective values are multiples of it.
    limits : Limits
        The work limit is ignored, because masters count no nodes.
    bound : float or None
        A bound that is known.

    Returns
    -------
    Values
        The best point that was found, and the best bound: that, or the Lagrangian one.
    """
    timer = Timer.after(limits.time)
    program = _PartsOfProgram(arrays, parts)
    points = [] if known is None else [known]
    columns = None if known is None else program.columns_of(known)
    bound, masters = -np.inf if bound is None else bound, 0
    # The last pass prices once more and then solves the integer program over the columns.
    for effort, whole in (*((effort, False) for effort in EFFORTS), (EFFORTS[-1], True)):
        left = timer.left - (0.0 if whole else FOR_WHOLE * (limits.time or 0.0))
        if left <= 0.0 or _end(arrays, points, bound, limits) is not None:
            continue
        found = dantzig_wolfe(
            program.master,
            partial(program.price, effort=effort),
            columns,
            whole=whole,
            step=step,
            time_limit=None if limits.time is None else left,
            gap=limits.gap,
            tolerance=limits.tolerance,
            threads=limits.threads,
            seed=limits.seed,
            on_progress=limits.on_progress,
        )
        columns, masters = found.columns, masters + len(found.history)
        bound = max(bound, rounded_up(found.bound, step) + arrays.offset)
        if found.whole is not None and whole:
            points.append(program.point_of(found))
    best = min(points, key=arrays.objective, default=None)
    stopped = Termination.TIME_LIMIT if timer.left <= 0 else Termination.WORK_LIMIT
    return Values(
        _end(arrays, points, bound, limits) or stopped,
        PointStatus.NONE if best is None else PointStatus.FEASIBLE,
        x=best,
        objective=None if best is None else arrays.objective(best),
        bound=bound if np.isfinite(bound) else None,
        iterations=masters,
        seconds=timer.spent,
        words=f"column generation: {0 if columns is None else len(columns):,} columns",
    )


def _end(
    arrays: LinearArrays, points: Sequence[FloatArray], bound: float, limits: Limits
) -> Termination | None:
    """Why the search ends, if the best point is close enough to the bound; None: continue."""
    value = min((arrays.objective(point) for point in points), default=np.inf)
    for gap, end in ((CLOSED, Termination.OPTIMAL), (limits.gap, Termination.GAP_LIMIT)):
        if gap is not None and value - bound <= gap * max(1.0, abs(value)):
            return end
    return None


class _PartsOfProgram:
    """The master of a program with parts: its rows couple the parts, and its columns are points of
    parts.
    """

    def __init__(self, arrays: LinearArrays, parts: Parts) -> None:
        self.arrays, self.parts = arrays, parts
        couples = np.concatenate(
            [np.full(len(block), block.name in parts.coupling) for block in arrays.rows]
        )
        self.coupling, self.inner = arrays.by_rows[couples], arrays.by_rows[~couples]
        lower, upper = arrays.row_lower, arrays.row_upper
        self.inner_lower, self.inner_upper = lower[~couples], upper[~couples]
        self.master = Master.of(
            lower[couples],
            upper[couples],
            parts.required.astype(np.float64),
            np.ones(len(parts.required)),
        )
        # Columns of different points may have equal entries. For the master they are the same, so
        # one point is stored per column.
        self._points: dict[bytes, tuple[IntArray, FloatArray]] = {}

    def price(self, y: FloatArray, effort: int) -> Priced:
        """The cheapest points of the parts at duals of the coupling rows."""
        point, least = self.parts.cheapest(self.arrays.cost - self.coupling.T @ y, effort)
        return Priced(self.columns_of(point), least)

    def columns_of(self, point: FloatArray) -> MasterColumns:
        """A column for each part of a point that is not 0 and satisfies the rows of the part."""
        nonzero = np.flatnonzero(point)
        nonzero = nonzero[~self._broken(point)[self.parts.part[nonzero]]]
        which, column = np.unique(self.parts.part[nonzero], return_inverse=True)
        points = sp.csc_matrix((point[nonzero], (nonzero, column)), shape=(len(point), len(which)))
        cost = np.asarray(points.T @ self.arrays.cost)
        made = MasterColumns.of(cost, sp.csc_matrix(self.coupling @ points), which)
        for number, key in enumerate(_keys(made)):
            entries = slice(points.indptr[number], points.indptr[number + 1])
            self._points.setdefault(
                key, (points.indices[entries].astype(np.int64), points.data[entries])
            )
        return made

    def _broken(self, point: FloatArray) -> BoolArray:
        """Mask of parts whose rows a point violates."""
        activity = self.inner @ point
        off = np.maximum(self.inner_lower - activity, activity - self.inner_upper)
        # Rows of a part that is 0 in the point are checked too.
        wrong = off > BROKEN * np.maximum(1.0, np.abs(activity))
        rows = self.inner[wrong]
        return mask_of(self.parts.part[rows.indices], len(self.parts.required))

    def point_of(self, found: Decomposition) -> FloatArray:
        """The point of the selected columns."""
        assert found.whole is not None
        point = np.zeros(self.arrays.shape[1])
        for key in _keys(found.columns.take(found.whole > 0.5)):
            columns, values = self._points[key]
            point[columns] = values
        return point


def _keys(columns: MasterColumns) -> Iterator[bytes]:
    """The entries of each column, in bytes."""
    matrix = columns.matrix.sorted_indices()
    for number, (block, cost) in enumerate(zip(columns.block, columns.cost, strict=True)):
        at = slice(matrix.indptr[number], matrix.indptr[number + 1])
        yield b"".join(
            part.tobytes()
            for part in (block, cost, matrix.indices[at].astype(np.int64), matrix.data[at])
        )
