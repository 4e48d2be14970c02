"""Packing of GPU shares into whole GPUs: the rows that can run side by side in a pool.

Row r uses a share s_r of each of g_r GPUs. In a pool of N GPUs rows can run side by side if each
gets g_r different GPUs, and the shares on each GPU add up to at most 1. This is bin packing: it is
necessary that the sum of g_r s_r is at most N, but three rows of 0.6 do not fit on two GPUs.

There are three answers. The rows fit if a packing is found. They do not fit if a search through all
packings finds none, or if for some k

    sum_r g_r u_k(s_r) > N,     u_k(s) = s if (k + 1) s is whole, else floor((k + 1) s) / k

Here u_k is a dual feasible function: shares that fit on one GPU still add up to at most 1 after it.
Otherwise, as can happen with many different shares, the answer is unknown.

S. Fekete, J. Schepers, "New classes of fast lower bounds for bin packing problems", 2001.

Nodes do not matter here; the placement considers them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from optsched.arrays import EMPTY, BoolArray, FloatArray, IntArray
from optsched.candidates import Classes
from optsched.solution import Allocation, Schedule
from optsched.solution.solution import Packed

ROUNDING = 1e-9
"""Slack of the shares of a GPU, and relative slack of CPUs, memory and other capacities."""
FULL = 1.0 + ROUNDING
"""Shares of a capacity add up to at most this: three thirds fill a GPU, whatever the rounding."""
MOST_ON_A_GPU = 1e12
"""Shares of which more than this fit on a GPU are treated alike."""
ALL_THE_TIME = 1e-9
"""Tolerance for a class whose jobs run on a column all the time, as a part of their time."""
IN_TURN = 1e-6
"""Part by which rows that take turns may exceed a pool: the tolerance of a solver."""
PIECES = 100
"""Shares (one for each GPU of each row) up to which all packings are searched."""
STEPS = 5_000
"""GPUs that such a search fills before it gives up."""
COUNTED = 2_000
"""Rows up to which bisection finds how many of them a packing holds; above, one best-fit pass
counts."""


class Shares(NamedTuple):
    """The GPUs that rows use in pools in which some row uses a share of a GPU.

    Attributes
    ----------
    pool : IntArray, shape (A,)
        -1 for a row without GPUs or in another pool: for it the sums of the pools are enough.
    gpus : IntArray, shape (A,)
    share : FloatArray, shape (A,)
        Share of each of its GPUs.
    capacity : IntArray, shape (pools,)
        GPUs of each pool.
    """

    pool: IntArray
    gpus: IntArray
    share: FloatArray
    capacity: IntArray

    @classmethod
    def of(cls, classes: Classes, column: IntArray, now: float | None = None) -> Shares | None:
        """Shares that columns use at a time (default: the instance's ``now``); None if all use
        whole GPUs.
        """
        pool = classes.pool[column]
        share = classes.configurations.share[classes.configuration[column]]
        gpus = classes.gpus[column]
        shared_pools = np.unique(pool[(share < 1.0) & (gpus > 0) & (pool >= 0)])
        if not len(shared_pools):
            return None
        # Jobs that stay on nodes that take no new work need none of the GPUs that do.
        held = np.flatnonzero(pool >= 0)
        counted = np.asarray(classes.usage[pool[held], column[held]]).ravel()
        gpus[held] = np.rint(counted / share[held])
        cluster = classes.instance.cluster
        capacity = np.asarray(cluster.gpus(classes.instance.now if now is None else now), np.int64)
        return cls(
            np.where(np.isin(pool, shared_pools) & (gpus > 0), pool, -1),
            gpus,
            share,
            capacity,
        )

    def take(self, rows: IntArray) -> Shares:
        """Some of the rows."""
        return Shares(self.pool[rows], self.gpus[rows], self.share[rows], self.capacity)

    def necessary(self) -> Iterator[FloatArray]:
        """Necessary conditions, each of shape (A,): their sum over every set of rows that fits is
        at most 1. They are the u_k of each pool.
        """
        for pool in self._pools():
            rows = np.flatnonzero(self.pool == pool)
            gpus, share = self.gpus[rows], self.share[rows]
            for k in _useful(share):
                part = np.zeros(len(self.pool))
                part[rows] = gpus * dual_feasible(share, k) / self.capacity[pool]
                yield part

    def fits(self, rows: IntArray) -> bool | None:
        """Whether these rows fit side by side; None if it is unknown."""
        chosen = self.take(rows)
        known = True
        for pool in np.unique(chosen.pool[chosen.pool >= 0]).tolist():
            in_pool = np.flatnonzero(chosen.pool == pool)
            found = packing(
                chosen.gpus[in_pool], chosen.share[in_pool], int(self.capacity[pool])
            ).fits
            if found is False:
                return False
            known &= found is not None
        return True if known else None

    def first_fit(self, order: IntArray) -> BoolArray:
        """Mask of the rows that find GPUs beside the rows before them, in this order."""
        fits = np.ones(len(order), bool)
        bins = {pool: Bins(int(self.capacity[pool])) for pool in self._pools()}
        for place, row in enumerate(order.tolist()):
            if self.pool[row] >= 0:
                chosen = bins[int(self.pool[row])].take(int(self.gpus[row]), float(self.share[row]))
                fits[place] = chosen is not None
        return fits

    def interchangeable(self) -> bool:
        """Whether in each pool only the number of rows decides whether a set of rows fits."""
        for pool in self._pools():
            in_pool = self.pool == pool
            if (
                len(np.unique(self.gpus[in_pool])) > 1
                or len(np.unique(per_gpu(self.share[in_pool]))) > 1
            ):
                return False
        return True

    def decreasing(self, rows: IntArray) -> IntArray:
        """The rows in the order of best-fit decreasing: large shares first, then large gangs."""
        return rows[np.lexsort((-self.gpus[rows], -self.share[rows]))]

    def most(self) -> tuple[int, int]:
        """(rows that some packing holds, upper bound over all packings); rows of other pools count
        as held.
        """
        held = most = int((self.pool < 0).sum())
        for pool in self._pools():
            rows = np.flatnonzero(self.pool == pool)
            found, bound = _most(self.gpus[rows], self.share[rows], int(self.capacity[pool]))
            held = held + found
            most = most + bound
        return held, most

    def _pools(self) -> list[int]:
        pools: list[int] = np.unique(self.pool[self.pool >= 0]).tolist()
        return pools


class Bins:
    """GPUs of a pool with the used share of each."""

    def __init__(self, count: int) -> None:
        self.load = np.zeros(count)

    def take(self, gpus: int, share: float) -> IntArray | None:
        """Take the fullest GPUs with room for a share, the first of equal ones; None if there are
        too few. Free shares then stay on few GPUs.
        """
        room = self.load <= FULL - share
        if gpus == 1:
            fullest = int(np.argmax(np.where(room, self.load, -1.0))) if len(room) else 0
            chosen = np.array([fullest] if len(room) and room[fullest] else [], np.int64)
        else:
            possible = np.flatnonzero(room)
            chosen = possible[np.argsort(-self.load[possible], kind="stable")[:gpus]]
        if len(chosen) < gpus:
            return None
        self.load[chosen] += share
        return chosen


class SharePacking(NamedTuple):
    """Whether rows fit on the GPUs of a pool (None: unknown), and if so the GPUs of each, from 0
    on.
    """

    fits: bool | None
    gpus: tuple[IntArray, ...] = ()


def packing(gpus: IntArray, share: FloatArray, count: int) -> SharePacking:
    """Pack rows with shares of a number of GPUs each into ``count`` GPUs: best-fit decreasing, then
    a search.
    """
    if any(float(gpus @ dual_feasible(share, k)) > count * FULL for k in _useful(share)):
        return SharePacking(False)
    if float(gpus @ share) > count * FULL:
        return SharePacking(False)
    bins = Bins(count)
    made = [EMPTY] * len(gpus)
    order = np.lexsort((-gpus, -share))
    for row in order.tolist():
        taken = bins.take(int(gpus[row]), float(share[row]))
        if taken is None:
            break
        made[row] = taken
    else:
        return SharePacking(True, tuple(made))
    # Negated, so that the largest shares come first.
    sizes, kind = np.unique(-share, return_inverse=True)
    found = _dealt(_filled(-sizes, kind[order], gpus[order], count), kind, gpus)
    if found.fits or int(gpus.sum()) > PIECES:
        return found
    needs = [sorted(gpus[kind == number].tolist(), reverse=True) for number in range(len(sizes))]
    try:
        filled = _Search((-sizes).tolist()).fill(tuple(map(tuple, needs)), count)
    except _GaveUp:
        return SharePacking(None)
    return SharePacking(False) if filled is None else _dealt(np.array(filled), kind, gpus)


def _filled(sizes: FloatArray, kind: IntArray, gpus: IntArray, count: int) -> IntArray:
    """Number of shares of each size on each GPU, if each share goes to the fullest GPU with room
    and gangs are ignored.
    """
    bins = Bins(count)
    filled = np.zeros((count, len(sizes)), np.int64)
    for number in np.repeat(kind, gpus).tolist():
        taken = bins.take(1, float(sizes[number]))
        if taken is not None:
            filled[taken, number] += 1
    return filled


def _dealt(filled: IntArray, kind: IntArray, gpus: IntArray) -> SharePacking:
    """GPUs for rows, given the number of shares of each size on each GPU; unknown if a gang gets
    too few GPUs.

    Each gang gets the GPUs on which most shares of its size are left: if all shares are equal, this
    succeeds whenever it is possible (Gale and Ryser).
    """
    left = filled.copy()
    made = [EMPTY] * len(gpus)
    for row in np.argsort(-gpus, kind="stable").tolist():
        column = left[:, kind[row]]
        chosen = np.argsort(-column, kind="stable")[: gpus[row]]
        if len(chosen) < gpus[row] or (column[chosen] <= 0).any():
            return SharePacking(None)
        left[chosen, kind[row]] -= 1
        made[row] = chosen
    return SharePacking(True, tuple(made))


def dual_feasible(size: FloatArray, k: int) -> FloatArray:
    """u_k: sizes in [0, 1] that add up to at most 1 still do after it."""
    scaled = (k + 1) * size
    near = np.abs(scaled - np.round(scaled)) < ROUNDING * (k + 1)
    return np.where(near, size, np.floor(scaled) / k)


def per_gpu(share: FloatArray) -> IntArray:
    """Number of equal shares that fit on one GPU, at most `MOST_ON_A_GPU`."""
    return np.floor(np.minimum(FULL / share, MOST_ON_A_GPU)).astype(np.int64)


def _useful(share: FloatArray) -> list[int]:
    """The k for which u_k is stronger than the sum: if k equal shares fit on a GPU, u_k counts each
    as 1 / k.
    """
    useful: list[int] = np.unique(per_gpu(share[share < 1.0])).tolist()
    return useful


def _most(gpus: IntArray, share: FloatArray, count: int) -> tuple[int, int]:
    """(rows that some packing holds, upper bound over all packings) of a pool."""
    weights = [
        gpus * share,
        *(gpus * dual_feasible(share, k) for k in _useful(share)),
    ]
    bound = min(
        int(np.searchsorted(np.cumsum(np.sort(weight)), count * FULL, side="right"))
        for weight in weights
    )
    order = np.lexsort((gpus, gpus * share))
    gpus = gpus[order]
    share = share[order]
    # If GPUs and shares both ascend along the order, the first n rows are the easiest n to pack.
    nested = bool((np.diff(gpus) >= 0).all() and (np.diff(share) >= 0).all())
    bins = Bins(count)
    held = sum(
        bins.take(int(g), float(s)) is not None
        for g, s in zip(gpus.tolist(), share.tolist(), strict=True)
    )
    low = held
    high = bound if len(gpus) <= COUNTED else held
    while low < high:
        middle = (low + high + 1) // 2
        fits = packing(gpus[:middle], share[:middle], count).fits
        if fits is False and nested:
            bound = middle - 1
        if fits:
            low = middle
        else:
            high = middle - 1
    return low, bound


_Needs = tuple[tuple[int, ...], ...]
"""For each size, GPUs that its rows still need."""


class _GaveUp(Exception):
    """The search took too many steps."""


class _Search:
    """Fills one GPU after the other with the largest remaining share and every maximal choice of
    others.

    The state has, for each size, the number of GPUs that each row with shares of this size still
    needs, descending. A row has at most one share on a GPU. Of equal shares those of the rows that
    need most GPUs come first: if a row with fewer had one instead, the other row would have a GPU
    to give for it.

    Parameters
    ----------
    sizes : list of float
        Different shares, the largest first.
    """

    def __init__(self, sizes: list[float]) -> None:
        self.sizes = sizes
        self.steps = 0
        self.hopeless: set[tuple[_Needs, int]] = set()

    def fill(self, left: _Needs, count: int) -> list[tuple[int, ...]] | None:
        """Number of shares of each size on each of at most ``count`` GPUs, or None if they do not
        fit.
        """
        if not any(left):
            return []
        if self._total(left) > count * FULL or (left, count) in self.hopeless:
            return None
        # All GPUs are equal: the largest remaining share can go on this one.
        first = next(number for number, needs in enumerate(left) if needs)
        least = [needs.count(count) for needs in left]
        least[first] = max(least[first], 1)
        possible = all(needs[0] <= count for needs in left if needs)
        for chosen in self._choices(left, least, (), FULL) if possible else ():
            self.steps += 1
            if self.steps > STEPS:
                raise _GaveUp
            filled = self.fill(_without(left, chosen), count - 1)
            if filled is not None:
                return [chosen, *filled]
        # The order of the GPUs does not matter: these counts fail in every order.
        self.hopeless.add((left, count))
        return None

    def _total(self, left: _Needs) -> float:
        return sum(sum(needs) * size for needs, size in zip(left, self.sizes, strict=True))

    def _choices(
        self,
        left: _Needs,
        least: list[int],
        chosen: tuple[int, ...],
        room: float,
    ) -> Iterator[tuple[int, ...]]:
        """Counts of each size for one GPU, at least those of ``least``, such that no other share
        fits beside them.
        """
        number = len(chosen)
        if number == len(left):
            fits = any(
                len(needs) > used and size <= room
                for needs, used, size in zip(left, chosen, self.sizes, strict=True)
            )
            if not fits:
                yield chosen
            return
        most = min(len(left[number]), int(room / self.sizes[number]))
        for used in range(most, least[number] - 1, -1):
            rest = room - used * self.sizes[number]
            yield from self._choices(left, least, (*chosen, used), rest)


def _without(left: _Needs, chosen: tuple[int, ...]) -> _Needs:
    """What rows still need after one GPU, where those that need most come first."""
    rest = []
    for needs, used in zip(left, chosen, strict=True):
        after = [need - (place < used) for place, need in enumerate(needs)]
        rest.append(tuple(sorted((need for need in after if need), reverse=True)))
    return tuple(rest)


def packed(allocation: Allocation | None, schedule: Schedule | None = None) -> Packed | None:
    """The rows that a packing into whole GPUs holds, of rows that run side by side; None if all
    fit.

    In an allocation these are the rows that run all the time, such as all rows of whole jobs; in a
    schedule, the rows at the first time at which they are not shown to fit. Rows that run for a
    part of the time take turns: a condition that holds for every set of rows that fits also holds
    for averages of such sets.
    """
    if schedule is not None:
        for time, column in _instants(schedule):
            found = _packed(schedule.classes, column, time)
            if found is not None:
                return found
        return None
    if allocation is None:
        return None
    C = allocation.classes
    always = _packed(C, np.repeat(np.arange(C.columns), _always_running(allocation)), None)
    return always if always is not None or allocation.integral else _taking_turns(allocation)


def _taking_turns(allocation: Allocation) -> Packed | None:
    """The part of their time that rows can get, if no sequence of packings gives them all of it."""
    used = np.flatnonzero(allocation.x > 0)
    shares = Shares.of(allocation.classes, used)
    if shares is None:
        return None
    needed = max((float(part @ allocation.x[used]) for part in shares.necessary()), default=0.0)
    if needed <= 1.0 + IN_TURN:
        return None
    rows = int((shares.pool >= 0).sum())
    return Packed(rows, rows, rows, turns=1.0 / needed)


def _always_running(allocation: Allocation) -> IntArray:
    """Jobs of each column that run on it all the time, shape (N,).

    If the jobs of a class have less than all their time on a column, none of them needs to be there
    always.
    """
    if allocation.integral:
        return np.rint(allocation.x).astype(np.int64)
    members = allocation.classes.count[allocation.classes.class_a]
    always = allocation.x >= members * (1.0 - ALL_THE_TIME)
    return np.where(always, members, 0).astype(np.int64)


def _instants(schedule: Schedule) -> Iterator[tuple[float, IntArray]]:
    """Every start time, and the columns that run then."""
    if Shares.of(schedule.classes, schedule.column) is None:
        return
    for time in np.unique(schedule.start).tolist():
        yield (
            time,
            schedule.column[(schedule.start <= time) & (time < schedule.end)],
        )


def _packed(classes: Classes, column: IntArray, time: float | None) -> Packed | None:
    shares = Shares.of(classes, column, time)
    if shares is None or shares.fits(np.arange(len(column))):
        return None
    held, most = shares.most()
    return None if held == len(column) else Packed(len(column), held, most, time)
