"""Instances of jobs with parameter servers: the reference of the literature's example, and random ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from documents import instance_document

from optsched import Instance


@dataclass(frozen=True)
class Job:
    """theta = (a, b, c, d, e); worker, server and limit by resource; steps; sigmoid."""

    theta: Sequence[float]
    worker: Sequence[float]
    server: Sequence[float]
    limit: Sequence[float]
    steps: float
    sigmoid: Sequence[float]

    def tau(self, w: int, p: int) -> float:
        """Duration, written out."""
        a, b, c, d, e = self.theta
        return self.steps * (a / w + b + c * w / p + d * w + e * p)

    def mu(self, tau: float) -> float:
        """Value, written out."""
        g1, g2, g3 = self.sigmoid
        return g1 / (1 + math.exp(g2 * (tau - g3)))

    def use(self, w: int, p: int) -> np.ndarray:
        """What w workers and p servers hold."""
        return np.array(self.worker) * w + np.array(self.server) * p

    def pairs(self) -> Iterator[tuple[int, int]]:
        """All pairs inside the limit, by looking at every one."""
        w = 1
        while (self.use(w, 1) <= np.array(self.limit) + 1e-9).all():
            p = 1
            while (self.use(w, p) <= np.array(self.limit) + 1e-9).all():
                yield w, p
                p += 1
            w += 1

    def best(self) -> float:
        """Shortest duration."""
        return min((self.tau(w, p) for w, p in self.pairs()), default=math.inf)


@dataclass(frozen=True)
class Case:
    """Jobs and the capacity."""

    jobs: Sequence[Job]
    capacity: Sequence[float]
    more: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """One workload per job."""
        names = [f"r{row}" for row in range(len(self.capacity))]
        resources = [
            {"name": name, "capacity": amount}
            for name, amount in zip(names, self.capacity, strict=True)
        ]
        laws = [
            {
                "law": "ps-sync",
                "coefficients": dict(zip("abcde", job.theta, strict=True)),
                "worker": dict(zip(names, job.worker, strict=True)),
                "server": dict(zip(names, job.server, strict=True)),
                "limit": dict(zip(names, job.limit, strict=True)),
                "value": {"sigmoid": list(job.sigmoid)},
            }
            for job in self.jobs
        ]
        return (
            instance_document(
                {"g": 8},
                [
                    {"id": f"j{i}", "workload": f"law{i}", "steps": job.steps}
                    for i, job in enumerate(self.jobs)
                ],
                resources=resources,
                workloads={
                    f"law{i}": {"parameters": {"parameter_server": law}}
                    for i, law in enumerate(laws)
                },
            )
            | self.more
        )

    def instance(self) -> Instance:
        """The instance."""
        return Instance.from_document(self.document())


REFERENCE = Case(
    (
        Job((30, 1, 0.4, 0.1, 0.05), (1, 2, 4), (0, 1, 2), (6, 18, 40), 10, (50, 0.05, 90)),
        Job((20, 0.5, 0.8, 0.05, 0.05), (1, 1, 3), (0, 1, 3), (4, 12, 30), 12, (80, 0.04, 80)),
        Job((45, 0.2, 0.2, 0.02, 0.1), (1, 3, 2), (0, 1, 2), (8, 30, 40), 8, (30, 0.08, 70)),
        Job((12, 0.1, 1.2, 0.2, 0.02), (1, 2, 2), (0, 1, 4), (5, 16, 36), 15, (60, 0.03, 110)),
    ),
    (14, 45, 90),
)
"""Four jobs and three resources, with known inner optima and known values of the three outer programs."""


def random_job(random: np.random.Generator, resources: int = 3) -> Job:
    """A job with room for at least one worker and one server; some coefficients are 0."""
    theta = random.uniform(0, 1, 5) * np.array([40, 1, 1.5, 0.3, 0.2]) * (random.random(5) < 0.8)
    theta[0] = random.uniform(5, 40)
    worker, server = (random.integers(0, 4, resources).astype(float) for _ in range(2))
    worker[0], server[1 % resources] = 1 + random.integers(0, 2), 1 + random.integers(0, 2)
    limit = (
        worker * random.integers(1, 5)
        + server * random.integers(1, 5)
        + random.integers(0, 2, resources)
    )
    sigmoid = (random.uniform(10, 80), random.uniform(0.02, 0.1), random.uniform(50, 120))
    return Job(
        theta.tolist(),
        worker.tolist(),
        server.tolist(),
        limit.tolist(),
        float(random.integers(5, 15)),
        sigmoid,
    )


def random_case(seed: int, jobs: int = 5, resources: int = 3, share: float = 0.5) -> Case:
    """Jobs whose limits together are more than the capacity."""
    random = np.random.default_rng(seed)
    chosen = [random_job(random, resources) for _ in range(jobs)]
    limits = np.array([job.limit for job in chosen])
    return Case(
        chosen, np.maximum(np.ceil(share * limits.sum(axis=0)), limits.max(axis=0)).tolist()
    )


def gpu_document() -> dict[str, Any]:
    """Workers on GPUs and CPUs of one pool, servers on CPUs of another."""
    law = {
        "law": "ps-async",
        "coefficients": {"a": 4.0, "b": 1.0, "c": 0.5, "d": 0.1},
        "worker": {"fast": 2, "fast.cpu": 4, "licences": 1},
        "server": {"plain.cpu": 3},
        "limit": {"fast": 6, "fast.cpu": 12, "plain.cpu": 9, "licences": 3},
    }
    return instance_document(
        [
            {
                "name": "fast",
                "nodes": 2,
                "gpus_per_node": 4,
                "gpu_memory": 16,
                "cpus_per_node": 16,
            },
            {"name": "plain", "nodes": 1, "gpus_per_node": 1, "cpus_per_node": 10},
        ],
        [{"id": "a", "workload": "net", "steps": 100}],
        resources=[{"name": "licences", "capacity": 4}],
        workloads={"net": {"parameters": {"parameter_server": law}, "demand": {"cpu": 100}}},
    )


def options_document(limit: Any = None, **parameters: Any) -> dict[str, Any]:
    """Three equal jobs with three options each; the limit stands in their workload."""
    ways = [
        {"uses": {"r": 4}, "duration": 10, "value": 9, "attributes": {"way": "large"}},
        {"uses": {"r": 2}, "duration": 20, "value": 5, "attributes": {"way": "small"}},
        {"uses": {"r": 3}, "duration": 15, "value": 5, "attributes": {"way": "middle"}},
    ]
    if limit is not None:
        parameters["limit"] = limit
    return instance_document(
        {"g": 1},
        [{"id": name, "workload": "w", "options": ways} for name in ("a", "b", "c")],
        resources=[{"name": "r", "capacity": 7}],
        workloads={"w": {"parameters": parameters}},
    )
