"""Plans by rule for jobs that may run at several levels and must meet deadlines.

Jobs come one after the other. Each takes the level with the least GPU time that still meets its
deadline, in the earliest room that those before it leave, or, in other plans, when most is free. If
no level alone meets it, it takes the fastest that has room at each moment. One that does not fit
may take the place of another that costs more. A plan begins at events: it knows no grid of time,
and it needs no solver. A plan that is found is a witness: these jobs can meet their deadlines. That
none is found proves nothing.

D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning",
ASPLOS 2023, section 4 (shares by deadline; here with exact times in place of slots).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, product
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from formulations.horizon import ROUNDING
from formulations.lease_room import Holds
from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes
from optsched.instance.durations import UNLIMITED, Timer
from optsched.solution import Schedule

VICTIMS = 4
"""Planned jobs that are tried, one after the other, to make room for a promised one."""
COST_BESIDE_DEADLINE, COST_BESIDE_SLACK = 0.2, 0.45
"""Seconds by which a GPU second puts a job back in the orders by deadline, or slack, and cost."""
MOST_REPAIRS = 10
"""Plans of an order in which promised jobs that it left out come first."""
MOST_REPAIRED = 600
"""Jobs in all of these plans."""
MOST_URGENT, FEW_JOBS = 3, 50
"""Plans of an order in which those that found no room come first, where all jobs of few must be
kept."""
MOST_PLANNED = 10_000
"""Jobs in all plans of `plan_levels` together, above which fewer orders are tried: a plan of 5,000
jobs takes one to two seconds. The clock has no part in it, so that the same input gives the same
plan where time suffices.
"""
FOR_ALL = 0.5
"""Part of a time limit after which `plan_levels` searches for better plans than one that keeps all
jobs."""
MOST_MOVABLE = 2_000
"""Planned jobs up to which one of them may make way for another."""

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
        The same for a job that goes on from its release as it runs; None: it does not run so.
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


class Piece(NamedTuple):
    """A job runs at a level without interruption; times in seconds from now."""

    level: Level
    begin: float
    end: float


@dataclass(frozen=True)
class Run:
    """When a job runs, and at which levels.

    Attributes
    ----------
    pieces : tuple of Piece
    parts : tuple of float
        Part of the work that is left which each piece does.
    """

    pieces: tuple[Piece, ...]
    parts: tuple[float, ...] = (1.0,)

    @cached_property
    def cost(self) -> float:
        """GPU seconds of all pieces."""
        return sum(level.gpus * (end - begin) for level, begin, end in self.pieces)

    @cached_property
    def spends(self) -> Holds:
        """Consumable resources and amounts: each level uses up its part of the work's."""
        spent: dict[int, float] = {}
        for (level, _, _), part in zip(self.pieces, self.parts, strict=True):
            for resource, amount in level.spends:
                spent[resource] = spent.get(resource, 0.0) + part * amount
        return list(spent.items())

    @property
    def in_time(self) -> bool:
        """Whether it ends by its deadline."""
        level, _, end = self.pieces[-1]
        return _at_most(end, level.deadline)

    @property
    def value(self) -> float:
        """Of the job that is done at its end."""
        return self.pieces[-1].level.value


@dataclass(frozen=True)
class LevelJob:
    """A job with a deadline.

    Attributes
    ----------
    job : int
        Row of the job table.
    levels : sequence of Level
    release : float
        Seconds from now until it arrives, or its exempt time ends.
    promised : bool
        Whether it must meet its deadline: no other job may take its place.
    preemptible : bool
        Whether it may run in several pieces.
    exempt : float
        Seconds after each start in which it cannot be stopped.
    """

    job: int
    levels: Sequence[Level]
    release: float = 0.0
    promised: bool = False
    preemptible: bool = True
    exempt: float = 0.0

    @property
    def goes_on(self) -> Level | None:
        """The level of a running job that cannot be preempted."""
        if self.preemptible:
            return None
        return next((level for level in self.levels if level.onward is not None), None)

    @cached_property
    def in_time(self) -> list[Level]:
        """Levels at which it would meet the deadline alone, the most valuable and cheapest
        first.
        """
        levels = self.levels if self.goes_on is None else [self.goes_on]
        return sorted(
            (level for level in levels if _at_most(self.release + level.shortest, level.deadline)),
            key=lambda level: (-level.value, level.cost, level.duration, level.column),
        )

    @cached_property
    def first_holds(self) -> tuple[IntArray, FloatArray, FloatArray, float]:
        """The first resource that each level of ``in_time`` holds, shape (levels,), its amount,
        shape (levels, 1), and the least seconds that it lasts, both less rounding; and the last of
        their deadlines.
        """
        holds = [level.holds[0] if level.holds else (0, 0.0) for level in self.in_time]
        least = [min(level.duration, level.shortest) for level in self.in_time]
        return (
            np.array([resource for resource, _ in holds], np.int64),
            np.array([[amount] for _, amount in holds]) * (1.0 - ROUNDING),
            np.array(least) * (1.0 - 2 * ROUNDING),
            max(level.deadline for level in self.in_time),
        )

    @cached_property
    def choices(self) -> list[list[Level]]:
        """Levels at which a run may be, the best choice first: of each value a level alone, the
        cheapest first, then all before the last deadline of that value, the fastest first.
        """
        found: list[list[Level]] = []
        for _, of_value in groupby(self.in_time, key=lambda level: level.value):
            single = list(of_value)
            found += [[level] for level in single]
            due = max(level.deadline for level in single)
            mixture = [
                level
                for level in self.levels
                if level.deadline == due and level.value == single[0].value
            ]
            if self.preemptible and len(mixture) > 1 and not any(level.spends for level in mixture):
                found.append(sorted(mixture, key=lambda level: level.duration))
        return found

    @cached_property
    def _aims(self) -> list[Level]:
        """Levels with the largest value that it can have alone."""
        levels = self.in_time or self.levels
        return [level for level in levels if level.value == levels[0].value]

    @cached_property
    def deadline(self) -> float:
        """The last one of those with the largest value that it can have."""
        return max((level.deadline for level in self._aims), default=0.0)

    @cached_property
    def slack(self) -> float:
        """The most seconds that it can wait before that is lost."""
        return max((level.deadline - level.shortest for level in self._aims), default=0.0)

    @property
    def least_cost(self) -> float:
        """The least GPU seconds with which it has that value; 0 if it cannot be in time."""
        return self.in_time[0].cost if self.in_time else 0.0


