"""The first solve of a fresh process with numba and without it: processor seconds, and their ratio.

Whole solves by prices, from arrays to the certified solution, of rows that all differ. Compiled sweeps must pay for
their start in every process, so no ratio should be above 1 but for the noise of the machine. Where numba's cache is
empty, as after an installation, the first run compiles and takes longer: it is shown, and not counted.

    python benchmarks/first_solve.py                    1k to 2 million jobs on 4 pools
    python benchmarks/first_solve.py 100000x16 --repeat 5

With ``--small`` what the 12 jobs of ``@quickstart`` cost beside what nobody can avoid: the first solve of a process
beside the imports of its libraries, another solve beside the same program written by hand in highspy, and the README's
simulation. An instance keeps some of what its first solve found (sizes of pools, where rates are): so another solve is
timed of the same instance, and of instances that were just read. All are medians, of runs that alternate.

    python benchmarks/first_solve.py --small --repeat 15
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import arguments
from measure import ONE_THREAD, measure
from spine import distinct_rows

if TYPE_CHECKING:
    from optsched import Instance

SIZES = ("1000x4", "10000x4", "100000x4", "1000000x4", "2000000x4")
FORMULATIONS = ("max-min-fairness", "makespan", "proportional-fairness", "max-throughput")


LIBRARIES = ("-c", "import numpy, scipy.sparse, highspy, pydantic")
FIRST_SOLVE = ("-c", "import optsched; optsched.solve('@quickstart')")
SIMULATION = ("-m", "optsched.cli.main", "simulate", "@quickstart",
              "-p", "max-min-fairness", "-p", "srtf", "-p", "fifo")  # fmt: skip
WARM_CALLS = 200


def first(jobs: int, pools: int, formulation: str, numba: bool) -> Callable[[], Any]:
    """Imports count, as whoever starts a process pays for them."""
    arrays = distinct_rows(jobs, pools)

    def run() -> Any:
        if not numba:
            sys.modules["numba"] = None  # type: ignore[assignment]
        before = time.process_time()
        import optsched

        solution = optsched.solve(
            optsched.Instance.from_arrays(**arrays), formulation, solver="prices"
        )
        assert solution.status == "optimal", solution.status
        return [time.process_time() - before, sys.modules.get("numba") is not None]

    return run


def process_seconds(arguments: Sequence[str]) -> tuple[float, float]:
    """Processor and wall seconds of a new interpreter, which may store and use bytecode."""
    environment = {**os.environ, **ONE_THREAD}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, wall


def alternating(
    runs: Sequence[Callable[[], tuple[float, float]]], repeat: int
) -> list[tuple[float, float]]:
    """Medians of the two numbers of each run; the runs take turns, so that load meets them alike."""
    for run in runs:  # the first one may compile
        run()
    made = [[run() for run in runs] for _ in range(repeat)]
    return [
        (statistics.median(one for one, _ in each), statistics.median(two for _, two in each))
        for each in zip(*made, strict=True)
    ]


def by_hand(instance: Instance) -> float:
    """Max-min fairness of jobs with rates of their workloads, as one writes it for highspy alone."""
    import highspy
    import numpy as np
    import scipy.sparse as sp

    table, rates, pools = instance.jobs_table, instance.rates, instance.cluster.pools
    jobs = len(table)
    gpus = np.array([pool.node_gpus.sum() for pool in pools], float)
    job_of, pool_of, rate = [], [], []
    for job, workload in enumerate(table.workload.tolist()):
        profile = instance.workloads[workload].rates
        for entry in range(rates.indptr[profile], rates.indptr[profile + 1]):
            if rates.gpus[entry] == table.gpus_min[job]:
                job_of.append(job)
                pool_of.append(rates.place[entry])
                rate.append(rates.rate[entry])
    job, pool, throughput = np.array(job_of), np.array(pool_of), np.array(rate)
    best = np.zeros((jobs, len(pools)))
    np.maximum.at(best, (job, pool), throughput)
    scale = table.gpus_min / table.weight / (best @ gpus / gpus.sum())
    columns, rows = len(job), 2 * jobs + len(pools)
    each = np.arange(columns)
    entries = [throughput * scale[job], -np.ones(jobs), np.ones(columns), table.gpus_min[job]]
    row = [job, np.arange(jobs), jobs + job, 2 * jobs + pool]
    column = [each, np.full(jobs, columns), each, each]
    A = sp.csc_matrix(
        (np.concatenate(entries), (np.concatenate(row), np.concatenate(column))),
        shape=(rows, columns + 1),
    )
    cost = np.zeros(columns + 1)
    cost[-1] = 1.0
    endless = highspy.kHighsInf
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.passModel(
        columns + 1, rows, A.nnz, int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMaximize), 0.0, cost,
        np.zeros(columns + 1), np.full(columns + 1, endless),
        np.concatenate([np.zeros(jobs), np.full(jobs + len(pools), -endless)]),
        np.concatenate([np.full(jobs, endless), np.ones(jobs), gpus]),
        A.indptr.astype(np.int32), A.indices.astype(np.int32), A.data, np.zeros(columns + 1, np.int32),
    )  # fmt: skip
    highs.run()
    solution = highs.getSolution()
    np.array(solution.col_value), np.array(solution.row_dual)
    return float(highs.getObjectiveValue())


def small(repeat: int) -> None:
    """What a few jobs cost in a new process, in one that runs, and in a simulation."""
    import optsched

    (imports, _), (solve, wall) = alternating(
        [lambda: process_seconds(LIBRARIES), lambda: process_seconds(FIRST_SOLVE)], repeat
    )
    print(f"first solve of a process  {solve:7.3f} s, {wall:.3f} s wall; imports of its libraries {imports:.3f} s: "
          f"{solve / imports:5.2f}", flush=True)  # fmt: skip

    instance = optsched.load("@quickstart")
    assert abs(by_hand(instance) - optsched.solve(instance).objective) < 1e-9  # type: ignore[operator]

    def timed(call: Callable[[Any], Any]) -> Callable[[], tuple[float, float]]:
        def run() -> tuple[float, float]:
            spent, started = time.process_time(), time.perf_counter()
            call(instance)
            return time.process_time() - spent, time.perf_counter() - started

        return run

    document = instance.to_document()
    unsolved = iter([optsched.load(document) for _ in range(WARM_CALLS + 1)])
    (hand, _), (warm, wall), (fresh, _) = alternating(
        [timed(by_hand), timed(optsched.solve), timed(lambda _: optsched.solve(next(unsolved)))],
        WARM_CALLS,
    )
    print(f"another solve            {1e3 * warm:7.3f} ms, {1e3 * wall:.3f} ms wall; by hand in highspy "
          f"{1e3 * hand:.3f} ms: {warm / hand:5.2f}; of an instance just read {1e3 * fresh:.3f} ms: "
          f"{fresh / hand:5.2f}", flush=True)  # fmt: skip

    ((spent, wall),) = alternating([lambda: process_seconds(SIMULATION)], repeat)
    print(f"a simulation             {spent:7.3f} s, {wall:.3f} s wall", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sizes", nargs="*", type=arguments.size, metavar="JOBSxPOOLS")
    parser.add_argument(
        "--repeat",
        type=arguments.count,
        default=3,
        help="runs of each, of which the fastest counts",
    )
    parser.add_argument(
        "--small", action="store_true", help="what a few jobs cost beside what nobody can avoid"
    )
    given = parser.parse_args()
    if given.small:
        small(given.repeat)
        return
    for text in given.sizes or SIZES:
        jobs, pools = (int(part) for part in text.split("x"))
        for formulation in FORMULATIONS:
            runs: dict[bool, list[list[Any]]] = {True: [], False: []}
            for numba in [True, *[True, False] * given.repeat]:  # the first one may compile
                asked = {"jobs": jobs, "pools": pools, "formulation": formulation, "numba": numba}
                runs[numba].append(measure("first_solve", "first", 1, **asked).result)
            compiling, *loaded = runs[True]
            best, plain = (min(seconds for seconds, _ in some) for some in (loaded, runs[False]))
            print(f"{jobs:>9,} x {pools:<3} {formulation:<22} {best:7.2f} s with numba, {plain:7.2f} s without: "
                  f"{best / plain:5.2f}   {'loaded' if compiling[1] else 'not loaded'}; first run {compiling[0]:.2f} s",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
