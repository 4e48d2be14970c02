"""Notes on allocations that may promise more than placements deliver.

Programs count the GPUs of a pool in total. Two things may be lost then. Gangs and shares of GPUs need
GPUs side by side, on nodes: the side constraint ``placeable`` counts nodes. And rows of the allocation
that take turns may leave GPUs idle: `optsched.realise` says which share of the fractions whole rows
deliver (`Rounds.scale`).

"Rows" are rows of the allocation here, not of the program: a job, or a pair, in one configuration.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, IntArray, group_rows
from optsched.candidates import Classes
from optsched.display.text import enumerated
from optsched.instance import Instance
from optsched.instance.cluster import PER_NODE, PoolSizes
from optsched.performance import Configurations
from optsched.solution import Allocation, Solution

COUNTS_NODES = "the side constraint placeable counts nodes"
"""End of a note that a placement of all jobs makes needless."""
SHARE_DELIVERED = (
    "whole jobs may deliver less; rounds (optsched solve --rounds auto, optsched.realise) say which "
    "share of the fractions they deliver"
)
"""End of a note that rounds make needless."""


def notes_on_promises(solution: Solution) -> tuple[str, ...]:
    """Notes on what the program of a solution does not count; none where there is a schedule."""
    allocation = solution.allocation
    if allocation is None or solution.schedule is not None:
        return ()
    C = allocation.classes
    used = np.bincount(C.configuration[allocation.x > 0]).nonzero()[0]
    on_nodes, in_turn = _pools_that_may_promise_too_much(allocation, used)
    reserved = any(item.get("reserved") for item in solution.constraints if item["kind"] == "cells")
    if reserved and not allocation.integral:
        return (f"reserved cells are a relaxation for fractions of time: {SHARE_DELIVERED}",)
    if any(item["kind"] == "placeable" for item in solution.constraints):
        # It finds nodes for whole jobs, but only bounds fractions of time.
        bounded = not allocation.integral and (on_nodes or in_turn)
        words = f"placeable is a relaxation for fractions of time: {SHARE_DELIVERED}"
        return (words,) if bounded else ()
    notes = list(_uncounted_groups(C, used))
    if on_nodes:
        notes.append(
            f"the program counts GPUs of {enumerated(on_nodes, 'and')} in total, and rows may find "
            f"no room side by side on nodes: {COUNTS_NODES}"
        )
    if in_turn:
        where = enumerated(in_turn, "and")
        notes.append(f"rows of several sizes take turns on {where}: {SHARE_DELIVERED}")
    return tuple(notes)


def notes_after_rounds(notes: tuple[str, ...]) -> tuple[str, ...]:
    """Notes that still hold beside rounds, whose scale says what is delivered."""
    return tuple(note for note in notes if SHARE_DELIVERED not in note)


def notes_after_placement(solution: Solution) -> tuple[str, ...]:
    """Notes that still hold beside a placement: one of all whole jobs shows that nodes have room."""
    allocation, placement = solution.allocation, solution.placement
    assert allocation is not None and placement is not None
    if not allocation.integral or placement.refused:
        return solution.notes
    return tuple(note for note in solution.notes if COUNTS_NODES not in note)


def _uncounted_groups(C: Classes, used: IntArray) -> tuple[str, ...]:
    """A note where configurations in use have the rate of a group (rack): no row counts groups."""
    levels = C.instance.cluster.level_names
    level = set(C.configurations.levels[used].tolist())
    names = ", ".join(name for number, name in enumerate(levels, 1) if number in level)
    if not names:
        return ()
    return (
        f"rates within one group (levels {names}) are promised without counting the groups: "
        "the side constraint placeable counts them",
    )


def _pools_that_may_promise_too_much(
    allocation: Allocation, used: IntArray
) -> tuple[list[str], list[str]]:
    """Names of the pools whose nodes may have too little room for what fits in total; and of those
    where only rows that take turns may leave GPUs idle.
    """
    C = allocation.classes
    one_job, take_turns = _who_runs(allocation)
    staying = _pools_with_staying_jobs(C.instance)
    counted, gpus = C.resources.names, C.instance.pool_sizes.gpus.tolist()
    on_nodes: list[str] = []
    in_turn: list[str] = []
    for pool, ways in _ways_by_pool(C.configurations, used).items():
        name = C.instance.cluster.pools[pool].name
        if pool in staying:
            on_nodes.append(name)
            continue
        if one_job[pool]:
            continue
        other_needs = any(f"{name}.{resource}" in counted for resource in PER_NODE)
        if other_needs or _may_find_no_node(C.instance.pool_sizes, pool, ways, take_turns[pool]):
            on_nodes.append(name)
        elif take_turns[pool] and _leave_gpus_over(ways, gpus[pool]):
            in_turn.append(name)
    return on_nodes, in_turn


def _who_runs(allocation: Allocation) -> tuple[BoolArray, BoolArray]:
    """Of every pool, whether at most one job has time on it; and whether rows must take turns: its
    jobs need more GPUs at once than it has, or some share GPUs as a pair.
    """
    C, sizes = allocation.classes, allocation.classes.instance.pool_sizes
    table, pools = C.configurations, len(sizes.gpus)
    column = np.flatnonzero(allocation.x > 0)
    way = C.configuration[column]
    on_gpus = ((table.pool >= 0) & (table.gpus > 0))[way]
    if not on_gpus.all():
        column, way = column[on_gpus], way[on_gpus]
    pool, job, held = table.pool[way], C.class_a[column], (table.gpus * table.share)[way]
    groups = group_rows([pool, job], len(column))
    gpus = np.zeros(len(groups))
    np.maximum.at(gpus, groups.inverse, held)
    pool_of_group, jobs = pool[groups.first], C.count[job[groups.first]]
    paired = np.bincount(pool[~C.alone[column]], minlength=pools) > 0
    one_job = (np.bincount(pool_of_group, jobs, pools) <= 1) & ~paired
    if allocation.integral:
        return one_job, np.zeros(pools, bool)
    at_once = np.bincount(pool_of_group, jobs * gpus, pools) <= sizes.gpus
    return one_job, paired | ~at_once


def _pools_with_staying_jobs(instance: Instance) -> set[int]:
    """Pools in which running jobs keep their GPUs."""
    held = instance.jobs_table.places
    if not len(held.job):
        return set()
    from optsched.instance.staying import must_stay  # most instances begin with idle GPUs

    return set(held.pool[must_stay(instance)[held.job]].tolist())


class _Way(NamedTuple):
    """A way to run on some pool."""

    gpus: int
    nodes: int
    share: float


def _ways_by_pool(configurations: Configurations, used: IntArray) -> dict[int, list[_Way]]:
    """The ways to run that are in use, pool by pool."""
    table = configurations
    ways: dict[int, list[_Way]] = {}
    of_way = (table.gpus, table.nodes, table.share)
    columns = [column[used].tolist() for column in (table.pool, *of_way)]
    for pool, *way in sorted(zip(*columns, strict=True)):
        if pool >= 0 and way[0]:
            ways.setdefault(pool, []).append(_Way(*way))
    return ways


def _may_find_no_node(sizes: PoolSizes, pool: int, ways: list[_Way], take_turns: bool) -> bool:
    """Whether sets of rows that keep to the total of their pool may find no room on its nodes.

    They find room if rows on one node have sizes that divide each other and those of all nodes, and
    rows on several nodes have whole nodes. Shares of single GPUs that run at once are counted
    elsewhere (`packed`).
    """
    shared = [way for way in ways if way.share < 1]
    if shared and (take_turns or len(shared) < len(ways) or any(way.gpus > 1 for way in shared)):
        return True
    divisor = int(sizes.divisor[pool])  # of the GPUs of all nodes
    equal_nodes = divisor * sizes.nodes[pool] == sizes.gpus[pool]
    on_one = [*sorted({way.gpus for way in ways if way.nodes == 1}), divisor]
    if any(larger % smaller for smaller, larger in pairwise(on_one)):
        return True
    return any(not equal_nodes or way.gpus != way.nodes * divisor for way in ways if way.nodes > 1)


def _leave_gpus_over(ways: list[_Way], gpus: int) -> bool:
    """Whether rows that take turns on a pool have several sizes, or one that leaves GPUs over."""
    sizes = {way.gpus for way in ways}
    return len(sizes) > 1 or bool(gpus % sizes.pop())
