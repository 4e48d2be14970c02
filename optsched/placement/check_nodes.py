"""What can be wrong with GPUs of nodes, told entry by entry; with nothing of what places them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optsched.instance.cluster import Cluster, Pool
from optsched.instance.documents import parse_index
from optsched.instance.reading import show

SLACK = 1e-6
"""Relative excess of a share, a CPU or a capacity that is rounding."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing that is wrong: the entry of the placement, the part of it, and words."""

    entry: int
    part: str
    message: str


def sizes_and_states(pool: Pool, now: float) -> dict[str, tuple[int, bool]]:
    """GPUs of each node, and whether it takes work."""
    usable = pool.usable(now).tolist()
    return {
        pool.node_name(row): (gpus, usable[row]) for row, gpus in enumerate(pool.node_gpus.tolist())
    }


def wrong_gpus(
    pool: str, nodes: Mapping[str, tuple[int, bool]], gpus: Sequence[str]
) -> list[tuple[int, str]]:
    """GPUs that are none of the pool's, are on nodes that take no work, or stand there twice."""
    found = []
    for i, gpu in enumerate(gpus):
        node, _, index = gpu.rpartition("/")
        if node not in nodes or not 0 <= parse_index(index) < nodes[node][0]:
            found.append(
                (i, f"found {show(gpu)}, expected a GPU of pool {show(pool)} written node/index")
            )
        elif not nodes[node][1]:
            found.append((i, f"found {show(gpu)}, but node {node} takes no work now"))
        elif gpu in gpus[:i]:
            found.append((i, f"found {show(gpu)} a second time, expected GPUs that differ"))
    return found


def nodes_over_capacity(
    cluster: Cluster, on: Mapping[int, Mapping[str, int]], demand: Mapping[int, Mapping[str, float]]
) -> list[Flaw]:
    """CPUs and memory of every node, and what belongs to some nodes, by the GPUs of entries and their needs per GPU."""
    capacity: dict[tuple[str, str], float] = {}
    for pool in cluster.pools:
        for row in range(len(pool.node_gpus)):
            name = pool.node_name(row)
            capacity[name, "cpu"], capacity[name, "memory"] = (
                float(pool.node_cpus[row]),
                float(pool.node_memory[row]),
            )
    use: dict[tuple[str, str], float] = defaultdict(float)
    users: dict[tuple[str, str], list[int]] = defaultdict(list)
    groups = [
        resource
        for resource in cluster.resources
        if resource.nodes and resource.kind == "renewable"
    ]
    for p, count in on.items():
        for node, gpus in count.items():
            places = [((node, name), name) for name in ("cpu", "memory")]
            places += [
                (("", group.name), group.name) for group in groups if node in (group.nodes or ())
            ]
            for place, name in places:
                if demand[p].get(name):
                    use[place] += gpus * demand[p][name]
                    users[place].append(p)
    capacity |= {("", group.name): group.capacity for group in groups}
    found = []
    for (node, name), amount in use.items():
        has = capacity.get((node, name), float("inf"))
        if amount > has * (1 + SLACK) + SLACK:  # what is not stated is NaN, and never exceeded
            where = f"{name} of node {node}" if node else f"{name}"
            words = f"the GPUs need {amount:g} of {where}, expected at most {has:g}"
            found += [Flaw(p, "gpus", words) for p in dict.fromkeys(users[node, name])]
    return found


def nodes_shared_wrongly(
    named: Mapping[int, Sequence[str]],
    on: Mapping[int, Mapping[str, int]],
    constraints: Iterable[Mapping[str, Any]],
) -> list[Flaw]:
    """Jobs of an anti-affinity constraint that are on one node, by the jobs and the nodes of entries."""
    found = []
    for constraint in constraints:
        if constraint.get("kind") != "anti-affinity":
            continue
        apart = set(constraint["jobs"])
        seen: dict[str, tuple[str, int]] = {}
        for p, count in on.items():
            for name in named[p]:
                for node in count if name in apart else ():
                    other, _ = seen.setdefault(node, (name, p))
                    if other != name:
                        words = (
                            f"jobs {other} and {name} are both on node {node}, "
                            "expected different nodes (anti-affinity)"
                        )
                        found.append(Flaw(p, "gpus", words))
    return found
