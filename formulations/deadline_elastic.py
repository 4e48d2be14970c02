"""Deadlines met by elastic jobs, whose GPUs and pool may change at a restart: a program of
levels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, NamedTuple, cast

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from formulations.deadline_fluid import FluidProgram
from formulations.deadline_program import DeadlineProgram
from formulations.horizon import (
    DONE,
    NO_TIME_FOR_RULE,
    ROUNDING,
    Calendar,
    Supply,
    amount_of,
    asked_classes,
    candidates_of_plan,
    column_deadlines,
    columns_with_deadline,
    durations,
    each_deadline,
    of_best_effort,
)
from formulations.level_paths import Costs, LevelPaths
from formulations.level_planner import (
    MOST_PLANNED,
    MOST_REPAIRED,
    ORDERS,
    FindOverpriced,
    LevelJob,
    LevelPlan,
    Piece,
    Profile,
    Run,
    Stretch,
    plan_levels,
    plan_of_all,
    run_within,
    schedule_of,
    stretches_of,
)
from formulations.level_prices import PricedLevels, pieces_of
from formulations.level_sweep import plan_by_sweeps
from formulations.level_table import LevelTable
from optsched.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    find_rows,
    mask_of,
    owners,
    ranges,
)
from optsched.arrays.matrices import rows_of, sum_by
from optsched.candidates import Candidates, Classes
from optsched.errors import InvalidArgument
from optsched.formulation import Formulation, FormulationOptions, Infeasible, Restarts
from optsched.instance.durations import UNLIMITED, OutOfTime, Timer
from optsched.program import Assumption, Expression, LinearProgram, Variables
from optsched.program.integers import rounded_up
from optsched.solution import Conflict, Schedule, Termination
from optsched.solution.plan import Later, LinearPlan, Parts, Shortage
from optsched.solution.time_prices import TimePrices

MOST_COLUMNS = 1_000_000
MOST_AS_IT_IS = 10_000
"""Levels in intervals from which on column generation is the better way."""
MOST_GENERATED = 40_000
"""Levels in intervals up to which columns are generated where prices have a bound: each pass takes
seconds beyond, and the passes that a round has time for improve neither the bound nor the plan.
"""
FEWEST_PRICED, MOST_PRICED = 200, 2000
"""Jobs of which prices are sought where the first plan does not keep all: of few jobs all orders
are tried in less time than prices take."""
MOST_HELD = 5_000_000
"""Entries of capacity rows beyond which no program is built: building takes seconds, and no solver
finds a better plan in minutes.
"""
FOR_PROGRAM = 0.7
"""Part of a time limit after which the program is not built further."""
ASKED = Termination.BY_RULE, "the plan by rule is asked for, and no program"
GIVEN = "the schedule is given"
NO_TIME = "the time limit was over before the program was built"


class DeadlineElastic(Formulation):
    """Meet deadlines with jobs whose GPUs and pool may change, at the cost of a restart;
    least GPU time, or the least value of jobs that are declined.

    The *plan by rule* is made first (`formulations.level_planner`): jobs come by slack or by
    deadline, in rounds also after those of the last plan; the best of these plans counts. Each
    takes the level with the least GPU time that still meets its deadline, or changes its level
    where no level alone meets it; of several deadlines the one that is worth most and has room. All
    run as early as they can, or all when most GPUs are free. A job that finds no room may take the
    place of another that costs more. In the program a job keeps that plan, or is planned anew in
    whole intervals. Without the program jobs that wait run on GPUs that are free until then, at a
    level with which they end earlier.

    Sets
        j in J: jobs with a deadline;  c in C_j: their levels, columns without a partner;
        t = 0, 1, ...: intervals;  s: steps of time, which end where something changes: an interval,
        the plan by rule, or capacity;  r in R: renewable resources.
    Parameters
        d_c: duration of the work that is left, in level c; with the option ``quantile`` q a
        duration from a rate is kept with probability q (stated durations are exact);
        L_ct: length of the part of interval t between arrival and deadline of c;
        e_c: a restart in c, in seconds; o_c: what is left of one if the job goes on in c as it runs
        now;
        q_c: GPUs of c;  u_rc: what it holds of r;  U_rjs: what job j holds of r in step s by the
        plan by rule, P_j its GPU seconds;  G_rs: capacity of r;  v_jm: value of the job that meets
        its deadline m, as in `deadline-fluid`;
        g_bc: what a second of progress in c uses up of the consumable resource b;  S_bj: what job j
        uses up by the plan by rule;  B_b: what there is.
    Variables
        x_ct: 1 if the job runs in c during t;  y_ct: 1 if it restarts in c at the beginning of t;
        w_c: seconds in which it makes progress in c;
        h_jt: 1 if it ran before t, a constant 1 for jobs that have run already;
        z_j: 1 if it keeps the plan by rule;  a_jm: 1 if it meets its deadline m.
    Program
        minimise  sum_c q_c (w_c + sum_t e_c y_ct + o_c x_c0)  +  sum_j P_j z_j     if all must meet their deadlines
        minimise  sum_j max_m v_jm  -  sum_j sum_m v_jm a_jm                        if some may be declined
        once      sum_{c in C_j} x_ct  +  z_j  <=  1                        every job and interval
        restart   y_ct  >=  x_ct  -  x_c,t-1  -  (1 - h_jt)                 levels with e_c > 0
        ran       h_jt  >=  h_j,t-1,   h_jt  >=  sum_c x_c,t-1              jobs that have not run yet
        progress  w_c  <=  sum_t (L_ct x_ct - e_c y_ct) - o_c x_c0          every level with some x
        work      sum_{c in C_j} w_c / d_c  +  z_j  >=  sum_m a_jm          every job
        deadline  the same of what is done by then                          every deadline of a job
        piece     sum_c sum_t (start of c in t)  <=  1                      jobs that cannot be preempted
        capacity  sum_c u_rc x_c,t(s)  +  sum_j U_rjs z_j  <=  G_rs         resources and steps
        budget    sum_c g_bc w_c  +  sum_j S_bj z_j  <=  B_b                consumable resources
        x, z, a binary;  0 <= y, h <= 1
    Of options with their own deadlines (attribute ``deadline``), a job meets one; its work is done
    by then. A first start is free: a job that has not run has nothing to restore. Of a job that
    goes on in its level from now on, x_c,-1 is 1. A job that runs now and cannot be preempted keeps
    the plan by rule, in which it goes on to its end. One in its exempt time goes on as it runs
    until that ends, and then counts as one that arrives with the work that is left. Where such jobs
    hold more than there is, there is no plan: the answer names them. One that goes on too late for
    its deadline only leaves nothing to others. In the row ``budget`` sum_t L_ct x_ct stands for w_c
    of jobs with several deadlines, and of all jobs in column generation. Jobs without a deadline
    are unplaced; in rounds they run on GPUs that the plan leaves idle.

    Work that is left of less than 1e-4 s counts as 1e-4 s, and as 0.5 s where ``now`` counts seconds
    from 1970: such clocks round by 2e-7 s, and solvers keep rows to about 1e-7 s, so that nobody
    could tell whether less is done. `deadline-fluid` and `elasticflow` count so, too.

    Intervals begin where the plan by rule starts or ends something, where a job arrives or must be
    done, and where capacity changes. Beyond ``intervals`` of them those later are merged, so that
    time is fine where the next decisions are. The plan by rule is a point of the program whatever
    the intervals are, so that the answer is never worse. What the program says of other plans holds
    for whole intervals: it does not prove that there is no better plan. `deadline-fluid` bounds
    all.

    A large program in which jobs may be declined is not built where the plan by rule loses nothing.
    Else it is solved by column generation, with a bound in any case: a column is
    a whole schedule of one job, priced as a shortest path over intervals and levels
    (`formulations.level_paths`); the rows of the master are the capacity and what there is to
    consume. A program of more than 5,000,000 entries of capacity rows (about 800 jobs) is not
    built, neither for slots nor for columns. Then the answer is the plan by rule.

    Where the first plan by rule does not keep all of 200 to 2,000 jobs, and some may be declined,
    prices of time on GPUs are sought (`formulations.level_prices`): no plan keeps more value than
    they allow. The solution keeps the prices, which prove its bound. Jobs that cost more than they
    are worth at these prices come last in the plans by rule. With this bound a program of more than
    40,000 x is not solved. Without prices the bound of a plan by rule counts only the jobs that are
    late even alone; that of `deadline-fluid` is better.

    With more than 600 jobs the plan by rule is also sought by sweeps over time, which take a second
    for tens of thousands (`formulations.level_sweep`): a job starts once there is room, at the
    cheapest level that is still in time, and runs without interruption. With more than 10,000 jobs
    and no plan of a last round only sweeps are made.

    The time limit holds for the rule, too. Once seven tenths of it are over, the best plan so far
    is the answer: of a plan that is not finished the jobs that it has planned. Then no program is
    built, and there is no bound. Of a plan by rule alone no rows of capacity are made: its room is
    checked step by step. Where sums show that jobs which must all be kept need more time on GPUs
    than there is, as in `deadline-fluid`, there is no plan by rule either.

    Options
        admission   jobs may be declined; otherwise all must meet their deadlines, or the instance
                    is infeasible.
        guarantee   in rounds: a job that is planned is promised its deadline if it takes at most this part of the GPU
                    time that promises leave free before its deadline. Later rounds decline it only
                    if there is no other way. 0: newcomers may take the place of every job.
        program     whether the program is solved; otherwise the answer is the plan by rule, with no
                    bound but that of prices, and nothing is proven where it does not keep all jobs
                    that must be kept.
        orders      without the program and ``admission``: orders in which a plan of all jobs is
                    searched; with 1 it only shows that all can be kept, and no job that waits runs
                    earlier on free GPUs.
        intervals   the most intervals.
        columns     x_ct from which on jobs that may be declined are planned by column generation.
        slot        length of intervals in s, which are equal then.
        capacity    {resource: [capacity in round 0, 1, ...]}: calendars; the last number goes on.

    References
        D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep
        Learning", ASPLOS 2023 (levels by slot; here as a program, with restarts).
    """

    name = "deadline-elastic"
    reads = frozenset({"steps_left", "arrival", "deadline", "soft_deadline", "weight"})
    also_reads = frozenset({"preemptible", "exempt_time", "running", "restart_cost", "value"})
    reads_pairs = False
    sense = "min"
    takes_rows = False
    plans_ahead = True
    awaits_nodes = True
    hard_deadlines = True
    goes_on = True
    sweeps = True
    in_rounds = MappingProxyType({"admission": True, "program": False})
    objective_words = "GPU seconds, or the value of declined jobs"

    class Options(FormulationOptions):
        """Options of the program of levels."""

        admission: bool = False
        guarantee: Annotated[float, Field(ge=0, le=1)] = 0.02
        program: bool = True
        orders: Annotated[int, Field(ge=1, le=len(ORDERS))] = len(ORDERS)
        intervals: Annotated[int, Field(ge=1, le=1000)] = 30
        columns: Annotated[int, Field(ge=0)] = MOST_AS_IT_IS
        slot: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
        capacity: Calendar = Field(default_factory=dict)

    def classes(self, candidates: Candidates) -> Classes:
        """A class for each job with a deadline, as each has its own plan (`candidates_of_plan`)."""
        candidates = candidates_of_plan(self, candidates)
        free = of_best_effort(candidates)
        each = np.where(free, 0, np.arange(1, len(free) + 1))
        return candidates.at_quantile(self._quantile()).classes(self.reads, [each])

    def promises(self, schedule: Schedule, promised: BoolArray) -> BoolArray:
        """Those promised before, and those that take a small part of the GPU time that is free."""
        C, kept = schedule.classes, promised.copy()
        gpus, start, end = schedule.gpus, schedule.start, schedule.end
        pools = C.instance.cluster.pools
        there = np.array([pool.capacity(C.instance.now) for pool in pools], np.float64)
        due = column_deadlines(C)[schedule.column]
        cost = np.bincount(schedule.job, gpus * (end - start), len(kept))
        new = np.unique(schedule.job[~kept[schedule.job]])
        for job in new[np.argsort(cost[new], kind="stable")].tolist():
            until = float(due[schedule.job == job].max())
            usable = np.unique(C.pool[C.alone & (C.class_a == C.of_job[job])])
            some = kept[schedule.job] & np.isin(schedule.pool, usable)
            seconds = np.clip(np.minimum(end[some], until) - start[some], 0.0, None)
            free = (
                there[usable[usable >= 0]].sum() * (until - C.instance.now) - gpus[some] @ seconds
            )
            kept[job] = cost[job] <= self.options.guarantee * free
        return kept

    def build(self, C: Classes) -> LinearPlan:
        options = self.options
        promised = np.zeros(len(C), bool) if self.promised is None else self.promised[C.first]
        declines = options.admission & ~(promised & options.program)
        program = ElasticProgram(
            C,
            Supply.of(C, options.capacity, self.name, self.restarts_of(C.instance)),
            asked_classes(C) & (C.soft_deadline | declines),
            options.admission,
            self,
            promised,
            self.timer.part(FOR_PROGRAM),
            None if options.program else ASKED,
        )
        # Where sums show that no plan keeps all, none is searched.
        if (not self.searches and options.slot is None) or program.shortage is not None:
            return program.without_search()
        try:
            return program.plan()
        except OutOfTime:
            return program.by_rule_alone(Termination.TIME_LIMIT, NO_TIME)

    def rule(self, program: ElasticProgram) -> RulePlan:
        """The plan by rule of a program: the best of sweeps over time and of plans in which jobs
        come one after the other; of more than `MOST_PLANNED` jobs only sweeps.

        A plan of the last round is not swept: jobs go on with it.
        """
        table, profile, timer = program.levels, program.profile, self.timer.part(FOR_PROGRAM)
        jobs, swept = np.count_nonzero(table.has_level[program.C.of_job]), None
        if self.sweeps and jobs > MOST_REPAIRED and program.restarts.planned is None:
            swept = RulePlan.swept(table, profile, timer)
        if swept is not None and (jobs > MOST_PLANNED or swept.stopped):
            return swept
        try:
            objects = table.jobs(self.timer if swept is None else timer.strict())
        except OutOfTime:
            if swept is None:
                raise
            return swept._replace(stopped=True)
        timer = timer if swept is None else timer.strict()
        last = program.last_runs(objects)
        priced = PricedJobs(program, objects, timer)
        is_priced = FEWEST_PRICED <= jobs <= MOST_PRICED and program.optional.any()
        found = RulePlan.of(
            self.plan_by_rule(objects, profile, last, timer, priced if is_priced else None)
        )
        if swept is not None and found.merit < swept.merit:
            found = swept._replace(stopped=found.stopped)
        return found._replace(time_prices=priced.found)

    @property
    def refutes(self) -> bool:
        """Whether another program is asked to show that no schedule keeps all deadlines."""
        return bool(self.options.program)

    def plan_by_rule(
        self,
        jobs: Sequence[LevelJob],
        profile: Profile,
        last: Mapping[int, Run],
        timer: Timer,
        find_overpriced: FindOverpriced | None = None,
    ) -> LevelPlan:
        """The plan in which jobs come one after the other; ``last`` and ``find_overpriced`` as of
        `plan_levels`.
        """
        options, plan = self.options, None
        if not (options.program or options.admission):
            orders = options.orders
            plan = plan_of_all(jobs, profile, orders, last, timer, levelled_only=orders == 1)
            if plan is None and all(job.promised for job in jobs):
                # A plan of some of them is of no use.
                return LevelPlan(jobs, profile.copy(), stopped=timer.is_over)
        plan = plan or plan_levels(
            jobs, profile, options.program, last, timer, find_overpriced=find_overpriced
        )
        if not options.program and (options.admission or options.orders > 1):
            plan.start_early(timer)
        return plan


@dataclass
class PricedJobs:
    """Which jobs cost more than they are worth at the prices of time on GPUs; a `FindOverpriced`.

    Attributes
    ----------
    program : ElasticProgram
    jobs : sequence of LevelJob
    timer : Timer
    found : TimePrices or None
        The prices, once they were asked for; None where there are none.
    """

    program: ElasticProgram
    jobs: Sequence[LevelJob]
    timer: Timer
    found: TimePrices | None = None

    def __call__(self, known: float) -> set[int] | None:
        priced = self.program.priced()
        prices = priced.prices(known, self.timer)
        if prices is None:
            return None
        self.found = TimePrices(self.program.resource_names, priced.ends, prices.price)
        of_job = self.program.C.of_job
        return {
            number
            for number, job in enumerate(self.jobs)
            if prices.overpriced[of_job[job.job]] and not job.promised
        }


@dataclass(frozen=True)
class ElasticProgram(DeadlineProgram):
    """Levels, intervals and variables of one program, in the symbols of `DeadlineElastic`.

    Attributes
    ----------
    formulation : DeadlineElastic
        The options and the rule.
    promised : BoolArray, shape (J,)
        Jobs that were admitted before.
    timer : Timer
        When the program has to be built.
    unsearched : (Termination, str) or None
        As of `LinearPlan`: why only the plan by rule counts.
    """

    formulation: DeadlineElastic
    promised: BoolArray
    timer: Timer
    unsearched: tuple[Termination, str] | None

    @property
    def solved(self) -> bool:
        """Whether there are levels in intervals, beside the plan by rule."""
        return self.unsearched is None

    @property
    def slot(self) -> float | None:
        return cast("float | None", self.formulation.options.slot)

    @cached_property
    def restarts(self) -> Restarts:
        return self.formulation.restarts_of(self.C.instance)

    # --- levels and the plan by rule --------------------------------------------------------------

    @property
    def release(self) -> FloatArray:
        """Seconds from now until each job arrives, or its exempt time ends; (J,)."""
        return self.levels.release

    @cached_property
    def c(self) -> IntArray:
        """Class columns that are levels: those in which a job could run before a deadline."""
        C, c = self.C, columns_with_deadline(self.C)
        return c[column_deadlines(C)[c] > np.maximum(C.arrival[C.class_a[c]], self.now)]

    @cached_property
    def j(self) -> IntArray:
        """Job, as a class, of each level, (c,)."""
        return self.C.class_a[self.c]

    @cached_property
    def levels(self) -> LevelTable:
        """The levels of the jobs, in the order of ``c``."""
        value, promised = self.value[self.c], self.promised | ~self.optional
        return LevelTable.of(self.C, self.c, self.due, value, promised, self.restarts)

    @cached_property
    def may_stop(self) -> BoolArray:
        """Jobs that may run in several pieces, (J,)."""
        return self.restarts.preemptible(self.C.instance)[self.C.first]

    @cached_property
    def witness(self) -> RulePlan:
        """The plan by rule (`DeadlineElastic.rule`). Solvers start from its point (`_known`)."""
        return self.formulation.rule(self)

    def last_runs(self, jobs: Sequence[LevelJob]) -> dict[int, Run]:
        """What is left of the runs of the last plan, by the number of the job."""
        planned = self.restarts.planned
        if planned is None or not len(self.c):
            return {}
        C = self.C
        ways = np.column_stack([self.j, C.labels_of(self.c)])
        level = find_rows(ways, np.column_stack([C.of_job[planned.job], planned.label]))
        begin, end = planned.start - self.now, planned.end - self.now
        begin = np.maximum(begin, self.release[self.j[level]])
        order = np.lexsort((planned.start, planned.job))
        ahead = order[(level >= 0)[order] & (np.maximum(begin, self._slack(end)) < end)[order]]
        stretches = (planned.job, level, begin, end)
        levels = {level.column: level for job in jobs for level in job.levels}
        pieces: dict[int, list[Piece]] = {}
        for job, c, start, stop in zip(*(part[ahead].tolist() for part in stretches), strict=True):
            pieces.setdefault(job, []).append(Piece(levels[int(self.c[c])], start, stop))
        runs = {
            number: run_within(job, pieces[job.job])
            for number, job in enumerate(jobs)
            if job.job in pieces and job.goes_on is None
        }
        return {number: run for number, run in runs.items() if run is not None and run.in_time}

    @cached_property
    def profile(self) -> Profile:
        """What there is, beside jobs that go on to their ends too late, as they cannot be
        preempted, and jobs in their exempt time.
        """
        return self.levels.beside(self._beside_late, self.levels.exempt)

    def priced(self, ends: FloatArray | None = None) -> PricedLevels:
        """The jobs as they pay prices for the time on GPUs, which are constant between some ends,
        or those of `pieces_of`.
        """
        (k, due, value), able = self.deadlines, self.able
        return PricedLevels(
            table=self.levels,
            profile=self.profile,
            held=np.asarray(self.uses.toarray(), np.float64),
            optional=self.optional,
            k=k[able],
            due=due[able],
            value=value[able],
            ends=pieces_of(due[able]) if ends is None else ends,
        )

    @property
    def resource_names(self) -> tuple[str, ...]:
        """Resources that have prices of time."""
        return tuple(self.C.resources.names[row] for row in self.renewable.tolist())

    def bound_by(self, prices: TimePrices) -> float:
        """The least value of declined jobs, as prices of time show."""
        kept = self.priced(prices.ends).kept_at_most(prices.price)
        return rounded_up(float(self.highest_value.sum()) - kept, self._step)

    @cached_property
    def _beside_late(self) -> Profile:
        """What jobs leave that go on to their ends too late: nothing where they hold more than
        there is, like running jobs that are not planned at all.
        """
        times = np.append(0.0, self.supply.changes)
        amounts = self.supply.at(times)
        profile = Profile(times, amounts[self.renewable], self.C.capacity[self.consumable])
        profile = self.levels.beside(profile, self.levels.stays & ~self.levels.stays_in_time)
        return Profile(profile.times, np.maximum(profile.free, 0.0), np.maximum(profile.left, 0.0))

    @cached_property
    def planned(self) -> _JobRuns:
        """P_j and U_rjs: the plan by rule, by job and start."""
        job, column, begin, end = self.witness.stretches.T
        j, c = self.C.of_job[job.astype(np.int64)], np.searchsorted(self.c, column.astype(np.int64))
        order = np.lexsort((begin, j))
        return _JobRuns(j[order], c[order], begin[order], end[order])

    @property
    def z(self) -> IntArray:
        """Job, as a class, of each z."""
        return self.planned.jobs

    # --- time -------------------------------------------------------------------------------------

    @cached_property
    def horizon(self) -> float:
        """The last deadline, seconds from now."""
        return float(self.due.max(initial=0.0))

    @cached_property
    def edges(self) -> FloatArray:
        """Seconds from now to the ends of intervals."""
        if not self.solved or not len(self.c):
            return np.zeros(1)
        if self.slot is not None:
            count = self.horizon / self.slot - ROUNDING
            if not count * len(self.c) <= MOST_COLUMNS:
                found = f"{self.slot:g} s: {count:,.9g} slots of {len(self.c):,} levels"
                raise InvalidArgument(
                    "option of deadline-elastic: slot",
                    found,
                    f"so long that there are at most {MOST_COLUMNS:,} slots of levels",
                )
            return np.asarray(np.arange(math.ceil(count) + 1) * self.slot, np.float64)
        events = self._events
        most = max(2, min(int(self.formulation.options.intervals), MOST_COLUMNS // len(self.c)))
        if len(events) <= most + 1:
            return events
        fine = most // 2
        merged = np.linspace(fine, len(events) - 1, most - fine + 1).round().astype(np.int64)
        return events[np.append(np.arange(fine), merged)]

    @cached_property
    def _events(self) -> FloatArray:
        """Moments at which something changes in the plan by rule, a job arrives or must be done."""
        times = self.witness.times
        events: FloatArray = np.unique(np.concatenate([times, self.release[self.j], self.due]))
        events = events[events <= self.horizon]
        # Rounding makes no interval.
        kept: FloatArray = events[np.append(True, np.diff(events) > self._slack(events[1:]))]
        return kept

    @cached_property
    def steps(self) -> FloatArray:
        """Seconds from now to the beginning of each step."""
        return np.unique(np.concatenate([self.edges, self._events]))

    # --- the columns x ----------------------------------------------------------------------------

    @cached_property
    def first(self) -> IntArray:
        """First interval of each level, (c,)."""
        return np.searchsorted(self.edges, self.release[self.j], "right").astype(np.int64) - 1

    @cached_property
    def size(self) -> IntArray:
        """Intervals of each level, (c,); none for a job that goes on as it does."""
        size = np.searchsorted(self.edges, self.due).astype(np.int64) - self.first
        size = np.minimum(size, len(self.edges) - 1 - self.first)
        size[self.due <= self.release[self.j]] = 0
        return np.where(self.levels.stays[self.j], 0, np.maximum(size, 0))

    @cached_property
    def w(self) -> IntArray:
        """Level of each w: those with intervals."""
        return np.flatnonzero(self.size)

    @cached_property
    def begin(self) -> FloatArray:
        """Begin of each x: that of its interval, or the arrival."""
        return np.maximum(self.edges[self.t], self.release[self.j[self.of]])

    @cached_property
    def end(self) -> FloatArray:
        """End of each x: that of its interval, or the deadline."""
        return np.minimum(self.edges[self.t + 1], self.due[self.of])

    @cached_property
    def before(self) -> IntArray:
        """The x of the same level one interval earlier, -1 for the first."""
        return np.where(self.t > self.first[self.of], np.arange(len(self.of)) - 1, -1)

    @cached_property
    def job_and_interval(self) -> tuple[IntArray, IntArray, IntArray]:
        """Jobs and intervals with some x, in this order; which of them each x belongs to."""
        key = self.j[self.of] * len(self.edges) + self.t
        rows, row = np.unique(key, return_inverse=True)
        return rows // len(self.edges), rows % len(self.edges), row

    @property
    def d(self) -> FloatArray:
        """Duration of the work that is left, s, (c,)."""
        return self.levels.duration

    @property
    def q(self) -> FloatArray:
        """GPUs of each level, (c,)."""
        return self.levels.gpus

    @cached_property
    def _restart(self) -> tuple[FloatArray, FloatArray, BoolArray]:
        """e_c; o_c, NaN where the job does not run so; whether the job has run before; (c,).

        After a restart as long as the time until the deadline nothing can be done: longer ones
        count as so long, as a large number in a row would hide work behind its rounding.
        """
        again = np.minimum(self.levels.again, self.due)
        return again, self.levels.onward, self.restarts.ran[self.C.first[self.j]]

    # --- when jobs are done: the columns a --------------------------------------------------------

    @cached_property
    def deadlines(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """(j, deadline in seconds from now, value) of each a, in this order."""
        return each_deadline(self.j, self.due, self.value[self.c])

    def _by_deadline(self, j: IntArray) -> tuple[IntArray, IntArray]:
        """(number of a, index of ``j``) of all deadlines of the job of each entry."""
        of_deadline = self.deadlines[0]
        first = np.searchsorted(of_deadline, j)
        count = np.searchsorted(of_deadline, j, "right") - first
        return ranges(first, count), owners(count)

    @property
    def able(self) -> BoolArray:
        """Whether each deadline leaves the job as much time as its fastest level needs without a
        restart.
        """
        j, due, _ = self.deadlines
        fastest = np.full(len(self.C), np.inf)
        np.minimum.at(fastest, self.j, self.d)
        left = due + self._slack(due) - self.release[j]
        return np.asarray(left >= fastest[j] * (1.0 - DONE))

    @property
    def _loses_nothing(self) -> bool:
        """Whether every job has the largest value that it could have alone by the plan by rule."""
        j, _, value = self.deadlines
        most, kept = np.zeros((2, len(self.C)))
        np.maximum.at(most, j, value * self.able)
        kept[self.z] = self.value[self.c][self.planned.c[self.planned.last]]
        return bool((kept >= most).all())

    # --- the program ------------------------------------------------------------------------------

    def plan(self) -> LinearPlan:
        """The program that `DeadlineElastic` states; raises `OutOfTime` if it takes too long to
        build.
        """
        if self.witness.stopped and self.timed:
            return self.by_rule_alone(Termination.TIME_LIMIT, NO_TIME_FOR_RULE)
        self._refuse_impossible()
        if self.solved and self._held_by_x > MOST_HELD:
            return self.by_rule_alone(
                Termination.BY_RULE,
                f"the program would have {self._held_by_x:,} numbers of capacity rows, "
                f"more than {MOST_HELD:,}; deadline-fluid has a better bound",
            )
        chooses, generates = bool(self.optional.any()), self.generates
        if self.solved and len(self.of) > MOST_GENERATED and self.witness.time_prices is not None:
            return self.by_rule_alone(
                Termination.BY_RULE,
                f"the program would have {len(self.of):,} levels in intervals, "
                f"more than {MOST_GENERATED:,}; prices bound it",
            )
        # Where the GPU time is not minimised either, no program could give a better plan.
        if self.solved and generates and not self._later().is_solved and self._loses_nothing:
            return self.by_rule_alone(Termination.BY_RULE, "the plan by rule loses no value")
        lp, variables = self.rows(self.timer if self.solved else UNLIMITED)
        if chooses:
            value = self.deadlines[2]
            lp.minimise(float(self.highest_value.sum()) - value[np.newaxis, :] @ variables.a)
        else:
            lp.minimise(self._gpu_time(variables))
        return LinearPlan(
            self.C,
            lp,
            self._read,
            self.complete,
            self._describe,
            assumption=self._assumption,
            shortage=lambda: self.shortage,
            refuted_by=self._fluid if self.formulation.refutes and self.slot is None else None,
            known=self._known,
            later=(self._later(),) if chooses else (),
            solves_later=self.solved,
            unsearched=self._unsearched_for_all(),
            declined=self._declined,
            step=self._step if chooses else None,
            parts=self._parts if generates else None,
            of_schedule=self.of_schedule,
            rounding=0.0 if chooses else self._rounded_gpu_time,
            time_prices=self.witness.time_prices if chooses else None,
            bound_by=self.bound_by if chooses else None,
        )

    @property
    def generates(self) -> bool:
        """Whether the program is solved by column generation."""
        return bool(self.optional.any()) and len(self.of) >= self.formulation.options.columns

    def _unsearched_for_all(self) -> tuple[Termination, str] | None:
        """``unsearched``, with the number of jobs that the plan by rule keeps, if that is too few."""
        kept, asked = np.count_nonzero(self.must[self.z]), np.count_nonzero(self.must)
        if self.unsearched is None or kept == asked:
            return self.unsearched
        end, why = self.unsearched
        return end, (
            f"{why}; it keeps {kept:,} of the {asked:,} jobs that must be kept, "
            "and the option admission lets jobs be declined"
        )

    @property
    def timed(self) -> bool:
        """Whether the time limit has not ended the search yet."""
        return self.unsearched is None or self.unsearched[0] is not Termination.TIME_LIMIT

    def by_rule_alone(self, end: Termination, why: str) -> LinearPlan:
        """The plan in which every job keeps the plan by rule or is declined."""
        return self._with_witness(self.witness, end, why).plan()

    def without_search(self) -> LinearPlan:
        """The plan without one by rule: a check adds the schedule of its file (`of_schedule`)."""
        return self._with_witness(NO_PLAN, Termination.TIME_LIMIT, GIVEN).plan()

    def _with_witness(self, witness: RulePlan, end: Termination, why: str) -> ElasticProgram:
        """The program in which jobs keep a given plan or are declined."""
        alone = replace(self, unsearched=(end, why))
        vars(alone).update(levels=self.levels, deadlines=self.deadlines, witness=witness)
        return alone

    def of_schedule(self, schedule: Schedule) -> LinearPlan:
        """The plan in which jobs run as in a schedule or are declined. Raises ValueError where a
        job that goes on to its end is not in it.
        """
        runs = self._runs_of(schedule)
        missing = self.levels.stays_in_time & ~mask_of(runs.j, len(self.C))
        self._refuse(np.flatnonzero(missing), lambda _: "cannot be preempted, and does not go on")
        given = RulePlan(self._stretches_of(runs))
        return self._with_witness(given, Termination.TIME_LIMIT, GIVEN).plan()

    @property
    def _held_by_x(self) -> int:
        """How many entries the rows ``capacity`` have for x: whatever the intervals are, as many
        for each level as there are steps between its release and its deadline.
        """
        _, steps = self._steps_between(self.release[self.j], self.due)
        return int(steps @ np.diff(self.uses.indptr))

    def rows(self, timer: Timer = UNLIMITED) -> tuple[LinearProgram, ElasticVariables]:
        """Variables and rows, without an objective; raises `OutOfTime` once the time is over."""
        C, of, (of_deadline, due, _) = self.C, self.of, self.deadlines
        lp = LinearProgram()
        variables = ElasticVariables(
            x=lp.variables(len(of), name="x", upper=1.0, integer=True),
            y=lp.variables(len(self.charged), name="y", upper=1.0),
            h=lp.variables(len(self.fresh), name="h", upper=1.0),
            w=lp.variables(len(self.w), name="w", upper=self.d[self.w]),
            z=lp.variables(
                len(self.z),
                name="z",
                lower=self.levels.stays[self.z].astype(np.float64),
                upper=1.0,
                integer=True,
            ),
            a=lp.variables(len(of_deadline), name="a", upper=self.able * 1.0, integer=True),
        )
        x, y, _, w, z, a = variables
        timer.check()
        j_row, _, row = self.job_and_interval
        keeps = sp.csr_matrix(sum_by(self.z, 1.0, len(C)))
        lp.constrain(sum_by(row, 1.0, len(j_row)) @ x + keeps[j_row] @ z <= 1.0, name="once")
        self._restart_rows(lp, variables)

        timer.check()
        work, delay = self._work
        number, z_of = self._kept_deadlines
        kept = sp.csr_matrix((np.ones(len(z_of)), (number, z_of)), shape=(len(due), len(self.z)))
        until, a_of = self._by_deadline(of_deadline)
        count_until = sp.csr_matrix(
            ((until >= a_of) * 1.0, (until, a_of)), shape=(len(due), len(due))
        )
        lp.constrain(work @ x - delay @ y + kept @ z - count_until @ a >= 0.0, name="deadline")
        held, restarted = (part[self.w] for part in self._progress)
        lp.constrain(held @ x - restarted @ y - w >= 0.0, name="progress")
        done_in = sum_by(self.j[self.w], 1.0 / self.d[self.w], len(C))
        jobs = np.unique(of_deadline)
        each = sum_by(np.searchsorted(jobs, of_deadline), 1.0, len(jobs))
        lp.constrain(done_in[jobs] @ w + keeps[jobs] @ z - each @ a >= 0.0, name="work")

        least = np.where(self.optional[jobs], 0.0, 1.0)
        lp.constrain((each @ a).between(least, np.ones(len(jobs))), name="take")

        # `complete` checks the room of a plan by rule alone, as these rows have a number for every
        # job in every step in which it runs.
        if self.solved:
            timer.check()
            by_x, by_z, used = self._held
            timer.check()
            G = self._free.ravel()[used]
            lp.constrain(by_x @ x + by_z @ z <= G, name="capacity")
        if len(self.consumable):
            self._budget_rows(lp, variables)
        return lp, variables

    def _budget_rows(self, lp: LinearProgram, variables: ElasticVariables) -> None:
        """What is consumed keeps within the rows ``budget``: of jobs that may end in the middle of
        an interval all of it counts, where w does not say how much they do.
        """
        spent, of = self._spent_a_second, self.of
        # Pricing knows no costs of w, and a job with several deadlines runs as early as it can.
        exact = np.bincount(self.deadlines[0], minlength=len(self.C))[self.j] == 1
        exact &= not self.generates
        by_w = spent[:, self.w] @ sp.diags_array(exact[self.w] * 1.0)
        by_x = spent[:, of] @ sp.diags_array(np.where(exact[of], 0.0, self.end - self.begin))
        planned = self.planned
        by_z = spent[:, planned.c] @ sp.diags_array(self._needed_of(planned))
        by_z = by_z @ sum_by(planned.number, 1.0, len(self.z)).T
        by_row = (sp.csr_matrix(part) for part in (by_x, by_w, by_z))
        x_rows, w_rows, z_rows = by_row
        x, _, _, w, z, _ = variables
        lp.constrain(x_rows @ x + w_rows @ w + z_rows @ z <= self.profile.left, name="budget")

    @cached_property
    def _spent_a_second(self) -> sp.csc_matrix:
        """What a second of progress in each level uses up, shape (B, c): u_bc is that of all the
        work, so that a level uses up its part of the work's.
        """
        used = self.C.usage.tocsr()[self.consumable][:, self.c]
        return sp.csc_matrix(used @ sp.diags_array(1.0 / durations(self.C, self.c)))

    @cached_property
    def charged(self) -> IntArray:
        """The x with a y: a start there costs time, or is the only one that the job may have."""
        again, onward, ran = self._restart
        of, t = self.of, self.t
        single = ~self.may_stop[self.j]
        goes_on = ~np.isnan(onward[of]) & (t == self.first[of])
        earliest = (t == self.first[of]) & ~ran[of] & ~single[of]
        return np.flatnonzero(((again > 0) | single)[of] & ~goes_on & ~earliest).astype(np.int64)

    @cached_property
    def fresh(self) -> IntArray:
        """Rows of `job_and_interval` with an h: of jobs that have not run yet, but for the
        first.
        """
        if not len(self.of):
            return np.zeros(0, np.int64)
        again, _, ran = self._restart
        needs = np.zeros(len(self.C), bool)
        np.logical_or.at(needs, self.j, (again > 0) & ~ran)
        needs &= self.may_stop
        j_row, _, _ = self.job_and_interval
        later = np.append(False, np.diff(j_row) == 0)
        return np.flatnonzero(later & needs[j_row]).astype(np.int64)

    @cached_property
    def _ran_before(self) -> tuple[IntArray, IntArray]:
        """The h of each row of `job_and_interval`, and of each y with a first start that is free;
        -1 where there is none.
        """
        j_row, _, row = self.job_and_interval
        number = np.full(len(j_row), -1, np.int64)
        number[self.fresh] = np.arange(len(self.fresh))
        row_of_y = row[self.charged]
        return number, np.where(self.may_stop[j_row[row_of_y]], number[row_of_y], -1)

    def _restart_rows(self, lp: LinearProgram, variables: ElasticVariables) -> None:
        """Restarts, what ran before, and pieces of jobs that cannot be preempted."""
        x, y, h, _, _, _ = variables
        e, of = self.charged, self.of
        if not len(e):
            return
        j_row, _, row = self.job_and_interval
        number, ran_before = self._ran_before
        starts = rows_of(e, len(of)) - _one(self.before[e], len(of))
        ran = _one(ran_before, len(self.fresh))
        lp.constrain(
            y - starts @ x - ran @ h >= np.where(ran_before >= 0, -1.0, 0.0), name="restart"
        )
        if len(self.fresh):
            some = sum_by(row, 1.0, len(j_row)).tocsr()[self.fresh - 1]
            lp.constrain(h - some @ x >= 0.0, name="ran")
            lp.constrain(
                h - _one(number[self.fresh - 1], len(self.fresh)) @ h >= 0.0, name="ran on"
            )
        single = np.flatnonzero(~self.may_stop[j_row[row[e]]])
        if len(single):
            jobs, job = np.unique(j_row[row[e[single]]], return_inverse=True)
            pieces = sp.csr_matrix((np.ones(len(single)), (job, single)), (len(jobs), len(e)))
            lp.constrain(pieces @ y <= 1.0, name="piece")

    @cached_property
    def _work(self) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Part of a job's work that each x does by each deadline, and that each y takes of it."""
        j, due, _ = self.deadlines
        of, e = self.of, self.charged
        number, x = self._by_deadline(self.j[of])
        length = np.clip(np.minimum(self.end[x], due[number]) - self.begin[x], 0.0, None)
        part = (length - self._restores[x]) / self.d[of[x]]
        work = sp.csr_matrix((part, (number, x)), shape=(len(j), len(of)))
        number, y = self._by_deadline(self.j[of[e]])
        part = np.where(self.begin[e[y]] < due[number], self._delays[y], 0.0) / self.d[of[e[y]]]
        return work, sp.csr_matrix((part, (number, y)), shape=(len(j), len(e)))

    @cached_property
    def _restores(self) -> FloatArray:
        """Seconds that each x begins with if the job goes on as it runs now."""
        _, onward, _ = self._restart
        return np.where(self.t == self.first[self.of], np.nan_to_num(onward)[self.of], 0.0)

    @cached_property
    def _delays(self) -> FloatArray:
        """Seconds that each y costs."""
        again, _, ran = self._restart
        c = self.of[self.charged]
        return np.where(ran[c] | self.may_stop[self.j[c]], again[c], 0.0)

    @cached_property
    def _free(self) -> FloatArray:
        """G_rs, shape (R, steps)."""
        at = np.searchsorted(self.profile.times, self.steps + self._slack(self.steps), "right") - 1
        return self.profile.free[:, at]

    @cached_property
    def _held(self) -> tuple[sp.csr_matrix, sp.csr_matrix, IntArray]:
        """What each x and each z holds; resource and step, as one number, of each row that is
        used.
        """
        planned = self.planned
        by_x = self._entries(np.arange(len(self.of)), self.of, self.begin, self.end)
        by_z = self._entries(planned.number, planned.c, planned.start, planned.end)
        mask = np.zeros(self.uses.shape[0] * len(self.steps), bool)
        mask[by_x.row] = mask[by_z.row] = True
        row, used = np.cumsum(mask) - 1, np.flatnonzero(mask)
        by_row = (
            sp.csr_matrix((part.amount, (row[part.row], part.variable)), (len(used), width))
            for part, width in ((by_x, len(self.of)), (by_z, len(self.z)))
        )
        x_rows, z_rows = by_row
        return x_rows, z_rows, used

    def _entries(
        self, variable: IntArray, c: IntArray, begin: FloatArray, end: FloatArray
    ) -> _Entries:
        """What stretches of levels hold."""
        first, count = self._steps_between(begin, end)
        uses = self.uses
        kinds = np.diff(uses.indptr)[c]
        stretch, use = owners(kinds), ranges(uses.indptr[c].astype(np.int64), kinds)
        each = count[stretch]
        row = ranges(uses.indices[use] * len(self.steps) + first[stretch], each)
        return _Entries(uses.data[use].repeat(each), row, variable[stretch].repeat(each))

    def _steps_between(self, begin: FloatArray, end: FloatArray) -> tuple[IntArray, IntArray]:
        """The first step that begins in stretches of time, and how many do."""
        first = np.searchsorted(self.steps, begin - self._slack(begin))
        return first, np.searchsorted(self.steps, end - self._slack(end)) - first

    @cached_property
    def _progress(self) -> tuple[sp.csr_matrix, sp.csr_matrix]:
        """Seconds of progress of each level that each x gives, and that each y takes."""
        given = sum_by(self.of, self.end - self.begin - self._restores, len(self.c))
        taken = sum_by(self.of[self.charged], self._delays, len(self.c))
        return sp.csr_matrix(given), sp.csr_matrix(taken)

    def _gpu_time(self, variables: ElasticVariables) -> Expression:
        """sum_c q_c (w_c + sum_t e_c y_ct + o_c x_c0) + sum_j P_j z_j, with exempt times."""
        _, restarted = self._progress
        held = self.q[self.planned.c] * (self.planned.end - self.planned.start)
        kept = np.bincount(self.planned.number, held, len(self.z))
        exempt = np.append(self.q, 0.0)[self.levels.current] * self._exempt_until
        total: Expression = (
            self.q[self.w][np.newaxis, :] @ variables.w
            + (self.q[self.of] * self._restores)[np.newaxis, :] @ variables.x
            + sp.csr_matrix(self.q[np.newaxis, :] @ restarted) @ variables.y
            + kept[np.newaxis, :] @ variables.z
            + exempt[self.deadlines[0]][np.newaxis, :] @ variables.a
        )
        return total

    @property
    def _rounded_gpu_time(self) -> float:
        """GPU seconds that the clock may round off or add to the plan by rule."""
        planned = self.planned
        ends = self._slack(planned.start) + self._slack(planned.end)
        return float(self.q[planned.c] @ ends)

    def _later(self) -> Later:
        """The least GPU time, among plans of the same value."""

        def program() -> LinearProgram:
            again, variables = self.rows()
            again.minimise(self._gpu_time(variables))
            return again

        def value(schedule: Schedule) -> float:
            seconds = schedule.end - schedule.start
            return float(self.q[np.searchsorted(self.c, schedule.column)] @ seconds)

        return Later(
            "gpu-time",
            "GPU seconds of the plan",
            value,
            sum(self._sizes),
            program,
            self.complete,
            self._read,
        )

    @property
    def _sizes(self) -> tuple[int, ...]:
        """How many x, y, h, w, z and a there are."""
        blocks = (self.of, self.charged, self.fresh, self.w, self.z, self.deadlines[0])
        return tuple(len(block) for block in blocks)

    # --- column generation: a column is a schedule of one job -------------------------------------

    @property
    def _step(self) -> float | None:
        """The number of which all sums of values are multiples, where all values are the same."""
        # Deadlines that have passed are a constant of the objective, which is no multiple of other
        # values.
        values = np.unique(np.append(self.deadlines[2], self.highest_value[self.asked]))
        return float(values[0]) if len(values) == 1 and values[0] > 0 else None

    @property
    def _parts(self) -> Parts:
        """The jobs, as parts of the program."""
        j_row, _, _ = self.job_and_interval
        jobs = np.unique(self.deadlines[0])
        of_columns = (
            self.j[self.of],
            self.j[self.of[self.charged]],
            j_row[self.fresh],
            self.j[self.w],
            self.z,
            self.deadlines[0],
        )
        required = ~self.optional | (self.levels.stays & mask_of(self.z, len(self.C)))
        part = np.searchsorted(jobs, np.concatenate(of_columns))
        return Parts(("capacity", "budget"), part, required[jobs], self._cheapest)

    @cached_property
    def _paths(self) -> LevelPaths:
        """Schedules of jobs in whole intervals, as paths."""
        jobs, (of_deadline, due, _) = np.unique(self.deadlines[0]), self.deadlines
        number, x = self._by_deadline(self.j[self.of])
        length = np.minimum(self.end[x], due[number]) - self.begin[x]
        useful = np.flatnonzero(length > 0)
        number, x, length = number[useful], x[useful], length[useful]
        taken = np.zeros(len(self.of))
        taken[self.charged] = self._delays / self.d[self.of[self.charged]]
        return LevelPaths(
            len(jobs),
            np.searchsorted(jobs, self.j),
            self.of,
            self.t,
            taken,
            self.restarts.ran[self.C.first[jobs]],
            ~self.may_stop[jobs],
            np.searchsorted(jobs, of_deadline),
            number,
            x,
            (length - self._restores[x]) / self.d[self.of[x]],
        )

    def _cheapest(self, costs: FloatArray, effort: int) -> tuple[FloatArray, FloatArray]:
        """As of `Parts`: each job keeps the plan by rule, or runs in whole intervals."""
        run, again, _, _, keeps, meet = np.split(costs, np.cumsum(self._sizes)[:-1])
        restart = np.zeros(len(self.of))
        restart[self.charged] = again
        jobs = np.unique(self.deadlines[0])
        job, kept = np.searchsorted(jobs, self.z), keeps + meet[self._kept_deadline]
        # A job that may be declined needs no schedule that costs something.
        most = np.where(self.optional[jobs], 0.0, np.inf)
        most[job] = np.minimum(most[job], kept)
        found = self._paths.cheapest(Costs(run, restart, meet, most), effort)
        least, deadline = found.least, found.deadline
        x, z, a = (np.zeros(len(block)) for block in (self.of, self.z, self.deadlines[0]))
        x[found.x] = 1.0

        by_rule = deadline[job] < 0
        least = np.minimum(least, most)
        deadline[job[by_rule]] = self._kept_deadline[by_rule]
        z[by_rule] = 1.0
        a[deadline[deadline >= 0]] = 1.0
        return np.concatenate([*self._whole(x), z, a]), least

    @cached_property
    def _kept_deadlines(self) -> tuple[IntArray, IntArray]:
        """(index of ``deadlines``, index of ``z``) of each deadline that the plan by rule meets."""
        number, z = self._by_deadline(self.z)
        done = self.planned.end[self.planned.last]
        due = self.deadlines[1][number]
        in_time = np.flatnonzero(done[z] <= due + self._slack(due))
        return number[in_time], z[in_time]

    @cached_property
    def _kept_deadline(self) -> IntArray:
        """The deadline, an index of ``deadlines``, that each z meets."""
        return self._most_valuable(*self._kept_deadlines)

    def _most_valuable(self, number: IntArray, job: IntArray) -> IntArray:
        """Of the deadlines that each job meets that of the largest value, the first of equal
        ones.
        """
        order = np.lexsort((number, -self.deadlines[2][number], job))
        return number[order][np.unique(job[order], return_index=True)[1]]

    def _whole(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """(x, y, h, w) of jobs that run in some x, but for levels in which restarts take more than
        they bring.
        """
        held, restarted = self._progress
        y, h = self._starts(x)
        idle = held @ x - restarted @ y < 0
        if idle.any():
            x = np.where(idle[self.of], 0.0, x)
            y, h = self._starts(x)
        return x, y, h, np.clip(held @ x - restarted @ y, 0.0, self.d)[self.w]

    # --- points and schedules ---------------------------------------------------------------------

    def _known(self) -> FloatArray | None:
        """The point of the plan by rule, from which solvers start (`LinearPlan.known`); None if it
        leaves out a job that must meet its deadline.
        """
        if not np.isin(np.flatnonzero(self.must), self.z).all():
            return None
        return self.complete(self._scheduled(self._stretches_of(self.planned)))

    def _read(self, x: FloatArray) -> Schedule:
        """Jobs that keep the plan by rule have its pieces; others run in their intervals until they
        are done. Pieces too short for progress are left out.
        """
        runs, _, _, done, keeps, meets = np.split(x, np.cumsum(self._sizes)[:-1])
        progress = np.zeros(len(self.c))
        progress[self.w] = done
        in_time = mask_of(self.deadlines[0][meets > 0.5], len(self.C))
        keeps_plan = mask_of(self.z[keeps > 0.5], len(self.C)) & in_time
        in_time &= ~keeps_plan
        stretches = self._stretches_of(self.planned.take(keeps_plan[self.planned.j].nonzero()[0]))
        chosen = np.flatnonzero((runs > 0.5) & in_time[self.j[self.of]])
        chosen = chosen[np.lexsort((self.t[chosen], self.j[self.of[chosen]]))]
        of_job = self.j[self.of[chosen]]
        found: list[Stretch] = []
        for x_of_job in np.split(chosen, np.flatnonzero(np.diff(of_job)) + 1):
            if len(x_of_job):
                found += self._stretches(x_of_job, progress)
        return self._scheduled(np.concatenate([stretches, np.reshape(found, (-1, 4))]))

    def _scheduled(self, stretches: FloatArray) -> Schedule:
        """The schedule of stretches, with what their jobs run in their exempt times."""
        k = self.C.of_job[stretches[:, 0].astype(np.int64)]
        k = np.flatnonzero(mask_of(k, len(self.C)) & self.levels.exempt)
        first = np.zeros((len(k), 4))
        first[:, 0], first[:, 1] = self.C.first[k], self.c[self.levels.current[k]]
        first[:, 3] = self._exempt_until[k]
        return schedule_of(self.C, np.concatenate([first, stretches]))

    @property
    def _exempt_until(self) -> FloatArray:
        """Seconds from now until the exempt time of each job ends; 0 without; (J,)."""
        return np.where(self.levels.exempt, self.levels.goes_on_until, 0.0)

    def _stretches_of(self, runs: _JobRuns) -> FloatArray:
        """Rows of jobs, columns of the classes, begins and ends; shape (stretches, 4)."""
        return np.column_stack([self.C.first[runs.j], self.c[runs.c], runs.start, runs.end])

    @cached_property
    def _planned_as_written(self) -> _JobRuns:
        """The plan by rule as a schedule has it: a piece shorter than the clock tells is none."""
        return self._runs_of(self._scheduled(self._stretches_of(self.planned)))

    def _runs_of(self, schedule: Schedule) -> _JobRuns:
        """When jobs run by a schedule, without exempt times."""
        job, c = schedule.job, self._columns_of(schedule)
        start, end = schedule.start - self.now, schedule.end - self.now
        order = np.lexsort((start, job))
        first = order[np.unique(job[order], return_index=True)[1]]
        first = first[self.levels.exempt[self.C.of_job[job[first]]]]
        k = self.C.of_job[job[first]]
        until, slack = self._exempt_until[k], 2 * self._slack(end[first])
        stays = (c[first] == self.levels.current[k]) & (start[first] <= slack)
        stopped = ~stays | (end[first] < until - slack)
        self._refuse(k[stopped], lambda _: "is stopped within its exempt time")
        left = np.flatnonzero(~mask_of(first[end[first] <= until + slack], len(job)))
        start[first] = until
        left = left[np.lexsort((start[left], job[left]))]
        return _JobRuns(self.C.of_job[job[left]], c[left], start[left], end[left])

    def _stretches(self, x: IntArray, progress: FloatArray) -> list[Stretch]:
        """The stretches of a job that runs in these x: in each level for as long as it makes
        progress there, until it is done.
        """
        j = int(self.j[self.of[x[0]]])
        one_deadline = np.count_nonzero(self.deadlines[0] == j) == 1
        use = {c: float(progress[c]) if one_deadline else np.inf for c in self.of[x].tolist()}
        left = 1.0
        found: list[Stretch] = []
        breaks = (np.diff(self.of[x]) != 0) | (
            self.begin[x[1:]] > self.end[x[:-1]] + self._slack(self.end[x[:-1]])
        )
        for piece in np.split(x, np.flatnonzero(breaks) + 1):
            c = int(self.of[piece[0]])
            begin, end = float(self.begin[piece[0]]), float(self.end[piece[-1]])
            (delay,) = self._delays_of(
                np.array([c]), np.array([begin]), np.array([not found])
            ).tolist()
            needed = min(use[c], left * float(self.d[c]))
            end = min(begin + delay + needed, end)
            if end - begin - delay <= self._slack(end) < needed:
                continue
            found.append((int(self.C.first[j]), int(self.c[c]), begin, end))
            use[c] -= end - begin - delay
            left -= (end - begin - delay) / float(self.d[c])
        return found

    def _delays_of(self, c: IntArray, begin: FloatArray, is_first: BoolArray) -> FloatArray:
        """Seconds until pieces of levels make progress."""
        again, onward, ran = self._restart
        released = self.release[self.j[c]]
        goes_on = (begin <= released + self._slack(released)) & ~np.isnan(onward[c])
        starts = np.where(ran[c] | ~is_first, again[c], 0.0)
        return np.where(goes_on, onward[c], starts)

    def complete(self, schedule: Schedule) -> FloatArray:
        """The point of a schedule; raises ValueError where there is none, and where a job has not
        done its work.
        """
        runs = self._runs_of(schedule)
        if not self.solved:  # there are no rows for it
            self._check_room(runs.c, runs.start, runs.end, self.profile.times, self.profile.free)
        self._check_runs(runs)
        kept = self._keeps(runs)
        x, z = np.zeros(len(self.of)), np.isin(self.z, runs.jobs[kept]).astype(np.float64)
        others = np.flatnonzero(~kept[runs.number])
        x[self._intervals_of(runs.take(others))] = 1.0
        w = np.bincount(runs.c[others], self._needed_of(runs)[others], len(self.c))
        number, job = self._by_deadline(runs.jobs)
        due = self.deadlines[1][number]
        in_time = np.flatnonzero(due >= runs.end[runs.last[job]] - 2 * self._slack(due))
        a = np.zeros(len(self.deadlines[0]))
        a[self._most_valuable(number[in_time], job[in_time])] = 1.0
        return np.concatenate([x, *self._starts(x), np.minimum(w, self.d)[self.w], z, a])

    def _starts(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(y, h) of some x."""
        j_row, _, row = self.job_and_interval
        runs = np.bincount(row, x, len(j_row))
        total = np.cumsum(runs) - runs
        h = np.minimum(total - total[np.searchsorted(j_row, j_row)], 1.0)
        e = self.charged
        ran = np.where(self._ran_before[1] >= 0, h[row[e]], 1.0)
        before = np.where(self.before[e] >= 0, x[self.before[e]], 0.0)
        return np.maximum(x[e] - before - (1.0 - ran), 0.0), h[self.fresh]

    def _check_runs(self, runs: _JobRuns) -> None:
        """Raise ValueError if a job has not done its work, or runs too early, twice at a time or
        too late.
        """
        slack, j, first = 2 * self._slack(runs.end), runs.j, runs.is_first
        before = np.append(-np.inf, (runs.end - slack)[:-1])[: len(j)]
        early = runs.start < np.where(first, self.release[j] - slack, before)
        self._refuse(j[early], lambda _: "runs before it arrives, or twice at a time")
        self._refuse(j[runs.end > self.due[runs.c] + slack], lambda _: "runs after its deadline")
        self._refuse(
            j[~first & ~self.may_stop[j]],
            lambda k: f"cannot be preempted, but runs in {np.count_nonzero(j == k)} pieces",
        )
        progress = self._progress_of(runs)
        done, rounding = (
            np.bincount(runs.number, part / self.d[runs.c], len(runs.jobs))
            for part in (progress, slack)
        )
        short = np.flatnonzero(done < 1.0 - DONE - rounding)
        self._refuse(
            runs.jobs[short], lambda _: f"does {done[short[0]]:.6g} of its work by its deadline"
        )

    def _progress_of(self, runs: _JobRuns) -> FloatArray:
        """Seconds in which each stretch makes progress: restarts take the others."""
        delays = self._delays_of(runs.c, runs.start, runs.is_first)
        return np.maximum(runs.end - runs.start - delays, 0.0)

    def _needed_of(self, runs: _JobRuns) -> FloatArray:
        """Seconds of this progress in which each stretch works: the clock may round ends, so that
        there is time for a little more than all work, or less.
        """
        progress = self._progress_of(runs)
        done = np.bincount(runs.number, progress / self.d[runs.c], len(runs.jobs))
        return np.asarray(progress / np.where(done > 0, done, 1.0)[runs.number])

    def _refuse(self, jobs: IntArray, why: Callable[[int], str]) -> None:
        """Raise ValueError for the first of some jobs, if there are any."""
        if len(jobs):
            name = self.C.instance.jobs_table.names[int(self.C.first[jobs[0]])]
            raise ValueError(f"job {name} {why(int(jobs[0]))}")

    def _keeps(self, runs: _JobRuns) -> BoolArray:
        """Whether each job keeps the plan by rule, shape (jobs of the runs,)."""
        planned, runs = self._joined(self._planned_as_written), self._joined(runs)
        # Those with as many pieces are compared piece by piece.
        alike = np.zeros(len(self.C), bool)
        alike[runs.jobs] = True
        pieces, pieces_planned = (
            np.bincount(stretches.j, minlength=len(self.C)) for stretches in (runs, planned)
        )
        alike &= pieces == pieces_planned
        some, kept = (part.take(np.flatnonzero(alike[part.j])) for part in (runs, planned))
        off = np.maximum(np.abs(some.start - kept.start), np.abs(some.end - kept.end))
        differs = (some.c != kept.c) | (off > 2 * self._slack(some.end))
        alike[some.j[differs]] = False
        return alike[runs.jobs]

    def _joined(self, runs: _JobRuns) -> _JobRuns:
        """Runs whose stretches that only rounding parts are one."""
        c, start, end = runs.c, runs.start, runs.end
        new = runs.is_first
        new[1:] |= (np.diff(c) != 0) | (start[1:] > end[:-1] + 2 * self._slack(end[:-1]))
        last = np.append(new[1:], True)[: len(new)]
        return _JobRuns(runs.j[new], c[new], start[new], end[last])

    def _intervals_of(self, runs: _JobRuns) -> IntArray:
        """The x of some runs; raises ValueError where there are none."""
        c, start, end = runs.c, runs.start, runs.end
        slack = 2 * self._slack(end)
        t = np.searchsorted(self.edges, start + slack, "right") - 1
        last = np.searchsorted(self.edges, end - slack) - 1
        inside = (t >= self.first[c]) & (last < self.first[c] + self.size[c])
        begin = np.maximum(self.edges[t], self.release[runs.j])
        outside = ~inside | (np.abs(start - begin) > slack)
        self._refuse(runs.j[outside], lambda _: "does not run in whole intervals")
        return ranges(self._variable(c, t), last - t + 1)

    # --- words ------------------------------------------------------------------------------------

    def _refuse_overfull(self) -> None:
        """Refuse running jobs that go on as they run where they hold more than there is, or use up
        more.
        """
        levels, there = self.levels, self._beside_late
        goes_on = levels.stays_in_time | levels.exempt
        after = levels.beside(there, goes_on)
        before = there.free[:, np.searchsorted(there.times, after.times, "right") - 1]
        rows, steps = np.nonzero(after.free < -ROUNDING * (1.0 + before))
        jobs, (held, spent) = self.C.first[goes_on].tolist(), levels.held_on(goes_on)
        if len(rows):
            row, step = int(rows[0]), int(steps[0])
            start, end = [*after.times, math.inf][step : step + 2]
            runs = levels.goes_on_until[goes_on] > start
            amounts = held[[row]].toarray().ravel() * runs
            words = self._capacity(row, float(before[row, step]), start, end)
            of_jobs = dict(zip(jobs, amounts.tolist(), strict=True))
            raise self._overfull("capacity", self.renewable[row], of_jobs, before[row, step], words)
        for row in np.flatnonzero(after.left < -ROUNDING * (1.0 + there.left)).tolist():
            of_jobs = dict(zip(jobs, spent[[row]].toarray().ravel().tolist(), strict=True))
            resource, left = self.consumable[row], float(there.left[row])
            words = f"there is {amount_of(self.C, resource, left)} in all"
            raise self._overfull("budget", resource, of_jobs, left, words)

    def _overfull(
        self, block: str, resource: int, held: Mapping[int, float], there: float, words: str
    ) -> Infeasible:
        """That jobs hold more of a resource than there is: the fewest that do."""
        conflicts, total = [Conflict(block, -1, words)], 0.0
        for job in sorted(held, key=lambda job: -held[job]):
            name = self.C.instance.jobs_table.names[job]
            holds = amount_of(self.C, resource, held[job])
            conflicts.append(
                Conflict("take", -1, f"job {name} runs, goes on as it does, and takes {holds}")
            )
            total += held[job]
            if total > there * (1.0 + ROUNDING) + ROUNDING:
                break
        return Infeasible(conflicts)

    def _refuse_impossible(self) -> None:
        self._refuse_overfull()
        stuck = self.must & ~mask_of(self.z, len(self.C))
        if self.witness.stopped or len(self.C) > MOST_PLANNED:
            # There is no time to look for room for each job that the rule left out.
            stuck &= ~mask_of(self.deadlines[0][self.able], len(self.C))
        elif (stuck := stuck & ~self._has_room_alone).any():
            for job in self.levels.jobs(among=stuck):
                j = self.C.of_job[job.job]
                stuck[j] = not self.profile.cheapest(job)
        self._refuse_stuck(np.flatnonzero(stuck))

    @property
    def _has_room_alone(self) -> BoolArray:
        """Jobs that are in time at a level of which there is enough at every moment, (J,)."""
        levels, profile = self.levels, self.profile
        there = np.zeros(len(self.C.resources.renewable))
        there[self.renewable] = profile.free.min(axis=1)
        there[self.consumable] = profile.left
        usage = sp.csc_matrix(self.C.usage)[:, self.c].tocoo()
        lacks = usage.col[usage.data > there[usage.row]].astype(np.int64)
        fits = ~mask_of(lacks, len(self.c))
        fits &= ~levels.stays[self.j] & (self.release[self.j] + levels.shortest <= self.due)
        return mask_of(self.j[fits], len(self.C))

    @property
    def _assumption(self) -> Assumption | None:
        """What is shown of jobs that cannot all be planned in slots."""
        if self.slot is None:
            return None
        return Assumption(
            f"by the plan by rule, or in whole slots of {self.slot:g} s",
            "shorter slots (option slot) decide more finely; "
            "what deadline-fluid calls infeasible is "
            "so for every plan",
        )

    @property
    def _relaxed(self) -> FluidProgram:
        """The program in which jobs may change at any moment, without cost: it bounds all plans."""
        timer = self.formulation.timer  # all of it: no program is built after this one
        return FluidProgram(self.C, self.supply, self.optional, True, timer=timer)

    @cached_property
    def shortage(self) -> Shortage | None:
        """Jobs that need more time on a resource than there is, as of `FluidProgram`."""
        return self._relaxed.shortage

    def _fluid(self) -> LinearPlan:
        return self._relaxed.program_first()

    def _describe(self, block: str, number: int) -> str:
        if block == "capacity":
            row, step = divmod(int(self._held[2][number]), len(self.steps))
            ends = np.append(self.steps[1:], self.horizon)
            return self._capacity(
                row, float(self._free[row, step]), float(self.steps[step]), float(ends[step])
            )
        if block == "budget":
            return self._budget(number)
        if block in ("deadline", "work", "take"):
            j = self.deadlines[0] if block == "deadline" else np.unique(self.deadlines[0])
            return self._of_class(int(j[number]))
        return f"jobs run in one way at a time, and restart when they change it ({block} {number})"


class RulePlan(NamedTuple):
    """A plan by rule.

    Attributes
    ----------
    stretches : FloatArray, shape (n, 4)
        When jobs run after their exempt times: row of the job table, column of the classes, begin
        and end.
    times : FloatArray
        Moments at which it changes, and those at which capacity does.
    merit : tuple
        As of a `LevelPlan`.
    stopped : bool
        Whether the time was over before the search ended.
    time_prices : TimePrices or None
        Where prices of time on resources bound what plans keep.
    """

    stretches: FloatArray
    times: FloatArray = np.zeros(1)
    merit: tuple[int, float, bool, float] = (0, 0.0, True, 0.0)
    stopped: bool = False
    time_prices: TimePrices | None = None

    @classmethod
    def of(cls, plan: LevelPlan) -> RulePlan:
        """A plan of jobs that came one after the other."""
        pieces = {plan.jobs[number].job: run.pieces for number, run in plan.runs.items()}
        stretches = np.reshape(np.array(stretches_of(pieces), np.float64), (-1, 4))
        return cls(stretches, plan.profile.times, plan.merit, plan.stopped)

    @classmethod
    def swept(cls, table: LevelTable, profile: Profile, timer: Timer) -> RulePlan | None:
        """The best plan by sweeps over time; None as of `plan_by_sweeps`."""
        found = plan_by_sweeps(table, profile.times, profile.free, profile.left, timer)
        if found is None:
            return None
        stretches = np.column_stack([found.job, table.column[found.level], found.start, found.end])
        times = np.unique(np.concatenate([profile.times, found.start, found.end]))
        return cls(stretches, times, found.merit(table), found.stopped)


NO_PLAN = RulePlan(np.zeros((0, 4)))


class ElasticVariables(NamedTuple):
    """The blocks of columns of the program."""

    x: Variables
    y: Variables
    h: Variables
    w: Variables
    z: Variables
    a: Variables


class _Entries(NamedTuple):
    """Entries of capacity rows: amounts, resource and step, as one number, and variables."""

    amount: FloatArray
    row: IntArray
    variable: IntArray


@dataclass(frozen=True)
class _JobRuns:
    """When jobs run: a stretch of time each, by job and start.

    Attributes
    ----------
    j : IntArray
        Job, as a class.
    c : IntArray
        Level.
    start, end : FloatArray
        Seconds from now.
    """

    j: IntArray
    c: IntArray
    start: FloatArray
    end: FloatArray

    @property
    def is_first(self) -> BoolArray:
        """Whether each is the first of its job."""
        return np.append(True, np.diff(self.j) != 0)[: len(self.j)]

    @cached_property
    def jobs(self) -> IntArray:
        """Jobs that run, in their order."""
        return self.j[self.is_first]

    @cached_property
    def number(self) -> IntArray:
        """Job of each, as an index of ``jobs``."""
        return np.cumsum(self.is_first) - 1

    @property
    def last(self) -> IntArray:
        """The last of each job."""
        return np.flatnonzero(np.append(np.diff(self.j) != 0, True)[: len(self.j)])

    def take(self, rows: IntArray) -> _JobRuns:
        return _JobRuns(self.j[rows], self.c[rows], self.start[rows], self.end[rows])


def _one(column: IntArray, width: int) -> sp.csr_matrix:
    """1 in each row at a column, nothing where that is -1."""
    row = np.flatnonzero(column >= 0)
    entries = (np.ones(len(row)), (row, column[row]))
    return sp.csr_matrix(entries, shape=(len(column), width))
