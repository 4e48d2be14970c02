"""How long jobs go on that run now."""

from __future__ import annotations

import math

import numpy as np

from optsched.candidates.classes import Candidates


def going_on(candidates: Candidates, place: int) -> tuple[int, float]:
    """The column in which a job goes on that runs now, and the seconds from now to its end.

    Of several such columns it is the slowest. Without one it is -1, and the end is not known: inf.

    Parameters
    ----------
    candidates : Candidates
    place : int
        Which of the running jobs (`JobTable.places`).
    """
    table, columns = candidates.instance.jobs_table, candidates.columns
    job = int(table.places.job[place])
    mine = (columns.kind == candidates.kinds.of_job[job]) & (columns.partner < 0)
    mine &= (columns.pool == table.places.pool[place]) & (
        columns.gpus == table.places.length[place]
    )
    if not mine.any():
        return -1, math.inf
    column = int(np.flatnonzero(mine)[np.argmin(columns.rate[mine])])
    whole, left = columns.duration[column], table.steps_left[job]
    stated = whole * left / table.steps[job]
    return column, float(left / columns.rate[column] if np.isnan(whole) else stated)
