"""The way from an instance to a certified allocation, against what a user would pick instead.

Every figure is the median of fresh processes with one thread; ratios compare runs of the same session. t*/tmax < 1 says
that capacity binds (an instance with t* = tmax is easy for every solver).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import Measurement, measure

HERE = "spine"


def distinct_rows(jobs: int, pools: int, seed: int = 0) -> dict[str, Any]:
    """Capacity-bound instance with distinct rows: heterogeneous speed-ups, gangs, weights, 5 % unusable pools."""
    random = np.random.default_rng([seed, jobs, pools])
    base = np.exp(random.normal(0, 1.0, jobs))
    speed = np.geomspace(1.0, 6.0, pools)
    rate = (
        base[:, None]
        * speed ** random.beta(2, 2, jobs)[:, None]
        * np.exp(random.normal(0, 0.2, (jobs, pools)))
    )
    unusable = random.random((jobs, pools)) < 0.05
    unusable[np.arange(jobs), random.integers(0, pools, jobs)] = False
    rate[unusable] = 0.0
    gpus = random.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05])
    weight = random.choice([1.0, 2.0, 4.0], jobs, p=[0.8, 0.15, 0.05])
    share = random.dirichlet(np.full(pools, 5.0))
    capacity = np.maximum(8, np.floor(share * gpus.sum() / 8)).astype(int)
    steps = base * np.exp(random.normal(np.log(28800), 1.2, jobs))
    return {
        "pools": {f"pool{j}": int(count) for j, count in enumerate(capacity)},
        "throughput": rate, "gpus": gpus, "weight": weight, "steps": steps,
    }  # fmt: skip


def optsched_max_min(jobs: int, pools: int, solver: str = "auto") -> Callable[[], Any]:
    import optsched.api

    arrays = distinct_rows(jobs, pools)
    optsched.solve("@quickstart")  # load everything

    def run() -> Any:
        solution = optsched.solve(
            optsched.Instance.from_arrays(**arrays), "max-min-fairness", solver=solver
        )
        assert solution.ok and solution.status == "optimal"
        return [solution.objective, solution.gap]

    return run


def cvxpy_max_min(jobs: int, pools: int) -> Callable[[], Any]:
    import cvxpy as cp

    arrays = distinct_rows(jobs, pools)
    rate, gpus, weight = arrays["throughput"], arrays["gpus"].astype(float), arrays["weight"]
    capacity = np.array(list(arrays["pools"].values()), float)
    tiny = cp.Variable()
    cp.Problem(cp.Maximize(tiny), [tiny <= 1]).solve(solver="CLARABEL")  # load everything

    def run() -> Any:
        prop = rate @ (capacity / capacity.sum())
        level = rate * (gpus / weight / prop)[:, None]
        x, t = cp.Variable(rate.shape, nonneg=True), cp.Variable()
        rows = [
            cp.sum(cp.multiply(level, x), axis=1) >= t,
            cp.sum(x, axis=1) <= 1,
            gpus @ x <= capacity,
        ]
        problem = cp.Problem(cp.Maximize(t), rows)
        problem.solve(solver="CLARABEL")
        return [problem.value, float(level.max(axis=1).min())]

    return run


def million(jobs: int, kinds: int) -> Callable[[], Any]:
    import optsched.api

    random = np.random.default_rng(1)
    rows = random.lognormal(0, 1, (kinds, 3))
    gang, weight = random.choice([1, 2, 4, 8], kinds), random.choice([1.0, 5.0], kinds)
    kind = random.integers(0, kinds, jobs)
    arrays = {
        "throughput": rows[kind],
        "gpus": gang[kind],
        "weight": weight[kind],
        "steps": random.uniform(1, 2, jobs),
    }
    optsched.solve("@quickstart")

    def run() -> Any:
        instance = optsched.Instance.from_arrays(
            pools={name: jobs // 4 for name in "abc"}, **arrays
        )
        solution = optsched.solve(instance, "max-min-fairness")
        assert solution.ok and solution.allocation is not None
        return [solution.objective, len(solution.allocation.classes)]

    return run


def packed_arrays(jobs: int, workloads: int = 26) -> dict[str, Any]:
    """Gavel's microbenchmark setting: single-GPU jobs of 26 workloads, n/4 GPUs of 3 types, all pairs measured."""
    random = np.random.default_rng(2)
    pools = ("v100", "p100", "k80")
    alone = random.lognormal(1, 1, workloads)[:, None] * np.array([6.0, 3.0, 1.0]) ** random.beta(
        2, 2, (workloads, 1)
    )
    names = [f"workload-{w}" for w in range(workloads)]
    colocation = [
        {
            "workloads": [names[a], names[b]], "pool": pool, "gpus": 1,
            "throughput": [alone[a, j] * share[0], alone[b, j] * share[a != b]],
        }
        for a in range(workloads) for b in range(a, workloads) for j, pool in enumerate(pools)
        for share in [random.uniform(0.3, 0.9, 2).tolist()]
    ]  # fmt: skip
    table = {
        name: {"throughput": {pool: {"1": alone[w, j]} for j, pool in enumerate(pools)}}
        for w, name in enumerate(names)
    }
    return {
        "pools": {pool: jobs // 4 for pool in pools}, "workloads": table, "colocation": colocation,
        "workload": random.integers(0, workloads, jobs),
    }  # fmt: skip


def packed(jobs: int) -> Callable[[], Any]:
    import optsched.api

    arrays = packed_arrays(jobs)
    optsched.solve("@packing")

    def run() -> Any:
        solution = optsched.solve(optsched.Instance.from_arrays(**arrays), "max-min-fairness")
        assert solution.ok
        return [solution.objective, solution.gap]

    return run


def load_json(path: str) -> Callable[[], Any]:
    import optsched.api

    optsched.load("@quickstart")
    return lambda: len(optsched.load(path).jobs)


def write_jobs(path: Path, jobs: int) -> None:
    """An instance file with a throughput of its own for every job."""
    arrays = distinct_rows(jobs, 3)
    pools = arrays["pools"]
    fields = ("gpus", "steps", "weight")
    rows = zip(
        *(arrays[field].tolist() for field in fields), arrays["throughput"].tolist(), strict=True
    )
    document = {
        "format": "optsched-instance/1",
        "cluster": {
            "pools": [
                {"name": name, "nodes": gpus, "gpus_per_node": 1} for name, gpus in pools.items()
            ]
        },
        "jobs": [
            {"id": f"job-{row}", "arrival": 0.0, "throughput": dict(zip(pools, rates, strict=True))}
            | dict(zip(fields, numbers, strict=True))
            for row, (*numbers, rates) in enumerate(rows)
        ],
    }
    path.write_text(json.dumps(document))


def import_time(statement: str, repeat: int) -> float:
    """Median seconds of a fresh interpreter that runs the statement, less an empty one."""
    import statistics
    import subprocess
    import sys
    import time

    def once(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - started

    return statistics.median(once(statement) for _ in range(repeat)) - statistics.median(
        once("pass") for _ in range(repeat)
    )


def line(label: str, ours: Measurement, extra: str) -> None:
    print(f"{label:<52} {ours.seconds:8.3f} s {ours.megabytes:8.0f} MB   {extra}")


def main(repeat: int = 3) -> None:
    print(f"{'one thread, medians of fresh processes':<52} {'wall':>10} {'memory':>11}")
    for jobs, pools in ((10_000, 3), (2_000, 4)):
        ours = measure(HERE, "optsched_max_min", repeat, jobs=jobs, pools=pools)
        peer = measure(HERE, "cvxpy_max_min", repeat, jobs=jobs, pools=pools)
        agree = abs(ours.result[0] / peer.result[0] - 1)
        line(
            f"max-min {jobs} distinct x {pools}: compile to certificate",
            ours,
            f"certified gap {ours.result[1]:.1e}",
        )
        line(
            "  cvxpy + Clarabel, the same program",
            peer,
            f"t*/tmax {peer.result[0] / peer.result[1]:.3f}",
        )
        print(
            f"  ratio {ours.seconds / peer.seconds:.2f} of cvxpy's time, objectives agree to {agree:.1e}"
        )
    for solver in ("highs", "highs-ipm", "clarabel"):
        ours = measure(HERE, "optsched_max_min", 1, jobs=2_000, pools=4, solver=solver)
        line(f"max-min 2000 distinct x 4 on {solver}", ours, f"certified gap {ours.result[1]:.1e}")
    ours = measure(HERE, "million", repeat, jobs=1_000_000, kinds=166)
    line("max-min 1,000,000 jobs from arrays", ours, f"{ours.result[1]} classes; bar 3 s, 600 MB")
    for jobs in (512, 2_048, 8_192):
        ours = measure(HERE, "packed", repeat, jobs=jobs)
        line(
            f"packed max-min, 26 workloads, n = {jobs}",
            ours,
            "bar 0.3 s at 2048" if jobs == 2_048 else "",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.json"
        write_jobs(path, 100_000)
        ours = measure(HERE, "load_json", repeat, path=str(path))
        line(
            f"load 100,000 jobs from JSON ({path.stat().st_size / 1e6:.0f} MB)",
            ours,
            "bar 2.5 s, 300 MB",
        )
    mine = import_time("import optsched", 5)
    base = import_time("import numpy, scipy.sparse, pydantic", 5)
    work = import_time("import optsched.api", 5)
    print(
        f"import optsched {mine:.3f} s; optsched.api {work:.3f} s; numpy, scipy.sparse, pydantic {base:.3f} s"
    )
    print(f"  ratio {mine / base:.2f} (with optsched.api {work / base:.2f}); bar 1.5")


if __name__ == "__main__":
    main()
