"""Running jobs keep their GPUs: which of them can, and which must because they cannot be preempted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.instance import Instance
from optsched.instance.cluster import PER_NODE
from optsched.placement.needs import OWN, members, needs_per_gpu, renewable_groups
from optsched.placement.requests import ANTI_AFFINITY
from optsched.placement.running import Running, must_stay, standing_of
from optsched.placement.standing import Standing

FULL = 1.0 + 1e-9


class Keeping:
    """What is left of GPUs and nodes beside what stands; rows that go on take their part of it.

    Parameters
    ----------
    classes : Classes
    standing : Standing
        What has got places: it may be in the way of what ran there before.
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    """

    def __init__(
        self, classes: Classes, standing: Standing, constraints: Sequence[Mapping[str, Any]]
    ) -> None:
        instance = classes.instance
        cluster, numbering = instance.cluster, instance.cluster.numbering
        self._classes, self._numbering = classes, numbering
        self._load = standing.load.copy()
        own = [
            np.concatenate([getattr(pool, PER_NODE[name]) for pool in cluster.pools])
            for name in OWN
        ]
        self._own = np.where(np.isnan(own), np.inf, own).T * FULL
        np.subtract.at(self._own, standing.node, standing.need[standing.owner])
        self._member = members(instance).astype(np.float64)
        self._groups = np.array([group.capacity for group in renewable_groups(instance)]) * FULL
        self._groups -= (
            self._member[:, standing.node].T * standing.group_need[standing.owner]
        ).sum(axis=0)
        names = instance.jobs_table.names
        sets = [item["jobs"] for item in constraints if item.get("kind") == ANTI_AFFINITY]
        self._apart = [frozenset(names.index(name) for name in jobs) for jobs in sets]
        self._nodes = [
            set(standing.nodes_of(np.array(sorted(jobs), np.int64)).tolist()) for jobs in self._apart
        ]  # fmt: skip

    def keep(
        self, rows: JobRows, going: IntArray, gpus: Sequence[tuple[str, ...]], firm: BoolArray
    ) -> dict[int, tuple[str, ...]]:
        """GPUs of those of the rows that can go on, each beside those before it.

        Parameters
        ----------
        rows : JobRows
        going : IntArray
            Rows, the first first.
        gpus : sequence of tuples of str
            What each of them holds now.
        firm : BoolArray, shape of ``going``
            Those that must go on as they run, though their nodes have too little, or may not have them together.
        """
        C, column = self._classes, rows.column[going]
        share = C.configurations.share[C.configuration[column]].tolist()
        need, group_need = needs_per_gpu(C, column)
        held = {}
        for place, row in enumerate(going.tolist()):
            mine = self._numbering.numbers(gpus[place])
            spread = Counter(self._numbering.node_of(mine).tolist())
            nodes, count = list(spread), np.array(list(spread.values()), np.float64)[:, None]
            own, groups = (
                count * need[place],
                (self._member[:, nodes] @ count).ravel() * group_need[place],
            )
            jobs = {int(rows.job[row]), int(rows.partner[row])}
            apart = [number for number, among in enumerate(self._apart) if among & jobs]
            torn = any(len(self._apart[number] & jobs) > 1 for number in apart)
            refused = (
                torn
                or ((own > 0) & (own > self._own[nodes])).any()
                or ((groups > 0) & (groups > self._groups)).any()
                or any(self._nodes[number].intersection(nodes) for number in apart)
            )
            if (self._load[mine] + share[place] > FULL).any() or (refused and not firm[place]):
                continue
            self._load[mine] += share[place]
            self._own[nodes] -= own
            self._groups -= groups
            for number in apart:
                self._nodes[number].update(nodes)
            held[row] = gpus[place]
        return held


@dataclass(frozen=True)
class Unmoved:
    """What of the rows wanted goes on where it is, and what stays beside them.

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
    standing : Standing
        The rows that go on, and the jobs that do so though no row lets them.
    """

    row: IntArray
    gpus: tuple[tuple[str, ...], ...]
    refused: Mapping[int, str]
    contradicted: Mapping[int, str]
    standing: Standing


def unmoved(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    constraints: Iterable[Mapping[str, Any]] = (),
    standing: Standing | None = None,
) -> Unmoved:
    """Rows wanted whose jobs cannot be preempted; jobs that are in ``standing`` are left to whoever made it."""
    instance = classes.instance
    fixed = Standing.none(instance) if standing is None else standing
    running = Running.of(instance)
    stays = must_stay(instance, running)
    stays[fixed.jobs] = False
    if not stays.any():
        return Unmoved(np.zeros(0, np.int64), (), {}, {}, fixed)
    column, going, refused = rows.column[wanted], dict[int, tuple[str, ...]](), dict[int, int]()
    for place, row in enumerate(wanted.tolist()):
        firm = [
            job for job in (int(rows.job[row]), int(rows.partner[row])) if job >= 0 and stays[job]
        ]
        held = {frozenset(instance.jobs_table.running[job][1]) for job in firm}
        c = int(column[place])
        if len(held) == 1 and all(_goes_on(classes, running, job, c) for job in firm):
            going[row] = instance.jobs_table.running[firm[0]][1]
        elif firm:
            refused[row] = firm[0]
    outside = stays.copy()
    chosen = np.array(list(going), np.int64)
    for jobs in (rows.job[chosen], rows.partner[chosen][rows.partner[chosen] >= 0]):
        outside[jobs] = False
    left = np.flatnonzero(outside)
    if len(left):
        fixed = fixed.and_also(standing_of(instance, left, np.full(len(left), -1, np.int64)))
    documents = list(constraints)
    kept = Keeping(classes, fixed, documents).keep(
        rows, chosen, list(going.values()), np.zeros(len(chosen), bool)
    )
    crowded = {row: int(rows.job[row]) for row in going if row not in kept}
    why = {job: _why(classes, rows, refused, job) for job in left.tolist()}
    words = "other jobs that cannot be preempted are in its way there"
    why |= {job: f"{_told(instance, job)}; {words}" for job in crowded.values() if stays[job]}
    on = Standing.of_rows(classes, rows, np.array(list(kept), np.int64), list(kept.values()))
    return Unmoved(
        np.array(list(kept), np.int64),
        tuple(kept.values()),
        {
            row: why.get(job, f"{_told(instance, job)}; {words}")
            for row, job in (refused | crowded).items()
        },
        dict(sorted(why.items())),
        fixed.and_also(on),
    )


def _goes_on(classes: Classes, running: Running, job: int, column: int) -> bool:
    """Whether a column is the configuration in which a job runs, on nodes that take work."""
    return bool(
        classes.pool[column] == running.pool[job]
        and classes.gpus[column] == running.gpus[job]
        and running.nodes[job]
        <= max(int(classes.configurations.nodes[classes.configuration[column]]), 1)
        and not running.leaves[job]
    )


def _why(classes: Classes, rows: JobRows, refused: Mapping[int, int], job: int) -> str:
    instance = classes.instance
    row = next((row for row, of in refused.items() if of == job), None)
    if row is None:
        return f"{_told(instance, job)}, but the rows to place do not include that job"
    column = int(rows.column[row])
    pool, gpus = int(classes.pool[column]), int(classes.gpus[column])
    where = (
        "no GPU"
        if pool < 0
        else f"{gpus} GPU{'s' * (gpus != 1)} of {instance.cluster.pools[pool].name}"
    )
    return f"{_told(instance, job)}, but the row to place gives it {where} in another configuration"


def _told(instance: Instance, job: int) -> str:
    pool, gpus, _ = instance.jobs_table.running[job]
    on = f"{len(gpus)} GPU{'s' * (len(gpus) != 1)} of {instance.cluster.pools[pool].name}"
    return f"job {instance.jobs_table.names[job]} runs on {on} and cannot be preempted"
