"""The placement that a program of whole jobs has found: its seats as GPUs of nodes."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from optsched.arrays import IntArray
from optsched.placement.problem import Assignment, Pieces, Problem, with_identities
from optsched.program.space import GangPart, GangSeats, gpus_of_pieces

NOT_SHARED = -1
"""GPU of a seat for a part that is no content of a GPU."""


class Seat(NamedTuple):
    """Room for one part: a node, and the number of one of its GPUs with its own contents."""

    node: int
    gpu: int = NOT_SHARED


Seats = deque[Seat]


def seated(problem: Problem, seats: GangSeats) -> Assignment:
    """GPUs for the requests whose gangs have seats, as far as these are still free.

    Gangs of a type take the seats of the type in order, and their parts the nodes of the part: which
    of equal gangs is where makes no difference to what they are worth.
    """
    parts = _parts_of_requests(problem, seats)
    return _on_gpus(problem, seats, _places_of_parts(problem, seats, parts))


def _parts_of_requests(problem: Problem, seats: GangSeats) -> dict[int, tuple[int, list[int]]]:
    """Of each request with a seat: the column of its gang (y), and the parts that it is split into."""
    space = seats.space
    waiting: dict[int, deque[int]] = defaultdict(deque)
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


class _SeatedPart(NamedTuple):
    """A part of a request and where it is."""

    part: GangPart
    seat: Seat


def _places_of_parts(
    problem: Problem, seats: GangSeats, parts: Mapping[int, tuple[int, list[int]]]
) -> dict[int, list[_SeatedPart]]:
    """Parts of each request."""
    space = seats.space
    room = _room(problem, seats)
    # Parts of a group, and the classes of nodes that hold them for its gangs.
    supply: dict[tuple[int, int, int], Seats] = defaultdict(deque)
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
            _SeatedPart(space.parts[part], supply[part, level, group].popleft()) for part in mine
        ]
    return placed


def _room(problem: Problem, seats: GangSeats) -> dict[tuple[int, int], Seats]:
    """Seats for a part, once for each time that there is room for it, by part and class."""
    space, local = seats.space, problem.nodes.local()
    room: dict[tuple[int, int], Seats] = defaultdict(deque)
    next_node, next_gpu = [0] * len(space.nodes), itertools.count()
    contents = space.contents
    used = np.flatnonzero(seats.contents)
    # GPUs with their own contents take the places of whole GPUs, which nodes have.
    for column in used[np.argsort(contents.of_gpu[used], kind="stable")].tolist():
        r = int(contents.node_class[column])
        counts = contents.counts[contents.row[column]]
        many = int(seats.contents[column])
        if contents.of_gpu[column]:
            one = int(np.flatnonzero(counts < 0)[0])
            made = [Seat(room[one, r].popleft().node, next(next_gpu)) for _ in range(many)]
        else:
            first = next_node[r]
            next_node[r] += many
            made = [Seat(n) for n in local[space.nodes.members[r][first : first + many]].tolist()]
        for seat in made:
            for part in np.flatnonzero(counts > 0).tolist():
                room[part, r].extend([seat] * int(counts[part]))
    return room


def _on_gpus(
    problem: Problem, seats: GangSeats, placed: Mapping[int, Sequence[_SeatedPart]]
) -> Assignment:
    """GPUs for parts on nodes; requests that no longer find them are left out."""
    free = problem.nodes.free.copy()
    pieces: dict[int, Pieces] = {}
    sharing: dict[int, list[tuple[int, _SeatedPart]]] = defaultdict(list)
    for request, mine in placed.items():
        total: dict[int, int] = defaultdict(int)
        for part, seat in mine:
            total[seat.node] += part.gpus
        if any(node < 0 or node in problem.closed[request] for node in total):
            continue
        if mine[0].part.share < 1:
            for one in mine:
                sharing[one.seat.node].append((request, one))
        elif all(free[node] >= gpus for node, gpus in total.items()):
            pieces[request] = list(total.items())
            for node, gpus in total.items():
                free[node] -= gpus
    shared = _shared(problem, seats, sharing, free)
    return with_identities(problem, pieces, shared)


def _shared(
    problem: Problem,
    seats: GangSeats,
    sharing: Mapping[int, Sequence[tuple[int, _SeatedPart]]],
    free: IntArray,
) -> dict[int, IntArray]:
    """GPUs of the requests that share, rows (node, index), on the last free GPUs of each node."""
    layouts = seats.space.types.layouts
    spots: dict[int, list[tuple[int, int]]] = defaultdict(list)
    without = set[int]()
    for node, mine in sharing.items():
        untouched = np.flatnonzero(problem.nodes.room[node] >= 1.0)
        index = deque(untouched[len(untouched) - free[node] :].tolist())
        with_contents = sorted({one.seat.gpu for _, one in mine} - {NOT_SHARED})
        wanted = [(request, one.part) for request, one in mine if one.seat.gpu == NOT_SHARED]
        rest = len(index) - len(with_contents)
        legal = layouts.get(mine[0][1].part.pool)
        found = gpus_of_pieces(
            [part.piece for _, part in wanted],
            max(rest, 0),
            None if legal is None else legal.counts,
        )
        if rest < 0 or found is None:
            without |= {request for request, _ in mine}
            continue
        gpu_of = {gpu: index.popleft() for gpu in with_contents}
        for request, one in mine:
            if one.seat.gpu != NOT_SHARED:
                spots[request].append((node, gpu_of[one.seat.gpu]))
        left = list(index)
        for (request, _), gpus in zip(wanted, found, strict=True):
            spots[request] += [(node, left[gpu]) for gpu in gpus]
    return {
        request: np.array(gpus, np.int64)
        for request, gpus in spots.items()
        if request not in without
    }
