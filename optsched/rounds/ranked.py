"""Rounds that follow a ranking of the jobs instead of an allocation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.assembly import compile, constraints_in_force
from optsched.candidates import Classes, JobRows
from optsched.formulation import Infeasible, SideConstraint
from optsched.instance import Instance
from optsched.performance import PerformanceModel
from optsched.ranking import RankedJobs, Ranking, Sizes
from optsched.rounds.allocating import Answer
from optsched.rounds.moves import moves_to_idle, saved_by_rows
from optsched.rounds.order import Order
from optsched.rounds.preemption import starved
from optsched.rounds.rows import rows_alone, take
from optsched.rounds.state import RoundState
from optsched.rounds.view import View


def rank(
    state: RoundState,
    view: View,
    model: Callable[[Instance], PerformanceModel],
    known: Answer | None = None,
) -> Answer:
    """Rows of all jobs in the order of the ranking; equal jobs in the order of their arrival.

    A ranking says who goes first, and nothing of what more GPUs are worth: how many elastic jobs
    take is an option of it (`optsched.ranking.RankingOptions`). By default they have their smallest
    number, and a running job stays where it is unless it ends sooner on faster GPUs that are idle,
    the restart counted (`optsched.rounds.moves`). Jobs that take the most GPUs, or the fastest
    number, take them from running jobs behind them too. Pairs are left out. Side constraints of the
    placement are kept, and those that bar jobs from ways to run; of others a notice says that they
    are not.

    Parameters
    ----------
    state : RoundState
    view : View
        That of the state.
    model : callable
        The performance model of an instance.
    known : Answer, optional
        What the ranking gave before, of the instance as it is now, where no job or node came, went
        or changed since: its rows are put in the order of this time, and nothing is compiled.

    Raises
    ------
    UsageError, InvalidInput
        The ranking or its options are unknown, or the instance cannot be compiled.
    """
    started = time.perf_counter()
    ranking = state.policy.made_ranking()
    given = _unordered(view, model, ranking.sizes) if known is None else known
    C = given.classes
    rows = given.rows
    order = Order.of(ranking, ranked_jobs(state, view.instance, rows, C))
    by_row, moves, at_rest = _row_order(state, view, ranking, given, order.place)
    # A ranking that renews jobs changes its order with time, though nothing happens.
    order = replace(order, at_rest=at_rest and type(ranking).renews is Ranking.renews)
    place = np.empty(len(rows), np.int64)
    place[by_row] = np.arange(len(rows))
    timings = {**given.timings, "allocate": time.perf_counter() - started}
    return replace(
        given, fallback=order.fallback, timings=timings, place=place, order=order, moves=moves
    )


def _row_order(
    state: RoundState, view: View, ranking: Ranking, given: Answer, place: IntArray
) -> tuple[IntArray, Mapping[tuple[int, int], float], bool]:
    """The rows, the first first, seconds that moves of running jobs save by job and column, and `Order.at_rest`."""
    C = given.classes
    rows = given.rows
    running = view.running
    stays = (running.pool[rows.job] == C.pool[rows.column]) & (
        running.gpus[rows.job] == C.gpus[rows.column]
    )
    stays &= view.configured.like(rows.job, C.configuration_labels[rows.column])
    rate = -rows.rate
    gpus = -C.gpus[rows.column]
    sizes = ranking.sizes
    if ranking.moves == "published":
        keys = {"least": (rate, ~stays), "most": (rate, ~stays, gpus), "fastest": (~stays, rate)}[
            sizes
        ]
        return np.lexsort((rows.column, *keys, place[rows.job])), {}, sizes == "least"
    span = np.maximum(C.configurations.nodes[C.configuration[rows.column]], 1)
    continues = stays & (running.nodes[rows.job] <= span) & ~view.evicted[rows.job]
    saved = saved_by_rows(view, state.service, C, rows, continues)
    moves = saved > 0
    if sizes == "most":  # whether a job gets more GPUs is decided before, whatever they save
        moves &= C.gpus[rows.column] == running.gpus[rows.job]
    at_rest = False
    if sizes != "fastest":
        goes_on = np.zeros(len(running.pool), bool)
        goes_on[rows.job[continues]] = True
        waited = state.service.waited(state.now)
        longest = np.where(starved(waited, state.patience, view.never_starved), waited, 0.0)
        order = np.lexsort((rows.column, rate, place[rows.job], -longest[rows.job]))
        order = order[(~goes_on[rows.job] | moves)[order]]
        moves, at_rest = moves_to_idle(
            view, C, rows, order, moves, [own.document() for own in given.constraints]
        )
    group = np.where(moves, 0, np.where(continues, 1, 2))
    keys = (rate, group, gpus) if sizes == "most" else (rate, group)
    some = np.flatnonzero(moves)
    row = zip(rows.job[some].tolist(), rows.column[some].tolist(), strict=True)
    by_row = np.lexsort((rows.column, *keys, place[rows.job]))
    return by_row, dict(zip(row, saved[some].tolist(), strict=True)), at_rest and sizes == "least"


def _unordered(view: View, model: Callable[[Instance], PerformanceModel], sizes: Sizes) -> Answer:
    """All rows that jobs may run in, whoever goes first."""
    started = time.perf_counter()
    instance = view.instance
    constraints = constraints_in_force(instance, view.constraints)
    candidates = compile(instance, model(instance))
    compiled = time.perf_counter() - started
    labels = [own.labels(instance) for own in constraints]
    reads = frozenset[str]().union(*(own.reads for own in constraints))
    candidates = candidates.without_jobs(
        view.outside | view.awaits, "it is not in the ranking of this round"
    )
    candidates = candidates.per_job() if any(own.per_job for own in constraints) else candidates
    C = candidates.classes(reads, [label for label in labels if label is not None])
    barred, kept, notices = _barred(C, constraints)
    rows = rows_alone(C, np.flatnonzero(C.of_job >= 0))
    rows = take(rows, np.flatnonzero(~barred[rows.column]))
    options = C.candidates.columns.option[C.kind_column[rows.column]] >= 0
    least = C.gpus[rows.column] == C.gang[C.class_a[rows.column]]
    rows = take(rows, np.flatnonzero(options | least | (sizes != "least")))
    return Answer(
        C, rows, kept, True, started_from="ranked", timings={"compile": compiled}, notices=notices
    )


def _barred(
    C: Classes, constraints: Sequence[SideConstraint]
) -> tuple[BoolArray, tuple[SideConstraint, ...], tuple[str, ...]]:
    """Columns that constraints bar, shape (N,), the constraints that a ranking keeps, and what to say of the others."""
    barred = np.zeros(C.columns, bool)
    kept = []
    others = []
    for own in constraints:
        if own.of_placement:
            kept.append(own)
            continue
        try:
            rows = own.rows(C)
        except Infeasible:
            others.append(own.kind)
            continue
        if rows is None:
            continue
        if rows.barring:
            barred[rows.closed.indices] = True
            kept.append(own)
        else:
            others.append(own.kind)
    if not others:
        return barred, tuple(kept), ()
    text = f"a ranking gives no fractions of the time, and does not keep the side constraints {', '.join(others)}"
    return barred, tuple(kept), (text,)


def ranked_jobs(state: RoundState, instance: Instance, rows: JobRows, C: Classes) -> RankedJobs:
    """What the ranking sees of the jobs that have rows; deadlines are those of the state, passed or not."""
    given = state.instance.jobs_table
    table = instance.jobs_table
    service = state.service
    job = np.unique(rows.job)
    fastest = np.zeros(len(table))
    np.maximum.at(fastest, rows.job, rows.rate)
    with np.errstate(divide="ignore", invalid="ignore"):  # of jobs that are in no row
        # At the fastest rate of any row: what a ranking may use before it knows where a job runs.
        remaining = np.where(fastest > 0, table.steps_left / fastest, np.inf)
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
