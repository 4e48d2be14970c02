"""The best response of every class to prices, and the change of prices up to which it stays the
same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, compiling, quotient
from optsched.arrays.compiling import compiler
from optsched.solvers.prices.interior import Curve

BLOCK = 4096
"""Classes that choose at a time, without numba."""


@dataclass(frozen=True)
class Choices:
    """Best responses of classes to prices.

    Attributes
    ----------
    place : IntArray, shape (K,)
        The one that each is in, or the lower of two.
    all_time, alone : BoolArray, shape (K,)
        Whether it is there all the time; whether it is in no other place.
    slope, rent : FloatArray, shape (K,)
        y, u.
    margin : FloatArray, shape (K,)
        Part by which all prices may change, each as it likes, before the choice becomes another; 0
        in two places.
    """

    place: IntArray
    all_time: BoolArray
    alone: BoolArray
    slope: FloatArray
    rent: FloatArray
    margin: FloatArray


def best_responses(a: FloatArray, q: FloatArray, curve: Curve) -> Choices:
    """Walk along the lower hull of places, points (level a_j, cost q_j), from the origin to where
    its slope reaches that of the utility.

    Parameters
    ----------
    a : FloatArray, shape (w, K)
        Each class has a place with a > 0.
    q : FloatArray, shape (w, K), or (w, 1) where all classes pay the same
    curve : Curve
    """
    fast = compiled() if a.size >= compiling.COMPILED else None
    if fast is not None:
        classes = a.shape[1]
        place = np.empty(classes, np.int64)
        flags, numbers = np.empty((2, classes), bool), np.empty((3, classes))
        fast(np.ascontiguousarray(a), q, curve.size, curve.exponent, place, *flags, *numbers)
        return Choices(place, *flags, *numbers)
    parts = []
    for begin in range(0, a.shape[1], BLOCK):
        block = slice(begin, begin + BLOCK)
        costs = q[:, block] if q.shape[1] > 1 else q
        parts.append(_choices(a[:, block], costs, Curve(curve.size[block], curve.exponent)))
    return Choices(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _choices(a: FloatArray, q: FloatArray, curve: Curve) -> tuple[Any, ...]:
    """The fields of the `Choices` of a few thousand classes, whose numbers stay in the cache."""
    classes, e, alike = a.shape[1], curve.exponent, q.shape[1] == 1
    place, slope = np.full(classes, -1), np.empty(classes)
    part_time, in_two = np.zeros(classes, bool), np.zeros(classes, bool)
    left = np.arange(classes)
    low, cost, here = np.zeros(classes), np.zeros(classes), np.full(classes, np.inf)
    while len(left):
        best, following = np.full(len(left), np.inf), np.full(len(left), -1)
        every = len(left) == classes
        for j, price in enumerate(q):
            further = (a[j] if every else a[j, left]) - low
            rise = quotient((price if every or alike else price[left]) - cost, further, np.inf)
            following[rise < best] = j
            np.minimum(best, rise, out=best)
        stays = here <= best
        level = np.where(following < 0, 1.0, a[following, left])
        beyond = curve.size[left] * level ** (e - 1.0)
        between = ~stays & (beyond < best)
        slope[left] = np.where(stays, here, best)
        first = between & (place[left] < 0)
        in_two[left[between & ~first]] = True
        part_time[left[first]] = True
        onward = ~stays & ~between
        moved = onward | first
        place[left[moved]] = following[moved]
        left, low, here = left[onward], level[onward], beyond[onward]
        cost = q[following[onward], 0 if alike else left]
    lane = np.arange(classes)
    reached, paid = a[place, lane], q[place, 0 if alike else lane]
    rent = np.where(part_time, 0.0, np.maximum(reached * slope - paid, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        margin = np.where(part_time, 1.0 - curve.slope(reached) * reached / paid, rent / paid)
        per_level, rest = np.where(part_time, paid / reached, 0.0), np.where(part_time, 0.0, paid)
        for j, price in enumerate(q):
            # The reduced cost of another place, over the prices that may change it.
            relative = (price + rent - a[j] * slope) / (price + rest + per_level * a[j])
            other = (a[j] > 0) & (place != j)
            np.minimum(margin, np.where(other, relative, np.inf), out=margin)
    margin = np.where(in_two | ~(margin > 0), 0.0, margin)
    return place, ~part_time & ~in_two, ~in_two, slope, rent, margin


@cache
def compiled() -> Any:
    """`_choose`, compiled; None without numba."""
    made = compiler(error_model="numpy")
    return None if made is None else made(_choose)


def _choose(
    a: Any, q: Any, size: Any, exponent: float, place: Any, all_time: Any, alone: Any, slope: Any, rent: Any,
    margin: Any,
) -> None:  # fmt: skip
    """`_choices`, class by class."""
    width, classes = a.shape
    alike = q.shape[1] == 1
    for k in range(classes):
        own = 0 if alike else k
        at, low, cost, here = -1, 0.0, 0.0, np.inf
        all_time[k] = alone[k] = True
        while True:
            best, following, level = np.inf, -1, 1.0
            for j in range(width):
                further = a[j, k] - low
                if further > 0.0 and (q[j, own] - cost) / further < best:
                    best, following, level = (q[j, own] - cost) / further, j, a[j, k]
            if here <= best:
                slope[k] = here
                break
            beyond = size[k] / level if exponent == 0.0 else size[k] * level ** (exponent - 1.0)
            if beyond < best:
                slope[k] = best
                all_time[k] = False
                alone[k] = at < 0
                at = following if at < 0 else at
                break
            at, low, cost, here = following, level, q[following, own], beyond
        place[k] = at
        reached, paid, part_time = a[at, k], q[at, own], alone[k] and not all_time[k]
        rent[k] = 0.0 if part_time else max(reached * slope[k] - paid, 0.0)
        if not alone[k]:
            margin[k] = 0.0
            continue
        least = rent[k] / paid
        if part_time:
            worth = size[k] if exponent == 0.0 else size[k] * reached ** (exponent - 1.0) * reached
            least = 1.0 - worth / paid
        per_level, rest = (paid / reached, 0.0) if part_time else (0.0, paid)
        for j in range(width):
            if a[j, k] > 0.0 and j != at:
                least = min(
                    least,
                    (q[j, own] + rent[k] - a[j, k] * slope[k])
                    / (q[j, own] + rest + per_level * a[j, k]),
                )
        margin[k] = least if least > 0.0 else 0.0
