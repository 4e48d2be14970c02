"""Needs of columns for every resource except GPUs, by the name of the resource."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates.columns import KindColumns
from optsched.candidates.kinds import Kinds
from optsched.instance import Instance


def column_needs(
    instance: Instance, kinds: Kinds, columns: KindColumns
) -> dict[str, tuple[IntArray, FloatArray]]:
    """For each resource, the columns that need it and the amounts: demand per GPU of the workloads
    times GPUs, or the totals of an option.
    """
    demand, uses = instance.workloads.demand, instance.options.needs
    names = dict.fromkeys((*demand, *uses))
    if not names:
        return {}
    none = len(instance.workloads)
    workload = np.where(kinds.workload < 0, none, kinds.workload)
    workload_of_column = workload[columns.kind]
    partner = np.where(columns.partner < 0, none, workload[columns.partner])
    option = np.where(columns.option < 0, len(instance.options.uses), columns.option)
    # Columns of workers and servers are left out: see `server_needs`.
    by_demand = (columns.option < 0) & (columns.workers == 0)
    gpus = np.where(by_demand, columns.gpus, 0.0)
    needs = {}
    for name in names:
        amount = np.zeros(len(columns))
        if name in demand:
            amount += gpus * (demand[name][workload_of_column] + demand[name][partner])
        if name in uses:
            amount += uses[name][option]
        users = np.flatnonzero(amount)
        needs[name] = users, amount[users]
    return needs


def server_needs(kinds: Kinds, columns: KindColumns) -> dict[str, tuple[IntArray, FloatArray]]:
    """For each resource except GPUs, the columns of workers and servers that hold it, and the
    amounts: O w + G p.
    """
    laws = kinds.laws
    if not len(laws):
        return {}
    users = np.flatnonzero(columns.workers > 0)
    law, w, p = kinds.law[columns.kind[users]], columns.workers[users], columns.servers[users]
    needs = {}
    for number in np.flatnonzero(laws.pool_of < 0).tolist():
        amount = laws.worker[law, number] * w + laws.server[law, number] * p
        held = amount > 0
        if held.any():
            needs[laws.names[number]] = users[held], amount[held]
    return needs
