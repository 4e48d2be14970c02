"""ElasticFlow as published: the least share of GPUs with which each job meets its deadline, and expansion."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from formulations.deadline_elastic import DeadlineElastic
from formulations.horizon import ROUNDING, Calendar
from formulations.level_planner import Level, LevelJob, LevelPlan, Piece, Profile, Run, run_within
from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.formulation import Formulation, FormulationOptions
from optsched.solution import Schedule


class ElasticFlow(DeadlineElastic):
    """The published rule for deadlines of elastic jobs: minimum satisfactory shares, and expansion.

    Sets
        j in J: jobs with a deadline;  l in L_j: their levels by GPUs, up to the fastest;  t: slots from now on.
    Parameters
        r_jl: work of j in a slot at l;  D_j: the last slot before its deadline;  free_t: what jobs with earlier
        deadlines leave in t.
    Rule
        Jobs come by deadline. The share of j is the least level s with which the levels a_t = the largest l <= s
        that fits into free_t do its work, counted from D_j back to some slot T. It runs at a_t from T on, and before
        T at the largest level below s that fits, so that it may end early. Jobs that were admitted before keep
        their deadlines: a newcomer with which one of them finds no share is declined. GPUs that are free now go to
        the jobs one level at a time: first to jobs without a GPU, then to those whose GPU time grows most by each
        GPU more (as the authors' code has it; the paper asks for the least).

    `deadline-elastic` has the program, and a rule that keeps more deadlines: plans there begin at any moment. Here
    slots count from now, restarts do not count in shares, and a job whose restarts do not fit is declined.

    Options
        admission   jobs may be declined; otherwise all must meet their deadlines.
        slot        length of slots, s.
        capacity    {resource: [capacity in round 0, 1, ...]}: calendars; the last number goes on.

    References
        D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep
        Learning", ASPLOS 2023, sections 4.1 and 4.2.
    """

    name = "elasticflow"
    goes_on = False
    in_rounds = MappingProxyType({"admission": True})

    class Options(FormulationOptions):
        """Options of the published rule."""

        program: ClassVar[bool] = False
        intervals: ClassVar[int] = 1
        admission: bool = False
        slot: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
        capacity: Calendar = Field(default_factory=dict)

    def promises(self, schedule: Schedule, promised: BoolArray) -> BoolArray:
        return Formulation.promises(self, schedule, promised)

    def plan_by_rule(
        self, jobs: Sequence[LevelJob], profile: Profile, last: Mapping[int, Run]
    ) -> LevelPlan:
        return plan_shares(jobs, profile, self.options.slot)


def plan_shares(jobs: Sequence[LevelJob], profile: Profile, slot: float) -> LevelPlan:
    """The plan of the published rule; ``profile`` is not changed."""
    asked = [number for number, job in enumerate(jobs) if job.promised]
    plan = _shares(jobs, profile, asked, slot)
    for number, job in enumerate(jobs):
        if not job.promised:
            other = _shares(jobs, profile, [*plan.runs, number], slot)
            if len(other.runs) > len(plan.runs):
                plan = other
    _expand(plan)
    return plan


def _shares(
    jobs: Sequence[LevelJob], profile: Profile, asked: Sequence[int], slot: float
) -> LevelPlan:
    """Those of the jobs that find a share beside others with earlier deadlines."""
    plan = LevelPlan(jobs, profile.copy())
    for number in sorted(asked, key=lambda n: (jobs[n].goes_on is None, jobs[n].deadline, n)):
        run = _share(jobs[number], plan.profile, slot)
        if run is not None:
            plan.put(number, run)
    return plan


def _levels(job: LevelJob) -> list[Level]:
    """Its levels by GPUs, up to the fastest, until its deadline."""
    if job.goes_on is not None:
        return [job.goes_on]
    levels = [level for level in job.levels if level.deadline == job.deadline]
    levels.sort(key=lambda level: (level.gpus, level.duration))
    return levels[: 1 + int(np.argmin([level.duration for level in levels]))]


def _share(job: LevelJob, profile: Profile, slot: float) -> Run | None:
    """The run with the minimum satisfactory share; None if there is none."""
    levels = _levels(job)
    if job.goes_on is not None:
        return profile.earliest(job, levels)
    end = math.floor(job.deadline / slot + ROUNDING) * slot
    begin, stop, room = profile.room(levels, job.release, end)
    rate = np.array([0.0, *(1.0 / level.duration for level in levels)])
    largest = np.zeros(len(begin), np.int64)
    for share in range(1, len(levels) + 1):
        smaller, largest = largest, np.where(room[share - 1], share, largest)
        work = rate[largest] * (stop - begin)
        until = np.append(np.cumsum(work[::-1])[::-1], 0.0)
        enough = np.flatnonzero(until >= 1.0 - ROUNDING)
        if not len(enough):
            continue
        # The last step from which on all work fits, and the slot in it.
        step = int(enough[-1])
        slots = math.ceil((1.0 - until[step + 1]) / rate[largest[step]] / slot - ROUNDING)
        turn = max(stop[step] - slots * slot, begin[step])
        before = _pieces(levels, smaller, begin, np.minimum(stop, turn))
        after = _pieces(levels, largest, np.maximum(begin, turn), stop)
        run = run_within(job, _joined([*before, *after]))
        if run is not None:
            return run
    return None


def _pieces(
    levels: Sequence[Level], chosen: IntArray, begin: FloatArray, stop: FloatArray
) -> Iterator[Piece]:
    """Pieces at the level of each step, counted from 1; 0 for none."""
    for number, start, end in zip(chosen.tolist(), begin.tolist(), stop.tolist(), strict=True):
        if number and start < end:
            yield Piece(levels[number - 1], start, end)


def _joined(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces of which those that follow each other at the same level are one."""
    joined: list[Piece] = []
    for piece in pieces:
        if joined and joined[-1].level is piece.level and joined[-1].end == piece.begin:
            piece = Piece(piece.level, joined.pop().begin, piece.end)
        joined.append(piece)
    return joined


def _expand(plan: LevelPlan) -> None:
    """Give GPUs that are free now to jobs, one level at a time."""
    while True:
        wider = {n: run for n in plan.runs if (run := _wider(plan, n)) is not None}
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
    """Whether a job has no GPU, and how much its GPU time grows by each GPU more."""
    now = _now(run)
    more = wider.pieces[0].level.gpus - (0.0 if now is None else now.gpus)
    return now is None, (wider.cost - run.cost) / more


def _wider(plan: LevelPlan, number: int) -> Run | None:
    """The run of a job at the next level for as long as there is room from now on; None without."""
    job, run = plan.jobs[number], plan.runs[number]
    levels, now = _levels(job), _now(run)
    above = levels if now is None else levels[1 + levels.index(now) :]
    if job.release > 0 or not above:
        return None
    plan.profile.take(run, -1.0)
    begin, _, room = plan.profile.room(above[:1], 0.0, job.deadline)
    plan.profile.take(run)
    until = float(np.append(begin, job.deadline)[np.append(room[0], False).argmin()])
    rest = [Piece(level, max(start, until), end) for level, start, end in run.pieces if end > until]
    return run_within(job, [Piece(above[0], 0.0, until), *rest]) if until > 0 else None
