"""Rounds that follow a ranking of the jobs instead of an allocation."""

from __future__ import annotations

import time

import numpy as np

from optsched.arrays import BoolArray
from optsched.assembly import compile, constraints_in_force, model_of
from optsched.candidates import Classes, JobRows
from optsched.instance import Instance
from optsched.performance import PerformanceModel
from optsched.ranking import RankedJobs
from optsched.registry import load_ranking
from optsched.rounds.allocating import Answer
from optsched.rounds.selection import rows_alone, taken
from optsched.rounds.state import RoundState, Running


def rank(state: RoundState, instance: Instance, apart: BoolArray, model: PerformanceModel | None) -> Answer:
    """Rows of all jobs at their gang size, in the order of the ranking; equal jobs in the order of their arrival.

    A job runs on where it is if it can, else in its fastest configuration that has room. Pairs are left out.

    Raises
    ------
    UsageError, InvalidInput
    """
    assert state.policy.ranking is not None
    started = time.perf_counter()
    ranking = load_ranking(state.policy.ranking)(state.policy.options)
    constraints = [own for own in constraints_in_force(instance, state.policy.constraints) if own.of_placement]
    candidates = compile(instance, model_of(instance) if model is None else model)
    compiled = time.perf_counter() - started
    C = candidates.without_jobs(apart, "it is not in the ranking of this round").classes(frozenset())
    rows = rows_alone(C, np.flatnonzero(C.of_job >= 0))
    options = C.candidates.columns.option[C.kind_column[rows.column]] >= 0
    rows = taken(rows, np.flatnonzero(options | (C.gpus[rows.column] == C.gang[C.class_a[rows.column]])))
    jobs = ranked_jobs(state, instance, rows, C)
    order = np.lexsort((jobs.job, jobs.arrival, *reversed(ranking.keys(jobs))))
    turn = np.empty(len(order), np.int64)
    turn[order] = np.arange(len(order))
    running = Running.of(instance)
    stays = (running.pool[rows.job] == C.pool[rows.column]) & (running.gpus[rows.job] == C.gpus[rows.column])
    by_row = np.lexsort((rows.column, -rows.rate, ~stays, turn[np.searchsorted(jobs.job, rows.job)]))
    place = np.empty(len(rows), np.int64)
    place[by_row] = np.arange(len(rows))
    timings = {"compile": compiled, "allocate": time.perf_counter() - started}
    return Answer(
        C, rows, tuple(constraints), True, started_from="ranked", timings=timings, place=place, strict=ranking.strict
    )  # fmt: skip


def ranked_jobs(state: RoundState, instance: Instance, rows: JobRows, C: Classes) -> RankedJobs:
    """What the ranking sees of the jobs that have rows."""
    table, service = instance.jobs_table, state.service
    job = np.unique(rows.job)
    fastest = np.zeros(len(table))
    np.maximum.at(fastest, rows.job, rows.rate)
    with np.errstate(divide="ignore", invalid="ignore"):  # of jobs that are in no row
        remaining = np.where(fastest > 0, table.steps_left / fastest, np.inf)
    return RankedJobs(
        instance, job, C.gang[C.of_job[job]].astype(np.int64), table.arrival[job], table.deadline[job],
        table.weight[job], remaining[job], service.executed[job], service.attained[job],
        service.waited(state.now)[job],
    )  # fmt: skip
