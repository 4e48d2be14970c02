"""Rows without a claim, for jobs that have waited too long to wait for their own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from optsched.arrays import BoolArray
from optsched.candidates import Classes, JobRows
from optsched.formulation import Infeasible, SideConstraint
from optsched.program import SideRows
from optsched.rounds.selection import rows_alone, taken


def rows_of(constraint: SideConstraint, classes: Classes) -> SideRows | None:
    """Rows of a constraint; what cannot be kept at all, as the fallback says, bounds nothing."""
    try:
        return constraint.rows(classes)
    except Infeasible:
        return None


def any_rows(
    classes: Classes, known: JobRows, jobs: BoolArray, constraints: Iterable[SideConstraint]
) -> JobRows:
    """Every way in which jobs of a mask may run alone, beside those that they have rows for.

    Where a job has a claim there may be no room for it, for as long as what runs there cannot be stopped. Columns that
    a side constraint bars stay barred.
    """
    if not jobs.any():
        return rows_alone(classes, np.zeros(0, np.int64))
    barred = np.zeros(classes.columns, bool)
    for own in constraints:
        side = rows_of(own, classes)
        if side is not None and side.barring:
            barred[side.closed.indices] = True
    rows = rows_alone(classes, np.flatnonzero(jobs))
    mine = np.flatnonzero((known.partner < 0) & jobs[known.job])
    there = known.job[mine] * classes.columns + known.column[mine]
    return taken(
        rows,
        np.flatnonzero(
            ~barred[rows.column] & ~np.isin(rows.job * classes.columns + rows.column, there)
        ),
    )
