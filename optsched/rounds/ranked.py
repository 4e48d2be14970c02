"""Rounds that follow a ranking of the jobs, and moves of running jobs to faster GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, quotient
from optsched.arrays.values import replace
from optsched.assembly import constraints_in_force
from optsched.candidates import Candidates, Classes, JobRows
from optsched.formulation import Infeasible, SideConstraint
from optsched.instance import Instance
from optsched.placement.beside import place_beside
from optsched.placement.instant import first_fit
from optsched.placement.shares import FULL
from optsched.ranking import RankedJobs, Ranking, Sizes
from optsched.rounds.allocation import Answer
from optsched.rounds.idle import seconds_saved
from optsched.rounds.order import Order
from optsched.rounds.preemption import starved
from optsched.rounds.rows import instant_of, rows_alone
from optsched.rounds.state import RoundState
from optsched.rounds.view import InPlace, View

# --- moves to idle GPUs ----------------------------------------------------------------------


def saved_by_rows(
    state: RoundState,
    view: View,
    C: Classes,
    rows: JobRows,
    continues: BoolArray,
) -> FloatArray:
    """Seconds by which the job of each row ends sooner in it than on its present GPUs.

    0 for rows in which a job continues, for jobs that do not run or cannot continue, and for jobs
    that must not be stopped.

    Parameters
    ----------
    state : RoundState
    view : View
    C : Classes
    rows : JobRows, A rows
        Rows of jobs alone.
    continues : BoolArray, shape (A,)
        Rows in which a job continues on its GPUs.

    Returns
    -------
    FloatArray, shape (A,)
    """
    table = view.instance.jobs_table
    rate = np.zeros(len(table))
    np.maximum.at(rate, rows.job[continues], rows.rate[continues])
    rate[view.must] = 0.0
    job = rows.job
    destination = C.pool[rows.column], C.gpus[rows.column]
    stops = state.stops
    saved = seconds_saved(
        table.steps_left[job],
        rate[job],
        rows.rate,
        delay=stops.delays(job, *destination, np.ones(len(rows), bool)),
        delay_there=stops.delays(job, *destination, continues),
    )
    return np.where(continues, 0.0, saved)


def idle_shares(view: View, classes: Classes) -> FloatArray:
    """Share of each renewable resource that no running job holds."""
    renewable = classes.resources.renewable
    capacity = classes.capacity
    left = view.holding.left_of(classes.resources)
    return quotient(left * FULL, capacity)[renewable]


def moves_to_idle(
    view: View,
    classes: Classes,
    rows: JobRows,
    order: IntArray,
    pays: BoolArray,
    constraints: Sequence[Mapping[str, Any]] = (),
) -> BoolArray:
    """Mask of the rows to which running jobs move; shape (A,). No job is stopped for a move.

    Each job in the order gets its first row that fits into the GPUs which no running job holds. A
    move is dropped if the placement finds no GPUs for it, so that no job leaves its GPUs for free
    GPUs that are scattered.

    Parameters
    ----------
    view : View
    classes : Classes
    rows : JobRows, A rows
        Rows of jobs alone.
    order : IntArray
        Rows of waiting jobs, and rows to which a move pays, in the order in which they are tried.
    pays : BoolArray, shape (A,)
        Rows of running jobs to which a move pays.
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    """
    moves = np.zeros(len(rows), bool)
    free = idle_shares(view, classes)
    if not (pays & classes.uses.within(free)[rows.column]).any():
        return moves
    chosen = first_fit(instant_of(rows, classes.uses), order, free)
    position = np.empty(len(rows), np.int64)
    position[order] = np.arange(len(order))
    chosen = chosen[position[chosen].argsort()]
    chosen = chosen[classes.gpus[rows.column[chosen]] > 0]
    # Without the moves that find no GPUs, others may find some: repeat until all moves have GPUs.
    while pays[chosen].any():
        stays = view.running.runs & ~view.running.lost
        stays[rows.job[chosen]] = False
        occupied = view.occupied(stays.nonzero()[0])
        found = place_beside(classes, rows, chosen, occupied, constraints, cells=view.cells)
        refused = np.array([item.row for item in found.refused], np.int64)
        if not pays[refused].any():
            break
        chosen = chosen[~(np.isin(chosen, refused) & pays[chosen])]
    moves[chosen[pays[chosen]]] = True
    return moves


# --- rows in the order of a ranking ----------------------------------------------------------


def rank(
    state: RoundState,
    view: View,
    compiled: Callable[[], Candidates],
    known: Answer | None = None,
) -> Answer:
    """Rows of all jobs in the order of the ranking; equal jobs in the order of their arrival.

    A ranking decides only the order. The number of GPUs of an elastic job is an option of the
    ranking (`optsched.ranking.RankingOptions`). By default it is the smallest number, and a running
    job moves only if it ends sooner on faster idle GPUs, its restart included (`moves_to_idle`).
    With the sizes ``most`` and ``fastest``, jobs also take GPUs from running jobs behind them. No
    two jobs share GPUs. Side constraints of the placement hold, and constraints that bar jobs from
    configurations; a notice names all others, which are ignored.

    Parameters
    ----------
    state : RoundState
    view : View
        That of the state.
    compiled : callable
        The candidates of the view's instance.
    known : Answer, optional
        The last answer, if no job and no node has changed since: its rows are only ordered again,
        and nothing is compiled.

    Raises
    ------
    UsageError, InvalidInput
        The ranking or its options are unknown, or the instance cannot be compiled.
    """
    started = time.perf_counter()
    ranking = state.policy.made_ranking()
    given = _unordered(view, compiled, ranking) if known is None else known
    C = given.classes
    rows = given.rows
    order = Order.of(ranking, ranked_jobs(state, view.instance, rows, C))
    in_place = InPlace(view, C, state.ledger)
    continues = in_place.rows_continue(rows)
    by_row, moves = _row_order(state, ranking, given, in_place, continues, order.position)
    position = np.empty(len(rows), np.int64)
    position[by_row] = np.arange(len(rows))
    timings = {**given.timings, "allocate": time.perf_counter() - started}
    return replace(
        given,
        fallback=order.fallback,
        timings=timings,
        position=position,
        continues=continues,
        order=order,
        moves=moves,
    )


def _row_order(
    state: RoundState,
    ranking: Ranking,
    given: Answer,
    in_place: InPlace,
    continues: BoolArray,
    position: IntArray,
) -> tuple[IntArray, Mapping[tuple[int, int], float]]:
    """The rows in their order, and the seconds that moves of running jobs save, by job and
    column.
    """
    C = given.classes
    rows = given.rows
    view = in_place.view
    sizes = ranking.sizes
    if sizes == "deadline":
        return _deadline_order(state, view, C, rows, continues, position), {}
    if ranking.moves == "published":
        as_now = view.running.pool[rows.job] == C.pool[rows.column]
        as_now &= view.running.gpus[rows.job] == C.gpus[rows.column]
        as_now &= in_place.same_setup(rows.job, rows.column)
        return _published_order(C, rows, sizes, as_now, position), {}
    saved = saved_by_rows(state, view, C, rows, continues)
    moves = saved > 0
    if sizes == "most":
        # The number of GPUs does not depend on the time saved.
        moves &= view.running.gpus[rows.job] == C.gpus[rows.column]
    if sizes != "fastest" and moves.any():
        # With the sizes "fastest" a job takes GPUs from jobs behind it; otherwise it only moves to
        # idle GPUs.
        order = _order_of_idle_gpus(state, view, rows, continues, moves, position)
        constraints = [constraint.document() for constraint in given.constraints]
        moves = moves_to_idle(view, C, rows, order, moves, constraints)
    group = np.where(moves, 0, np.where(continues, 1, 2))
    keys = [rows.column, -rows.rate, group]
    if sizes == "most":
        keys.append(-C.gpus[rows.column])
    by_row = np.lexsort((*keys, position[rows.job]))
    moving = moves.nonzero()[0]
    pairs = zip(rows.job[moving].tolist(), rows.column[moving].tolist(), strict=True)
    seconds = dict(zip(pairs, saved[moving].tolist(), strict=True))
    return by_row, seconds


def _published_order(
    C: Classes, rows: JobRows, sizes: Sizes, as_now: BoolArray, position: IntArray
) -> IntArray:
    """The rows in the order of the published policies: a running job moves whenever another of its
    rows comes first.
    """
    slowest_last = -rows.rate
    keys = {
        "least": (slowest_last, ~as_now),
        "most": (slowest_last, ~as_now, -C.gpus[rows.column]),
        "fastest": (~as_now, slowest_last),
    }
    return np.lexsort((rows.column, *keys[sizes], position[rows.job]))


def _deadline_order(
    state: RoundState,
    view: View,
    C: Classes,
    rows: JobRows,
    continues: BoolArray,
    position: IntArray,
) -> IntArray:
    """The rows of each job: first those that meet the deadline, by GPU time; then the others, by
    end.

    A row takes  delay + S / R  seconds, where S steps are left, R is its rate, and the delay is that
    of a restart unless the job continues. Less GPU time leaves more to the jobs behind it; GPUs
    that stay idle then go to jobs that gain from them (`optsched.rounds.idle`).
    """
    job = rows.job
    delay = state.stops.delays(job, C.pool[rows.column], C.gpus[rows.column], continues)
    seconds = delay + quotient(view.instance.jobs_table.steps_left[job], rows.rate, np.inf)
    late = state.now + seconds > state.instance.jobs_table.deadline[job]
    cost = np.where(late, seconds, C.gpus[rows.column] * seconds)
    # A job that must not be stopped keeps its row.
    stays = continues & view.must[job]
    return np.lexsort((rows.column, ~continues, cost, late, ~stays, position[job]))


def _order_of_idle_gpus(
    state: RoundState,
    view: View,
    rows: JobRows,
    continues: BoolArray,
    moves: BoolArray,
    position: IntArray,
) -> IntArray:
    """Rows that want idle GPUs, in order: rows of waiting jobs, starved jobs first, and moves."""
    goes_on = mask_of(rows.job[continues], len(view.running.pool))
    waited = state.service.waited(state.now)
    longest = np.where(starved(waited, state.patience, view.never_starved), waited, 0.0)
    order = np.lexsort((rows.column, -rows.rate, position[rows.job], -longest[rows.job]))
    wants = ~goes_on[rows.job] | moves
    return order[wants[order]]


def _unordered(view: View, compiled: Callable[[], Candidates], ranking: Ranking) -> Answer:
    """All rows in which jobs may run, without an order."""
    started = time.perf_counter()
    instance = view.instance
    constraints = constraints_in_force(instance, view.constraints)
    candidates = compiled()
    seconds = time.perf_counter() - started
    labels = [constraint.labels(instance) for constraint in constraints]
    reads = frozenset[str]().union(*(constraint.reads for constraint in constraints))
    candidates = candidates.without_jobs(
        view.outside | view.awaits, "it is not in the ranking of this round"
    )
    if any(constraint.per_job for constraint in constraints):
        candidates = candidates.per_job()
    C = candidates.classes(reads, [label for label in labels if label is not None])
    barred, kept, notices = _barred(C, constraints)
    rows = rows_alone(C, (C.of_job >= 0).nonzero()[0])
    rows = rows.take((~barred[rows.column]).nonzero()[0])
    options = C.candidates.columns.option[C.kind_column[rows.column]] >= 0
    least = C.gpus[rows.column] == C.gang[C.class_a[rows.column]]
    rows = rows.take((options | least | (ranking.sizes != "least")).nonzero()[0])
    return Answer(
        C,
        rows,
        kept,
        leaves_idle=ranking.moves == "published",
        started_from="ranked",
        timings={"compile": seconds},
        notices=notices,
    )


def _barred(
    C: Classes, constraints: Sequence[SideConstraint]
) -> tuple[BoolArray, tuple[SideConstraint, ...], tuple[str, ...]]:
    """Columns that constraints bar, shape (N,); the constraints that a ranking keeps; and a notice
    about the others.
    """
    barred = np.zeros(C.columns, bool)
    kept = []
    others = []
    for constraint in constraints:
        if constraint.of_placement or constraint.reserves(C.instance) is not None:
            kept.append(constraint)
            continue
        try:
            rows = constraint.rows(C)
        except Infeasible:
            others.append(constraint.kind)
            continue
        if rows is None:
            continue
        if rows.barring:
            barred[rows.closed.indices] = True
            kept.append(constraint)
        else:
            others.append(constraint.kind)
    if not others:
        return barred, tuple(kept), ()
    text = (
        "a ranking gives no fractions of the time, "
        f"and does not keep the side constraints {', '.join(others)}"
    )
    return barred, tuple(kept), (text,)


def ranked_jobs(state: RoundState, instance: Instance, rows: JobRows, C: Classes) -> RankedJobs:
    """The data of the jobs with rows that a ranking uses; deadlines that have passed are
    included.
    """
    given = state.instance.jobs_table
    table = instance.jobs_table
    service = state.service
    job = np.unique(rows.job)
    fastest = np.zeros(len(table))
    np.maximum.at(fastest, rows.job, rows.rate)
    # The remaining time at the fastest rate of any row.
    remaining = quotient(table.steps_left, fastest, np.inf)
    return RankedJobs(
        instance=instance,
        job=job,
        gpus=C.gang[C.of_job[job]].astype(np.int64),
        arrival=table.arrival[job],
        deadline=given.deadline[job],
        soft=given.soft_deadline[job],
        weight=table.weight[job],
        remaining=remaining[job],
        executed=(service.executed - service.executed_before)[job],
        attained=(service.attained - service.attained_before)[job],
        waited=service.waited(state.now)[job],
    )
