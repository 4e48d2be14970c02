"""How many jobs have to leave some nodes, at least, before these have room for a gang: a bound by counting.

A node n with f_n free GPUs gives u of them once jobs left it that hold u - f_n there. With w_j = 1 over the
number of nodes of job j, so that a job counts once however many of its nodes are cleared,

    c_n(u) = least  sum w_j  over jobs of n that hold u - f_n or more together        (largest first)

and a gang of g GPUs on at most k nodes needs

    min { sum_n c_n(u_n) : sum_n u_n >= g, at most k of the u_n above 0 }

migrations, which a recursion over the nodes finds. For every u only the k nodes that give it cheapest matter: another
one in a choice may change places with one of these.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray

SLACK = 1e-9


class Holdings(NamedTuple):
    """What movable jobs hold on nodes, H entries, those of a node together.

    Attributes
    ----------
    job, node : IntArray, shape (H,)
    amount : FloatArray, shape (H,)
        GPUs there.
    seconds : FloatArray, shape (H,)
        Restart of the job.
    """

    job: IntArray
    node: IntArray
    amount: FloatArray
    seconds: FloatArray

    @property
    def weight(self) -> FloatArray:
        """1 over the number of entries of the job, shape (H,)."""
        weight: FloatArray = 1.0 / np.bincount(self.job)[self.job]
        return weight


class Leaving(NamedTuple):
    """What it costs that nodes give 0, 1, 2, ... GPUs; inf where they cannot.

    Attributes
    ----------
    jobs : FloatArray, shape (nodes, GPUs + 1)
        Migrations at least.
    seconds : FloatArray, shape (nodes, GPUs + 1)
        Restarts of so many jobs at least.
    whole : bool
        Whether all jobs are on one node, so that the number of jobs is exact for each node alone.
    """

    jobs: FloatArray
    seconds: FloatArray
    whole: bool


def cost_of_leaving(held: Holdings, free: FloatArray, cleared: FloatArray) -> Leaving:
    """The cost of each node.

    Parameters
    ----------
    held : Holdings
        Of the nodes 0, 1, ..., N - 1.
    free, cleared : FloatArray, shape (N,)
        GPUs that are free now, and without the jobs.
    """
    weight = held.weight
    whole = bool((weight == 1.0).all())
    order = np.lexsort((-held.amount / weight, held.node))
    at, amount, weight = held.node[order], held.amount[order], weight[order]
    count = np.bincount(at, minlength=len(free))
    first = np.cumsum(count) - count
    given, paid = _sums(amount), _sums(weight)
    within = given[1:] - given[first][at]
    cheapest = np.lexsort((held.seconds, held.node))
    restarts = _sums(held.seconds[cheapest])
    most = int(cleared.max(initial=0.0) + SLACK)
    jobs = np.full((len(free), most + 1), np.inf)
    seconds = jobs.copy()
    jobs[:, 0] = seconds[:, 0] = 0.0
    for gpus in range(1, most + 1):
        need = gpus - free - SLACK
        able = cleared >= gpus - SLACK
        enough = able & (need <= 0)
        jobs[enough, gpus] = seconds[enough, gpus] = 0.0
        short = np.bincount(at[within < need[at]], minlength=len(free))
        some = np.flatnonzero(able & (need > 0) & (short < count))
        last = first[some] + short[some]
        before = given[last] - given[first[some]]
        part = 1.0 if whole else np.clip((need[some] - before) / amount[last], 0.0, 1.0)
        jobs[some, gpus] = paid[last] - paid[first[some]] + part * weight[last]
        so_many = first[some] + short[some] + 1
        seconds[some, gpus] = restarts[so_many] - restarts[first[some]]
        # One job alone must hold enough
        alone = np.full(len(free), np.inf)
        large = held.amount >= need[held.node]
        np.minimum.at(alone, held.node[large], held.seconds[large])
        one = some[short[some] == 0]
        seconds[one, gpus] = alone[one]
    return Leaving(jobs, seconds, whole)


def fewest_leavers(cost: Leaving, gpus: int, nodes: int) -> tuple[float, float]:
    """Migrations that room for a gang costs at least; and seconds of restarts, where there are no more
    migrations than these (0 where jobs span nodes).

    Parameters
    ----------
    cost : Leaving
    gpus, nodes : int
        Of the gang, which is on so many nodes at most.
    """
    if not cost.whole:
        fewest = _least(cost.jobs, gpus, nodes)
        return (float(np.ceil(fewest - SLACK)) if np.isfinite(fewest) else fewest), 0.0
    # More than all restarts together: the number of jobs comes first
    finite = cost.seconds[np.isfinite(cost.seconds)]
    unit = 1.0 + float(finite.sum())
    least = _least(cost.jobs * unit + cost.seconds, gpus, nodes)
    if np.isinf(least):
        return least, 0.0
    jobs = np.floor(least / unit + SLACK)
    return float(jobs), max(0.0, float(least - jobs * unit))


def _least(cost: FloatArray, gpus: int, nodes: int) -> float:
    """The least cost of nodes that give so many GPUs together, shape of ``cost`` (nodes, GPUs + 1)."""
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
