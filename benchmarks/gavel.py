"""Gavel's microbenchmark setting, each formulation beside a plain cvxpy script of the same program, in one run.

Setting: single-GPU jobs of 26 workloads, n / 4 GPUs in each of 3 pools, one job in five of weight 5, durations
60 * 10^U(1.5, 3) s, of one in five 60 * 10^U(3, 4) s, in steps of the fastest pool. The rates are generated. Figures
are medians of fresh processes with one thread, from arrays to the certificate. The scripts say the program job by job,
without Python loops over jobs, and hand it to Clarabel; where that would take minutes they are run on fewer jobs, and
so is optsched for the ratio.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from measure import Measurement, measure
from spine import distinct_rows, packed_arrays

HERE = "gavel"
NOW = 1e6
SLACK = 1e-7
"""Slack of levels that were reached before; with 1e-9 Clarabel finds some programs infeasible."""
TENANTS = {
    "fairness": ("fairness",) * 5,
    "mixed": ("fairness", "fifo", "fairness", "fifo", "fairness"),
    "flat": (),
}


def setting(
    jobs: int, packed: bool = False, ages: bool = False, tenants: str = "flat", weights: bool = True
) -> dict[str, Any]:
    """Arrays of an instance in Gavel's setting."""
    random = np.random.default_rng([3, jobs])
    arrays = packed_arrays(jobs)
    if not packed:
        arrays["colocation"] = []
    long = random.random(jobs) < 0.2
    minutes = 10.0 ** np.where(long, random.uniform(3, 4, jobs), random.uniform(1.5, 3, jobs))
    fastest = rate_table(arrays).max(axis=1)[arrays["workload"]]
    arrays |= {
        "weight": np.where((random.random(jobs) < 0.2) & weights, 5.0, 1.0),
        "steps": 60.0 * minutes * fastest,
    }
    return with_tenants(
        with_ages(arrays, 60.0 * minutes, random) if ages else arrays, jobs, tenants, random
    )


def distinct(jobs: int, ages: bool = False, tenants: str = "flat") -> dict[str, Any]:
    """Jobs that all differ, with gangs and weights, on three pools that are too small for them."""
    random, arrays = np.random.default_rng([4, jobs]), distinct_rows(jobs, 3)
    return with_tenants(
        with_ages(arrays, np.full(jobs, 3600.0), random) if ages else arrays, jobs, tenants, random
    )


def with_ages(arrays: dict[str, Any], seconds: Any, random: np.random.Generator) -> dict[str, Any]:
    """Jobs that came up to their own duration ago, and have run for a part of that."""
    age = seconds * random.uniform(0, 1, len(seconds))
    return arrays | {
        "now": NOW,
        "arrival": NOW - age,
        "isolated_time": age * random.uniform(0, 1, len(seconds)),
    }


def with_tenants(
    arrays: dict[str, Any], jobs: int, kind: str, random: np.random.Generator
) -> dict[str, Any]:
    """Five tenants of weights 1 to 5."""
    if not TENANTS[kind]:
        return arrays
    tenants = [
        {"name": f"tenant-{e}", "weight": e + 1.0, "policy": policy}
        for e, policy in enumerate(TENANTS[kind])
    ]
    return arrays | {"tenant": random.integers(0, 5, jobs), "tenants": tenants}


# --- optsched --------------------------------------------------------------------------------------------------------


def ours(formulation: str, jobs: int, rows: str = "setting", **how: Any) -> Callable[[], Any]:
    import optsched.api

    arrays = setting(jobs, **how) if rows == "setting" else distinct(jobs, **how)
    optsched.solve("@quickstart", formulation)  # load everything

    def run() -> Any:
        solution = optsched.solve(optsched.Instance.from_arrays(**arrays), formulation)
        assert solution.ok and solution.status == "optimal", solution.certificate
        full = sum(price > 0 for price in solution.prices.values())
        return [
            solution.objective,
            solution.gap,
            len(solution.allocation.classes),
            max(len(solution.stages), 1),
            full,
        ]

    return run


# --- the same as a script --------------------------------------------------------------------------------------------


def rate_table(arrays: dict[str, Any]) -> Any:
    """Rate alone of every workload on every pool."""
    pools, table = list(arrays["pools"]), arrays["workloads"].values()
    return np.array([[workload["throughput"][pool]["1"] for pool in pools] for workload in table])


