"""The machine side of an instance:
pools of nodes, numbers of nodes and GPUs, resources, tenants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import EMPTY, AnyArray, BoolArray, FloatArray, IntArray, pointers
from optsched.arrays.values import cached_property, replace
from optsched.display import Displayed, count
from optsched.instance.documents import NODE_STATES, parse_index
from optsched.instance.levels import EVERYWHERE, TopologyLevel, joined_levels, stated_levels
from optsched.instance.links import joined_nodes

UP = NODE_STATES.index("up")
PER_NODE = {"cpu": "node_cpus", "memory": "node_memory"}
"""Resources that belong to nodes, and the fields of `Pool` that have them."""
NONE = -1
"""Number for an unknown name."""
STRIDE = 2**40
"""Larger than any GPU count. Adding multiples of it puts the values of all pools into one sorted
array.
"""


class Partition(NamedTuple):
    """One MIG profile: compute slices of 7, memory slices of 8,
    and the slices where it may start.
    """

    profile: str
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    memory: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Pool(Displayed):
    """A group of nodes with one GPU type; nodes may differ in size and state.

    Attributes
    ----------
    name, gpu : str
        The GPU type defaults to the pool's name.
    node_names : tuple of str, or int
        Names, or how many nodes there are (then called ``<pool>-<i>``).
    node_gpus : IntArray, shape (nodes,)
    node_cpus, node_memory : FloatArray, shape (nodes,)
        NaN if not stated (no limit). Memory in GB.
    node_state : IntArray, shape (nodes,)
        Index into `NODE_STATES`.
    node_available_from : FloatArray, shape (nodes,)
        Seconds; -inf where not stated.
    gpu_memory : float or None
        GB per GPU.
    cost_per_gpu_hour, watts_per_gpu, watts_idle : float or None
        USD, W (per GPU), W (per idle GPU).
    bandwidth : mapping
        GB/s per direction by ``intra_node``, ``node``, ``leaf``.
    partitions : tuple of Partition
    """

    name: str
    gpu: str
    node_names: tuple[str, ...] | int
    node_gpus: IntArray
    node_cpus: FloatArray
    node_memory: FloatArray
    node_state: IntArray
    node_available_from: FloatArray
    gpu_memory: float | None = None
    cost_per_gpu_hour: float | None = None
    watts_per_gpu: float | None = None
    watts_idle: float | None = None
    bandwidth: Mapping[str, float] = field(default_factory=dict)
    partitions: tuple[Partition, ...] = ()

    def _headline(self) -> str:
        nodes = count(len(self.node_gpus), "node")
        return f"{self.name}: {count(self.size, 'GPU')} on {nodes}"

    @property
    def size(self) -> int:
        """GPUs of all nodes, usable or not."""
        return int(self.node_gpus.sum())

    def node_name(self, node: int) -> str:
        """Name of a node by its row."""
        return f"{self.name}-{node}" if isinstance(self.node_names, int) else self.node_names[node]

    def usable(self, now: float) -> BoolArray:
        """Nodes that can take work at ``now``: up, and available from then on."""
        return np.asarray((self.node_state == UP) & (self.node_available_from <= now))

    def capacity(self, now: float) -> int:
        """GPUs on usable nodes."""
        return int(self.node_gpus[self.usable(now)].sum())

    def total(self, name: str, now: float) -> float:
        """CPUs or memory (``name`` is a key of `PER_NODE`) of the usable nodes.

        NaN if one of them states no limit.
        """
        return float(getattr(self, PER_NODE[name])[self.usable(now)].sum())

    def reach(self, now: float) -> IntArray:
        """GPUs on the k largest usable nodes, for k = 0, 1, ... (nodes with GPUs only): the most
        GPUs of a gang on k nodes.
        """
        sizes = np.sort(self.node_gpus[self.usable(now)])
        return pointers(sizes[sizes > 0][::-1])


class Numbering(Displayed):
    """Nodes numbered pool by pool in the order of their rows,
    and GPUs node by node; nodes of all states are included.

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
        self.row: IntArray = np.concatenate([*rows, EMPTY])
        sizes = np.concatenate([*(pool.node_gpus for pool in pools), EMPTY])
        self.start: IntArray = pointers(sizes)

    def _headline(self) -> str:
        return f"of {count(len(self.pool), 'node')} in {count(len(self.first), 'pool')}"

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
        """Name of a GPU, ``node/index``."""
        return self.gpu_names(np.array([gpu]))[0]

    def gpu_names(self, gpus: IntArray) -> list[str]:
        """``node/index`` of each GPU."""
        node = self.node_of(gpus)
        index = (gpus - self.start[node]).tolist()
        nodes = node.tolist()
        name = {number: self.node_name(number) for number in set(nodes)}
        return [f"{name[n]}/{i}" for n, i in zip(nodes, index, strict=True)]

    def node_of(self, gpus: IntArray) -> IntArray:
        """The node of each GPU."""
        return self._node_of_gpu[gpus]

    @cached_property
    def _node_of_gpu(self) -> IntArray:
        # A lookup table instead of a search, because a round calls this many times for all GPUs in
        # use.
        return np.repeat(np.arange(self.nodes, dtype=np.int64), np.diff(self.start))

    def numbers(self, names: Iterable[str]) -> IntArray:
        """Numbers of GPUs written ``node/index``; `NONE` for unknown ones. One lookup each."""
        return np.array(list(map(self._known.__getitem__, names)), np.int64)


