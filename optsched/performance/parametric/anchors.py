"""Measured seconds on one GPU that a line is bent through."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import FloatArray, IntArray

SPAN = 1500.0
"""More than logs of positive floats differ by: pairs stand so far apart on one axis."""


class Anchors:
    """Factors on a line a + b m of each of C pairs, which make it go through what was measured.

        factor(m) = exp r(log m),    r(log m_i) = log t_i - log(a + b m_i)

    with r straight between the measured m_i, and constant beyond the smallest and the largest: there the line goes on
    from where the measurements end. Pairs without measurements have a factor of 1.

    Parameters
    ----------
    samples, log_factor : sequence of FloatArray, length C
        m_i in ascending order, and r of them, of each pair; empty for none.
    """

    def __init__(self, samples: Sequence[FloatArray], log_factor: Sequence[FloatArray]) -> None:
        logs = [np.log(each) if len(each) else np.zeros(1) for each in samples] + [np.zeros(1)]
        values = [each if len(each) else np.zeros(1) for each in log_factor] + [np.zeros(1)]
        self._least = np.array([each[0] for each in logs])
        self._most = np.array([each[-1] for each in logs])
        cell = np.repeat(np.arange(len(logs)), [len(each) for each in logs])
        self._knots = np.concatenate(logs) + SPAN * cell
        self._values = np.concatenate(values)

    def factor(self, cell: IntArray, samples: FloatArray) -> FloatArray:
        """Factors of pairs, numbered 0 to C (C: a pair that is not known, 1), with so many samples; shape (E,)."""
        at = np.clip(np.log(samples), self._least[cell], self._most[cell]) + SPAN * cell
        right = np.searchsorted(self._knots, at)
        left = np.maximum(right - 1, 0)
        width = self._knots[right] - self._knots[left]
        back = np.where(width > 0, (self._knots[right] - at) / np.where(width > 0, width, 1.0), 0.0)
        factor: FloatArray = np.exp(
            self._values[right] + (self._values[left] - self._values[right]) * back
        )
        return factor
