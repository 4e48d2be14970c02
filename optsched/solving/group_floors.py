"""Rows that demand GPUs for a group of classes, rewritten as limits on all other classes.

A row  a x >= b  whose columns use the pools in fixed proportions, a_c = w_p usage_pc on pool p, and the
capacities  usage_p x <= W_p  imply

    sum_c (sum_p w_p usage_pc - a_c) x_c  <=  sum_p w_p W_p - b

This row only limits, like a quota of all jobs outside of the group: it has a price. The program
with these rows instead is easier, and its optimum is at least as large. A price v of such a row
means prices v w_p of the capacities and -v of the row that demands, so duals of the easier program
are duals of the program.

Another row that limits,  l x <= L  as a budget, may leave GPUs that nobody can pay for. Of the columns that
are asked for, it takes at least l_c = c_p usage_pc on pool p. For each t among the c_p / w_p

    (l x) / t  +  sum_p max(0, w_p - c_p / t) usage_p x  -  a x  <=  L / t + sum_p max(0, w_p - c_p / t) W_p - b

follows too, and has nothing negative either. These are the extreme rays of all multipliers v of the
row that
asks, m of l and p of the pools with  v w_p <= p_p + m c_p:  at the others, the group would be paid to run.

An optimum of the easier program satisfies the demand once the group gets what the others must leave
(`GroupFloors.raised`). This fails if the group would have to run in places that are worse than
none: prices would have to be negative there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray, quotient
from optsched.arrays.values import replace
from optsched.display import Displayed, count
from optsched.program import AllocationProgram
from optsched.program.side_rows import NEAR, ClassFloors, LimitRows, SideRows
from optsched.solution import Termination, Values

ALIKE = 1e-12
"""Relative difference of proportions that are the same but for rounding."""
OF_OTHERS = " (others)"
"""What the name of a block of rows ends with that limits the others."""


class _Asking(NamedTuple):
    """A block of rows that ask, and the limits that they imply.

    Attributes
    ----------
    rows : SideRows
    weight : FloatArray, shape (rows, resources)
        w; 0 of what is no pool.
    limits : SideRows
        Instead of them.
    owner : IntArray
        The row that each limit follows from.
    parts : csr_matrix, shape (limits, rows of `LimitRows`)
        How much of the program's own limits is in each.
    """

    rows: SideRows
    weight: FloatArray
    limits: SideRows
    owner: IntArray
    parts: sp.csr_matrix


@dataclass(frozen=True, repr=False, eq=False)
class GroupFloors(Displayed):
    """A program whose rows demand GPUs for groups, and the easier program that limits the others.

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
        """None if no rows demand GPUs for groups, or some demand something else."""
        C = program.classes
        if not C.all_alone or program.class_floors is not None:
            return None  # no row asks for anything, or each asks for something of one class
        side = []
        asking = []
        for rows in program.side:
            if rows.only_limit or ClassFloors.of(C, (rows,)) is not None:
                side.append(rows)
                continue
            meant = _meant(program, rows)
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
        limits = self.program.limit_rows.side
        ends = np.cumsum(
            [len(self.program.classes.capacity), *(len(rows.upper) for rows in limits)]
        )
        for asking in self.asking:
            price = np.maximum(duals.pop(asking.limits.name), 0.0)
            more = np.split(asking.parts.T @ price, ends[:-1])
            for name, part in zip(["capacity", *(rows.name for rows in limits)], more, strict=True):
                duals[name] = duals[name] + part
            rows = asking.rows
            total = np.bincount(asking.owner, price, len(rows.lower)).astype(np.float64)
            duals[rows.name] = -total
        return duals

    def lacks(self, x: FloatArray) -> bool:
        """Whether a group gets less than its demand."""
        return any(
            bool((each.rows.matrix @ x < each.rows.lower * (1.0 - NEAR)).any())
            for each in self.asking
        )

    def raised(self, x: FloatArray) -> FloatArray:
        """A point that gives each group its demand, as far as time and limits allow.

        Pools that use least of the other limits come first. In each pool the classes of a group run
        on what is left, in proportion to their time left.
        """
        for rows, weight, *_ in self.asking:
            matrix = sp.csr_matrix(rows.matrix)
            for row in range(matrix.shape[0]):
                columns, worth = matrix[row].indices.astype(np.int64), matrix[row].data
                for pool in self._cheapest_first(np.flatnonzero(weight[row] > 0), columns):
                    lacks = rows.lower[row] - float(worth @ x[columns])
                    if lacks <= 0:
                        break
                    x = self._given(x, columns, worth, pool, lacks)
        return x

    def _cheapest_first(self, pools: IntArray, columns: IntArray) -> list[int]:
        """The pools by what a GPU of them uses of the limits beside the pools' own, for some
        columns.
        """
        C, limits = self.program.classes, self.program.limit_rows
        goods = len(C.capacity)
        if len(limits.most) == goods:
            return [int(pool) for pool in pools]
        usage = sp.csr_matrix(C.usage)[pools][:, columns]
        others = (
            sp.diags_array(quotient(1.0, limits.most[goods:])) @ limits.matrix[goods:][:, columns]
        )
        share = (others @ (usage > 0).T).max(axis=0).toarray().ravel()
        used = np.asarray(usage.sum(axis=1)).ravel()
        order = np.argsort(quotient(share, used), kind="stable")
        return [int(pool) for pool in pools[order]]

    def _given(
        self, x: FloatArray, columns: IntArray, worth: FloatArray, pool: int, lacks: float
    ) -> FloatArray:
        """The point with what is left of a pool for the columns of a group, of which it lacks so
        much.
        """
        C, limits = self.program.classes, self.program.limit_rows
        added = np.zeros(C.columns)
        in_pool = columns[np.asarray(C.usage[[pool]][:, columns].toarray()[0] > 0)]
        # Several columns of a class in one pool share its time.
        owner = C.class_a[in_pool]
        count = np.bincount(owner, minlength=len(C)).clip(1)
        added[in_pool] = (np.maximum(C.count - C.time(x), 0.0) / count)[owner]
        use = limits.matrix @ added
        left = np.maximum(limits.most - limits.matrix @ x, 0.0)
        part = min(1.0, float(quotient(left, use, np.inf).min(initial=1.0)))
        given = float(worth @ added[columns])
        return x + min(part, lacks / given) * added if given > 0 else x


