"""Profiles of data-parallel training (Sia, SOSP 2023): step times of six jobs on five GPU types."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from optsched.performance.profiles import Profiles

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "sia" / "profiles"
JOBS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
GPU_TYPES = ("aws", "azure", "dgx-ext", "quad", "rtx")


def load(
    jobs: tuple[str, ...] = JOBS, gpu_types: tuple[str, ...] = GPU_TYPES, folder: Path = FOLDER
) -> Profiles:
    """All rows: placements first, then scalability, as the files have them."""
    columns: dict[str, list[float]] = {
        name: [] for name in ("gpus", "nodes", "samples", "seconds", "sync")
    }
    workload, gpu = [], []
    for job, gpu_type, row in _rows(jobs, gpu_types, folder):
        digits = [int(digit) for digit in row.get("placement", "")]
        columns["gpus"].append(sum(digits) if digits else int(row["num_replicas"]))
        columns["nodes"].append(len(digits) if digits else int(row["num_nodes"]))
        columns["samples"].append(float(row["local_bsz"]))
        columns["seconds"].append(float(row["step_time"]))
        columns["sync"].append(min(float(row["sync_time"]), float(row["step_time"])))
        workload.append(job)
        gpu.append(gpu_type)
    return Profiles.of(workload=workload, gpu=gpu, **columns)  # type: ignore[arg-type]


def placements() -> np.ndarray:
    """GPUs on each node as digits, of each row of `load`; empty where the files tell only the sum."""
    return np.array([row.get("placement", "") for _, _, row in _rows(JOBS, GPU_TYPES, FOLDER)])


def _rows(
    jobs: tuple[str, ...], gpu_types: tuple[str, ...], folder: Path
) -> Iterator[tuple[str, str, dict[str, str]]]:
    for job in jobs:
        for gpu_type in gpu_types:
            for kind in ("placements", "scalability"):
                with (folder / job / f"{kind}-{gpu_type}.csv").open(newline="") as file:
                    for row in csv.DictReader(file):
                        yield job, gpu_type, row


def pairs(profiles: Profiles) -> np.ndarray:
    """Number of the pair (workload, GPU type) of each row."""
    return profiles.ways.workload * len(profiles.ways.gpu_types) + profiles.ways.gpu


def medians(profiles: Profiles) -> Profiles:
    """Each way to run once, with the median of its seconds: half of Sia's ways were measured two to five times."""
    ways = profiles.ways
    columns = np.stack(
        [ways.workload, ways.gpu, ways.gpus, ways.nodes, ways.samples, ways.passes], axis=1
    )
    _, first, way = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(way.ravel(), kind="stable")
    parts = np.split(profiles.seconds[order], np.cumsum(np.bincount(way.ravel()))[:-1])
    return replace(profiles.take(first), seconds=np.array([np.median(part) for part in parts]))


def comparable(profiles: Profiles) -> np.ndarray:
    """Rows on several GPUs that another type ran too, with one GPU measured on both with as many samples."""
    ways = profiles.ways
    told = list(
        zip(
            *(
                column.tolist()
                for column in (ways.workload, ways.gpus, ways.nodes, ways.samples, ways.gpu)
            ),
            strict=True,
        )
    )
    seen, types = set(told), range(len(ways.gpu_types))
    return np.array(
        [
            k > 1
            and (job, 1, 1, m, gpu) in seen
            and any(
                (job, k, n, m, other) in seen and (job, 1, 1, m, other) in seen
                for other in types
                if other != gpu
            )
            for job, k, n, m, gpu in told
        ]
    )


def few_shot(profiles: Profiles, seed: int) -> np.ndarray:
    """One GPU, one spread on a node and one over nodes, drawn for each pair, with all batches."""
    random, seen, ways = np.random.default_rng(seed), profiles.ways.gpus == 1, profiles.ways
    for pair in np.unique(pairs(profiles)):
        own = pairs(profiles) == pair
        for spread in (own & (ways.nodes == 1) & (ways.gpus > 1), own & (ways.nodes > 1)):
            choices = np.unique(np.column_stack((ways.gpus, ways.nodes))[spread], axis=0)
            if len(choices):
                k, n = choices[random.integers(len(choices))]
                seen |= own & (ways.gpus == k) & (ways.nodes == n)
    return seen


def few_shot_middle(profiles: Profiles, which: int) -> np.ndarray:
    """The same with the middle one of the placements, as their digits sort; of two, ``which`` (0 or 1)."""
    seen, ways, told = profiles.ways.gpus == 1, profiles.ways, placements()
    for pair in np.unique(pairs(profiles)):
        own = (pairs(profiles) == pair) & (told != "")
        for spread in (own & (ways.nodes == 1) & (ways.gpus > 1), own & (ways.nodes > 1)):
            choices = sorted(set(told[spread].tolist()))
            if choices:
                seen |= spread & (told == choices[(len(choices) - which) // 2])
    return seen
