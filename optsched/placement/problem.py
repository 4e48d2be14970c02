"""The placement problem: requests on nodes, and the objective that compares two assignments.

Sets and parameters: requests j with g_j GPUs, a share s_j of each, at most k_j nodes, needs per GPU
d_j; usable nodes n with the GPUs, CPUs and memory that occupied GPUs leave free (these do not
move); running jobs with the GPUs that they hold. An assignment gives a request g_j GPUs of nodes
of its pool, or nothing, such that

- the shares of a GPU add up to at most 1, and no node or group of nodes gives more than it has;
- a request spans at most k_j nodes, all in one group of the level of the topology that it states
  (a rack, a block);
- two jobs of an anti-affinity set are never on one node, whether both are placed or one of them
  occupies GPUs there;
- a request has no GPU of a node that is barred to it.

Objective, in this order: most requests placed; fewest nodes spanned in total; greatest sum, over
the requests of two or more GPUs, of the bottleneck bandwidth; fewest GPUs moved: GPUs given to jobs
that run now and do not hold them.

The bottleneck of a gang is the least, over pairs of GPUs of its nodes, of the bandwidth of the
widest path between the two. For every b, widest paths of b GB/s or more join GPUs into groups, and
these groups are nested. So the graph is stored as one label per node and level of bandwidth. The
bottleneck of a gang is that of the first level at which all its nodes have the same label. The GPUs
of a node count as a whole: a node in two parts at a level has no label there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from optsched.arrays import (
    EMPTY,
    BoolArray,
    FloatArray,
    Groups,
    IntArray,
    constant,
    group_rows,
    lengths,
    mask_of,
    owners,
    ranges,
)
from optsched.arrays.values import cached_property, replace
from optsched.candidates import gpus_allowed
from optsched.instance import Instance, Resource
from optsched.instance.topology import INTRA_NODE, LEAF, NODE
from optsched.placement.cut_gpus import CutGpus
from optsched.placement.occupied import Occupied
from optsched.placement.requests import Requests
from optsched.placement.shares import ROUNDING

# --- nodes and their links -------------------------------------------------------------------


@dataclass(frozen=True)
class Nodes:
    """The nodes that can take work now, pool by pool; nodes without GPUs are left out.

    A node that is not up, or not available yet, takes nothing (`Pool.usable`), not even a job that
    runs there now: the capacities of the program leave it out as well.

    Attributes
    ----------
    instance : Instance
    pool : IntArray, shape (N,)
        The pool of each node.
    number : IntArray, shape (N,)
        Its number in the cluster (`Cluster.numbering`).
    gpus : IntArray, shape (N,)
        GPUs, free or not.
    room : FloatArray, shape (N, most GPUs of a node)
        Free share of each GPU: 1 for a GPU without a holder, 0 beyond the node's GPUs.
    own : FloatArray, shape (N, 2)
        Free CPUs and memory (GB); inf where the instance does not state them.
    groups : tuple of Resource, length G
        Renewable resources that belong to some nodes.
    group_capacity : FloatArray, shape (G,)
        Free amount of each of them.
    member : BoolArray, shape (G, N)
        Nodes that each of them belongs to.
    cut : CutGpus or None
        How GPUs are cut into slices (MIG); None where no request is a slice.
    """

    instance: Instance
    pool: IntArray
    number: IntArray
    gpus: IntArray
    room: FloatArray
    own: FloatArray
    groups: tuple[Resource, ...]
    group_capacity: FloatArray
    member: BoolArray
    cut: CutGpus | None = None

    @classmethod
    def of(
        cls, instance: Instance, pools: Sequence[int] | IntArray, *, every_node: bool = False
    ) -> Nodes:
        """The usable nodes of these pools, or all of them."""
        cluster = instance.cluster
        numbering = cluster.numbering
        size = lengths(numbering.start)
        in_pools = mask_of(pools, len(cluster.pools))[numbering.pool]
        usable = every_node | cluster.usable(instance.now)
        number = np.flatnonzero(in_pools & (size > 0) & usable)
        count = size[number]
        # A rectangular table: nodes with fewer GPUs have room 0 in the columns beyond.
        exists = np.arange(count.max(initial=0)) < count[:, None]
        return cls(
            instance=instance,
            pool=numbering.pool[number],
            number=number,
            gpus=count,
            room=exists.astype(np.float64),
            own=cluster.own_capacity[number],
            groups=cluster.groups,
            group_capacity=np.array([group.capacity for group in cluster.groups], np.float64),
            member=cluster.members[:, number],
        )

    def beside(self, occupied: Occupied) -> Nodes:
        """The same nodes with the amounts that occupied GPUs leave free."""
        numbering = self.instance.cluster.numbering
        index = np.arange(self.room.shape[1])
        # Beyond the GPUs of a node these are numbers of other nodes' GPUs; room is 0 there.
        gpu = np.minimum(numbering.start[self.number, None] + index, numbering.gpus - 1)
        room = np.maximum(self.room - occupied.load[gpu], 0.0)
        own, group_capacity = self.own, self.group_capacity
        # In most instances jobs need only GPUs.
        if occupied.need.any():
            own = np.maximum(own - occupied.used[self.number], 0.0)
        if len(self.groups):
            group_capacity = np.maximum(group_capacity - occupied.group_used, 0.0)
        cut = self.cut_beside(occupied)
        return replace(self, room=room, own=own, group_capacity=group_capacity, cut=cut)

    def cut_beside(self, occupied: Occupied) -> CutGpus | None:
        """``cut`` with the slices and shares of occupied GPUs added."""
        if self.cut is None:
            return None
        cut, numbering = self.cut.copy(), self.instance.cluster.numbering
        spot_of = np.full(numbering.gpus, NONE, np.int64)
        gpu = ranges(numbering.start[self.number], self.gpus)
        first = np.arange(len(self)) * self.room.shape[1]
        spot_of[gpu] = ranges(first, self.gpus)
        occupied.cut_into(cut, spot_of)
        return cut

    def __len__(self) -> int:
        return len(self.pool)

    @cached_property
    def free(self) -> IntArray:
        """Number of GPUs of each node that are wholly free, shape (N,)."""
        return np.asarray((self.room >= 1.0).sum(axis=1), np.int64)

    def local(self) -> IntArray:
        """Index among these nodes of each node of the cluster; -1 for other nodes."""
        local = np.full(self.instance.cluster.numbering.nodes, -1, np.int64)
        local[self.number] = np.arange(len(self))
        return local

    def name(self, node: int) -> str:
        return self.instance.cluster.numbering.node_name(int(self.number[node]))

    def of_pool(self, pool: int) -> slice:
        """The nodes of a pool, which are consecutive."""
        return slice(self._first[pool], self._first[pool + 1])

    @cached_property
    def _first(self) -> list[int]:
        """The first node of each pool, and the end of the last one."""
        pools = len(self.instance.cluster.pools)
        first: list[int] = self.pool.searchsorted(np.arange(pools + 1)).tolist()
        return first


NONE = -1


@dataclass(frozen=True)
class Links:
    """The bandwidth between nodes.

    A link without a stated bandwidth limits nothing; nodes that only such links join count as
    joined at the largest stated bandwidth. Nodes that the topology does not join, or does not have,
    are joined at 0 GB/s.

    Attributes
    ----------
    bandwidth : FloatArray, shape (L,)
        Levels, GB/s per direction, descending.
    label : IntArray, shape (L, N)
        Nodes with equal labels are joined at that bandwidth; -1 for a node whose own GPUs are not.
    """

    bandwidth: FloatArray
    label: IntArray

    @classmethod
    def of(cls, nodes: Nodes) -> Links:
        """The links of a cluster: those of its topology document,
        or of the tree GPU - node - leaf per pool - spine.
        """
        cluster = nodes.instance.cluster
        if cluster.topology is None:
            return cls(*_without_repetition(*_of_tree(nodes)))
        bandwidth, label = cluster.joined
        return cls(*_without_repetition(bandwidth, label[:, nodes.number]))

    def bottleneck(self, nodes: IntArray) -> float:
        """Bottleneck bandwidth of a gang on these nodes, GB/s."""
        labels = self.label[:, nodes]
        joined = np.flatnonzero((labels[:, 0] >= 0) & (labels == labels[:, :1]).all(axis=1))
        return float(self.bandwidth[joined[0]]) if len(joined) else 0.0


def _of_tree(nodes: Nodes) -> tuple[FloatArray, IntArray]:
    """Inside a node ``intra_node``;
    between two nodes of a pool the smaller of ``intra_node`` and ``node``,
    and of ``leaf`` where they are in two groups of the smallest level.
    """
    inside = np.zeros(len(nodes))
    between = np.zeros(len(nodes))
    across = np.zeros(len(nodes))
    levels = nodes.instance.cluster.levels
    for number, pool in enumerate(nodes.instance.cluster.pools):
        stated = [pool.bandwidth[level] for level in (INTRA_NODE, NODE) if level in pool.bandwidth]
        if stated:
            in_pool = nodes.of_pool(number)
            inside[in_pool] = pool.bandwidth.get(INTRA_NODE, max(stated))
            between[in_pool] = min(stated)
            limit = pool.bandwidth.get(LEAF, np.inf) if levels else np.inf
            across[in_pool] = min(*stated, limit)
    # Labels are distinct: first the pools, then the groups of each pool, then the nodes.
    pools = len(nodes.instance.cluster.pools)
    group = levels[0].group[nodes.number] if levels else nodes.pool
    of_group = pools + group * pools + nodes.pool
    of_node = int(of_group.max(initial=0)) + 1 + np.arange(len(nodes))
    bandwidth = np.unique(np.concatenate([inside, between, across]))[::-1]
    bandwidth = bandwidth[bandwidth > 0]
    level = bandwidth[:, None]
    return bandwidth, np.where(
        level <= across,
        nodes.pool,
        np.where(level <= between, of_group, np.where(level <= inside, of_node, NONE)),
    ).astype(np.int64)


def _without_repetition(bandwidth: FloatArray, label: IntArray) -> tuple[FloatArray, IntArray]:
    """Leave out levels that join the same nodes as the level above them."""
    shape = label.copy()
    # Labels are numbered in order of first appearance, so that equal groupings are equal arrays.
    for row in range(len(label)):
        _, first, inverse = np.unique(label[row], return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[first.argsort()] = np.arange(len(first))
        shape[row] = np.where(label[row] == NONE, NONE, rank[inverse])
    new = np.ones(len(label), bool)
    new[1:] = (shape[1:] != shape[:-1]).any(axis=1)
    return bandwidth[new], shape[new]


def largest_of_groups(
    label: IntArray, available: IntArray, nodes: int
) -> tuple[IntArray, IntArray]:
    """Groups of nodes with equal labels, and the sum of ``available`` over the ``nodes`` largest
    nodes of each group.

    Nodes of label -1 are in no group.
    """
    # Within each group the largest nodes come first: sums of prefixes are the largest possible.
    order = np.lexsort((-available, label))
    order = order[label[order] >= 0]
    first = np.flatnonzero(np.diff(label[order], prepend=-1))
    total = np.concatenate(([0], available[order].cumsum()))
    end = np.append(first[1:], len(order))[: len(first)]
    reach = total[np.minimum(first + nodes, end)] - total[first]
    return label[order[first]], reach


# --- requests on nodes -----------------------------------------------------------------------

Assignment = Mapping[int, IntArray]
"""GPUs by request: rows (node, index on the node), sorted, shape (g, 2)."""

Pieces = list[tuple[int, int]]
"""(node, GPUs on it) of one request."""


@dataclass(frozen=True)
class HeldGpus:
    """GPUs of usable nodes that the jobs of a request hold now.

    Attributes
    ----------
    gpus : IntArray, shape (H, 2)
        (node, index), sorted.
    weight : IntArray, shape (H,)
        By how many of its jobs.
    running : int
        How many of its jobs run now, wherever that is.
    """

    gpus: IntArray
    weight: IntArray
    running: int


NOTHING_HELD = HeldGpus(np.zeros((0, 2), np.int64), EMPTY, 0)


@dataclass(frozen=True)
class Worth:
    """The objective of an assignment; assignments sort from best to worst by `key`."""

    rows: int
    nodes: int
    bandwidth: float
    moved: int

    @property
    def key(self) -> tuple[float, ...]:
        """The objective, to be minimised lexicographically."""
        return (
            -self.rows,
            self.nodes,
            -float(f"{self.bandwidth:.12g}"),
            self.moved,
        )


class Scored(NamedTuple):
    """An assignment and its worth."""

    assignment: Assignment
    worth: Worth


def better(first: Scored, second: Scored) -> Scored:
    """The better of two assignments; the first if they are equal."""
    return min(first, second, key=lambda scored: scored.worth.key)


@dataclass(frozen=True)
class Bounds:
    """Most requests that can be placed, and fewest nodes that so many placed requests span."""

    rows: int
    nodes: int


@dataclass(frozen=True)
class Problem:
    """Requests, the nodes that may take them, their links, and the GPUs that running jobs hold.

    Attributes
    ----------
    requests : Requests
    nodes : Nodes
        With the amounts that occupied GPUs leave free.
    closed : tuple of IntArray, length P
        Nodes that a request must not use, whatever is placed: barred nodes, and nodes on which a
        job of one of its anti-affinity sets has GPUs.
    """

    requests: Requests
    nodes: Nodes
    closed: tuple[IntArray, ...]

    @classmethod
    def of(
        cls,
        requests: Requests,
        occupied: Occupied | None = None,
        *,
        every_node: bool = False,
    ) -> Problem:
        """The problem on the usable nodes (or all) of the pools of the requests, beside occupied
        GPUs.
        """
        nodes = Nodes.of(requests.classes.instance, requests.pool, every_node=every_node)
        nodes = replace(nodes, cut=CutGpus.of(requests.slices, nodes.room.shape))
        if occupied is not None and len(occupied):
            nodes = nodes.beside(occupied)
        return cls(requests, nodes, _closed(requests, nodes, occupied))

    def occupied_by(self, assignment: Assignment) -> Occupied:
        """The GPUs of an assignment."""
        R = self.requests
        placed = np.array(sorted(assignment), np.int64)
        owner = owners(R.gpus[placed])
        return Occupied(
            R.classes.instance,
            R.job[placed],
            R.partner[placed],
            R.profile[placed],
            R.need[placed],
            R.group_need[placed],
            self.gpu_numbers(assignment),
            R.share[placed[owner]],
            owner,
        )

    def beside(self, assignment: Assignment) -> Problem:
        """The same problem where the GPUs of an assignment are occupied."""
        if not assignment:
            return self
        occupied = self.occupied_by(assignment)
        closed = self.closed
        if self.requests.sets:
            more = _closed(self.requests, self.nodes, occupied)
            closed = tuple(map(np.union1d, closed, more))
        return Problem(self.requests, self.nodes.beside(occupied), closed)

    def __len__(self) -> int:
        return len(self.requests)

    @cached_property
    def held(self) -> tuple[HeldGpus, ...]:
        """GPUs that the running jobs of each request hold, length P."""
        return _gpus_held(self.requests, self.nodes)

    @cached_property
    def links(self) -> Links:
        return Links.of(self.nodes)

    def of_pool(self, request: int) -> slice:
        """The nodes of a request's pool."""
        return self.nodes.of_pool(int(self.requests.pool[request]))

    def group_of(self, request: int) -> IntArray | None:
        """Group of every node of its pool in the level that a request states: all its GPUs are in
        one group. None where this excludes no nodes.
        """
        level = int(self.requests.level[request])
        if level == 0:
            return None
        return self._groups_of(level, int(self.requests.pool[request]))

    @cached_property
    def _known_groups(self) -> dict[tuple[int, int], IntArray | None]:
        return {}

    def _groups_of(self, level: int, pool: int) -> IntArray | None:
        key = level, pool
        if key not in self._known_groups:
            number = self.nodes.number[self.nodes.of_pool(pool)]
            group = self.nodes.instance.cluster.group_of_node[level, number]
            same = len(group) == 0 or bool((group == group[0]).all())
            self._known_groups[key] = None if same else group
        return self._known_groups[key]

    def gpus_for(self, request: int) -> IntArray:
        """Number of GPUs with room for the share of a request, for every node of its pool."""
        in_pool = self.of_pool(request)
        share = self.requests.share[request]
        if share == 1.0:
            return self.nodes.free[in_pool]
        room = self.room_on(request, in_pool, self.nodes.room, self.nodes.cut)
        return np.asarray((room >= share - ROUNDING).sum(axis=1))

    def room_on(
        self,
        request: int,
        nodes: slice | int | IntArray,
        room: FloatArray,
        cut: CutGpus | None,
    ) -> FloatArray:
        """Free share of the GPUs of some nodes for a request that shares GPUs: that of ``room``,
        shape (N, GPUs), but 0 where ``cut`` has no layout for its slice.
        """
        if cut is None:
            return np.asarray(room[nodes])
        R = self.requests
        what = int(R.profile[request]), float(R.share[request])
        return np.where(cut.able(int(R.pool[request]), cut.code[nodes], *what), room[nodes], 0.0)

    @cached_property
    def needy(self) -> BoolArray:
        """Mask of the requests that need CPUs, memory or resources of some nodes; shape (P,)."""
        R = self.requests
        return np.asarray(R.need.any(axis=1) | R.group_need.any(axis=1))

    @cached_property
    def on_one_node(self) -> BoolArray:
        """Mask of the requests of whole GPUs for which only the free GPUs, CPUs and memory of a
        node matter, and which one node can hold; shape (P,).

        Their best node is the one with the fewest free GPUs that are enough. No topology tells the
        nodes of the pool apart, and the jobs hold no GPUs there.
        """
        R = self.requests
        instance = R.classes.instance
        if instance.cluster.topology is not None:
            return np.zeros(len(self), bool)
        largest = np.zeros(len(instance.cluster.pools), np.int64)
        np.maximum.at(largest, self.nodes.pool, self.nodes.gpus)
        one_node = (R.share == 1.0) & (R.gpus <= largest[R.pool])
        if R.group_need.size:
            one_node &= ~R.group_need.any(axis=1)
        if R.sets or any(map(len, R.barred)):
            limits = zip(R.apart, R.barred, strict=True)
            one_node &= ~np.array([bool(sets) or len(nodes) > 0 for sets, nodes in limits], bool)
        places = instance.jobs_table.places
        # The last entry is for partner -1.
        running_in = np.full(len(instance.jobs_table) + 1, -1, np.int64)
        running_in[places.job] = places.pool
        for jobs in (R.job, R.partner):
            one_node &= running_in[jobs] != R.pool
        return np.asarray(one_node, bool)

    def within_needs(
        self, request: int, gpus: IntArray, own: FloatArray, group: FloatArray
    ) -> IntArray:
        """Of these GPUs, the number that each node of the pool can give a request
        within all rules except room on the GPUs.

        Parameters
        ----------
        request : int
        gpus : IntArray, shape (nodes of the pool,)
        own : FloatArray, shape (N, 2)
            Free CPUs and memory of every node.
        group : FloatArray, shape (G,)
            Free amount of the resources of some nodes.
        """
        R = self.requests
        in_pool = self.of_pool(request)
        if R.clashing[request]:
            return np.zeros_like(gpus)
        closed = self.closed[request]
        if not self.needy[request] and not len(closed):
            return gpus
        gpus = gpus.copy()
        # In a nearly full cluster few nodes have a free GPU.
        node = gpus.nonzero()[0]
        gpus[node] = np.minimum(gpus[node], gpus_allowed(own[in_pool][node], R.need[request]))
        for number in R.group_need[request].nonzero()[0].tolist():
            allowed = gpus_allowed(group[[number], None], R.group_need[request, [number]])
            member = self.nodes.member[number, in_pool]
            gpus = np.where(member, np.minimum(gpus, allowed), gpus)
        first, last = closed.searchsorted([in_pool.start, in_pool.stop])
        gpus[closed[first:last] - in_pool.start] = 0
        return gpus

    def at_most(self, request: int) -> IntArray:
        """GPUs that every node of its pool could give a request if no other request were placed."""
        nodes = self.nodes
        return self.within_needs(request, self.gpus_for(request), nodes.own, nodes.group_capacity)

    @cached_property
    def closed_as(self) -> IntArray:
        """Number of the set of nodes that are closed to each request, equal for equal sets,
        0 for the empty set; shape (P,).
        """
        known = {EMPTY.tobytes(): 0}
        if not any(map(len, self.closed)):
            return constant(0, len(self), np.int64)
        return np.array(
            [known.setdefault(nodes.tobytes(), len(known)) for nodes in self.closed],
            np.int64,
        )

    @cached_property
    def _like(self) -> Groups:
        """Groups of requests that can have the same GPUs of each node."""
        R = self.requests
        # Keys that are equal for all requests are left out. Nearly always only the pool is left.
        keys = [R.pool, R.share, *R.need.T[R.need.any(axis=0)], *R.group_need.T]
        keys += [R.profile] if R.slices.layouts else []
        if R.sets:
            sets = {numbers: number for number, numbers in enumerate(dict.fromkeys(R.apart))}
            keys += [R.clashing, np.array([sets[numbers] for numbers in R.apart], np.int64)]
        return group_rows([*keys, self.closed_as], len(self))

    @cached_property
    def alike(self) -> Groups:
        """Groups of equal requests: if one of a group finds no room, none of them does."""
        R = self.requests
        return group_rows((self._like.inverse, R.gpus, R.span, R.level), len(self))

    @cached_property
    def fewest(self) -> IntArray:
        """Fewest nodes that each request needs if no other request is placed,
        0 where it fits nowhere; shape (P,).
        """
        R = self.requests
        fewest = np.zeros(len(self), np.int64)
        kind_of = self._like.inverse
        rank = np.full(len(self._like), -1, np.int64)
        for pool, (kinds, _, most) in self._most.items():
            # The k largest nodes have at least as many GPUs as any other k nodes.
            reach = np.sort(most, axis=1)[:, ::-1].cumsum(axis=1)
            if not reach.size:
                continue
            # One search serves all kinds: a stride keeps their numbers of GPUs apart.
            rank[kinds] = np.arange(len(kinds))
            requests = np.flatnonzero(R.pool == pool)
            kind, gpus = rank[kind_of[requests]], R.gpus[requests]
            possible = gpus <= reach[kind, -1]
            requests, kind, gpus = requests[possible], kind[possible], gpus[possible]
            stride = int(reach[:, -1].max()) + 1
            known = (reach + stride * np.arange(len(kinds))[:, None]).ravel()
            found = known.searchsorted(gpus + stride * kind)
            fewest[requests] = found - kind * reach.shape[1] + 1
        return np.where(fewest <= R.span, fewest, 0)

    @cached_property
    def open(self) -> BoolArray:
        """Nodes that could give GPUs to a request that fits somewhere; shape (N,)."""
        R = self.requests
        fit = np.flatnonzero(self.fewest)
        # A gang that may span several nodes can use a single GPU of a node.
        least = np.full(len(self._like), np.iinfo(np.int64).max)
        np.minimum.at(least, self._like.inverse[fit], np.where(R.span > 1, 1, R.gpus)[fit])
        found = np.zeros(len(self.nodes), bool)
        for kinds, nodes, most in self._most.values():
            found[nodes] = (most >= least[kinds, None]).any(axis=0)
        return found

    @cached_property
    def _most(self) -> dict[int, tuple[IntArray, IntArray, IntArray]]:
        """By pool: its kinds of requests (`_like`), its nodes with GPUs for one of them, and
        `at_most` of these kinds, shape (kinds, nodes).
        """
        R = self.requests
        first = self._like.first
        found = {}
        for pool in np.unique(R.pool).tolist():
            kinds = np.flatnonzero(R.pool[first] == pool)
            found[pool] = (kinds, *self._at_most_of(first[kinds]))
        return found

    def _at_most_of(self, requests: IntArray) -> tuple[IntArray, IntArray]:
        """Nodes with GPUs for some requests of one pool, and `at_most` there, shape
        (requests, nodes).
        """
        R = self.requests
        in_pool = self.of_pool(int(requests[0]))
        limited = R.clashing | (self.closed_as > 0) | R.group_need.any(axis=1)
        if limited[requests].any():
            most = np.stack([self.at_most(request) for request in requests.tolist()])
            return np.arange(in_pool.start, in_pool.stop), most
        # The same for all requests at once, where only CPUs and memory limit them.
        if (R.share[requests] == 1.0).all():
            gpus = self.nodes.free[in_pool][None]
        else:
            gpus = np.stack([self.gpus_for(request) for request in requests.tolist()])
        node = np.flatnonzero(gpus.any(axis=0))
        allowed = gpus_allowed(self.nodes.own[in_pool][node], R.need[requests][:, None])
        return in_pool.start + node, np.minimum(gpus[:, node], allowed)

    def worth(self, assignment: Assignment) -> Worth:
        """The objective of an assignment, computed from its GPUs alone."""
        spanned = {j: np.unique(gpus[:, 0]) for j, gpus in assignment.items()}
        return Worth(
            rows=len(assignment),
            nodes=sum(len(nodes) for nodes in spanned.values()),
            bandwidth=math.fsum(
                self.links.bottleneck(nodes)
                for j, nodes in spanned.items()
                if self.requests.gpus[j] > 1
            ),
            moved=sum(self.moved(j, gpus) for j, gpus in assignment.items()),
        )

    def scored(self, assignment: Assignment) -> Scored:
        return Scored(assignment, self.worth(assignment))

    def gpu_names(self, assignment: Assignment) -> dict[int, tuple[str, ...]]:
        """GPUs of an assignment as ``node/index``, in the order of the requests."""
        used = {int(node) for gpus in assignment.values() for node in gpus[:, 0]}
        names = {node: self.nodes.name(node) for node in used}
        return {
            request: tuple(f"{names[node]}/{gpu}" for node, gpu in assignment[request].tolist())
            for request in sorted(assignment)
        }

    def gpu_numbers(self, assignment: Assignment) -> IntArray:
        """GPUs of an assignment by their numbers in the cluster, in the order of the requests."""
        if not assignment:
            return EMPTY
        node, index = np.concatenate([assignment[request] for request in sorted(assignment)]).T
        start = self.nodes.instance.cluster.numbering.start[self.nodes.number[node]]
        return np.asarray(start + index, np.int64)

    def moved(self, request: int, gpus: IntArray) -> int:
        """Number of GPUs that a request's running jobs get and do not hold."""
        held = self.held[request]
        if not held.running:
            return 0
        spots = map(tuple, held.gpus.tolist())
        weight: dict[tuple[int, ...], int] = dict(zip(spots, held.weight.tolist(), strict=True))
        kept = sum(weight.get(spot, 0) for spot in map(tuple, gpus.tolist()))
        return held.running * len(gpus) - kept


