"""What a model of throughput is asked about an instance: its jobs, and configurations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched import Instance
from optsched.performance import Configurations, JobBatch


def batch_of(instance: Instance) -> JobBatch:
    """All jobs, as compile hands them over."""
    table = instance.jobs_table
    workload_rates = np.array([*(workload.rates for workload in instance.workloads), -1])
    own = table.rates >= 0
    profile = np.where(own, table.rates, workload_rates[table.workload])
    return JobBatch(table.workload, profile, own, table.gpus_min)


def configurations(rows: Sequence[tuple[int, int, int]]) -> Configurations:
    """From (pool, GPUs, nodes)."""
    pool, gpus, nodes = np.array(rows, np.int64).T
    return Configurations(pool, gpus, nodes, np.ones(len(rows)), np.zeros(len(rows), np.int64))