class Script:
    """The arrays that a script begins with: rates, gangs, normalisers, and the rows of time and capacity."""

    def __init__(self, arrays: dict[str, Any]) -> None:
        self.capacity = np.array(list(arrays["pools"].values()), float)
        self.rate = (
            arrays["throughput"]
            if "throughput" in arrays
            else rate_table(arrays)[arrays["workload"]]
        )
        self.jobs = len(self.rate)
        self.gang = np.broadcast_to(np.asarray(arrays.get("gpus", 1), float), self.jobs)
        self.weight = arrays["weight"]
        self.steps = arrays["steps"]
        self.rate = np.where(self.gang[:, None] <= self.capacity, self.rate, 0.0)
        self.prop = self.rate @ self.capacity / self.capacity.sum()
        self.age = arrays.get("now", 0.0) - np.asarray(arrays.get("arrival", 0.0))
        self.past = np.asarray(arrays.get("isolated_time", 0.0))
        self.tenant = arrays.get("tenant", np.full(self.jobs, -1))
        self.tenants = arrays.get("tenants", [])

    def variables(self) -> tuple[Any, list[Any]]:
        """x and the rows that keep time and capacity."""
        import cvxpy as cp

        x = cp.Variable(self.rate.shape, nonneg=True)
        return x, [cp.sum(x, axis=1) <= 1, self.gang @ x <= self.capacity]


def script(program: str, jobs: int, rows: str = "setting", **how: Any) -> Callable[[], Any]:
    import cvxpy as cp

    arrays = setting(jobs, **how) if rows == "setting" else distinct(jobs, **how)
    tiny = cp.Variable()
    cp.Problem(cp.Maximize(tiny), [tiny <= 1]).solve(solver="CLARABEL")  # load everything
    return lambda: PROGRAMS[program](arrays)


def packed_max_min(arrays: dict[str, Any]) -> list[float]:
    """One variable for each job or pair of jobs and pool."""
    import cvxpy as cp

    given, kind, pools = Script(arrays), arrays["workload"], list(arrays["pools"])
    shared = np.zeros((len(arrays["workloads"]), len(arrays["workloads"]), len(pools)))
    names = list(arrays["workloads"])
    for entry in arrays["colocation"]:
        a, b = (names.index(name) for name in entry["workloads"])
        shared[a, b, pools.index(entry["pool"])], shared[b, a, pools.index(entry["pool"])] = entry[
            "throughput"
        ]
    first, second = np.triu_indices(given.jobs, 1)
    x, y = (
        cp.Variable(given.rate.shape, nonneg=True),
        cp.Variable((len(first), len(pools)), nonneg=True),
    )
    ones, pair = np.ones(len(first)), np.arange(len(first))
    of_first = sp.csr_matrix((ones, (first, pair)), shape=(given.jobs, len(first)))
    of_second = sp.csr_matrix((ones, (second, pair)), shape=(given.jobs, len(first)))
    scale = (1.0 / given.prop / given.weight)[:, None]
    level = cp.sum(cp.multiply(given.rate * scale, x), axis=1)
    level += of_first @ cp.sum(
        cp.multiply(shared[kind[first], kind[second]] * scale[first], y), axis=1
    )
    level += of_second @ cp.sum(
        cp.multiply(shared[kind[second], kind[first]] * scale[second], y), axis=1
    )
    time = cp.sum(x, axis=1) + (of_first + of_second) @ cp.sum(y, axis=1)
    t = cp.Variable()
    rows = [level >= t, time <= 1, cp.sum(x, axis=0) + cp.sum(y, axis=0) <= given.capacity]
    problem = cp.Problem(cp.Maximize(t), rows)
    problem.solve(solver="CLARABEL")
    return [problem.value, 1]


def water_filling(arrays: dict[str, Any]) -> list[float]:
    """A linear program for each level; whose row has a positive dual is held."""
    import cvxpy as cp

    given = Script(arrays)
    level, held, programs = np.zeros(given.jobs), np.zeros(given.jobs, bool), 0
    while not held.all():
        rate = np.where(held, 0.0, given.weight / given.gang)
        for e, tenant in enumerate(given.tenants):
            rising = np.flatnonzero((given.tenant == e) & ~held)
            if tenant["policy"] == "fifo":
                rate[rising] = 0.0
                rate[rising[:1]] = tenant["weight"] / given.gang[rising[:1]]
            else:
                rate[rising] *= tenant["weight"] / given.weight[rising].sum()
        x, rows = given.variables()
        c = cp.Variable()
        nt = cp.sum(cp.multiply(given.rate / given.prop[:, None], x), axis=1)
        levels = nt >= level - SLACK + cp.multiply(rate, c)
        problem = cp.Problem(cp.Maximize(c), [*rows, levels])
        problem.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)
        level = level + rate * max(c.value, 0.0)
        pull = rate * levels.dual_value
        held |= pull > max(1e-6, 1e-4 * pull.max())
        programs += 1
    return [float(level.sum()), programs]


