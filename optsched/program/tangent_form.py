"""The tangent of a total of concave utilities, without its matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from optsched.arrays import FloatArray
from optsched.program.linear_form import SmallestLevelForm
from optsched.program.utility import Total


@dataclass(frozen=True)
class TangentForm(SmallestLevelForm):
    """The linear program that `AllocationProgram.tangent` makes of a total: a level l_k of each class instead of one t.

        maximise  sum_k n_k w_k (f(v_k) + f'(v_k) (l_k - v_k))   s.t.  levels @ x >= n l,  time, capacity

    Parameters
    ----------
    program : AllocationProgram
        Without side rows.
    at : FloatArray, shape (K,)
        The levels v.
    """

    at: FloatArray

    @property
    def _utility(self) -> Total:
        utility = self.program.utility
        assert isinstance(utility, Total)
        return utility

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.rows[-1].stop, self.program.classes.columns + len(self.program.classes)

    @cached_property
    def implied_upper(self) -> FloatArray:
        """What the time rows leave of each column, and the highest levels."""
        return np.concatenate([self.program.limit, self.program.highest_level])

    @cached_property
    def cost(self) -> FloatArray:
        """n w f'(v) of the levels."""
        size = self.program.classes.count * self._utility.weight
        return np.concatenate([np.zeros(self.program.classes.columns), size * self._utility.slope(self.at)])

    @cached_property
    def offset(self) -> float:
        """sum_k n_k w_k (f(v_k) - f'(v_k) v_k)."""
        utility, v = self._utility, self.at
        return float((self.program.classes.count * utility.weight) @ (utility.value(v) - utility.slope(v) * v))

    def _gathered(self, by_class: FloatArray) -> FloatArray:
        """Each class has a level of its own."""
        return by_class
