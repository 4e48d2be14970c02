"""Running jobs keep their GPUs: which of them can, and which must.

`StayRule` is the one rule by which rows stay where their jobs run: rounds ask it for every running
job, and `pinned_rows` for the jobs that no placement may move, as they cannot be preempted.
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


class StayRule:
    """What is left of GPUs and nodes beside occupied GPUs; rows that stay take their part of it.

    Parameters
    ----------
    classes : Classes
    occupied : Occupied
        What has GPUs already: it may be in the way of what ran there before.
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
        # Jobs of each anti-affinity set, and the nodes on which one of them is.
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
        """Mask of those of the rows that can stay, each beside those before it.

        Parameters
        ----------
        rows : JobRows
        going : IntArray, shape (K,)
            Rows, the first first.
        gpu, count : IntArray
            GPUs that they hold now, row by row, by their number in the cluster, and how many each
            has.
        firm : BoolArray, shape (K,)
            Those that must stay as they run, though their nodes have too little, or may not have
            them together.
        ran_together : bool
            Nothing is in their way that did not run beside them: only what shares GPUs anew is.
        """
        configuration = self._classes.configuration[rows.column[going]]
        share = self._classes.configurations.share[configuration]
        together = self._load + np.bincount(gpu, np.repeat(share, count), len(self._load))
        # Nearly always everybody stays, and thousands of rows need not be tried one by one.
        if ran_together and (together <= FULL).all():
            return np.ones(len(going), bool)
        need, group_need = needs_per_gpu(self._classes, rows.column[going])
        kept = np.zeros(len(going), bool)
        held = np.split(gpu, np.cumsum(count)[:-1])
        for nth_row, row in enumerate(going.tolist()):
            mine = held[nth_row]
            if (self._load[mine] + share[nth_row] > FULL).any():
                continue
            column = int(rows.column[row])
            if not (firm[nth_row] or self._has_layout(column, mine)):
                continue
            on_node = Counter(self._numbering.node_of(mine).tolist())
            nodes = list(on_node)
            per_node = np.array(list(on_node.values()), np.float64)[:, None]
            own = per_node * need[nth_row]
            groups = (self._member[:, nodes] @ per_node).ravel() * group_need[nth_row]
            jobs = {int(rows.job[row]), int(rows.partner[row])}
            apart = [number for number, among in enumerate(self._apart) if among & jobs]
            allowed = self._have(nodes, own, groups) and self._may_be_on(nodes, jobs, apart)
            if not (allowed or firm[nth_row] or ran_together):
                continue
            kept[nth_row] = True
            self._load[mine] += share[nth_row]
            if self._cut is not None:
                pool, profile = int(self._classes.pool[column]), int(self._slices.profile[column])
                self._cut.add(pool, mine, profile, float(share[nth_row]))
            self._own[nodes] -= own
            self._groups -= groups
            for number in apart:
                self._nodes[number].update(nodes)
        return kept

    def blocked(self, rows: JobRows, going: IntArray, gpu: IntArray, count: IntArray) -> BoolArray:
        """Mask of those of the rows that could not even stay alone, shape (K,); else as `keep`.

        Their GPUs are taken, or their nodes have no CPUs or memory left for them. Resources of
        several nodes and anti-affinity are not looked at.
        """
        configuration = self._classes.configuration[rows.column[going]]
        share = self._classes.configurations.share[configuration]
        owner = owners(count)
        over = self._load[gpu] + share[owner] > FULL
        # GPUs of a row on one node need that much of it together.
        nodes = self._numbering.nodes
        place, at, here = np.unique(
            owner * nodes + self._numbering.node_of(gpu), return_index=True, return_counts=True
        )
        need, _ = needs_per_gpu(self._classes, rows.column[going])
        own = need[owner[at]] * here[:, None]
        short = ((own > 0) & (own > self._own[place % nodes])).any(axis=1)
        mask = mask_of(owner[over], len(going))
        mask[owner[at[short]]] = True
        return mask

    def _has_layout(self, column: int, gpus: IntArray) -> bool:
        """Whether GPUs can have the slice (MIG) of a column, or its share, beside what is on them."""
        if self._cut is None:
            return True
        C = self._classes
        share = float(C.configurations.share[C.configuration[column]])
        what = int(self._slices.profile[column]), share
        return bool(self._cut.able(int(C.pool[column]), self._cut.code[gpus], *what).all())

    def _have(self, nodes: list[int], own: FloatArray, groups: FloatArray) -> bool:
        """Whether nodes have so much of their own resources, and of those of some nodes."""
        missing = ((own > 0) & (own > self._own[nodes])).any()
        missing_in_group = ((groups > 0) & (groups > self._groups)).any()
        return not (missing or missing_in_group)

    def _may_be_on(self, nodes: list[int], jobs: set[int], apart: list[int]) -> bool:
        """Whether no other job of their anti-affinity sets is there; two of a set share no GPUs."""
        return not any(
            len(self._apart[number] & jobs) > 1 or self._nodes[number].intersection(nodes)
            for number in apart
        )


