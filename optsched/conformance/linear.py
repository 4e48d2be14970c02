"""Linear programs with known answers:
every kind of row and column, degenerate, badly scaled, without an optimum.
"""

from __future__ import annotations

import numpy as np

from optsched.conformance.answers import KnownAnswer, program
from optsched.program import LinearProgram
from optsched.solution.solution import Status
from optsched.solvers import Capability

INF = np.inf


def dense() -> LinearProgram:
    """max 3x + 2y  s.t.  x + y <= 4, x + 3y <= 9, x <= 3: 11 at (3, 1), duals (2, 0)."""
    return program([3, 2], [[1, 1], [1, 3]], upper=[4, 9], bounds=(0, [3, INF]))


def covering() -> LinearProgram:
    """min 2x + 3y  s.t.  x + y >= 4, x + 3y >= 6: 9 at (3, 1), duals (3/2, 1/2)."""
    return program([2, 3], [[1, 1], [1, 3]], lower=[4, 6], maximise=False)


def maximum_with_floors() -> LinearProgram:
    """max -2x - 3y over the same rows: -9, and the duals change their sign."""
    return program([-2, -3], [[1, 1], [1, 3]], lower=[4, 6])


def minimum_with_roofs() -> LinearProgram:
    """min -3x - 2y over the rows of `dense`: -11 at (3, 1), duals (-2, 0)."""
    return program([-3, -2], [[1, 1], [1, 3]], upper=[4, 9], maximise=False, bounds=(0, [3, INF]))


def equalities() -> LinearProgram:
    """min x + 4y + 2z  s.t.  x + y + z = 6, x - y = 2: 10 at (2, 0, 4), duals (2, -1)."""
    return program([1, 4, 2], [[1, 1, 1], [1, -1, 0]], lower=[6, 2], upper=[6, 2], maximise=False)


def equality_and_free() -> LinearProgram:
    """min x + 2y + 3z + 7  s.t.  x + y + z = 1, 2 <= y - z <= 4, -5 <= y, z <= 50 by rows: -5 at (9, -3, -5)."""
    return program(
        [1, 2, 3],
        [[1, 1, 1], [0, 1, -1], [0, 1, 0], [0, 0, 1]],
        lower=[1, 2, -5, -5],
        upper=[1, 4, 50, 50],
        bounds=([0, -INF, -INF], [10, INF, INF]),
        maximise=False,
        offset=7.0,
    )


def ranges() -> LinearProgram:
    """max x - y  s.t.  1 <= x + y <= 3, -2 <= x - 2y <= 2: 7/3 at (8/3, 1/3), duals (1/3, 2/3)."""
    return program([1, -1], [[1, 1], [1, -2]], lower=[1, -2], upper=[3, 2])


def degenerate() -> LinearProgram:
    """Twenty equal rows; the optimum is 1 whatever is dropped."""
    return program([1] * 5, [[1] * 5] * 20, upper=1.0)


def cycling() -> LinearProgram:
    """Beale's example, on which the textbook simplex method runs in circles:
    -1/20 at (1/25, 0, 1, 0).
    """
    rows: list[list[float]] = [[1 / 4, -60, -1 / 25, 9], [1 / 2, -90, -1 / 50, 3], [0, 0, 1, 0]]
    return program([-3 / 4, 150, -1 / 50, 6], rows, upper=[0, 0, 1], maximise=False)


def redundant() -> LinearProgram:
    """An equality twice, once doubled: x + y = 2; max x: 2."""
    return program([1, 0], [[1, 1], [2, 2]], lower=[2, 4], upper=[2, 4])


def fixed_and_empty() -> LinearProgram:
    """A fixed column, an empty row, an empty column: max x + y  s.t.  x + y <= 4, x = 2, y <= 5: 4."""
    return program([1, 1, 0], [[1, 1, 0], [0, 0, 0]], upper=[4, 0], bounds=([2, 0, 0], [2, 5, 1]))


def no_rows() -> LinearProgram:
    """Bounds only: max x - y over [0, 1] x [-2, 2]: 3 at (1, -2)."""
    return program([1, -1], [], bounds=([0, -2], [1, 2]))


def no_objective() -> LinearProgram:
    """Any point of x + y = 1 will do; the offset is the objective."""
    return program([0, 0], [[1, 1]], lower=1, upper=1, maximise=False, offset=-3.0)


def negative_bounds() -> LinearProgram:
    """min x + y  s.t.  abs(x - y) <= 1, -7 <= x <= -3, y <= -1: -15 at (-7, -8)."""
    return program(
        [1, 1],
        [[-1, 1], [1, -1]],
        lower=[-1, -1],
        maximise=False,
        bounds=([-7, -INF], [-3, -1]),
    )


