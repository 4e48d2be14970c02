"""What happens to jobs between two plans: time passes, they come, leave and are measured.

`Changes` gathers it event by event, each checked at once, and lets it happen together when somebody
asks for the state: with 100,000 jobs a pass over all of them for every event would take longer than
the plan. `advanced` is the same without events.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.errors import InvalidInput
from optsched.instance import Instance, with_jobs
from optsched.instance.columns import CheckedJobs, JobColumns
from optsched.instance.reading import show
from optsched.instance.references import resolve_predecessors
from optsched.instance.revise import columns_beside, joining
from optsched.instance.tables import JobNames
from optsched.performance import TableModel, reads_table
from optsched.rounds.ledger import Service, isolated_seconds
from optsched.rounds.state import RoundState

StepsAt = tuple[float, Mapping[int, float]]
"""A time in seconds, and the steps that some jobs had done by then, by their rows."""


class Roster:
    """Rows of jobs by name, kept up to date from state to state.

    Jobs have numbers that rise with their rows, so a row is found by bisection and a job that
    leaves changes the entry of no other: a dictionary of all rows would be made again each round.
    """

    def __init__(self, names: JobNames) -> None:
        self._names = names
        self._number: dict[str, int] | None = None
        self._numbers: IntArray = EMPTY
        self._next = 0

    def find(self, name: str) -> int:
        """Row of a job, -1 if there is none."""
        if self._number is None:
            self._next = len(self._names)
            self._number = dict(zip(self._names.written(), range(self._next), strict=True))
            self._numbers = np.arange(self._next)
        number = self._number.get(name)
        return -1 if number is None else int(self._numbers.searchsorted(number))

    def follow(self, names: JobNames, gone: IntArray, new: Sequence[str]) -> None:
        """Let the jobs of some rows leave and new ones come, which is how the names came about."""
        if self._number is not None:
            for row in gone.tolist():
                del self._number[self._names[row]]
            numbers = range(self._next, self._next + len(new))
            self._number.update(zip(new, numbers, strict=True))
            self._numbers = np.concatenate([np.delete(self._numbers, gone), numbers])
            self._next = numbers.stop
        self._names = names


class Changes:
    """Jobs that came, left and were measured since a state, and the time that has passed.

    Time passes for all jobs at once, when `state` is asked for; only who leaves or is measured is
    reckoned with at its own time. A method that changes something never fails: what can be refused
    is checked before.

    Attributes
    ----------
    before : RoundState
        The state before all of it.
    now : float
        Time of the last change, seconds.
    """

    def __init__(self, before: RoundState, roster: Roster | None = None) -> None:
        self.before = before
        names = before.instance.jobs_table.names
        self._roster = Roster(names) if roster is None else roster
        self._count = len(names)
        self.now = before.now
        self._columns: JobColumns | None = None
        # Lists and dictionaries, no arrays: an event adds one entry, and numpy takes longer for that
        # than everything else that is done for it.
        self._came: list[float] = []
        self._steps: list[float] = []  # of the jobs that came
        # When jobs left, departure by departure, and in which of these each left, by its row.
        self._left_at: list[float] = []
        self._left: dict[int, int] = {}
        self._names_left: set[str] = set()
        self._measured: list[StepsAt] = []
        self._state: RoundState | None = before

    # --- what there is ------------------------------------------------------------------------

    @property
    def state(self) -> RoundState:
        """The state after all of it."""
        if self._state is None:
            left = self._departures()
            ends = None if left is None else np.append(self._left_at, np.inf)[left]
            state = passed(self.before, self.now, self._measured, ends)
            self._state = self._exchanged(state, left)
        return self._state

    def __contains__(self, name: object) -> bool:
        """Whether there is a job of this name now."""
        return isinstance(name, str) and self._find(name) >= 0

    def row(self, name: str, path: str) -> int:
        """Row of a job among those before, which the jobs that came follow; raises `InvalidInput`."""
        row = self._find(name)
        if row < 0:
            raise InvalidInput(path, show(name), "the id of a job that is there")
        return row

    def _find(self, name: str) -> int:
        """Row of a job that is there, else -1."""
        if self._columns is not None and name in self._columns.rows:
            row = self._count + self._columns.rows[name]
        else:
            row = self._roster.find(name)
        return -1 if row in self._left else row

    def steps(self, row: int) -> float:
        """Steps of a job in all."""
        if row < self._count:
            return float(self.before.instance.jobs_table.steps[row])
        return self._steps[row - self._count]

    def then(self, state: RoundState) -> Changes:
        """Changes since another state, which may be that of a plan after these. This object is not used any more."""
        names = state.instance.jobs_table.names
        if names is not self.state.instance.jobs_table.names:
            return Changes(state)
        if names is not self.before.instance.jobs_table.names:
            gone = np.array(sorted(row for row in self._left if row < self._count), np.int64)
            self._roster.follow(names, gone, names.written()[self._count - len(gone) :])
        return Changes(state, self._roster)

    def ready_for(self, names: Sequence[str] = ()) -> Changes:
        """Changes after which jobs of these names may come or leave.

        These are the changes themselves, unless the order of events would be lost if they happened
        together.
        """
        if self._state is self.before:
            return self
        # A name that comes again is another job, so the changes before it are settled first.
        again = not self._names_left.isdisjoint(names)
        return Changes(self.state) if again or self._colocated_labels else self

    @cached_property
    def _colocated_labels(self) -> bool:
        """Whether co-location entries name labels: these become workloads when their last job leaves."""
        instance = self.before.instance
        named = {row for entry in instance.colocation for row in entry.workloads or ()}
        return any(instance.workloads[row].label for row in named)

    # --- what happens -------------------------------------------------------------------------

    def checked(self, documents: Sequence[Mapping[str, Any]]) -> CheckedJobs:
        """Jobs that may come; raises `InvalidInput`."""
        if self._columns is None:
            # The ids of all jobs that there are now are taken, those that came included. Weakly: else
            # the state before would stay until the cycle collector comes, which rarely does here.
            self._columns = columns_beside(self.before.instance, weakref.proxy(self))
        jobs = self._columns.checked(documents)
        if jobs.after:
            resolve_predecessors(jobs.after, JobNames(len(jobs), tuple(jobs.ids)), self)
        return jobs

    def check_rates(self, jobs: CheckedJobs) -> None:
        """Refuse gangs, checked here, whose workload has rates for 1 GPU alone, as in files
        (`TableModel.refuse_plain_numbers`).
        """
        columns = self._columns
        assert columns is not None, "they were not checked here"
        instance = self.before.instance
        if not (instance.rates.has_plain_numbers and reads_table(instance.performance)):
            return
        gangs = [
            (name, workload, gang)
            for name, workload, gang, rates, options in zip(
                jobs.ids,
                jobs.columns["workload"],
                columns.smallest_gangs(jobs),
                jobs.columns["rates"],
                jobs.columns["options"],
                strict=True,
            )
            if gang > 1 and rates < 0 and options < 0
        ]
        if gangs:
            TableModel(instance.rates, instance).refuse_gangs(instance, gangs)

    def come(self, jobs: CheckedJobs, now: float) -> Changes:
        """Add jobs that were checked here, and came at a time."""
        assert self._columns is not None, "they were not checked here"
        self._columns.add(jobs)
        self._came += [now] * len(jobs)
        self._steps += jobs.columns["steps"]
        return self._changed(now)

    def leave(self, jobs: Mapping[str, int], now: float) -> Changes:
        """Let jobs leave, given their rows by name."""
        self._left |= dict.fromkeys(jobs.values(), len(self._left_at))
        self._left_at.append(now)
        self._names_left.update(jobs)
        return self._changed(now)

    def measure(self, steps: Mapping[int, float], now: float) -> Changes:
        """Let jobs, by their rows, have done so many steps."""
        self._measured.append((now, steps))
        return self._changed(now)

    def _changed(self, now: float) -> Changes:
        self.now = now
        self._state = None
        return self

    # --- all at once --------------------------------------------------------------------------

    def _departures(self) -> IntArray | None:
        """Number of the departure of each job that was there before, of those that stay one more; shape (jobs,)."""
        before = [row for row in self._left if row < self._count]
        if not before:
            return None
        number = np.full(self._count, len(self._left_at), np.int64)
        number[before] = [self._left[row] for row in before]
        return number

    def _exchanged(self, state: RoundState, left: IntArray | None) -> RoundState:
        """A state of the same jobs as before, without those that left and with those that came."""
        here = [row not in self._left for row in range(self._count, self._count + len(self._came))]
        new = np.flatnonzero(np.array(here, bool))
        added = self._added(state.instance, new)
        if added is None and left is None:
            return state
        rows = (
            np.arange(self._count) if left is None else np.flatnonzero(left == len(self._left_at))
        )
        came = np.array(self._came)[new]
        return with_instance(state, with_jobs(state.instance, rows, added), rows, came, left)

    def _added(self, instance: Instance, some: IntArray) -> Instance | None:
        """Some of the jobs that came, as an instance."""
        if self._columns is None or not len(some):
            return None
        table = self._columns.table(instance.jobs_table.names)
        done = table.steps_done.copy()
        for _, steps in self._measured:
            for row, value in steps.items():
                if row >= self._count:
                    done[row - self._count] = value
        added = joining(instance, self._columns, replace(table, steps_done=done))
        return with_jobs(added, some) if len(some) < len(table) else added


# --- time ------------------------------------------------------------------------------------


def advanced(state: RoundState, now: float) -> RoundState:
    """The state at a later time: what runs has received that time, and everybody is owed its part of it."""
    return passed(state, max(now, state.now))


def passed(
    state: RoundState,
    now: float,
    measured: Sequence[StepsAt] = (),
    ends: FloatArray | None = None,
) -> RoundState:
    """The state at a later time, at which nothing else has changed than what was measured.

    Parameters
    ----------
    state : RoundState
    now : float
        Seconds.
    measured : sequence of StepsAt
        Since the time of the state; rows behind its jobs do not count.
    ends : FloatArray, shape (jobs,), optional
        Until when each job counts: what is owed to a pair stops there, and is its partner's.
    """
    table, service, ledger = state.instance.jobs_table, state.service, state.ledger
    seconds = now - state.now
    # In most rounds no steps count as isolated time.
    counts = service.isolated.any() and service.isolated_time(table.steps_done).any()
    if seconds <= 0 and not measured and not counts:
        return state
    done, isolated_time, counted = _steps(state, now, measured)
    service = replace(service, counted=counted)
    if seconds > 0:
        held = np.zeros(len(table))
        held[table.places.job] = table.places.length
        service = service.after(seconds, held)
        until = now if ends is None else np.minimum(now, ledger.earliest(ends))
        ledger = ledger.after(until - state.now, state.most_ahead())
    table = replace(table, steps_done=done, isolated_time=isolated_time)
    instance = replace(state.instance, jobs_table=table, now=now)
    return replace(state, instance=instance, ledger=ledger, service=service)


def _steps(
    state: RoundState, now: float, measured: Sequence[StepsAt]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Steps that each job has done at a time, its isolated time, and the steps that are counted in it."""
    table, rate = state.instance.jobs_table, state.service.isolated
    done, since = table.steps_done.copy(), np.full(len(table), state.now)
    isolated_time, counted = table.isolated_time.copy(), state.service.counted.copy()

    def add(some: IntArray | slice) -> bool:
        more = isolated_seconds(done[some] - counted[some], rate[some])
        isolated_time[some] += more
        return bool(more.any())

    # Fewer steps than were counted are forgotten as soon as anybody has done more of them.
    seen, forget = EMPTY, False
    counts = bool(rate.any())
    # What is reckoned up to a measurement counts before it is corrected: it was thought to be done.
    for job, time, steps in _in_turn(measured, len(table), each=counts):
        later = job[(since[job] < time) & counts]
        done[job] = _assumed_steps(state, job, done[job], since[job], time)
        add(job)
        counted[later] = done[later]
        done[job], since[job] = steps, time
        seen = np.append(seen, job)
        if add(job):
            counted[seen], forget = done[seen], True
    if now > state.now:
        done = _assumed_steps(state, np.s_[:], done, since, now)
    if counts and (add(np.s_[:]) or forget):
        counted = done.copy()
    return done, isolated_time, counted


