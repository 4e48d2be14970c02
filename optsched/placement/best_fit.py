"""Best fit: gangs in decreasing size, each on as few nodes as possible, where the fewest GPUs are left over.

The result breaks no rule of the problem, but it may place fewer requests or span more nodes than the optimum. The
bounds (`optsched.placement.bounds`) say by how much at most.

`State` counts what is free. `choose` finds nodes for one request. `make_room` and `tighten` repair the result: smaller
requests move to other nodes, so that a gang finds room or spans fewer nodes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.placement.identities import with_identities
from optsched.placement.problem import ROUNDING, Assignment, Pieces, Problem, limit


class State:
    """Free GPUs, CPUs and memory of the nodes; it begins with what is left beside what stands.

    Requests of whole GPUs are counted by node; which GPUs they get is decided at the end (`identities`). Requests that
    share GPUs get them at once.

    Attributes
    ----------
    free : IntArray, shape (N,)
        GPUs that nobody has.
    room : FloatArray, shape (N, most GPUs of a node)
        What is left of each GPU by requests that share; 1 for an untouched one, 0 beyond the node's GPUs.
    own : FloatArray, shape (N, 2)
        Free CPUs and memory.
    group : FloatArray, shape (G,)
        What is left of the resources of some nodes.
    pieces : dict
        Where requests are placed.
    shared : dict
        GPUs of requests that share.
    on : list of sets
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
        self.on: list[set[int]] = [set() for _ in range(len(nodes))]
        self._sets = {
            number: np.zeros(len(nodes), np.int64)
            for sets in problem.requests.apart
            for number in sets
        }
        R = problem.requests
        self._needy: BoolArray = np.asarray(np.hstack([R.need, R.group_need]).any(axis=1))

    def usable(self, request: int, gpus: IntArray) -> IntArray:
        """How many of so many GPUs of each node of its pool a request can have, by everything but the GPUs."""
        problem, R = self.problem, self.problem.requests
        here = problem.of_pool(request)
        if self._needy[request]:
            gpus = np.minimum(gpus, limit(self.own[here], R.need[request]))
            for group in np.flatnonzero(R.group_need[request]).tolist():
                each = limit(self.group[group : group + 1, None], R.group_need[request, [group]])
                gpus = np.where(problem.nodes.member[group, here], np.minimum(gpus, each), gpus)
        for number in R.apart[request]:
            gpus = np.where(self._sets[number][here] > 0, 0, gpus)
        return np.zeros_like(gpus) if R.torn[request] else problem.shut(request, gpus)

    def roomy(self, request: int) -> IntArray:
        """GPUs of each node of its pool with room for a request, whatever else it needs of the node."""
        here, share = self.problem.of_pool(request), self.problem.requests.share[request]
        if share == 1.0:
            return self.free[here]
        enough = self.room[here] >= share - ROUNDING
        untouched = self.room[here] >= 1.0
        taken = untouched.sum(axis=1) - self.free[here]  # by whole requests, which are only counted
        return np.asarray(enough.sum(axis=1) - taken)

    def available(self, request: int) -> IntArray:
        """GPUs that each node of its pool can give a request: whole ones, or those with room for its share."""
        return self.usable(request, self.roomy(request))

    def take(self, request: int, pieces: Pieces) -> None:
        """Place a request of whole GPUs."""
        for node, gpus in pieces:
            self.free[node] -= gpus
            self.on[node].add(request)
        self._charge(request, pieces, 1)
        self.pieces[request] = pieces

    def give_back(self, request: int) -> Pieces:
        """Undo `take`."""
        pieces = self.pieces.pop(request)
        for node, gpus in pieces:
            self.free[node] += gpus
            self.on[node].remove(request)
        self._charge(request, pieces, -1)
        return pieces

    def take_shared(self, request: int, gpus: IntArray) -> None:
        """Place a request on shares of these GPUs, rows (node, index)."""
        before = self.room[gpus[:, 0], gpus[:, 1]]
        self.room[gpus[:, 0], gpus[:, 1]] = before - self.problem.requests.share[request]
        np.subtract.at(self.free, gpus[before >= 1.0, 0], 1)
        nodes, count = np.unique(gpus[:, 0], return_counts=True)
        pieces = list(zip(nodes.tolist(), count.tolist(), strict=True))
        self._charge(request, pieces, 1)
        self.pieces[request] = pieces
        self.shared[request] = gpus

    def _charge(self, request: int, pieces: Pieces, sign: int) -> None:
        R = self.problem.requests
        for number in R.apart[request]:
            self._sets[number][[node for node, _ in pieces]] += sign
        if self._needy[request]:
            for node, gpus in pieces:
                self.own[node] -= sign * gpus * R.need[request]
                self.group -= (
                    sign * gpus * R.group_need[request] * self.problem.nodes.member[:, node]
                )

    def fits(self, request: int, pieces: Pieces) -> bool:
        """Whether pieces that fit node by node also keep the resources that several of their nodes belong to."""
        R = self.problem.requests
        if not R.group_need[request].any():
            return True
        member = self.problem.nodes.member[:, [node for node, _ in pieces]]
        need = member @ np.array([gpus for _, gpus in pieces]) * R.group_need[request]
        allowed = self.group + ROUNDING * self.problem.nodes.group_capacity
        return bool((need <= allowed).all())

    @classmethod
    def after(cls, problem: Problem, assignment: Assignment) -> State:
        """What is left beside an assignment."""
        state = cls(problem)
        for request in sorted(assignment, key=lambda j: problem.requests.share[j] == 1.0):
            gpus = assignment[request]
            if problem.requests.share[request] < 1.0:
                state.take_shared(request, gpus)
            else:
                nodes, count = np.unique(gpus[:, 0], return_counts=True)
                state.take(request, list(zip(nodes.tolist(), count.tolist(), strict=True)))
        return state


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


