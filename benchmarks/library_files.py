"""Problems of the libraries of operations research: the solver that is chosen, beside HiGHS and CP-SAT alone.

Each line is a whole solve in a fresh process with one thread: the objective, its distance to the best known one, the
certified gap, what proves it, and processor seconds. The limit is one of the clock, so on a busy machine a run gets
less of a processor than the limit says.

    python benchmarks/library_files.py d05100 d10100 --limit 60 --seeds 5 --best best.csv
    python benchmarks/library_files.py mknapcb1.txt --limit 20         all problems of a file; mknapcb1.txt#3 is one
    python benchmarks/library_files.py r500x20.txt --solver auto --solver highs --solver cp-sat --solver pyjobshop

PyJobShop is another modelling library with CP-SAT inside. It takes unrelated machines here, and
must be installed.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import arguments
from measure import ended, measure

from optsched.benchmarking.best_known import read_best
from optsched.libraries import problems_in

SOLVERS = ("auto", "highs", "cp-sat")
PYJOBSHOP = "pyjobshop"
TINY = "1\n3 1 0\n5 6 7\n1 2 3\n4\n"
"""A problem that loads everything."""


class Problem(NamedTuple):
    """A problem of a file, and the best objective that is known."""

    address: str
    name: str
    best: float | None


def solved(address: str, solver: str, seed: int, limit: float) -> Callable[[], Any]:
    """Processor seconds, objective, bound, status and proof of one solve."""
    import optsched
    from optsched.libraries.files import problem_of_bytes

    tiny = problem_of_bytes(TINY.encode())
    assert tiny is not None
    optsched.solve(tiny.instance, tiny.formulation)
    if solver == PYJOBSHOP:
        return by_pyjobshop(address, seed, limit)

    def run() -> Any:
        began = time.process_time()
        options = timeline_options(address) if solver == "cp-sat" else {}
        found = optsched.solve(address, solver=solver, seed=seed, time_limit=limit, **options)
        spent = time.process_time() - began
        return [spent, found.objective, found.bound, found.status, found.certificate.proof]

    return run


def timeline_options(address: str) -> dict[str, str]:
    """CP-SAT takes makespans as timelines."""
    makespan = problems_in(address)[0].formulation == "makespan-unrelated"
    return {"program": "timeline"} if makespan else {}


def by_pyjobshop(address: str, seed: int, limit: float) -> Callable[[], Any]:
    """The same of PyJobShop, for unrelated machines: the makespan of the same durations."""
    from pyjobshop import Model  # not among the packages of this project

    from optsched import load
    from optsched.assembly import compile_for, make_formulation
    from optsched.solution.plan import LinearPlan

    formulation = make_formulation("makespan-unrelated")
    compiled = compile_for(formulation, load(address))
    plan = formulation.build(formulation.classes(compiled))
    if not isinstance(plan, LinearPlan) or plan.machines is None:
        raise ValueError(f"{address}: pyjobshop is compared on unrelated machines only")
    seconds = plan.machines().seconds.astype(int)

    def run() -> Any:
        began = time.process_time()
        model = Model()
        machines = [model.add_machine() for _ in seconds]
        for durations in seconds.T.tolist():
            task = model.add_task()
            for machine, duration in zip(machines, durations, strict=True):
                model.add_mode(task, machine, duration)
        found = model.solve(time_limit=limit, display=False, num_workers=1, random_seed=seed)
        spent = time.process_time() - began
        proof = "claimed" if str(found.status).lower().endswith("optimal") else "none"
        none = not math.isfinite(found.objective)
        value, bound = (None, None) if none else (found.objective, found.lower_bound)
        return [spent, value, bound, found.status.value, proof]

    return run


def listed(files: Iterable[str], best: Path | None) -> list[Problem]:
    """All problems of some files; best known objectives of a table go before those of the files."""
    known = {} if best is None else read_best(best)
    stated = {name: each.objective for (name, _), each in known.items()}
    problems = []
    for file in files:
        for each in problems_in(file):
            name = Path(each.source).name
            problems.append(Problem(each.source, name, stated.get(name, each.best_known)))
    return problems


def percent(value: float | None, of: float | None) -> str:
    """Distance of a value from another one."""
    if value is None or of is None:
        return ""
    return f"{100.0 * abs(value - of) / max(abs(of), 1e-9):.3f} %"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="FILE, or FILE#NUMBER")
    parser.add_argument("--limit", type=arguments.seconds, default=60.0, help="seconds of each run")
    parser.add_argument("--seeds", type=arguments.count, default=1, help="how many, from 0 on")
    parser.add_argument("--best", type=Path, help="CSV with the columns instance and objective")
    parser.add_argument(
        "--solver", action="append", metavar="NAME", help=f"this one; default: {', '.join(SOLVERS)}"
    )
    given = parser.parse_args()
    solvers = given.solver or SOLVERS
    off: dict[str, list[float]] = {solver: [] for solver in solvers}
    print(
        "problem          solver   seed       objective  off best       gap  proof          CPU s"
    )
    for problem in listed(given.files, given.best):
        for solver, seed in ((s, seed) for s in solvers for seed in range(given.seeds)):
            try:
                seconds, objective, bound, status, proof = measure(
                    "library_files", "solved", 1, address=problem.address, solver=solver,
                    seed=seed, limit=given.limit,
                ).result  # fmt: skip
            except subprocess.CalledProcessError as error:
                print(f"{problem.name:<16} {solver:<8} {ended(error)}")
                continue
            if objective is not None and problem.best:
                off[solver].append(100.0 * (objective - problem.best) / abs(problem.best))
            words = f"{objective:15,.1f}" if objective is not None else f"{status:>15}"
            print(f"{problem.name:<16} {solver:<8} {seed:4d} {words} {percent(objective, problem.best):>9}"
                  f" {percent(bound, objective):>9}  {proof:<13} {seconds:6.1f}", flush=True)  # fmt: skip
    for solver, each in off.items():
        if each:
            print(f"{solver}: objective over best known {statistics.mean(each):+.3f} % in the mean, "
                  f"{min(each):+.3f} to {max(each):+.3f} %")  # fmt: skip
    print(
        f"load of the machine over 15 minutes: {os.getloadavg()[2]:.1f} on {os.cpu_count()} processors"
    )


if __name__ == "__main__":
    main()
