"""Knapsacks of pricing problems, many at once, and the losses if an item must be taken or left out.

Small knapsacks are solved side by side: each step takes one item of every knapsack, so that a step
costs little more than for one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.errors import InvalidArgument
from optsched.program.knapsack_compiled import compiled

MOST_CELLS = 2**28
"""Items times capacity; a byte is kept for each."""
SIDE_BY_SIDE = 2**20
"""Items times capacity of the knapsacks that are solved side by side."""
ROUNDING = 1e-9
"""Relative amount by which values may be wrong."""


def best_items(value: ArrayLike, weight: ArrayLike, capacity: float) -> tuple[float, BoolArray]:
    """Items of the greatest total value within a capacity, each at most once.

    ::

        maximise  sum_j value_j z_j   s.t.  sum_j weight_j z_j <= capacity,  z binary

    by dynamic programming over the capacity, an item at a time.

    Parameters
    ----------
    value : array, shape (items,)
        Items of no value are not taken.
    weight : array of int, shape (items,)
        At least 0.
    capacity : float
        May be infinite.

    Returns
    -------
    float, BoolArray of shape (items,)
        The total value, and whether each item is taken.

    Raises
    ------
    InvalidArgument
    """
    v, w = np.asarray(value, np.float64), np.asarray(weight)
    if v.ndim != 1 or v.shape != w.shape:
        raise InvalidArgument("weight", f"shape {w.shape}", f"that of value, {v.shape}")
    if w.size and ((w < 0).any() or (w != np.floor(w)).any()):
        raise InvalidArgument("weight", f"{w[(w < 0) | (w != np.floor(w))][0]:g}", "whole numbers")
    if np.isnan(capacity):
        raise InvalidArgument("capacity", "nan", "a number")
    useful = (v > 0) & (w <= capacity)
    if not useful.any():
        return 0.0, useful
    # More room than all items need is not used
    room = int(min(capacity, w[useful].sum(dtype=np.float64)))
    if useful.sum() * (room + 1) > MOST_CELLS:
        cells = f"{useful.sum():,} items and a capacity of {room:,}"
        raise InvalidArgument("capacity", cells, f"a product of at most {MOST_CELLS:,}")
    row = v[np.newaxis], w[np.newaxis].astype(np.int64), np.array([room], np.int64)
    total, chosen = best_of_each(*row)
    return float(total[0]), chosen[0]


def best_of_each(
    value: FloatArray, weight: IntArray, capacity: IntArray, fast: bool = False
) -> tuple[FloatArray, BoolArray]:
    """`best_items` of several knapsacks, one a row: total values, shape (rows,), and the items that
    are taken, shape (rows, items).

    Parameters
    ----------
    value : FloatArray, shape (rows, items)
    weight : IntArray, shape (rows, items)
        At least 0.
    capacity : IntArray, shape (rows,)
    fast : bool
        Whether to use compiled loops, where numba is installed. A process takes a second or two to
        load them; their results are the same.
    """
    core = _Core.of((value > 0) & (weight <= capacity[:, np.newaxis]), value, weight, capacity, 0.0)
    total, taken = np.zeros(len(value)), np.zeros(core.value.shape, bool)
    loops = compiled() if fast else None
    if loops is not None:
        loops.best(core.value, core.weight, core.room, total, taken)
    else:
        core.best_by_steps(total, taken)
    chosen = core.sure.copy()
    chosen[core.row, core.item] = taken[core.row, core.place]
    return total + np.where(core.sure, value, 0.0).sum(axis=1), chosen


def losses_of_each(
    value: FloatArray,
    weight: IntArray,
    capacity: IntArray,
    most: float = np.inf,
    fast: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """By how much the greatest total value of each knapsack falls if an item must be taken, and if
    it must be left out; both of shape (rows, items).

    ::

        F_j(b)  greatest value of the items before j within b;   G_j(b) of those behind j
        taken_j     =  F_n(B)  -  value_j  -  max { F_j(b) + G_j(B - weight_j - b) : 0 <= b <= B - weight_j }
        left_out_j  =  F_n(B)  -  max { F_j(b) + G_j(B - b) : 0 <= b <= B }

    The first is infinite for an item that does not fit.

    Parameters
    ----------
    value, weight, capacity, fast
        As of `best_of_each`; values may be negative.
    most : float
        A loss that is larger may be infinite instead.
    """
    core = _Core.of(weight <= capacity[:, np.newaxis], value, weight, capacity, most)
    taken, left_out = np.where(core.sure, 0.0, np.inf), np.where(core.sure, np.inf, 0.0)
    loss, best = np.zeros(core.value.shape), np.zeros(core.value.shape, bool)
    loops = compiled() if fast else None
    if loops is not None:
        loops.losses(core.value, core.weight, core.room, loss, best)
    else:
        core.losses_by_steps(loss, best)
    at, place = (core.row, core.item), (core.row, core.place)
    left_out[at] = np.where(best, loss, 0.0)[place]
    taken[at] = np.where(best, 0.0, loss - core.value)[place]
    return np.maximum(taken, 0.0), np.maximum(left_out, 0.0)


class _Core(NamedTuple):
    """What fractions of items leave open of some knapsacks (Balas and Zemel, 1980).

    If items may be divided, those of the greatest value per weight are taken. No set of items with
    a value near the best one differs from that where an item is much better or worse than the one
    that is divided.

    Attributes
    ----------
    sure : BoolArray, shape (rows, items)
        Items in all such sets.
    value : FloatArray, shape (rows, most open items)
        Of the open items, from the left; then zeros.
    weight : IntArray, shape (rows, most open items)
    room : IntArray, shape (rows,)
        Capacity for the open items; no more than all of them weigh.
    row, item, place : IntArray, shape (open items,)
        The row of each open item, its number there, and its place in these tables.
    """

    sure: BoolArray
    value: FloatArray
    weight: IntArray
    room: IntArray
    row: IntArray
    item: IntArray
    place: IntArray

    @classmethod
    def of(
        cls,
        items: BoolArray,
        value: FloatArray,
        weight: IntArray,
        capacity: IntArray,
        most: float,
    ) -> _Core:
        """The core of some items that fit, for sets of a value of at most ``most`` below the best
        one.
        """
        useful = items & (value > 0)
        each = np.arange(len(value))
        with np.errstate(divide="ignore", invalid="ignore"):
            density = np.where(useful, value / weight, -1.0)
        order = np.argsort(-density, axis=1, kind="stable")
        v, w = (
            np.take_along_axis(np.where(useful, table, 0), order, axis=1)
            for table in (value, weight)
        )
        room = capacity[:, np.newaxis] - np.cumsum(w, axis=1)
        whole = room >= 0
        count = whole.sum(axis=1)
        divided = np.minimum(count, value.shape[1] - 1)
        price = np.where(count > divided, 0.0, density[each, order[each, divided]])
        left = np.where(whole, room, capacity[:, np.newaxis]).min(axis=1)
        also = np.where(whole | (w > left[:, np.newaxis]), 0.0, v).max(axis=1)
        known = np.where(whole, v, 0.0).sum(axis=1) + also
        gain = value - price[:, np.newaxis] * weight
        bound = price * capacity + np.where(useful, gain, 0.0).clip(0.0).sum(axis=1)
        near = bound - known + most + ROUNDING * (1.0 + np.abs(bound))
        is_open = items & (np.abs(gain) <= near[:, np.newaxis])
        sure = useful & ~is_open & (gain > 0)
        row, item = np.nonzero(is_open)
        number = np.bincount(row, minlength=len(value))
        place = np.arange(len(row)) - (np.cumsum(number) - number)[row]
        shape = len(value), int(number.max(initial=0))
        values, weights = np.zeros(shape), np.zeros(shape, np.int64)
        values[row, place], weights[row, place] = value[row, item], weight[row, item]
        free = capacity - np.where(sure, weight, 0).sum(axis=1)
        return cls(sure, values, weights, np.clip(free, 0, weights.sum(axis=1)), row, item, place)

    def best_by_steps(self, total: FloatArray, taken: BoolArray) -> None:
        """Write the total value of the best set of open items, and these items."""
        for rows, part in self.parts():
            table = _ValueTable(part)
            better = np.zeros((part.value.shape[1], *table.best.shape), bool)
            for step, each in enumerate(better):
                with_item = table.with_item(step)
                np.greater(with_item, table.best, out=each)
                np.maximum(with_item, table.best, out=table.best)
            total[rows] = table.best[np.arange(len(rows)), part.room]
            taken[rows] = part.chosen(better)

    def losses_by_steps(self, loss: FloatArray, best: BoolArray) -> None:
        """Write the best set of open items, and what it loses if one of them is left out or another
        one is taken; the value of that one is not counted.
        """
        for rows, part in self.parts():
            before, behind = _tables(part), _tables(part.reversed())
            width = int(part.room.max()) + 1
            first = before.shape[2] - width
            best[rows] = part.chosen(before[1:, :, first:] > before[:-1, :, first:])
            # An item of the best set may only lose by being left out, another one by being taken
            beside = np.where(best[rows], 0, part.weight)
            at = before.shape[2] * np.arange(len(rows)) + first + part.room
            at = at[:, np.newaxis] - np.arange(width)
            greatest = before[-1][np.arange(len(rows)), first + part.room]
            for step, table in enumerate(before[:-1, :, first:]):
                others = behind[len(behind) - 2 - step]
                both = table + others.take(at - beside[:, step, np.newaxis], mode="clip")
                loss[rows, step] = greatest - both.max(axis=1)

    def reversed(self) -> _Core:
        """The last open item of each row first."""
        return self._replace(value=self.value[:, ::-1], weight=self.weight[:, ::-1])

    def chosen(self, better: BoolArray) -> BoolArray:
        """The open items of the best sets, given where an item makes the sets before it better,
        shape (items, rows, most capacity + 1).
        """
        found, row, room = np.zeros(self.value.shape, bool), np.arange(len(self.room)), self.room
        for step in range(len(better) - 1, -1, -1):
            found[:, step] = better[step, row, room]
            room = room - np.where(found[:, step], self.weight[:, step], 0)
        return found

    def parts(self) -> Iterator[tuple[IntArray, _Core]]:
        """The rows that are solved side by side, of similar rooms, and their part of the tables."""
        order = np.argsort(self.room, kind="stable").astype(np.int64)
        cells, begin = (self.room[order] + 1) * max(self.value.shape[1], 1), 0
        for end in range(1, len(order) + 1):
            if end == len(order) or (end + 1 - begin) * cells[end] > SIDE_BY_SIDE:
                rows, begin = order[begin:end], end
                value, weight, room = self.value[rows], self.weight[rows], self.room[rows]
                yield rows, self._replace(value=value, weight=weight, room=room)


class _ValueTable:
    """Greatest value of the items so far within each capacity, ``best``, shape (rows, most
    capacity + 1).
    """

    def __init__(self, core: _Core) -> None:
        rows, width = len(core.room), int(core.room.max(initial=0)) + 1
        self.core, self._before = core, int(core.weight.max(initial=0)) + width
        # Less than no room has no value: the columns before those of the capacities
        self.cells = np.full((rows, self._before + width), -np.inf)
        self.best = self.cells[:, self._before :]
        self.best[:] = 0.0
        first = self._before + self.cells.shape[1] * np.arange(rows)
        self._at = first[:, np.newaxis] + np.arange(width)

    def with_item(self, step: int) -> FloatArray:
        """The values if the next item of each row is taken."""
        weight, value = self.core.weight[:, step], self.core.value[:, step]
        if len(weight) == 1:  # a slice is faster than many single cells
            begin = self._before - int(weight[0])
            beside = self.cells[:, begin : begin + self.best.shape[1]]
        else:
            beside = self.cells.take(self._at - weight[:, np.newaxis], mode="clip")
        return np.asarray(beside + value[:, np.newaxis])


def _tables(core: _Core) -> FloatArray:
    """Greatest value of the first items within each capacity, shape (items + 1, rows, columns);
    the last columns are those of the capacities, the first ones stand for less than no room.
    """
    table, steps = _ValueTable(core), core.value.shape[1]
    found = np.zeros((steps + 1, *table.cells.shape))
    found[0] = table.cells
    for step in range(steps):
        np.maximum(table.with_item(step), table.best, out=table.best)
        found[step + 1] = table.cells
    return found
