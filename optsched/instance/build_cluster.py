"""Cluster documents to `Cluster`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.instance.cluster import Cluster, Partition, Pool, Resource
from optsched.instance.documents import (
    MAX_GPUS,
    MAX_NODES,
    NODE_STATES,
    ClusterDocument,
    PoolDocument,
    ResourceDocument,
    parse_index,
)
from optsched.instance.levels import FROM_TOPOLOGY, check_levels
from optsched.instance.links import check_topology
from optsched.instance.reading import listed, show
from optsched.instance.references import refuse_repeated

RESERVED = ("cpu", "memory")


def build_cluster(document: ClusterDocument) -> Cluster:
    """Check names and references, and make pools with arrays over their nodes."""
    _check_size(document)
    pools = tuple(map(_pool, document.pools))
    refuse_repeated((pool.name for pool in pools), "cluster.pools[{}].name")
    _refuse_generated_names(pools)
    _check_node_names(pools)
    resources: list[Resource] = []
    for row, resource in enumerate(document.resources):
        resources.append(
            _resource(resource, pools, {r.name for r in resources}, f"cluster.resources[{row}]")
        )
    if document.topology is not None:
        check_topology(document.topology, "cluster.topology")
    cluster = Cluster(pools, tuple(resources), document.topology, document.levels or None)
    if cluster.level_document == FROM_TOPOLOGY:
        if cluster.topology is None:
            raise InvalidInput("cluster.levels", show(FROM_TOPOLOGY), "a cluster with a topology")
    elif cluster.level_document is not None:
        check_levels(cluster.level_document, cluster.numbering.by_name, "cluster.levels")
    return cluster


def _check_size(document: ClusterDocument) -> None:
    """Refuse more nodes or GPUs than a cluster may have, before there are arrays over them."""
    nodes = gpus = 0
    for row, pool in enumerate(document.pools):
        path, each = f"cluster.pools[{row}]", pool.gpus_per_node
        if isinstance(pool.nodes, int):
            if each is None:
                raise InvalidInput(
                    f"{path}.gpus_per_node", "nothing", "the GPUs of each node, as nodes is a count"
                )
            nodes, gpus = nodes + pool.nodes, gpus + pool.nodes * each
        else:
            for number, node in enumerate(pool.nodes):
                if node.gpus is None and each is None:
                    expected = "the GPUs of the node, or gpus_per_node of the pool"
                    raise InvalidInput(f"{path}.nodes[{number}].gpus", "nothing", expected)
                gpus += (each or 0) if node.gpus is None else node.gpus
            nodes += len(pool.nodes)
        if nodes > MAX_NODES or gpus > MAX_GPUS:
            found = f"{nodes} nodes with {gpus} GPUs" + (" up to this pool" if row else "")
            raise InvalidInput(
                f"{path}.nodes", found, "at most 10 million nodes and 100 million GPUs in all"
            )


def _pool(document: PoolDocument) -> Pool:
    named = () if isinstance(document.nodes, int) else document.nodes
    count = document.nodes if isinstance(document.nodes, int) else len(document.nodes)

    def column(field: str, default: float | None) -> FloatArray:
        # NaN if neither the node nor its pool states a value.
        values = np.full(count, np.nan if default is None else default, np.float64)
        for row, node in enumerate(named):
            if getattr(node, field) is not None:
                values[row] = getattr(node, field)
        return values

    states = [NODE_STATES.index(node.state) for node in named] if named else np.zeros(count)
    return Pool(
        name=document.name,
        gpu=document.gpu or document.name,
        node_names=names_of_nodes(document.name, [node.name for node in named]) if named else count,
        node_gpus=column("gpus", document.gpus_per_node).astype(np.int64),
        node_cpus=column("cpus", document.cpus_per_node),
        node_memory=column("memory", document.memory_per_node),
        node_state=np.array(states, np.int64),
        node_available_from=column("available_from", -np.inf),
        gpu_memory=document.gpu_memory,
        cost_per_gpu_hour=document.cost_per_gpu_hour,
        watts_per_gpu=document.watts_per_gpu,
        watts_idle=document.watts_idle,
        bandwidth={link: speed for link, speed in document.bandwidth or () if speed is not None},
        partitions=tuple(
            Partition(p.profile, p.compute_slices, p.memory_slices, tuple(p.starts), p.memory)
            for p in document.partitions or ()
        ),
    )


def names_of_nodes(pool: str, names: Sequence[str]) -> tuple[str, ...] | int:
    """Node names; only their number if they equal the generated names ``<pool>-<i>``."""
    usual = all(name == f"{pool}-{row}" for row, name in enumerate(names))
    return len(names) if usual else tuple(names)


def _check_node_names(pools: tuple[Pool, ...]) -> None:
    """Node names are unique in the cluster; generated names of plain pools are ``<pool>-<i>``."""
    plain = {pool.name: pool.node_names for pool in pools if isinstance(pool.node_names, int)}
    seen: dict[str, str] = {}
    for pool_row, pool in enumerate(pools):
        if isinstance(pool.node_names, int):
            continue
        for row, name in enumerate(pool.node_names):
            # Generated names are not stored: `a-7` is one of them if pool a has more than 7 nodes.
            head, _, index = name.rpartition("-")
            owner = head if 0 <= parse_index(index) < plain.get(head, 0) else seen.get(name)
            if owner is not None:
                raise InvalidInput(
                    f"cluster.pools[{pool_row}].nodes[{row}].name",
                    f"{show(name)} a second time (pool {show(owner)})",
                    "node names that differ",
                )
            seen[name] = pool.name


def _refuse_generated_names(pools: tuple[Pool, ...]) -> None:
    """Refuse the names ``<pool>.cpu`` and ``<pool>.memory``, which are reserved for the CPUs and
    the memory of a pool.
    """
    generated = {f"{pool.name}.{resource}": pool.name for pool in pools for resource in RESERVED}
    for row, pool in enumerate(pools):
        if pool.name in generated:
            found = f"{show(pool.name)}, which is a resource of pool {show(generated[pool.name])}"
            raise InvalidInput(f"cluster.pools[{row}].name", found, "another name")


def _resource(
    document: ResourceDocument, pools: tuple[Pool, ...], known: set[str], path: str
) -> Resource:
    # Usage and prices are given by name, so the names of pools, their CPUs and memory, and
    # resources must all differ.
    reserved = {
        *RESERVED,
        *(pool.name for pool in pools),
        *(f"{pool.name}.{of}" for pool in pools for of in RESERVED),
    }
    if document.name in reserved:
        expected = "a name that is no pool's and neither cpu nor memory (they belong to pools)"
        raise InvalidInput(f"{path}.name", show(document.name), expected)
    if document.name in known:
        raise InvalidInput(
            f"{path}.name", f"{show(document.name)} a second time", "names that differ"
        )
    by_name = {pool.name: pool for pool in pools}
    if document.pool is not None and document.pool not in by_name:
        raise InvalidInput(
            f"{path}.pool", show(document.pool), f"one of the pools {listed(by_name)}"
        )
    if document.nodes is not None:
        owners = pools if document.pool is None else (by_name[document.pool],)
        names = {pool.node_name(row) for pool in owners for row in range(len(pool.node_gpus))}
        for row, name in enumerate(document.nodes):
            if name not in names:
                raise InvalidInput(f"{path}.nodes[{row}]", show(name), "the name of a node")
        if len(set(document.nodes)) < len(document.nodes):
            raise InvalidInput(f"{path}.nodes", show(list(document.nodes)), "each node once")
    return Resource(document.name, document.kind, document.capacity, document.pool, document.nodes)
