"""Why a program is infeasible: a proof that is recomputed, and a small set of rows that cannot all hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from optsched.arrays import IntArray
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.program import AllocationProgram, LinearArrays, Ratio
from optsched.solution.certificate import dual_bound, is_bounded
from optsched.solution.explanation import Conflict, describe_row
from optsched.solution.values import Termination
from optsched.solvers import Limits, Session, Solver
from optsched.solvers.scaling import Scaling


def analyst_of(load: Callable[[str], type[Solver]]) -> type[Solver] | None:
    """HiGHS as a caller loads it, in a process that can be killed perhaps; None where it knows only other solvers."""
    try:
        found = load("highs")
    except SolverUnavailable:
        return None
    return found if found.name == "highs" else None


def least_violation(
    arrays: LinearArrays, limits: Limits, analyst: type[Solver] | None = None
) -> tuple[float, str, IntArray]:
    """The least total violation of the rows, each relative to its size; how it is proved; and which rows give way.

    The dual bound of the elastic relaxation, recomputed, is the proof of infeasibility (``dual``; ``claimed`` for an
    integer program); a value of 0 refutes a solver that says infeasible. ``analyst`` is HiGHS as the caller wants it
    run (`analyst_of`).
    """
    elastic = elastic_relaxation(arrays)
    scaling = Scaling.of(elastic)
    values = scaling.back(
        _highs(analyst)().open(scaling.apply(elastic)).run(replace(limits, gap=None, options={}, on_progress=None))
    )
    if values.x is None:
        raise SolverCrashed(f"the infeasibility analysis stopped with {values.words!r}")
    slacks = elastic.A[:, arrays.shape[1] :]
    bound = values.bound
    if values.y is not None:
        # Shrink the duals until no slack has a wrong sign: without cost on x the proof only shrinks along.
        price = np.abs(slacks.T @ values.y).max(initial=0.0)
        bound = dual_bound(elastic, values.y * (1.0 - 1e-12) / max(1.0, price))
    entries = slacks.tocoo()
    loosened = np.unique(entries.row[values.x[arrays.shape[1] :][entries.col] > 1e-9]).astype(np.int64)
    return (0.0 if bound is None else bound), ("dual" if values.y is not None else "claimed"), loosened


def refuse_refuted(claim: Termination, arrays: LinearArrays, program: AllocationProgram | None, solver: str) -> None:
    """Raise where a feasible program was called infeasible, or a bounded one unbounded.

    A ratio whose rows can be kept has no point all the same if they can only be kept at a cost of 0.
    """
    if program is not None and isinstance(program.utility, Ratio):
        raise UsageError(
            f"solver {solver} finds no allocation with a cost above 0, though the rows can be kept: "
            "a ratio to a cost of 0 does not exist"
        )
    if claim is Termination.INFEASIBLE:
        raise SolverCrashed(f"solver {solver} claims that a feasible program is infeasible")
    if is_bounded(arrays):
        raise SolverCrashed(f"solver {solver} claims that a feasible, bounded program is unbounded")


def conflicting_rows(
    arrays: LinearArrays,
    program: AllocationProgram | None,
    session: Session | None,
    loosened: IntArray,
    limits: Limits,
    analyst: type[Solver] | None = None,
) -> tuple[Conflict, ...]:
    """An irreducible infeasible set of rows; where the relaxation is feasible, the rows that must give way."""
    try:
        rows = _conflict(arrays, limits, analyst) if session is None else session.conflict()
    except SolverUnavailable:  # the solver that found it has no analysis of its own
        rows = _conflict(arrays, limits, analyst)
    found = [arrays.row_name(int(row)) for row in (rows if len(rows) else loosened)]
    if program is None:
        return tuple(Conflict(block, position, f"row {block}[{position}]") for block, position in found)
    return tuple(describe_row(program, block, position) for block, position in found)


def _conflict(arrays: LinearArrays, limits: Limits, analyst: type[Solver] | None) -> IntArray:
    session = _highs(analyst)().open(Scaling.of(arrays).apply(arrays))
    if analyst is not None:  # so that it knows how long it may take
        session.run(replace(limits, gap=None, options={}, on_progress=None))
    return session.conflict()


def _highs(analyst: type[Solver] | None) -> type[Solver]:
    from optsched.solvers.highs import Highs

    return Highs if analyst is None else analyst


def elastic_relaxation(arrays: LinearArrays) -> LinearArrays:
    """Minimise the total relative violation: every finite side of a row gets a slack s >= 0 that costs 1.

    A violation counts relative to the size of its row, so that GPUs and steps/s weigh alike.
    """
    rows, columns = arrays.shape
    above = np.flatnonzero(np.isfinite(arrays.row_upper))
    below = np.flatnonzero(np.isfinite(arrays.row_lower))
    size = arrays.sizes
    size = np.where(size > 0, size, 1.0)
    scale = np.concatenate([-size[above], size[below]])
    count = len(scale)
    slack = sp.csc_matrix((scale, (np.concatenate([above, below]), np.arange(count))), shape=(rows, count))
    zero, reach = np.zeros(count), np.full(count, max(1e6, float(count)))  # at x = 0 no side is violated by more than 1
    return replace(
        arrays,
        A=sp.csc_matrix(sp.hstack([arrays.A, slack])),
        lower=np.concatenate([arrays.lower, zero]),
        upper=np.concatenate([arrays.upper, np.full(count, np.inf)]),
        cost=np.concatenate([np.zeros(columns), np.ones(count)]),
        integer=np.concatenate([arrays.integer, zero.astype(bool)]),
        maximise=False,
        offset=0.0,
        implied_lower=np.concatenate([arrays.implied_lower, zero]),
        implied_upper=np.concatenate([arrays.implied_upper, reach]),
    )
