"""Programs with a known answer, and how the answer of a solver is compared with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray
from optsched.conformance.case import (
    Case,
    Skipped,
    Subject,
    expect,
    expect_certified,
    expect_close,
    expect_termination,
)
from optsched.program import LinearProgram
from optsched.solution import Status, Termination
from optsched.solvers import Capability

NO_OPTIMUM = {
    Status.INFEASIBLE: (Termination.INFEASIBLE, Termination.INFEASIBLE_OR_UNBOUNDED),
    Status.UNBOUNDED: (Termination.UNBOUNDED, Termination.INFEASIBLE_OR_UNBOUNDED),
}
"""Terminations that a solver may state for a program without an optimum."""


@dataclass(frozen=True)
class KnownAnswer:
    """A program and what must come out.

    Attributes
    ----------
    name : str
    build : callable
        Makes the program.
    optimum : float or None
        None if there is none; ``status`` then says why.
    status : Status
    x, y : sequence of float, optional
        The optimal point and the duals of the rows, where they are unique.
    may_stop : bool
        Whether a solver may stop short of the answer if it says so: what is hard for a first-order
        method.
    """

    name: str
    build: Callable[[], LinearProgram]
    optimum: float | None = None
    status: Status = Status.OPTIMAL
    x: Sequence[float] | None = None
    y: Sequence[float] | None = None
    may_stop: bool = False

    def case(self, *needs: Capability) -> Case:
        """The case that compares a solver's answer with this one."""
        return Case(self.name, self.check, frozenset(needs))

    def check(self, subject: Subject) -> None:
        """Solve, certify, and compare objective, bound, point,
        duals and what the solver itself says.
        """
        arrays = self.build().arrays
        outcome = subject.solve(arrays)
        if (
            self.may_stop
            and outcome.status in (Status.LIMIT, Status.FEASIBLE)
            and outcome.status != self.status
        ):
            raise Skipped(
                f"stopped short and says so: {outcome.values.words or outcome.values.termination}"
            )
        expect_certified(outcome, "", self.status)
        if self.optimum is None:
            # The engine finds out by itself which of the two it is. The solver must not say the
            # other.
            expect_termination(subject.run(arrays), *NO_OPTIMUM[self.status])
            return
        expect_close(outcome.value, self.optimum, "objective")
        expect_close(outcome.values.objective, self.optimum, "objective as the solver states it")
        expect_close(outcome.bound, self.optimum, "bound", relative=2e-6)
        if self.x is not None:
            # Where the objective is flat a point may be farther off than its objective.
            expect_close(outcome.x, self.x, "point", relative=1e-4)
        # Duals of integer programs prove nothing.
        if not arrays.is_integer and subject.has(Capability.DUALS):
            expect(outcome.values.y is not None, "claims duals, and gives none")
            expect(
                outcome.certificate.proof == "dual",
                f"proof {outcome.certificate.proof}, expected one by duals",
            )
            if self.y is not None:
                duals = [] if outcome.duals is None else list(outcome.duals.values())
                expect_close(np.concatenate([np.zeros(0), *duals]), self.y, "duals", relative=1e-4)


def program(
    cost: Sequence[float],
    rows: Sequence[Sequence[float]],
    lower: Sequence[float] | float = -np.inf,
    upper: Sequence[float] | float = np.inf,
    *,
    maximise: bool = True,
    bounds: tuple[Sequence[float] | float, Sequence[float] | float] = (0.0, np.inf),
    integer: Sequence[bool] | bool = False,
    offset: float = 0.0,
) -> LinearProgram:
    """optimise cost x + offset  s.t.  lower <= rows x <= upper,  bounds."""
    # Written by hand, not by the lowering of a formulation: the suite tests solvers alone.
    lp = LinearProgram()
    x = lp.variables(len(cost), name="x", lower=bounds[0], upper=bounds[1], integer=integer)
    if len(rows):
        lp.constrain((np.array(rows, np.float64) @ x).between(lower, upper), name="rows")
    objective = np.array([cost], np.float64) @ x + offset
    (lp.maximise if maximise else lp.minimise)(objective)
    return lp


def random_matrix(rows: int, columns: int, seed: int) -> FloatArray:
    """Coefficients from 0.1 to 1, the same for the same seed."""
    return np.random.default_rng(seed).uniform(0.1, 1.0, (rows, columns))
