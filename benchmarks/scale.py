"""Max-min fairness of different jobs, from a thousand to a million, against what a user would pick instead.

Every run is a fresh process with one thread and a limit of time; "whole" is from arrays to a certified solution. The
true gap is what the smallest level is short of the certified bound, after the point of a solver has been repaired: clip
at 0, rows scaled to the time, columns to the capacity. ``t*/tmax`` below 1 says that capacity binds. Rows are distinct.

    python benchmarks/scale.py                      1k, 10k and 100k jobs on 3 and 4 pools, 10k on 10
    python benchmarks/scale.py 1000000x4 100000x16  these sizes
    python benchmarks/scale.py --limit 120 --picture scale.svg
    python benchmarks/scale.py --sums               proportional fairness, 10k on 10 and 100k on 4; gaps are per job
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arguments
import numpy as np
from measure import Measurement, ended, measure
from spine import distinct_rows

HERE = "scale"
SIZES = ("1000x3", "10000x3", "10000x10", "100000x4")
SUMS = ("10000x10", "100000x4")
RIVALS = (
    "cvxpy + Clarabel",
    "highs-ipm",
    "glop",
    "pdlp",
    "split in 8, Clarabel",
    "split in 32, Clarabel",
)
SUM = "cvxpy + Clarabel, sum"
Arrays = dict[str, Any]


def coefficients(arrays: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(level of a job all the time on a pool, its GPUs, capacities): what a user's own script starts from."""
    capacity = np.array(list(arrays["pools"].values()), float)
    proportional = arrays["throughput"] @ (capacity / capacity.sum())
    return (
        arrays["throughput"] * (arrays["gpus"] / arrays["weight"] / proportional)[:, None],
        arrays["gpus"],
        capacity,
    )


