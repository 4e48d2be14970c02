"""Changes of jobs between two plans: time passes, and jobs come, leave and are measured.

`Changes` collects them event by event, each checked at once, and applies them together when the
state is needed: with 100,000 jobs, a pass over all jobs for every event would take longer than the
plan. `advanced` does the same without events.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, FloatArray, IntArray
from optsched.arrays.values import cached_property, replace
from optsched.errors import InvalidInput
from optsched.instance import Instance, with_jobs
from optsched.instance.columns import CheckedJobs, JobColumns
from optsched.instance.joining import JobPlaces
from optsched.instance.reading import show
from optsched.instance.references import resolve_predecessors
from optsched.instance.revise import columns_beside, joined_jobs, joining
from optsched.instance.tables import JobNames
from optsched.performance import TableModel, reads_table
from optsched.rounds.ledger import Service, isolated_seconds
from optsched.rounds.state import RoundState

StepsAt = tuple[float, Mapping[int, float]]
"""A time in seconds, and the steps that some jobs had done by then, by their rows."""


class Roster:
    """Rows of jobs by name, kept up to date from state to state.

    Jobs have numbers that ascend with their rows, so a row is found by bisection, and a job that
    leaves does not change the entries of others. A dictionary of all rows would be made again each
    round.
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
        """Update after the jobs of some rows left and new jobs came; ``names`` is the result."""
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

    Time advances for all jobs at once when `state` is needed; only departures and measurements use
    their own times. Methods that change something never fail: input is checked before.

    Attributes
    ----------
    before : RoundState
        The state before all changes.
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
        # Lists and dictionaries: appending one entry to a numpy array takes longer than the rest of
        # an event.
        self._came: list[float] = []
        self._steps: list[float] = []  # of the jobs that came
        # Times of departures, and the number of the departure of each job that left, by row.
        self._left_at: list[float] = []
        self._left: dict[int, int] = {}
        self._names_left: set[str] = set()
        self._measured: list[StepsAt] = []
        self._state: RoundState | None = before

    # --- the state ----------------------------------------------------------------------------

    @property
    def state(self) -> RoundState:
        """The state after all changes."""
        if self._state is None:
            left = self._departures()
            ends = None if left is None else np.append(self._left_at, np.inf)[left]
            state = passed(self.before, self.now, self._measured, ends)
            self._state = self._exchanged(state, left)
        return self._state

    def __contains__(self, name: object) -> bool:
        """Whether a job of this name is present."""
        return isinstance(name, str) and self._find(name) >= 0

    def row(self, name: str, path: str) -> int:
        """Row of a job: first the jobs of the state before, then jobs that came; raises
        `InvalidInput`.
        """
        row = self._find(name)
        if row < 0:
            raise InvalidInput(path, show(name), "the id of a job that is there")
        return row

    def _find(self, name: str) -> int:
        """Row of a present job, else -1."""
        if self._columns is not None and name in self._columns.rows:
            row = self._count + self._columns.rows[name]
        else:
            row = self._roster.find(name)
        return -1 if row in self._left else row

    def steps(self, row: int) -> float:
        """Total steps of a job."""
        if row < self._count:
            return float(self.before.instance.jobs_table.steps[row])
        return self._steps[row - self._count]

    def then(self, state: RoundState) -> Changes:
        """Changes since a later state, such as the state after a plan; they replace this object."""
        names = state.instance.jobs_table.names
        if names is not self.state.instance.jobs_table.names:
            return Changes(state)
        if names is not self.before.instance.jobs_table.names:
            gone = np.array(sorted(row for row in self._left if row < self._count), np.int64)
            self._roster.follow(names, gone, names.written()[self._count - len(gone) :])
        return Changes(state, self._roster)

    def ready_for(self, names: Sequence[str] = ()) -> Changes:
        """Changes to which jobs of these names can be added, or from which jobs can leave.

        This is the object itself, unless applying all changes together would lose the order of
        events.
        """
        if self._state is self.before:
            return self
        # A name that comes again is another job: the changes before it are applied first.
        again = not self._names_left.isdisjoint(names)
        return Changes(self.state) if again or self._colocated_labels else self

    @cached_property
    def _colocated_labels(self) -> bool:
        """Whether co-location entries name labels, which become workloads when their last job
        leaves.
        """
        instance = self.before.instance
        named = {row for entry in instance.colocation for row in entry.workloads or ()}
        return any(instance.workloads[row].label for row in named)

    # --- changes ------------------------------------------------------------------------------

    def checked(self, documents: Sequence[Mapping[str, Any]]) -> CheckedJobs:
        """Jobs that may come; raises `InvalidInput`."""
        if self._columns is None:
            # Ids of present jobs must not come again. A weak reference: a cycle would keep the old
            # state in memory until the cycle collector runs, which is rare here.
            self._columns = columns_beside(self.before.instance, weakref.proxy(self))
        jobs = self._columns.checked(documents)
        if jobs.after:
            resolve_predecessors(jobs.after, JobNames(len(jobs), tuple(jobs.ids)), self)
        return jobs

    def check_rates(self, jobs: CheckedJobs) -> None:
        """Refuse checked gangs whose workload has rates for 1 GPU only, like instance files do
        (`TableModel.refuse_plain_numbers`).
        """
        assert self._columns is not None, "the jobs were not checked"
        # Most jobs bring their own rates.
        if min(jobs.columns["rates"], default=0) >= 0:
            return
        instance = self.before.instance
        if not (instance.rates.has_plain_numbers and reads_table(instance.performance)):
            return
        gangs = [
            (name, workload, gang)
            for name, workload, gang, rates, options in zip(
                jobs.ids,
                jobs.columns["workload"],
                self._columns.smallest_gangs(jobs),
                jobs.columns["rates"],
                jobs.columns["options"],
                strict=True,
            )
            if gang > 1 and rates < 0 and options < 0
        ]
        if gangs:
            TableModel(instance.rates, instance).refuse_gangs(instance, gangs)

    def come(self, jobs: CheckedJobs, now: float) -> Changes:
        """Add checked jobs that come at a time."""
        assert self._columns is not None, "the jobs were not checked"
        self._columns.add(jobs)
        self._came += [now] * len(jobs)
        self._steps += jobs.columns["steps"]
        return self._changed(now)

    def leave(self, jobs: Mapping[str, int], now: float) -> Changes:
        """Remove jobs, given their rows by name."""
        self._left |= dict.fromkeys(jobs.values(), len(self._left_at))
        self._left_at.append(now)
        self._names_left.update(jobs)
        return self._changed(now)

    def measure(self, steps: Mapping[int, float], now: float) -> Changes:
        """Record the steps that jobs have done, by row."""
        self._measured.append((now, steps))
        return self._changed(now)

    def _changed(self, now: float) -> Changes:
        self.now = now
        self._state = None
        return self

    # --- all changes together -----------------------------------------------------------------

    def _departures(self) -> IntArray | None:
        """Number of the departure of each job of the state before; for jobs that stay, the number
        of departures. Shape (jobs,).
        """
        before = [row for row in self._left if row < self._count]
        if not before:
            return None
        number = np.full(self._count, len(self._left_at), np.int64)
        number[before] = [self._left[row] for row in before]
        return number

    def _exchanged(self, state: RoundState, left: IntArray | None) -> RoundState:
        """The state without the jobs that left and with the jobs that came."""
        rows_of_new = range(self._count, self._count + len(self._came))
        new = np.flatnonzero(np.array([row not in self._left for row in rows_of_new], bool))
        added = self._added(state.instance, new)
        if added is None and left is None:
            return state
        stays = np.ones(self._count, bool) if left is None else left == len(self._left_at)
        places = JobPlaces.staying(stays)
        # Names were checked when the jobs came.
        instance = joined_jobs(state.instance, places, added)
        return with_instance(state, instance, places.kept, np.array(self._came)[new], left)

    def _added(self, instance: Instance, rows: IntArray) -> Instance | None:
        """Some of the jobs that came, as an instance."""
        if self._columns is None or not len(rows):
            return None
        table = self._columns.table(instance.jobs_table.names)
        done = table.steps_done.copy()
        for _, steps in self._measured:
            for row, value in steps.items():
                if row >= self._count:
                    done[row - self._count] = value
        added = joining(instance, self._columns, replace(table, steps_done=done))
        return with_jobs(added, rows) if len(rows) < len(table) else added


