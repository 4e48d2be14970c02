#!/usr/bin/env python
"""From numpy arrays to prices.

What you learn
--------------
- how to make an instance from arrays, without a file;
- what a price says: how much the fair level rises with one more GPU of a pool;
- how to check a price by solving again, and why the true gain is never larger: the level is a concave function of the
  capacity, and the price is its slope.

Throughputs are normalised by ``prop``, that of an equal share of the cluster. ``prop`` changes with the cluster, so the
check keeps the old one (through the weights, by which every level is divided).
"""

import numpy as np

import optsched

POOLS = {"v100": 40, "p100": 60, "k80": 80}


def solve(gpus: np.ndarray, throughput: np.ndarray, gang: np.ndarray) -> optsched.Solution:
    """Max-min fairness with the yardstick of `POOLS`."""
    old = np.array(list(POOLS.values()))
    weight = (throughput @ old / old.sum()) / (throughput @ gpus / gpus.sum())
    pools = dict(zip(POOLS, gpus.tolist(), strict=True))
    instance = optsched.Instance.from_arrays(
        pools=pools, throughput=throughput, gpus=gang, weight=weight
    )
    return optsched.solve(instance, "max-min-fairness")


def main() -> None:
    """Solve, read the prices, check them."""
    random = np.random.default_rng(7)
    gang = random.choice([1, 2, 4], 150, p=[0.6, 0.3, 0.1])
    one_k80 = np.exp(random.normal(0.0, 1.0, 150))
    speed_up = np.exp(
        random.uniform(0.5, 1.2, (150, 1)) * np.array([1.8, 1.0, 0.0])
    )  # v100, p100, k80
    throughput = one_k80[:, np.newaxis] * gang[:, np.newaxis] * speed_up

    gpus = np.array(list(POOLS.values()))
    solution = solve(gpus, throughput, gang)
    print(
        f"{len(gang)} jobs want {gang.sum()} GPUs of {gpus.sum()}: fair level {solution.objective:.6f}\n"
    )
    print(f"{'pool':<8}{'price':>12}{'gain of one more GPU':>24}{'ratio':>9}")
    for row, pool in enumerate(POOLS):
        more = solve(gpus + (np.arange(len(gpus)) == row), throughput, gang)
        price, gain = solution.prices[pool], more.objective - solution.objective
        assert -1e-9 <= gain <= price + 1e-9, (pool, price, gain)
        print(f"{pool:<8}{price:>12.6f}{gain:>24.6f}{gain / price:>9.3f}")
    print("\nno gain is above its price")


if __name__ == "__main__":
    main()