def _at_most(number: float, limit: float) -> bool:
    """Whether a moment, an amount or a cost is at most a limit, but for rounding."""
    return number <= limit + ROUNDING * max(limit, 1.0)


def run_within(
    job: LevelJob, stretches: Iterable[Piece], work: float = 1.0, whole: bool = True
) -> Run | None:
    """The run of a job that takes stretches of time one after the other until its work is done.

    Pieces too short for progress are left out.

    Parameters
    ----------
    job : LevelJob
    stretches : iterable of Piece
        Ascending.
    work : float
        Part of its work that is to be done.
    whole : bool
        Whether all of this work is to be done, or as much as there is time for.

    Returns
    -------
    Run or None
        None if the stretches are not enough.
    """
    left = work
    pieces: list[Piece] = []
    parts: list[float] = []
    for level, start, stop in stretches:
        delay = level.again if pieces else level.first
        if start == job.release and level.onward is not None:
            delay = level.onward
        progress = stop - start - delay
        if progress >= (left - ROUNDING * work) * level.duration:
            end = start + delay + left * level.duration
            # Rounding leaves no sliver of time before what begins at the end of the stretch.
            end = stop if _at_most(stop, end) else end
            return Run((*pieces, Piece(level, start, end)), (*parts, left))
        if job.preemptible and progress > ROUNDING * max(stop, 1.0):
            pieces.append(Piece(level, start, stop))
            parts.append(progress / level.duration)
            left -= parts[-1]
    return Run(tuple(pieces), tuple(parts)) if pieces and not whole else None


def _run_in_steps(
    job: LevelJob, level: Level, starts: FloatArray, ends: FloatArray, chosen: IntArray
) -> Run | None:
    """The run at a level in some steps of a profile: in all of each, but for the last of ``chosen``,
    of which only a part may be needed. None if they are not enough.

    Parameters
    ----------
    job : LevelJob
    level : Level
    starts, ends : FloatArray, shape (steps,)
        Of all steps, ascending.
    chosen : IntArray
        Numbers of those in which it runs, in any order.
    """
    steps = np.sort(chosen)
    begin, end = starts[steps], ends[steps]
    goes_on = begin[1:] == end[:-1]
    restarts = level.again * int(np.count_nonzero(~goes_on))
    spare = float((end - begin).sum() - level.shortest) - restarts
    if spare < 0:
        return None
    cut = int(np.searchsorted(steps, chosen[-1]))
    if spare <= ROUNDING * max(float(end[cut]), 1.0):
        spare = 0.0
    # Where another step follows at once the first part is left out: the run goes on into it.
    if cut < len(goes_on) and goes_on[cut]:
        begin[cut] = min(begin[cut] + spare, end[cut])
    else:
        end[cut] = max(end[cut] - spare, begin[cut])
    stops = (begin[1:] != end[:-1]).nonzero()[0]
    begins = [float(begin[0]), *begin[stops + 1].tolist()]
    pieces = zip(begins, [*end[stops].tolist(), float(end[-1])], strict=True)
    return run_within(job, (Piece(level, start, stop) for start, stop in pieces))


# --- what is free ---------------------------------------------------------------------------------


