"""Best fit: gangs in decreasing size, each on as few nodes as possible,
where the fewest GPUs are left over.

The result breaks no rule of the problem, but it may place fewer requests or span more nodes than
the optimum. The bounds (`optsched.placement.bounds`) say by how much at most.

`FreeRoom` is what is free; it is the only such state, for whole placements, for rows that start in
a round and for room that is made for them (`optsched.placement.beside`). `choose` finds nodes for
one request. `make_room` and `tighten` repair the result: smaller requests move to other nodes, so
that a gang finds room or spans fewer nodes. `why_refused` explains what found no room.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, group_rows
from optsched.candidates import gpus_allowed_by
from optsched.placement.problem import (
    Assignment,
    Pieces,
    Problem,
    assign_gpus,
    by_request,
    consecutive,
    largest_of_groups,
    limit,
    with_identities,
)
from optsched.placement.requests import NO_NODE, OWN
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
SCANNED = 16
"""Requests up to which plain ones scan all nodes."""
TIGHTENED = 200
"""Requests that span more nodes than they need and are tried again, at most."""


class NodesByFreeGpus:
    """The nodes of a pool in sorted lists by the number of their free GPUs.

    The best fit of a gang costs a few steps, however many nodes there are.

    Parameters
    ----------
    free : IntArray, shape (N,)
        Free GPUs of all nodes; it may change, and then `changed` must be called.
    here : slice
        Nodes of the pool.
    most : int
        GPUs of the largest node.
    """

    def __init__(self, free: IntArray, here: slice, most: int) -> None:
        self._free = free
        self._first = here.start
        self._count: list[int] = free[here].tolist()
        self._nodes: list[list[int]] = [[] for _ in range(most + 1)]
        for node, count in enumerate(self._count, here.start):
            self._nodes[count].append(node)

    def changed(self, node: int) -> None:
        """The free GPUs of a node have changed."""
        before = self._nodes[self._count[node - self._first]]
        del before[bisect_left(before, node)]
        count = int(self._free[node])
        self._count[node - self._first] = count
        insort(self._nodes[count], node)

    def best_fit(self, gpus: int, has_room: Callable[[int], bool]) -> int | None:
        """The node with the fewest free GPUs that are enough and with room for all else that is needed;
        of equal ones the first.
        """
        nodes = chain.from_iterable(self._nodes[gpus:])
        return next(filter(has_room, nodes), None)


class FreeRoom:
    """Free GPUs, CPUs and memory of the nodes; at first what occupied GPUs leave.

    Requests of whole GPUs are counted by node; which GPUs they get is decided at the end
    (`identities`). Requests that share GPUs get them at once.

    Attributes
    ----------
    free : IntArray, shape (N,)
        GPUs that nobody has.
    room : FloatArray, shape (N, most GPUs of a node)
        What is left of each GPU by requests that share; 1 for an untouched one, 0 beyond the node's
        GPUs.
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
        self.own = nodes.own.copy()
        self.group = nodes.group_capacity.copy()
        self.pieces: dict[int, Pieces] = {}
        self.shared: dict[int, IntArray] = {}
        self.on: defaultdict[int, set[int]] = defaultdict(set)
        # How many jobs of each anti-affinity set are on each node.
        sets = {number for numbers in problem.requests.apart for number in numbers}
        self._of_set = {number: np.zeros(len(nodes), np.int64) for number in sets}
        # For a few requests a scan of all nodes is cheaper than these heaps.
        self._indexed = len(problem) > SCANNED
        self._by_free: dict[int, NodesByFreeGpus] = {}
        self._untouched: dict[int, BoolArray] = {}
        # Nodes with too few CPUs or too little memory for requests of a kind (`Problem.alike`):
        # until a request gives some back, no other one of the kind need look at them again.
        self._lacking: defaultdict[int, set[int]] = defaultdict(set)

    @classmethod
    def after(cls, problem: Problem, assignment: Assignment) -> FreeRoom:
        """What is left beside an assignment; which requests have it is not kept."""
        state = cls(problem)
        R = problem.requests
        placed = np.array(list(assignment), np.int64)
        whole = placed[R.share[placed] == 1.0]
        parts = [assignment[request][:, 0] for request in whole.tolist()]
        state._charge_all(np.repeat(whole, R.gpus[whole]), np.concatenate([NO_NODE, *parts]))
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

    def reset(self, room: FloatArray) -> None:
        """Let this be the room of the GPUs, with nothing placed."""
        self.room = room
        self.free = np.asarray((room >= 1.0).sum(axis=1), np.int64)
        self._by_free.clear()
        self._lacking.clear()

    # --- what a request could have --------------------------------------------------------

    def best_node(self, request: int) -> int | None:
        """The best node for a request on one node (`Problem.on_one_node`), if one has room."""
        problem = self.problem
        gpus = int(problem.requests.gpus[request])
        here = problem.of_pool(request)
        if self._indexed:
            pool = int(problem.requests.pool[request])
            if pool not in self._by_free:
                most = int(problem.nodes.gpus[here].max(initial=0))
                self._by_free[pool] = NodesByFreeGpus(self.free, here, most)
            return self._by_free[pool].best_fit(gpus, partial(self._has_own, request, gpus))
        enough = self.available(request) >= gpus
        node = fullest_with_room(np.where(enough, self.free[here], 0), gpus)
        return None if node is None else here.start + node

    def _has_own(self, request: int, gpus: int, node: int) -> bool:
        """Whether a node has the CPUs and memory for so many GPUs of a request (`gpus_allowed`)."""
        if not self.problem.needy[request]:
            return True
        lacking = self._lacking[int(self.problem.alike.inverse[request])]
        if node in lacking:
            return False
        needs = self.problem.requests.need[request].tolist()
        # As numbers, not arrays: a round asks this of thousands of nodes, one after the other.
        enough = all(
            need <= 0 or gpus_allowed_by(has, need) >= gpus
            for has, need in zip(self.own[node].tolist(), needs, strict=True)
        )
        if not enough:
            lacking.add(node)
        return enough

    def gpus_with_room(self, request: int) -> IntArray:
        """GPUs of each node of its pool with room for a request,
        whatever else it needs of the node.
        """
        here = self.problem.of_pool(request)
        share = self.problem.requests.share[request]
        if share == 1.0:
            return self.free[here]
        room = self.room[here]
        enough = (room >= share - ROUNDING).sum(axis=1)
        # Requests of whole GPUs are only counted: these GPUs look untouched.
        whole = (room >= 1.0).sum(axis=1) - self.free[here]
        return np.asarray(enough - whole)

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
            self._add_free(node, -gpus)
            self.on[node].add(request)
        self._charge(request, pieces, 1)
        self.pieces[request] = pieces

    def give_back(self, request: int) -> Pieces:
        """Undo `take`; returns the pieces that the request had."""
        pieces = self.pieces.pop(request)
        for node, gpus in pieces:
            self._add_free(node, gpus)
            self.on[node].remove(request)
        self._charge(request, pieces, -1)
        return pieces

    def take_shared(self, request: int, gpus: IntArray) -> None:
        """Place a request on shares of these GPUs, rows (node, index)."""
        node, index = gpus.T
        before = self.room[node, index]
        self.room[node, index] = before - self.problem.requests.share[request]
        for opened in node[before >= 1.0].tolist():
            self._add_free(opened, -1)
        pieces = _pieces_of(gpus)
        self._charge(request, pieces, 1)
        self.pieces[request] = pieces
        self.shared[request] = gpus

    def claim(self, node: int, count: int) -> IntArray:
        """Take so many GPUs of a node at once,
        consecutive ones where possible; gives their indices.
        """
        free = self._free_gpus(node)
        chosen = consecutive(free[None], np.array([count]))[0]
        free &= ~chosen
        self._add_free(node, -count)
        return np.flatnonzero(chosen)

    def release(self, node: int, gpus: IntArray) -> None:
        """A gang that held GPUs of a node leaves them."""
        self._free_gpus(node)[gpus] = True
        self._add_free(node, len(gpus))

    def _free_gpus(self, node: int) -> BoolArray:
        if node not in self._untouched:
            self._untouched[node] = self.room[node] >= 1.0
        return self._untouched[node]

    def _add_free(self, node: int, gpus: int) -> None:
        self.free[node] += gpus
        if self._by_free:
            of_pool = self._by_free.get(int(self.problem.nodes.pool[node]))
            if of_pool is not None:
                of_pool.changed(node)

    def _charge(self, request: int, pieces: Pieces, sign: int) -> None:
        problem = self.problem
        R = self.problem.requests
        for number in R.apart[request]:
            self._of_set[number][[node for node, _ in pieces]] += sign
        if not problem.needy[request]:
            return
        if sign < 0:
            self._lacking.clear()
        for node, gpus in pieces:
            amount = sign * gpus
            self.own[node] -= amount * R.need[request]
            self.group -= amount * R.group_need[request] * problem.nodes.member[:, node]


