"""Jobs on heterogeneous pools, with as little capacity as asked for."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray
from optsched.generate.assembling import cluster_instance
from optsched.generate.cluster_options import ClusterOptions
from optsched.generate.generator import Generated, Generator
from optsched.generate.load import balanced_prices, highest, level_bound
from optsched.generate.rows import COUNTS
from optsched.generate.sizing import Sized, sized_cluster
from optsched.instance import Instance

SOLVED = 10_000
"""Pairs of jobs and pools up to which the note on the level comes from solving the program."""


def cluster(options: ClusterOptions) -> Generated:
    """Jobs with rates from closed forms and noise, on pools so small that the max-min level is what is asked.

    Pool sizes have the proportions of a Dirichlet(5) draw. Their total is such that the bound of
    `optsched.generate.load` at balanced prices is at most tmax / load, after rounding to whole nodes too: the level of
    max-min fairness is at most 1 / load of what every job can reach alone, proven without solving anything.
    """
    random, n = np.random.default_rng([options.seed, 0]), options.jobs
    weight = random.choice(np.array([1.0, 2.0, 4.0]), n, p=_with_rest(options.weights))
    share = random.dirichlet(np.full(options.pools, 5.0))
    kind = np.arange(n)
    if options.rows == "repeated":
        kind = np.concatenate(
            [np.arange(options.kinds), random.integers(0, options.kinds, n - options.kinds)]
        )
        kind = random.permutation(kind)
    sized = sized_cluster(options, share, kind, weight)
    instance = cluster_instance(options, sized.draft, kind, weight, sized.W)
    return Generated(
        instance, lambda: (*_gang_note(options, sized.widest), _level_note(instance, sized))
    )


def _with_rest(shares: tuple[float, ...]) -> FloatArray:
    together = np.array([max(0.0, 1.0 - sum(shares)), *shares])
    return np.asarray(together / together.sum())


def _gang_note(options: ClusterOptions, widest: int) -> tuple[str, ...]:
    asked = [count for count, share in zip(COUNTS[1:], options.gangs, strict=True) if share > 0]
    if not asked or max(asked) <= widest:
        return ()
    return (f"gangs have {widest} GPUs at most, as no pool has room for wider ones",)


def _level_note(instance: Instance, sized: Sized) -> str:
    demand, W = sized.demand, sized.W
    tmax = highest(demand, W)
    bound = min(1.0, level_bound(demand, W, balanced_prices(demand, W)) / tmax)
    if W.size * len(instance.jobs_table) > SOLVED:
        return f"max-min fairness: t*/tmax at most {bound:.3f} (bound at prices of the pools)"
    from optsched.api import solve

    level = solve(instance, "max-min-fairness").objective
    if level is None:
        return f"max-min fairness: t*/tmax at most {bound:.3f} (bound at prices of the pools; not solved)"
    return f"max-min fairness: t*/tmax {level / tmax:.3f} (solved; at most {bound:.3f} by construction)"


CLUSTER = Generator(
    ClusterOptions,
    cluster,
    "Jobs on pools of different GPUs, with as little capacity as you ask for.",
)
