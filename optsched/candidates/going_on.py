"""Where running jobs continue, and their remaining run times."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, find_rows, group_rows, mask_of
from optsched.candidates.classes import Candidates, Classes
from optsched.candidates.resources import Resources
from optsched.candidates.usage import Usage
from optsched.instance import Instance
from optsched.instance.cluster import PER_NODE
from optsched.instance.staying import Running, must_stay

ANY_SPAN = np.iinfo(np.int64).max
"""Nodes of a column on which a job cannot run where it is."""
ELSEWHERE = -1
_OF_NODES = tuple(f".{name}" for name in PER_NODE)
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


def with_gpus_that_stay(C: Classes) -> Classes:
    """The classes with a resource ``<pool>.staying``: GPUs of jobs that stay (`must_stay`) on nodes
    that take no new work.

    Capacities of pools do not include these nodes. A column in which such jobs continue holds the
    GPUs there of this resource, and no GPUs, CPUs or memory of the pool for them. So others are
    promised all that takes new work, and nothing else. The jobs of a class agree in `places_of` and
    `staying_on_closed`.
    """
    on_closed = C.common(staying_on_closed(C.instance))
    continued = sp.diags_array((on_closed > 0) * 1.0) @ continuing(C)
    # A pair with another job needs new GPUs.
    all_stay = np.asarray(continued.sum(axis=0) == C.member.sum(axis=0)).ravel()
    column = np.flatnonzero(all_stay & (C.pool >= 0) & (C.gpus > 0))
    if not len(column):
        return C
    closed = np.zeros(C.columns)
    closed[column] = on_closed[C.class_a[column]] / C.gpus[column]
    pools, found = C.instance.cluster.pools, C.resources
    on_nodes = {pool.name + suffix for pool in pools for suffix in ("", *_OF_NODES)}
    usage = C.usage.tocoo()
    there = np.array([name in on_nodes for name in found.names])[usage.row] * closed[usage.col]
    gpus = usage.row < len(pools)
    own = sp.csr_matrix(
        ((usage.data * there)[gpus], (usage.row[gpus], usage.col[gpus])), (len(pools), C.columns)
    )
    left = sp.csr_matrix((usage.data * (1 - there), (usage.row, usage.col)), usage.shape)
    rows = np.unique(C.pool[column])
    resources = Resources(
        (*found.names, *(f"{pools[row].name}.staying" for row in rows.tolist())),
        np.append(found.capacity, _held_on_closed(C.instance)[rows]),
        np.append(found.renewable, np.ones(len(rows), bool)),
        np.append(found.pool, np.full(len(rows), -1)),
    )
    return C.with_resources(resources, Usage.of(sp.csr_matrix(sp.vstack([left, own[rows]]))))


def staying_on_closed(instance: Instance) -> IntArray:
    """GPUs that each job that stays holds on nodes that take no new work, shape (jobs,)."""
    places, closed = instance.jobs_table.places, _on_closed(instance)
    return np.bincount(places.job[places.owner[closed]], minlength=len(instance.jobs_table))


def _held_on_closed(instance: Instance) -> IntArray:
    """Different GPUs that such jobs hold there, shape (pools,)."""
    places, numbering = instance.jobs_table.places, instance.cluster.numbering
    gpu = np.unique(places.numbers(numbering)[_on_closed(instance)])
    pool = numbering.pool[numbering.node_of(gpu)]
    return np.bincount(pool, minlength=len(instance.cluster.pools))


def _on_closed(instance: Instance) -> BoolArray:
    """Mask of the GPUs in `places` that such jobs hold there."""
    places, numbering = instance.jobs_table.places, instance.cluster.numbering
    node = numbering.node_of(places.numbers(numbering))
    stays = must_stay(instance)[places.job[places.owner]]
    return stays & ~instance.cluster.usable(instance.now)[node]