def fullest_with_room(free: IntArray, gpus: int) -> int | None:
    """The node with the fewest free GPUs that are enough, of equal ones the first."""
    enough = np.flatnonzero(free >= gpus)
    return int(enough[np.argmin(free[enough])]) if len(enough) else None


def _pieces_of(gpus: IntArray) -> Pieces:
    nodes, count = np.unique(gpus[:, 0], return_counts=True)
    return list(zip(nodes.tolist(), count.tolist(), strict=True))


def best_fit(problem: Problem, keep: bool, smallest: int | None = None) -> Assignment:
    """Place requests one after the other;
    with ``smallest`` so many of the smallest before all others.

    Of equal ones, those given first come first. What is not placed in the end fits nowhere beside
    what is.

    1. With ``keep``, requests whose jobs run on as few nodes as they need stay where they are.
    2. Gangs of whole GPUs in decreasing size: on the node with the least left over, or on as many
       whole nodes as they need, joined by the best links that so few nodes have.
    3. A gang that finds no room, or that spans more nodes than it needs, may push smaller ones
       elsewhere.
    4. Requests of shares in decreasing share, on the fullest GPUs that have room.
    """
    if smallest is None and problem.plain.all():
        found = _place_plain(problem)
        if found is not None:
            return found
    R = problem.requests
    state = FreeRoom(problem)
    possible = problem.fewest > 0
    later = np.zeros(len(problem), bool)
    if smallest is not None:
        by_amount = np.lexsort((R.gpus * R.share, ~possible))
        later[by_amount[smallest:]] = True
    if keep:
        for request in _running_largest_first(problem):
            if not later[request]:
                _stay(state, request)
    # Large gangs first: small ones fit into what they leave. Of equal ones the first stays first.
    by_size = np.lexsort((R.span, -R.gpus, later))
    _place_whole(state, by_size[(R.share == 1.0)[by_size] & possible[by_size]].tolist())
    assignment = with_identities(problem, state.pieces, state.shared)
    # From here on requests of whole GPUs have theirs for good: requests that share see which are
    # left.
    for request, gpus in assignment.items():
        if request not in state.shared:
            state.room[gpus[:, 0], gpus[:, 1]] = 0.0
    by_share = np.lexsort((-R.gpus, -R.share, later))
    for request in by_share[(R.share < 1.0)[by_share] & possible[by_share]].tolist():
        if request in state.pieces:
            continue
        pieces = choose(state, request, int(R.span[request]))
        if pieces is not None:
            state.take_shared(request, _fullest_gpus(state, request, pieces))
    fixed = {j: [(node, gpu) for node, gpu in gpus.tolist()] for j, gpus in assignment.items()}
    return with_identities(problem, state.pieces, state.shared, fixed)


