"""The plan of a round: the jobs that start, keep running, move, stop and wait in it, and why."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from optsched.arrays import AnyArray, BoolArray, FloatArray, IntArray, gathered, mask_of
from optsched.arrays.values import cached_property, replace
from optsched.candidates import Classes
from optsched.display import (
    Displayed,
    DisplayedTable,
    TableColumns,
    count,
    first_of,
    number,
    percent,
)
from optsched.display.picture import Picture
from optsched.instance import Instance
from optsched.instance.cluster import NONE
from optsched.instance.references import job_row
from optsched.instance.running import Place, RunningJobs
from optsched.lazy import convenience
from optsched.placement.bound_cells import BoundCells
from optsched.placement.fragmentation import Fragmentation, fragmentation_of
from optsched.placement.occupied import occupied_by
from optsched.rounds.admission import Admissions
from optsched.rounds.ledger import PLAIN, Ledger, Setup, setups_of
from optsched.rounds.order import Order
from optsched.rounds.plan_document import FORMAT
from optsched.rounds.preemption import due_times
from optsched.rounds.stops import Stops
from optsched.rounds.throughput import Throughput, throughput_of
from optsched.solution import Allocation, Certificate, Solution, Status
from optsched.solving.warm_start import WarmStart

if TYPE_CHECKING:
    from optsched.rounds.state import RoundState


class Verdict(IntEnum):
    """What a plan does with a job."""

    # The numbers are in the digests of plans, and so in journals: they never change.
    HOLD = 0
    START = 1
    KEEP = 2
    MOVE = 3
    PREEMPT = 4


EARLY = 1e-9
"""A start within this part of a round counts as now."""
POOL = 2
"""Column of a ledger key with the pool, after the two jobs."""
TURN = 0.0005
"""A job with a fraction above 1 - TURN may run all the time: it does not wait for its turn."""
STOPS = (Verdict.MOVE, Verdict.PREEMPT)
STARTS = (Verdict.START, Verdict.MOVE)
RUNS = (Verdict.START, Verdict.KEEP, Verdict.MOVE)
WAITS = (Verdict.HOLD, Verdict.PREEMPT)

SAID_IN_FULL = 3
"""Number of waiting jobs whose reasons a summary gives."""


def among(verdict: IntArray, verdicts: Sequence[Verdict]) -> BoolArray:
    """Mask of the jobs with one of some verdicts."""
    # Ten times as fast as np.isin.
    return mask_of(list(verdicts), len(Verdict))[verdict]


@dataclass(frozen=True, repr=False)
class Decision(Displayed):
    """The decision of a plan about one job: its GPUs (on nodes of a pool) and its setup, or why it
    waits.

    ``begins`` is when the GPUs of a job that starts become free, if that is later than the plan.
    """

    job: str
    verdict: Verdict
    pool: str | None
    gpus: tuple[str, ...]
    reason: str
    setup: Setup = PLAIN
    begins: float | None = None

    def _headline(self) -> str:
        where = (
            f" on {count(len(self.gpus), 'GPU')} of {self.pool}" if self.pool is not None else ""
        )
        why = f": {self.reason}" if self.reason else ""
        return f"{self.verdict.name.lower()} {self.job}{where}{why}"

    def to_document(self) -> dict[str, Any]:
        """As in the document of a plan, with the verdict."""
        return {
            "job": self.job,
            "verdict": self.verdict.name.lower(),
            "pool": self.pool,
            "gpus": list(self.gpus),
            "nodes": self.nodes,
            "reason": self.reason or None,
            **_start_document(self.setup, self.begins),
        }

    @property
    def nodes(self) -> dict[str, list[int]]:
        """Indices of its GPUs by node."""
        found: dict[str, list[int]] = {}
        for gpu in self.gpus:
            node, _, index = gpu.rpartition("/")
            found.setdefault(node, []).append(int(index))
        return found


@dataclass(frozen=True)
class Action:
    """One step from one plan to the next: ``stop`` a job on these GPUs, or ``start`` it there.

    Jobs without GPUs have no pool. ``begins`` is when the GPUs of a start are free, if that is
    later than the plan: until then jobs that were stopped hold them.
    """

    kind: str
    job: str
    pool: str | None
    gpus: tuple[str, ...]
    reason: str = ""
    setup: Setup = PLAIN
    begins: float | None = None

    def to_document(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "job": self.job,
            "pool": self.pool,
            "gpus": list(self.gpus),
            **_start_document(self.setup, self.begins),
        }


@dataclass(frozen=True)
class _Ranks:
    """Running and waiting jobs, by position in the order of a ranking.

    Attributes
    ----------
    jobs : int
        Number of jobs in the order.
    runs, firm : IntArray
        Positions of the running jobs, and of those that cannot be stopped, ascending. A job on a
        node that takes no more work is not in the order; its position is behind all others.
    waits : int
        Position of the first job that waits.
    first : str
        Name of this job.
    """

    jobs: int
    runs: IntArray
    firm: IntArray
    waits: int
    first: str


@dataclass(frozen=True, repr=False)
class Plan(DisplayedTable):
    """The decisions of a round. Fields that are also in its document have the same name there.

    Attributes
    ----------
    round : int
        Number of the round.
    instance : Instance
        The instance of the state, with the jobs that ran before (``running``).
    verdict : IntArray, shape (jobs,)
        `Verdict` of each job.
    running : mapping of the row of a job to (pool, GPUs, since)
        The jobs that run in the round.
    speed : FloatArray, shape (jobs,)
        steps/s that the running jobs are expected to make.
    reasons : mapping of the row of a job to text
        Why jobs are stopped, moved, or do not run.
    ledger : Ledger
        The allocation in force from now on, with the time that it owes.
    warm : WarmStart, optional
        The basis in which the program ended.
    solution : Solution, optional
        The allocation with its certificate; None under a ranking, in a fallback, and in a plan that
        was read from a journal.
    fallback : str, optional
        Why the plan does not follow a new allocation: then it follows the last one, as far as that
        is still possible. If a ranking failed, jobs are in the order of arrival.
    stops : Stops
        The cost of stopping jobs, the jobs that must not be stopped, and GPUs that are not free
        yet.
    notices : tuple of str
        Messages to the user.
    stands : bool
        Whether no round could be planned at all: running jobs keep running, and nothing starts.
    started_from : str
        How the solver started.
    order : Order, optional
        The order of the jobs under a ranking.
    isolated : FloatArray, shape (jobs,), optional
        steps/s at which the steps of each job count as isolated time from now on
        (`Formulation.isolated_rates`).
    refused : tuple of (rows of jobs, text)
        Jobs that the formulation cannot include.
    admissions : Admissions, optional
        The jobs that are admitted from this round on; None: as before.
    classes : Classes, optional
        The classes of the round's jobs; None if no round could be planned, and in a plan that was
        read from a journal.
    cells : BoundCells, optional
        The GPUs of cells that are reserved for tenants; None where there are none, where no round
        could be planned, and in a plan that was read from a journal.
    timings : mapping
        Seconds by stage.
    """

    round: int
    instance: Instance
    verdict: IntArray
    running: Mapping[int, Place]
    speed: FloatArray
    reasons: Mapping[int, str]
    ledger: Ledger
    warm: WarmStart | None
    solution: Solution | None
    fallback: str | None
    stops: Stops
    notices: tuple[str, ...] = ()
    stands: bool = False
    started_from: str = ""
    order: Order | None = None
    isolated: FloatArray | None = None
    refused: tuple[tuple[tuple[int, ...], str], ...] = ()
    admissions: Admissions | None = None
    classes: Classes | None = None
    cells: BoundCells | None = None
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def now(self) -> float:
        """When the round begins, seconds."""
        return self.instance.now

    @property
    def until(self) -> float:
        """When the round ends, seconds."""
        return self.instance.now + self.instance.round

    @property
    def next_start(self) -> float:
        """When its schedule next starts a job or changes its GPUs, seconds; inf if it has none.

        Only a new plan carries this out, so it should be made then and not at the end of the round.
        """
        schedule = None if self.solution is None else self.solution.schedule
        if schedule is None:
            return math.inf
        later = schedule.start > self.now + EARLY * self.instance.round
        return float(schedule.start[later].min(initial=math.inf))

    @cached_property
    def id(self) -> str:
        """The digest: a hash of all decisions of the plan, and of all that the next plan depends
        on.
        """
        places = RunningJobs.of(self.running)
        gpu = places.numbers(self.instance.cluster.numbering)
        more: list[AnyArray] = [places.job, places.pool, places.length, gpu, places.since]
        more += [] if self.isolated is None else [self.isolated]
        more += [] if self.order is None else [self.order.renewed]
        more += [] if self.admissions is None else [self.admissions.standing]
        return self._hashed({}, more)

    # The properties below are None if no new allocation was made: under a ranking, or in a
    # fallback.

    @property
    def formulation(self) -> str | None:
        """The formulation of the allocation."""
        return None if self.solution is None else self.solution.formulation

    @property
    def status(self) -> Status | None:
        """The status of the solution."""
        return None if self.solution is None else self.solution.status

    @property
    def objective(self) -> float | None:
        """The objective of the allocation."""
        return None if self.solution is None else finite(self.solution.objective)

    @property
    def bound(self) -> float | None:
        """Bound on the objective of all allocations."""
        return None if self.solution is None else finite(self.solution.bound)

    @property
    def gap(self) -> float | None:
        """Relative gap between objective and bound."""
        return None if self.solution is None else finite(self.solution.gap)

    @property
    def certificate(self) -> Certificate | None:
        """The certificate of the allocation."""
        return None if self.solution is None else self.solution.certificate

    @property
    def allocation(self) -> Allocation | None:
        """Fractions of time that this and the next rounds give."""
        return None if self.solution is None else self.solution.allocation

    @property
    def prices(self) -> Mapping[str, float]:
        """Prices of the resources in the allocation."""
        return {} if self.solution is None else self.solution.prices

    @property
    def reproducible(self) -> bool:
        """Whether the same state gives the same plan: not if the clock stopped the solver."""
        return self.solution is None or self.solution.reproducible

    @cached_property
    def throughput(self) -> Throughput | None:
        """The throughput that the round reaches and a bound on it; a linear program is solved."""
        return None if self.classes is None else throughput_of(self.classes, self.speed)

    @cached_property
    def fragmentation(self) -> Fragmentation | None:
        """Free GPUs of the round, and the free GPUs that the jobs cannot use."""
        if self.classes is None:
            return None
        table = replace(self.instance.jobs_table, running=self.running)
        instance = replace(self.instance, jobs_table=table)
        jobs = np.array([job for job, (_, gpus, _) in self.running.items() if gpus], np.int64)
        option = np.full(len(table), NONE, np.int64)
        for job, setup in self.setups.items():
            option[job] = NONE if setup.option is None else setup.option
        return fragmentation_of(self.classes, occupied_by(instance, jobs, option))

    def decision(self, job: int | str) -> Decision:
        """The decision about a job.

        Parameters
        ----------
        job : int or str
            Its row in the job table, or its id.

        Returns
        -------
        Decision
            Verdict, pool, GPUs and the reason.

        Raises
        ------
        InvalidArgument
            The instance has no such job; the message names the closest one.
        """
        names = self.instance.jobs_table.names
        if isinstance(job, str):
            job = job_row(names, job, self.instance.name)
        verdict = Verdict(int(self.verdict[job]))
        reason = self.reasons.get(job, "")
        # Most reasons follow from the plan. They are made on demand: there may be 100,000.
        if not reason and verdict in (Verdict.HOLD, Verdict.PREEMPT):
            reason = self._turn(job) if self.order is None else self._rank(self.order, job)
        elif not reason and verdict is Verdict.MOVE:
            reason = self._other_place(job)
        return Decision(
            names[job],
            verdict,
            *self._place(self.running, job),
            reason,
            self.setups.get(job, PLAIN),
            self._begins(job),
        )

    def _begins(self, job: int) -> float | None:
        """When the GPUs of a job that starts are free, if that is later than the plan."""
        later = self.verdict[job] in STARTS and self.begins[job] > self.now
        return float(self.begins[job]) if later else None

    def _place(self, running: Mapping[int, Place], job: int) -> tuple[str | None, tuple[str, ...]]:
        """Pool and GPUs of a job, if it has any."""
        if job not in running:
            return None, ()
        return self.instance.cluster.pools[running[job][0]].name, running[job][1]

    @cached_property
    def _row(self) -> Mapping[str, int]:
        """The row of each job by its name."""
        return {name: job for job, name in enumerate(self.instance.jobs_table.names.written())}

    @cached_property
    def setups(self) -> Mapping[int, Setup]:
        """Setups that are not `PLAIN`, by the row of the job."""
        return setups_of(self.ledger.key[self.ledger.runs])

    @cached_property
    def begins(self) -> FloatArray:
        """When the GPUs of jobs that start are free, seconds; shape (jobs,)."""
        stopped = among(self.verdict, STOPS)
        return self.stops.begins(RunningJobs.of(self.running), stopped)

    @property
    def restart_cost(self) -> FloatArray:
        """Seconds that jobs which start again take to restore their state; shape (jobs,)."""
        places = RunningJobs.of(self.running)
        cost = np.zeros(len(self.verdict))
        cost[places.job] = self.stops.restart(places.job, places.pool, places.length)
        return cost

    def _turn(self, job: int) -> str:
        """Why a waiting job does not run: its claim and its deficit."""
        share = self._claims[0][job]
        owed = self._claims[1][job] / self.instance.round
        if share <= 0:
            return "the allocation gives it no time, and nothing is left over that it may run on"
        text = f"it is owed {owed:.2f} rounds" if owed >= 0 else f"it is {-owed:.2f} rounds ahead"
        text = text if abs(owed) >= 0.005 else "it is owed nothing"
        if share > 1 - TURN:
            text = f"all of the time is its, but no GPUs are free for it in this round; {text}"
        else:
            text = f"its turn comes later: {100 * share:.3g} % of the time is its, and {text}"
        if self._behind_head_starts[job]:
            head_start = self.stops.policy.hysteresis
            rounds = f"{head_start:g} round{'s' * (head_start != 1)}"
            text += f"; jobs that run have a head start of {rounds} (hysteresis)"
        return text

    @cached_property
    def _behind_head_starts(self) -> BoolArray:
        """Jobs that would come before a running job of one of their pools without hysteresis; shape
        (jobs,).
        """
        ledger = self.ledger
        cost = self.stops.cost
        restart = np.maximum(cost[ledger.job], gathered(cost, ledger.partner, 0.0))
        restart = restart / self.instance.round
        # Hysteresis does not matter for jobs that cannot be preempted.
        may_stop = self.stops.preemptible
        movable = may_stop[ledger.job] & gathered(may_stop, ledger.partner, True)
        keeps = (self.verdict[ledger.job] == Verdict.KEEP) & ledger.runs & movable
        deficit = ledger.deficit / self.instance.round
        waiting_due = due_times(ledger.fraction, deficit, np.zeros(len(ledger)))
        due = due_times(ledger.fraction, deficit, restart)
        earlier_due = due_times(ledger.fraction, deficit, restart + self.stops.policy.hysteresis)
        behind = np.zeros(len(self.verdict), bool)
        pool_of_row = ledger.key[:, POOL]
        for pool in np.unique(pool_of_row[keeps]).tolist():
            in_pool = pool_of_row == pool
            rows = keeps & in_pool
            waits = (~ledger.runs & (ledger.fraction > 0) & in_pool).nonzero()[0]
            # Number of running rows that come first, with and without their head start.
            first = np.searchsorted(np.sort(earlier_due[rows]), waiting_due[waits], "right")
            first_anyway = np.searchsorted(np.sort(due[rows]), waiting_due[waits], "right")
            held_back = waits[first > first_anyway]
            behind[ledger.job[held_back]] = True
            partner = ledger.partner[held_back]
            behind[partner[partner >= 0]] = True
        return behind

    def _other_place(self, job: int) -> str:
        """Why a job moves: its claim to where it goes, or to make room for others."""
        held = self.instance.jobs_table.running
        if job not in self.running or job not in held:
            return f"it goes on with{'' if job in self.running else 'out'} GPUs"
        pool = self.running[job][0]
        ledger = self.ledger
        name = self.instance.cluster.pools[pool].name
        before = held[job][:2]
        gpus = len(self.running[job][1])
        # From the smallest change to the largest.
        if before[0] == pool and len(before[1]) == gpus:
            return f"it goes on elsewhere on {name}, so that others have room"
        if before[0] == pool:
            return f"it goes on with {gpus} GPUs of {name} instead of {len(before[1])}"
        running_rows = ((ledger.job == job) | (ledger.partner == job)) & ledger.runs
        share = float(ledger.fraction[running_rows].sum())
        if share <= 0:
            return f"others are due where it ran, and GPUs of {name} are left over"
        return f"its turn on {name}: {100 * share:.3g} % of the time is its there"

    def _rank(self, order: Order, job: int) -> str:
        """Why a job that could run does not: its position in the order, and who has the GPUs."""
        position = int(order.position[job])
        ranks = self._ranks
        if position < 0:
            return "side constraints leave it no way to run"
        text = f"place {position + 1} of {ranks.jobs} in the order of {order.ranking}"
        if order.strict and ranks.waits < position:
            return f"{text}: {ranks.first} is before it, has no room, and lets nobody pass"
        # Who has the GPUs: jobs before it, and jobs behind it that cannot be stopped.
        before = int(ranks.runs.searchsorted(position))
        behind = len(ranks.firm) - int(ranks.firm.searchsorted(position))
        whose = [_counted(before, "before it")] if before else []
        whose += [_counted(behind, "that cannot be stopped")] if behind else []
        return f"{text}: GPUs that it needs go to {' and '.join(whose) or 'others'}"

    @cached_property
    def _ranks(self) -> _Ranks:
        assert self.order is not None
        position = self.order.position
        runs = mask_of(list(self.running), len(position))
        # A job that cannot be preempted and starts in this round had to wait for its turn.
        firm = runs & ~self.stops.preemptible & (self.verdict == Verdict.KEEP)
        ranked = position >= 0
        waiting = (ranked & ~runs).nonzero()[0]
        first = int(waiting[np.argmin(position[waiting])]) if len(waiting) else -1
        return _Ranks(
            jobs=int(ranked.sum()),
            runs=np.sort(position[runs & ranked]),
            firm=np.sort(np.where(ranked, position, len(position))[firm]),
            waits=int(position[first]) if first >= 0 else len(position),
            first=self.instance.jobs_table.names[first] if first >= 0 else "",
        )

    @cached_property
    def _claims(self) -> tuple[FloatArray, FloatArray]:
        """Fraction of the time of each job, and seconds that it is owed."""
        return self.ledger.claims()

    def of(self, *verdicts: Verdict) -> tuple[Decision, ...]:
        """Decisions of some kinds, in the order of the jobs.

        Parameters
        ----------
        *verdicts : Verdict
            The kinds.

        Returns
        -------
        tuple of Decision
        """
        return tuple(
            self.decision(job) for job in among(self.verdict, verdicts).nonzero()[0].tolist()
        )

    @cached_property
    def start(self) -> tuple[Decision, ...]:
        """Jobs that did not run and start now."""
        return self.of(Verdict.START)

    @cached_property
    def keep(self) -> tuple[Decision, ...]:
        """Jobs that keep running on their GPUs."""
        return self.of(Verdict.KEEP)

    @cached_property
    def move(self) -> tuple[Decision, ...]:
        """Jobs that are stopped and started on other GPUs."""
        return self.of(Verdict.MOVE)

    @cached_property
    def preempt(self) -> tuple[Decision, ...]:
        """Jobs that are stopped and wait."""
        return self.of(Verdict.PREEMPT)

    @cached_property
    def hold(self) -> tuple[Decision, ...]:
        """Jobs that keep waiting."""
        return self.of(Verdict.HOLD)

    @cached_property
    def declined(self) -> tuple[tuple[str, str], ...]:
        """Jobs that are not admitted with their requirements (deadlines, minimum service), and
        why.
        """
        declined = {} if self.admissions is None else self.admissions.declined
        names = self.instance.jobs_table.names
        return tuple((names[job], why) for job, why in sorted(declined.items()))

    def diff(self, previous: Plan | None = None) -> tuple[Action, ...]:
        """The steps from the present state, or from another plan, to this plan: all stops, then all
        starts.

        In this order, no GPU is ever given to two jobs. Jobs that are only in the other plan are
        stopped. A job that continues in another configuration, even on the same GPUs, is stopped
        and started.

        Parameters
        ----------
        previous : Plan, optional
            Default: the jobs that run when the round begins.

        Returns
        -------
        tuple of Action
        """
        names = self.instance.jobs_table.names
        if previous is None:
            running = self.instance.jobs_table.running
            going, coming = (
                among(self.verdict, two).nonzero()[0].tolist() for two in (STOPS, STARTS)
            )
            stops = [
                Action(
                    "stop",
                    names[job],
                    *self._place(running, job),
                    self.decision(job).reason,
                )
                for job in going
            ]
            return (*stops, *(self._started(job) for job in coming))
        before = previous.named()
        after = self.named()
        row = self._row
        stops = []
        for name, (pool, gpus, setup) in before.items():
            if after.get(name) != (pool, gpus, setup):
                reason = self.decision(row[name]).reason if name in row else "it is no longer there"
                stops.append(Action("stop", name, pool, gpus, reason))
        return (
            *stops,
            *(self._started(row[name]) for name in after if before.get(name) != after[name]),
        )

    def _started(self, job: int) -> Action:
        name = self.instance.jobs_table.names[job]
        return Action(
            "start",
            name,
            *self._place(self.running, job),
            "",
            self.setups.get(job, PLAIN),
            self._begins(job),
        )

    def named(self) -> dict[str, tuple[str | None, tuple[str, ...], Setup]]:
        """Pool, GPUs and configuration of the jobs that run, by name, in the order of the jobs."""
        names = self.instance.jobs_table.names
        jobs = among(self.verdict, RUNS).nonzero()[0].tolist()
        return {
            names[job]: (
                *self._place(self.running, job),
                self.setups.get(job, PLAIN),
            )
            for job in jobs
        }

    def next_state(self, state: RoundState, now: float | None = None) -> RoundState:
        """The state after this plan is applied, from which the next round is planned.

        Parameters
        ----------
        state : RoundState
            The state that the plan was made of.
        now : float, optional
            Seconds on the clock of the instance: until then the jobs run as planned. Default: when
            the plan begins.

        Returns
        -------
        RoundState

        Raises
        ------
        InvalidArgument
            The plan was made of another state, or ``now`` is before it begins.
        """
        return cast("RoundState", convenience("Plan.next_state")(self, state, now))

    def plot(self) -> Picture:
        """A picture of the cluster and of the jobs that run in the round."""
        return Picture(convenience("Plan.plot")(self))

    # --- figures and documents ------------------------------------------------------------

    @cached_property
    def metrics(self) -> Mapping[str, Any]:
        """Number of jobs by verdict, of usable GPUs and of GPUs in use, and the utilisation by
        pool.
        """
        cluster = self.instance.cluster
        numbering = self.instance.cluster.numbering
        # GPUs held on closed nodes count as usable: otherwise more GPUs could be in use than
        # usable.
        usable = cluster.gpus(self.now) + self._held_outside()
        held = np.zeros(numbering.gpus, bool)
        gpu = RunningJobs.of(self.running).numbers(numbering)
        held[gpu[gpu != NONE]] = True
        pool_of_gpu = numbering.pool.repeat(np.diff(numbering.start))
        used = np.bincount(pool_of_gpu[held], minlength=len(usable))
        count = np.bincount(self.verdict, minlength=len(Verdict))
        shares = zip(cluster.pools, used.tolist(), usable.tolist(), strict=True)
        return {
            "jobs": {verdict.name.lower(): int(count[verdict]) for verdict in Verdict},
            "gpus": int(usable.sum()),
            "gpus_in_use": int(used.sum()),
            "utilisation": {
                pool.name: float(in_use / size) if size else None for pool, in_use, size in shares
            },
        }

    def _held_outside(self) -> IntArray:
        """GPUs by pool that non-preemptible jobs hold on nodes which take no more work."""
        cluster = self.instance.cluster
        numbering = self.instance.cluster.numbering
        places = RunningJobs.of(self.running)
        stays = ~self.stops.preemptible[places.job]
        if not stays.any():
            return np.zeros(len(cluster.pools), np.int64)
        gpu = np.unique(places.numbers(numbering)[stays[places.owner]])
        node = numbering.node_of(gpu)
        outside = node[~cluster.usable(self.now)[node]]
        return np.bincount(numbering.pool[outside], minlength=len(cluster.pools))

    def to_document(self) -> dict[str, object]:
        """The plan in the format ``optsched-plan/1`` (`optsched.rounds.plan_document`)."""
        free = self.fragmentation
        declined = [{"job": job, "reason": why} for job, why in self.declined]
        return {
            "format": FORMAT,
            "id": self.id,
            "round": self.round,
            "now": self.now,
            "until": self.until,
            "instance": self.instance.identity,
            "start": [self._running_document(item) for item in self.start],
            "keep": [self._running_document(item) for item in self.keep],
            "move": [self._running_document(item) for item in self.move],
            "preempt": [{"job": item.job, "reason": item.reason} for item in self.preempt],
            "hold": [{"job": item.job, "reason": item.reason} for item in self.hold],
            **({"declined": declined} if declined else {}),
            **({} if self.cells is None else {"cells": self.cells.to_records()}),
            "actions": [step.to_document() for step in self.diff()],
            **self._solution_document(),
            "fallback": self.fallback,
            "notices": list(self.notices),
            "metrics": self.metrics,
            "throughput": None if self.throughput is None else self.throughput._asdict(),
            "fragmentation": None if free is None else free.metric,
            "reproducible": self.reproducible,
            "started_from": self.started_from,
            "timings": dict(self.timings),
        }

    def _running_document(self, item: Decision) -> dict[str, Any]:
        job = self._row[item.job]
        speed = float(self.speed[job])
        document = {
            "job": item.job,
            "pool": item.pool,
            "gpus": list(item.gpus),
            "nodes": item.nodes,
            "since": self.running[job][2] if job in self.running else None,
            "throughput": speed if speed > 0 else None,
            **_start_document(item.setup, item.begins),
        }
        if item.reason:
            document["reason"] = item.reason
        return document

    def _solution_document(self) -> dict[str, Any]:
        """The allocation in the document."""
        certificate, allocation = self.certificate, self.allocation
        return {
            "formulation": self.formulation,
            "status": self.status,
            "objective": self.objective,
            "bound": self.bound,
            "gap": self.gap,
            "certificate": (
                None if certificate is None else {"ok": certificate.ok, "proof": certificate.proof}
            ),
            "allocation": [] if allocation is None else allocation.to_records(),
            "prices": {name: float(price) for name, price in self.prices.items()},
        }

    def id_by_names(self) -> str:
        """The digest in older journals, whose plans have no decisions: GPUs are hashed by their
        names, which is slow.
        """
        return self._hashed({"running": [[job, *held] for job, held in self.running.items()]}, [])

    def _hashed(self, words: Mapping[str, Any], more: list[AnyArray]) -> str:
        # Timings and texts are left out: they may differ between equal decisions.
        header = {"round": self.round, "now": self.now, "fallback": self.fallback, **words}
        found = hashlib.blake2b(json.dumps(header).encode(), digest_size=16)
        ledger = [getattr(self.ledger, item.name) for item in fields(Ledger)]
        parts = [*more, self.verdict, self.speed, *ledger]
        if self.warm is not None:
            warm = self.warm
            # A basis without prices keeps the digest of versions that had no prices.
            found.update(json.dumps(dict(warm.prices)).encode() if warm.prices else b"")
            parts += [
                warm.of_job,
                warm.column,
                *warm.columns.values(),
                *warm.rows.values(),
            ]
        for part in parts:
            found.update(np.ascontiguousarray(part).data)
        return found.hexdigest()

    def _headline(self) -> str:
        jobs = np.bincount(self.verdict, minlength=len(Verdict))
        order = (*RUNS, Verdict.PREEMPT, Verdict.HOLD)
        done = [f"{jobs[item]:,} {item.name.lower()}" for item in order if jobs[item]]
        return f"of round {self.round} of {self.instance.name}: {', '.join(done) or 'no job'}"

    def _facts(self) -> Mapping[str, str]:
        figures = self.metrics
        shares = figures["utilisation"].items()
        by_pool = [f"{pool} {percent(share)}" for pool, share in shares if share is not None]
        jobs = self.instance.jobs_table.names
        named = {
            verdict: first_of(
                [jobs[row] for row in (self.verdict == verdict).nonzero()[0].tolist()]
            )
            for verdict in Verdict
        }
        solution = self.solution
        return {
            "clock": f"{number(self.now)} s to {number(self.until)} s",
            "GPUs": (
                f"{figures['gpus_in_use']:,} of {figures['gpus']:,} in use: {first_of(by_pool)}"
            ),
            "throughput": "" if self.throughput is None else str(self.throughput),
            "fragmentation": "" if self.fragmentation is None else self.fragmentation.words,
            "start": named[Verdict.START],
            "move": named[Verdict.MOVE],
            "preempt": named[Verdict.PREEMPT],
            "hold": self._waits(),
            "allocation": "" if solution is None else solution.summary().splitlines()[0],
            "fallback": self.fallback or "",
            "notices": "; ".join(self.notices),
        }

    def _waits(self) -> str:
        """The first jobs that keep waiting, each with its reason, and the number of further
        jobs.
        """
        rows = (self.verdict == Verdict.HOLD).nonzero()[0].tolist()
        first = [self.decision(row) for row in rows[:SAID_IN_FULL]]
        said = ", ".join(f"{item.job} ({item.reason})" for item in first)
        more = len(rows) - len(first)
        return f"{said} and {more:,} more" if more else said

    def to_columns(self, first: int | None = None) -> TableColumns:
        """One row per job: verdict, pool, GPUs and reason."""
        decisions = [self.decision(job) for job in range(len(self.verdict))[:first]]
        return {
            "job": [item.job for item in decisions],
            "verdict": [item.verdict.name.lower() for item in decisions],
            "pool": [item.pool for item in decisions],
            "gpus": [item.gpus for item in decisions],
            "reason": [item.reason for item in decisions],
        }


def _start_document(setup: Setup, begins: float | None) -> dict[str, float | int]:
    return setup.stated() | ({} if begins is None else {"begins": begins})


def finite(value: float | None) -> float | None:
    """A number, or None if it is infinite or missing: JSON has no infinity."""
    return float(value) if value is not None and np.isfinite(value) else None


def _counted(count: int, which: str) -> str:
    return f"{count:,} job{'s' * (count > 1)} {which}"
