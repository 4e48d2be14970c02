"""A small model of a step's time for tests: seconds per sample of each workload on each GPU type, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from optsched.errors import InvalidInput
from optsched.performance import Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.times import TimeModel, Times
from optsched.performance.ways import Ways


class Linear(TimeModel):
    """A step takes as long as its samples: t = c m passes, with c of the workload and GPU type.

    Option ``floor``: least log_sd.
    """

    name = "linear-for-tests"

    def __init__(self, per_sample: Mapping[str, Mapping[str, float]], log_sd: float) -> None:
        self.per_sample, self.log_sd = per_sample, log_sd

    @classmethod
    def fit(cls, profiles: Profiles, options: Mapping[str, Any]) -> Self:
        unknown = sorted(set(options) - {"floor"})
        if unknown:
            raise InvalidInput(f"performance.{unknown[0]}", "an unknown option", "floor")
        ways = profiles.ways
        if not (ways.gpus == 1).any():
            raise InvalidInput("profiles", "no row on 1 GPU", "at least one")
        each = np.log(profiles.seconds / (ways.samples * ways.passes))
        found: dict[str, dict[str, float]] = {}
        for w, g in sorted(set(zip(ways.workload.tolist(), ways.gpu.tolist(), strict=True))):
            chosen = (ways.workload == w) & (ways.gpu == g)
            found.setdefault(ways.workloads[w], {})[ways.gpu_types[g]] = float(
                np.exp(each[chosen].mean())
            )
        model = cls(found, 0.0)
        rest = np.log(model.times(ways).seconds) - np.log(profiles.seconds)
        return cls(found, max(float(rest.std()), options.get("floor", 0.0)))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        try:
            return cls(document["per_sample"], document["log_sd"])
        except KeyError as error:
            raise InvalidInput(f"performance.{error.args[0]}", "nothing", "this key") from None

    def document(self) -> dict[str, Any]:
        return {"model": self.name, "per_sample": self.per_sample, "log_sd": self.log_sd}

    def times(self, ways: Ways) -> Times:
        table = np.array(
            [
                [self.per_sample.get(w, {}).get(g, np.nan) for g in ways.gpu_types]
                for w in ways.workloads
            ]
        ).reshape(len(ways.workloads), len(ways.gpu_types))
        return Times.of(
            table[ways.workload, ways.gpu] * ways.samples * ways.passes,
            Source.PARAMETRIC,
            self.log_sd,
        )


def planted(seed: int = 0, noise: float = 0.1, sync: float = 0.5) -> Profiles:
    """Steps of two workloads on two GPU types that take 0.01 s a sample, ``sync`` s more on several GPUs, and noise."""
    random = np.random.default_rng(seed)
    rows = [
        (workload, gpu, gpus, nodes, samples)
        for workload in ("bert", "vgg")
        for gpu in ("T4", "A100")
        for gpus, nodes in ((1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (8, 2), (16, 4))
        for samples in (8, 16, 32)
    ]
    workload, gpu, gpus, nodes, samples = map(list, zip(*rows, strict=True))
    exact = 0.01 * np.array(samples) + np.where(np.array(gpus) > 1, sync, 0.0)
    seconds = exact * np.exp(noise * random.standard_normal(len(rows)))
    return Profiles.of(
        workload=workload, gpu=gpu, gpus=gpus, nodes=nodes, samples=samples, seconds=seconds
    )