def _in_turn(
    measured: Sequence[StepsAt], jobs: int, *, each: bool
) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """Jobs, times and steps of what was measured, one event after the other.

    Isolated time adds up from event to event. Where none is counted (``each`` is false), the last
    steps of each job say all, and one turn is enough.
    """
    found = [
        [(row, at, done) for row, done in steps.items() if row < jobs] for at, steps in measured
    ]
    if not each:
        found = [list({item[0]: item for items in found for item in items}.values())]
    for items in found:
        if items:
            job, time, steps = zip(*items, strict=True)
            yield np.array(job, np.int64), np.array(time), np.array(steps)


def _assumed_steps(
    state: RoundState,
    jobs: IntArray | slice,
    done: FloatArray,
    since: FloatArray,
    until: float | FloatArray,
) -> FloatArray:
    """Steps that some jobs are assumed to have done by a time, given those at an earlier one."""
    if not state.policy.progress:
        return done
    steps = state.instance.jobs_table.steps[jobs]
    speed, resumes = state.service.speed[jobs], state.service.resumes[jobs]
    left = np.maximum(steps - done, 0.0)
    # A job is never assumed to be done: only the caller knows. It keeps a round of work.
    least = np.minimum(left, speed * state.instance.round)
    seconds = until - since
    made = speed * np.clip(since + seconds - np.maximum(resumes, since), 0.0, seconds)
    return np.where((speed > 0) & (seconds > 0), steps - np.maximum(left - made, least), done)


def with_instance(
    state: RoundState,
    instance: Instance,
    rows: IntArray,
    came: FloatArray | None = None,
    left: IntArray | None = None,
) -> RoundState:
    """The state with other jobs: those at these rows, in that order, then the ones behind them.

    Parameters
    ----------
    state : RoundState
    instance : Instance
        Of the time of the state.
    rows : IntArray
        Jobs that stay.
    came : FloatArray, shape (jobs that come,), optional
        When the others came, seconds; by default now.
    left : IntArray, shape (jobs of the state,), optional
        Number of the departure of each job that left; by default all left at once.
    """
    table = instance.jobs_table
    added = np.arange(len(rows), len(table))
    came = np.full(len(added), instance.now) if came is None else came
    held = np.zeros(len(table))
    held[table.places.job] = table.places.length
    new = Service.new(table.arrival[added], held[added] > 0, came)
    return replace(
        state,
        instance=instance,
        ledger=state.ledger.revised(rows, len(added), left),
        service=state.service.revised(rows, new.after(instance.now - came, held[added])),
        warm=None if state.warm is None else state.warm.revised(rows, len(added)),
    )
