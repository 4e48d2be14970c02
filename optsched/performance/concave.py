"""Concave envelopes of scaling curves, for formulations that use marginal gains per GPU."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import FloatArray


def concave_envelope(k: ArrayLike, rates: ArrayLike, *, from_zero: bool = False) -> FloatArray:
    """The smallest concave curve over k that is at least the rates everywhere:
    the upper hull of the points (k, rate).

    Measured curves are often neither concave nor monotone (of ElasticFlow's 23, 12 are not
    concave); code that needs decreasing marginal gains uses the envelope instead and reports
    `envelope_gap`.

    Parameters
    ----------
    k : array of shape (K,)
        Strictly growing numbers of GPUs.
    rates : array of shape (K,) or (N, K)
        Finite rates, one curve per row.
    from_zero : bool
        Whether the hull includes the origin (0 GPUs, rate 0), so that gains per GPU do not increase
        from the first GPU on; then k must be positive.

    Returns
    -------
    FloatArray
        Same shape as the rates; equal to them, bit for bit, at the vertices of the hull.

    Raises
    ------
    ValueError
        If k does not grow, or shapes differ, or a rate is not finite.
    """
    x = np.asarray(k, np.float64)
    y = np.asarray(rates, np.float64)
    if x.ndim != 1 or y.shape[-1:] != x.shape or y.ndim > 2:
        raise ValueError(
            f"rates of shape (K,) or (N, K) are needed for K = {x.size} counts, found {y.shape}"
        )
    if (np.diff(x) <= 0).any() or (from_zero and x.size and x[0] <= 0):
        raise ValueError("k must grow strictly, and be above 0 where the hull goes through 0")
    if not np.isfinite(y).all():
        raise ValueError("rates must be finite; leave unknown counts out")
    curves = y.reshape(-1, x.size)
    # The hull through the origin: gains per GPU are concave from the first GPU on.
    if from_zero:
        x = np.concatenate([[0.0], x])
        curves = np.concatenate([np.zeros((len(curves), 1)), curves], axis=1)
    envelope = _upper_hull(x, curves)[:, int(from_zero) :]
    # Due to rounding, a chord may be an ulp below a point on it.
    return np.maximum(envelope.reshape(y.shape), y)


def _upper_hull(x: FloatArray, curves: FloatArray) -> FloatArray:
    """Walk all curves at once from vertex to vertex: the next vertex has the steepest slope from
    the current one.
    """
    count, width = curves.shape
    envelope = curves.copy()
    corner = np.zeros(count, np.int64)
    every = np.arange(count)
    place = np.arange(width)
    # All curves step together; the longest walk visits every point.
    for _ in range(width - 1):
        ahead = place > corner[:, np.newaxis]
        if not ahead.any():
            break
        run = np.where(ahead, x - x[corner][:, np.newaxis], 1.0)
        start = curves[every, corner][:, np.newaxis]
        # The steepest slope leads to the next vertex, because then no point is above the chord.
        slope = np.where(ahead, (curves - start) / run, -np.inf)
        # Of equally steep points, take the farthest.
        farthest = width - 1 - slope[:, ::-1].argmax(axis=1)
        following = np.where(ahead.any(axis=1), farthest, corner)
        chord = (
            start + np.where(ahead, slope.max(axis=1, initial=-np.inf, keepdims=True), 0.0) * run
        )
        inside = ahead & (place < following[:, np.newaxis])
        envelope[inside] = chord[inside]
        corner = following
    return envelope


def envelope_gap(rates: ArrayLike, envelope: ArrayLike) -> FloatArray:
    """Largest relative excess of the envelope over each curve,
    (envelope - rate) / envelope; 0 for concave curves.

    Parameters
    ----------
    rates : array, shape (..., counts)
        Measured rates in steps/s, one curve per row.
    envelope : array of the same shape
        The result of `concave_envelope`.

    Returns
    -------
    array, shape (...)
    """
    y = np.asarray(rates, np.float64)
    upper = np.asarray(envelope, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(upper > y, (upper - y) / np.abs(upper), 0.0)
    gap: FloatArray = excess.max(axis=-1, initial=0.0)
    return gap
