"""Chronus: deadlines met by leases, fixed slots without preemption inside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from formulations.reference_rates import refuse_endless
from optsched.arrays import FloatArray, IntArray, ranges
from optsched.candidates import Absence, Candidates, Classes
from optsched.errors import InvalidInput, UsageError
from optsched.formulation import Formulation, FormulationOptions, Infeasible
from optsched.instance.reading import show
from optsched.program import Assumption, LinearProgram
from optsched.solution import Conflict, Schedule
from optsched.solution.plan import LinearPlan

MOST_COLUMNS = 2_000_000
ROUNDING = 1e-9
BEST_EFFORT = "it has no deadline: best effort, not planned"
FirstLease = Literal["ignore", "minimise", "maximise", "random"]
Capacity = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class Lease(Formulation):
    """Give every job with a deadline enough leases before it; a lease is one round of the instance.

    Sets
        k in K: classes of n_k equal jobs with a deadline;  o in O_k: their options, columns without a partner;
        t = 0, 1, ...: leases;  r in R: renewable resources.
    Parameters
        b_o = ceil(duration_o / L): leases needed, L the length of a lease; with the option ``quantile`` q a duration
        that follows from a rate is the one that is kept with probability q (those that the instance states are exact);
        l_o = floor((deadline - now) / L): leases before the deadline; an option's attribute ``deadline`` (seconds on
        the clock of now) wins over the job's, which is how soft deadlines are stated: later, and worth less;
        v_o: value of the option, or the job's weight where the instance lists no options;
        g_ro: what it uses of r;  G_rt: capacity of r in lease t (nodes that become available count from then on).
    Variables
        S_o: jobs of the class that take option o;  X_ot: how many of them run in lease t.
    Program
        maximise  sum_o v_o S_o  -/+  sum_o g_o X_o0 / max_t sum_r G_rt            g_o, G over GPUs of pools
        leases    sum_{t < l_o} X_ot  =  b_o S_o                                   every option
        once      X_ot  <=  S_o                                                    options of classes with n_k > 1
        take      sum_{o in O_k} S_o  =  n_k    (<= n_k if soft, or ``admission``) every class
        capacity  sum_o g_ro X_ot  <=  G_rt                                        every resource and lease
        S, X >= 0 integer;  X_ot = 0 for t >= l_o
    A job stays on its option, so it never changes GPU type. Jobs without a deadline are best effort: they are no part
    of the plan, and listed as unplaced. A soft deadline may be missed; the job then has no lease and no value.

    Options
        first_lease   what the GPUs used in the first lease are worth: ``ignore`` them, ``minimise`` or ``maximise``
                      them; ``random`` counts only the first option's value, as the published code does where any
                      feasible plan will do.
        admission     let jobs be declined; otherwise all must be planned, or the instance is infeasible.
        capacity      {resource: [capacity in lease 0, 1, ...]}: calendars; the last number goes on.

    References
        W. Gao, Z. Ye, P. Sun, Y. Wen, T. Zhang, "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training
        Jobs", SoCC 2021; repository S-Lab-System-Group/ChronusArtifact, code/alg/scheduler/solver.py.
    """

    name = "lease"
    reads = frozenset({"steps_left", "deadline", "soft_deadline", "weight"})
    sense = "max"
    takes_rows = False
    leaves_idle = True
    hard_deadlines = True
    objective_words = "value of the plan"

    class Options(FormulationOptions):
        """Options of the lease program."""

        first_lease: FirstLease = "ignore"
        admission: bool = False
        capacity: dict[str, Annotated[list[Capacity], Field(min_length=1)]] = Field(default_factory=dict)

    def classes(self, candidates: Candidates) -> Classes:
        """Classes of the jobs with a deadline; the others are unplaced."""
        stated = np.array(
            [_deadline(attributes) for attributes in candidates.configurations.attribute_sets], np.float64
        )
        columns, row = candidates.columns, candidates.configurations.attributes[candidates.configuration]
        asked = np.zeros(len(candidates.kinds) + 1, bool)  # the last is of jobs without a kind
        asked[columns.kind[~np.isnan(stated[row])]] = True
        free = np.isinf(candidates.instance.jobs_table.deadline) & ~asked[candidates.kinds.of_job]
        return super().classes(candidates.without_jobs(free, BEST_EFFORT))

    def build(self, C: Classes) -> LinearPlan:
        """See the class."""
        return _Leases(C, self.options.capacity, self.options.admission, self.options.first_lease).plan()


@dataclass(frozen=True)
class _Leases:
    """Options, leases and variables of one program."""

    C: Classes
    calendar: Mapping[str, list[float]]
    admission: bool
    first_lease: FirstLease

    @property
    def L(self) -> float:
        """Length of a lease, s."""
        return float(self.C.instance.round)

    @cached_property
    def o(self) -> IntArray:
        """Columns that are options: of classes with a deadline, alone."""
        C = self.C
        deadline = self._option_deadlines
        return np.flatnonzero(C.alone & np.isfinite(C.duration) & np.isfinite(deadline)).astype(np.int64)

    @cached_property
    def _option_deadlines(self) -> FloatArray:
        """Deadline of each column: its attribute, else the job's."""
        C = self.C
        sets = C.configurations.attribute_sets
        stated = np.array([_deadline(attributes) for attributes in sets], np.float64)
        own = stated[C.configurations.attributes[C.configuration]]
        return np.where(np.isnan(own), C.deadline[C.class_a], own)

    @cached_property
    def b(self) -> IntArray:
        """Leases needed by each option."""
        leases = self.C.sure_duration[self.o] / self.L
        return np.maximum(np.ceil(leases - ROUNDING * np.maximum(leases, 1.0)), 1).astype(np.int64)

    @cached_property
    def l(self) -> IntArray:  # noqa: E743  (the paper's symbol)
        """Leases before the deadline of each option, at least 0."""
        left = (self._option_deadlines[self.o] - self.C.instance.now) / self.L
        return np.maximum(np.floor(left + ROUNDING * np.maximum(np.abs(left), 1.0)), 0).astype(np.int64)

    @cached_property
    def v(self) -> FloatArray:
        """Value of each option."""
        C, option = self.C, self.C.candidates.columns.option[self.C.kind_column[self.o]]
        stated = C.candidates.columns.value[C.kind_column[self.o]]
        return np.where(option >= 0, stated, C.weight[C.class_a[self.o]])

    @cached_property
    def leases(self) -> int:
        """Leases in the program."""
        return int(self.l.max(initial=0))

    @cached_property
    def G(self) -> FloatArray:
        """Capacity of each resource in each lease, shape (R, leases)."""
        C, leases = self.C, max(self.leases, 1)
        pools, now = C.instance.cluster.pools, C.instance.now
        G = np.repeat(C.capacity[:, np.newaxis], leases, axis=1)
        for row, pool in enumerate(C.resources.pool.tolist()):
            if pool >= 0:
                opened = pools[pool].node_available_from
                later = np.unique(opened[(opened > now) & (opened <= now + leases * self.L)])
                for time in later.tolist():
                    first = math.ceil((time - now) / self.L - ROUNDING)
                    G[row, first:] = pools[pool].capacity(time)
        for name, numbers in self.calendar.items():
            if name not in C.resources.names:
                known = ", ".join(C.resources.names)
                raise UsageError(f"option of lease: capacity: found {show(name)}, expected one of {known}")
            row = C.resources.names.index(name)
            listed = np.array(numbers[:leases], np.float64)
            G[row, : len(listed)] = listed
            G[row, len(listed) :] = listed[-1]
        return G

    # --- the program -----------------------------------------------------------------------------------------------

    def plan(self) -> LinearPlan:
        """The program `Lease` states."""
        C, o, b, leases_before = self.C, self.o, self.b, self.l
        self._refuse_impossible()
        size = np.where(b <= leases_before, leases_before, 0)  # an option that cannot make it has no X, and S = 0
        if size.sum() > MOST_COLUMNS:
            raise UsageError(
                f"lease: {size.sum()} variables of options and leases, at most {MOST_COLUMNS} are taken: "
                "longer rounds or nearer deadlines make fewer"
            )
        k, n = C.class_a[o], C.count[C.class_a[o]]
        of, t = np.repeat(np.arange(len(o), dtype=np.int64), size), ranges(np.zeros(len(o), np.int64), size)

        lp = LinearProgram()
        S = lp.variables(len(o), name="S", upper=np.where(size > 0, n, 0.0), integer=True)
        X = lp.variables(len(of), name="X", upper=n[of], integer=True)
        every = np.arange(len(of))
        total = sp.csr_matrix((np.ones(len(of)), (of, every)), shape=(len(o), len(of)))
        lp.constrain(total @ X - sp.diags_array(b.astype(float)) @ S == 0.0, name="leases")
        several = np.flatnonzero(n[of] > 1)
        if len(several):
            pick = sp.csr_matrix(
                (np.ones(len(several)), (np.arange(len(several)), of[several])), (len(several), len(o))
            )
            lp.constrain(sp.eye_array(len(of), format="csr")[several] @ X - pick @ S <= 0.0, name="once")
        planned = np.unique(k)
        take = sp.csr_matrix(
            (np.ones(len(o)), (np.searchsorted(planned, k), np.arange(len(o)))), (len(planned), len(o))
        )
        wanted = C.count[planned]
        lp.constrain(
            (take @ S).between(np.where(self.admission | C.soft_deadline[planned], 0.0, wanted), wanted), name="take"
        )
        renewable = np.flatnonzero(C.resources.renewable)
        uses = C.usage.tocsr()[renewable][:, o].tocsc()[:, of].tocoo()
        row = uses.row.astype(np.int64) * max(self.leases, 1) + t[uses.col]
        used, position = np.unique(row, return_inverse=True)
        matrix = sp.csr_matrix((uses.data, (position, uses.col)), shape=(len(used), len(of)))
        lp.constrain(matrix @ X <= self.G[renewable].ravel()[used], name="capacity")

        gpus = (C.gpus * C.configurations.share[C.configuration])[o] * (C.pool[o] >= 0)
        most = float(self.G[C.resources.pool >= 0].sum(axis=0).max(initial=0.0))
        first = np.where(t == 0, gpus[of] / most if most > 0 else 0.0, 0.0)
        sign = {"ignore": 0.0, "random": 0.0, "minimise": -1.0, "maximise": 1.0}[self.first_lease]
        v = self.v * (np.arange(len(o)) == 0) if self.first_lease == "random" else self.v
        lp.maximise(v[np.newaxis, :] @ S + (sign * first)[np.newaxis, :] @ X)
        columns = _Columns(of, t, size, planned, used, renewable)
        return LinearPlan(
            C, lp, lambda x: self._read(columns, x), lambda s: self._complete(columns, s),
            lambda block, number: self._describe(columns, block, number), assumption=self._assumption,
        )  # fmt: skip

    @property
    def _assumption(self) -> Assumption:
        """What is shown of jobs that cannot all be planned."""
        return Assumption(
            f"in whole rounds of {self.L:g} s, every job in one configuration",
            "shorter rounds (round of the instance) decide more finely",
        )

    def _refuse_impossible(self) -> None:
        """Jobs with a deadline that no option can meet, alone on the cluster."""
        if self.admission:
            return
        C = self.C
        able = np.zeros(len(C), bool)
        able[C.class_a[self.o][self.b <= self.l]] = True
        asked = np.isfinite(C.deadline)
        asked[C.class_a[self.o]] = True
        refuse_endless(C, np.flatnonzero(asked))
        stuck = np.flatnonzero(asked & ~able & ~C.soft_deadline).tolist()
        conflicts = [Conflict("take", k, self._needs(k), self._assumption) for k in stuck]
        table = C.instance.jobs_table
        lost = np.flatnonzero(
            np.isfinite(table.deadline) & ~table.soft_deadline & (C.candidates.absence == Absence.NO_COLUMN)
        )
        for job in lost.tolist():
            why = C.candidates.why_no_column(int(C.candidates.kinds.of_job[job]))
            conflicts.append(Conflict("take", -1, f"job {table.names[job]} has a deadline, but {why}"))
        if conflicts:
            raise Infeasible(conflicts)

    # --- points and schedules --------------------------------------------------------------------------------------

    def _read(self, columns: _Columns, x: FloatArray) -> Schedule:
        """Members take the leases of their option in turn, so that each gets exactly b_o of them, no two at once."""
        C = self.C
        S = np.round(x[: len(self.o)]).astype(np.int64)
        X = np.round(x[len(self.o) : len(self.o) + len(columns.of)]).astype(np.int64)
        slot = np.repeat(np.arange(len(X)), X)  # one per job and lease, option after option, lease after lease
        of = columns.of[slot]
        turn = np.arange(len(slot)) - np.searchsorted(of, of)
        member = turn % np.maximum(S[of], 1)
        before = np.cumsum(S) - S  # members of the class that took options listed before
        k = C.class_a[self.o]
        first_of_class = np.searchsorted(k, k) if len(k) else k
        member = member + (before - before[first_of_class])[of]
        t = columns.t[slot]
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

    def _complete(self, columns: _Columns, schedule: Schedule) -> FloatArray:
        now, names = self.C.instance.now, self.C.instance.jobs_table.names
        place = np.searchsorted(self.o, schedule.column)
        if len(schedule) and (self.o[np.minimum(place, len(self.o) - 1)] != schedule.column).any():
            raise ValueError("a job runs in a configuration that is no option with a deadline")
        begin, end = (schedule.start - now) / self.L, (schedule.end - now) / self.L
        t0, t1 = np.round(begin).astype(np.int64), np.round(end).astype(np.int64)
        off = np.maximum(np.abs(begin - t0), np.abs(end - t1)) > 1e-6
        for wrong, told in (
            (off, "does not run in whole leases"),
            ((t0 < 0) | (t1 <= t0), "runs before now, or for no time"),
            (t1 > columns.size[place], "runs after its deadline"),
        ):
            if wrong.any():
                raise ValueError(f"job {names[int(schedule.job[np.argmax(wrong)])]} {told}")
        start = np.concatenate(([0], np.cumsum(columns.size)))
        length = t1 - t0
        x = np.zeros(len(self.o) + len(columns.of))
        X = len(self.o) + ranges(start[place] + t0, length)
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
            raise ValueError(f"job {names[job]} runs {held[odd[0]]} leases, expected {self.b[option]}")
        np.add.at(x, pairs[:, 1], 1.0)
        return x

    # --- words -----------------------------------------------------------------------------------------------------

    def _needs(self, k: int) -> str:
        C = self.C
        mine = np.flatnonzero(C.class_a[self.o] == k)
        if not len(mine):
            return f"{C.job_name(k)} has a deadline, but cannot run alone"
        best = mine[np.argmin(self.b[mine] - self.l[mine])]
        gpus, each = int(C.gpus[self.o[best]]), " each" if C.count[k] > 1 else ""
        return (
            f"{C.job_name(k)} needs {_many(self.b[best], 'lease')} of {_many(gpus, 'GPU')}{each}, "
            f"{self.l[best]} before its deadline"
        )

    def _describe(self, columns: _Columns, block: str, number: int) -> str:
        C = self.C
        if block == "capacity":
            row, t = divmod(int(columns.used[number]), max(self.leases, 1))
            resource = int(columns.renewable[row])
            name, amount = C.resources.names[resource], self.G[resource, t]
            of_pool = C.resources.pool[resource] >= 0
            return (
                f"lease {t} has {_many(amount, 'GPU')} of pool {name}"
                if of_pool
                else f"lease {t} has {amount:g} {name}"
            )
        if block == "take":
            return self._needs(int(columns.planned[number]))
        if block == "leases":
            return self._needs(int(C.class_a[self.o[number]]))
        return f"no job runs twice in one lease ({block} {number})"


@dataclass(frozen=True)
class _Columns:
    """What the columns and rows of the program are: option and lease of each X; X per option; rows of the blocks."""

    of: IntArray
    t: IntArray
    size: IntArray
    planned: IntArray
    used: IntArray
    renewable: IntArray


def _many(amount: float, what: str) -> str:
    return f"{amount:g} {what}{'' if amount == 1 else 's'}"


def _deadline(attributes: Mapping[str, Any]) -> float:
    """The attribute ``deadline`` of an option, NaN without."""
    value = attributes.get("deadline")
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput("options: attributes.deadline", show(value), "seconds on the clock of now")
    return float(value)