def repaired(x: np.ndarray, gpus: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """A point scaled into time and capacity."""
    x = np.maximum(x, 0.0)
    x = x / np.maximum(1.0, x.sum(axis=1))[:, None]
    return np.asarray(x * np.minimum(1.0, capacity / np.maximum(gpus @ x, 1e-300)))


def repaired_level(
    level: np.ndarray, gpus: np.ndarray, capacity: np.ndarray, x: np.ndarray
) -> float:
    """The smallest level of a point, repaired."""
    return float((level * repaired(x, gpus, capacity)).sum(axis=1).min())


def ours(jobs: int, pools: int) -> Callable[[], Any]:
    import optsched

    optsched.solve(
        optsched.Instance.from_arrays(**distinct_rows(20_000, 3)), solver="prices"
    )  # load everything
    arrays = distinct_rows(jobs, pools)

    def run() -> Any:
        solution = optsched.solve(
            optsched.Instance.from_arrays(**arrays), "max-min-fairness", solver="prices"
        )
        assert solution.ok and solution.status == "optimal", solution.status
        highest = float(coefficients(arrays)[0].max(axis=1).min())
        return [
            solution.objective,
            solution.bound,
            solution.objective / highest,
            dict(solution.timings),
        ]

    return run


def our_sum(jobs: int, pools: int) -> Callable[[], Any]:
    """Proportional fairness."""
    import optsched

    few = optsched.Instance.from_arrays(**distinct_rows(20_000, 3))
    optsched.solve(few, "proportional-fairness", solver="prices")  # load everything
    arrays = distinct_rows(jobs, pools)

    def run() -> Any:
        solution = optsched.solve(
            optsched.Instance.from_arrays(**arrays), "proportional-fairness", solver="prices"
        )
        assert solution.ok and solution.status == "optimal", solution.status
        return [
            solution.objective,
            solution.bound,
            solution.solver.iterations,
            dict(solution.timings),
        ]

    return run


def another_solver(jobs: int, pools: int, solver: str, limit: float) -> Callable[[], Any]:
    import optsched

    optsched.solve("@quickstart", solver=solver)
    arrays = distinct_rows(jobs, pools)

    def run() -> Any:
        instance = optsched.Instance.from_arrays(**arrays)
        solution = optsched.solve(instance, "max-min-fairness", solver=solver, time_limit=limit)
        return [solution.objective or 0.0, str(solution.status)]

    return run


def cvxpy_level(level: np.ndarray, gpus: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """The script that a user would write; its point."""
    import cvxpy as cp

    x, t = cp.Variable(level.shape, nonneg=True), cp.Variable()
    rows = [
        cp.sum(cp.multiply(level, x), axis=1) >= t,
        cp.sum(x, axis=1) <= 1,
        gpus @ x <= capacity,
    ]
    cp.Problem(cp.Maximize(t), rows).solve(solver="CLARABEL")
    return np.asarray(x.value)


def own_script(jobs: int, pools: int) -> Callable[[], Any]:
    arrays = distinct_rows(jobs, pools)
    cvxpy_level(*coefficients(distinct_rows(20, 2)))

    def run() -> Any:
        problem = coefficients(arrays)
        return [repaired_level(*problem, cvxpy_level(*problem)), "optimal"]

    return run


def own_sum(jobs: int, pools: int) -> Callable[[], Any]:
    """The script for proportional fairness that a user would write; the sum of logarithms of its repaired point."""
    arrays, few = distinct_rows(jobs, pools), distinct_rows(20, 2)

    def solved(arrays: Arrays) -> float:
        import cvxpy as cp

        capacity = np.array(list(arrays["pools"].values()), float)
        rate, gpus, weight = arrays["throughput"], arrays["gpus"], arrays["weight"]
        level = rate / (rate @ (capacity / capacity.sum()))[:, None]
        x = cp.Variable(level.shape, nonneg=True)
        rows = [cp.sum(x, axis=1) <= 1, gpus @ x <= capacity]
        total = cp.sum(cp.multiply(weight, cp.log(cp.sum(cp.multiply(level, x), axis=1))))
        cp.Problem(cp.Maximize(total), rows).solve(solver="CLARABEL")
        return float(
            weight @ np.log((level * repaired(np.asarray(x.value), gpus, capacity)).sum(axis=1))
        )

    solved(few)
    return lambda: [solved(arrays), "optimal"]


def split(jobs: int, pools: int, parts: int) -> Callable[[], Any]:
    """POP: every part of the jobs has its part of every pool; one after the other, put together."""
    arrays = distinct_rows(jobs, pools)
    cvxpy_level(*coefficients(distinct_rows(20, 2)))

    def run() -> Any:
        level, gpus, capacity = coefficients(arrays)
        x = np.zeros_like(level)
        for part in range(parts):
            x[part::parts] = cvxpy_level(level[part::parts], gpus[part::parts], capacity / parts)
        return [repaired_level(level, gpus, capacity, x), f"{parts} parts"]

    return run


def rival(name: str, jobs: int, pools: int, limit: float) -> Measurement | None:
    """One run of what is not ours; None where it does not end within the limit."""
    size = {"jobs": jobs, "pools": pools}
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "cvxpy + Clarabel": ("own_script", size),
        SUM: ("own_sum", size),
        "split in 8, Clarabel": ("split", {**size, "parts": 8}),
        "split in 32, Clarabel": ("split", {**size, "parts": 32}),
    }
    function, arguments = calls.get(
        name, ("another_solver", {**size, "solver": name, "limit": limit})
    )
    try:
        return measure(HERE, function, 1, timeout=2.0 * limit + 60.0, **arguments)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return None


def picture(points: dict[str, list[tuple[int, float]]], path: Path) -> None:
    """Seconds over coefficients, both logarithmic, with the time of one read of the matrix."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    ax = figure.subplots()
    for name, found in points.items():
        ax.loglog(*zip(*sorted(found), strict=True), marker="o", label=name)
    sizes = sorted({size for found in points.values() for size, _ in found})
    ax.loglog(
        sizes,
        [8.0 * size / 5e9 for size in sizes],
        color="0.6",
        linestyle=":",
        label="one read at 5 GB/s",
    )
    ax.set(xlabel="jobs x pools", ylabel="seconds, from arrays to certificate")
    ax.legend()
    figure.savefig(path)


def sums(text: str, given: argparse.Namespace) -> None:
    """Proportional fairness of one size, against the script: seconds, ratio and gap per job."""
    jobs, pools = (int(part) for part in text.split("x"))
    found = measure(HERE, "our_sum", given.repeat, jobs=jobs, pools=pools)
    value, bound, steps, timings = found.result
    stages = ", ".join(f"{stage} {seconds:.3f}" for stage, seconds in timings.items())
    print(f"\n{jobs:,} jobs x {pools} pools, proportional fairness")
    print(f"  {'prices':<24} {found.seconds:9.3f} s {found.megabytes:6.0f} MB   gap {(bound - value) / jobs:8.1e}   "
          f"{steps} steps, {stages}")  # fmt: skip
    other = None if given.alone else rival(SUM, jobs, pools, given.limit)
    if other is not None:
        gap = (bound - other.result[0]) / jobs
        print(f"  {'cvxpy + Clarabel':<24} {other.seconds:9.3f} s {other.megabytes:6.0f} MB   gap {gap:8.1e}   "
              f"{other.seconds / found.seconds:.1f} times the time")  # fmt: skip


def main() -> None:
    listed = "; ".join(RIVALS)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", type=arguments.size, metavar="JOBSxPOOLS")
    parser.add_argument("--sums", action="store_true", help="proportional fairness")
    parser.add_argument(
        "--limit", type=arguments.seconds, default=60.0, help="seconds for each run of a rival"
    )
    parser.add_argument(
        "--repeat",
        type=arguments.count,
        default=3,
        help="runs of prices, of which the median counts",
    )
    parser.add_argument(
        "--rival",
        action="append",
        choices=RIVALS,
        metavar="NAME",
        help=f"only this one, again for more: {listed}",
    )
    parser.add_argument("--alone", action="store_true", help="no rivals")
    parser.add_argument(
        "--picture", type=arguments.picture, metavar="FILE", help=".svg, .png or .pdf"
    )
    given = parser.parse_args()
    points: dict[str, list[tuple[int, float]]] = {}
    for text in (given.sizes or SUMS) if given.sums else ():
        sums(text, given)
    for text in () if given.sums else given.sizes or SIZES:
        jobs, pools = (int(part) for part in text.split("x"))
        try:
            found = measure(HERE, "ours", given.repeat, jobs=jobs, pools=pools)
        except subprocess.CalledProcessError as error:
            sys.exit(f"{text}: {ended(error)}")
        value, bound, part, timings = found.result
        print(f"\n{jobs:,} jobs x {pools} pools, t*/tmax {part:.3f}")
        print(f"  {'prices':<24} {found.seconds:9.3f} s {found.megabytes:6.0f} MB   gap {bound / value - 1:8.1e}   "
              + ", ".join(f"{stage} {seconds:.3f}" for stage, seconds in timings.items()))  # fmt: skip
        points.setdefault("prices", []).append((jobs * pools, found.seconds))
        for name in () if given.alone else given.rival or RIVALS:
            other = rival(name, jobs, pools, given.limit)
            if other is None or other.result[0] <= 0:
                print(f"  {name:<24} nothing within {given.limit:g} s")
                continue
            gap = 1.0 - other.result[0] / bound
            print(f"  {name:<24} {other.seconds:9.3f} s {other.megabytes:6.0f} MB   gap {gap:8.1e}   "
                  f"{other.seconds / found.seconds:.1f} times the time ({other.result[1]})")  # fmt: skip
            points.setdefault(name, []).append((jobs * pools, other.seconds))
    if given.picture is not None:
        picture(points, given.picture)


if __name__ == "__main__":
    main()
