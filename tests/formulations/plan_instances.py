"""Instances of plans, built from their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import optsched
from optsched.instance import Instance

LEASE = 100.0
"""Seconds."""


def made(**parts: Any) -> Instance:
    """An instance from the parts of its document."""
    return Instance.from_document({"format": "optsched-instance/1", **parts})


def machines(durations: Sequence[Sequence[float]], **parts: Any) -> Instance:
    """R||Cmax: a pool of one GPU per machine; every job states its duration on each."""
    count = len(durations[0])
    return made(
        cluster={
            "pools": [{"name": f"m{i}", "nodes": 1, "gpus_per_node": 1} for i in range(count)]
        },
        jobs=[
            {
                "id": f"j{j}",
                "options": [
                    {"pool": f"m{i}", "gpus": 1, "duration": float(d)} for i, d in enumerate(row)
                ],
            }
            for j, row in enumerate(durations)
        ],
        **parts,
    )


def leases(
    gang: Sequence[int], needed: Sequence[int], deadline: Sequence[int], gpus: int
) -> Instance:
    """Jobs of a gang that need leases before a deadline in leases."""
    return made(
        round=LEASE,
        cluster={"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": gpus}]},
        jobs=[
            {
                "id": f"j{i}",
                "gpus": g,
                "steps": b * LEASE,
                "deadline": d * LEASE,
                "throughput": {"v100": 1.0},
            }
            for i, (g, b, d) in enumerate(zip(gang, needed, deadline, strict=True))
        ],
    )


def soft_leases(options: Sequence[dict[str, Any]], gpus: int) -> Instance:
    """Options (job, value, gpus, leases_needed, max_lease) of the Chronus program."""
    jobs: dict[str, list[dict[str, Any]]] = {}
    for option in options:
        jobs.setdefault(option["job"], []).append(
            {
                "pool": "v100",
                "gpus": option["gpus"],
                "duration": option["leases_needed"] * LEASE,
                "value": option["value"],
                "attributes": {"deadline": option["max_lease"] * LEASE},
            }
        )
    return made(
        round=LEASE,
        cluster={"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": gpus}]},
        jobs=[{"id": name, "options": listed} for name, listed in jobs.items()],
    )


def verified(solution: optsched.Solution) -> optsched.Solution:
    """The solution, whose file is right."""
    report = optsched.verify(solution.instance, solution.to_document())
    assert report.ok, report
    return solution


def random_unrelated(
    seed: int, jobs: int, count: int, low: int = 10, high: int = 100
) -> list[list[int]]:
    """Durations drawn uniformly."""
    found: list[list[int]] = (
        np.random.default_rng(seed).integers(low, high + 1, (jobs, count)).tolist()
    )
    return found
