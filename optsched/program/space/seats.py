"""`Space`: which groups and nodes hold which parts of the gangs of an allocation, as rows and columns.

Sets and parameters: types of gangs t (g_t GPUs on at most k_t nodes, all in one group of level l_t),
classes of equal nodes r (n_r nodes), splits s of a gang into parts on nodes, parts p (GPUs, share of
each, needs per GPU), contents P of one node (counts of parts that fit on it together).

    seats    sum over columns c of type t of x_c  =  sum_{G,s} y[t,G,s]                 for every t
    part     sum_{t,s} parts_p(s) y[t,G,s]  <=  sum_{r in G} h[p,r,G]                   for every p, G
    node     sum_G h[p,r,G]  <=  sum_P P_p n[P,r]  +  sum_Q Q_p m[Q,r]                  for every p, r
    count    sum_P n[P,r]  <=  n_r                                                      for every r
    shared   sum_{p,r,G} need_p g_p h[p,r,G]  <=  capacity            of each resource of some nodes
    pieces   sum_{p,r} floor(g_p / s) h[p,r,wider] + sum_t floor(g_t / s) y[t,inside]  <=  floor(GPUs of G / s)

G runs over the groups of level l_t (the pool, where the gang may have any nodes), y, h, n, m >= 0, and
whole for whole jobs. A gang that may have any number of nodes of G is split into parts of 1 GPU.

Shares and slices of single GPUs that need nothing else of their node are no contents P of a node, of
which there would be too many, but contents Q of a GPU: Q has counts of them, and -1 for the part that
is one whole GPU, whose place the shared GPU takes. Slices (MIG) of a GPU are those of a legal layout.
Where there are too many contents all the same, none is written down: they are priced
(`optsched.solving.contents_on_demand`).

Whole points and placements are the same: the rate of a gang depends on its level and number of nodes
alone, so the parts of a group may be handed to its gangs in any order, and nodes of a class are alike.
Contents have at most one part of each set of jobs that may not be on one node (anti-affinity).

A gang that shares GPUs of several nodes needs different ones, so its parts may not be handed out in any
order. Mostly a point allows it all the same (`optsched.program.space.dealing`). Where it does not, these
gangs are numbered (`Space.numbered`): their parts are parts of their own, and contents have at most one
part of each gang.

``pieces`` cut off fractions only. For fractions of time all rows hold on average, as each placement
keeps them at its instant.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray, owners
from optsched.arrays.matrices import sum_by
from optsched.candidates import NO_SLICE, Classes
from optsched.errors import UsageError
from optsched.instance.cluster import PER_NODE
from optsched.program.arrays import LinearArrays
from optsched.program.linear import LinearProgram, Variables
from optsched.program.space.bins import Bin
from optsched.program.space.contents import ROUNDING, GangPart, splits
from optsched.program.space.gangs import ANYWHERE, GangTypes, NodeClasses

MOST_CONTENTS = 5_000
"""Contents of one node that are all written down."""
MOST_SPLITS = 2_000
"""Ways to split one gang over nodes that are written down at most."""


class Gangs(NamedTuple):
    """Columns y: gangs of a type in a group, split in one way; arrays of length Y.

    Attributes
    ----------
    type_, group : IntArray
        Type, and group of its level.
    number : IntArray
        Which gang, where they are numbered: from 1 on, those of a type in a row. 0 for all others.
    split : tuple of mappings
        Parts of each gang: number of the part -> how many.
    """

    type_: IntArray
    group: IntArray
    number: IntArray
    split: tuple[Mapping[int, int], ...]


class Held(NamedTuple):
    """Columns h: parts on nodes of a class for gangs of a level; arrays of length H."""

    part: IntArray
    node_class: IntArray
    level: IntArray


class Contents(NamedTuple):
    """Columns n and m: nodes of a class, or GPUs of such nodes, with some contents; arrays of length M.

    Attributes
    ----------
    node_class, row : IntArray
        The class, and the row of ``counts``.
    of_gpu : BoolArray
        Whether they are contents of a GPU.
    counts : IntArray, shape (contents, parts)
        Those of a GPU have -1 for one whole GPU.
    """

    node_class: IntArray
    row: IntArray
    of_gpu: BoolArray
    counts: IntArray


def no_contents(parts: int) -> Contents:
    """None of any node, of so many parts."""
    return Contents(EMPTY, EMPTY, np.zeros(0, bool), np.zeros((0, parts), np.int64))


class GangSeats(NamedTuple):
    """Values of the columns of a space at a whole point: y, h, and n with m."""

    space: Space
    gangs: IntArray
    held: IntArray
    contents: IntArray


@dataclass(frozen=True, eq=False)
class Space:
    """The columns and rows of one set of classes.

    Attributes
    ----------
    classes : Classes
    types : GangTypes
    nodes : NodeClasses
    parts : tuple of GangPart
    gangs : Gangs
    held : Held
    bins : tuple of NodeBins
        By the numbers of `NodeClasses.contents`.
    contents : Contents
    complete : bool
        Whether these are all; else they are made on demand.
    """

    classes: Classes
    types: GangTypes
    nodes: NodeClasses
    parts: tuple[GangPart, ...]
    gangs: Gangs
    held: Held
    bins: tuple[NodeBins, ...]
    contents: Contents
    complete: bool

    @classmethod
    def of(cls, C: Classes, apart: Sequence[BoolArray] = ()) -> Space:
        """The space that the columns of some classes compete for.

        Parameters
        ----------
        C : Classes
        apart : sequence of BoolArray, each of shape (jobs,)
            Sets of jobs of which no two may be on one node.

        Raises
        ------
        UsageError
            A gang has too many splits to be written down.
        """
        types = GangTypes.of(C, apart)
        nodes = NodeClasses.of(C.instance, np.unique(types.level), apart)
        return cls._of(C, types, nodes, np.zeros(len(types), np.int64))

    def numbered(self) -> Space:
        """The space in which gangs that share GPUs of several nodes are numbered, without contents made
        on demand.
        """
        types, nodes = self.types, self.nodes
        shared = np.flatnonzero((types.share < 1) & (types.nodes > 1))
        gpus = np.bincount(
            nodes.pool, nodes.gpus * nodes.count, len(self.classes.instance.cluster.pools)
        )
        room = gpus[types.pool[shared]] / (types.gpus * types.share)[shared] + ROUNDING
        numbers = np.zeros(len(types), np.int64)
        numbers[shared] = np.minimum(_most_jobs(self.classes, types)[shared], room)
        return self._of(self.classes, types, nodes, numbers)

    @classmethod
    def _of(cls, C: Classes, types: GangTypes, nodes: NodeClasses, numbers: IntArray) -> Space:
        """With so many numbered gangs of each type; 0 where they are not numbered."""
        known = _KnownParts()
        gangs = _gangs(types, nodes, numbers, known)
        parts = tuple(known.parts)
        held = _held(types, parts, gangs, nodes)
        parts, bins = _bins(parts, _most_parts(C, types, gangs, len(parts)), types, nodes)
        contents = _all_contents(nodes, bins, len(parts))
        complete = contents is not None
        contents = contents or no_contents(len(parts))
        return cls(C, types, nodes, parts, gangs, held, bins, contents, complete)

    def with_contents(self, node_class: IntArray, of_gpu: BoolArray, counts: IntArray) -> Space:
        """The space with more contents, after those that it has.

        Parameters
        ----------
        node_class : IntArray, shape (K,)
        of_gpu : BoolArray, shape (K,)
        counts : IntArray, shape (K, parts)
            Those of a GPU have -1 for one whole GPU.
        """
        old = self.contents
        row = len(old.counts) + np.arange(len(counts))
        contents = Contents(
            np.concatenate([old.node_class, node_class]),
            np.concatenate([old.row, row]),
            np.concatenate([old.of_gpu, of_gpu]),
            np.concatenate([old.counts, counts]),
        )
        return replace(self, contents=contents)

    def without_contents(self) -> Space:
        """The space with the same rows, but no columns of contents."""
        return replace(self, contents=no_contents(len(self.parts)))

    # --- rows -------------------------------------------------------------------------------------

    def add_to(self, lp: LinearProgram, x: Variables, whole: bool) -> None:
        """Add the columns and rows to a program with the columns ``x`` of the classes."""
        y = lp.variables(
            len(self.gangs.type_), name="gangs", implied=(0.0, self._most_gangs), integer=whole
        )
        h = lp.variables(
            len(self.held.part), name="parts", implied=(0.0, self._most_held), integer=whole
        )
        n = lp.variables(
            len(self.contents.row),
            name="contents",
            implied=(0.0, self.most_contents(self.contents.node_class, self.contents.of_gpu)),
            integer=whole,
        )
        T = len(self.types)
        column = np.flatnonzero(self.types.of_column >= 0)
        total = sp.csr_matrix(
            (np.ones(len(column)), (self.types.of_column[column], column)),
            shape=(T, self.classes.columns),
        )
        lp.constrain(total @ x == sum_by(self.gangs.type_, 1.0, T) @ y, name="seats")
        lp.constrain(self._parts_of_gangs @ y <= self._parts_in_groups @ h, name="part")
        lp.constrain(self._held_by_class @ h <= self._room_by_class @ n, name="node")
        counts = self.nodes.count.astype(np.float64)
        in_class = sum_by(
            self.contents.node_class, (~self.contents.of_gpu).astype(np.float64), len(self.nodes)
        )
        lp.constrain(in_class @ n <= counts, name="count")
        self._shared_resources(lp, h)
        self._pieces(lp, y, h)

    @cached_property
    def _most_gangs(self) -> FloatArray:
        """Most gangs of each column y: as many as there are jobs for."""
        most = _most_jobs(self.classes, self.types)[self.gangs.type_]
        return np.where(self.gangs.number > 0, 1.0, most)

    @cached_property
    def _most_held(self) -> FloatArray:
        gpus = np.array([part.gpus * part.share for part in self.parts])[self.held.part]
        r = self.held.node_class
        # So many parts of one gang share a GPU at most.
        most: FloatArray = np.floor(self.nodes.gpus[r] / gpus + ROUNDING) * self.nodes.count[r]
        return most

    def most_contents(self, node_class: IntArray, of_gpu: BoolArray) -> FloatArray:
        """Nodes of classes, or their GPUs: how often contents are there at most."""
        each = np.where(of_gpu, self.nodes.gpus[node_class], 1)
        return (self.nodes.count[node_class] * each).astype(np.float64)

    def columns_of_contents(
        self, arrays: LinearArrays, node_class: IntArray, of_gpu: BoolArray, counts: IntArray
    ) -> sp.csc_matrix:
        """Entries of more contents in the rows of a program that has those of the space."""
        room = arrays.row_block("node").start + self._rows_of_room(node_class, counts)
        column, part = np.nonzero(counts)
        node = np.flatnonzero(~of_gpu)
        in_class = arrays.row_block("count").start + node_class[node]
        rows = np.concatenate([room, in_class])
        entries = np.concatenate([-counts[column, part].astype(np.float64), np.ones(len(node))])
        columns = np.concatenate([column, node])
        return sp.csc_matrix((entries, (rows, columns)), shape=(arrays.shape[0], len(counts)))

    def _rows_of_room(self, node_class: IntArray, counts: IntArray) -> IntArray:
        """Row of ``node`` of each count of contents that is not 0."""
        column, part = np.nonzero(counts)
        return node_class[column] * len(self.parts) + part

    @cached_property
    def _flat_gangs(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Column y, part, and how many of it a gang has: one entry for each part of a split."""
        split = self.gangs.split
        column = owners(np.array([len(parts) for parts in split], np.int64))
        part = np.array([p for parts in split for p in parts], np.int64)
        count = np.array([c for parts in split for c in parts.values()], np.float64)
        return column, part, count

    @cached_property
    def _place(self) -> tuple[IntArray, IntArray, int]:
        """Row (part, level, group) of each part of a split, and of each column h; and the rows."""
        column, part, _ = self._flat_gangs
        t = self.gangs.type_[column]
        mine = part, self.types.level[t], self.gangs.group[column]
        h = self.held
        theirs = h.part, h.level, self.nodes.group[h.level, h.node_class]
        both = np.stack([np.concatenate(pair) for pair in zip(mine, theirs, strict=True)])
        known, row = np.unique(both, axis=1, return_inverse=True)
        row = row.ravel().astype(np.int64)
        return row[: len(part)], row[len(part) :], known.shape[1]

    @property
    def _parts_of_gangs(self) -> sp.csr_matrix:
        column, _, count = self._flat_gangs
        row, _, rows = self._place
        return sp.csr_matrix((count, (row, column)), shape=(rows, len(self.gangs.type_)))

    @property
    def _parts_in_groups(self) -> sp.csr_matrix:
        _, row, rows = self._place
        return sum_by(row, 1.0, rows)

    @property
    def _held_by_class(self) -> sp.csr_matrix:
        row = self.held.node_class * len(self.parts) + self.held.part
        return sum_by(row, 1.0, len(self.nodes) * len(self.parts))

    @property
    def _room_by_class(self) -> sp.csr_matrix:
        counts = self.contents.counts[self.contents.row]
        column, part = np.nonzero(counts)
        row = self._rows_of_room(self.contents.node_class, counts)
        shape = (len(self.nodes) * len(self.parts), len(counts))
        return sp.csr_matrix((counts[column, part].astype(np.float64), (row, column)), shape=shape)

    def _shared_resources(self, lp: LinearProgram, h: Variables) -> None:
        """Resources of some nodes."""
        for place, group in enumerate(self.classes.instance.cluster.groups):
            each = np.array([part.need[len(PER_NODE) + place] * part.gpus for part in self.parts])
            use = each[self.held.part] * self.nodes.member[self.held.node_class, place]
            if use.any():
                row = sp.csr_matrix(use[np.newaxis, :])
                lp.constrain(row @ h <= [group.capacity], name=f"shared {group.name}")

    def _pieces(self, lp: LinearProgram, y: Variables, h: Variables) -> None:
        """Rows that cut off fractions of gangs in a group."""
        gpus = np.array([part.gpus if part.share == 1 else 0 for part in self.parts], np.int64)
        inside, wider, limit = [], [], []
        for level in np.unique(self.types.level[self.types.level > ANYWHERE]).tolist():
            group_of_gang = self._group_of_gangs(level)
            for pool in np.unique(self.types.pool).tolist():
                for group, classes in self.nodes.groups(level, pool):
                    total = int((self.nodes.gpus[classes] * self.nodes.count[classes]).sum())
                    mine = (group_of_gang == group) & (self.types.pool[self.gangs.type_] == pool)
                    here = np.isin(self.held.node_class, classes) & ~self._is_inside(level)
                    t = self.gangs.type_[mine]
                    for size in np.unique(self.types.gpus[t]).tolist():
                        if size < 2 or total % size == 0:
                            continue
                        whole = np.where(self.types.share == 1, self.types.gpus // size, 0)
                        inside.append(np.where(mine, whole[self.gangs.type_], 0))
                        wider.append(np.where(here, (gpus // size)[self.held.part], 0))
                        limit.append(float(total // size))
        if limit:
            rows = sp.csr_matrix(np.array(inside, np.float64)) @ y
            rows = rows + sp.csr_matrix(np.array(wider, np.float64)) @ h
            lp.constrain(rows <= np.array(limit), name="pieces")

    def _group_of_gangs(self, level: int) -> IntArray:
        """Group of a level in which each column y is, -1 for those of wider levels."""
        group = np.full(len(self.gangs.type_), -1, np.int64)
        of_level = self.types.level[self.gangs.type_]
        narrow = np.flatnonzero((of_level > ANYWHERE) & (of_level <= level))
        # Groups are nested: any node of the small group tells the large one.
        for column in narrow.tolist():
            known = self.nodes.group[of_level[column]] == self.gangs.group[column]
            known &= self.nodes.pool == self.types.pool[self.gangs.type_[column]]
            group[column] = self.nodes.group[level, np.flatnonzero(known)[0]]
        return group

    def _is_inside(self, level: int) -> BoolArray:
        """Columns h of gangs that are in one group of a level."""
        return (self.held.level > ANYWHERE) & (self.held.level <= level)

    @staticmethod
    def has_rows(block: str) -> bool:
        """Whether a block of rows is one of a space."""
        return block in ("seats", "part", "node", "count", "pieces") or block.startswith("shared ")

    # --- points -----------------------------------------------------------------------------------

    @property
    def columns(self) -> int:
        """Columns beside those of the classes."""
        return len(self.gangs.type_) + len(self.held.part) + len(self.contents.row)

    def read(self, point: FloatArray) -> GangSeats:
        """Seats of the last columns of a whole point."""
        whole = np.round(point[len(point) - self.columns :]).astype(np.int64)
        first = len(self.gangs.type_)
        second = first + len(self.held.part)
        return GangSeats(self, whole[:first], whole[first:second], whole[second:])


class _KnownParts:
    """Parts, numbered in order of first use."""

    def __init__(self) -> None:
        self.parts: dict[GangPart, int] = {}

    def number(self, part: GangPart) -> int:
        return self.parts.setdefault(part, len(self.parts))


def _gangs(types: GangTypes, nodes: NodeClasses, numbers: IntArray, known: _KnownParts) -> Gangs:
    """Where gangs of each type can be, and how they are split there; so many of a type are numbered."""
    type_: list[int] = []
    groups: list[int] = []
    number: list[int] = []
    split: list[Mapping[int, int]] = []
    first = np.cumsum(numbers) - numbers + 1
    for t in range(len(types)):
        part = _part_of(types, t)
        hosts = nodes.hosts(types.need[t])
        ways = [
            (group, parts)
            for group, classes in nodes.groups(int(types.level[t]), part.pool)
            for parts in _splits_in(types, t, hosts[classes], nodes.count[classes])
        ]
        mine = range(first[t], first[t] + numbers[t]) if numbers[t] else [0]
        for gang, (group, parts) in itertools.product(mine, ways):
            type_.append(t)
            groups.append(group)
            number.append(gang)
            split.append(
                {
                    known.number(part._replace(gpus=gpus, gang=gang)): count
                    for gpus, count in parts.items()
                }
            )
    return Gangs(
        np.array(type_, np.int64),
        np.array(groups, np.int64),
        np.array(number, np.int64),
        tuple(split),
    )


def _part_of(types: GangTypes, t: int) -> GangPart:
    """All GPUs of a gang of a type as one part."""
    return GangPart(
        int(types.pool[t]),
        int(types.gpus[t]),
        float(types.share[t]),
        tuple(types.need[t].tolist()),
        int(types.profile[t]),
        tuple(np.flatnonzero(types.apart[t]).tolist()),
    )


def _splits_in(
    types: GangTypes, t: int, hosts: IntArray, count: IntArray
) -> Sequence[Mapping[int, int]]:
    """Ways to split a gang in a group, whose nodes host so many of its GPUs: parts by their size."""
    gpus, span = int(types.gpus[t]), int(types.nodes[t])
    able = hosts > 0
    # Two jobs that may not be on one node do not share GPUs either.
    if int((hosts * count)[able].sum()) < gpus or (types.apart[t] > 1).any():
        return ()
    nodes, most = int(count[able].sum()), int(hosts.max())
    # Parts of 1 GPU may be on one node, which parts of a gang that is kept apart from others may not.
    if types.share[t] == 1 and 1 < span >= min(gpus, nodes) and not types.apart[t].any():
        return ({1: gpus},)
    found: list[Mapping[int, int]] = []
    for parts in splits(gpus, min(span, nodes), most):
        if len(found) == MOST_SPLITS:
            raise UsageError(
                f"gangs of {gpus} GPUs on at most {span} nodes can be split in more than "
                f"{MOST_SPLITS:,} ways: state their rates for a level (cluster.levels) instead"
            )
        found.append(Counter(parts))
    return found


def _held(types: GangTypes, parts: Sequence[GangPart], gangs: Gangs, nodes: NodeClasses) -> Held:
    """Which nodes can hold which parts, for gangs of which level."""
    used = {
        (part, int(types.level[t]))
        for t, split in zip(gangs.type_.tolist(), gangs.split, strict=True)
        for part in split
    }
    columns: list[tuple[IntArray, IntArray, IntArray]] = [(EMPTY, EMPTY, EMPTY)]
    for number, level in sorted(used):
        part = parts[number]
        able = np.flatnonzero(
            (nodes.pool == part.pool) & (nodes.hosts(np.array(part.need)) >= part.gpus)
        )
        columns.append((np.full(len(able), number), able, np.full(len(able), level)))
    return Held(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _most_parts(C: Classes, types: GangTypes, gangs: Gangs, parts: int) -> FloatArray:
    """How many of each part all jobs have on one node together at most."""
    jobs = _most_jobs(C, types)
    most = np.zeros((len(types), parts))
    for t, number, split in zip(
        gangs.type_.tolist(), gangs.number.tolist(), gangs.split, strict=True
    ):
        for part, count in split.items():
            # Parts of a gang that share GPUs are on different nodes.
            each = 1 if types.share[t] < 1 else count
            most[t, part] = max(most[t, part], each * (1 if number else jobs[t]))
    total: FloatArray = most.sum(axis=0)
    return total


def _most_jobs(C: Classes, types: GangTypes) -> FloatArray:
    """Jobs of each type at most."""
    most = np.zeros(len(types))
    column = np.flatnonzero(types.of_column >= 0)
    np.add.at(most, types.of_column[column], C.limit[column])
    return most


class NodeBins(NamedTuple):
    """The bins of equal nodes: a node, and a GPU with its own contents, where there are any.

    Attributes
    ----------
    node : Bin
    gpu : Bin or None
    one_gpu : int
        The part whose place in the node such a GPU takes; -1 for none.
    """

    node: Bin
    gpu: Bin | None
    one_gpu: int


def _bins(
    parts: tuple[GangPart, ...], most: FloatArray, types: GangTypes, nodes: NodeClasses
) -> tuple[tuple[GangPart, ...], tuple[NodeBins, ...]]:
    """Bins by the numbers of `NodeClasses.contents`;
    and the parts, with one whole GPU of each pool whose GPUs have their own contents.
    """
    of_gpu = _parts_of_gpus(parts)
    known = _KnownParts()
    known.parts |= {part: number for number, part in enumerate(parts)}
    pools = np.unique([parts[p].pool for p in sorted(of_gpu)]).tolist()
    whole = {pool: known.number(_one_gpu(pool, types)) for pool in pools}
    parts = tuple(known.parts)
    most = np.append(most, np.full(len(parts) - len(most), np.inf))
    most[list(whole.values())] = np.inf  # for those of which shares take the places
    found = []
    for r in np.unique(nodes.contents, return_index=True)[1].tolist():
        pool = int(nodes.pool[r])
        legal = types.layouts.get(pool)
        layouts = None if legal is None else legal.counts
        here = [p for p, part in enumerate(parts) if part.pool == pool]
        shared = [p for p in here if p in of_gpu]
        rest = [p for p in here if p not in of_gpu]
        own, taken = nodes.own[r], nodes.taken[:, r]
        node = Bin(parts, rest, most, int(nodes.gpus[r]), own, layouts, taken)
        gpu = Bin(parts, shared, most, 1, own, layouts, taken) if shared else None
        found.append(NodeBins(node, gpu, whole[pool] if shared else -1))
    return parts, tuple(found)


def _one_gpu(pool: int, types: GangTypes) -> GangPart:
    return GangPart(pool, 1, 1.0, (0.0,) * types.need.shape[1])


def _parts_of_gpus(parts: Sequence[GangPart]) -> set[int]:
    """Parts that are contents of a GPU: all shares, or all slices, of a pool,
    where each is on one GPU and needs nothing else of its node.
    """
    wider = {
        (part.pool, part.profile == NO_SLICE)
        for part in parts
        if part.share < 1 and not part.on_one_gpu
    }
    return {
        number
        for number, part in enumerate(parts)
        if part.share < 1 and (part.pool, part.profile == NO_SLICE) not in wider
    }


def _all_contents(nodes: NodeClasses, bins: Sequence[NodeBins], parts: int) -> Contents | None:
    """All fullest contents; None where there are too many of some bin."""
    found: list[tuple[IntArray, BoolArray]] = [
        (np.zeros((0, parts), np.int64), np.zeros(0, bool))
    ] * len(bins)
    # Those with most contents come first: they may be too many.
    for number in sorted(
        range(len(bins)), key=lambda n: -bins[n].node.gpus * len(bins[n].node.mine)
    ):
        kind = bins[number]
        of_node = kind.node.fullest(MOST_CONTENTS)
        of_gpu = (
            np.zeros((0, parts), np.int64) if kind.gpu is None else kind.gpu.fullest(MOST_CONTENTS)
        )
        if of_node is None or of_gpu is None:
            return None
        if kind.gpu is not None:
            of_gpu[:, kind.one_gpu] -= 1
        both = np.concatenate([of_node, of_gpu])
        found[number] = both, np.repeat([False, True], [len(of_node), len(of_gpu)])
    length = np.array([len(counts) for counts, _ in found], np.int64)[nodes.contents]
    start = np.cumsum([0, *(len(counts) for counts, _ in found)])[nodes.contents]
    node_class = np.repeat(np.arange(len(nodes), dtype=np.int64), length)
    row = np.repeat(start - np.cumsum(length) + length, length) + np.arange(len(node_class))
    counts = np.concatenate([np.zeros((0, parts), np.int64), *(counts for counts, _ in found)])
    cut = np.concatenate([np.zeros(0, bool), *(mask for _, mask in found)])
    return Contents(node_class, row.astype(np.int64), cut[row], counts)
