"""Columns of a `Space` for gangs and their parts: in which groups gangs can be, in which parts, and
on which nodes."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.candidates import Classes
from optsched.errors import UsageError
from optsched.program.space.cells import ReservedCells
from optsched.program.space.contents import ROUNDING, GangPart, splits
from optsched.program.space.gangs import GangTypes, NodeClasses

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
    most : FloatArray
        Gangs at most: as many as there are jobs, and 1 of a number.
    """

    type_: IntArray
    group: IntArray
    number: IntArray
    split: tuple[Mapping[int, int], ...]
    most: FloatArray


class Held(NamedTuple):
    """Columns h: parts on nodes of a class for gangs of a level; arrays of length H."""

    part: IntArray
    node_class: IntArray
    level: IntArray


def gang_columns(
    types: GangTypes,
    nodes: NodeClasses,
    jobs: FloatArray,
    numbers: IntArray,
    reserved: ReservedCells | None,
) -> tuple[Gangs, tuple[GangPart, ...]]:
    """Columns y, and their parts in order of first use.

    Parameters
    ----------
    types : GangTypes
    nodes : NodeClasses
    jobs : FloatArray, shape (T,)
        Jobs of each type at most.
    numbers : IntArray, shape (T,)
        Numbered gangs of each type; 0 where they are not numbered.
    reserved : ReservedCells or None
        Cells of tenants.

    Raises
    ------
    UsageError
        A gang has too many splits to be written down.
    """
    rows: list[tuple[int, int, int, float]] = []
    split: list[Mapping[int, int]] = []
    known: dict[GangPart, int] = {}
    first = np.cumsum(numbers) - numbers + 1
    for t in range(len(types)):
        part = _part_of(types, t)
        hosts, in_ones = nodes.hosts(types.need[t], part.share, max(part.owner, 0)), True
        if part.owner > 0 and reserved is not None:
            # A part is in one cell, and takes all of it: parts of 1 GPU may not stand for others.
            sizes_there = reserved.tenants[part.owner - 1].owns
            hosts, in_ones = np.minimum(hosts, max(sizes_there)), 1 in sizes_there
        ways = [
            (group, sizes)
            for group, classes in nodes.groups(int(types.level[t]), part.pool)
            for sizes in _splits_in(types, t, hosts[classes], nodes.count[classes], in_ones)
        ]
        gangs = range(first[t], first[t] + numbers[t]) if numbers[t] else [0]
        for number, (group, sizes) in itertools.product(gangs, ways):
            parts = {part._replace(gpus=gpus, gang=number): many for gpus, many in sizes.items()}
            split.append({known.setdefault(p, len(known)): many for p, many in parts.items()})
            rows.append((t, group, number, 1.0 if number else float(jobs[t])))
    table = np.array(rows, np.float64).reshape(-1, 4).T
    type_, group, gang = table[:3].astype(np.int64)
    return Gangs(type_, group, gang, tuple(split), table[3]), tuple(known)


def numbered_gangs(types: GangTypes, nodes: NodeClasses, jobs: FloatArray) -> IntArray:
    """How many gangs of each type that shares GPUs of several nodes there are at once at most;
    shape (T,).
    """
    pools = int(types.pool.max(initial=-1)) + 1
    gpus = np.bincount(nodes.pool, nodes.room * nodes.count, pools)
    room = gpus[types.pool] / (types.gpus * types.share) + ROUNDING
    spread = (types.share < 1) & (types.nodes > 1)
    return np.where(spread, np.minimum(jobs, room), 0.0).astype(np.int64)


def _part_of(types: GangTypes, t: int) -> GangPart:
    """All GPUs of a gang of a type as one part."""
    return GangPart(
        int(types.pool[t]),
        int(types.gpus[t]),
        float(types.share[t]),
        tuple(types.need[t].tolist()),
        int(types.profile[t]),
        tuple(np.flatnonzero(types.apart[t]).tolist()),
        int(types.owner[t]),
    )


def _splits_in(
    types: GangTypes, t: int, hosts: IntArray, count: IntArray, in_ones: bool
) -> Sequence[Mapping[int, int]]:
    """Ways to split a gang in a group, whose nodes host so many of its GPUs: parts by their
    size.

    Parts of 1 GPU stand for all others where they need no more than these (``in_ones``).
    """
    gpus, span = int(types.gpus[t]), int(types.nodes[t])
    able = hosts > 0
    # Two jobs that may not be on one node do not share GPUs either.
    if types.owner[t] < 0 or (types.apart[t] > 1).any():
        return ()
    # Cells of a node hold more than one part.
    if not types.owner[t] and int((hosts * count)[able].sum()) < gpus:
        return ()
    if not able.any():
        return ()
    nodes, most = int(count[able].sum()), int(hosts.max())
    # Parts of 1 GPU may be on one node, which parts of a gang that is kept apart from others may
    # not.
    # On one node a gang may have several cells, but no more than it may have parts.
    spread = 1 < span >= (gpus if types.owner[t] else min(gpus, nodes)) and not types.apart[t].any()
    if types.share[t] == 1 and spread and in_ones:
        return ({1: gpus},)
    found: list[Mapping[int, int]] = []
    # Cells of one node may hold several parts of a gang.
    many = span if types.owner[t] else min(span, nodes)
    for parts in splits(gpus, many, most):
        if len(found) == MOST_SPLITS:
            raise UsageError(
                f"gangs of {gpus} GPUs on at most {span} nodes can be split in more than "
                f"{MOST_SPLITS:,} ways: state their rates for a level (cluster.levels) instead"
            )
        found.append(Counter(parts))
    return found


def held_columns(
    types: GangTypes,
    parts: Sequence[GangPart],
    gangs: Gangs,
    nodes: NodeClasses,
    reserved: ReservedCells | None,
) -> Held:
    """Which nodes can hold which parts, for gangs of which level."""
    used = {
        (part, int(types.level[t]))
        for t, split in zip(gangs.type_.tolist(), gangs.split, strict=True)
        for part in split
    }
    columns: list[tuple[IntArray, IntArray, IntArray]] = [(EMPTY, EMPTY, EMPTY)]
    for number, level in sorted(used):
        part = parts[number]
        hosts = nodes.hosts(np.array(part.need), part.share, max(part.owner, 0))
        room = (nodes.pool == part.pool) & (hosts >= part.gpus)
        if part.owner > 0 and reserved is not None:
            cell = reserved.tenants[part.owner - 1].cell_of(part.gpus)
            if cell is None:
                continue
            size = reserved.sizes.index(cell)
            room &= nodes.blocks[size] + nodes.inside(part.owner, size) > 0
        able = np.flatnonzero(room)
        columns.append((np.full(len(able), number), able, np.full(len(able), level)))
    return Held(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def most_parts(types: GangTypes, gangs: Gangs, parts: int) -> FloatArray:
    """How many of each part all jobs have on one node together at most."""
    most = np.zeros((len(types), parts))
    for t, split, jobs in zip(gangs.type_.tolist(), gangs.split, gangs.most.tolist(), strict=True):
        for part, count in split.items():
            # Parts of a gang that share GPUs are on different nodes.
            each = 1 if types.share[t] < 1 else count
            most[t, part] = max(most[t, part], each * jobs)
    total: FloatArray = most.sum(axis=0)
    return total


def most_jobs(C: Classes, types: GangTypes) -> FloatArray:
    """Jobs of each type at most."""
    most = np.zeros(len(types))
    column = np.flatnonzero(types.of_column >= 0)
    np.add.at(most, types.of_column[column], C.limit[column])
    return most
