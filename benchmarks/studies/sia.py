"""Profiles of data-parallel training (Sia, SOSP 2023): step times of six jobs on five GPU types."""

from __future__ import annotations

import csv
from pathlib import Path

from optsched.performance.profiles import Profiles

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "sia" / "profiles"
JOBS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
GPU_TYPES = ("aws", "azure", "dgx-ext", "quad", "rtx")


def load(jobs: tuple[str, ...] = JOBS, gpu_types: tuple[str, ...] = GPU_TYPES, folder: Path = FOLDER) -> Profiles:
    """All rows: placements first, then scalability, as the files have them."""
    columns: dict[str, list[float]] = {name: [] for name in ("gpus", "nodes", "samples", "seconds", "sync")}
    workload, gpu = [], []
    for job in jobs:
        for gpu_type in gpu_types:
            for kind in ("placements", "scalability"):
                with (folder / job / f"{kind}-{gpu_type}.csv").open(newline="") as file:
                    for row in csv.DictReader(file):
                        digits = [int(digit) for digit in row.get("placement", "")]
                        columns["gpus"].append(sum(digits) if digits else int(row["num_replicas"]))
                        columns["nodes"].append(len(digits) if digits else int(row["num_nodes"]))
                        columns["samples"].append(float(row["local_bsz"]))
                        columns["seconds"].append(float(row["step_time"]))
                        columns["sync"].append(min(float(row["sync_time"]), float(row["step_time"])))
                        workload.append(job)
                        gpu.append(gpu_type)
    return Profiles.of(workload=workload, gpu=gpu, **columns)  # type: ignore[arg-type]
