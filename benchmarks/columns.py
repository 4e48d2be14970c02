"""Max-min fairness of different jobs that may share GPUs: columns generated, against a column for every pair.

Jobs have rates of their own and one of 26 workloads, whose utilisations say how two of them slow each other down. Every
run is a fresh process with one thread; the whole call is timed, from arrays to a certified solution.

    python benchmarks/columns.py                    250 and 2,000 jobs on 3 pools
    python benchmarks/columns.py 2000x3 --single    of one GPU each, so that any two of them may share it
    python benchmarks/columns.py 5000x3 --alone     this size, without the program of all pairs
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import on_demand
from spine import distinct_rows

HERE = "columns"
WORKLOADS = 26


def packed(jobs: int, pools: int, single: bool) -> dict[str, Any]:
    """Distinct rows of which each job may share its GPUs with any other of its gang size; of one GPU if ``single``."""
    arrays = distinct_rows(jobs, pools)
    if single:
        part = jobs / arrays["gpus"].sum()
        arrays["pools"] = {
            name: max(1, int(part * count)) for name, count in arrays["pools"].items()
        }
        arrays["gpus"] = 1
    random = np.random.default_rng([1, jobs, pools])
    gpu = [f"GPU{row}" for row in range(pools)]
    busy = np.clip(
        random.uniform(0.15, 1.0, (WORKLOADS, 1)) * random.uniform(0.7, 1.0, (WORKLOADS, pools)),
        0.05,
        1.0,
    )
    workloads = {
        f"w{row}": {"utilisation": dict(zip(gpu, part, strict=True))}
        for row, part in enumerate(busy.tolist())
    }
    arrays["pools"] = [
        {"name": name, "gpu": kind, "nodes": count, "gpus_per_node": 1}
        for (name, count), kind in zip(arrays["pools"].items(), gpu, strict=True)
    ]
    model = {
        "model": "utilisation",
        "log_sd": 0.2,
        "sums": [],
        "logs": [],
        "measured": [],
        "workloads": workloads,
    }
    return arrays | {
        "workload": random.integers(0, WORKLOADS, jobs),
        "workloads": {name: {} for name in workloads},
        "performance": {"model": "interference", "of": {"model": "table"}, "pairs": model},
    }


def solve(jobs: int, pools: int, single: bool, generate: bool) -> Callable[[], Any]:
    import optsched

    optsched.solve("@quickstart", solver="highs" if generate else "clarabel")  # load everything
    arrays = packed(jobs, pools, single)

    def run() -> Any:
        solution = optsched.solve(
            optsched.Instance.from_arrays(**arrays), generate_columns=generate
        )
        assert solution.ok and solution.status == "optimal", solution.status
        return [solution.objective, solution.gap, solution.columns_made]

    return run


def main() -> None:
    parser = on_demand.parser(__doc__, ["250x3", "2000x3"], "all pairs", 120.0)
    parser.add_argument("--single", action="store_true", help="jobs of one GPU")
    given = parser.parse_args()
    for text in given.sizes:
        on_demand.compare(HERE, text, given, "", "pairs", single=given.single)


if __name__ == "__main__":
    main()
