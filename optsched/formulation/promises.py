"""Notes on allocations that may promise more than placements deliver.

Programs count the GPUs of a pool in total. Gangs and shares of GPUs need them side by side, on nodes
and in racks: what the totals allow is then a relaxation. `optsched.realise` says which share of an
allocation whole placements deliver (`Rounds.scale`), and the side constraint ``placeable`` counts
nodes and racks.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import Classes
from optsched.display.text import enumerated
from optsched.solution import Allocation, Solution

SHARE_DELIVERED = (
    "whole placements may deliver less; rounds (--rounds auto, optsched.realise) say which share "
    "of the fractions they deliver"
)


def notes_on_promises(solution: Solution) -> tuple[str, ...]:
    """Notes on what the program of a solution does not count; none where there is a schedule."""
    allocation = solution.allocation
    if allocation is None or solution.schedule is not None:
        return ()
    if any(item["kind"] == "placeable" for item in solution.constraints):
        return _fractions_on_nodes(allocation)
    return (*_uncounted_groups(allocation), *_uncounted_nodes(allocation))


def _fractions_on_nodes(allocation: Allocation) -> tuple[str, ...]:
    """The rows of `placeable` bound fractions of time: they prove no schedule."""
    C = allocation.classes
    if allocation.integral or not ((allocation.x > 0) & (C.pool >= 0)).any():
        return ()
    return (f"placeable is a relaxation for fractions of time: {SHARE_DELIVERED}",)


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


def _uncounted_nodes(allocation: Allocation) -> tuple[str, ...]:
    """Gangs, or shares of GPUs, that keep to the totals of a pool may find no room side by side."""
    C = allocation.classes
    column = np.flatnonzero((allocation.x > 0) & (C.pool >= 0) & (C.gpus > 0))
    pools = C.instance.cluster.pools
    turns: list[str] = []
    together: list[str] = []
    for pool in np.unique(C.pool[column]).tolist():
        in_pool = column[C.pool[column] == pool]
        in_turn = not allocation.integral and not _fits_in_total(C, in_pool, allocation.x)
        if _may_exceed(C, in_pool, in_turn=in_turn):
            (turns if in_turn else together).append(pools[pool].name)
    notes = []
    if turns:
        where = enumerated(turns, "and")
        notes.append(
            f"gangs or shares of GPUs take turns on {where}, and the program counts GPUs in total: "
            f"{SHARE_DELIVERED}"
        )
    if together:
        where = enumerated(together, "and")
        notes.append(
            f"the program counts GPUs of {where} in total, and gangs of these sizes may find no "
            "room on nodes: the side constraint placeable counts nodes"
        )
    return tuple(notes)


def _fits_in_total(C: Classes, column: IntArray, x: FloatArray) -> bool:
    """Whether all jobs of some columns of a pool have GPUs at once, if only their number counts."""
    gpus = np.zeros(len(C))
    share = C.configurations.share[C.configuration[column]]
    np.maximum.at(gpus, C.class_a[column], C.gpus[column] * share)
    pool = C.instance.cluster.pools[int(C.pool[column[0]])]
    alone = bool(C.alone[column].all())
    return alone and float(gpus @ C.count) <= pool.capacity(C.instance.now)


def _may_exceed(C: Classes, column: IntArray, *, in_turn: bool) -> bool:
    """Whether sets of rows that keep to the total of their pool may find no room on its nodes.

    They find room if their sizes divide each other and those of nodes; rows that take turns if in
    addition all have one size. Shares of GPUs that run at once are counted elsewhere (`packed`).
    """
    share = C.configurations.share[C.configuration[column]]
    if in_turn and (share < 1).any():
        return True
    sizes = np.unique(C.gpus[column[share == 1]])
    pool = C.instance.cluster.pools[int(C.pool[column[0]])]
    nodes = np.unique(pool.node_gpus[pool.usable(C.instance.now)])
    if in_turn and len(sizes) > 1:
        return True
    if in_turn and len(sizes) and pool.capacity(C.instance.now) % int(sizes[0]):
        return True
    chain = (sizes[1:] % sizes[:-1] == 0).all()
    on_nodes = (nodes[:, np.newaxis] % sizes == 0) | (sizes % nodes[:, np.newaxis] == 0)
    return not (chain and on_nodes.all())