class _Known(dict[str, int]):
    """GPUs by name, filled node by node on demand, because a cluster may have many more GPUs than
    are ever named.
    """

    def __init__(self, numbering: Numbering) -> None:
        super().__init__()
        self._numbering = numbering
        self._start: list[int] = numbering.start.tolist()

    def __missing__(self, name: str) -> int:
        node = name.rpartition("/")[0]
        number = self._numbering.by_name.get(node, NONE)
        # All GPUs of a node are entered together; the first of them marks the node as known.
        if number != NONE and f"{node}/0" not in self:
            first, stop = self._start[number], self._start[number + 1]
            self.update({f"{node}/{gpu - first}": gpu for gpu in range(first, stop)})
        return self.get(name, NONE)


class Resource(NamedTuple):
    """A capacity beside GPUs, CPUs and memory:
    of the cluster (pool and nodes None), a pool, or some nodes.
    """

    name: str
    kind: str
    capacity: float
    pool: str | None = None
    nodes: tuple[str, ...] | None = None


@dataclass(frozen=True, repr=False)
class Tenant(Displayed):
    """A group of jobs: share by ``weight`` among tenants,
    by ``policy`` (fairness or fifo) inside.
    """

    name: str
    weight: float = 1.0
    policy: str = "fairness"


@dataclass(frozen=True, eq=False, repr=False)
class PoolSizes(Displayed):
    """GPUs on the usable nodes of every pool.

    Attributes
    ----------
    gpus : IntArray, shape (pools,)
        Usable GPUs.
    nodes : IntArray, shape (pools,)
        Usable nodes that have GPUs.
    divisor : IntArray, shape (pools,)
        Greatest common divisor of the GPUs of these nodes; 0 without nodes.
    reach : IntArray, shape (sum of nodes + 1,)
        Pool by pool, the GPUs on its 0, 1, 2, ... largest nodes, plus the pool's row times
        `STRIDE`; increasing.
    start : IntArray, shape (pools,)
        Where each pool starts in ``reach``.
    """

    gpus: IntArray
    nodes: IntArray
    divisor: IntArray
    reach: IntArray
    start: IntArray

    def _headline(self) -> str:
        usable = count(int(self.gpus.sum()), "GPU")
        return (
            f"{usable} on {count(int(self.nodes.sum()), 'node')} in {count(len(self.gpus), 'pool')}"
        )

    @classmethod
    def of(cls, pools: Sequence[Pool], now: float) -> PoolSizes:
        """The sizes at a time; ``now`` = inf includes all nodes that become available later."""
        reaches = [pool.reach(now) for pool in pools]
        # Largest nodes first, so that position k of the reach is the most GPUs on k nodes.
        nodes = np.array([len(reach) - 1 for reach in reaches], np.int64)
        return cls(
            gpus=np.array([reach[-1] for reach in reaches], np.int64),
            nodes=nodes,
            divisor=np.array([np.gcd.reduce(np.diff(reach)) for reach in reaches], np.int64),
            reach=np.concatenate([reach + row * STRIDE for row, reach in enumerate(reaches)]),
            start=np.cumsum(nodes + 1) - nodes - 1,
        )

    def fewest_nodes(self, pool: IntArray, gpus: IntArray) -> IntArray:
        """Fewest nodes that hold these GPUs. If they do not fit, one more than the number of nodes
        with GPUs; 0 without a pool.
        """
        # Thanks to the stride, one search serves all pools.
        position = self.reach.searchsorted(pool * STRIDE + gpus) - self.start[pool]
        return np.where(pool >= 0, position, 0)

    def most_gpus(self, pool: IntArray, nodes: IntArray) -> IntArray:
        """Most GPUs on this number of nodes, or on all nodes of the pool if it has fewer."""
        return self.reach[self.start[pool] + np.minimum(nodes, self.nodes[pool])] - pool * STRIDE


