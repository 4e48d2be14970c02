"""Simulations: how long they take, in one process and one thread.

``gavel`` is 60 jobs on 12 GPUs by the rules of Gavel's simulator, as its own needs 3 s to 44 s for
(docs/simulation.md); ``rounds`` the same by our own. ``large`` is 10,000 jobs of Gavel's mixture of durations and gangs
on 1,024 GPUs of three pools under max-min fairness, with a scheduler's whole round each time. Traces are drawn from
seeds. Medians, and peak memory beyond the imports.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import peak_mb

KINDS = 26
SPEEDS = (1.0, 0.55, 0.2)
"""Of the pools, relative to the first."""


def trace(jobs: int, gpus: int, load: float, large: bool, seed: int = 0) -> Any:
    """Jobs of 26 kinds on three pools, arrivals even.

    Durations and gangs of a large one are as Gavel's generator draws them; jobs of a small one are of one GPU and half
    an hour to six hours.
    """
    import optsched

    random = np.random.default_rng(seed)
    speed = np.array(SPEEDS) * random.uniform(0.7, 1.3, (KINDS, len(SPEEDS)))
    kind = random.integers(0, KINDS, jobs)
    gang = random.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05]) if large else np.ones(jobs, np.int64)
    short = random.random(jobs) < 0.8
    duration = 60 * 10 ** np.where(short, random.uniform(1.5, 3, jobs), random.uniform(3, 4, jobs))
    duration = duration if large else random.uniform(1800, 21600, jobs)
    rate = (random.lognormal(1, 1, KINDS)[:, np.newaxis] * speed)[kind] * gang[:, np.newaxis] ** 0.9
    per_node = 8 if large else 1
    nodes = [gpus // 3 // per_node, gpus // 3 // per_node]
    nodes.append(gpus // per_node - sum(nodes))
    capacity = float(speed.mean(axis=0) @ np.array(nodes)) * per_node
    span = float((duration * gang).sum()) / (load * capacity)
    return optsched.Instance.from_arrays(
        pools=[{"name": f"p{row}", "nodes": count, "gpus_per_node": per_node} for row, count in enumerate(nodes)],
        throughput=rate, gpus=gang, steps=np.floor(duration * rate[:, 0]),
        arrival=np.sort(random.uniform(0, span, jobs)),
    )  # fmt: skip


def timed(run: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Median seconds of a call, after one that is not counted, and what it returned."""
    result = run() if repeat > 1 else None
    seconds = []
    for _ in range(repeat):
        started = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--long", action="store_true", help="10,000 jobs on 1,024 GPUs too")
    given = parser.parse_args()
    from optsched.simulation import simulate

    small = trace(60, 12, 2.0, large=False)
    print(f"{'trace':8} {'mode':8} {'policy':22} {'s':>8} {'rounds':>7} {'solves':>7} {'mean JCT':>10} {'MB':>6}")
    for mode in ("gavel", "rounds", "fluid"):
        for policy in ("max-min-fairness", "water-filling", "finish-time-fairness"):
            seconds, result = timed(lambda mode=mode, policy=policy: simulate(small, policy, mode=mode), given.repeat)
            show("60", mode, policy, seconds, result)
    if given.long:
        large = trace(10_000, 1024, 0.9, large=True)
        seconds, result = timed(lambda: simulate(large, "max-min-fairness"), 1)
        show("10,000", "rounds", "max-min-fairness", seconds, result)


def show(name: str, mode: str, policy: str, seconds: float, result: Any) -> None:
    """A line of the table."""
    metrics = result.metrics()
    print(
        f"{name:8} {mode:8} {policy:22} {seconds:8.2f} {metrics['rounds']:7} {metrics['solves']:7} "
        f"{metrics['mean_jct']:10.0f} {peak_mb():6.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
