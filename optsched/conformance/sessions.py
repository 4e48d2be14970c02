"""Programs that are changed and run again, bases, infeasible subsets,
and the same answer every time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller

import numpy as np
import scipy.sparse as sp

from optsched.conformance.case import (
    Case,
    Subject,
    case,
    expect,
    expect_close,
    expect_same_bytes,
)
from optsched.conformance.integer import knapsack
from optsched.conformance.linear import degenerate, dense, infeasible
from optsched.program import LinearArrays, LinearProgram
from optsched.solution.values import Basis
from optsched.solvers import Capability, Limits, Session

INF = np.inf


def some_program(subject: Subject) -> LinearProgram:
    """A small program that the solver takes."""
    # Some back-ends take whole numbers only.
    return dense() if subject.has(Capability.CONTINUOUS) else knapsack()


SET_COST = methodcaller("set_cost", np.array([1.0, 5.0]))
SET_ROWS = methodcaller("set_rows", np.array([-INF, -INF]), np.array([2.0, 3.0]))
SET_BOUNDS = methodcaller("set_bounds", np.array([0.0, 2.0]), np.array([3.0, INF]))
# The rows are 2x + y <= 4 and x + y <= 9 then.
SET_COEFFICIENTS = methodcaller(
    "set_coefficients",
    np.arange(2),
    np.arange(2),
    np.array([2.0, 1.0]),
)
ADD_COLUMNS = methodcaller(
    "add_columns",
    sp.csc_matrix(np.ones((2, 1))),
    np.array([7.0]),
    np.ones(1),
)
ADD_ROWS = methodcaller("add_rows", sp.csr_matrix([[1.0, -1.0]]), np.array([-INF]), np.zeros(1))

CHANGES: dict[str, tuple[Callable[[Session], None], float, Sequence[float], str]] = {
    "cost": (SET_COST, 15.0, (0, 3), "cost"),
    "row bounds": (SET_ROWS, 6.0, (2, 0), "row bounds"),
    "column bounds": (SET_BOUNDS, 10.0, (2, 2), "column bounds"),
    "coefficients": (SET_COEFFICIENTS, 8.0, (0, 4), "coefficients"),
    "more columns": (ADD_COLUMNS, 16.0, (3, 0, 1), "columns were added"),
    "more rows": (ADD_ROWS, 10.0, (2, 2), "rows were added"),
}
"""How `dense` is changed, its optimum and optimal point then,
and the reason that a rebuilt session names.
"""


def _changed(name: str) -> Case:
    change, optimum, point, reason = CHANGES[name]

    def check(subject: Subject) -> None:
        session = subject.open(dense().arrays)
        expect_close(session.run(Limits()).objective, 11.0, "objective before the change")
        change(session)
        values = session.run(Limits())
        expect_close(values.objective, optimum, "objective after the change")
        expect_close(values.x, point, "point after the change", relative=1e-4)
        reported = any(reason in word for word in values.rebuilt)
        # Nobody has to add columns or rows in place.
        if "more" in name:
            expect(
                reported or not values.rebuilt,
                f"rebuilt because of {values.rebuilt}, expected {reason!r} or nothing",
            )
        elif not subject.has(Capability.INCREMENTAL):
            expect(
                reported, f"rebuilt because of {values.rebuilt or 'nothing'}, expected {reason!r}"
            )
        # Nothing was changed before this run: nothing may be loaded anew.
        expect(not session.run(Limits()).rebuilt, "an unchanged program was rebuilt")

    return Case(f"session: {name}", check, frozenset({Capability.CONTINUOUS}))


@case("changes are made in place", Capability.CONTINUOUS, Capability.INCREMENTAL)
def in_place(subject: Subject) -> None:
    """Costs, bounds and coefficients of a loaded program are changed without loading it again."""
    session = subject.open(dense().arrays)
    session.run(Limits())
    for change in (SET_COST, SET_ROWS, SET_BOUNDS, SET_COEFFICIENTS):
        change(session)
        rebuilt = session.run(Limits()).rebuilt
        expect(not rebuilt, f"rebuilt because of {', '.join(rebuilt)}")


@case("many changes of one session", Capability.CONTINUOUS)
def many_changes(subject: Subject) -> None:
    """Every change at once, without a run between: the answer of a fresh session."""
    session = subject.open(dense().arrays)
    for change, *_ in CHANGES.values():
        # The row of `CHANGES` has no entry for the new column.
        if change is not ADD_ROWS:
            change(session)
    session.add_rows(sp.csr_matrix([[1.0, -1.0, 1.0]]), np.array([-INF]), np.zeros(1))
    found = session.run(Limits())
    fresh = subject.run(session.arrays)
    expect(fresh.objective is not None, f"no objective: {fresh.words}")
    expect_close(found.objective, fresh.objective or 0.0, "objective")


@case("integer columns with new costs", Capability.INTEGER)
def integer_changes(subject: Subject) -> None:
    """A changed session keeps its columns integer."""
    session = subject.open(knapsack().arrays)
    expect_close(session.run(Limits()).objective, 52.0, "objective before the change")
    session.set_cost(np.ones(8))
    values = session.run(Limits())
    # The four lightest fill the knapsack: 5 + 6 + 7 + 8 = 26.
    expect_close(values.objective, 4.0, "number of items after the change")


@case("a basis comes back and is taken", Capability.BASIS)
def own_basis(subject: Subject) -> None:
    """From its own basis a fresh session needs no iteration."""
    arrays = dense().arrays
    first = subject.open(arrays)
    first.run(Limits())
    basis = first.basis()
    rows, columns = arrays.shape
    if basis is None:
        expect(False, "no basis from Session.basis")
        return
    sizes = (len(basis.columns), len(basis.rows))
    expect(sizes == (columns, rows), f"a basis of {sizes[0]} columns and {sizes[1]} rows")
    session = subject.open(arrays)
    session.set_start(basis)
    again = session.run(Limits())
    expect_close(again.objective, 11.0, "objective from its own basis")
    # A solver need not begin at the basis, unless it claims starts.
    if subject.has(Capability.START):
        expect(again.iterations == 0, f"{again.iterations} iterations from its own basis")


@case("a basis of the wrong size is dropped with a reason", Capability.BASIS)
def basis_of_wrong_size(subject: Subject) -> None:
    """It is neither an error nor taken in part."""
    session = subject.open(dense().arrays)
    session.set_start(Basis(np.zeros(7, np.int64), np.zeros(1, np.int64)))
    values = session.run(Limits())
    expect_close(values.objective, 11.0, "objective")
    expect(
        any("start dropped" in reason for reason in values.rebuilt),
        "Values.rebuilt does not say so",
    )


@case("an infeasible subset is irreducible", Capability.IIS)
def conflict(subject: Subject) -> None:
    """The two rows that contradict each other, and not the third."""
    rows = sorted(int(row) for row in subject.open(infeasible().arrays).conflict())
    expect(rows == [0, 1], f"rows {rows}, expected [0, 1]")


@case("the same seed gives the same bytes")
def deterministic(subject: Subject) -> None:
    """Also where many points are optimal."""
    arrays = degenerate().arrays if subject.has(Capability.CONTINUOUS) else knapsack().arrays
    expect_same_bytes(*(subject.run(arrays, seed=3) for _ in range(2)))


@case("a program is not changed by solving it")
def arrays_untouched(subject: Subject) -> None:
    """Sessions work on arrays that others hold as well."""
    arrays = some_program(subject).arrays
    before = _bytes(arrays)
    subject.run(arrays)
    expect(_bytes(arrays) == before, "the arrays of the program have changed")


def _bytes(arrays: LinearArrays) -> list[bytes]:
    matrix = arrays.A
    vectors = (
        arrays.cost,
        arrays.lower,
        arrays.upper,
        arrays.row_lower,
        arrays.row_upper,
        arrays.integer,
    )
    return [array.tobytes() for array in (matrix.data, matrix.indices, matrix.indptr, *vectors)]


CASES = (
    *(_changed(name) for name in CHANGES),
    in_place,
    many_changes,
    integer_changes,
    own_basis,
    basis_of_wrong_size,
    conflict,
    deterministic,
    arrays_untouched,
)
