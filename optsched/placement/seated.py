"""The placement that a program of whole jobs has found: its seats as GPUs of nodes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

import numpy as np

from optsched.arrays import IntArray
from optsched.placement.problem import Assignment, Pieces, Problem, with_identities
from optsched.program.space import GangSeats, packed

Slots = deque[int]
"""Nodes that have room for one part each."""


def seated(problem: Problem, seats: GangSeats) -> Assignment:
    """GPUs for the requests whose gangs have seats, as far as these are still free.

    Gangs of a type take the seats of the type in order, and their parts the nodes of the part: which
    of equal gangs is where makes no difference to what they are worth.
    """
    parts = _parts_of_requests(problem, seats)
    nodes = _nodes_of_parts(problem, seats, parts)
    return _on_gpus(problem, nodes)


def _parts_of_requests(problem: Problem, seats: GangSeats) -> dict[int, tuple[int, list[int]]]:
    """Of each request with a seat: the column of its gang (y), and the parts that it is split into."""
    space = seats.space
    waiting: dict[int, Slots] = defaultdict(deque)
    for column in np.flatnonzero(seats.gangs).tolist():
        t = int(space.gangs.type_[column])
        waiting[t].extend([column] * int(seats.gangs[column]))
    R = problem.requests
    found = {}
    type_ = space.types.of_column[R.column]
    for request, t in enumerate(type_.tolist()):
        if waiting[t]:
            column = waiting[t].popleft()
            split = space.gangs.split[column]
            found[request] = column, [part for part, many in split.items() for _ in range(many)]
    return found


def _nodes_of_parts(
    problem: Problem, seats: GangSeats, parts: Mapping[int, tuple[int, list[int]]]
) -> dict[int, list[tuple[int, int]]]:
    """(node of the problem, GPUs) of each part of each request."""
    space = seats.space
    room = _room(problem, seats)
    # Parts of a group, and the classes of nodes that hold them for its gangs.
    supply: dict[tuple[int, int, int], Slots] = defaultdict(deque)
    held = space.held
    for column in np.flatnonzero(seats.held).tolist():
        part, r = int(held.part[column]), int(held.node_class[column])
        level = int(held.level[column])
        group = int(space.nodes.group[level, r])
        for _ in range(int(seats.held[column])):
            supply[part, level, group].append(room[part, r].popleft())
    placed = {}
    for request, (column, mine) in parts.items():
        t = int(space.gangs.type_[column])
        level, group = int(space.types.level[t]), int(space.gangs.group[column])
        placed[request] = [
            (supply[part, level, group].popleft(), space.parts[part].gpus) for part in mine
        ]
    return placed


def _room(problem: Problem, seats: GangSeats) -> dict[tuple[int, int], Slots]:
    """Nodes with room for a part, once for each time that they have it, by part and class."""
    space, local = seats.space, problem.nodes.local()
    room: dict[tuple[int, int], Slots] = defaultdict(deque)
    next_node = [0] * len(space.nodes)
    for column in np.flatnonzero(seats.nodes).tolist():
        r = int(space.contents.node_class[column])
        counts = space.contents.counts[space.contents.row[column]]
        first = next_node[r]
        next_node[r] += int(seats.nodes[column])
        for node in local[space.nodes.members[r][first : next_node[r]]].tolist():
            for part in np.flatnonzero(counts).tolist():
                room[part, r].extend([node] * int(counts[part]))
    return room


def _on_gpus(problem: Problem, nodes: Mapping[int, Sequence[tuple[int, int]]]) -> Assignment:
    """GPUs for parts on nodes; requests that no longer find them are left out."""
    R = problem.requests
    free = problem.nodes.free.copy()
    pieces: dict[int, Pieces] = {}
    sharing: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for request, mine in nodes.items():
        total: dict[int, int] = defaultdict(int)
        for node, gpus in mine:
            total[node] += gpus
        if any(node < 0 or node in problem.closed[request] for node in total):
            continue
        if R.share[request] < 1:
            for node, gpus in total.items():
                sharing[node].append((request, gpus))
        elif all(free[node] >= gpus for node, gpus in total.items()):
            pieces[request] = list(total.items())
            for node, gpus in total.items():
                free[node] -= gpus
    shared = _shared(problem, sharing, free)
    return with_identities(problem, pieces, shared)


def _shared(
    problem: Problem, sharing: Mapping[int, Sequence[tuple[int, int]]], free: IntArray
) -> dict[int, IntArray]:
    """GPUs of the requests that share, rows (node, index), on the last free GPUs of each node."""
    R = problem.requests
    spots: dict[int, list[tuple[int, int]]] = defaultdict(list)
    without = set[int]()
    for node, mine in sharing.items():
        left = problem.nodes.room[node]
        untouched = np.flatnonzero(left >= 1.0)
        index = untouched[len(untouched) - free[node] :]
        wanted = [(float(R.share[request]), gpus) for request, gpus in mine]
        found = packed(wanted, [1.0] * len(index))
        if found is None:
            without |= {request for request, _ in mine}
            continue
        for (request, _), gpus in zip(mine, found, strict=True):
            spots[request] += [(node, int(index[gpu])) for gpu in gpus]
    return {
        request: np.array(gpus, np.int64)
        for request, gpus in spots.items()
        if request not in without
    }
