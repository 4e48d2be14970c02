"""What workloads and options state that they need beside GPUs, as arrays: looked up for many columns at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray


@dataclass(frozen=True)
class StatedNeeds:
    """Needs of workloads and of options. Rounds ask for the names alone; the arrays are made when they are used.

    Attributes
    ----------
    demands : sequence of mapping of str to float
        Of each workload per GPU, by resource.
    memories : sequence of float or None
        GB per GPU that each workload needs.
    totals : sequence of mapping of str to float
        Of each option in total, by resource.
    """

    demands: Sequence[Mapping[str, float]]
    memories: Sequence[float | None]
    totals: Sequence[Mapping[str, float]]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Resources that some of them name."""
        return tuple(
            dict.fromkeys(
                name for needs in (self.demands, self.totals) for need in needs for name in need
            )
        )

    @cached_property
    def demand(self) -> sp.csr_matrix:
        """Per GPU, shape (workloads + 1, names); the last row is for none."""
        return self._matrix(self.demands)

    @cached_property
    def uses(self) -> sp.csr_matrix:
        """In total, shape (options + 1, names); the last row is for none."""
        return self._matrix(self.totals)

    @cached_property
    def gpu_memory(self) -> FloatArray:
        """GB per GPU, 0 where it is not stated, shape (workloads + 1,); the last is for none."""
        return np.array([0.0 if each is None else each for each in (*self.memories, None)])

    def _matrix(self, needs: Sequence[Mapping[str, float]]) -> sp.csr_matrix:
        number = {name: place for place, name in enumerate(self.names)}
        row = [place for place, need in enumerate(needs) for _ in need]
        column = [number[name] for need in needs for name in need]
        amount = [value for need in needs for value in need.values()]
        return sp.csr_matrix((amount, (row, column)), shape=(len(needs) + 1, len(number)))
