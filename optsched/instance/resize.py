"""An instance with other capacities: GPUs of pools, their CPUs and memory, and other resources.

GPUs come and go in nodes, as a cluster grows and shrinks:

- added GPUs form nodes of the most frequent size of usable nodes in the pool (the larger one in a
  tie), and one smaller node for the remainder; CPUs and memory of a new node are in proportion to
  its GPUs;
- removed GPUs are taken from the last usable nodes: whole nodes, and a part of one, whose CPUs and
  memory shrink in proportion; unusable nodes do not change. Jobs on removed GPUs no longer run;
- CPUs and memory of a pool (``v100.cpu``) are spread over its usable nodes in proportion to their
  amounts.

The topology stays as it is: nodes that are added to an explicit one have no links. Racks and other
levels lose the removed nodes; an added node is in no group.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.errors import InvalidArgument, did_you_mean, unknown_name
from optsched.instance.build_cluster import names_of_nodes
from optsched.instance.cluster import PER_NODE, UP, Cluster, Pool, Resource
from optsched.instance.documents import MAX_GPUS, MAX_NODES
from optsched.instance.instance import Instance
from optsched.instance.tables import JobTable


def resized(instance: Instance, add: Mapping[str, float]) -> Instance:
    """The instance with more of some resources, and less of others.

    Parameters
    ----------
    instance : Instance
    add : mapping
        Name of a pool (GPUs, a whole number), of a pool's CPUs or memory (``v100.cpu``,
        ``v100.memory``), or of a resource -> amount that is added; negative amounts are taken away.

    Returns
    -------
    Instance
        Named after what was added: ``quickstart with v100 +8``.

    Raises
    ------
    UsageError
        A name is unknown, an amount is not a number or not a whole number of GPUs, or a capacity
        would become negative.
    """
    cluster, now = instance.cluster, instance.now
    for name, amount in add.items():
        _check(name, amount, cluster, now)
        cluster = _changed(cluster, name, float(amount), now)
    if cluster.pools is not instance.cluster.pools:
        cluster = replace(cluster, level_document=_levels_left(instance.cluster, cluster))
    name = f"{instance.name} with {', '.join(words_of(add))}" if add else instance.name
    table = _still_running(instance.jobs_table, instance.cluster, cluster)
    return replace(instance, name=name, cluster=cluster, jobs_table=table)


def words_of(add: Mapping[str, float]) -> list[str]:
    """Text such as ``v100 +8`` for each change."""
    return [f"{name} {amount:+,.10g}" for name, amount in add.items()]


def _check(name: str, amount: float, cluster: Cluster, now: float) -> None:
    known = cluster.capacities(now)
    if name not in known:
        head, _, kind = name.rpartition(".")
        if head in cluster.pool_index and kind in PER_NODE:
            unstated = f"a usable node of {head} that does not state its {kind}"
            raise InvalidArgument(f"add {name}", unstated, "a limit to add to")
        problem = f"add: no pool or resource is called {name!r}"
        raise unknown_name("add", name, known, problem, did_you_mean(name, known))
    if not math.isfinite(amount):
        raise InvalidArgument(f"add {name}", str(amount), "a finite number")
    if name in cluster.pool_index and amount != int(amount):
        raise InvalidArgument(f"add {name}", f"{amount:g}", "a whole number of GPUs")
    if known[name] + amount < 0:
        unit = " usable GPUs" if name in cluster.pool_index else ""
        least = f"at least -{known[name]:,.10g}, as there are {known[name]:,.10g}{unit}"
        raise InvalidArgument(f"add {name}", f"{amount:,.10g}", least)


def _changed(cluster: Cluster, name: str, amount: float, now: float) -> Cluster:
    resources = cluster.resources
    if name in {resource.name for resource in resources}:
        changed = [
            r._replace(capacity=r.capacity + amount) if r.name == name else r for r in resources
        ]
        return replace(cluster, resources=tuple(changed))
    head, _, kind = name.rpartition(".")
    row = cluster.pool_index[name if name in cluster.pool_index else head]
    pool = cluster.pools[row]
    if name not in cluster.pool_index:
        pool = _with_node_resource(pool, kind, amount, now)
    elif amount > 0:
        pool = _grown(cluster, pool, int(amount), now)
    elif amount < 0:
        pool = _shrunk(pool, -int(amount), now)
        resources = tuple(
            _of_nodes_left(resource, cluster.pools[row], pool) for resource in resources
        )
    return replace(
        cluster, pools=(*cluster.pools[:row], pool, *cluster.pools[row + 1 :]), resources=resources
    )


def _with_node_resource(pool: Pool, kind: str, amount: float, now: float) -> Pool:
    field = PER_NODE[kind]
    usable, values = pool.usable(now), getattr(pool, field).copy()
    total = float(values[usable].sum())
    if not usable.any():
        raise InvalidArgument(f"add {pool.name}.{kind}", "no usable node", "one that takes work")
    # In proportion to the amounts of nodes, or evenly if they have none.
    values[usable] = (
        values[usable] * ((total + amount) / total) if total > 0 else amount / usable.sum()
    )
    return replace(pool, **{field: values})


def _grown(cluster: Cluster, pool: Pool, gpus: int, now: float) -> Pool:
    """The pool with more GPUs, in nodes of its most frequent size; a pool without GPUs gets one
    node with all of them.
    """
    model = _typical_node(pool, now)
    size = gpus if model is None else int(pool.node_gpus[model])
    full, rest = divmod(gpus, size)
    count = full + (rest > 0)
    sizes_of_all = [each.node_gpus for each in cluster.pools]
    nodes, present = sum(map(len, sizes_of_all)), sum(int(each.sum()) for each in sizes_of_all)
    if nodes + count > MAX_NODES or present + gpus > MAX_GPUS:
        most = "at most 10 million nodes and 100 million GPUs in all"
        raise InvalidArgument(f"add {pool.name}", f"{gpus:,}", most)
    sizes = np.full(count, size, np.int64)
    if rest:
        sizes[-1] = rest
    nothing = np.full(count, np.nan)

    def like(values: FloatArray) -> FloatArray:
        return nothing if model is None else values[model] * (sizes / size)

    return replace(
        pool,
        node_names=_names_with(cluster, pool, count),
        node_gpus=np.concatenate([pool.node_gpus, sizes]),
        node_cpus=np.concatenate([pool.node_cpus, like(pool.node_cpus)]),
        node_memory=np.concatenate([pool.node_memory, like(pool.node_memory)]),
        node_state=np.concatenate([pool.node_state, np.full(count, UP)]),
        node_available_from=np.concatenate([pool.node_available_from, np.full(count, -np.inf)]),
    )


def _typical_node(pool: Pool, now: float) -> int | None:
    """The last node of the most frequent size among usable nodes (if there are none, among all);
    None if the pool has no GPUs.
    """
    has_gpus = pool.node_gpus > 0
    rows = np.flatnonzero(has_gpus & pool.usable(now))
    rows = rows if len(rows) else np.flatnonzero(has_gpus)
    if not len(rows):
        return None
    sizes, counts = np.unique(pool.node_gpus[rows], return_counts=True)
    # Sizes ascend, so the largest of several equally frequent sizes is taken.
    common = sizes[np.flatnonzero(counts == counts.max())[-1]]
    return int(rows[np.flatnonzero(pool.node_gpus[rows] == common)[-1]])


def _names_with(cluster: Cluster, pool: Pool, count: int) -> tuple[str, ...] | int:
    """Node names with ``count`` new ones, ``<pool>-<i>`` with the next free numbers."""
    before = len(pool.node_gpus)
    listed = {
        name
        for other in cluster.pools
        if not isinstance(other.node_names, int)
        for name in other.node_names
    }
    made = (f"{pool.name}-{row}" for row in range(before + count))
    if isinstance(pool.node_names, int) and not (listed and any(name in listed for name in made)):
        return before + count
    # Another pool already has a name that would be generated here, so all names of this pool are
    # written out.
    plain = [other for other in cluster.pools if isinstance(other.node_names, int)]
    names_in_use = listed | {
        other.node_name(row) for other in plain for row in range(len(other.node_gpus))
    }
    new: list[str] = []
    number = before
    while len(new) < count:
        name = f"{pool.name}-{number}"
        if name not in names_in_use:
            new.append(name)
        number += 1
    return (*(pool.node_name(row) for row in range(before)), *new)


def _shrunk(pool: Pool, gpus: int, now: float) -> Pool:
    """The pool without ``gpus`` GPUs, taken from the last usable nodes."""
    usable = np.flatnonzero(pool.usable(now) & (pool.node_gpus > 0))[::-1]
    removed = np.zeros(len(pool.node_gpus), np.int64)
    reached = np.cumsum(pool.node_gpus[usable])
    # From the last node backwards, each gives up the GPUs that the nodes after it could not.
    removed[usable] = np.clip(gpus - (reached - pool.node_gpus[usable]), 0, pool.node_gpus[usable])
    left = pool.node_gpus - removed
    # Keep nodes that had no GPU before.
    stay = (left > 0) | (removed == 0)
    part = np.where(removed > 0, left / np.maximum(pool.node_gpus, 1), 1.0)
    rows = np.flatnonzero(stay)
    return replace(
        pool,
        node_names=names_of_nodes(pool.name, [pool.node_name(row) for row in rows.tolist()]),
        node_gpus=left[rows],
        node_cpus=(pool.node_cpus * part)[rows],
        node_memory=(pool.node_memory * part)[rows],
        node_state=pool.node_state[rows],
        node_available_from=pool.node_available_from[rows],
    )


def _of_nodes_left(resource: Resource, before: Pool, after: Pool) -> Resource:
    """A resource of some nodes, without removed nodes."""
    if resource.nodes is None:
        return resource
    gone = {before.node_name(row) for row in range(len(before.node_gpus))}
    gone -= {after.node_name(row) for row in range(len(after.node_gpus))}
    nodes = tuple(name for name in resource.nodes if name not in gone)
    if not nodes:
        none = f"no node of the resource {resource.name} left"
        raise InvalidArgument(f"add {before.name}", none, "one or more")
    return resource._replace(nodes=nodes)


def _levels_left(before: Cluster, after: Cluster) -> dict[str, dict[str, list[str]]] | None:
    """The document of the levels without removed nodes, from the smallest groups to the largest.

    Levels that come from links are written out: among other nodes, the same links may make other
    levels, and rates name those that were there.
    """
    stated = before.level_document
    if stated is None:
        return None
    if isinstance(stated, str):
        number = before.numbering.by_name
        stated = {
            level.name: {
                group: [name for name, row in number.items() if level.group[row] == place]
                for place, group in enumerate(level.groups)
            }
            for level in before.levels
        }
    left = after.numbering.by_name
    return {
        level.name: {
            group: [name for name in nodes if name in left]
            for group, nodes in stated[level.name].items()
        }
        for level in before.levels
    }


def _still_running(table: JobTable, before: Cluster, after: Cluster) -> JobTable:
    """The job table in which jobs that lost a GPU no longer run."""
    if not table.running or before is after:
        return table

    def there(pool: int, gpus: tuple[str, ...]) -> bool:
        # Nodes lose their last GPUs first, so a GPU still exists if its index is below the new
        # number.
        sizes = after.pools[pool].node_gpus
        places = (
            (after.find_node(node), int(index))
            for node, _, index in (gpu.rpartition("/") for gpu in gpus)
        )
        return all(owner == pool and index < sizes[row] for (owner, row), index in places)

    kept = {job: place for job, place in table.running.items() if there(place[0], place[1])}
    return table if len(kept) == len(table.running) else replace(table, running=kept)
