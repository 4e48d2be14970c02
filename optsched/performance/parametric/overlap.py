"""Two phases of a step that overlap in part."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray


def overlapped(first: FloatArray, second: FloatArray, g: float | FloatArray) -> FloatArray:
    """Seconds of two phases that overlap: (x^g + y^g)^(1/g), g >= 1.

    With g = 1 they follow each other (x + y), with g -> inf they hide one another (max). In between, with u the larger
    and v the smaller,  u (1 + (v/u)^g)^(1/g)  neither overflows nor underflows. Both are at least 0, one above.
    """
    if np.ndim(g) == 0 and g == 1:
        return first + second
    if np.ndim(g) == 0 and g == 2:
        root: FloatArray = np.sqrt(first * first + second * second)
        return root
    with np.errstate(divide="ignore", invalid="ignore"):  # log 0 = -inf: only one phase
        larger = np.maximum(first, second)
        power = np.minimum(first, second)
        power /= larger
        np.log(power, out=power)
        power *= g
        np.exp(power, out=power)
        power += 1.0
        np.log(power, out=power)
        power /= g
        np.exp(power, out=power)
        power *= larger
    return power
