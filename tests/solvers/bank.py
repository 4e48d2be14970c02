"""A bank of small programs with known answers that every back-end is run through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optsched.program import LinearProgram


@dataclass(frozen=True)
class Case:
    """A program and what must come out: an objective, or a status word."""

    name: str
    build: Callable[[], LinearProgram]
    objective: float | None
    status: str = "optimal"
    integer: bool = False


def dense() -> LinearProgram:
    """max 3x + 2y  s.t.  x + y <= 4, x + 3y <= 6, x <= 3: 11 at (3, 1)."""
    lp = LinearProgram()
    x = lp.variables(2, name="x", upper=[3.0, np.inf])
    lp.constrain(np.array([[1.0, 1.0], [1.0, 3.0]]) @ x <= [4.0, 6.0], name="rows")
    lp.maximise(np.array([[3.0, 2.0]]) @ x)
    return lp


def equality_and_free() -> LinearProgram:
    """min x + 2y + 3z  s.t.  x + y + z = 1, y - z >= 2 with free y, z >= -5 by row, + 7: -5 at (9, -3, -5)."""
    lp = LinearProgram()
    x = lp.variables(1, name="x", upper=10.0)
    free = lp.variables(2, name="free", lower=-np.inf)
    lp.constrain(x + np.array([[1.0, 1.0]]) @ free == 1.0, name="sum")
    lp.constrain((np.array([[1.0, -1.0]]) @ free).between(2.0, 4.0), name="range")
    lp.constrain(free >= -5.0, name="floor")
    lp.constrain(free <= 50.0, name="roof")
    lp.minimise(x + np.array([[2.0, 3.0]]) @ free + 7.0)
    return lp


def degenerate() -> LinearProgram:
    """Twenty equal rows; the optimum is 1 whatever is dropped."""
    lp = LinearProgram()
    x = lp.variables(5, name="x")
    lp.constrain(np.ones((20, 5)) @ x <= 1.0, name="same")
    lp.maximise(x.sum())
    return lp


def fixed_and_zero_rows() -> LinearProgram:
    """A fixed column, an empty row, an empty column."""
    lp = LinearProgram()
    x = lp.variables(3, name="x", lower=[2.0, 0.0, 0.0], upper=[2.0, 5.0, 1.0])
    lp.constrain(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]) @ x <= [4.0, 0.0], name="rows")
    lp.maximise(np.array([[1.0, 1.0, 0.0]]) @ x)
    return lp


def no_rows() -> LinearProgram:
    """Bounds only."""
    lp = LinearProgram()
    x = lp.variables(2, name="x", upper=[1.0, 2.0])
    lp.maximise(x.sum())
    return lp


def infeasible() -> LinearProgram:
    """x + y >= 3 and x + y <= 2."""
    lp = LinearProgram()
    x = lp.variables(2, name="x", upper=10.0)
    lp.constrain(x.sum() >= 3.0, name="low")
    lp.constrain(x.sum() <= 2.0, name="high")
    lp.constrain(x <= 9.0, name="idle")
    lp.maximise(x.sum())
    return lp


def unbounded() -> LinearProgram:
    """max x - y with x - y >= 0 only."""
    lp = LinearProgram()
    x = lp.variables(2, name="x")
    lp.constrain(np.array([[1.0, -1.0]]) @ x >= 0.0, name="row")
    lp.maximise(np.array([[1.0, -1.0]]) @ x)
    return lp


def knapsack() -> LinearProgram:
    """8 items, capacity 26: 52 by enumeration."""
    lp = LinearProgram()
    x = lp.variables(8, name="take", upper=1.0, integer=True)
    lp.constrain(np.array([[12.0, 7, 11, 8, 9, 6, 5, 14]]) @ x <= 26.0, name="weight")
    lp.maximise(np.array([[24.0, 13, 23, 15, 16, 11, 9, 28]]) @ x)
    return lp


def integer_infeasible() -> LinearProgram:
    """2x = 3 with integer x."""
    lp = LinearProgram()
    x = lp.variables(1, name="x", upper=5.0, integer=True)
    lp.constrain(2.0 * x == 3.0, name="half")
    lp.maximise(x)
    return lp


BANK = (
    Case("dense", dense, 11.0),
    Case("equality and free columns", equality_and_free, -5.0),
    Case("degenerate", degenerate, 1.0),
    Case("fixed and zero rows", fixed_and_zero_rows, 4.0),
    Case("no rows", no_rows, 3.0),
    Case("infeasible", infeasible, None, "infeasible"),
    Case("unbounded", unbounded, None, "unbounded"),
    Case("knapsack", knapsack, 52.0, integer=True),
    Case("integer infeasible", integer_infeasible, None, "infeasible", integer=True),
)
