"""Why a program is infeasible:
a proof that is recomputed, and a small set of rows that cannot all hold.

A claim of infeasibility is always checked. The linear relaxation comes first: it settles most
programs quickly, integer ones too, and its duals are a proof. The integer program itself is solved
again only if the relaxation is feasible. Runs of integer programs and the deletion filter have a
work limit, and all runs share one timer; when it ends, the result so far is the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.errors import SolverCrashed, SolverUnavailable, UsageError
from optsched.instance.durations import Timer
from optsched.program import AllocationProgram, Block, LinearArrays
from optsched.program.some_time import SomeTime
from optsched.solution.certificate import FEASIBILITY, dual_bound, is_bounded, residuals_of
from optsched.solution.explanation import Conflict, Explanation, describe_row
from optsched.solution.values import Termination, Values
from optsched.solvers import Limits, Session, Solver
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.scaling import ScaledSession, Scaling

EFFORT = 1_000_000
"""Work limit for shrinking a set of conflicting rows: coefficients of all programs solved for it.
A time limit would make answers depend on the machine."""
LEAST_EFFORT = 1_000
"""Smallest work that a trial counts for."""
INTEGER_EFFORT = 2
"""Work of one coefficient of an integer program."""
NODES = 1000
"""Nodes of the tree in which an integer program is tried again."""
TRIAL_NODES = 50
"""Nodes of the tree of a trial, of which there are many."""
EXACT = 1e-12
"""Largest violation proved by duals that may be pure rounding in float64."""
NO_POINT = (Termination.INFEASIBLE, Termination.INFEASIBLE_OR_UNBOUNDED)
"""How a run ends if the rows of a program without an objective cannot all hold."""


class ClaimFinding(StrEnum):
    """What is known of a program that a solver calls infeasible."""

    SHOWN = "shown infeasible by duals"
    AGREED = "infeasible in a second run too"
    FEASIBLE = "feasible"
    OPEN = "neither was shown"


@dataclass(frozen=True)
class Checked:
    """A claim of infeasibility, checked.

    Attributes
    ----------
    finding : ClaimFinding
    needed : float or None
        Least total violation of the rows, each relative to its size, that the duals prove; of
        SHOWN.
    rows : IntArray
        Rows that these duals rest on, which cannot all hold; of SHOWN.
    end : Termination or None
        Why it was left OPEN.
    """

    finding: ClaimFinding
    needed: float | None = None
    rows: IntArray = field(default_factory=lambda: EMPTY)
    end: Termination | None = None


@dataclass(frozen=True)
class ConflictingRows:
    """Rows that cannot all hold, and how small this set is known to be;
    no rows where none were found in time.
    """

    rows: IntArray
    explanation: Explanation


class _Stopped(Exception):
    """The time is over, or the user asked for an end."""

    def __init__(self, end: Termination) -> None:
        super().__init__(end)
        self.end = end


class Analyst:
    """Runs HiGHS (Clarabel if HiGHS is not installed) within one time limit. As a context manager
    it also stops after Ctrl-C.

    Parameters
    ----------
    limits : Limits
        ``time`` is that of all runs together. ``work`` is left out: it counts for the runs that
        look for an answer, and the analysis has bounds of work of its own.
    load : callable, optional
        Solver by name; it may be one that runs in a process that can be killed.
    """

    def __init__(self, limits: Limits, load: Callable[[str], type[Solver]] | None = None) -> None:
        self._limits = limits
        self._timer = Timer.after(limits.time)
        self._solver = _installed(load)
        self._flag: threading.Event | None = None
        self._context = ExitStack()

    def __enter__(self) -> Self:
        self._flag = self._context.enter_context(interrupt_flag())
        return self

    def __exit__(self, *error: object) -> None:
        self._context.close()

    def open(self, arrays: LinearArrays) -> Session:
        """A session that holds the program, scaled."""
        self._left()
        scaling = Scaling.of(arrays)
        return ScaledSession(arrays, scaling, self._solver().open(scaling.apply(arrays)))

    def run(self, session: Session, nodes: int | None = None, presolve: bool = True) -> Values:
        """Run a session; raises `_Stopped` where the clock or the user ended the run."""
        options: dict[str, Any] = {} if nodes is None else {"mip_max_nodes": nodes}
        if not presolve:
            options["presolve"] = "off"
        limits = replace(
            self._limits,
            time=self._left(),
            work=None,
            gap=None,
            options=options,
            on_progress=None,
            on_log=None,
        )
        try:
            values = session.run(limits).checked(*session.arrays.shape, self._solver.name)
        except SolverCrashed:
            self._left()  # a process that did not keep the time was killed
            raise
        if values.termination in (Termination.TIME_LIMIT, Termination.INTERRUPTED):
            raise _Stopped(values.termination)
        return values

    def _left(self) -> float | None:
        """Seconds that are left; raises `_Stopped` if none are, or the user asked for an end."""
        if self._flag is not None and self._flag.is_set():
            raise _Stopped(Termination.INTERRUPTED)
        left = self._timer.left
        if left <= 0:
            raise _Stopped(Termination.TIME_LIMIT)
        return None if self._timer.seconds is None else left


def _installed(load: Callable[[str], type[Solver]] | None) -> type[Solver]:
    """HiGHS; Clarabel if HiGHS is not installed, which suffices for linear programs."""
    highs = _highs(load)
    try:
        highs.version()
    except SolverUnavailable:
        from optsched.solvers import Clarabel

        return Clarabel
    return highs


def _highs(load: Callable[[str], type[Solver]] | None) -> type[Solver]:
    from optsched.solvers.highs import Highs

    if load is None:
        return Highs
    try:
        found = load("highs")
    except SolverUnavailable:  # the caller knows other solvers only
        return Highs
    return found if found.name == "highs" else Highs


# --- is it infeasible? ----------------------------------------------------------------------------


def check_claim(arrays: LinearArrays, analyst: Analyst, ray: FloatArray | None = None) -> Checked:
    """Check whether the rows can be met.

    ``ray`` are multipliers by which a solver shows that they cannot (Farkas). They are checked
    first, which needs no solver.

    The dual bound of the elastic relaxation, recomputed, is the proof of infeasibility; of an
    integer program that of its linear relaxation. If the relaxation can be met, an integer
    program is solved again without objective and presolve, so that an error there is not repeated.
    """
    try:
        relaxed = _check_relaxation(arrays.relaxed(), analyst, ray)
        if relaxed.finding is not ClaimFinding.FEASIBLE or not arrays.is_integer:
            return relaxed
        feasibility = replace(arrays, cost=np.zeros(arrays.shape[1]), offset=0.0)
        values = analyst.run(analyst.open(feasibility), NODES, presolve=False)
    except _Stopped as stopped:
        return Checked(ClaimFinding.OPEN, end=stopped.end)
    if values.termination in NO_POINT:
        return Checked(ClaimFinding.AGREED)
    found = values.x is not None and max(residuals_of(arrays, values.x).values()) <= FEASIBILITY
    return (
        Checked(ClaimFinding.FEASIBLE)
        if found
        else Checked(ClaimFinding.OPEN, end=Termination.WORK_LIMIT)
    )


def _check_relaxation(arrays: LinearArrays, analyst: Analyst, ray: FloatArray | None) -> Checked:
    elastic = elastic_relaxation(arrays)
    heaviest = 0.0
    if ray is not None and ray.shape == arrays.sizes.shape:
        heaviest = float((np.abs(ray) * arrays.sizes).max(initial=0.0))
    # If all weights are 0, the ray alone proves nothing.
    if ray is not None and heaviest > 0:
        # Duals of the elastic relaxation, which minimises: the largest costs as much as a slack.
        needed, y = _proved_violation(elastic, -ray / heaviest)
        if needed > FEASIBILITY:
            weight = np.abs(y) * arrays.sizes
            return Checked(ClaimFinding.SHOWN, needed, _heavy_rows(arrays, weight, analyst))
    values = analyst.run(analyst.open(elastic))
    if values.x is None and values.y is None:
        raise SolverCrashed(f"the infeasibility analysis stopped with {values.words!r}")
    needed, y = _proved_violation(elastic, values.y)
    if needed > FEASIBILITY:
        weight = np.abs(y) * arrays.sizes
        return Checked(ClaimFinding.SHOWN, needed, _heavy_rows(arrays, weight, analyst))
    met = values.objective is not None and values.objective <= FEASIBILITY
    if met and needed > EXACT:
        # The violation is within the tolerance: neither feasibility nor infeasibility is shown.
        return Checked(ClaimFinding.OPEN, end=Termination.IMPRECISE)
    return (
        Checked(ClaimFinding.FEASIBLE)
        if met
        else Checked(ClaimFinding.OPEN, end=Termination.WORK_LIMIT)
    )


def _heavy_rows(arrays: LinearArrays, weight: FloatArray, analyst: Analyst) -> IntArray:
    """Rows whose weight in a proof is above rounding. If these can all be met, the rows with any
    weight; if these can be met too, all rows.

    Weights may differ by 1e9: so much more may one row demand than another allows, and they
    conflict only together.
    """
    feasibility = replace(arrays, cost=np.zeros(arrays.shape[1]), offset=0.0)
    least = 1e-9 * weight.max(initial=0.0)
    heavy, some = np.flatnonzero(weight > least), np.flatnonzero(weight)
    for rows in (heavy, some):
        if len(rows) == len(some) == arrays.shape[0]:
            break
        try:
            values = analyst.run(analyst.open(rows_alone(feasibility, rows)))
        except (_Stopped, SolverCrashed):  # the proof does not depend on this run
            return heavy.astype(np.int64)
        if values.termination in NO_POINT:
            return rows.astype(np.int64)
    return np.arange(arrays.shape[0], dtype=np.int64)


def _proved_violation(elastic: LinearArrays, y: FloatArray | None) -> tuple[float, FloatArray]:
    """The least violation that duals prove, and these duals."""
    if y is None:
        return 0.0, np.zeros(elastic.shape[0])
    # Scale the duals down until no slack has a wrong sign. x has no cost, so the proof stays valid.
    product = elastic.transpose_times(y)
    price = np.abs(product[elastic.cost > 0]).max(initial=0.0)
    y = y * (1.0 - 1e-12) / max(1.0, float(price))
    return dual_bound(elastic, y) or 0.0, y


def refuse_refuted(
    claim: Termination, arrays: LinearArrays, program: AllocationProgram | None, solver: str
) -> None:
    """Raise where a feasible program was called infeasible, or a bounded one unbounded.

    A ratio has no optimum if its rows can hold only at a cost of 0.
    """
    if program is not None and program.utility.without_optimum:
        raise UsageError(f"solver {solver} finds {program.utility.without_optimum}")
    if claim is Termination.INFEASIBLE:
        raise SolverCrashed(f"solver {solver} claims that a feasible program is infeasible")
    if is_bounded(arrays):
        raise SolverCrashed(f"solver {solver} claims that a feasible, bounded program is unbounded")


# --- which rows conflict? -------------------------------------------------------------------------


def conflicting_rows(arrays: LinearArrays, checked: Checked, analyst: Analyst) -> ConflictingRows:
    """A small set of rows that cannot all be met, found by a deletion filter within the limits of
    work and time.

    Demands are left out first, beside all limits: so, work permitting, the others could be met
    without any one of them. Large parts of the set are left out first, then smaller ones, then
    single rows. Once every single row was tried, the set is irreducible: without any one of its
    rows the others can be met.
    """
    linear = checked.finding is ClaimFinding.SHOWN
    program = arrays.relaxed() if linear else arrays
    rows = checked.rows if linear else np.arange(arrays.shape[0], dtype=np.int64)
    rows, needed = _with_few_demands(program, rows, analyst, linear)
    search = _Deletion(program, np.setdiff1d(rows, needed), analyst, linear, beside=needed)
    explanation = search.run()
    found = np.union1d(search.sure, needed)
    if explanation is not Explanation.IRREDUCIBLE and len(found) == arrays.shape[0]:
        # All rows conflict: that was known before.
        return ConflictingRows(EMPTY, explanation)
    return ConflictingRows(found, explanation)


def _with_few_demands(
    program: LinearArrays, rows: IntArray, analyst: Analyst, linear: bool
) -> tuple[IntArray, IntArray]:
    """Conflicting rows of fewer demands, where some of theirs conflict with all limits; and the
    demands of which every one is needed for that.

    A demand is a row that is not met if nothing is done; a limit is any other.
    """
    asks = (program.row_lower > 0) | (program.row_upper < 0)
    demands, limits = rows[asks[rows]], np.flatnonzero(~asks)
    search = _Deletion(program, demands, analyst, linear, beside=limits)
    explanation = search.run()
    needed = search.sure if explanation is Explanation.IRREDUCIBLE else EMPTY
    if explanation is Explanation.CUT_OFF or len(search.sure) == len(demands):
        return rows, needed
    fewer = np.union1d(search.sure, limits)
    if not linear:
        return fewer, needed
    try:
        proof = _check_relaxation(rows_alone(program, fewer), analyst, None)
    except _Stopped:
        return rows, EMPTY
    if proof.finding is not ClaimFinding.SHOWN:
        return rows, EMPTY
    proved = fewer[proof.rows]
    return np.union1d(proved, needed), needed


class _Deletion:
    """A deletion filter.

    Attributes
    ----------
    beside : IntArray
        Rows that hold in all trials.
    rows : IntArray
        Rows that the solver says cannot all hold with those.
    sure : IntArray
        Of a linear program: the last of these sets of which duals prove it. The same as ``rows``
        otherwise.
    """

    def __init__(
        self,
        arrays: LinearArrays,
        rows: IntArray,
        analyst: Analyst,
        linear: bool,
        beside: IntArray = EMPTY,
    ) -> None:
        self.beside = beside
        self._program = replace(arrays, cost=np.zeros(arrays.shape[1]), offset=0.0)
        self._analyst, self._linear = analyst, linear
        self.rows = self.sure = rows
        self._effort = EFFORT

    def run(self) -> Explanation:
        """Make the set smaller; how small it is then known to be."""
        size = max(len(self.rows) // 2, 1)
        try:
            while True:
                settled = self._pass(size)
                if settled is None or not self._sure():
                    return Explanation.REDUCED
                if size == 1:  # each row that is left was tried alone
                    return Explanation.IRREDUCIBLE if settled else Explanation.REDUCED
                size //= 2
        except _Stopped:
            return Explanation.CUT_OFF
        except SolverCrashed:  # in a trial: what was shown before holds all the same
            return Explanation.REDUCED

    def _pass(self, size: int) -> bool | None:
        """Leave out so many rows at once, where the others still conflict;
        whether every trial was settled.

        None where the bound of work was reached.
        """
        at, settled = 0, True
        while at < len(self.rows):
            rest = np.delete(self.rows, slice(at, at + size))
            alone = self._alone(rest)
            self._effort -= max(alone.A.nnz, LEAST_EFFORT) * (1 if self._linear else INTEGER_EFFORT)
            if self._effort < 0:
                self._sure()
                return None
            values = self._analyst.run(
                self._analyst.open(alone), None if self._linear else TRIAL_NODES
            )
            if self._still_conflict(rest, alone, values):
                self.rows = rest
            else:
                # If the run decided neither, the set may still contain rows that are not needed.
                settled &= values.x is not None
                at += size
        return settled

    def _alone(self, rows: IntArray) -> LinearArrays:
        """The rows of a trial, with the columns that matter to whether all can hold."""
        return without_idle_columns(rows_alone(self._program, np.union1d(rows, self.beside)))

    def _still_conflict(self, rest: IntArray, alone: LinearArrays, values: Values) -> bool:
        """Whether a trial says that the rows that are left cannot all hold."""
        return values.termination in NO_POINT

    def _sure(self) -> bool:
        """Whether it is proved that the rows conflict; they are stored if so."""
        if not self._linear or len(self.rows) == len(self.sure) or self._proved():
            self.sure = self.rows
            return True
        return False  # the trial was a claim of the solver

    def _proved(self) -> bool:
        """Whether duals prove that the rows of a linear program cannot all hold."""
        elastic = elastic_relaxation(self._alone(self.rows))
        values = self._analyst.run(self._analyst.open(elastic))
        return _proved_violation(elastic, values.y)[0] > FEASIBILITY


# --- is there time for every job? -----------------------------------------------------------------


@dataclass(frozen=True)
class JobWithoutTime:
    """A proof that every allocation leaves some job without any time.

    Attributes
    ----------
    largest_share : float
        Bound that duals prove on the share of `SomeTime`, without what slack is worth.
    found : ConflictingRows
        Of `SomeTime.arrays`: the jobs that have no time together, and what takes it.
    """

    largest_share: float
    found: ConflictingRows


def prove_job_without_time(some: SomeTime, analyst: Analyst) -> JobWithoutTime | None:
    """Prove that every allocation leaves some job without any time;
    None where that was not shown.
    """
    arrays = some.arrays
    try:
        values = analyst.run(analyst.open(arrays))
    except _Stopped:
        return None
    if values.y is None:
        return None
    bound = dual_bound(arrays, values.y)
    slack_worth = float(np.abs(values.y) @ some.slack)
    if bound is None or not some.none_left(bound, slack_worth):
        return None
    weight = np.abs(values.y) * arrays.sizes
    # A row whose columns must all be 0, of a resource of which there is none, has no size.
    empty = (arrays.sizes == 0) & (values.y != 0)
    rows = np.flatnonzero(empty | (weight > 1e-9 * weight.max(initial=0.0))).astype(np.int64)
    search = _ScarceTime(some, rows, analyst)
    explanation = search.run()
    return JobWithoutTime(max(bound - slack_worth, 0.0), ConflictingRows(search.sure, explanation))


def leave_job_without_time(some: SomeTime, rows: IntArray, analyst: Analyst) -> bool:
    """Whether some rows of `SomeTime.arrays` alone leave a job
    without any time, which duals prove.
    """
    alone = rows_alone(some.arrays, rows)
    return _leaves_none(some, rows, alone, analyst.run(analyst.open(alone)))


def _leaves_none(some: SomeTime, rows: IntArray, alone: LinearArrays, values: Values) -> bool:
    if values.y is None:
        return False
    slack_worth = float(np.abs(values.y) @ some.slack[rows])
    return some.none_left(dual_bound(alone, values.y), slack_worth)


class _ScarceTime(_Deletion):
    """Leaves out rows without which some job still has no time:
    the largest share is 0, not infeasible.
    """

    def __init__(self, some: SomeTime, rows: IntArray, analyst: Analyst) -> None:
        super().__init__(some.arrays, rows, analyst, linear=True)
        self._program, self._some = some.arrays, some

    def _alone(self, rows: IntArray) -> LinearArrays:
        return rows_alone(self._program, rows)

    def _still_conflict(self, rest: IntArray, alone: LinearArrays, values: Values) -> bool:
        return _leaves_none(self._some, rest, alone, values)

    def _proved(self) -> bool:
        return True  # each trial was a proof by duals


def described(
    arrays: LinearArrays, program: AllocationProgram | None, rows: IntArray
) -> tuple[Conflict, ...]:
    """Rows as conflicts, described as in the instance."""
    found = [arrays.row_name(int(row)) for row in rows]
    if program is None:
        return tuple(
            Conflict(block, position, f"row {block}[{position}]") for block, position in found
        )
    whole = arrays.is_integer
    return tuple(describe_row(program, block, position, whole) for block, position in found)


# --- programs that are made of another ------------------------------------------------------------


def rows_alone(arrays: LinearArrays, rows: IntArray) -> LinearArrays:
    """The program with some of its rows alone."""
    return replace(
        arrays,
        A=arrays.by_rows[rows].tocsc(),
        row_lower=arrays.row_lower[rows],
        row_upper=arrays.row_upper[rows],
        rows=(Block("rows", 0, len(rows)),),
    )


def without_idle_columns(arrays: LinearArrays) -> LinearArrays:
    """The program without columns that may as well be 0: they only take from limits, as those of
    jobs whose demands were left out.
    """
    only_upper = np.isinf(arrays.row_lower) & np.isfinite(arrays.row_upper)
    only_lower = np.isfinite(arrays.row_lower) & np.isinf(arrays.row_upper)
    harm = only_upper.astype(np.float64) - only_lower
    useful = arrays.lower != 0
    useful[arrays.column[arrays.A.data * harm[arrays.A.indices] <= 0]] = True
    kept = np.flatnonzero(useful)
    return replace(
        arrays,
        A=arrays.A[:, kept],
        lower=arrays.lower[kept],
        upper=arrays.upper[kept],
        cost=arrays.cost[kept],
        integer=arrays.integer[kept],
        implied_lower=arrays.implied_lower[kept],
        implied_upper=arrays.implied_upper[kept],
        columns=(Block("columns", 0, len(kept)),),
    )


def elastic_relaxation(arrays: LinearArrays) -> LinearArrays:
    """Minimise the total relative violation:
    every finite side of a row gets a slack s >= 0 that costs 1.

    A violation counts relative to the size of its row, so that GPUs and steps/s weigh alike.
    """
    rows, columns = arrays.shape
    above = np.flatnonzero(np.isfinite(arrays.row_upper))
    below = np.flatnonzero(np.isfinite(arrays.row_lower))
    size = arrays.sizes
    size = np.where(size > 0, size, 1.0)
    scale = np.concatenate([-size[above], size[below]])
    count = len(scale)
    slack = sp.csc_matrix(
        (scale, (np.concatenate([above, below]), np.arange(count))), shape=(rows, count)
    )
    # At x = 0 no side is violated by more than 1.
    zero = np.zeros(count)
    reach = np.full(count, max(1e6, float(count)))
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
