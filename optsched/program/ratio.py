"""`Ratio`: one total over another as a utility,
and the linear program over y = x tau that it becomes.

Charnes and Cooper's transformation. With the rows of x written as l <= M x <= u,

    maximise g x / d x   s.t.  l <= M x <= u,  x >= 0                           (the ratio)

is, with tau = S / (d x) and y = x tau, the linear program

    maximise  g y / S
    s.t.      l tau <= M y <= u tau                                             (the rows, homogenised)
              d y = S                                                           (spending)
              y, tau >= 0

S is a mere scale, the power of two below the most that d x could be, so that y is not smaller than
x. A row with two different finite sides becomes two rows, the second in its own block
(`UPPER`).

Implied bounds. d y = S gives y_c <= S / d_c. tau has none that every feasible point keeps, but for
given y the smallest tau that the rows allow is as good as any, and it is as large as one row makes
it:

    tau  <=  S max_r max_c (M_rc / d_c) / u_r      over rows with u_r > 0 (and M_rc < 0, l_r < 0 likewise)

as M_r y is at most max_c (M_rc / d_c) d y. So some optimal point keeps this bound, which is what a
certificate needs. Where a column is free (d_c = 0) neither bound exists: there
`optsched.solution.certificate.NOISE` holds.

Rows that only limit. Where M >= 0, l <= 0 and u >= 0 (time, capacity, upper limits), any feasible x
stays feasible when it is scaled down or when columns are taken out of it. For every x with d x > 0

    g x / d x  =  sum_c (g_c / d_c) d_c x_c / sum_c d_c x_c  <=  r,   r = max g_c / d_c over columns that can be above 0

as a mean of ratios is at most the largest; and any amount of one column alone that has this ratio
reaches it. So no solver is needed (`Ratio.closed_form`): r is the optimum, and r / S as the dual of
``spending`` proves it, beside duals of rows with u = 0, which keep better columns at 0.

References
----------
A. Charnes, W. W. Cooper. "Programming with linear fractional functionals", Naval Research Logistics
Quarterly 9, 1962.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray
from optsched.errors import UsageError
from optsched.program.arrays import LinearArrays
from optsched.program.feasible_region import FeasibleRegion
from optsched.program.linear import LinearProgram
from optsched.program.utility import Utility

SPENDING = "spending"
UPPER = ":upper"
"""Ends the name of the block with the upper sides of rows that have two."""
EQUAL = 1e-12
"""Relative difference up to which two ratios are the same number."""


@dataclass(frozen=True)
class Ratio(Utility):
    """Maximise the sum of the levels of all jobs per unit of a total, d x.

    Attributes
    ----------
    denominator : FloatArray, shape (N,)
        d >= 0, per job-fraction of each column.
    """

    denominator: FloatArray

    homogenised: ClassVar[bool] = True
    without_optimum: ClassVar[str] = (
        "no allocation with a cost above 0, though the rows can be kept: "
        "a ratio to a cost of 0 does not exist"
    )

    def value(self, R: FeasibleRegion, x: FloatArray) -> float:
        """g x / d x; 0 where nothing runs and nothing is spent."""
        spent = float(self.denominator @ x)
        return float(R.gain @ x) / spent if spent > 0 else 0.0

    def scale(self, R: FeasibleRegion) -> float:
        """S: the power of two at or below the sum over columns of d_c
        and the most that x_c can be.
        """
        most = float(self.denominator @ R.requirements.implied_upper)
        return float(2.0 ** np.floor(np.log2(most))) if most > 0 else 1.0

    def dual_factor(self, R: FeasibleRegion, x: FloatArray) -> float:
        """tau = S / (d x)."""
        spent = float(self.denominator @ x)
        return self.scale(R) / spent if spent > 0 else 0.0

    def level_prices(self, R: FeasibleRegion) -> FloatArray:
        """1 / S, per unit of y."""
        return np.full(len(R.classes), 1.0 / self.scale(R))

    def lowered(self, R: FeasibleRegion) -> LinearProgram:
        """The linear program over y and tau.

        Raises
        ------
        UsageError
            If the rows of x have other columns, bounds of columns, whole numbers or an objective.
        """
        rows = R.requirements
        self._check(rows)
        d = self.denominator
        S = self.scale(R)
        with np.errstate(divide="ignore"):
            most = np.where(rows.implied_upper <= 0, 0.0, np.where(d > 0, S / d, np.inf))
        lp = LinearProgram()
        y = lp.variables(len(d), name="y", implied=(0.0, most))
        tau = lp.variables(1, name="tau", implied=(0.0, S * self._smallest_tau(rows)))
        for block in rows.rows:
            M = rows.by_rows[block.slice]
            low = rows.row_lower[block.slice]
            high = rows.row_upper[block.slice]
            # A side times tau moves to the left: M y - side tau, of which one side is 0.
            side = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
            both = two_sided(low, high)
            lower = np.where(np.isfinite(low), 0.0, -np.inf)
            upper = np.where(np.isfinite(high) & ~both, 0.0, np.inf)
            lp.constrain((M @ y - side[:, np.newaxis] @ tau).between(lower, upper), name=block.name)
            if both.any():
                second = M[both] @ y - high[both][:, np.newaxis] @ tau
                lp.constrain(second <= 0.0, name=f"{block.name}{UPPER}")
        lp.constrain(d[np.newaxis, :] @ y == S, name=SPENDING)
        lp.maximise((R.gain / S)[np.newaxis, :] @ y)
        return lp

    def _check(self, rows: LinearArrays) -> None:
        """Refuse what is no set of rows over fractions of time."""
        if rows.is_integer:
            raise UsageError(
                "a ratio takes fractions of time only: with whole jobs (integral) it is no "
                "linear program"
            )
        bounded = np.isfinite(rows.upper).any() or rows.lower.any()
        if rows.shape[1] != len(self.denominator) or rows.cost.any() or bounded:
            raise UsageError(
                "with a ratio, extend may add rows over x, and neither columns nor an objective"
            )

    def closed_form(self, R: FeasibleRegion) -> tuple[FloatArray, FloatArray] | None:
        """The optimum where rows only limit, and duals of the linear program's rows that prove it.

        Columns of the best ratio are filled one after the other, in their order, each as far as the
        rows allow: the ratio is the same for any amount of them, the throughput is not.

        Returns
        -------
        (point, duals), or None where a row asks for something (it is a linear program then), where
        nothing can run, or where a column that can run costs nothing.
        """
        gain, rows = R.gain, R.requirements
        self._check(rows)
        d, A, limit = self.denominator, rows.A.tocsc(), rows.row_upper
        if (rows.row_lower > 0).any() or (limit < 0).any() or (A.data < 0).any():
            return None
        entries = A.tocoo()
        shut = (limit[entries.row] == 0) & (entries.data > 0)  # entries that keep their column at 0
        usable = rows.implied_upper > 0
        usable[entries.col[shut]] = False
        if not usable.any() or (d[usable] <= 0).any():
            return None
        ratio = np.divide(gain, d, out=np.zeros(len(d)), where=usable)
        best = float(ratio.max())
        x, left = np.zeros(len(d)), limit.copy()
        for column in np.flatnonzero(usable & (ratio >= best * (1.0 - EQUAL))).tolist():
            of_column = slice(A.indptr[column], A.indptr[column + 1])
            row, uses = A.indices[of_column], A.data[of_column]
            row, uses = row[uses > 0], uses[uses > 0]
            x[column] = (left[row] / uses).min()
            left[row] = np.maximum(left[row] - x[column] * uses, 0.0)
        S = self.scale(R)
        # Rows with a side of 0 pay what the better columns, which they shut, earn beyond the best
        # ratio.
        excess = np.maximum(gain - best * d, 0.0) / S
        price = np.zeros(len(limit))
        np.maximum.at(price, entries.row[shut], excess[entries.col[shut]] / entries.data[shut])
        duals = []
        for block in rows.rows:
            of_block = price[block.slice]
            both = two_sided(rows.row_lower[block.slice], limit[block.slice])
            duals += [np.where(both, 0.0, of_block), of_block[both]]
        return self.complete(R, x), np.concatenate([*duals, [best / S]])

    def _smallest_tau(self, rows: LinearArrays) -> float:
        """The most, over all y with d y = 1, of the smallest tau that the rows allow;
        infinite with free columns.
        """
        usable = np.flatnonzero(rows.implied_upper > 0)
        d = self.denominator[usable]
        if (d <= 0).any():
            return np.inf
        per_unit = sp.csr_matrix(rows.A[:, usable] @ sp.diags_array(1.0 / d))
        most = 0.0
        for matrix, side in ((per_unit, rows.row_upper), (-per_unit, -rows.row_lower)):
            some = np.flatnonzero(np.isfinite(side) & (side > 0))
            if len(some) and matrix.shape[1]:
                reach = np.asarray(matrix[some].max(axis=1).todense()).ravel()
                most = max(most, float((reach / side[some]).max()))
        return most

    def polished(self, R: FeasibleRegion, arrays: LinearArrays, y: FloatArray) -> FloatArray:
        """Duals of the linear program moved to where they prove most: any duals prove something.

        The bound that an interior-point method's duals leave is weak, as the bound of tau, by which
        the error of its reduced cost counts, may be thousands of times its value. So the duals of
        rows that ask tau to be large shrink until tau earns nothing, and that of ``spending``
        becomes the least by which no y_c with d_c > 0 earns anything.

        """
        d = self.denominator
        # A dual with the wrong sign for a row without that side proves nothing: 0 does.
        y = np.where(np.isposinf(arrays.row_upper), np.minimum(y, 0.0), y)
        y = np.where(np.isneginf(arrays.row_lower), np.maximum(y, 0.0), y)
        earned = -np.asarray(arrays.A[:, [len(d)]].todense()).ravel() * y
        total, positive = float(earned.sum()), float(earned[earned > 0].sum())
        if total > 0:
            y = np.where(earned > 0, y * (1.0 - total / positive), y)
        reduced = (arrays.cost - arrays.A.T @ y)[: len(d)]
        paid = d > 0
        if paid.any():
            y[arrays.row_block(SPENDING).start] += float((reduced[paid] / d[paid]).max())
        return y

    def complete(self, R: FeasibleRegion, x: FloatArray) -> FloatArray:
        """(y, tau) of an allocation;
        0 of one that spends nothing, which the row ``spending`` then refuses.
        """
        tau = self.dual_factor(R, x)
        return np.append(x * tau, tau)

    def allocation_of(self, R: FeasibleRegion, point: FloatArray) -> FloatArray:
        """The allocation of (y, tau):
        y / tau, all of it raised by one factor as far as the rows allow.

        The ratio does not change with the factor, the throughput does. Rows with a side of 0 allow
        any factor. A point with a NaN or of the wrong size counts as NaN.
        """
        if point.shape != (len(self.denominator) + 1,) or not np.isfinite(point).all():
            return np.full(len(self.denominator), np.nan)
        y, tau = point[:-1], float(point[-1])
        if tau <= 0:
            return np.zeros(len(y))
        x, rows = y / tau, R.requirements
        activity = rows.A @ x
        # How many times as much each row that limits x would allow.
        room = [
            side[some] / activity[some]
            for side, some in (
                (
                    rows.row_upper,
                    np.isfinite(rows.row_upper) & (rows.row_upper > 0) & (activity > 0),
                ),
                (
                    rows.row_lower,
                    np.isfinite(rows.row_lower) & (rows.row_lower < 0) & (activity < 0),
                ),
            )
        ]
        least = float(np.concatenate(room).min(initial=np.inf))
        return x * (least if 1.0 < least < np.inf else 1.0)


def two_sided(lower: FloatArray, upper: FloatArray) -> BoolArray:
    """Mask of the rows with two different finite sides."""
    return np.asarray(np.isfinite(lower) & np.isfinite(upper) & (lower != upper))


def dual_of(
    duals: Mapping[str, FloatArray], name: str, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Duals of the rows of a block, the block of its upper sides included."""
    found = duals[name]
    if f"{name}{UPPER}" in duals:
        found = found.copy()
        found[two_sided(lower, upper)] += duals[f"{name}{UPPER}"]
    return found