def _gpus_held(requests: Requests, nodes: Nodes) -> tuple[HeldGpus, ...]:
    """GPUs that the running jobs of each request hold."""
    instance = requests.classes.instance
    places = instance.jobs_table.places
    numbering = nodes.instance.cluster.numbering
    result = [NOTHING_HELD] * len(requests)
    # The last entry is for partner -1.
    holder = np.append(places.among(len(instance.jobs_table)), -1)[[requests.job, requests.partner]]
    jobs_of = (holder >= 0).sum(axis=0)
    if not jobs_of.any():
        return tuple(result)
    request_of = np.tile(np.arange(len(requests)), 2)[holder.ravel() >= 0]
    holder = holder[holder >= 0]
    in_pool = places.pool[holder] == requests.pool[request_of]
    gpu = places.numbers_of(holder[in_pool], numbering)
    owner = request_of[in_pool].repeat(places.length[holder[in_pool]])
    # Each pair of a request and a GPU is one number; its count is the number of jobs that hold it.
    key, weight = np.unique(owner * numbering.gpus + gpu, return_counts=True)
    owner, gpu = np.divmod(key, max(numbering.gpus, 1))
    cluster_node = numbering.node_of(gpu)
    node = nodes.local()[cluster_node]
    usable = node >= 0
    owner = owner[usable]
    weight = weight[usable].astype(np.int64)
    spots = np.stack([node, gpu - numbering.start[cluster_node]], axis=1)[usable]
    start = owner.searchsorted(np.arange(len(requests) + 1)).tolist()
    for request in np.flatnonzero(jobs_of).tolist():
        part = slice(start[request], start[request + 1])
        result[request] = HeldGpus(spots[part], weight[part], int(jobs_of[request]))
    return tuple(result)