# --- time ------------------------------------------------------------------------------------


def advanced(state: RoundState, now: float) -> RoundState:
    """The state at a later time: running rows have received that time, and all rows are owed their
    part of it.
    """
    return passed(state, max(now, state.now))


def passed(
    state: RoundState,
    now: float,
    measured: Sequence[StepsAt] = (),
    ends: FloatArray | None = None,
) -> RoundState:
    """The state at a later time, with the given measurements and no other change.

    Parameters
    ----------
    state : RoundState
    now : float
        Seconds.
    measured : sequence of StepsAt
        Measurements since the time of the state; rows behind its jobs are ignored.
    ends : FloatArray, shape (jobs,), optional
        Times at which jobs leave: rows of pairs are owed no time after that.
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
        until: float | FloatArray = now
        if ends is not None and len(ledger.pairs):
            until = np.minimum(now, ledger.earliest(ends))
        ledger = ledger.after(until - state.now, state.most_ahead())
    table = replace(table, steps_done=done, isolated_time=isolated_time)
    instance = replace(state.instance, jobs_table=table, now=now)
    return replace(state, instance=instance, ledger=ledger, service=service)


def _steps(
    state: RoundState, now: float, measured: Sequence[StepsAt]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Steps that each job has done at a time, its isolated time, and the steps counted in it."""
    table, rate = state.instance.jobs_table, state.service.isolated
    done, since = table.steps_done.copy(), np.full(len(table), state.now)
    isolated_time, counted = table.isolated_time, state.service.counted
    counts = bool(rate.any())
    if counts:
        isolated_time, counted = isolated_time.copy(), counted.copy()

    def add(jobs: IntArray | slice) -> bool:
        if not counts:
            return False
        more = isolated_seconds(done[jobs] - counted[jobs], rate[jobs])
        isolated_time[jobs] += more
        return bool(more.any())

    # If a measurement corrects steps downwards, ``counted`` is lowered only when some job's
    # isolated time grows: stored journals depend on this.
    seen, forget = EMPTY, False
    # Steps assumed up to a measurement count as isolated time before the measurement replaces them.
    for job, time, steps in _in_turn(measured, len(table), each=counts):
        later = job[since[job] < time]
        done[job] = _assumed_steps(state, job, done[job], since[job], time)
        if counts:
            add(job)
            counted[later] = done[later]
        done[job], since[job] = steps, time
        seen = np.append(seen, job)
        if add(job):
            counted[seen], forget = done[seen], True
    if now > state.now:
        moving = (state.service.speed > 0).nonzero()[0]
        done[moving] = _assumed_steps(state, moving, done[moving], since[moving], now)
    if add(np.s_[:]) or forget:
        counted = done.copy()
    return done, isolated_time, counted


