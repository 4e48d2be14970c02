"""Workloads whose batch size is chosen anew in each way to run, by goodput."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import Document, NonNegative, Positive, PositiveCount
from optsched.instance.reading import join, show, validate
from optsched.performance.batches import BATCH, MOST_PER_GPU, PER_GPU
from optsched.performance.goodput import BatchLimits, BestBatches, GradientNoise, best_batches
from optsched.performance.ways import Ways

KEY = "gradient_noise"
BLOCK = 1024
"""Ways whose batch sizes are tried together."""


class GradientNoiseDocument(Document):
    """``parameters.gradient_noise`` of a workload: `GradientNoise` and `BatchLimits`."""

    sqr: NonNegative
    var: NonNegative
    batch: Positive
    max_batch: Positive | None = None
    min_batch_per_gpu: PositiveCount = 1
    max_batch_per_gpu: PositiveCount | None = None
    accumulation: bool = True


@dataclass(frozen=True)
class AdaptiveBatches:
    """Gradient noise and batch limits of the W workloads of an instance; row W is for jobs without a workload.

    ``parameters.gradient_noise`` of a workload holds ``sqr``, ``var`` and ``batch`` (B0), and perhaps ``max_batch`` (of
    a step; B0 by default), ``min_batch_per_gpu`` and ``max_batch_per_gpu`` (samples of one GPU in one pass; 1 and the
    largest batch by default) and ``accumulation`` (several passes are allowed; true by default).
    """

    known: BoolArray
    noise: GradientNoise
    limits: BatchLimits

    @classmethod
    def of(cls, instance: Instance) -> AdaptiveBatches:
        """Read the parameters; raises `InvalidInput` with the path of a wrong one."""
        count = len(instance.workloads) + 1
        known, numbers = np.zeros(count, bool), np.ones((6, count))
        accumulation = np.ones(count, bool)
        for row, workload in enumerate(instance.workloads):
            if KEY not in workload.parameters:
                continue
            path = f"{join('workloads', [workload.name])}.parameters"
            for other in (BATCH, PER_GPU, MOST_PER_GPU):
                if other in workload.parameters:
                    raise InvalidInput(
                        f"{path}.{other}",
                        f"a batch size beside {KEY}",
                        "one of the two in a workload",
                    )
            given = validate(GradientNoiseDocument, workload.parameters[KEY], f"{path}.{KEY}")
            _check(given, f"{path}.{KEY}")
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
            known[row], accumulation[row] = True, given.accumulation
        return cls(
            known,
            GradientNoise(*numbers[:3]),
            BatchLimits(numbers[3], numbers[4], numbers[5], accumulation),
        )

    def choose(self, ways: Ways, seconds: Callable[[Ways], FloatArray]) -> BestBatches:
        """The best batch size in each way; what the ways say of samples and passes is not looked at."""
        columns = (ways.workload, ways.gpu, ways.gpus, ways.nodes)
        groups = group_rows(columns, len(ways))
        goodput, samples = np.empty(len(groups)), np.empty(len(groups))
        passes = np.empty(len(groups), np.int64)
        for start in range(0, len(groups), BLOCK):
            block = slice(start, start + BLOCK)
            some = ways.take(groups.first[block])

            def step_seconds(
                m: FloatArray, p: IntArray, row: IntArray, some: Ways = some
            ) -> FloatArray:
                return seconds(some.take(row).with_batches(m, p))

            best = best_batches(
                some.gpus,
                step_seconds,
                self.noise.take(some.workload),
                self.limits.take(some.workload),
            )
            goodput[block], samples[block], passes[block] = best.goodput, best.samples, best.passes
        return BestBatches(goodput[groups.inverse], samples[groups.inverse], passes[groups.inverse])


def _check(given: GradientNoiseDocument, path: str) -> None:
    if given.sqr == 0 and given.var == 0:
        raise InvalidInput(path, "sqr and var of 0", "one of them above 0")
    if given.max_batch is not None and given.max_batch < given.batch:
        raise InvalidInput(
            f"{path}.max_batch", show(given.max_batch), f"at least the batch of {given.batch:g}"
        )
    if given.max_batch_per_gpu is not None and given.max_batch_per_gpu < given.min_batch_per_gpu:
        raise InvalidInput(
            f"{path}.max_batch_per_gpu",
            show(given.max_batch_per_gpu),
            f"at least {given.min_batch_per_gpu}",
        )
