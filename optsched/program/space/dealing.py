"""Nodes for the gangs of a whole point of a `Space`: which part of which gang is where.

A point counts parts on nodes of a class, and does not say whose they are. Gangs with whole GPUs may
get them in any order: parts of one gang on one node are one larger part. Parts that share GPUs may
not, as each must have different ones: such a gang gets its parts on different nodes, always where
the most room is left for the part. With parts of one size this finds nodes for all gangs if there
are any (Gale and Ryser), and where gangs are numbered it always does.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optsched.program.space.seats import GangSeats

NOT_SHARED = -1
"""`Seat.shared_gpu` of a part that needs no GPU with its own contents."""


class Seat(NamedTuple):
    """Room for one part of a gang.

    Attributes
    ----------
    node : int
        A node of the cluster.
    shared_gpu : int
        Which GPU with its own contents: a running number over all nodes, from 0, in the order in
        which the GPUs are dealt. It is not the index of a GPU on the node, which
        `optsched.placement.seated` chooses. `NOT_SHARED`: the part has no such GPU.
    """

    node: int
    shared_gpu: int = NOT_SHARED


class DealtPart(NamedTuple):
    """A part of a gang, by its number in the space, and where it is."""

    part: int
    seat: Seat


def deal(seats: GangSeats, gangs: Sequence[int]) -> list[list[DealtPart]] | None:
    """Nodes for the parts of gangs; None where the parts of one find no different nodes.

    Parameters
    ----------
    seats : GangSeats
    gangs : sequence of int
        The column y of each gang, at most as many of a column as the point has.
    """
    dealer = _Dealer(seats)
    split = seats.space.gangs.split
    found: dict[int, list[DealtPart]] = {}
    spread = [turn for turn, column in enumerate(gangs) if _is_spread(seats, column)]
    for turn in sorted(spread, key=lambda turn: (-sum(split[gangs[turn]].values()), gangs[turn])):
        dealt = dealer.on_different_nodes(gangs[turn])
        if dealt is None:
            return None
        found[turn] = dealt
    dealer.open_rest()
    for turn in sorted(set(range(len(gangs))) - set(spread)):
        found[turn] = dealer.in_order(gangs[turn])
    return [found[turn] for turn in range(len(gangs))]


def finds_nodes(seats: GangSeats) -> bool:
    """Whether all gangs of a point find nodes."""
    gangs = np.repeat(np.arange(len(seats.gangs)), seats.gangs).tolist()
    spread = any(_is_spread(seats, column) for column in set(gangs))
    return not spread or deal(seats, gangs) is not None


def _is_spread(seats: GangSeats, column: int) -> bool:
    """Whether gangs of a column y share GPUs of several nodes."""
    space = seats.space
    shared = space.types.share[space.gangs.type_[column]] < 1
    return bool(shared) and sum(space.gangs.split[column].values()) > 1


class _Dealer:
    """The seats of a point that are left."""

    def __init__(self, seats: GangSeats) -> None:
        self._space = space = seats.space
        self._room = _room(seats)
        # Parts for gangs of a level and group, by classes of nodes
        self._held: dict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
        held = space.held
        for column in np.flatnonzero(seats.held).tolist():
            part, r, level = (int(each[column]) for each in held)
            group = int(space.nodes.group[level, r])
            self._held[part, level, group][r] = int(seats.held[column])
        self._rest: dict[tuple[int, int, int], deque[Seat]] = {}

    def _place(self, column: int) -> tuple[int, int]:
        """Level and group of gangs of a column y."""
        gangs = self._space.gangs
        return int(self._space.types.level[gangs.type_[column]]), int(gangs.group[column])

    def on_different_nodes(self, column: int) -> list[DealtPart] | None:
        """Different nodes for the parts of a gang, or different GPUs that have their own
        contents.
        """
        dealt: list[DealtPart] = []
        level, group = self._place(column)
        for part, many in self._space.gangs.split[column].items():
            held = self._held[part, level, group]
            for _ in range(many):
                taken = {one.seat for one in dealt}
                open_ = [
                    (min(count, held[r]), r, seat)
                    for r in held
                    if held[r]
                    for seat, count in self._room[part, r].items()
                    if count and seat not in taken
                ]
                if not open_:
                    return None
                _, r, seat = max(open_, key=lambda one: one[0])
                held[r] -= 1
                self._room[part, r][seat] -= 1
                dealt.append(DealtPart(part, seat))
        return dealt

    def open_rest(self) -> None:
        """Put what is left in order."""
        left = {key: deque(seats.elements()) for key, seats in self._room.items()}
        for (part, level, group), held in self._held.items():
            seats = [left[part, r].popleft() for r, many in held.items() for _ in range(many)]
            self._rest[part, level, group] = deque(seats)

    def in_order(self, column: int) -> list[DealtPart]:
        """The next nodes for the parts of a gang."""
        level, group = self._place(column)
        return [
            DealtPart(part, self._rest[part, level, group].popleft())
            for part, many in self._space.gangs.split[column].items()
            for _ in range(many)
        ]


def _room(seats: GangSeats) -> dict[tuple[int, int], Counter[Seat]]:
    """How often seats have room for a part, by part and class."""
    space = seats.space
    room: dict[tuple[int, int], Counter[Seat]] = defaultdict(Counter)
    next_node, next_gpu = [0] * len(space.nodes), itertools.count()
    contents = space.contents
    used = np.flatnonzero(seats.contents)
    # GPUs with their own contents take the places of whole GPUs, which nodes have.
    for column in used[np.argsort(contents.of_gpu[used], kind="stable")].tolist():
        r = int(contents.node_class[column])
        counts = contents.counts[contents.row[column]]
        many = int(seats.contents[column])
        if contents.of_gpu[column]:
            whole = room[int(np.flatnonzero(counts < 0)[0]), r]
            made = [Seat(seat.node, next(next_gpu)) for seat in _taken(whole, many)]
        else:
            first = next_node[r]
            next_node[r] += many
            made = [Seat(n) for n in space.nodes.members[r][first : first + many].tolist()]
        for seat in made:
            for part in np.flatnonzero(counts > 0).tolist():
                room[part, r][seat] += int(counts[part])
    return room


def _taken(room: Counter[Seat], many: int) -> list[Seat]:
    """The first seats with room, which they have no longer."""
    taken = list(itertools.islice(room.elements(), many))
    room.subtract(taken)
    return taken
