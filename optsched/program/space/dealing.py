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

from optsched.program.space.cells import FreeCell, FreeCells, aligned_blocks
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
    first : int
        Index of its first GPU, where it is in a reserved cell; -1 for all others.
    """

    node: int
    shared_gpu: int = NOT_SHARED
    first: int = -1


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
    # Contents of nodes come first: a GPU with its own contents takes one of their whole GPUs.
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
            made = [Seat(n) for n in seats.members[r][first : first + many].tolist()]
        for seat in made:
            for part in np.flatnonzero(counts > 0).tolist():
                room[part, r][seat] += int(counts[part])
    for cell in cells_of(seats):
        for part, first in cell.parts:
            room[part, cell.node_class][Seat(cell.node, first=first)] += 1
    return room


class PlacedCell(NamedTuple):
    """A reserved cell.

    Attributes
    ----------
    node, first, size : int
        A node of the cluster, the index of the first GPU there, and GPUs.
    node_class : int
    parts : tuple of (int, int)
        Parts of gangs in it, each with the index of its first GPU.
    """

    node: int
    first: int
    size: int
    node_class: int
    parts: tuple[tuple[int, int], ...]


def cells_of(seats: GangSeats) -> list[PlacedCell]:
    """Choose the GPUs of the reserved cells of a point, and of the parts in them; cells that are
    bound have theirs.
    """
    space, found = seats.space, list[PlacedCell]()
    if seats.reserved is None:
        return found
    start = space.classes.instance.cluster.numbering.start
    bound: dict[int, list[tuple[int, int, FreeCell]]] = defaultdict(list)
    for cell in seats.reserved.bound:
        node = int(start.searchsorted(cell.gpus.start, side="right")) - 1
        block = FreeCell(node, cell.gpus.start - int(start[node]))
        bound[node].append((cell.tenant + 1, cell.size, block))
    for r in range(len(space.nodes)):
        columns = np.flatnonzero((space.cells.node_class == r) & (seats.cells > 0))
        free = _beside_others(seats, r) if len(columns) else FreeCells({})
        # The largest first: whatever is taken, the same number of others is left.
        columns = columns[np.lexsort((space.cells.owner[columns], -space.cells.size[columns]))]
        placed: dict[int, list[tuple[int, FreeCell]]] = defaultdict(list)
        for column in columns.tolist():
            size = int(space.cells.size[column])
            for _ in range(int(seats.cells[column])):
                placed[int(space.cells.owner[column])].append((size, free.take(size)))
        of_class = bound if space.nodes.choice[r] >= 0 else {}
        for node in seats.members[r].tolist() if of_class else []:
            for owner, size, block in of_class[node]:
                placed[owner].append((size, block))
        for owner, cells in placed.items():
            found += _filled(seats, r, owner, cells)
    return found


def _beside_others(seats: GangSeats, r: int) -> FreeCells:
    """Free blocks of the nodes of a class that jobs without cells leave."""
    space = seats.space
    assert seats.reserved is not None
    used = np.flatnonzero((space.contents.node_class == r) & ~space.contents.of_gpu)
    taken = np.repeat(space.gpus_of_contents[used], seats.contents[used]).tolist()
    free: dict[int, list[FreeCell]] = {size: [] for size in seats.reserved.sizes}
    for number, node in enumerate(seats.members[r].tolist()):
        starts = seats.reserved.free_blocks(space.classes.instance, node)
        blocks = FreeCells(
            {s: [FreeCell(node, first) for first in some] for s, some in starts.items()}
        )
        for _ in range(taken[number] if number < len(taken) else 0):
            blocks.take(1)
        for size, some in blocks.free.items():
            free[size] += some
    return FreeCells(free)


def _filled(
    seats: GangSeats, r: int, owner: int, cells: Sequence[tuple[int, FreeCell]]
) -> list[PlacedCell]:
    """Cells of a tenant on nodes of a class, with the parts of its gangs there."""
    space = seats.space
    assert space.reserved is not None and seats.reserved is not None
    tenant = space.reserved.tenants[owner - 1]
    inside: dict[int, list[FreeCell]] = {size: [] for size in space.reserved.sizes}
    start = space.classes.instance.cluster.numbering.start
    for size, block in cells:
        gpus = slice(
            int(start[block.node]) + block.first, int(start[block.node]) + block.first + size
        )
        for part, first in aligned_blocks(space.reserved.blocked[gpus], space.reserved.sizes):
            inside[part].append(FreeCell(block.node, block.first + first))
    free = FreeCells(inside)
    many = np.bincount(space.held.part, np.where(space.held.node_class == r, seats.held, 0))
    wanted = [
        (tenant.cell_of(space.parts[part].gpus) or 0, part)
        for part in np.flatnonzero(many).tolist()
        if space.parts[part].owner == owner
        for _ in range(int(many[part]))
    ]
    placed = [(part, free.take(size)) for size, part in sorted(wanted, reverse=True)]
    return [
        PlacedCell(
            block.node,
            block.first,
            size,
            r,
            tuple(
                (part, one.first)
                for part, one in placed
                if one.node == block.node and block.first <= one.first < block.first + size
            ),
        )
        for size, block in cells
    ]


def _taken(room: Counter[Seat], many: int) -> list[Seat]:
    """Take the first seats with room out of it."""
    taken = list(itertools.islice(room.elements(), many))
    room.subtract(taken)
    return taken
