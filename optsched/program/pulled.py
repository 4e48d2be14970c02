"""A' y of the blocks of an allocation program, made for some columns when these are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, is_range

if TYPE_CHECKING:  # a solver in another process loads no candidates
    from optsched.candidates import Classes


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
        held, reached, behind = self.parts_of(part)
        total = held if reached is None else held + reached
        return total if behind is None else np.concatenate([total, behind])

    def parts_of(self, part: slice) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        """What time and capacity take of some columns of the classes, what levels do, and of columns behind these."""
        C = self.classes
        start, stop, _ = part.indices(C.columns + len(self.behind))
        mine = slice(start, min(stop, C.columns))
        owner = C.class_a[mine]
        held = self.time[owner]
        held += self.paid[C.holds.way[mine]] if self.by_way else self.paid[mine]
        reached = None if self.levels is None else self.levels.data[mine] * self.slope[owner]
        if stop <= C.columns:
            return held, reached, None
        return held, reached, self.behind[max(start - C.columns, 0) : stop - C.columns]


@dataclass(frozen=True)
class PulledOneWay:
    """`Pulled` and its terms without signs, where time and capacity take and levels give, as it is with duals.

    Attributes
    ----------
    pulled : Pulled
        With multipliers of time and capacity of at least 0, multipliers of levels of at most 0, and with ``levels``.
    """

    pulled: Pulled

    def __getitem__(self, part: slice) -> tuple[FloatArray, FloatArray]:
        held, reached, behind = self.pulled.parts_of(part)
        assert reached is not None
        if behind is None:
            return held + reached, held - reached
        return np.concatenate([held + reached, behind]), np.concatenate(
            [held - reached, np.abs(behind)]
        )
