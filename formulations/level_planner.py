"""Plans by rule for jobs that may run at several levels and must meet deadlines.

Jobs come one after the other. Each takes the level with the least GPU time that still meets its
deadline, in the earliest room that those before it leave; one that does not fit may take the place
of another that costs more. A plan begins at events: it knows no grid of time, and it needs no
solver. A plan that is found is a witness: these jobs can meet their deadlines. That none is found
proves nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from formulations.horizon import ROUNDING
from formulations.lease_room import Holds
from optsched.arrays import BoolArray, FloatArray, IntArray, owners
from optsched.candidates import Classes
from optsched.formulation import Restarts
from optsched.instance.restart import restart_costs
from optsched.solution import Schedule

VICTIMS = 4
"""Planned jobs that are tried, one after the other, to make room for a promised one."""
WEIGHT_OF_COST = 0.2
"""Seconds by which a GPU second puts a job back in the order by deadline and cost."""

Piece = tuple[float, float]
"""Begin and end, seconds from now."""
Stretch = tuple[int, int, float, float]
"""Row of the job table, column of the classes, begin and end in seconds from now."""

# --- jobs and their levels ------------------------------------------------------------------------


class Level(NamedTuple):
    """One way to run what is left of a job.

    Attributes
    ----------
    column : int
        Column of the classes.
    holds : Holds
        Renewable resources and amounts, while it runs.
    gpus : float
        GPUs that it holds.
    duration : float
        Seconds to the end of the job, restarts not counted.
    deadline : float
        Seconds from now until which the level may be used.
    value : float
        Of a job that is done at this level.
    first, again : float
        Seconds until the first piece makes progress, and each later one: a job that never ran has
        nothing to restore before its first.
    onward : float or None
        The same for a job that goes on from now as it runs; None: it does not run so.
    spends : Holds
        Consumable resources and amounts, for all that is left.
    """

    column: int
    holds: Holds
    gpus: float
    duration: float
    deadline: float
    value: float = 1.0
    first: float = 0.0
    again: float = 0.0
    onward: float | None = None
    spends: Holds = ()

    @property
    def shortest(self) -> float:
        """Seconds to the end of the job if nothing interrupts it."""
        return self.duration + (self.first if self.onward is None else self.onward)

    @property
    def cost(self) -> float:
        """GPU seconds if nothing interrupts it."""
        return self.gpus * self.shortest


@dataclass(frozen=True)
class LevelJob:
    """A job with a deadline.

    Attributes
    ----------
    job : int
        Row of the job table.
    levels : sequence of Level
    release : float
        Seconds from now until it arrives.
    promised : bool
        Whether it must meet its deadline: it makes way for no other job.
    preemptible : bool
        Whether it may run in several pieces.
    """

    job: int
    levels: Sequence[Level]
    release: float = 0.0
    promised: bool = False
    preemptible: bool = True

    @property
    def goes_on(self) -> Level | None:
        """The level of a running job that cannot be preempted."""
        if self.preemptible:
            return None
        return next((level for level in self.levels if level.onward is not None), None)

    @cached_property
    def in_time(self) -> list[Level]:
        """Levels at which it would meet the deadline alone, the most valuable and cheapest first."""
        levels = self.levels if self.goes_on is None else [self.goes_on]
        return sorted(
            (level for level in levels if _by(self.release + level.shortest, level.deadline)),
            key=lambda level: (-level.value, level.cost, level.column),
        )

    @property
    def deadline(self) -> float:
        """The last one."""
        return max((level.deadline for level in self.levels), default=0.0)

    @property
    def slack(self) -> float:
        """The most seconds that it can wait."""
        return max((level.deadline - level.shortest for level in self.levels), default=0.0)

    @property
    def deadline_and_cost(self) -> float:
        """The last deadline, put back by the least GPU time."""
        cheapest = min((level.cost for level in self.in_time), default=0.0)
        return self.deadline + WEIGHT_OF_COST * cheapest


def _by(moment: float, deadline: float) -> bool:
    """Whether a moment is not after a deadline, but for rounding."""
    return moment <= deadline + ROUNDING * max(deadline, 1.0)


@dataclass(frozen=True)
class Run:
    """A level and its pieces."""

    level: Level
    pieces: tuple[Piece, ...]

    @cached_property
    def cost(self) -> float:
        """GPU seconds."""
        return self.level.gpus * sum(end - begin for begin, end in self.pieces)


# --- what is free ---------------------------------------------------------------------------------


class Profile:
    """What is free of each resource from now on, in steps.

    Plain lists: a job needs a few numbers, for which arrays cost more than they save.

    Parameters
    ----------
    times : sequence of float
        When steps begin, seconds from now, ascending; the first is 0, and the last goes on.
    free : sequence of sequences of float, shape (R, steps)
        Of renewable resources.
    left : sequence of float, shape (B,)
        Of consumable resources.
    """

    def __init__(
        self,
        times: Sequence[float],
        free: Sequence[Sequence[float]],
        left: Sequence[float] = (),
    ) -> None:
        self.times = list(times)
        self.free = [list(amounts) for amounts in free]
        self.left = list(left)

    def copy(self) -> Profile:
        return Profile(self.times, self.free, self.left)

    def affords(self, spends: Holds) -> bool:
        """Whether there is so much left of consumable resources."""
        return all(_by(amount, self.left[resource]) for resource, amount in spends)

    def with_room(self, holds: Holds, begin: float, end: float) -> Sequence[int]:
        """Steps between two times that have room."""
        first = max(bisect_right(self.times, begin + ROUNDING) - 1, 0)
        steps: Sequence[int] = range(first, bisect_left(self.times, end))
        for resource, amount in holds:
            free, least = self.free[resource], amount * (1.0 - ROUNDING)
            steps = [step for step in steps if free[step] >= least]
        return steps

    def take(self, run: Run, sign: float = 1.0) -> None:
        """Count what a run holds and spends; with sign -1 it gives it back."""
        for begin, end in run.pieces:
            first, beyond = self._step(begin), self._step(end)
            for resource, amount in run.level.holds:
                free = self.free[resource]
                for step in range(first, beyond):
                    free[step] -= sign * amount
        for resource, amount in run.level.spends:
            self.left[resource] -= sign * amount

    def _step(self, time: float) -> int:
        """The step that begins at a time; it is made where there is none."""
        step = bisect_left(self.times, time)
        if step == len(self.times) or self.times[step] != time:
            self.times.insert(step, time)
            for free in self.free:
                free.insert(step, free[step - 1])
        return step


def earliest_run(profile: Profile, job: LevelJob, level: Level) -> Run | None:
    """The earliest pieces in which a job at one level ends by its deadline; None if it cannot.

    Stretches with room that are too short for progress are left out.
    """
    if not profile.affords(level.spends):
        return None
    times, ends = profile.times, [*profile.times[1:], math.inf]
    left, begin, delay, done, follows = level.duration, 0.0, math.inf, math.inf, -1
    pieces = []
    for step in profile.with_room(level.holds, job.release, level.deadline):
        if step != follows:  # a new stretch with room; what the last one had is a piece
            if follows >= 0 and job.preemptible and times[follows] - begin > delay:
                pieces.append((begin, times[follows]))
                left -= times[follows] - begin - delay
            begin = max(times[step], job.release)
            delay = level.again if pieces else level.first
            if level.onward is not None and begin == 0:
                delay = level.onward
            done = begin + delay + left
            if not _by(done, level.deadline):
                return None
        if _by(done, ends[step]):
            return Run(level, (*pieces, (begin, done)))
        follows = step + 1
    return None


def cheapest_run(profile: Profile, job: LevelJob) -> Run | None:
    """The run at the first of the job's levels, the most valuable and cheapest first, that fits."""
    runs = (earliest_run(profile, job, level) for level in job.in_time)
    return next((run for run in runs if run is not None), None)


