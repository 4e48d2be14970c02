"""Place rows of an allocation that run at the same time on GPUs of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import EMPTY, IntArray
from optsched.candidates import Classes, JobRows
from optsched.errors import UsageError
from optsched.placement.best_fit import best_fit, why_refused
from optsched.placement.bound_cells import BoundCells
from optsched.placement.bounds import bounds, most_bandwidth
from optsched.placement.exact import COLUMNS, size, solve_exactly
from optsched.placement.granted import granted_shares
from optsched.placement.occupied import Occupied, refuse_placed_twice
from optsched.placement.problem import Bounds, Problem, Scored, Worth, better
from optsched.placement.requests import Requests
from optsched.placement.seated import seated
from optsched.placement.shares import FULL, ROUNDING
from optsched.placement.staying import pinned_rows
from optsched.program import GangSeats
from optsched.solution import Placement, Solution
from optsched.solving.engine import Engine

FIGURES = (
    "rows_placed",
    "rows_bound",
    "nodes_spanned",
    "nodes_bound",
    "bandwidth",
    "gpus_moved",
)
"""Figures of a placement that are sums over its parts."""


def place_rows(
    classes: Classes,
    rows: JobRows,
    wanted: IntArray,
    engine: Engine,
    constraints: Iterable[Mapping[str, Any]] = (),
    *,
    columns: int = COLUMNS,
    work: int | None = None,
    occupied: Occupied | None = None,
    barred: Sequence[Collection[str]] | None = None,
    seats: GangSeats | None = None,
    cells: BoundCells | None = None,
) -> Placement:
    """GPUs for rows of an allocation that run at the same time.

    Running jobs that cannot be preempted keep their GPUs (`optsched.placement.staying`); all other
    rows are placed beside them. Each pool is a separate problem; pools with a common resource of
    some nodes are one problem. A problem is solved by best fit, and exactly where best fit leaves a
    gap to its bounds and the integer program has at most ``columns`` columns.

    Parameters
    ----------
    classes : Classes
    rows : JobRows
        The allocation row by row.
    wanted : IntArray
        The rows that run at the same time; rows without GPUs are left out. Of equal rows, the
        first are placed first.
    engine : Engine
        Solves the integer programs and the linear programs of the bounds, within its time.
    constraints : iterable of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    columns : int
        Size up to which a pool is placed exactly.
    work : int, optional
        Nodes of branch and bound after which each integer program stops; by default the engine's
        own limit.
    occupied : Occupied, optional
        Further GPUs that are held and do not move. Running jobs of the wanted rows that can be
        preempted are not among them: they stay where they are unless moving them places more rows
        or spans fewer nodes.
    barred : sequence of collections of str, of the length of ``wanted``, optional
        Names of nodes that each row must not use.
    seats : GangSeats, optional
        A placement that the program of these rows has found; the better one is taken.
    cells : BoundCells, optional
        Reserved cells: jobs of a tenant have GPUs of its cells, all others of no cell. ``seats`` know
        theirs.

    Returns
    -------
    Placement
        With figures: ``rows_wanted``, ``rows_placed`` and ``rows_bound``; ``nodes_spanned``, and
        ``nodes_bound`` for placements of as many rows; ``bandwidth``, the sum of the bottleneck
        bandwidths of gangs of two or more GPUs in GB/s; ``gpus_moved``; ``exact``, 1 where no
        placement is better.

    Raises
    ------
    ValueError
        A job of a wanted row already has GPUs.
    UsageError
        ``barred`` has another length, or names that are no nodes.
    """
    constraints = list(constraints)
    wanted = np.asarray(wanted, np.int64)
    # 1. Jobs that cannot be preempted keep their GPUs.
    fixed = pinned_rows(classes, rows, wanted, constraints, occupied)
    placed = dict(zip(fixed.row.tolist(), fixed.gpus, strict=True))
    refused = {
        row: words for row, words in fixed.refused.items() if classes.gpus[rows.column[row]] > 0
    }
    # 2. All other rows are requests.
    others = ~np.isin(wanted, [*placed, *fixed.refused])
    if barred is not None and len(barred) == len(wanted):
        barred = [barred[i] for i in np.flatnonzero(others).tolist()]
    requests = Requests.of(classes, rows, wanted[others], constraints, barred)
    refuse_placed_twice(fixed.occupied, requests.jobs_of_all)
    wanted_count = len(requests) + len(refused) + len(placed)
    solved = list(_solved_parts(requests, fixed.occupied, engine, columns, work, seats, cells))
    for part in solved:
        placed |= part.gpus
        refused |= part.refused
    kept = rows.take(fixed.row)
    unchanged = placement_worth(classes, kept.job, kept.partner, kept.column, fixed.gpus)
    figures = _total_figures(unchanged, solved)
    figures["rows_wanted"] = float(wanted_count)
    order = np.array(sorted(placed), np.int64)
    gpus = tuple(placed[row] for row in order.tolist())
    return Placement(
        rows,
        order,
        gpus,
        granted_shares(classes, rows.column[order], gpus, fixed.occupied.without(rows.job[order])),
        tuple(sorted(refused.items())),
        figures,
        tuple(fixed.contradicted.items()),
        classes.instance.jobs_table.names,
    )


def _solved_parts(
    requests: Requests,
    occupied: Occupied,
    engine: Engine,
    columns: int,
    work: int | None,
    seats: GangSeats | None,
    cells: BoundCells | None,
) -> Iterator[_Solved]:
    """Placements of the requests; each set of pools with common resources is one problem, and so
    are the GPUs of each owner of cells.
    """
    searcher = engine
    if work is not None:
        limits = replace(engine.limits, work=work)
        searcher = Engine(engine.load, engine.solver, limits, timer=engine.timer)
    owner = np.zeros(len(requests), np.int64)
    if cells is not None:
        owner = cells.owner_of_columns(requests.classes)[requests.column]
    for number in np.unique(owner).tolist():
        own = requests.take(np.flatnonzero(owner == number))
        for pools in _components(own):
            part = own.take(np.flatnonzero(np.isin(own.pool, pools)))
            beside = occupied if cells is None else cells.beside(occupied, number)
            solved = _solve(Problem.of(part, beside), engine, searcher, columns, seats)
            yield solved
            if cells is not None:  # nodes of several owners have their CPUs once
                occupied = occupied.and_also(solved.problem.occupied_by(solved.best.assignment))


def _figures(worth: Worth, limits: Bounds) -> dict[str, float]:
    values = (
        worth.rows,
        limits.rows,
        worth.nodes,
        limits.nodes,
        worth.bandwidth,
        worth.moved,
    )
    return dict(zip(FIGURES, map(float, values), strict=True))


def _total_figures(unchanged: Worth, solved: Sequence[_Solved]) -> dict[str, float]:
    """Sums of the figures of all problems and of the rows that keep their GPUs, for which nothing
    else is possible.
    """
    figures = _figures(unchanged, Bounds(unchanged.rows, unchanged.nodes))
    figures["gpus_moved"] = 0.0
    for part in solved:
        for name, value in _figures(part.best.worth, part.bounds).items():
            figures[name] += value
    figures["exact"] = float(all(part.proven for part in solved))
    return figures


def _components(requests: Requests) -> list[list[int]]:
    """Sets of pools that are placed together because some of their nodes share a resource."""
    instance = requests.classes.instance
    pools = np.unique(requests.pool).tolist()
    component = {pool: pool for pool in pools}
    groups = instance.cluster.groups if requests.group_need.any() else ()
    for group in groups:
        names = frozenset(group.nodes or ())
        joined = set()
        for pool in pools:
            nodes = instance.cluster.pools[pool]
            if any(nodes.node_name(row) in names for row in range(len(nodes.node_gpus))):
                joined.add(component[pool])
        # All components with a node of this group become the first of them.
        for pool, number in component.items():
            if number in joined:
                component[pool] = min(joined)
    return [
        [pool for pool in pools if component[pool] == number]
        for number in sorted(set(component.values()))
    ]


class _Solved(NamedTuple):
    """The best assignment found, bounds on its rows and nodes, and whether it is proven optimal."""

    problem: Problem
    best: Scored
    bounds: Bounds
    proven: bool

    @property
    def gpus(self) -> dict[int, tuple[str, ...]]:
        """GPUs by row of the allocation."""
        row = self.problem.requests.row
        names = self.problem.gpu_names(self.best.assignment)
        return {int(row[request]): gpus for request, gpus in names.items()}

    @property
    def refused(self) -> dict[int, str]:
        """Reason by row of the allocation, for rows without GPUs."""
        row = self.problem.requests.row
        refused = why_refused(self.problem, self.best.assignment)
        return {int(row[refusal.request]): refusal.words for refusal in refused}


def _solve(
    problem: Problem, engine: Engine, searcher: Engine, columns: int, seats: GangSeats | None
) -> _Solved:
    """Best fit in several ways, then the integer program where a gap to the bounds is left."""

    def fitted(keep: bool, smallest: int | None = None) -> Scored:
        return problem.scored(best_fit(problem, keep, smallest))

    given = None if seats is None else problem.scored(seated(problem, seats))
    if given is not None and seats is not None and seats.space.decides_gpus:
        # Only the program knows layouts of GPUs (MIG), as best fit adds up the shares of slices,
        # and cells that are reserved.
        limits = bounds(problem, given.worth, engine)
        return _Solved(problem, given, limits, _meets_bounds(problem, given.worth, limits))
    best = fitted(keep=True)
    # All rows are placed and no gang spans more nodes than it needs: moving jobs gains nothing.
    complete = best.worth.rows == len(problem) and best.worth.nodes <= problem.fewest.sum()
    if not complete and any(held.running for held in problem.held):
        best = better(best, fitted(keep=False))
    if not complete and given is not None:
        best = better(best, given)
    limits = bounds(problem, best.worth, engine)
    if best.worth.rows < limits.rows:
        # Placing the smallest requests first, as many as the bound allows, may place more of them.
        best = better(best, fitted(keep=True, smallest=limits.rows))
        limits = bounds(problem, best.worth, engine)
    proven = _meets_bounds(problem, best.worth, limits)
    # The integer program adds up the shares of slices (MIG), of which only best fit knows layouts.
    if not proven and size(problem) <= columns and problem.nodes.cut is None:
        exact = solve_exactly(problem, best.worth, limits, searcher)
        proven = exact.proven
        if exact.assignment is not None:
            best = better(problem.scored(exact.assignment), best)
    if proven:
        return _Solved(problem, best, Bounds(best.worth.rows, best.worth.nodes), True)
    return _Solved(problem, best, bounds(problem, best.worth, engine), False)


def _meets_bounds(problem: Problem, worth: Worth, limits: Bounds) -> bool:
    """Whether the bounds prove that no assignment is better."""
    if Bounds(worth.rows, worth.nodes) != limits or worth.moved or worth.rows < len(problem):
        return False
    return worth.bandwidth >= most_bandwidth(problem) * (1 - ROUNDING)


def placement_worth(
    classes: Classes,
    job: IntArray,
    partner: IntArray,
    column: IntArray,
    gpus: Sequence[Sequence[str]],
) -> Worth:
    """The objective of a placement without flaws (`check_placement`).

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
    problem = Problem.of(requests, every_node=True)
    number = {problem.nodes.name(node): node for node in range(len(problem.nodes))}
    assignment = {}
    for request, row in enumerate(requests.row.tolist()):
        parts = [gpu.rpartition("/") for gpu in gpus[row]]
        spots = [(number[node], int(index)) for node, _, index in parts]
        assignment[request] = np.array(spots, np.int64)
    return problem.worth(assignment)


