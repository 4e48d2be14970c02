"""The arrays of a generated cluster as an instance."""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.generate.cluster_options import ClusterOptions
from optsched.generate.durations import lognormal, pareto
from optsched.generate.profiles import Document
from optsched.generate.rows import COUNTS, Rows
from optsched.generate.sizing import Draft
from optsched.generate.topologies import hosts_of, network, pool_document
from optsched.instance import FORMAT, Instance, RateTable
from optsched.instance.build import build_header
from optsched.instance.from_arrays import assemble
from optsched.instance.tables import ANY_SPREAD, OWN_GANG, JobNames

HOUR = 3600.0
PAST = 72.0
"""Hours in which the jobs have arrived."""


def cluster_instance(
    options: ClusterOptions, draft: Draft, kind: IntArray, weight: FloatArray, W: FloatArray
) -> Instance:
    """Put pools of W GPUs and the jobs together.

    Of distinct rows each job brings its own rates, and its workload is a label; of repeated rows each kind is a
    workload ``k0, k1, ...`` with rates by GPU count.
    """
    random = np.random.default_rng([options.seed, 3])
    n, repeated = options.jobs, options.rows == "repeated"
    rows = draft.rows
    hours = _hours(options, n, random)
    now = PAST * HOUR
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
        "arrival": np.sort(random.integers(0, int(now), n)).astype(np.float64),
        "deadline": np.where(with_deadline, np.ceil(now + options.slack * hours * HOUR), np.inf),
        "soft_deadline": np.zeros(n, bool),
        "tenant": _tenants(len(tenants), n, random),
        "preemptible": np.ones(n, bool),
        "restart_cost": np.zeros(n),
        "isolated_time": np.zeros(n),
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
    rates = (
        None if repeated else _rate_table(rows, draft.table, [site.name for site in draft.sites])
    )
    level_lists = (COUNTS,) if (gang == 0).any() else ()
    return assemble(header, JobNames(n), arrays, rates, level_lists)


def _hours(options: ClusterOptions, n: int, random: np.random.Generator) -> FloatArray:
    """Hours in the fastest pool."""
    if options.durations == "lognormal":
        return lognormal(n, options.median, options.sigma, random)
    return pareto(n, options.median, options.shape, random)


def _tenants(tenants: int, n: int, random: np.random.Generator) -> IntArray:
    if tenants == 0:
        return np.full(n, -1)
    share = 1.0 / np.arange(1, tenants + 1)
    return random.choice(tenants, n, p=share / share.sum())


def _cluster_document(
    options: ClusterOptions, draft: Draft, W: FloatArray, random: np.random.Generator
) -> Document:
    hosts = [
        hosts_of(site, int(gpus), options.topology, options.unavailable, random)
        for site, gpus in zip(draft.sites, W.tolist(), strict=True)
    ]
    return {
        "pools": [pool_document(site, own) for site, own in zip(draft.sites, hosts, strict=True)],
        "topology": network([host for own in hosts for host in own], options.topology),
    }


def _labels(draft: Draft) -> Document:
    """Workloads without rates: what the jobs that bring their own have in common."""
    return {
        workload.name: {
            "gpu_memory": round(workload.memory(workload.mixed), 1),
            "parameters": {"batch": workload.batch, "model_parameters": round(workload.parameters)},
        }
        for workload in draft.workloads
    }


def _kind_documents(draft: Draft) -> Document:
    """A workload per kind, with the rates of its gang, or of all counts if it is elastic."""
    rows, documents = draft.rows, {}
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
            "gpu_memory": round(workload.memory(workload.mixed), 1),
            "parameters": {"model": workload.model, "batch": workload.batch},
        }
    return documents


def _rate_table(rows: Rows, table: FloatArray, places: list[str]) -> RateTable:
    """One profile per row: plain numbers of a gang, rates by count of an elastic job."""
    gang, slow = rows.gang, np.where(rows.gang[:, np.newaxis] > 0, rows.slow, 0.0)
    profile, place = np.nonzero(slow)
    parts = [(profile, place, np.full(len(profile), OWN_GANG), slow[profile, place])]
    elastic = np.flatnonzero(gang == 0)
    for count in COUNTS if len(elastic) else ():
        rates = rows.at(elastic, table, count)
        row, place = np.nonzero(rates)
        parts.append((elastic[row], place, np.full(len(row), count), rates[row, place]))
    profile, place, gpus, rate = (np.concatenate([part[k] for part in parts]) for k in range(4))
    if len(elastic):
        order = np.lexsort((gpus, place, profile))
        profile, place, gpus, rate = profile[order], place[order], gpus[order], rate[order]
    return RateTable(
        indptr=np.searchsorted(profile, np.arange(len(gang) + 1)).astype(np.int64),
        place=place.astype(np.int64),
        gpus=gpus.astype(np.int64),
        nodes=np.full(len(rate), ANY_SPREAD, np.int64),
        rate=rate.astype(np.float64),
        places=tuple(places),
    )
