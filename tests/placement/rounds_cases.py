"""Allocations to cut, and an oracle that enumerates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.optimize as so

from optsched import Instance
from optsched.assembly import compile
from optsched.placement import check_rounds, realise
from optsched.registry import load_solver
from optsched.solution import Allocation, Rounds
from optsched.solving import Engine


def allocation(fractions: Mapping[tuple[str, str], float], **given: Any) -> Allocation:
    """An allocation of given fractions by (job, pool), job by job."""
    return of_instance(fractions, Instance.from_arrays(**given))


def of_instance(fractions: Mapping[tuple[str, str], float], instance: Instance) -> Allocation:
    """An allocation of given fractions by (job, pool), job by job."""
    C = compile(instance).per_job().classes(frozenset())
    names, pools = instance.jobs_table.names, instance.cluster.pools
    x = np.zeros(C.columns)
    for column in range(C.columns):
        if C.class_b[column] < 0:
            key = (names[int(C.first[C.class_a[column]])], pools[int(C.pool[column])].name)
            x[column] = fractions.get(key, 0.0)
    return Allocation(C, x)


def cut(made: Allocation, method: str = "auto", **options: Any) -> Rounds:
    """`realise` with an engine, checked."""
    rounds = realise(made, Engine(load_solver), method, **options)
    assert check_rounds(rounds, made.classes) == []
    return rounds


def largest_share(made: Allocation) -> float:
    """The largest share of an allocation that can be realised: every set of rows that fits is a column."""
    C, rows = made.classes, made.rows
    renewable = np.flatnonzero(C.resources.renewable)
    usage, capacity = (
        C.usage[renewable][:, rows.column].toarray(),
        C.capacity[renewable] * (1 + 1e-9),
    )
    patterns: list[list[int]] = [[]]
    for row in range(len(rows)):
        jobs = {int(rows.job[row]), int(rows.partner[row])} - {-1}
        for pattern in list(patterns):
            busy = {int(job) for other in pattern for job in (rows.job[other], rows.partner[other])}
            if not jobs & busy and (usage[:, [*pattern, row]].sum(axis=1) <= capacity).all():
                patterns.append([*pattern, row])
    cover = np.zeros((len(rows), len(patterns)))
    for number, pattern in enumerate(patterns):
        cover[pattern, number] = 1
    found = so.linprog(np.ones(len(patterns)), A_ub=-cover, b_ub=-rows.fraction, method="highs")
    return 0.0 if found.status == 2 else float(min(1.0, 1.0 / found.fun))
