"""Best fit: gangs in decreasing size, each on as few nodes as possible,
where the fewest GPUs are left over.

The result breaks no rule of the problem, but it may place fewer requests or span more nodes than
the optimum. The bounds (`optsched.placement.bounds`) say by how much at most.

`FreeRoom` is what is free, for whole placements and for rows that start in a round. `choose` finds nodes for
one request. `place_by_pushing` and `tighten` repair the result: smaller requests move to other nodes, so
that a gang finds room or spans fewer nodes. `why_refused` explains what found no room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray, group_rows, stable_order
from optsched.candidates import NO_SLICE
from optsched.placement.problem import (
    Assignment,
    Pieces,
    Problem,
    assign_gpus,
    by_request,
    largest_of_groups,
    limit,
    with_identities,
)
from optsched.placement.requests import OWN
from optsched.placement.shares import ROUNDING

FAILURES = 100
"""Requests that may find no room even by pushing others,
before the rest is refused without a try.
"""
TRIES = 16
"""Sets of nodes on which room is made for one request, at most."""
CANDIDATES = 64
"""Nodes that are looked at for that, those with the most free GPUs."""
PUSHED = 12
"""Requests that one may push elsewhere, at most."""
MOST_NAMED = 4
"""Nodes whose free GPUs a reason names."""
TIGHTENED = 200
"""Requests that span more nodes than they need and are tried again, at most."""


class FreeRoom:
    """Free GPUs, CPUs and memory of the nodes; at first what occupied GPUs leave.

    Requests of whole GPUs are counted by node; which GPUs they get is decided at the end. Requests
    that share GPUs get them at once.

    Attributes
    ----------
    free : IntArray, shape (N,)
        GPUs that nobody has.
    room : FloatArray, shape (N, most GPUs of a node)
        What is left of each GPU by requests that share; 1 for an untouched one, 0 beyond the node's
        GPUs.
    cut : CutGpus or None
        How GPUs are cut into slices (MIG).
    own : FloatArray, shape (N, 2)
        Free CPUs and memory.
    group : FloatArray, shape (G,)
        What is left of the resources of some nodes.
    pieces : dict
        Where requests are placed.
    shared : dict
        GPUs of requests that share.
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
        # How many jobs of each anti-affinity set are on each node.
        sets = {number for numbers in problem.requests.apart for number in numbers}
        self._of_set = {number: np.zeros(len(nodes), np.int64) for number in sets}

    @classmethod
    def after(cls, problem: Problem, assignment: Assignment) -> FreeRoom:
        """What is left beside an assignment; which requests have it is not kept."""
        state = cls(problem)
        R = problem.requests
        placed = np.array(list(assignment), np.int64)
        whole = placed[R.share[placed] == 1.0]
        parts = [assignment[request][:, 0] for request in whole.tolist()]
        state._charge_all(np.repeat(whole, R.gpus[whole]), np.concatenate([EMPTY, *parts]))
        # Requests of whole GPUs are counted by node, so those that share can still see which GPUs
        # are untouched.
        for request in placed[R.share[placed] < 1.0].tolist():
            state.take_shared(request, assignment[request])
        return state

    def _charge_all(self, request: IntArray, node: IntArray) -> None:
        """Requests of whole GPUs have one more GPU each of these nodes."""
        problem = self.problem
        R = problem.requests
        nodes = len(problem.nodes)
        self.free -= np.bincount(node, minlength=nodes)
        for place in np.flatnonzero(R.need.any(axis=0)).tolist():
            self.own[:, place] -= np.bincount(node, R.need[request, place], nodes)
        use = R.group_need[request] * problem.nodes.member[:, node].T
        self.group -= use.sum(axis=0)
        for number, on_nodes in self._of_set.items():
            mine = np.array([number in R.apart[one] for one in request.tolist()], bool)
            on_nodes[np.unique(node[mine])] = 1

    # --- what a request could have --------------------------------------------------------

    def best_nodes(self, request: int, most: int) -> IntArray:
        """Nodes for so many requests alike (`Problem.on_one_node`), as far as there is room."""
        R = self.problem.requests
        here = self.problem.of_pool(request)
        gpus = int(R.gpus[request])
        found = best_nodes(self.free[here], self.own[here], gpus, R.need[request], most)
        return np.asarray(here.start + found, np.int64)

    def gpus_with_room(self, request: int) -> IntArray:
        """GPUs of each node of its pool with room for a request,
        whatever else it needs of the node.
        """
        here = self.problem.of_pool(request)
        share = self.problem.requests.share[request]
        if share == 1.0:
            return self.free[here]
        room = self.room_for(request, here)
        enough = (room >= share - ROUNDING).sum(axis=1)
        # Requests of whole GPUs are only counted: these GPUs look untouched.
        whole = (room >= 1.0).sum(axis=1) - self.free[here]
        return np.asarray(enough - whole)

    def room_for(self, request: int, nodes: slice | int | IntArray) -> FloatArray:
        """What is left of the GPUs of some nodes for a request that shares."""
        return self.problem.room_on(request, nodes, self.room, self.cut)

    def available(self, request: int) -> IntArray:
        """GPUs that each node of its pool can give a request:
        whole ones, or those with room for its share.
        """
        gpus = self.gpus_with_room(request)
        gpus = self.problem.within_needs(request, gpus, self.own, self.group)
        here = self.problem.of_pool(request)
        for number in self.problem.requests.apart[request]:
            gpus = np.where(self._of_set[number][here] > 0, 0, gpus)
        return gpus

    def keeps_groups(self, request: int, pieces: Pieces) -> bool:
        """Whether pieces that fit node by node also keep the resources that several
        of their nodes belong to.
        """
        need = self.problem.requests.group_need[request]
        if not need.any():
            return True
        nodes = self.problem.nodes
        member = nodes.member[:, [node for node, _ in pieces]]
        used = member @ np.array([gpus for _, gpus in pieces]) * need
        return bool((used <= self.group + ROUNDING * nodes.group_capacity).all())

    # --- what requests take and give back -------------------------------------------------

    def take(self, request: int, pieces: Pieces) -> None:
        """Place a request of whole GPUs."""
        for node, gpus in pieces:
            self.free[node] -= gpus
            self.on[node].add(request)
        self._charge(request, pieces, 1)
        self.pieces[request] = pieces

    def give_back(self, request: int) -> Pieces:
        """Undo `take`; returns the pieces that the request had."""
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
    """Place requests one after the other;
    with ``smallest`` so many of the smallest before all others.

    Of gangs of equal size and span those come first that need more CPUs per GPU, then more memory,
    then the order of the input: what needs little fits into what is left of a node. What is not placed
    in the end fits nowhere beside what is.

    1. With ``keep``, requests whose jobs run on as few nodes as they need stay where they are.
    2. Gangs of whole GPUs in decreasing size: on the node with the least left over, or on as many
       whole nodes as they need, joined by the best links that so few nodes have.
    3. A gang that finds no room, or that spans more nodes than it needs, may push smaller ones
       elsewhere.
    4. Requests of shares in decreasing share, on the fullest GPUs that have room.
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
    by_size = np.lexsort((_batches(problem), *_smaller_needs(R.need), R.span, -R.gpus, later))
    _place_whole(state, by_size[R.share[by_size] == 1.0])
    assignment = with_identities(problem, state.pieces, state.shared)
    by_share = np.lexsort((-R.gpus, -R.share, later))
    by_share = by_share[R.share[by_share] < 1.0]
    if not len(by_share):
        return assignment
    # From here on requests of whole GPUs have theirs for good: requests that share see which are
    # left.
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


def _smaller_needs(need: FloatArray) -> FloatArray:
    """Sort keys by which those of equal gangs come first that need more CPUs, then more memory."""
    return -need.T[::-1]


def _batches(problem: Problem) -> IntArray:
    """Equal numbers for requests that are placed together, as `best_nodes` can; shape (P,)."""
    return np.where(problem.on_one_node, problem.alike.inverse, -1)


def _place_on_one_node(problem: Problem) -> Assignment | None:
    """Requests of one node in decreasing size; None if one would have to span several.

    Nothing is repaired: where a gang is refused no node has what it needs, and only smaller ones
    come after it, so that none of these could make room for it.
    """
    nodes = problem.nodes
    R = problem.requests
    free = nodes.free.copy()
    own = nodes.own.copy()
    on_node = np.full(len(problem), -1, np.int64)
    needed = R.need.any(axis=0)
    kinds = group_rows([R.pool, R.gpus, *R.need.T[needed]], len(problem))
    requests_of = stable_order(kinds.inverse, len(kinds))
    last = np.cumsum(kinds.count)
    # Larger gangs first. Pools have no node in common, so their order does not matter.
    need, size = R.need[kinds.first], R.gpus[kinds.first]
    for kind in np.lexsort((*_smaller_needs(need), -size)).tolist():
        alike = requests_of[last[kind] - kinds.count[kind] : last[kind]]
        gpus = int(size[kind])
        here = nodes.of_pool(int(R.pool[alike[0]]))
        chosen = here.start + best_nodes(free[here], own[here], gpus, need[kind], len(alike))
        # Spans do not matter on one node.
        if len(chosen) < len(alike) and (R.span[alike[len(chosen) :]] > 1).any():
            return None
        on_node[alike[: len(chosen)]] = chosen
        taken = gpus * np.bincount(chosen, minlength=len(nodes))
        free -= taken
        if needed.any():
            own -= taken[:, None] * need[kind]
    placed = np.flatnonzero(on_node >= 0)
    untouched = nodes.room >= 1.0
    return by_request(assign_gpus(untouched, placed, on_node[placed], R.gpus[placed]))


def best_nodes(free: IntArray, own: FloatArray, gpus: int, need: FloatArray, most: int) -> IntArray:
    """Nodes for equal gangs in turn,
    each the one with the fewest free GPUs that has room, at most so many.

    A node that was the best for one gang is the best for the next one too, as long as it has room:
    it has fewer free GPUs than before. So the nodes are filled one after the other.

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
    """
    some = (free >= gpus).nonzero()[0]
    if not len(some):
        return some
    room = free[some]
    fullest = room.argsort(kind="stable")
    if need.any():
        room = np.minimum(room, limit(own[some], need))
    gangs = room // gpus
    return some[fullest.repeat(gangs[fullest])[:most]]


def _place_whole(state: FreeRoom, order: IntArray) -> None:
    """Requests of whole GPUs in this order, then those that found no room,
    by pushing smaller ones elsewhere.
    """
    problem = state.problem
    span = problem.requests.span
    kind = problem.alike.inverse.tolist()
    refused = _take_room(
        state, [request for request in order.tolist() if request not in state.pieces]
    )
    refused = [request for request in refused if problem.fewest[request]]
    failed = 0
    hopeless: set[int] = set()  # kinds of which one has failed since a request was pushed
    for request in refused:
        if failed == FAILURES:
            break
        if kind[request] not in hopeless and place_by_pushing(state, request, int(span[request])):
            hopeless.clear()
        else:
            hopeless.add(kind[request])
            failed += 1
    # Only now: what is left over is known when all are placed.
    tighten(state)
    # Requests that were pushed or tightened may have left room.
    _take_room(state, [request for request in refused if request not in state.pieces])


def _take_room(state: FreeRoom, order: list[int]) -> list[int]:
    """Place requests in this order where they find room, and nothing else; those that found none."""
    problem = state.problem
    R = problem.requests
    kind = problem.alike.inverse.tolist()
    refused = []
    # Room only shrinks here: where one found none, no other one of its kind does.
    hopeless = set()
    for this, requests in groupby(order, kind.__getitem__):
        alike = list(requests)
        gpus = int(R.gpus[alike[0]])
        if problem.on_one_node[alike[0]]:
            nodes = state.best_nodes(alike[0], len(alike)).tolist()
            for request, node in zip(alike, nodes, strict=False):
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
    here = problem.of_pool(request)
    gpus = int(problem.requests.gpus[request])
    available = state.available(request)
    enough = np.flatnonzero(available >= gpus)
    if len(enough):
        # Least left over, so that large gangs still find whole nodes later.
        left = _left_over(state, request, enough)
        best = _best_node(problem, request, enough[left == left.min()])
        return [(here.start + best, gpus)]
    if span == 1:
        return None
    available = _in_one_group(problem, request, available, span)
    # The fewest nodes: the largest together reach furthest.
    reach = np.cumsum(np.sort(available)[::-1])
    nodes = int(np.searchsorted(reach, gpus)) + 1
    if nodes > min(span, len(reach)):
        return None
    joined = _best_joined(problem, here, available, gpus, nodes)
    pieces = _fill(joined, gpus, nodes, here)
    if state.keeps_groups(request, pieces):
        return pieces
    # Node by node it fits, but not within a resource that several of the nodes share.
    return _by_gain(state, request, available, span)


def _in_one_group(problem: Problem, request: int, available: IntArray, span: int) -> IntArray:
    """What is available in the group that a request gets: on the fewest nodes, then with the least
    left over. Nothing where no group has room; everything where it may have any nodes.
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
    """How much is left over on each of some nodes that could take a whole request.

    Of whole GPUs that is their number; for a request that shares it is the room on the fullest GPUs
    that it fits on.
    """
    here = state.problem.of_pool(request)
    R = state.problem.requests
    gpus = int(R.gpus[request])
    share = R.share[request]
    if share == 1.0:
        return state.free[here][nodes] - gpus
    room = state.room_for(request, here)[nodes]
    fullest = np.sort(np.where(room >= share - ROUNDING, room, np.inf), axis=1)
    return np.asarray(fullest[:, :gpus].sum(axis=1))