def _place_plain(problem: Problem) -> Assignment | None:
    """Plain requests in decreasing size, each on one node; None if one would have to span several.

    Nothing is repaired: where a gang is refused no node has its GPUs free, and only smaller ones
    come after it, so that none of these could make room for it.
    """
    nodes = problem.nodes
    R = problem.requests
    free = nodes.free.copy()
    on_node = np.full(len(problem), -1, np.int64)
    pool_and_size = group_rows([R.pool, R.gpus], len(problem))
    requests_of = np.argsort(pool_and_size.inverse, kind="stable")
    last = np.cumsum(pool_and_size.count)
    # Larger gangs first. Pools have no node in common, so their order does not matter.
    for group in np.argsort(-R.gpus[pool_and_size.first], kind="stable").tolist():
        alike = requests_of[last[group] - pool_and_size.count[group] : last[group]]
        gpus = int(R.gpus[alike[0]])
        here = nodes.of_pool(int(R.pool[alike[0]]))
        chosen = here.start + best_nodes(free[here], gpus, len(alike))
        # Spans do not matter on one node.
        if (R.span[alike[len(chosen) :]] > 1).any():
            return None
        on_node[alike[: len(chosen)]] = chosen
        free -= gpus * np.bincount(chosen, minlength=len(nodes))
    placed = np.flatnonzero(on_node >= 0)
    untouched = nodes.room >= 1.0
    return by_request(assign_gpus(untouched, placed, on_node[placed], R.gpus[placed]))


