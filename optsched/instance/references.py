"""References by name in documents: pools, resources, GPUs and predecessors."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from optsched.errors import InvalidArgument, InvalidInput, did_you_mean
from optsched.instance.cluster import Cluster
from optsched.instance.documents import RunningDocument, parse_index
from optsched.instance.reading import key, listed, show
from optsched.instance.tables import JobNames


def pool_row(name: str, cluster: Cluster, path: str) -> int:
    """Row of a pool by name; raises `InvalidInput`."""
    if name not in cluster.pool_index:
        raise InvalidInput(path, show(name), f"one of the pools {listed(cluster.pool_index)}")
    return cluster.pool_index[name]


def job_row(names: JobNames, job: str, instance: str) -> int:
    """Row of a job by its id; raises `InvalidArgument`, which names the instance and the closest
    id.
    """
    try:
        return names.index(job)
    except KeyError:
        hint = did_you_mean(job, names.written())
        raise InvalidArgument(
            "job",
            show(job),
            "the id of a job of the instance",
            sentence=f"{instance} has no job {show(job)}{hint}",
        ) from None


def check_needs(
    needs: Iterable[str], cluster: Cluster, path: str, pool: str | None, *, consumable: bool = True
) -> None:
    """Check that every needed resource belongs to the cluster and can be used in this place."""
    resources = {resource.name: resource for resource in cluster.resources}
    for name in needs:
        # CPUs and memory exist in the nodes of every pool.
        if name in ("cpu", "memory"):
            continue
        if name not in resources:
            known = ["cpu", "memory", *resources]
            raise InvalidInput(
                f"{path}.{key(name)}", "an unknown resource", f"one of {listed(known)}"
            )
        resource = resources[name]
        if resource.kind == "consumable" and not consumable:
            raise InvalidInput(
                f"{path}.{key(name)}",
                "a consumable resource",
                "a renewable one (an option's uses can consume)",
            )
        if resource.pool is not None and pool is not None and resource.pool != pool:
            raise InvalidInput(
                f"{path}.{key(name)}",
                f"a resource of pool {show(resource.pool)}",
                f"one that {show(pool)} has",
            )


def check_running(
    running: RunningDocument, cluster: Cluster, path: str
) -> tuple[int, tuple[str, ...], float | None]:
    """Resolve ``running`` to (pool row, GPU names, since); the GPUs must exist and differ."""
    row = pool_row(running.pool, cluster, f"{path}.pool")
    check_gpus(running.gpus, row, cluster, f"{path}.gpus")
    return row, running.gpus, running.since


def check_gpus(gpus: Sequence[str], pool: int, cluster: Cluster, path: str) -> None:
    """GPUs of a job must exist in their pool and differ."""
    sizes = cluster.pools[pool].node_gpus
    for place, gpu in enumerate(gpus):
        node, _, index = gpu.rpartition("/")
        owner, row = cluster.find_node(node)
        # Check the pool first, because row -1 or a row of another pool would index wrong sizes.
        if owner != pool or not 0 <= parse_index(index) < sizes[row]:
            expected = f"a GPU of pool {show(cluster.pools[pool].name)} written node/index"
            raise InvalidInput(f"{path}[{place}]", show(gpu), expected)
    if len(set(gpus)) < len(gpus):
        raise InvalidInput(path, show(list(gpus)), "each GPU once")


def refuse_repeated(names: Iterable[str], where: str, known: Iterable[str] = ()) -> None:
    """Refuse a name that is repeated or among those ``known``.

    ``where`` is the path of a name with ``{}`` for its number: ``tenants[{}].name``.
    """
    seen = set(known)
    for number, name in enumerate(names):
        if name in seen:
            path = where.format(number)
            raise InvalidInput(path, f"{show(name)} a second time", "names that differ")
        seen.add(name)


NOWHERE = JobNames(0)


def resolve_predecessors(
    after: Mapping[int, Sequence[str]],
    names: JobNames,
    elsewhere: Container[str] = NOWHERE,
    path: str = "jobs",
) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[str, ...]]]:
    """Resolve names of predecessors to `JobTable.after` and `JobTable.awaits`.

    Names that are neither these jobs' nor those of the jobs ``elsewhere``, and cycles, are refused.
    """
    resolved: dict[int, tuple[int, ...]] = {}
    awaits: dict[int, tuple[str, ...]] = {}
    for job, predecessors in after.items():
        rows = []
        for place, name in enumerate(predecessors):
            if name in names:
                rows.append(names.index(name))
            elif name not in elsewhere:
                raise InvalidInput(
                    f"{path}[{job}].after[{place}]", show(name), "the id of another job"
                )
        if rows:
            resolved[job] = tuple(rows)
        # `awaits` has all names, including those found here, because joining works by name
        # (`joined_predecessors`).
        if len(rows) < len(predecessors):
            awaits[job] = tuple(predecessors)
    _refuse_cycle(resolved, names, path)
    return resolved, awaits


def _refuse_cycle(after: Mapping[int, tuple[int, ...]], names: JobNames, path: str) -> None:
    """Refuse cycles of predecessors. Depth-first search without recursion: a job that is met again
    on the current path closes a cycle.
    """
    done = set()
    for root in after:
        trail: dict[int, None] = {}
        # Each job is pushed twice: once to be entered and, below its predecessors, once to be left.
        stack = [(root, False)]
        while stack:
            job, leaving = stack.pop()
            if leaving:
                trail.pop(job)
                done.add(job)
            elif job in trail:
                members = list(trail)
                members = [*members[members.index(job) :], job]
                shown = members if len(members) <= 5 else [*members[:3], None, members[-1]]
                cycle = " after ".join(
                    "..." if member is None else key(names[member]) for member in shown
                )
                raise InvalidInput(
                    f"{path}[{job}].after", f"a cycle ({cycle})", "precedences without cycles"
                )
            elif job not in done:
                trail[job] = None
                stack.append((job, True))
                stack += [(before, False) for before in after.get(job, ())]
