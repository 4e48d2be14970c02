"""Programs solved in parts (POP), beside the exact method and the exact optimum by the same solver, in one process.

Seconds are those of the clock, on one thread, from candidates to the certified solution, all parts together. `loss` is
that of the objective; `bound` is how far the bound of the parts is from the optimum.

    python benchmarks/parts.py                              1,000 and 10,000 different jobs on 3 pools
    python benchmarks/parts.py 10000x10 --solver clarabel   parts by another solver
    python benchmarks/parts.py 1000x3 --packed              jobs may share GPUs, a column for every pair
    python benchmarks/parts.py 10000x3 --formulation max-throughput
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from typing import Any

import arguments
from columns import packed
from measure import ONE_THREAD
from spine import distinct_rows

import optsched

PARTS = (2, 4, 8, 16, 32)


def solved(candidates: Any, formulation: str, repeat: int, **how: Any) -> tuple[float, Any]:
    """Median seconds, and the solution."""
    spent = []
    for _ in range(repeat):
        began = time.perf_counter()  # solvers that may overrun have a process of their own
        solution = optsched.solve(candidates, formulation, **how)
        spent.append(time.perf_counter() - began)
        assert solution.certificate.ok and solution.objective is not None, solution.status
    return statistics.median(spent), solution


def _arrays(jobs: int, pools: int, share: bool) -> dict[str, Any]:
    if not share:
        return distinct_rows(jobs, pools)
    arrays = packed(jobs, pools, False)
    # Scarcer by half, so that capacity binds in pairs too
    for pool in arrays["pools"]:
        pool["nodes"] = max(8, pool["nodes"] // 2)
    return arrays


def table(text: str, given: argparse.Namespace) -> None:
    jobs, pools = (int(part) for part in text.split("x"))
    instance = optsched.Instance.from_arrays(**_arrays(jobs, pools, given.packed))
    candidates = optsched.compile(instance)
    solve = (candidates, given.formulation, given.repeat)
    seconds, exact = solved(*solve)
    print(
        f"\n{jobs:,} jobs x {pools} pools, {given.formulation}, {len(candidates.columns):,} columns"
    )
    print(f"{'':<22}{'s':>9}  {'loss':>8}  bound")
    print(f"{'exact, ' + exact.solver.name:<22}{seconds:9.3f}  {0:8.2%}  {exact.gap:.0e}")
    if given.packed:
        seconds, other = solved(
            instance, given.formulation, given.repeat, generate_columns=True, gap=0.0
        )
        print(f"{'exact, few columns':<22}{seconds:9.3f}  {0:8.2%}  {other.gap:.0e}")
    if given.solver != "auto":
        seconds, other = solved(*solve, solver=given.solver)
        print(f"{'exact, ' + given.solver:<22}{seconds:9.3f}  {0:8.2%}  {other.gap:.0e}")
    for parts in PARTS:
        seconds, found = solved(*solve, solver=given.solver, parts=parts)
        loss = abs(exact.objective - found.objective) / abs(exact.objective)
        over = abs(found.bound - exact.objective) / abs(exact.objective)
        print(f"{f'{parts} parts':<22}{seconds:9.3f}  {loss:8.2%}  {over:.0e}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", type=arguments.size, metavar="JOBSxPOOLS")
    parser.add_argument("--packed", action="store_true", help="jobs may share GPUs")
    parser.add_argument("--solver", default="auto", help="of the parts")
    parser.add_argument("--formulation", default="max-min-fairness")
    parser.add_argument("--repeat", type=arguments.count, default=3)
    given = parser.parse_args()
    for text in given.sizes or ["1000x3", "10000x3"]:
        table(text, given)


if __name__ == "__main__":
    if any(os.environ.get(name) != count for name, count in ONE_THREAD.items()):
        # Libraries read these once, when they are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    main()