def best_nodes(free: IntArray, gpus: int, most: int) -> IntArray:
    """Nodes for equal gangs in turn,
    each the one with the fewest free GPUs that are enough, at most so many.

    A node that was the best for one gang is the best for the next one too, as long as it has room:
    it has fewer free GPUs than before. So the nodes are filled one after the other.
    """
    enough = np.flatnonzero(free >= gpus)
    fullest = enough[np.argsort(free[enough], kind="stable")]
    return np.repeat(fullest, free[fullest] // gpus)[:most]


def _place_whole(state: FreeRoom, order: list[int]) -> None:
    """Requests of whole GPUs in this order, then those that found no room,
    by pushing smaller ones elsewhere.
    """
    span = state.problem.requests.span
    kind = state.problem.alike.inverse.tolist()
    refused = _take_room(state, [request for request in order if request not in state.pieces])
    failed = 0
    hopeless: set[int] = set()  # kinds of which one has failed since a request was pushed
    for request in refused:
        if failed == FAILURES:
            break
        if kind[request] not in hopeless and make_room(state, request, int(span[request])):
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
    span = state.problem.requests.span
    kind = state.problem.alike.inverse.tolist()
    refused = []
    # Room only shrinks here: where one found none, no other one of its kind does.
    hopeless: set[int] = set()
    for request in order:
        pieces = None
        if kind[request] not in hopeless:
            pieces = choose(state, request, int(span[request]))
        if pieces is not None:
            state.take(request, pieces)
        else:
            hopeless.add(kind[request])
            refused.append(request)
    return refused


# --- nodes for one request --------------------------------------------------------------------


def choose(state: FreeRoom, request: int, span: int) -> Pieces | None:
    """Pieces of a request on at most ``span`` nodes, or None if it finds no room."""
    problem = state.problem
    here = problem.of_pool(request)
    gpus = int(problem.requests.gpus[request])
    if problem.on_one_node[request]:
        node = state.best_node(request)
        if node is not None:
            return [(node, gpus)]
        if span == 1:
            return None
    available = state.available(request)
    enough = np.flatnonzero(available >= gpus)
    if len(enough):
        # Least left over, so that large gangs still find whole nodes later.
        left = _left_over(state, request, enough)
        best = _best_node(problem, request, enough[left == left.min()])
        return [(here.start + best, gpus)]
    if span == 1:
        return None
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
        return np.asarray(state.free[here][nodes] - gpus)
    room = state.room[here][nodes]
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
    spots: list[tuple[int, int]] = []
    for node, count in pieces:
        room: list[float] = state.room[node].tolist()
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
    count = {node: min(len(gpus), int(most[node - here.start])) for node, gpus in by_node.items()}
    largest = sorted(count, key=lambda node: (-count[node], node))
    pieces, rest = _poured(
        [(node, count[node]) for node in largest[: problem.fewest[request]]],
        int(R.gpus[request]),
    )
    if rest or not state.keeps_groups(request, pieces):
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
    used: list[tuple[int, int]] = []
    untouched: dict[int, list[tuple[int, int]]] = {}
    for node, gpu in state.problem.held[request].gpus.tolist():
        room = float(state.room[node, gpu])
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


def make_room(state: FreeRoom, request: int, span: int) -> bool:
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
    gpus = state.problem.requests.gpus
    return [other for other in sorted(state.on[node]) if gpus[other] < gpus[request]]


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
        elif not make_room(state, request, fewest):
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
    for request in range(len(problem)):
        if request in assignment:
            continue
        key = (kind[request], R.barred[request].tobytes())
        if key not in known:
            known[key] = _why(state, request), _scattered(state, request)
        words, scattered = known[key]
        yield Refused(request, f"{R.named(request)}{words}", scattered)


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
    return f": needs {_needs(problem, request)}; {free}"


def _needs(problem: Problem, request: int) -> str:
    R = problem.requests
    instance = problem.nodes.instance
    gpus = int(R.gpus[request])
    span = int(R.span[request])
    share = float(R.share[request])
    pool = instance.cluster.pools[int(R.pool[request])].name
    text = f"{gpus} GPU{'s' if gpus != 1 else ''} of {pool}"
    text = text if share == 1.0 else f"{share:g} of {'each of ' if gpus > 1 else ''}{text}"
    if gpus > 1:
        text += f" on at most {span} node{'s' if span != 1 else ''}"
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
