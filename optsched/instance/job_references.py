"""What a job says of other objects: the GPUs it runs on and its predecessors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from optsched.errors import InvalidInput
from optsched.instance.cluster import Cluster
from optsched.instance.documents import RunningDocument, parse_index
from optsched.instance.reading import key, listed, show
from optsched.instance.tables import JobNames


def check_running(running: RunningDocument, cluster: Cluster, path: str) -> tuple[int, tuple[str, ...], float | None]:
    """Resolve ``running`` to (pool row, GPU names, since); the GPUs must exist and differ."""
    if running.pool not in cluster.pool_index:
        raise InvalidInput(f"{path}.pool", show(running.pool), f"one of the pools {listed(cluster.pool_index)}")
    row = cluster.pool_index[running.pool]
    sizes = cluster.node_sizes[running.pool]
    for place, gpu in enumerate(running.gpus):
        node, _, index = gpu.rpartition("/")
        if node not in sizes or not 0 <= parse_index(index) < sizes[node]:
            expected = f"a GPU of pool {show(running.pool)} written node/index"
            raise InvalidInput(f"{path}.gpus[{place}]", show(gpu), expected)
    if len(set(running.gpus)) < len(running.gpus):
        raise InvalidInput(f"{path}.gpus", show(list(running.gpus)), "each GPU once")
    return row, running.gpus, running.since


def resolve_predecessors(after: Mapping[int, Sequence[str]], names: JobNames) -> dict[int, tuple[int, ...]]:
    """Names of predecessors to rows; unknown names and cycles are refused."""
    resolved: dict[int, tuple[int, ...]] = {}
    for job, predecessors in after.items():
        rows = []
        for place, name in enumerate(predecessors):
            try:
                rows.append(names.index(name))
            except KeyError:
                raise InvalidInput(f"jobs[{job}].after[{place}]", show(name), "the id of another job") from None
        resolved[job] = tuple(rows)
    _refuse_cycle(resolved, names)
    return resolved


def _refuse_cycle(after: Mapping[int, tuple[int, ...]], names: JobNames) -> None:
    """Depth-first search without recursion; a job on the current path that is met again closes a cycle."""
    done: set[int] = set()
    for root in after:
        path: dict[int, None] = {}
        stack: list[tuple[int, bool]] = [(root, False)]
        while stack:
            job, leaving = stack.pop()
            if leaving:
                path.pop(job)
                done.add(job)
            elif job in path:
                members = list(path)
                members = [*members[members.index(job) :], job]
                shown = members if len(members) <= 5 else [*members[:3], None, members[-1]]
                cycle = " after ".join("..." if member is None else key(names[member]) for member in shown)
                raise InvalidInput(f"jobs[{job}].after", f"a cycle ({cycle})", "precedences without cycles")
            elif job not in done:
                path[job] = None
                stack.append((job, True))
                stack += [(before, False) for before in after.get(job, ())]
