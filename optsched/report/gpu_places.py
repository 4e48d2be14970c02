"""Which GPUs the stretches of a simulation are drawn on: on their nodes as far as these are known, and to fit.

A simulation keeps the lowest GPU of each stretch, how many there are, and over how many nodes they are spread. So the
node of a stretch on one node is known, and its first node otherwise; the rest is chosen such that no GPU is held twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.instance import Instance

if TYPE_CHECKING:
    from optsched.simulation import Segments


@dataclass(frozen=True)
class Holders:
    """Stretches of time in which somebody holds the same GPUs: one job, or several that share them; by start.

    Attributes
    ----------
    start, end : FloatArray, shape (H,)
    gpus, nodes, first_gpu : IntArray, shape (H,)
        As in `Segments`.
    of_segment : IntArray, shape (segments,)
        The holder of each segment.
    """

    start: FloatArray
    end: FloatArray
    gpus: IntArray
    nodes: IntArray
    first_gpu: IntArray
    of_segment: IntArray

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def of(cls, segments: Segments) -> Holders:
        """Segments that overlap on the same lowest GPU share their GPUs: they are one holder."""
        count = len(segments)
        order = np.lexsort((segments.start, segments.first_gpu))
        start, end, gpu = segments.start[order], segments.end[order], segments.first_gpu[order]
        changes = np.diff(gpu, prepend=gpu[:1]) != 0
        by_end = np.argsort(end, kind="stable")
        rank = np.empty(count, np.int64)
        rank[by_end] = np.arange(count)
        latest = np.maximum.accumulate(rank + count * np.cumsum(changes)) % max(
            count, 1
        )  # end so far on this GPU
        slack = 1e-9 * float(end.max(initial=0.0) - start.min(initial=0.0))
        new = np.ones(count, bool)
        new[1:] = changes[1:] | (start[1:] >= end[by_end[latest[:-1]]] - slack)
        place = np.cumsum(new) - 1
        heads = np.flatnonzero(new)
        ends: FloatArray = np.full(len(heads), -np.inf)
        np.maximum.at(ends, place, end)
        first = order[heads]
        by_start = np.lexsort((first, segments.start[first]))
        number = np.empty(len(heads), np.int64)
        number[by_start] = np.arange(len(heads))
        of_segment = np.empty(count, np.int64)
        of_segment[order] = number[place]
        chosen = first[by_start]
        return cls(
            segments.start[chosen], ends[by_start], segments.gpus[chosen], segments.nodes[chosen],
            segments.first_gpu[chosen], of_segment,
        )  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """GPUs of one node that a holder has; arrays of equal length, by holder.

    Attributes
    ----------
    holder, node, gpus : IntArray
    """

    holder: IntArray
    node: IntArray
    gpus: IntArray


def parts_on_nodes(instance: Instance, holders: Holders) -> Parts:
    """The nodes of each holder, and its GPUs on each.

    Those on one node are known. A gang on several takes, in order of start, its first node and then those of the pool
    that have the most GPUs free all the time that it runs.
    """
    numbering = instance.cluster.numbering
    node = numbering.node_of(holders.first_gpu)
    single = holders.nodes <= 1
    rows, spread = np.flatnonzero(single), np.flatnonzero(~single)
    found = [(rows, node[rows], holders.gpus[rows])]
    for pool in np.unique(numbering.pool[node[spread]]).tolist():
        members = np.flatnonzero(numbering.pool == pool)
        mine = rows[numbering.pool[node[rows]] == pool]
        gangs = spread[numbering.pool[node[spread]] == pool]
        times = np.unique(
            np.concatenate(
                [holders.start[mine], holders.end[mine], holders.start[gangs], holders.end[gangs]]
            )
        )
        free = _free(holders, numbering.start, members, node, mine, times)
        for gang in gangs.tolist():
            first, stop = np.searchsorted(times, (holders.start[gang], holders.end[gang]))
            least = free[:, first : max(stop, first + 1)].min(axis=1)
            row, count = _shared_out(
                least,
                int(node[gang] - members[0]),
                int(holders.gpus[gang]),
                int(holders.nodes[gang]),
            )
            free[row, first:stop] -= count[:, np.newaxis]
            found.append((np.full(len(row), gang), members[row], count))
    holder, at, gpus = (
        np.concatenate(column).astype(np.int64) for column in zip(*found, strict=True)
    )
    order = np.lexsort((at, holder))
    return Parts(holder[order], at[order], gpus[order])


def _free(
    holders: Holders,
    start: IntArray,
    members: IntArray,
    node: IntArray,
    mine: IntArray,
    times: FloatArray,
) -> IntArray:
    """GPUs that holders on one node leave free, shape (nodes of the pool, times): from each time to the next."""
    change = np.zeros((len(members), len(times) + 1), np.int32)
    row = node[mine] - members[0]
    np.add.at(
        change,
        (row, np.searchsorted(times, holders.start[mine])),
        holders.gpus[mine].astype(np.int32),
    )
    np.add.at(
        change,
        (row, np.searchsorted(times, holders.end[mine])),
        -holders.gpus[mine].astype(np.int32),
    )
    size = (start[members + 1] - start[members]).astype(np.int32)
    return np.asarray(size[:, np.newaxis] - np.cumsum(change, axis=1, dtype=np.int32))


def _shared_out(free: IntArray, first: int, gpus: int, nodes: int) -> tuple[IntArray, IntArray]:
    """Rows of nodes with GPUs of a gang, and how many on each: on as many nodes as it is said to be on."""
    later = np.arange(first + 1, len(free))
    others = later[np.argsort(-free[later], kind="stable")][: nodes - 1]
    row = np.concatenate([[first], np.sort(others)]).astype(np.int64)
    left, count = gpus - len(row), np.ones(len(row), np.int64)  # one at least on each
    for place in np.argsort(-free[row], kind="stable").tolist():
        more = min(left, max(int(free[row[place]]) - 1, 0))
        count[place] += more
        left -= more
    return row, count


def gpus_of(instance: Instance, holders: Holders, parts: Parts) -> tuple[IntArray, IntArray]:
    """GPUs that holders are drawn on: pairs of holder and GPU, by holder.

    In order of start, a holder has the lowest GPU that it is known to have where that is free, and then the next ones
    of its nodes. Where the nodes that were chosen for gangs leave too few, fewer are drawn.
    """
    start = instance.cluster.numbering.start
    until = np.full(int(start[-1]), -np.inf)
    slack = 1e-9 * float(holders.end.max(initial=0.0) - holders.start.min(initial=0.0))
    found: list[IntArray] = []
    owner: list[IntArray] = []
    for holder, node, wanted in zip(
        parts.holder.tolist(), parts.node.tolist(), parts.gpus.tolist(), strict=True
    ):
        first, stop = int(start[node]), int(start[node + 1])
        free = first + np.flatnonzero(until[first:stop] <= holders.start[holder] + slack)
        lowest = int(np.searchsorted(free, holders.first_gpu[holder]))
        taken = np.sort(np.roll(free, -lowest)[:wanted]) if lowest < len(free) else free[-wanted:]
        until[taken] = holders.end[holder]
        found.append(taken)
        owner.append(np.full(len(taken), holder))
    none = [np.zeros(0, np.int64)]
    return np.concatenate([*none, *owner]), np.concatenate([*none, *found])
