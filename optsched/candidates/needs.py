"""What columns need of every resource beside GPUs, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Kinds
from optsched.instance import Instance


def column_needs(instance: Instance, kinds: Kinds, columns: KindColumns) -> dict[str, tuple[IntArray, FloatArray]]:
    """Columns that need each resource, and how much: the demand of workloads per GPU x GPUs, or an option's totals."""
    numbers: dict[str, int] = {}
    demands = _entries([workload.demand for workload in instance.workloads], numbers)
    totals = _entries(instance.options.uses, numbers)
    if not numbers:
        return {}
    demand, uses = (
        sp.csr_matrix((amount, (row, name)), shape=(count + 1, len(numbers)))  # the last row is for none
        for (row, name, amount), count in ((demands, len(instance.workloads)), (totals, len(instance.options.uses)))
    )
    none = len(instance.workloads)
    workload = np.where(kinds.workload < 0, none, kinds.workload)
    partner = np.where(columns.partner < 0, none, workload[columns.partner])
    option = np.where(columns.option < 0, len(instance.options.uses), columns.option)
    by_demand = (columns.option < 0) & (columns.workers == 0)  # what workers and servers hold is stated by their law
    scale = sp.diags(np.where(by_demand, columns.gpus, 0.0))
    needs = sp.csc_matrix(scale @ (demand[workload[columns.kind]] + demand[partner]) + uses[option])
    needs.eliminate_zeros()
    return {
        name: (needs.indices[start:stop].astype(np.int64), needs.data[start:stop])
        for name, start, stop in zip(numbers, needs.indptr, needs.indptr[1:], strict=False)
    }


def _entries(needs: Sequence[Mapping[str, float]], numbers: dict[str, int]) -> tuple[list[int], list[int], list[float]]:
    """Row, number of the name and amount of every entry; new names are added to ``numbers``."""
    rows = [row for row, need in enumerate(needs) for _ in need]
    names = [numbers.setdefault(name, len(numbers)) for need in needs for name in need]
    return rows, names, [amount for need in needs for amount in need.values()]