Choose = Callable[[State, int, int], Pieces | None]

TRIES = 16
"""Sets of nodes on which room is made for one request, at most."""
LOOKED = 64
"""Nodes that are looked at for that, those with the most free GPUs."""
PUSHED = 12
"""Requests that one may push elsewhere, at most."""
TIGHTENED = 200
"""Requests that span more nodes than they need and are tried again, at most."""


def make_room(state: State, request: int, span: int, choose: Choose) -> bool:
    """Place a request of whole GPUs by pushing smaller ones elsewhere; no node more is spanned by those.

    Returns whether it is placed; if it isn't, nothing has changed.
    """
    problem, R = state.problem, state.problem.requests
    here, gpus, nodes = problem.of_pool(request), int(R.gpus[request]), int(problem.fewest[request])
    most = problem.at_most(request)
    if nodes > span or state.free[here].sum() < gpus:
        return False
    looked = np.argsort(-np.minimum(state.free[here], most), kind="stable")[
        : LOOKED + nodes
    ].astype(np.int64)
    pushable = [
        sum(_piece(state, j, n) for j in _smaller(state, request, n))
        for n in (looked + here.start).tolist()
    ]
    possible = np.minimum(state.free[here][looked] + np.array(pushable, np.int64), most[looked])
    best = np.argsort(-np.minimum(possible, gpus), kind="stable")
    best = best[possible[best] > 0]
    order, possible = looked[best], possible[best]
    for first in range(min(TRIES, len(order) - nodes + 1)):
        window = order[first : first + nodes]
        if possible[first : first + nodes].sum() >= gpus and _try(
            state, request, window + here.start, choose
        ):
            return True
    return False


def _piece(state: State, request: int, node: int) -> int:
    return next(gpus for n, gpus in state.pieces[request] if n == node)


def _smaller(state: State, request: int, node: int) -> list[int]:
    """Requests on a node that this one may push away: those of fewer GPUs."""
    R = state.problem.requests
    return [j for j in sorted(state.on[node]) if R.gpus[j] < R.gpus[request]]


def _try(state: State, request: int, window: IntArray, choose: Choose) -> bool:
    """Push requests off some nodes until this one fits there, and place those elsewhere; or undo everything."""
    here, gpus = state.problem.of_pool(request), int(state.problem.requests.gpus[request])
    pushed: dict[int, Pieces] = {}
    while True:
        available = state.available(request)[window - here.start]
        missing = gpus - int(available.sum())
        if missing <= 0:
            break
        there = {
            j: _piece(state, j, n) for n in window.tolist() for j in _smaller(state, request, n)
        }
        if not there or len(pushed) == PUSHED:
            _undo(state, pushed)
            return False
        enough = [j for j, piece in there.items() if piece >= missing]
        j = (
            min(enough, key=lambda j: (there[j], j))
            if enough
            else max(there, key=lambda j: (there[j], -j))
        )
        pushed[j] = state.give_back(j)
    rest, pieces = gpus, []
    for place in np.argsort(-available, kind="stable").tolist():
        piece = min(rest, int(available[place]))
        rest -= piece
        pieces += [(int(window[place]), piece)] * (piece > 0)
    if not state.fits(request, pieces):
        _undo(state, pushed)
        return False
    state.take(request, pieces)
    placed: list[int] = []
    for j in sorted(pushed, key=lambda j: (-state.problem.requests.gpus[j], j)):
        elsewhere = choose(state, j, len(pushed[j]))
        if elsewhere is None:
            for other in [*placed, request]:
                state.give_back(other)
            _undo(state, pushed)
            return False
        state.take(j, elsewhere)
        placed.append(j)
    return True


def _undo(state: State, pushed: dict[int, Pieces]) -> None:
    for j, pieces in pushed.items():
        state.take(j, pieces)


def tighten(state: State, choose: Choose) -> None:
    """Give requests that span more nodes than they need another try with the fewest."""
    problem = state.problem
    loose = [
        j
        for j, pieces in state.pieces.items()
        if len(pieces) > problem.fewest[j] and j not in state.shared
    ]
    for j in sorted(loose, key=lambda j: (-problem.requests.gpus[j], j))[:TIGHTENED]:
        before = state.give_back(j)
        pieces = choose(state, j, int(problem.fewest[j]))
        if pieces is not None:
            state.take(j, pieces)
        elif not make_room(state, j, int(problem.fewest[j]), choose):
            state.take(j, before)