class Profile:
    """What is free of each resource from now on, in steps.

    Parameters
    ----------
    times : FloatArray, shape (steps,)
        When steps begin, seconds from now, ascending; the first is 0, and the last goes on.
    free : FloatArray, shape (R, steps)
        Of renewable resources.
    left : FloatArray, shape (B,)
        Of consumable resources.
    """

    def __init__(self, times: FloatArray, free: FloatArray, left: FloatArray) -> None:
        self._edges = np.append(times, math.inf)
        self.free, self.left = free.copy(), left.copy()

    @property
    def times(self) -> FloatArray:
        """When the steps begin, seconds from now, shape (steps,)."""
        return self._edges[:-1]

    def copy(self) -> Profile:
        return Profile(self.times, self.free, self.left)

    def beside(self, held: sp.csr_matrix, until: FloatArray, spent: FloatArray) -> Profile:
        """What is left beside jobs that run from now on.

        Parameters
        ----------
        held : csr_matrix, shape (R, jobs)
            What each holds of renewable resources.
        until : FloatArray, shape (jobs,)
            Seconds from now until which it does.
        spent : FloatArray, shape (B,)
            What all use up.
        """
        times = np.union1d(self.times, until)
        free = self.free[:, np.searchsorted(self.times, times, "right") - 1]
        resource, job, amount = sp.find(held)
        ends = np.zeros(free.shape)
        np.add.at(ends, (resource, np.searchsorted(times, until)[job]), amount)
        later = np.cumsum(ends[:, ::-1], axis=1)[:, ::-1] - ends
        return Profile(times, free - later, self.left - spent)

    def cheapest(self, job: LevelJob, levelled: bool = False) -> Run | None:
        """The run at the first of the job's choices that fits: the earliest, or `levelled`."""
        may_fit = iter(self._may_fit(job))
        for levels in job.choices:
            single = len(levels) == 1
            if single and not next(may_fit):
                continue
            by_room = levelled and single and job.preemptible
            run = self.levelled(job, levels[0]) if by_room else self.earliest(job, levels)
            if run is not None:
                return run
        return None

    def _may_fit(self, job: LevelJob) -> list[bool]:
        """Whether the first thing that each level of ``in_time`` holds is free for as long as it
        lasts.
        """
        if not job.in_time:
            return []
        resource, amount, least, last = job.first_holds
        first, beyond = self._steps(job.release, last)
        edges = self._edges[first : beyond + 1].copy()
        edges[0], edges[-1] = max(edges[0], job.release), min(edges[-1], last)
        room = self.free[resource, first:beyond] >= amount
        return list((room.astype(np.float64) @ (edges[1:] - edges[:-1]) >= least).tolist())

    def earliest(
        self,
        job: LevelJob,
        levels: Sequence[Level],
        *,
        begin: float = 0.0,
        end: float = math.inf,
        work: float = 1.0,
        taken: Sequence[Piece] = (),
        whole: bool = True,
    ) -> Run | None:
        """The earliest pieces in which a job does its work, at each moment at the first of some
        levels that has room; None if they are not enough. Pieces too short for progress are left
        out.

        Parameters
        ----------
        job : LevelJob
        levels : sequence of Level
            With one deadline.
        begin, end : float
            Seconds from now between which it may run.
        work : float
            Part of its work that is to be done.
        taken : sequence of Piece
            When it runs already.
        whole : bool
            Whether all of this work is to be done, or as much as there is room for.
        """
        begin, end = max(begin, job.release), min(end, levels[0].deadline)
        shortest = min(level.duration for level in levels)
        least = (1.0 - 2 * ROUNDING) * work * shortest if whole else 0.0
        return run_within(job, self._stretches(levels, begin, end, work, taken, least), work, whole)

    def levelled(self, job: LevelJob, level: Level) -> Run | None:
        """The run at a level in the steps in which most is free, of these in the first.

        Runs of this kind leave as much room at one time as at another, so that later jobs, which
        run on few GPUs for most of their time, fit beside each other (R. McNaughton, "Scheduling
        with deadlines and loss functions", Management Science 6(1), 1959, cuts jobs in this way).
        """
        first, beyond = self._steps(job.release, level.deadline)
        able = first + self._is_free(level, first, beyond).nonzero()[0]
        starts, ends = self._edges[able], self._edges[able + 1]
        # Only the first and the last may be outside.
        starts[:1] = starts[:1].clip(job.release)
        ends[-1:] = ends[-1:].clip(None, level.deadline)
        lasts, least = ends - starts, min(level.duration, level.shortest)
        if lasts.sum() < least * (1.0 - ROUNDING):
            return None
        free = np.full(len(able), math.inf)
        for r, amount in level.holds:
            np.minimum(free, self.free[r, able] / amount, out=free)
        # A gap that is rounding comes last: it would be a stop in the plan, and none in the
        # schedule.
        free[lasts <= ROUNDING * np.maximum(ends, 1.0)] = -1.0
        most_free = (-free).argsort(kind="stable")
        # Each piece costs a restart: more steps may be needed than have the seconds.
        fewest = 1 + int(lasts[most_free].cumsum().searchsorted(least))
        for count in range(fewest, len(most_free) + 1):
            run = _run_in_steps(job, level, starts, ends, most_free[:count])
            if run is not None:
                return run
        return None

    def _stretches(
        self,
        levels: Sequence[Level],
        begin: float,
        end: float,
        work: float,
        taken: Sequence[Piece],
        least: float,
    ) -> Iterator[Piece]:
        """The stretches of time in which one of some levels, and always the first, has room; none
        if they are shorter than ``least`` seconds together.
        """
        starts, ends, room = self.room(levels, begin, end, work)
        for piece in taken:
            room[:, (starts >= piece.begin) & (starts < piece.end)] = False
        some = room[0] if len(levels) == 1 else room.any(axis=0)
        if not len(starts) or float((ends - starts) @ some) < least:
            return
        chosen = np.where(some, room.argmax(axis=0), -1)
        begins = [0, *((chosen[1:] != chosen[:-1]).nonzero()[0] + 1).tolist()]
        times = starts[begins].tolist()
        numbers = chosen[begins].tolist()
        for number, start, stop in zip(numbers, times, [*times[1:], end], strict=True):
            if number >= 0:
                yield Piece(levels[number], start, stop)

    def room(
        self, levels: Sequence[Level], begin: float, end: float, work: float = 1.0
    ) -> tuple[FloatArray, FloatArray, BoolArray]:
        """When the steps of a stretch of time begin and end, shape (steps,), and whether there is
        room for a part of the work in each of some levels in each of them, shape (levels, steps).
        """
        first, beyond = self._steps(begin, end)
        room = np.array([self._is_free(level, first, beyond, work) for level in levels])
        # Only the first and the last edge may be outside.
        edges = self._edges[first : beyond + 1].copy()
        edges[0], edges[-1] = max(edges[0], begin), min(edges[-1], end)
        return edges[:-1], edges[1:], room

    def _is_free(self, level: Level, first: int, beyond: int, work: float = 1.0) -> BoolArray:
        """Whether there is room for a part of the work in a level in each of some steps."""
        if not all(_at_most(work * amount, float(self.left[r])) for r, amount in level.spends):
            return np.zeros(beyond - first, bool)
        room = None
        for r, amount in level.holds:
            free = self.free[r, first:beyond] >= amount * (1.0 - ROUNDING)
            room = free if room is None else room & free
        return np.ones(beyond - first, bool) if room is None else room

    def _steps(self, begin: float, end: float) -> tuple[int, int]:
        """The first step of a stretch of time, and the one after its last."""
        first = max(int(self._edges.searchsorted(begin * (1.0 + ROUNDING), "right")) - 1, 0)
        return first, max(int(self._edges.searchsorted(end)), first)

    def is_free_now(self, level: Level) -> bool:
        """Whether all that a level holds is free in the step that contains now."""
        first, _ = self._steps(0.0, 0.0)
        return all(
            self.free[resource, first] >= amount * (1.0 - ROUNDING)
            for resource, amount in level.holds
        )

    def has_room(self, run: Run) -> bool:
        """Whether all that a run holds and spends is free."""
        for level, begin, end in run.pieces:
            first, beyond = self._steps(begin, end)
            for resource, amount in level.holds:
                if (self.free[resource, first:beyond] < amount * (1.0 - ROUNDING)).any():
                    return False
        return all(_at_most(amount, float(self.left[r])) for r, amount in run.spends)

    def take(self, run: Run, sign: float = 1.0) -> None:
        """Count what a run holds and spends; with sign -1 it gives it back."""
        for level, begin, end in run.pieces:
            first, beyond = self._step(begin), self._step(end)
            for resource, amount in level.holds:
                self.free[resource, first:beyond] -= sign * amount
        for resource, amount in run.spends:
            self.left[resource] -= sign * amount

    def _step(self, time: float) -> int:
        """The step that begins at a time; it is made where there is none."""
        step = int(self._edges.searchsorted(time))
        if self._edges[step] != time:
            edges, free = self._edges, self.free
            self._edges = np.concatenate([edges[:step], [time], edges[step:]])
            self.free = np.concatenate([free[:, :step], free[:, step - 1 :]], axis=1)
        return step


