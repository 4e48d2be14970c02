"""Where running jobs continue, and their remaining run times."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, find_rows, group_rows, mask_of
from optsched.candidates.classes import Candidates, Classes
from optsched.instance import Instance
from optsched.instance.staying import Running

ANY_SPAN = np.iinfo(np.int64).max
"""Nodes of a column on which a job cannot run where it is."""
ELSEWHERE = -1
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


def places_of(instance: Instance, jobs: BoolArray) -> IntArray:
    """A number for where each of some running jobs runs, `ELSEWHERE` for the others; shape (jobs,).

    Jobs with the same number hold as many GPUs of one pool on as many nodes and groups of nodes,
    and their nodes all take new work or do not.
    """
    running = Running.of(instance)
    keys = (running.pool, running.gpus, running.nodes, running.leaves, *running.groups)
    return np.where(jobs, group_rows(keys, len(jobs)).inverse, ELSEWHERE)


def continuing(C: Classes) -> sp.csr_matrix:
    """The columns in which running jobs continue as they run, shape (classes, columns): how many
    jobs of the class each has.

    They are in the present pool of the jobs, on as many GPUs as they hold, on as many nodes (the
    next number for which there is a column, else any: the placement then says that the job cannot
    run on). The jobs of a class must agree in `places_of`.
    """
    running = Running.of(C.instance)
    pool, gpus, nodes = running.pool[C.first], running.gpus[C.first], running.nodes[C.first]
    member = C.member.tocoo()
    k, c = member.row, member.col
    # A gang may hold as many GPUs on fewer nodes, and faster there: it would have to move.
    span = np.maximum(C.configurations.nodes[C.configuration[c]], 1)
    span = np.where(span < nodes[k], ANY_SPAN, span)
    stays = (C.pool[c] == pool[k]) & (C.gpus[c] == gpus[k])
    # It may hold GPUs of several racks, at which it has not the rate of one.
    level = C.configurations.levels[C.configuration[c]]
    stays &= running.within(C.first[k], span, level)
    least = np.full(len(C), ANY_SPAN)
    np.minimum.at(least, k[stays], span[stays])
    stays &= span == least[k]
    return sp.csr_matrix((member.data[stays], (k[stays], c[stays])), shape=member.shape)
