"""How many samples a step of a workload has, and how they are split over GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import SMALLEST
from optsched.instance.reading import join, show

NAME, BATCH, PER_GPU, MOST_PER_GPU = "profile", "batch", "batch_per_gpu", "max_batch_per_gpu"


@dataclass(frozen=True)
class Batches:
    """Batches of the W workloads of an instance, from their ``parameters``.

    - ``batch``: samples of one step of the whole job, whatever its GPUs (strong scaling);
    - ``batch_per_gpu``: samples of one GPU in a step, whatever their number (weak scaling). A step is then that many
      samples, so that the work of a job does not depend on its GPUs; with ``batch`` as well, a step is ``batch``;
    - ``max_batch_per_gpu``: most samples of one GPU at a time; more are taken in several passes. A ``batch`` is split
      into whole samples, so beside one alone this is a whole number;
    - ``profile``: name under which a fitted model knows the workload (its own by default).

    Attributes
    ----------
    names : tuple of str
        Of the workloads, as fitted models know them.
    step : FloatArray, shape (W + 1,)
        Samples of a step; NaN where not stated. The last row is for jobs without a workload.
    per_gpu, most : FloatArray, shape (W + 1,)
        NaN, inf where not stated.
    """

    names: tuple[str, ...]
    step: FloatArray
    per_gpu: FloatArray
    most: FloatArray

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
        # One more row, of NaN, is for jobs without a workload: their row is -1.
        step, per_gpu, most = (np.array([*column, np.nan]) for column in columns.values())
        _check_passes(instance, step, per_gpu, most)
        return cls(
            tuple(names),
            np.where(np.isnan(step), per_gpu, step),
            per_gpu,
            np.where(np.isnan(most), np.inf, most),
        )

    def split(self, workload: IntArray, gpus: IntArray) -> tuple[FloatArray, IntArray]:
        """Samples of the fullest GPU in a pass, and passes of a step, for rows (workload, GPUs).

        A batch of B is ceil(B / k) samples of the fullest of k GPUs, in as few passes as fit its memory; NaN samples
        where the batch is not known, 0 where there are more GPUs than samples.
        """
        count = np.maximum(gpus, 1)
        # A quotient that is whole but for rounding must not be rounded up: hence the factor.
        whole = np.where(
            self.step[workload] >= count, np.ceil(self.step[workload] / count * (1 - 1e-12)), 0.0
        )
        whole[np.isnan(self.step[workload])] = np.nan
        each = np.where(np.isnan(self.per_gpu[workload]), whole, self.per_gpu[workload])
        passes = np.where(each > 0, np.ceil(each / self.most[workload] * (1 - 1e-12)), 1.0)
        passes = np.maximum(np.nan_to_num(passes, nan=1.0), 1.0)
        # A batch is split into whole samples; a stated batch of one GPU may be any number.
        samples = np.where(
            np.isnan(self.per_gpu[workload]), np.ceil(each / passes * (1 - 1e-12)), each / passes
        )
        return samples, passes.astype(np.int64)

    def steps(self, workload: IntArray, samples: FloatArray) -> FloatArray:
        """Steps that so many samples are; those of an uneven split of a batch are one step."""
        step = self.step[workload]
        steps: FloatArray = np.where(np.isnan(self.per_gpu[workload]), 1.0, samples / step)
        return steps


MOST_PASSES = 2.0**31


def _check_passes(
    instance: Instance, step: FloatArray, per_gpu: FloatArray, most: FloatArray
) -> None:
    """Refuse a ``max_batch_per_gpu`` that whole samples exceed, or that takes more passes than can be counted."""
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
