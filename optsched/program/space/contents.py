"""Parts of gangs on one node, and GPUs for those that share some."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import NO_SLICE

ROUNDING = 1e-9
"""Relative slack of capacities, and slack of shares of a GPU."""

SEARCHED = 300
"""Most shares and slices on the GPUs of a node for which all packings are searched."""


class GangPart(NamedTuple):
    """The GPUs of a gang on one node.

    Attributes
    ----------
    pool, gpus : int
    share : float
        Of each GPU.
    need : tuple of float
        Per GPU: CPUs, memory, and resources of some nodes.
    profile : int
        Of the slice of each GPU (MIG), among those of the pool; `NO_SLICE` for none.
    apart : tuple of int
        Sets of jobs to which its gang belongs, no two of which may be on one node.
    owner : int
        The tenant, from 1 on, in whose reserved cells it is (`ReservedCells`); 0 for all others.
    gang : int
        Its number, where gangs are numbered: parts of one are in different bins. 0 for all others.
    """

    pool: int
    gpus: int
    share: float
    need: tuple[float, ...]
    profile: int = NO_SLICE
    apart: tuple[int, ...] = ()
    owner: int = 0
    gang: int = 0

    @property
    def piece(self) -> GpuPiece:
        """What it takes of GPUs that it shares."""
        return GpuPiece(self.share, self.gpus, self.profile)


class GpuPiece(NamedTuple):
    """A share, or a slice, of each of some different GPUs."""

    share: float
    gpus: int
    profile: int = NO_SLICE


class GpuRoom(NamedTuple):
    """One GPU: the share that is left, and how many slices of each profile it is cut into."""

    left: float
    slices: tuple[int, ...] = ()

    def after(self, piece: GpuPiece, layouts: IntArray | None) -> GpuRoom | None:
        """The same with one more share or slice; None where it does not fit.

        ``layouts`` are the multisets of slices that a GPU can have, shape (layouts, profiles).
        """
        if self.left < piece.share - ROUNDING:
            return None
        if piece.profile == NO_SLICE:
            # A GPU that is cut has no other shares.
            return None if self.slices else GpuRoom(self.left - piece.share)
        if self.left < 1 and not self.slices:
            return None
        assert layouts is not None
        held = list(self.slices) or [0] * layouts.shape[1]
        held[piece.profile] += 1
        if not (layouts >= held).all(axis=1).any():
            return None
        return GpuRoom(self.left - piece.share, tuple(held))


WHOLE_GPU = GpuRoom(1.0)


class ShareCount(NamedTuple):
    """A dual feasible function f of shares: shares on one GPU that add up to c have values that add
    up to at most f(c), for c up to 1.

    Attributes
    ----------
    least : float
        Smaller shares count nothing.
    rounded : bool
        f(s) = floor(s / least): how many pieces of the least share there are. Otherwise, for a
        least share of at most 1/2, f(s) = 1 for s > 1 - least, as nothing else that counts fits
        beside it, and f(s) = s below.
    """

    least: float
    rounded: bool

    def of(self, share: FloatArray) -> FloatArray:
        """The value of each share."""
        if self.rounded:
            pieces: FloatArray = np.floor(share / self.least + ROUNDING)
            return pieces
        large = share + self.least > 1 + ROUNDING
        return np.where(large, 1.0, np.where(share >= self.least - ROUNDING, share, 0.0))

    def held(self, gpus: int, rooms: Sequence[GpuRoom]) -> float:
        """Bound on the sum of the values on free GPUs and what is left of others."""
        each = self.of(np.array([1.0, *(room.left for room in rooms)]))
        most = float(gpus * each[0] + each[1:].sum())
        return most if self.rounded else most * (1 + ROUNDING)


def share_counts(share: FloatArray) -> list[ShareCount]:
    """The functions that bound some shares better than their sum does."""
    sizes = np.unique(share[share < 1])
    found = [ShareCount(least, rounded=True) for least in sizes.tolist()]
    # For every large share the least one that does not fit beside it: smaller ones count less.
    beside = [sizes[sizes + large > 1 + ROUNDING].min() for large in sizes[sizes > 0.5].tolist()]
    least_beside = sorted({least for least in map(float, beside) if least <= 0.5})
    return found + [ShareCount(least, rounded=False) for least in least_beside]


def splits(gpus: int, nodes: int, most: int) -> Iterator[tuple[int, ...]]:
    """All ways to split a gang into at most ``nodes`` parts of at most ``most`` GPUs, largest parts
    first.
    """
    if gpus == 0:
        yield ()
        return
    if nodes == 0:
        return
    # The other parts hold at most as much as the first.
    for first in range(min(gpus, most), (gpus - 1) // nodes, -1):
        for rest in splits(gpus - first, nodes - 1, first):
            yield (first, *rest)


def fewest_pieces(gpus: int, nodes: int, most: int, size: int) -> int:
    """Least sum of floor(part / size) over all splits of a gang into at most ``nodes`` parts.

    In each part up to size - 1 GPUs do not count.
    """
    if size > most:
        return 0
    uncounted = nodes * (size - 1)
    return max(0, -(-(gpus - uncounted) // size))


def fits_fullest(pieces: Sequence[GpuPiece], gpus: Sequence[GpuRoom]) -> bool:
    """Whether shares find GPUs if each, the largest first, takes the fullest ones with room.

    This is where the search of `gpus_of_pieces` begins, without its states. False proves nothing,
    and is the answer for slices.
    """
    left = sorted(room.left for room in gpus if not room.slices)
    for share, count, profile in sorted(pieces, reverse=True):
        first = bisect_left(left, share - ROUNDING)
        if profile != NO_SLICE or first + count > len(left):
            return False
        chosen = left[first : first + count]
        del left[first : first + count]
        for room in chosen:
            insort(left, room - share)
    return True


def gpus_of_pieces(
    pieces: Sequence[GpuPiece],
    gpus: Sequence[GpuRoom],
    layouts: IntArray | None,
    tries: int | None = None,
) -> tuple[tuple[int, ...], ...] | None:
    """Put shares and slices on what is left of some GPUs; the GPUs of one piece are different.

    All choices are tried, the largest shares first. None: the pieces do not fit, or ``tries``
    states of the GPUs were found to be dead ends. More than `SEARCHED` pieces are not searched:
    each gets the first GPUs on which it fits.
    """
    left = sum(room.left for room in gpus)
    if sum(piece.share * piece.gpus for piece in pieces) > left * (1 + ROUNDING) + ROUNDING:
        return None
    order = sorted(range(len(pieces)), key=lambda row: (*pieces[row][:2], row), reverse=True)
    places: dict[int, tuple[int, ...]] = {}
    if len(pieces) > SEARCHED:
        held = tuple(gpus)
        for row in order:
            after = [room.after(pieces[row], layouts) for room in held]
            chosen = next(_choices(held, after, pieces[row].gpus), None)
            if chosen is None:
                return None
            places[row] = chosen
            held = tuple(
                after[gpu] or held[gpu] if gpu in chosen else held[gpu] for gpu in range(len(gpus))
            )
        return tuple(places[row] for row in range(len(pieces)))
    refuted = set[tuple[int, tuple[GpuRoom, ...]]]()

    def place(turn: int, rooms: tuple[GpuRoom, ...]) -> bool:
        if turn == len(order):
            return True
        # GPUs with equal content are interchangeable: one state stands for all their orders.
        state = turn, tuple(sorted(rooms))
        if state in refuted or (tries is not None and len(refuted) >= tries):
            return False
        piece = pieces[order[turn]]
        after = [room.after(piece, layouts) for room in rooms]
        for chosen in _choices(rooms, after, piece.gpus):
            places[order[turn]] = chosen
            next_rooms = list(rooms)
            for gpu in chosen:
                room = after[gpu]
                assert room is not None
                next_rooms[gpu] = room
            if place(turn + 1, tuple(next_rooms)):
                return True
        refuted.add(state)
        return False

    if not place(0, tuple(gpus)):
        return None
    return tuple(places[row] for row in range(len(pieces)))


def _choices(
    rooms: Sequence[GpuRoom], after: Sequence[GpuRoom | None], gpus: int
) -> Iterator[tuple[int, ...]]:
    """Choices of ``gpus`` GPUs on which a piece fits. Of choices of GPUs with equal content only
    one.
    """
    able = [gpu for gpu, room in enumerate(after) if room is not None]
    # The fullest first.
    able.sort(key=lambda gpu: rooms[gpu])

    def choose(start: int, count: int) -> Iterator[tuple[int, ...]]:
        if count == 0:
            yield ()
            return
        tried = set[GpuRoom]()
        for place in range(start, len(able) - count + 1):
            room = rooms[able[place]]
            if room in tried:
                continue
            tried.add(room)
            for rest in choose(place + 1, count - 1):
                yield (able[place], *rest)

    yield from choose(0, gpus)