@dataclass(frozen=True, eq=False, repr=False)
class Cluster(Displayed):
    """Pools, resources, the topology document (None: the default tree, see
    `optsched.instance.topology`) and that of the levels (`optsched.instance.levels`).
    """

    pools: tuple[Pool, ...]
    resources: tuple[Resource, ...] = ()
    topology: Mapping[str, Any] | None = None
    level_document: Mapping[str, Any] | str | None = None

    def _headline(self) -> str:
        gpus = self.size
        return f"of {count(gpus, 'GPU')} in {count(len(self.pools), 'pool')}"

    @cached_property
    def pool_index(self) -> Mapping[str, int]:
        """Row of each pool by name."""
        return {pool.name: row for row, pool in enumerate(self.pools)}

    @cached_property
    def _listed_nodes(self) -> Mapping[str, tuple[int, int]]:
        """Pool row and node row of each node with a written name."""
        return {
            name: (number, row)
            for number, pool in enumerate(self.pools)
            if not isinstance(pool.node_names, int)
            for row, name in enumerate(pool.node_names)
        }

    @cached_property
    def numbering(self) -> Numbering:
        """Numbers and names of nodes and GPUs."""
        return Numbering(self.pools)

    @cached_property
    def node_states(self) -> IntArray:
        """State of every node, an index into `NODE_STATES`, shape (nodes,)."""
        return _of_nodes(self.pools, "node_state")

    @cached_property
    def _available_from(self) -> FloatArray:
        return _of_nodes(self.pools, "node_available_from")

    @cached_property
    def _openings(self) -> FloatArray:
        """Times from which some node is available, ascending."""
        return np.unique(self._available_from)

    @cached_property
    def _known_at(self) -> dict[int, tuple[BoolArray, PoolSizes]]:
        return {}

    def _at(self, now: float) -> tuple[BoolArray, PoolSizes]:
        """Usable nodes and sizes of the pools at a time; cached until the next node becomes
        available.
        """
        known, passed = self._known_at, int(self._openings.searchsorted(now, side="right"))
        if passed not in known:
            known.clear()  # keep the last state only: time moves forward
            usable = (self.node_states == UP) & (self._available_from <= now)
            usable.flags.writeable = False
            known[passed] = usable, PoolSizes.of(self.pools, now)
        return known[passed]

    def usable(self, now: float) -> BoolArray:
        """Nodes that can take work at a time (`Pool.usable`), shape (nodes,)."""
        return self._at(now)[0]

    def sizes(self, now: float) -> PoolSizes:
        """GPUs on the nodes of every pool that can take work at a time."""
        return self._at(now)[1]

    @cached_property
    def own_capacity(self) -> FloatArray:
        """CPUs and memory (GB) of every node, inf if not stated; shape (nodes, 2)."""
        stated = np.stack([_of_nodes(self.pools, name) for name in PER_NODE.values()], axis=1)
        return np.where(np.isnan(stated), np.inf, stated)

    @cached_property
    def groups(self) -> tuple[Resource, ...]:
        """Renewable resources of some nodes: the jobs placed on these nodes at one time share their
        capacity.
        """
        of_nodes = (item for item in self.resources if item.nodes is not None)
        return tuple(item for item in of_nodes if item.kind == "renewable")

    @property
    def node_resources(self) -> tuple[str, ...]:
        """Names of the resources that a node counts: CPUs and memory, then the `groups`."""
        return (*PER_NODE, *(item.name for item in self.groups))

    @cached_property
    def members(self) -> BoolArray:
        """Which nodes each of these resources belongs to, shape (G, nodes)."""
        member = np.zeros((len(self.groups), self.numbering.nodes), bool)
        for place, group in enumerate(self.groups):
            member[place, [self.numbering.by_name[name] for name in group.nodes or ()]] = True
        return member

    @cached_property
    def joined(self) -> tuple[FloatArray, IntArray]:
        """Bandwidths, and groups of nodes that the links of the topology document join
        at each (`joined_nodes`).
        """
        if self.topology is None:
            raise ValueError("the cluster has no topology document")
        numbering = self.numbering
        names = [numbering.node_name(node) for node in range(numbering.nodes)]
        return joined_nodes(names, np.diff(numbering.start), self.topology)

    @cached_property
    def levels(self) -> tuple[TopologyLevel, ...]:
        """Racks, blocks and the like, from the smallest groups to the largest."""
        if self.level_document is None:
            return ()
        if isinstance(self.level_document, str):
            return joined_levels(self.joined[1])
        return stated_levels(self.level_document, self.numbering.by_name)

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        """Names of levels in rates; the last one stands for all nodes of a pool. Empty if no levels
        are stated.
        """
        names = (level.name for level in self.levels)
        return () if self.level_document is None else (*names, EVERYWHERE)

    @cached_property
    def group_of_node(self) -> IntArray:
        """Group of every node at each level, shape (levels + 2, nodes).

        Row 0 is for rates without a level. In the last row, the level of all nodes of a pool, the
        groups are the pools.
        """
        pools = self.numbering.pool
        return np.stack([pools, *(level.group for level in self.levels), pools])

    def find_node(self, name: str) -> tuple[int, int]:
        """Row of the pool of a node, and of the node in it;
        (-1, -1) if there is none of that name.
        """
        head, _, index = name.rpartition("-")
        number = self.pool_index.get(head, -1)
        if number >= 0 and isinstance(count := self.pools[number].node_names, int):
            row = parse_index(index)
            if 0 <= row < count:
                return number, row
        return self._listed_nodes.get(name, (-1, -1))

    def with_pools(self, pools: tuple[Pool, ...]) -> Cluster:
        """The same cluster with other data of its nodes, whose names stay the same, so cached data
        about names are kept.
        """
        changed = replace(self, pools=pools)
        # GPUs are numbered node by node, so the numbering is kept only if no size has changed.
        kept = ["pool_index", "_listed_nodes", "groups", "members", "levels", "level_names"]
        if all(new.node_gpus is old.node_gpus for new, old in zip(pools, self.pools, strict=True)):
            kept += ["numbering", "joined"]
        for name in kept:
            if name in self.__dict__:
                changed.__dict__[name] = self.__dict__[name]
        return changed

    def usable_alike(self, first_time: float, other: float) -> bool:
        """Whether the same nodes can take work at two times."""
        first, last = self._openings.searchsorted([first_time, other], side="right").tolist()
        return bool(first == last)

    @property
    def size(self) -> int:
        """GPUs of all nodes, usable or not."""
        return sum(pool.size for pool in self.pools)

    def usable_gpus(self, now: float) -> dict[str, int]:
        """Usable GPUs of each pool, by name."""
        return {pool.name: pool.capacity(now) for pool in self.pools}

    def gpus(self, now: float) -> IntArray:
        """Usable GPUs of each pool, shape (pools,)."""
        return self.sizes(now).gpus

    def capacities(self, now: float) -> dict[str, float]:
        """Capacities at ``now``, by the names that usage and prices use.

        A pool's GPUs are called like the pool; its CPUs and memory, ``<pool>.cpu`` and
        ``<pool>.memory``, are limited only if every usable node states them.
        """
        found = {pool.name: float(pool.capacity(now)) for pool in self.pools}
        for name, node_field in PER_NODE.items():
            for pool in self.pools:
                # NaN as soon as one usable node states no limit.
                total = float(getattr(pool, node_field)[pool.usable(now)].sum())
                if not np.isnan(total):
                    found[f"{pool.name}.{name}"] = total
        return found | {resource.name: resource.capacity for resource in self.resources}


def _of_nodes(pools: Sequence[Pool], name: str) -> AnyArray:
    """A field of all nodes, pool by pool."""
    values = [getattr(pool, name) for pool in pools]
    return np.concatenate(values) if values else np.zeros(0)
