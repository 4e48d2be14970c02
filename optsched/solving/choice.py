"""The solver that `auto` picks: it depends on the program only, never on time or load.

The steps before that solver runs (closed forms, relaxations of large integer programs) are in
`optsched.solving.engine.Engine`. If the picked solver is not installed or fails, those of `others`
are tried in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.program import AllocationProgram
from optsched.solvers import Capability, Solver

if TYPE_CHECKING:
    from optsched.program import TimelineProgram

LARGE_LP = 3000
"""Rows from which a cold linear program goes to an interior-point method."""
BY_PRICES_LEVEL = 500
"""Different jobs from which the smallest level is found by prices."""
BY_PRICES_TOTAL = 1500
"""Different jobs from which a linear total is found by prices;
a vertex of a smaller program comes sooner.
"""
BY_PRICES_CONCAVE = 300
"""Different jobs from which a total of concave utilities is found
by prices (docs/concepts/prices.md).
"""
MOST_FROM_BASIS = 4000
"""Different jobs up to which round after round is solved from the basis before."""
TIME_INDEXED = 50_000
"""Columns up to which a timeline program with costs of ends is solved indexed by time."""


def pick(
    *,
    rows: int,
    integer: bool,
    conic: bool,
    start: bool,
    warm: bool = False,
    keep_basis: bool = False,
    inside: bool = False,
    vertex: bool = False,
) -> tuple[str, str]:
    """(solver, reason) for a linear, integer or conic program.

    Conic and large cold linear programs go to Clarabel (fastest when fed arrays), all others to
    HiGHS (a vertex, warm starts, integers). Where a basis is wanted for the next program, large
    ones go to the interior point of HiGHS, whose crossover ends in one at half the time of simplex
    from scratch. For an optimum ``inside`` the optimal face an interior-point method without
    crossover is picked; all other methods end in a vertex. Where a ``vertex`` is wanted, simplex
    finds it.
    """
    if conic:
        return "clarabel", "conic program"
    if integer:
        return "highs", "integer program"
    if start:
        return "highs", "linear program with a point to start from"
    if inside:
        return "clarabel", "linear program whose optimum is to share ties out"
    if warm:
        return "highs", "linear program with a basis to start from"
    if rows > LARGE_LP and vertex:
        return "highs", f"linear program of {rows} rows, whose optimum is to be a vertex"
    if rows > LARGE_LP and keep_basis:
        return "highs-ipm", f"cold linear program of {rows} rows, whose basis is wanted"
    if rows > LARGE_LP:
        return "clarabel", f"cold linear program of {rows} rows, more than {LARGE_LP}"
    return "highs", f"linear program of {rows} rows"


def pick_for_allocation(
    program: AllocationProgram, *, start: bool, basis: bool
) -> tuple[str, str] | None:
    """(solver, reason) of a back-end that may take an allocation program as it is;
    None for rows and columns.

    Prices are exact, and faster the more jobs differ; of a small program a vertex is as fast. Up to
    `MOST_FROM_BASIS` different jobs simplex is faster where it has a point to ``start`` from, or
    where a ``basis`` is known or wanted for the next program. Concave utilities have neither.
    """
    count = len(program.classes)
    least = BY_PRICES_LEVEL if program.utility.smallest_level else BY_PRICES_TOTAL
    if program.conic:
        least = BY_PRICES_CONCAVE
    elif (start or basis) and count <= MOST_FROM_BASIS:
        return None
    if count < least:
        return None
    return "prices", f"allocation of {count} different jobs, by prices of the resources"


def pick_for_timeline(program: TimelineProgram) -> tuple[str, str]:
    """(solver, reason) for activities in time.

    A makespan goes to CP-SAT; costs of ends and tardiness go to a time-indexed program while it is
    small, as its relaxation is tight where CP-SAT has no bound (20 jobs on 4 machines: 0.3 s
    against not proven in 30 s).
    """
    from optsched.program.time_indexed import count_columns  # few programs are timelines

    columns = count_columns(program)
    if program.cost.makespan or columns > TIME_INDEXED:
        return "cp-sat", "timeline program"
    return "highs", f"timeline program of {columns} starts"


def require_all(solver: type[Solver], *, integer: bool, conic: bool, start: bool) -> None:
    """Refuse a solver that lacks what a program needs.

    No solver starts a conic program from a point: it is solved without.
    """
    if integer:
        solver.require(Capability.INTEGER, "an integer program")
    if conic:
        solver.require(Capability.CONIC, "a concave utility that is not linear")
    if start and not conic:
        solver.require(Capability.START, "a point to start from")


def others(first: str, *, integer: bool, conic: bool) -> tuple[str, ...]:
    """The solvers that are tried after the first one, in their order:
    those of another kind before its relatives.
    """
    if conic:
        order: tuple[str, ...] = ("clarabel", "scs")
    else:
        order = ("highs", "scip", "cbc") if integer else ("clarabel", "highs-ipm", "highs")
    return tuple(name for name in order if name != first)


def others_for_timeline(first: str, program: TimelineProgram) -> tuple[str, ...]:
    """The same for activities in time:
    one that knows no timelines takes small ones alone, indexed by time.
    """
    from optsched.program.time_indexed import count_columns

    if first != "cp-sat":
        return ("cp-sat",)
    return ("highs",) if count_columns(program) <= TIME_INDEXED else ()
