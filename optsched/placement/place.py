"""Place rows of an allocation that run at the same time on GPUs of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optsched.arrays import IntArray
from optsched.candidates import Classes, JobRows
from optsched.errors import UsageError
from optsched.placement.best_fit import best_fit
from optsched.placement.bounds import bounds, most_bandwidth
from optsched.placement.exact import COLUMNS, size, solve_exactly
from optsched.placement.keeping import unmoved
from optsched.placement.needs import renewable_groups
from optsched.placement.problem import ROUNDING, Assignment, Problem, Worth
from optsched.placement.refusal import why_refused
from optsched.placement.requests import Requests
from optsched.placement.standing import Standing, refuse_standing
from optsched.solution.placement import Placement
from optsched.solution.solution import Solution
from optsched.solving.engine import Engine


def place_rows(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    engine: Engine,
    constraints: Iterable[Mapping[str, Any]] = (),
    *,
    columns: int = COLUMNS,
    work: int | None = None,
    standing: Standing | None = None,
    barred: Sequence[Collection[str]] | None = None,
) -> Placement:
    """GPUs for rows of an allocation that run at the same time.

    Jobs that run and cannot be preempted keep their GPUs (`optsched.placement.keeping`), and the others find theirs
    beside them. Pools are placed one by one (together where a resource of some nodes joins them). Each is placed by
    best fit, and exactly where that leaves a gap to its bounds and the integer program has at most ``columns`` columns.

    Parameters
    ----------
    classes : Classes
    rows : JobRows
        The allocation row by row.
    wanted : IntArray
        The rows that run at the same time; those without GPUs need no place. Of equal ones the first come first.
    engine : Engine
        Solves the integer programs and the linear programs of the bounds.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    columns : int
        Size up to which a pool is placed exactly.
    work : int, optional
        Nodes of branch and bound after which each integer program stops; by default the engine's own limit.
    standing : Standing, optional
        What stands and does not move, beside the running jobs of the rows wanted that can be preempted: they stay where
        they are unless that is in the way of more rows or fewer nodes.
    barred : sequence of collections of str, of the length of ``wanted``, optional
        Names of nodes of which each row gets nothing.

    Returns
    -------
    Placement
        With figures: ``rows_wanted``, ``rows_placed`` and ``rows_bound``; ``nodes_spanned``, and ``nodes_bound`` for
        placements of as many rows; ``bandwidth``, the sum of the bottlenecks of gangs of two or more GPUs in GB/s;
        ``gpus_moved``; ``exact``, 1 where no placement is better.

    Raises
    ------
    ValueError
        A job stands and is among the rows wanted.
    UsageError
        ``barred`` has another length, or names that are no nodes.
    """
    constraints, wanted = list(constraints), np.asarray(wanted, np.int64)
    stays = unmoved(classes, rows, wanted, constraints, standing)
    rest = ~np.isin(wanted, np.concatenate([stays.row, np.array(list(stays.refused), np.int64)]))
    if barred is not None and len(barred) == len(wanted):
        barred = [names for names, open_ in zip(barred, rest.tolist(), strict=True) if open_]
    requests = Requests.of(classes, rows, wanted[rest], constraints, barred)
    refuse_standing(stays.standing, requests.jobs_of_all)
    searcher = (
        engine
        if work is None
        else Engine(engine.load, engine.solver, replace(engine.limits, work=work))
    )
    placed = dict(zip(stays.row.tolist(), stays.gpus, strict=True))
    refused = [
        (row, words) for row, words in stays.refused.items() if classes.gpus[rows.column[row]] > 0
    ]
    goes_on = _worth_of(classes, rows, stays.row, stays.gpus)
    total = dict.fromkeys(FIGURES, 0.0) | {"exact": 1.0}
    fixed = (goes_on.rows, goes_on.rows, goes_on.nodes, goes_on.nodes, goes_on.bandwidth, 0.0)
    total |= dict(zip(FIGURES, map(float, fixed), strict=True))
    total["rows_wanted"] = float(len(requests) + len(refused) + len(placed))
    for pools in _components(requests):
        part = requests.take(np.flatnonzero(np.isin(requests.pool, pools)))
        problem = Problem.of(part, pools, stays.standing)
        assignment, worth, limits, proven = _solve(problem, engine, searcher, columns)
        names = [problem.nodes.name(node) for node in range(len(problem.nodes))]
        for j, gpus in assignment.items():
            placed[int(part.row[j])] = tuple(f"{names[node]}/{gpu}" for node, gpu in gpus.tolist())
        refused += [
            (int(part.row[told.request]), told.words) for told in why_refused(problem, assignment)
        ]
        found = (worth.rows, limits[0], worth.nodes, limits[1], worth.bandwidth, worth.moved)
        for name, value in zip(FIGURES, found, strict=True):
            total[name] += value
        total["exact"] = min(total["exact"], float(proven))
    order = sorted(placed)
    row = np.array(order, np.int64)
    contradicted = tuple(stays.contradicted.items())
    return Placement(
        rows, row, tuple(placed[r] for r in order), tuple(sorted(refused)), total, contradicted
    )


FIGURES = ("rows_placed", "rows_bound", "nodes_spanned", "nodes_bound", "bandwidth", "gpus_moved")


def _components(requests: Requests) -> list[list[int]]:
    """Pools that are placed together: those that a resource of some nodes joins."""
    instance = requests.classes.instance
    pools = np.unique(requests.pool).tolist()
    of = {pool: pool for pool in pools}
    if requests.group_need.any():
        cluster = instance.cluster
        for group in renewable_groups(instance):
            mine = [
                pool
                for pool in pools
                if not frozenset(group.nodes or ()).isdisjoint(_names(cluster.pools[pool]))
            ]
            joined = {of[pool] for pool in mine}
            of = {pool: min(joined) if part in joined else part for pool, part in of.items()}
    return [[pool for pool in pools if of[pool] == part] for part in sorted(set(of.values()))]


def _names(pool: Any) -> list[str]:
    return [pool.node_name(row) for row in range(len(pool.node_gpus))]


def _solve(
    problem: Problem, engine: Engine, searcher: Engine, columns: int
) -> tuple[Assignment, Worth, tuple[int, int], bool]:
    """The best assignment found, its worth, bounds on rows and nodes, and whether none is better."""
    best = best_fit(problem, keep=True)
    worth = problem.worth(best)
    if any(held.running for held in problem.held) and (
        worth.rows < len(problem) or worth.nodes > problem.fewest.sum()
    ):
        free = best_fit(problem, keep=False)
        if problem.worth(free).key < worth.key:
            best, worth = free, problem.worth(free)
    limits = bounds(problem, worth, engine)
    if worth.rows < limits.rows:
        small = best_fit(problem, keep=True, smallest=limits.rows)
        if problem.worth(small).key < worth.key:
            best, worth = small, problem.worth(small)
            limits = bounds(problem, worth, engine)
    proven = False
    if worth.rows == limits.rows and worth.nodes == limits.nodes and worth.moved == 0:
        proven = worth.rows == len(problem) and worth.bandwidth >= most_bandwidth(problem) * (
            1 - ROUNDING
        )
    if not proven and size(problem) <= columns:
        exact = solve_exactly(problem, worth, limits, searcher)
        proven = exact.proven
        if exact.assignment is not None and problem.worth(exact.assignment).key <= worth.key:
            best, worth = exact.assignment, problem.worth(exact.assignment)
    if proven:
        return best, worth, (worth.rows, worth.nodes), True
    limits = bounds(problem, worth, engine)
    return best, worth, (limits.rows, limits.nodes), False


def placement_worth(
    classes: Classes,
    job: IntArray,
    partner: IntArray,
    column: IntArray,
    gpus: Sequence[Sequence[str]],
) -> Worth:
    """What a placement without flaws (`check_placement`) is worth.

    Parameters
    ----------
    classes : Classes
    job, partner, column : IntArray, shape (P,)
        The rows that are placed.
    gpus : sequence of sequences of str, length P
        ``node/index``.
    """
    ones = np.ones(len(job))
    rows = JobRows(job, partner, column, ones, ones, ones)
    requests = Requests.of(classes, rows, np.arange(len(job)))
    problem = Problem.of(requests, np.unique(requests.pool).tolist())
    number = {problem.nodes.name(node): node for node in range(len(problem.nodes))}
    spots = {
        j: np.array(
            [
                (number[node], int(index))
                for node, _, index in (gpu.rpartition("/") for gpu in gpus[row])
            ]
        )
        for j, row in enumerate(requests.row.tolist())
    }
    return problem.worth(spots)


def _worth_of(
    classes: Classes, rows: JobRows, chosen: IntArray, gpus: Sequence[Sequence[str]]
) -> Worth:
    return placement_worth(
        classes, rows.job[chosen], rows.partner[chosen], rows.column[chosen], gpus
    )


def runs_first(solution: Solution) -> IntArray:
    """Rows of the allocation that run first: in the first slice of its rounds, else all of them if they fit at once.

    Raises
    ------
    UsageError
        There is no allocation, or its rows do not fit at once.
    """
    if solution.allocation is None:
        raise UsageError(
            f"there is nothing to place: the solution is {solution.status} and has no allocation"
        )
    if solution.rounds is not None:
        if not len(solution.rounds):
            return np.zeros(0, np.int64)
        first = solution.rounds.runs[[0]]
        return np.unique(first.indices[first.data != 0]).astype(np.int64)
    allocation = solution.allocation
    rows = np.flatnonzero(allocation.rows.fraction > 0)
    told = _excess(allocation.classes, allocation.rows, rows)
    if told:
        raise UsageError(
            f"the rows of this allocation take turns and can't all be placed at once ({told}): "
            "realise it in rounds first (--rounds), or say which rows run at the same time"
        )
    return rows


def _excess(classes: Classes, rows: JobRows, wanted: IntArray) -> str:
    """Why rows cannot run at the same time, in words; empty if they can, as far as jobs and totals go."""
    names, resources = classes.instance.jobs_table.names, classes.resources
    jobs = np.concatenate([rows.job[wanted], rows.partner[wanted]])
    distinct, count = np.unique(jobs[jobs >= 0], return_counts=True)
    if (count > 1).any():
        job = int(np.argmax(count))
        return f"job {names[int(distinct[job])]} has {count[job]} rows"
    at_once = np.bincount(rows.column[wanted], minlength=classes.columns).astype(np.float64)
    usage = np.asarray(classes.usage @ at_once)
    over = np.flatnonzero(resources.renewable & (usage > resources.capacity * (1 + ROUNDING)))
    if not len(over):
        return ""
    r = int(over[0])
    unit = "GPUs of " if resources.pool[r] >= 0 else ""
    return f"they need {usage[r]:g} {unit}{resources.names[r]}, of which there are {resources.capacity[r]:g}"
