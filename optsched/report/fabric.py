"""The cluster for its picture: hosts with their GPUs, in groups under leaf switches, and links
between them.

The topology graph is the default tree or a node-link document. Its vertices are recognised by their
names: a node of the cluster is a host; ``node/index`` is a GPU; GPUs and other vertices inside a
host (`optsched.instance.topology.insides`) are merged into it; all other vertices are switches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optsched.arrays import IntArray, owners, pointers
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.instance.documents import NODE_STATES
from optsched.instance.topology import insides, topology_graph, undirected

if TYPE_CHECKING:
    import networkx

MOST_GPUS = 100_000
WORDS = {"drain": "drained"}
# States of a host as text; the last one is for hosts that become available later.
STATES = (*(WORDS.get(state, state) for state in NODE_STATES), "not yet available")

# A host by its number, a switch by its name.
Vertex = int | str


@dataclass(frozen=True)
class Link:
    """A link: two ends, and the total GB/s per direction of parallel links (inf: not stated)."""

    ends: tuple[Vertex, Vertex]
    bandwidth: float


@dataclass(frozen=True)
class HostGroup:
    """Hosts of one pool under the same leaf switches.

    Attributes
    ----------
    pool : int
    leaves : tuple of str
        Switches that every host of the group is linked to; may be empty.
    hosts : IntArray
    inside, uplink : tuple of float
        Distinct bandwidths (GB/s) inside hosts, and from hosts to leaf switches; sorted.
    """

    pool: int
    leaves: tuple[str, ...]
    hosts: IntArray
    inside: tuple[float, ...]
    uplink: tuple[float, ...]


@dataclass(frozen=True)
class Fabric:
    """Hosts, groups and links of an instance.

    Attributes
    ----------
    names : tuple of str
        Names of the hosts, pool by pool.
    gpus, state, first : IntArray, shape (hosts,)
        GPUs, index into `STATES`, and the number of the first GPU among all.
    groups : tuple of HostGroup
        Groups under the same leaf switches are consecutive.
    levels : mapping of str to int
        Switches above the leaves, and their distance in links from a leaf.
    links : tuple of Link
        Links between switches, or between hosts; links of a host to its leaf switches are in the
        groups.
    """

    names: tuple[str, ...]
    gpus: IntArray
    state: IntArray
    first: IntArray
    groups: tuple[HostGroup, ...]
    levels: Mapping[str, int]
    links: tuple[Link, ...]

    @property
    def total(self) -> int:
        return int(self.gpus.sum())


def fabric_of(instance: Instance) -> Fabric:
    """Read the cluster and its topology graph.

    Raises
    ------
    UsageError
        If the cluster has more GPUs than a picture has room for.
    """
    pools = instance.cluster.pools
    now = instance.now
    total = instance.cluster.size
    if total > MOST_GPUS:
        raise UsageError(f"the cluster has {total:,} GPUs; a picture has room for {MOST_GPUS:,}")
    names = tuple(pool.node_name(row) for pool in pools for row in range(len(pool.node_gpus)))
    gpus = np.concatenate([pool.node_gpus for pool in pools])
    late = np.concatenate([~pool.usable(now) & (pool.node_state == 0) for pool in pools])
    state = np.where(late, len(STATES) - 1, np.concatenate([pool.node_state for pool in pools]))
    of_host = owners([len(pool.node_gpus) for pool in pools])
    graph = undirected(topology_graph(instance.cluster))
    counts_as: dict[Any, Vertex] = {vertex: str(vertex) for vertex in graph}
    for host, parts in enumerate(insides(graph, names).values()):
        counts_as |= dict.fromkeys(parts, host)
    links, inside = _condensed(graph, counts_as)
    uplinks: dict[int, dict[str, float]] = {}
    others = []
    for (one, other), bandwidth in links.items():
        # In a link of a host and a switch, the host comes first
        if isinstance(one, int) and isinstance(other, str):
            uplinks.setdefault(one, {})[other] = bandwidth
        else:
            others.append(Link((one, other), bandwidth))
    members: dict[tuple[tuple[str, ...], int], list[int]] = {}
    for host in range(len(names)):
        members.setdefault((tuple(sorted(uplinks.get(host, {}))), int(of_host[host])), []).append(
            host
        )
    first_of: dict[tuple[str, ...], int] = {}
    for (leaves, _), hosts in members.items():
        first_of.setdefault(leaves, hosts[0])
    groups = tuple(
        HostGroup(
            pool,
            leaves,
            np.array(hosts, np.int64),
            _values(inside[host] for host in hosts if host in inside),
            _values(list(uplinks.get(host, {}).values()) for host in hosts),
        )
        for (leaves, pool), hosts in sorted(
            members.items(), key=lambda item: (first_of[item[0][0]], item[1][0])
        )
    )
    bottom = {leaf for group in groups for leaf in group.leaves}
    first = pointers(gpus)[:-1]
    return Fabric(names, gpus, state, first, groups, _levels(bottom, others), tuple(others))


def _condensed(
    graph: networkx.Graph[Any], counts_as: Mapping[Any, Vertex]
) -> tuple[dict[tuple[Vertex, Vertex], float], dict[int, list[float]]]:
    """Links between hosts and switches with total bandwidths, and bandwidths inside each host."""
    links: dict[tuple[Vertex, Vertex], float] = {}
    inside: dict[int, list[float]] = {}
    bandwidth: float
    for one, other, bandwidth in graph.edges(data="bandwidth"):
        a, b = counts_as[one], counts_as[other]
        if a != b:
            ends = (a, b) if (str(type(a)), str(a)) < (str(type(b)), str(b)) else (b, a)
            links[ends] = links.get(ends, 0.0) + bandwidth
        elif isinstance(a, int):
            inside.setdefault(a, []).append(bandwidth)
    return links, inside


def _levels(leaves: set[str], links: Iterable[Link]) -> dict[str, int]:
    """Distance in links from each other switch to the nearest leaf switch; switches that reach none
    are placed on top.
    """
    import networkx

    between = [link.ends for link in links if all(isinstance(end, str) for end in link.ends)]
    graph: networkx.Graph[Any] = networkx.Graph(between)
    graph.add_nodes_from(leaves)
    near = networkx.multi_source_dijkstra_path_length(graph, leaves) if leaves else {}
    top = max(near.values(), default=0) + 1
    return {name: int(near.get(name, top)) for name in sorted(graph.nodes - leaves)}


def _values(parts: Iterable[Iterable[float]]) -> tuple[float, ...]:
    return tuple(sorted({value for part in parts for value in part if math.isfinite(value)}))
