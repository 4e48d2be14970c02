"""Jobs on heterogeneous pools, with as little capacity as asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import FloatArray, IntArray
from optsched.generate.assembling import cluster_instance
from optsched.generate.generator import (
    BadOption,
    Generated,
    Generator,
    GeneratorOptions,
    LargeCount,
    Share,
    refused,
    split,
)
from optsched.generate.load import Demand, balanced_prices, costs, highest, level_bound
from optsched.generate.profiles import Document, Site
from optsched.generate.rows import Rows, closed_forms, draw_rows, sites_of, workloads_of
from optsched.generate.sharing import draw_pairs, entries, slowdowns
from optsched.generate.topologies import Topology
from optsched.generate.workloads import Training
from optsched.instance import Instance

SOLVED = 10_000
"""Pairs of jobs and pools up to which the note on the level comes from solving the program."""
SHRINK, TRIES = 0.97, 100


class ClusterOptions(GeneratorOptions):
    """Options of `cluster`."""

    jobs: Annotated[LargeCount, Field(description="Jobs.")] = 1000
    pools: Annotated[
        int, Field(ge=1, le=16, description="Pools: V100, A100, H100, T4, P100, A100 80 GB, K80, and again.")
    ] = 4
    load: Annotated[
        float,
        Field(
            ge=0.01, le=1e4, allow_inf_nan=False,
            description="Capacity is made so scarce that the max-min level is at most 1/load of what every job can "
            "reach alone.",
        ),
    ] = 1.5  # fmt: skip
    rows: Annotated[
        Literal["distinct", "repeated"],
        Field(description="distinct: every job has rates of its own; repeated: there are as many rows as --kinds."),
    ] = "distinct"
    kinds: Annotated[int, Field(ge=1, le=10_000, description="Different rows of repeated ones; every one occurs.")] = (
        100
    )
    durations: Annotated[
        Literal["lognormal", "pareto"], Field(description="Distribution of the hours of a job in its fastest pool.")
    ] = "lognormal"
    median: Annotated[float, Field(gt=0, le=1e5, allow_inf_nan=False, description="Median of the hours.")] = 4.0
    sigma: Annotated[
        float, Field(ge=0, le=5, allow_inf_nan=False, description="Standard deviation of the log of lognormal hours.")
    ] = 1.2
    shape: Annotated[
        float, Field(gt=0.2, le=100, allow_inf_nan=False, description="Exponent of Pareto's tail; below 2 it is heavy.")
    ] = 1.5
    gangs: Annotated[
        tuple[Share, Share, Share], split(3),
        Field(
            description="Shares of jobs with 2, 4 and 8 GPUs; the others have 1.",
            json_schema_extra={"metavar": "S,S,S"},
        ),
    ] = (0.1, 0.15, 0.05)  # fmt: skip
    elastic: Annotated[Share, Field(description="Share of jobs that take 1, 2, 4 or 8 GPUs.")] = 0.0
    weights: Annotated[
        tuple[Share, Share], split(2),
        Field(
            description="Shares of jobs with weight 2 and 4; the others have 1.",
            json_schema_extra={"metavar": "S,S"},
        ),
    ] = (0.15, 0.05)  # fmt: skip
    deadlines: Annotated[Share, Field(description="Share of jobs with a deadline.")] = 0.0
    slack: Annotated[
        float,
        Field(
            ge=0.1, le=1e6, allow_inf_nan=False, description="Time to a deadline over the hours in the fastest pool."
        ),
    ] = 3.0
    tenants: Annotated[
        int, Field(ge=0, le=1000, description="Tenants; the k-th has jobs in proportion to 1/k. 0: none.")
    ] = 0
    topology: Annotated[
        Topology,
        Field(
            description="tree: a leaf switch per pool; racks: racks of 8 nodes with leaf and spine switches; "
            "mixed-nodes: racks, and nodes of two sizes; none: no graph."
        ),
    ] = "none"
    unavailable: Annotated[
        float, Field(ge=0, le=0.5, allow_inf_nan=False, description="Share of nodes that are drained or down.")
    ] = 0.0
    colocation: Annotated[
        Share, Field(description="Share of the possible pairs of jobs (of kinds, if repeated) that may share a GPU.")
    ] = 0.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in ("gangs", "weights"):
            shares = getattr(self, name)
            if sum(shares) > 1 + 1e-9:
                raise refused(name, list(shares), "shares that add up to at most 1")
        if self.rows == "repeated" and self.kinds > self.jobs:
            raise refused("kinds", self.kinds, f"at most one per job, {self.jobs}")
        return self


@dataclass(frozen=True)
class Draft:
    """A cluster before it has a size: pools, rows of rates, and the co-location entries among the rows."""

    sites: list[Site]
    workloads: list[Training]
    table: FloatArray
    rows: Rows
    colocation: list[Document]
    sharing: FloatArray


def cluster(options: ClusterOptions) -> Generated:
    """Jobs with rates from closed forms and noise, on pools so small that the max-min level is what is asked.

    Pool sizes have the proportions of a Dirichlet(5) draw. Their total is such that the bound of
    `optsched.generate.load` at balanced prices is at most tmax / load, after rounding to whole nodes too: the level of
    max-min fairness is at most 1 / load of what every job can reach alone, proven without solving anything.
    """
    random = np.random.default_rng([options.seed, 0])
    n = options.jobs
    weight = random.choice(np.array([1.0, 2.0, 4.0]), n, p=_with_rest(options.weights))
    share = random.dirichlet(np.full(options.pools, 5.0))
    kind = np.arange(n)
    if options.rows == "repeated":
        kind = np.concatenate([np.arange(options.kinds), random.integers(0, options.kinds, n - options.kinds)])
        kind = random.permutation(kind)
    gpus = math.inf
    for _ in range(4):  # the size of nodes depends on that of the pools, and the rates of gangs on the size of nodes
        draft = _draft(options, gpus)
        demand = _demand(draft, kind, weight)
        wanted = _total(demand, share, options.load)
        if sites_of(options.pools, wanted / options.pools) == draft.sites:
            break
        gpus = wanted / options.pools
    W = _sized(demand, share, wanted, np.array([site.gpus_per_node for site in draft.sites], np.float64), options)
    fitting = demand.fitting(W)
    tmax = highest(fitting, W)
    bound = min(1.0, level_bound(fitting, W, balanced_prices(fitting, W)) / tmax)
    instance = cluster_instance(options, draft, kind, weight, W)
    return Generated(instance, lambda: (_level_note(instance, tmax, bound),))


def _with_rest(shares: tuple[float, ...]) -> FloatArray:
    together = np.array([max(0.0, 1.0 - sum(shares)), *shares])
    return np.asarray(together / together.sum())


def _draft(options: ClusterOptions, gpus: float) -> Draft:
    """Rows and entries for pools of about so many GPUs; drawn from streams of their own, so always alike."""
    sites = sites_of(options.pools, gpus)
    workloads = workloads_of(sites)
    table = closed_forms(workloads, sites)
    repeated = options.rows == "repeated"
    rows = draw_rows(
        options.kinds if repeated else options.jobs,
        table, options.gangs, options.elastic, np.random.default_rng([options.seed, 1]),
    )  # fmt: skip
    colocation, sharing = list[Document](), np.ones(len(rows.gang))
    if options.colocation > 0:
        pairs = draw_pairs(rows, options.colocation, repeated, np.random.default_rng([options.seed, 2]))
        key, letter = ("workloads", "k") if repeated else ("jobs", "j")
        colocation, sharing = entries(pairs, rows, slowdowns(workloads, sites), sites, key, letter)
    return Draft(sites, workloads, table, rows, colocation, sharing)


def _demand(draft: Draft, kind: IntArray, weight: FloatArray) -> Demand:
    rows = draft.rows
    gang = np.maximum(rows.gang, 1)
    return Demand(rows.slow[kind], rows.fast[kind], gang[kind], weight, draft.sharing[kind])


def _total(demand: Demand, share: FloatArray, load: float) -> float:
    """GPUs of a cluster with these proportions at which the bound is tmax / load: it grows with them in proportion."""
    prices = balanced_prices(demand, share)
    return highest(demand, share) / load * float(costs(demand, share, prices)[0].sum())


def _sized(demand: Demand, share: FloatArray, total: float, node: FloatArray, options: ClusterOptions) -> FloatArray:
    """GPUs of each pool in whole nodes, so few that the bound holds; raises `BadOption` where that can't be."""
    for _ in range(TRIES):
        W: FloatArray = node * np.maximum(1.0, np.floor(share * total / node))
        fitting = demand.fitting(W)
        if not fitting.slow.any(axis=1).all():
            largest = int(demand.gang[~fitting.slow.any(axis=1)].max())
            found = f"{options.load:g}, which leaves no pool with the {largest} GPUs of a gang that runs there"
            raise BadOption("load", found, "a smaller one, or more jobs, or smaller gangs")
        if options.load * level_bound(fitting, W, balanced_prices(fitting, W)) <= highest(fitting, W):
            return W
        if (node == W).all():
            break
        total *= SHRINK
    found = f"{options.load:g}, but {options.jobs:,} jobs don't fill {len(W)} pools of a node each so far"
    raise BadOption("load", found, "a smaller one, or more jobs, or fewer pools")


def _level_note(instance: Instance, tmax: float, bound: float) -> str:
    size = len(instance.jobs_table) * len(instance.cluster.pools)
    if size > SOLVED:
        return f"max-min fairness: t*/tmax at most {bound:.3f} (bound at prices of the pools)"
    from optsched.api import solve

    level: Any = solve(instance, "max-min-fairness").objective
    return f"max-min fairness: t*/tmax {level / tmax:.3f} (solved; at most {bound:.3f} by construction)"


CLUSTER = Generator(ClusterOptions, cluster, "Jobs on pools of different GPUs, with as little capacity as you ask for.")