def transport() -> LinearProgram:
    """Plants with 20 and 30 supply towns that need 10, 25,
    15 at costs ((2, 4, 5), (3, 1, 7)): 10 + 75 + 15 + 25.
    """
    cost = [2, 4, 5, 3, 1, 7]
    supply = [[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]]
    demand = [[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1]]
    return program(
        cost,
        supply + demand,
        lower=[-INF, -INF, 10, 25, 15],
        upper=[20, 30, INF, INF, INF],
        maximise=False,
    )


def badly_scaled() -> LinearProgram:
    """`dense` with columns in units of 1e-6 and 1e5, rows in units of 1e4 and 1e-3: still 11."""
    x = 1e6
    y = 1e-5
    rows = [[1e4 * x, 1e4 * y], [1e-3 * x, 3e-3 * y]]
    return program([3 * x, 2 * y], rows, upper=[4e4, 9e-3], bounds=(0, [3 / x, INF]))


def tiny() -> LinearProgram:
    """Everything 1e-9 as large as usual: 1.1e-8 at (3e-9, 1e-9)."""
    return program([3, 2], [[1, 1], [1, 3]], upper=[4e-9, 9e-9], bounds=(0, [3e-9, INF]))


def infeasible() -> LinearProgram:
    """x + y >= 3 and x + y <= 2, and a row that has nothing to do with it."""
    return program(
        [1, 1],
        [[1, 1], [1, 1], [1, 0]],
        lower=[3, -INF, -INF],
        upper=[INF, 2, 9],
        bounds=(0, 10),
    )


def infeasible_by_bounds() -> LinearProgram:
    """x - y >= 2 with x <= 1 and y >= 0."""
    return program([1, 1], [[1, -1]], lower=2, bounds=(0, [1, 5]))


def unbounded() -> LinearProgram:
    """max x - y with x - y >= 0 only."""
    return program([1, -1], [[1, -1]], lower=0)


def unbounded_free() -> LinearProgram:
    """min x + y with free x, y and x - y = 1."""
    return program([1, 1], [[1, -1]], lower=1, upper=1, maximise=False, bounds=(-INF, INF))


LP = Capability.CONTINUOUS

# Duals are compared where they are unique. They are derivatives of the optimum by the sides of the
# rows. First-order methods may stop short of what is badly scaled, if they say so.
CASES = tuple(
    answer.case(LP)
    for answer in (
        KnownAnswer("maximum", dense, 11.0, x=[3, 1], y=[2, 0]),
        KnownAnswer("minimum", covering, 9.0, x=[3, 1], y=[1.5, 0.5]),
        KnownAnswer("maximum with floors", maximum_with_floors, -9.0, x=[3, 1], y=[-1.5, -0.5]),
        KnownAnswer("minimum with roofs", minimum_with_roofs, -11.0, x=[3, 1], y=[-2, 0]),
        KnownAnswer("equalities", equalities, 10.0, x=[2, 0, 4], y=[2, -1]),
        KnownAnswer("equality, free columns, offset", equality_and_free, -5.0, x=[9, -3, -5]),
        KnownAnswer("ranges", ranges, 7 / 3, x=[8 / 3, 1 / 3], y=[1 / 3, 2 / 3]),
        KnownAnswer("degenerate", degenerate, 1.0),
        KnownAnswer("cycling", cycling, -0.05, x=[0.04, 0, 1, 0]),
        KnownAnswer("redundant equalities", redundant, 2.0, x=[2, 0]),
        KnownAnswer("fixed column, empty row and column", fixed_and_empty, 4.0),
        KnownAnswer("no rows", no_rows, 3.0, x=[1, -2]),
        KnownAnswer("no objective", no_objective, -3.0),
        KnownAnswer("negative bounds", negative_bounds, -15.0, x=[-7, -8]),
        KnownAnswer("transport", transport, 125.0),
        KnownAnswer("badly scaled", badly_scaled, 11.0, may_stop=True),
        KnownAnswer("tiny numbers", tiny, 1.1e-8, may_stop=True),
        KnownAnswer("infeasible rows", infeasible, status=Status.INFEASIBLE),
        KnownAnswer("infeasible bounds", infeasible_by_bounds, status=Status.INFEASIBLE),
        KnownAnswer("unbounded", unbounded, status=Status.UNBOUNDED, may_stop=True),
        KnownAnswer(
            "unbounded in free columns",
            unbounded_free,
            status=Status.UNBOUNDED,
            may_stop=True,
        ),
    )
)
