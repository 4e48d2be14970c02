"""Cost of a restart, by pool and number of GPUs on which the job restarts."""

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
"""Key of a cost that holds for any number of GPUs."""


def read_restart_costs(
    document: Mapping[str, float | Mapping[str, float]], places: Sequence[str], path: str
) -> RestartCosts:
    """The restart costs of a workload, by these pools and GPU types; raises `InvalidInput`."""
    found: dict[str, dict[int, float]] = {}
    for place, stated in document.items():
        where = f"{path}.{key(place)}"
        if place not in places:
            raise InvalidInput(
                where, "no pool or GPU type of the cluster", f"one of {listed(places)}"
            )
        by_gpus = stated if isinstance(stated, Mapping) else {str(ANY_NUMBER): stated}
        for count in by_gpus:
            if parse_index(count) < 1:
                raise InvalidInput(where, show(count), "a whole number of GPUs, at least 1, as key")
        found[place] = {int(count): float(cost) for count, cost in by_gpus.items()}
    return found


def restart_costs_document(costs: RestartCosts) -> dict[str, Any]:
    """Restart costs as a workload document states them; `read_restart_costs` reads it back."""
    return {
        place: by_gpus[ANY_NUMBER]
        # A cost stated for one number of GPUs holds for all, so write a plain number.
        if by_gpus.keys() == {ANY_NUMBER}
        else {str(count): cost for count, cost in sorted(by_gpus.items())}
        for place, by_gpus in costs.items()
    }


def restart_costs(instance: Instance, job: IntArray, pool: IntArray, gpus: IntArray) -> FloatArray:
    """Seconds that a restart of each job on ``gpus`` GPUs of a pool (-1: none) costs.

    It is the sum of the job's own cost and the cost that its workload states for the pool. The
    latter is interpolated linearly between the stated numbers of GPUs, and constant outside of
    them.

    Parameters
    ----------
    instance : Instance
    job, pool, gpus : IntArray, shape (n,)
    """
    table = instance.jobs_table
    cost = table.restart_cost[job]
    for row in instance.workloads.with_restart_cost:
        workload = instance.workloads[row]
        of_workload = table.workload[job] == row
        for number, cluster_pool in enumerate(instance.cluster.pools):
            # As for throughputs, the name of a pool takes precedence over its GPU type.
            by_gpus = workload.restart_cost.get(
                cluster_pool.name, workload.restart_cost.get(cluster_pool.gpu)
            )
            if by_gpus is None:
                continue
            concerned = np.flatnonzero(of_workload & (pool == number))
            counts, costs = zip(*sorted(by_gpus.items()), strict=True)
            cost[concerned] += np.interp(gpus[concerned], counts, costs)
    return cost