def _closed(requests: Requests, nodes: Nodes, occupied: Occupied | None) -> tuple[IntArray, ...]:
    """Nodes that are closed to each request: barred, or with a job of one of its anti-affinity
    sets.
    """
    beside = [EMPTY if occupied is None else occupied.nodes_of(jobs) for jobs in requests.sets]
    if not any(map(len, beside)) and not any(map(len, requests.barred)):
        return (EMPTY,) * len(requests)
    local = nodes.local()
    known = dict[tuple[object, ...], IntArray]()
    result = []
    for barred, apart in zip(requests.barred, requests.apart, strict=True):
        key = (barred.tobytes(), *apart)
        if key not in known:
            closed = local[
                np.unique(np.concatenate([barred, *(beside[number] for number in apart)]))
            ]
            known[key] = closed[closed >= 0]
        result.append(known[key])
    return tuple(result)


# --- from counts by node to GPUs -------------------------------------------------------------


def with_identities(
    problem: Problem,
    pieces: Mapping[int, Pieces],
    shared: Mapping[int, IntArray],
    kept: Mapping[int, Iterable[tuple[int, int]]] | None = None,
) -> Assignment:
    """Choose the GPUs of every request.

    Parameters
    ----------
    problem : Problem
    pieces : mapping
        GPUs by node of the requests of whole GPUs; those of other requests are ignored.
    shared : mapping
        GPUs of the requests that share GPUs; no other request gets these.
    kept : mapping, optional
        GPUs that a request of whole GPUs keeps; by default all that it holds. A GPU that two
        requests hold goes to the first of them.
    """
    free = problem.nodes.room >= 1.0
    for gpus in shared.values():
        free[gpus[:, 0], gpus[:, 1]] = False
    whole = [request for request in sorted(pieces) if request not in shared]
    spots = []
    missing = []
    for request in whole:
        left = dict(pieces[request])
        wanted = _held_by_most(problem, request) if kept is None else sorted(kept.get(request, ()))
        for node, gpu in wanted:
            if free[node, gpu] and left.get(node, 0):
                left[node] -= 1
                free[node, gpu] = False
                spots.append((request, node, gpu))
        missing += [(request, node, gpus) for node, gpus in left.items() if gpus]
    others = assign_gpus(free, *np.array(missing, np.int64).reshape(-1, 3).T)
    assignment = by_request(np.concatenate([np.array(spots, np.int64).reshape(-1, 3), others]))
    for request, gpus in shared.items():
        assignment[request] = gpus[np.lexsort((gpus[:, 1], gpus[:, 0]))]
    return assignment


