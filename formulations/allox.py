"""AlloX: where jobs run and in which order,
for the smallest sum of completion times (R||sum C_j).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from formulations.machines import FreeMachines, check_each_once, rank
from formulations.slots import Slots, cheapest_slots, whole_assignment
from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of, owners, sum_before
from optsched.candidates import Candidates, Classes, Drop
from optsched.errors import UsageError
from optsched.formulation import Formulation, FormulationOptions
from optsched.program import LinearProgram
from optsched.solution import Schedule
from optsched.solution.plan import LinearPlan

MOST_SLOTS = 3_000_000
ROUNDING = 1e-9


WAITS = "waits, as others are planned first"


class Allox(Formulation):
    """Run every job once, without interruption, on one GPU;
    minimise the sum of the completion times since arrival.

    Sets
        k in K: classes of n_k equal jobs;  g in G: groups of N_g machines (GPUs) of one pool that
        are free from a_g on;
        i = 1, 2, ...: places in the order of a machine, counted from its END (i = 1 runs last).
    Parameters
        p_kg: seconds that a job of class k needs on a machine of group g, alone on the GPU;
        n = sum_k n_k;
        a_g: seconds until the machines of g are free (node available, job that keeps its GPU
        ended);
        t_k = now - arrival: age of a job.
    Variables
        x_kgi: jobs of class k at place i of machines of group g; i - 1 jobs run after each of them
        on its machine.
    Program
        minimise  sum_kgi (a_g + i p_kg) x_kgi  +  sum_k n_k t_k
        one    sum_gi x_kgi  =  n_k                every class k
        place  sum_k x_kgi  <=  N_g                every group g and place i
        x >= 0;   x_kgi only for the n machine places (g, i) that are cheapest for k

    A job delays itself and all that run after it, hence i p_kg. Vertices of this assignment problem
    are whole numbers, so it is solved as a linear program, and its duals prove the optimum. Some
    optimum uses only the n cheapest places of each job, because the n - 1 other jobs cannot hold
    them all.

    Running jobs keep their GPU until they end; their ends count in the objective. Left out: jobs
    that have not arrived (with release dates the program would only be a lower bound), and columns
    of two jobs. Refused: jobs that cannot run on exactly one GPU or that have predecessors
    (``after``), and other resources that may run out.

    Options
        alpha         of m waiting jobs, only the first max(floor(alpha m), free GPUs) by arrival
                      are planned; the others are unplaced.
        keep_running  whether all running jobs keep their GPU; otherwise preemptible ones are
                      planned anew, at no cost of moving.

    References
        T. N. Le et al., "AlloX: Compute Allocation in Hybrid Clusters", EuroSys 2020; W. A. Horn,
        "Minimizing average flow time with parallel machines", Operations Research 21 (1973); J.
        Bruno, E. G. Coffman, R. Sethi, "Scheduling independent tasks to reduce mean finishing
        time", CACM 17 (1974). With alpha: D. Narayanan et al., OSDI 2020, repository policy
        ``allox``.
    """

    name = "allox"
    aliases = ("sum-completion",)
    reads = frozenset({"steps_left", "arrival"})
    also_reads = frozenset({"after", "running", "preemptible"})
    reads_pairs = False
    sense = "min"
    takes_rows = False
    awaits_nodes = True
    objective_words = "sum of times from arrival to end, s"

    class Options(FormulationOptions):
        """Options of the sum of completion times."""

        alpha: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 1.0
        keep_running: bool = True

    @property
    def leaves_idle(self) -> bool:
        """A job that waits for a faster GPU must not fill a slow one: it would have to keep it."""
        return bool(self.options.keep_running)

    def classes(self, candidates: Candidates) -> Classes:
        """Classes of the jobs that are planned;
        every job is one where some keep their GPUs, as these are not alike.
        """
        # Candidates of an earlier call have jobs that wait: all are looked at anew.
        candidates = candidates.without_jobs(np.zeros(len(candidates.absence), bool), WAITS)
        candidates = candidates.without(_unusable(candidates))
        kept = self._kept(candidates)
        candidates = candidates.per_job() if kept.any() else candidates
        if self.options.alpha < 1:
            candidates = candidates.without_jobs(self._too_young(candidates, kept), WAITS)
        return super().classes(candidates)

    def build(self, C: Classes) -> LinearPlan:
        return _Places(C, self._kept(C.candidates)).plan()

    def _kept(self, candidates: Candidates) -> BoolArray:
        """Jobs that keep their GPU, shape (jobs,)."""
        table = candidates.instance.jobs_table
        kept = mask_of(list(table.running), len(table))
        stays = np.ones(len(table), bool) if self.options.keep_running else ~table.preemptible
        return kept & stays & candidates.present

    def _too_young(self, candidates: Candidates, kept: BoolArray) -> BoolArray:
        """Jobs that wait for older ones to be planned, shape (jobs,)."""
        table = candidates.instance.jobs_table
        waiting = np.flatnonzero(candidates.present & ~kept)
        C = super().classes(candidates)
        free = _Places(C, kept).machines.free_now if len(waiting) else 0
        planned = max(int(np.floor(self.options.alpha * len(waiting) + ROUNDING)), free)
        return mask_of(
            waiting[np.argsort(table.arrival[waiting], kind="stable")][planned:], len(table)
        )


@dataclass(frozen=True)
class _Places:
    """Machines, places and variables of one program."""

    C: Classes
    keeps: BoolArray
    """Jobs that keep their GPU, shape (jobs,)."""

    @cached_property
    def column(self) -> IntArray:
        """Column in which each class is fastest on each pool, alone on exactly one GPU;
        -1: none. Shape (K, pools).
        """
        C = self.C
        on_one_gpu = (
            C.alone & (C.pool >= 0) & (C.gpus == 1) & (C.configurations.share[C.configuration] == 1)
        )
        some = np.flatnonzero(on_one_gpu & np.isfinite(C.duration))
        # Slowest first: the last that is written, the fastest, stays.
        order = some[np.argsort(C.duration[some], kind="stable")[::-1]]
        column = np.full((len(C), len(C.instance.cluster.pools)), -1, np.int64)
        column[C.class_a[order], C.pool[order]] = order
        return column

    @cached_property
    def kept(self) -> IntArray:
        """Column of each class that keeps its GPU, -1 for those that are planned, shape (K,)."""
        C, table = self.C, self.C.instance.jobs_table
        kept = np.full(len(C), -1, np.int64)
        for k in np.flatnonzero(self.keeps[C.first]).tolist():
            pool = table.running[int(C.first[k])][0]
            kept[k] = self.column[k, pool]
        endless = self.keeps[C.first] & (kept < 0)
        if endless.any():
            k = int(endless.argmax())
            name = C.instance.cluster.pools[table.running[int(C.first[k])][0]].name
            raise UsageError(
                f"allox: {C.job_name(k)} runs on pool {name} without a rate on one GPU there: "
                "its end is unknown"
            ).of_jobs(C.jobs_among(endless))
        return kept

    @cached_property
    def machines(self) -> FreeMachines:
        C = self.C
        running = np.flatnonzero(self.kept >= 0)
        return FreeMachines.of(
            C.instance, {int(C.first[k]): float(C.duration[self.kept[k]]) for k in running.tolist()}
        )

    @cached_property
    def slots(self) -> Slots:
        """The variables x_kgi: the places that are cheapest for each class."""
        C, machines = self.C, self.machines
        column = self.column[:, machines.pool]
        p = (
            np.where(column >= 0, C.duration[column], np.inf)
            if C.columns
            else np.full(column.shape, np.inf)
        )
        return cheapest_slots(
            p, np.where(self.kept >= 0, 0.0, C.count), machines.free, machines.count, MOST_SLOTS
        )

    # --- the program ------------------------------------------------------------------------------

    def plan(self) -> LinearPlan:
        """The program `Allox` states."""
        C, N = self.C, self.machines.count
        self._refuse()
        slots = self.slots
        planned, kept = np.flatnonzero(self.kept < 0), np.flatnonzero(self.kept >= 0)
        n = C.count[planned]
        lp = LinearProgram()
        x = lp.variables(
            len(slots), name="x", implied=(0.0, np.minimum(C.count[slots.k], N[slots.g]))
        )
        # Jobs that keep their GPU are columns fixed at 1: their ends count in the objective.
        runs = lp.variables(len(kept), name="runs", lower=1.0, upper=1.0)
        lp.constrain(slots.one(planned) @ x == n, name="one")
        lp.constrain(slots.place @ x <= N[slots.place_g], name="place")
        age = float(C.count @ (C.instance.now - C.arrival))
        ends = C.duration[self.kept[kept]]
        lp.minimise(slots.cost[np.newaxis, :] @ x + ends[np.newaxis, :] @ runs + age)
        return LinearPlan(C, lp, self._read, self._complete, self._describe)

    def _refuse(self) -> None:
        """What the program does not know of."""
        C, table = self.C, self.C.instance.jobs_table
        without = np.asarray((self.column < 0).all(axis=1))
        if without.any():
            k = int(without.argmax())
            raise UsageError(
                f"allox plans jobs on one GPU each: {C.job_name(k)} has no configuration "
                "of exactly one GPU"
                + (f" (its smallest has {C.gang[k]:g})" if C.gang[k] > 1 else "")
            ).of_jobs(C.jobs_among(without))
        # A job does not wait for one that is done or left out.
        planned = C.of_job >= 0
        waits = {
            job: other
            for job, before in sorted(table.after.items())
            for other in [next((other for other in before if planned[other]), -1)]
            if planned[job] and other >= 0
        }
        for job, other in waits.items():
            why = f"job {table.names[job]} waits for {table.names[other]} (after)"
            raise UsageError(f"allox plans jobs that wait for nobody: {why}").of_jobs(waits)
        self._refuse_scarce()

    def _refuse_scarce(self) -> None:
        """Resources beside GPUs that the jobs could exhaust: the program counts GPUs alone."""
        C = self.C
        o = self.column[self.column >= 0]
        usage = C.usage.tocsr()[:, o].tocoo()
        gpus = np.bincount(
            self.machines.pool, self.machines.count, minlength=len(C.instance.cluster.pools)
        )
        pools, R = len(gpus), len(C.resources)
        on_pool, of_class = np.zeros((R, pools)), np.zeros((R, len(C)))
        np.maximum.at(on_pool, (usage.row, C.pool[o][usage.col]), usage.data)
        np.maximum.at(of_class, (usage.row, C.class_a[o][usage.col]), usage.data)
        # What jobs can hold at once, by the GPUs that there are and by their number; all of them
        # use up what is consumed.
        most = np.where(
            C.resources.renewable,
            np.minimum(on_pool @ gpus, of_class @ C.count),
            of_class @ C.count,
        )
        scarce = np.flatnonzero((C.resources.pool < 0) & (most > C.capacity * (1 + ROUNDING)))
        if len(scarce):
            r = int(scarce[0])
            raise UsageError(
                f"allox counts GPUs alone, but {C.resources.names[r]} may run out: "
                f"its jobs could hold {most[r]:g} of "
                f"{C.capacity[r]:g}"
            )

    def _describe(self, block: str, number: int) -> str:
        C, slots = self.C, self.slots
        if block == "one":
            return f"{C.job_name(int(np.flatnonzero(self.kept < 0)[number]))} must run once"
        g, i = int(slots.place_g[number]), int(slots.place_i[number])
        pool = C.instance.cluster.pools[int(self.machines.pool[g])].name
        return f"pool {pool} has {self.machines.count[g]} GPUs for jobs at place {i} from the end"

    # --- points and schedules ---------------------------------------------------------------------

    def _read(self, point: FloatArray) -> Schedule:
        """The schedule of a point;
        one that is no optimum may stand for no whole jobs, and gives way to the optimum.
        """
        C, slots = self.C, self.slots
        count = np.where(self.kept >= 0, 0.0, C.count).astype(np.int64)
        whole = whole_assignment(slots, count, self.machines.count, point[: len(slots)])
        schedule = self._schedule(whole)
        try:
            self._complete(schedule)
        except ValueError:  # machines that are free at the same time have swapped places into some that are left out
            schedule = self._schedule(whole_assignment(slots, count, self.machines.count, None))
        return schedule

    def _schedule(self, whole: IntArray) -> Schedule:
        """Jobs at a place of a group go to its machines in turn;
        on each, the highest place runs first.
        """
        C, slots = self.C, self.slots
        chosen = owners(whole)
        # The j-th job at a place of a group runs on machine j of the group.
        m = rank(slots.at[chosen])
        order = np.lexsort((-slots.i[chosen], m, slots.g[chosen]))
        chosen, m = chosen[order], m[order]
        k, g = slots.k[chosen], slots.g[chosen]
        machine = (
            np.unique(np.stack([g, m]), axis=1, return_inverse=True)[1].ravel()
            if len(chosen)
            else m
        )
        column = self.column[k, self.machines.pool[g]]
        p = C.duration[column]
        start = self.machines.free[g] + sum_before(p, machine)
        runs = np.flatnonzero(self.kept >= 0)
        column = np.concatenate([column, self.kept[runs]])
        start = C.instance.now + np.concatenate([start, np.zeros(len(runs))])
        member = np.concatenate([rank(k), np.zeros(len(runs), np.int64)])
        return Schedule.of_members(C, column, member, start, start + C.duration[column])

    def _complete(self, schedule: Schedule) -> FloatArray:
        """The place of every job:
        whatever machine it is on, each starts when another of its pool ends, or is free.
        """
        C, slots, names = self.C, self.slots, self.C.instance.jobs_table.names
        check_each_once(C, schedule)
        k, now = C.of_job[schedule.job], C.instance.now
        expected = np.where(
            self.kept[k] >= 0, self.kept[k], self.column[k, np.maximum(schedule.pool, 0)]
        )
        # Relative to the length of the schedule, and never finer than floats are at this clock.
        slack = ROUNDING * float((schedule.end - now).max(initial=0.0)) + 4 * np.spacing(
            np.abs(schedule.end)
        )
        length = schedule.end - schedule.start
        for wrong, problem in (
            (
                schedule.column != expected,
                "does not run in its fastest configuration of one GPU, or not where it runs",
            ),
            (
                np.abs(length - C.duration[schedule.column]) > slack,
                "does not run for as long as it needs",
            ),
            (
                (self.kept[k] >= 0) & (np.abs(schedule.start - now) > slack),
                "keeps its GPU, but does not run now",
            ),
        ):
            if wrong.any():
                raise ValueError(f"job {names[int(schedule.job[np.argmax(wrong)])]} {problem}")
        rows = np.flatnonzero(self.kept[k] < 0)
        g, i = self._chains(schedule, rows, slack)
        variable = slots.find(k[rows], g, i)
        if (variable < 0).any():
            name = names[int(schedule.job[rows[np.argmax(variable < 0)]])]
            raise ValueError(
                f"job {name} runs where no optimum has it: {len(rows)} places that are better "
                "for it exist"
            )
        x = np.zeros(len(slots) + int((self.kept >= 0).sum()))
        np.add.at(x, variable, 1.0)
        x[len(slots) :] = 1.0
        return x

    def _chains(
        self, schedule: Schedule, rows: IntArray, slack: FloatArray
    ) -> tuple[IntArray, IntArray]:
        """(group, place from the end)
        of stretches that follow each other on the machines of their pools.
        """
        machines, names = self.machines, self.C.instance.jobs_table.names
        group = owners(machines.count)
        pool = machines.pool[group]
        free = [
            [
                (float(machines.free[g]), int(m))
                for m, g in enumerate(group.tolist())
                if pool[m] == j
            ]
            for j in range(len(self.C.instance.cluster.pools))
        ]
        start, end = schedule.start - self.C.instance.now, schedule.end - self.C.instance.now
        machine, order = np.zeros(len(rows), np.int64), np.argsort(start[rows], kind="stable")
        for row in order.tolist():
            s = int(rows[row])
            ready = free[int(schedule.pool[s])]
            # The machine that got free last: on any other one a GPU would wait for longer.
            place = bisect_right(ready, (float(start[s] + slack[s]), len(group))) - 1
            if place < 0:
                name = self.C.instance.cluster.pools[int(schedule.pool[s])].name
                raise ValueError(
                    f"no GPU of pool {name} is free for job {names[int(schedule.job[s])]} "
                    "when it starts"
                )
            since, machine[row] = ready.pop(place)
            if since < start[s] - slack[s]:
                raise ValueError(
                    f"job {names[int(schedule.job[s])]} starts after its GPU is free: "
                    "no GPU may wait"
                )
            insort(ready, (float(end[s]), int(machine[row])))
        # Places count from the end of each machine.
        back = order[::-1]
        i = np.empty(len(rows), np.int64)
        i[back] = rank(machine[back]) + 1
        return group[machine], i


def _unusable(candidates: Candidates) -> NDArray[np.uint8]:
    """`Drop` of each kind column: of jobs that can run alone on one GPU, all other ways to run."""
    columns, table = candidates.columns, candidates.configurations
    row = candidates.configuration
    on_one_gpu = (
        (columns.partner < 0) & (columns.pool >= 0) & (columns.gpus == 1) & (table.share[row] == 1)
    )
    can = mask_of(columns.kind[on_one_gpu], len(candidates.kinds) + 1)
    drop = ~on_one_gpu & (can[columns.kind] | can[columns.partner])
    return np.where(drop, Drop.NOT_CHOSEN, Drop.KEPT).astype(np.uint8)