def _in_turn(
    measured: Sequence[StepsAt], jobs: int, *, each: bool
) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """Jobs, times and steps of the measurements, one event after the other.

    Isolated time adds up from event to event. If none is counted (``each`` is false), only the last
    measurement of each job matters.
    """
    together: list[Sequence[StepsAt]] = [[event] for event in measured] if each else [measured]
    for events in together:
        items = {
            row: (row, at, done)
            for at, known in events
            for row, done in known.items()
            if row < jobs
        }.values()
        if items:
            job, time, steps = zip(*items, strict=True)
            yield np.array(job, np.int64), np.array(time), np.array(steps)


def _assumed_steps(
    state: RoundState,
    jobs: IntArray,
    done: FloatArray,
    since: FloatArray,
    until: float | FloatArray,
) -> FloatArray:
    """Steps that jobs are assumed to have done by a time, given those at an earlier time."""
    if not state.policy.progress:
        return done
    steps = state.instance.jobs_table.steps[jobs]
    speed, resumes = state.service.speed[jobs], state.service.resumes[jobs]
    left = np.maximum(steps - done, 0.0)
    # Only the caller knows that a job is complete: a job is assumed to have a round of work left.
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
    """The state with other jobs: the jobs at these rows, in that order, then new jobs.

    Parameters
    ----------
    state : RoundState
    instance : Instance
        With these jobs, at the time of the state.
    rows : IntArray
        Jobs that stay.
    came : FloatArray, shape (jobs that come,), optional
        When the new jobs came, seconds; by default now.
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
