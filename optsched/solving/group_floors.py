"""Rows that ask for GPUs for many classes together, as limits on all the others.

A row  a x >= b  whose columns use the pools in fixed proportions, a_c = w_p usage_pc on pool p, and the
capacities  usage_p x <= W_p  imply

    sum_c (sum_p w_p usage_pc - a_c) x_c  <=  sum_p w_p W_p - b

This row only limits, like a quota of all jobs but those that the first one is for: it has a price. With
these rows in the place of the others a program is easier, and its optimum is no less. A price v of such
a row is one of v w_p for each capacity, and of -v for the row that asks: the easier program has no
duals that the program has not.

An optimum of the easier program keeps what the row asks for wherever it gives the group what the others
must leave (`GroupFloors.raised`). It cannot where the group would have to run in places that are worse
than none: there prices would have to be negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, quotient
from optsched.candidates import Classes
from optsched.display import Displayed, count
from optsched.program import AllocationProgram
from optsched.program.side_rows import NEAR, ClassFloors, SideRows
from optsched.solution import Termination, Values

ALIKE = 1e-12
"""Relative difference of proportions that are the same but for rounding."""
OF_OTHERS = " (others)"
"""What the name of a block of rows ends with that limits the others."""


class _Asking(NamedTuple):
    """A block of rows that ask, the pools' parts in them, shape (rows, resources), and the limits."""

    rows: SideRows
    parts: sp.csr_matrix
    limits: SideRows


@dataclass(frozen=True, repr=False, eq=False)
class GroupFloors(Displayed):
    """A program whose rows ask for GPUs for groups, beside one that limits the others.

    Attributes
    ----------
    program, easier : AllocationProgram
    asking : tuple of _Asking
    """

    program: AllocationProgram
    easier: AllocationProgram
    asking: tuple[_Asking, ...]

    def _headline(self) -> str:
        return f"{self.program._headline()}, {count(len(self.asking), 'block')} for groups"  # noqa: SLF001 (a part of it)

    @classmethod
    def of(cls, program: AllocationProgram) -> GroupFloors | None:
        """None where no rows ask for GPUs for groups, or some mean something else."""
        C = program.classes
        if not C.all_alone or program.class_floors is not None:
            return None  # no row asks for anything, or each asks for something of one class
        side = []
        asking = []
        for rows in program.side:
            if rows.only_limit or ClassFloors.of(C, (rows,)) is not None:
                side.append(rows)
                continue
            meant = _meant(C, rows)
            if meant is None:
                return None
            asking.append(meant)
            side.append(meant.limits)
        return cls(program, replace(program, side=tuple(side)), tuple(asking))

    def values(self, easier: Values) -> Values:
        """A point and duals of the program from those of the easier one."""
        if easier.y is not None:
            easier = replace(easier, y=self.duals(easier.y))
        if easier.x is None:
            return easier
        x = self.raised(easier.x[: self.program.classes.columns])
        values = replace(easier, x=self.program.complete(x))
        if values.termination is Termination.OPTIMAL and self.lacks(x):
            words = "the groups cannot use what the others leave"
            return replace(values, termination=Termination.IMPRECISE, words=words)
        return values

    def duals(self, y: FloatArray) -> FloatArray:
        """Duals of the program from those of the easier one, whose rows are as many."""
        rows = [
            ("time", len(self.program.classes)),
            ("capacity", len(self.program.classes.capacity)),
        ]
        rows += [(rows.name, len(rows.lower)) for rows in self.easier.side]
        parts = np.split(y, np.cumsum([count for _, count in rows]))
        named = self.named(dict(zip([name for name, _ in rows], parts, strict=False)))
        side = [named[rows.name] for rows in self.program.side]
        return np.concatenate([named["time"], named["capacity"], *side, parts[-1]])

    def named(self, easier: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """The same by the name of their rows."""
        duals = dict(easier)
        for rows, parts, limits in self.asking:
            price = np.maximum(duals.pop(limits.name), 0.0)
            duals["capacity"] = duals["capacity"] + parts.T @ price
            duals[rows.name] = -price
        return duals

    def lacks(self, x: FloatArray) -> bool:
        """Whether a group has less than it asks for."""
        return any(
            bool((rows.matrix @ x < rows.lower * (1.0 - NEAR)).any()) for rows, _, _ in self.asking
        )

    def raised(self, x: FloatArray) -> FloatArray:
        """A point that gives each group what it asks for, as far as time and all that limits allow.

        Pool by pool, each class of a group runs in what is left, in proportion to its time left.
        """
        C, limits = self.program.classes, self.program.limit_rows
        for rows, parts, _ in self.asking:
            matrix = sp.csr_matrix(rows.matrix)
            for row in range(matrix.shape[0]):
                mine = matrix[row].indices
                worth = matrix[row].data
                for pool in np.flatnonzero(parts[[row]].toarray()[0]).tolist():
                    lacks = rows.lower[row] - float(worth @ x[mine])
                    if lacks <= 0:
                        break
                    here = np.zeros(C.columns)
                    there = mine[np.asarray(C.usage[[pool]][:, mine].toarray()[0] > 0)]
                    # Several columns of a class in one pool share its time.
                    owner = C.class_a[there]
                    share = np.maximum(C.count - C.time(x), 0.0) / np.bincount(
                        owner, minlength=len(C)
                    ).clip(1)
                    here[there] = share[owner]
                    use = limits.matrix @ here
                    left = np.maximum(limits.most - limits.matrix @ x, 0.0)
                    part = min(1.0, float(quotient(left, use, np.inf).min(initial=1.0)))
                    given = float(worth @ here[mine])
                    if given > 0:
                        x = x + min(part, lacks / given) * here
        return x


def _meant(C: Classes, rows: SideRows) -> _Asking | None:
    """The rows with the limits on others that they imply; None where they imply none."""
    matrix = sp.csr_matrix(rows.matrix)
    asks = np.isposinf(rows.upper) & (rows.lower > 0)
    if not asks.all() or rows.relax != "none" or (matrix.data < 0).any():
        return None
    pools = np.flatnonzero(C.resources.pool >= 0)
    used = sp.csc_matrix(C.usage[pools])
    if (np.diff(used.indptr)[matrix.indices] != 1).any():
        return None  # a column of no pool, or of several
    entry = used.indptr[matrix.indices]
    pool = pools[used.indices[entry]]
    ratio = matrix.data / used.data[entry]
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    part = np.zeros((matrix.shape[0], len(C.capacity)))
    np.maximum.at(part, (row, pool), ratio)
    if (ratio < part[row, pool] * (1.0 - ALIKE)).any():
        return None
    parts = sp.csr_matrix(part)
    most = parts @ C.capacity - rows.lower
    if (most < 0).any():
        return None  # more than there is
    others = sp.csr_matrix(parts @ C.usage - matrix)
    others.data[others.data <= ALIKE * part.max()] = 0.0
    others.eliminate_zeros()
    name = rows.name + OF_OTHERS
    nothing = np.full(len(most), -np.inf)
    return _Asking(rows, parts, SideRows(name, others, nothing, most, rows.describe))
