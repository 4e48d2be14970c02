"""ElasticFlow as published: the least share of GPUs with which each job meets its deadline, and
expansion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from pydantic import Field

from formulations.deadline_elastic import DeadlineElastic
from formulations.horizon import ROUNDING, Calendar
from formulations.level_planner import (
    FindOverpriced,
    Level,
    LevelJob,
    LevelPlan,
    Piece,
    Profile,
    Run,
    run_within,
)
from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.formulation import Formulation, FormulationOptions
from optsched.instance.durations import UNLIMITED, Timer
from optsched.solution import Schedule

CAREFUL = 0.5
"""Part of a time limit after which jobs are not planned again for a newcomer."""


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
        that it may end early. Jobs that were admitted before keep their deadlines. Newcomers are
        tried in the order of the jobs, each in a plan of all: one with which some job finds no
        share is declined. GPUs that are free now go to the jobs one level at a time: first to
        jobs without a GPU, then to those whose GPU time grows most by each GPU more (as in the
        authors' code; in the paper, least).

    `deadline-elastic` has the program, and a rule that keeps more deadlines. Here restarts do not
    count in shares: a job whose restarts do not fit takes a larger share, or is declined. Where all
    must be kept and the rule finds no plan, `deadline-fluid` shows that the instance is infeasible,
    or nothing is proven and the status is ``limit``. The authors' simulator has more rules, with
    which far fewer deadlines are kept (docs/studies/simulation-results.md).

    After half of the time that it has, the remaining new jobs get shares of the free GPUs, and no
    job is planned again. Once the time is over, they are declined.

    Options
        admission   jobs may be declined; otherwise all must meet their deadlines.
        capacity    {resource: [capacity in round 0, 1, ...]}: calendars; the last number goes on.

    References
        D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep
        Learning", ASPLOS 2023, sections 4.1 and 4.2.
    """

    name = "elasticflow"
    goes_on = False
    sweeps = False
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
        self,
        jobs: Sequence[LevelJob],
        profile: Profile,
        last: Mapping[int, Run],
        timer: Timer,
        find_overpriced: FindOverpriced | None = None,
    ) -> LevelPlan:
        return plan_shares(jobs, profile, timer)


def plan_shares(jobs: Sequence[LevelJob], profile: Profile, timer: Timer = UNLIMITED) -> LevelPlan:
    """The plan of the published rule; ``profile`` is not changed.

    From `CAREFUL` of the time on, newcomers take shares of what is left, whatever their deadlines,
    as those of others are not planned again for them. Once the time is over, no more are planned.
    """
    plan, careful = LevelPlan(jobs, profile.copy()), timer.part(CAREFUL)
    stays = [job.promised or job.goes_on is not None for job in jobs]
    for number in sorted(np.flatnonzero(stays).tolist(), key=lambda number: _place(jobs, number)):
        if timer.is_over and jobs[number].goes_on is None:  # jobs that go on come first, and must
            plan.stopped = True
            return plan
        if (run := _share(jobs[number], plan.profile)) is not None:
            plan.put(number, run)
    for number in np.flatnonzero(~np.array(stays, bool)).tolist():
        if timer.is_over:
            plan.stopped = True
            return plan
        if not careful.is_over:
            plan = _with_newcomer(plan, number, profile, careful) or plan
        elif (run := _share(jobs[number], plan.profile)) is not None:
            plan.put(number, run)
    _expand(plan, timer)
    return plan


def _place(jobs: Sequence[LevelJob], number: int) -> tuple[bool, float, int]:
    """The place of a job in the order by deadline."""
    return jobs[number].goes_on is None, jobs[number].deadline, number


def _with_newcomer(
    plan: LevelPlan, number: int, profile: Profile, timer: Timer
) -> LevelPlan | None:
    """The plan with one job more; None if one of them finds no share, or there is no time."""
    jobs, place = plan.jobs, _place(plan.jobs, number)
    other = LevelPlan(jobs, profile.copy())
    for n in sorted([*plan.runs, number], key=lambda n: _place(jobs, n)):
        # Jobs before the newcomer have the shares that they had without it.
        before = _place(jobs, n) < place
        run = plan.runs[n] if before else _share(jobs[n], other.profile)
        if run is None or timer.is_over:
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
    if not len(begin):
        return None
    # The largest level, counted from 1, up to each share that fits into each period; 0 for none.
    number = np.arange(len(levels) + 1)[:, np.newaxis]
    fits = np.concatenate([np.ones((1, len(begin)), bool), room])
    largest = np.maximum.accumulate(np.where(fits, number, 0))
    rate = np.array([0.0, *(1.0 / level.duration for level in levels)])
    work = rate[largest] * (stop - begin)
    # Work that a share does from the begin of each period on.
    ahead = work[:, ::-1].cumsum(axis=1)[:, ::-1]
    for share in np.flatnonzero(ahead[:, 0] >= 1.0 - ROUNDING).tolist():
        # The last period from whose begin on all work fits.
        last = np.flatnonzero(ahead[share] >= 1.0 - ROUNDING)[-1]
        chosen = np.append(largest[share - 1, :last], largest[share, last:])
        run = run_within(job, _pieces(levels, chosen, begin, stop))
        if run is not None:
            return run
    return None


def _pieces(
    levels: Sequence[Level], chosen: IntArray, begin: FloatArray, stop: FloatArray
) -> Iterator[Piece]:
    """Pieces at the level of each period, counted from 1, 0 for none; those that follow each other
    at the same level are one.
    """
    new = np.append(True, chosen[1:] != chosen[:-1])
    first = np.flatnonzero(new & (chosen > 0))
    last = np.flatnonzero(np.append(new[1:], True) & (chosen > 0))
    for number, start, end in zip(
        chosen[first].tolist(), begin[first].tolist(), stop[last].tolist(), strict=True
    ):
        if start < end:
            yield Piece(levels[number - 1], start, end)


def _expand(plan: LevelPlan, timer: Timer) -> None:
    """Give GPUs that are free now to jobs, one level at a time, until the time is over."""
    while True:
        wider: dict[int, Run] = {}
        for number in plan.runs:
            if timer.is_over:
                plan.stopped = True
                return
            if (run := _wider(plan, number)) is not None:
                wider[number] = run
        if not wider:
            return
        best = max(wider, key=lambda n: _gain(plan.runs[n], wider[n]))
        plan.profile.take(plan.runs[best], -1.0)
        plan.put(best, wider[best])


def _now(run: Run) -> Level | None:
    """The level at which a job runs now."""
    level, begin, _ = run.pieces[0]
    return level if begin == 0 else None


def _gain(run: Run, wider: Run) -> tuple[bool, float]:
    """Whether a job has no GPU, and how much its GPU time grows by each GPU more: a level without
    GPUs comes first.
    """
    now = _now(run)
    more = wider.pieces[0].level.gpus - (0.0 if now is None else now.gpus)
    return now is None, (wider.cost - run.cost) / more if more else math.inf


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
