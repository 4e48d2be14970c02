"""Admission in an order: which jobs keep their requirements if not all can be met.

A program may hold jobs to their own requirements, such as deadlines (`SideRows.of_class`). Where
they cannot all be met, jobs are considered in an order, and each is admitted if its requirements
can be met beside those of the jobs admitted before it. Programs are solved for whole sets of jobs,
not for each job: the duals of a set that does not fit are prices of the resources, and at these
prices the requirements of every job have a least cost. A set that costs more than the resources are
worth is proved impossible, so one program declines all jobs that exceed this budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, owners
from optsched.arrays.values import cached_property, replace
from optsched.program import AllocationProgram, LinearArrays, SideRows
from optsched.program.relaxing import NEGLIGIBLE, RelaxedRows
from optsched.solution import Status
from optsched.solving.engine import Engine
from optsched.solving.outcome import BY_CLOCK

MOST_PROGRAMS = 12
"""Programs that decide whom to admit. Then those are admitted that the last one kept whole."""
ROUNDS_BEHIND = 2.0
"""Rounds of its time left by which a job that was admitted before may fall short of its pace.

Rounds give whole jobs whole GPUs, so a job is behind in some rounds and catches up later.
"""
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Admission:
    """Which classes are held to their requirements; arrays over the classes of the program.

    Attributes
    ----------
    part : FloatArray, shape (K,)
        The part of its requirements that each class is held to; 0 for those that are declined.
    refused_by : mapping of a class to `Cut`
        Of those that are declined: the proof. Classes without one were not decided in time.
    """

    part: FloatArray
    refused_by: Mapping[int, Cut]


@dataclass(frozen=True, eq=False)
class Cut:
    """A proof that some requirements cannot be met together: at these prices they cost too much.

    Attributes
    ----------
    cost : FloatArray, shape (K,)
        Least cost of the requirements of each class beyond what it has without any; inf where it
        could not meet them alone.
    room : float
        What all of them may cost together.
    scarce : int
        The resource that is worth most at these prices; -1 where the prices are those of other
        rows.
    """

    cost: FloatArray
    room: float
    scarce: int

    @property
    def rounding(self) -> float:
        """What sums of costs may be off by."""
        finite = self.cost[np.isfinite(self.cost)]
        return ROUNDING * (abs(self.room) + float(finite.sum()))


class Admitting:
    """The requirements of a program, and the programs of how little some of them must give way.

    Parameters
    ----------
    program : AllocationProgram
    engine : Engine
        Runs the solvers, within its limits.
    """

    def __init__(self, program: AllocationProgram, engine: Engine) -> None:
        self.program = program
        self._engine = engine
        self._classes = program.classes

    @cached_property
    def requirements(self) -> tuple[SideRows, ...]:
        """Rows whose jobs can be declined."""
        return tuple(rows for rows in self.program.side if rows.of_class is not None)

    @cached_property
    def asked(self) -> BoolArray:
        """Classes that have requirements, shape (K,)."""
        mask = np.zeros(len(self._classes), bool)
        for rows in self.requirements:
            mask[rows.of_class] = True
        return mask

    def words(self, k: int) -> str:
        """The requirements of a class, as text."""
        return "; ".join(
            rows.describe(row)
            for rows in self.requirements
            for row in np.flatnonzero(rows.of_class == k).tolist()
        )

    # --- the order ----------------------------------------------------------------------------

    def admit(self, firm: BoolArray, order: IntArray) -> Admission | None:
        """Whom to hold to its requirements.

        None: no program was solved in time, or the other rows cannot be met whatever the jobs ask
        for.

        Jobs that were admitted before (``firm``) are, if need be to a part of them that leaves them
        no more than `ROUNDS_BEHIND` short; otherwise one is the first of the others. The others are
        admitted in the order, each if all of its requirements can be met beside these.

        Parameters
        ----------
        firm : BoolArray, shape (K,)
            Classes of jobs that were admitted before.
        order : IntArray
            All classes that have requirements, the first first. Each is of one job.
        """
        part = np.where(self.asked & firm, 1.0, 0.0)
        short = None
        if part.any():
            short, _ = self._shortfall(part, part > 0)
            if short is not None:
                # What solvers met up to their tolerance only must not make the next program
                # infeasible.
                slack = np.where(short > 0, NEGLIGIBLE, 0.0)
                part *= (1.0 - short) * (1.0 - slack)
                part[short > self._tolerance] = 0.0
        rest = order[part[order] == 0]
        withdrawn = firm[rest]
        rest = np.concatenate([rest[withdrawn], rest[~withdrawn]])
        tried = self._in_order(part, rest)
        if tried is None and short is None:
            return None
        kept, cuts = tried or (rest[:0], [])
        part[kept] = 1.0
        return Admission(part, _proofs(cuts, rest, kept))

    def _in_order(self, part: FloatArray, rest: IntArray) -> tuple[IntArray, list[Cut]] | None:
        """The classes of ``rest`` that are admitted beside those held to a part, and the proofs.

        None where not even the first program was solved.
        """
        cuts: list[Cut] = []
        kept: IntArray | None = None
        banned = np.zeros(len(part), bool)
        for _ in range(MOST_PROGRAMS):
            tried = affordable(cuts, rest[~banned[rest]])
            if not len(tried):
                return tried, cuts
            asked = part.copy()
            asked[tried] = 1.0
            elastic = np.zeros(len(part), bool)
            elastic[tried] = True
            short, cut = self._shortfall(asked, elastic)
            if short is None:  # the clock
                break
            kept = tried[short[tried] == 0]
            if len(kept) == len(tried):
                return kept, cuts
            if cut is not None and len(affordable([cut], tried)) < len(tried):
                cuts.append(cut)
            else:
                # Whole jobs, and pairs that share GPUs, may not fit although no prices prove it.
                banned[tried[short[tried] > 0][-1]] = True
        return None if kept is None else (kept, cuts)

    @cached_property
    def _tolerance(self) -> FloatArray:
        """Part of its requirements that rounds alone may leave a class short of, shape (K,)."""
        part = np.zeros(len(self._classes))
        for rows in self.requirements:
            if rows.weight is not None:
                part[rows.of_class] = ROUNDS_BEHIND * rows.weight
        return np.maximum(part / self._classes.count, NEGLIGIBLE)

    # --- a program ----------------------------------------------------------------------------

    def _shortfall(
        self, asked: FloatArray, elastic: BoolArray
    ) -> tuple[FloatArray | None, Cut | None]:
        """By what part the requirements of each class fall short, at least in total; shape (K,).

        None where it was not found.

        Parameters
        ----------
        asked : FloatArray, shape (K,)
            The part of its requirements that each class is held to.
        elastic : BoolArray, shape (K,)
            Classes that may fall short.
        """
        side = [rows for rows in self.program.side if rows.of_class is None]
        elastic_rows = []
        for rows in self.requirements:
            assert rows.of_class is not None
            # Rows of one kind become two blocks: those to be kept, and those that may fall short.
            for soft in (False, True):
                some = np.flatnonzero((asked[rows.of_class] > 0) & (elastic[rows.of_class] == soft))
                if not len(some):
                    continue
                k = rows.of_class[some]
                block = replace(
                    rows,
                    name=f"{rows.name}{' elastic' if soft else ''}",
                    matrix=rows.matrix[some],
                    lower=rows.lower[some] * asked[k],
                    upper=rows.upper[some],
                    relax="shortfall" if soft else "none",
                    weight=None if rows.weight is None else rows.weight[some],
                )
                side.append(block)
                elastic_rows += [k] if soft else []
        # No class may fall short: there is nothing to find.
        if not elastic_rows:
            return np.zeros(len(asked)), None
        relaxation = RelaxedRows(replace(self.program, side=tuple(side)))
        arrays = relaxation.to_linear().arrays
        outcome = self._engine.solve_linear(arrays)
        if outcome.status is not Status.OPTIMAL or outcome.x is None:
            self._engine.by_clock |= outcome.values.termination in BY_CLOCK
            return None, None
        found = relaxation.short(outcome.x)
        short = np.zeros(len(asked))
        # A class with several requirements falls short by the worst of them.
        np.maximum.at(short, np.concatenate(elastic_rows), found)
        if not short.any() or outcome.duals is None:
            return short, None
        names = [rows.name for rows in side if rows.of_class is not None]
        firm = np.where(elastic, 0.0, asked)
        return short, self._cut(arrays, outcome.duals, names, firm)

    def _cut(
        self,
        arrays: LinearArrays,
        duals: Mapping[str, FloatArray],
        requirements: Sequence[str],
        firm: FloatArray,
    ) -> Cut:
        """What duals prove of all sets of requirements.

        With a price for every row but time and requirements, a point that keeps these rows costs at
        most ``room``; and each class, within its own time, at least what `least_cost` says. This
        holds at any prices, so that no tolerance of a solver matters.
        """
        C = self._classes
        y = np.zeros(arrays.shape[0])
        for block in arrays.rows:
            if block.name not in ("time", *requirements):
                y[block.slice] = duals[block.name]
        # A multiplier that points to an infinite side proves nothing.
        y[(y > 0) & np.isinf(arrays.row_lower)] = 0.0
        y[(y < 0) & np.isinf(arrays.row_upper)] = 0.0
        used = np.flatnonzero(y)
        side = np.where(y > 0, arrays.row_lower, arrays.row_upper)
        price = -arrays.transpose_times(y)[: C.columns]
        # Two jobs that share GPUs pay half each.
        price = np.where(self.program.barred, np.inf, np.where(C.alone, price, price / 2.0))
        # Least cost of a unit of time of each class without a requirement: never above 0.
        idle = np.zeros(len(C))
        np.minimum.at(idle, C.class_a, price)
        np.minimum.at(idle, C.class_b[~C.alone], price[~C.alone])
        cost = np.zeros(len(C))
        held = np.zeros(len(C))
        for rows in self.requirements:
            k = rows.of_class
            assert k is not None
            matrix = sp.csr_matrix(rows.matrix)
            # For all that is asked, and for what is kept already, which the room has to pay for.
            for total, lower in ((cost, rows.lower), (held, rows.lower * firm[k])):
                found = least_cost(matrix, lower, price, idle[k]) - idle[k]
                np.maximum.at(total, k, found)
        room = -float(y[used] @ side[used]) - float(C.count @ idle) - float(held.sum())
        capacity = next(block for block in arrays.rows if block.name == "capacity")
        worth = -y[capacity.slice] * C.capacity
        scarce = int(np.argmax(worth)) if (worth > 0).any() else -1
        return Cut(cost, room, scarce)


def least_cost(
    matrix: sp.csr_matrix, lower: FloatArray, price: FloatArray, idle: FloatArray
) -> FloatArray:
    """Least cost of what each row asks for, within one unit of time; inf where that is too little.

        minimise  price @ x   s.t.  matrix_r x >= lower_r,  sum x <= 1,  x >= 0

    It is the lower convex hull of the points (entry, price) of the row and (0, idle), at lower. The
    two points of the hull beside it are found by going down from a chord to the point farthest
    below it, in all rows at once.

    Parameters
    ----------
    matrix : csr_matrix, shape (R, N)
    lower : FloatArray, shape (R,)
    price : FloatArray, shape (N,)
        inf for columns that are barred.
    idle : FloatArray, shape (R,)
        The cost without a requirement, at most 0: no price is below it.

    Returns
    -------
    FloatArray, shape (R,)
        Rounded down: at any slope s >= 0 no point costs less than s lower + min(price - s entry).
    """
    cost = np.where(lower > 0, np.inf, idle)
    rows = np.flatnonzero(np.diff(matrix.indptr))
    if not len(rows):
        return cost
    start = matrix.indptr[rows]
    row = owners(np.diff(matrix.indptr)[rows])
    entry_price = price[matrix.indices]
    barred = np.isinf(entry_price)
    entry = np.where(barred, 0.0, matrix.data)
    entry_price = np.where(barred, idle[rows][row], entry_price)
    # From here on by rows of the matrix with entries; entry and price by its nonzeros.
    top = np.maximum.reduceat(entry, start)
    asked = np.minimum(lower[rows], top)
    # The first chord: from idleness to the largest entry, at its lowest price.
    left, left_price = np.zeros(len(rows)), idle[rows].copy()
    right = top.copy()
    of_top = np.where(entry >= top[row], entry_price, np.inf)
    right_price = np.minimum.reduceat(of_top, start)
    while True:
        slope = np.divide(
            right_price - left_price, right - left, out=np.zeros(len(rows)), where=right > left
        )
        below = entry_price - slope[row] * entry
        lowest = np.minimum.reduceat(below, start)
        chord = left_price - slope * left
        found = np.flatnonzero(lowest < chord - ROUNDING * (np.abs(chord) + np.abs(right_price)))
        if not len(found):
            break
        # Of several points equally low the first in the row.
        first = np.full(len(rows), len(entry))
        at = np.flatnonzero(below <= lowest[row])
        np.minimum.at(first, row[at], at)
        to_left = found[entry[first[found]] <= asked[found]]
        to_right = found[entry[first[found]] > asked[found]]
        left[to_left], left_price[to_left] = entry[first[to_left]], entry_price[first[to_left]]
        right[to_right], right_price[to_right] = (
            entry[first[to_right]],
            entry_price[first[to_right]],
        )
    reached = lower[rows] <= top * (1.0 + ROUNDING)
    cost[rows] = np.where(reached, slope * asked + np.minimum(chord, lowest), np.inf)
    return np.maximum(cost, idle)


# --- sets that no proof forbids -------------------------------------------------------------------


def affordable(cuts: Sequence[Cut], order: IntArray) -> IntArray:
    """The classes that can be paid for, each beside those taken before it in the order."""
    if not cuts:
        return order
    cost = np.stack([cut.cost for cut in cuts])
    room = np.array([cut.room + cut.rounding for cut in cuts])
    taken = [order[:0]]
    left = order
    while True:
        left = left[(cost[:, left] <= room[:, np.newaxis]).all(axis=0)]
        if not len(left):
            return np.concatenate(taken)
        # All up to the first one for which there is no room, which is dropped in the next turn.
        fits = (np.cumsum(cost[:, left], axis=1) <= room[:, np.newaxis]).all(axis=0)
        many = len(left) if fits.all() else int(np.argmin(fits))
        taken.append(left[:many])
        room = room - cost[:, left[:many]].sum(axis=1)
        left = left[many:]


def _proofs(cuts: Sequence[Cut], order: IntArray, kept: IntArray) -> dict[int, Cut]:
    """The first proof against each class of the order that is not kept."""
    in_set = np.zeros(int(order.max(initial=-1)) + 1, bool)
    in_set[kept] = True
    found: dict[int, Cut] = {}
    for cut in reversed(cuts):
        cost = cut.cost[order]
        before = np.cumsum(np.where(in_set[order], cost, 0.0))
        refused = ~in_set[order] & (before + cost > cut.room + cut.rounding)
        found |= dict.fromkeys(order[refused].tolist(), cut)
    return found
