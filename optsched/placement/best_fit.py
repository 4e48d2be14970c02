"""Best fit: gangs in decreasing size, each on as few nodes and with as little left over as it can.

The result breaks no rule of the problem, but may place fewer requests or span more nodes than the best; the bounds
(`optsched.placement.bounds`) tell how many.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import IntArray
from optsched.placement.identities import with_identities
from optsched.placement.problem import ROUNDING, Assignment, Problem, limit
from optsched.placement.repair import make_room, tighten
from optsched.placement.state import Pieces, State

FAILURES = 100
"""Requests that may find no place even by pushing others, before the rest is refused without a try."""


def best_fit(problem: Problem, keep: bool, smallest: int | None = None) -> Assignment:
    """Place requests one after the other; with ``smallest`` so many of the smallest before all others.

    Of equal ones, those given first come first. What is not placed in the end fits nowhere beside what is.

    1. With ``keep``, requests whose jobs run on as few nodes as they need stay where they are.
    2. Gangs of whole GPUs in decreasing size: on the node with the least left over, or on as many whole nodes as they
       need, joined by the best links that so few nodes have.
    3. A gang that finds no place, or that spans more nodes than it needs, may push smaller ones elsewhere.
    4. Requests of shares in decreasing share, on the fullest GPUs that have room.
    """
    R, state = problem.requests, State(problem)
    later = np.zeros(len(problem), bool)
    if smallest is not None:
        later[np.lexsort((R.gpus * R.share, problem.fewest == 0))[smallest:]] = True
    if keep:
        for j in _stable(problem):
            if not later[j]:
                _keep(state, j)
    by_size = np.lexsort((R.span, -R.gpus, later))
    whole = [
        j
        for j in by_size.tolist()
        if R.share[j] == 1.0 and problem.fewest[j] and j not in state.pieces
    ]
    refused = []
    for j in whole:
        pieces = choose(state, j, int(R.span[j]))
        if pieces is None:
            refused.append(j)
        else:
            state.take(j, pieces)
    failed = 0
    for j in refused:
        failed += failed < FAILURES and not make_room(state, j, int(R.span[j]), choose)
    tighten(state, choose)
    for j in refused:  # what was pushed and tightened may have left room
        pieces = None if j in state.pieces else choose(state, j, int(R.span[j]))
        if pieces is not None:
            state.take(j, pieces)
    assignment = with_identities(problem, state.pieces, state.shared)
    _block(state, assignment)
    by_share = np.lexsort((-R.gpus, -R.share, later))
    for j in by_share.tolist():
        if R.share[j] < 1.0 and problem.fewest[j] and j not in state.pieces:
            gpus = choose_shared(state, j)
            if gpus is not None:
                state.take_shared(j, gpus)
    fixed = {j: [(node, gpu) for node, gpu in gpus.tolist()] for j, gpus in assignment.items()}
    return with_identities(problem, state.pieces, state.shared, fixed)


def choose(state: State, request: int, span: int) -> Pieces | None:
    """Whole GPUs for a request on at most ``span`` nodes, or None."""
    problem = state.problem
    here, gpus = problem.of_pool(request), int(problem.requests.gpus[request])
    available = state.available(request)
    enough = np.flatnonzero(available >= gpus)
    if len(enough):
        left = state.free[here][enough] - gpus
        best = enough[left == left.min()]
        return [(here.start + _tie(problem, request, best, here), gpus)]
    if span == 1:
        return None
    reach = np.cumsum(np.sort(available)[::-1])
    nodes = int(np.searchsorted(reach, gpus)) + 1
    if nodes > min(span, len(reach)):
        return None
    pieces = _fill(_best_joined(problem, here, available, gpus, nodes), gpus, nodes, here)
    return pieces if state.fits(request, pieces) else _by_gain(state, request, available, span)


def _tie(problem: Problem, request: int, nodes: IntArray, here: slice) -> int:
    """Among nodes that are equally good: the best links inside, then the most GPUs held, then the first."""
    held = problem.held[request]
    if len(nodes) > 1 and len(problem.links.bandwidth) > 1:
        inside = (problem.links.label[:, here][:, nodes] >= 0).sum(axis=0)
        nodes = nodes[inside == inside.max()]
    if len(nodes) > 1 and len(held.gpus):
        mine = np.bincount(held.gpus[:, 0], held.weight, len(problem.nodes))[here][nodes]
        nodes = nodes[mine == mine.max()]
    return int(nodes[0])


def _best_joined(
    problem: Problem, here: slice, available: IntArray, gpus: int, nodes: int
) -> IntArray:
    """What is available on the nodes joined by the best links among which so few have so many GPUs; else everywhere."""
    for label in problem.links.label[:, here]:
        order = np.lexsort((-available, label))
        order = order[label[order] >= 0]
        if not len(order):
            continue
        first = np.flatnonzero(np.diff(label[order], prepend=-1))
        total = np.concatenate(([0], np.cumsum(available[order])))
        last = np.minimum(first + nodes, np.append(first[1:], len(order)))
        reach = total[last] - total[first]
        if (reach >= gpus).any():
            tightest = first[np.flatnonzero(reach >= gpus)[np.argmin(reach[reach >= gpus])]]
            return np.where(label == label[order[tightest]], available, 0)
    return available


def _fill(available: IntArray, gpus: int, nodes: int, here: slice) -> Pieces:
    """The largest nodes whole, and the rest on the node where it leaves least."""
    order = np.argsort(-available, kind="stable")[: nodes - 1]
    rest = gpus - int(available[order].sum())
    pieces = [(here.start + int(node), int(available[node])) for node in order]
    others = available.copy()
    others[order] = 0
    enough = np.flatnonzero(others >= rest)
    return [*pieces, (here.start + int(enough[np.argmin(others[enough])]), rest)]


def _by_gain(state: State, request: int, available: IntArray, span: int) -> Pieces | None:
    """GPUs on at most ``span`` nodes, each time the node that adds most within the resources of some nodes; or None.

    Where no two of these resources have a node in common this finds a place if there is one: what the nodes of one of
    them add, the largest first, grows ever less, so that the greatest gains are the best choice.
    """
    problem, R = state.problem, state.problem.requests
    here, rest = problem.of_pool(request), int(R.gpus[request])
    groups = np.flatnonzero(R.group_need[request])
    member = problem.nodes.member[groups, here]
    room = np.concatenate(
        [limit(state.group[[g], None], R.group_need[request, [g]]) for g in groups.tolist()]
    )
    left, pieces = available.copy(), []
    for _ in range(span):
        gain = np.minimum(left, np.where(member, room[:, None], rest).min(axis=0))
        node = int(np.argmax(gain))
        piece = min(rest, int(gain[node]))
        if piece <= 0:
            return None
        pieces.append((here.start + node, piece))
        room -= piece * member[:, node]
        left[node], rest = 0, rest - piece
        if not rest:
            return pieces
    return None


def choose_shared(state: State, request: int) -> IntArray | None:
    """GPUs with room for a request that shares, rows (node, index): few nodes, the fullest GPUs; or None."""
    problem, R = state.problem, state.problem.requests
    here, gpus, share = problem.of_pool(request), int(R.gpus[request]), float(R.share[request])
    available = state.available(request)
    enough = np.flatnonzero(available >= gpus)
    if len(enough):
        rooms = state.room[here][enough]
        left = np.sort(np.where(rooms >= share - ROUNDING, rooms, np.inf), axis=1)[:, :gpus].sum(
            axis=1
        )
        pieces = [(here.start + _tie(problem, request, enough[left == left.min()], here), gpus)]
    else:
        reach = np.cumsum(np.sort(available)[::-1])
        nodes = int(np.searchsorted(reach, gpus)) + 1
        if nodes > min(int(R.span[request]), len(reach)):
            return None
        pieces = _fill(_best_joined(problem, here, available, gpus, nodes), gpus, nodes, here)
        if not state.fits(request, pieces):
            by_gain = _by_gain(state, request, available, int(R.span[request]))
            if by_gain is None:
                return None
            pieces = by_gain
    held = {(node, gpu) for node, gpu in problem.held[request].gpus.tolist()}
    spots: list[tuple[int, int]] = []
    for node, count in pieces:
        room: list[float] = state.room[node].tolist()
        roomy = [
            (room[gpu], (node, gpu) not in held, gpu)
            for gpu in range(len(room))
            if room[gpu] >= share - ROUNDING
        ]
        spots += [(node, gpu) for _, _, gpu in sorted(roomy)[:count]]
    return np.array(spots, np.int64)


def _block(state: State, assignment: Assignment) -> None:
    """Give requests of whole GPUs their GPUs for good, so that requests that share see which are left."""
    for j, gpus in assignment.items():
        if j not in state.shared:
            state.room[gpus[:, 0], gpus[:, 1]] = 0.0


def _stable(problem: Problem) -> list[int]:
    """Running requests, the largest first."""
    R = problem.requests
    running = [
        j
        for j in range(len(problem))
        if len(problem.held[j].gpus) >= R.gpus[j] and problem.fewest[j]
    ]
    return sorted(running, key=lambda j: (-R.share[j], -R.gpus[j]))


def _keep(state: State, request: int) -> None:
    """Let a request stay on GPUs that it holds, if these are on as few nodes as it needs and still free."""
    problem, R = state.problem, state.problem.requests
    held, gpus = problem.held[request], int(R.gpus[request])
    here, whole = problem.of_pool(request), R.share[request] == 1.0
    most = state.available(request)
    spots = held.gpus.tolist() if whole else _roomy(state, request)
    by_node: dict[int, list[int]] = {}
    for node, gpu in spots:
        by_node.setdefault(node, []).append(gpu)
    count = {node: min(len(mine), int(most[node - here.start])) for node, mine in by_node.items()}
    rest, pieces = gpus, []
    for node in sorted(count, key=lambda node: (-count[node], node))[: problem.fewest[request]]:
        piece = min(rest, count[node])
        rest -= piece
        pieces += [(node, piece)] * (piece > 0)
    if rest or not state.fits(request, pieces):
        return
    if whole:
        state.take(request, pieces)
    else:
        kept = [(node, gpu) for node, piece in pieces for gpu in by_node[node][:piece]]
        state.take_shared(request, np.array(kept, np.int64))


def _roomy(state: State, request: int) -> list[tuple[int, int]]:
    """GPUs that a request which shares holds and that have room for it: those in use first.

    Of the untouched GPUs of a node only as many count as requests of whole GPUs leave free.
    """
    share = float(state.problem.requests.share[request])
    spots = [
        (node, gpu, float(state.room[node, gpu]))
        for node, gpu in state.problem.held[request].gpus.tolist()
    ]
    used = [(node, gpu) for node, gpu, room in spots if share - ROUNDING <= room < 1.0]
    for node in dict.fromkeys(node for node, _, _ in spots):
        untouched = [(node, gpu) for where, gpu, room in spots if where == node and room >= 1.0]
        used += untouched[: int(state.free[node])]
    return used
