"""Running jobs that keep their GPUs.

`StayRule` decides which rows can stay where their jobs run. Rounds apply it to all running jobs,
`pinned_rows` to the jobs that must not move because they cannot be preempted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, mask_of, owners
from optsched.candidates import Classes, JobRows, Slices
from optsched.display import count
from optsched.instance import Instance
from optsched.instance.staying import Running, must_stay
from optsched.placement.cut_gpus import CutGpus
from optsched.placement.occupied import Occupied, occupied_by
from optsched.placement.requests import (
    anti_affinity_sets,
    needs_per_gpu,
)
from optsched.placement.shares import FULL

BLOCKED = "other jobs that cannot be preempted are in its way there"


def holds(classes: Classes, running: Running, job: IntArray, column: IntArray) -> BoolArray:
    """Whether jobs hold the GPUs of these columns: as many, of the same pool, on no more nodes than
    the column allows, and in one group of its level.
    """
    configuration = classes.configuration[column]
    span = np.maximum(classes.configurations.nodes[configuration], 1)
    level = classes.configurations.levels[configuration]
    same: BoolArray = running.pool[job] == classes.pool[column]
    same &= running.gpus[job] == classes.gpus[column]
    return same & running.within(job, span, level)


class StayRule:
    """The amounts that occupied GPUs leave free, from which rows that stay take what they need.

    Parameters
    ----------
    classes : Classes
    occupied : Occupied
        GPUs that are already occupied, perhaps by rows that did not run there before.
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    """

    def __init__(
        self,
        classes: Classes,
        occupied: Occupied,
        constraints: Sequence[Mapping[str, Any]],
    ) -> None:
        instance = classes.instance
        self._classes = classes
        self._numbering = instance.cluster.numbering
        self._load = occupied.load.copy()
        self._slices = Slices.of(classes)
        gpus = self._numbering.gpus
        self._cut = CutGpus.of(self._slices, (gpus,))
        if self._cut is not None:
            occupied.cut_into(self._cut, np.arange(gpus))
        cluster = instance.cluster
        self._own = cluster.own_capacity * FULL - occupied.used
        self._member = cluster.members.astype(np.float64)
        capacity = np.array([group.capacity for group in cluster.groups])
        self._groups: FloatArray = capacity * FULL - occupied.group_used
        # The jobs of each anti-affinity set, and the nodes on which they have GPUs.
        sets = anti_affinity_sets(classes, constraints)
        self._apart = [frozenset(jobs.tolist()) for jobs in sets]
        self._nodes = [set(occupied.nodes_of(jobs).tolist()) for jobs in sets]

    def keep(
        self,
        rows: JobRows,
        going: IntArray,
        gpu: IntArray,
        count: IntArray,
        firm: BoolArray,
        *,
        ran_together: bool = False,
    ) -> BoolArray:
        """Mask of the rows that can stay, each beside the rows before it.

        Parameters
        ----------
        rows : JobRows
        going : IntArray, shape (K,)
            Rows in the order in which they are tried.
        gpu, count : IntArray
            Numbers of the GPUs that they hold now, row by row, and the number of GPUs of each row.
        firm : BoolArray, shape (K,)
            Rows that stay even if their nodes have too few CPUs or memory, or break anti-affinity.
        ran_together : bool
            Whether all occupied GPUs had the same holders in the last round. Then only new sharing
            of GPUs can exclude a row.
        """
        configuration = self._classes.configuration[rows.column[going]]
        share = self._classes.configurations.share[configuration]
        together = self._load + np.bincount(gpu, np.repeat(share, count), len(self._load))
        # Nearly always all rows stay: then thousands of rows need not be tried one by one.
        if ran_together and (together <= FULL).all():
            return np.ones(len(going), bool)
        need, group_need = needs_per_gpu(self._classes, rows.column[going])
        kept = np.zeros(len(going), bool)
        held = np.split(gpu, np.cumsum(count)[:-1])
        for nth_row, row in enumerate(going.tolist()):
            gpus = held[nth_row]
            if (self._load[gpus] + share[nth_row] > FULL).any():
                continue
            column = int(rows.column[row])
            if not (firm[nth_row] or self._has_layout(column, gpus)):
                continue
            on_node = Counter(self._numbering.node_of(gpus).tolist())
            nodes = list(on_node)
            per_node = np.array(list(on_node.values()), np.float64)[:, None]
            node_need = per_node * need[nth_row]
            groups = (self._member[:, nodes] @ per_node).ravel() * group_need[nth_row]
            jobs = {int(rows.job[row]), int(rows.partner[row])}
            apart = [number for number, among in enumerate(self._apart) if among & jobs]
            allowed = self._have(nodes, node_need, groups) and self._may_be_on(nodes, jobs, apart)
            if not (allowed or firm[nth_row] or ran_together):
                continue
            kept[nth_row] = True
            self._load[gpus] += share[nth_row]
            if self._cut is not None:
                pool, profile = int(self._classes.pool[column]), int(self._slices.profile[column])
                self._cut.add(pool, gpus, profile, float(share[nth_row]))
            self._own[nodes] -= node_need
            self._groups -= groups
            for number in apart:
                self._nodes[number].update(nodes)
        return kept

    def blocked(self, rows: JobRows, going: IntArray, gpu: IntArray, count: IntArray) -> BoolArray:
        """Mask of the rows that could not stay even if no other row did, shape (K,).

        Their GPUs are occupied, or their nodes have too few free CPUs or memory. Resources of
        several nodes and anti-affinity are not considered. The arguments are those of `keep`.
        """
        configuration = self._classes.configuration[rows.column[going]]
        share = self._classes.configurations.share[configuration]
        owner = owners(count)
        over = self._load[gpu] + share[owner] > FULL
        # One entry for each pair of a row and a node.
        nodes = self._numbering.nodes
        pair, first, gpus = np.unique(
            owner * nodes + self._numbering.node_of(gpu), return_index=True, return_counts=True
        )
        need, _ = needs_per_gpu(self._classes, rows.column[going])
        node_need = need[owner[first]] * gpus[:, None]
        short = ((node_need > 0) & (node_need > self._own[pair % nodes])).any(axis=1)
        mask = mask_of(owner[over], len(going))
        mask[owner[first[short]]] = True
        return mask

    def _has_layout(self, column: int, gpus: IntArray) -> bool:
        """Whether the GPUs have a layout (MIG) with one more slice of a column, or room for its
        share.
        """
        if self._cut is None:
            return True
        C = self._classes
        share = float(C.configurations.share[C.configuration[column]])
        what = int(self._slices.profile[column]), share
        return bool(self._cut.able(int(C.pool[column]), self._cut.code[gpus], *what).all())

    def _have(self, nodes: list[int], node_need: FloatArray, group_need: FloatArray) -> bool:
        """Whether nodes have these amounts of CPUs and memory, and of resources of several
        nodes.
        """
        missing = ((node_need > 0) & (node_need > self._own[nodes])).any()
        missing_in_group = ((group_need > 0) & (group_need > self._groups)).any()
        return not (missing or missing_in_group)

    def _may_be_on(self, nodes: list[int], jobs: set[int], apart: list[int]) -> bool:
        """Whether anti-affinity allows jobs on these nodes; two jobs of a set never share GPUs."""
        return not any(
            len(self._apart[number] & jobs) > 1 or self._nodes[number].intersection(nodes)
            for number in apart
        )


@dataclass(frozen=True)
class PinnedRows:
    """The wanted rows whose jobs keep their GPUs, the rows that cannot be placed, and all GPUs in
    use.

    Attributes
    ----------
    row : IntArray, shape (K,)
        Rows of jobs that cannot be preempted, in the configuration in which these run.
    gpus : tuple of tuples of str, length K
        GPUs that they hold.
    refused : mapping of int to str
        Rows that would move such a job, each with the reason.
    contradicted : mapping of int to str
        Jobs that cannot be preempted, but are in no wanted row with their GPUs, each with the
        reason.
    occupied : Occupied
        GPUs of the rows that stay, and of the contradicted jobs, which stay too.
    """

    row: IntArray
    gpus: tuple[tuple[str, ...], ...]
    refused: Mapping[int, str]
    contradicted: Mapping[int, str]
    occupied: Occupied


def pinned_rows(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    constraints: Iterable[Mapping[str, Any]] = (),
    occupied: Occupied | None = None,
) -> PinnedRows:
    """The wanted rows whose jobs cannot be preempted; jobs in ``occupied`` are not checked."""
    instance = classes.instance
    fixed = Occupied.none(instance) if occupied is None else occupied
    running = Running.of(instance)
    stays = must_stay(instance, running)
    stays[fixed.jobs] = False
    if not stays.any():
        return PinnedRows(EMPTY, (), {}, {}, fixed)
    continued, moved = _continued(classes, rows, wanted, running, stays)
    chosen = np.array(list(continued), np.int64)
    # Jobs that stay, but are in no such row: their GPUs are occupied too.
    outside = stays.copy()
    outside[rows.job[chosen]] = False
    outside[rows.partner[chosen][rows.partner[chosen] >= 0]] = False
    left = np.flatnonzero(outside)
    if len(left):
        fixed = fixed.and_also(occupied_by(instance, left))
    held = list(continued.values())
    gpu = instance.cluster.numbering.numbers(chain.from_iterable(held))
    gpus_held = np.array([len(names) for names in held], np.int64)
    stay = StayRule(classes, fixed, list(constraints)).keep(
        rows, chosen, gpu, gpus_held, np.zeros(len(chosen), bool)
    )
    blocked = {row: int(rows.job[row]) for row in chosen[~stay].tolist()}
    possible = can_run_on(classes, left, running)
    reason = {
        job: _contradiction(classes, rows, moved, job, running, possible=can)
        for job, can in zip(left.tolist(), possible.tolist(), strict=True)
    }
    reason |= {job: _blocked(instance, job) for job in blocked.values() if stays[job]}
    refused = {
        row: reason.get(job, _blocked(instance, job)) for row, job in (moved | blocked).items()
    }
    row = chosen[stay]
    gpus = tuple(compress(held, stay))
    beside = fixed.and_also(Occupied.of_rows(classes, rows, row, gpus))
    return PinnedRows(row, gpus, refused, dict(sorted(reason.items())), beside)


def _continued(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    running: Running,
    stays: BoolArray,
) -> tuple[dict[int, tuple[str, ...]], dict[int, int]]:
    """Rows in which jobs that must stay keep their GPUs, with these GPUs; and rows that would move
    such a job, with the job.
    """
    held_by = classes.instance.jobs_table.running
    continued = dict[int, tuple[str, ...]]()
    moved = dict[int, int]()
    for row in wanted.tolist():
        jobs = (int(rows.job[row]), int(rows.partner[row]))
        firm = [job for job in jobs if job >= 0 and stays[job]]
        if not firm:
            continue
        # Two jobs that cannot be preempted can be a pair only if they already share their GPUs.
        held = {frozenset(held_by[job][1]) for job in firm}
        # A node that takes no new work keeps these jobs, but no others join them.
        joined = rows.partner[row] >= 0 and len(firm) == 1
        column = np.full(len(firm), rows.column[row])
        as_it_runs = holds(classes, running, np.array(firm), column).all()
        if len(held) == 1 and as_it_runs and not (joined and running.leaves[firm[0]]):
            continued[row] = held_by[firm[0]][1]
        else:
            moved[row] = firm[0]
    return continued, moved


def can_run_on(classes: Classes, jobs: IntArray, running: Running | None = None) -> BoolArray:
    """Mask of the running jobs that could keep their GPUs in some column."""
    found = Running.of(classes.instance) if running is None else running
    class_of = classes.of_job[jobs]
    # The most nodes that a column of these jobs may span, by class, pool and GPUs.
    most: dict[tuple[int, int, int], int] = {}
    spans = classes.configurations.nodes[classes.configuration]
    for member in (classes.class_a, classes.class_b):
        for column in np.flatnonzero(np.isin(member, class_of[class_of >= 0])).tolist():
            kind = int(member[column]), int(classes.pool[column]), int(classes.gpus[column])
            most[kind] = max(most.get(kind, 1), int(spans[column]))
    held = (found.pool[jobs].tolist(), found.gpus[jobs].tolist())
    kinds = zip(class_of.tolist(), *held, strict=True)
    enough: BoolArray = np.array([most.get(kind, 0) for kind in kinds]) >= found.nodes[jobs]
    return enough


def _contradiction(
    classes: Classes,
    rows: JobRows,
    moved: Mapping[int, int],
    job: int,
    running: Running,
    *,
    possible: bool,
) -> str:
    """Why a job that cannot be preempted is in no wanted row with its GPUs."""
    instance = classes.instance
    runs = _runs(instance, job)
    if not possible and classes.of_job[job] >= 0:
        nodes = count(int(running.nodes[job]), "node")
        where = _gpus_of(instance, int(running.gpus[job]), int(running.pool[job]))
        return f"{runs}, but its table has no configuration of {where} on {nodes}"
    row = next((row for row, of in moved.items() if of == job), None)
    if row is None:
        return f"{runs}, but the rows to place do not include that job"
    column = int(rows.column[row])
    pool = int(classes.pool[column])
    gpus = int(classes.gpus[column])
    where = "no GPU" if pool < 0 else _gpus_of(instance, gpus, pool)
    return f"{runs}, but the row to place gives it {where} in another configuration"


def _blocked(instance: Instance, job: int) -> str:
    return f"{_runs(instance, job)}; {BLOCKED}"


def _runs(instance: Instance, job: int) -> str:
    pool, gpus, _ = instance.jobs_table.running[job]
    where = _gpus_of(instance, len(gpus), pool)
    return f"job {instance.jobs_table.names[job]} runs on {where} and cannot be preempted"


def _gpus_of(instance: Instance, gpus: int, pool: int) -> str:
    return f"{gpus} GPU{'s' * (gpus != 1)} of {instance.cluster.pools[pool].name}"
