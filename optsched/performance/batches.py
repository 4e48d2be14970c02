"""Samples per step of workloads: stated, or chosen by goodput (Pollux)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import model_validator

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows
from optsched.arrays.columns import Columns
from optsched.arrays.values import replace
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import (
    SMALLEST,
    Document,
    NonNegative,
    Positive,
    PositiveCount,
    refused,
)
from optsched.instance.reading import join, show, validate
from optsched.performance.ways import Ways

# --- stated batches -------------------------------------------------------------------------------


NAME, BATCH, PER_GPU, MOST_PER_GPU = "profile", "batch", "batch_per_gpu", "max_batch_per_gpu"


@dataclass(frozen=True)
class Batches:
    """Batches of the W workloads of an instance, from their ``parameters``.

    - ``batch``: samples of one step of the whole job, whatever its GPUs (strong scaling);
    - ``batch_per_gpu``: samples of one GPU in a step, whatever their number (weak scaling). A step
      is then that many samples, so that the work of a job does not depend on its GPUs; with
      ``batch`` as well, a step is ``batch``;
    - ``max_batch_per_gpu``: most samples of one GPU at a time; more are taken in several passes. A
      ``batch`` is split into whole samples, so beside one alone this is a whole number;
    - ``profile``: name under which a fitted model knows the workload (its own by default).

    Attributes
    ----------
    names : tuple of str
        Names of the workloads in fitted models.
    step : FloatArray, shape (W + 1,)
        Samples of a step; NaN where not stated. The last row is for jobs without a workload.
    per_gpu, most : FloatArray, shape (W + 1,)
        NaN, inf where not stated.
    whole_steps : BoolArray, shape (W + 1,), or None
        Workloads whose steps were measured without samples (`in_whole_steps`).
    """

    names: tuple[str, ...]
    step: FloatArray
    per_gpu: FloatArray
    most: FloatArray
    whole_steps: BoolArray | None = None

    @classmethod
    def of(cls, instance: Instance) -> Batches:
        """Read the parameters; raises `InvalidInput` with the path of a wrong one."""
        names = []
        columns: dict[str, list[float]] = {BATCH: [], PER_GPU: [], MOST_PER_GPU: []}
        for workload in instance.workloads:
            path = f"{join('workloads', [workload.name])}.parameters"
            name = workload.parameters.get(NAME, workload.name)
            if not isinstance(name, str):
                raise InvalidInput(
                    f"{path}.{NAME}", show(name), "the name of a workload in the model's profiles"
                )
            names.append(name)
            for parameter, column in columns.items():
                column.append(_samples(workload.parameters.get(parameter), f"{path}.{parameter}"))
        # The extra row of NaN is for jobs without a workload, whose row is -1.
        step, per_gpu, most = (np.array([*column, np.nan]) for column in columns.values())
        _check_passes(instance, step, per_gpu, most)
        return cls(
            tuple(names),
            np.where(np.isnan(step), per_gpu, step),
            per_gpu,
            np.where(np.isnan(most), np.inf, most),
        )

    def in_whole_steps(self, names: Collection[str]) -> Batches:
        """The same for workloads whose steps were measured without samples: their batches are
        ignored.

        A step counts as one sample that all GPUs share, as in the profiles.
        """
        whole = np.array([*(name in names for name in self.names), False])
        return replace(
            self,
            step=np.where(whole, 1.0, self.step),
            per_gpu=np.where(whole, np.nan, self.per_gpu),
            most=np.where(whole, np.inf, self.most),
            whole_steps=whole,
        )

    def split(self, workload: IntArray, gpus: IntArray) -> tuple[FloatArray, IntArray]:
        """Samples of the fullest GPU in a pass, and passes of a step, for rows (workload, GPUs).

        A batch of B is ceil(B / k) samples on the fullest of k GPUs, in as few passes as fit its
        memory. Samples are NaN if the batch is not known, and 0 if there are more GPUs than
        samples. Whole steps are split over any GPUs.
        """
        count = np.maximum(gpus, 1)
        # The factor keeps a quotient that is an integer up to rounding errors from being rounded
        # up.
        whole = np.where(
            self.step[workload] >= count, np.ceil(self.step[workload] / count * (1 - 1e-12)), 0.0
        )
        whole[np.isnan(self.step[workload])] = np.nan
        each = np.where(np.isnan(self.per_gpu[workload]), whole, self.per_gpu[workload])
        passes = np.where(each > 0, np.ceil(each / self.most[workload] * (1 - 1e-12)), 1.0)
        passes = np.maximum(np.nan_to_num(passes, nan=1.0), 1.0)
        # A batch is split into whole samples; a stated batch per GPU may be any number.
        samples = np.where(
            np.isnan(self.per_gpu[workload]), np.ceil(each / passes * (1 - 1e-12)), each / passes
        )
        if self.whole_steps is not None:
            samples = np.where(self.whole_steps[workload], 1.0 / count, samples)
        return samples, passes.astype(np.int64)

    def steps(self, workload: IntArray, samples: FloatArray) -> FloatArray:
        """Number of steps in ``samples`` samples; an uneven split of one batch is one step."""
        step = self.step[workload]
        return np.where(np.isnan(self.per_gpu[workload]), 1.0, samples / step)


MOST_PASSES = 2.0**31


def _check_passes(
    instance: Instance,
    step: FloatArray,
    per_gpu: FloatArray,
    most: FloatArray,
) -> None:
    """Refuse a ``max_batch_per_gpu`` that is not an integer though a batch is split into whole
    samples, or that leads to too many passes.
    """
    each = np.where(np.isnan(per_gpu), step, per_gpu)
    split = np.isnan(per_gpu) & ~np.isnan(step) & (most != np.floor(most)) & ~np.isnan(most)
    for wrong, expected in (
        (split, "a whole number of samples, as a batch is split into whole ones"),
        (each > MOST_PASSES * most, "samples that take fewer than 2^31 passes"),
    ):
        for row in np.flatnonzero(wrong)[:1].tolist():
            path = f"{join('workloads', [instance.workloads[row].name])}.parameters.{MOST_PER_GPU}"
            raise InvalidInput(path, show(float(most[row])), expected)


def _samples(value: object, path: str) -> float:
    if value is None:
        return np.nan
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not SMALLEST <= value < 2**53
    ):
        raise InvalidInput(path, show(value), "a number of samples above 0")
    return float(value)


# --- goodput --------------------------------------------------------------------------------------


SIZES = 50
"""Number of batch sizes that are tried, in geometric steps."""
TOLERANCE = 1e-8
"""A batch size that exceeds an integer by at most this counts as the integer."""

StepSeconds = Callable[[FloatArray, IntArray, IntArray], FloatArray]
"""(samples m, passes, row) -> seconds of a step, elementwise; ``row`` is the way to run."""


@dataclass(frozen=True, repr=False)
class GradientNoise(Columns):
    """Statistics of the gradient of E kinds of work at their first batch size;
    all shape (E,) or scalars.

    With s = B / B0, the gain of a step with a batch of B over one with B0, and the efficiency of a
    sample, are

        gain(B)       = (var + sqr) / (var / s + sqr)
        efficiency(B) = gain(B) / s  =  (var + sqr) / (var + s sqr)

    The efficiency is 1 at B0 and falls with B; without noise (var = 0), more samples per step bring
    no gain.

    Attributes
    ----------
    sqr, var : array of float
        |G|^2, the square of the gradient, and the variance of its estimate at B0; at least 0, one
        of them above 0.
    batch : array of float
        B0, samples per step.

    References
    ----------
    A. Qiao et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning",
    OSDI 2021, section 3.1; S. McCandlish et al., "An empirical model of large-batch training",
    2018.
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

    def gain(self, batch: ArrayLike) -> FloatArray:
        """Progress of one step with a batch of B, in steps with B0."""
        scale = np.asarray(batch, np.float64) / self.batch
        return (self.var + self.sqr) / (self.var / scale + self.sqr)

    def efficiency(self, batch: ArrayLike) -> FloatArray:
        """Progress per sample in a batch of B, relative to a batch of B0."""
        return self.gain(batch) * self.batch / np.asarray(batch, np.float64)


