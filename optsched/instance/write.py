"""From arrays back to documents, and the content hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pydantic_core

from optsched.arrays import FloatArray, IntArray, finite
from optsched.instance.cluster import Cluster, Pool
from optsched.instance.documents import FORMAT, NODE_STATES, JobDocument
from optsched.instance.instance import Instance
from optsched.instance.rates import ANY_SPREAD, OWN_GANG, RateTable
from optsched.instance.restart import restart_costs_document
from optsched.instance.tables import AS_THEY_ARE, Colocation, Workload


def instance_document(instance: Instance) -> dict[str, Any]:
    """The instance as plain data in the format ``optsched-instance/1``; defaults are left out."""
    return header_document(instance) | {"jobs": job_documents(instance)}


def header_document(instance: Instance) -> dict[str, Any]:
    """Everything but the jobs."""
    workloads = (workload for workload in instance.workloads if not workload.label)
    return {
        "format": FORMAT,
        "name": instance.name,
        "round": instance.round,
        "now": instance.now,
        "cluster": cluster_document(instance.cluster),
        "performance": dict(instance.performance),
        "workloads": {
            workload.name: _workload_document(workload, instance.rates) for workload in workloads
        },
        "tenants": [
            {"name": t.name, "weight": t.weight, "policy": t.policy} for t in instance.tenants
        ],
        "constraints": list(instance.constraints),
        "colocation": [_colocation_document(entry, instance) for entry in instance.colocation],
    }


def _workload_document(workload: Workload, rates: RateTable) -> dict[str, Any]:
    stated = {
        "demand": dict(workload.demand),
        "gpu_memory": workload.gpu_memory,
        "parameters": dict(workload.parameters),
        "restart_cost": restart_costs_document(workload.restart_cost),
    }
    # An empty table is written too: a table without rates is not the same as no table.
    throughput = {} if workload.rates < 0 else {"throughput": rates.document(workload.rates)}
    return throughput | _without_empty(stated)


def _colocation_document(entry: Colocation, instance: Instance) -> dict[str, Any]:
    workloads, names = instance.workloads, instance.jobs_table.names
    return _without_empty(
        {
            "workloads": [workloads[row].name for row in entry.workloads or ()],
            "jobs": [names[row] for row in entry.jobs or ()],
            "pool": instance.cluster.pools[entry.pool].name,
            "gpus": entry.gpus,
            "nodes": entry.nodes or None,
            "throughput": list(entry.throughput),
        }
    )


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The cluster part of an instance document."""
    return {
        "pools": [_pool_document(pool) for pool in cluster.pools],
        "resources": [
            _without_empty(resource._asdict() | {"nodes": list(resource.nodes or ())})
            for resource in cluster.resources
        ],
        "topology": None if cluster.topology is None else dict(cluster.topology),
    } | ({} if cluster.level_document is None else {"levels": cluster.level_document})


def _pool_document(pool: Pool) -> dict[str, Any]:
    document: dict[str, Any] = {"name": pool.name, "gpu": pool.gpu}
    if isinstance(pool.node_names, int) and _uniform(pool):
        document |= {
            "nodes": pool.node_names,
            "gpus_per_node": int(pool.node_gpus[0]) if pool.node_names else 0,
            "cpus_per_node": finite(pool.node_cpus[0]) if pool.node_names else None,
            "memory_per_node": finite(pool.node_memory[0]) if pool.node_names else None,
        }
    else:
        document["nodes"] = [_node_document(pool, row) for row in range(len(pool.node_gpus))]
    document |= {
        "gpu_memory": pool.gpu_memory,
        "cost_per_gpu_hour": pool.cost_per_gpu_hour,
        "watts_per_gpu": pool.watts_per_gpu,
        "watts_idle": pool.watts_idle,
        "bandwidth": dict(pool.bandwidth),
        "partitions": [
            _without_empty(part._asdict() | {"starts": list(part.starts)})
            for part in pool.partitions
        ],
    }
    return _without_empty(document)


