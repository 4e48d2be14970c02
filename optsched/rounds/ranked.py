"""Rounds that follow a ranking of the jobs instead of an allocation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from optsched.arrays import BoolArray
from optsched.assembly import compile, constraints_in_force
from optsched.candidates import Classes, JobRows
from optsched.formulation import Infeasible, SideConstraint
from optsched.instance import Instance
from optsched.performance import PerformanceModel
from optsched.ranking import RankedJobs
from optsched.rounds.allocating import Answer
from optsched.rounds.order import Order
from optsched.rounds.selection import rows_alone, taken
from optsched.rounds.state import RoundState
from optsched.rounds.view import View


def rank(state: RoundState, view: View, model: Callable[[Instance], PerformanceModel]) -> Answer:
    """Rows of all jobs at their gang size, in the order of the ranking; equal jobs in the order of their arrival.

    A job runs on where it is if it can, else in its fastest configuration that has room. Elastic jobs have their
    smallest number of GPUs: a ranking says who goes first, and nothing of what more GPUs are worth. Pairs are left out.
    Side constraints of the placement are kept, and those that bar jobs from ways to run; of others a notice says that
    they are not.

    Parameters
    ----------
    state : RoundState
    view : View
        That of the state.
    model : callable
        The performance model of an instance.

    Raises
    ------
    UsageError, InvalidInput
        The ranking or its options are unknown, or the instance cannot be compiled.
    """
    started, instance = time.perf_counter(), view.instance
    ranking = state.policy.made_ranking()
    constraints = constraints_in_force(instance, view.constraints)
    candidates = compile(instance, model(instance))
    compiled = time.perf_counter() - started
    labels = [own.labels(instance) for own in constraints]
    reads = frozenset[str]().union(*(own.reads for own in constraints))
    candidates = candidates.without_jobs(view.outside | view.awaits, "it is not in the ranking of this round")
    candidates = candidates.per_job() if any(own.per_job for own in constraints) else candidates
    C = candidates.classes(reads, [label for label in labels if label is not None])
    barred, kept, notices = _barred(C, constraints)
    rows = rows_alone(C, np.flatnonzero(C.of_job >= 0))
    rows = taken(rows, np.flatnonzero(~barred[rows.column]))
    options = C.candidates.columns.option[C.kind_column[rows.column]] >= 0
    rows = taken(rows, np.flatnonzero(options | (C.gpus[rows.column] == C.gang[C.class_a[rows.column]])))
    order = Order.of(ranking, ranked_jobs(state, instance, rows, C))
    running = view.running
    stays = (running.pool[rows.job] == C.pool[rows.column]) & (running.gpus[rows.job] == C.gpus[rows.column])
    stays &= view.configured.like(rows.job, C.configuration_labels[rows.column])
    by_row = np.lexsort((rows.column, -rows.rate, ~stays, order.place[rows.job]))
    place = np.empty(len(rows), np.int64)
    place[by_row] = np.arange(len(rows))
    timings = {"compile": compiled, "allocate": time.perf_counter() - started}
    return Answer(
        C, rows, kept, True, fallback=order.fallback, started_from="ranked", timings=timings,
        notices=notices, place=place, order=order,
    )  # fmt: skip


def _barred(
    C: Classes, constraints: Sequence[SideConstraint]
) -> tuple[BoolArray, tuple[SideConstraint, ...], tuple[str, ...]]:
    """Columns that constraints bar, shape (N,), the constraints that a ranking keeps, and what to say of the others."""
    barred, kept, others = np.zeros(C.columns, bool), [], []
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
    told = f"a ranking gives no fractions of the time, and does not keep the side constraints {', '.join(others)}"
    return barred, tuple(kept), (told,)


def ranked_jobs(state: RoundState, instance: Instance, rows: JobRows, C: Classes) -> RankedJobs:
    """What the ranking sees of the jobs that have rows; deadlines are those of the state, passed or not."""
    given, table, service = state.instance.jobs_table, instance.jobs_table, state.service
    job = np.unique(rows.job)
    fastest = np.zeros(len(table))
    np.maximum.at(fastest, rows.job, rows.rate)
    with np.errstate(divide="ignore", invalid="ignore"):  # of jobs that are in no row
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
