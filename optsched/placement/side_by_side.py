"""How many of the rows that a solution runs side by side find whole GPUs: programs count shares of GPUs in sum."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.placement.shares import Shares
from optsched.solution import Allocation, Schedule
from optsched.solution.solution import Packed


def packed(allocation: Allocation | None, schedule: Schedule | None = None) -> Packed | None:
    """What a packing into whole GPUs holds of rows that run side by side; None if it is shown to hold all of them.

    Such rows are those of an allocation of whole jobs, and those of a schedule at any time, of which the first is taken
    at which not all are shown to fit. Fractions of time say nothing of what runs side by side.
    """
    if schedule is not None:
        for time, column in _instants(schedule):
            found = _packed(schedule.classes, column, time)
            if found is not None:
                return found
        return None
    if allocation is None or not allocation.integral:
        return None
    C = allocation.classes
    return _packed(C, np.repeat(np.arange(C.columns), np.rint(allocation.x).astype(np.int64)), None)


def _instants(schedule: Schedule) -> Iterator[tuple[float, IntArray]]:
    """Every time at which something starts, and the columns that run then."""
    if Shares.of(schedule.classes, schedule.column) is None:
        return
    for time in np.unique(schedule.start).tolist():
        yield time, schedule.column[(schedule.start <= time) & (time < schedule.end)]


def _packed(classes: Classes, column: IntArray, time: float | None) -> Packed | None:
    shares = Shares.of(classes, column, time)
    if shares is None or shares.fits(np.arange(len(column))):
        return None
    held, most = shares.most()
    return None if held == len(column) else Packed(len(column), held, most, time)
