"""The master program: the best mixture of responses within the capacities, and its prices.

A response (demand r, level t) is a proposal. Mixtures of proposals are allocations of the mixed
level, so

    maximise  sum_k lambda_k t_k   s.t.  sum_k lambda_k r_k <= W,   sum_k lambda_k <= 1,   lambda >= 0

is a value that can be had, and the duals of its rows are prices (Dantzig, Wolfe 1960).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.arrays.matrices import by_columns
from optsched.solution.values import Termination, Values
from optsched.solvers.base import Limits, Session
from optsched.solvers.highs import Highs
from optsched.solvers.prices.oracle import Response
from optsched.solvers.prices.programs import maximum

KEPT = 8
"""Proposals that are kept per resource, plus `SPARE`; beyond it, those outside of the mixture are
removed.
"""
SPARE = 40
SHARP = 1e4
"""Levels are scaled to this maximum in the master program, which makes its tolerance relatively
finer.
"""
LIMITS = Limits(tolerance=1e-10)


@dataclass
class MasterProgram:
    """Proposals and their best mixture.

    Parameters
    ----------
    capacity : FloatArray, shape (R,)

    Attributes
    ----------
    part : FloatArray
        Of each proposal in the best mixture.
    value : float
        The level of the mixture.
    duals : FloatArray, shape (R,)
        What one more of each resource adds to the value.
    whole : bool
        Whether the parts must add up to 1, as idleness would violate floors.
    """

    capacity: FloatArray
    proposals: list[Response] = field(default_factory=list)
    part: FloatArray = field(default_factory=lambda: np.zeros(0))
    value: float = 0.0
    duals: FloatArray = field(default_factory=lambda: np.zeros(0))
    whole: bool = False
    _session: Session | None = None
    _sharp: float = 1.0

    def add(self, response: Response) -> None:
        """Take a response as a proposal."""
        self.proposals.append(response)
        if self._session is not None:
            column = self._column(response)
            cost = np.array([response.level * self._sharp])
            rows = np.arange(len(column), dtype=np.int32)
            ends = np.array([0, len(column)], np.int32)
            matrix = by_columns(column, rows, ends, (len(column), 1))
            self._session.add_columns(matrix, cost, np.array([1.0]))

    def begin(self, base: Response) -> None:
        """Begin with a proposal within the capacities, and mix nothing with idleness."""
        self.proposals, self.part, self.value = [base], np.ones(1), base.level
        self.whole = True

    def solve(self) -> FloatArray:
        """The best mixture (``part``, ``value``), and the prices that it points to,
        worth 1 in all; shape (R,).
        """
        even = 1.0 / self.capacity / len(self.capacity)
        if self._session is None or len(self.proposals) > KEPT * len(self.capacity) + SPARE:
            self._forget()
        assert self._session is not None
        values = self._run()
        if values.x is None or values.y is None or values.termination is not Termination.OPTIMAL:
            # Loaded again, HiGHS starts without a basis, and levels are scaled by their new
            # maximum.
            self._forget()
            values = self._run()
        if values.x is None or values.y is None or values.termination is not Termination.OPTIMAL:
            # The last mixture stays: an imprecise mixture is no allocation.
            if not len(self.duals):
                self.duals = even
            worth = float(self.duals @ self.capacity)
            return self.duals / worth if worth > 0 else even
        # Tolerances leave numbers a little below 0, and rows a little above 1.
        part = np.maximum(values.x, 0.0)
        self.part = part / max(1.0, float((self._session.arrays.A @ part).max()))
        self.value = float(self.part @ [item.level for item in self.proposals])
        prices = np.maximum(values.y[:-1], 0.0) / self._sharp / self.capacity
        self.duals = prices
        worth = float(prices @ self.capacity)
        return prices / worth if worth > 0 else even

    def _run(self) -> Values:
        assert self._session is not None
        return self._session.run(LIMITS).checked(*self._session.arrays.shape, Highs.name)

    def _column(self, response: Response) -> FloatArray:
        return np.append(response.demand / self.capacity, 1.0)

    def _forget(self) -> None:
        """Load the program again. Where there are more proposals than `KEPT` says, only the latest
        ones and those of the mixture remain.
        """
        if len(self.proposals) > KEPT * len(self.capacity) + SPARE:
            latest = len(self.proposals) - 4 * len(self.capacity)
            part = np.append(self.part, np.zeros(len(self.proposals) - len(self.part)))
            kept = (np.arange(len(part)) >= latest) | (part > 0)
            kept[0] |= self.whole
            self.proposals = [self.proposals[at] for at in np.flatnonzero(kept).tolist()]
            self.part = part[kept]
        rows = len(self.capacity) + 1
        level = np.array([item.level for item in self.proposals])
        self._sharp = SHARP / (float(np.abs(level).max()) or 1.0)
        lower = np.full(rows, -np.inf)
        lower[-1] = 1.0 if self.whole else -np.inf
        columns = np.stack([self._column(item) for item in self.proposals], axis=1)
        program = maximum(
            "master",
            sp.csc_matrix(columns),
            level * self._sharp,
            lower,
            np.ones(rows),
        )
        self._session = Highs().open(program)
