"""Every continuous formulation under every side constraint, on one market of distinct jobs: processor seconds.

The market has four pools with prices and power, twenty tenants, jobs of different ages, some of them with deadlines
and some pinned by the constraint that is asked for. Each line is a whole solve, from arrays to the certified solution,
in a fresh process with one thread. The solvers beside it solve the same program, as `solver=NAME` does.

    python benchmarks/constraints.py                          1,000 jobs
    python benchmarks/constraints.py 100000x4 --solver auto   without the other solvers
    python benchmarks/constraints.py 1000x4 -f makespan -C budget -C deadlines
"""

from __future__ import annotations

import argparse
import resource
import subprocess
from collections.abc import Callable
from typing import Any

import arguments
import numpy as np
from measure import ended, measure
from spine import distinct_rows

SIZES = ("1000x4",)
SOLVERS = ("auto", "clarabel", "highs", "glop")
FORMULATIONS = (
    "max-min-fairness", "makespan", "max-throughput", "proportional-fairness", "finish-time-fairness",
    "throughput-per-cost", "cost", "water-filling", "drf", "partial-allocation",
)  # fmt: skip
TENANTS = 20


def market(jobs: int, pools: int) -> dict[str, Any]:
    """Arrays of distinct jobs on pools with prices and power; 35 % of the jobs have deadlines that all can be kept."""
    arrays = distinct_rows(jobs, pools)
    random = np.random.default_rng([1, jobs, pools])
    fastest = arrays["steps"] / arrays["throughput"].max(axis=1)
    due = random.random(jobs) < 0.35
    return arrays | {
        "pools": [
            {"name": name, "nodes": gpus, "gpus_per_node": 1,
             "cost_per_gpu_hour": 1.0 + place, "watts_per_gpu": 150.0 + 100.0 * place, "watts_idle": 50.0}
            for place, (name, gpus) in enumerate(arrays["pools"].items())
        ],
        "arrival": -random.exponential(7200.0, jobs),
        "deadline": np.where(due, fastest * random.uniform(8.0, 40.0, jobs), np.inf),
        "tenant": random.integers(0, TENANTS, jobs),
        "tenants": [{"name": f"t{row}", "weight": 1.0 + row % 3} for row in range(TENANTS)],
    }  # fmt: skip


def constraints(pools: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Side constraints by name; those with a limit leave about two thirds of what the market could use."""
    gpus = np.array([pool["nodes"] for pool in pools], float)
    cost = np.array([pool["cost_per_gpu_hour"] for pool in pools])
    watts = np.array([pool["watts_per_gpu"] for pool in pools])
    names = [pool["name"] for pool in pools]
    return {
        "none": [],
        "budget": [{"kind": "budget", "limit": 0.65 * float(gpus @ cost)}],
        "power": [{"kind": "power", "limit": 0.65 * float(gpus @ watts)}],
        "quota": [{"kind": "quota", "tenant": f"t{row}", "share": 0.03} for row in range(5)],
        "pinned": [{"kind": "pinned", "tenant": "t0", "pools": names[1:]}],
        "forbidden": [{"kind": "forbidden", "tenant": "t1", "pools": names[:1]}],
        "deadlines": [{"kind": "deadlines"}],
        "minimum-service": [{"kind": "minimum-service", "fraction": 0.2, "of": "isolated"}],
        "minimum-share": [{"kind": "minimum-share", "tenant": "t2", "share": 0.06}],
        "deadlines+budget": [{"kind": "deadlines"}, {"kind": "budget", "limit": 0.65 * float(gpus @ cost)}],
    }  # fmt: skip


def solved(
    jobs: int, pools: int, formulation: str, constraint: str, solver: str, limit: float
) -> Callable[[], Any]:
    """Processor seconds, status, gap, objective and solver of one solve."""
    import optsched

    arrays = market(jobs, pools)
    asked = constraints(arrays["pools"])[constraint]
    optsched.solve("@quickstart")  # load everything

    def run() -> Any:
        instance = optsched.Instance.from_arrays(**arrays)
        solution = optsched.solve(
            instance, formulation, constraints=asked, solver=solver, time_limit=limit
        )
        return [solution.status, solution.gap, solution.objective, solution.solver.name]

    return run


def nothing(jobs: int, pools: int, **_: Any) -> Callable[[], Any]:
    """What a run of `solved` does beside its solve."""
    import optsched

    market(jobs, pools)
    optsched.solve("@quickstart")
    return lambda: None


def spent(function: str, limit: float, **asked: Any) -> tuple[float, Any]:
    """Processor seconds of a fresh process and of those that it started, and what it measured."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = measure("constraints", function, 1, timeout=3 * limit, limit=limit, **asked)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, made


def cell(overhead: float, **asked: Any) -> tuple[str, float | None]:
    """What one solve says, in a few words, and its objective."""
    try:
        seconds, made = spent("solved", **asked)
    except subprocess.TimeoutExpired:
        return f"no end in {3 * asked['limit']:g} s", None
    except subprocess.CalledProcessError as error:
        return ended(error)[:70], None
    status, gap, objective, name = made.result
    bracket = "" if gap is None else f" gap {gap:.0e}"
    return (
        f"{seconds - overhead:7.2f} s {made.megabytes:5.0f} MB {status}{bracket} by {name}",
        objective,
    )


def compared(overhead: float, given: Any, **asked: Any) -> None:
    """One line for each solver, with how far its objective is from that of the first."""
    first = None
    for solver in given.solver or SOLVERS:
        text, objective = cell(overhead, solver=solver, limit=given.limit, **asked)
        apart = ""
        if first is None:
            first = objective
        elif objective is not None and first:
            apart = f"   {objective / first - 1:+.0e}"
        label = (
            f"{asked['jobs']:>7,} {asked['formulation']:<22}{asked['constraint']:<18}{solver:<9}"
        )
        print(label + text + apart, flush=True)


def main() -> None:
    names = list(constraints(market(8, 2)["pools"]))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", type=arguments.size, metavar="JOBSxPOOLS")
    parser.add_argument("-f", "--formulation", action="append", choices=FORMULATIONS)
    parser.add_argument("-C", "--constraint", action="append", choices=names)
    parser.add_argument("--solver", action="append", help="default: " + ", ".join(SOLVERS))
    parser.add_argument("--limit", type=arguments.seconds, default=60.0, help="seconds of each")
    given = parser.parse_args()
    for text in given.sizes or SIZES:
        jobs, pools = (int(part) for part in text.split("x"))
        overhead, _ = spent("nothing", given.limit, jobs=jobs, pools=pools)
        for formulation in given.formulation or FORMULATIONS:
            for constraint in given.constraint or names:
                asked = {"formulation": formulation, "constraint": constraint}
                compared(overhead, given, jobs=jobs, pools=pools, **asked)


if __name__ == "__main__":
    main()
