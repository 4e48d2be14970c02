"""Jobs of which a trace tells how long they ran, and no rates: a step is a second of the recorded run.

Such a job runs at 1 step/s in every pool, or at the factor that a pool is said to be faster by, on as many GPUs as it
had.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from optsched.errors import InvalidArgument
from optsched.instance.reading import listed

NodeRates = Mapping[int, Mapping[int, float]]
"""What is left of the rate of a gang when it spans so many nodes: gang -> nodes -> share."""


def pool_documents(pools: Mapping[str, tuple[int, int]]) -> list[dict[str, Any]]:
    """Pools of so many nodes with so many GPUs each."""
    if not pools:
        raise InvalidArgument("", "no pool", "at least one")
    return [
        {"name": pool, "gpu": pool, "nodes": nodes, "gpus_per_node": gpus}
        for pool, (nodes, gpus) in pools.items()
    ]


def speeds_of(pools: Iterable[str], speeds: Mapping[str, float] | None) -> dict[str, float]:
    """The factor of every pool, 1 where none is given; raises `UsageError`."""
    known = tuple(pools)
    for pool, speed in (speeds or {}).items():
        if pool not in known:
            raise InvalidArgument("speeds", f"pool {pool!r}", f"one of {listed(known)}")
        if not 0 < speed < math.inf:
            raise InvalidArgument("speeds", f"{speed!r} for pool {pool!r}", "a factor above 0")
    return {pool: float((speeds or {}).get(pool, 1.0)) for pool in known}


def recorded_workload(
    gangs: Iterable[int], speeds: Mapping[str, float], spread: NodeRates | None = None
) -> dict[str, Any]:
    """A workload with a rate for each gang, on as few nodes as it needs or, where it is told, on so many."""
    sizes = sorted(set(gangs))
    return {
        "throughput": {
            pool: {
                str(gang): {str(nodes): speed * share for nodes, share in spread[gang].items()}
                if spread and gang in spread
                else speed
                for gang in sizes
            }
            for pool, speed in speeds.items()
        }
    }
