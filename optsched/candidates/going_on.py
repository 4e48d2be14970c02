"""Remaining run times of running jobs."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, find_rows, mask_of
from optsched.candidates.classes import Candidates

UNKNOWN_END = "it runs in no configuration of its own, so that its end is not known"


def going_on(candidates: Candidates, some: IntArray) -> tuple[IntArray, FloatArray]:
    """The columns in which some running jobs continue, and the seconds from now to their ends.

    If several columns match the pool and GPUs of a job, the slowest is taken, the first of equally
    slow ones. If none matches, the column is -1 and the end is not known: inf.

    Parameters
    ----------
    candidates : Candidates
    some : IntArray
        Rows of running jobs in `JobTable.places`.
    """
    table, columns = candidates.instance.jobs_table, candidates.columns
    places, alone = table.places, np.flatnonzero(columns.partner < 0)
    alone = alone[np.argsort(columns.rate[alone], kind="stable")]
    job = places.job[some]
    known = np.column_stack([columns.kind[alone], columns.pool[alone], columns.gpus[alone]])
    runs = np.column_stack([candidates.kinds.of_job[job], places.pool[some], places.length[some]])
    row = find_rows(known, runs)
    found, end = row >= 0, np.full(len(some), np.inf)
    column = np.full(len(some), -1, np.int64)
    column[found] = alone[row[found]]
    at, job = column[found], job[found]
    whole, left = columns.duration[at], table.steps_left[job]
    stated = whole * left / table.steps[job]
    end[found] = np.where(np.isnan(whole), left / columns.rate[at], stated)
    return column, end


def unknown_ends(candidates: Candidates, held: FloatArray) -> BoolArray:
    """Mask of jobs that keep their GPUs, but match no column, so that their end is not known; shape
    (jobs,).

    ``held``: seconds for which each job keeps its GPUs (`optsched.instance.staying.held_for`).
    """
    places = candidates.instance.jobs_table.places
    keep = np.flatnonzero(held[places.job] > 0)
    return mask_of(places.job[keep[going_on(candidates, keep)[0] < 0]], len(held))
