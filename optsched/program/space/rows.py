"""Rows over the allocation alone that every placement keeps at every instant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import NO_SLICE, Classes
from optsched.candidates.going_on import continuing
from optsched.instance.cluster import PER_NODE
from optsched.instance.staying import Running, must_stay
from optsched.program.side_rows import SideRows
from optsched.program.space.contents import ROUNDING, fewest_pieces, share_counts
from optsched.program.space.gangs import ANYWHERE, GangTypes, NodeClasses

PLACEABLE = "placeable"

Row = tuple[FloatArray, float, str]
"""Coefficient of each type of gangs, the limit of the sum, and the row as text."""


def capacity_rows(C: Classes, gangs: GangTypes, nodes: NodeClasses) -> SideRows | None:
    """Rows over the capacities of GPUs, nodes and groups of nodes.

    Each says that pieces of a size find room: a bin of capacity c holds at most floor(c / s) pieces
    of s or more, and a gang or part of g counts as floor(g / s) of them (a dual feasible function).
    With N_t(x) the sum of x over the columns of type t:

        sum_t g_t share_t N_t(x)              <=  sum over GPUs of left                beside jobs that stay
        sum_t g_t floor(share_t / s) N_t(x)   <=  sum over GPUs of floor(left / s)           shares s
        sum_t g_t u_s(share_t) N_t(x)         <=  sum over GPUs of u_s(left)                 shares s <= 1/2
        sum_t pieces_t(s) N_t(x)              <=  sum over nodes of floor(GPUs / s)          sizes s
        sum_t g_t [need_t >= d] N_t(x)        <=  sum over nodes of floor(capacity / d)      CPUs, memory d
        sum_t g_t w_t N_t(x)                  <=  sum over GPUs of max over layouts of w     slices
        sum_t floor(g_t / s) N_t(x)           <=  sum over groups of floor(GPUs / s)         of each level
        N_t(x)                                <=  0                                          no room in any group
        sum of x over columns that would move jobs that stay  <=  0                          elsewhere

    where u_s(a) is 1 for a > 1 - s, as no share of s fits beside, 0 for a < s and a between,
    pieces_t(s) is the least number over all splits of the gang, w_t is 1 for the slices of
    one profile (or their compute slices) and the largest w of a layout for a whole GPU, and the
    last rows count the gangs that are inside one group. They hold at every instant, so they hold
    for averages over time.
    """
    of_column = gangs.of_column
    column = np.flatnonzero(of_column >= 0)
    shape = (len(gangs), C.columns)
    total = sp.csr_matrix((np.ones(len(column)), (of_column[column], column)), shape=shape)
    most = total @ C.limit
    # Rows that no allocation can violate are left out.
    rows = [row for row in _rows(C, gangs, nodes) if row[0] @ most > row[1] * (1 + ROUNDING)]
    each = np.array([row[0] for row in rows]).reshape(len(rows), len(gangs))
    matrix = sp.csr_matrix(sp.csr_matrix(each) @ total)
    limit = np.array([row[1] for row in rows], np.float64)
    words = [row[2] for row in rows]
    moves = _moves_of_staying(C)
    if moves.any():
        matrix = sp.csr_matrix(sp.vstack([matrix, sp.csr_matrix(moves * 1.0)]))
        limit = np.append(limit, 0.0)
        words.append(f"running jobs that cannot be preempted stay as they run ({PLACEABLE})")
    if not words:
        return None
    return SideRows(PLACEABLE, matrix, np.full(len(limit), -np.inf), limit, words.__getitem__)


def _moves_of_staying(C: Classes) -> BoolArray:
    """Mask of the columns that would move a job which stays (`must_stay`), or give it a new partner
    on a node that takes no new work; shape (N,).

    A job that no column continues has none: it keeps its GPUs, and no program counts it.
    """
    continued, running = continuing(C), Running.of(C.instance)
    every = must_stay(C.instance, running)
    stays, closed = C.common(every), C.common(every & running.leaves)
    others = sp.csr_matrix(C.member - continued)
    others.eliminate_zeros()
    moved: BoolArray = (stays * 1.0) @ (others > 0) > 0
    some, all_stay = ((mask[C.class_a], mask[C.class_b]) for mask in (closed, stays))
    joined = ~C.alone & (some[0] | some[1]) & ~(all_stay[0] & all_stay[1])
    return moved | joined


def _rows(C: Classes, gangs: GangTypes, nodes: NodeClasses) -> Iterator[Row]:
    pools = C.instance.cluster.pools
    for pool in np.unique(gangs.pool).tolist():
        types = np.flatnonzero(gangs.pool == pool)
        here = np.flatnonzero(nodes.pool == pool)
        for row in (
            *_of_gpus(C, gangs, nodes, types, here),
            *_of_shares(gangs, nodes, types, here),
            *_of_slices(gangs, nodes, types, here, pool),
            *_of_sizes(gangs, nodes, types, here),
            *_of_needs(gangs, nodes, types, here),
            *_of_levels(C, gangs, nodes, types, pool),
            *_without_room(gangs, nodes, types, pool),
        ):
            yield (row[0], row[1], f"pool {pools[pool].name}: {row[2]} ({PLACEABLE})")


def _row(
    gangs: GangTypes, types: IntArray, each: IntArray | FloatArray, limit: float, words: str
) -> Row:
    every = np.zeros(len(gangs))
    every[types] = each
    return every, float(limit), words


def _of_gpus(
    C: Classes, gangs: GangTypes, nodes: NodeClasses, types: IntArray, here: IntArray
) -> Iterator[Row]:
    """All that jobs that stay leave; without them, the capacity of the pool says the same."""
    left = float(nodes.room[here] @ nodes.count[here])
    if left < C.capacity[gangs.pool[types[0]]] - ROUNDING:
        words = f"running jobs that cannot be preempted leave {left:g} GPUs"
        yield _row(gangs, types, gangs.gpus[types] * gangs.share[types], left, words)


def _of_shares(
    gangs: GangTypes, nodes: NodeClasses, types: IntArray, here: IntArray
) -> Iterator[Row]:
    share = gangs.share[types]
    for count in share_counts(share):
        limit = sum(
            count.held(int(nodes.gpus[r]), nodes.rooms[r]) * int(nodes.count[r])
            for r in here.tolist()
        )
        if count.rounded:
            words = f"a GPU holds at most {count.held(1, ()):.0f} shares of {count.least:g}"
        else:
            beside = 1 - count.least
            words = f"no share of {count.least:g} fits beside one of more than {beside:g}"
        yield _row(gangs, types, gangs.gpus[types] * count.of(share), limit, words)


def _of_slices(
    gangs: GangTypes, nodes: NodeClasses, types: IntArray, here: IntArray, pool: int
) -> Iterator[Row]:
    profile = gangs.profile[types]
    used = np.unique(profile[profile != NO_SLICE])
    if not len(used):
        return
    layouts = gangs.layouts[pool]
    gpus = int((nodes.gpus[here] * nodes.count[here]).sum())
    compute = np.array([part.compute_slices for part in layouts.partitions], np.int64)
    one = np.eye(len(compute), dtype=np.int64)
    kinds = [(one[row], f"slices {layouts.names[row]}") for row in used.tolist()]
    for weight, what in (*kinds, (compute, "compute slices")):
        most = int((layouts.counts @ weight).max())
        each = np.where(profile != NO_SLICE, weight[profile], 0)
        each[gangs.share[types] == 1] = most
        # GPUs that are cut already count as if they were free.
        cut = sum(
            int(nodes.count[r]) * sum(bool(room.slices) for room in nodes.rooms[r])
            for r in here.tolist()
        )
        limit = (gpus + cut) * most
        yield _row(
            gangs, types, gangs.gpus[types] * each, limit, f"a GPU has at most {most} {what}"
        )


def _of_sizes(
    gangs: GangTypes, nodes: NodeClasses, types: IntArray, here: IntArray
) -> Iterator[Row]:
    whole = types[gangs.share[types] == 1]
    most = int(nodes.gpus[here].max(initial=0))
    for size in range(2, most + 1):
        each = np.array(
            [
                fewest_pieces(int(gangs.gpus[t]), int(gangs.nodes[t]), most, size)
                for t in whole.tolist()
            ],
            np.int64,
        )
        limit = int((nodes.gpus[here] // size * nodes.count[here]).sum())
        yield _row(gangs, whole, each, limit, f"nodes hold at most {limit} pieces of {size} GPUs")


def _of_needs(
    gangs: GangTypes, nodes: NodeClasses, types: IntArray, here: IntArray
) -> Iterator[Row]:
    for place, name in enumerate(PER_NODE):
        need = gangs.need[types, place]
        for least in np.unique(need[need > 0]).tolist():
            capacity = nodes.own[here, place]
            if not np.isfinite(capacity).all():
                continue
            limit = int((np.floor(capacity / least + ROUNDING) * nodes.count[here]).sum())
            each = np.where(need >= least, gangs.gpus[types], 0)
            words = f"nodes hold at most {limit} GPUs that need {least:g} {name} each"
            yield _row(gangs, types, each, limit, words)


def _without_room(
    gangs: GangTypes, nodes: NodeClasses, types: IntArray, pool: int
) -> Iterator[Row]:
    """Gangs that fit into no group, even alone."""
    for t in types.tolist():
        hosts, span = nodes.hosts(gangs.need[t], float(gangs.share[t])), int(gangs.nodes[t])
        groups = nodes.groups(int(gangs.level[t]), pool)
        if all(_held_at_most(hosts, nodes, those, span) < gangs.gpus[t] for _, those in groups):
            gang = np.array([t], np.int64)
            words = (
                f"no nodes hold a gang of {gangs.gpus[t]} GPUs "
                "with the other resources that it needs"
            )
            yield _row(gangs, gang, np.ones(1, np.int64), 0, words)


def _held_at_most(hosts: IntArray, nodes: NodeClasses, those: IntArray, span: int) -> int:
    """Most GPUs that one gang can hold on ``span`` nodes of these classes."""
    order = those[np.argsort(-hosts[those], kind="stable")]
    before = np.cumsum(nodes.count[order]) - nodes.count[order]
    return int((hosts[order] * np.clip(span - before, 0, nodes.count[order])).sum())


def _of_levels(
    C: Classes, gangs: GangTypes, nodes: NodeClasses, types: IntArray, pool: int
) -> Iterator[Row]:
    for level in np.unique(gangs.level[types]).tolist():
        if level == ANYWHERE:
            continue
        name = C.instance.cluster.level_names[level - 1]
        inside = (gangs.nodes[types] == 1) | (
            (gangs.level[types] > 0) & (gangs.level[types] <= level)
        )
        whole = types[inside & (gangs.share[types] == 1)]
        sizes = [
            int((nodes.gpus[those] * nodes.count[those]).sum())
            for _, those in nodes.groups(level, pool)
        ]
        for size in np.unique(gangs.gpus[whole]).tolist():
            limit = sum(gpus // size for gpus in sizes)
            words = f"groups of level {name} hold at most {limit} gangs of {size} GPUs"
            yield _row(gangs, whole, gangs.gpus[whole] // size, limit, words)