def _meant(program: AllocationProgram, rows: SideRows) -> _Asking | None:
    """The rows with the limits that they imply; None where they imply none."""
    C, limits = program.classes, program.limit_rows
    matrix = sp.csr_matrix(rows.matrix)
    asks = np.isposinf(rows.upper) & (rows.lower > 0)
    if not asks.all() or rows.relax != "none" or (matrix.data < 0).any():
        return None
    pools = np.flatnonzero(C.resources.pool >= 0)
    used = sp.csc_matrix(C.usage[pools])
    if (np.diff(used.indptr)[matrix.indices] != 1).any():
        return None  # a column of no pool, or of several
    entry = used.indptr[matrix.indices]
    pool, gpus = pools[used.indices[entry]], used.data[entry]
    ratio = matrix.data / gpus
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    weight = np.zeros((matrix.shape[0], len(C.capacity)))
    np.maximum.at(weight, (row, pool), ratio)
    if (ratio < weight[row, pool] * (1.0 - ALIKE)).any():
        return None
    owner, parts = _implied(limits, matrix, weight, row, pool, gpus)
    most = parts @ limits.most - rows.lower[owner]
    if (most < 0).any():
        return None  # more than there is
    others = sp.csr_matrix(parts @ limits.matrix - matrix[owner])
    terms = np.repeat(parts.max(axis=1).toarray().ravel(), np.diff(others.indptr))
    others.data[others.data <= ALIKE * terms] = 0.0
    others.eliminate_zeros()
    name, nothing = rows.name + OF_OTHERS, np.full(len(most), -np.inf)
    found = SideRows(name, others, nothing, most, partial(_words, rows.describe, owner))
    return _Asking(rows, weight, found, owner, parts)


def _words(describe: Callable[[int], str], owner: IntArray, limit: int) -> str:
    """The words of the row that a limit follows from; a function, so that it can be sent."""
    return describe(int(owner[limit]))


def _implied(
    limits: LimitRows,
    matrix: sp.csr_matrix,
    weight: FloatArray,
    row: IntArray,
    pool: IntArray,
    gpus: FloatArray,
) -> tuple[IntArray, sp.csr_matrix]:
    """For each limit that follows from rows that ask: the row, and the parts of the program's
    limits.

    Parameters
    ----------
    limits : LimitRows
    matrix : csr_matrix, shape (rows, N)
        Of the rows that ask.
    weight : FloatArray, shape (rows, resources)
    row, pool, gpus : arrays, shape (entries of ``matrix``,)
        The row of each entry, its pool, and how much of that its column uses.
    """
    goods = weight.shape[1]
    owner = [np.arange(len(weight))]
    parts = [np.hstack([weight, np.zeros((len(weight), len(limits.most) - goods))])]
    beside = np.arange(goods, len(limits.most))
    for limit in beside[np.isfinite(limits.most[goods:]) & (limits.most[goods:] > 0)].tolist():
        takes = limits.matrix[[limit]].toarray()[0][matrix.indices] / gpus
        least = np.full(weight.shape, np.inf)
        np.minimum.at(least, (row, pool), takes)
        for asking, (pools, takes_least) in enumerate(zip(weight, least, strict=True)):
            rates = quotient(takes_least, pools)[pools > 0]
            for rate in np.unique(rates[rates > 0]):
                part = np.zeros(len(limits.most))
                part[:goods][pools > 0] = np.maximum(pools - takes_least / rate, 0.0)[pools > 0]
                part[limit] = 1.0 / rate
                owner.append(np.array([asking]))
                parts.append(part[np.newaxis])
    return np.concatenate(owner), sp.csr_matrix(np.concatenate(parts))
