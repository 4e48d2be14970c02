"""Strategies: random valid instance documents."""

from __future__ import annotations

from typing import Any

from documents import instance_document
from hypothesis import strategies as st

Document = dict[str, Any]
LABELS = ("label 1", "label 2")
"""Workloads that only jobs name."""

names = st.text(min_size=1, max_size=4)
numbers = st.just(0.0) | st.floats(1e-100, 1e100) | st.integers(0, 10**6)
above_0 = st.floats(1e-100, 1e100) | st.integers(1, 10**6)
times = st.floats(-1e100, 1e100) | st.integers(-(10**6), 10**6)
free = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
free_objects = st.dictionaries(st.text(max_size=3), free, max_size=3)


def unique(values: st.SearchStrategy[Any], low: int, high: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=low, max_size=high, unique=True)


@st.composite
def some(draw: st.DrawFn, keys: dict[str, st.SearchStrategy[Any]]) -> Document:
    """An object that has each key or not."""
    return {key: draw(values) for key, values in keys.items() if draw(st.booleans())}


@st.composite
def pools(draw: st.DrawFn, name: str, node_names: list[str]) -> Document:
    limits = {"cpus": numbers, "memory": numbers}
    document: Document = {"name": name, "gpus_per_node": draw(st.integers(0, 8))}
    if node_names and draw(st.booleans()):
        states = st.sampled_from(["up", "drain", "down", "reserved"])
        keys = limits | {"gpus": st.integers(0, 16), "state": states, "available_from": times}
        document["nodes"] = [{"name": node} | draw(some(keys)) for node in node_names]
    else:
        document["nodes"] = draw(st.integers(0, 3))
    bandwidth = some(dict.fromkeys(("intra_node", "node", "leaf"), above_0))
    keys = {"gpu": names, "gpu_memory": above_0, "bandwidth": bandwidth, "watts_idle": numbers}
    keys |= {f"{key}_per_node": values for key, values in limits.items()} | {
        "cost_per_gpu_hour": numbers
    }
    return document | draw(some(keys))


@st.composite
def rates(draw: st.DrawFn, places: list[str], *, plain: bool) -> Document:
    counts = st.integers(1, 16)
    result: Document = {}
    for place in draw(unique(st.sampled_from(places), 0, 2)):
        if plain and draw(st.booleans()):
            result[place] = draw(numbers)
            continue
        result[place] = {}
        for count in draw(unique(counts, 0, 3)):
            spreads = draw(unique(st.integers(1, count), 0, 2))
            by_nodes = {str(nodes): draw(numbers) for nodes in spreads}
            result[place][str(count)] = by_nodes or draw(numbers)
    return result


@st.composite
def gpu_ranges(draw: st.DrawFn) -> int | Document:
    low, high = sorted((draw(st.integers(1, 2**31)), draw(st.integers(1, 2**31))))
    if draw(st.booleans()):
        return low
    levels = draw(unique(st.integers(low, high), 1, 4)) if draw(st.booleans()) else None
    return {"min": low, "max": high, "levels": levels}


@st.composite
def options(draw: st.DrawFn, pool: str | None, resources: list[str]) -> Document:
    keys = {
        "throughput": numbers,
        "duration": above_0,
        "value": times,
        "cost": times,
        "attributes": free_objects,
    }
    keys["share"] = st.floats(0, 1, exclude_min=True)
    document = draw(some(keys))
    uses = unique(st.sampled_from(resources), 0, 2) if resources else st.just([])
    document["uses"] = {resource: draw(numbers) for resource in draw(uses)}
    if pool is not None and draw(st.booleans()):
        document |= {"pool": pool, "gpus": draw(st.integers(1, 8))}
        if draw(st.booleans()):
            document["nodes"] = draw(st.integers(1, document["gpus"]))
    return document


def hosts_of(pool: Document) -> list[tuple[str, str, int]]:
    """Pool, name and GPUs of its nodes that have GPUs."""
    if isinstance(pool["nodes"], int):
        named = [{"name": f"{pool['name']}-{row}"} for row in range(pool["nodes"])]
    else:
        named = pool["nodes"]
    sized = [
        (pool["name"], node["name"], node.get("gpus", pool["gpus_per_node"])) for node in named
    ]
    return [host for host in sized if host[2] > 0]


