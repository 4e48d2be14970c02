"""What workloads and options state that they need beside GPUs, as arrays: looked up for many columns at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.instance.tables import OptionTable


@dataclass(frozen=True)
class StatedNeeds:
    """Needs of workloads and of options; the last row of each array is for none.

    Attributes
    ----------
    names : tuple of str
        Resources that some of them name.
    demand : csr_matrix, shape (workloads + 1, names)
        Per GPU.
    uses : csr_matrix, shape (options + 1, names)
        In total.
    gpu_memory : FloatArray, shape (workloads + 1,)
        GB per GPU, 0 where it is not stated.
    """

    names: tuple[str, ...]
    demand: sp.csr_matrix
    uses: sp.csr_matrix
    gpu_memory: FloatArray

    @classmethod
    def of(
        cls, demands: Sequence[Mapping[str, float]], gpu_memory: Sequence[float | None], options: OptionTable
    ) -> StatedNeeds:
        """Those of workloads with these demands and memories, and of options."""
        numbers: dict[str, int] = {}
        entries = [(_entries(needs, numbers), len(needs)) for needs in (demands, options.uses)]
        demand, uses = (
            sp.csr_matrix((amount, (row, name)), shape=(count + 1, len(numbers)))
            for (row, name, amount), count in entries
        )
        memory = np.array([0.0 if each is None else each for each in (*gpu_memory, None)])
        return cls(tuple(numbers), demand, uses, memory)


def _entries(needs: Sequence[Mapping[str, float]], numbers: dict[str, int]) -> tuple[list[int], list[int], list[float]]:
    """Row, number of the name and amount of every entry; new names are added to ``numbers``."""
    rows = [row for row, need in enumerate(needs) for _ in need]
    names = [numbers.setdefault(name, len(numbers)) for need in needs for name in need]
    return rows, names, [amount for need in needs for amount in need.values()]
