"""ElasticFlow as published: the least share of GPUs with which each job meets its deadline, and
expansion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from pydantic import Field

from formulations.deadline_elastic import DeadlineElastic
from formulations.horizon import ROUNDING, Calendar
from formulations.level_planner import Level, LevelJob, LevelPlan, Piece, Profile, Run, run_within
from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.formulation import Formulation, FormulationOptions
from optsched.instance.durations import UNLIMITED, Timer
from optsched.solution import Schedule


class ElasticFlow(DeadlineElastic):
    """The published rule for deadlines of elastic jobs: minimum satisfactory shares, and expansion.

    Sets
        j in J: jobs with a deadline;  l in L_j: their levels by GPUs, up to the fastest;
        t: periods from now on, between which jobs with earlier deadlines start, end or change
        their levels.
    Parameters
        r_jl: work of j per second at l;  D_j: the deadline;  free_t: what jobs with earlier
        deadlines leave in t.
    Rule
        Jobs come by deadline. The share of j is the least level s with which the levels a_t = the
        largest l <= s that fits into free_t do its work, counted from D_j back to some period T. It
        runs at a_t from the begin of T on, and before T at the largest level below s that fits, so
        that it may end early. Jobs that were admitted before keep their deadlines: a newcomer with
        which one of them finds no share is declined. GPUs that are free now go to the jobs one
        level at a time: first to jobs without a GPU, then to those whose GPU time grows most by
        each GPU more (as in the authors' code; in the paper, least).

    `deadline-elastic` has the program, and a rule that keeps more deadlines. Here restarts do not
    count in shares: a job whose restarts do not fit takes a larger share, or is declined. Where all
    must be kept and the rule finds no plan, `deadline-fluid` shows that the instance is infeasible,
    or nothing is proven and the status is ``limit``. The authors' code has more rules: plans are 60
    s apart, ends are rounded up to that, all newcomers of a plan are declined together and never
    asked again, and a table bounds the GPUs of each model.

    Once the time is over, the remaining new jobs get shares of the free GPUs, and no job is planned
    again.

    Options
        admission   jobs may be declined; otherwise all must meet their deadlines.
        capacity    {resource: [capacity in round 0, 1, ...]}: calendars; the last number goes on.

    References
        D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep
        Learning", ASPLOS 2023, sections 4.1 and 4.2.
    """

    name = "elasticflow"
    goes_on = False
    refutes = True
    in_rounds = MappingProxyType({"admission": True})

    class Options(FormulationOptions):
        """Options of the published rule."""

        program: ClassVar[bool] = False
        orders: ClassVar[int] = 1
        intervals: ClassVar[int] = 1
        columns: ClassVar[int] = 1
        admission: bool = False
        slot: ClassVar[float | None] = None
        capacity: Calendar = Field(default_factory=dict)

    def promises(self, schedule: Schedule, promised: BoolArray) -> BoolArray:
        return Formulation.promises(self, schedule, promised)

    def plan_by_rule(
        self, jobs: Sequence[LevelJob], profile: Profile, last: Mapping[int, Run]
    ) -> LevelPlan:
        return plan_shares(jobs, profile, self.timer)


def plan_shares(jobs: Sequence[LevelJob], profile: Profile, timer: Timer = UNLIMITED) -> LevelPlan:
    """The plan of the published rule; ``profile`` is not changed.

    Once the time is over, newcomers take shares of what is left, whatever their deadlines, as those
    of others are not planned again for them.
    """
    plan, stopped = LevelPlan(jobs, profile.copy()), False
    for number in sorted(range(len(jobs)), key=lambda number: _place(jobs, number)):
        run = _share(jobs[number], plan.profile) if jobs[number].promised else None
        if run is not None:
            plan.put(number, run)
    for number in [number for number, job in enumerate(jobs) if not job.promised]:
        stopped = stopped or timer.is_over
        if not stopped:
            plan = _with_newcomer(plan, number, profile) or plan
        elif (run := _share(jobs[number], plan.profile)) is not None:
            plan.put(number, run)
    _expand(plan, timer)
    return plan


def _place(jobs: Sequence[LevelJob], number: int) -> tuple[bool, float, int]:
    """The place of a job in the order by deadline."""
    return jobs[number].goes_on is None, jobs[number].deadline, number


def _with_newcomer(plan: LevelPlan, number: int, profile: Profile) -> LevelPlan | None:
    """The plan with one job more; None if one of them finds no share."""
    jobs, place = plan.jobs, _place(plan.jobs, number)
    other = LevelPlan(jobs, profile.copy())
    for n in sorted([*plan.runs, number], key=lambda n: _place(jobs, n)):
        before = _place(jobs, n) < place
        run = plan.runs[n] if before else _share(jobs[n], other.profile)
        if run is None:
            return None
        other.put(n, run)
    return other


def _levels(job: LevelJob) -> list[Level]:
    """Its levels by GPUs, up to the fastest, until its deadline."""
    if job.goes_on is not None:
        return [job.goes_on]
    levels = [level for level in job.levels if level.deadline == job.deadline]
    levels.sort(key=lambda level: (level.gpus, level.duration))
    return levels[: 1 + int(np.argmin([level.duration for level in levels]))]


def _share(job: LevelJob, profile: Profile) -> Run | None:
    """The run with the minimum satisfactory share; None if there is none."""
    levels = _levels(job)
    if job.goes_on is not None:
        return profile.earliest(job, levels)
    begin, stop, room = profile.room(levels, job.release, job.deadline)
    rate = np.array([0.0, *(1.0 / level.duration for level in levels)])
    largest = np.zeros(len(begin), np.int64)
    for share in range(1, len(levels) + 1):
        smaller, largest = largest, np.where(room[share - 1], share, largest)
        work = rate[largest] * (stop - begin)
        enough = np.flatnonzero(np.cumsum(work[::-1])[::-1] >= 1.0 - ROUNDING)
        if not len(enough):
            continue
        # The last period from whose begin on all work fits.
        chosen = np.where(np.arange(len(begin)) >= enough[-1], largest, smaller)
        run = run_within(job, _pieces(levels, chosen, begin, stop))
        if run is not None:
            return run
    return None


def _pieces(
    levels: Sequence[Level], chosen: IntArray, begin: FloatArray, stop: FloatArray
) -> list[Piece]:
    """Pieces at the level of each period, counted from 1, 0 for none; those that follow each other
    at the same level are one.
    """
    pieces: list[Piece] = []
    for number, start, end in zip(chosen.tolist(), begin.tolist(), stop.tolist(), strict=True):
        if not number or start >= end:
            continue
        level = levels[number - 1]
        if pieces and pieces[-1].level is level and pieces[-1].end == start:
            start = pieces.pop().begin
        pieces.append(Piece(level, start, end))
    return pieces


def _expand(plan: LevelPlan, timer: Timer) -> None:
    """Give GPUs that are free now to jobs, one level at a time, until the time is over."""
    while not timer.is_over:
        wider = {n: run for n in plan.runs if (run := _wider(plan, n)) is not None}
        if not wider:
            return
        best = max(wider, key=lambda n: _gain(plan.runs[n], wider[n]))
        plan.profile.take(plan.runs[best], -1.0)
        plan.put(best, wider[best])
    plan.stopped = True


def _now(run: Run) -> Level | None:
    """The level at which a job runs now."""
    level, begin, _ = run.pieces[0]
    return level if begin == 0 else None


def _gain(run: Run, wider: Run) -> tuple[bool, float]:
    """Whether a job has no GPU, and how much its GPU time grows by each GPU more."""
    now = _now(run)
    more = wider.pieces[0].level.gpus - (0.0 if now is None else now.gpus)
    return now is None, (wider.cost - run.cost) / more


def _wider(plan: LevelPlan, number: int) -> Run | None:
    """The run of a job at the next level with more GPUs for as long as there is room from now on;
    None without.
    """
    job, run = plan.jobs[number], plan.runs[number]
    levels, now = _levels(job), _now(run)
    above = [level for level in levels if now is None or level.gpus > now.gpus]
    if job.release > 0 or not above:
        return None
    plan.profile.take(run, -1.0)
    begin, _, room = plan.profile.room(above[:1], 0.0, job.deadline)
    plan.profile.take(run)
    until = float(np.append(begin, job.deadline)[np.append(room[0], False).argmin()])
    rest = [Piece(level, max(start, until), end) for level, start, end in run.pieces if end > until]
    return run_within(job, [Piece(above[0], 0.0, until), *rest]) if until > 0 else None
