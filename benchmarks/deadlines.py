"""Deadlines: decisions on new jobs, warm rounds, plans of event intervals, against programs that a user writes.

``admit`` offers jobs one by one to a cluster that has room for about 200 of them, and reports 40 decisions beside 190
jobs and more: medians and 95th percentiles, without advice and with it. ``round`` replaces one of 500 jobs before each
round of `deadline-elastic`: median and longest round, at some loads. In both, jobs run on 1, 2, 4 or 8 GPUs of two
pools, gain less from each further GPU, and are due at 25 moments of a day. ``fluid`` plans 1,000 jobs of one GPU on
four pools with 200 moments at which jobs come or are due, by `deadline-fluid`.

By hand, with scipy's HiGHS: an integer program of slots (``admit`` and ``round``: a binary variable for each job, level
and interval between two moments; no restarts), and the linear program of all jobs, pools and intervals (``fluid``).

Every run is a fresh process with one thread; ours has planned a small set before. Seconds are of processor time.

    python benchmarks/deadlines.py                    all three
    python benchmarks/deadlines.py admit --limit 20   one of them; programs by hand stop after 20 s
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from arguments import seconds
from measure import measure

POOLS = {"fast": 2.0, "slow": 1.0}
LEVELS = (1, 2, 4, 8)
GAIN = 0.8
"""A job on k GPUs is k^0.8 times as fast as on one."""
RESTART = 30.0
MOMENTS = 25
DAY = 86_400.0


def cluster(gpus: int) -> dict[str, Any]:
    """So many GPUs in each pool, on nodes of 8."""
    return {"pools": [{"name": name, "nodes": -(-gpus // 8), "gpus_per_node": 8} for name in POOLS]}


def elastic_jobs(count: int) -> list[dict[str, Any]]:
    """The first of 1,000 jobs of half an hour to days on a slow GPU; each has a level that is in time."""
    random = np.random.default_rng(7)
    hours = np.clip(np.exp(random.normal(2.0, 1.0, 1000)), 0.5, 100.0)
    least = hours * 3600 / (max(POOLS.values()) * LEVELS[-1] ** GAIN)
    due = np.ceil(random.uniform(least + DAY / MOMENTS, DAY) / DAY * MOMENTS) / MOMENTS * DAY
    rates = {pool: {str(k): speed * k**GAIN for k in LEVELS} for pool, speed in POOLS.items()}
    return [
        {
            "id": f"j{number}",
            "steps": float(steps),
            "gpus": {"min": LEVELS[0], "max": LEVELS[-1], "levels": list(LEVELS)},
            "throughput": rates,
            "restart_cost": RESTART,
            "deadline": float(moment),
        }
        for number, (steps, moment) in enumerate(
            zip(hours[:count] * 3600, due[:count], strict=True)
        )
    ]


def document(jobs: list[dict[str, Any]], gpus: int) -> dict[str, Any]:
    """An instance."""
    return {"format": "optsched-instance/1", "cluster": cluster(gpus), "jobs": jobs}


def gpus_for(jobs: list[dict[str, Any]], load: float) -> int:
    """GPUs of each pool of which jobs, with the least GPU time that each can take, need the part ``load``."""
    needed = sum(job["steps"] for job in jobs)
    nodes: int = round(needed / load / DAY / sum(POOLS.values()) / 8)
    return 8 * max(1, nodes)


def decisions(active: int, load: float) -> Callable[[], Any]:
    """Seconds of decisions beside 95 % of ``active`` jobs and more, without and with advice."""
    import optsched

    offered = elastic_jobs(3 * active)
    gpus = gpus_for(offered[:active], load)

    def run() -> Any:
        admitted: list[dict[str, Any]] = []
        spent: dict[str, list[float]] = {"plain": [], "advice": []}
        refused = 0
        for job in offered:
            instance = optsched.Instance.from_document(document(admitted, gpus))
            late = len(admitted) >= 0.95 * active
            for name in spent if late else ["plain"]:
                started = time.process_time()
                decision = optsched.admit(instance, job, advise=name == "advice")
                if late:
                    spent[name].append(time.process_time() - started)
            if decision.admitted:
                admitted.append(job)
            elif late:
                refused += 1
            if len(spent["plain"]) == 40:
                break
        return {
            **spent,
            "admitted": len(admitted),
            "refused": refused,
            "gpus": gpus,
            "rows": [int(job["id"][1:]) for job in admitted],
        }

    optsched.admit(optsched.Instance.from_document(document(offered[:5], 8)), offered[6])
    return run


def warm_rounds(load: float, count: int, rounds: int) -> Callable[[], Any]:
    """Seconds of the first round and of those after it; one of the jobs is replaced before each."""
    import optsched

    jobs = elastic_jobs(count + rounds)
    gpus = gpus_for(jobs[:count], load)
    policy = {"formulation": "deadline-elastic", "time_limit": 60}

    def run() -> Any:
        now = 0.0
        instance = optsched.Instance.from_document(document(jobs[:count], gpus))
        scheduler = optsched.Scheduler(instance, policy, clock=lambda: now, isolate=False)
        spent = []
        for number in range(rounds + 1):
            if number:
                now += 60.0
                scheduler.complete(f"j{number}")
                scheduler.submit(jobs[count + number - 1])
            started = time.process_time()
            plan = scheduler.solve()
            spent.append(time.process_time() - started)
            assert plan.fallback is None
        return {"first": spent[0], "warm": spent[1:], "gpus": gpus}

    optsched.solve(document(jobs[:5], 8), "deadline-elastic", admission=True, program=False)
    return run


def fluid_arrays(jobs: int, pools: int, moments: int) -> dict[str, Any]:
    """Jobs of one GPU and an own speed in each pool, which come and are due at moments of a day."""
    random = np.random.default_rng(13)
    grid = np.sort(random.uniform(0, DAY, moments))
    first, last = np.sort(random.integers(0, moments, (2, jobs)), axis=0)
    come, due = grid[first], grid[np.minimum(last + 1, moments - 1)] + 600.0
    rates = np.geomspace(1.0, 4.0, pools) * random.uniform(0.5, 1.5, (jobs, pools))
    return {
        "arrival": come,
        "deadline": due,
        "throughput": rates,
        "steps": (due - come) * rates.min(axis=1) * random.uniform(0.2, 0.9, jobs),
    }


def fluid_gpus(jobs: int, pools: int) -> int:
    """GPUs of each pool."""
    return max(1, jobs // (2 * pools))


def fluid(jobs: int, pools: int, moments: int) -> Callable[[], Any]:
    """Seconds of the whole call, from arrays."""
    import optsched

    arrays = fluid_arrays(jobs, pools, moments)
    gpus = fluid_gpus(jobs, pools)

    def solve(rows: slice) -> Any:
        some = {name: values[rows] for name, values in arrays.items()}
        size = {f"p{j}": gpus for j in range(pools)}
        instance = optsched.Instance.from_arrays(pools=size, gpus=1, **some)
        return optsched.solve(instance, "deadline-fluid")

    def run() -> Any:
        started = time.process_time()
        solution = solve(slice(None))
        spent = time.process_time() - started
        assert solution.ok
        return {"seconds": spent, "objective": solution.objective, "status": solution.status}

    solve(slice(5))
    return run


def slots_by_hand(rows: list[int], gpus: int, limit: float) -> Callable[[], Any]:
    """Seconds of a program of slots for the most jobs in time, of some of the elastic jobs."""
    from scipy import optimize
    from scipy.sparse import coo_array, vstack

    every = elastic_jobs(max(rows) + 1)
    jobs, length = [every[row] for row in rows], DAY / MOMENTS
    levels = [(pool, k) for pool in range(len(POOLS)) for k in LEVELS]
    speed = np.array([list(POOLS.values())[pool] * k**GAIN for pool, k in levels])
    shape = len(jobs), len(levels), MOMENTS
    j, level, t = (index.ravel() for index in np.indices(shape))
    steps = np.array([job["steps"] for job in jobs])
    due = np.array([job["deadline"] for job in jobs])
    n, columns = len(jobs), len(j)
    x, ones = np.arange(columns), np.ones(columns)
    pool, k = (np.array(part)[level] for part in zip(*levels, strict=True))

    def block(row: Any, values: Any, count: int) -> Any:
        return coo_array((values, (row, x)), (count, columns + n))

    once = block(j * MOMENTS + t, ones, n * MOMENTS)
    capacity = block(pool * MOMENTS + t, k, len(POOLS) * MOMENTS)
    kept = coo_array((np.ones(n), (np.arange(n), columns + np.arange(n))), (n, columns + n))
    work = block(j, -speed[level] * length / steps[j], n) + kept
    least = np.concatenate([np.ones(n * MOMENTS), np.full(len(POOLS) * MOMENTS, gpus), np.zeros(n)])
    in_time = (t + 1) * length <= due[j] + 1e-6
    cost = np.append(np.zeros(columns), -np.ones(n))
    program = optimize.LinearConstraint(vstack([once, capacity, work]), ub=least)

    def run() -> Any:
        started = time.process_time()
        bounds = optimize.Bounds(0, np.append(in_time.astype(float), np.ones(n)))
        found = optimize.milp(
            cost,
            constraints=program,
            bounds=bounds,
            integrality=np.ones(len(cost), np.int64),
            options={"time_limit": limit},
        )
        return {"seconds": time.process_time() - started, "ended": found.status == 0}

    return run


def fluid_by_hand(jobs: int, pools: int, moments: int, limit: float) -> Callable[[], Any]:
    """Least time on GPUs: seconds of each job in each pool and interval."""
    from scipy import optimize
    from scipy.sparse import coo_array, vstack

    arrays, gpus = fluid_arrays(jobs, pools, moments), fluid_gpus(jobs, pools)
    ends = np.unique(np.concatenate([arrays["arrival"], arrays["deadline"]]))
    begins, length = ends[:-1], np.diff(ends)
    there = (begins >= arrays["arrival"][:, None]) & (ends[1:] <= arrays["deadline"][:, None])
    j, t = np.nonzero(there)
    j, t, pool = np.repeat(j, pools), np.repeat(t, pools), np.tile(np.arange(pools), len(j))
    x, n = np.arange(len(j)), len(ends) - 1
    ones = np.ones(len(j))
    once = coo_array((ones, (j * n + t, x)), (jobs * n, len(j))).tocsr()
    some = np.flatnonzero(np.diff(once.indptr))
    capacity = coo_array((ones, (pool * n + t, x)), (pools * n, len(j)))
    work = coo_array((arrays["throughput"][j, pool], (j, x)), (jobs, len(j)))
    upper = np.concatenate([np.tile(length, jobs)[some], gpus * np.tile(length, pools)])

    linprog: Any = optimize.linprog

    def run() -> Any:
        started = time.process_time()
        found = linprog(
            ones, vstack([once[some], capacity]), upper, work, arrays["steps"], method="highs",
            options={"time_limit": limit},
        )  # fmt: skip
        return {
            "seconds": time.process_time() - started,
            "ended": found.status == 0,
            "objective": found.fun,
        }

    return run


def _by_hand(result: dict[str, Any], ours: float) -> str:
    spent = result["seconds"]
    if not result["ended"]:
        return f"by hand: no optimum in {spent:.1f} s"
    return f"by hand {spent:.2f} s, {spent / ours:.1f} times the median"


def print_admit(limit: float) -> None:
    ours = measure("deadlines", "decisions", 1, active=200, load=0.8)
    found = ours.result
    print(
        f"admit beside 190 to {found['admitted']} jobs, {found['refused']} of 40 refused"
        f"   {ours.megabytes:.0f} MB beyond imports"
    )
    for name in ("plain", "advice"):
        print(
            f"  {name:8} median {np.median(found[name]):6.3f} s   95 % {np.quantile(found[name], 0.95):6.3f} s"
        )
    rows, gpus = found["rows"], found["gpus"]
    other = measure("deadlines", "slots_by_hand", 1, rows=rows, gpus=gpus, limit=limit)
    print(f"  {_by_hand(other.result, float(np.median(found['plain'])))}", flush=True)


def print_round(limit: float) -> None:
    print("rounds of 500 elastic jobs, one replaced before each")
    for load in (0.6, 1.0, 2.0):
        ours = measure("deadlines", "warm_rounds", 1, load=load, count=500, rounds=9)
        found, warm = ours.result, float(np.median(ours.result["warm"]))
        rows, gpus = list(range(500)), found["gpus"]
        other = measure("deadlines", "slots_by_hand", 1, rows=rows, gpus=gpus, limit=limit)
        print(
            f"  load {load}   first {found['first']:.2f} s   warm {warm:.2f} s, at most {max(found['warm']):.2f} s"
            f"   {ours.megabytes:.0f} MB   {_by_hand(other.result, warm)}",
            flush=True,
        )


def print_fluid(limit: float) -> None:
    size = {"jobs": 1000, "pools": 4, "moments": 200}
    ours = measure("deadlines", "fluid", 3, **size)
    other = measure("deadlines", "fluid_by_hand", 1, **size, limit=limit)
    found = ours.result
    print(
        f"deadline-fluid, 1,000 jobs x 4 pools x 200 moments: {found['status']} in {found['seconds']:.2f} s"
        f"   {ours.megabytes:.0f} MB   {_by_hand(other.result, found['seconds'])}"
    )
    if other.result["ended"]:
        off = abs(found["objective"] / other.result["objective"] - 1.0)
        print(f"  objectives differ by {off:.1e}", flush=True)


PARTS = {"admit": print_admit, "round": print_round, "fluid": print_fluid}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", default=list(PARTS), metavar="PART", help=", ".join(PARTS)
    )
    parser.add_argument(
        "--limit", type=seconds, default=60.0, help="seconds of each program by hand"
    )
    given = parser.parse_args()
    for part in given.parts:
        if part not in PARTS:
            parser.error(f"found {part!r}, expected {', '.join(PARTS)}")
        PARTS[part](given.limit)


if __name__ == "__main__":
    main()
