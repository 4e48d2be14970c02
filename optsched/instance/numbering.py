"""Numbers of the nodes and GPUs of a cluster, so that names are looked up once and arrays do the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import IntArray

if TYPE_CHECKING:
    from optsched.instance.cluster import Pool

NONE = -1
"""Number of a name that nothing has."""


class Numbering:
    """Nodes numbered pool by pool in the order of their rows, and GPUs node by node; those of all states.

    Attributes
    ----------
    pool, row : IntArray, shape (nodes,)
        The pool of each node, and its row in that pool.
    first : IntArray, shape (pools,)
        The first node of each pool.
    start : IntArray, shape (nodes + 1,)
        GPUs ``start[n]`` to ``start[n + 1] - 1`` are those of node n.
    """

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._pools = pools
        count = [len(pool.node_gpus) for pool in pools]
        self.pool: IntArray = np.repeat(np.arange(len(pools), dtype=np.int64), count)
        self.first: IntArray = np.cumsum([0, *count], dtype=np.int64)[:-1]
        rows = [np.arange(nodes, dtype=np.int64) for nodes in count]
        self.row: IntArray = np.concatenate([*rows, np.zeros(0, np.int64)])
        sizes = np.concatenate([*(pool.node_gpus for pool in pools), np.zeros(0, np.int64)])
        self.start: IntArray = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.pool)

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return int(self.start[-1])

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Number of each node."""
        names = (pool.node_name(row) for pool in self._pools for row in range(len(pool.node_gpus)))
        return {name: number for number, name in enumerate(names)}

    @cached_property
    def _known(self) -> _Known:
        return _Known(self)

    def node_name(self, node: int) -> str:
        """Name of a node."""
        return self._pools[int(self.pool[node])].node_name(int(self.row[node]))

    def gpu_name(self, gpu: int) -> str:
        """``node/index``."""
        node = int(self.node_of(np.array([gpu]))[0])
        return f"{self.node_name(node)}/{gpu - int(self.start[node])}"

    def node_of(self, gpus: IntArray) -> IntArray:
        """The node of each GPU."""
        return np.searchsorted(self.start, gpus, side="right") - 1

    def numbers(self, names: Iterable[str]) -> IntArray:
        """Numbers of GPUs written ``node/index``; `NONE` for what is no GPU. One look-up each."""
        return np.array(list(map(self._known.__getitem__, names)), np.int64)


class _Known(dict[str, int]):
    """GPUs by name, of those nodes that were asked for: a cluster may have more of them than anybody names."""

    def __init__(self, numbering: Numbering) -> None:
        super().__init__()
        self._numbering = numbering
        self._start: list[int] = numbering.start.tolist()

    def __missing__(self, name: str) -> int:
        node = name.rpartition("/")[0]
        number = self._numbering.by_name.get(node, NONE)
        if number != NONE and f"{node}/0" not in self:
            first, stop = self._start[number], self._start[number + 1]
            self.update({f"{node}/{gpu - first}": gpu for gpu in range(first, stop)})
        return self.get(name, NONE)
