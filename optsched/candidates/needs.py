"""What columns need of every resource beside GPUs, by its name."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Kinds
from optsched.instance import Instance


def column_needs(
    instance: Instance, kinds: Kinds, columns: KindColumns
) -> dict[str, tuple[IntArray, FloatArray]]:
    """Columns that need each resource, and how much:
    the demand of workloads per GPU x GPUs, or an option's totals.
    """
    demand, uses = instance.workloads.demand, instance.options.needs
    names = dict.fromkeys((*demand, *uses))
    if not names:
        return {}
    none = len(instance.workloads)
    workload = np.where(kinds.workload < 0, none, kinds.workload)
    own = workload[columns.kind]
    partner = np.where(columns.partner < 0, none, workload[columns.partner])
    option = np.where(columns.option < 0, len(instance.options.uses), columns.option)
    # What workers and servers hold is stated by their law.
    by_demand = (columns.option < 0) & (columns.workers == 0)
    gpus = np.where(by_demand, columns.gpus, 0.0)
    needs = {}
    for name in names:
        amount = np.zeros(len(columns))
        if name in demand:
            amount += gpus * (demand[name][own] + demand[name][partner])
        if name in uses:
            amount += uses[name][option]
        here = np.flatnonzero(amount)
        needs[name] = here, amount[here]
    return needs


def server_needs(kinds: Kinds, columns: KindColumns) -> dict[str, tuple[IntArray, FloatArray]]:
    """Columns that hold each resource for workers and servers, and how much: O w + G p;
    GPUs are not repeated.
    """
    laws = kinds.laws
    if not len(laws):
        return {}
    here = np.flatnonzero(columns.workers > 0)
    law, w, p = kinds.law[columns.kind[here]], columns.workers[here], columns.servers[here]
    needs = {}
    for number in np.flatnonzero(laws.pool_of < 0).tolist():
        amount = laws.worker[law, number] * w + laws.server[law, number] * p
        held = amount > 0
        if held.any():
            needs[laws.names[number]] = here[held], amount[held]
    return needs
