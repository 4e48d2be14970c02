"""Units: from the value of a program to the objective of its formulation.

A program maximises a number that is convenient to solve for: a makespan M is solved as the largest
t = S / M. Units convert back. They belong to the program, so that a formulation keeps no state.
"""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple, Protocol

import numpy as np


class Units(Protocol):
    """A monotone conversion of values of a program to objectives."""

    def objective(self, value: float) -> float:
        """The objective of a value."""

    def slope(self, value: float) -> float:
        """Improvement of the objective per improvement of the value, at this value; at least 0."""


class Multiple(NamedTuple):
    """objective = factor * value.  A negative factor is for objectives that are minimised."""

    factor: float = 1.0

    def objective(self, value: float) -> float:
        return self.factor * value + 0.0  # never -0.0

    def slope(self, value: float) -> float:
        return abs(self.factor)


AS_IT_IS = Multiple()
"""The objective is the value itself."""


class Inverse(NamedTuple):
    """objective = scale / value, which is minimised; infinite where the value is not positive."""

    scale: float = 1.0

    def objective(self, value: float) -> float:
        return self.scale / value if value > 0 else inf

    def slope(self, value: float) -> float:
        # The square of a tiny value is 0.
        return self.scale / value**2 if value > 0 and value**2 > 0 else 0.0


class Exponential(NamedTuple):
    """objective = scale * exp(value / weight):
    of a sum of logarithms of this total weight, the geometric mean.
    """

    scale: float
    weight: float

    def objective(self, value: float) -> float:
        """See the class; there is no geometric mean (NaN) where nothing has weight."""
        return self.scale * float(np.exp(value / self.weight)) if self.weight > 0 else nan

    def slope(self, value: float) -> float:
        return self.objective(value) / self.weight if self.weight > 0 else 0.0