@dataclass(frozen=True, repr=False)
class BatchLimits(Columns):
    """Limits on batch sizes of E kinds of work; all shape (E,).

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


@dataclass(frozen=True, repr=False)
class BestBatches(Columns):
    """The best batch sizes, all shape (E,): goodput in samples/s of batch B0.

    Goodput is 0 if no batch size is allowed, NaN if no allowed one has a known time.
    """

    goodput: FloatArray
    samples: FloatArray
    passes: IntArray


def best_batches(
    gpus: IntArray,
    seconds: StepSeconds,
    noise: GradientNoise,
    limits: BatchLimits,
) -> BestBatches:
    """Goodput = samples/s x efficiency,
    at the best of `SIZES` geometric batch sizes for each of E ways to run.

    Batches run from max(B0, k x least local) to the largest one. A GPU takes ceil(B / k) samples,
    with accumulation in as few passes as its limit allows, without it no more than that limit. A
    single GPU takes a batch above B0 in at least two passes, and without accumulation only B0,
    because gradient noise cannot be estimated from one gradient. A way that cannot take B0 has no
    goodput. Of equally good batch sizes the smallest is taken.

    Parameters
    ----------
    gpus : IntArray, shape (E,)
        k of each way.
    seconds : callable
        Step times; batch sizes with NaN (unknown) are not chosen.
    noise : GradientNoise
    limits : BatchLimits

    References
    ----------
    AdaptDL (Apache-2.0), ``adaptdl/goodput.py``, ``GoodputFunction.optimize``.
    """
    count = len(gpus)
    # As in AdaptDL, batches below B0 are not tried: their gradient noise is not known.
    first = np.maximum(noise.batch, limits.least_local * gpus)
    local = np.geomspace(first, np.maximum(limits.most, 1e-300), SIZES).reshape(SIZES, count) / gpus
    # AdaptDL: as few passes as the limit of a GPU allows.
    split = np.maximum(np.ceil(local / limits.most_local - TOLERANCE), 1.0).astype(np.int64)
    # Gradient noise is estimated from differences of gradients, for which one GPU needs two passes.
    split = np.where((gpus == 1) & (local > noise.batch), np.maximum(split, 2), split)
    passes = np.where(limits.accumulation, split, 1)
    # Without accumulation one GPU has a single gradient, and its batch must stay B0.
    samples = np.where(
        (gpus > 1) | limits.accumulation, np.ceil(local / passes - TOLERANCE), noise.batch
    )
    samples = np.clip(samples, limits.least_local, limits.most_local)
    row = np.broadcast_to(np.arange(count), (SIZES, count))
    times = seconds(samples.ravel(), passes.ravel(), row.ravel()).reshape(SIZES, count)
    batch = gpus * samples * passes
    goodput = batch / times * noise.efficiency(batch)
    # Rounding to whole samples may give less than B0, or a limit may not allow B0 at all.
    allowed = (batch >= noise.batch * (1 - TOLERANCE)) & (first <= limits.most * (1 + TOLERANCE))
    unknown = np.isnan(goodput)
    goodput = np.where(allowed & ~unknown, goodput, 0.0)
    # argmax returns the first of equal values: the smallest batch.
    best = np.argmax(goodput, axis=0), np.arange(count)
    # Goodput is 0 only if no batch is allowed; if times are unknown, it is unknown.
    none = (unknown & allowed).any(axis=0) & (goodput[best] == 0)
    return BestBatches(np.where(none, np.nan, goodput[best]), samples[best], passes[best])


# --- workloads of an instance ---------------------------------------------------------------------

KEY = "gradient_noise"
BLOCK = 1024
"""Ways per block."""


class GradientNoiseDocument(Document):
    """``parameters.gradient_noise`` of a workload: `GradientNoise` and `BatchLimits`."""

    sqr: NonNegative
    var: NonNegative
    batch: Positive
    max_batch: Positive | None = None
    min_batch_per_gpu: PositiveCount = 1
    max_batch_per_gpu: PositiveCount | None = None
    accumulation: bool = True

    @model_validator(mode="after")
    def _limits_allow_a_batch(self) -> Self:
        most = self.max_batch
        local = self.max_batch_per_gpu
        if self.sqr == 0 and self.var == 0:
            raise refused("sqr and var of 0", "one of them above 0")
        if most is not None and most < self.batch:
            raise refused(show(most), f"at least the batch of {self.batch:g}", ".max_batch")
        if local is not None and local < self.min_batch_per_gpu:
            raise refused(show(local), f"at least {self.min_batch_per_gpu}", ".max_batch_per_gpu")
        return self


@dataclass(frozen=True)
class AdaptiveBatches:
    """Gradient noise and batch limits of the W workloads of an instance;
    row W is for jobs without a workload.

    ``parameters.gradient_noise`` of a workload holds ``sqr``, ``var`` and ``batch`` (B0), and
    perhaps ``max_batch`` (of a step; B0 by default), ``min_batch_per_gpu`` and
    ``max_batch_per_gpu`` (samples of one GPU in one pass; 1 and the largest batch by default) and
    ``accumulation`` (several passes are allowed; true by default).
    """

    known: BoolArray
    noise: GradientNoise
    limits: BatchLimits

    @classmethod
    def of(cls, instance: Instance) -> AdaptiveBatches:
        """Read the parameters; raises `InvalidInput` with the path of a wrong one."""
        count = len(instance.workloads) + 1
        known = np.zeros(count, bool)
        numbers = np.ones((6, count))
        accumulation = np.ones(count, bool)
        for row, workload in enumerate(instance.workloads):
            if KEY not in workload.parameters:
                continue
            path = f"{join('workloads', [workload.name])}.parameters"
            # Goodput determines the batch, so a stated one would contradict it.
            for other in (BATCH, PER_GPU, MOST_PER_GPU):
                if other in workload.parameters:
                    raise InvalidInput(
                        f"{path}.{other}",
                        f"a batch size beside {KEY}",
                        "one of the two in a workload",
                    )
            given = validate(GradientNoiseDocument, workload.parameters[KEY], f"{path}.{KEY}")
            most = given.batch if given.max_batch is None else given.max_batch
            local = np.ceil(most) if given.max_batch_per_gpu is None else given.max_batch_per_gpu
            numbers[:, row] = (
                given.sqr,
                given.var,
                given.batch,
                most,
                given.min_batch_per_gpu,
                local,
            )
            known[row] = True
            accumulation[row] = given.accumulation
        return cls(
            known,
            GradientNoise(*numbers[:3]),
            BatchLimits(numbers[3], numbers[4], numbers[5], accumulation),
        )

    def choose(self, ways: Ways, seconds: Callable[[Ways], FloatArray]) -> BestBatches:
        """The best batch size in each way; samples and passes of the ways are ignored."""
        # Samples and passes are chosen here, so ways that differ only in them are equal.
        columns = (ways.workload, ways.gpu, ways.gpus, ways.nodes)
        groups = group_rows(columns, len(ways))
        parts = []
        # In blocks, because each way has `SIZES` batches and they should stay in the CPU cache.
        for start in range(0, len(groups), BLOCK):
            block_ways = ways.take(groups.first[start : start + BLOCK])

            def step_seconds(
                m: FloatArray,
                p: IntArray,
                row: IntArray,
                block_ways: Ways = block_ways,
            ) -> FloatArray:
                return seconds(block_ways.take(row).with_batches(m, p))

            noise = self.noise.take(block_ways.workload)
            limits = self.limits.take(block_ways.workload)
            parts.append(best_batches(block_ways.gpus, step_seconds, noise, limits))
        return BestBatches.join(parts).take(groups.inverse)
