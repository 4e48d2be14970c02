"""A lower bound, by counting, on the number of jobs that must leave some nodes to make room for a
gang.

A node n with f_n free GPUs can give u GPUs after jobs that hold u - f_n GPUs there have left. Let
w_j = 1 / (number of nodes of job j), so that a job counts once if all its nodes are cleared. Then

    c_n(u) = least  sum w_j  over jobs of n that hold u - f_n or more together        (largest first)

and a gang of g GPUs on at most k nodes needs

    min { sum_n c_n(u_n) : sum_n u_n >= g, at most k of the u_n above 0 }

migrations, which a recursion over the nodes finds. For every u only the k cheapest nodes matter:
any other node in a choice can be exchanged for one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray

SLACK = 1e-9


class Holdings(NamedTuple):
    """GPUs that movable jobs hold: one entry for each job and node, sorted by node.

    Attributes
    ----------
    job, node : IntArray, shape (H,)
    amount : FloatArray, shape (H,)
        GPUs of the job on the node.
    seconds : FloatArray, shape (H,)
        Time that a restart of the job takes.
    """

    job: IntArray
    node: IntArray
    amount: FloatArray
    seconds: FloatArray


class Leaving(NamedTuple):
    """Least cost of making room on each of N nodes for each of A amounts; inf where it is
    impossible.

    Attributes
    ----------
    jobs : FloatArray, shape (N, A)
        Lower bound on the migrations.
    seconds : FloatArray, shape (N, A)
        Lower bound on the restart times of this many jobs.
    whole : bool
        Whether every job counts as 1 on each node, so that ``jobs`` is exact for each node alone.
    """

    jobs: FloatArray
    seconds: FloatArray
    whole: bool


def cost_of_leaving(
    held: Holdings,
    free: FloatArray,
    cleared: FloatArray,
    amounts: Sequence[float | FloatArray] | None = None,
) -> Leaving:
    """The cost of making room on each node.

    Parameters
    ----------
    held : Holdings
        Of the nodes 0, 1, ..., N - 1.
    free, cleared : FloatArray, shape (N,)
        GPUs that are free now, and GPUs that are free without the jobs.
    amounts : sequence of float or FloatArray of shape (N,), optional
        GPUs that the nodes are to give, each node for itself: then every job counts as 1 on each of
        its nodes. By default 0, 1, 2, ... GPUs of nodes that are chosen together, for
        `fewest_leavers`: then a job counts as 1 over all of its nodes.
    """
    weight = np.ones(len(held.job))
    if amounts is None:
        amounts = range(int(cleared.max(initial=0.0) + SLACK) + 1)
        weight = 1.0 / np.bincount(held.job)[held.job]
    whole = bool((weight == 1.0).all())
    order = np.lexsort((-held.amount / weight, held.node))
    at, amount, weight = held.node[order], held.amount[order], weight[order]
    count = np.bincount(at, minlength=len(free))
    first = np.cumsum(count) - count
    given, paid = _sums(amount), _sums(weight)
    within = given[1:] - given[first][at]
    cheapest = np.lexsort((held.seconds, held.node))
    restarts = _sums(held.seconds[cheapest])
    jobs = np.full((len(free), len(amounts)), np.inf)
    seconds = jobs.copy()
    for column, gpus in enumerate(amounts):
        need = gpus - free - SLACK
        able = cleared >= gpus - SLACK
        enough = able & (need <= 0)
        jobs[enough, column] = seconds[enough, column] = 0.0
        short = np.bincount(at[within < need[at]], minlength=len(free))
        partly = np.flatnonzero(able & (need > 0) & (short < count))
        last = first[partly] + short[partly]
        before = given[last] - given[first[partly]]
        part = 1.0 if whole else np.clip((need[partly] - before) / amount[last], 0.0, 1.0)
        jobs[partly, column] = paid[last] - paid[first[partly]] + part * weight[last]
        seconds[partly, column] = restarts[last + 1] - restarts[first[partly]]
        # If one job is enough, it must hold enough GPUs: the cheapest job may not.
        cheapest_large = np.full(len(free), np.inf)
        large = held.amount >= need[held.node]
        np.minimum.at(cheapest_large, held.node[large], held.seconds[large])
        single = partly[short[partly] == 0]
        seconds[single, column] = cheapest_large[single]
    return Leaving(jobs, seconds, whole)


def fewest_leavers(cost: Leaving, gpus: int, nodes: int) -> tuple[float, float]:
    """Lower bound on the migrations that make room for a gang, and on the restart times in seconds
    of any plan with so few migrations (0 where jobs span nodes).

    Parameters
    ----------
    cost : Leaving
        For 0, 1, 2, ... GPUs.
    gpus, nodes : int
        GPUs of the gang, and the most nodes that it may span.
    """
    if not cost.whole:
        fewest = _least(cost.jobs, gpus, nodes)
        return (float(np.ceil(fewest - SLACK)) if np.isfinite(fewest) else fewest), 0.0
    # One job weighs more than all restarts together, so the number of jobs is minimised first.
    finite = cost.seconds[np.isfinite(cost.seconds)]
    unit = 1.0 + float(finite.sum())
    least = _least(cost.jobs * unit + cost.seconds, gpus, nodes)
    if np.isinf(least):
        return least, 0.0
    jobs = np.floor(least / unit + SLACK)
    return float(jobs), max(0.0, float(least - jobs * unit))


def _least(cost: FloatArray, gpus: int, nodes: int) -> float:
    """The least cost with which at most ``nodes`` nodes give ``gpus`` GPUs together;
    ``cost`` has shape (N, most GPUs of a node + 1).
    """
    span, most = min(nodes, gpus, len(cost)), cost.shape[1] - 1
    order = np.argsort(cost[:, 1:], axis=0, kind="stable")[:span]
    best = np.full((span + 1, gpus + 1), np.inf)
    best[0, 0] = 0.0
    for node in np.unique(order).tolist():
        more = best.copy()
        for given in range(1, min(most, gpus) + 1):
            if np.isinf(cost[node, given]):
                continue
            total = best[:-1] + cost[node, given]
            left = gpus + 1 - given
            more[1:, given:] = np.minimum(more[1:, given:], total[:, :left])
            more[1:, gpus] = np.minimum(more[1:, gpus], total[:, left:].min(axis=1, initial=np.inf))
        best = more
    return float(best[:, gpus].min())


def _sums(values: FloatArray) -> FloatArray:
    """Sums of the first 0, 1, 2, ... values."""
    sums: FloatArray = np.concatenate([[0.0], np.cumsum(values)])
    return sums
