"""Seconds that grow in proportion to samples: t(m) = a + b m, fitted on relative error."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from optsched.arrays import FloatArray


def fit_affine(samples: FloatArray, seconds: FloatArray) -> tuple[float, float]:
    """a, b >= 0 of t = a + b m with the least squares of relative errors: rows are divided by t.

    Measurements of only one m cannot tell a from b: half of the time is then constant, which is AdaptDL's rule.
    """
    if len(np.unique(samples)) == 1:
        half = float(1.0 / np.mean(1.0 / seconds)) / 2
        return half, half / float(samples[0])
    scale = float(np.max(samples))
    (a, b), _ = nnls(
        np.stack([1.0 / seconds, samples / scale / seconds], axis=1), np.ones(len(seconds))
    )
    return float(a), float(b) / scale