# --- plans ----------------------------------------------------------------------------------------


@dataclass
class LevelPlan:
    """Who is planned, and what is left free.

    Attributes
    ----------
    jobs : sequence of LevelJob
    profile : Profile
        It changes as jobs are added.
    runs : dict of int to Run
        By the number of the job in ``jobs``.
    """

    jobs: Sequence[LevelJob]
    profile: Profile
    runs: dict[int, Run] = field(default_factory=dict)

    @property
    def merit(self) -> tuple[int, float, float]:
        """Promised jobs, value, and GPU time that is not needed: more is better, in this order."""
        runs = self.runs.values()
        promised = sum(self.jobs[number].promised for number in self.runs)
        return promised, sum(run.level.value for run in runs), -sum(run.cost for run in runs)

    def add(self, number: int) -> None:
        """Plan a job beside the others, or in the place of one of them, if it can be."""
        run = cheapest_run(self.profile, self.jobs[number])
        if run is None:
            self._add_in_place_of_another(number)
        else:
            self._put(number, run)

    def _add_in_place_of_another(self, number: int) -> None:
        """Drop the job that is worth least per GPU second, if that makes room for one that is worth
        more, or as much and costs less.

        J. M. Moore, "An n job, one machine sequencing algorithm for minimizing the number of late
        jobs", Management Science 15(1), 1968.
        """
        job = self.jobs[number]
        worth = {n: run.level.value / max(run.cost, ROUNDING) for n, run in self.runs.items()}
        best = next((Run(level, ((0.0, level.shortest),)) for level in job.in_time), None)
        if best is None:
            return
        others = [other for other, run in self.runs.items() if self._makes_way(other, job, best)]
        most = VICTIMS if job.promised else 1
        for other in sorted(others, key=lambda other: (worth[other], other))[:most]:
            dropped = self.runs[other]
            self.profile.take(dropped, -1.0)
            run = cheapest_run(self.profile, job)
            if run is not None and self._makes_way(other, job, run):
                del self.runs[other]
                self._put(number, run)
                return
            self.profile.take(dropped)

    def _makes_way(self, other: int, job: LevelJob, run: Run) -> bool:
        """Whether a planned job makes way for another one that runs so."""
        if self.jobs[other].promised or self.jobs[other].goes_on is not None:
            return False
        its = self.runs[other]
        cheaper = its.level.value == run.level.value and its.cost > run.cost
        return job.promised or its.level.value < run.level.value or cheaper

    def _put(self, number: int, run: Run) -> None:
        self.runs[number] = run
        self.profile.take(run)

    def schedule(self, C: Classes) -> Schedule:
        """The plan as a schedule of the classes that the columns of its levels are of."""
        return schedule_of(
            C,
            [
                (self.jobs[number].job, run.level.column, begin, end)
                for number, run in self.runs.items()
                for begin, end in run.pieces
            ],
        )