def finish_time(arrays: dict[str, Any]) -> list[float]:
    """The convex program, with the inverse of a positive affine function for each job."""
    import cvxpy as cp

    given = Script(arrays)
    y = given.capacity[None, :] / (given.jobs * given.gang[:, None])
    iso = (given.rate * y / np.maximum(1.0, y.sum(axis=1, keepdims=True))).sum(axis=1)
    alone = given.past + given.steps / iso
    x, rows = given.variables()
    speed = cp.sum(cp.multiply(given.rate / given.steps[:, None] * alone[:, None], x), axis=1)
    problem = cp.Problem(cp.Minimize(cp.max(given.age / alone + cp.inv_pos(speed))), rows)
    problem.solve(solver="CLARABEL")
    return [problem.value, 1]


def makespan(arrays: dict[str, Any]) -> list[float]:
    """One linear program for the inverse of the makespan, in hours."""
    import cvxpy as cp

    given = Script(arrays)
    x, rows = given.variables()
    t = cp.Variable()
    speed = cp.sum(cp.multiply(3600.0 * given.rate / given.steps[:, None], x), axis=1)
    problem = cp.Problem(cp.Maximize(t), [*rows, speed >= t])
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9)
    return [3600.0 / problem.value, 1]


PROGRAMS = {
    "max-min-fairness": packed_max_min,
    "water-filling": water_filling,
    "finish-time-fairness": finish_time,
    "makespan": makespan,
}

# --- the table -------------------------------------------------------------------------------------------------------

RUNS: tuple[tuple[str, str, int, int, str, dict[str, Any]], ...] = (
    ("packed max-min", "max-min-fairness", 2_048, 256, "bar 0.2 s", {"packed": True}),
    ("packed max-min, all weights 1", "max-min-fairness", 2_048, 256, "bar 0.2 s", {"packed": True, "weights": False}),
    ("water filling, 5 tenants", "water-filling", 2_048, 2_048, "bar 0.15 s", {"tenants": "fairness"}),
    ("water filling, 5 tenants, 2 queue", "water-filling", 2_048, 256, "", {"tenants": "mixed"}),
    ("water filling, flat", "water-filling", 2_048, 2_048, "", {}),
    ("finish-time fairness", "finish-time-fairness", 2_048, 2_048, "bar 0.4 s", {"ages": True}),
    ("makespan", "makespan", 2_048, 2_048, "", {}),
    ("water filling, distinct rows", "water-filling", 2_048, 2_048, "bar 5 s", {"rows": "distinct"}),
    ("  the same with 5 tenants", "water-filling", 2_048, 2_048, "", {"rows": "distinct", "tenants": "fairness"}),
    ("finish-time fairness, distinct rows", "finish-time-fairness", 2_048, 2_048, "bar 2 s",
     {"rows": "distinct", "ages": True}),
)  # fmt: skip
"""Label, formulation, jobs, jobs of the script, what is aimed at, and how the arrays are made.

With its weights the packed setting is an easy instance: jobs of weight 5 are at the highest level that they can have,
and no pool has a price. With equal weights capacity binds.
"""


def line(label: str, jobs: int, found: Measurement, extra: str) -> None:
    print(
        f"{label:<38} n = {jobs:5,d} {found.seconds:9.3f} s {found.megabytes:7.0f} MB   {extra}",
        flush=True,
    )


def compared(
    label: str, formulation: str, jobs: int, fewer: int, bar: str, how: dict[str, Any], repeat: int
) -> None:
    """optsched on all jobs, and on as many as the script does in the same run."""
    found = measure(HERE, "ours", repeat, formulation=formulation, jobs=jobs, **how)
    _, gap, classes, stages, full = found.result
    told = f"{classes} classes, {stages} stages, {full} of 3 pools have a price, certified gap {gap:.0e}; {bar}"
    line(label, jobs, found, told.rstrip("; "))
    mine = (
        found
        if fewer == jobs
        else measure(HERE, "ours", repeat, formulation=formulation, jobs=fewer, **how)
    )
    peer = measure(HERE, "script", 1, program=formulation, jobs=fewer, **how)
    line("  cvxpy + Clarabel, job by job", fewer, peer, f"{peer.result[1]} programs")
    agree = abs(mine.result[0] / peer.result[0] - 1)
    print(
        f"  optsched takes {mine.seconds / peer.seconds:.4f} of that; objectives agree to {agree:.0e}",
        flush=True,
    )


def main(repeat: int = 3) -> None:
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    print(
        f"one thread, medians of {repeat} fresh processes; load of the machine {load} on {os.cpu_count()} cores"
    )
    for label, formulation, jobs, fewer, bar, how in RUNS:
        compared(label, formulation, jobs, fewer, bar, how, repeat)


if __name__ == "__main__":
    main()
