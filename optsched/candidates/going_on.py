"""How long jobs go on that run now."""

from __future__ import annotations

import math

import numpy as np

from optsched.arrays import BoolArray, FloatArray, mask_of
from optsched.candidates.classes import Candidates

UNKNOWN_END = "it runs in no configuration of its own, so that its end is not known"


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


def unknown_ends(candidates: Candidates, held: FloatArray) -> BoolArray:
    """Jobs that keep their GPUs, and run in no column of their own; shape (jobs,).

    ``held``: seconds for which they do (`optsched.instance.staying.held_for`).
    """
    places = candidates.instance.jobs_table.places
    keep = np.flatnonzero(held[places.job] > 0).tolist()
    unknown = [place for place in keep if going_on(candidates, place)[0] < 0]
    return mask_of(places.job[unknown], len(held))
