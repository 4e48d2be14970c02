"""Stabilised cutting planes on prices:
what the searches for the best level and for the best total have in common.

Every answer of the classes to prices is a cut of the Lagrangian dual, and a proposal of the master
program. The next prices lie between the best so far and those of the master.

These cuts are of the Lagrangian dual, in prices. Tangent cuts of a concave utility, in levels, are
something else: `optsched.program.total.Total.tangent` makes them, for certificates.

References
----------
In-out stabilisation: W. Ben-Ameur, J. Neto, "Acceleration of cutting-plane and column generation
algorithms", Networks 49, 2007.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from optsched.arrays import FloatArray
from optsched.solvers.prices.master import MasterProgram
from optsched.solvers.prices.oracle import Response
from optsched.solvers.prices.watch import StopRule

COARSE = 2e-5
"""Gap at which the small program takes over from cutting planes."""
EXACT = 1e-10
"""Gap at which the search ends."""
CLOSED = 1e-9
"""Relative gap of an answer that is called optimal."""
ROUNDS = 12
"""Rounds of the second phase at most."""
QUICK = 0.05
"""Part of the gap that cuts between rounds leave where they go on."""
STEADY = 0.8
"""Part of the best prices in the prices that are asked next; the rest are the master's."""
STEPS = (1.0, 0.4, 0.16, 0.064)
"""Parts of the way from the best prices to those of the small program that are tried."""


class CuttingPlanes(ABC):
    """A search for prices.

    Parameters
    ----------
    capacity : FloatArray, shape (R,)
    watch : StopRule or None
        What ends the search before its time.

    Attributes
    ----------
    prices : FloatArray, shape (R,)
        Those of the lowest bound.
    value, bound : float
        Of the best allocation so far; no allocation is above the bound.
    wanted : float
        Gap at which the search ends.
    """

    passes: ClassVar[int]
    """Cuts of the first phase, at most."""
    cuts: ClassVar[int]
    """Cuts between rounds of the second phase, and one more for each resource."""

    def __init__(self, capacity: FloatArray, watch: StopRule | None) -> None:
        self.capacity, self.watch, self.wanted = capacity, watch, EXACT
        self.master = MasterProgram(capacity)
        self.value, self.bound, self.rounds = 0.0, np.inf, 0
        self.prices = np.zeros(len(capacity))
        # To leave everything idle is a proposal too: the master program always has a solution.
        idle = np.zeros(len(capacity))
        self.master.add(Response(idle, 0.0, idle, 0.0, np.inf))

    @property
    def gap(self) -> float:
        """Relative distance between the bound and the value."""
        return (self.bound - self.value) / abs(self.value) if self.value else np.inf

    def should_stop(self) -> bool:
        """Whether the gap is closed or a limit is reached.

        Each call counts as a pass, and reports progress.
        """
        if self.gap <= self.wanted:
            return True
        return self.watch is not None and self.watch(self.value, self.bound)

    @property
    def seconds_left(self) -> float | None:
        """Seconds that are left; None without a limit."""
        return None if self.watch is None else self.watch.left

    def coarse(self) -> None:
        """Cuts until the gap is small enough for the second phase."""
        for _ in range(self.passes):
            proposed = self._mix()
            if self.gap < COARSE or self.should_stop():
                return
            # In-out: the prices of the master alone jump from corner to corner.
            self._propose(STEADY * self.prices + (1.0 - STEADY) * proposed)

    def _cut(self, again: bool = True) -> None:
        """A few cuts; ``again`` and again, as long as they leave little of the gap,
        as they do where many tie.
        """
        before = np.inf
        while self.gap < QUICK * before and (again or before == np.inf):
            before = self.gap
            for _ in range(self.cuts + len(self.capacity)):
                proposed = self._mix()
                if self.should_stop():
                    return
                self._propose(0.5 * self.prices + 0.5 * proposed)

    def _mix(self) -> FloatArray:
        """Solve the master program:
        its mixture of responses is an allocation; returns its prices.
        """
        prices = self.master.solve()
        self.value = max(self.value, self.master.value)
        return prices

    def _fit(self, demand: FloatArray) -> float:
        """The factor that brings a demand within the capacities."""
        return 1.0 / max(1.0, float((demand / self.capacity).max(initial=0.0)))

    @abstractmethod
    def _propose(self, prices: FloatArray) -> bool:
        """Have all classes respond to prices; whether these are the best so far."""
