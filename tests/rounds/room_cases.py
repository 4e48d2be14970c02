"""Random clusters on which some jobs run and others have starved, and who of these has room beside what must stay."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

Document = dict[str, Any]
LENGTH = 60.0


def random_state(seed: int) -> Document:
    """An instance: jobs on GPUs, some of which cannot be stopped, and others that have waited for long."""
    random = np.random.default_rng(seed)
    nodes, size, cpus = (
        int(random.integers(2, 5)),
        int(random.integers(2, 5)),
        int(random.integers(4, 9)),
    )
    pools = [
        {"name": name, "nodes": nodes, "gpus_per_node": size, "cpus_per_node": cpus}
        for name in ("a", "b")
    ]
    pools = pools[: int(random.integers(1, 3))]
    demands = [0, 1, int(random.integers(1, 4))]
    workloads: Document = {}
    jobs: list[Document] = []
    for number in range(int(random.integers(4, 13))):
        gpus, span = int(random.integers(1, 2 * size)), int(random.integers(1, 3))
        span = min(max(span, -(-gpus // size)), gpus)
        name = f"W{number}"
        rates = {
            pool["name"]: {str(gpus): {str(k): 1.0 * gpus for k in range(1, span + 1)}}
            for pool in pools
        }
        workloads[name] = {"throughput": rates}
        if demands[number % 3]:
            workloads[name]["demand"] = {"cpu": demands[number % 3]}
        jobs.append(
            {
                "id": f"j{number}",
                "workload": name,
                "gpus": gpus,
                "steps": 1e6,
                "arrival": -LENGTH * (number + 2),
            }
        )
        jobs[-1]["weight"] = float(random.integers(1, 4))
    random.shuffle(jobs)  # type: ignore[arg-type]
    names = [job["id"] for job in jobs]
    apart = [
        sorted(random.choice(names, min(3, len(names)), replace=False).tolist()) for _ in range(2)
    ]
    constraints = [
        {"kind": "anti-affinity", "jobs": jobs} for jobs in apart[: int(random.integers(0, 3))]
    ]
    document = {
        "format": "optsched-instance/1", "round": LENGTH, "now": 0.0, "cluster": {"pools": pools},
        "workloads": workloads, "jobs": jobs, "constraints": constraints,
    }  # fmt: skip
    for job in jobs:  # about half of them run, in the first place that is found
        if random.random() < 0.5:
            places = list(rooms(document, job, [other for other in jobs if "running" in other]))
            if places:
                pool, gpus = places[int(random.integers(len(places)))]
                job["running"] = {"pool": pool, "gpus": gpus, "since": -LENGTH}
                job["preemptible"] = bool(random.random() < 0.7)
    return document


def rooms(document: Document, job: Document, beside: list[Document]) -> list[tuple[str, list[str]]]:
    """Places of a job beside others that run, one for each set of nodes that has room: pool and GPUs."""
    gpus, found = job["gpus"], []
    enemies = {
        other
        for item in document["constraints"]
        if job["id"] in item["jobs"]
        for other in item["jobs"]
    }
    span = max(
        map(
            int,
            next(iter(document["workloads"][job["workload"]]["throughput"].values()))[str(gpus)],
        )
    )
    need = _need(document, job)
    for pool in document["cluster"]["pools"]:
        free: dict[str, list[str]] = {}
        for number in range(pool["nodes"]):
            node = f"{pool['name']}-{number}"
            taken = {gpu for other in beside for gpu in other["running"]["gpus"]}
            here = [
                f"{node}/{k}" for k in range(pool["gpus_per_node"]) if f"{node}/{k}" not in taken
            ]
            used = sum(
                _need(document, other)
                for other in beside
                for gpu in other["running"]["gpus"]
                if gpu.startswith(node + "/")
            )
            if any(o["id"] in enemies and _on(o, node) for o in beside):
                here = []
            most = len(here) if not need else int((pool["cpus_per_node"] - used) // need)
            free[node] = here[: max(most, 0)]
        for count in range(1, span + 1):
            for nodes in combinations(free, count):
                spots = [gpu for node in nodes for gpu in free[node]]
                if len(spots) >= gpus and all(free[node] for node in nodes):
                    found.append((pool["name"], _spread(spots, gpus)))
    return found


def _need(document: Document, job: Document) -> int:
    return int(document["workloads"][job["workload"]].get("demand", {}).get("cpu", 0))


def _on(job: Document, node: str) -> bool:
    return any(gpu.startswith(node + "/") for gpu in job["running"]["gpus"])


def _spread(spots: list[str], gpus: int) -> list[str]:
    return sorted(spots[:gpus])
