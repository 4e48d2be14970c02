"""Remaining run times of running jobs."""

from __future__ import annotations

import math

import numpy as np

from optsched.arrays import BoolArray, FloatArray, mask_of
from optsched.candidates.classes import Candidates

UNKNOWN_END = "it runs in no configuration of its own, so that its end is not known"


def going_on(candidates: Candidates, place: int) -> tuple[int, float]:
    """The column in which a running job continues, and the seconds from now to its end.

    If several columns match its pool and GPUs, the slowest is taken. If none matches, the column is
    -1 and the end is not known: inf.

    Parameters
    ----------
    candidates : Candidates
    place : int
        Row of the running job in `JobTable.places`.
    """
    table, columns = candidates.instance.jobs_table, candidates.columns
    job = int(table.places.job[place])
    matches = (columns.kind == candidates.kinds.of_job[job]) & (columns.partner < 0)
    matches &= (columns.pool == table.places.pool[place]) & (
        columns.gpus == table.places.length[place]
    )
    if not matches.any():
        return -1, math.inf
    column = int(np.flatnonzero(matches)[np.argmin(columns.rate[matches])])
    whole, left = columns.duration[column], table.steps_left[job]
    stated = whole * left / table.steps[job]
    return column, float(left / columns.rate[column] if np.isnan(whole) else stated)


def unknown_ends(candidates: Candidates, held: FloatArray) -> BoolArray:
    """Mask of jobs that keep their GPUs, but match no column, so that their end is not known; shape
    (jobs,).

    ``held``: seconds for which each job keeps its GPUs (`optsched.instance.staying.held_for`).
    """
    places = candidates.instance.jobs_table.places
    keep = np.flatnonzero(held[places.job] > 0).tolist()
    unknown = [place for place in keep if going_on(candidates, place)[0] < 0]
    return mask_of(places.job[unknown], len(held))
