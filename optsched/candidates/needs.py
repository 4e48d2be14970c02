"""What columns need of every resource beside GPUs, by name."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Kinds
from optsched.instance import Instance


def column_needs(
    instance: Instance, kinds: Kinds, columns: KindColumns
) -> dict[str, tuple[IntArray, FloatArray]]:
    """Columns that need each resource, and how much: the demand of workloads per GPU x GPUs, or an option's totals."""
    stated = instance.stated_needs
    if not stated.names:
        return {}
    demand, uses = stated.demand, stated.uses
    none = len(instance.workloads)
    workload = np.where(kinds.workload < 0, none, kinds.workload)
    partner = np.where(columns.partner < 0, none, workload[columns.partner])
    option = np.where(columns.option < 0, len(instance.options.uses), columns.option)
    by_demand = (columns.option < 0) & (
        columns.workers == 0
    )  # what workers and servers hold is stated by their law
    scale = sp.diags(np.where(by_demand, columns.gpus, 0.0))
    needs = sp.csc_matrix(scale @ (demand[workload[columns.kind]] + demand[partner]) + uses[option])
    needs.eliminate_zeros()
    return {
        name: (needs.indices[start:stop].astype(np.int64), needs.data[start:stop])
        for name, start, stop in zip(stated.names, needs.indptr, needs.indptr[1:], strict=False)
    }
