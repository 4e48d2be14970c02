"""Floors under levels in the steps of `optsched.solvers.prices.interior`.

A floor L_k has a slack w_k and a worth v_k, which is a part of the slope y_k of the level tau_k:

    tau_k - w_k = L_k,   w_k v_k = 0,   y_k = phi_k f'(tau_k) + v_k

A step towards products mu changes them by

    dw = dtau + r,   dv = (mu - dw dv) / w - v - v / w dw,   r = tau - L - w

So a class answers to prices as if its utility bent more, by v / w, and as if its slope were off by
what is left of dv. The sweeps over the classes see no more of a floor than that.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray

FIRST = 0.1
"""Part of a floor that its slack is at first, at least."""


class FloorSteps:
    """The floors of a search, and where they have come to.

    Parameters
    ----------
    k : IntArray, shape (F,)
        The classes that have a floor; F may be 0.
    floor, level, weight : FloatArray, shape (F,)
        L, tau at first, and the weight N of each.
    unit : float
        What all products are at first.
    """

    def __init__(
        self, k: IntArray, floor: FloatArray, level: FloatArray, weight: FloatArray, unit: float
    ) -> None:
        self.k, self.floor, self.weight = k, floor, weight
        self.slack = np.maximum(level - floor, FIRST * floor)
        self.worth = unit / self.slack
        self.dslack, self.dworth = np.zeros((2, len(k)))

    @property
    def products(self) -> FloatArray:
        """w v of each, shape (F,)."""
        return self.slack * self.worth

    def lacks(self, level: FloatArray) -> FloatArray:
        """What levels of the classes, shape (F,), lack of their floors."""
        return np.maximum(self.floor - level, 0.0)

    def begin(
        self, level: FloatArray, slope: FloatArray, bend: FloatArray, off: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """How utility and floor bend together, and how far the slopes are off from products of 0.

        Parameters
        ----------
        level, slope : FloatArray, shape (F,)
            tau and y.
        bend : FloatArray, shape (F,)
            -phi f''(tau).
        off : FloatArray, shape (F,)
            log (phi f'(tau) + v) / y.
        """
        self.slope, self.bend, self.off = slope, bend, level - self.floor - self.slack
        # What y is of the right slope: a logarithm changes by as much more.
        self.part = np.exp(-off)
        self.pull = slope * off / self.part
        of_worth = self.worth / self.slack
        more = -self.worth - of_worth * self.off
        return self.part * (bend + of_worth), self.part * (self.pull + more)

    def look_ahead(self, rise: FloatArray, steeper: FloatArray) -> tuple[float, float]:
        """See where the step towards products of 0 leads.

        Parameters
        ----------
        rise, steeper : FloatArray, shape (F,)
            By how much it raises levels and slopes.

        Returns
        -------
        room : float
            The part of the step that can be taken.
        second : float
            By how much the sum of all products changes in the second order.
        """
        self._step(rise, steeper, np.zeros(len(self.k)))
        self.cross = self.dslack * self.dworth
        return self._room, float(self.weight @ self.cross)

    def pull_towards(self, aim: float) -> FloatArray:
        """How much more slopes are off from these products,
        where the second order is made up for, shape (F,)."""
        return self.part * (aim - self.cross) / self.slack

    def complete(self, rise: FloatArray, steeper: FloatArray, aim: float) -> float:
        """The step towards these products, which raises levels and slopes so;
        returns the part of it that can be taken."""
        self._step(rise, steeper, (aim - self.cross) / self.slack)
        return self._room

    def _step(self, rise: FloatArray, steeper: FloatArray, more: FloatArray) -> None:
        dslack = rise + self.off
        dworth = more - self.worth - self.worth / self.slack * dslack
        # Where the slack is little (levels are at most 1, and slopes as much as their worth),
        # rounding leaves nothing of its change: that of the slope tells.
        of_slope = steeper / self.part - self.pull + self.bend * rise
        tight = self.slack * self.slope < self.worth
        self.dworth = np.where(tight, of_slope, dworth)
        by_slope = self.slack / self.worth * (more - of_slope) - self.slack
        self.dslack = np.where(tight, by_slope, dslack)

    @property
    def _room(self) -> float:
        most = max(
            float((-self.dslack / self.slack).max(initial=0.0)),
            float((-self.dworth / self.worth).max(initial=0.0)),
        )
        return 1.0 / max(most, 1e-300)

    def advance(self, length: float) -> None:
        """Take so much of the step."""
        self.slack = self.slack + length * self.dslack
        self.worth = self.worth + length * self.dworth
