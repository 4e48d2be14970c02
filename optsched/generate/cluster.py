"""Jobs on heterogeneous pools, with as little capacity as asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidArgument
from optsched.generate.generator import (
    PARTS,
    Conditions,
    Generated,
    Generator,
    GeneratorOptions,
    LargeCount,
    Share,
    split,
)
from optsched.generate.jobs import (
    Deadlines,
    Gangs,
    Median,
    Shape,
    Sigma,
    Tenants,
    draw_hours,
    draw_tenants,
    with_rest,
)
from optsched.generate.load import GpuDemand, balanced_prices, costs, highest, level_bound
from optsched.generate.profiles import Document, Site
from optsched.generate.rows import (
    COUNTS,
    RateRows,
    closed_forms,
    draw_pairs,
    draw_rows,
    pair_entries,
    sites_of,
    slowdowns,
    workloads_of,
)
from optsched.generate.topologies import Topology, hosts_of, network, pool_document
from optsched.generate.workloads import TrainedModel
from optsched.instance import FORMAT, Instance, RateTable
from optsched.instance.build import build_header
from optsched.instance.documents import refused
from optsched.instance.durations import HOUR
from optsched.instance.from_arrays import assemble
from optsched.instance.rates import ANY_SPREAD, OWN_GANG
from optsched.instance.reading import show
from optsched.instance.tables import JobNames

# Pairs of jobs and pools up to which the note on the level comes from solving the program.
SOLVED = 10_000
# Hours in which the jobs have arrived.
PAST = 72.0
SHRINK, TRIES = 0.97, 100
# Iterations for the sizes of nodes and of pools, which depend on each other.
SETTLED = 4


class ClusterOptions(GeneratorOptions):
    only_if: ClassVar[Conditions] = {
        "kinds": ("rows is repeated", lambda given: given.rows == "repeated"),
        "sigma": ("durations is lognormal", lambda given: given.durations == "lognormal"),
        "shape": ("durations is pareto", lambda given: given.durations == "pareto"),
        "slack": ("deadlines is above 0", lambda given: given.deadlines > 0),
    }

    jobs: LargeCount = Field(1000, description="Jobs.")
    pools: int = Field(
        4,
        ge=1,
        le=16,
        description="Pools: V100, A100, H100, T4, P100, A100 80 GB, K80, and again.",
    )
    load: float = Field(
        1.5,
        ge=0.01,
        le=1e4,
        description="Capacity is made so scarce that the max-min level is "
        "at most 1/load of what every job can "
        "reach alone.",
    )
    rows: Literal["distinct", "repeated"] = Field(
        "distinct",
        description=(
            "distinct: every job has its own rates; repeated: there are as many rows as --kinds."
        ),
    )
    kinds: int = Field(
        100, ge=1, le=10_000, description="Different rows of repeated ones; every one occurs."
    )
    durations: Literal["lognormal", "pareto"] = Field(
        "lognormal", description="Distribution of the hours of a job in its fastest pool."
    )
    median: Median = 4.0
    sigma: Sigma = 1.2
    shape: Shape = 1.5
    gangs: Gangs = (0.1, 0.15, 0.05)
    elastic: Share = Field(0.0, description="Share of jobs that take 1, 2, 4 or 8 GPUs.")
    weights: Annotated[
        tuple[Share, Share],
        split(2),
        PARTS,
        Field(
            description="Shares of jobs with weight 2 and 4; the others have 1.",
            json_schema_extra={"metavar": "S,S"},
        ),
    ] = (0.15, 0.05)
    deadlines: Deadlines = 0.0
    slack: float = Field(
        3.0,
        ge=0.1,
        le=1e6,
        description="Time to a deadline over the hours in the fastest pool.",
    )
    tenants: Tenants = 0
    topology: Topology = Field(
        "none",
        description="tree: a leaf switch per pool; racks: "
        "racks of 8 nodes with leaf and spine switches; "
        "mixed-nodes: racks, and nodes of two sizes; none: no graph.",
    )
    unavailable: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="Share of nodes that are drained or down.",
    )
    colocation: Share = Field(
        0.0,
        description=(
            "Share of the possible pairs of jobs (of kinds, if repeated) that may share a GPU."
        ),
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.rows == "repeated" and self.kinds > self.jobs:
            raise refused(show(self.kinds), f"at most one per job, {self.jobs}", "kinds")
        return self


def cluster(options: ClusterOptions) -> Generated:
    """Jobs with rates from closed forms and noise, on pools whose size gives the requested max-min
    level.

    Pool sizes have the proportions of a Dirichlet(5) draw. Their total is such that the bound of
    `optsched.generate.load` at balanced prices is at most tmax / load, after rounding to whole
    nodes too: the level of max-min fairness is at most 1 / load of what every job can reach alone,
    proven without solving anything.
    """
    random = np.random.default_rng([options.seed, 0])
    n = options.jobs
    weight = random.choice(np.array([1.0, 2.0, 4.0]), n, p=with_rest(options.weights))
    share = random.dirichlet(np.full(options.pools, 5.0))
    kind = np.arange(n)
    if options.rows == "repeated":
        # Every kind occurs at least once; then the order is drawn
        kind = np.concatenate(
            [np.arange(options.kinds), random.integers(0, options.kinds, n - options.kinds)]
        )
        kind = random.permutation(kind)
    sized = _sized(options, share, kind, weight)
    instance = _instance(options, sized.draft, kind, weight, sized.W)
    return Generated(
        instance, lambda: (*_gang_note(options, sized.widest), _level_note(instance, sized))
    )


def _gang_note(options: ClusterOptions, widest: int) -> tuple[str, ...]:
    asked = [count for count, share in zip(COUNTS[1:], options.gangs, strict=True) if share > 0]
    if not asked or max(asked) <= widest:
        return ()
    return (f"gangs have {widest} GPUs at most, as no pool has room for wider ones",)


def _level_note(instance: Instance, sized: Sized) -> str:
    demand = sized.demand
    W = sized.W
    tmax = highest(demand, W)
    bound = min(1.0, level_bound(demand, W, balanced_prices(demand, W)) / tmax)
    if W.size * len(instance.jobs_table) > SOLVED:
        return f"max-min fairness: t*/tmax at most {bound:.3f} (bound at prices of the pools)"
    from optsched.api import solve

    level = solve(instance, "max-min-fairness").objective
    if level is None:
        return (
            f"max-min fairness: t*/tmax at most {bound:.3f} (bound at prices of the pools; "
            "not solved)"
        )
    return (
        f"max-min fairness: t*/tmax {level / tmax:.3f} (solved; "
        f"at most {bound:.3f} by construction)"
    )


# --- sizes of pools -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draft:
    """A cluster whose pools have no sizes yet: nodes, rows of rates, and co-location entries among
    the rows.
    """

    sites: list[Site]
    workloads: list[TrainedModel]
    table: FloatArray
    rows: RateRows
    colocation: list[Document]
    sharing: FloatArray

    def demand(self, kind: IntArray, weight: FloatArray) -> GpuDemand:
        """Demand of jobs with these rows, arrays of shape (jobs, ...)."""
        gang = np.maximum(self.rows.gang, 1)
        return GpuDemand(
            self.rows.slow[kind],
            self.rows.fast[kind],
            gang[kind],
            weight,
            self.sharing[kind],
        )


@dataclass(frozen=True)
class Sized:
    """A draft with sizes: W, the GPUs of each pool; the demand on these pools; and the size of the
    largest gang.
    """

    draft: Draft
    W: FloatArray
    demand: GpuDemand
    widest: int


def _sized(options: ClusterOptions, share: FloatArray, kind: IntArray, weight: FloatArray) -> Sized:
    """Pools in proportion to ``share`` that keep the bound
    of `optsched.generate.load` at tmax / load.

    While some gang fits in no pool, the size of the widest gangs is halved.

    Raises
    ------
    InvalidArgument
        If pools of a node each are more than the load leaves.
    """
    widest = COUNTS[-1]
    while True:
        gpus = math.inf
        # The size of nodes depends on that of pools, and rates of gangs on the size of nodes
        for _ in range(SETTLED):
            draft = _draft(options, gpus, widest)
            demand = draft.demand(kind, weight)
            total = _total(demand, share, options.load)
            if sites_of(options.pools, total / options.pools) == draft.sites:
                break
            gpus = total / options.pools
        W = _whole_nodes(demand, share, total, draft.sites, options)
        if W is not None:
            return Sized(draft, W, demand.fitting(W), widest)
        # Try narrower gangs; rows are drawn again with the same random numbers
        widest //= 2


def _draft(options: ClusterOptions, gpus: float, widest: int) -> Draft:
    """Rows and entries for pools of about ``gpus`` GPUs. They have separate random streams, so
    every call draws the same numbers.
    """
    sites = sites_of(options.pools, gpus)
    workloads = workloads_of(sites)
    table = closed_forms(workloads, sites)
    repeated = options.rows == "repeated"
    count = options.kinds if repeated else options.jobs
    random = np.random.default_rng([options.seed, 1])
    rows = draw_rows(count, table, options.gangs, options.elastic, widest, random)
    colocation = list[Document]()
    sharing = np.ones(len(rows.gang))
    if options.colocation > 0:
        pairs = draw_pairs(
            rows,
            options.colocation,
            repeated,
            np.random.default_rng([options.seed, 2]),
        )
        key, letter = ("workloads", "k") if repeated else ("jobs", "j")
        colocation, sharing = pair_entries(
            pairs,
            rows,
            slowdowns(workloads, sites),
            sites,
            key,
            letter,
        )
    return Draft(sites, workloads, table, rows, colocation, sharing)


def _total(demand: GpuDemand, share: FloatArray, load: float) -> float:
    """GPUs of a cluster with these proportions at which the bound is tmax / load:
    it grows with them in proportion.
    """
    prices = balanced_prices(demand, share)
    return highest(demand, share) / load * float(costs(demand, share, prices)[0].sum())


def _whole_nodes(
    demand: GpuDemand,
    share: FloatArray,
    total: float,
    sites: list[Site],
    options: ClusterOptions,
) -> FloatArray | None:
    """GPUs of each pool, few enough for the bound; None if some gang fits in no pool."""
    node = np.array([site.gpus_per_node for site in sites], np.float64)
    for _ in range(TRIES):
        # Rounded down to whole nodes, but at least one node for each pool
        W = node * np.maximum(1.0, np.floor(share * total / node))
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
    found = (
        f"{options.load:g}, but {len(W)} pools of a node each are too many GPUs for "
        f"{options.jobs:,} jobs"
    )
    raise InvalidArgument("load", found, "a smaller one, or more jobs, or fewer pools")


# --- the instance ---------------------------------------------------------------------------------


def _instance(
    options: ClusterOptions,
    draft: Draft,
    kind: IntArray,
    weight: FloatArray,
    W: FloatArray,
) -> Instance:
    """Put pools of W GPUs and the jobs together.

    If rows are distinct, each job states its rates, and its workload is only a label. If rows are
    repeated, each kind is a workload ``k0, k1, ...`` with rates by GPU count.
    """
    random = np.random.default_rng([options.seed, 3])
    n = options.jobs
    repeated = options.rows == "repeated"
    rows = draft.rows
    hours = draw_hours(options, random)
    now = PAST * HOUR
    # Hours are those in the fastest pool, at the most GPUs: steps follow from the rate there.
    best = rows.fast.max(axis=1)[kind]
    with_deadline = random.random(n) < options.deadlines
    tenants = [f"t{k}" for k in range(options.tenants)]
    gang = rows.gang[kind]
    arrays = {
        "workload": kind if repeated else rows.workload[kind],
        "rates": np.full(n, -1) if repeated else np.arange(n),
        "options": np.full(n, -1),
        "levels": np.where(gang == 0, 0, -1),
        "gpus_min": np.maximum(gang, 1),
        "gpus_max": np.where(gang == 0, COUNTS[-1], gang),
        "steps": np.maximum(1.0, np.round(hours * HOUR * best)),
        "steps_done": np.zeros(n),
        "weight": weight,
        # All have arrived by now, in the order of their numbers.
        "arrival": np.sort(random.integers(0, int(now), n)).astype(np.float64),
        "deadline": np.where(with_deadline, np.ceil(now + options.slack * hours * HOUR), np.inf),
        "soft_deadline": np.zeros(n, bool),
        "tenant": draw_tenants(len(tenants), n, random),
        "preemptible": np.ones(n, bool),
        "restart_cost": np.zeros(n),
        "isolated_time": np.zeros(n),
        "exempt_time": np.zeros(n),
        "checkpoint_interval": np.zeros(n),
    }
    header = build_header(
        {
            "format": FORMAT,
            "name": options.titled(f"cluster-{n}x{options.pools}-{options.rows}"),
            "now": now,
            "cluster": _cluster_document(options, draft, W, random),
            "workloads": _kind_documents(draft) if repeated else _labels(draft),
            "tenants": [{"name": name} for name in tenants],
            "colocation": draft.colocation,
        }
    )
    # Distinct rows are a profile for each job; repeated ones are in the workloads.
    rates = (
        None if repeated else _rate_table(rows, draft.table, [site.name for site in draft.sites])
    )
    level_lists = (COUNTS,) if (gang == 0).any() else ()
    return assemble(header, JobNames(n), arrays, rates, level_lists)


def _cluster_document(
    options: ClusterOptions,
    draft: Draft,
    W: FloatArray,
    random: np.random.Generator,
) -> Document:
    hosts = [
        hosts_of(site, int(gpus), options.topology, options.unavailable, random)
        for site, gpus in zip(draft.sites, W.tolist(), strict=True)
    ]
    return {
        "pools": [
            pool_document(site, pool_hosts)
            for site, pool_hosts in zip(draft.sites, hosts, strict=True)
        ],
        "topology": network(
            [host for pool_hosts in hosts for host in pool_hosts], options.topology
        ),
    }


def _labels(draft: Draft) -> Document:
    """Workloads without rates, for jobs that state their rates."""
    return {
        workload.name: {
            "gpu_memory": workload.gpu_memory,
            "parameters": {"batch": workload.batch, "model_parameters": round(workload.parameters)},
        }
        for workload in draft.workloads
    }


def _kind_documents(draft: Draft) -> Document:
    """A workload per kind, with the rates of its gang, or of all counts if it is elastic."""
    rows = draft.rows
    documents = {}
    every = np.arange(len(rows.gang))
    by_count = {count: rows.at(every, draft.table, count).tolist() for count in COUNTS}
    for row, gang in enumerate(rows.gang.tolist()):
        workload = draft.workloads[rows.workload[row]]
        throughput = {
            site.name: {
                str(count): by_count[count][row][pool]
                for count in (COUNTS if gang == 0 else (gang,))
            }
            for pool, site in enumerate(draft.sites)
            if rows.slow[row, pool] > 0
        }
        documents[f"k{row}"] = {
            "throughput": throughput,
            "gpu_memory": workload.gpu_memory,
            "parameters": {"model": workload.model, "batch": workload.batch},
        }
    return documents


def _rate_table(rows: RateRows, table: FloatArray, places: list[str]) -> RateTable:
    """One profile per row: plain numbers of a gang, rates by count of an elastic job."""
    gang = rows.gang
    slow = np.where(rows.gang[:, np.newaxis] > 0, rows.slow, 0.0)
    profile, place = np.nonzero(slow)
    parts = [(profile, place, np.full(len(profile), OWN_GANG), slow[profile, place])]
    elastic = np.flatnonzero(gang == 0)
    for count in COUNTS if len(elastic) else ():
        rates = rows.at(elastic, table, count)
        row, place = np.nonzero(rates)
        parts.append((elastic[row], place, np.full(len(row), count), rates[row, place]))
    profile, place, gpus, rate = (np.concatenate([part[k] for part in parts]) for k in range(4))
    if len(elastic):
        # Rates by GPU count were appended count by count; a table has them profile by profile
        order = np.lexsort((gpus, place, profile))
        profile = profile[order]
        place = place[order]
        gpus = gpus[order]
        rate = rate[order]
    return RateTable(
        indptr=np.searchsorted(profile, np.arange(len(gang) + 1)),
        place=place.astype(np.int64),
        gpus=gpus.astype(np.int64),
        nodes=np.full(len(rate), ANY_SPREAD, np.int64),
        rate=rate.astype(np.float64),
        places=tuple(places),
    )


CLUSTER = Generator(
    ClusterOptions,
    cluster,
    "Jobs on pools of different GPUs, with as little capacity as you ask for.",
)
