"""Why a request found no place, in the user's words: what it needs, and what is free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from optsched.placement.best_fit import State
from optsched.placement.needs import OWN
from optsched.placement.problem import Assignment, Problem

MOST_NAMED = 4
"""Nodes whose free GPUs a reason names."""


class Refused(NamedTuple):
    """A request without a place: its number, why, and whether its pool has as many free GPUs as it asks for."""

    request: int
    words: str
    scattered: bool


def why_refused(problem: Problem, assignment: Assignment) -> Iterator[Refused]:
    """Requests without a place, each with the reason."""
    if len(assignment) == len(problem):
        return
    # What is free now, beside all that was placed: the words speak of that.
    state = State.after(problem, assignment)
    for request in range(len(problem)):
        if request not in assignment:
            scattered = not problem.requests.torn[request] and (
                int(state.gpus_with_room(request).sum()) >= problem.requests.gpus[request]
            )
            yield Refused(request, _why(state, request), bool(scattered))


def _why(state: State, request: int) -> str:
    problem = state.problem
    R = state.problem.requests
    named = R.named(request)
    if R.torn[request]:
        return f"{named} share GPUs, but may not be on one node (anti-affinity)"
    free = _free(problem, problem.of_pool(request), state.available(request))
    return f"{named}: needs {_needs(problem, request)}; {free}"


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
