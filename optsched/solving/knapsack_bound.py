"""The bound of a generalised assignment at duals of its rows: each agent solves a knapsack.

The rows of the agents are kept, and all others have their multipliers y. With d = c - A'y, without
the duals of the agents' rows,

    c'x  <=  sum_i max(y_i rl_i, y_i ru_i)  +  sum_agents max { d'z : use'z <= room, z binary }

for any y. Where all objective values are multiples of a step, the bound is rounded to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.program import AllocationProgram, LinearArrays
from optsched.program.assignment import AgentKnapsacks
from optsched.program.integers import rounded_up, step_of
from optsched.solution.certificate import BoundSum

if TYPE_CHECKING:
    from optsched.program.linear_form import LinearForm


def knapsack_bound(program: AllocationProgram, arrays: LinearForm, y: FloatArray) -> float | None:
    """An upper bound on the optimum; None where the program is no assignment, or y proves nothing.

    Parameters
    ----------
    program : AllocationProgram
    arrays : LinearForm
        Its linear program.
    y : FloatArray, shape (rows,)
    """
    priced = _Priced.of(program, arrays, y)
    if priced is None:
        return None
    most, _ = priced.knapsacks.best(priced.worth)
    step = step_of(arrays.cost, arrays.integer)
    return arrays.offset - rounded_up(-(priced.of_rows + most), step)


def knapsack_losses(
    program: AllocationProgram, arrays: LinearForm, y: FloatArray
) -> tuple[float, FloatArray] | None:
    """The bound, not rounded, and how far below it points with a column are at least, shape
    (columns,).

    A point with column c is worth at most the bound minus the loss of c. The loss is infinite if no
    point has the column. None as in `knapsack_bound`.
    """
    priced = _Priced.of(program, arrays, y)
    if priced is None:
        return None
    most, _ = priced.knapsacks.best(priced.worth)
    loss = np.full(program.classes.columns, np.inf)
    there = priced.knapsacks.there
    loss[priced.column[there]] = priced.knapsacks.losses(priced.worth)[0][there]
    return priced.of_rows + most + arrays.offset, loss


class _Priced(NamedTuple):
    """The knapsacks of the agents at duals of all other rows.

    Attributes
    ----------
    of_rows : float
        What the other rows add to the bound.
    worth : FloatArray, shape (agents, jobs)
        Of each job to each agent.
    column : IntArray, shape (agents, jobs)
    knapsacks : AgentKnapsacks
    """

    of_rows: float
    worth: FloatArray
    column: IntArray
    knapsacks: AgentKnapsacks

    @classmethod
    def of(cls, program: AllocationProgram, arrays: LinearForm, y: FloatArray) -> _Priced | None:
        """None where the program is no assignment, or y proves nothing."""
        of = program.assignment
        if of is None or not isinstance(arrays, LinearArrays):
            return None
        kept = y.copy()
        of_agents = program.limit_duals(np.arange(len(y), dtype=np.float64))[of.row]
        kept[of_agents.astype(np.int64)] = 0.0
        rows = BoundSum(arrays, kept)
        if rows.value is None:
            return None
        reduced = arrays.cost - arrays.A.T @ rows.y
        of_rows = rows.value - arrays.offset
        return cls(of_rows, reduced[of.column], of.column, AgentKnapsacks.of(of))


def with_job_prices(program: AllocationProgram, y: FloatArray, price: FloatArray) -> FloatArray:
    """Duals of all rows, in which the prices of jobs are replaced.

    Equal jobs get the mean of their prices. The bound is concave in the prices and does not change
    if equal jobs are swapped, so the mean is no worse.

    Parameters
    ----------
    program : AllocationProgram
        One that is an assignment.
    y : FloatArray, shape (rows,)
    price : FloatArray, shape (jobs,)
        What the cost may fall by if the job need not be assigned.
    """
    C = program.classes
    count = C.count.astype(np.int64)
    of_class = np.add.reduceat(price, np.cumsum(count) - count) / count
    duals = y.copy()
    # The row ``time`` lets a job be assigned once at most, the side row asks for once at least
    duals[: len(C)] = np.maximum(-of_class, 0.0)
    at = len(C) + len(C.capacity)
    for rows in program.side:
        if not rows.only_limit:
            duals[at : at + len(C)] = -np.maximum(of_class, 0.0)
        at += len(rows.upper)
    return duals
