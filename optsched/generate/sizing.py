"""Sizes of generated pools: as few GPUs as the load asks for, in whole nodes, with room for the gangs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidArgument
from optsched.generate.cluster_options import ClusterOptions
from optsched.generate.load import Demand, balanced_prices, costs, highest, level_bound
from optsched.generate.profiles import Document, Site
from optsched.generate.rows import COUNTS, Rows, closed_forms, draw_rows, sites_of, workloads_of
from optsched.generate.sharing import draw_pairs, entries, slowdowns
from optsched.generate.workloads import Training

SHRINK, TRIES = 0.97, 100
SETTLED = 4
"""Rounds in which the size of nodes and that of pools find each other."""


@dataclass(frozen=True)
class Draft:
    """A cluster before its pools have sizes: nodes, rows of rates, and the co-location entries among the rows."""

    sites: list[Site]
    workloads: list[Training]
    table: FloatArray
    rows: Rows
    colocation: list[Document]
    sharing: FloatArray

    def demand(self, kind: IntArray, weight: FloatArray) -> Demand:
        """What jobs of these rows want, shapes (jobs, ...)."""
        gang = np.maximum(self.rows.gang, 1)
        return Demand(
            self.rows.slow[kind], self.rows.fast[kind], gang[kind], weight, self.sharing[kind]
        )


@dataclass(frozen=True)
class Sized:
    """A draft with sizes: W, GPUs of each pool, the demand that fits them, and the most GPUs that a gang has."""

    draft: Draft
    W: FloatArray
    demand: Demand
    widest: int


def sized_cluster(
    options: ClusterOptions, share: FloatArray, kind: IntArray, weight: FloatArray
) -> Sized:
    """Pools in proportion to ``share`` that keep the bound of `optsched.generate.load` at tmax / load.

    Where a gang finds no pool that it fits in, the widest gangs of all jobs are made half as wide, and so on.

    Raises
    ------
    InvalidArgument
        If pools of a node each are more than the load leaves.
    """
    widest = COUNTS[-1]
    while True:
        gpus = math.inf
        for _ in range(
            SETTLED
        ):  # the size of nodes depends on that of pools, and rates of gangs on the size of nodes
            draft = _draft(options, gpus, widest)
            demand = draft.demand(kind, weight)
            total = _total(demand, share, options.load)
            if sites_of(options.pools, total / options.pools) == draft.sites:
                break
            gpus = total / options.pools
        W = _whole_nodes(demand, share, total, draft.sites, options)
        if W is not None:
            return Sized(draft, W, demand.fitting(W), widest)
        widest //= 2


def _draft(options: ClusterOptions, gpus: float, widest: int) -> Draft:
    """Rows and entries for pools of about so many GPUs; drawn from streams of their own, so always alike."""
    sites = sites_of(options.pools, gpus)
    workloads = workloads_of(sites)
    table = closed_forms(workloads, sites)
    repeated = options.rows == "repeated"
    count = options.kinds if repeated else options.jobs
    random = np.random.default_rng([options.seed, 1])
    rows = draw_rows(count, table, options.gangs, options.elastic, widest, random)
    colocation, sharing = list[Document](), np.ones(len(rows.gang))
    if options.colocation > 0:
        pairs = draw_pairs(
            rows, options.colocation, repeated, np.random.default_rng([options.seed, 2])
        )
        key, letter = ("workloads", "k") if repeated else ("jobs", "j")
        colocation, sharing = entries(pairs, rows, slowdowns(workloads, sites), sites, key, letter)
    return Draft(sites, workloads, table, rows, colocation, sharing)


def _total(demand: Demand, share: FloatArray, load: float) -> float:
    """GPUs of a cluster with these proportions at which the bound is tmax / load: it grows with them in proportion."""
    prices = balanced_prices(demand, share)
    return highest(demand, share) / load * float(costs(demand, share, prices)[0].sum())


def _whole_nodes(
    demand: Demand, share: FloatArray, total: float, sites: list[Site], options: ClusterOptions
) -> FloatArray | None:
    """GPUs of each pool, so few that the bound holds; None where a gang has no pool to run in."""
    node = np.array([site.gpus_per_node for site in sites], np.float64)
    for _ in range(TRIES):
        W: FloatArray = node * np.maximum(1.0, np.floor(share * total / node))
        fitting = demand.fitting(W)
        if not fitting.slow.any(axis=1).all():
            return None
        if options.load * level_bound(fitting, W, balanced_prices(fitting, W)) <= highest(
            fitting, W
        ):
            return W
        if (node == W).all():
            break
        total *= SHRINK
    found = f"{options.load:g}, but {len(W)} pools of a node each are too many GPUs for {options.jobs:,} jobs"
    raise InvalidArgument("load", found, "a smaller one, or more jobs, or fewer pools")