def _best_node(problem: Problem, request: int, nodes: IntArray) -> int:
    """Among nodes that are equally good:
    the best links inside, then the most GPUs held, then the first.
    """
    held = problem.held[request]
    here = problem.of_pool(request)
    if len(nodes) > 1 and len(problem.links.bandwidth) > 1:
        inside = (problem.links.label[:, here][:, nodes] >= 0).sum(axis=0)
        nodes = nodes[inside == inside.max()]
    if len(nodes) > 1 and len(held.gpus):
        weight = np.bincount(held.gpus[:, 0], held.weight, len(problem.nodes))
        mine = weight[here][nodes]
        nodes = nodes[mine == mine.max()]
    return int(nodes[0])


def _best_joined(
    problem: Problem, here: slice, available: IntArray, gpus: int, nodes: int
) -> IntArray:
    """What is available on the nodes joined by the best links among which so few have
    so many GPUs; else everywhere.
    """
    for label in problem.links.label[:, here]:
        groups, reach = largest_of_groups(label, available, nodes)
        enough = reach >= gpus
        if enough.any():
            # The smallest group that is enough leaves the larger ones to larger gangs.
            tightest = groups[enough][np.argmin(reach[enough])]
            return np.where(label == tightest, available, 0)
    return available


def _fill(available: IntArray, gpus: int, nodes: int, here: slice) -> Pieces:
    """The largest nodes whole, and the rest on the node where it leaves least."""
    order = np.argsort(-available, kind="stable")[: nodes - 1]
    rest = gpus - int(available[order].sum())
    pieces = [(here.start + int(node), int(available[node])) for node in order]
    others = available.copy()
    others[order] = 0
    enough = np.flatnonzero(others >= rest)
    last = int(enough[np.argmin(others[enough])])
    return [*pieces, (here.start + last, rest)]


