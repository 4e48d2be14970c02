"""Programs of whole jobs whose answer is a placement (`optsched.program.space`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.candidates import Classes
from optsched.program import AllocationProgram, LinearArrays, LinearProgram, Space, Variables
from optsched.program.space import best_fit, finds_nodes
from optsched.solution import Status, Termination, Values, certify_point, gap_of
from optsched.solution.certificate import OPTIMALITY, dual_bound, dual_residual
from optsched.solution.explanation import Conflict, describe_row
from optsched.solution.values import CLAIMS
from optsched.solvers import Progress
from optsched.solvers.interrupt import interrupted
from optsched.solving.certify import certified_linear, nothing_found
from optsched.solving.contents_on_demand import priced_contents
from optsched.solving.engine import Engine
from optsched.solving.outcome import Outcome, SolvedProgram
from optsched.solving.proof import proved_linear
from optsched.solving.runs import RESERVED


def solve_in_space(engine: Engine, program: AllocationProgram) -> SolvedProgram:
    """Solve a program of whole jobs together with the columns of its space.

    Objective, bound and certificate are those of the whole program; its point is cut down to the
    columns that the program has without its space. Dual values are of the rows that it has without
    its space, but of all rows where contents are priced, since these prove the bound
    (`bounding_arrays`).
    """
    unstarted = program.space
    assert unstarted is not None
    engine.by_clock |= unstarted.by_clock
    previous = engine.start
    if previous is not None and len(previous) == program.classes.columns:
        engine.start_used = True
    else:
        previous = None
    has_time = _for_best_fit(engine)
    start = engine.build(lambda: start_of(program, unstarted, previous, has_time))
    if start.space.complete:
        outcome = _of_all_contents(engine, program, start)
    else:
        start, outcome = _of_priced_contents(engine, program, start)
    space = start.space
    if outcome.x is not None and not finds_nodes(space.read(outcome.x)):
        space, outcome = _with_numbered_gangs(engine, program, outcome, start)
    if outcome.x is None:
        return SolvedProgram(program, replace(outcome, conflicts=_in_words(program, outcome)))
    x = outcome.x[: program.classes.columns]
    return SolvedProgram(program, replace(outcome, x=x), seats=space.read(outcome.x))


def _for_best_fit(engine: Engine) -> Callable[[], bool]:
    """Whether best fit may place one more job: the program and the certificate need time, too."""
    timer = engine.timer.part(1 - RESERVED)

    def has_time() -> bool:
        over = timer.is_over
        engine.by_clock |= over
        return not over

    return has_time


def _of_all_contents(engine: Engine, program: AllocationProgram, start: Start) -> Outcome:
    """Solve a program with all contents of nodes."""
    arrays = start.arrays
    run = engine.solve_linear(arrays, _rounding(arrays), start.point)
    return _with_own_duals(program, proved_linear(engine, arrays, run))


def _rounding(arrays: LinearArrays) -> Callable[[FloatArray], FloatArray]:
    """Rounds the whole numbers of a point."""
    return lambda point: np.where(arrays.integer, np.round(point), point)


def _of_priced_contents(
    engine: Engine, program: AllocationProgram, start: Start
) -> tuple[Start, Outcome]:
    """Solve a program with the contents of nodes that are worth a column, which it then has."""
    start, prices = _with_priced_contents(engine, program, start)
    bounding = engine.build(lambda: bounding_arrays(program, start.space))
    outcome = _of_some_contents(engine, start.arrays, start.point, bounding, prices)
    return start, outcome


def _with_priced_contents(
    engine: Engine, program: AllocationProgram, start: Start
) -> tuple[Start, FloatArray | None]:
    """The program with the contents that are worth a column, from the best point that is known; and
    the duals that bound the program with all contents best.
    """
    alone = engine.build(lambda: replace(program, space=None, integral=False).to_linear().arrays)
    priced = priced_contents(engine, start.arrays, start.space, alone)
    points, x = [start.point], priced.x
    if x is None:
        arrays = engine.build(lambda: with_space(program, priced.space, whole=True).arrays)
        grown = Start(priced.space, arrays, None)
    else:
        # The whole jobs of the relaxation are placed first: they are a better guess than best fit.
        whole = np.floor(x[: program.classes.columns] + OPTIMALITY)
        has_time = _for_best_fit(engine)
        grown = engine.build(lambda: start_of(program, priced.space, whole, has_time))
        points.append(grown.point)
    arrays = grown.arrays
    cost = (1.0 if arrays.maximise else -1.0) * arrays.cost
    # Contents that were made later are the last columns: they are 0.
    known = [
        np.append(some, np.zeros(len(cost) - len(some))) for some in points if some is not None
    ]
    best = max(known, key=lambda some: float(cost @ some), default=None)
    return grown._replace(point=best), priced.duals


def _of_some_contents(
    engine: Engine,
    arrays: LinearArrays,
    point: FloatArray | None,
    bounding: LinearArrays,
    prices: FloatArray | None,
) -> Outcome:
    """Solve a program with some contents of nodes; its bound holds for all contents, as duals of
    ``bounding`` prove.
    """
    bound = None if prices is None else dual_bound(bounding, prices)
    clean = _rounding(arrays)
    on_progress_of_caller = engine.limits.on_progress
    limits = engine.limits

    def with_bound(progress: Progress) -> None:
        assert on_progress_of_caller is not None
        on_progress_of_caller(progress._replace(bound=bound))

    engine.limits = replace(
        limits, on_progress=None if on_progress_of_caller is None else with_bound
    )
    try:
        outcome = engine.solve_linear(arrays, clean, point)
    finally:
        engine.limits = limits
    if outcome.x is None or outcome.value is None:
        if outcome.status not in (Status.INFEASIBLE, Status.LIMIT):
            return outcome
        # No proof: contents that were not made may still be feasible.
        values = replace(outcome.values, bound=bound)
        if outcome.status is Status.INFEASIBLE:
            values = replace(values, termination=Termination.IMPRECISE)
        return nothing_found(engine, values, integer=True)
    values = _at(engine, outcome, outcome.x, outcome.value, bound)
    outcome = certified_linear(engine, arrays, values, None, clean)
    if outcome.bound_source == "dual":
        # The bound of jobs alone is tighter: nodes cost nothing there
        prices = _in_order(bounding, outcome.duals)
    if prices is None:
        return outcome
    residuals = {**outcome.certificate.residuals, "duals": dual_residual(bounding, prices)}
    return replace(
        outcome,
        bound_source="dual",
        certificate=replace(outcome.certificate, proof="dual", residuals=residuals),
        duals={rows.name: prices[rows.slice] for rows in bounding.rows},
    )


def _at(
    engine: Engine, outcome: Outcome, x: FloatArray, value: float, bound: float | None
) -> Values:
    """Values with another point and bound; optimality is not claimed of them."""
    gap = gap_of(value, bound)
    near = gap is not None and gap <= max(OPTIMALITY, engine.limits.gap or 0.0)
    ended = outcome.values.termination
    if ended in CLAIMS:
        # The clock may have stopped best fit or the making of contents, not the solver
        cut_short = Termination.INTERRUPTED if interrupted() else Termination.TIME_LIMIT
        missed = cut_short if engine.by_clock else Termination.IMPRECISE
        ended = Termination.GAP_LIMIT if near else missed
    return replace(outcome.values, bound=bound, termination=ended, x=x, y=None)


def _with_numbered_gangs(
    engine: Engine, program: AllocationProgram, outcome: Outcome, known: Start
) -> tuple[Space, Outcome]:
    """The outcome where gangs that share GPUs of several nodes are numbered, after one whose gangs
    do not all find nodes; its bound holds of both.

    Where nodes can hold numbered gangs in too many ways to write down, contents are priced. The
    answer is never worse than where the first search began, if all gangs find nodes there.
    """
    assert outcome.x is not None and program.space is not None
    jobs = outcome.x[: program.classes.columns]
    whole = program.space
    numbered = engine.build(lambda: whole.numbered(engine.timer.part(1 - RESERVED)))
    engine.by_clock |= numbered.by_clock
    # Without this best fit there may be no answer: it takes what time it needs.
    start = engine.build(lambda: start_of(program, numbered, jobs))
    sign = 1.0 if start.arrays.maximise else -1.0
    bounded = outcome
    if start.space.complete:
        run = _of_all_contents(engine, program, start)
        first, own = (np.inf if one is None else sign * one for one in (outcome.bound, run.bound))
        if run.status is Status.OPTIMAL or own <= first:
            bounded = run
    else:  # whose prices are those of other rows than the program has in files
        start, run = _of_priced_contents(engine, program, start)
    ends = [] if run.x is None else [(start, run.x)]
    if known.point is not None and finds_nodes(known.space.read(known.point)):
        ends.append((known, known.point))
    if not ends:
        return start.space, run
    best, point = max(ends, key=lambda end: sign * end[0].arrays.objective(end[1]))
    if point is run.x and bounded is run:
        return best.space, run
    return best.space, _at_placement(engine, best.arrays, point, run, bounded)


def _at_placement(
    engine: Engine, arrays: LinearArrays, point: FloatArray, run: Outcome, bounded: Outcome
) -> Outcome:
    """A run that ends at this point of a program, with the bound of another one, its proof and its
    duals.
    """
    values = _at(engine, run, point, arrays.objective(point), bounded.bound)
    found = certified_linear(engine, arrays, values, None)
    proven = bounded.certificate
    residuals = {name: value for name, value in proven.residuals.items() if name == "duals"}
    certificate = replace(
        found.certificate,
        proof=proven.proof,
        residuals={**found.certificate.residuals, **residuals},
    )
    return replace(
        found,
        bound_source=bounded.bound_source,
        duals=bounded.duals,
        certificate=certificate,
    )


def _in_words(program: AllocationProgram, outcome: Outcome) -> tuple[Conflict, ...]:
    """Conflicting rows in the user's words; those of the space say the same, and are one
    conflict.
    """
    whole = outcome.certificate.proof != "dual"  # duals prove it of fractions of jobs, too
    found = [describe_row(program, one.block, one.position, whole) for one in outcome.conflicts]
    return tuple({conflict.words: conflict for conflict in found}.values())


def _in_order(arrays: LinearArrays, duals: Mapping[str, FloatArray] | None) -> FloatArray:
    """Duals by block as one array."""
    assert duals is not None
    return np.concatenate([np.zeros(0), *(duals[rows.name] for rows in arrays.rows)])


def _with_own_duals(program: AllocationProgram, outcome: Outcome) -> Outcome:
    """An outcome with the duals of the rows that the program has without its space."""
    if outcome.duals is None:
        return outcome
    names = {rows.name for rows in program.to_linear().arrays.rows}
    duals = {name: block for name, block in outcome.duals.items() if name in names}
    return replace(outcome, duals=duals)


class Start(NamedTuple):
    """A program with its space, and where its search starts.

    Attributes
    ----------
    space : Space
    arrays : LinearArrays
        The program with the columns and rows of the space.
    point : FloatArray or None
        None: nothing is known.
    """

    space: Space
    arrays: LinearArrays
    point: FloatArray | None


def start_of(
    program: AllocationProgram,
    space: Space,
    previous: FloatArray | None,
    has_time: Callable[[], bool] = lambda: True,
) -> Start:
    """The space with all contents that are in use, and the point of a placement by best fit, which
    places the jobs of a previous answer first. There is no point if it breaks a requirement.

    The answer is never worse than this point, however little time there is.
    """
    if program.extend is not None or space.reserved is not None:
        # The columns of extend are not known, and best fit reserves no cells
        return Start(space, with_space(program, space, whole=True).arrays, None)
    C = program.classes
    without_space = program.to_linear().arrays
    worth = (1.0 if without_space.maximise else -1.0) * without_space.cost[: C.columns]
    if not worth.any():  # of a smallest level, say
        worth = program.gain
    rows = program.requirements
    A = sp.csr_matrix(rows.A)
    x, space, seats = best_fit(space, worth, A, rows.row_upper, previous, has_time)
    point = np.concatenate([program.complete(x), seats])
    arrays = with_space(program, space, whole=True).arrays
    holds = certify_point(arrays, point, arrays.objective(point), "none").ok
    return Start(space, arrays, point if holds else None)


def bounding_arrays(program: AllocationProgram, space: Space) -> LinearArrays:
    """The program whose duals bound that of all contents, where no contents are worth more than
    their nodes cost.

    Its rows are those of the program with its space, and it has all columns but those of contents.
    """
    return with_space(program, space.without_contents(), whole=True).arrays


def with_space(program: AllocationProgram, space: Space, whole: bool) -> LinearProgram:
    """The program lowered, with the columns and rows of its space after its own."""

    def add(lp: LinearProgram, variables: Mapping[str, Variables], C: Classes) -> None:
        if program.extend is not None:
            program.extend(lp, variables, C)
        space.add_to(lp, variables["x"], whole)

    return replace(program, extend=add, integral=whole).to_linear()
