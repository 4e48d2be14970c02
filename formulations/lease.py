"""Chronus: deadlines met by leases, fixed slots without preemption inside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from formulations.constraints.holdings import gpus_held
from formulations.horizon import (
    NO_TIME_FOR_RULE,
    NO_VALUE,
    ROUNDING,
    Calendar,
    Supply,
    amount_of,
    asked_classes,
    candidates_of_plan,
    column_deadlines,
    column_values,
    columns_with_deadline,
    many,
    needs_more,
    past_deadline,
    without_column,
)
from formulations.lease_pieces import Pieces
from formulations.lease_room import Holds, LeaseRoom, earliest, most_that_fit
from formulations.machines import place_in
from formulations.reference_rates import refuse_endless
from formulations.time_shortage import MOST_COUNTED, beyond, fewest_beyond
from optsched.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    mask_of,
    owners,
    pointers,
    quotient,
    ranges,
)
from optsched.arrays.matrices import rows_of, sum_by
from optsched.candidates import Candidates, Classes
from optsched.errors import InvalidInput, UsageError
from optsched.formulation import Formulation, FormulationOptions, Infeasible
from optsched.instance import Instance
from optsched.instance.durations import LEAST, UNLIMITED, Timer
from optsched.program import Assumption, LinearProgram, Variables
from optsched.solution import Conflict, Schedule, Termination
from optsched.solution.plan import Later, LinearPlan, Shortage

MOST_COLUMNS = 2_000_000
"""Variables X beyond which the answer is the plan by rule; leases beyond which there is none."""
MOST_BY_RULE = 200_000_000
"""Variables X beyond which the rule refuses: so many take it a minute."""
COLUMNS_PER_SECOND = 50_000
"""Columns for each second that the rule leaves of a time limit. A program with more is not built: to
build, hand over and check it would take the time of the solver.
"""
FOR_RULE, FOR_ORDER = 0.5, 0.9
"""Parts of a time limit after which no further jobs are planned by rule, and jobs of the answer are
not moved to earlier leases any more.
"""
MOST_REBUILT = 20_000
"""Options up to which a plan is also built from scratch in other orders to make it earlier."""
OFF = 1e-6
"""Part of a lease by which the times of a schedule may be off."""
MOST_LEASES = 2.0**53
"""The largest number of needed leases that is counted: more do not fit into 64 bits, and no
deadline leaves room for so many."""
FirstLease = Literal["ignore", "minimise", "maximise", "random"]


class Lease(Formulation):
    """Plan enough leases (rounds) for each job before its deadline;
    maximise the value of the jobs that meet it.

    Sets
        k in K: classes of n_k equal jobs with a deadline;  o in O_k: their options, columns without
        a partner;
        t = 0, 1, ...: leases;  r in R: renewable resources.
    Parameters
        b_o = ceil(duration_o / L): leases needed, L the length of a lease; with the option
        ``quantile`` q a duration from a rate is kept with probability q (stated durations are
        exact);
        l_o = floor((deadline - now) / L): leases before the deadline; an option's attribute
        ``deadline`` (seconds on the clock of now) wins over the job's, for soft deadlines: later,
        with less value;
        v_o: value of the option; the job's weight, if none of its options has a value;
        g_ro: use of r;  G_rt: capacity of r in lease t (nodes that become available count from then
        on).
    Variables
        S_o: jobs of the class that take option o;  X_ot: how many of them run in lease t.
    Program
        maximise  sum_o v_o S_o  -/+  sum_o g_o X_o0 / max_t sum_r G_rt            g_o, G over GPUs of pools
        leases    sum_{t < l_o} X_ot  =  b_o S_o                                   every option
        once      X_ot  <=  S_o                                                    options of classes with n_k > 1
        take      sum_{o in O_k} S_o  =  n_k    (<= n_k if soft, or ``admission``) every class
        capacity  sum_o g_ro X_ot  <=  G_rt                                        every resource and lease
        S, X >= 0 integer;  X_ot = 0 for t >= l_o
    A job stays on its option, so it never changes GPU type. A job that misses a soft deadline has
    no lease and no value. Jobs without a deadline are unplaced; in rounds they run on GPUs that the
    plan leaves idle.

    Among plans of the same value the earliest is taken, and among those the one with the fewest
    pieces:
        starts    minimise  sum_o sum_t (L t / b_o) X_ot      the mean start of a job's leases, added up over jobs
        pieces    minimise  the stretches of leases in which jobs run without interruption (`formulations.lease_pieces`)
    Status, bound and gap certify the value only; starts and pieces are ``stages`` of the solution.
    With more than 4,000 columns, or no time left, jobs are moved as early as others leave room
    instead.

    Solvers start from the plan by earliest deadline first, or by least slack first if the former
    leaves out jobs and the latter is better. It is also the answer if a limit leaves nothing
    better; without ``admission`` it exists only if one of the two keeps all deadlines. Under a time
    limit it is made first, for at most half of the time, and the program is built only if it has at
    most 50,000 columns per second that is left. Else the answer is this plan, without a bound; if
    the limit stops the rule too, the jobs that it has planned by then. With more than 2,000,000
    variables X_ot no program is solved. The answer is this plan, and its bound counts every job at
    its best option, as if there were room for all; there is no bound if a limit stopped the rule.
    Rounds use ``admission`` and ``refine=shift`` unless the policy says otherwise. They decline no
    job that they admitted before (``take`` is = n_k for these) if they can.

    Options
        first_lease   GPUs used in the first lease: ``ignore``, ``minimise`` or ``maximise`` them;
                      ``random`` counts only the value of the first option, as the published code
                      does.
        admission     jobs may be declined; otherwise all must be planned, or the instance is
                      infeasible.
        refine        choice among plans of the same value: ``solve`` the programs of starts and
                      pieces, or only ``shift`` every job as early as the others leave room.
        capacity      {resource: [capacity in lease 0, 1, ...]}: calendars; the last number goes on.

    References
        W. Gao et al., "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs",
        SoCC 2021; repository S-Lab-System-Group/ChronusArtifact, code/alg/scheduler/solver.py.
    """

    name = "lease"
    reads = frozenset({"steps_left", "deadline", "soft_deadline", "weight"})
    also_reads = frozenset({"value"})
    reads_pairs = False
    sense = "max"
    takes_rows = False
    hard_deadlines = True
    in_rounds = MappingProxyType({"admission": True, "refine": "shift"})
    objective_words = "value of the plan"

    class Options(FormulationOptions):
        """Options of the lease program."""

        first_lease: FirstLease = "ignore"
        admission: bool = False
        refine: Literal["solve", "shift"] = "solve"
        capacity: Calendar = Field(default_factory=dict)

    def classes(self, candidates: Candidates) -> Classes:
        """Classes of the jobs that a plan may run (`candidates_of_plan`)."""
        return super().classes(candidates_of_plan(self, candidates))

    def build(self, C: Classes) -> LinearPlan:
        _refuse_coarse_clock(C.instance)
        options = self.options
        promised = np.zeros(len(C), bool) if self.promised is None else self.promised[C.first]
        plan = LeaseProgram(
            C,
            Supply.of(C, options.capacity, self.name, self.restarts_of(C.instance)),
            options.admission,
            options.first_lease,
            promised,
            self.timer,
            self.searches,
        ).plan()
        refined = self.options.refine == "solve" and plan.unsearched is None
        return replace(plan, solves_later=refined)


def _refuse_coarse_clock(instance: Instance) -> None:
    """Leases must not run into each other where numbers are far apart:
    by 128 s at 1e18, as of ns since 1970.
    """
    step = float(np.spacing(abs(instance.now)))
    whole = math.fmod(instance.round, step) == 0.0
    if not whole and 0.5 * step > OFF * instance.round:
        latest = 2.0 * OFF * instance.round / np.finfo(np.float64).eps
        raise InvalidInput(
            "now",
            f"{instance.now:g} s, where floating-point numbers are {step:g} s apart",
            f"at most {latest:.1g} s, with leases of {instance.round:g} s",
        )


class LeasesByRule(NamedTuple):
    """A plan without a solver.

    Attributes
    ----------
    S : IntArray, shape (O,)
        Jobs that take each option.
    runs : mapping of int to list of int
        How many jobs of an option run in lease 0, 1, ..., up to the last one in which some do.
    keeps_all : bool
        Whether all jobs are planned that must be.
    stopped : bool
        Whether the time was over before all plans by rule were made.
    """

    S: IntArray
    runs: Mapping[int, Sequence[int]]
    keeps_all: bool
    stopped: bool = False


@dataclass(frozen=True)
class LeaseProgram:
    """Options, leases and variables of one program.

    Attributes
    ----------
    timer : Timer
        When the answer is due.
    searches : bool
        Whether a plan is searched, and not only one to be checked.
    """

    C: Classes
    supply: Supply
    admission: bool
    first_lease: FirstLease
    promised: BoolArray
    timer: Timer = UNLIMITED
    searches: bool = True

    @cached_property
    def optional(self) -> BoolArray:
        """Classes whose jobs may be declined, shape (K,)."""
        return self.C.soft_deadline | (self.admission & ~self.promised)

    @property
    def L(self) -> float:
        """Length of a lease, s."""
        return float(self.C.instance.round)

    @cached_property
    def o(self) -> IntArray:
        """Columns that are options: of classes with a deadline, alone."""
        return columns_with_deadline(self.C)

    @cached_property
    def _deadlines(self) -> FloatArray:
        """Deadline of each column."""
        return column_deadlines(self.C)

    @cached_property
    def b(self) -> IntArray:
        """Leases needed by each option; `MOST_LEASES` stands for more."""
        leases = self.C.sure_duration[self.o] / self.L
        needed = np.ceil(leases - ROUNDING * np.maximum(leases, 1.0))
        return np.clip(needed, 1, MOST_LEASES).astype(np.int64)

    @cached_property
    def l(self) -> IntArray:  # noqa: E743  (the paper's symbol)
        """Leases before the deadline of each option, at least 0."""
        left = (self._deadlines[self.o] - self.C.instance.now) / self.L
        left = np.minimum(left, MOST_LEASES)
        return np.maximum(np.floor(left + ROUNDING * np.maximum(np.abs(left), 1.0)), 0).astype(
            np.int64
        )

    @cached_property
    def v(self) -> FloatArray:
        """Value of each option."""
        return column_values(self.C)[self.o]

    @cached_property
    def leases(self) -> int:
        """Leases in the program. An option that cannot make its deadline has none of them."""
        return int(self.size.max(initial=0))

    @cached_property
    def G(self) -> FloatArray:
        """Capacity of each resource in each lease, shape (R, leases): that at its beginning."""
        return self.supply.at(np.arange(max(self.leases, 1), dtype=np.float64) * self.L)

    @cached_property
    def enough(self) -> IntArray:
        """Leases in which each option has room for all that it needs, whatever the others do, (O,).

        From lease T on capacities stay the same. A job runs in b_o leases and waits in those in
        which the others leave less than g_ro of some r: in fewer than W_r / (G_r - g_ro), as the
        others take no more than W_r in all, and never in more than all jobs need, one after the
        other. So a job that runs later can run earlier instead, at the same value.
        """
        C, k = self.C, self.C.class_a[self.o]
        T = float(np.ceil(self.supply.changes / self.L).max(initial=1.0))
        G = self.supply.at(np.array([T * self.L]))[self.renewable, 0]
        b = np.where(self.b <= self.l, self.b, 0).astype(np.float64)
        each = np.zeros((len(C), len(G) + 1))
        np.maximum.at(each, k, np.vstack([self.uses * b, b]).T)
        *W, one_by_one = C.count @ each
        left = np.maximum(G[:, np.newaxis] - self.uses, 0.0)
        waits = np.minimum(quotient(np.array(W)[:, np.newaxis], left, np.inf), one_by_one)
        leases = np.ceil(T + b + np.where(self.uses > 0, waits, 0.0).sum(axis=0))
        return np.asarray(np.minimum(leases, MOST_LEASES), np.int64)

    # --- the program ------------------------------------------------------------------------------

    def plan(self) -> LinearPlan:
        """The program `Lease` states."""
        self._refuse_impossible(self.b <= self.l)
        if self._columns > MOST_COLUMNS:
            return self._too_large()
        if self.timer.seconds is not None:
            # The rule comes first: once the program is built, the time may be over.
            rule, left = self.witness, max(self.timer.left, LEAST)
            if not rule.keeps_all:
                self.timer.check()
            elif rule.stopped:
                return self._by_rule_alone(rule, Termination.TIME_LIMIT, NO_TIME_FOR_RULE)
            elif self._columns > COLUMNS_PER_SECOND * left:
                why = (
                    f"the time limit of {self.timer.seconds:g} s is too short for a program of "
                    f"{self._columns:,.0f} columns: the plan by rule counts"
                )
                return self._by_rule_alone(rule, Termination.TIME_LIMIT, why)
        self._refuse_impossible(self.b <= self.room)
        return replace(
            self.stated(),
            known=lambda: self.point(self.witness) if self.witness.keeps_all else None,
            shortage=self._shortage,
        )

    @property
    def _columns(self) -> float:
        """How many X there are."""
        return float(self.size.sum(dtype=float))

    def _too_large(self) -> LinearPlan:
        """The plan where a program would have more than `MOST_COLUMNS`."""
        if self._columns > MOST_BY_RULE or self.leases > MOST_COLUMNS:
            raise UsageError(
                f"lease: {self._columns:,.0f} variables of options and {self.leases:,} leases, "
                f"at most {MOST_BY_RULE:,} and {MOST_COLUMNS:,} are taken: "
                "longer rounds or nearer deadlines make fewer"
            )
        self._refuse_impossible(self.b <= self.room)
        nothing = LeasesByRule(np.zeros(len(self.o), np.int64), {}, keeps_all=self.admission)
        rule = self.witness if self.searches else nothing
        why = (
            f"a program would have {self._columns:,.0f} columns, at most {MOST_COLUMNS:,} are "
            "taken: the plan by rule counts"
        )
        end, why = (
            (Termination.TIME_LIMIT, NO_TIME_FOR_RULE)
            if rule.stopped
            else (Termination.BY_RULE, why)
        )
        if not rule.stopped and not rule.keeps_all and (shortage := self._shortage()) is not None:
            raise Infeasible(shortage.conflicts)
        return self._by_rule_alone(rule, end, why)

    def stated(self) -> LinearPlan:
        """The program with its objective."""
        lp, S, X = self.rows()
        # Where any feasible plan will do, the value of a single option keeps the program from
        # having no objective.
        v = self.v * (np.arange(len(self.o)) == 0) if self.first_lease == "random" else self.v
        of_first = np.where(self.t == 0, self._worth_of_first[self.of], 0.0)
        lp.maximise(v[np.newaxis, :] @ S + of_first[np.newaxis, :] @ X)
        return LinearPlan(
            self.C,
            lp,
            self._read,
            self.complete,
            self._describe,
            assumption=self._assumption,
            improve=self._shifted,
            later=(self._starts(), self._pieces().later()),
            declined=self._declined,
        )

    def _by_rule_alone(self, rule: LeasesByRule, end: Termination, why: str) -> LinearPlan:
        """A plan by rule, as a small program: each option has X only from its first lease to its
        last in this plan. Its bound holds for all leases.
        """
        first, size = np.zeros((2, len(self.o)), np.int64)
        for o, running in rule.runs.items():
            first[o] = next(t for t, jobs in enumerate(running) if jobs)
            size[o] = len(running) - first[o]
        alone = replace(self)
        # Objective, capacities and bound are those of all leases and options.
        vars(alone).update(
            first=first,
            size=size,
            leases=self.leases,
            G=self.G,
            uses=self.uses,
            holds=self.holds,
            able=self.able,
        )
        return replace(
            alone.stated(),
            known=lambda: alone.point(rule) if rule.keeps_all else None,
            improve=None,
            unsearched=(end, why),
            of_schedule=self.of_schedule,
        )

    def of_schedule(self, schedule: Schedule) -> LinearPlan:
        """The plan by rule (`_by_rule_alone`) whose leases are those of a schedule."""
        _, option, t = self._slots(schedule)
        S = np.bincount(
            np.searchsorted(self.o, schedule.column[np.unique(schedule.job, return_index=True)[1]]),
            minlength=len(self.o),
        )
        each, last = np.unique(option), np.zeros(len(self.o), np.int64)
        np.maximum.at(last, option, t + 1)
        order = np.argsort(option, kind="stable")
        leases = np.split(t[order], np.searchsorted(option[order], each)[1:])
        runs = {
            o: np.bincount(of_option, minlength=int(last[o])).tolist()
            for o, of_option in zip(each.tolist(), leases, strict=True)
        }
        given = LeasesByRule(S, runs, keeps_all=True)
        return self._by_rule_alone(given, Termination.BY_RULE, "the schedule is given")

    # --- what its columns and rows are ------------------------------------------------------------

    @cached_property
    def size(self) -> IntArray:
        """X of each option, shape (O,): an option that cannot make it has none, and S = 0.

        Deadlines may be a billion leases away: where they make too many X, `enough` of them do.
        """
        size = np.where(self.b <= self.l, self.l, 0)
        return size if size.sum(dtype=float) <= MOST_COLUMNS else np.minimum(size, self.enough)

    @cached_property
    def able(self) -> BoolArray:
        """Whether a job of each option has enough leases before its deadline, (O,)."""
        return np.asarray(self.size > 0)

    @cached_property
    def first(self) -> IntArray:
        """Lease of the first X of each option, shape (O,)."""
        return np.zeros(len(self.o), np.int64)

    @cached_property
    def of(self) -> IntArray:
        """Option of each X."""
        return owners(self.size)

    @cached_property
    def t(self) -> IntArray:
        """Lease of each X."""
        return ranges(self.first, self.size)

    @cached_property
    def planned(self) -> IntArray:
        """Class of each row ``take``."""
        return np.unique(self.C.class_a[self.o])

    @cached_property
    def renewable(self) -> IntArray:
        """Resources with rows ``capacity``, shape (R,)."""
        return np.flatnonzero(self.C.resources.renewable)

    @cached_property
    def uses(self) -> FloatArray:
        """g_ro of these resources, shape (R, O)."""
        return np.asarray(self.C.usage.tocsr()[self.renewable][:, self.o].todense())

    @cached_property
    def holds(self) -> list[Holds]:
        """What a job holds of these resources, by option."""
        return [
            [(r, amount) for r, amount in enumerate(amounts) if amount > 0]
            for amounts in self.uses.T.tolist()
        ]

    @cached_property
    def _entries(self) -> tuple[FloatArray, IntArray, IntArray]:
        """(g_ro, resource and lease as one number, X) of every entry of the rows ``capacity``."""
        uses = sp.csc_matrix(self.uses)[:, self.of].tocoo()
        column = uses.col.astype(np.int64)
        where = uses.row.astype(np.int64) * max(self.leases, 1) + self.t[column]
        return uses.data, where, column

    @cached_property
    def used(self) -> IntArray:
        """Resource and lease of each row ``capacity``, as one number:
        those that some option uses.
        """
        return np.unique(self._entries[1])

    @cached_property
    def room(self) -> IntArray:
        """Leases before the deadline in which the empty cluster has room for one job of each
        option.
        """
        return self._with_room(beyond(self.G[self.renewable]), self.size)

    def _with_room(self, free: FloatArray, leases: IntArray) -> IntArray:
        """In how many of its first ``leases`` what is free, shape (R, leases), has room for a job of
        each option, (O,).
        """
        alike, way = np.unique(self.uses, axis=1, return_inverse=True)
        room = np.zeros(len(self.o), np.int64)
        for number, uses in enumerate(alike.T):
            has_room = (uses[:, np.newaxis] <= free).all(axis=0)
            those = np.flatnonzero(way.ravel() == number)
            room[those] = np.append(0, np.cumsum(has_room))[leases[those]]
        return room

    @cached_property
    def _begin(self) -> IntArray:
        """Number of the first X of each option, and of all."""
        return pointers(self.size)

    def part(self, option: int) -> slice:
        """The X of an option, lease by lease."""
        return slice(int(self._begin[option]), int(self._begin[option + 1]))

    def rows(self) -> tuple[LinearProgram, Variables, Variables]:
        """S and X with all rows, without an objective."""
        C, of, b, planned = self.C, self.of, self.b, self.planned
        k = C.class_a[self.o]
        n = C.count[k]
        lp = LinearProgram()
        S = lp.variables(len(b), name="S", upper=np.where(self.able, n, 0.0), integer=True)
        X = lp.variables(len(of), name="X", upper=n[of], integer=True)

        total = sum_by(of, 1.0, len(b))
        lp.constrain(total @ X - sp.diags_array(b.astype(float)) @ S == 0.0, name="leases")
        several = np.flatnonzero(n[of] > 1)
        if len(several):
            running = rows_of(several, len(of)) @ X
            lp.constrain(running - rows_of(of[several], len(b)) @ S <= 0.0, name="once")
        take = sum_by(np.searchsorted(planned, k), 1.0, len(planned))
        wanted = C.count[planned]
        least = np.where(self.optional[planned], 0.0, wanted)
        lp.constrain((take @ S).between(least, wanted), name="take")
        g, where, column = self._entries
        row = np.searchsorted(self.used, where)
        held = sp.csr_matrix((g, (row, column)), shape=(len(self.used), len(of)))
        G = self.G[self.renewable].ravel()[self.used]
        lp.constrain(held @ X <= G, name="capacity")
        return lp, S, X

    @cached_property
    def _worth_of_first(self) -> FloatArray:
        """What each X of lease 0 is worth by the option ``first_lease``: -/+ g_o / max_t sum_r G_rt;
        shape (O,).
        """
        C = self.C
        sign = {"ignore": 0.0, "random": 0.0, "minimise": -1.0, "maximise": 1.0}[self.first_lease]
        gpus = gpus_held(C)[self.o]
        most = float(self.G[C.resources.pool >= 0].sum(axis=0).max(initial=0.0))
        return sign * gpus / most if most > 0 else np.zeros(len(self.o))

    # --- a plan without a solver ------------------------------------------------------------------

    @cached_property
    def witness(self) -> LeasesByRule:
        """The plan by deadline, or by slack where the former leaves out jobs and the latter is
        better.
        """
        k = self.C.class_a[self.o]
        wanted = np.where(self.size > 0, self.C.count[k], 0).astype(np.int64)
        must = self.planned[~self.optional[self.planned]]
        best = LeasesByRule(np.zeros(len(self.o), np.int64), {}, keeps_all=False)
        value, timer = -np.inf, self.timer.part(FOR_RULE)
        for order in (self._by_deadline, self._by_slack):
            S, runs = self._in_order(wanted, order(), timer)
            left = self.C.count - np.bincount(k, S, minlength=len(self.C))
            in_first = np.zeros(len(self.o))
            in_first[list(runs)] = [running[0] for running in runs.values()]
            worth = float(self.v @ S + self._worth_of_first @ in_first)
            if not (left[must] > 0).any() and worth > value:
                best, value = LeasesByRule(S, runs, keeps_all=True), worth
            if not (left[self.planned] > 0).any():
                return best
        return best._replace(stopped=timer.is_over)

    def point(self, plan: LeasesByRule) -> FloatArray:
        """(S, X) of a plan by rule."""
        return np.concatenate([plan.S, self._together(plan.runs)]).astype(np.float64)

    def _by_deadline(self) -> IntArray:
        """Options by earliest deadline first, of equal ones the most valuable, then the smallest.

        A job is admitted where it can meet its deadline beside all that were admitted before it,
        and gets the earliest leases that they leave.

        J. R. Jackson, "Scheduling a production line to minimize maximum tardiness", Management
        Science Research Project 43, UCLA, 1955 (the order, optimal on one machine); D. Gu et al.,
        "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS
        2023, section 4.1 (admission while all that were admitted before keep their deadlines).
        """
        return np.lexsort((self._needs_of_all, -self.v, self.l, *self._before_all_others))

    def _by_slack(self) -> IntArray:
        """Options by least slack first: that of a job is the most leases that an option can wait.

        Gangs do not run on one machine. By deadline, wide and long jobs that are due late find room
        in too few leases, one after the other; those with little slack must come before short ones.
        Of equal slack the job that needs most comes first, and of a job the most valuable option.
        """
        C, k, needs = self.C, self.C.class_a[self.o], self._needs_of_all
        slack, least = np.full(len(C), np.iinfo(np.int64).min), np.full(len(C), np.inf)
        np.maximum.at(slack, k, self.l - self.b)
        np.minimum.at(least, k, needs)
        return np.lexsort((needs, -self.v, k, -least[k], slack[k], *self._before_all_others))

    @cached_property
    def _needs_of_all(self) -> FloatArray:
        """What an option needs of the resource of which it needs most, as a part of the
        capacity.
        """
        most = np.maximum(self.G[self.renewable].max(axis=1, initial=0.0), 1.0)
        needs: FloatArray = (self.b * self.uses / most[:, None]).max(axis=0, initial=0.0)
        return needs

    @cached_property
    def _before_all_others(self) -> tuple[BoolArray, BoolArray]:
        """Last keys of every order, of which the last one counts most: jobs that run and cannot be
        preempted come first, then those that may not be declined.
        """
        k, table = self.C.class_a[self.o], self.C.instance.jobs_table
        runs = np.array([job for job in table.running if not table.preemptible[job]], np.int64)
        return self.optional[k], ~np.isin(k, self.C.of_job[runs])

    # --- among plans of the same value ------------------------------------------------------------

    def _starts(self) -> Later:
        """minimise  sum_o sum_t (L t / b_o) X_ot

        This is the mean time of the starts of a job's leases, added up over jobs.
        """

        def program() -> LinearProgram:
            lp, _, X = self.rows()
            lp.minimise((self.L * self.t / self.b[self.of])[np.newaxis, :] @ X)
            return lp

        return Later(
            "starts",
            "s from now to the mean start of a job's leases, added up over jobs",
            self._lateness,
            len(self.o) + len(self.of),
            program,
            self.complete,
            self._read,
        )

    def _pieces(self) -> Pieces:
        """The stretches of leases in which jobs run without interruption."""
        return Pieces(
            self.b,
            self.size,
            self.C.count[self.C.class_a[self.o]].astype(np.int64),
            self.of,
            self.t,
            self.rows,
            self.complete,
            self._slots,
            self.schedule,
        )

    def _slots(self, schedule: Schedule) -> tuple[IntArray, IntArray, IntArray]:
        """Job, option and number of each lease of a schedule."""
        first = np.round((schedule.start - self.C.instance.now) / self.L).astype(np.int64)
        length = np.round((schedule.end - schedule.start) / self.L).astype(np.int64)
        option = np.repeat(np.searchsorted(self.o, schedule.column), length)
        return np.repeat(schedule.job, length), option, ranges(first, length)

    def _lateness(self, schedule: Schedule) -> float:
        """The mean time from now to the starts of a job's leases, added up over jobs, s."""
        # Leases of each stretch, and the mean start of these.
        leases = np.round((schedule.end - schedule.start) / self.L)
        mean = schedule.start - self.C.instance.now + 0.5 * (leases - 1.0) * self.L
        job, position = np.unique(schedule.job, return_inverse=True)
        leases_of_job = np.bincount(position, leases, minlength=len(job))
        starts_of_job = np.bincount(position, leases * mean, minlength=len(job))
        return float((starts_of_job / leases_of_job).sum())

    def _shifted(self, x: FloatArray) -> FloatArray:
        """The earliest of some plans in which the same jobs take the same options;
        the value does not fall.

        One is the plan itself with every option moved as early as those of all others leave room,
        until none can be earlier alone. Where the first lease is worth nothing of itself, the
        others are built from scratch, in order of length, deadline and slack, each option as early
        as those before it leave room, if all deadlines are kept so. Once the time is over, jobs
        stay where they are.
        """
        timer = self.timer.part(FOR_ORDER)
        S, X = np.split(np.round(x).astype(np.int64), [len(self.o)])
        planned = np.flatnonzero(S > 0)
        plans = [X if timer.is_over else self._moved_left(S, X, timer)]
        if self.first_lease in ("ignore", "random") and len(self.o) <= MOST_REBUILT:
            for key in (self.b, self.l, self.l - self.b):
                order = planned[np.lexsort((self.b[planned], key[planned]))]
                again, runs = self._in_order(S, order, timer)
                if np.array_equal(again, S):
                    plans.append(self._together(runs))
        late = self.t / self.b[self.of]
        earliest_plan = min(plans, key=lambda plan: float(late @ plan))
        return np.concatenate([S, earliest_plan]).astype(np.float64)

    def _moved_left(self, S: IntArray, X: IntArray, timer: Timer) -> IntArray:
        """X with every option as early as the others leave room;
        a lease that costs value is not used more.
        """
        costs, needed, size, count = (
            array.tolist() for array in (self._worth_of_first < 0, self.b, self.size, S)
        )
        runs = {o: X[self.part(o)].tolist() for o in np.flatnonzero(S > 0).tolist()}
        room, holds = LeaseRoom(self.G[self.renewable]), self.holds
        for o, running in runs.items():
            room.take(holds[o], running)
        moved = True
        while moved:
            moved = False
            lateness = np.bincount(self.of, self.t * self._together(runs), len(self.o))
            mean = lateness / np.maximum(S * self.b, 1)
            for o in sorted(runs, key=lambda o: (mean[o], o)):
                if timer.is_over:
                    return self._together(runs)
                room.take(holds[o], runs[o], -1)
                most = room.jobs_at_once(holds[o], size[o], count[o])
                if costs[o]:
                    most[0] = min(most[0], runs[o][0])
                running = earliest(most, count[o], needed[o])
                running += [0] * (len(most) - len(running))
                moved |= running != runs[o]
                runs[o] = running
                room.take(holds[o], running)
        return self._together(runs)

    def _in_order(
        self, wanted: IntArray, order: IntArray, timer: Timer = UNLIMITED
    ) -> tuple[IntArray, dict[int, list[int]]]:
        """(S, runs) as of `LeasesByRule`, of options one after the other: as many of the ``wanted``
        jobs as can meet the option's deadline.

        Each option takes the earliest leases in which those before it leave room. Once the time is
        over, the others are left out.
        """
        k, needed, size, count = (
            array.tolist() for array in (self.C.class_a[self.o], self.b, self.size, wanted)
        )
        S, left = np.zeros(len(self.o), np.int64), self.C.count.astype(np.int64).tolist()
        runs: dict[int, list[int]] = {}
        room, holds = LeaseRoom(self.G[self.renewable]), self.holds
        for o in order.tolist():
            if timer.is_over:
                break
            jobs = min(count[o], left[k[o]])
            if not jobs:  # all have a better option
                continue
            most = room.jobs_at_once(holds[o], size[o], jobs)
            jobs, running = most_that_fit(most, jobs, needed[o])
            if jobs:
                runs[o] = running
                room.take(holds[o], running)
                S[o] = jobs
                left[k[o]] -= jobs
        return S, runs

    def _together(self, runs: Mapping[int, Sequence[int]]) -> IntArray:
        """X from how many jobs of options run in lease 0, 1, ..."""
        X = np.zeros(len(self.of), np.int64)
        for o, running in runs.items():
            start, there = self.part(o).start, running[int(self.first[o]) :]
            X[start : start + len(there)] = there
        return X

    def _declined(self, schedule: Schedule) -> tuple[tuple[int, str], ...]:
        """Jobs with a deadline that are not planned, and what they need."""
        C = self.C
        left_out = np.setdiff1d(np.flatnonzero(np.isin(C.of_job, self.planned)), schedule.job)
        if not len(left_out):
            return ()
        x = self.complete(schedule)[len(self.o) :]
        free = self.G[self.renewable].copy()
        for r in range(len(free)):
            free[r] -= np.bincount(self.t, self.uses[r, self.of] * x, minlength=free.shape[1])
        room = self._with_room(free + ROUNDING, np.minimum(self.l, free.shape[1]))
        of_class = np.argsort(C.class_a[self.o], kind="stable")
        first = np.searchsorted(C.class_a[self.o][of_class], np.arange(len(C) + 1))
        why = {
            k: self._why_declined(room, of_class[first[k] : first[k + 1]])
            for k in np.unique(C.of_job[left_out]).tolist()
        }
        return tuple(
            (job, why[k])
            for job, k in zip(left_out.tolist(), C.of_job[left_out].tolist(), strict=True)
        )

    def _why_declined(self, room: IntArray, options: IntArray) -> str:
        """What a job with these options needs,
        and in how many leases there is room for it beside the plan.
        """
        o = int(options[np.argmin(self.b[options] - self.l[options])])
        needs = f"{_leases(self.b[o])} of {many(int(self.C.gpus[self.o[o]]), 'GPU')}"
        if self.b[o] > self.l[o]:
            return f"it needs {needs}, {self.l[o]} before its deadline"
        if not self.v[options[self.b[options] <= self.l[options]]].any():
            return NO_VALUE
        return (
            f"it needs {needs}; the plan leaves room in {room[o]} of "
            f"the {self.l[o]} before its deadline"
        )

    @property
    def _assumption(self) -> Assumption:
        """What is shown of jobs that cannot all be planned."""
        return Assumption(
            f"in whole rounds of {self.L:g} s, every job in one configuration",
            "shorter rounds (round of the instance) decide more finely",
        )

    def _refuse_impossible(self, in_time: BoolArray) -> None:
        """Refuse jobs with a deadline that no option can meet, alone on the cluster.

        Parameters
        ----------
        in_time : BoolArray, shape (O,)
            Whether a job of the option could meet its deadline.
        """
        if self.admission and self.optional.all():
            return
        C = self.C
        able = mask_of(C.class_a[self.o][in_time], len(C))
        asked = asked_classes(C)
        refuse_endless(C, np.flatnonzero(asked & ~(self.admission & self.optional)))
        stuck = np.flatnonzero(asked & ~able & ~self.optional).tolist()
        conflicts = [self._stuck(k) for k in stuck]
        conflicts += [] if self.admission else without_column(C)
        if conflicts:
            raise Infeasible(conflicts)

    def _shortage(self) -> Shortage | None:
        """Jobs that together need more of a resource until some lease than there is.

        A job takes one lease at a time, so that of its b_o leases at least b_o - (l_o - T) lie
        before lease T. Every plan therefore keeps, for every resource r and every T,

            sum_k n_k min_{o in O_k} g_ro max(0, b_o - max(0, l_o - T))  <=  sum_{t < T} G_rt

        over the classes k whose jobs must all be planned. This bounds the linear relaxation too:
        gangs that leave GPUs idle side by side are the solver's to find. The GPUs of all pools
        count as one more resource, for jobs that may choose among pools.
        """
        C, usable = self.C, self.b <= self.room
        must = usable & ~self.optional[C.class_a[self.o]]
        o = np.flatnonzero(must)
        if not len(o):
            return None
        k, b, late = C.class_a[self.o[o]], self.b[o], self.size[o]
        first = np.flatnonzero(np.diff(k, prepend=-1))
        pools = C.resources.pool[self.renewable] >= 0
        g = np.vstack([self.uses[:, o], self.uses[pools][:, o].sum(axis=0)])
        capacity = self.G[self.renewable]
        supply = np.vstack([capacity, capacity[pools].sum(axis=0)]).cumsum(axis=1)

        # The left side rises fastest just before a deadline, so that sums are compared there. Any
        # of these moments may be left out: fewer show less, and nothing false.
        moments = np.unique(late)
        moments = moments[:: -(-len(moments) * len(o) // MOST_COUNTED)]
        for T in moments.tolist():
            before = np.maximum(b - np.maximum(late - T, 0), 0)
            needed = C.count[k[first]] * np.minimum.reduceat(g * before, first, axis=1)
            there = supply[:, T - 1]
            short = np.flatnonzero(needed.sum(axis=1) > beyond(there))
            if len(short):
                r = int(short[0])
                return self._in_short_supply(r, T, k[first], needed[r], float(there[r]))
        return None

    def _in_short_supply(
        self, r: int, T: int, k: IntArray, needed: FloatArray, there: float
    ) -> Shortage:
        """The fewest classes whose jobs need more of a resource before lease T than there is."""
        fewest, asked = fewest_beyond(needed, there)
        jobs = [Conflict("take", c, self._needs(c), self._assumption) for c in k[fewest].tolist()]
        of = f"{there:g} GPUs of all pools"
        if r < len(self.renewable):
            of = amount_of(self.C, int(self.renewable[r]), there)
        leases = "lease 0 has" if T == 1 else f"leases 0 to {T - 1} have, added up,"
        words = f"{leases} {of}; these jobs need at least {asked:g}"
        resource = Conflict("capacity", -1, words, self._assumption)
        return Shortage((resource, *jobs), asked, there)

    # --- points and schedules ---------------------------------------------------------------------

    def _read(self, x: FloatArray) -> Schedule:
        """Members take the leases of their option in turn,
        so that each gets exactly b_o of them, no two at once.
        """
        S = np.round(x[: len(self.o)]).astype(np.int64)
        X = np.round(x[len(self.o) : len(self.o) + len(self.of)]).astype(np.int64)
        # One slot per job and lease, option after option, lease after lease.
        slot = owners(X)
        of = self.of[slot]
        turn = np.arange(len(slot)) - np.searchsorted(of, of)
        return self.schedule(S, of, turn % np.maximum(S[of], 1), self.t[slot])

    def schedule(self, S: IntArray, of: IntArray, member: IntArray, t: IntArray) -> Schedule:
        """The schedule of the leases of each member of each option;
        members are numbered from 0 in each option.
        """
        C = self.C
        before = np.cumsum(S) - S  # members of the class that took options listed before
        k = C.class_a[self.o]
        first_of_class = np.searchsorted(k, k) if len(k) else k
        member = member + (before - before[first_of_class])[of]
        order = np.lexsort((t, member, of))
        of, member, t = of[order], member[order], t[order]
        starts = np.ones(len(t), bool)  # leases that follow each other are one stretch
        starts[1:] = (of[1:] != of[:-1]) | (member[1:] != member[:-1]) | (t[1:] != t[:-1] + 1)
        begin = np.flatnonzero(starts)
        last = np.flatnonzero(np.append(starts[1:], True)) if len(t) else begin
        return Schedule.of_members(
            C, self.o[of[begin]], member[begin], self._moment(t[begin]), self._moment(t[last] + 1)
        )

    def _moment(self, t: IntArray) -> FloatArray:
        """When a lease begins, s."""
        return np.asarray(self.C.instance.now + t * self.L, np.float64)

    def complete(self, schedule: Schedule) -> FloatArray:
        """The point (S, X) of a schedule; raises ValueError where there is none."""
        now, names = self.C.instance.now, self.C.instance.jobs_table.names
        place = place_in(self.o, schedule, "that is no option with a deadline")
        begin, end = (schedule.start - now) / self.L, (schedule.end - now) / self.L
        t0, t1 = np.round(begin).astype(np.int64), np.round(end).astype(np.int64)
        off = np.maximum(np.abs(begin - t0), np.abs(end - t1)) > OFF
        for wrong, problem in (
            (off, "does not run in whole leases"),
            ((t0 < 0) | (t1 <= t0), "runs before now, or for no time"),
            (t1 > self.l[place], "runs after its deadline"),
            (
                (t0 < self.first[place]) | (t1 > (self.first + self.size)[place]),
                "runs later than any plan has to",
            ),
        ):
            if wrong.any():
                raise ValueError(f"job {names[int(schedule.job[np.argmax(wrong)])]} {problem}")
        length = t1 - t0
        x = np.zeros(len(self.o) + len(self.of))
        X = len(self.o) + ranges(self._begin[place] + t0 - self.first[place], length)
        np.add.at(x, X, 1.0)
        owner, t = np.repeat(schedule.job, length), ranges(t0, length)
        key = owner * (1 << 32) + t
        if len(np.unique(key)) < len(key):
            twice = int(owner[np.argsort(key, kind="stable")][:-1][np.diff(np.sort(key)) == 0][0])
            raise ValueError(f"job {names[twice]} runs twice in one lease")
        pairs = np.unique(np.stack([schedule.job, place], axis=1), axis=0)
        if len(np.unique(pairs[:, 0])) < len(pairs):
            raise ValueError("a job changes its option")
        held = np.bincount(np.repeat(schedule.job, length), minlength=len(names))[pairs[:, 0]]
        odd = np.flatnonzero(held != self.b[pairs[:, 1]])
        if len(odd):
            job, option = pairs[odd[0]].tolist()
            raise ValueError(
                f"job {names[job]} runs {held[odd[0]]} leases, expected {self.b[option]}"
            )
        np.add.at(x, pairs[:, 1], 1.0)
        return x

    # --- words ------------------------------------------------------------------------------------

    def _stuck(self, k: int) -> Conflict:
        """Why no option of a class meets its deadline: for want of a resource, or of leases."""
        options = self.o[(self.C.class_a[self.o] == k) & (self.size > 0)]
        short = self.supply.too_little(options)
        if not len(options) or (short < 0).any():
            return Conflict("take", k, self._needs(k), self._assumption)
        words = needs_more(self.supply, int(options[0]), int(short[0]))
        return Conflict("take", k, f"{self.C.job_name(k)} {words}")

    def _needs(self, k: int) -> str:
        C = self.C
        options = np.flatnonzero(C.class_a[self.o] == k)
        if not len(options):
            return f"{C.job_name(k)} has a deadline, but cannot run alone"
        deadline, now = float(self._deadlines[self.o[options]].max()), float(C.instance.now)
        if deadline <= now:
            return f"{C.job_name(k)} {past_deadline(deadline, now)}"
        best = options[np.argmin(self.b[options] - self.l[options])]
        gpus, each = int(C.gpus[self.o[best]]), " each" if C.count[k] > 1 else ""
        short = self.size[best] > 0 and self.room[best] < self.b[best]
        room = f", {self.room[best]} of them with room" if short else ""
        return (
            f"{C.job_name(k)} needs {_leases(self.b[best])} of {many(gpus, 'GPU')}{each}, "
            f"{self.l[best]} before its deadline{room}"
        )

    def _describe(self, block: str, number: int) -> str:
        C = self.C
        if block == "capacity":
            row, t = divmod(int(self.used[number]), max(self.leases, 1))
            resource = int(self.renewable[row])
            return f"lease {t} has {amount_of(C, resource, float(self.G[resource, t]))}"
        if block == "take":
            return self._needs(int(self.planned[number]))
        if block == "leases":
            return self._needs(int(C.class_a[self.o[number]]))
        return f"no job runs twice in one lease ({block} {number})"


def _leases(needed: int) -> str:
    return f"{'over ' if needed >= MOST_LEASES else ''}{many(needed, 'lease')}"
