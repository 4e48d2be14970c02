"""Certified outcomes of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.display import Displayed
from optsched.program import AllocationProgram
from optsched.solution import Certificate, Termination, Values
from optsched.solution.explanation import Conflict, Explanation
from optsched.solution.solution import ColumnsMade, Status
from optsched.solution.time_prices import TimePrices
from optsched.solution.values import NO_OPTIMUM as NO_OPTIMUM
from optsched.solvers import Solver

if TYPE_CHECKING:
    from optsched.program import GangSeats
    from optsched.solution.plan import Plan
    from optsched.solution.schedule import Schedule
    from optsched.solution.stage import Stage

BY_CLOCK = (Termination.TIME_LIMIT, Termination.INTERRUPTED)
STOPPED = (
    Termination.TIME_LIMIT,
    Termination.WORK_LIMIT,
    Termination.GAP_LIMIT,
    Termination.INTERRUPTED,
    Termination.BY_RULE,
)


@dataclass(frozen=True, repr=False, eq=False)
class Outcome(Displayed):
    """A certified run.

    Attributes
    ----------
    values : Values
        Of the solver.
    x : FloatArray or None
        The point (of an allocation program: cleaned totals of the class columns).
    value : float or None
        Its objective, recomputed.
    bound : float or None
        Rigorous from the duals, else the solver's claim.
    bound_source : str
    certificate : Certificate
    status : Status
    duals : mapping, or None
        Row duals by block.
    conflicts : tuple of Conflict
        Of an infeasible program: rows that cannot all hold.
    explanation : Explanation
        Whether the set of conflicts is minimal.
    solver : type of Solver
    time_prices : TimePrices or None
        Where they prove the bound, of a plan.
    duals_without_solver : bool
        Whether no solver gave the duals: then the bound is the value if each job were alone.
    noise : float
        Differences of the objective below this are rounding.
    refuted : bool
        Whether a feasible point showed that what the solver claimed is false.
    by_clock : bool
        Whether the clock or the user stopped a run that this depends on, other than that of
        ``values``.
    """

    values: Values
    x: FloatArray | None
    value: float | None
    bound: float | None
    bound_source: str
    certificate: Certificate
    status: Status
    solver: type[Solver]
    duals: Mapping[str, FloatArray] | None = None
    conflicts: tuple[Conflict, ...] = ()
    explanation: Explanation = Explanation.IRREDUCIBLE
    time_prices: TimePrices | None = None
    duals_without_solver: bool = False
    noise: float = 0.0
    refuted: bool = False
    by_clock: bool = False

    @property
    def rests_on_claim(self) -> bool:
        """Whether the bound, or infeasibility, is only a claim of the solver."""
        if self.status is Status.INFEASIBLE:
            return self.certificate.proof == "claimed"
        return self.bound is not None and self.bound_source == "solver"

    def without_bound(self) -> Outcome:
        """The same without its bound and what proves it."""
        return replace(self, bound=None, bound_source="none", duals=None, time_prices=None)


class SolvedProgram(NamedTuple):
    """A program that was solved by one of the methods of `optsched.solving`.

    Attributes
    ----------
    program : AllocationProgram or Plan
        The last program of the method, which the outcome is about: with requirements that gave way,
        or with the columns that were generated.
    outcome : Outcome
    schedule : Schedule or None
        Of a plan: None if nothing was found.
    stages : tuple of Stage
        What was solved before the last program, or decided among its optima.
    notes : tuple of str
        For the user.
    columns_made : ColumnsMade or None
        Of column generation.
    seats : GangSeats or None
        Which nodes hold which parts of whole jobs, where the program knows them.
    """

    program: AllocationProgram | Plan
    outcome: Outcome
    schedule: Schedule | None = None
    stages: tuple[Stage, ...] = ()
    notes: tuple[str, ...] = ()
    columns_made: ColumnsMade | None = None
    seats: GangSeats | None = None


def is_reproducible(termination: Termination, explanation: Explanation, by_clock: bool) -> bool:
    """False if the clock or the user stopped the run, one of several attempts,
    or the search for conflicts.
    """
    return not by_clock and termination not in BY_CLOCK and explanation is not Explanation.CUT_OFF
