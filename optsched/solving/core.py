"""The core of a program of whole jobs: the few columns that reduced costs leave open.

Let y be duals of the relaxation, where jobs may be divided, with the bound B of y. One unit of
column j loses l_j = A_j'y - c_j >= 0 against it, and a job of class k that stays idle loses its
dual u_k of the row ``time``. A whole point x is worth

    c'x <= B - sum_j l_j x_j - sum_k u_k (n_k - time_k(x))

- A column with l_j > B - v is in no point that is worth more than v (reduced-cost fixing).
- At optimal duals nearly every class has one column that loses nothing. Good points differ from
  this choice only where a second column loses little. The program over these columns, with all
  others fixed, is small: it is the *core* (Balas and Zemel, 1980, doi:10.1287/opre.28.5.1130; with
  several resources Puchinger, Raidl and Pferschy, 2010, doi:10.1287/ijoc.1090.0344).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.candidates import Classes
from optsched.program import LinearArrays
from optsched.solution.certificate import dual_bound

ROUNDING = 1e-9
"""Relative amount of the bound by which a loss may be wrong."""


@dataclass(frozen=True, eq=False)
class Core:
    """Reduced costs of an allocation program of whole jobs.

    Attributes
    ----------
    classes : Classes
    arrays : LinearArrays
        The program with whole jobs, to be maximised; columns of classes come first.
    duals : FloatArray, shape (rows,)
        y.
    bound : float
        B.
    loss : FloatArray, shape (columns of classes,)
        l.
    idle_loss : FloatArray, shape (K,)
        u.
    """

    classes: Classes
    arrays: LinearArrays
    duals: FloatArray
    bound: float
    loss: FloatArray
    idle_loss: FloatArray

    @classmethod
    def of(cls, classes: Classes, arrays: LinearArrays, y: FloatArray) -> Core | None:
        """The core at duals of all rows; None where they prove no bound."""
        bound = dual_bound(arrays, y)
        if bound is None:
            return None
        loss = (arrays.A.T @ y - arrays.cost)[: classes.columns]
        (time,) = (y[rows.slice] for rows in arrays.rows if rows.name == "time")
        return cls(classes, arrays, y, bound, np.maximum(loss, 0.0), np.maximum(time, 0.0))

    def at_losses(self, bound: float, loss: FloatArray) -> Core:
        """The core of a program in which no job may idle, at another bound. A point with column j
        is at least ``loss[j]`` below the bound; losses of several columns need not add up.
        """
        return replace(self, bound=bound, loss=loss, idle_loss=np.full(len(self.classes), np.inf))

    def value(self, point: FloatArray) -> float:
        """Objective of a point."""
        return float(self.arrays.cost @ point) + self.arrays.offset

    def whole(self, point: FloatArray) -> FloatArray:
        """A solver's point with its integer columns rounded."""
        return np.where(self.arrays.integer, np.round(point), point)

    def without_losers(self, value: float) -> tuple[FloatArray, FloatArray]:
        """Bounds of all columns that every point worth more than ``value`` satisfies."""
        room = self.bound - value + ROUNDING * abs(self.bound)
        upper = self.arrays.upper.copy()
        upper[: len(self.loss)][self.loss > room] = 0.0
        return self.arrays.lower, upper

    def open_columns(self, value: float) -> int:
        """How many columns these bounds leave open."""
        lower, upper = self.without_losers(value)
        return int((lower < upper).sum())

    def around(self, point: FloatArray, extra: int) -> tuple[FloatArray, FloatArray]:
        """Bounds of all columns that leave some open, the others as in the point.

        Open are the columns of the point, one for each class, and the ``extra`` columns that lose
        least. A class with only one of these is fixed.
        """
        C, x = self.classes, point[: len(self.loss)]
        losses = np.append(self.loss, self.idle_loss)
        last = min(len(C) + extra, len(losses)) - 1
        most = np.partition(losses, last)[last]
        near = (self.loss <= most) | (x > 0)
        may_idle = (self.idle_loss <= most) | (C.time(x) < C.count)
        choices = np.bincount(C.class_a[near], minlength=len(C)) + may_idle
        fixed = ~(near & (choices > 1)[C.class_a])
        lower, upper = self.arrays.lower.copy(), self.arrays.upper.copy()
        lower[: len(x)][fixed] = x[fixed]
        upper[: len(x)][fixed] = x[fixed]
        return lower, upper
