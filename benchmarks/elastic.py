"""Max-min fairness of different elastic jobs: configurations generated as columns, against a column for each of them.

Every job has curves of its own: on each pool its rate follows the universal scalability law (Gunther) on 1 to 64 GPUs.
Every run is a fresh process with one thread; the whole call is timed, from arrays and a model to a certified solution.

    python benchmarks/elastic.py                        5,000 and 100,000 jobs on 3 pools
    python benchmarks/elastic.py 20000x3 -f makespan    this size, another formulation
    python benchmarks/elastic.py 100000x3 --alone       without the program of all configurations
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import on_demand

from optsched.arrays import IntArray
from optsched.performance import (
    Configurations,
    Feasibility,
    JobBatch,
    Prediction,
    Source,
)
from optsched.performance.protocol import RateModel

HERE = "elastic"
MOST = 64


class Curves(RateModel):
    """Rates of kinds by their own laws: base speed k / (1 + s (k - 1) + c k (k - 1)) on k GPUs."""

    name = "curves"

    def __init__(self, jobs: int, pools: int) -> None:
        random = np.random.default_rng([3, jobs, pools])
        speed = np.geomspace(1.0, 6.0, pools) ** random.beta(2, 2, (jobs, 1))
        self.base = (
            np.exp(random.normal(0, 1.0, (jobs, 1)))
            * speed
            * np.exp(random.normal(0, 0.2, (jobs, pools)))
        )
        self.serial = random.beta(1, 12, (jobs, pools))
        self.crosstalk = np.exp(random.normal(np.log(3e-4), 1.0, (jobs, pools)))

    def rates(
        self, jobs: JobBatch, configurations: Configurations, job: IntArray, configuration: IntArray
    ) -> Prediction:
        """Rates of kinds in ways to run."""
        row = jobs.workload[job] * self.base.shape[1] + configurations.pool[configuration]
        k = configurations.gpus[configuration].astype(np.float64)
        slower = 1.0 + (k - 1.0) * (self.serial.ravel()[row] + self.crosstalk.ravel()[row] * k)
        count = len(job)
        return Prediction(
            self.base.ravel()[row] * k / slower,
            np.broadcast_to(0.1, (count,)),
            np.full(count, Feasibility.OK, np.uint8),
            np.full(count, Source.PARAMETRIC, np.uint8),
        )


def elastic(jobs: int, pools: int) -> dict[str, Any]:
    """Arrays of jobs with a workload each, and fewer GPUs than jobs could use."""
    random = np.random.default_rng([4, jobs, pools])
    share = random.dirichlet(np.full(pools, 5.0))
    capacity = np.maximum(MOST, np.floor(share * jobs)).astype(int)
    return {
        "pools": [
            {"name": f"pool{j}", "nodes": -(-int(count) // 8), "gpus_per_node": 8}
            for j, count in enumerate(capacity)
        ],
        "workload": np.arange(jobs),
        "workloads": {f"w{row}": {} for row in range(jobs)},
        "gpus": 1,
        "gpus_max": MOST,
        "weight": random.choice([1.0, 2.0, 4.0], jobs, p=[0.8, 0.15, 0.05]),
        "steps": np.exp(random.normal(np.log(28800), 1.2, jobs)),
    }


def solve(jobs: int, pools: int, formulation: str, generate: bool) -> Callable[[], Any]:
    import optsched

    optsched.solve("@quickstart", solver="prices")  # load everything
    instance, model = optsched.Instance.from_arrays(**elastic(jobs, pools)), Curves(jobs, pools)

    def run() -> Any:
        solution = optsched.solve(instance, formulation, model=model, generate_columns=generate)
        assert solution.ok and solution.status == "optimal", solution.status
        return [solution.objective, solution.gap, solution.columns_made]

    return run


def main() -> None:
    parser = on_demand.parser(__doc__, ["5000x3", "100000x3"], "all configurations", 200.0)
    parser.add_argument("--formulation", "-f", default="max-min-fairness", metavar="NAME")
    given = parser.parse_args()
    for text in given.sizes:
        words = "configurations beside the start"
        on_demand.compare(
            HERE, text, given, f"{given.formulation}, ", words, formulation=given.formulation
        )


if __name__ == "__main__":
    main()
