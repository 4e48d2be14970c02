"""Ways to run, by names of workloads and GPU types: what models of a step's time are asked about and fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from optsched.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Ways:
    """Ways to run, structure of arrays of length E; names stand beside the arrays.

    In one step each of k GPUs takes ``passes`` times ``samples`` samples forward and backward, then all exchange their
    gradients: a step is k x passes x samples samples.

    Attributes
    ----------
    workload, gpu : IntArray
        Rows of ``workloads`` and ``gpu_types``.
    gpus, nodes : IntArray
        k GPUs in all, n nodes spanned.
    samples : FloatArray
        m, samples of one GPU in one pass (the local batch).
    passes : IntArray
        Passes of a step; more than 1 with gradient accumulation.
    workloads, gpu_types : tuple of str
    """

    workload: IntArray
    gpu: IntArray
    gpus: IntArray
    nodes: IntArray
    samples: FloatArray
    passes: IntArray
    workloads: tuple[str, ...]
    gpu_types: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.workload)

    @property
    def max_per_node(self) -> IntArray:
        """GPUs on the fullest node when they are spread evenly."""
        return -(-self.gpus // self.nodes)

    @property
    def samples_per_step(self) -> FloatArray:
        """k x passes x m."""
        return self.gpus * self.passes * self.samples

    def take(self, rows: IntArray) -> Ways:
        """The ways at these rows."""
        names = ("workload", "gpu", "gpus", "nodes", "samples", "passes")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def with_batches(self, samples: FloatArray, passes: IntArray) -> Ways:
        """The same ways with other batches."""
        return replace(self, samples=samples, passes=passes)

    def workload_among(self, rows: Mapping[str, int]) -> IntArray:
        """Row of each way's workload in another list of names, -1 where it is not in it."""
        return np.array([*(rows.get(name, -1) for name in self.workloads), -1], np.int64)[
            self.workload
        ]

    def gpu_among(self, rows: Mapping[str, int]) -> IntArray:
        """Row of each way's GPU type in another list of names, -1 where it is not in it."""
        return np.array([*(rows.get(name, -1) for name in self.gpu_types), -1], np.int64)[self.gpu]
