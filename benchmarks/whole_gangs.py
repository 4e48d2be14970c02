"""Whole gangs on nodes and racks: the program that places what it promises, beside best fit.

Gangs of 1 to 24 GPUs on nodes of 4 and 8 in racks, slower on several nodes and slower still across racks;
maximum total throughput of whole jobs. Each line is a solve in a fresh process with one thread: processor seconds,
the total that is placed, the bound, and what best fit places (jobs in decreasing rate per GPU, each at the best
level that has room).

    python benchmarks/whole_gangs.py                  512 nodes in 16 racks, loads 1.1 to 1.3
    python benchmarks/whole_gangs.py 64x8 128x8
    python benchmarks/whole_gangs.py --compile        10,000 nodes of 50 kinds: seconds to compile
    python benchmarks/whole_gangs.py --openb NODES PODS       lists of openb: how many pods are placed
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import arguments
import numpy as np
from measure import Measurement, measure

HERE = "whole_gangs"
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24)
LOADS = (1.1, 1.2, 1.3)


def document(nodes: int, racks: int, load: float, seed: int) -> dict[str, Any]:
    """An instance: half of the nodes have 4 GPUs, half have 8, dealt to the racks at random."""
    random = np.random.default_rng([seed, nodes, racks])
    size = np.where(np.arange(nodes) % 2 == 0, 4, 8)
    rack = random.permutation(np.arange(nodes) % racks)
    names = [f"n{node}" for node in range(nodes)]
    jobs: list[dict[str, Any]] = []
    left = load * size.sum()
    while left > 0:
        gpus = int(random.choice(SIZES))
        alone = random.lognormal(0.0, 0.5) * gpus**0.9
        several = alone * random.uniform(0.7, 0.95)
        across = several * random.uniform(0.4, 0.8)
        rates = {"1": alone} if gpus <= 8 else {}
        rates |= {"rack": several, "cluster": across} if gpus > 1 else {}
        jobs.append({"id": f"j{len(jobs)}", "gpus": gpus, "throughput": {"v": {str(gpus): rates}}})
        left -= gpus
    pool = {
        "name": "v",
        "nodes": [{"name": n, "gpus": int(g)} for n, g in zip(names, size, strict=True)],
    }
    groups = {f"r{r}": [names[n] for n in np.flatnonzero(rack == r)] for r in range(racks)}
    cluster = {"pools": [pool], "levels": {"rack": groups}}
    return {"format": "optsched-instance/1", "cluster": cluster, "jobs": jobs}


def best_fit(instance: dict[str, Any]) -> float:
    """What jobs get in decreasing rate per GPU, each at the best level that has room."""
    nodes = instance["cluster"]["pools"][0]["nodes"]
    place = {node["name"]: row for row, node in enumerate(nodes)}
    free = np.array([node["gpus"] for node in nodes])
    rack = np.zeros(len(nodes), np.int64)
    for number, members in enumerate(instance["cluster"]["levels"]["rack"].values()):
        rack[[place[name] for name in members]] = number
    total = 0.0
    rates = [(job["gpus"], job["throughput"]["v"][str(job["gpus"])]) for job in instance["jobs"]]
    for gpus, levels in sorted(rates, key=lambda one: -max(one[1].values()) / one[0]):
        for level, among in (("1", None), ("rack", rack), ("cluster", np.zeros_like(rack))):
            if level in levels and _take(free, gpus, among):
                total += levels[level]
                break
    return total


def _take(free: np.ndarray, gpus: int, group: np.ndarray | None) -> bool:
    """Take GPUs of one node, or of nodes of one group, where the fewest are left; False if there are none."""
    if group is None:
        fits = np.flatnonzero(free >= gpus)
        if not len(fits):
            return False
        free[fits[np.argmin(free[fits])]] -= gpus
        return True
    total = np.bincount(group, free)
    fits = np.flatnonzero(total >= gpus)
    if not len(fits):
        return False
    inside = np.flatnonzero(group == fits[np.argmin(total[fits])])
    for node in inside[np.argsort(-free[inside], kind="stable")]:
        part = min(gpus, int(free[node]))
        free[node] -= part
        gpus -= part
    return True


def solved(nodes: int, racks: int, load: float, seed: int, limit: float) -> Callable[[], Any]:
    """Processor seconds, total placed, rows refused, bound, and best fit."""
    import optsched

    small = optsched.Instance.from_document(document(8, 2, 1.2, seed))
    optsched.solve(small, "max-throughput", integral=True, constraints=["placeable"])
    given = document(nodes, racks, load, seed)
    whole = optsched.Instance.from_document(given)

    return lambda: _solved(whole, limit, best_fit(given))


def best_fit_of_pods(instance: dict[str, Any]) -> float:
    """How many pods find room: the smallest first, each where the fewest GPUs are left."""
    pool = [(one["name"], node) for one in instance["cluster"]["pools"] for node in one["nodes"]]
    cpu, memory = (np.array([node[name] for _, node in pool]) for name in ("cpus", "memory"))
    gpus = np.array([node["gpus"] for _, node in pool])
    left = np.where(np.arange(gpus.max()) < gpus[:, np.newaxis], 1.0, 0.0)
    names = np.array([name for name, _ in pool])
    wanted = []
    for job in instance["jobs"]:
        first, uses = job["options"][0], job["options"][0]["uses"]
        pools = [option["pool"] for option in job["options"]]
        wanted.append((first["gpus"], first["share"], uses["cpu"], uses["memory"], pools))
    placed = 0
    for number, share, cpus, gigabytes, pools in sorted(
        wanted, key=lambda one: (one[0] * one[1], one[2], one[3])
    ):
        fits = ((left >= share - 1e-9).sum(axis=1) >= number) & np.isin(names, pools)
        able = np.flatnonzero(fits & (cpu >= cpus) & (memory >= gigabytes))
        if len(able):
            node = able[np.argmin(left[able].sum(axis=1))]
            room = np.where(left[node] >= share - 1e-9, left[node], np.inf)
            left[node, np.argsort(room, kind="stable")[:number]] -= share
            cpu[node] -= cpus
            memory[node] -= gigabytes
            placed += 1
    return float(placed)


def pods(node_list: str, pod_list: str, limit: float) -> Callable[[], Any]:
    """Processor seconds, pods placed, rows refused, bound, and best fit."""
    import optsched
    from optsched.formats import import_openb

    given = import_openb(node_list, pod_list)
    whole = optsched.Instance.from_document(given)
    for job in given["jobs"]:
        assert all(option["throughput"] == 1.0 for option in job["options"])
    return lambda: _solved(whole, limit, best_fit_of_pods(given))


def _solved(instance: Any, limit: float, fit: float) -> Any:
    import optsched

    began = time.process_time()
    solution = optsched.solve(
        instance,
        "max-throughput",
        integral=True,
        constraints=["placeable"],
        gap=1e-3,
        time_limit=limit,
    )
    spent = time.process_time() - began
    assert solution.placement is not None
    return [spent, solution.objective, len(solution.placement.refused), solution.bound, fit]


def compiled(nodes: int, kinds: int) -> Callable[[], Any]:
    """Processor seconds to compile, and to write the program that knows nodes."""
    import optsched
    from optsched.program import Space

    random = np.random.default_rng(0)
    cpus = random.integers(16, 200, kinds)
    pool = {
        "name": "v",
        "nodes": [
            {"name": f"n{n}", "gpus": int(4 + 4 * (n % 2)), "cpus": float(cpus[n % kinds])}
            for n in range(nodes)
        ],
    }
    jobs = document(512, 16, 1.2, 0)["jobs"]
    for job in jobs:
        rates = job["throughput"]["v"][str(job["gpus"])]
        rates.pop("rack", None)
    instance = optsched.Instance.from_document(
        {
            "format": "optsched-instance/1",
            "cluster": {"pools": [pool], "levels": {"rack": {"r0": ["n0"]}}},
            "jobs": jobs,
        }
    )

    def run() -> Any:
        began = time.process_time()
        classes = optsched.compile(instance).classes(frozenset())
        made = time.process_time()
        Space.of(classes)
        return [made - began, time.process_time() - made]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sizes", nargs="*", type=arguments.size, default=("512x16",), metavar="NODESxRACKS"
    )
    parser.add_argument(
        "--limit", type=arguments.seconds, default=30.0, help="seconds for each run"
    )
    parser.add_argument("--compile", action="store_true", help="10,000 nodes of 50 kinds")
    parser.add_argument("--openb", nargs=2, metavar=("NODES", "PODS"), help="lists of openb")
    given = parser.parse_args()
    if given.compile:
        compile_s, space_s = measure(HERE, "compiled", 1, nodes=10_000, kinds=50).result
        print(
            f"10,000 nodes of 50 kinds: compile {compile_s:.2f} s, nodes and parts {space_s:.2f} s"
        )
        return
    if given.openb is not None:
        nodes, pod_list = given.openb
        _show(
            pod_list,
            measure(HERE, "pods", 1, node_list=nodes, pod_list=pod_list, limit=given.limit),
        )
        return
    for size in given.sizes:
        nodes, racks = map(int, size.split("x"))
        for load in LOADS:
            result = measure(
                HERE, "solved", 1, nodes=nodes, racks=racks, load=load, seed=0, limit=given.limit
            )
            _show(f"{nodes} nodes, {racks} racks, load {load:g}", result)


def _show(what: str, measured: Measurement) -> None:
    spent, total, refused, bound, fit = measured.result
    closed = (total - fit) / (bound - fit)
    print(
        f"{what}: {spent:5.1f} s, placed {total:.1f} ({refused} refused), bound {bound:.1f}, "
        f"gap {bound / total - 1:.2%}, best fit {fit:.1f}, {closed:.0%} of its gap closed"
    )


if __name__ == "__main__":
    main()
