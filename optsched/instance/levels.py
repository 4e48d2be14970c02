"""Levels of the topology: groups of nodes such as racks and blocks.

The instance states them by name, ``{"rack": {"r0": ["v100-0", "v100-1"], ...}, "block": {...}}``,
or says ``"topology"``: then they are the groups of nodes that the links of the topology document
join at each bandwidth, the smallest ones called ``rack`` and the next ones ``block``. Groups are
nested. A node in no group of a level is a separate group there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import IntArray
from optsched.errors import InvalidInput
from optsched.instance.reading import key, show

FROM_TOPOLOGY = "topology"
"""With this value the groups are derived from the links of the topology document."""
OF_TOPOLOGY = ("rack", "block")
"""Names of the levels that are derived from links, from the smallest groups on."""
EVERYWHERE = "cluster"
"""Name, in rates, of the level that has all nodes of a pool."""
RESERVED = (EVERYWHERE, "node", "gpu")


class TopologyLevel(NamedTuple):
    """One level of the topology.

    Attributes
    ----------
    name : str
    group : IntArray, shape (nodes,)
        Group of each node of the cluster; every node is in one.
    groups : tuple of str
        Names of the groups.
    """

    name: str
    group: IntArray
    groups: tuple[str, ...]


def stated_levels(
    document: Mapping[str, Any], number: Mapping[str, int]
) -> tuple[TopologyLevel, ...]:
    """Levels of a document that passes `check_levels`, from the smallest groups to the largest.

    Parameters
    ----------
    document : mapping of str to mapping of str to list of str
        Nodes by group and level.
    number : mapping of str to int
        Number of each node.
    """
    levels = []
    for name, groups in document.items():
        # Groups of single nodes come after the named groups.
        group = len(groups) + np.arange(len(number), dtype=np.int64)
        for row, nodes in enumerate(groups.values()):
            group[[number[node] for node in nodes]] = row
        called = [*groups, *number]
        known, first = np.unique(group, return_index=True)
        in_order = known[np.argsort(first)].tolist()
        levels.append(
            TopologyLevel(name, _renumbered(group), tuple(called[row] for row in in_order))
        )
    return tuple(sorted(levels, key=lambda level: -len(level.groups)))


def joined_levels(label: IntArray) -> tuple[TopologyLevel, ...]:
    """Levels derived from links; ``label``: those of nodes at descending bandwidths, shape (L,
    nodes).
    """
    nodes = label.shape[1]
    found: list[IntArray] = []
    for row in label:
        # Label -1: not even the GPUs of the node are joined.
        group = _renumbered(np.where(row < 0, len(row) + np.arange(nodes), row))
        groups = int(group.max(initial=-1)) + 1
        new = not found or groups < int(found[-1].max(initial=-1)) + 1
        if new and 1 < groups < nodes:
            found.append(group)
    return tuple(
        TopologyLevel(name, group, tuple(f"{name}-{row}" for row in range(int(group.max()) + 1)))
        for name, group in zip(OF_TOPOLOGY, found, strict=False)
    )


def check_levels(document: object, number: Mapping[str, int], path: str) -> None:
    """Refuse levels with unknown nodes, with a node twice, or that are not nested."""
    if not isinstance(document, Mapping):
        expected = f'nodes by level and group, or "{FROM_TOPOLOGY}"'
        raise InvalidInput(path, show(document), expected)
    for name, groups in document.items():
        where = f"{path}.{key(name)}"
        if name in RESERVED or name.isdecimal():
            raise InvalidInput(where, "a reserved name", 'another name, such as "rack"')
        if not isinstance(groups, Mapping) or not groups:
            raise InvalidInput(where, show(groups), "an object: group -> list of nodes")
        _check_groups(groups, number, where)
    levels = stated_levels(document, number)
    for small, large in pairwise(levels):
        _check_nested(small, large, list(number), path)


def _check_groups(groups: Mapping[str, Any], number: Mapping[str, int], where: str) -> None:
    seen: dict[str, str] = {}
    for group, nodes in groups.items():
        at = f"{where}.{key(group)}"
        if not isinstance(nodes, Sequence) or isinstance(nodes, str):
            raise InvalidInput(at, show(nodes), "a list of nodes")
        for row, node in enumerate(nodes):
            if not isinstance(node, str) or node not in number:
                raise InvalidInput(f"{at}[{row}]", show(node), "the name of a node")
            if node in seen:
                found = f"{show(node)}, which is in {show(seen[node])}"
                raise InvalidInput(f"{at}[{row}]", found, "each node in one group of a level")
            seen[node] = group


def _check_nested(
    small: TopologyLevel, large: TopologyLevel, names: Sequence[str], path: str
) -> None:
    first = np.full(len(small.groups), -1, np.int64)
    # The enclosing group of a small group is the group of its first node.
    first[small.group[::-1]] = large.group[::-1]
    wrong = np.flatnonzero(first[small.group] != large.group)
    if len(wrong):
        node = int(wrong[0])
        other = int(np.flatnonzero(small.group == small.group[node])[0])
        found = (
            f"nodes {show(names[other])} and {show(names[node])} in one {small.name}, "
            f"but not in one {large.name}"
        )
        raise InvalidInput(f"{path}.{key(small.name)}", found, "groups that are nested")


def _renumbered(group: IntArray) -> IntArray:
    """The same groups numbered by their first node."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]
