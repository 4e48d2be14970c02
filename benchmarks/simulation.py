"""Simulations: how long they take, in one thread.

``fresh s`` is a new process from its start to its end, with all imports, as somebody pays who runs one simulation, and
``fresh CPU`` its processor time; only these can be compared with another program that is started for each simulation.
``warm CPU`` is the median processor time of further runs in a process that has simulated before.

``gavel`` is 60 jobs on 12 GPUs by the rules of Gavel's simulator; ``rounds`` the same by our own. ``large`` is 10,000
jobs of Gavel's mixture of durations and gangs on 1,024 GPUs of three pools under max-min fairness, with a scheduler's
whole round each time. Traces are drawn from seeds. Peak memory is that of the fresh process.

``--published`` simulates published traces instead, where their data is beside this checkout: Gavel's 60 jobs, with the
seconds that its own simulator took (an idle machine, its own process), and Sia's 160 jobs in rounds of a minute.

``--rankings`` plans rounds of a scheduler that follows a ranking: 100 jobs on GPUs for .6 and 1.2 of their demand, a
minute apart. ``still`` are rounds before which nothing happens, ``one`` those before which one job leaves and another
comes, events included. Medians of processor ms.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
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
    gang = (
        random.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05])
        if large
        else np.ones(jobs, np.int64)
    )
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


def single60() -> Any:
    """Gavel's 60 jobs on 12 GPUs."""
    import optsched
    from optsched.formats import import_gavel

    rates = (SHARED / "data" / "gavel" / "simulation_throughputs.json").read_bytes()
    jobs = (GAVEL / "single_gpu_60_poisson600.trace").read_bytes()
    pools = {"v100": 4, "p100": 4, "k80": 4}
    return optsched.Instance.from_document(import_gavel(rates, jobs, pools, gpus_per_node=1))


def sia160() -> Any:
    """The 160 jobs of Sia's first Philly workload on its 64 GPUs, in its rounds."""
    from dataclasses import replace

    from optsched.formats import import_sia

    jobs = (SHARED / "data" / "sia" / "workloads" / "philly" / "workload-1.csv").read_bytes()
    pools = {"aws": (6, 4), "dgx-ext": (2, 8), "rtx": (3, 8)}
    found = import_sia(jobs, SHARED / "data" / "sia" / "profiles", pools)
    return replace(found, instance=replace(found.instance, round=60.0))


SHARED = Path(__file__).resolve().parents[2] / "shared"
GAVEL = SHARED / "oracles" / "gavel" / "sim"
OF_GAVEL = {
    "max-min-fairness": "max_min_fairness_perf",
    "water-filling": "max_min_fairness_water_filling_perf",
    "finish-time-fairness": "finish_time_fairness_perf",
}
"""What Gavel calls a policy."""
TRACES: dict[str, Callable[[], Any]] = {
    "60": lambda: trace(60, 12, 2.0, large=False),
    "10,000": lambda: trace(10_000, 1024, 0.9, large=True),
    "single60": single60,
    "sia160": sia160,
}


def one(name: str, mode: str, policy: str, repeat: int) -> None:
    """In a process of its own: simulate, and print what came of it as JSON."""
    from optsched.simulation import simulate

    given = TRACES[name]()
    result = simulate(given, policy, mode=mode)
    seconds = []
    for _ in range(repeat):
        started = time.process_time()
        simulate(given, policy, mode=mode)
        seconds.append(time.process_time() - started)
    found = {key: result.metrics()[key] for key in ("rounds", "solves", "mean_jct")}
    print(
        json.dumps(
            {**found, "warm": statistics.median(seconds) if seconds else None, "mb": peak_mb()}
        )
    )


