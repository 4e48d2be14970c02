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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, owners
from optsched.arrays.matrices import sum_by
from optsched.candidates import Classes
from optsched.instance.cluster import PER_NODE
from optsched.program.arrays import LinearArrays
from optsched.program.linear import LinearProgram, Variables
from optsched.program.space.contents import ROUNDING, GangPart
from optsched.program.space.gang_columns import (
    Gangs,
    Held,
    gang_columns,
    held_columns,
    most_jobs,
    most_parts,
    numbered_gangs,
)
from optsched.program.space.gangs import ANYWHERE, GangTypes, NodeClasses
from optsched.program.space.node_bins import (
    Contents,
    NodeBins,
    all_contents,
    no_contents,
    node_bins,
)


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
        on demand; the same where there are no such gangs.
        """
        jobs = most_jobs(self.classes, self.types)
        numbers = numbered_gangs(self.types, self.nodes, jobs)
        if not numbers.any():
            return self
        return self._of(self.classes, self.types, self.nodes, numbers)

    @classmethod
    def _of(cls, C: Classes, types: GangTypes, nodes: NodeClasses, numbers: IntArray) -> Space:
        """With so many numbered gangs of each type; 0 where they are not numbered."""
        gangs, parts = gang_columns(types, nodes, most_jobs(C, types), numbers)
        held = held_columns(types, parts, gangs, nodes)
        parts, bins = node_bins(parts, most_parts(types, gangs, len(parts)), types, nodes)
        contents = all_contents(nodes, bins, len(parts))
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
            len(self.gangs.type_), name="gangs", implied=(0.0, self.gangs.most), integer=whole
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
