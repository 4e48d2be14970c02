"""Goodput: samples per second, weighted by how much each is worth to the training (Pollux)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from optsched.arrays import BoolArray, FloatArray, IntArray

SIZES = 50
"""Batch sizes that are tried, in geometric steps."""
TOLERANCE = 1e-8
"""A batch size this little above a whole number is that number."""

StepSeconds = Callable[[FloatArray, IntArray, IntArray], FloatArray]
"""(samples m, passes, row) -> seconds of a step, elementwise; ``row`` is the way to run."""


@dataclass(frozen=True)
class GradientNoise:
    """Statistics of the gradient of E kinds of work at their first batch size; all shape (E,) or scalars.

    With s = B / B0, the gain of a step with a batch of B over one with B0 and the worth of a sample are

        gain(B)       = (var + sqr) / (var / s + sqr)
        efficiency(B) = gain(B) / s  =  (var + sqr) / (var + s sqr)

    efficiency is 1 at B0 and falls with B; without noise (var = 0) more samples per step gain nothing.

    Attributes
    ----------
    sqr, var : array of float
        |G|^2, the square of the gradient, and the variance of its estimate at B0; at least 0, one of them above 0.
    batch : array of float
        B0, samples per step.

    References
    ----------
    A. Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning", OSDI 2021, section
    3.1; S. McCandlish et al., "An empirical model of large-batch training", 2018.
    """

    sqr: FloatArray
    var: FloatArray
    batch: FloatArray

    @classmethod
    def of(cls, sqr: ArrayLike, var: ArrayLike, batch: ArrayLike) -> GradientNoise:
        """From numbers or arrays."""
        return cls(
            np.asarray(sqr, np.float64), np.asarray(var, np.float64), np.asarray(batch, np.float64)
        )

    def take(self, rows: IntArray) -> GradientNoise:
        """The kinds of these rows."""
        return GradientNoise(self.sqr[rows], self.var[rows], self.batch[rows])

    def gain(self, batch: ArrayLike) -> FloatArray:
        """Steps with B0 that one step with a batch of B is worth."""
        scale = np.asarray(batch, np.float64) / self.batch
        gain: FloatArray = (self.var + self.sqr) / (self.var / scale + self.sqr)
        return gain

    def efficiency(self, batch: ArrayLike) -> FloatArray:
        """Worth of a sample in a batch of B, relative to one in a batch of B0."""
        efficiency: FloatArray = self.gain(batch) * self.batch / np.asarray(batch, np.float64)
        return efficiency


@dataclass(frozen=True)
class BatchLimits:
    """Batch sizes that E kinds of work allow; all shape (E,).

    Attributes
    ----------
    most : FloatArray
        Largest batch of a step, at least B0.
    least_local, most_local : FloatArray
        Samples of one GPU in one pass, whole numbers.
    accumulation : BoolArray
        Whether a GPU may take its samples in several passes.
    """

    most: FloatArray
    least_local: FloatArray
    most_local: FloatArray
    accumulation: BoolArray

    def take(self, rows: IntArray) -> BatchLimits:
        """The limits of these rows."""
        return BatchLimits(
            self.most[rows], self.least_local[rows], self.most_local[rows], self.accumulation[rows]
        )


@dataclass(frozen=True)
class BestBatches:
    """The best batch sizes, all shape (E,): goodput in samples/s of batch B0.

    It is 0 where no batch size is allowed, NaN where no allowed one has a known time.
    """

    goodput: FloatArray
    samples: FloatArray
    passes: IntArray


def best_batches(
    gpus: IntArray, seconds: StepSeconds, noise: GradientNoise, limits: BatchLimits
) -> BestBatches:
    """Goodput = samples/s x efficiency, at the best of `SIZES` geometric batch sizes for each of E ways to run.

    Batches run from max(B0, k x least local) to the largest one. A GPU takes ceil(B / k) samples, with accumulation in
    as few passes as its limit allows, without it no more than that limit. One GPU alone takes a batch above B0 in at
    least two passes, and without accumulation no other batch than B0: gradient noise cannot be estimated from one
    gradient. A way that cannot take B0 has no goodput. Of equally good batch sizes the smallest is taken.

    Parameters
    ----------
    gpus : IntArray, shape (E,)
        k of each way.
    seconds : callable
        Step times; batch sizes where it is NaN (unknown) are not taken.
    noise : GradientNoise
    limits : BatchLimits

    References
    ----------
    AdaptDL (Apache-2.0), ``adaptdl/goodput.py``, ``GoodputFunction.optimize``.
    """
    count = len(gpus)
    first = np.maximum(noise.batch, limits.least_local * gpus)
    local = np.geomspace(first, np.maximum(limits.most, 1e-300), SIZES).reshape(SIZES, count) / gpus
    passes = np.ones((SIZES, count), np.int64)
    split = np.maximum(np.ceil(local / limits.most_local - TOLERANCE), 1.0).astype(np.int64)
    split = np.where((gpus == 1) & (local > noise.batch), np.maximum(split, 2), split)
    passes = np.where(limits.accumulation, split, passes)
    samples = np.where(
        (gpus > 1) | limits.accumulation, np.ceil(local / passes - TOLERANCE), noise.batch
    )
    samples = np.clip(samples, limits.least_local, limits.most_local)
    row = np.broadcast_to(np.arange(count), (SIZES, count))
    times = seconds(samples.ravel(), passes.ravel(), row.ravel()).reshape(SIZES, count)
    batch = gpus * samples * passes
    goodput = batch / times * noise.efficiency(batch)
    allowed = (batch >= noise.batch * (1 - TOLERANCE)) & (first <= limits.most * (1 + TOLERANCE))
    unknown = np.isnan(goodput)
    goodput = np.where(allowed & ~unknown, goodput, 0.0)
    best = np.argmax(goodput, axis=0), np.arange(count)
    none = (unknown & allowed).any(axis=0) & (goodput[best] == 0)
    return BestBatches(np.where(none, np.nan, goodput[best]), samples[best], passes[best])
