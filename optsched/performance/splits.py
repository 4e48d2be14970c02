"""Splits of profiles into what a model is fitted to and what it is judged by: one for each question put to a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.errors import InvalidArgument, UsageError
from optsched.performance.profiles import Profiles


@dataclass(frozen=True)
class Split:
    """Rows of profiles to fit to, and rows to judge by; they have none in common, and neither is empty."""

    train: IntArray
    test: IntArray


def random_rows(
    profiles: Profiles, random: np.random.Generator, fraction: float = 0.5
) -> Iterator[Split]:
    """Dense samples: of each workload on each GPU type a random fraction of the rows, the same way to run together."""
    if not 0 < fraction < 1:
        raise InvalidArgument("random: fraction", f"{fraction:g}", "a number between 0 and 1")
    ways = profiles.ways
    columns = np.stack(
        [ways.workload, ways.gpu, ways.gpus, ways.nodes, ways.samples, ways.passes], axis=1
    )
    kinds, way = np.unique(columns, axis=0, return_inverse=True)
    group = (kinds[:, 0] * len(ways.gpu_types) + kinds[:, 1]).astype(np.int64)
    order = np.lexsort((random.random(len(kinds)), group))
    first = np.searchsorted(group[order], group[order])
    size = np.bincount(group)[group[order]]
    taken = np.zeros(len(kinds), bool)
    taken[order] = np.arange(len(kinds)) - first < np.maximum(1, np.round(fraction * size))
    yield from _of_mask(taken[way.ravel()])


def workload_out(profiles: Profiles, random: np.random.Generator) -> Iterator[Split]:
    """A workload never seen: each in turn is left out as a whole."""
    if len(profiles.ways.workloads) > 1:
        for row in range(len(profiles.ways.workloads)):
            yield from _of_mask(profiles.ways.workload != row)


def gpu_out(profiles: Profiles, random: np.random.Generator) -> Iterator[Split]:
    """A GPU type seen on 1 GPU alone: of each in turn the rows on several GPUs are left out."""
    ways = profiles.ways
    if len(ways.gpu_types) > 1:
        for row in range(len(ways.gpu_types)):
            yield from _of_mask((ways.gpu != row) | (ways.gpus == 1))


def more_gpus(profiles: Profiles, random: np.random.Generator, most: int = 4) -> Iterator[Split]:
    """More GPUs than were profiled: rows on at most ``most`` of them are fitted to, the others are left out."""
    yield from _of_mask(profiles.ways.gpus <= most)


def few_shot(profiles: Profiles, random: np.random.Generator) -> Iterator[Split]:
    """A short profile of each workload on each GPU type: its rows on 1 GPU, those of one placement on several GPUs of
    one node, and those of one over several nodes, at random.
    """  # fmt: skip
    ways = profiles.ways
    taken: BoolArray = ways.gpus == 1
    several = np.flatnonzero(~taken)
    columns = np.stack([ways.workload, ways.gpu, ways.nodes > 1, ways.gpus, ways.nodes], axis=1)[
        several
    ]
    placements, of_row = np.unique(columns, axis=0, return_inverse=True)
    order = np.lexsort((random.random(len(placements)), *placements[:, :3].T[::-1]))
    level = placements[order, :3]
    chosen = order[np.flatnonzero(np.any(np.diff(level, axis=0, prepend=-1) != 0, axis=1))]
    taken[several[np.isin(of_row.ravel(), chosen)]] = True
    yield from _of_mask(taken)


def _of_mask(taken: BoolArray) -> Iterator[Split]:
    if taken.any() and not taken.all():
        yield Split(np.flatnonzero(taken), np.flatnonzero(~taken))


SPLITS: Mapping[str, Callable[..., Iterator[Split]]] = {
    "random": random_rows,
    "few-shot": few_shot,
    "more-gpus": more_gpus,
    "workload-out": workload_out,
    "gpu-out": gpu_out,
}
"""Splits by name; each gives no split where the profiles have nothing that could be left out."""
RANDOM = ("random", "few-shot")
"""Those that differ from seed to seed."""


def splits_of(profiles: Profiles, name: str, seed: int, options: Mapping[str, Any]) -> list[Split]:
    """The splits of a name with its options; raises `UsageError` for a wrong one."""
    if name not in SPLITS:
        raise UsageError(f"unknown split {name!r}, expected one of {', '.join(SPLITS)}")
    known = {"random": {"fraction"}, "more-gpus": {"most"}}.get(name, set())
    for option, value in options.items():
        if option not in known:
            raise UsageError(
                f"unknown option of the split {name}: {option}, expected {' '.join(known) or 'none'}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidArgument(f"{name}: {option}", repr(value), "a number")
    return list(SPLITS[name](profiles, np.random.default_rng(seed), **options))
