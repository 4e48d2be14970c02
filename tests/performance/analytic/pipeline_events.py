"""An event simulation of pipeline schedules: operations in the order in which each device runs them, longest path."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import networkx

Operation = tuple[str, int, int]
"""F or B, stage (virtual, along the model), micro-batch."""


class Outcome(NamedTuple):
    seconds: float
    in_flight: int


def simulate(
    orders: list[list[Operation]], stages: int, forward: float, backward: float
) -> Outcome:
    """Makespan, and most forward passes on a device whose backward pass has not ended.

    A forward pass waits for that of the stage before, a backward pass for that of the stage after; the last stage turns
    round. Stages of a second pipeline are numbered from ``stages`` on. Each device runs its operations in its own
    order, one at a time.
    """
    graph = networkx.DiGraph()
    for order in orders:
        graph.add_nodes_from(order)
        graph.add_edges_from(itertools.pairwise(order))
    for kind, stage, micro in list(graph):
        if kind == "F" and stage % stages:
            graph.add_edge(("F", stage - 1, micro), (kind, stage, micro))
        if kind == "B":
            turns = (stage + 1) % stages == 0
            graph.add_edge(
                ("F", stage, micro) if turns else ("B", stage + 1, micro), (kind, stage, micro)
            )
    assert len(graph) == sum(len(order) for order in orders)
    end: dict[Operation, float] = {}
    for operation in networkx.topological_sort(graph):
        start = max((end[before] for before in graph.predecessors(operation)), default=0.0)
        end[operation] = start + (forward if operation[0] == "F" else backward)
    peak = 0
    for order in orders:
        held = list(itertools.accumulate(1 if kind == "F" else -1 for kind, _, _ in order))
        peak = max(peak, *held)
    return Outcome(max(end.values()), peak)


def gpipe(p: int, M: int) -> list[list[Operation]]:
    return [
        [("F", s, m) for m in range(M)] + [("B", s, m) for m in reversed(range(M))]
        for s in range(p)
    ]


def one_f_one_b(p: int, M: int) -> list[list[Operation]]:
    orders = []
    for s in range(p):
        warm = min(p - s - 1, M)
        order: list[Operation] = [("F", s, m) for m in range(warm)]
        for m in range(M - warm):
            order += [("F", s, warm + m), ("B", s, m)]
        order += [("B", s, m) for m in range(M - warm, M)]
        orders.append(order)
    return orders


def interleaved(p: int, M: int, v: int) -> list[list[Operation]]:
    """Megatron-LM's order: groups of p micro-batches pass a device's chunks one after the other."""
    assert M % p == 0
    orders = []

    def at(number: int, s: int, forwards: bool) -> tuple[int, int]:
        group, within = divmod(number, p * v)
        chunk = within // p if forwards else v - 1 - within // p
        return chunk * p + s, group * p + within % p

    for s in range(p):
        total = M * v
        warm = total if p == M else min((p - s - 1) * 2 + (v - 1) * p, total)
        order: list[Operation] = [("F", *at(number, s, True)) for number in range(warm)]
        for number in range(total - warm):
            order += [("F", *at(warm + number, s, True)), ("B", *at(number, s, False))]
        order += [("B", *at(number, s, False)) for number in range(total - warm, total)]
        orders.append(order)
    return orders


def chimera(p: int, M: int) -> list[list[Operation]]:
    """Two pipelines in opposite directions, units of p micro-batches, each unit as soon as there is room for it.

    Slots of equal length: micro-batch i of a direction is at stage s in slot s + 2i, and back in slot 2p - 1 - s + 2i;
    a unit follows 2p slots after the one before. Stages of the second direction are numbered from p on.
    """
    assert p % 2 == 0
    slots: list[dict[int, Operation]] = [{} for _ in range(p)]
    for number in range(M):
        unit, within = divmod(number, p)
        down = within < p // 2 if M - unit * p >= p else within % 2 == 0
        i = within % (p // 2) if M - unit * p >= p else within // 2
        for s in range(p):
            device = s if down else p - 1 - s
            for kind, slot in (("F", s + 2 * i), ("B", 2 * p - 1 - s + 2 * i)):
                assert slot + 2 * p * unit not in slots[device], "two operations in a slot"
                slots[device][slot + 2 * p * unit] = (kind, s if down else p + s, number)
    return [[order[slot] for slot in sorted(order)] for order in slots]
