"""Knapsacks of several resources, enumerated by how many items are taken, from the middle.

    maximise c'x   s.t.  A x <= b,  x binary

Let k items be taken, so that sum_j x_j = k is a row as well. At prices u >= 0 of the resources and
p of this row, with d_j = c_j - A_j'u - p,

    B_k  =  b'u + p k + sum_j max(d_j, 0)
    c'x  =  B_k  -  sum { |d_j| : j changed }  -  u'(b - A x)          every x with k items

where j is changed if x_j differs from [d_j > 0]. So a point worth more than a known one changes
few items that lose little together, and leaves little room of any price. B_k is concave in k at
the prices of the relaxation: few numbers of items are worth a look.

For each number the items are cut into two halves, the sets of each half that lose least are
listed, and pairs of sets, one of each half, are joined: those with k items, and as little room
left as the better point may have, are found by binary search. Where the lists hold all sets that
lose no more than the gap, the enumeration is a proof; else what is not listed bounds it.

References: M. Vasquez, J.-K. Hao, "A hybrid approach for the 0-1 multidimensional knapsack
problem", IJCAI 2001 (number of items); S. Boussier et al., "A multi-level search strategy for the
0-1 multidimensional knapsack problem", Discrete Applied Mathematics 158 (2010) (losses); E.
Horowitz, S. Sahni, "Computing partitions with applications to the knapsack problem", JACM 21 (1974)
(halves).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, owners
from optsched.solution.values import NO_OPTIMUM, Values

if TYPE_CHECKING:
    from optsched.program import AllocationProgram, LinearArrays

MOST_ITEMS = 5000
"""Items at most; equal ones are listed one by one."""
LISTED = (20_000, 200_000, 2_000_000)
"""Sets of a half that are listed at most, in each pass."""
CELLS = 10_000_000
"""Sets times resources, at most."""
PAIRS = 300
"""Pairs that are tried for each listed set."""
AT_ONCE = 1_000_000
"""Pairs that are tried at a time."""
SETS_AT_ONCE = 4096
HALF = 62
"""Items of a half: a set is the bits of a number."""
ROUNDING = 1e-9


class KnapsackItems(NamedTuple):
    """A knapsack: items, of which each is taken or not.

    Attributes
    ----------
    value : FloatArray, shape (items,)
    use : FloatArray, shape (resources, items)
    room : FloatArray, shape (resources,)
    column : IntArray, shape (items,)
        Column of the program that an item is.
    row : IntArray, shape (resources,)
        Row of `LimitRows` that a resource is.
    """

    value: FloatArray
    use: FloatArray
    room: FloatArray
    column: IntArray
    row: IntArray

    @classmethod
    def of(cls, program: AllocationProgram) -> KnapsackItems | None:
        """The knapsack that a linear program of whole jobs is; None where it is none.

        Each class has one column, and all rows limit sums.
        """
        C, rows = program.classes, program.limit_rows
        used = np.flatnonzero(np.diff(rows.matrix.indptr))
        columns = np.flatnonzero(~program.barred)
        if (
            len(rows.side) < len(program.side)
            or not C.all_alone
            or len(np.unique(C.class_a[columns])) < len(columns)
            or C.count[C.class_a[columns]].sum() > MOST_ITEMS
        ):
            return None
        of_item = columns[owners(C.count[C.class_a[columns]].astype(np.int64))]
        use = rows.matrix[used].toarray()[:, of_item]
        return cls(program.gain[of_item], use, rows.most[used], of_item, used)

    def taken(self, x: FloatArray) -> BoolArray:
        """The items in totals of the columns: of equal ones the first."""
        first = np.searchsorted(self.column, self.column)
        return np.arange(len(self.column)) - first < np.round(x[self.column])

    def point(self, taken: BoolArray, columns: int) -> FloatArray:
        """Totals of the columns."""
        return np.bincount(self.column, taken, minlength=columns).astype(np.float64)

    def fits(self, taken: BoolArray) -> bool:
        """Whether there is room for some items."""
        return bool((self.use @ taken <= self.room + ROUNDING * np.maximum(self.room, 1.0)).all())


@dataclass(eq=False)
class KnapsackRelaxation:
    """A bound on the value of k items, and the loss of each change.

    Attributes
    ----------
    number : int
        k.
    most : float
        B_k.
    bound : float
        The bound so far; it falls when sets are listed.
    price : FloatArray, shape (resources,)
        u.
    of_number : float
        p.
    loss : FloatArray, shape (items,)
        |d|.
    base : BoolArray, shape (items,)
        [d > 0].
    """

    number: int
    most: float
    bound: float
    price: FloatArray
    of_number: float
    loss: FloatArray
    base: BoolArray

    @classmethod
    def at(
        cls, items: KnapsackItems, number: int, price: FloatArray, of_number: float
    ) -> KnapsackRelaxation:
        """The relaxation at any prices, which prove its bound."""
        u = np.maximum(price, 0.0)
        d = items.value - u @ items.use - of_number
        bound = float(u @ items.room + of_number * number + np.maximum(d, 0.0).sum())
        return cls(number, bound, bound, u, of_number, np.abs(d), d > 0)


class NumberOfItems:
    """The linear relaxation, with a row for the number of items.

    Parameters
    ----------
    program : AllocationProgram
    items : KnapsackItems
    arrays : LinearArrays
        Of the program.
    """

    def __init__(
        self, program: AllocationProgram, items: KnapsackItems, arrays: LinearArrays
    ) -> None:
        self._program, self._items = program, items
        self._counted = np.zeros(arrays.shape[1])
        self._counted[: program.classes.columns] = 1.0
        self.arrays = arrays.relaxed().with_row(self._counted, 0.0, np.inf, "number")

    def sides(self, number: int | None) -> tuple[FloatArray, FloatArray]:
        """The sides of all rows where so many items are taken; None: any number."""
        low, high = self.arrays.row_lower.copy(), self.arrays.row_upper.copy()
        low[-1], high[-1] = (0.0, np.inf) if number is None else (number, number)
        return low, high

    def of_point(self, x: FloatArray | None) -> float:
        """How many items a point takes; without one none."""
        return 0.0 if x is None else float(self._counted @ x)

    def at(self, values: Values, number: int) -> KnapsackRelaxation | None:
        """The relaxation at the duals of a run; None where so many items do not fit."""
        if values.termination in NO_OPTIMUM:
            return None
        y = np.zeros(self.arrays.shape[0]) if values.y is None else values.y
        price = self._program.limit_duals(y[:-1])[self._items.row]
        return KnapsackRelaxation.at(self._items, number, price, float(y[-1]))


class _Sets(NamedTuple):
    """Sets of some items that are changed.

    Attributes
    ----------
    loss : FloatArray, shape (sets,)
    change : FloatArray, shape (resources + 1, sets)
        What they add to the use of each resource, and to the number of items.
    code : IntArray, shape (sets,)
        A bit for each item.
    missing : float
        Sets that are not listed lose no less; infinite if all are.
    """

    loss: FloatArray
    change: FloatArray
    code: IntArray
    missing: float

    @classmethod
    def least(cls, loss: FloatArray, change: FloatArray, most: float, listed: int) -> _Sets:
        """The sets that lose no more than ``most``, item by item; of many those that lose least."""
        found = cls(np.zeros(1), np.zeros((len(change), 1)), np.zeros(1, np.int64), np.inf)
        for item in range(len(loss)):
            more = found.loss + loss[item]
            within = np.flatnonzero(more <= min(most, found.missing))
            both = cls(
                np.concatenate([found.loss, more[within]]),
                np.hstack([found.change, found.change[:, within] + change[:, item, np.newaxis]]),
                np.concatenate([found.code, found.code[within] | (1 << item)]),
                found.missing,
            )
            found = both if len(both.loss) <= listed else both._cut(listed)
        return found

    def _cut(self, listed: int) -> _Sets:
        order = np.argpartition(self.loss, listed)
        missing = min(self.missing, float(self.loss[order[listed]]))
        return self._replace(missing=missing).take(order[:listed])

    def take(self, which: IntArray) -> _Sets:
        """Some of the sets."""
        return _Sets(self.loss[which], self.change[:, which], self.code[which], self.missing)


@dataclass(eq=False)
class KnapsackSearch:
    """A search that lists more and more sets, for each number of items that may hold a better
    point.

    Attributes
    ----------
    items : KnapsackItems
    step : float
        All values are multiples of it; 0 if no such number is known.
    best : BoolArray, shape (items,)
        The items that are taken.
    """

    items: KnapsackItems
    step: float
    best: BoolArray
    value: float = field(init=False)
    relaxations: list[KnapsackRelaxation] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.value = float(self.items.value @ self.best)

    @property
    def bound(self) -> float:
        """An upper bound on the value of every point, once there are relaxations."""
        return max([self.value, *(each.bound for each in self.relaxations if self._open(each))])

    @property
    def settled(self) -> bool:
        """Whether the best point is proved optimal."""
        return not any(self._open(each) for each in self.relaxations)

    def relax(self, near: float, relaxation: Callable[[int], KnapsackRelaxation | None]) -> None:
        """Relax all numbers of items that may hold a better point, those near some number first.

        ``relaxation`` is None where so many items do not fit.
        """
        middle = int(np.floor(near))
        for number, way in ((middle, -1), (middle + 1, 1)):
            while 0 <= number <= len(self.best):
                found = relaxation(number)
                if found is None:
                    if way > 0:  # nor do more
                        break
                else:
                    # At these prices the bound of a number further away is not larger
                    if not self._open(found) and way * found.of_number <= 0:
                        break
                    self.relaxations.append(found)
                number += way

    def run(self, enough: Callable[[], bool]) -> None:
        """List more sets in each pass, until the best point is optimal, the lists have their
        largest length, or ``enough`` returns true.
        """
        for listed in LISTED:
            for each in sorted(self.relaxations, key=lambda each: -each.bound):
                if self._open(each) and not enough():
                    self._enumerate(each, min(listed, CELLS // len(self.items.use)), enough)

    def _most_lost(self, bound: float) -> float:
        """Largest loss of a better point against a bound."""
        return bound - self.value - self.step + ROUNDING * max(1.0, abs(bound))

    def _open(self, of: KnapsackRelaxation) -> bool:
        # Without a step nothing within rounding counts as better
        return self._most_lost(of.bound) >= (0.0 if self.step else 2 * ROUNDING * abs(of.bound))

    def _enumerate(self, of: KnapsackRelaxation, listed: int, enough: Callable[[], bool]) -> None:
        """Look for a better point among pairs of listed sets, and lower the bound of the other
        points.
        """
        order = np.argsort(of.loss, kind="stable")
        most = self._most_lost(of.most)
        count = int(np.searchsorted(of.loss[order], most, "right"))
        missing = float(of.loss[order[2 * HALF]]) if count > 2 * HALF else np.inf
        changed = order[: min(count, 2 * HALF)]
        halves = changed[0::2], changed[1::2]
        sign = np.where(of.base, -1.0, 1.0)
        change = np.vstack([self.items.use, np.ones(len(sign))]) * sign
        left, right = (_Sets.least(of.loss[half], change[:, half], most, listed) for half in halves)
        left = left.take(np.argsort(left.loss, kind="stable"))
        joined = _Join.of(of, self.items, left, right)
        missing = min(missing, left.missing, right.missing)
        at, pairs = 0, PAIRS * listed
        while at < len(left.loss):
            most = self._most_lost(of.most)
            if left.loss[at] > most:
                break
            if pairs <= 0 or enough():
                missing = min(missing, float(left.loss[at]))
                break
            at, seen, pair = joined.best(at, most)
            pairs -= seen
            if pair is not None:
                self._take(of, halves, pair)
        of.bound = min(of.bound, max(of.most - missing, self.value))

    def _take(
        self, of: KnapsackRelaxation, halves: tuple[IntArray, IntArray], codes: tuple[int, int]
    ) -> None:
        """Keep a point if it is the best one."""
        taken = of.base.copy()
        for half, code in zip(halves, codes, strict=True):
            bits = (code >> np.arange(len(half))) & 1
            taken[half] ^= bits.astype(bool)
        value = float(self.items.value @ taken)
        if value > self.value + ROUNDING * abs(self.value) and self.items.fits(taken):
            self.best, self.value = taken, value


class _Join(NamedTuple):
    """Pairs of sets, one of each half.

    Attributes
    ----------
    left, right : _Sets
        The left ones by their loss, the right ones by ``key``.
    cost, right_cost : FloatArray, shape (sets,)
        What they add to the use of all resources, at their prices.
    key : FloatArray, shape (right sets,)
        First by the number of items, then by the cost.
    scale : float
        What an item adds to the key.
    room : FloatArray, shape (resources + 1,)
        What the two may add: room that is left, and items that lack.
    worth : float
        Of this room, at the prices.
    """

    left: _Sets
    right: _Sets
    cost: FloatArray
    right_cost: FloatArray
    key: FloatArray
    scale: float
    room: FloatArray
    worth: float

    @classmethod
    def of(
        cls, relaxation: KnapsackRelaxation, items: KnapsackItems, left: _Sets, right: _Sets
    ) -> _Join:
        base, price = relaxation.base, relaxation.price
        room = np.append(items.room - items.use @ base, relaxation.number - base.sum())
        worth = float(price @ room[:-1])
        cost, other = price @ left.change[:-1], price @ right.change[:-1]
        # Further apart than any two costs, so that windows of costs stay within a number of items
        scale = 4.0 * float(1.0 + abs(worth) + np.abs(cost).max() + np.abs(other).max())
        key = scale * right.change[-1] + other
        order = np.argsort(key, kind="stable")
        return cls(left, right.take(order), cost, other[order], key[order], scale, room, worth)

    def best(self, at: int, most: float) -> tuple[int, int, tuple[int, int] | None]:
        """The best pair of the next left sets: where to go on, how many pairs there were, and
        codes.

        Parameters
        ----------
        at : int
            The first left set.
        most : float
            What a pair may lose, with the price of the room that it leaves.
        """
        some = slice(at, at + SETS_AT_ONCE)
        lacks = self.room[-1] - self.left.change[-1, some]
        spare = self.worth - self.cost[some]
        highest = self.scale * lacks + spare
        margin = ROUNDING * self.scale
        begin = np.searchsorted(
            self.key, highest - np.minimum(most - self.left.loss[some], self.scale / 4) - margin
        )
        count = np.maximum(np.searchsorted(self.key, highest + margin, "right") - begin, 0)
        kept = max(1, int(np.searchsorted(np.cumsum(count), AT_ONCE, "right")))
        begin, count = begin[:kept], count[:kept]
        row = owners(count)
        first = at + row
        second = np.arange(len(row)) + (begin - (np.cumsum(count) - count))[row]
        seen = len(first)
        loss = self._loss(first, second)
        good = np.flatnonzero(loss <= most)
        first, second = first[good], second[good]
        # The number of items first: it decides most pairs
        for resource in range(len(self.room) - 1, -1, -1):
            free = self.room[resource] + ROUNDING * max(1.0, abs(self.room[resource]))
            free = free - self.left.change[resource, first] - self.right.change[resource, second]
            good = np.flatnonzero(free >= 0)
            first, second = first[good], second[good]
        if not len(first):
            return at + kept, seen, None
        least = int(np.argmin(self._loss(first, second)))
        codes = int(self.left.code[first[least]]), int(self.right.code[second[least]])
        return at + kept, seen, codes

    def _loss(self, first: IntArray, second: IntArray) -> FloatArray:
        """Losses of pairs: of their changes, and of the room that they leave, at its price."""
        changed = self.left.loss[first] + self.right.loss[second]
        loss: FloatArray = changed + self.worth - self.cost[first] - self.right_cost[second]
        return loss
