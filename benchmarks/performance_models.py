"""How well performance models tell what they have not seen, beside the bars of the field, and what they cost.

The rows come from `studies`: each has a task, the bar that was set for it (the best known baseline), our figure and a
naive one, as mean absolute percentage errors (in brackets the median). Public measurements are needed, which are not
part of the project: without them the rows are left out. By default the quick studies run (a minute or two); with
``--all`` the learned models are studied as well (half an hour).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "studies"))

from optsched import load
from optsched.performance import Configurations, JobBatch, PerformanceModel, Prediction
from optsched.performance.composed import CachedModel

JOBS, WAYS, WORKLOADS, REPEATS = 100_000, 12, 300, 25


class Constant:
    """A model that always says 1: what is timed is the look-up."""

    name, version, per_workload = "constant", 0, True

    def predict(self, jobs: JobBatch, configurations: Configurations, **_: object) -> Prediction:
        shape = (len(jobs), len(configurations))
        return Prediction(
            np.ones(shape), np.zeros(shape), np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
        )

    def observe(self, observations: object) -> set[int]:
        return set()


def median_of(function: Callable[[], object]) -> float:
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def look_up() -> None:
    """A cached look-up of every job in every way, beside np.exp on an array of that shape."""
    random = np.random.default_rng(0)
    none = np.full(JOBS, -1)
    jobs = JobBatch(
        random.integers(0, WORKLOADS, JOBS), none, np.zeros(JOBS, bool), np.ones(JOBS, np.int64)
    )
    zero = np.zeros(WAYS, np.int64)
    ways = Configurations(zero, np.arange(1, WAYS + 1), zero + 1, np.ones(WAYS), zero)
    of: PerformanceModel = Constant()
    model = CachedModel(load("@quickstart"), of)
    numbers = random.normal(size=(JOBS, WAYS))
    exp, cached = median_of(lambda: np.exp(numbers)), median_of(lambda: model.predict(jobs, ways))
    print(
        f"{'cached look-up':24} {1e3 * cached:6.2f} ms, {cached / exp:5.2f} times np.exp ({1e3 * exp:.2f} ms)"
    )


def main(everything: bool) -> None:
    import parametric
    import speed

    print(f"closed forms, {JOBS:,} jobs x {WAYS} ways")
    speed.main()
    look_up()
    print()
    parametric.main()
    if everything:
        import boosted
        import pairs

        print()
        boosted.show(boosted.rows())
        boosted.show(boosted.coverage())
        print()
        pairs.show(pairs.rows)
        pairs.show(pairs.coverage)


if __name__ == "__main__":
    main("--all" in sys.argv[1:])
