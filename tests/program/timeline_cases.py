"""Timeline programs for tests: small random ones, unrelated machines, and files of multi-mode project scheduling."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from project_files import section_of

from optsched.program import TimelineCost, TimelineProgram


def unrelated(durations: np.ndarray) -> TimelineProgram:
    """R||Cmax: every job once, on one of the machines."""
    p = np.asarray(durations, np.int64)
    jobs, machines = p.shape
    return TimelineProgram(
        release=np.zeros(jobs, np.int64),
        deadline=np.full(jobs, int(p.max(axis=1).sum())),
        activity=np.repeat(np.arange(jobs), machines),
        duration=p.ravel(),
        usage=sp.csr_matrix(np.tile(np.eye(machines), jobs)),
        capacity=np.ones(machines, np.int64),
    )


def random_program(seed: int, activities: int = 3, horizon: int = 9) -> TimelineProgram:
    """Two resources, a calendar, a budget, a precedence, release dates, and a cost of everything."""
    random = np.random.default_rng(seed)
    modes = activities * 2
    makespan = int(random.integers(0, 3))
    return TimelineProgram(
        release=random.integers(0, 3, activities),
        deadline=random.integers(horizon - 2, horizon + 1, activities),
        activity=np.repeat(np.arange(activities), 2),
        duration=random.integers(1, 4, modes),
        usage=sp.csr_matrix(random.integers(0, 3, (2, modes))),
        capacity=np.array([3, 2]),
        closed=np.array([[0, 2, 4, 1], [1, 6, 7, 2]]),
        budget_usage=sp.csr_matrix(random.integers(0, 3, (1, modes))),
        budget=np.array([activities + 1]),
        precedence=np.array([[0, activities - 1]]),
        cost=TimelineCost(
            makespan=makespan,
            start=random.integers(0, 2, activities),
            end=random.integers(0, 2, activities),
            tardiness=random.integers(0, 3, activities),
            due=random.integers(2, horizon, activities),
            mode=random.integers(0, 3, modes),
        ),
    )


def by_brute_force(program: TimelineProgram) -> int | None:
    """The least cost over all modes and starts; None where nothing is feasible."""
    best = None
    options = [range(program.first_mode[a], program.first_mode[a + 1]) for a in range(len(program))]
    for modes in itertools.product(*options):
        mode = np.array(modes)
        windows = [
            range(int(low), int(high) + 1)
            for low, high in zip(
                program.release, program.deadline - program.duration[mode], strict=True
            )
        ]
        for starts in itertools.product(*windows):
            start = np.array(starts)
            cost = program.objective(start, mode)
            if (best is None or cost < best) and next(
                program.violations(start, mode), None
            ) is None:
                best = cost
    return best


def read_projects(path: Path) -> TimelineProgram:
    """A multi-mode project of PSPLIB (two renewable and two consumable resources), without its dummy jobs."""
    section = partial(section_of, path.read_text().splitlines())
    activity: list[int] = []
    duration, uses, job = [], [], 0
    for row in section("REQUESTS/DURATIONS"):
        job, row = (row[0], row[1:]) if len(row) == 7 else (job, row)
        activity.append(job)
        duration.append(row[1])
        uses.append(row[2:])
    last = max(activity)
    keep = [i for i, a in enumerate(activity) if 1 < a < last]
    order = [
        (a - 2, b - 2)
        for a, _, _, *after in section("PRECEDENCE RELATIONS") for b in after if 1 < a < last and 1 < b < last
    ]  # fmt: skip
    (capacity,) = section("RESOURCEAVAILABILITIES")
    matrix = np.array([uses[i] for i in keep]).T
    horizon = sum(max(duration[i] for i in keep if activity[i] == a) for a in range(2, last))
    return TimelineProgram(
        release=np.zeros(last - 2, np.int64),
        deadline=np.full(last - 2, horizon),
        activity=np.array([activity[i] - 2 for i in keep]),
        duration=np.array([duration[i] for i in keep]),
        usage=sp.csr_matrix(matrix[:2]),
        capacity=np.array(capacity[:2]),
        budget_usage=sp.csr_matrix(matrix[2:]),
        budget=np.array(capacity[2:]),
        precedence=np.array(order, np.int64).reshape(-1, 2),
    )
