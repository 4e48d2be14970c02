r"""The option ``parts`` (POP): an allocation program split into parts, each with an equal part of
the shared resources.

Sets
    classes k, each in one part p = 1..P; columns c, of part p where all their classes are; columns
    of jobs of two parts are left out.
Program of part p
    its classes, columns and levels as they are, and of the rows

        time                member @ x <= n                as they are
        capacity            usage @ x  <= capacity / P     nothing is rounded: the parts have all there is
        side rows           of one part alone as they are; rows of several parts, which only limit sums, with upper / P

Joined
    x, the points of the parts side by side, keeps all rows: those that are shared add up to at most
    P (capacity / P).
Bound
    The price of a row that is shared is the mean of its duals over the parts; other rows have those
    of their part (of a smallest level all are divided by P, as weights of levels add up to 1 in
    each part). At these prices the best duals of the whole are found class by class
    (`optsched.program.price_bound`), among columns between parts too. The certificate evaluates
    them on the whole program, without anything of the parts.

References
----------
D. Narayanan, F. Kazhamiaka, F. Abuzaid, P. Kraft, A. Agrawal, S. Kandula, S. Boyd, M. Zaharia.
"Solving Large-Scale Granular Resource Allocation Problems Efficiently with POP", SOSP 2021. There
capacities are divided as whole GPUs, whose remainder is lost, and no bound is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import cached_property, replace
from optsched.display import Displayed, count
from optsched.errors import InvalidArgument
from optsched.program.price_bound import RowDuals
from optsched.program.utility import Method

if TYPE_CHECKING:  # a process that only solves needs no side rows
    from optsched.program.allocation import AllocationProgram
    from optsched.program.side_rows import SideRows

SHARED = -1
"""In the place of the part of a row: several parts share it."""


@dataclass(frozen=True, repr=False, eq=False)
class ProgramParts(Displayed):
    """A program and the part of each of its classes.

    Attributes
    ----------
    program : AllocationProgram
    part : IntArray, shape (K,)
        From 0, each of them with a class at least.
    """

    program: AllocationProgram
    part: IntArray

    @classmethod
    def of(cls, program: AllocationProgram, part: IntArray) -> ProgramParts:
        """The partition; raises `InvalidArgument` for programs that do not fall into parts."""
        found = cls(program, np.unique(part, return_inverse=True)[1])
        why = _indivisible(program)
        for rows in program.side:
            if why is None and not rows.limiting[found.of_rows(rows) == SHARED].all():
                why = f"rows {rows.name!r} ask for something of jobs of several parts"
        if why is not None:
            raise InvalidArgument("parts", str(found.parts), f"1, as {why}")
        return found

    def _headline(self) -> str:
        classes = count(len(self.part), "class", "classes")
        return f"{classes} in {count(self.parts, 'part')}"

    @property
    def parts(self) -> int:
        """P, the number of parts."""
        return int(self.part.max()) + 1

    @cached_property
    def of_column(self) -> IntArray:
        """Part of each column, shape (N,); `SHARED` between jobs of two parts."""
        C = self.program.classes
        first = self.part[C.class_a]
        if C.all_alone:
            return first
        second = np.where(C.alone, first, self.part[C.class_b])
        return np.where(first == second, first, SHARED)

    def of_rows(self, rows: SideRows) -> IntArray:
        """Part of each side row, by the columns of parts that it has; `SHARED` where several have
        some.
        """
        matrix = sp.coo_matrix(rows.matrix)
        inside = (matrix.data != 0) & (self.of_column[matrix.col] != SHARED)
        row, part = matrix.row[inside], self.of_column[matrix.col[inside]]
        least = np.full(matrix.shape[0], self.parts, np.int64)
        most = np.full(matrix.shape[0], SHARED, np.int64)
        np.minimum.at(least, row, part)
        np.maximum.at(most, row, part)
        # A row that no part has any column of: the first one tells whether it can be kept.
        return np.where(most == SHARED, 0, np.where(least == most, most, SHARED))

    # --- the programs of the parts ----------------------------------------------------------------

    def program_of(self, part: int) -> AllocationProgram:
        """The program of one part."""
        whole = self.program
        classes, columns = self.classes_of(part), self.columns_of(part)
        C = whole.classes.some(classes, columns, 1.0 / self.parts)
        side = [self._rows_of(part, columns, rows) for rows in whole.side]
        return replace(
            whole,
            classes=C,
            utility=whole.utility.of_classes(classes),
            levels=sp.csr_matrix(whole.levels[classes][:, columns]),
            side=tuple(rows for rows in side if len(rows.upper)),
            parts=None,
        )

    def classes_of(self, part: int) -> IntArray:
        """Classes of a part."""
        return np.flatnonzero(self.part == part)

    def columns_of(self, part: int) -> IntArray:
        """Columns of a part."""
        return np.flatnonzero(self.of_column == part)

    def _rows_of(self, part: int, columns: IntArray, rows: SideRows) -> SideRows:
        """Side rows that a part has: its own, and its share of those of all."""
        owner = self.of_rows(rows)
        kept = self._rows_with(owner, part)
        upper = np.where(owner == SHARED, rows.upper / self.parts, rows.upper)
        of_class = rows.of_class
        return replace(
            rows,
            matrix=sp.csr_matrix(rows.matrix[kept][:, columns]),
            lower=rows.lower[kept],
            upper=upper[kept],
            describe=partial(_described, rows.describe, kept),
            weight=None if rows.weight is None else rows.weight[kept],
            slack=None if rows.slack is None else rows.slack[kept],
            of_class=None if of_class is None else self._place[of_class[kept]],
        )

    @cached_property
    def _place(self) -> IntArray:
        """Number of each class in its part."""
        place = np.empty(len(self.part), np.int64)
        for part in range(self.parts):
            classes = self.classes_of(part)
            place[classes] = np.arange(len(classes))
        return place

    @staticmethod
    def _rows_with(owner: IntArray, part: int) -> IntArray:
        return np.flatnonzero((owner == part) | (owner == SHARED))

    # --- the whole again --------------------------------------------------------------------------

    def joined(self, points: Sequence[FloatArray]) -> FloatArray:
        """The points of all parts as one of the whole, shape (N,)."""
        x = np.zeros(self.program.classes.columns)
        for part, point in enumerate(points):
            x[self.columns_of(part)] = point
        return x

    def joined_duals(self, duals: Sequence[Mapping[str, FloatArray]]) -> RowDuals:
        """Multipliers of the rows of the whole, from duals of the rows of all parts by block."""
        C, utility = self.program.classes, self.program.utility
        factor = 1.0 / self.parts if utility.smallest_level else 1.0
        paid = utility.level_prices(self.program)
        time, capacity = np.zeros(len(C)), np.zeros(len(C.capacity))
        worth = np.zeros(len(C)) if paid is None else paid
        side = tuple(np.zeros(len(rows.upper)) for rows in self.program.side)
        for part, of_part in enumerate(duals):
            classes = self.classes_of(part)
            time[classes] = factor * np.maximum(of_part["time"], 0.0)
            if paid is None:
                worth[classes] = factor * np.maximum(-of_part["levels"], 0.0)
            capacity += factor / self.parts * np.maximum(of_part["capacity"], 0.0)
            for rows, whole in zip(self.program.side, side, strict=True):
                owner = self.of_rows(rows)
                at = self._rows_with(owner, part)
                shared = np.where(owner[at] == SHARED, 1.0 / self.parts, 1.0)
                whole[at] += factor * shared * of_part.get(rows.name, np.zeros(0))
        return RowDuals(time, capacity, side, worth)


def _described(describe: Callable[[int], str], rows: IntArray, row: int) -> str:
    """The words of a row of a part, by those of all rows and their numbers."""
    return describe(int(rows[row]))


def _indivisible(program: AllocationProgram) -> str | None:
    """Why a program does not fall into parts; None where it does."""
    utility = program.utility
    if program.integral:
        return "jobs are whole"
    if program.extend is not None:
        return "there are extra rows (extend)"
    if utility.homogenised:
        return "the objective is a ratio"
    if utility.method is Method.WATER_FILLING:
        return "levels rise stage by stage"
    for rows in program.side:
        if rows.relax != "none":
            return f"rows {rows.name!r} may give way"
    return None
