"""The time model of plans that meet deadlines: intervals of time,
and how much of each resource there is in each of them.

Times are seconds from ``now``. An interval begins and ends at an *edge*. `lease` takes edges at
equal distances; `deadline_fluid` takes the moments at which anything changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, owners
from optsched.arrays.matrices import rows_of, scaled_rows
from optsched.candidates import Absence, Candidates, Classes
from optsched.candidates.going_on import UNKNOWN_END, going_on, unknown_ends
from optsched.display import moment
from optsched.errors import InvalidArgument, InvalidInput
from optsched.formulation import Formulation, Restarts
from optsched.instance.cluster import PER_NODE, Pool
from optsched.instance.reading import show
from optsched.instance.staying import must_stay
from optsched.solution import Conflict

ROUNDING = 1e-9
"""Part of a round by which moments may be off, and amounts of a resource."""
DONE = 1e-6
"""Part of its work that may be missing where a job counts as done: the tolerance of
certificates."""
SHORTEST = 1e-4
"""Seconds of work that a job has at least (`shortest_work`)."""
NO_LIMIT = 1e9
"""Amount of CPUs or memory once a node that states none is open: the most that a calendar states."""
LATEST = 1e11
"""Latest ``now`` of plans with deadlines: numbers there are 1.5e-5 s apart."""
BEST_EFFORT = "it has no deadline: best effort, not planned"
GOES_ON = "it cannot be preempted, and goes on where it runs"
NO_VALUE = "all deadlines that it could keep have the value 0: a plan without it is as good"
TAKEN = "running jobs, nodes that open later or a restart leave it too little of that"
NO_TIME_FOR_RULE = (
    "the time was over before all plans by rule were made: the best so far counts, and more time "
    "may keep more deadlines"
)
Amount = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Calendar = dict[str, Annotated[list[Amount], Field(min_length=1)]]
"""An option: {resource: [capacity in round 0, 1, ...]}; the last number goes on."""


@dataclass(frozen=True)
class Supply:
    """How much there is of each resource from now on.

    Nodes that become available count from then on. A calendar takes precedence over the pools.
    Running jobs that are not planned hold what they have for as long as they keep their GPUs.

    Attributes
    ----------
    C : Classes
    calendar : mapping of int to list of float
        Capacity in round 0, 1, ... by the row of the resource.
    held : FloatArray, shape (jobs,)
        Seconds for which running jobs keep their GPUs (`Restarts.held`).
    """

    C: Classes
    calendar: Mapping[int, Sequence[float]]
    held: FloatArray

    @classmethod
    def of(
        cls,
        C: Classes,
        calendar: Mapping[str, Sequence[float]],
        formulation: str,
        restarts: Restarts,
    ) -> Supply:
        """The supply with the calendars of a formulation's option ``capacity``."""
        names = C.resources.names
        for name in calendar:
            if name not in names:
                known = ", ".join(names)
                option = f"option of {formulation}: capacity"
                raise InvalidArgument(option, show(name), f"one of {known}")
        rows = {names.index(name): numbers for name, numbers in calendar.items()}
        return cls(C, rows, restarts.held)

    def at(self, times: FloatArray) -> FloatArray:
        """Capacity of each resource at some moments in ascending order, shape (R, moments)."""
        C, round_ = self.C, self.C.instance.round
        G = np.repeat(C.capacity[:, np.newaxis], len(times), axis=1)
        for row, (pool, what) in self._of_nodes.items():
            for time in self._opened(pool):
                there = pool.total(what, time) if what else pool.capacity(time)
                since = time - C.instance.now - ROUNDING * round_
                G[row, np.searchsorted(times, since) :] = NO_LIMIT if np.isnan(there) else there
        number = np.floor(times / round_ + ROUNDING).astype(np.int64)
        for row, numbers in self.calendar.items():
            G[row] = np.array(numbers, np.float64)[np.minimum(number, len(numbers) - 1)]
        held, begin, until = self._held
        early = ROUNDING * round_
        # What changes at each moment; what ends after the last one changes nothing.
        changes = np.zeros((len(G), len(times) + 1))
        resource, stretch, amount = sp.find(held)
        first, beyond = (np.searchsorted(times, part - early)[stretch] for part in (begin, until))
        np.add.at(changes, (resource, first), amount)
        np.subtract.at(changes, (resource, beyond), amount)
        return np.asarray(np.maximum(G - np.cumsum(changes, axis=1)[:, :-1], 0.0), np.float64)

    @cached_property
    def most(self) -> FloatArray:
        """The most that there ever is of each resource, with nothing held; shape (R,)."""
        free = replace(self, held=np.zeros_like(self.held))
        return np.asarray(free.at(np.append(0.0, free.changes)).max(axis=1))

    def too_little(self, columns: IntArray) -> IntArray:
        """A renewable resource of which each class column needs more than there ever is, else
        -1.
        """
        C = self.C
        usage = sp.csr_matrix(C.usage)[:, columns].tocoo()
        over = usage.data > self.most[usage.row] + ROUNDING * np.maximum(self.most[usage.row], 1.0)
        over &= C.resources.renewable[usage.row]
        short = np.full(len(columns), -1, np.int64)
        short[usage.col[over]] = usage.row[over]
        return short

    @property
    def changes(self) -> FloatArray:
        """Moments at which some capacity changes, ascending."""
        C = self.C
        opened = [
            time - C.instance.now
            for pool in C.instance.cluster.pools
            for time in self._opened(pool)
        ]
        rounds = [
            number * C.instance.round
            for numbers in self.calendar.values()
            for number in range(1, len(numbers))
            if numbers[number] != numbers[number - 1]
        ]
        of_jobs = np.concatenate(self._held[1:])
        of_jobs = of_jobs[np.isfinite(of_jobs) & (of_jobs > 0)]
        return np.unique(np.array([*opened, *rounds, *of_jobs], np.float64))

    @cached_property
    def _held(self) -> tuple[sp.csc_matrix, FloatArray, FloatArray]:
        """What running jobs hold, shape (R, stretches), and the seconds from now between which they
        do, shape (stretches,).

        A node that takes no work is not in the capacity, so what is held there does not count until
        the node opens. A planned job that runs there counts as a negative amount until then: its
        own columns use the capacity.
        """
        candidates, places = self.C.candidates, self.C.instance.jobs_table.places
        some = np.flatnonzero(self.held[places.job] > 0)
        job = places.job[some]
        unplanned = of_best_effort(candidates) | ~candidates.present
        unplanned = (unplanned | unknown_ends(candidates, self.held))[job]
        held, end = self._of_running(some)
        end = np.minimum(end, self.held[job])
        of, opens, part = self._by_opening(some)
        # Rounds leave out jobs on closed nodes, and take off what these hold of other resources.
        closed = mask_of(of[opens > 0], len(some))
        whole = np.flatnonzero(unplanned & ~(closed & self._left_out[job]))
        of_nodes = mask_of(list(self._of_nodes), held.shape[0])
        on_nodes = scaled_rows(held, of_nodes.astype(np.float64))
        part = np.where(unplanned[of], part, -part)
        on_closed = sp.csc_matrix(on_nodes[:, of].multiply(part[np.newaxis, :]))
        amount = sp.csc_matrix(sp.hstack([(held - on_nodes)[:, whole], on_closed]))
        amount.eliminate_zeros()
        begin = np.append(np.zeros(len(whole)), np.where(unplanned[of], opens, 0.0))
        until = np.minimum(end[of], np.where(unplanned[of], np.inf, opens))
        until = np.append(end[whole], until)
        kept = np.flatnonzero((begin < until) & (np.diff(amount.indptr) > 0))
        return amount[:, kept], begin[kept], until[kept]

    @property
    def _left_out(self) -> BoolArray:
        """Jobs that were left out for other reasons than those of this module, shape (jobs,)."""
        left_out = np.zeros(len(self.C.instance.jobs_table), bool)
        for why, mask in self.C.candidates.excluded.items():
            if why not in (BEST_EFFORT, UNKNOWN_END, GOES_ON):
                left_out |= mask
        return left_out

    def _of_running(self, some: IntArray) -> tuple[sp.csr_matrix, FloatArray]:
        """What running jobs hold, shape (R, jobs), and seconds from now to their ends: inf where
        these are not known; then they hold their GPUs.
        """
        column, end = going_on(self.C.candidates, some)
        places, pool = self.C.instance.jobs_table.places, self.C.resources.pool
        unknown = np.flatnonzero(column < 0)
        resource, of = np.nonzero(pool[:, np.newaxis] == places.pool[some[unknown]])
        gpus = places.length[some[unknown[of]]].astype(np.float64)
        shape = len(self.C.capacity), len(some)
        held = sp.csc_matrix((gpus, (resource, unknown[of])), shape=shape)
        known = np.flatnonzero(column >= 0)
        used = sp.csc_matrix(self.C.candidates.usage)[:, column[known]]
        return sp.csr_matrix(held + used @ rows_of(known, len(some))), end

    def _by_opening(self, some: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """(index of ``some``, seconds from now until its nodes take work (inf: never), the part of
        its GPUs that is on them) of running jobs, in this order.
        """
        instance = self.C.instance
        numbering, places = instance.cluster.numbering, instance.jobs_table.places
        gpus = places.length[some]
        of, gpu = owners(gpus), places.numbers_of(some, numbering)
        opens = np.zeros(len(of))
        row = numbering.row[numbering.node_of(gpu)]
        for number, pool in enumerate(instance.cluster.pools):
            here = places.pool[some[of]] == number
            later = np.maximum(pool.node_available_from - instance.now, 0.0)
            opens[here] = np.where(pool.usable(math.inf), later, math.inf)[row[here]]
        order = np.lexsort((opens, of))
        of, opens = of[order], opens[order]
        new = np.append(True, (np.diff(of) != 0) | (opens[1:] != opens[:-1]))[: len(of)]
        count = np.diff(np.append(np.flatnonzero(new), len(of)))
        return of[new], opens[new], count / gpus[of[new]]

    @cached_property
    def _of_nodes(self) -> dict[int, tuple[Pool, str]]:
        """Rows of resources that nodes bring: the pool, and the key of `PER_NODE` of its CPUs and
        memory, empty for its GPUs.
        """
        found: dict[str, tuple[Pool, str]] = {}
        for pool in self.C.instance.cluster.pools:
            rows = {pool.name: ""} | {f"{pool.name}.{what}": what for what in PER_NODE}
            found |= {name: (pool, what) for name, what in rows.items()}
        names = self.C.resources.names
        return {row: found[name] for row, name in enumerate(names) if name in found}

    def _opened(self, pool: Pool) -> list[float]:
        """When nodes of a pool become available after now, on the clock."""
        opened = pool.node_available_from
        later = (opened > self.C.instance.now) & np.isfinite(opened)
        return list(np.unique(opened[later]).tolist())


def slack_of(now: float, moment: FloatArray | float) -> FloatArray:
    """Seconds by which moments may be off, which are given in seconds from ``now``.

    Clocks count seconds from 1970, so that sums of times lose digits. Each moment has a separate
    slack: a common one, as large as a deadline in the year 9999 needs, would hide whole jobs of
    today.
    """
    moment = np.abs(moment)
    return np.asarray(1e-3 * ROUNDING * moment + 4.0 * np.spacing(abs(now) + moment), np.float64)


# --- deadlines of jobs and options ----------------------------------------------------------------


def candidates_of_plan(formulation: Formulation, candidates: Candidates) -> Candidates:
    """The candidates of a plan of deadlines: without jobs of best effort, and those of
    `without_unknown_ends`.

    In rounds the former stay, though the plan has no place for them: they run on GPUs that it
    leaves idle (`optsched.rounds.idle`). Jobs that run and cannot be preempted are left out where
    the formulation would stop them: `Supply` takes off what they hold until they end.
    """
    restarts = formulation.restarts_of(candidates.instance)
    candidates = without_unknown_ends(candidates, restarts)
    if restarts.in_rounds and "preemptible" not in formulation.also_reads:
        goes_on = np.isinf(restarts.held) & ~of_best_effort(candidates)
        candidates = candidates.without_jobs(goes_on, GOES_ON)
    if restarts.in_rounds:
        return candidates
    return candidates.without_jobs(of_best_effort(candidates), BEST_EFFORT)


def without_unknown_ends(candidates: Candidates, restarts: Restarts) -> Candidates:
    """The candidates without jobs that cannot be preempted and go on where they run, though they
    have no column there: `Supply` takes off what they hold.
    """
    unknown = unknown_ends(candidates, restarts.held) & np.isinf(restarts.held)
    unknown &= np.isfinite(candidates.instance.jobs_table.deadline)
    return candidates.without_jobs(unknown, UNKNOWN_END)


def of_best_effort(candidates: Candidates) -> BoolArray:
    """Jobs that have no deadline, nor an option with one; shape (jobs,)."""
    stated = _stated(candidates)
    # The last entry is for jobs without a kind, whose number is -1.
    asked = mask_of(candidates.columns.kind[~np.isnan(stated)], len(candidates.kinds) + 1)
    free = np.isinf(candidates.instance.jobs_table.deadline) & ~asked[candidates.kinds.of_job]
    return np.asarray(free)


def asked_classes(C: Classes) -> BoolArray:
    """Classes with a deadline, of their own or of an option, shape (K,)."""
    of_columns = mask_of(C.class_a[np.isfinite(column_deadlines(C))], len(C))
    return np.asarray(of_columns | np.isfinite(C.deadline))


def columns_with_deadline(C: Classes) -> IntArray:
    """Class columns without a partner that end, and have a deadline."""
    usable = C.alone & np.isfinite(C.duration) & np.isfinite(column_deadlines(C))
    return np.flatnonzero(usable).astype(np.int64)


def column_deadlines(C: Classes) -> FloatArray:
    """Deadline of each class column on the clock: the attribute of its option, else the job's."""
    stated = _stated(C.candidates)[C.kind_column]
    return np.where(np.isnan(stated), C.deadline[C.class_a], stated)


def column_values(C: Classes) -> FloatArray:
    """Value of each class column: that of its option; the job's weight, if none of its options has
    one.

    Instances hold an option without a value as one of value 0, so that this is asked of all options
    of a job.
    """
    options, columns = C.instance.options, C.candidates.columns
    # The last entry is for jobs without options, whose list is -1.
    valued = mask_of(owners(np.diff(options.indptr))[options.value != 0], len(options) + 1)
    of_option = valued[C.candidates.kinds.options[columns.kind]][C.kind_column]
    return np.where(of_option, columns.value[C.kind_column], C.weight[C.class_a])


def shortest_work(now: float) -> float:
    """Seconds that count for work of less: solvers keep rows to about 1e-7 s, and a clock that
    counts seconds from 1970 rounds begins and ends by 2e-7 s. With less work nobody could tell
    whether a job is done.

    Raises `InvalidInput` for a clock that is too coarse, such as one of milliseconds since 1970.
    """
    if abs(now) > LATEST:
        raise InvalidInput(
            "now",
            f"{now:g} s",
            f"at most {LATEST:g} s: later, such numbers do not tell work of half a minute from none",
        )
    return max(SHORTEST, 2.0 * float(np.spacing(abs(now))) / DONE)


def durations(C: Classes, columns: IntArray) -> FloatArray:
    """Seconds that all work that is left takes in some class columns, at least `shortest_work`."""
    return np.maximum(C.sure_duration[columns], shortest_work(C.instance.now))


def each_deadline(
    job: IntArray, due: FloatArray, value: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """(job, due, value) of each deadline of each job, in this order: the largest of its values."""
    order = np.lexsort((-value, due, job))
    job, due = job[order], due[order]
    new = np.append(True, (np.diff(job) != 0) | (np.diff(due) != 0))[: len(job)]
    return job[new], due[new], value[order][new]


def _stated(candidates: Candidates) -> FloatArray:
    """The deadline that the option of each column of the candidates states, NaN without."""
    sets = candidates.configurations.attribute_sets
    stated = np.array([_deadline(attributes) for attributes in sets], np.float64)
    return np.asarray(stated[candidates.configurations.attributes[candidates.configuration]])


def _deadline(attributes: Mapping[str, Any]) -> float:
    """The attribute ``deadline`` of an option, NaN without."""
    value = attributes.get("deadline")
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(
            "options: attributes.deadline", show(value), "seconds on the clock of now"
        )
    return float(value)


def without_column(C: Classes) -> list[Conflict]:
    """Jobs that must meet a deadline, and can run nowhere; one that stays where it runs can."""
    table = C.instance.jobs_table
    lost = np.isfinite(table.deadline) & ~table.soft_deadline
    lost &= (C.candidates.absence == Absence.NO_COLUMN) & ~must_stay(C.instance)
    conflicts = []
    for job in np.flatnonzero(lost).tolist():
        why = C.candidates.why_no_column(int(C.candidates.kinds.of_job[job]))
        words = f"job {table.names[job]} has a deadline, but {why}"
        conflicts.append(Conflict("take", -1, words))
    return conflicts


# --- words ----------------------------------------------------------------------------------------


def needs_of(C: Classes, classes: IntArray, alone: Supply | None = None) -> list[str]:
    """What a job of each of some classes needs, and how long it has for that; the job's name goes
    before.

    ``alone``: what there is, if it cannot be done even alone. A resource of which there is never
    enough is named; else, where the job would have the time, that is taken from it.
    """
    columns = np.flatnonzero(C.alone & mask_of(classes, len(C))[C.class_a])
    k, duration, due = C.class_a[columns], durations(C, columns), column_deadlines(C)[columns]
    last = np.full(len(C), -np.inf)
    np.maximum.at(last, k, due)
    short = np.full(len(columns), -1) if alone is None else alone.too_little(columns)
    order = np.lexsort((duration, short >= 0, k))
    place = np.searchsorted(k[order], classes)
    there = np.searchsorted(k[order], classes, "right") > place
    since = np.maximum(C.arrival, C.instance.now)
    words = []
    for number, (one, runs) in enumerate(zip(classes.tolist(), there.tolist(), strict=True)):
        if not runs:
            words.append("has a deadline, but cannot run alone")
            continue
        fastest = order[place[number]]
        column, least = int(columns[fastest]), float(duration[fastest])
        if alone is not None and short[fastest] >= 0 and last[one] > C.instance.now:
            words.append(needs_more(alone, column, int(short[fastest])))
        else:
            left = max(float(last[one] - since[one]), 0.0)
            words.append(_needs(C, one, column, least, float(last[one]), left, alone is not None))
    return words


def needs_more(supply: Supply, column: int, resource: int) -> str:
    """That a class column needs more of a resource than there ever is; the job's name goes
    before.
    """
    needed = float(supply.C.usage[resource, column])
    capacity = float(supply.most[resource])
    return (
        f"needs {amount_of(supply.C, resource, needed)} at a time, and the capacity is {capacity:g}"
    )


def _needs(
    C: Classes, k: int, fastest: int, least: float, deadline: float, left: float, alone: bool
) -> str:
    """The words of `needs_of` for one class, which takes the least seconds in the fastest
    column, and has so many left before its deadline.
    """
    now = C.instance.now
    if deadline <= now:
        return past_deadline(deadline, now)
    pool, gpus = int(C.pool[fastest]), many(int(C.gpus[fastest]), "GPU")
    where = f"{gpus} of {C.instance.cluster.pools[pool].name}" if pool >= 0 else gpus
    return (
        f"needs at least {least:g} s{' each' if C.count[k] > 1 else ''}, on {where}, "
        f"and has {left:g} s before its deadline, {moment(deadline, now)} s"
        + (f"; {TAKEN}" if alone and least <= left else "")
    )


def past_deadline(deadline: float, now: float) -> str:
    """That a deadline has passed; the job's name goes before."""
    return f"has work left, and its deadline, {deadline:g} s, is not after now ({now:g} s)"


def many(amount: float, what: str) -> str:
    """``1 GPU``, ``2 GPUs``."""
    return f"{amount:g} {what}{'' if amount == 1 else 's'}"


def amount_of(C: Classes, resource: int, amount: float) -> str:
    """``4 GPUs of pool v100``, ``12 licences``."""
    name = C.resources.names[resource]
    of_pool = C.resources.pool[resource] >= 0
    return f"{many(amount, 'GPU')} of pool {name}" if of_pool else f"{amount:g} {name}"
