"""What rows of an allocation need per GPU: CPUs and memory of its node, and resources that belong to some nodes."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes, column_needs
from optsched.instance import Instance
from optsched.instance.cluster import PER_NODE, Resource

OWN = ("cpu", "memory")
"""Resources that every node has of its own; the columns of ``Nodes.own`` and of ``Requests.need``."""


def own_capacity(instance: Instance) -> FloatArray:
    """CPUs and memory (GB) of every node, inf where they are not stated; shape (nodes, 2)."""
    pools = instance.cluster.pools
    stated = [np.concatenate([getattr(pool, PER_NODE[name]) for pool in pools]) for name in OWN]
    return np.where(np.isnan(stated), np.inf, stated).T


def renewable_groups(instance: Instance) -> tuple[Resource, ...]:
    """Renewable resources that belong to some nodes: what is placed on these nodes at one time must fit in."""
    resources = instance.cluster.resources
    return tuple(
        resource
        for resource in resources
        if resource.nodes is not None and resource.kind == "renewable"
    )


def members(instance: Instance) -> BoolArray:
    """Which nodes of the cluster each of these resources belongs to, shape (G, nodes)."""
    groups = renewable_groups(instance)
    numbering = instance.cluster.numbering
    member = np.zeros((len(groups), numbering.nodes), bool)
    for place, group in enumerate(groups):
        member[place, [numbering.by_name[name] for name in group.nodes or ()]] = True
    return member


def needs_per_gpu(classes: Classes, column: IntArray) -> tuple[FloatArray, FloatArray]:
    """What columns need per GPU: CPUs and memory (GB), shape (columns, 2); resources of some nodes, (columns, G)."""
    candidates = classes.candidates
    names = (*OWN, *(group.name for group in renewable_groups(candidates.instance)))
    if not candidates.instance.stated_needs.names:
        return np.zeros((len(column), len(OWN))), np.zeros((len(column), len(names) - len(OWN)))
    used, inverse = np.unique(classes.kind_column[column], return_inverse=True)
    needs = column_needs(candidates.instance, candidates.kinds, candidates.columns.take(used))
    total = np.zeros((len(used), len(names)))
    for place, name in enumerate(names):
        if name in needs:
            here, amount = needs[name]
            total[here, place] = amount
    each = total[inverse] / np.maximum(classes.gpus[column], 1)[:, None]
    return each[:, : len(OWN)], each[:, len(OWN) :]
