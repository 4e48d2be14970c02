"""Networks and nodes of generated clusters: leaf and spine switches, nodes of mixed sizes,
unavailable nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from optsched.generate.profiles import Document, Site

Topology = Literal["none", "tree", "racks", "mixed-nodes"]
# Nodes in a rack.
RACK = 8
SPINES = 2
# Bandwidth of a leaf switch towards its nodes over that towards the spines.
OVERSUBSCRIPTION = 2.0
OUT = ("drain", "down")


@dataclass(frozen=True, slots=True)
class Host:
    """A node: its pool, name, GPUs, state, and network card (GB/s per direction)."""

    pool: str
    name: str
    gpus: int
    state: str
    bandwidth: float


def hosts_of(
    site: Site,
    gpus: int,
    topology: Topology,
    unavailable: float,
    random: np.random.Generator,
) -> list[Host]:
    """Nodes whose usable ones have ``gpus`` GPUs in all,
    a multiple of the site's ``gpus_per_node``.

    With mixed nodes a third of the GPUs, roughly, is on nodes of half the size. Unavailable nodes
    are added (the share ``unavailable`` of all nodes, but not more than there are usable ones).
    They are alternately drained and down, and mixed with the others.
    """
    full = site.gpus_per_node
    # An even number of half-size nodes, so that the rest fits whole nodes of full size.
    halves = 2 * (gpus // full // 3) if topology == "mixed-nodes" and full > 1 else 0
    sizes = [full] * ((gpus - halves * (full // 2)) // full) + [full // 2] * halves
    out = min(round(unavailable / max(1.0 - unavailable, 0.5) * len(sizes)), len(sizes))
    entries = [(size, "up") for size in sizes] + [(sizes[k], OUT[k % 2]) for k in range(out)]
    order = random.permutation(len(entries)) if out or halves else np.arange(len(entries))
    return [
        Host(
            site.name,
            f"{site.name}-{row}",
            entries[entry][0],
            entries[entry][1],
            site.node_bandwidth,
        )
        for row, entry in enumerate(order.tolist())
    ]


def pool_document(site: Site, hosts: Sequence[Host]) -> Document:
    """The pool: a count of nodes where all are equal and up, else a list."""
    document = site.document()
    if all(host.state == "up" and host.gpus == site.gpus_per_node for host in hosts):
        return document | {"nodes": len(hosts)}
    nodes = [
        {"name": host.name, "gpus": host.gpus}
        | ({} if host.state == "up" else {"state": host.state})
        for host in hosts
    ]
    document = {key: value for key, value in document.items() if key != "gpus_per_node"}
    return document | {"nodes": nodes}


def network(hosts: Sequence[Host], topology: Topology, rack: int = RACK) -> Document | None:
    """The topology as networkx node-link data;
    None leaves it to the default, a tree from the pools' bandwidths.

    ``tree`` has a leaf switch per pool and one spine, ``racks`` and ``mixed-nodes`` racks of so
    many nodes, each with a leaf switch that reaches both spines. Bandwidths of links are in GB/s
    per direction; towards the spines a leaf has half of what its nodes have.
    """
    if topology == "none":
        return None
    groups: dict[str, list[Host]] = {}
    for row, host in enumerate(hosts):
        groups.setdefault(
            f"leaf/{host.pool}" if topology == "tree" else f"leaf/rack-{row // rack}", []
        ).append(host)
    spines = ["spine"] if topology == "tree" else [f"spine-{k}" for k in range(SPINES)]
    nodes: list[dict[str, Any]] = [{"id": spine, "kind": "switch"} for spine in spines]
    links = []
    for leaf, members in groups.items():
        nodes.append({"id": leaf, "kind": "switch"})
        up = sum(host.bandwidth for host in members) / OVERSUBSCRIPTION / len(spines)
        links += [{"source": leaf, "target": spine, "bandwidth": up} for spine in spines]
        nodes += [
            {"id": host.name, "kind": "node", "pool": host.pool, "gpus": host.gpus}
            for host in members
        ]
        links += [
            {"source": host.name, "target": leaf, "bandwidth": host.bandwidth} for host in members
        ]
    return {"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}
