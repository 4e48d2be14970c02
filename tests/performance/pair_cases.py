"""Pairs for tests: a law of interference, and profiles that follow it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from optsched.performance.learned import PairProfiles, Pairs

GPUS = ("k80", "v100")
Law = Callable[[str, int, int], float]


def effects(gpu: str, job: int, partner: int) -> float:
    """What a job keeps: it suffers by its own number and its partner inflicts by its own."""
    return float(np.exp(-0.1 - 0.05 * (job % 4) - 0.04 * (partner % 5) - 0.1 * GPUS.index(gpu)))


def symmetric(gpu: str, job: int, partner: int) -> float:
    return float(np.exp(-0.05 * (job + partner) - 0.02 * (job * partner) - 0.1 * GPUS.index(gpu)))


def profiles_of(
    law: Law = effects, jobs: int = 6, share: float = 1.0, seed: int = 0, noise: float = 0.0, bare: bool = False,
    label: Callable[[int], str] = lambda row: f"j{row}", order: Any = None,
) -> PairProfiles:  # fmt: skip
    """A share of all pairs, each in a random order of its jobs."""
    random = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {
        "gpu": [],
        "first": [],
        "second": [],
        "fraction_first": [],
        "fraction_second": [],
    }
    for gpu in GPUS:
        for pair in combinations_with_replacement(range(jobs), 2):
            seen, (error, other), swap = (
                random.random() < share,
                random.normal(size=2) * noise,
                random.random() < 0.5,
            )
            one, two = pair[::-1] if swap else pair
            if not seen:
                continue
            error = other if one == two or law is symmetric else error
            keeps = law(gpu, one, two) * np.exp(error), law(gpu, two, one) * np.exp(other)
            for column, value in zip(
                columns.values(),
                (gpu, label(one), label(two), *np.minimum(keeps, 1.0)),
                strict=True,
            ):
                column.append(value)
    if order is not None:
        chosen = order(len(columns["gpu"]))
        columns = {name: [column[row] for row in chosen] for name, column in columns.items()}
    rows = range(jobs)
    return PairProfiles.of(
        **columns,
        workloads=[label(row) for row in rows],
        family={} if bare else {label(row): f"f{row % 3}" for row in rows},
        batch={} if bare else {label(row): 2.0**row for row in rows},
        isolated={}
        if bare
        else {(label(row), gpu): 10.0 / (1 + row) for row in rows for gpu in GPUS},
        utilisation={}
        if bare
        else {(label(row), gpu): 0.2 + 0.1 * (row % 6) for row in rows for gpu in GPUS},
    )


def every_pair(jobs: int = 6, label: Callable[[int], str] = lambda row: f"j{row}") -> Pairs:
    """All ordered pairs on both GPU types."""
    gpu, first, second = (index.ravel() for index in np.indices((2, jobs, jobs)))
    return Pairs(gpu, first, second, GPUS, tuple(label(row) for row in range(jobs)))
