"""Repair of a best fit: smaller requests move elsewhere, so that a gang finds a place or spans fewer nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optsched.arrays import IntArray
from optsched.placement.state import Pieces, State

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