def _by_gain(state: FreeRoom, request: int, available: IntArray, span: int) -> Pieces | None:
    """GPUs on at most ``span`` nodes,
    each time the node that adds most within the resources of some nodes; or None.

    Where no two of these resources have a node in common this finds a place if there is one: what
    the nodes of one of them add, the largest first, grows ever less, so that the greatest gains are
    the best choice.
    """
    problem = state.problem
    need = state.problem.requests.group_need[request]
    here = problem.of_pool(request)
    rest = int(problem.requests.gpus[request])
    groups = np.flatnonzero(need)
    member = problem.nodes.member[groups, here]
    room = np.concatenate([limit(state.group[[g], None], need[[g]]) for g in groups.tolist()])
    left = available.copy()
    pieces = []
    for _ in range(span):
        # A node is limited by those resources that it belongs to, else by what is missing.
        by_group = np.where(member, room[:, None], rest).min(axis=0)
        gain = np.minimum(left, by_group)
        node = int(np.argmax(gain))
        piece = min(rest, int(gain[node]))
        if piece <= 0:
            return None
        pieces.append((here.start + node, piece))
        room -= piece * member[:, node]
        left[node] = 0
        rest -= piece
        if not rest:
            return pieces
    return None


def _fullest_gpus(state: FreeRoom, request: int, pieces: Pieces) -> IntArray:
    """GPUs of a request that shares, rows (node, index):
    the fullest with room, of equal ones those that it holds.
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
    """Requests that hold as many GPUs as they need."""
    R = problem.requests
    running = [
        request
        for request, held in enumerate(problem.held)
        if len(held.gpus) >= R.gpus[request] and problem.fewest[request]
    ]
    return sorted(running, key=lambda request: (-R.share[request], -R.gpus[request]))


def _stay(state: FreeRoom, request: int) -> None:
    """Let a request stay on GPUs that it holds,
    if these are on as few nodes as it needs and still free.
    """
    problem = state.problem
    R = state.problem.requests
    here = problem.of_pool(request)
    whole = R.share[request] == 1.0
    most = state.available(request)
    by_node: dict[int, list[int]] = {}
    held = problem.held[request].gpus.tolist() if whole else _held_with_room(state, request)
    for node, gpu in held:
        by_node.setdefault(node, []).append(gpu)
    # No more than the node can give: its CPUs or memory may have gone to others since.
    count = {node: min(len(gpus), int(most[node - here.start])) for node, gpus in by_node.items()}
    largest = sorted(count, key=lambda node: (-count[node], node))
    pieces, rest = _poured(
        [(node, count[node]) for node in largest[: problem.fewest[request]]],
        int(R.gpus[request]),
    )
    group = problem.group_of(request)
    apart = group is not None and len({int(group[n - here.start]) for n, _ in pieces}) > 1
    if rest or apart or not state.keeps_groups(request, pieces):
        return
    if whole:
        state.take(request, pieces)
    else:
        kept = [(node, gpu) for node, piece in pieces for gpu in by_node[node][:piece]]
        state.take_shared(request, np.array(kept, np.int64))


def _held_with_room(state: FreeRoom, request: int) -> list[tuple[int, int]]:
    """GPUs that a request which shares holds and that have room for it: those in use first.

    Of the untouched GPUs of a node only as many count as requests of whole GPUs leave free.
    """
    share = float(state.problem.requests.share[request])
    used = []
    untouched: dict[int, list[tuple[int, int]]] = {}
    for node, gpu in state.problem.held[request].gpus.tolist():
        room = float(state.room_for(request, node)[gpu])
        if room >= 1.0:
            untouched.setdefault(node, []).append((node, gpu))
        elif room >= share - ROUNDING:
            used.append((node, gpu))
    for node, spots in untouched.items():
        used += spots[: int(state.free[node])]
    return used


def _poured(nodes: Pieces, gpus: int) -> tuple[Pieces, int]:
    """GPUs of nodes in turn until there are enough; and how many are missing."""
    pieces = []
    for node, most in nodes:
        piece = min(gpus, most)
        gpus -= piece
        if piece > 0:
            pieces.append((node, piece))
    return pieces, gpus


# --- repair -----------------------------------------------------------------------------------


def place_by_pushing(state: FreeRoom, request: int, span: int) -> bool:
    """Place a request of whole GPUs by pushing smaller ones elsewhere;
    no node more is spanned by those.

    Returns whether it is placed; if it isn't, nothing has changed.
    """
    problem = state.problem
    here = problem.of_pool(request)
    gpus = int(problem.requests.gpus[request])
    nodes = int(problem.fewest[request])
    free = state.free[here]
    if nodes > span or free.sum() < gpus:
        return False
    most = problem.at_most(request)
    group = problem.group_of(request)
    if group is None:
        return _make_room(state, request, free, most, nodes)
    # The groups with most free GPUs first: fewest requests are pushed there. On more nodes than it
    # needs alone where no group has so few.
    total = np.bincount(group, np.minimum(free, most))
    for one in np.argsort(-total, kind="stable")[:TRIES].tolist():
        inside = np.where(group == one, most, 0)
        if total[one] < gpus:
            break
        reach = np.cumsum(np.sort(inside)[::-1])
        fewest = int(np.searchsorted(reach, gpus)) + 1
        if fewest <= span and _make_room(state, request, free, inside, max(nodes, fewest)):
            return True
    return False


def _make_room(state: FreeRoom, request: int, free: IntArray, most: IntArray, nodes: int) -> bool:
    """Place a request on so many nodes, which can give it at most so many GPUs each, by pushing."""
    problem = state.problem
    here = problem.of_pool(request)
    gpus = int(problem.requests.gpus[request])
    # Nodes with the most free GPUs need the fewest requests pushed away.
    looked = np.argsort(-np.minimum(free, most), kind="stable")[: CANDIDATES + nodes]
    pushable = [
        sum(_piece(state, smaller, node) for smaller in _smaller_on(state, request, node))
        for node in (looked + here.start).tolist()
    ]
    possible = np.minimum(free[looked] + np.array(pushable, np.int64), most[looked])
    best = np.argsort(-np.minimum(possible, gpus), kind="stable")
    best = best[possible[best] > 0]
    looked = looked[best] + here.start
    possible = possible[best]
    for first in range(min(TRIES, len(looked) - nodes + 1)):
        window = slice(first, first + nodes)
        if possible[window].sum() >= gpus and _push_and_place(state, request, looked[window]):
            return True
    return False


def _piece(state: FreeRoom, request: int, node: int) -> int:
    return next(gpus for at, gpus in state.pieces[request] if at == node)


def _smaller_on(state: FreeRoom, request: int, node: int) -> list[int]:
    """Requests on a node that this one may push away: those of fewer GPUs."""
    others = state.on.get(node)
    if not others:
        return []
    gpus = state.problem.requests.gpus
    return [other for other in sorted(others) if gpus[other] < gpus[request]]


def _push_and_place(state: FreeRoom, request: int, window: IntArray) -> bool:
    """Push requests off some nodes until this one fits there,
    and place those elsewhere; or undo everything.
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

    here = problem.of_pool(request)
    gpus = int(R.gpus[request])
    while True:
        available = state.available(request)[window - here.start]
        missing = gpus - int(available.sum())
        if missing <= 0:
            break
        pushable = {
            other: _piece(state, other, node)
            for node in window.tolist()
            for other in _smaller_on(state, request, node)
        }
        # Each push costs a search for another place, and may have to be undone.
        if not pushable or len(pushed) == PUSHED:
            return undo()
        other = _one_to_push(pushable, missing)
        pushed[other] = state.give_back(other)
    order = np.argsort(-available, kind="stable")
    nodes = zip(window[order].tolist(), available[order].tolist(), strict=True)
    pieces, _ = _poured(list(nodes), gpus)
    if not state.keeps_groups(request, pieces):
        return undo()
    state.take(request, pieces)
    for other in sorted(pushed, key=lambda other: (-R.gpus[other], other)):
        # On no more nodes than before: room for one must not cost the others bandwidth.
        elsewhere = choose(state, other, len(pushed[other]))
        if elsewhere is None:
            return undo()
        state.take(other, elsewhere)
        placed.append(other)
    return True