def assign_gpus(free: BoolArray, request: IntArray, node: IntArray, gpus: IntArray) -> IntArray:
    """Choose GPUs for pieces of requests; returns rows (request, node, index).

    Parameters
    ----------
    free : BoolArray, shape (N, most GPUs of a node)
        Free GPUs; changed in place.
    request, node, gpus : IntArray, shape (M,)
        Pieces: a number of GPUs of a node for a request.
    """
    # On each node the largest piece comes first: it needs the longest run of consecutive GPUs.
    order = np.lexsort((request, node, -gpus))
    index = [EMPTY]
    for size, of_size in groupby(order.tolist(), gpus.tolist().__getitem__):
        node_of = node[list(of_size)]
        begins = np.ones(len(node_of), bool)
        begins[1:] = node_of[1:] != node_of[:-1]
        first = begins.nonzero()[0]
        in_turn = consecutive(free[node_of[first]], size)
        if len(first) == len(node_of):
            chosen = in_turn[:, :size]
        else:
            # Several pieces on one node have consecutive parts of the order of its GPUs.
            group = begins.cumsum() - 1
            turn = np.arange(len(node_of)) - first[group]
            chosen = in_turn[group[:, None], (turn * size)[:, None] + np.arange(size)]
        free[node_of[:, None], chosen] = False
        index.append(chosen.ravel())
    owner = order.repeat(gpus[order])
    return np.stack([request[owner], node[owner], np.concatenate(index)], axis=1)


