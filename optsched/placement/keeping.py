"""Which rows can go on where they are, beside what has got places already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.instance.cluster import PER_NODE
from optsched.placement.needs import OWN, members, needs_per_gpu, renewable_groups
from optsched.placement.requests import ANTI_AFFINITY
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
