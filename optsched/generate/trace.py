"""Jobs that arrive over time on a cluster of fixed size, at the rate or the load asked for."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from optsched.arrays import FloatArray
from optsched.errors import InvalidArgument
from optsched.generate.generator import (
    Conditions,
    Generated,
    Generator,
    GeneratorOptions,
    LargeCount,
    Share,
    significant,
    split,
)
from optsched.generate.jobs import (
    Deadlines,
    Gangs,
    Median,
    Shape,
    Sigma,
    Tenants,
    diurnal,
    draw_hours,
    draw_tenants,
    even,
    poisson,
    with_rest,
)
from optsched.generate.profiles import Document, Site, best_rate, workload_document
from optsched.generate.rows import COUNTS, TYPES
from optsched.generate.workloads import WORKLOADS
from optsched.instance import Instance, with_columns
from optsched.instance.documents import refused
from optsched.instance.durations import HOUR
from optsched.instance.reading import show
from optsched.traces import Trace, describe

DIGITS = 9
Multiple = Annotated[float, Field(ge=0.01, le=1e6)]


class TraceOptions(GeneratorOptions):
    only_if: ClassVar[Conditions] = {
        "amplitude": ("arrivals is diurnal", lambda given: given.arrivals == "diurnal"),
        "peak": ("arrivals is diurnal", lambda given: given.arrivals == "diurnal"),
        "median": ("durations is lognormal or pareto", lambda given: given.durations != "gavel"),
        "sigma": ("durations is lognormal", lambda given: given.durations == "lognormal"),
        "shape": ("durations is pareto", lambda given: given.durations == "pareto"),
        "slack": ("deadlines is above 0", lambda given: given.deadlines > 0),
        "load": ("there is no rate", lambda given: given.rate is None),
    }

    jobs: LargeCount = Field(1000, description="Jobs.")
    pools: int = Field(
        1,
        ge=1,
        le=len(TYPES),
        description="Pools: V100, A100, H100, T4, P100, A100 80 GB, K80.",
    )
    nodes: int = Field(8, ge=1, le=100_000, description="Nodes of each pool.")
    gpus_per_node: int = Field(8, ge=1, le=64, description="GPUs of a node.")
    arrivals: Literal["poisson", "diurnal", "even"] = Field(
        "poisson",
        description=(
            "poisson: at a constant rate; diurnal: more by day than by night; even: "
            "at equal distances."
        ),
    )
    load: float = Field(
        0.8,
        ge=0.001,
        le=1000,
        description=(
            "GPU-hours that arrive over those of the cluster, "
            "if pools are as likely as they have GPUs."
        ),
    )
    rate: float | None = Field(
        None,
        gt=0,
        le=1e9,
        description="Arrivals per hour, instead of a load.",
        json_schema_extra={"metavar": "X"},
    )
    amplitude: Share = Field(
        0.6, description="How far the rate goes up and down, as a share of its mean."
    )
    peak: float = Field(14.0, ge=0, le=24, description="Hour of the day with the most arrivals.")
    durations: Literal["lognormal", "pareto", "gavel"] = Field(
        "lognormal",
        description=(
            "Distribution of the hours of a job in its fastest pool; gavel: that of its generator."
        ),
    )
    median: Median = 1.0
    sigma: Sigma = 1.5
    shape: Shape = 1.5
    gangs: Gangs = (0.1, 0.15, 0.05)
    deadlines: Deadlines = 0.0
    slack: Annotated[
        tuple[Multiple, Multiple],
        split(2, "numbers"),
        Field(
            description=(
                "Least and most time to a deadline over the hours in the fastest pool; "
                "uniform between them."
            ),
            json_schema_extra={"metavar": "X,X"},
        ),
    ] = (1.2, 10.0)
    tenants: Tenants = 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.slack[0] > self.slack[1]:
            raise refused(show(list(self.slack)), "the smaller one first", "slack")
        return self


def trace(options: TraceOptions) -> Generated:
    """Draw workloads, gangs and durations, then arrivals at the rate that makes the load,
    then deadlines and tenants.

    The demand of a job is its mean GPU-hours in a random pool (`Demand.mean`); the rate of a load
    rho on G GPUs is

        r = rho G (n - 1) / sum_i GPU-hours_i      arrivals per hour

    so that the demand of all n jobs is about rho times the GPU-hours of the cluster while they
    arrive.
    """
    sites = [
        Site(name, gpu, options.nodes, options.gpus_per_node, bandwidth)
        for name, gpu, _, bandwidth in TYPES[: options.pools]
    ]
    widest = options.nodes * options.gpus_per_node
    # Refuse gangs that are larger than every pool: they could never run
    for count, share in zip(COUNTS[1:], options.gangs, strict=True):
        if share > 0 and count > widest:
            found = f"a share of {share:g} of gangs of {count}"
            raise InvalidArgument("gangs", found, f"none, as pools have {widest} GPUs")
    counts = [count for count in COUNTS if count <= widest]
    documents = {
        workload.name: workload_document(
            workload,
            sites,
            counts,
            np.random.default_rng([options.seed, row]),
        )
        for row, workload in enumerate(WORKLOADS.values())
    }
    documents = {
        name: document
        for name, document in documents.items()
        if best_rate(document["throughput"], 1) > 0
    }
    jobs = _without_arrivals(options, sites, documents, counts)
    # The demand of the jobs without arrivals fixes the rate that makes the load
    asked = float(describe(Trace(jobs)).demand.mean.sum())
    gpus = float(sum(site.gpus for site in sites))
    per_hour = (
        options.load * gpus * max(options.jobs - 1, 1) / asked
        if options.rate is None
        else options.rate
    )
    instance = _with_arrivals(options, jobs, per_hour)
    return Generated(instance, lambda: (_note(instance, per_hour),))


def _without_arrivals(
    options: TraceOptions,
    sites: list[Site],
    documents: Document,
    counts: list[int],
) -> Instance:
    """The jobs, all with arrival 0."""
    random = np.random.default_rng([options.seed, 1000])
    n = options.jobs
    workload = random.integers(0, len(documents), n)
    place = random.choice(len(counts), n, p=with_rest(options.gangs, len(counts)))
    # (workloads, counts): the highest rate of each gang, by which hours become steps.
    best = np.array(
        [
            [best_rate(document["throughput"], count) for count in counts]
            for document in documents.values()
        ]
    )
    steps = np.maximum(1.0, np.round(_hours(options) * HOUR * best[workload, place]))
    return Instance.from_arrays(
        pools=[site.document() for site in sites],
        workloads=documents,
        workload=workload,
        gpus=np.array(counts)[place],
        steps=steps,
        tenant=draw_tenants(options.tenants, n, random),
        tenants=[{"name": f"t{k}"} for k in range(options.tenants)],
        name=options.titled(f"trace-{n}-{options.arrivals}"),
    )


def _hours(options: TraceOptions) -> FloatArray:
    """Hours in the fastest pool;
    drawn from a separate random stream, so always the same.
    """
    return significant(draw_hours(options, np.random.default_rng([options.seed, 1001])), DIGITS)


def _with_arrivals(options: TraceOptions, jobs: Instance, per_hour: float) -> Instance:
    """The same jobs with arrivals, to a millisecond, and deadlines."""
    random = np.random.default_rng([options.seed, 1002])
    n = options.jobs
    if options.arrivals == "even":
        arrival = even(n, per_hour)
    elif options.arrivals == "diurnal":
        arrival = diurnal(n, per_hour, options.amplitude, options.peak, random)
    else:
        arrival = poisson(n, per_hour, random)
    # To a millisecond: the last bits of exponentials differ between processors
    arrival = np.round(arrival, 3)
    random = np.random.default_rng([options.seed, 1003])
    due = arrival + random.uniform(*options.slack, n) * _hours(options) * HOUR
    deadline = np.where(random.random(n) < options.deadlines, np.ceil(due), np.inf)
    return with_columns(jobs, arrival=arrival, deadline=deadline)


def _note(instance: Instance, per_hour: float) -> str:
    summary = describe(Trace(instance))
    rate = f"{per_hour:,.4g} arrivals per hour"
    if summary.load is None or summary.load_mean is None:
        return rate
    return (
        f"{rate}; offered load {summary.load_mean:.3g} where pools take turns, "
        f"{summary.load:.3g} in the best ones"
    )


TRACE = Generator(
    TraceOptions, trace, "Jobs that arrive over time, at the load or the rate asked for."
)
