"""Best fit: gangs in decreasing size, each on as few nodes as possible,
and of these on the nodes where the fewest GPUs stay free.

The result breaks no rule of the problem, but it may place fewer requests or span more nodes than
the optimum. The bounds (`optsched.placement.bounds`) limit the difference.

`FreeRoom` is the state of the search. `choose` finds nodes for one request. `place_by_pushing` and
`tighten` repair the result: smaller requests move to other nodes, so that a gang finds room or
spans fewer nodes. `why_refused` explains why a request was not placed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray, group_rows, stable_order
from optsched.candidates import NO_SLICE, gpus_allowed
from optsched.placement.problem import (
    Assignment,
    Pieces,
    Problem,
    assign_gpus,
    by_request,
    largest_of_groups,
    with_identities,
)
from optsched.placement.requests import OWN
from optsched.placement.shares import ROUNDING

FAILURES = 100
"""After this many requests for which pushing others makes no room, the rest is refused untried."""
TRIES = 16
"""Sets of nodes on which room is made for one request, at most."""
CANDIDATES = 64
"""Nodes with the most free GPUs that are considered for this."""
PUSHED = 12
"""Requests that one request may push to other nodes, at most."""
MOST_NAMED = 4
"""Nodes that a reason names."""
TIGHTENED = 200
"""Requests that span more nodes than they need and are placed again, at most."""


class FreeRoom:
    """Free GPUs, CPUs and memory of the nodes while requests are placed.

    Requests of whole GPUs are counted by node; their GPUs are chosen at the end. Requests that
    share GPUs get theirs at once.

    Attributes
    ----------
    free : IntArray, shape (N,)
        GPUs that no request has.
    room : FloatArray, shape (N, most GPUs of a node)
        Share of each GPU that sharing requests leave free; 0 beyond the node's GPUs.
    cut : CutGpus or None
        How GPUs are cut into slices (MIG).
    own : FloatArray, shape (N, 2)
        Free CPUs and memory.
    group : FloatArray, shape (G,)
        Free amount of the resources of some nodes.
    pieces : dict
        Nodes of placed requests.
    shared : dict
        GPUs of placed requests that share GPUs.
    on : mapping of node to set
        Requests of whole GPUs on each node.
    """

    def __init__(self, problem: Problem) -> None:
        nodes = problem.nodes
        self.problem = problem
        self.free = nodes.free.copy()
        self.room: FloatArray = nodes.room.copy()
        self.cut = None if nodes.cut is None else nodes.cut.copy()
        self.own = nodes.own.copy()
        self.group = nodes.group_capacity.copy()
        self.pieces: dict[int, Pieces] = {}
        self.shared: dict[int, IntArray] = {}
        self.on: defaultdict[int, set[int]] = defaultdict(set)
        # Number of placed requests of each anti-affinity set on each node.
        sets = {number for numbers in problem.requests.apart for number in numbers}
        self._of_set = {number: np.zeros(len(nodes), np.int64) for number in sets}

    # --- GPUs that are available to a request ---------------------------------------------

    def gpus_with_room(self, request: int) -> IntArray:
        """Number of GPUs of each node of its pool with room for a request,
        whatever else it needs of the node.
        """
        in_pool = self.problem.of_pool(request)
        share = self.problem.requests.share[request]
        if share == 1.0:
            return self.free[in_pool]
        room = self.room_for(request, in_pool)
        enough = (room >= share - ROUNDING).sum(axis=1)
        # The GPUs of whole-GPU requests are not chosen yet, so they still look free in ``room``.
        whole = (room >= 1.0).sum(axis=1) - self.free[in_pool]
        return np.asarray(enough - whole)

    def room_for(self, request: int, nodes: slice | int | IntArray) -> FloatArray:
        """Free share of the GPUs of some nodes for a request that shares GPUs."""
        return self.problem.room_on(request, nodes, self.room, self.cut)

    def available(self, request: int) -> IntArray:
        """Number of GPUs that each node of its pool can give a request now."""
        gpus = self.gpus_with_room(request)
        gpus = self.problem.within_needs(request, gpus, self.own, self.group)
        in_pool = self.problem.of_pool(request)
        for number in self.problem.requests.apart[request]:
            gpus = np.where(self._of_set[number][in_pool] > 0, 0, gpus)
        return gpus

    def keeps_groups(self, request: int, pieces: Pieces) -> bool:
        """Whether pieces that fit node by node are also within the resources that several nodes
        share.
        """
        need = self.problem.requests.group_need[request]
        if not need.any():
            return True
        nodes = self.problem.nodes
        member = nodes.member[:, [node for node, _ in pieces]]
        used = member @ np.array([gpus for _, gpus in pieces]) * need
        return bool((used <= self.group + ROUNDING * nodes.group_capacity).all())

    # --- requests are placed and taken back -----------------------------------------------

    def take(self, request: int, pieces: Pieces) -> None:
        """Place a request of whole GPUs."""
        for node, gpus in pieces:
            self.free[node] -= gpus
            self.on[node].add(request)
        self._charge(request, pieces, 1)
        self.pieces[request] = pieces

    def give_back(self, request: int) -> Pieces:
        """Undo `take`; return the pieces of the request."""
        pieces = self.pieces.pop(request)
        for node, gpus in pieces:
            self.free[node] += gpus
            self.on[node].remove(request)
        self._charge(request, pieces, -1)
        return pieces

    def take_shared(self, request: int, gpus: IntArray) -> None:
        """Place a request on shares of these GPUs, rows (node, index)."""
        node, index = gpus.T
        before = self.room[node, index]
        R = self.problem.requests
        self.room[node, index] = before - R.share[request]
        if self.cut is not None:
            pool, profile = int(R.pool[request]), int(R.profile[request])
            spots = node * self.room.shape[1] + index
            self.cut.add(pool, spots, profile, float(R.share[request]))
        self.free -= np.bincount(node[before >= 1.0], minlength=len(self.free))
        pieces = _pieces_of(gpus)
        self._charge(request, pieces, 1)
        self.pieces[request] = pieces
        self.shared[request] = gpus

    def _charge(self, request: int, pieces: Pieces, sign: int) -> None:
        problem = self.problem
        R = self.problem.requests
        for number in R.apart[request]:
            self._of_set[number][[node for node, _ in pieces]] += sign
        if not problem.needy[request]:
            return
        for node, gpus in pieces:
            amount = sign * gpus
            self.own[node] -= amount * R.need[request]
            self.group -= amount * R.group_need[request] * problem.nodes.member[:, node]


def _pieces_of(gpus: IntArray) -> Pieces:
    nodes, count = np.unique(gpus[:, 0], return_counts=True)
    return list(zip(nodes.tolist(), count.tolist(), strict=True))


def best_fit(problem: Problem, keep: bool, smallest: int | None = None) -> Assignment:
    """Place requests one after the other; a request that is not placed fits nowhere beside the
    others.

    1. With ``keep``, requests whose jobs run on as few nodes as they need stay where they are.
    2. Gangs of whole GPUs in decreasing size: on the node with the fewest GPUs left over, or on as
       many whole nodes as they need, joined by the best links that so few nodes have. Of equal
       gangs those come first that need more CPUs per GPU, then more memory: gangs with small needs
       still fit on what is left of a node. Then the first in the input come first; but if some gang
       has to span nodes, gangs that may span fewer nodes come before all other gangs of their size.
    3. A gang that finds no room, or that spans more nodes than it needs, may push smaller gangs to
       other nodes.
    4. Requests of shares in decreasing share, on the fullest GPUs that have room.

    Parameters
    ----------
    problem : Problem
    keep : bool
    smallest : int, optional
        This many of the smallest requests come before all others.
    """
    if smallest is None and problem.on_one_node.all():
        found = _place_on_one_node(problem)
        if found is not None:
            return found
    R = problem.requests
    state = FreeRoom(problem)
    later = np.zeros(len(problem), bool)
    if smallest is not None:
        by_amount = np.lexsort((R.gpus * R.share, problem.fewest == 0))
        later[by_amount[smallest:]] = True
    if keep:
        for request in _running_largest_first(problem):
            if not later[request]:
                _stay(state, request)
    # Equal requests that `best_nodes` can place together are adjacent.
    batch = np.where(problem.on_one_node, problem.alike.inverse, -1)
    by_size = np.lexsort((batch, *-R.need.T[::-1], R.span, -R.gpus, later))
    _place_whole(state, by_size[R.share[by_size] == 1.0])
    assignment = with_identities(problem, state.pieces, state.shared)
    by_share = np.lexsort((-R.gpus, -R.share, later))
    by_share = by_share[R.share[by_share] < 1.0]
    if not len(by_share):
        return assignment
    # The GPUs of whole-GPU requests are final now: requests that share must not use them.
    for request, gpus in assignment.items():
        if request not in state.shared:
            state.room[gpus[:, 0], gpus[:, 1]] = 0.0
    for request in by_share[problem.fewest[by_share] > 0].tolist():
        if request in state.pieces:
            continue
        pieces = choose(state, request, int(R.span[request]))
        if pieces is not None:
            state.take_shared(request, _fullest_gpus(state, request, pieces))
    fixed = {j: [(node, gpu) for node, gpu in gpus.tolist()] for j, gpus in assignment.items()}
    return with_identities(problem, state.pieces, state.shared, fixed)


def _place_on_one_node(problem: Problem) -> Assignment | None:
    """Place requests of one node each in decreasing size; None if one has to span nodes.

    On one node the spans do not matter: of equal gangs the first in the input come first, and equal
    gangs of different spans are placed together. No repair is possible: a gang is refused where no
    node has enough free, and only smaller gangs come after it.
    """
    R, nodes = problem.requests, problem.nodes
    free, own = nodes.free.copy(), nodes.own.copy()
    node = np.full(len(problem), -1, np.int64)
    kinds = group_rows([R.pool, R.gpus, *R.need.T], len(problem))
    by_kind = np.split(stable_order(kinds.inverse, len(kinds)), kinds.count.cumsum()[:-1])
    need, gpus = R.need[kinds.first], R.gpus[kinds.first]
    for kind in np.lexsort((*-need.T[::-1], -gpus)).tolist():
        alike = by_kind[kind]
        in_pool, size = problem.of_pool(int(alike[0])), int(gpus[kind])
        found = best_nodes(free[in_pool], own[in_pool], size, need[kind], len(alike))
        chosen = in_pool.start + found
        if (R.span[alike[len(chosen) :]] > 1).any():
            return None
        node[alike[: len(chosen)]] = chosen
        taken = size * np.bincount(chosen, minlength=len(nodes))
        free -= taken
        own -= taken[:, np.newaxis] * need[kind]
    placed = np.flatnonzero(node >= 0)
    spots = assign_gpus(nodes.room >= 1.0, placed, node[placed], R.gpus[placed])
    return by_request(spots)


def best_nodes(free: IntArray, own: FloatArray, gpus: int, need: FloatArray, most: int) -> IntArray:
    """The node of each of some equal gangs: the one with the fewest free GPUs that has room.

    The best node for one gang is the best for the next gang too, as long as it has room, because it
    now has fewer free GPUs. So nodes are filled one after the other, and no search is repeated.

    Parameters
    ----------
    free : IntArray, shape (N,)
    own : FloatArray, shape (N, 2)
        Free CPUs and memory.
    gpus : int
        Of each gang.
    need : FloatArray, shape (2,)
        CPUs and memory per GPU.
    most : int
        Number of gangs; the result is shorter where they do not all have room.
    """
    node = (free >= gpus).nonzero()[0]
    if not len(node):
        return node
    room = free[node]
    fullest = room.argsort(kind="stable")
    if need.any():
        room = np.minimum(room, gpus_allowed(own[node], need))
    gangs = room // gpus
    return node[fullest.repeat(gangs[fullest])[:most]]


def _place_whole(state: FreeRoom, order: IntArray) -> None:
    """Place requests of whole GPUs in this order; those that find no room may then push smaller
    requests to other nodes.
    """
    problem = state.problem
    span = problem.requests.span
    kind = problem.alike.inverse.tolist()
    refused = _take_room(
        state, [request for request in order.tolist() if request not in state.pieces]
    )
    refused = [request for request in refused if problem.fewest[request]]
    failed = 0
    hopeless: set[int] = set()  # kinds of requests that failed since the last request was pushed
    for request in refused:
        if failed == FAILURES:
            break
        if kind[request] not in hopeless and place_by_pushing(state, request, int(span[request])):
            hopeless.clear()
        else:
            hopeless.add(kind[request])
            failed += 1
    tighten(state)
    # Requests that moved may have left room.
    _take_room(state, [request for request in refused if request not in state.pieces])


def _take_room(state: FreeRoom, order: list[int]) -> list[int]:
    """Place requests in this order without moving others; return those that found no room."""
    problem = state.problem
    R = problem.requests
    kind = problem.alike.inverse.tolist()
    refused = []
    # Free room only shrinks here: if one request of a kind finds none, no later one does.
    hopeless = set()
    for this, requests in groupby(order, kind.__getitem__):
        alike = list(requests)
        first = alike[0]
        if problem.on_one_node[first]:
            in_pool, gpus = problem.of_pool(first), int(R.gpus[first])
            free, own = state.free[in_pool], state.own[in_pool]
            nodes = in_pool.start + best_nodes(free, own, gpus, R.need[first], len(alike))
            for request, node in zip(alike, nodes.tolist(), strict=False):
                state.take(request, [(node, gpus)])
            alike = alike[len(nodes) :]
        for request in alike:
            pieces = None
            if this not in hopeless:
                pieces = choose(state, request, int(R.span[request]))
            if pieces is not None:
                state.take(request, pieces)
            else:
                hopeless.add(this)
                refused.append(request)
    return refused


# --- nodes for one request --------------------------------------------------------------------


def choose(state: FreeRoom, request: int, span: int) -> Pieces | None:
    """Pieces of a request on at most ``span`` nodes, or None if it finds no room."""
    problem = state.problem
    in_pool = problem.of_pool(request)
    gpus = int(problem.requests.gpus[request])
    available = state.available(request)
    enough = np.flatnonzero(available >= gpus)
    if len(enough):
        # Few GPUs left over here keep whole nodes free for large gangs.
        left = _left_over(state, request, enough)
        best = _best_node(problem, request, enough[left == left.min()])
        return [(in_pool.start + best, gpus)]
    if span == 1:
        return None
    available = _in_one_group(problem, request, available, span)
    # The largest nodes give the smallest number of nodes.
    reach = np.cumsum(np.sort(available)[::-1])
    nodes = int(reach.searchsorted(gpus)) + 1
    if nodes > min(span, len(reach)):
        return None
    joined = _best_joined(problem, in_pool, available, gpus, nodes)
    pieces = _fill(joined, gpus, nodes, in_pool)
    if state.keeps_groups(request, pieces):
        return pieces
    # It fits node by node, but exceeds a resource that several of the nodes share.
    return _by_gain(state, request, available, span)


def _in_one_group(problem: Problem, request: int, available: IntArray, span: int) -> IntArray:
    """``available`` within the group that is best for a request, 0 elsewhere: the group with room
    on the fewest nodes, then with the fewest GPUs available. All zeros where no group has room;
    unchanged where the request may use any nodes.
    """
    group = problem.group_of(request)
    if group is None:
        return available
    gpus = int(problem.requests.gpus[request])
    for nodes in range(1, min(span, len(available)) + 1):
        groups, reach = largest_of_groups(group, available, nodes)
        enough = groups[reach >= gpus]
        if len(enough):
            total = np.bincount(group, available)[enough]
            return np.where(group == enough[np.argmin(total)], available, 0)
    return np.zeros_like(available)


def _left_over(state: FreeRoom, request: int, nodes: IntArray) -> IntArray | FloatArray:
    """GPUs that stay free on each of some nodes that could hold a request.

    For a request that shares GPUs, it is the free share of the fullest GPUs on which it fits.
    """
    in_pool = state.problem.of_pool(request)
    R = state.problem.requests
    gpus = int(R.gpus[request])
    share = R.share[request]
    if share == 1.0:
        return state.free[in_pool][nodes] - gpus
    room = state.room_for(request, in_pool)[nodes]
    fullest = np.sort(np.where(room >= share - ROUNDING, room, np.inf), axis=1)
    return np.asarray(fullest[:, :gpus].sum(axis=1))


def _best_node(problem: Problem, request: int, nodes: IntArray) -> int:
    """Of equally good nodes, the one with the best links inside,
    then with the most GPUs that the request holds, then the first.
    """
    held = problem.held[request]
    in_pool = problem.of_pool(request)
    if len(nodes) > 1 and len(problem.links.bandwidth) > 1:
        inside = (problem.links.label[:, in_pool][:, nodes] >= 0).sum(axis=0)
        nodes = nodes[inside == inside.max()]
    if len(nodes) > 1 and len(held.gpus):
        weight = np.bincount(held.gpus[:, 0], held.weight, len(problem.nodes))
        kept = weight[in_pool][nodes]
        nodes = nodes[kept == kept.max()]
    return int(nodes[0])


def _best_joined(
    problem: Problem, in_pool: slice, available: IntArray, gpus: int, nodes: int
) -> IntArray:
    """``available`` within the group of nodes with the best links in which ``nodes`` nodes have
    ``gpus`` GPUs, 0 elsewhere; unchanged where no group has.
    """
    for label in problem.links.label[:, in_pool]:
        groups, reach = largest_of_groups(label, available, nodes)
        enough = reach >= gpus
        if enough.any():
            # Larger groups are left to larger gangs.
            tightest = groups[enough][np.argmin(reach[enough])]
            return np.where(label == tightest, available, 0)
    return available


def _fill(available: IntArray, gpus: int, nodes: int, in_pool: slice) -> Pieces:
    """The largest nodes whole, and the rest on the node where it leaves the fewest GPUs free."""
    order = np.argsort(-available, kind="stable")[: nodes - 1]
    rest = gpus - int(available[order].sum())
    pieces = [(in_pool.start + int(node), int(available[node])) for node in order]
    others = available.copy()
    others[order] = 0
    enough = np.flatnonzero(others >= rest)
    last = int(enough[np.argmin(others[enough])])
    return [*pieces, (in_pool.start + last, rest)]


def _by_gain(state: FreeRoom, request: int, available: IntArray, span: int) -> Pieces | None:
    """Pieces on at most ``span`` nodes within the resources that several nodes share, chosen
    greedily: each time the node that adds the most GPUs. None where these are too few.

    If no two of these resources have a node in common, the greedy choice is optimal: within one
    resource, each further node adds no more than the one before it.
    """
    problem = state.problem
    need = state.problem.requests.group_need[request]
    in_pool = problem.of_pool(request)
    rest = int(problem.requests.gpus[request])
    groups = np.flatnonzero(need)
    member = problem.nodes.member[groups, in_pool]
    room = np.concatenate(
        [gpus_allowed(state.group[[g], None], need[[g]]) for g in groups.tolist()]
    )
    left = available.copy()
    pieces = []
    for _ in range(span):
        # A node in none of these resources is limited only by the number of missing GPUs.
        by_group = np.where(member, room[:, None], rest).min(axis=0)
        gain = np.minimum(left, by_group)
        node = int(np.argmax(gain))
        piece = min(rest, int(gain[node]))
        if piece <= 0:
            return None
        pieces.append((in_pool.start + node, piece))
        room -= piece * member[:, node]
        left[node] = 0
        rest -= piece
        if not rest:
            return pieces
    return None


def _fullest_gpus(state: FreeRoom, request: int, pieces: Pieces) -> IntArray:
    """GPUs of a request that shares GPUs, rows (node, index): the fullest GPUs with room; of equal
    ones those that it holds.
    """
    problem = state.problem
    share = float(problem.requests.share[request])
    held = {(node, gpu) for node, gpu in problem.held[request].gpus.tolist()}
    spots = []
    for node, count in pieces:
        room = state.room_for(request, node).tolist()
        with_room = [gpu for gpu, left in enumerate(room) if left >= share - ROUNDING]
        with_room.sort(key=lambda gpu: (room[gpu], (node, gpu) not in held))
        spots += [(node, gpu) for gpu in with_room[:count]]
    return np.array(spots, np.int64)


# --- running jobs stay ------------------------------------------------------------------------


def _running_largest_first(problem: Problem) -> list[int]:
    """Requests that hold as many GPUs as they need, the largest first."""
    R = problem.requests
    running = [
        request
        for request, held in enumerate(problem.held)
        if len(held.gpus) >= R.gpus[request] and problem.fewest[request]
    ]
    return sorted(running, key=lambda request: (-R.share[request], -R.gpus[request]))


def _stay(state: FreeRoom, request: int) -> None:
    """Let a request keep GPUs that it holds, if they are still free and on as few nodes as it
    needs.
    """
    problem = state.problem
    R = state.problem.requests
    start = problem.of_pool(request).start
    whole = R.share[request] == 1.0
    most = state.available(request)
    by_node: dict[int, list[int]] = {}
    held = problem.held[request].gpus.tolist() if whole else _held_with_room(state, request)
    for node, gpu in held:
        by_node.setdefault(node, []).append(gpu)
    # The CPUs or memory of a node may be in use by other requests now.
    count = {node: min(len(gpus), int(most[node - start])) for node, gpus in by_node.items()}
    largest = sorted(count, key=lambda node: (-count[node], node))
    nodes = [(node, count[node]) for node in largest[: problem.fewest[request]]]
    pieces, missing = _taken_in_turn(nodes, int(R.gpus[request]))
    group = problem.group_of(request)
    several_groups = group is not None and len({int(group[n - start]) for n, _ in pieces}) > 1
    if missing or several_groups or not state.keeps_groups(request, pieces):
        return
    if whole:
        state.take(request, pieces)
    else:
        kept = [(node, gpu) for node, piece in pieces for gpu in by_node[node][:piece]]
        state.take_shared(request, np.array(kept, np.int64))


def _held_with_room(state: FreeRoom, request: int) -> list[tuple[int, int]]:
    """GPUs with room among those that a sharing request holds; GPUs in use come first.

    Of the unused GPUs of a node only as many count as requests of whole GPUs leave free.
    """
    share = float(state.problem.requests.share[request])
    used = []
    unused: dict[int, list[tuple[int, int]]] = {}
    for node, gpu in state.problem.held[request].gpus.tolist():
        room = float(state.room_for(request, node)[gpu])
        if room >= 1.0:
            unused.setdefault(node, []).append((node, gpu))
        elif room >= share - ROUNDING:
            used.append((node, gpu))
    for node, spots in unused.items():
        used += spots[: int(state.free[node])]
    return used


def _taken_in_turn(nodes: Pieces, gpus: int) -> tuple[Pieces, int]:
    """Pieces of the nodes in turn until there are enough GPUs, and the number of missing GPUs."""
    pieces = []
    for node, most in nodes:
        piece = min(gpus, most)
        gpus -= piece
        if piece > 0:
            pieces.append((node, piece))
    return pieces, gpus


# --- repair -----------------------------------------------------------------------------------


def place_by_pushing(state: FreeRoom, request: int, span: int) -> bool:
    """Place a request of whole GPUs by moving smaller requests to other nodes; they span no more
    nodes than before.

    Returns whether it is placed; if not, nothing has changed.
    """
    problem = state.problem
    gpus = int(problem.requests.gpus[request])
    nodes = int(problem.fewest[request])
    free = state.free[problem.of_pool(request)]
    if nodes > span or free.sum() < gpus:
        return False
    most = problem.at_most(request)
    group = problem.group_of(request)
    if group is None:
        return _push_smaller(state, request, free, most, nodes)
    # In groups with many free GPUs few requests have to be pushed. A group may need more nodes than
    # the request needs in the whole pool.
    total = np.bincount(group, np.minimum(free, most))
    for number in np.argsort(-total, kind="stable")[:TRIES].tolist():
        inside = np.where(group == number, most, 0)
        if total[number] < gpus:
            break
        reach = np.cumsum(np.sort(inside)[::-1])
        fewest = int(reach.searchsorted(gpus)) + 1
        if fewest <= span and _push_smaller(state, request, free, inside, max(nodes, fewest)):
            return True
    return False


def _push_smaller(
    state: FreeRoom, request: int, free: IntArray, most: IntArray, nodes: int
) -> bool:
    """Place a request on ``nodes`` nodes, each of which can give it at most ``most`` GPUs, by
    pushing smaller requests away.
    """
    problem = state.problem
    start = problem.of_pool(request).start
    gpus = int(problem.requests.gpus[request])
    # On nodes with many free GPUs few requests have to be pushed.
    candidates = np.argsort(-np.minimum(free, most), kind="stable")[: CANDIDATES + nodes]
    pushable = [
        sum(_smaller_on(state, request, node).values()) for node in (candidates + start).tolist()
    ]
    possible = np.minimum(free[candidates] + np.array(pushable, np.int64), most[candidates])
    best = np.argsort(-np.minimum(possible, gpus), kind="stable")
    best = best[possible[best] > 0]
    candidates = candidates[best] + start
    possible = possible[best]
    for first in range(min(TRIES, len(candidates) - nodes + 1)):
        window = slice(first, first + nodes)
        if possible[window].sum() >= gpus and _push_and_place(state, request, candidates[window]):
            return True
    return False


def _smaller_on(state: FreeRoom, request: int, node: int) -> dict[int, int]:
    """Requests on a node that this one may push away, those of fewer GPUs, with their GPUs
    there.
    """
    gpus = state.problem.requests.gpus
    return {
        other: dict(state.pieces[other])[node]
        for other in sorted(state.on.get(node, ()))
        if gpus[other] < gpus[request]
    }


def _push_and_place(state: FreeRoom, request: int, window: IntArray) -> bool:
    """Take requests off some nodes until this one fits there, and place them on other nodes;
    where one finds no room, undo everything.
    """
    problem = state.problem
    R = state.problem.requests
    pushed: dict[int, Pieces] = {}
    placed: list[int] = []

    def undo() -> bool:
        for other in placed:
            state.give_back(other)
        if request in state.pieces:
            state.give_back(request)
        for other, pieces in pushed.items():
            state.take(other, pieces)
        return False

    start = problem.of_pool(request).start
    gpus = int(R.gpus[request])
    while True:
        available = state.available(request)[window - start]
        missing = gpus - int(available.sum())
        if missing <= 0:
            break
        pushable: dict[int, int] = {}
        for node in window.tolist():
            pushable |= _smaller_on(state, request, node)
        # Each pushed request needs a search for other nodes, and may have to be put back.
        if not pushable or len(pushed) == PUSHED:
            return undo()
        other = _next_pushed(pushable, missing)
        pushed[other] = state.give_back(other)
    order = np.argsort(-available, kind="stable")
    nodes = zip(window[order].tolist(), available[order].tolist(), strict=True)
    pieces, _ = _taken_in_turn(list(nodes), gpus)
    if not state.keeps_groups(request, pieces):
        return undo()
    state.take(request, pieces)
    for other in sorted(pushed, key=lambda other: (-R.gpus[other], other)):
        # On no more nodes than before, so that it loses no bandwidth.
        elsewhere = choose(state, other, len(pushed[other]))
        if elsewhere is None:
            return undo()
        state.take(other, elsewhere)
        placed.append(other)
    return True


def _next_pushed(pieces: dict[int, int], missing: int) -> int:
    """The request with the smallest piece that is enough, else with the largest piece."""
    enough = [other for other, piece in pieces.items() if piece >= missing]
    if enough:
        return min(enough, key=lambda other: (pieces[other], other))
    return max(pieces, key=lambda other: (pieces[other], -other))


def tighten(state: FreeRoom) -> None:
    """Try to place requests that span more nodes than they need on the fewest nodes."""
    problem = state.problem
    loose = [
        request
        for request, pieces in state.pieces.items()
        if len(pieces) > problem.fewest[request] and request not in state.shared
    ]
    loose.sort(key=lambda request: (-problem.requests.gpus[request], request))
    for request in loose[:TIGHTENED]:
        fewest = int(problem.fewest[request])
        before = state.give_back(request)
        pieces = choose(state, request, fewest)
        if pieces is not None:
            state.take(request, pieces)
        elif not place_by_pushing(state, request, fewest):
            state.take(request, before)


# --- why a request was refused ----------------------------------------------------------------


class NotPlaced(NamedTuple):
    """A request that was not placed: its number, the reason, and whether its pool has enough free
    GPUs, but not where the request needs them.
    """

    request: int
    words: str
    scattered: bool


def why_refused(problem: Problem, assignment: Assignment) -> Iterator[NotPlaced]:
    """Requests that were not placed, each with the reason."""
    if len(assignment) == len(problem):
        return
    # The reasons describe the GPUs that are free beside all placed requests.
    state = FreeRoom(problem.beside(assignment))
    R = problem.requests
    kind = problem.alike.inverse.tolist()
    # Thousands of refused requests may be of a few kinds: each text is made once.
    known: dict[tuple[int, bytes], tuple[str, bool]] = {}
    left = [request for request in range(len(problem)) if request not in assignment]
    for request, name in zip(left, R.named(left), strict=True):
        key = (kind[request], R.barred[request].tobytes())
        if key not in known:
            known[key] = _why(state, request), _scattered(state, request)
        words, scattered = known[key]
        yield NotPlaced(request, name + words, scattered)


def _scattered(state: FreeRoom, request: int) -> bool:
    """Whether the pool of a request has as many free GPUs as it asks for, on any nodes."""
    R = state.problem.requests
    free = int(state.gpus_with_room(request).sum())
    return bool(not R.clashing[request] and free >= R.gpus[request])


def _why(state: FreeRoom, request: int) -> str:
    """The reason, as the text after the names of the jobs."""
    problem = state.problem
    if problem.requests.clashing[request]:
        return " share GPUs, but may not be on one node (anti-affinity)"
    free = _free(problem, problem.of_pool(request), state.available(request))
    return f": needs {_needs(problem, request)}; {free}{_without_layout(state, request)}"


def _without_layout(state: FreeRoom, request: int) -> str:
    """Why no layout fits on the first shared GPU whose free share would be large enough."""
    R, nodes = state.problem.requests, state.problem.nodes
    in_pool, share = state.problem.of_pool(request), float(R.share[request])
    room, pool = state.room[in_pool], int(R.pool[request])
    if state.cut is None or share == 1.0 or pool not in state.cut.codes:
        return ""
    has_room = (room >= share - ROUNDING) & (room < 1.0)
    spots = np.argwhere(has_room & (state.room_for(request, in_pool) < share - ROUNDING))
    if not len(spots):
        return ""
    node, index = spots[0].tolist()
    code, profile = int(state.cut.code[in_pool][node, index]), int(R.profile[request])
    gpu = f"{nodes.name(in_pool.start + node)}/{index}"
    if code < 0 or profile == NO_SLICE:
        return f"; {gpu} cannot have slices and other shares"
    together = [*state.cut.codes[pool].slices(code), profile]
    reason = R.slices.layouts[pool].why_not([(part, None) for part in together])
    return f"; {gpu} has no layout for it: {reason}"


def _needs(problem: Problem, request: int) -> str:
    R = problem.requests
    instance = problem.nodes.instance
    gpus = int(R.gpus[request])
    span = int(R.span[request])
    share = float(R.share[request])
    pool = instance.cluster.pools[int(R.pool[request])].name
    text = f"{gpus} GPU{'s' if gpus != 1 else ''} of {pool}"
    text = text if share == 1.0 else f"{share:g} of {'each of ' if gpus > 1 else ''}{text}"
    if R.profile[request] != NO_SLICE:
        layouts = R.slices.layouts[int(R.pool[request])]
        text += f" as slice {layouts.names[int(R.profile[request])]}"
    if gpus > 1:
        text += f" on at most {span} node{'s' if span != 1 else ''}"
    if problem.group_of(request) is not None:
        text += f" of one {instance.cluster.level_names[int(R.level[request]) - 1]}"
    amounts = [*zip(OWN, R.need[request].tolist(), strict=True)]
    amounts += [
        (g.name, a)
        for g, a in zip(problem.nodes.groups, R.group_need[request].tolist(), strict=True)
    ]
    each = [f"{amount:.4g} {name}" for name, amount in amounts if amount > 0]
    text += f" with {' and '.join(each)} per GPU" if each else ""
    barred = [
        instance.cluster.numbering.node_name(node)
        for node in R.barred[request][: MOST_NAMED + 1].tolist()
    ]
    if barred:
        text += (
            ", not on "
            f"{', '.join(barred[:MOST_NAMED])}{' and more' if len(barred) > MOST_NAMED else ''}"
        )
    return text + (" apart from jobs that it may not share a node with" if R.apart[request] else "")


def _free(problem: Problem, in_pool: slice, available: IntArray) -> str:
    """``3 GPUs are free for it: 2 on v100-0, 1 on v100-1``."""
    total = int(available.sum())
    if not total:
        return "no GPU is free for it"
    largest = np.argsort(-available, kind="stable")
    largest = largest[available[largest] > 0]
    text = [
        f"{available[n]} on {problem.nodes.name(in_pool.start + n)}"
        for n in largest[:MOST_NAMED].tolist()
    ]
    rest = len(largest) - len(text)
    more = f" and less or as much on {rest} more node{'s' if rest != 1 else ''}" if rest else ""
    return f"{total} GPU{'s are' if total != 1 else ' is'} free for it: {', '.join(text)}{more}"
