"""From counts by node to GPUs: those that a job holds already, then consecutive ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from optsched.arrays import IntArray
from optsched.placement.problem import Assignment, Pieces, Problem


def with_identities(
    problem: Problem,
    pieces: Mapping[int, Pieces],
    shared: Mapping[int, IntArray],
    kept: Mapping[int, Iterable[tuple[int, int]]] | None = None,
) -> Assignment:
    """GPUs of every request.

    Parameters
    ----------
    problem : Problem
    pieces : mapping
        Counts by node of the requests of whole GPUs (of those that share they are ignored).
    shared : mapping
        GPUs of the requests that share; no other request gets these.
    kept : mapping, optional
        GPUs that a request of whole GPUs keeps; by default all that it holds, first come, first served.
    """
    taken = {(node, gpu) for gpus in shared.values() for node, gpu in gpus.tolist()}
    chosen: dict[int, list[tuple[int, int]]] = {}
    whole = [j for j in sorted(pieces) if j not in shared]
    for j in whole:
        counts = dict(pieces[j])
        mine: list[tuple[int, int]] = []
        for node, gpu in _held(problem, j) if kept is None else sorted(kept.get(j, ())):
            if (
                counts.get(node, 0)
                and (node, gpu) not in taken
                and problem.nodes.room[node, gpu] >= 1.0
            ):
                counts[node] -= 1
                taken.add((node, gpu))
                mine.append((node, gpu))
        chosen[j] = mine
    on: dict[int, list[tuple[int, int]]] = {}
    for j in whole:
        for node, count in pieces[j]:
            missing = count - sum(spot[0] == node for spot in chosen[j])
            if missing:
                on.setdefault(node, []).append((-missing, j))
    for node, wanted in on.items():
        untouched = np.flatnonzero(problem.nodes.room[node] >= 1.0).tolist()
        free = [gpu for gpu in untouched if (node, gpu) not in taken]
        for negative, j in sorted(wanted):
            for gpu in consecutive(free, -negative):
                free.remove(gpu)
                chosen[j].append((node, gpu))
    result = {j: np.array(sorted(spots), np.int64).reshape(-1, 2) for j, spots in chosen.items()}
    return result | {j: gpus[np.lexsort((gpus[:, 1], gpus[:, 0]))] for j, gpus in shared.items()}


def _held(problem: Problem, request: int) -> list[tuple[int, int]]:
    """GPUs that a request holds, those of both its jobs first."""
    held = problem.held[request]
    order = np.lexsort((held.gpus[:, 1], held.gpus[:, 0], -held.weight))
    return [(node, gpu) for node, gpu in held.gpus[order].tolist()]


def consecutive(free: list[int], count: int) -> list[int]:
    """So many of the free GPUs, ascending: a part of the shortest run that has them, else the first ones."""
    runs: list[list[int]] = []
    for gpu in free:
        if runs and runs[-1][-1] == gpu - 1:
            runs[-1].append(gpu)
        else:
            runs.append([gpu])
    long_enough = [run for run in runs if len(run) >= count]
    return (min(long_enough, key=len) if long_enough else free)[:count]