def by_request(spots: IntArray) -> dict[int, IntArray]:
    """The assignment given as rows (request, node, index)."""
    spots = spots[np.lexsort((spots[:, 2], spots[:, 1], spots[:, 0]))]
    request = spots[:, 0]
    begins = np.ones(len(spots), bool)
    begins[1:] = request[1:] != request[:-1]
    first = begins.nonzero()[0]
    start = first.tolist()
    bounds = pairwise([*start, len(spots)])
    gpus = [spots[begin:end, 1:] for begin, end in bounds]
    return dict(zip(request[first].tolist(), gpus, strict=True))


def _held_by_most(problem: Problem, request: int) -> list[tuple[int, int]]:
    """GPUs that a request holds; those that both its jobs hold come first."""
    held = problem.held[request]
    if not len(held.gpus):
        return []
    order = np.lexsort((held.gpus[:, 1], held.gpus[:, 0], -held.weight))
    return [(node, gpu) for node, gpu in held.gpus[order].tolist()]


def consecutive(free: BoolArray, size: int) -> IntArray:
    """GPUs of each node in the order in which they are given to pieces of one size.

    Each piece gets the beginning of the shortest run of free GPUs that is long enough, so that
    longer runs are left to larger requests. GPUs of runs that are too short come next, and GPUs
    that are not free come last.

    Parameters
    ----------
    free : BoolArray, shape (N, G)
    size : int

    Returns
    -------
    IntArray, shape (N, G)
    """
    most = free.shape[1]
    column = np.arange(most)
    # The next GPU that is not free, and the last one before: the run lies between them.
    after = np.minimum.accumulate(np.where(free, most, column)[:, ::-1], axis=1)[:, ::-1]
    before = np.maximum.accumulate(np.where(free, -1, column), axis=1)
    length = after - before - 1
    whole = column - before <= length // size * size
    turn = np.where(free & whole, length, np.where(free, most + 1, most + 2))
    return np.asarray(np.argsort(turn * most + column, axis=1), np.int64)
