"""The placement that a program of whole jobs has found, as GPUs of nodes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from optsched.arrays import IntArray
from optsched.placement.problem import Assignment, Pieces, Problem, with_identities
from optsched.program.space import (
    NOT_SHARED,
    WHOLE_GPU,
    GangPart,
    GangSeats,
    GpuRoom,
    Seat,
    Staying,
    cells_of,
    deal,
    gpus_of_pieces,
)


def seated(problem: Problem, seats: GangSeats) -> Assignment:
    """GPUs for the requests whose gangs have seats, as far as these are free.

    Gangs of one type get the seats of the type in order, and their parts the nodes of the part
    (`deal`): the objective does not depend on which of the equal gangs gets which seat.
    """
    placed = _places_of_parts(problem, seats)
    if seats.space.reserved is None:
        return _on_gpus(problem, seats, placed)
    inside = {request for request, parts in placed.items() if parts[0].part.owner}
    others = {request: parts for request, parts in placed.items() if request not in inside}
    assignment = dict(_on_gpus(_beside_cells(problem, seats), seats, others))
    for request in inside:
        gpus = [
            (part.seat.node, part.seat.first + index)
            for part in placed[request]
            for index in range(part.part.gpus)
        ]
        if all(node >= 0 and node not in problem.closed[request] for node, _ in gpus):
            assignment[request] = np.array(sorted(gpus), np.int64)
    return assignment


def _beside_cells(problem: Problem, seats: GangSeats) -> Problem:
    """The same problem without the GPUs of cells that are reserved for tenants."""
    reserved, nodes = seats.reserved, problem.nodes
    assert reserved is not None
    local, start = nodes.local(), nodes.instance.cluster.numbering.start
    room = nodes.room.copy()
    for cell in cells_of(seats):
        if local[cell.node] >= 0:  # each pool is a problem of its own
            room[local[cell.node], cell.first : cell.first + cell.size] = 0.0
    for node, number in enumerate(nodes.number.tolist()):
        blocked = reserved.blocked[start[number] : start[number + 1]]
        whole = room[node, : len(blocked)] >= 1.0
        room[node, : len(blocked)][blocked & whole] = 0.0
    return replace(problem, nodes=replace(nodes, room=room))


class _SeatedPart(NamedTuple):
    """A part of a request and its seat, with node numbers of the problem."""

    part: GangPart
    seat: Seat


def _gangs_of_requests(problem: Problem, seats: GangSeats) -> dict[int, int]:
    """The column (y) of the gang of each request with a seat."""
    space = seats.space
    waiting: dict[int, deque[int]] = defaultdict(deque)
    for column in np.flatnonzero(seats.gangs).tolist():
        t = int(space.gangs.type_[column])
        waiting[t].extend([column] * int(seats.gangs[column]))
    type_ = space.types.of_column[problem.requests.column]
    return {request: waiting[t].popleft() for request, t in enumerate(type_.tolist()) if waiting[t]}


def _places_of_parts(problem: Problem, seats: GangSeats) -> dict[int, list[_SeatedPart]]:
    """Parts of each request that has a seat; none where the parts of some gang find no different
    nodes.
    """
    parts, local = seats.space.parts, problem.nodes.local().tolist()
    gangs = _gangs_of_requests(problem, seats)
    found = deal(seats, list(gangs.values()))
    if found is None:
        return {}
    return {
        request: [
            _SeatedPart(parts[part], seat._replace(node=local[seat.node]))
            for part, seat in seats_of_request
        ]
        for request, seats_of_request in zip(gangs, found, strict=True)
    }


def _on_gpus(
    problem: Problem, seats: GangSeats, placed: Mapping[int, Sequence[_SeatedPart]]
) -> Assignment:
    """GPUs for parts on nodes; requests without enough free GPUs are left out."""
    free = problem.nodes.free.copy()
    pieces: dict[int, Pieces] = {}
    sharing: dict[int, list[tuple[int, _SeatedPart]]] = defaultdict(list)
    for request, seated_parts in placed.items():
        total: dict[int, int] = defaultdict(int)
        for part, seat in seated_parts:
            total[seat.node] += part.gpus
        if any(node < 0 or node in problem.closed[request] for node in total):
            continue
        if seated_parts[0].part.share < 1:
            for seated_part in seated_parts:
                sharing[seated_part.seat.node].append((request, seated_part))
        elif all(free[node] >= gpus for node, gpus in total.items()):
            pieces[request] = list(total.items())
            for node, gpus in total.items():
                free[node] -= gpus
    shared = _shared(problem, seats, sharing, free)
    return with_identities(problem, pieces, shared)


def _partly_used(problem: Problem) -> dict[int, dict[int, GpuRoom]]:
    """What jobs that stay leave of their GPUs, by node and index."""
    nodes, numbering = problem.nodes, problem.nodes.instance.cluster.numbering
    local = nodes.local().tolist()
    found: dict[int, dict[int, GpuRoom]] = defaultdict(dict)
    for gpu, room in sorted(Staying.of(nodes.instance).rooms.items()):
        node = int(numbering.node_of(np.array([gpu]))[0])
        if local[node] >= 0:
            found[local[node]][gpu - int(numbering.start[node])] = room
    return found


def _shared(
    problem: Problem,
    seats: GangSeats,
    sharing: Mapping[int, Sequence[tuple[int, _SeatedPart]]],
    free: IntArray,
) -> dict[int, IntArray]:
    """GPUs of the requests that share GPUs, rows (node, index): on what jobs that stay leave of
    their GPUs, and on the last free GPUs of each node.
    """
    layouts = seats.space.types.layouts
    partly = _partly_used(problem)
    spots: dict[int, list[tuple[int, int]]] = defaultdict(list)
    without = set[int]()
    for node, parts in sharing.items():
        untouched = np.flatnonzero(problem.nodes.room[node] >= 1.0)
        index = deque(untouched[len(untouched) - free[node] :].tolist())
        with_contents = sorted({seated.seat.shared_gpu for _, seated in parts} - {NOT_SHARED})
        wanted = [(request, s.part) for request, s in parts if s.seat.shared_gpu == NOT_SHARED]
        rest = len(index) - len(with_contents)
        legal = layouts.get(parts[0][1].part.pool)
        used = partly.get(node, {})
        found = gpus_of_pieces(
            [part.piece for _, part in wanted],
            [*used.values(), *[WHOLE_GPU] * max(rest, 0)],
            None if legal is None else legal.counts,
        )
        if rest < 0 or found is None:
            without |= {request for request, _ in parts}
            continue
        gpu_of = {gpu: index.popleft() for gpu in with_contents}
        for request, part in parts:
            if part.seat.shared_gpu != NOT_SHARED:
                spots[request].append((node, gpu_of[part.seat.shared_gpu]))
        left = [*used, *index]
        for (request, _), gpus in zip(wanted, found, strict=True):
            spots[request] += [(node, left[gpu]) for gpu in gpus]
    return {
        request: np.array(gpus, np.int64)
        for request, gpus in spots.items()
        if request not in without
    }