# --- plans ----------------------------------------------------------------------------------------


@dataclass
class LevelPlan:
    """The runs of planned jobs, and what they leave free.

    Attributes
    ----------
    jobs : sequence of LevelJob
    profile : Profile
        It changes as jobs are added.
    first : set of int
        Jobs that are planned first; no other job may take their place.
    levelled : bool
        Whether jobs run when most is free, not as early as they can.
    runs : dict of int to Run
        By the number of the job in ``jobs``.
    stopped : bool
        Whether the time was over before the search for plans ended.
    """

    jobs: Sequence[LevelJob]
    profile: Profile
    first: set[int] = field(default_factory=set)
    levelled: bool = False
    runs: dict[int, Run] = field(default_factory=dict)
    stopped: bool = False

    @property
    def merit(self) -> tuple[int, float, bool, float]:
        """Promised jobs, value, whether jobs run as early as they can (which leaves most room for
        jobs to come), and GPU time that is not needed: more is better, in this order.
        """
        runs = self.runs.values()
        promised = sum(self.jobs[number].promised for number in self.runs)
        value, cost = sum(run.value for run in runs), sum(run.cost for run in runs)
        return promised, value, not self.levelled, -cost

    @property
    def loses_nothing(self) -> bool:
        """Whether every job has the largest value that it could have alone."""
        runs = self.runs.get
        return all(
            (run := runs(number)) is not None and run.value == job.in_time[0].value
            for number, job in enumerate(self.jobs)
            if job.in_time
        )

    @property
    def is_ideal(self) -> bool:
        """Whether every job that can meet its deadline does, as if it were alone."""
        return self.loses_nothing and all(
            _at_most(run.cost, self.jobs[number].in_time[0].cost)
            for number, run in self.runs.items()
        )

    def add(self, number: int) -> None:
        """Plan a job beside the others, or in the place of one of them, if it can be."""
        run = self.profile.cheapest(self.jobs[number], self.levelled)
        if run is not None:
            self.put(number, run)
        elif len(self.runs) <= MOST_MOVABLE:
            self._add_in_place_of_another(number)

    def go_on(self, last: Mapping[int, Run]) -> None:
        """Plan jobs as they were planned before, as far as there is room.

        Those that run and cannot be preempted come first.
        """
        for number, job in enumerate(self.jobs):
            if job.goes_on is not None:
                self.add(number)
        for number, run in last.items():
            if self.profile.has_room(run):
                self.put(number, run)

    def _add_in_place_of_another(self, number: int) -> None:
        """Drop the job that is worth least per GPU second before the deadline of another, if that
        makes room for it, and it is worth more, or as much and costs less.

        J. M. Moore, "An n job, one machine sequencing algorithm for minimizing the number of late
        jobs", Management Science 15(1), 1968.
        """
        job = self.jobs[number]
        if not job.in_time:
            return
        level = job.in_time[0]
        best = Run((Piece(level, 0.0, level.shortest),))
        most = VICTIMS if job.promised else 1
        for other in self._planned_jobs.least_worth(job, best)[:most].tolist():
            dropped = self.runs[other]
            self.profile.take(dropped, -1.0)
            run = self.profile.cheapest(job, self.levelled)
            if run is not None and _is_worth_less(dropped, job, run):
                del self.runs[other]
                self._planned_jobs.drop(other)
                self.put(number, run)
                return
            self.profile.take(dropped)

    @cached_property
    def _planned_jobs(self) -> _PlannedJobs:
        """What the jobs of ``runs`` are worth and hold, from when it is first asked for."""
        stays = [
            job.promised or job.goes_on is not None or number in self.first
            for number, job in enumerate(self.jobs)
        ]
        found = _PlannedJobs(np.array(stays, bool))
        for number, run in self.runs.items():
            found.put(number, run)
        return found

    def add_all(self, numbers: Iterable[int], timer: Timer = UNLIMITED) -> int | None:
        """Plan jobs one after the other, those that may miss their deadlines at their largest
        value.

        Returns
        -------
        int or None
            The first job that finds no room, after which none is planned, or for which there is no
            time;
            None: all are planned.
        """
        for number in numbers:
            if timer.is_over:
                self.stopped = True
                return number
            job = self.jobs[number]
            run = self.profile.cheapest(job, self.levelled)
            if run is None or not (job.promised or run.value == job.in_time[0].value):
                return number
            self.put(number, run)
        return None

    def put(self, number: int, run: Run) -> None:
        """Plan a job so."""
        self.runs[number] = run
        self.profile.take(run)
        if "_planned_jobs" in self.__dict__:
            self._planned_jobs.put(number, run)

    def start_early(self, timer: Timer = UNLIMITED) -> None:
        """Let jobs that wait run on GPUs that are free until their plan begins, if they end earlier
        so.

        In a plan of the least GPU time jobs wait for the pool that is fastest, and others stand
        idle: what is not used now is lost to jobs to come. Jobs with the least slack come first,
        until the time is over.
        """
        for number in sorted(self.runs, key=lambda number: (self.jobs[number].slack, number)):
            if timer.is_over:
                self.stopped = True
                return
            run = self._earlier(number)
            if run is not None:
                self.profile.take(self.runs[number], -1.0)
                self.put(number, run)

    def _earlier(self, number: int) -> Run | None:
        """A run that begins now and goes on as planned: at the level of the least GPU time that
        makes it end earlier; None if there is none.
        """
        job, pieces = self.jobs[number], self.runs[number].pieces
        (first, *rest), (level, _, end) = pieces, pieces[-1]
        if job.release > 0 or not job.preemptible or _at_most(first.begin, 0.0):
            return None
        others = [
            other
            for other in job.levels
            if (other.deadline, other.value) == (level.deadline, level.value) and not other.spends
        ]
        free = [other for other in others if self.profile.is_free_now(other)]
        for other in sorted(free, key=lambda other: other.gpus * other.duration):
            starts, _, room = self.profile.room([other], 0.0, first.begin)
            until = float(np.append(starts, first.begin)[np.append(room[0], False).argmin()])
            if until == first.begin and other is first.level:
                stretches = [Piece(other, 0.0, first.end), *rest]
            else:
                stretches = [Piece(other, 0.0, until), first, *rest]
            run = run_within(job, stretches) if until > job.exempt else None
            if run is not None and not _at_most(end, run.pieces[-1].end):
                return run
        return None

    def schedule(self, C: Classes) -> Schedule:
        """The plan as a schedule of the classes that the columns of its levels are of."""
        pieces = {self.jobs[number].job: run.pieces for number, run in self.runs.items()}
        return schedule_of(C, stretches_of(pieces))