@st.composite
def colocations(
    draw: st.DrawFn, jobs: list[Document], workloads: list[str], pools: list[str]
) -> list[Document]:
    """Entries of jobs and of workloads, at most one of each."""
    entries: list[Document] = []
    rates = st.tuples(numbers, numbers).map(list)
    gangs = [job for job in jobs if job["gpus"] == jobs[0]["gpus"] and isinstance(job["gpus"], int)]
    if len(gangs) > 1 and draw(st.booleans()):
        pair = draw(unique(st.sampled_from([job["id"] for job in gangs]), 2, 2))
        entries.append(
            {"jobs": pair, "pool": pools[0], "gpus": gangs[0]["gpus"], "throughput": draw(rates)}
        )
    if workloads and draw(st.booleans()):
        pair = [draw(st.sampled_from(workloads)) for _ in range(2)]
        entries.append(
            {"workloads": pair, "pool": draw(st.sampled_from(pools)), "throughput": draw(rates)}
        )
    return entries


@st.composite
def documents(draw: st.DrawFn) -> Document:
    pool_names, node_names = draw(unique(names, 1, 3)), draw(unique(names, 0, 4))
    share = len(node_names) // len(pool_names)
    pool_list = [
        draw(pools(name, [f"{node}#" for node in node_names[row * share : (row + 1) * share]]))
        for row, name in enumerate(pool_names)
    ]
    resource_names = [f"r-{name}" for name in draw(unique(names, 0, 2))]
    kinds = st.sampled_from(["renewable", "consumable"])
    resources = [
        {"name": name, "kind": draw(kinds), "capacity": draw(numbers)} for name in resource_names
    ]
    places = sorted({*pool_names, *(pool.get("gpu", pool["name"]) for pool in pool_list)})
    workload_names, tenant_names = draw(unique(names, 0, 3)), draw(unique(names, 0, 2))
    job_names = draw(unique(names, 0, 5))
    hosts = [host for pool in pool_list for host in hosts_of(pool)]
    jobs: list[Document] = []
    for row, name in enumerate(job_names):
        keys = {"steps": numbers, "steps_done": numbers, "weight": above_0, "restart_cost": numbers}
        keys |= {"preemptible": st.booleans(), "history": some({"isolated_time": numbers})}
        keys["deadline_kind"] = st.sampled_from(["hard", "soft"])
        job = {"id": name, "gpus": draw(gpu_ranges())} | draw(some(keys))
        if draw(st.booleans()):
            job["arrival"], job["deadline"] = sorted((draw(times), draw(times)))
        if tenant_names and draw(st.booleans()):
            job["tenant"] = draw(st.sampled_from(tenant_names))
        if workload_names and draw(st.booleans()):
            job["workload"] = draw(st.sampled_from(workload_names))
        if "workload" not in job or draw(st.booleans()):
            job["throughput"] = draw(rates(places, plain=isinstance(job["gpus"], int)))
            if "workload" not in job and draw(st.booleans()):
                job["workload"] = draw(st.sampled_from(LABELS))
        if draw(st.booleans()):
            pool = draw(st.none() | st.sampled_from(pool_names))
            job["options"] = draw(st.lists(options(pool, resource_names), min_size=1, max_size=2))
        if hosts and draw(st.booleans()):
            place, host, size = draw(st.sampled_from(hosts))
            gpus = draw(unique(st.integers(0, size - 1), 1, 3))
            job["running"] = {"pool": place, "gpus": [f"{host}/{gpu}" for gpu in gpus]} | draw(
                some({"since": times})
            )
        if row and draw(st.booleans()):
            job["after"] = draw(st.lists(st.sampled_from(job_names[:row]), max_size=2))
        jobs.append(job)
    document = draw(some({"name": names, "round": above_0, "now": times}))
    labels = sorted({job["workload"] for job in jobs if job.get("workload") in LABELS})
    document["colocation"] = draw(colocations(jobs, [*workload_names, *labels], pool_names))
    workload_keys = {
        "throughput": rates(places, plain=True),
        "gpu_memory": numbers,
        "parameters": free_objects,
    }
    return document | instance_document(
        pool_list,
        jobs,
        resources=resources,
        workloads={name: draw(some(workload_keys)) for name in workload_names},
        tenants=[{"name": name} | draw(some({"weight": above_0})) for name in tenant_names],
        constraints=[{"kind": kind} for kind in draw(st.lists(names, max_size=2))],
    )