def schedule_of(C: Classes, stretches: Sequence[Stretch]) -> Schedule:
    """The schedule of some stretches."""
    job = np.array([job for job, _, _, _ in stretches], np.int64)
    column = np.array([column for _, column, _, _ in stretches], np.int64)
    begin = np.array([begin for _, _, begin, _ in stretches], np.float64)
    end = np.array([end for _, _, _, end in stretches], np.float64)
    now = C.instance.now
    return Schedule.sorted(C, job, column, now + begin, now + end)


ORDERS: tuple[Callable[[LevelJob], float], ...] = (
    lambda job: job.slack,
    lambda job: job.deadline,
    lambda job: job.deadline_and_cost,
)


def plan_levels(jobs: Sequence[LevelJob], profile: Profile) -> LevelPlan:
    """The plan by slack; if jobs are promised and it leaves some out, the best of those in all orders.

    On ElasticFlow's trace the plan by slack keeps most deadlines online, so that no other order is
    tried where all jobs may be declined.

    Parameters
    ----------
    jobs : sequence of LevelJob
    profile : Profile
        What is free; it is not changed.
    """
    promised = sum(job.promised for job in jobs)
    plans = []
    for promised_first in (False, True):
        for order in ORDERS:
            plan = LevelPlan(jobs, profile.copy())
            keys = [
                (job.goes_on is None, promised_first and not job.promised, order(job), number)
                for number, job in enumerate(jobs)
            ]
            for *_, number in sorted(keys):
                plan.add(number)
            plans.append(plan)
            if not promised or len(plan.runs) == len(jobs):
                return plan
        best = max(plans, key=lambda plan: plan.merit)
        if best.merit[0] == promised:
            break
    return best


# --- jobs of an instance --------------------------------------------------------------------------


def level_jobs(
    C: Classes,
    column: IntArray,
    due: FloatArray,
    value: FloatArray,
    promised: BoolArray,
    restarts: Restarts,
) -> list[LevelJob]:
    """The jobs of classes, with their levels.

    Parameters
    ----------
    C : Classes
    column : IntArray, shape (c,)
        Columns of the classes that are levels, ascending.
    due, value : FloatArray, shape (c,)
        Seconds from now to the deadline of each, and its value.
    promised : BoolArray, shape (K,)
        Classes whose jobs must meet their deadlines.
    restarts : Restarts
    """
    table, now = C.instance.jobs_table, C.instance.now
    members, first = C.jobs_by_class
    k = C.class_a[column]
    count = first[k + 1] - first[k]
    level = owners(count)  # one entry per job and level
    job = members[np.arange(len(level)) - (np.cumsum(count) - count)[level] + first[k[level]]]
    pool, gpus = C.pool[column][level], C.gpus[column][level]
    again = restart_costs(C.instance, job, pool, gpus)
    runs = np.full((2, len(table)), -1, np.int64)
    runs[:, table.places.job] = table.places.pool, table.places.length
    onward = np.where(
        (runs[0, job] == pool) & (runs[1, job] == gpus), restarts.restoring[job], np.nan
    )
    held = np.where(pool >= 0, gpus * C.configurations.share[C.configuration[column]][level], 0.0)
    usage = C.usage.tocsc()
    renewable = C.resources.renewable
    place = np.where(renewable, np.cumsum(renewable), np.cumsum(~renewable)) - 1
    holds = []
    spends = []
    for one in column.tolist():
        part = slice(usage.indptr[one], usage.indptr[one + 1])
        used = list(zip(usage.indices[part].tolist(), usage.data[part].tolist(), strict=True))
        holds.append([(int(place[r]), amount) for r, amount in used if renewable[r] and amount > 0])
        spends.append([(int(place[r]), amount) for r, amount in used if not renewable[r]])
    entries = zip(
        job.tolist(), level.tolist(), held.tolist(), C.sure_duration[column][level].tolist(),
        np.where(restarts.ran[job], again, 0.0).tolist(), again.tolist(), onward.tolist(),
        strict=True,
    )  # fmt: skip
    levels: dict[int, list[Level]] = {}
    for j, one, gpu, duration, start, later, goes_on in entries:
        levels.setdefault(j, []).append(
            Level(
                int(column[one]), holds[one], gpu, duration, float(due[one]), float(value[one]),
                start, later, None if np.isnan(goes_on) else goes_on, spends[one],
            )
        )  # fmt: skip
    return [
        LevelJob(
            j, levels[j], max(float(table.arrival[j]) - now, 0.0),
            bool(promised[C.of_job[j]]), bool(table.preemptible[j]),
        )
        for j in sorted(levels)
    ]  # fmt: skip
