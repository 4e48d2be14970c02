"""Profiles from Gavel's throughput tables (`optsched.formats.gavel_files`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from optsched.formats.gavel_files import read_throughputs, told_type
from optsched.formats.measurements import Measurement
from optsched.formats.profile_tables import Missing

TYPE = re.compile(r"(.+) \(batch size ([1-9]\d{0,8})\)", re.ASCII)
SPREAD = "_unconsolidated"
"""Ending of a worker type whose rows were measured with one GPU on each node."""


def profile_of(job_type: str) -> tuple[str, float]:
    """Workload and samples of one GPU of a job type: ``ResNet-18 (batch size 64)`` is ResNet-18 with 64.

    One that tells no batch has 1: a sample is then whatever one GPU does in a step.
    """
    match = TYPE.fullmatch(job_type)
    return (job_type, 1.0) if match is None else (match[1], float(match[2]))


def job_type_of(workload: str, samples: float | None) -> str:
    """The job type of a model and its batch, as `profile_of` takes it apart: one of batch 1 tells none."""
    return (
        workload if samples is None or samples == 1 else f"{workload} (batch size {samples:.15g})"
    )


def gpu_type_of(worker_type: str) -> str:
    """The GPU type of a worker type: its name in capitals."""
    return worker_type.upper()


def gavel_measurements(data: bytes, path: Path, missing: Missing) -> Iterator[Measurement]:
    """The rates of jobs that have their GPUs to themselves; 0 was not run and is left out.

    A rate is the sum of those of the k workers, each of which takes m samples in a step: t = k / rate for a step of k m
    samples. The rows of a worker type stand on as few nodes as ``gpus_per_node`` allows, on one without it; those of
    ``..._unconsolidated`` on as many nodes as GPUs. GPU types are worker types in capitals.
    """
    for worker_type, rows in read_throughputs(data).alone.items():
        spread = worker_type.endswith(SPREAD)
        for (job_type, gpus), rate in rows.items():
            if rate <= 0 or (spread and gpus == 1):
                continue
            workload, samples = profile_of(job_type)
            nodes = gpus if spread else -(-gpus // (missing.gpus_per_node or gpus))
            yield Measurement(
                workload=missing.workload or workload,
                gpu=missing.gpu or gpu_type_of(worker_type.removesuffix(SPREAD)),
                gpus=gpus,
                nodes=nodes,
                samples=samples,
                passes=1,
                seconds=gpus / rate,
                sync=math.nan,
                place=f"{path}:{told_type(worker_type)}.{told_type(job_type)}, {gpus} GPUs",
            )
