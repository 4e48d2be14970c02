"""Ways to run and profiles for tests of models of a step's time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optsched.arrays import FloatArray
from optsched.performance import Profiles

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.ways import Ways


def random_ways(
    count: int, seed: int = 0, workloads: Sequence[str] = ("bert",), gpus: Sequence[str] = ("t4",)
) -> Ways:
    """Random ways over the names given."""
    random = np.random.default_rng(seed)
    k = random.choice([1, 1, 2, 3, 4, 8, 16, 64], count)
    return Ways(
        random.integers(0, len(workloads), count),
        random.integers(0, len(gpus), count),
        k,
        np.minimum(random.integers(1, 5, count), k),
        random.uniform(1, 300, count),
        random.choice([1, 1, 1, 2, 5], count),
        tuple(workloads),
        tuple(gpus),
    )


def grid(
    law: Callable[[int, int, float], float],
    shapes: Sequence[tuple[int, int]],
    samples: Sequence[float],
    noise: float = 0.0,
    seed: int = 0,
    names: tuple[str, str] = ("bert", "t4"),
    sync: Callable[[int, int], float] | None = None,
) -> Profiles:
    """Profiles at all (k, n) x m of a law t(k, n, m), perhaps with noise."""
    random = np.random.default_rng(seed)
    rows = [(k, n, m) for k, n in shapes for m in samples]
    seconds = np.array([law(k, n, m) for k, n, m in rows]) * np.exp(
        noise * random.normal(size=len(rows))
    )
    return Profiles.of(
        workload=[names[0]] * len(rows),
        gpu=[names[1]] * len(rows),
        gpus=[k for k, _, _ in rows],
        nodes=[n for _, n, _ in rows],
        samples=[m for _, _, m in rows],
        seconds=seconds,
        sync=None if sync is None else [sync(k, n) for k, n, _ in rows],
    )


def join(*parts: Profiles) -> Profiles:
    """Several profiles as one."""
    columns: dict[str, list[Any]] = {
        "workload": [part.ways.workloads[row] for part in parts for row in part.ways.workload],
        "gpu": [part.ways.gpu_types[row] for part in parts for row in part.ways.gpu],
    }
    for name in ("gpus", "nodes", "samples", "passes"):
        columns[name] = [value for part in parts for value in getattr(part.ways, name).tolist()]
    for name in ("seconds", "sync"):
        columns[name] = [value for part in parts for value in getattr(part, name).tolist()]
    return Profiles.of(**columns)


def log_error(model_seconds: FloatArray, seconds: FloatArray) -> float:
    """Largest error of the logs."""
    return float(np.abs(np.log(model_seconds / seconds)).max())
