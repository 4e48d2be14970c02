"""Measured throughputs of jobs that run, as a performance model learns from them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optsched.performance import Configurations, JobBatch, Observations
from optsched.rounds.state import RoundState


def observations(
    state: RoundState, rates: Mapping[int, float]
) -> tuple[Observations | None, tuple[str, ...]]:
    """What measured rates (steps/s, by the row of the job) say, and what is to be told.

    A rate says something of the configuration in which its job runs now. Nothing is learnt of jobs that do not run, or
    that share their GPUs: there it says as much of the neighbour.
    """
    table, ledger = state.instance.jobs_table, state.ledger
    now = {int(job): row for row, job in enumerate(ledger.job.tolist()) if ledger.runs[row]}
    shares = set(ledger.partner[ledger.runs].tolist()) - {-1}
    rows, notices = [], []
    for job in rates:
        if job not in now and job not in shares:
            notices.append(f"job {table.names[job]} does not run: its throughput teaches nothing")
        elif job in shares or ledger.partner[now[job]] >= 0:
            notices.append(
                f"job {table.names[job]} shares its GPUs: its throughput teaches nothing"
            )
        else:
            rows.append(now[job])
    if not rows:
        return None, tuple(notices)
    key = ledger.key[rows]
    jobs = key[:, 0]
    own = table.rates[jobs] >= 0
    of_workload = np.array(
        [*(workload.rates for workload in state.instance.workloads), -1], np.int64
    )
    batch = JobBatch(
        table.workload[jobs], np.where(own, table.rates[jobs], of_workload[table.workload[jobs]]), own,
        table.gpus_min[jobs],
    )  # fmt: skip
    configurations = Configurations(
        pool=key[:, 2], gpus=key[:, 3], nodes=key[:, 4], share=np.ascontiguousarray(key[:, 8]).view(np.float64),
        attributes=np.zeros(len(rows), np.int64), attribute_sets=({},),
    )  # fmt: skip
    rate = np.array([rates[one] for one in jobs.tolist()])
    return Observations(batch, configurations, np.arange(len(rows), dtype=np.int64), rate), tuple(
        notices
    )
