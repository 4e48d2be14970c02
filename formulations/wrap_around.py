"""Jobs that run for fractions of an interval on identical machines, laid end to end: wrap-around.

The machines of a place are laid out as one line, of length 1 each. Every job takes its fraction of
the line. One that reaches from a machine into the next runs at the end of the interval on the
first and at its beginning on the second. These times do not overlap, as no fraction is above 1. So
jobs that are in one place each run for exactly their fractions, if these add up to at most the
number of machines.

R. McNaughton, "Scheduling with deadlines and loss functions", Management Science 6(1), 1959.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, sum_before

BITS = 61
"""A line is at most 2 ** BITS units long, so that sums of lengths are exact. In long intervals units
have to be small: 2 ** -40 of ten years is more than a millionth of a job of a minute.
"""
ALMOST = 1e-15
"""Fraction by which rounding may make a whole interval too short."""


def wrapped(
    place: IntArray,
    machines: IntArray,
    fraction: FloatArray,
    ran_before: BoolArray,
    runs_after: BoolArray,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """When rows run that share places of identical machines, as parts of their interval.

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

    Returns
    -------
    row : IntArray, shape (pieces,)
        A row has one piece, or two where it reaches from a machine into the next.
    begin, end : FloatArray, shape (pieces,)
        From 0 to 1.
    """
    whole, late = fraction >= 1.0 - ALMOST, runs_after & ~ran_before
    # Units of a machine, so many that its whole line has at most 2 ** BITS.
    unit = 2 ** (BITS - np.ceil(np.log2(machines)).astype(np.int64))
    length = np.where(whole, unit, (fraction * unit).astype(np.int64))
    length = _within_machines(place, machines * unit, length, whole)
    # Order on the line: whole rows, so that each has a machine, then as the parameters say.
    turn = np.select([whole, late, ran_before], [0, 3, 1], 2)
    row = np.lexsort((-length, turn, place))
    place, length, unit, last = place[row], length[row], unit[row], turn[row] == 3

    # Sums over all places may exceed 64 bits; their differences, over one place, do not.
    start = sum_before(length, place)
    at_end = _sums(place, length * last)
    start[last] = (machines[row] * unit - at_end + sum_before(length * last, place))[last]
    begin = start % unit
    end = begin + length
    wraps = end > unit
    return (
        np.concatenate([row, row[wraps]]),
        np.concatenate([begin / unit, np.zeros(wraps.sum())]),
        np.concatenate([np.minimum(end, unit) / unit, (end - unit)[wraps] / unit[wraps]]),
    )


def _within_machines(
    place: IntArray, line: IntArray, length: IntArray, whole: BoolArray
) -> IntArray:
    """Lengths that fit on lines of a length: those that are not whole shrink alike, by what is
    rounding.
    """
    room = line - _sums(place, length * whole)
    others = _sums(place, length * ~whole)
    # The product of floats may be rounded up.
    part = np.minimum((1.0 - ALMOST) * room / np.maximum(others, 1), 1.0)
    return np.where(whole | (others <= room), length, (length * part).astype(np.int64))


def _sums(place: IntArray, length: IntArray) -> IntArray:
    """The exact sum of the lengths in the place of each row."""
    total = np.zeros(place.max(initial=-1) + 1, np.int64)
    np.add.at(total, place, length)
    return total[place]
