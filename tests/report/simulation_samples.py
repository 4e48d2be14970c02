"""Simulations put together by a simple rule, in no time: for pictures and pages, of any size."""

from __future__ import annotations

from typing import Any

import numpy as np

from optsched import Instance
from optsched.simulation import JobLog, RoundLog, Segments, Simulation
from optsched.traces import Trace

ROUND = 600.0


def trace_of(
    jobs: int = 40,
    pools: dict[str, tuple[int, int]] | None = None,
    hours: float = 20.0,
    **more: Any,
) -> Trace:
    """Jobs of 1 to 8 GPUs that arrive over some hours, on pools of (nodes, GPUs per node)."""
    random = np.random.default_rng(5)
    pools = pools or {"a": (3, 4), "b": (2, 8)}
    given: dict[str, Any] = {
        "pools": [
            {"name": name, "nodes": nodes, "gpus_per_node": gpus, "cost_per_gpu_hour": 2.0,
             "watts_per_gpu": 300.0, "watts_idle": 50.0}
            for name, (nodes, gpus) in pools.items()
        ],
        "throughput": np.ones((jobs, len(pools))),
        "gpus": random.choice([1, 1, 2, 4, 8], jobs),
        "steps": np.round(random.lognormal(8, 1.2, jobs)) + 1,
        "arrival": np.sort(np.round(random.uniform(0, hours * 3600, jobs))),
        "name": "made <by> hand",
    }  # fmt: skip
    return Trace(Instance.from_arrays(**given | more))


def simulation_of(
    trace: Trace,
    policy: str = "fifo",
    *,
    seed: int = 0,
    unfinished: int = 0,
    stints: int = 1,
    notices: tuple[str, ...] = (),
    **options: Any,
) -> Simulation:
    """Jobs in a random order, each as soon as whole GPUs are free, gangs over nodes where they must.

    ``stints`` cuts what runs into as many segments; the last ``unfinished`` jobs never end.
    """
    instance, table = trace.instance, trace.instance.jobs_table
    numbering = instance.cluster.numbering
    sizes = np.array([pool.node_gpus.sum() for pool in instance.cluster.pools], np.int64)
    random = np.random.default_rng([seed, len(policy)])
    first_of_pool = np.concatenate([[0], np.cumsum(sizes)])
    free = np.zeros(numbering.gpus)
    count = len(table)
    held = np.zeros((count, 6))
    for job in np.argsort(table.arrival + random.uniform(0, 5000.0, count), kind="stable").tolist():
        gang, wanted = (
            int(table.gpus_min[job]),
            float(table.steps_left[job] * random.uniform(1.0, 1.3)),
        )
        fits = np.flatnonzero(sizes >= gang)
        pool = int(
            fits[
                np.argmin(
                    [np.partition(_of(free, first_of_pool, p), gang - 1)[gang - 1] for p in fits]
                )
            ]
        )
        mine = _of(free, first_of_pool, pool)
        chosen = np.sort(np.argsort(mine, kind="stable")[:gang]) + first_of_pool[pool]
        start = max(float(free[chosen].max()), float(table.arrival[job]))
        free[chosen] = start + wanted
        nodes = len(np.unique(numbering.node_of(chosen)))
        held[job] = (start, start + wanted, pool, gang, nodes, chosen[0])
    finish = held[:, 1].copy()
    finish[count - unfinished :] = np.nan
    return Simulation(
        trace, policy, ({"seed": seed} if seed else {}) | options, np.ones(count, bool), _jobs(trace, held, finish),
        _rounds(trace, held, sizes, random), _segments(held, stints), notices,
    )  # fmt: skip


def _of(free: Any, first: Any, pool: int) -> Any:
    return free[first[pool] : first[pool + 1]]


def _jobs(trace: Trace, held: Any, finish: Any) -> JobLog:
    seconds, count = held[:, 1] - held[:, 0], len(held)
    gpu_seconds = seconds * held[:, 3]
    return JobLog(
        held[:, 0], finish, trace.instance.jobs_table.steps_left, seconds, gpu_seconds, np.zeros(count),
        np.ones(count, np.int64), np.zeros(count), gpu_seconds / 3600 * 2.0,
    )  # fmt: skip


def _rounds(trace: Trace, held: Any, sizes: Any, random: Any) -> RoundLog:
    """Rounds of ten minutes, with what runs in the middle of each."""
    arrival = trace.instance.jobs_table.arrival
    if not len(held):
        none = np.zeros(0)
        shape = np.zeros((0, len(sizes)))
        return RoundLog(
            none,
            none,
            none.astype(int),
            none.astype(int),
            shape,
            shape,
            none,
            none,
            none > 0,
            none > 0,
        )
    start = np.arange(arrival.min(), held[:, 1].max(), ROUND)
    middle = start + ROUND / 2

    def there(since: Any, until: Any, weight: Any) -> Any:
        grown, gone = np.argsort(since, kind="stable"), np.argsort(until, kind="stable")
        come = np.append(0, np.cumsum(weight[grown]))[np.searchsorted(since[grown], middle)]
        return come - np.append(0, np.cumsum(weight[gone]))[np.searchsorted(until[gone], middle)]

    busy = np.stack(
        [there(held[:, 0], held[:, 1], held[:, 3] * (held[:, 2] == p)) for p in range(len(sizes))],
        axis=1,
    )
    one = np.ones(len(held))
    running, waiting = there(held[:, 0], held[:, 1], one), there(arrival, held[:, 0], one)
    return RoundLog(
        start, start + ROUND, running.astype(int), waiting.astype(int), busy * ROUND,
        np.tile(sizes.astype(float), (len(start), 1)), np.zeros(len(start)), random.uniform(0.001, 0.01, len(start)),
        np.ones(len(start), bool), np.zeros(len(start), bool),
    )  # fmt: skip


def _segments(held: Any, stints: int) -> Segments:
    cuts = held[:, :1] + (held[:, 1] - held[:, 0])[:, None] * np.linspace(0, 1, stints + 1)
    start, end = cuts[:, :-1].ravel(), cuts[:, 1:].ravel()
    job = np.repeat(np.arange(len(held)), stints)
    order = np.lexsort((job, start))
    whole = held[:, 2:].astype(np.int64)[job[order]]
    return Segments(
        job[order], start[order], end[order], whole[:, 0], whole[:, 1], whole[:, 2], whole[:, 3]
    )
