"""Why columns were dropped, as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import cached_property
from optsched.candidates.columns import Drop, KindColumns
from optsched.candidates.generate import gpu_memory
from optsched.candidates.kinds import Kinds
from optsched.candidates.room import ROUNDING, NodeNeeds, find_room, node_capacities
from optsched.instance import Instance
from optsched.instance.reading import listed
from optsched.performance.batches import BATCH, PER_GPU

UNITS = ("{:g} CPU", "{:g} GB of memory")
"""Formats of the amounts that a node has of CPUs and memory."""
MOST_REASONS = 4
"""Largest number of reasons in one sentence."""
NOT_ADMITTED = {
    Drop.DOMINATED: "another way to run it has no smaller value and needs no more of anything",
    Drop.NOT_CHOSEN: "another way to run it was chosen",
}


@dataclass(frozen=True)
class DropWords:
    """The reasons of dropped columns as text, computed only when they are asked for.

    Attributes
    ----------
    columns : KindColumns
        Dropped columns.
    instance : Instance
    kinds : Kinds
    later_nodes : bool
        As in `Candidates`.
    """

    columns: KindColumns
    instance: Instance
    kinds: Kinds
    later_nodes: bool

    @cached_property
    def _by_kind(self) -> tuple[IntArray, IntArray]:
        """Rows of columns of kinds alone, sorted by kind, and where each kind begins."""
        alone = np.flatnonzero(self.columns.partner < 0)
        order = alone[self.columns.kind[alone].argsort(kind="stable")]
        return order, self.columns.kind[order].searchsorted(np.arange(len(self.kinds) + 1))

    @cached_property
    def _gpu_memory(self) -> tuple[FloatArray, FloatArray]:
        return gpu_memory(self.instance, self.kinds, self.columns)

    @cached_property
    def _room(self) -> tuple[IntArray, NodeNeeds]:
        """Rows of the columns that find no room, ascending, and the capacities that they were
        compared with.
        """
        rows = np.flatnonzero(np.isin(self.columns.drop, (Drop.NO_ROOM, Drop.OVER_CAPACITY)))
        without_room = self.columns.take(rows)
        return rows, find_room(without_room, self.instance, self.kinds, self.later_nodes)

    @cached_property
    def _largest_nodes(self) -> list[list[float]]:
        """Most CPUs, and most memory, that a node of each pool has."""
        now = np.inf if self.later_nodes else self.instance.now
        cluster = self.instance.cluster
        capacities = (node_capacities(cluster, row, now)[1] for row in range(len(cluster.pools)))
        return [capacity.max(axis=0, initial=0.0).tolist() for capacity in capacities]

    def of_kind(self, kind: int) -> Iterator[tuple[int, str]]:
        """Rows of the dropped columns of a kind alone, each with its reason."""
        order, start = self._by_kind
        for row in order[start[kind] : start[kind + 1]].tolist():
            yield row, self.of_row(row)

    def summary(self, kind: int) -> str:
        """Why some columns of a kind were dropped, pool by pool; empty where none was."""
        pools = self.instance.cluster.pools
        places: dict[str, dict[str, None]] = {}
        for row, words in self.of_kind(kind):
            pool = int(self.columns.pool[row])
            name = "without a pool" if pool < 0 else pools[pool].name
            places.setdefault(words, {})[name] = None
        reasons = list(places.items())
        shown = "; ".join(f"{listed(names)}: {words}" for words, names in reasons[:MOST_REASONS])
        return shown + ("; ..." if len(reasons) > MOST_REASONS else "")

    def of_row(self, row: int) -> str:
        """Why the column at this row was dropped."""
        columns = self.columns
        gpus = int(columns.gpus[row])
        count = f"{gpus} GPU" + ("s" if gpus != 1 else "")
        reason = Drop(columns.drop[row])
        if reason is Drop.TOO_MANY_GPUS:
            pool = self.instance.cluster.pools[int(columns.pool[row])]
            has = pool.capacity(self.instance.now)
            usable = {0: "none is", 1: "only 1 is"}.get(has, f"only {has} are")
            return f"needs {count}, but {usable} usable"
        if reason is Drop.TOO_MANY_NODES:
            nodes = int(columns.nodes[row])
            return f"{count} cannot be had on {nodes} node" + ("s" if nodes != 1 else "")
        if reason is Drop.OUT_OF_MEMORY:
            return self._out_of_memory(row, count)
        if reason is Drop.OVER_CAPACITY:
            return self._over_capacity(row)
        if reason is Drop.NO_ROOM:
            return self._no_room(row)
        if reason is Drop.OVER_LIMIT:
            if columns.workers[row]:
                return "1 worker and 1 server need more than there is or than its limit"
            return "needs more than its limit"
        if reason in NOT_ADMITTED:
            return NOT_ADMITTED[reason]
        if reason is Drop.ZERO_RATE:
            samples = self._samples_per_step(int(columns.kind[row]))
            if gpus > samples:
                return f"more GPUs ({gpus}) than samples per step ({samples:g})"
            return f"rate 0 on {count}" if gpus else "rate 0"
        # Where rates are for groups of nodes, a column for plain nodes has none.
        several = self.instance.cluster.level_names and columns.nodes[row] > 1
        return f"no rate is given for {count}" + (
            f" on {columns.nodes[row]} nodes" if several else ""
        )

    def _samples_per_step(self, kind: int) -> float:
        """Samples per step of a kind whose GPUs share a fixed batch; infinite if there is no such
        limit.
        """
        workload = int(self.kinds.workload[kind])
        if workload < 0 or self.kinds.profile[kind] >= 0:
            return np.inf
        parameters = self.instance.workloads[workload].parameters
        batch = parameters.get(BATCH)
        # If the batch is stated per GPU, every GPU has samples.
        if PER_GPU in parameters or not isinstance(batch, int | float):
            return np.inf
        return float(batch)

    def _out_of_memory(self, row: int, count: str) -> str:
        needs, available = self._gpu_memory
        if needs[row] <= available[row]:
            # The limit comes from the performance model, not from the memory that the workload
            # states.
            return f"out of GPU memory on {count}"
        return f"out of GPU memory (needs {needs[row]:g} GB per GPU, has {available[row]:g})"

    def _over_capacity(self, row: int) -> str:
        rows, room = self._room
        at = int(rows.searchsorted(row))
        resource = self.instance.cluster.resources[int(room.over[at])]
        return f"needs {room.amount[at]:g} of {resource.name}, which has {resource.capacity:g}"

    def _no_room(self, row: int) -> str:
        rows, room = self._room
        at = int(rows.searchsorted(row))
        gpus, nodes = int(self.columns.gpus[row]), int(self.columns.nodes[row])
        most = self._largest_nodes[int(self.columns.pool[row])]
        need = room.need[at].tolist()
        for amount, has, unit in zip(need, most, UNITS, strict=True):
            if amount > has * (1 + ROUNDING):
                return f"needs {_amount(unit, amount)} per GPU, but no node has more than {has:g}"
        demand = " and ".join(
            _amount(unit, amount) for unit, amount in zip(UNITS, need, strict=True) if amount
        )
        hosted = f"only {room.hosted[at]}" if room.hosted[at] else "none"
        where = f"{nodes} nodes" if nodes > 1 else "1 node"
        plural = "s" if gpus > 1 else ""
        return f"needs {demand} per GPU, with which {where} can host {hosted} of {gpus} GPU{plural}"


def _amount(unit: str, amount: float) -> str:
    """``1 CPU``, ``3 CPUs``, ``20 GB of memory``."""
    return unit.format(amount) + ("s" if unit.endswith("CPU") and amount != 1 else "")
