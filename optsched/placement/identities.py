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
        GPUs that a request of whole GPUs keeps; by default all that it holds, first come, first
        served.
    """
    taken = {(node, gpu) for gpus in shared.values() for node, gpu in gpus.tolist()}
    whole = [request for request in sorted(pieces) if request not in shared]
    chosen: dict[int, list[tuple[int, int]]] = {}
    # GPUs that a request holds are its own first.
    for request in whole:
        missing = dict(pieces[request])
        wanted = _held(problem, request) if kept is None else sorted(kept.get(request, ()))
        chosen[request] = mine = []
        for node, gpu in wanted:
            free = (node, gpu) not in taken and problem.nodes.room[node, gpu] >= 1.0
            if free and missing.get(node, 0):
                missing[node] -= 1
                taken.add((node, gpu))
                mine.append((node, gpu))
    for node, wanted_here in _missing_by_node(pieces, chosen).items():
        # GPUs with a part taken are for requests that share.
        untouched = np.flatnonzero(problem.nodes.room[node] >= 1.0).tolist()
        left = [gpu for gpu in untouched if (node, gpu) not in taken]
        # The most GPUs first: they need the longest run of consecutive ones.
        for count, request in sorted(wanted_here, key=lambda item: (-item[0], item[1])):
            for gpu in consecutive(left, count):
                left.remove(gpu)
                chosen[request].append((node, gpu))
    result = {
        request: np.array(sorted(spots), np.int64).reshape(-1, 2)
        for request, spots in chosen.items()
    }
    for request, gpus in shared.items():
        result[request] = gpus[np.lexsort((gpus[:, 1], gpus[:, 0]))]
    return result


def _missing_by_node(
    pieces: Mapping[int, Pieces], chosen: Mapping[int, list[tuple[int, int]]]
) -> dict[int, list[tuple[int, int]]]:
    """(GPUs, request) of the GPUs that requests still need on each node."""
    missing: dict[int, list[tuple[int, int]]] = {}
    for request, spots in chosen.items():
        for node, count in pieces[request]:
            left = count - sum(spot[0] == node for spot in spots)
            if left:
                missing.setdefault(node, []).append((left, request))
    return missing


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
    # The shortest run that is enough leaves long ones to larger requests.
    long_enough = [run for run in runs if len(run) >= count]
    return (min(long_enough, key=len) if long_enough else free)[:count]