def runs_first(solution: Solution) -> IntArray:
    """Rows of the allocation that run first: those of the first slice of its rounds;
    without rounds, all rows if they fit at once.

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
            return EMPTY
        first = solution.rounds.runs[[0]]
        return np.unique(first.indices[first.data != 0]).astype(np.int64)
    allocation = solution.allocation
    rows = np.flatnonzero(allocation.rows.fraction > 0)
    excess = _excess(allocation.classes, allocation.rows, rows)
    if excess:
        raise UsageError(
            f"the rows of this allocation take turns and can't all be placed at once ({excess}): "
            "realise it in rounds first (--rounds), or say which rows run at the same time"
        )
    return rows


def _excess(classes: Classes, rows: JobRows, wanted: IntArray) -> str:
    """Why rows cannot run at the same time, by their jobs and by the capacities of pools; empty if
    neither forbids it.
    """
    names = classes.instance.jobs_table.names
    resources = classes.resources
    jobs = np.concatenate([rows.job[wanted], rows.partner[wanted]])
    distinct, count = np.unique(jobs[jobs >= 0], return_counts=True)
    if (count > 1).any():
        job = int(np.argmax(count))
        return f"job {names[int(distinct[job])]} has {count[job]} rows"
    at_once = np.bincount(rows.column[wanted], minlength=classes.columns).astype(np.float64)
    usage = np.asarray(classes.usage @ at_once)
    over = np.flatnonzero(resources.renewable & (usage > resources.capacity * FULL))
    if not len(over):
        return ""
    r = int(over[0])
    unit = "GPUs of " if resources.pool[r] >= 0 else ""
    return (
        f"they need {usage[r]:g} {unit}{resources.names[r]}, "
        f"of which there are {resources.capacity[r]:g}"
    )
