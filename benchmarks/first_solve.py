"""The first solve of a fresh process with numba and without it: processor seconds, and their ratio.

Whole solves by prices, from arrays to the certified solution, of rows that all differ. Compiled sweeps must pay for
their start in every process, so no ratio should be above 1 but for the noise of the machine. Where numba's cache is
empty, as after an installation, the first run compiles and takes longer: it is shown, and not counted.

    python benchmarks/first_solve.py                    1k to 2 million jobs on 4 pools
    python benchmarks/first_solve.py 100000x16 --repeat 5
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import arguments
from measure import measure
from spine import distinct_rows

SIZES = ("1000x4", "10000x4", "100000x4", "1000000x4", "2000000x4")
FORMULATIONS = ("max-min-fairness", "makespan", "proportional-fairness", "max-throughput")


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
    given = parser.parse_args()
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
