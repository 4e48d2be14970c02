"""A' y of the blocks of an allocation program, made for some columns when these are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, is_range
from optsched.candidates import Classes


class Slices(Protocol):
    """Numbers of all columns, as an array has them."""

    def __getitem__(self, part: slice, /) -> FloatArray:
        """Those of some columns beside each other."""


@dataclass(frozen=True)
class Pulled:
    """What the rows of an allocation program take of each column at multipliers y, with nothing negative in the blocks.

    Attributes
    ----------
    classes : Classes
    time : FloatArray, shape (K,)
        Multipliers of the time rows.
    paid : FloatArray
        What a unit of each way pays for capacity, or of each column where there is no ``way``.
    levels : csr_matrix or None
        Where its columns stand class by class; else what it takes is in ``paid``, or there is none.
    slope : FloatArray, shape (K,)
        Multipliers of the levels.
    behind : FloatArray
        Of the columns behind those of the classes.
    """

    classes: Classes
    time: FloatArray
    paid: FloatArray
    by_way: bool
    levels: sp.csr_matrix | None
    slope: FloatArray
    behind: FloatArray

    @classmethod
    def at(
        cls, classes: Classes, time: FloatArray, prices: FloatArray, levels: sp.csr_matrix | None, slope: FloatArray,
        behind: FloatArray,
    ) -> Pulled:  # fmt: skip
        """At these multipliers of the blocks."""
        in_order = levels is not None and is_range(levels.indices, classes.columns)
        paid = classes.holds.paid_by_way(prices) if levels is None or in_order else None
        if paid is not None:
            return cls(classes, time, paid, True, levels, slope, behind)
        each = np.asarray(classes.usage.T @ prices)
        if levels is not None and not in_order:
            each += levels.T @ slope
            levels = None
        return cls(classes, time, each, False, levels, slope, behind)

    def __getitem__(self, part: slice) -> FloatArray:
        C = self.classes
        start, stop, _ = part.indices(C.columns + len(self.behind))
        mine = slice(start, min(stop, C.columns))
        owner = C.class_a[mine]
        total = self.time[owner]
        total += self.paid[C.holds.way[mine]] if self.by_way else self.paid[mine]
        if self.levels is not None:
            total += self.levels.data[mine] * self.slope[owner]
        if stop <= C.columns:
            return total
        return np.concatenate([total, self.behind[max(start - C.columns, 0) : stop - C.columns]])
