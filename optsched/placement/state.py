"""What is free while requests are placed one after the other, and undone again."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.placement.problem import ROUNDING, Assignment, Problem, limit

Pieces = list[tuple[int, int]]
"""(node, GPUs on it) of a request."""


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
