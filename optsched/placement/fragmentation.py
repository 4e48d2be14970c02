"""Fragmentation: free GPUs that the jobs of a mix cannot use, because of the nodes that they are
on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray, group_rows, quotient
from optsched.candidates import Classes, JobRows, gpus_allowed
from optsched.display import DisplayedTable, TableColumns, amount, count, percent
from optsched.instance.staying import Running, must_stay
from optsched.placement.occupied import Occupied, occupied_by
from optsched.placement.problem import Nodes
from optsched.placement.requests import needs_per_gpu
from optsched.placement.shares import ROUNDING
from optsched.solution import Solution


@dataclass(frozen=True, repr=False, eq=False)
class Fragmentation(DisplayedTable):
    """The free GPUs that the mix of jobs cannot use.

    Let p_m be the share of jobs of kind m, R_ng the free share of GPU g of node n, and d_m the GPUs
    that m needs on one node (a share of one GPU where d_m < 1):

        F_n(m)  =  sum_g R_ng                          m has no room on n: GPUs, CPUs, memory, or another pool
                =  sum_{g: R_ng < min(d_m, 1)} R_ng    otherwise: free shares of GPUs that are too full for m
        F       =  sum_n sum_m p_m F_n(m)

    A gang needs (its GPUs / its nodes) GPUs on one node; of its configurations the one with the
    least counts.

    Attributes
    ----------
    nodes : tuple of str
        Usable nodes with GPUs.
    free : FloatArray, shape (nodes,)
        Free GPUs, free shares included.
    fragments : FloatArray, shape (nodes,)
        sum_m p_m F_n(m), GPUs.

    References
    ----------
    Q. Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
    Gradient Descent", USENIX ATC 2023, section 3.
    """

    nodes: tuple[str, ...]
    free: FloatArray
    fragments: FloatArray

    @property
    def gpus(self) -> float:
        """F: expected number of free GPUs that a job of the mix cannot use."""
        return float(self.fragments.sum())

    @property
    def total(self) -> float:
        """Number of free GPUs of all nodes."""
        return float(self.free.sum())

    @property
    def metric(self) -> dict[str, float]:
        """All free GPUs and F, as metrics and documents have them."""
        return {"free": self.total, "gpus": self.gpus}

    @property
    def words(self) -> str:
        """F as text; empty where no GPU is free."""
        if not self.total:
            return ""
        lost = f"{amount(self.gpus)} of {amount(self.total)} free GPUs"
        return f"a job cannot use {lost}, on average"

    @property
    def share(self) -> float:
        """F as a share of the free GPUs; 0 where no GPU is free."""
        return float(quotient(self.fragments.sum(), self.free.sum()))

    def _headline(self) -> str:
        free = f"{amount(float(self.free.sum()))} free GPUs of {count(len(self.nodes), 'node')}"
        return f"{amount(self.gpus)} of {free} ({percent(self.share)})"

    def to_columns(self, first: int | None = None) -> TableColumns:
        """One row per node: free GPUs, and those of them that the mix cannot use."""
        return {
            "node": self.nodes[:first],
            "free": self.free[:first].tolist(),
            "fragments": self.fragments[:first].tolist(),
        }


def fragmentation_of(classes: Classes, occupied: Occupied | None = None) -> Fragmentation:
    """The fragmentation of a cluster for the mix of its own jobs.

    Parameters
    ----------
    classes : Classes
        The mix: every job of the program counts once.
    occupied : Occupied, optional
        GPUs that are held (default: those of the running jobs).

    Returns
    -------
    Fragmentation
    """
    instance = classes.instance
    if occupied is None:
        running = np.flatnonzero(Running.of(instance).runs)
        occupied = occupied_by(instance, running)
    nodes = Nodes.of(instance, list(range(len(instance.cluster.pools)))).beside(occupied)
    fragments = np.zeros(len(nodes))
    for rows, weight in _tasks(classes):
        fragments += weight * _of_task(classes, nodes, rows)
    names = tuple(nodes.name(node) for node in range(len(nodes)))
    return Fragmentation(names, nodes.room.sum(axis=1), fragments)


def fragmentation_beside(
    classes: Classes,
    rows: JobRows,
    placed: IntArray,
    gpus: Sequence[Sequence[str]],
) -> Fragmentation:
    """The fragmentation of a cluster on which rows of an allocation are placed, and running jobs
    that keep their GPUs and are in none of these.

    Parameters
    ----------
    classes : Classes
    rows : JobRows
    placed : IntArray, shape (S,)
        Rows that have GPUs.
    gpus : sequence of sequences of str, length S
        ``node/index``.
    """
    instance = classes.instance
    occupied = Occupied.of_rows(classes, rows, placed, gpus)
    others = must_stay(instance)
    others[occupied.jobs] = False
    beside = occupied_by(instance, np.flatnonzero(others))
    return fragmentation_of(classes, occupied.and_also(beside))


def fragmentation_metric(solution: Solution) -> dict[str, float]:
    """Free GPUs of the placement of a solution, and those of them that its jobs cannot use."""
    assert solution.allocation is not None and solution.placement is not None
    allocation, placement = solution.allocation, solution.placement
    found = fragmentation_beside(allocation.classes, allocation.rows, placement.row, placement.gpus)
    return found.metric


def _tasks(C: Classes) -> list[tuple[IntArray, float]]:
    """For each kind of job: in each pool the column with the fewest GPUs on one node; and p_m, the
    share of jobs with these columns. Kinds with equal demands are merged.
    """
    span = np.maximum(C.configurations.nodes[C.configuration], 1)
    share = C.configurations.share[C.configuration]
    on_node = np.ceil(C.gpus / span)
    alone = np.flatnonzero(C.alone & (C.pool >= 0) & (C.gpus > 0))
    order = alone[np.lexsort((alone, (on_node * share)[alone], C.pool[alone], C.class_a[alone]))]
    key = np.stack([C.class_a[order], C.pool[order]], axis=1)
    first = np.ones(len(order), bool)
    first[1:] = (key[1:] != key[:-1]).any(axis=1)
    chosen = order[first]
    need, _ = needs_per_gpu(C, chosen)
    alike = group_rows((C.pool[chosen], on_node[chosen], share[chosen], *need.T), len(chosen))
    owner = C.class_a[chosen]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    tasks: dict[bytes, tuple[IntArray, float]] = {}
    jobs = max(float(C.count[owner[starts]].sum()), 1.0)
    for rows in np.split(np.arange(len(chosen)), starts[1:]) if len(chosen) else ():
        asked = alike.inverse[rows].tobytes()
        columns, weight = tasks.get(asked, (chosen[rows], 0.0))
        tasks[asked] = columns, weight + float(C.count[owner[rows[0]]]) / jobs
    return list(tasks.values())


def _of_task(C: Classes, nodes: Nodes, columns: IntArray) -> FloatArray:
    """F_n(m) of jobs with these columns, one per pool; shape (nodes,)."""
    lost: FloatArray = nodes.room.sum(axis=1)
    need, _ = needs_per_gpu(C, columns)
    for row, column in enumerate(columns.tolist()):
        share = float(C.configurations.share[C.configuration[column]])
        span = max(int(C.configurations.nodes[C.configuration[column]]), 1)
        gpus = int(np.ceil(int(C.gpus[column]) / span))
        fits = nodes.room >= share - ROUNDING
        allowed = gpus_allowed(nodes.own, need[row])
        able = (nodes.pool == C.pool[column]) & (fits.sum(axis=1) >= gpus) & (allowed >= gpus)
        too_full = np.where(fits, 0.0, nodes.room).sum(axis=1)
        lost = np.where(able, np.minimum(lost, too_full), lost)
    return lost