def _is_worth_less(planned: Run, job: LevelJob, run: Run) -> bool:
    """Whether another job may take the place of a planned run with a run of its own."""
    cheaper = planned.value == run.value and planned.cost > run.cost
    return job.promised or planned.value < run.value or cheaper


class _PlannedJobs:
    """What planned jobs are worth, and when they hold GPUs, as arrays.

    Parameters
    ----------
    stays : BoolArray, shape (jobs,)
        Jobs whose place no other job may take.
    """

    def __init__(self, stays: BoolArray) -> None:
        self._stays = stays
        self._value = np.zeros(len(stays))
        self._cost = np.zeros(len(stays))
        # Pieces in the order in which they were planned: job, GPUs, begin and end.
        self._count = 0
        self._job = np.zeros(len(stays), np.int64)
        self._pieces = np.zeros((3, len(stays)))

    def put(self, number: int, run: Run) -> None:
        """Count a job, or count it as it runs now."""
        self.drop(number)
        self._value[number], self._cost[number] = run.value, run.cost
        begin, self._count = self._count, self._count + len(run.pieces)
        if self._count > len(self._job):
            more = max(len(self._job), len(run.pieces))
            self._job = np.pad(self._job, (0, more))
            self._pieces = np.pad(self._pieces, ((0, 0), (0, more)))
        self._job[begin : self._count] = number
        self._pieces[:, begin : self._count] = np.transpose(
            [(level.gpus, start, stop) for level, start, stop in run.pieces]
        )

    def drop(self, number: int) -> None:
        """Count a job no more."""
        self._pieces[0, : self._count][self._job[: self._count] == number] = 0.0

    def least_worth(self, job: LevelJob, run: Run) -> IntArray:
        """Jobs whose place another job may take with a run, those first that are worth least per
        GPU second that they hold between its release and its deadline.
        """
        gpus, begin, end = self._pieces[:, : self._count]
        within = np.minimum(end, job.deadline) - np.maximum(begin, job.release)
        held = gpus * np.maximum(within, 0.0)
        seconds = np.bincount(self._job[: self._count], held, len(self._stays))
        replaceable = (seconds > 0) & ~self._stays
        if not job.promised:
            cheaper = (self._value == run.value) & (self._cost > run.cost)
            replaceable &= (self._value < run.value) | cheaper
        others = np.flatnonzero(replaceable)
        return others[np.argsort(self._value[others] / seconds[others], kind="stable")]


