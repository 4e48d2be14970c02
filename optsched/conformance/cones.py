"""How far a point is from a product of cones, and multipliers from the dual one:
the certificate of a conic answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optsched.arrays import FloatArray
from optsched.program import Cone, ConicProgram


def primal_residual(program: ConicProgram, x: FloatArray) -> float:
    """How much b - A x misses the cones by, relative to its size."""
    # Cones hold the slacks of the rows, not the columns.
    slack = program.b - program.A @ x
    return _worst(program, slack, _outside) / max(1.0, float(np.abs(slack).max(initial=0.0)))


def dual_residual(program: ConicProgram, z: FloatArray) -> float:
    """How much multipliers z miss A'z + c = 0 (of the minimum)
    or the dual cones by, relative to their size.
    """
    # A maximum is solved as the minimum of -c x, and its multipliers are those of that.
    sign = -1.0 if program.maximise else 1.0
    stationary = np.abs(program.A.T @ z + sign * program.cost).max(initial=0.0)
    return max(float(stationary), _worst(program, z, _outside_dual)) / max(
        1.0, float(np.abs(z).max(initial=0.0))
    )


def dual_objective(program: ConicProgram, z: FloatArray) -> float:
    """The bound that feasible multipliers prove."""
    sign = -1.0 if program.maximise else 1.0
    return sign * -float(program.b @ z) + program.offset


def _worst(
    program: ConicProgram, values: FloatArray, outside: Callable[[Cone, FloatArray], float]
) -> float:
    worst = 0.0
    start = 0
    for cone in program.cones:
        worst = max(worst, outside(cone, values[start : start + cone.rows]))
        start += cone.rows
    return worst


def _outside(cone: Cone, s: FloatArray) -> float:
    """By how much the inequality of a cone is broken."""
    if cone.kind == "zero":
        return float(np.abs(s).max(initial=0.0))
    if cone.kind == "nonnegative":
        return float(-s.min(initial=0.0))
    x, y, z = s.tolist()
    if cone.kind == "exponential":  # y exp(x / y) <= z, or x <= 0, y = 0, z >= 0
        # The cone is closed: at y = 0 it has the points with x <= 0 and z >= 0.
        if y <= 1e-9:
            return float(max(-y, x if x > 0 else 0.0, -z, 0.0))
        # Of a point far outside exp overflows, and infinity is what it is off by.
        with np.errstate(over="ignore"):
            return float(max(y * float(np.exp(x / y)) - z, 0.0))
    a = cone.parameter  # x^a y^(1 - a) >= |z|
    return float(max(-x, -y, abs(z) - max(x, 0.0) ** a * max(y, 0.0) ** (1.0 - a), 0.0))


def _outside_dual(cone: Cone, z: FloatArray) -> float:
    """By how much the inequality of the dual of a cone is broken."""
    if cone.kind == "zero":
        return 0.0
    if cone.kind == "nonnegative":
        return float(-z.min(initial=0.0))
    u, v, w = z.tolist()
    if cone.kind == "exponential":  # -u exp(v / u) <= e w with u < 0, or u = 0 and v, w >= 0
        # Its dual is closed as well: at u = 0 it has the points with v, w >= 0.
        if u > -1e-9:
            return float(max(u, -v, -w, 0.0))
        with np.errstate(over="ignore"):
            return float(max(-u * float(np.exp(v / u)) - np.e * w, 0.0))
    a = cone.parameter  # (u / a)^a (v / (1 - a))^(1 - a) >= |w|
    reach = (max(u, 0.0) / a) ** a * (max(v, 0.0) / (1.0 - a)) ** (1.0 - a)
    return float(max(-u, -v, abs(w) - reach, 0.0))
