"""Ways to run, by names of workloads and GPU types: the input of models of step times."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from optsched.arrays import FloatArray, Groups, IntArray, group_rows
from optsched.arrays.columns import Columns
from optsched.arrays.values import replace
from optsched.display import count


def numbered(names: Iterable[str]) -> dict[str, int]:
    """Row of each different name, in order of first appearance."""
    return {name: row for row, name in enumerate(dict.fromkeys(names))}


def rows_among(names: Iterable[str], known: Mapping[str, int], missing: int = -1) -> IntArray:
    """Row of each name in another list, plus a last entry for no name, which the index -1 picks."""
    return np.array([*(known.get(name, missing) for name in names), missing], np.int64)


@dataclass(frozen=True, repr=False)
class Ways(Columns):
    """Ways to run, structure of arrays of length E, with the lists of names.

    In one step each of k GPUs takes ``passes`` times ``samples`` samples forward and backward, then
    all exchange their gradients: a step is k x passes x samples samples.

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

    def _headline(self) -> str:
        return f"{count(len(self), 'way')} to run {self.names_in_words}"

    @property
    def names_in_words(self) -> str:
        """Numbers of workloads and GPU types, as text."""
        gpu_types = count(len(self.gpu_types), "GPU type")
        return f"{count(len(self.workloads), 'workload')} on {gpu_types}"

    @classmethod
    def named(cls, workload: Sequence[str], gpu: Sequence[str], **columns: Any) -> Self:
        """Ways from columns of names; the other columns are arrays."""
        workloads = numbered(workload)
        gpu_types = numbered(gpu)
        return cls(
            workload=np.array([workloads[name] for name in workload], np.int64),
            gpu=np.array([gpu_types[name] for name in gpu], np.int64),
            workloads=tuple(workloads),
            gpu_types=tuple(gpu_types),
            **columns,
        )

    @property
    def max_per_node(self) -> IntArray:
        """GPUs on the fullest node when they are spread evenly."""
        return -(-self.gpus // self.nodes)

    @property
    def samples_per_step(self) -> FloatArray:
        """k x passes x m."""
        return self.gpus * self.passes * self.samples

    @property
    def groups(self) -> Groups:
        """Groups of equal ways."""
        return group_rows(self.arrays, len(self))

    def with_batches(self, samples: FloatArray, passes: IntArray) -> Ways:
        """The same ways with other batches."""
        return replace(self, samples=samples, passes=passes)

    def in_whole_steps(self, names: Collection[str]) -> Ways:
        """The same ways, where steps of these workloads count as one sample that all GPUs share."""
        whole = np.array([name in names for name in self.workloads], bool)[self.workload]
        return self.with_batches(
            np.where(whole, 1.0 / self.gpus, self.samples), np.where(whole, 1, self.passes)
        )

    def workload_among(self, known: Mapping[str, int]) -> IntArray:
        """Row of each way's workload in another list of names, -1 if it is missing."""
        return rows_among(self.workloads, known)[self.workload]

    def gpu_among(self, known: Mapping[str, int]) -> IntArray:
        """Row of each way's GPU type in another list of names, -1 if it is missing."""
        return rows_among(self.gpu_types, known)[self.gpu]