@dataclass(frozen=True)
class PinnedRows:
    """The wanted rows whose jobs keep their GPUs, those that cannot be placed, and all GPUs in use.

    Attributes
    ----------
    row : IntArray, shape (K,)
        Rows of jobs that cannot be preempted, in the configuration in which these run.
    gpus : tuple of tuples of str, length K
        What they hold.
    refused : mapping of int to str
        Rows that would move such a job, each with the reason.
    contradicted : mapping of int to str
        Such jobs that no row wanted lets run on, each with the reason.
    occupied : Occupied
        The rows that stay, and the jobs that stay though no row lets them.
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
    """Rows wanted whose jobs cannot be preempted;
    jobs that are in ``occupied`` are left to the caller.
    """
    instance = classes.instance
    fixed = Occupied.none(instance) if occupied is None else occupied
    running = Running.of(instance)
    stays = must_stay(instance, running)
    # Whoever made `occupied` answers for the jobs in it.
    stays[fixed.jobs] = False
    if not stays.any():
        return PinnedRows(EMPTY, (), {}, {}, fixed)
    continued, moved = _continued(classes, rows, wanted, running, stays)
    chosen = np.array(list(continued), np.int64)
    # Jobs that must stay though no row wanted lets them: what they hold is not free either.
    outside = stays.copy()
    outside[rows.job[chosen]] = False
    outside[rows.partner[chosen][rows.partner[chosen] >= 0]] = False
    left = np.flatnonzero(outside)
    if len(left):
        unknown_option = np.full(len(left), -1, np.int64)
        fixed = fixed.and_also(occupied_by(instance, left, unknown_option))
    held = list(continued.values())
    gpu = instance.cluster.numbering.numbers(chain.from_iterable(held))
    count = np.array([len(names) for names in held], np.int64)
    stay = StayRule(classes, fixed, list(constraints)).keep(
        rows, chosen, gpu, count, np.zeros(len(chosen), bool)
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
    """Rows that continue jobs which must stay, with their GPUs;
    rows that would move one, with that job.
    """
    held_by = classes.instance.jobs_table.running
    continued = dict[int, tuple[str, ...]]()
    moved = dict[int, int]()
    for row in wanted.tolist():
        jobs = (int(rows.job[row]), int(rows.partner[row]))
        firm = [job for job in jobs if job >= 0 and stays[job]]
        if not firm:
            continue
        # Two jobs that cannot be preempted may share a row only where they share their GPUs
        # already.
        held = {frozenset(held_by[job][1]) for job in firm}
        column = int(rows.column[row])
        if len(held) == 1 and all(_continues(classes, running, job, column) for job in firm):
            continued[row] = held_by[firm[0]][1]
        else:
            moved[row] = firm[0]
    return continued, moved


def _continues(classes: Classes, running: Running, job: int, column: int) -> bool:
    """Whether a column is the configuration in which a job runs, on nodes that take work."""
    # A row without nodes stated spans one.
    configuration = classes.configuration[[column]]
    span = np.maximum(classes.configurations.nodes[configuration], 1)
    level = classes.configurations.levels[configuration]
    same_gpus = (
        classes.pool[column] == running.pool[job] and classes.gpus[column] == running.gpus[job]
    )
    within = running.within(np.array([job]), span, level).all()
    return bool(same_gpus and within and not running.leaves[job])


def can_run_on(classes: Classes, jobs: IntArray, running: Running | None = None) -> BoolArray:
    """Mask of those of some running jobs that a column lets keep their GPUs."""
    found = Running.of(classes.instance) if running is None else running
    mine = classes.of_job[jobs]
    # The most nodes of each configuration of these jobs, by class, pool and GPUs.
    most: dict[tuple[int, int, int], int] = {}
    spans = classes.configurations.nodes[classes.configuration]
    for of in (classes.class_a, classes.class_b):
        for column in np.flatnonzero(np.isin(of, mine[mine >= 0])).tolist():
            kind = int(of[column]), int(classes.pool[column]), int(classes.gpus[column])
            most[kind] = max(most.get(kind, 1), int(spans[column]))
    kinds = zip(mine.tolist(), found.pool[jobs].tolist(), found.gpus[jobs].tolist(), strict=True)
    enough = np.array([most.get(kind, 0) for kind in kinds], np.int64) >= found.nodes[jobs]
    return enough & ~found.leaves[jobs]


def _contradiction(
    classes: Classes,
    rows: JobRows,
    moved: Mapping[int, int],
    job: int,
    running: Running,
    *,
    possible: bool,
) -> str:
    """Why no row lets a job run on that cannot be preempted, as text."""
    instance = classes.instance
    runs = _runs(instance, job)
    if running.leaves[job]:
        return f"{runs}, but a node that it runs on takes no new work"
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