def stretches_of(pieces: Mapping[int, Sequence[Piece]]) -> list[Stretch]:
    """The stretches of the pieces of jobs, which are rows of the job table."""
    return [
        (job, level.column, begin, end)
        for job, of_job in pieces.items()
        for level, begin, end in of_job
    ]


def schedule_of(C: Classes, stretches: Sequence[Stretch] | FloatArray) -> Schedule:
    """The schedule of some stretches; those that follow each other are one.

    Stretches that the clock rounds to nothing are left out.
    """
    table = np.array(stretches, np.float64).reshape(-1, 4)
    job, column = table[:, :2].astype(np.int64).T
    begin, end = table[:, 2:].T
    now = C.instance.now
    order = np.lexsort((begin, column, job))
    order = order[(now + begin < now + end)[order]]
    job, column, begin, end = job[order], column[order], begin[order], end[order]
    new = np.ones(len(job), bool)
    new[1:] = (np.diff(job) != 0) | (np.diff(column) != 0) | (begin[1:] > end[:-1])
    first = np.flatnonzero(new)
    last = np.append(first, len(job))[1:] - 1
    return Schedule.sorted(C, job[first], column[first], now + begin[first], now + end[last])


ORDERS: tuple[Callable[[LevelJob], float], ...] = (
    lambda job: job.slack,
    lambda job: job.deadline,
    lambda job: job.deadline + COST_BESIDE_DEADLINE * job.least_cost,
    lambda job: job.slack + COST_BESIDE_SLACK * job.least_cost,
)
"""Orders in which jobs come."""
BY_PRICES, NONE_OVERPRICED = (2, 1), (3, 1)
"""Those of plans by prices: where some jobs cost more than they are worth, and where none does. They
kept most of several orders that were tried (`docs/studies/times.md`)."""

