"""Multiple-choice knapsacks, at most one choice per job, against solvers that are given the whole program.

Each line is a whole solve of a generated instance in a fresh process with one thread: processor seconds, the value, and
its distance to the smallest bound of all. A run ends at the gap or at the limit.

    python benchmarks/whole_jobs.py                            10,000 jobs with 5 resources, 1,000 jobs with 30
    python benchmarks/whole_jobs.py 100000x5 --solver auto     without the other solvers
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Callable
from typing import Any

import arguments
from measure import ended, measure

SIZES = ("10000x5", "1000x30")
SOLVERS = ("auto", "highs", "cp-sat")


def solved(
    jobs: int, resources: int, choices: int, solver: str, gap: float, limit: float
) -> Callable[[], Any]:
    """Processor seconds, value and bound of one solve."""
    import optsched
    from optsched.generate import generate

    def instance(jobs: int) -> optsched.Instance:
        sizes = {"jobs": jobs, "resources": resources, "choices": choices}
        return generate("knapsack", **sizes, tightness=0.25, seed=0).instance

    small = instance(max(2, 4000 // choices))
    optsched.solve(small, "multiple-choice", solver=solver, gap=0.1)  # load everything
    whole = instance(jobs)

    def run() -> Any:
        began = time.process_time()
        solution = optsched.solve(
            whole, "multiple-choice", solver=solver, gap=gap, time_limit=limit
        )
        return [time.process_time() - began, solution.objective, solution.bound]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "sizes", nargs="*", type=arguments.size, default=SIZES, metavar="JOBSxRESOURCES"
    )
    parser.add_argument("--choices", type=arguments.count, default=10, help="options of a job")
    parser.add_argument("--gap", type=arguments.seconds, default=1e-4, help="relative, of each run")
    parser.add_argument(
        "--limit", type=arguments.seconds, default=30.0, help="seconds for each run"
    )
    parser.add_argument(
        "--solver", action="append", metavar="NAME", help=f"this one; default: {', '.join(SOLVERS)}"
    )
    given = parser.parse_args()
    for size in given.sizes:
        jobs, resources = map(int, size.split("x"))
        print(f"\n{jobs:,} jobs x {given.choices} choices, {resources} resources")
        found = {}
        for solver in given.solver or SOLVERS:
            try:
                runs = measure(
                    "whole_jobs", "solved", 1, jobs=jobs, resources=resources, choices=given.choices,
                    solver=solver, gap=given.gap, limit=given.limit,
                )  # fmt: skip
            except subprocess.CalledProcessError as error:
                print(f"  {solver:<8} {ended(error)}")
                continue
            found[solver] = runs.result
        first = next(iter(found.values()))[0] if found else 0.0
        least = min((bound for _, _, bound in found.values() if bound is not None), default=None)
        for solver, (seconds, value, _) in found.items():
            gap = "" if least is None or not value else f"gap {least / value - 1.0:8.1e}   "
            print(f"  {solver:<8} {seconds:8.2f} s   value {value or 0.0:14,.0f}   {gap}"
                  f"{seconds / first:.1f} times the time")  # fmt: skip


if __name__ == "__main__":
    main()
