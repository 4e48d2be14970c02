"""What the tests of learned models share: a law of step times, profiles that follow it, a parametric model of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from optsched.errors import InvalidInput
from optsched.performance import Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways


def law(
    samples: np.ndarray, gpus: np.ndarray, nodes: np.ndarray, passes: np.ndarray | int = 1
) -> np.ndarray:
    """Seconds of a step: computing, and exchanging once."""
    exchange = np.where(gpus > 1, 0.05 * (1 + np.log2(gpus)) * np.where(nodes > 1, 2.0, 1.0), 0.0)
    return passes * (0.02 + 0.004 * samples) + exchange


def profiles_of(
    count: int = 300,
    seed: int = 0,
    noise: float = 0.0,
    most: int = 8,
    workloads: tuple[str, ...] = ("bert", "gpt"),
) -> Profiles:
    """Steps of workloads on two GPU types, of which the second takes twice as long."""
    random = np.random.default_rng(seed)
    gpus = random.integers(1, most + 1, count)
    nodes = np.minimum(random.integers(1, 3, count), gpus)
    samples = 2.0 ** random.integers(0, 6, count)
    slow = random.integers(0, 2, count)
    seconds = law(samples, gpus, nodes) * (1 + slow) * np.exp(noise * random.normal(size=count))
    return Profiles.of(
        workload=[workloads[row % len(workloads)] for row in range(count)],
        gpu=np.array(["a100", "t4"])[slow].tolist(),
        gpus=gpus,
        nodes=nodes,
        samples=samples,
        seconds=seconds,
    )


class Linear(TimeModel):
    """t = c A m for every workload and GPU type that it has seen: a base for tests."""

    name = "linear-for-tests"

    def __init__(self, each: Mapping[str, float]) -> None:
        self.each = dict(each)

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        if set(options) - {"scale"}:
            raise InvalidInput("performance.slope", "1", "scale")
        ways = profiles.ways
        each = profiles.seconds / ways.samples / ways.passes * options.get("scale", 1.0)
        return cls({name: float(np.median(each[ways.workload == row])) for row, name in enumerate(ways.workloads)
                    if (ways.workload == row).any()})  # fmt: skip

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        if set(document) != {"each"}:
            raise InvalidInput("performance.each", "nothing", "this key")
        return cls(document["each"])

    def document(self) -> dict[str, Any]:
        return {"model": self.name, "each": self.each}

    def times(self, ways: Ways) -> Times:
        each = np.array([*(self.each.get(name, np.nan) for name in ways.workloads), np.nan])[
            ways.workload
        ]
        return Times.of(each * ways.samples * ways.passes, Source.PARAMETRIC, 0.5)
