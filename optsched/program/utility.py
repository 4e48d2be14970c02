"""Utilities of allocation programs: what is maximised over the levels of the classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.program.ratio import Ratio

LARGEST_LEVEL = 1e100
"""Levels that slopes may point to; beyond, the terms of a tangent overflow."""


@dataclass(frozen=True, slots=True)
class Minimum:
    """Maximise the smallest level; with delays a_k, the smallest of the values 1 / (a_k + 1 / level_k).

    A job that has a_k behind it, and 1 / level_k before it, is a_k + 1 / level_k late at its end: the value is the
    inverse of that, concave in the level. Without delays values are levels.

    Attributes
    ----------
    delay : FloatArray or None, shape (K,)
        a_k >= 0.
    """

    delay: FloatArray | None = None

    def reached(self, level: FloatArray) -> FloatArray:
        """Value of each class at its level."""
        return level if self.delay is None else level / (1.0 + self.delay * level)

    def needed(self, value: float) -> FloatArray | float:
        """Level that each class needs for a value: g(t) = t / (1 - a t), for t below every 1 / a."""
        return value if self.delay is None else value / (1.0 - self.delay * value)

    def slope(self, value: float) -> FloatArray:
        """g'(t) = 1 / (1 - a t)^2."""
        assert self.delay is not None
        return 1.0 / (1.0 - self.delay * value) ** 2


@dataclass(frozen=True, slots=True)
class LexicographicMinimum:
    """Raise all levels together; who cannot rise any more stays where it is, and the others go on (water filling).

    Every job i of weight p_i rises at a rate per unit of a common clock: p_i / s_i, where s_i is its gang; as a member
    of a group of weight w that shares it, w p_i / (s_i sum of p over the members that still rise); and the first member
    that still rises of a group that queues rises at w / s_i alone.

    Attributes
    ----------
    weight : FloatArray, shape (K,)
        p of each job of a class.
    gang : FloatArray, shape (K,)
        s.
    group : IntArray, shape (K,)
        Group of each class; -1: on its own.
    group_weight : FloatArray, shape (G,)
        w.
    queued : BoolArray, shape (G,)
        Groups whose members rise one after the other; their classes are single jobs.
    place : IntArray, shape (K,)
        Place in the queue; 0 in other groups.
    then : csr_matrix or None, shape (K, N)
        What the last program makes the total of as large as possible, nobody below the level reached; None: the levels.
    """

    weight: FloatArray
    gang: FloatArray
    group: IntArray
    group_weight: FloatArray
    queued: BoolArray
    place: IntArray
    then: sp.csr_matrix | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """Maximise the sum over jobs of w f(level).

    ``function`` is ``linear`` (f(v) = v), ``log``, or ``power`` (f(v) = v^e / e with e < 1, e != 0).
    """

    weight: FloatArray
    function: str = "linear"
    exponent: float = 1.0

    @property
    def worthless_at_zero(self) -> bool:
        """Whether f(0) is minus infinity."""
        return self.function == "log" or (self.function == "power" and self.exponent < 0)

    def slope(self, level: FloatArray) -> FloatArray:
        """f'(level), elementwise."""
        if self.function == "linear":
            return np.ones_like(level)
        return 1.0 / level if self.function == "log" else level ** (self.exponent - 1.0)

    def level(self, slope: FloatArray) -> FloatArray:
        """Where f has these slopes, elementwise; f is not linear."""
        return 1.0 / slope if self.function == "log" else slope ** (1.0 / (self.exponent - 1.0))

    def level_at(self, slope: FloatArray, other: FloatArray) -> FloatArray:
        """Where w f has these slopes, elementwise; ``other`` where it has them nowhere, or too far away."""
        slope = slope / self.weight
        with np.errstate(over="ignore"):
            told = self.level(np.where(slope > 0, slope, 1.0))
        return np.where((slope > 0) & (told < LARGEST_LEVEL), told, other)

    def value(self, level: FloatArray) -> FloatArray:
        """f(level), elementwise."""
        if self.function == "linear":
            return level
        with np.errstate(divide="ignore"):
            return np.log(level) if self.function == "log" else level**self.exponent / self.exponent


Utility = Minimum | LexicographicMinimum | Total | Ratio
