"""Solutions with a schedule, rounds and a placement, made by simple rules from the allocation of a formulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

import optsched
from optsched.solution import Placement, Rounds, Schedule, Solution


def instance_of(
    jobs: int, pools: dict[str, tuple[int, int]], seed: int = 0, /, **changes: Any
) -> optsched.Instance:
    """Jobs of 1 to 8 GPUs on pools of (nodes, GPUs per node); every third has a deadline."""
    random = np.random.default_rng(seed)
    gangs = random.choice([1, 1, 2, 4, 8], jobs).tolist()
    largest = {name: nodes * gpus for name, (nodes, gpus) in pools.items()}
    document = {
        "format": "optsched-instance/1",
        "name": f"{jobs} jobs",
        "cluster": {
            "pools": [
                {"name": name, "nodes": nodes, "gpus_per_node": gpus,
                 "bandwidth": {"intra_node": 300, "node": 25, "leaf": 100}}
                for name, (nodes, gpus) in pools.items()
            ]
        },
        "jobs": [
            {"id": f"job-{row}", "gpus": gang, "steps": float(random.integers(600, 20_000)),
             "throughput": {name: float(random.uniform(0.5, 3)) for name in pools if gang <= largest[name]}}
            | ({"deadline": float(random.integers(2_000, 60_000))} if row % 3 == 0 else {})
            for row, gang in enumerate(gangs)
        ],
    }  # fmt: skip
    return optsched.Instance.from_document(document | changes)


def solved(instance: optsched.Instance | str, formulation: str = "max-throughput") -> Solution:
    """Job by job, so that columns are easy to find."""
    return optsched.solve(instance, formulation, classes=False)


def with_schedule(solution: Solution) -> Solution:
    """List scheduling: each job on the pool where it ends first."""
    C = solution.allocation.classes
    table, pools = C.instance.jobs_table, C.instance.cluster.pools
    free = [np.full(int(pool.node_gpus.sum()), C.instance.now) for pool in pools]
    rows = []
    for job in np.flatnonzero(C.of_job >= 0).tolist():
        best = None
        for column in np.flatnonzero((C.class_a == C.of_job[job]) & C.alone).tolist():
            pool, gpus = int(C.pool[column]), int(C.gpus[column])
            start = float(np.sort(free[pool])[gpus - 1])
            end = start + float(table.steps_left[job] / C.rate_a[column])
            if best is None or end < best[3]:
                best = (job, column, start, end)
        lanes = np.argsort(free[C.pool[best[1]]], kind="stable")[: C.gpus[best[1]]]
        free[C.pool[best[1]]][lanes] = best[3]
        rows.append(best)
    job, column, start, end = (np.array(values) for values in zip(*rows, strict=True))
    return replace(solution, schedule=Schedule.sorted(C, job, column, start, end))


def with_rounds(solution: Solution, slices: int = 8) -> Solution:
    """In each of equal slices the rows that are furthest behind run, as long as GPUs and jobs are free."""
    C, rows = solution.allocation.classes, solution.allocation.rows
    gpus, pool, done = C.gpus[rows.column], C.pool[rows.column], np.zeros(len(rows))
    runs = np.zeros((slices, len(rows)))
    for piece in range(slices):
        left = C.instance.cluster.gpus(C.instance.now).astype(float)
        busy: set[int] = set()
        for row in np.argsort(-(rows.fraction * (piece + 1) - done), kind="stable").tolist():
            mine = {int(rows.job[row]), int(rows.partner[row])} - {-1}
            if (
                done[row] < rows.fraction[row] * slices - 1e-9
                and gpus[row] <= left[pool[row]]
                and not mine & busy
            ):
                left[pool[row]] -= gpus[row]
                busy |= mine
                runs[piece, row] = 1
                done[row] += 1
    length = np.full(slices, 1.0 / slices)
    return replace(
        solution,
        rounds=Rounds(solution.allocation.classes, rows, length, sp.csr_matrix(runs), 0.9, 1.0),
    )


def with_placement(solution: Solution) -> Solution:
    """The largest rows first, on the first free GPUs of usable nodes of their pool."""
    C, rows = solution.allocation.classes, solution.allocation.rows
    now = C.instance.now
    free = {
        row: [
            f"{pool.node_name(node)}/{gpu}"
            for node in np.flatnonzero(pool.usable(now)).tolist()
            for gpu in range(int(pool.node_gpus[node]))
        ]
        for row, pool in enumerate(C.instance.cluster.pools)
    }
    placed, gpus, busy = [], [], set()
    for row in np.argsort(-rows.fraction, kind="stable").tolist():
        pool, count = int(C.pool[rows.column[row]]), int(C.gpus[rows.column[row]])
        mine = {int(rows.job[row]), int(rows.partner[row])} - {-1}
        if count <= len(free[pool]) and not mine & busy:
            placed.append(row)
            gpus.append(tuple(free[pool][:count]))
            free[pool] = free[pool][count:]
            busy |= mine
    names = C.instance.jobs_table.names
    placement = Placement(rows, np.array(placed, np.int64), tuple(gpus), names=names)
    return replace(solution, placement=placement)