FindOverpriced = Callable[[float], AbstractSet[int] | None]
"""The value that a plan keeps -> numbers of jobs that cost more than they are worth where all time on
GPUs has its price (`formulations.level_prices`); None if there are no prices."""


def plan_of_all(
    jobs: Sequence[LevelJob],
    profile: Profile,
    orders: int = len(ORDERS),
    last: Mapping[int, Run] = MappingProxyType({}),
    timer: Timer = UNLIMITED,
    levelled_only: bool = False,
) -> LevelPlan | None:
    """A plan that keeps all jobs; None if none is found in time.

    The first plan keeps the last one, and other jobs run in what that leaves free. Then a new plan
    is made in each order, with runs as early as possible and with runs when most is free. At last
    the latter are made again with the job first that found no room: once, or several times where
    jobs are few. (Of 74 plans of 60 to 75 jobs that did not keep the last one, the orders gave 71,
    and the first repetition 3.) A plan is given up at the first job that finds no room.

    Parameters
    ----------
    jobs : sequence of LevelJob
    profile : Profile
        What is free; it is not changed.
    orders : int
        How many of `ORDERS` are tried.
    last : mapping of int to Run
        As of `plan_levels`.
    timer : Timer
    levelled_only : bool
        Whether only plans are tried in which jobs run when most is free: these keep all most often.
    """
    if last:
        plan = LevelPlan(jobs, profile.copy())
        plan.go_on(last)
        others = (n for n in _queue(jobs, ORDERS[0], {}) if n not in plan.runs)
        if plan.add_all(others, timer) is None:
            return plan
    ways = (True,) if levelled_only else (False, True)
    urgent: dict[int, list[int]] = {}
    for order, levelled in product(range(orders), ways):
        if timer.is_over:
            return None
        plan = LevelPlan(jobs, profile.copy(), levelled=levelled)
        stuck = plan.add_all(_queue(jobs, ORDERS[order], {}), timer)
        if stuck is None:
            return plan
        if levelled:
            urgent[order] = [stuck]
    for _ in range(MOST_URGENT if len(jobs) <= FEW_JOBS else 1):
        for order, first in urgent.items():
            plan = LevelPlan(jobs, profile.copy(), levelled=True)
            place = {number: at for at, number in enumerate(first)}
            stuck = plan.add_all(_queue(jobs, ORDERS[order], place), timer)
            if stuck is None:
                return plan
            if stuck not in first:
                first.insert(0, stuck)
    return None


def _queue(
    jobs: Sequence[LevelJob],
    order: Callable[[LevelJob], float],
    place: Mapping[int, int],
    overpriced: AbstractSet[int] = frozenset(),
) -> list[int]:
    """Numbers of jobs: those that go on to their end, then those with a place, then by `order`, but
    for those that come last.
    """

    def key(number: int) -> tuple[bool, int, bool, float, int]:
        job, at = jobs[number], place.get(number, len(jobs))
        return job.goes_on is None, at, number in overpriced, order(job), number

    return sorted(range(len(jobs)), key=key)


