"""Side rows that may give way: the least shortfall, found before anything else is optimised."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.arrays.values import cached_property, replace
from optsched.program.allocation import AllocationProgram
from optsched.program.linear import LinearProgram

if TYPE_CHECKING:
    from optsched.program.side_rows import Assumption, SideRows

NEGLIGIBLE = 1e-9
"""Shortfalls below this are rounding, and the slack of those that are not."""


class RelaxedRows:
    """The rows of a program that may give way, and the program of their least shortfall.

        minimise  sum_i w_i s_i   s.t.  (matrix @ x)_i + lower_i s_i >= lower_i   for every row i that may,
                                        0 <= s_i <= 1 (whole where rows are dropped as a whole), the
                                        other rows

    s_i is the part of the requirement that is not met. These s are then fixed, row by row.

    Parameters
    ----------
    program : AllocationProgram
    """

    def __init__(self, program: AllocationProgram) -> None:
        self.program = program
        self.rows: list[SideRows] = [rows for rows in program.side if rows.relax != "none"]

    @property
    def needed(self) -> bool:
        """Whether any row may give way."""
        return bool(self.rows)

    @cached_property
    def strict(self) -> AllocationProgram:
        """The program without the rows that may give way."""
        return replace(
            self.program, side=tuple(rows for rows in self.program.side if rows.relax == "none")
        )

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The assumptions of the rows that may give way."""
        return tuple(
            dict.fromkeys(rows.assumption for rows in self.rows if rows.assumption is not None)
        )

    @cached_property
    def weight(self) -> FloatArray:
        """w of all rows that may give way."""
        return np.concatenate(
            [
                rows.weight if rows.weight is not None else np.ones(len(rows.lower))
                for rows in self.rows
            ]
        )

    def to_linear(self) -> LinearProgram:
        lp, variables = self.strict.bare()
        total = None
        for rows in self.rows:
            whole = rows.relax == "count"
            s = lp.variables(len(rows.lower), name=f"{rows.name} short", upper=1.0, integer=whole)
            given = sp.diags_array(rows.lower) @ s
            lp.constrain(rows.matrix @ variables["x"] + given >= rows.lower, name=rows.name)
            weight = np.ones(len(rows.lower)) if rows.weight is None else rows.weight
            cost = weight[np.newaxis, :] @ s
            total = cost if total is None else total + cost
        assert total is not None
        lp.minimise(total)
        return lp

    def short(self, point: FloatArray) -> FloatArray:
        """s of all rows from a point of the linear program."""
        s = np.clip(point[self.program.classes.columns :], 0.0, 1.0)
        s = np.where(s < NEGLIGIBLE, 0.0, s)
        whole = np.concatenate(
            [np.full(len(rows.lower), rows.relax == "count") for rows in self.rows]
        )
        return np.where(whole, np.round(s), s)

    def value(self, short: FloatArray) -> float:
        """Weighted total shortfall, sum of w s."""
        return float(self.weight @ short)

    def relaxed(self, short: FloatArray) -> AllocationProgram:
        """The program with every row that may give way lowered by what it falls short."""
        side, start = [], 0
        for rows in self.program.side:
            if rows.relax == "none":
                side.append(rows)
                continue
            parts = short[start : start + len(rows.lower)]
            start += len(rows.lower)
            left = np.maximum(1.0 - parts, 0.0)
            # The solver met the fixed shortfall up to its tolerance, and the next program must be
            # feasible.
            slack = np.where(parts > 0, np.minimum(NEGLIGIBLE, left), 0.0)
            lower = rows.lower * (left - slack)
            side.append(replace(rows, lower=lower, slack=rows.lower * slack, relax="none"))
        return replace(self.program, side=tuple(side))

    def words(self, short: FloatArray) -> tuple[str, ...]:
        """The requirements that give way, as text."""
        broken_words, start = [word for rows in self.rows for word in rows.broken], 0
        for rows in self.rows:
            parts = short[start : start + len(rows.lower)]
            start += len(rows.lower)
            broken_words += [
                _falls_short(rows.describe, row, float(parts[row]))
                for row in np.flatnonzero(parts > 0).tolist()
            ]
        return tuple(broken_words)


def _falls_short(describe: Callable[[int], str], row: int, part: float) -> str:
    what = "is given up" if part >= 1.0 else f"falls {100.0 * part:.3g} % short"
    return f"{describe(row)}: {what}"