def _one_to_push(pieces: dict[int, int], missing: int) -> int:
    """The smallest piece that is enough, else the largest one."""
    enough = [other for other, piece in pieces.items() if piece >= missing]
    if enough:
        return min(enough, key=lambda other: (pieces[other], other))
    return max(pieces, key=lambda other: (pieces[other], -other))


def tighten(state: FreeRoom) -> None:
    """Give requests that span more nodes than they need another try with the fewest."""
    problem = state.problem
    loose = [
        request
        for request, pieces in state.pieces.items()
        if len(pieces) > problem.fewest[request] and request not in state.shared
    ]
    # Large requests first, as everywhere: small ones fit into what they leave.
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


class Refused(NamedTuple):
    """A request without a place:
    its number, why, and whether its pool has as many free GPUs as it asks for.
    """

    request: int
    words: str
    scattered: bool


def why_refused(problem: Problem, assignment: Assignment) -> Iterator[Refused]:
    """Requests without a place, each with the reason."""
    if len(assignment) == len(problem):
        return
    # What is free now, beside all that was placed: the words speak of that.
    state = FreeRoom.after(problem, assignment)
    R = problem.requests
    kind = problem.alike.inverse.tolist()
    # Thousands of refused requests may be of a few kinds: the words are made once for each.
    known: dict[tuple[int, bytes], tuple[str, bool]] = {}
    left = [request for request in range(len(problem)) if request not in assignment]
    for request, name in zip(left, R.named(left), strict=True):
        key = (kind[request], R.barred[request].tobytes())
        if key not in known:
            known[key] = _why(state, request), _scattered(state, request)
        words, scattered = known[key]
        yield Refused(request, name + words, scattered)


