"""Conic programs whose optimum is known in closed form: logarithms, entropies, norms, means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from optsched.conformance.answers import NO_OPTIMUM
from optsched.conformance.case import (
    Case,
    Skipped,
    Subject,
    case,
    expect,
    expect_close,
    expect_refused,
    expect_same_bytes,
    expect_termination,
)
from optsched.conformance.cones import dual_objective, dual_residual, primal_residual
from optsched.conformance.linear import covering, dense, equality_and_free
from optsched.program import Cone, ConicProgram, LinearProgram, linear_to_conic
from optsched.solution import Status, Termination
from optsched.solvers import Capability

Part = tuple[Cone, ArrayLike, ArrayLike]
"""Rows of a cone: the cone, G and b of b + G x."""
ACCURACY = 1e-5
"""Relative; duals and points of first-order methods are not better."""
WEIGHTS = (1.0, 2.0, 3.0, 4.0)


def conic(
    cost: Sequence[float],
    parts: Sequence[Part],
    *,
    maximise: bool = False,
    offset: float = 0.0,
) -> ConicProgram:
    """optimise cost x + offset  s.t.  b + G x in each cone, given as (cone, G, b)."""
    # `ConicProgram` has b - A x in the cones.
    A = np.vstack([-np.atleast_2d(np.asarray(G, np.float64)) for _, G, _ in parts])
    b = np.concatenate([np.atleast_1d(np.asarray(side, np.float64)) for _, _, side in parts])
    return ConicProgram(
        sp.csc_matrix(A),
        b,
        np.array(cost, np.float64),
        tuple(cone for cone, _, _ in parts),
        maximise,
        offset,
    )


def unit(columns: int, *entries: tuple[int, float]) -> list[float]:
    """A row with a few coefficients."""
    row = np.zeros(columns)
    for place, value in entries:
        row[place] = value
    return row.tolist()


def exponential(rows: ArrayLike, sides: ArrayLike) -> Part:
    """(x, y, z) of three rows with y exp(x / y) <= z."""
    return Cone("exponential", 3), rows, sides


def power(exponent: float, rows: ArrayLike, sides: ArrayLike) -> Part:
    """(x, y, z) of three rows with x^a y^(1 - a) >= abs(z)."""
    return Cone("power", 3, exponent), rows, sides


def log_utility() -> ConicProgram:
    """max sum_i w_i log x_i  s.t.  sum x = 1: x_i = w_i / W, optimum sum_i w_i log(w_i / W)."""
    # Columns are x, then the logarithms u: (u_i, 1, x_i) in the cone says exp(u_i) <= x_i.
    n = len(WEIGHTS)
    parts: list[Part] = [(Cone("zero", 1), [[1.0] * n + [0.0] * n], [-1.0])]
    parts += [
        exponential([unit(2 * n, (n + i, 1)), unit(2 * n), unit(2 * n, (i, 1))], [0.0, 1.0, 0.0])
        for i in range(n)
    ]
    return conic([0.0] * n + list(WEIGHTS), parts, maximise=True)


LOG_UTILITY = float(sum(w * np.log(w / sum(WEIGHTS)) for w in WEIGHTS))


def entropy() -> ConicProgram:
    """min sum_i x_i log x_i + 3 on the simplex of five: 3 - log 5, every x_i = 1/5;
    (-t, x, 1) says t >= x log x.
    """
    n = 5
    parts: list[Part] = [(Cone("zero", 1), [[1.0] * n + [0.0] * n], [-1.0])]
    parts += [
        exponential([unit(2 * n, (n + i, -1)), unit(2 * n, (i, 1)), unit(2 * n)], [0.0, 0.0, 1.0])
        for i in range(n)
    ]
    return conic([0.0] * n + [1.0] * n, parts, offset=3.0)


def log_sum_exp() -> ConicProgram:
    """min t  s.t.  sum_i exp(w_i - t) <= 1: log(sum_i exp w_i)."""
    # Columns are t, then s: exp(w_i - t) <= s_i, and all s_i together are at most 1.
    n = len(WEIGHTS)
    parts: list[Part] = [(Cone("nonnegative", 1), [[0.0] + [-1.0] * n], [1.0])]
    parts += [
        exponential([unit(n + 1, (0, -1)), unit(n + 1), unit(n + 1, (1 + i, 1))], [w, 1.0, 0.0])
        for i, w in enumerate(WEIGHTS)
    ]
    return conic([1.0] + [0.0] * n, parts)


def cobb_douglas() -> ConicProgram:
    """max x^0.3 y^0.7  s.t.  2x + 5y <= 10: x = 1.5, y = 1.4."""
    parts = [
        (Cone("nonnegative", 1), [[-2.0, -5.0, 0.0]], [10.0]),
        power(0.3, np.eye(3), np.zeros(3)),
    ]
    return conic([0.0, 0.0, 1.0], parts, maximise=True)


def negative_power() -> ConicProgram:
    """min z  s.t.  x^0.4 y^0.6 >= |z|, x <= 2, y <= 3: the cone has two sides; -(2^0.4 3^0.6)."""
    parts = [
        (Cone("nonnegative", 2), [[-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]], [2.0, 3.0]),
        power(0.4, np.eye(3), np.zeros(3)),
    ]
    return conic([0.0, 0.0, 1.0], parts)


def norm() -> ConicProgram:
    """min t >= |(3, 4)|: 5, by r_i t >= v_i^2 and r_1 + r_2 = t, which are power cones of 1/2."""
    parts: list[Part] = [(Cone("zero", 1), [[1.0, -1.0, -1.0]], [0.0])]
    parts += [
        power(0.5, [unit(3, (1 + i, 1)), unit(3, (0, 1)), unit(3)], [0.0, 0.0, v])
        for i, v in enumerate((3.0, 4.0))
    ]
    return conic([1.0, 0.0, 0.0], parts)


def reciprocal() -> ConicProgram:
    """min u + 2v  s.t.  u x >= 1, v y >= 1, x + y <= 3: (1 + sqrt 2)^2 / 3."""
    parts = [
        (Cone("nonnegative", 1), [[0.0, 0.0, -1.0, -1.0]], [3.0]),
        power(0.5, [unit(4, (0, 1)), unit(4, (2, 1)), unit(4)], [0.0, 0.0, 1.0]),
        power(0.5, [unit(4, (1, 1)), unit(4, (3, 1)), unit(4)], [0.0, 0.0, 1.0]),
    ]
    return conic([1.0, 2.0, 0.0, 0.0], parts)


def both_cones() -> ConicProgram:
    """max log x + sqrt(y)  s.t.  x + y <= 4: x = 2 sqrt y, where 1 / x = 1 / (2 sqrt y)."""
    parts = [
        (Cone("nonnegative", 1), [[-1.0, -1.0, 0.0, 0.0]], [4.0]),
        exponential([unit(4, (2, 1)), unit(4), unit(4, (0, 1))], [0.0, 1.0, 0.0]),
        power(0.5, [unit(4, (1, 1)), unit(4), unit(4, (3, 1))], [0.0, 1.0, 0.0]),
    ]
    return conic([0.0, 0.0, 1.0, 1.0], parts, maximise=True)


ROOT = np.sqrt(5.0) - 1.0
"""sqrt y of `both_cones`: x = 2 sqrt y and x + y = 4."""
BOTH_CONES = float(np.log(2.0 * ROOT) + ROOT)


def infeasible() -> ConicProgram:
    """exp(x) <= -1, which no x fulfils."""
    return conic([0.0], [exponential([[1.0], [0.0], [0.0]], [0.0, 1.0, -1.0])])


def infeasible_power() -> ConicProgram:
    """sqrt(x y) >= 3 with x + y <= 2."""
    parts = [
        (Cone("nonnegative", 1), [[-1.0, -1.0]], [2.0]),
        power(0.5, [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [0.0, 0.0, 3.0]),
    ]
    return conic([1.0, 0.0], parts)


def unbounded() -> ConicProgram:
    """max z  s.t.  exp(x) <= z."""
    return conic(
        [0.0, 1.0],
        [exponential([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]], [0.0, 1.0, 0.0])],
        maximise=True,
    )


@dataclass(frozen=True)
class ConicAnswer:
    """A conic program and its optimum, or the status where there is none."""

    name: str
    build: Callable[[], ConicProgram]
    optimum: float | None = None
    status: Status = Status.OPTIMAL
    x: Sequence[float] | None = None
    """First entries of the point, where they are unique."""

    def check(self, subject: Subject) -> None:
        """Compare the objective, and prove it by the multipliers."""
        program = self.build()
        values = subject.solve_conic(program)
        if self.optimum is None:
            expect_termination(values, *NO_OPTIMUM[self.status])
            return
        if values.termination is Termination.IMPRECISE:
            raise Skipped(f"stopped short and says so: {values.words}")
        expect_termination(values, Termination.OPTIMAL)
        if values.x is None or values.x.shape != (program.shape[1],):
            expect(False, f"no point of {program.shape[1]} columns")
            return
        # What the solver states, and what its point is worth, are two things.
        expect_close(values.objective, self.optimum, "objective", relative=ACCURACY)
        expect_close(
            program.objective(values.x),
            self.optimum,
            "objective of the point",
            relative=ACCURACY,
        )
        missed = primal_residual(program, values.x)
        expect(missed <= ACCURACY, f"the point misses the cones by {missed:.2g}")
        if self.x is not None:
            expect_close(values.x[: len(self.x)], self.x, "point", relative=1e-3)
        # Only a solver that claims duals has to prove the answer by multipliers.
        if values.y is None or values.y.shape != (program.shape[0],):
            expect(
                not subject.has(Capability.DUALS), f"no multipliers of the {program.shape[0]} rows"
            )
            return
        missed = dual_residual(program, values.y)
        expect(
            missed <= ACCURACY,
            f"the multipliers miss the dual program by {missed:.2g}: wrong sign or order?",
        )
        expect_close(
            dual_objective(program, values.y),
            self.optimum,
            "bound of the multipliers",
            relative=ACCURACY,
        )


def lowered(build: Callable[[], LinearProgram]) -> Callable[[], ConicProgram]:
    """A linear program over the zero and nonnegative cones."""
    return lambda: linear_to_conic(build().arrays)


@case("duals of lowered rows are derivatives", Capability.CONIC, Capability.DUALS)
def lowered_duals(subject: Subject) -> None:
    """Multipliers of the cones, brought back to the rows of the linear program."""
    # Both have unique duals, which the linear back-ends are held to as well.
    for build, duals in ((dense, [2.0, 0.0]), (covering, [1.5, 0.5])):
        cones = linear_to_conic(build().arrays)
        values = subject.solve_conic(cones)
        expect(values.y is not None and cones.linear is not None, "no multipliers")
        if values.y is not None and cones.linear is not None:
            expect_close(
                cones.linear.duals(values.y, cones.maximise),
                duals,
                "duals",
                relative=1e-4,
            )


@case("conic programs are refused by a solver without them")
def conic_refused(subject: Subject) -> None:
    """With an error that says so."""
    if subject.has(Capability.CONIC):
        return
    expect_refused(
        lambda: subject.solve_conic(entropy()),
        "a conic program is answered",
        "conic",
        "say that it is about conic programs",
    )


@case("the same conic program gives the same bytes", Capability.CONIC)
def deterministic(subject: Subject) -> None:
    """Two runs with one seed."""
    expect_same_bytes(*(subject.solve_conic(entropy(), seed=3) for _ in range(2)))


ANSWERS = (
    ConicAnswer("conic maximum", lowered(dense), 11.0, x=[3, 1]),
    ConicAnswer("conic minimum", lowered(covering), 9.0, x=[3, 1]),
    ConicAnswer("conic equalities and offset", lowered(equality_and_free), -5.0, x=[9, -3, -5]),
    ConicAnswer("log utility", log_utility, LOG_UTILITY, x=[0.1, 0.2, 0.3, 0.4]),
    ConicAnswer("entropy", entropy, 3.0 - float(np.log(5.0)), x=[0.2] * 5),
    ConicAnswer("log-sum-exp", log_sum_exp, float(np.log(np.exp(WEIGHTS).sum()))),
    ConicAnswer("Cobb-Douglas", cobb_douglas, 1.5**0.3 * 1.4**0.7, x=[1.5, 1.4]),
    ConicAnswer("negative side of a power cone", negative_power, -(2.0**0.4 * 3.0**0.6), x=[2, 3]),
    ConicAnswer("Euclidean norm", norm, 5.0, x=[5, 1.8, 3.2]),
    ConicAnswer("reciprocals", reciprocal, float((1.0 + np.sqrt(2.0)) ** 2 / 3.0)),
    ConicAnswer("exponential and power cone", both_cones, BOTH_CONES, x=[2.0 * ROOT, ROOT**2]),
    ConicAnswer("conic infeasible", infeasible, status=Status.INFEASIBLE),
    ConicAnswer("power cone infeasible", infeasible_power, status=Status.INFEASIBLE),
    ConicAnswer("conic unbounded", unbounded, status=Status.UNBOUNDED),
)

CASES = (
    *(Case(answer.name, answer.check, frozenset({Capability.CONIC})) for answer in ANSWERS),
    lowered_duals,
    conic_refused,
    deterministic,
)
