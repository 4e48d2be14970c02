"""The loop of column generation: solve a restricted program, price, add columns.

Duals of restricted programs oscillate. So columns are first priced at duals between those of the
best bound and those of the last restricted program (Wentges). A smaller weight of the best ones is
tried only where pricing found no new column. At weight 0, no new column means that the restricted
program has the optimum of the whole one.

References
----------
P. C. Gilmore, R. E. Gomory, "A linear programming approach to the cutting-stock problem",
Operations Research 9 (1961); P. Wentges, "Weighted Dantzig-Wolfe decomposition for linear
mixed-integer programming", International Transactions in Operational Research 4 (1997).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

Duals = TypeVar("Duals")


class ColumnLoop(ABC, Generic[Duals]):
    """Column generation for one program.

    Attributes
    ----------
    weights : sequence of float
        Of the duals of the best bound, the greatest first. The last one is 0.
    best : Duals or None
        The duals of the best bound; None before the first one.
    """

    weights: Sequence[float] = (0.0,)
    best: Duals | None = None

    @abstractmethod
    def solve(self) -> Duals | None:
        """Solve the restricted program.

        Returns
        -------
        Duals or None
            None if a limit ended that.
        """

    @abstractmethod
    def between(self, weight: float, best: Duals, duals: Duals) -> Duals:
        """Duals between those of the best bound and the last ones.

        Parameters
        ----------
        weight : float
            Of the best ones, from 0 to 1.
        best, duals : Duals

        Returns
        -------
        Duals
        """

    @abstractmethod
    def add_priced(self, at: Duals, duals: Duals) -> bool:
        """Price all columns at some duals; keep the bound that these prove, if it is the best one.

        Columns that improve the restricted program become its columns.

        Parameters
        ----------
        at : Duals
        duals : Duals
            Those of the restricted program.

        Returns
        -------
        bool
            Whether there was a new column.
        """

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether the bound is near enough, or a limit is reached."""

    def note(self) -> None:
        """Report the state after a restricted program and its pricing; nothing by default."""

    def generate(self) -> bool:
        """Add columns until none is new, or the loop is ``ended``.

        Returns
        -------
        bool
            Whether it ended because no column was new.
        """
        while (duals := self.solve()) is not None:
            added = self._add_smoothed(duals)
            self.note()
            if self.ended:
                return False
            if not added:
                return True
        return False

    def _add_smoothed(self, duals: Duals) -> bool:
        """Price at smoothed duals; returns whether there was a new column."""
        if self.best is None:
            return self.add_priced(duals, duals)
        for weight in self.weights:
            # At weight 0 these are the duals themselves
            at = self.between(weight, self.best, duals) if weight else duals
            if self.add_priced(at, duals):
                return True
            if self.ended:
                break
        return False