def _scattered(state: FreeRoom, request: int) -> bool:
    """Whether its pool has as many free GPUs as a request asks for, wherever they are."""
    R = state.problem.requests
    free = int(state.gpus_with_room(request).sum())
    return bool(not R.clashing[request] and free >= R.gpus[request])


def _why(state: FreeRoom, request: int) -> str:
    """The reason, to be read behind the names of the jobs."""
    problem = state.problem
    if problem.requests.clashing[request]:
        return " share GPUs, but may not be on one node (anti-affinity)"
    free = _free(problem, problem.of_pool(request), state.available(request))
    return f": needs {_needs(problem, request)}; {free}{_without_layout(state, request)}"


def _without_layout(state: FreeRoom, request: int) -> str:
    """Why the first GPU that is shared, and has as much left as a request asks for, has no layout for it."""
    R, nodes = state.problem.requests, state.problem.nodes
    here, share = state.problem.of_pool(request), float(R.share[request])
    room, pool = state.room[here], int(R.pool[request])
    if state.cut is None or share == 1.0 or pool not in state.cut.codes:
        return ""
    some = (room >= share - ROUNDING) & (room < 1.0)
    spots = np.argwhere(some & (state.room_for(request, here) < share - ROUNDING))
    if not len(spots):
        return ""
    node, index = spots[0].tolist()
    code, profile = int(state.cut.code[here][node, index]), int(R.profile[request])
    gpu = f"{nodes.name(here.start + node)}/{index}"
    if code < 0 or profile == NO_SLICE:
        return f"; {gpu} cannot have slices and other shares"
    together = [*state.cut.codes[pool].slices(code), profile]
    reason = R.slices.layouts[pool].why_not([(one, None) for one in together])
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
        problem.nodes.instance.cluster.numbering.node_name(node)
        for node in R.barred[request][: MOST_NAMED + 1].tolist()
    ]
    if barred:
        text += f", not on {', '.join(barred[:MOST_NAMED])}{' and more' if len(barred) > MOST_NAMED else ''}"
    return text + (" apart from jobs that it may not share a node with" if R.apart[request] else "")


def _free(problem: Problem, here: slice, available: np.ndarray) -> str:
    """``3 GPUs are free for it: 2 on v100-0, 1 on v100-1``."""
    total = int(available.sum())
    if not total:
        return "no GPU is free for it"
    largest = np.argsort(-available, kind="stable")
    largest = largest[available[largest] > 0]
    text = [
        f"{available[n]} on {problem.nodes.name(here.start + int(n))}"
        for n in largest[:MOST_NAMED].tolist()
    ]
    rest = len(largest) - len(text)
    more = f" and less or as much on {rest} more node{'s' if rest != 1 else ''}" if rest else ""
    return f"{total} GPU{'s are' if total != 1 else ' is'} free for it: {', '.join(text)}{more}"
