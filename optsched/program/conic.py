"""`ConicProgram`: arrays over cones, in the form that Clarabel takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.program.arrays import LinearArrays
from optsched.program.utility import Total


@dataclass(frozen=True, slots=True)
class Cone:
    """A cone of consecutive rows: ``zero``, ``nonnegative``, ``exponential`` (3 rows) or ``power`` (3 rows).

    The exponential cone is the closure of {(x, y, z): y > 0, y exp(x / y) <= z}; the power cone with parameter a is
    {(x, y, z): x^a y^(1 - a) >= |z|, x, y >= 0}.
    """

    kind: str
    rows: int
    parameter: float = 0.0


@dataclass(frozen=True)
class LinearRows:
    """How the rows of a linear program became rows of cones, to bring duals back.

    Row i of the conic form is ``sign[i]`` times linear row ``source[i]``, or a column bound where ``source`` is -1.
    """

    source: np.ndarray
    sign: FloatArray
    count: int

    def duals(self, z: FloatArray, maximise: bool) -> FloatArray:
        """Duals of the linear rows (derivatives of the optimum) from multipliers of the first rows of the cones."""
        y = np.zeros(self.count)
        own = self.source >= 0
        np.add.at(y, self.source[own], (self.sign * z[: len(self.source)])[own])
        return y if maximise else -y


@dataclass(frozen=True)
class ConicProgram:
    """optimise c'x + offset  s.t.  b - A x in K = K_1 x K_2 x ...

    Attributes
    ----------
    A : csc_matrix, shape (M, N)
    b : FloatArray, shape (M,)
    cost : FloatArray, shape (N,)
    cones : tuple of Cone
    maximise : bool
    offset : float
    linear : LinearRows or None
        Where the first rows come from, if they were lowered from a linear program.
    """

    A: sp.csc_matrix
    b: FloatArray
    cost: FloatArray
    cones: tuple[Cone, ...]
    maximise: bool
    offset: float
    linear: LinearRows | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.A.shape

    def objective(self, x: FloatArray) -> float:
        """c'x + offset."""
        return float(self.cost @ x) + self.offset


def linear_to_conic(arrays: LinearArrays) -> ConicProgram:
    """Write a linear program over the zero and nonnegative cones: equalities, then ``<=``, ``>=``, column bounds."""
    matrix = arrays.by_rows
    equal = arrays.row_lower == arrays.row_upper
    fixed = np.flatnonzero(equal)
    above = np.flatnonzero(~equal & np.isfinite(arrays.row_upper))
    below = np.flatnonzero(~equal & np.isfinite(arrays.row_lower))
    identity = sp.eye_array(arrays.shape[1], format="csr")
    upper = np.flatnonzero(np.isfinite(arrays.upper))
    lower = np.flatnonzero(np.isfinite(arrays.lower))
    stacked = sp.vstack([matrix[fixed], matrix[above], -matrix[below], identity[upper], -identity[lower]], format="csc")
    b = np.concatenate(
        [
            arrays.row_upper[fixed],
            arrays.row_upper[above],
            -arrays.row_lower[below],
            arrays.upper[upper],
            -arrays.lower[lower],
        ]
    )
    cones = tuple(
        Cone(kind, rows) for kind, rows in (("zero", len(fixed)), ("nonnegative", len(b) - len(fixed))) if rows
    )
    bounds = len(upper) + len(lower)
    source = np.concatenate([fixed, above, below, np.full(bounds, -1)])
    sign = np.concatenate([np.ones(len(fixed) + len(above)), -np.ones(len(below)), np.zeros(bounds)])
    return ConicProgram(
        sp.csc_matrix(stacked), b, arrays.cost, cones, arrays.maximise, arrays.offset,
        LinearRows(source, sign, arrays.shape[0]),
    )  # fmt: skip


def with_utility_cones(base: ConicProgram, levels: sp.csr_matrix, count: FloatArray, utility: Total) -> ConicProgram:
    """Append (u, 1, level) in the exponential cone, or the power cone that says e u <= level^e, per class.

    The columns of ``base`` are N totals x of columns, then K values u.
    """
    e, (K, N) = utility.exponent, levels.shape
    level = sp.hstack(  # rows of b - A x, hence the sign
        [-sp.csr_matrix(sp.diags_array(1.0 / count) @ levels), sp.csr_matrix((K, K))], format="csr"
    )
    zero = sp.csr_matrix((K, N + K))
    negative_u = sp.hstack([sp.csr_matrix((K, N)), -sp.eye_array(K)], format="csr")
    zeros, ones = np.zeros(K), np.ones(K)
    if utility.function == "log":  # exp(u) <= level
        parts = ((negative_u, zeros), (zero, ones), (level, zeros))
        cone = Cone("exponential", 3)
    elif e > 0:  # level^e 1^(1 - e) >= e u
        parts = ((level, zeros), (zero, ones), (e * negative_u, zeros))
        cone = Cone("power", 3, e)
    else:  # w = e u >= level^e, that is w^a level^(1 - a) >= 1 with a = 1 / (1 - e)
        parts = ((e * negative_u, zeros), (level, zeros), (zero, ones))
        cone = Cone("power", 3, 1.0 / (1.0 - e))
    order = np.arange(3 * K).reshape(3, K).T.ravel()  # three rows of a class together
    matrix = sp.vstack([part for part, _ in parts], format="csr")[order]
    b = np.concatenate([constant for _, constant in parts])[order]
    return ConicProgram(
        sp.csc_matrix(sp.vstack([base.A, matrix])),
        np.concatenate([base.b, b]),
        base.cost,
        (*base.cones, *([cone] * K)),
        base.maximise,
        base.offset,
        base.linear,
    )
