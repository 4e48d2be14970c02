"""`ConicProgram`: arrays over cones, in the form that Clarabel takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.display import Displayed, count
from optsched.program.arrays import LinearArrays


@dataclass(frozen=True, slots=True)
class Cone:
    """A cone of consecutive rows:
    ``zero``, ``nonnegative``, ``exponential`` (3 rows) or ``power`` (3 rows).

    The exponential cone is the closure of {(x, y, z): y > 0, y exp(x / y) <= z}; the power cone
    with parameter a is {(x, y, z): x^a y^(1 - a) >= |z|, x, y >= 0}.
    """

    kind: str
    rows: int
    parameter: float = 0.0


@dataclass(frozen=True)
class LinearRows:
    """How the rows of a linear program became rows of cones, to bring duals back.

    Row i of the conic form is ``sign[i]`` times linear row ``source[i]``, or a column bound where
    ``source`` is -1.
    """

    source: np.ndarray
    sign: FloatArray
    count: int

    def duals(self, z: FloatArray, maximise: bool) -> FloatArray:
        """Duals of the linear rows (derivatives of the optimum)
        from multipliers of the first rows of the cones.
        """
        y = np.zeros(self.count)
        is_row = self.source >= 0
        np.add.at(y, self.source[is_row], (self.sign * z[: len(self.source)])[is_row])
        return y if maximise else -y


@dataclass(frozen=True, repr=False)
class ConicProgram(Displayed):
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

    def _headline(self) -> str:
        rows, columns = self.shape
        cones = count(len(self.cones), "cone")
        return f"{count(columns, 'column')}, {count(rows, 'row')} in {cones}"

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.A.shape

    def objective(self, x: FloatArray) -> float:
        """Value of the objective at x, c'x + offset."""
        return float(self.cost @ x) + self.offset


def linear_to_conic(arrays: LinearArrays) -> ConicProgram:
    """Write a linear program over the zero and nonnegative cones:
    equalities, then ``<=``, ``>=``, column bounds.
    """
    matrix = arrays.by_rows
    equal = arrays.row_lower == arrays.row_upper
    fixed = np.flatnonzero(equal)
    above = np.flatnonzero(~equal & np.isfinite(arrays.row_upper))
    below = np.flatnonzero(~equal & np.isfinite(arrays.row_lower))
    identity = sp.eye_array(arrays.shape[1], format="csr")
    upper = np.flatnonzero(np.isfinite(arrays.upper))
    lower = np.flatnonzero(np.isfinite(arrays.lower))
    stacked = sp.vstack(
        [matrix[fixed], matrix[above], -matrix[below], identity[upper], -identity[lower]],
        format="csc",
    )
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
        Cone(kind, rows)
        for kind, rows in (("zero", len(fixed)), ("nonnegative", len(b) - len(fixed)))
        if rows
    )
    bounds = len(upper) + len(lower)
    source = np.concatenate([fixed, above, below, np.full(bounds, -1)])
    sign = np.concatenate(
        [np.ones(len(fixed) + len(above)), -np.ones(len(below)), np.zeros(bounds)]
    )
    return ConicProgram(
        sp.csc_matrix(stacked),
        b,
        arrays.cost,
        cones,
        arrays.maximise,
        arrays.offset,
        LinearRows(source, sign, arrays.shape[0]),
    )
