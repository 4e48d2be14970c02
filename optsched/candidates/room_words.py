"""Why nodes or resources have no room for a column, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates.columns import Drop, KindColumns
from optsched.candidates.kinds import Kinds
from optsched.candidates.room import ROUNDING, Room, find_room, node_capacities
from optsched.instance import Instance

UNITS = ("{:g} CPU", "{:g} GB of memory")
"""Of the resources that nodes have of their own, in their order."""


@dataclass(frozen=True)
class RoomWords:
    """The dropped columns that have no room, and what they were compared with.

    Attributes
    ----------
    columns : KindColumns
        Dropped columns.
    room : Room
        Of the columns without room, in the order of ``rows``.
    rows : IntArray, shape (M,)
        Their rows in ``columns``, ascending.
    most : sequence of FloatArray, each of shape (2,)
        Most CPUs and memory of a node with GPUs, by pool.
    resources : tuple of (name, capacity)
    """

    columns: KindColumns
    room: Room
    rows: IntArray
    most: Sequence[FloatArray]
    resources: tuple[tuple[str, float], ...]

    @classmethod
    def of(
        cls, columns: KindColumns, instance: Instance, kinds: Kinds, later_nodes: bool
    ) -> RoomWords:
        """Look again at dropped columns."""
        rows = np.flatnonzero(np.isin(columns.drop, (Drop.NO_ROOM, Drop.OVER_CAPACITY)))
        now = np.inf if later_nodes else instance.now
        return cls(
            columns,
            find_room(columns.take(rows), instance, kinds, later_nodes),
            rows,
            [
                node_capacities(pool, now)[1].max(axis=0, initial=0.0)
                for pool in instance.cluster.pools
            ],
            tuple((resource.name, resource.capacity) for resource in instance.cluster.resources),
        )

    def of_row(self, row: int) -> str:
        """Why the column at this row of ``columns`` has no room."""
        at = int(np.searchsorted(self.rows, row))
        if self.columns.drop[row] == Drop.OVER_CAPACITY:
            name, capacity = self.resources[int(self.room.over[at])]
            return f"needs {self.room.amount[at]:g} of {name}, which has {capacity:g}"
        gpus, nodes = int(self.columns.gpus[row]), int(self.columns.nodes[row])
        need, most = self.room.need[at], self.most[int(self.columns.pool[row])]
        for amount, has, unit in zip(need.tolist(), most.tolist(), UNITS, strict=True):
            if amount > has * (1 + ROUNDING):
                return f"needs {_amount(unit, amount)} per GPU, but no node has more than {has:g}"
        told = " and ".join(
            _amount(unit, amount)
            for unit, amount in zip(UNITS, need.tolist(), strict=True)
            if amount
        )
        hosted = f"only {self.room.hosted[at]}" if self.room.hosted[at] else "none"
        where = f"{nodes} nodes" if nodes > 1 else "1 node"
        return f"needs {told} per GPU, with which {where} can host {hosted} of {gpus} GPU{'s' if gpus > 1 else ''}"


def _amount(unit: str, amount: float) -> str:
    """``1 CPU``, ``3 CPUs``, ``20 GB of memory``."""
    return unit.format(amount) + ("s" if unit.endswith("CPU") and amount != 1 else "")
