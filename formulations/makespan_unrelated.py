"""Makespan of whole jobs on unrelated machines (R||Cmax),
and of gangs on pools (its multi-mode form).
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from formulations.all_assigned import OVER, fitting_columns, whole_amounts
from formulations.machines import check_each_once, place_in, rank
from formulations.reference_rates import refuse_endless
from optsched.arrays import (
    EMPTY,
    FloatArray,
    IntArray,
    mask_of,
    owners,
    pointers,
    ranges,
    sum_before,
)
from optsched.arrays.matrices import sum_by
from optsched.candidates import Classes
from optsched.errors import UsageError
from optsched.formulation import Formulation, FormulationOptions, Infeasible
from optsched.program import LinearProgram, TimelineProgram
from optsched.program.integers import common_unit, round_up
from optsched.program.least_time import least_time
from optsched.program.relaxed_makespan import relaxed_makespan
from optsched.program.slot_rounding import cut, whole_jobs
from optsched.solution import Conflict, Schedule, Termination
from optsched.solution.plan import LinearPlan, MachineTimes, Plan, TimelinePlan

MOST_COLUMNS = 500_000
COARSE = 10_000
"""If durations have no common unit, the unit is the longest duration divided by this."""
HOPELESS = 10.0
"""Times all jobs one after the other. The timeline leaves out configurations that take longer, and
the others make a unit of at most a thousandth of this."""
WHOLE = 1e-6
"""A makespan this fraction of a unit above a multiple of the unit counts as the multiple:
rounding."""


class MakespanUnrelated(Formulation):
    """Run every job once, without interruption,
    in one of its configurations; minimise the makespan.

    Sets
        k in K: classes of n_k equal jobs;  c in C_k: their columns (without partners);
        r in R: renewable resources of capacity N_r (GPUs of a pool, or a resource of the instance).
    Parameters
        d_c: duration of column c, s, exact where the instance states it;  u_rc: what it takes of r;
        a_k: arrival.
    Program
        ``assignment``, where every column takes one unit of one resource r(c); its N_r units are
        machines (r, m):
        minimise C
        one    sum_{c in C_k} sum_m x_cm  =  n_k                       every class k
        load   sum_{c: r(c) = r} d_c x_cm  <=  C                       every machine (r, m)
        order  load of (r, m)  >=  load of (r, m + 1)                  machines of a resource are alike
        x_cm >= 0 integer;  0 where d_c is more than all jobs take in their shortest columns, one
        after the other

        ``timeline``, for gangs, several resources, arrivals, predecessors; durations in whole units
        of time:
        minimise  max_j end_j   over one mode c and one start per job j:
        sum of u_rc over running jobs  <=  N_r at any time;   arrival_j <= start_j;   end_i <= start_j for i in after_j
        load   sum_j sum_c u_rc d_c x_jc  <=  N_r C                    every r (redundant; it carries the bound)

        ``rounding``, where the assignment applies: at most twice the optimum, without branching.
        LP(T) is the linear relaxation of the assignment with x_cm = 0 where d_c > T, and loads of
        at most T:
        T*     the least T such that LP(T) has a point;  T* <= optimum
        slots  a machine has ceil(sum of its x) slots, filled by decreasing duration; a matching of
               least total duration gives each job one of the slots in which x puts some of it
        A machine then runs no more than x gave it (at most T*) and one more job (at most T*):
        makespan <= 2 T*

    Options
        program   ``auto``: assignment where it applies, else timeline. ``rounding`` must be asked
                  for.
        unit      seconds per unit of time of the timeline; durations are rounded up. Default: the
                  greatest common unit of all durations; where there is none, 1/10,000 of the
                  longest that is at most ten times all jobs one after the other.

    References
        J. K. Lenstra, D. B. Shmoys, E. Tardos, "Approximation algorithms for scheduling unrelated
        parallel machines", Mathematical Programming 46 (1990). The slots are those of D. B. Shmoys,
        E. Tardos, Mathematical Programming 62 (1993), for which x need not be a vertex.
    """

    name = "makespan-unrelated"
    aliases = ("rcpsp",)
    reads = frozenset({"steps_left", "arrival"})
    also_reads = frozenset({"after"})
    reads_pairs = False
    sense = "min"
    takes_rows = False
    leaves_idle = True
    plans_ahead = True
    objective_words = "makespan, seconds from now"

    class Options(FormulationOptions):
        """Options of the makespan of whole jobs."""

        program: Literal["auto", "assignment", "rounding", "timeline"] = "auto"
        unit: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)] | None = None

    def build(self, C: Classes) -> Plan:
        columns = _usable_columns(C)
        wanted, why_not = self.options.program, _why_no_assignment(C, columns)
        if wanted in ("assignment", "rounding") and why_not:
            raise UsageError(
                f"makespan-unrelated with program={wanted}: {why_not}; use program=timeline"
            )
        by_time = wanted == "timeline" or (wanted == "auto" and bool(why_not))
        if self.options.unit is not None and not by_time:
            raise UsageError(
                "makespan-unrelated: unit is an option of program=timeline; "
                "assignment takes exact seconds"
            )
        if by_time:
            return _timeline(C, columns, self.options.unit)
        assignment = _Assignment(C, columns, _Machines.of(C, columns))
        return assignment.rounded() if wanted == "rounding" else assignment.plan()


def _usable_columns(C: Classes) -> IntArray:
    """Columns without a partner that end and fit into every capacity.

    Raises `Infeasible` for a class with none, `InvalidInput` for one that would never end.
    """
    refuse_endless(C, np.arange(len(C)))
    fits = C.alone & np.isfinite(C.duration) & fitting_columns(C)
    has = mask_of(C.class_a[fits], len(C))
    if not has.all():
        alone = np.zeros(len(C), bool)
        alone[C.class_a[C.alone]] = True
        why = np.where(alone, OVER, "cannot run alone")
        stuck = np.flatnonzero(~has).tolist()
        raise Infeasible([Conflict("one", k, f"{C.job_name(k)} {why[k]}") for k in stuck])
    return np.flatnonzero(fits).astype(np.int64)


def _why_no_assignment(C: Classes, columns: IntArray) -> str:
    """Why jobs are not whole units of single machines; empty if they are."""
    table, now = C.instance.jobs_table, C.instance.now
    placed = C.of_job >= 0
    if (C.arrival > now).any():
        return "jobs arrive later"
    if any(placed[job] and placed[list(before)].any() for job, before in table.after.items()):
        return "jobs wait for others (after)"
    usage = C.usage.tocsc()[:, columns]
    if (np.diff(usage.indptr) != 1).any() or (np.abs(usage.data - 1.0) > 1e-9).any():
        return "some configuration takes more than one unit of one resource"
    rows = np.unique(usage.indices)
    if not C.resources.renewable[rows].all():
        return "a consumable resource is used"
    return ""


# --- assignment -----------------------------------------------------------------------------------


class _Assignment(NamedTuple):
    """The program ``assignment`` of the class: its variables x_cm, and C as the last one.

    Attributes
    ----------
    classes : Classes
    columns : IntArray, shape (columns,)
        Those of the classes that jobs may run in.
    machines : _Machines
    """

    classes: Classes
    columns: IntArray
    machines: _Machines

    @property
    def duration(self) -> FloatArray:
        """d_c, s, shape (columns,)."""
        return self.classes.duration[self.columns]

    @property
    def of_class(self) -> IntArray:
        """The class k of each column, shape (columns,)."""
        return self.classes.class_a[self.columns]

    @property
    def shortest(self) -> FloatArray:
        """Seconds of each class in its shortest column, shape (K,)."""
        seconds = np.full(len(self.classes), np.inf)
        np.minimum.at(seconds, self.of_class, self.duration)
        return seconds

    def plan(self, least: float = 0.0) -> LinearPlan:
        """The program, and the conversions between its points and schedules; ``least`` is a lower
        bound on the makespan.
        """
        return LinearPlan(
            self.classes,
            self.program(least),
            self.read,
            self.complete,
            self.describe,
            step=common_unit(self.duration),
            known=self.longest_job_first,
            as_timeline="with -O program=timeline it needs no such columns",
            machines=self.machine_times,
        )

    def machine_times(self) -> MachineTimes:
        """Seconds of each job on each machine, in its shortest column there."""
        machines, d, k = self.machines, self.duration, self.of_class
        c, count = machines.column, self.classes.count.astype(np.int64)
        column = np.full((machines.total, len(self.classes)), -1, np.int64)
        longest_first = np.argsort(-d[c], kind="stable")  # later writes win: the shortest column
        column[machines.machine[longest_first], k[c[longest_first]]] = c[longest_first]
        column = column[:, owners(count)]
        seconds = np.where(column >= 0, d[column], np.inf)

        def point(machine: IntArray) -> FloatArray:
            chosen = column[machine, np.arange(len(machine))]
            load = np.bincount(machine, d[chosen], minlength=machines.total).astype(np.float64)
            return self.point(chosen, machines.by_load(load)[machine], load.max(initial=0.0))

        return MachineTimes(seconds, owners(machines.sizes), "load", point)

    def rounded(self) -> LinearPlan:
        """The schedule of the rounding, without a search, and T* as lower bound."""
        machines = self.machines
        relaxed = relaxed_makespan(
            self.duration, self.of_class, machines.resource, self.classes.count, machines.sizes
        )
        unit = common_unit(self.duration)
        least = relaxed.bound
        if unit is not None:  # every makespan is a multiple of it
            least = float(np.ceil(least / unit - WHOLE)) * unit
        return replace(
            self.plan(least),
            known=lambda: self.round(relaxed.x),
            unsearched=(Termination.BY_RULE, "the rounding is asked for, and no search"),
            machines=None,
            guarantee=2.0,
        )

    def round(self, x: FloatArray) -> FloatArray:
        """The point of whole jobs that slots and a matching make of the fractional x of the
        columns.
        """
        machines, d, k = self.machines, self.duration, self.of_class
        used = np.flatnonzero(x > 0)
        used = used[np.argsort(machines.resource[used], kind="stable")]
        # Machines of a resource are filled one after the other, each with an equal part of the load
        load = np.bincount(machines.resource, d * x, minlength=len(machines.sizes))
        most = load / np.maximum(machines.sizes, 1)
        resource = machines.resource[used]
        on = cut(d[used] * x[used], resource, most[resource])
        column = used[on.row]
        last = machines.first[machines.resource[column] + 1] - 1
        machine = np.minimum(machines.first[machines.resource[column]] + on.unit, last)
        # The jobs of a class take its fractions in the order of the machines, until each has 1 in
        # total
        order = np.lexsort((machine, k[column]))
        column, machine = column[order], machine[order]
        jobs = on.amount[order] / d[column]
        count = self.classes.count
        jobs *= (count / np.bincount(k[column], jobs, minlength=len(count)))[k[column]]
        part = cut(jobs, k[column], np.ones(len(jobs)))
        before = np.cumsum(count) - count
        column, machine = column[part.row], machine[part.row]
        unit = np.minimum(part.unit, count[k[column]] - 1)
        job = (before[k[column]] + unit).astype(np.int64)
        chosen = whole_jobs(part.amount, job, machine, d[column], d[column])
        column, machine = column[chosen], machine[chosen]
        whole = np.bincount(machine, d[column], minlength=machines.total).astype(np.float64)
        return self.point(column, machines.by_load(whole)[machine], whole.max(initial=0.0))

    def program(self, known_least: float) -> LinearProgram:
        """The rows and columns."""
        C, machines, d, k = self.classes, self.machines, self.duration, self.of_class
        n, c, m = C.count, machines.column, machines.machine
        load = sum_by(m, d[c], machines.total)
        # All jobs in sequence, each in its shortest column, need this time. A longer column is in
        # no optimum. If it stayed, relevant durations could be too small for the precision of the
        # solver.
        useful = d <= float(self.shortest @ n) * (1 + 1e-9)
        longest = np.zeros(len(C))
        np.maximum.at(longest, k[useful], d[useful])
        # A lower bound from the load rows, without a solver
        of_resource = sum_by(machines.resource, d, len(machines.sizes))
        least = max(known_least, least_time(of_resource, k, n, machines.sizes))

        lp = LinearProgram()
        at_most = np.where(useful[c], n[k[c]], 0).astype(np.float64)
        x = lp.variables(len(c), name="x", upper=at_most, integer=True)
        makespan = lp.variables(1, name="C", lower=least, upper=float(longest @ n))
        lp.constrain(sum_by(k[c], 1.0, len(C)) @ x == n, name="one")
        lp.constrain(load @ x - np.ones((machines.total, 1)) @ makespan <= 0.0, name="load")
        alike = machines.followed_by_one_alike()
        if len(alike):
            lp.constrain((load[alike] - load[alike + 1]) @ x >= 0.0, name="order")
        lp.minimise(makespan)
        return lp

    def point(self, column: IntArray, machine: IntArray, makespan: float) -> FloatArray:
        """The point for a column and a machine of each job."""
        point = np.zeros(len(self.machines.column) + 1)
        np.add.at(point, self.machines.variable(column, machine), 1.0)
        point[-1] = makespan
        return point

    def read(self, point: FloatArray) -> Schedule:
        """Jobs of a machine run one after the other, in the order of their columns."""
        C, c, m = self.classes, self.machines.column, self.machines.machine
        jobs = np.round(point[: len(c)]).astype(np.int64)
        used = np.flatnonzero(jobs)
        chosen = np.repeat(used, jobs[used])
        chosen = chosen[np.argsort(m[chosen], kind="stable")]
        duration = self.duration[c[chosen]]
        start = C.instance.now + sum_before(duration, m[chosen])
        member = rank(self.of_class[c[chosen]])
        return Schedule.of_members(C, self.columns[c[chosen]], member, start, start + duration)

    def complete(self, schedule: Schedule) -> FloatArray:
        """The point of a schedule."""
        row = place_in(self.columns, schedule, "that does not fit")
        check_each_once(self.classes, schedule)
        duration = self.duration[row]
        _check_lengths(self.classes, schedule, duration)
        machine = self.machines.most_loaded_first(schedule, row, duration)
        makespan = float((schedule.end - self.classes.instance.now).max(initial=0.0))
        return self.point(row, machine, makespan)

    def longest_job_first(self) -> FloatArray:
        """The point of a list schedule: longest job first, each on the machine where it ends
        first.
        """
        C, machines, k = self.classes, self.machines, self.of_class
        # A heap for each resource: its machine that is free first is on top.
        free = [[(0.0, m) for m in range(a, b)] for a, b in pairwise(machines.first.tolist())]
        resource, duration = machines.resource.tolist(), self.duration.tolist()
        by_class = np.split(np.argsort(k, kind="stable"), np.cumsum(np.bincount(k))[:-1])
        columns_of = [columns.tolist() for columns in by_class]
        jobs = np.repeat(np.arange(len(C)), C.count.astype(np.int64))
        chosen, on = np.zeros(len(jobs), np.int64), np.zeros(len(jobs), np.int64)
        load = np.zeros(machines.total)
        for job in np.argsort(-self.shortest[jobs], kind="stable").tolist():
            end, best = min(
                (free[resource[j]][0][0] + duration[j], j) for j in columns_of[jobs[job]]
            )
            chosen[job], (_, on[job]) = best, free[resource[best]][0]
            load[on[job]] = end
            heapq.heapreplace(free[resource[best]], (end, int(on[job])))
        return self.point(chosen, machines.by_load(load)[on], load.max(initial=0.0))

    def describe(self, block: str, position: int) -> str:
        """What a row asks for, in words."""
        if block == "one":
            return f"{self.classes.job_name(position)} must run once"
        return f"row {block}[{position}]"


class _Machines(NamedTuple):
    """The machines (r, m), numbered resource by resource, and the variables x_cm, column by column.

    Attributes
    ----------
    sizes : IntArray, shape (R,)
        Machines of each resource.
    first : IntArray, shape (R + 1,)
        The first one of each, and how many there are in all.
    resource : IntArray, shape (columns,)
        r(c).
    column, machine : IntArray, shape (variables,)
        c and (r, m) of each variable.
    """

    sizes: IntArray
    first: IntArray
    resource: IntArray
    column: IntArray
    machine: IntArray

    @classmethod
    def of(cls, C: Classes, columns: IntArray) -> _Machines:
        resource = C.usage.tocsc()[:, columns].indices.astype(np.int64)
        # Machines beyond the number of jobs are not needed, nor those that no column uses.
        count = np.minimum(np.floor(C.capacity + 1e-9), C.count.sum()).astype(np.int64)
        count[np.setdiff1d(np.arange(len(count)), resource)] = 0
        first = pointers(count)
        variables = count[resource]
        if variables.sum() > MOST_COLUMNS:
            raise UsageError(
                f"makespan-unrelated: an assignment of {len(columns)} columns to machines "
                f"has {variables.sum()} variables, at most {MOST_COLUMNS} are taken; "
                "use program=timeline"
            )
        column = owners(variables)
        number = ranges(np.zeros(len(columns), np.int64), variables)
        return cls(count, first, resource, column, first[resource[column]] + number)

    @property
    def total(self) -> int:
        return int(self.first[-1])

    def variable(self, column: IntArray, machine: IntArray) -> IntArray:
        """Number of the variable of a column on a machine of its resource."""
        of_column = self.sizes[self.resource]
        start = np.cumsum(of_column) - of_column
        return start[column] + machine - self.first[self.resource[column]]

    def followed_by_one_alike(self) -> IntArray:
        """Machines m for which m + 1 is a machine of the same resource."""
        return np.setdiff1d(np.arange(self.total - 1), self.first[1:-1] - 1)

    def most_loaded_first(
        self, schedule: Schedule, column: IntArray, duration: FloatArray
    ) -> IntArray:
        """A machine for each stretch, those of a resource numbered in decreasing load.

        The rows ``order`` of the program allow no other numbering.
        """
        slot = _colour(schedule, self.resource[column], self.sizes)
        machine = self.first[self.resource[column]] + slot
        load = np.bincount(machine, duration, minlength=self.total).astype(np.float64)
        return np.asarray(self.by_load(load)[machine])

    def by_load(self, load: FloatArray) -> IntArray:
        """New numbers of the machines, those of a resource in decreasing load."""
        ranked = np.empty(self.total, np.int64)
        ranked[np.lexsort((-load, owners(self.sizes)))] = np.arange(self.total)
        return ranked


def _check_lengths(C: Classes, schedule: Schedule, needed: FloatArray) -> None:
    """Refuse stretches of a wrong length (up to the rounding of late times) and starts before
    now.
    """
    length = schedule.end - schedule.start
    slack = 1e-9 * np.maximum(needed, np.abs(schedule.end))
    wrong = np.flatnonzero(np.abs(length - needed) > slack)
    if len(wrong):
        row = int(wrong[0])
        name = C.instance.jobs_table.names[int(schedule.job[row])]
        raise ValueError(f"job {name} runs {length[row]:.9g} s, expected {needed[row]:.9g} s")
    early = np.flatnonzero(schedule.start < C.instance.now)
    if len(early):
        raise ValueError(
            f"job {C.instance.jobs_table.names[int(schedule.job[early[0]])]} starts before now"
        )


def _colour(schedule: Schedule, resource: IntArray, machines: IntArray) -> IntArray:
    """A machine of its resource for every stretch, so that no machine runs two at once.

    Greedy in order of the starts: this finds machines whenever there are enough.
    """
    free = [[-np.inf] * int(count) for count in machines]
    slot, now = np.zeros(len(schedule), np.int64), float(schedule.classes.instance.now)
    for row in np.argsort(schedule.start, kind="stable").tolist():
        ends, start = free[int(resource[row])], float(schedule.start[row])
        # Late times are rounded. The slack covers only that: a job must end before the next one
        # starts.
        slack = 1e-9 * max(1.0, abs(start - now)) + 4 * float(np.spacing(abs(start)))
        ready = [number for number, end in enumerate(ends) if end <= start + slack]
        if not ready:
            name = schedule.classes.resources.names[int(resource[row])]
            raise ValueError(f"{name} is used beyond its capacity at {start:g} s")
        slot[row] = max(ready, key=lambda number: ends[number])
        ends[slot[row]] = float(schedule.end[row])
    return slot


# --- timeline -------------------------------------------------------------------------------------


def _short_enough(C: Classes, columns: IntArray, arrival: FloatArray) -> IntArray:
    """The columns without those that take ten times as long as all jobs one after the other, each
    in its shortest one. No optimum has them, and they would make the unit coarse.
    """
    if not C.resources.renewable.all():
        return columns  # the shortest columns may use up too much
    d = C.duration[columns]
    shortest = np.full(len(C), np.inf)
    np.minimum.at(shortest, C.class_a[columns], d)
    most = arrival.max(initial=0.0) + float(shortest @ C.count)
    short: IntArray = columns[d <= HOPELESS * most]
    return short


def _timeline(C: Classes, columns: IntArray, unit: float | None) -> TimelinePlan:
    """The program ``timeline`` of the class: one activity per job, in order of the classes."""
    table, now = C.instance.jobs_table, C.instance.now
    jobs = np.concatenate([EMPTY, *(C.jobs_of(k) for k in range(len(C)))])
    arrival = np.maximum(table.arrival[jobs] - now, 0.0)
    if unit is None:
        unit = common_unit(np.concatenate([C.duration[columns], arrival]))
    if unit is None:
        columns = _short_enough(C, columns, arrival)
        d = C.duration[columns]
        unit = common_unit(np.concatenate([d, arrival])) or float(d.max()) / COARSE
    # Columns class by class, so that the modes of a job are one run of them.
    order = np.argsort(C.class_a[columns], kind="stable")
    columns = columns[order]
    owner = C.class_a[columns]
    start = np.searchsorted(owner, C.of_job[jobs])
    length = np.bincount(owner, minlength=len(C))[C.of_job[jobs]]
    mode = ranges(start.astype(np.int64), length.astype(np.int64))
    column = columns[mode]
    activity = owners(length)
    duration = np.maximum(round_up(C.duration[column], unit), 1)
    release = round_up(arrival, unit)
    longest = np.zeros(len(jobs), np.int64)
    np.maximum.at(longest, activity, duration)
    # One after the other, each in its longest mode, all jobs end by the horizon.
    horizon = int(release.max(initial=0) + longest.sum())
    renewable = C.resources.renewable
    usage, capacity = whole_amounts(C, column, np.flatnonzero(renewable))
    budget_usage, budget = whole_amounts(C, column, np.flatnonzero(~renewable))
    row = {int(job): a for a, job in enumerate(jobs.tolist())}
    after = [
        (row[before], row[job])
        for job, all_before in table.after.items()
        if job in row
        for before in all_before
        if before in row
    ]
    timeline = TimelineProgram(
        release=release,
        deadline=np.full(len(jobs), horizon, np.int64),
        activity=activity,
        duration=duration,
        usage=usage,
        capacity=capacity,
        budget_usage=budget_usage if len(budget) else None,
        budget=budget,
        precedence=np.array(after, np.int64).reshape(-1, 2),
    )
    return TimelinePlan(C, timeline, unit, jobs, column)
