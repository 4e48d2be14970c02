"""Notes on allocations that may promise more than placements deliver.

Programs count the GPUs of a pool in total. Two things may be lost then. Gangs and shares of GPUs need
GPUs side by side, on nodes: the side constraint ``placeable`` counts nodes. And rows that take turns
need not fill the time of all GPUs: `optsched.realise` says which share of the fractions whole rows
deliver (`Rounds.scale`).
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Classes
from optsched.display.text import enumerated
from optsched.instance.cluster import PER_NODE
from optsched.instance.staying import must_stay
from optsched.solution import Allocation, Solution

COUNTS_NODES = "the side constraint placeable counts nodes"
SHARE_DELIVERED = (
    "whole jobs may deliver less; rounds (--rounds auto, optsched.realise) say which share of the "
    "fractions they deliver"
)


def notes_on_promises(solution: Solution) -> tuple[str, ...]:
    """Notes on what the program of a solution does not count; none where there is a schedule."""
    allocation = solution.allocation
    if allocation is None or solution.schedule is not None:
        return ()
    on_nodes, in_turn = _pools_that_may_promise_too_much(allocation)
    if any(item["kind"] == "placeable" for item in solution.constraints):
        # Its rows bound fractions of time; whole jobs it places.
        bounded = not allocation.integral and (on_nodes or in_turn)
        words = f"placeable is a relaxation for fractions of time: {SHARE_DELIVERED}"
        return (words,) if bounded else ()
    notes = list(_uncounted_groups(allocation))
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


def _uncounted_groups(allocation: Allocation) -> tuple[str, ...]:
    """Columns in use have the rate of a group (rack), and the program does not count groups."""
    C = allocation.classes
    level = C.configurations.levels[C.configuration[allocation.x > 0]]
    used = np.unique(level[(level > 0) & (level <= len(C.instance.cluster.levels))]).tolist()
    if not used:
        return ()
    names = ", ".join(C.instance.cluster.level_names[number - 1] for number in used)
    return (
        f"rates within one group (levels {names}) are promised without counting the groups: "
        "the side constraint placeable counts them",
    )


def _pools_that_may_promise_too_much(allocation: Allocation) -> tuple[list[str], list[str]]:
    """Names of the pools whose nodes may have too little room for what fits in total; and of those
    where only rows that take turns may leave GPUs idle.
    """
    C, x = allocation.classes, allocation.x
    (column,) = ((x > 0) & (C.pool >= 0) & (C.gpus > 0)).nonzero()
    pool_of_column = C.pool[column]
    held = C.instance.jobs_table.places
    with_staying = held.pool[must_stay(C.instance)[held.job]] if len(held.job) else held.pool
    on_nodes: list[str] = []
    in_turn: list[str] = []
    for number, pool in enumerate(C.instance.cluster.pools):
        of_pool = column[pool_of_column == number]
        if not len(of_pool):
            continue
        if number in with_staying:
            on_nodes.append(pool.name)
            continue
        if _one_job(C, of_pool):
            continue
        takes_turns = not allocation.integral and not _fits_in_total(C, of_pool, x)
        if _may_find_no_node(C, of_pool, takes_turns=takes_turns):
            on_nodes.append(pool.name)
        elif takes_turns and _of_several_sizes(C, of_pool):
            in_turn.append(pool.name)
    return on_nodes, in_turn


def _one_job(C: Classes, column: IntArray) -> bool:
    """Whether one job alone has these columns of a pool."""
    job = int(C.class_a[column[0]])
    if C.count[job] != 1 or not (C.class_a[column] == job).all():
        return False
    return bool(C.alone[column].all())


def _fits_in_total(C: Classes, column: IntArray, x: FloatArray) -> bool:
    """Whether all jobs of some columns of a pool have GPUs at once, if only their number counts."""
    gpus = np.zeros(len(C))
    share = C.configurations.share[C.configuration[column]]
    np.maximum.at(gpus, C.class_a[column], C.gpus[column] * share)
    pool = C.instance.cluster.pools[int(C.pool[column[0]])]
    alone = bool(C.alone[column].all())
    return alone and float(gpus @ C.count) <= pool.capacity(C.instance.now)


def _may_find_no_node(C: Classes, column: IntArray, *, takes_turns: bool) -> bool:
    """Whether sets of rows that keep to the total of their pool may find no room on its nodes.

    They find room if rows on one node have sizes that divide each other and those of all nodes, and
    rows on several nodes have whole nodes. Shares of single GPUs that run at once are counted
    elsewhere (`packed`).
    """
    pool = C.instance.cluster.pools[int(C.pool[column[0]])]
    if any(f"{pool.name}.{name}" in C.resources.names for name in PER_NODE):
        return True
    configurations = C.configurations
    configuration = C.configuration[column]
    gpus, nodes = configurations.gpus[configuration], configurations.nodes[configuration]
    shared = configurations.share[configuration] < 1
    if (shared & ((gpus > 1) | takes_turns)).any() or (shared.any() and not shared.all()):
        return True
    of_node = _different(pool.node_gpus[pool.usable(C.instance.now)])
    sizes = _different(gpus[nodes == 1])
    chain = (sizes[1:] % sizes[:-1] == 0).all()
    in_nodes = (of_node[:, np.newaxis] % sizes == 0).all()
    whole = (gpus[nodes > 1] == nodes[nodes > 1] * of_node[0]).all()
    several_sizes = len(of_node) > 1 and (nodes > 1).any()
    return bool(not (chain and in_nodes and whole) or several_sizes)


def _of_several_sizes(C: Classes, column: IntArray) -> bool:
    """Whether rows that take turns on a pool have several sizes, or one that leaves GPUs over."""
    pool = C.instance.cluster.pools[int(C.pool[column[0]])]
    sizes = _different(C.gpus[column])
    return len(sizes) > 1 or bool(pool.capacity(C.instance.now) % int(sizes[0]))


def _different(gpus: IntArray) -> IntArray:
    """The different numbers of GPUs above 0, ascending."""
    return np.bincount(gpus)[1:].nonzero()[0] + 1
