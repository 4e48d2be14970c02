"""From the result of a search for prices to values and duals of the program.

They belong to the linear program to which the allocation program would be lowered: ``x`` are the
totals of the columns (and the level), ``y`` the duals of time, capacity and levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.program import AllocationProgram
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.prices.market import Market


def values_of(
    end: Termination,
    x: FloatArray,
    duals: tuple[FloatArray, ...],
    value: float,
    bound: float,
    passes: int,
    words: str,
) -> Values:
    """Values of an answer; point and duals are feasible, whatever ended the search."""
    return Values(
        end,
        primal=PointStatus.FEASIBLE,
        dual=PointStatus.FEASIBLE,
        x=x,
        y=np.concatenate(duals),
        objective=value,
        bound=bound,
        iterations=passes,
        words=words,
    )


def duals_above_floors(
    program: AllocationProgram,
    market: Market,
    known: FloatArray,
    rent: FloatArray,
    gain: FloatArray,
    of_floors: Sequence[FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Duals of time, shape (K,), and of the rows that follow, where some rows are floors of
    classes.

    Parameters
    ----------
    program : AllocationProgram
    market : Market
    known : FloatArray, shape (R,)
        Prices of the resources of the market.
    rent : FloatArray, shape (K,)
        Worth of a class's time.
    gain : FloatArray, shape (N,)
        What one unit of each column is worth to the utility.
    of_floors : sequence of FloatArray, shape (K,) each
        Worth of what a job is asked for, in each measure.
    """
    floors = program.class_floors
    assert floors is not None
    of_rows = np.zeros(floors.matrix.shape[0])
    for measure, of_floor in zip(floors.measures, of_floors, strict=True):
        k = np.flatnonzero(of_floor > 0)
        of_rows[measure.row[k]] = -program.classes.count[k] * of_floor[k] / measure.lower[k]
    gain = gain - floors.matrix.T @ of_rows
    prices = capacity_duals(program, market, known, rent, lambda: gain)
    paid = rent
    if floors.closed.any():
        # The dual of the time is raised by the reduced cost of a closed column, and the dual of the
        # row that closes it falls by as much: both rows count the time of the same jobs.
        worth = gain - program.limit_rows.matrix.T @ prices
        paid = rent.copy()
        closed = np.flatnonzero(floors.closed)
        np.maximum.at(paid, program.classes.class_a[closed], worth[closed])
        k = np.flatnonzero(paid > rent)
        of_rows[floors.all_the_time[k]] -= paid[k] - rent[k]
    return paid, program.duals_in_order(prices, of_rows)


def capacity_duals(
    program: AllocationProgram,
    market: Market,
    known: FloatArray,
    rent: FloatArray,
    gain: Callable[[], FloatArray],
) -> FloatArray:
    """Duals of the rows that limit (`LimitRows`), shape (rows,).

    A market has no price of a resource whose capacity is 0, or of a row that bars its columns. Its
    dual is the least price at which no column that uses it has a positive reduced cost.

    Parameters
    ----------
    program : AllocationProgram
    market : Market
    known : FloatArray, shape (R,)
        Prices of the resources of the market.
    rent : FloatArray, shape (K,)
        Worth of a class's time.
    gain : callable
        What one unit of each column is worth, shape (N,); few programs ask for it.
    """
    C, limits = program.classes, program.limit_rows
    # Resources without a limit are in no market: their price is 0.
    prices = np.zeros(len(limits.most))
    prices[market.row] = known
    none = np.flatnonzero(limits.most <= 0)
    if not len(none):
        return prices
    gains = gain() - rent[C.class_a] - limits.matrix.T @ prices
    held = sp.coo_matrix(limits.matrix[none])
    dearest = np.zeros(len(none))
    np.maximum.at(dearest, held.row, gains[held.col] / held.data)
    prices[none] = dearest
    return prices
