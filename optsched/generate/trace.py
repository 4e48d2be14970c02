"""Jobs that arrive over time on a cluster that stands fixed, at the rate or the load asked for."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.errors import InvalidArgument
from optsched.generate.arrivals import diurnal, even, poisson
from optsched.generate.durations import gavel, lognormal, pareto
from optsched.generate.generator import Generated, Generator, significant
from optsched.generate.profiles import Document, Site, best_rate, workload_document
from optsched.generate.rows import COUNTS, TYPES
from optsched.generate.trace_options import TraceOptions
from optsched.generate.workloads import WORKLOADS
from optsched.instance import Instance
from optsched.instance.revise_columns import with_columns
from optsched.traces import Trace, describe
from optsched.traces.demand import HOUR

DIGITS = 9


def trace(options: TraceOptions) -> Generated:
    """Draw workloads, gangs and durations, then arrivals at the rate that makes the load, then deadlines and tenants.

    What a job asks for is the GPU-hours that it needs with every pool where it can run as likely as it has GPUs
    (`Demand.mean`); the rate of a load rho on G GPUs is

        r = rho G (n - 1) / sum_i GPU-hours_i      arrivals per hour

    so that n jobs come within about as long as the cluster needs for a part rho of what they ask.
    """
    sites = [
        Site(name, gpu, options.nodes, options.gpus_per_node, bandwidth)
        for name, gpu, _, bandwidth in TYPES[: options.pools]
    ]
    widest = options.nodes * options.gpus_per_node
    for count, share in zip(COUNTS[1:], options.gangs, strict=True):
        if share > 0 and count > widest:
            found = f"a share of {share:g} of gangs of {count}"
            raise InvalidArgument("gangs", found, f"none, as pools have {widest} GPUs")
    counts = [count for count in COUNTS if count <= widest]
    documents = {
        workload.name: workload_document(
            workload, sites, counts, np.random.default_rng([options.seed, row])
        )
        for row, workload in enumerate(WORKLOADS.values())
    }
    documents = {
        name: document
        for name, document in documents.items()
        if best_rate(document["throughput"], 1) > 0
    }
    still = _still(options, sites, documents, counts)
    asked = float(describe(Trace(still)).demand.mean.sum())
    gpus = float(sum(site.gpus for site in sites))
    per_hour = (
        options.load * gpus * max(options.jobs - 1, 1) / asked
        if options.rate is None
        else options.rate
    )
    instance = _moving(options, still, per_hour)
    return Generated(instance, lambda: (_note(instance, per_hour),))


def _still(
    options: TraceOptions, sites: list[Site], documents: Document, counts: list[int]
) -> Instance:
    """The jobs, all there at once."""
    random, n = np.random.default_rng([options.seed, 1000]), options.jobs
    workload = random.integers(0, len(documents), n)
    shares = np.array([max(0.0, 1.0 - sum(options.gangs)), *options.gangs])[: len(counts)]
    place = random.choice(len(counts), n, p=shares / shares.sum())
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
        tenant=_tenants(options, random),
        tenants=[{"name": f"t{k}"} for k in range(options.tenants)],
        name=options.titled(f"trace-{n}-{options.arrivals}"),
    )


def _hours(options: TraceOptions) -> FloatArray:
    """Hours in the fastest pool."""
    random = np.random.default_rng([options.seed, 1001])
    if options.durations == "gavel":
        hours = gavel(options.jobs, random)
    elif options.durations == "pareto":
        hours = pareto(options.jobs, options.median, options.shape, random)
    else:
        hours = lognormal(options.jobs, options.median, options.sigma, random)
    return significant(hours, DIGITS)


def _tenants(options: TraceOptions, random: np.random.Generator) -> IntArray:
    if options.tenants == 0:
        return np.full(options.jobs, -1)
    share = 1.0 / np.arange(1, options.tenants + 1)
    return random.choice(options.tenants, options.jobs, p=share / share.sum())


def _moving(options: TraceOptions, still: Instance, per_hour: float) -> Instance:
    """The same jobs with arrivals, to a millisecond, and deadlines."""
    random, n = np.random.default_rng([options.seed, 1002]), options.jobs
    if options.arrivals == "even":
        arrival = even(n, per_hour)
    elif options.arrivals == "diurnal":
        arrival = diurnal(n, per_hour, options.amplitude, options.peak, random)
    else:
        arrival = poisson(n, per_hour, random)
    arrival = np.round(arrival, 3)
    random = np.random.default_rng([options.seed, 1003])
    due = arrival + random.uniform(*options.slack, n) * _hours(options) * HOUR
    deadline = np.where(random.random(n) < options.deadlines, np.ceil(due), np.inf)
    return with_columns(still, arrival=arrival, deadline=deadline)


def _note(instance: Instance, per_hour: float) -> str:
    summary = describe(Trace(instance))
    told = f"{per_hour:,.4g} arrivals per hour"
    if summary.load is None or summary.load_mean is None:
        return told
    return f"{told}; offered load {summary.load_mean:.3g} where pools take turns, {summary.load:.3g} in the best ones"


TRACE = Generator(
    TraceOptions, trace, "Jobs that arrive over time, at the load or the rate asked for."
)
