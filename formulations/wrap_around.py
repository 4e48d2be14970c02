"""Jobs that run for fractions of an interval on identical machines, laid end to end: wrap-around.

The machines of a place are laid out as one line, of length 1 each. Every job takes its fraction of
the line. One that reaches from a machine into the next runs at the end of the interval on the
first and at its beginning on the second. These times do not overlap, as no fraction is above 1. So
jobs that are in one place each run for exactly their fractions, if these add up to at most the
number of machines.

R. McNaughton, "Scheduling with deadlines and loss functions", Management Science 6(1), 1959.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, sum_before

UNIT = 2**40
"""Lengths on a line are counted in units of 1 / UNIT, so that sums are exact."""
ALMOST = 1e-3
"""Part of a unit by which rounding may make a length too small."""


class Pieces(NamedTuple):
    """When rows run, as parts of their interval; a row has one piece or two.

    Attributes
    ----------
    row : IntArray, shape (pieces,)
    begin, end : FloatArray, shape (pieces,)
        From 0 to 1.
    """

    row: IntArray
    begin: FloatArray
    end: FloatArray


def wrapped(
    place: IntArray,
    machines: IntArray,
    fraction: FloatArray,
    ran_before: BoolArray,
    runs_after: BoolArray,
) -> Pieces:
    """Pieces of rows in places of identical machines.

    Parameters
    ----------
    place : IntArray, shape (rows,)
        Where each row runs.
    machines : IntArray, shape (rows,)
        How many rows its place takes at a time.
    fraction : FloatArray, shape (rows,)
        Part of the interval, at most 1. Those of a place add up to its machines, up to rounding.
    ran_before, runs_after : BoolArray, shape (rows,)
        Whether a row also runs in the interval before and in the next. Rows that ran before come
        first on the line; those that only go on come last, at its very end.
    """
    length = np.floor(fraction * UNIT + ALMOST).astype(np.int64)
    whole, late = length == UNIT, runs_after & ~ran_before
    length = _within_machines(place, machines, length, whole)
    group = np.select([whole, late, ran_before], [0, 3, 1], 2)
    row = np.lexsort((-length, group, place))
    place, length, last = place[row], length[row], (group == 3)[row]

    start = sum_before(length, place)
    at_end = np.bincount(place, length * last, place.max(initial=-1) + 1).astype(np.int64)
    start[last] = (machines[row] * UNIT - at_end[place] + sum_before(length * last, place))[last]
    begin = start % UNIT
    end = begin + length
    wraps = end > UNIT
    return Pieces(
        np.concatenate([row, row[wraps]]),
        np.concatenate([begin, np.zeros(wraps.sum(), np.int64)]) / UNIT,
        np.concatenate([np.minimum(end, UNIT), end[wraps] - UNIT]) / UNIT,
    )


def _within_machines(
    place: IntArray, machines: IntArray, length: IntArray, whole: BoolArray
) -> IntArray:
    """Lengths that fit on the machines: those that are not whole shrink alike, by what is rounding."""
    count = place.max(initial=-1) + 1
    taken = np.bincount(place, length * whole, count)[place]
    others = np.bincount(place, length * ~whole, count)[place]
    room = machines * UNIT - taken
    part = np.where(others > room, room / np.maximum(others, 1.0), 1.0)
    return np.where(whole, length, np.floor(length * part)).astype(np.int64)
