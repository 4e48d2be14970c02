"""A total of utilities of the levels: linear, logarithms, or powers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.errors import UsageError
from optsched.program.conic import Cone, ConicProgram, linear_to_conic
from optsched.program.feasible_region import FeasibleRegion
from optsched.program.linear import LinearProgram
from optsched.program.linear_form import AllocationForm, LinearForm
from optsched.program.side_rows import SameWords, SideRows
from optsched.program.utility import Utility

LARGEST_LEVEL = 1e100
"""Largest level that is derived from a slope; the terms of a tangent overflow beyond it."""
LEVELS = 1e-6
"""Relative precision of the levels where the value is a sum of their logarithms."""


@dataclass(frozen=True)
class Total(Utility):
    """Maximise the sum over jobs of w f(level).

        maximise  sum_k n_k w_k f(level_k)   s.t.  time, capacity, side rows

    ``function`` is ``linear`` (f(v) = v), ``log``, or ``power`` (f(v) = v^e / e with e < 1, e !=
    0).

    Attributes
    ----------
    weight : FloatArray, shape (K,)
        w of each job of a class.
    function : str
    exponent : float
        e.
    """

    weight: FloatArray
    function: str = "linear"
    exponent: float = 1.0

    empty_value: ClassVar[float | None] = 0.0

    @property
    def conic(self) -> bool:
        """Whether f is not linear."""
        return self.function != "linear"

    @property
    def worthless_at_zero(self) -> bool:
        """Whether f(0) is minus infinity."""
        return self.function == "log" or (self.function == "power" and self.exponent < 0)

    # --- f ----------------------------------------------------------------------------------------

    def f(self, level: FloatArray) -> FloatArray:
        if self.function == "linear":
            return level
        with np.errstate(divide="ignore"):
            return np.log(level) if self.function == "log" else level**self.exponent / self.exponent

    def slope(self, level: FloatArray) -> FloatArray:
        """Derivative of `f` at each level."""
        if self.function == "linear":
            return np.ones_like(level)
        return 1.0 / level if self.function == "log" else level ** (self.exponent - 1.0)

    def steepness(self, level: FloatArray) -> FloatArray:
        """w f' of each class at its level, shape (K,)."""
        with np.errstate(divide="ignore"):
            return self.weight * self.slope(level)

    def level(self, slope: FloatArray) -> FloatArray:
        """Where f has these slopes, elementwise; f is not linear."""
        return 1.0 / slope if self.function == "log" else slope ** (1.0 / (self.exponent - 1.0))

    def level_at(self, slope: FloatArray, other: FloatArray) -> FloatArray:
        """Levels at which w f has these slopes, elementwise; ``other`` where there is none, or it
        is beyond `LARGEST_LEVEL`.
        """
        slope = slope / self.weight
        with np.errstate(over="ignore"):
            level = self.level(np.where(slope > 0, slope, 1.0))
        return np.where((slope > 0) & (level < LARGEST_LEVEL), level, other)

    # --- as programs ------------------------------------------------------------------------------

    def value(self, R: FeasibleRegion, x: FloatArray) -> float:
        return float((R.classes.count * self.weight) @ self.f(R.level(x)))

    def lowered(self, R: FeasibleRegion) -> LinearProgram:
        """maximise  w' levels @ x.  A total of other functions has no linear program."""
        if self.conic:
            raise UsageError(
                f"a total of {self.function} utilities is not linear: no MPS or LP file holds it; "
                "in Python, to_conic() makes a conic program of it"
            )
        lp, variables = R.bare()
        lp.maximise((sp.csr_matrix(self.weight[np.newaxis, :]) @ R.levels) @ variables["x"])
        return R.with_own_rows(lp, variables)

    def complete(self, R: FeasibleRegion, x: FloatArray) -> FloatArray:
        """x, and the levels where the program is a tangent."""
        return np.append(x, R.level(x)) if self.conic else x

    def touching(
        self, R: FeasibleRegion, x: FloatArray, duals: FloatArray | None = None
    ) -> FloatArray:
        """Levels of the tangent cuts, shape (K,): those of x, or those at which f' equals the duals
        of the level rows.

        The objective is flat near the optimum: if it is right to 1e-9, levels may be wrong by 1e-5.
        The tangent cuts at x then leave a gap of 1e-5, while those at the levels of the duals leave
        none.
        """
        v = np.maximum(R.level(x), np.finfo(float).tiny)
        # The level rows are the last ones.
        return v if duals is None else self.level_at(-duals[len(duals) - len(R.classes) :], v)

    def tangent(
        self, R: FeasibleRegion, x: FloatArray, duals: FloatArray | None = None
    ) -> LinearProgram:
        """The linear program in which f is replaced by its tangents at levels v (`touching`).

            maximise  sum_k n_k w_k (f(v_k) + f'(v_k) (l_k - v_k))   s.t.  levels @ x >= n l,  the other rows

        This is where tangent cuts of a concave total are made: one per class, at v_k. As f is
        concave, its tangents lie above it, so a bound on this program is a bound on the allocation
        program too. That is how duals certify a concave total, whichever solver found them.
        """
        if not self.conic:
            return self.lowered(R)
        C, v = R.classes, self.touching(R, x, duals)
        lp, variables = R.bare()
        level = lp.variables(len(C), name="level", implied=(0.0, R.level_limit))
        lp.constrain(
            R.levels @ variables["x"] - sp.diags_array(C.count) @ level >= 0.0, name="levels"
        )
        slope, size = self.slope(v), C.count * self.weight
        lp.maximise((size * slope)[np.newaxis, :] @ level + float(size @ (self.f(v) - slope * v)))
        return lp

    def without_matrix(
        self, R: FeasibleRegion, x: FloatArray, duals: FloatArray | None = None
    ) -> LinearForm:
        size = R.classes.count * self.weight
        if not self.conic:
            return AllocationForm(R, np.zeros(0), self.weight)
        v = self.touching(R, x, duals)
        slope = self.slope(v)
        constant = float(size @ (self.f(v) - slope * v))
        return AllocationForm(R, size * slope, offset=constant)

    def to_conic(self, R: FeasibleRegion) -> ConicProgram:
        """One exponential or power cone per class:
        u_k <= f(level_k), maximise sum_k n_k w_k u_k.
        """
        if not self.conic or R.integral or R.extend is not None:
            return super().to_conic(R)
        lp, _ = R.bare()
        u = lp.variables(len(R.classes), name="u", lower=-np.inf)
        lp.maximise((R.classes.count * self.weight)[np.newaxis, :] @ u)
        return self._with_cones(linear_to_conic(lp.arrays), R.levels, R.classes.count)

    def _with_cones(
        self, base: ConicProgram, levels: sp.csr_matrix, count: FloatArray
    ) -> ConicProgram:
        """Append (u, 1, level) in the exponential cone,
        or the power cone that says e u <= level^e, per class.

        The columns of ``base`` are N totals x of columns, then K values u.
        """
        e, (K, N) = self.exponent, levels.shape
        level = sp.hstack(  # rows of b - A x, hence the sign
            [-sp.csr_matrix(sp.diags_array(1.0 / count) @ levels), sp.csr_matrix((K, K))],
            format="csr",
        )
        zero = sp.csr_matrix((K, N + K))
        negative_u = sp.hstack([sp.csr_matrix((K, N)), -sp.eye_array(K)], format="csr")
        zeros, ones = np.zeros(K), np.ones(K)
        if self.function == "log":  # exp(u) <= level
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

    def tangent_duals(self, R: FeasibleRegion, linear: FloatArray, cones: FloatArray) -> FloatArray:
        """Duals of the rows of `tangent` from those of the linear rows
        and the multipliers of the cones.
        """
        # Which of the three rows of a cone has the level; `_with_cones` stacks them.
        place = 2 if self.function == "log" else 0 if self.exponent > 0 else 1
        return np.concatenate([linear, -cones.reshape(-1, 3)[:, place] / R.classes.count])

    # --- bounds and rows --------------------------------------------------------------------------

    def level_prices(self, R: FeasibleRegion) -> FloatArray | None:
        """w, where f is linear."""
        return None if self.conic else self.weight.astype(np.float64)

    def worth_alone(self, R: FeasibleRegion) -> FloatArray | None:
        """w f' at the highest level of each class, where f is not linear."""
        if not self.conic:
            return None
        return self.weight * self.slope(np.maximum(R.highest_level, np.finfo(float).tiny))

    def terms(self, R: FeasibleRegion, x: FloatArray) -> float | None:
        """n w (|f| + f' level) at the levels of x and at the highest ones, where f is not linear.

        At a level of 0 the slope, and with it the terms of a tangent, may be infinite.
        """
        if not self.conic:
            return None
        size, sums = R.classes.count * self.weight, []
        for level in (R.level(x), R.level_limit):
            some = level > 0
            v = level[some]
            sums.append(float(size[some] @ (np.abs(self.f(v)) + self.slope(v) * v)))
        return max(sums)

    def noise(self, R: FeasibleRegion) -> float:
        """A sum of logarithms has no size of its own: it is 0 where all levels are 1.

        Divided by the sum of the weights it is the logarithm of a mean of the levels, of which a
        part of `LEVELS` means nothing.
        """
        return LEVELS * float(R.classes.count @ self.weight) if self.function == "log" else 0.0

    def rounding(self, R: FeasibleRegion, x: FloatArray) -> float:
        """Rounding error of the terms of f and of its tangent, which may cancel."""
        if not self.conic:
            return 0.0
        level, weight = R.level(x), R.classes.count * self.weight
        reached = np.maximum(level, np.finfo(float).tiny)
        size = float(weight @ (np.abs(self.f(level)) + self.slope(reached) * level))
        return 1e-12 * size if np.isfinite(size) else 0.0

    def of_classes(self, some: IntArray) -> Total:
        return replace(self, weight=self.weight[some])

    def at_least(self, R: FeasibleRegion, value: FloatArray | float, name: str) -> SideRows:
        """w' levels @ x >= value, one row."""
        matrix = sp.csr_matrix(sp.csr_matrix(self.weight[np.newaxis, :]) @ R.levels)
        return SideRows(
            name, matrix, np.array([value]), np.array([np.inf]), SameWords(f"the {name} objective")
        )
