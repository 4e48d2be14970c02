"""What a restart costs, by where and on how many GPUs a job starts again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance.documents import parse_index
from optsched.instance.instance import Instance
from optsched.instance.reading import key, listed, show
from optsched.instance.tables import RestartCosts

ANY_NUMBER = 1
"""The number of GPUs of a cost that holds for any number of them."""


def read_restart_costs(
    document: Mapping[str, float | Mapping[str, float]], places: Sequence[str], path: str
) -> RestartCosts:
    """The restart costs of a workload, by these pools and GPU types; raises `InvalidInput`."""
    found: dict[str, dict[int, float]] = {}
    for place, stated in document.items():
        here = f"{path}.{key(place)}"
        if place not in places:
            raise InvalidInput(
                here, "no pool or GPU type of the cluster", f"one of {listed(places)}"
            )
        by_gpus = stated if isinstance(stated, Mapping) else {str(ANY_NUMBER): stated}
        for count in by_gpus:
            if parse_index(count) < 1:
                raise InvalidInput(here, show(count), "a whole number of GPUs, at least 1, as key")
        found[place] = {int(count): float(cost) for count, cost in by_gpus.items()}
    return found


def restart_costs_document(costs: RestartCosts) -> dict[str, Any]:
    """Restart costs as a workload document states them; `read_restart_costs` reads it back."""
    return {
        place: by_gpus[ANY_NUMBER]
        # A cost for one number of GPUs holds for all: a plain number says the same.
        if by_gpus.keys() == {ANY_NUMBER}
        else {str(count): cost for count, cost in sorted(by_gpus.items())}
        for place, by_gpus in costs.items()
    }


def restart_costs(instance: Instance, job: IntArray, pool: IntArray, gpus: IntArray) -> FloatArray:
    """Seconds that it costs to start jobs again on so many GPUs of a pool (-1: none).

    It is the job's own cost, and what its workload states of the place: linear between the stated
    numbers of GPUs, and constant outside of them.

    Parameters
    ----------
    instance : Instance
    job, pool, gpus : IntArray, shape (n,)
    """
    table = instance.jobs_table
    cost = table.restart_cost[job]
    for row in instance.workloads.with_restart_cost:
        workload = instance.workloads[row]
        mine = table.workload[job] == row
        for number, own in enumerate(instance.cluster.pools):
            # The name of a pool wins over its type of GPU, as for throughputs.
            by_gpus = workload.restart_cost.get(own.name, workload.restart_cost.get(own.gpu))
            if by_gpus is None:
                continue
            here = np.flatnonzero(mine & (pool == number))
            counts, costs = zip(*sorted(by_gpus.items()), strict=True)
            cost[here] += np.interp(gpus[here], counts, costs)
    return cost