def fresh(name: str, mode: str, policy: str, repeat: int) -> tuple[float, float, dict[str, Any]]:
    """Seconds and CPU seconds of a process that does ``one``, and what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--one", name, mode, policy, "--repeat", str(repeat)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu, json.loads(done.stdout)


def published(repeat: int) -> None:
    """Print the table of published traces."""
    runs = json.loads((GAVEL / "results.json").read_text())
    theirs = {run["policy"]: run["wall_s"] for run in runs if run["case"] == "single60"}
    print(f"{'trace':9} {'mode':7} {'policy':21} {'CPU s':>6} {'Gavel s':>8} {'/Gavel':>7}")
    for mode in ("gavel", "rounds"):
        for policy, name in OF_GAVEL.items():
            spent = statistics.median(fresh("single60", mode, policy, 0)[1] for _ in range(repeat))
            part = f"{theirs[name]:8.2f} {spent / theirs[name]:7.2f}"
            print(f"{'single60':9} {mode:7} {policy:21} {spent:6.2f} {part}", flush=True)
    for policy in ("max-min-fairness", "srtf"):
        spent = statistics.median(fresh("sia160", "rounds", policy, 0)[1] for _ in range(repeat))
        print(f"{'sia160':9} {'rounds':7} {policy:21} {spent:6.2f}", flush=True)


def ranked(policy: str, part: float, events: bool, jobs: int = 100, rounds: int = 40) -> float:
    """Median processor ms of a round under a ranking."""
    from optsched.rounds import Scheduler

    random = np.random.default_rng(0)
    kinds = random.lognormal(1, 1, (KINDS, 1)) * SPEEDS * random.uniform(0.7, 1.3, (KINDS, 3))
    gang = random.choice([1, 2, 4, 8], jobs + rounds, p=[0.7, 0.1, 0.15, 0.05])
    nodes = max(1, round(part * int(gang[:jobs].sum()) / 24))
    documents = [
        {
            "id": f"j{row}", "gpus": int(gang[row]), "steps": float(random.uniform(1e5, 1e6)),
            "throughput": {f"p{pool}": float(rate) for pool, rate in enumerate(random.choice(kinds))},
        }
        for row in range(jobs + rounds)
    ]  # fmt: skip
    pools = [{"name": f"p{pool}", "nodes": nodes, "gpus_per_node": 8} for pool in range(3)]
    first = {"format": "optsched-instance/1", "round": 60.0, "cluster": {"pools": pools}}
    scheduler = Scheduler({**first, "jobs": documents[:jobs]}, {"ranking": policy}, isolate=False)
    seconds = []
    for number in range(rounds):
        started = time.process_time()
        if events:
            scheduler.complete(f"j{number}", now=60.0 * number)
            scheduler.submit(documents[jobs + number], now=60.0 * number)
        scheduler.solve(60.0 * number)
        seconds.append(time.process_time() - started)
    return 1e3 * statistics.median(seconds[3:])


def rankings() -> None:
    """Print the table of rounds under rankings."""
    print(f"{'ranking':8} {'GPUs/demand':>11} {'still ms':>9} {'one ms':>7}")
    for policy in ("fcfs", "srtf", "las"):
        for part in (0.6, 1.2):
            still, one = (ranked(policy, part, events) for events in (False, True))
            print(f"{policy:8} {part:11.1f} {still:9.2f} {one:7.2f}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--long", action="store_true", help="10,000 jobs on 1,024 GPUs too")
    parser.add_argument(
        "--one", nargs=3, metavar=("TRACE", "MODE", "POLICY"), help=argparse.SUPPRESS
    )
    parser.add_argument("--published", action="store_true", help="published traces instead")
    parser.add_argument("--rankings", action="store_true", help="rounds under rankings instead")
    given = parser.parse_args()
    if given.one:
        one(*given.one, given.repeat)
        return
    if given.published or given.rankings:
        published(given.repeat) if given.published else rankings()
        return
    columns = (
        f"{'trace':8} {'mode':8} {'policy':22} {'fresh s':>8} {'fresh CPU':>9} {'warm CPU':>8}"
    )
    print(f"{columns} {'rounds':>7} {'solves':>7} {'mean JCT':>10} {'MB':>6}")
    for mode in ("gavel", "rounds", "fluid"):
        for policy in ("max-min-fairness", "water-filling", "finish-time-fairness"):
            show("60", mode, policy, given.repeat)
    if given.long:
        show("10,000", "rounds", "max-min-fairness", 0)


def show(name: str, mode: str, policy: str, repeat: int) -> None:
    """A line of the table."""
    seconds, cpu, found = fresh(name, mode, policy, 0)
    warm = f"{fresh(name, mode, policy, repeat)[2]['warm']:.2f}" if repeat else ""
    print(
        f"{name:8} {mode:8} {policy:22} {seconds:8.2f} {cpu:9.2f} {warm:>8} {found['rounds']:7} {found['solves']:7} "
        f"{found['mean_jct']:10.0f} {found['mb']:6.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
