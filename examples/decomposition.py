#!/usr/bin/env python
"""A Lagrangian relaxation of your own: agents that share jobs (generalised assignment).

What you learn
--------------
- how to price the rows that make a program hard, and let a function of yours solve the rest: here that every job is
  done, and what is left is a knapsack for each agent;
- that the answer has a bound, which holds whatever the prices are, and an average of the knapsacks' answers, which
  nearly keeps the rows that were priced;
- how to repair the average into a solution, whose distance from the optimum the bound then tells.
"""

import numpy as np

from optsched.decomposition import CoupledRows, Relaxed, Repaired, best_items, lagrangian

random = np.random.default_rng(7)
m, n = 5, 40  # agents, jobs
use = random.integers(1, 101, (m, n))
cost = 111 - use + random.integers(-10, 11, (m, n))
capacity = (0.8 * use.sum(axis=1) / m).astype(int)


def solve(y: np.ndarray) -> Relaxed:
    """Each agent takes the jobs that are worth most to it at the prices y: a knapsack."""
    x = np.array([best_items(y - cost[i], use[i], capacity[i])[1] for i in range(m)], float)
    return Relaxed(point=x, cost=(cost * x).sum(), activity=x.sum(axis=0))


def repair(y: np.ndarray, average: np.ndarray) -> Repaired | None:
    """The surest jobs first, each where most of its average is and there is room; then moves that save cost."""
    agent, left = np.full(n, -1), capacity.copy()
    for j in np.argsort(-average.max(axis=0)):
        room = use[:, j] <= left
        if not room.any():
            return None
        agent[j] = np.argmax(np.where(room, average[:, j], -1.0))
        left[agent[j]] -= use[agent[j], j]
    for j in range(n):
        left[agent[j]] += use[agent[j], j]
        agent[j] = np.argmin(np.where(use[:, j] <= left, cost[:, j], np.inf))
        left[agent[j]] -= use[agent[j], j]
    return Repaired(float(cost[agent, np.arange(n)].sum()), agent)


def main() -> None:
    """Bound the least total cost, find a solution, and see how far apart they are."""
    every_job = CoupledRows.of(np.ones(n), np.full(n, np.inf))
    found = lagrangian(every_job, solve, repair, step=1.0, time_limit="30s")
    load = np.bincount(found.solution, use[found.solution, np.arange(n)], minlength=m)
    assert (load <= capacity).all() and found.bound <= found.objective
    print(f"bound     {found.bound:g} after {found.evaluations} knapsacks of each agent")
    print(f"average   {(cost * found.average).sum():.1f}, breaks a row by {found.violation:.4f}")
    print(f"solution  {found.objective:g}, at most {found.gap:.2%} above the optimum")


if __name__ == "__main__":
    main()
