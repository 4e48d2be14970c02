"""Types of gangs and classes of nodes: what the programs of `optsched.program.space` count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows, mask_of
from optsched.arrays.values import cached_property
from optsched.candidates import NO_SLICE, Classes, Slices, gpus_allowed
from optsched.candidates.held import held_gpus
from optsched.candidates.slices import layouts_of
from optsched.instance import Instance, Layouts
from optsched.instance.cluster import PER_NODE
from optsched.instance.staying import must_stay
from optsched.program.space.cells import NodeWay, ReservedCells, owner_of_columns
from optsched.program.space.contents import ROUNDING, GpuRoom

ANYWHERE = 0
"""Level of gangs that may have GPUs of any nodes of their pool."""


class SharedKind(NamedTuple):
    """The shares, or the slices (MIG), of the GPUs of one pool."""

    pool: int
    slices: bool


@dataclass(frozen=True, eq=False)
class GangTypes:
    """T types of gangs: columns of one type find room in the same places.

    Attributes
    ----------
    of_column : IntArray, shape (N,)
        Type of each column, -1 for one without GPUs.
    pool, gpus, nodes : IntArray, shape (T,)
        Pool, GPUs, and nodes spanned at most.
    level : IntArray, shape (T,)
        Level of the topology, one group of which has all the GPUs; `ANYWHERE` for any.
    share : FloatArray, shape (T,)
        Of each GPU; of a slice (MIG) the part of the memory slices that its profile takes.
    profile : IntArray, shape (T,)
        Of its slices, among those of the pool; `NO_SLICE` for none.
    need : FloatArray, shape (T, 2 + G)
        Per GPU: CPUs, memory (GB), and each resource that belongs to some nodes.
    apart : IntArray, shape (T, S)
        How many of its jobs are in each set of jobs of which no two may be on one node.
    owner : IntArray, shape (T,)
        Tenant, from 1 on, in whose reserved cells they are; 0 for none. -1: two jobs that would
        have to be in cells of different tenants.
    layouts : mapping from pool to Layouts
        Of the pools in which some type is a slice.
    """

    of_column: IntArray
    pool: IntArray
    gpus: IntArray
    nodes: IntArray
    level: IntArray
    share: FloatArray
    profile: IntArray
    need: FloatArray
    apart: IntArray
    owner: IntArray
    layouts: Mapping[int, Layouts]

    @classmethod
    def of(
        cls,
        C: Classes,
        apart: Sequence[BoolArray] = (),
        reserved: ReservedCells | None = None,
    ) -> GangTypes:
        """Those of the columns; jobs that keep their GPUs (`must_stay`) compete for no others.

        ``apart`` are sets of jobs of which no two may be on one node, ``reserved`` the cells of
        tenants.
        """
        cluster, table = C.instance.cluster, C.configurations
        stays = C.common(must_stay(C.instance))
        movable = ~(stays[C.class_a] | (stays[C.class_b] & ~C.alone))
        column = np.flatnonzero((C.pool >= 0) & (C.gpus > 0) & movable)
        row = C.configuration[column]
        nodes = np.maximum(table.nodes[row], 1)
        # On one node a gang is in one group of every level, and what has all nodes of the pool says
        # nothing.
        wide = (nodes == 1) | (table.levels[row] > len(cluster.levels))
        level = np.where(wide, ANYWHERE, table.levels[row])
        pool, gpus = C.pool[column], C.gpus[column]
        slices = Slices.of(C)
        slices.refuse_larger_shares(C)
        share, profile = _share_and_profile(C, slices, column)
        need = C.node_needs(column)
        _leave_out_ample(need, C, column, share)
        sets = _jobs_in_sets(C, apart, column)
        owner = owner_of_columns(C, () if reserved is None else reserved.tenants, column)
        keys = (pool, gpus, nodes, level, share, profile, owner, *need.T, *sets.T)
        types = group_rows(keys, len(column))
        of_column = np.full(C.columns, -1, np.int64)
        of_column[column] = types.inverse
        first = types.first
        return cls(
            of_column,
            pool[first],
            gpus[first],
            nodes[first],
            level[first],
            share[first],
            profile[first],
            need[first],
            sets[first],
            owner[first],
            slices.layouts,
        )

    def __len__(self) -> int:
        return len(self.pool)

    @cached_property
    def kinds(self) -> Mapping[SharedKind, bool]:
        """Shares and slices that gangs have; whether all of a kind are on one GPU each, and ask
        nothing else of their nodes.
        """
        asks = self.need[:, : len(PER_NODE)].any(axis=1) | self.apart.any(axis=1)
        single = (self.gpus == 1) & ~asks
        found: dict[SharedKind, bool] = {}
        for t in np.flatnonzero(self.share < 1).tolist():
            kind = SharedKind(int(self.pool[t]), bool(self.profile[t] != NO_SLICE))
            found[kind] = found.get(kind, True) and bool(single[t])
        return found


def _jobs_in_sets(C: Classes, apart: Sequence[BoolArray], column: IntArray) -> IntArray:
    """How many jobs of columns are in each set, shape (columns, S)."""
    found = np.zeros((len(column), len(apart)), np.int64)
    for number, jobs in enumerate(apart):
        in_set = C.common(jobs)
        partner = np.where(C.alone, False, in_set[C.class_b])
        found[:, number] = (in_set[C.class_a].astype(np.int64) + partner)[column]
    return found


def _share_and_profile(C: Classes, slices: Slices, column: IntArray) -> tuple[FloatArray, IntArray]:
    """Share of each GPU, and profile of its slices, of columns."""
    share = C.configurations.share[C.configuration[column]].copy()
    profile = slices.profile[column].copy()
    for pool, layouts in slices.layouts.items():
        sliced = np.flatnonzero((C.pool[column] == pool) & (profile != NO_SLICE))
        share[sliced] = layouts.parts[profile[sliced]]
    # What takes all memory slices has the GPU to itself, cut or not.
    profile[share == 1] = NO_SLICE
    return share, profile


def _leave_out_ample(need: FloatArray, C: Classes, column: IntArray, share: FloatArray) -> None:
    """Set needs to 0 where GPUs run out first, on every node of the pool: fewer types are left
    then.

    A node whose GPUs are all held by columns of the largest need per whole GPU has enough.
    """
    instance = C.instance
    staying = Staying.of(instance)
    numbering = instance.cluster.numbering
    gpus = (np.diff(numbering.start) - staying.held).astype(np.float64)
    for node, rooms in staying.rooms_of_nodes(instance).items():
        gpus[node] += sum(room.left for room in rooms)
    own = instance.cluster.own_capacity - staying.used
    for pool in np.unique(C.pool[column]).tolist():
        in_pool = np.flatnonzero(C.pool[column] == pool)
        here = np.flatnonzero((numbering.pool == pool) & (gpus > 0))
        for place in range(len(PER_NODE)):
            largest = (need[in_pool, place] / share[in_pool]).max(initial=0.0)
            if (own[here, place] * (1 + ROUNDING) >= largest * gpus[here]).all():
                need[in_pool, place] = 0.0


@dataclass(frozen=True, eq=False)
class NodeClasses:
    """R classes of equal nodes that take work: of one pool, with the same of everything, and in the
    same groups of the levels that count.

    What jobs that stay leave of a GPU belongs to its node. Where all gangs that can have it are on
    one GPU and ask nothing else (`GangTypes.kinds`), it is a class of its own, as if the GPU were a
    node: contents of nodes would have too many combinations of shares.

    Attributes
    ----------
    pool, gpus : IntArray, shape (R,)
        ``gpus`` are free as a whole.
    rooms : tuple of tuples of GpuRoom, length R
        GPUs of each node of which jobs that stay have a share, or slices, and leave the rest.
    own : FloatArray, shape (R, 2)
        CPUs and memory (GB); inf where it is not stated.
    member : FloatArray, shape (R, G)
        1 for the resources of some nodes that a class belongs to.
    group : IntArray, shape (levels + 2, R)
        Group of each level; pools where the level does not count.
    taken : BoolArray, shape (S, R)
        Sets of jobs, no two of which may be on one node, of which one is there and stays.
    count : IntArray, shape (R,)
        Nodes of each class.
    members : tuple of IntArray, length R
        Their numbers in the cluster, ascending; those of single GPUs once for each GPU.
    blocks : IntArray, shape (sizes, R)
        Free aligned cells of each size (`ReservedCells.sizes`); no sizes where none are reserved.
    choice : IntArray, shape (R,)
        Where cells are bound around jobs that stay, each way to do so is a class of its own, of all
        nodes for which there are the same ways: their number, -1 for other classes.
    ways : tuple of tuple of NodeWay, length R
        The way of each of its nodes; empty for other classes.
    """

    pool: IntArray
    gpus: IntArray
    rooms: tuple[tuple[GpuRoom, ...], ...]
    own: FloatArray
    member: FloatArray
    group: IntArray
    taken: BoolArray
    count: IntArray
    members: tuple[IntArray, ...]
    blocks: IntArray
    choice: IntArray
    ways: tuple[tuple[NodeWay, ...], ...]

    @classmethod
    def of(
        cls,
        instance: Instance,
        types: GangTypes,
        apart: Sequence[BoolArray] = (),
        reserved: ReservedCells | None = None,
    ) -> NodeClasses:
        """Classes of the usable nodes with what jobs that keep their GPUs leave of them.

        ``types`` are the gangs that have room there, ``apart`` sets of jobs of which no two may be
        on one node, ``reserved`` the cells of tenants.
        """
        cluster = instance.cluster
        staying = Staying.of(instance)
        free = np.diff(cluster.numbering.start) - staying.held
        blocks = np.zeros((0, len(free)), np.int64)
        if reserved is not None:
            blocks = reserved.blocks(instance)
            free = blocks[0].copy()
        own = np.maximum(cluster.own_capacity - staying.used, 0.0)
        taken = _taken(instance, apart)
        rooms, room, at, room_of_single = _rooms(instance, types, staying)
        usable = cluster.usable(instance.now)
        ways = {} if reserved is None else reserved.ways
        to_choose = mask_of(list(ways), len(free))
        whole = np.flatnonzero(usable & ((free > 0) | (room > 0)) & ~to_choose)
        of_way = [(one, way) for one, some in sorted(ways.items()) for way in some]
        bound = np.array([one for one, _ in of_way], np.int64)
        there = usable[at]
        node = np.concatenate([whole, bound, at[there]])
        alone = np.arange(len(node)) >= len(whole) + len(bound)
        of_nodes = room[whole], np.where(usable[bound], room[bound], 0)
        room = np.concatenate([*of_nodes, room_of_single[there]])
        blocks = np.where(alone, 0, blocks[:, node])
        for place, (_, way) in enumerate(of_way, start=len(whole)):
            blocks[:, place] = way.blocks
        gpus = np.where(alone, 0, free[node] if reserved is None else blocks[0])
        own = np.where(alone[:, np.newaxis], 0.0, own[node])
        taken = taken[:, node] & ~alone
        pool = cluster.numbering.pool[node]
        stated = cluster.group_of_node[:, node]
        counts = np.isin(np.arange(len(stated)), types.level)
        group = np.where(counts[:, np.newaxis], stated, pool)
        member = cluster.members[:, node].astype(np.float64)
        same = (pool, room, alone, *own.T, *member, *group, *taken)
        choice, kind = _choices(ways, node, slice(len(whole), len(whole) + len(bound)), same)
        alike = group_rows((*same, gpus, *blocks, choice, kind), len(node))
        first = alike.first
        ends = np.cumsum(alike.count)[:-1]
        rows = np.split(np.argsort(alike.inverse, kind="stable"), ends)
        chosen = dict(enumerate((way for _, way in of_way), start=len(whole)))
        return cls(
            pool[first],
            gpus[first],
            tuple(rooms[number] for number in room[first].tolist()),
            own[first],
            member[:, first].T,
            group[:, first],
            taken[:, first],
            alike.count.astype(np.int64),
            tuple(node[some] for some in rows),
            blocks[:, first],
            choice[first],
            tuple(tuple(chosen[row] for row in some.tolist() if row in chosen) for some in rows),
        )

    def __len__(self) -> int:
        return len(self.pool)

    def inside(self, owner: int, number: int) -> IntArray:
        """Free blocks of a size (its place in `ReservedCells.sizes`) inside of the cells that are
        bound for a tenant, shape (R,).
        """
        found = [some[0].inside[owner - 1][number] if some else 0 for some in self.ways]
        return np.array(found, np.int64)

    def hosts(self, need: FloatArray, share: float, owner: int = 0) -> IntArray:
        """Most GPUs of each class that have such a share, and the needs per GPU, for jobs of a
        tenant with cells (from 1 on) or others (0), shape (R,).
        """
        gpus = self.gpus + self.inside(owner, 0) if owner else self.gpus
        if share < 1:
            able = [sum(room.left >= share - ROUNDING for room in some) for some in self.rooms]
            gpus = gpus + np.array(able, np.int64)
        return np.minimum(gpus, gpus_allowed(self.own, need[: len(PER_NODE)]))

    @cached_property
    def room(self) -> FloatArray:
        """Sum of what is left of the GPUs of one node, shape (R,)."""
        left = [sum(room.left for room in some) for some in self.rooms]
        total: FloatArray = self.gpus.astype(np.float64) + np.array(left)
        return total

    def groups(self, level: int, pool: int) -> Iterator[tuple[int, IntArray]]:
        """Groups of a level that have nodes of a pool, each with its classes of them."""
        in_pool = np.flatnonzero(self.pool == pool)
        for group in np.unique(self.group[level, in_pool]).tolist():
            yield group, in_pool[self.group[level, in_pool] == group]

    @cached_property
    def contents(self) -> IntArray:
        """Equal numbers for classes that differ in groups and common resources alone, shape
        (R,).
        """
        rooms = {some: number for number, some in enumerate(dict.fromkeys(self.rooms))}
        number = np.array([rooms[some] for some in self.rooms], np.int64)
        keys = (self.pool, self.gpus, number, *self.own.T, *self.taken, *self.blocks)
        return group_rows(keys, len(self)).inverse


def _rooms(
    instance: Instance, types: GangTypes, staying: Staying
) -> tuple[Sequence[tuple[GpuRoom, ...]], IntArray, IntArray, IntArray]:
    """What jobs that stay leave of GPUs: all kinds of it, the kind of each node together with the
    rest of the node, and the nodes and kinds of single GPUs. Kind 0 is nothing.
    """
    of_node, single = staying.rooms_for(instance, types.kinds)
    rooms: dict[tuple[GpuRoom, ...], int] = {(): 0}
    room = np.zeros(instance.cluster.numbering.nodes, np.int64)
    for some, left in of_node.items():
        room[some] = rooms.setdefault(left, len(rooms))
    kinds = np.array([rooms.setdefault((left,), len(rooms)) for _, left in single], np.int64)
    return tuple(rooms), room, np.array([some for some, _ in single], np.int64), kinds


def _choices(
    ways: Mapping[int, Sequence[NodeWay]],
    node: IntArray,
    bound: slice,
    same: Sequence[IntArray | FloatArray | BoolArray],
) -> tuple[IntArray, IntArray]:
    """`NodeClasses.choice` of each row, and the number of its way; ``same`` tells nodes apart."""
    choice, kind = np.full(len(node), -1, np.int64), np.full(len(node), -1, np.int64)
    known: dict[tuple[object, ...], int] = {}
    for row in range(bound.start, bound.stop):
        some = ways[int(node[row])]
        key = (*(float(column[row]) for column in same), *(way.kind for way in some))
        choice[row] = known.setdefault(key, len(known))
        kind[row] = 0 if choice[row - 1] < 0 or node[row] != node[row - 1] else kind[row - 1] + 1
    return choice, kind


def _taken(instance: Instance, apart: Sequence[BoolArray]) -> BoolArray:
    """Nodes on which a job of each set is and stays, shape (S, nodes)."""
    numbering, places = instance.cluster.numbering, instance.jobs_table.places
    stays = must_stay(instance)
    taken = np.zeros((len(apart), numbering.nodes), bool)
    for number, jobs in enumerate(apart):
        held = np.flatnonzero((stays & jobs)[places.job])
        taken[number, numbering.node_of(places.numbers_of(held, numbering))] = True
    return taken


class Staying(NamedTuple):
    """What jobs that keep their GPUs (`must_stay`) hold.

    The needs and shares are those of the options in which the jobs may run (`held_of`).

    Attributes
    ----------
    held : IntArray, shape (nodes,)
        GPUs of every node of which they have something.
    used : FloatArray, shape (nodes, 2)
        CPUs and memory.
    rooms : mapping of int to GpuRoom
        What they leave of GPUs, by the number of the GPU in the cluster; without GPUs that are full.
    """

    held: IntArray
    used: FloatArray
    rooms: Mapping[int, GpuRoom]

    @classmethod
    def of(cls, instance: Instance) -> Staying:
        """Those of an instance."""
        numbering = instance.cluster.numbering
        jobs = np.flatnonzero(must_stay(instance))
        holds = held_gpus(instance, jobs, list(PER_NODE))
        node = numbering.node_of(holds.gpu)
        held = np.bincount(numbering.node_of(np.unique(holds.gpu)), minlength=numbering.nodes)
        used = np.zeros((numbering.nodes, len(PER_NODE)))
        np.add.at(used, node, holds.need[holds.owner])
        left: dict[int, float] = defaultdict(lambda: 1.0)
        slices: dict[int, IntArray] = {}
        for place in np.flatnonzero(holds.share < 1).tolist():
            gpu, owner = int(holds.gpu[place]), int(holds.owner[place])
            profile = int(holds.profile[owner])
            if profile == NO_SLICE:
                left[gpu] -= float(holds.share[place])
                continue
            pool = int(numbering.pool[node[place]])
            layouts = layouts_of(instance.cluster.pools[pool], pool)
            left[gpu] -= float(layouts.parts[profile])
            held_slices = slices.setdefault(gpu, np.zeros(len(layouts.names), np.int64))
            held_slices[profile] += 1
        rooms = {
            gpu: GpuRoom(room, tuple(slices[gpu].tolist()) if gpu in slices else ())
            for gpu, room in left.items()
            if room > ROUNDING
        }
        return cls(held.astype(np.int64), used, rooms)

    def rooms_of_nodes(self, instance: Instance) -> dict[int, tuple[GpuRoom, ...]]:
        """What is left of GPUs of nodes that have such GPUs, sorted."""
        numbering = instance.cluster.numbering
        found: dict[int, list[GpuRoom]] = defaultdict(list)
        gpus = np.array(list(self.rooms), np.int64)
        for node, room in zip(numbering.node_of(gpus).tolist(), self.rooms.values(), strict=True):
            found[node].append(room)
        return {node: tuple(sorted(rooms)) for node, rooms in found.items()}

    def rooms_for(
        self, instance: Instance, kinds: Mapping[SharedKind, bool]
    ) -> tuple[dict[int, tuple[GpuRoom, ...]], list[tuple[int, GpuRoom]]]:
        """What is left for shares and slices of some kinds (`GangTypes.kinds`), by node:
        together with the rest of the node, and of single GPUs.
        """
        pool = instance.cluster.numbering.pool
        of_node: dict[int, tuple[GpuRoom, ...]] = {}
        single: list[tuple[int, GpuRoom]] = []
        for node, rooms in sorted(self.rooms_of_nodes(instance).items()):
            for room in rooms:
                alone = kinds.get(SharedKind(int(pool[node]), bool(room.slices)))
                if alone:
                    single.append((node, room))
                elif alone is not None:
                    of_node[node] = (*of_node.get(node, ()), room)
        return of_node, single