def _node_document(pool: Pool, row: int) -> dict[str, Any]:
    return _without_empty(
        {
            "name": pool.node_name(row),
            "gpus": int(pool.node_gpus[row]),
            "cpus": finite(pool.node_cpus[row]),
            "memory": finite(pool.node_memory[row]),
            "state": NODE_STATES[pool.node_state[row]],
            "available_from": finite(pool.node_available_from[row]),
        }
    )


def _uniform(pool: Pool) -> bool:
    # NaN means not stated; np.unique treats all NaN as one value.
    columns = (pool.node_gpus, pool.node_cpus, pool.node_memory)
    same = all(len(np.unique(column)) <= 1 for column in columns)
    return same and not pool.node_state.any() and bool(np.isneginf(pool.node_available_from).all())


def job_documents(instance: Instance, rows: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """The jobs (or the given rows) as documents; a field that has its default is left out."""
    table, pools = instance.jobs_table, instance.cluster.pools
    fields = JobDocument.model_fields
    columns = {name: (getattr(table, name), fields[name].default) for name in AS_THEY_ARE}
    documents = []
    for row in range(len(table)) if rows is None else rows:
        document: dict[str, Any] = {"id": table.names[row]}
        if table.workload[row] >= 0:
            document["workload"] = instance.workloads[table.workload[row]].name
        low = int(table.gpus_min[row])
        high = int(table.gpus_max[row])
        levels = int(table.levels[row])
        if low == high and levels < 0:
            document["gpus"] = low
        else:
            document["gpus"] = {"min": low, "max": high}
            if levels >= 0:
                document["gpus"]["levels"] = list(table.level_lists[levels])
        for name, (values, default) in columns.items():
            if values[row] != default or name == "steps":
                document[name] = values[row].item()
        document["arrival"] = float(table.arrival[row])
        if np.isfinite(table.deadline[row]):
            document["deadline"] = float(table.deadline[row])
            document["deadline_kind"] = "soft" if table.soft_deadline[row] else "hard"
        if table.tenant[row] >= 0:
            document["tenant"] = instance.tenants[table.tenant[row]].name
        if row in table.running:
            pool, gpus, since = table.running[row]
            document["running"] = _without_empty(
                {"pool": pools[pool].name, "gpus": list(gpus), "since": since}
            )
        if row in table.awaits:
            document["after"] = list(table.awaits[row])
        elif row in table.after:
            document["after"] = [table.names[before] for before in table.after[row]]
        if table.rates[row] >= 0:
            document["throughput"] = instance.rates.document(int(table.rates[row]))
        if table.options[row] >= 0:
            document["options"] = _option_documents(instance, int(table.options[row]))
        if table.isolated_time[row]:
            document["history"] = {"isolated_time": float(table.isolated_time[row])}
        documents.append(document)
    return documents


def _option_documents(instance: Instance, row: int) -> list[dict[str, Any]]:
    options = instance.options
    documents = []
    for r in range(options.indptr[row], options.indptr[row + 1]):
        document = {
            "pool": None if options.pool[r] < 0 else instance.cluster.pools[options.pool[r]].name,
            "gpus": int(options.gpus[r]),
            "nodes": None if options.nodes[r] == ANY_SPREAD else int(options.nodes[r]),
            "share": None if options.share[r] == 1.0 else float(options.share[r]),
            "limit": float(options.limit[r]) if options.limit[r] > options.share[r] else None,
            "throughput": finite(options.throughput[r]),
            "duration": finite(options.duration[r]),
            "uses": dict(options.uses[r]),
            "value": float(options.value[r]) or None,
            "cost": float(options.cost[r]) or None,
            "attributes": dict(options.attributes[r]),
        }
        documents.append(_without_empty(document))
    return documents


def _without_empty(document: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in document.items()
        if value is not None and value != {} and value != []
    }


def content_hash(instance: Instance) -> str:
    """SHA-256 over the header document and the job arrays,
    where interned rows are compared by content, not by number.

    Workloads, profiles and option lists are numbered in order of first appearance, so that reading
    the same jobs from JSON, YAML, npz or arrays gives the same hash.
    """
    table, rates = instance.jobs_table, instance.rates
    digest = hashlib.sha256()
    digest.update(_text(header_document(instance)))
    digest.update(_text(table.names.written()))
    for name in (
        "gpus_min",
        "gpus_max",
        "steps",
        "steps_done",
        "weight",
        "arrival",
        "deadline",
        "soft_deadline",
        "preemptible",
        "restart_cost",
        "isolated_time",
        "tenant",
    ):
        digest.update(np.ascontiguousarray(getattr(table, name)).data)
    # Instances that do not use these later fields keep their old hash.
    for name in ("exempt_time", "checkpoint_interval"):
        column = getattr(table, name)
        if column.any():
            digest.update(_text(name))
            digest.update(np.ascontiguousarray(column).data)
    plain = plain_profiles(rates)
    for index, content in (
        (table.workload, lambda row: _text(instance.workloads[row].name)),
        (table.levels, lambda row: _text(table.level_lists[row])),
        (table.rates, plain.__getitem__ if plain else lambda row: _text(rates.document(row))),
    ):
        rank, contents = _by_content(index, content)
        digest.update(rank.data)
        digest.update(b"\n".join(contents))
    rare = sorted({*table.running, *table.after, *np.flatnonzero(table.options >= 0).tolist()})
    for row, document in zip(rare, job_documents(instance, rare), strict=True):
        kept = {key: document[key] for key in ("running", "after", "options") if key in document}
        digest.update(f"{row}:".encode() + _text(kept))
    return digest.hexdigest()


def _text(document: object) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def plain_profiles(rates: RateTable) -> list[bytes]:
    """`RateTable.document` of all profiles as JSON, where each is one number or more, one per
    place; empty if some profile is not.

    It writes the rates of a hundred thousand jobs as one text instead of one document each.
    """
    if not len(rates) or not (rates.gpus == OWN_GANG).all() or not rates.one_by_one:
        return []
    begins = rates.indptr[:-1]
    if (begins == rates.indptr[1:]).any():
        return []
    # Rank of each place by name, because `_text` sorts keys too.
    in_order = np.argsort(np.argsort(np.array(rates.places, object)))
    order = np.lexsort((in_order[rates.place], rates.profile))
    keys = [json.dumps(place) for place in rates.places]
    # What stands before a number: a further place of its profile, or the first one of the next.
    before = [*(f", {key}: " for key in keys), *(f"}}\n{{{key}: " for key in keys)]
    place = rates.place[order]
    place[begins] += len(keys)
    text = [""] * (2 * len(place))
    text[::2] = map(before.__getitem__, place.tolist())
    text[1::2] = json_numbers(rates.rate[order])
    return "".join([*text, "}"]).removeprefix("}\n").encode().split(b"\n")


def json_numbers(values: FloatArray) -> list[str]:
    """Numbers of at least 0 as the `json` module writes them."""
    # pydantic is four times as fast; it differs from `json` only below 1e-4.
    text = pydantic_core.to_json(values.tolist())[1:-1].decode().split(",") if len(values) else []
    for row in ((values < 1e-4) & (values > 0)).nonzero()[0].tolist():
        text[row] = repr(float(values[row]))
    return text


def _by_content(index: IntArray, content: Callable[[int], bytes]) -> tuple[IntArray, list[bytes]]:
    """Number rows (-1: none) in order of first appearance, with equal contents getting one number;
    returns the numbers and the contents.
    """
    values, first, inverse = np.unique(index, return_index=True, return_inverse=True)
    ranks = np.full(len(values), -1, np.int64)
    order = np.argsort(first)
    order = order[values[order] >= 0]
    contents = list(map(content, values[order].tolist()))
    seen = {each: rank for rank, each in enumerate(dict.fromkeys(contents))}
    ranks[order] = list(map(seen.__getitem__, contents))
    return ranks[inverse], list(seen)
