"""What one node can hold at one time: its contents, as counts of parts of gangs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray

ROUNDING = 1e-9
"""Relative slack of capacities, and slack of shares of a GPU."""


class GangPart(NamedTuple):
    """The GPUs of a gang on one node.

    Attributes
    ----------
    pool, gpus : int
    share : float
        Of each GPU.
    need : tuple of float
        Per GPU: CPUs, memory, and resources of some nodes.
    """

    pool: int
    gpus: int
    share: float
    need: tuple[float, ...]


def splits(gpus: int, nodes: int, most: int) -> Iterator[tuple[int, ...]]:
    """Ways to split a gang into parts, the largest first: at most so many, none above ``most``."""
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
    """Least sum of floor(part / size) over all splits; 0 where a gang may have any nodes.

    Each part hides up to size - 1 GPUs.
    """
    if size > most:
        return 0
    # A part of GPUs above a multiple of the size counts no more than that multiple.
    hidden = nodes * (size - 1)
    return max(0, -(-(gpus - hidden) // size))


def fullest_contents(
    parts: Sequence[GangPart], gpus: int, own: FloatArray, most: int
) -> IntArray | None:
    """Contents of a node to which no further part can be added, shape (P, parts).

    None where there are more than ``most``.

    Parameters
    ----------
    parts : sequence of GangPart
    gpus : int
        Of the node.
    own : FloatArray, shape (2,)
        CPUs and memory of the node.
    most : int
    """
    # Python numbers: there are as many small sums as contents, and arrays would take most of the time.
    use = [
        [part.gpus if part.share == 1 else 0, *(part.gpus * each for each in part.need[: len(own)])]
        for part in parts
    ]
    room = [float(gpus), *(own * (1 + ROUNDING)).tolist()]
    shared = [part.share < 1 for part in parts]
    fits_gpus = cache(lambda held: _fits_gpus(parts, held, gpus))
    found: list[tuple[int, ...]] = []

    def fits(held: tuple[int, ...], left: Sequence[float], number: int) -> bool:
        if any(amount > there for amount, there in zip(use[number], left, strict=True)):
            return False
        return not any(shared) or fits_gpus(_with_one(held, number))

    def extend(held: tuple[int, ...], left: Sequence[float], last: int) -> bool:
        """Add parts from ``last`` on in every way; False where there are too many contents."""
        able = [number for number in range(len(parts)) if fits(held, left, number)]
        if not able:
            found.append(held)
        for number in able:
            if number >= last:
                rest = [there - amount for amount, there in zip(use[number], left, strict=True)]
                if not extend(_with_one(held, number), rest, number):
                    return False
        return len(found) <= most

    if not extend((0,) * len(parts), room, 0):
        return None
    return np.array(found, np.int64).reshape(len(found), len(parts))


def _with_one(held: tuple[int, ...], number: int) -> tuple[int, ...]:
    return (*held[:number], held[number] + 1, *held[number + 1 :])


def _fits_gpus(parts: Sequence[GangPart], held: Sequence[int], gpus: int) -> bool:
    whole = sum(
        count * part.gpus for part, count in zip(parts, held, strict=True) if part.share == 1
    )
    shared = [
        (part.share, part.gpus)
        for part, count in zip(parts, held, strict=True)
        if part.share < 1
        for _ in range(count)
    ]
    return whole <= gpus and packed(shared, [1.0] * (gpus - whole)) is not None


def packed(
    shared: Sequence[tuple[float, int]], room: Sequence[float]
) -> tuple[tuple[int, ...], ...] | None:
    """GPUs for parts of shares: (share, GPUs) each on different GPUs, within what is left of these.

    Exact: all choices are tried, the largest shares first. None where they do not fit.
    """
    if sum(share * gpus for share, gpus in shared) > sum(room) * (1 + ROUNDING) + ROUNDING:
        return None
    order = sorted(range(len(shared)), key=lambda row: (-shared[row][0], -shared[row][1]))
    places: dict[int, tuple[int, ...]] = {}
    refuted = set[tuple[int, tuple[float, ...]]]()

    def place(turn: int, left: tuple[float, ...]) -> bool:
        if turn == len(order):
            return True
        # GPUs with the same left are alike: one state stands for all their orders.
        state = turn, tuple(sorted(left))
        if state in refuted:
            return False
        share, gpus = shared[order[turn]]
        for chosen in _choices(left, share, gpus):
            after = tuple(
                amount - share if gpu in chosen else amount for gpu, amount in enumerate(left)
            )
            places[order[turn]] = chosen
            if place(turn + 1, after):
                return True
        refuted.add(state)
        return False

    if not place(0, tuple(room)):
        return None
    return tuple(places[row] for row in range(len(shared)))


def _choices(left: tuple[float, ...], share: float, gpus: int) -> Iterator[tuple[int, ...]]:
    """So many GPUs with room for a share; one choice for each multiset of what they have left."""
    able = [gpu for gpu, amount in enumerate(left) if amount >= share - ROUNDING]
    # The fullest first.
    able.sort(key=lambda gpu: left[gpu])

    def choose(start: int, count: int) -> Iterator[tuple[int, ...]]:
        if count == 0:
            yield ()
            return
        tried = set[float]()
        for place in range(start, len(able) - count + 1):
            amount = left[able[place]]
            if amount in tried:
                continue
            tried.add(amount)
            for rest in choose(place + 1, count - 1):
                yield (able[place], *rest)

    yield from choose(0, gpus)