def plan_levels(
    jobs: Sequence[LevelJob],
    profile: Profile,
    mends: bool = True,
    last: Mapping[int, Run] = MappingProxyType({}),
    timer: Timer = UNLIMITED,
    only_all: bool = False,
    find_overpriced: FindOverpriced | None = None,
) -> LevelPlan:
    """The best of several plans (`LevelPlan.merit`).

    For each of the `ORDERS` a plan is made in which jobs run as early as they can. Jobs that it
    leaves out come first in the next plan of this order. Another plan goes on with the runs of
    ``last``. In the final plan of an order jobs run when most is free; it is not made once a plan
    loses nothing.

    The search ends with a plan that is ideal, or when the time is over: the plan that is being made
    then counts with the jobs that it has.

    Where there is a time limit and all jobs must be kept, `plan_of_all` comes first, for at most
    `FOR_ALL` of the time: a plan that keeps all is the answer that must be there once the time is
    over, and the others may be better. If only that plan counts, all of the time is for it.

    Parameters
    ----------
    jobs : sequence of LevelJob
    profile : Profile
        What is free; it is not changed.
    mends : bool
        Whether jobs that may be declined come first too if an order left them out, not only
        promised ones.
    last : mapping of int to Run
        What is left of the runs of a plan that was made before, by the number of the job.
    timer : Timer
    only_all : bool
        Whether a plan is of no use that leaves out jobs which must all be kept: where
        `plan_of_all` finds none that keeps them, none is made.
    find_overpriced : callable or None
        It is asked where the first plan does not keep all jobs. Then those that cost
        more than they are worth come last, in two orders, or in one beside the last plan, and no
        other plans are made.
    """
    must, is_limited = all(job.promised for job in jobs), timer.seconds is not None
    of_all = None
    if must and (only_all or is_limited):
        orders = len(ORDERS) if is_limited else _orders_of(jobs)
        until = timer if only_all else timer.part(FOR_ALL)
        of_all = plan_of_all(jobs, profile, orders, last, until)
        if of_all is None and only_all:
            return LevelPlan(jobs, profile.copy(), stopped=timer.is_over)
    plans: list[LevelPlan] = []
    until = timer if of_all is None else timer.strict()
    for plan in _plans(jobs, profile, mends, last, until, find_overpriced):
        plans.append(plan)
        if plan.is_ideal or plan.stopped:
            break
    known = [] if of_all is None else [of_all]
    best = max([*plans, *known], key=lambda plan: plan.merit)
    best.stopped = plans[-1].stopped
    return best


def _orders_of(jobs: Sequence[LevelJob]) -> int:
    """How many orders are tried of so many jobs."""
    return max(min(MOST_PLANNED // max(2 * len(jobs), 1), len(ORDERS)), 1)


def _plans(
    jobs: Sequence[LevelJob],
    profile: Profile,
    mends: bool,
    last: Mapping[int, Run],
    timer: Timer,
    find_overpriced: FindOverpriced | None,
) -> Iterator[LevelPlan]:
    """The plans among which `plan_levels` chooses."""
    repairs = min(MOST_REPAIRS, MOST_REPAIRED // max(len(jobs), 1))
    keeps_all = False
    for order in ORDERS[: _orders_of(jobs)]:
        first: set[int] = set()
        for _ in range(1 + repairs):
            plan = _planned(LevelPlan(jobs, profile.copy(), first), order, timer)
            yield plan
            numbers = None
            if find_overpriced is not None and not (plan.loses_nothing or plan.stopped):
                numbers, find_overpriced = find_overpriced(plan.merit[1]), None
            if numbers is not None:
                yield from _plans_by_prices(jobs, profile, last, timer, numbers)
                return
            late = {
                number
                for number, job in enumerate(jobs)
                if number not in plan.runs and (mends or job.promised)
            }
            if late <= first:
                break
            first = first | late
        keeps_all = keeps_all or plan.loses_nothing
        if last:
            plan = LevelPlan(jobs, profile.copy())
            plan.go_on(last)
            plan = _planned(plan, order, timer)
            yield plan
            keeps_all = keeps_all or plan.loses_nothing
        # Of plans that lose nothing one in which jobs run early is better (`LevelPlan.merit`).
        if not keeps_all:
            yield _planned(LevelPlan(jobs, profile.copy(), levelled=True), order, timer)


def _plans_by_prices(
    jobs: Sequence[LevelJob],
    profile: Profile,
    last: Mapping[int, Run],
    timer: Timer,
    overpriced: AbstractSet[int],
) -> Iterator[LevelPlan]:
    """Plans when most is free in which some jobs come last, and promised ones first where they
    find no room else; and that which goes on with the last plan.
    """
    if last:
        plan = LevelPlan(jobs, profile.copy())
        plan.go_on(last)
        yield _planned(plan, ORDERS[0], timer, overpriced)
    numbers = BY_PRICES if overpriced else NONE_OVERPRICED
    for order in (ORDERS[number] for number in numbers[: 1 if last else None]):
        first: set[int] = set()
        for _ in range(2):
            plan = LevelPlan(jobs, profile.copy(), first, levelled=True)
            yield _planned(plan, order, timer, overpriced)
            first = {n for n, job in enumerate(jobs) if job.promised and n not in plan.runs}
            if not first:
                break


def _planned(
    plan: LevelPlan,
    order: Callable[[LevelJob], float],
    timer: Timer,
    overpriced: AbstractSet[int] = frozenset(),
) -> LevelPlan:
    """The plan with all jobs that find room, in an order; of those that can be stopped, with as
    many as there is time for.
    """
    plan.stopped = timer.is_over
    if plan.stopped:  # not even for their order
        queue = [number for number, job in enumerate(plan.jobs) if job.goes_on is not None]
    else:
        queue = _queue(plan.jobs, order, dict.fromkeys(plan.first, 0), overpriced)
    for number in [number for number in queue if number not in plan.runs]:
        if timer.is_over and plan.jobs[number].goes_on is None:
            plan.stopped = True
            break
        plan.add(number)
    return plan
