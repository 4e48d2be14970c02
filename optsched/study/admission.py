"""Whether jobs can be admitted with their deadlines, beside jobs that were admitted before.

For each job, in this order:

1. a plan by rule (`deadline-elastic` without its program) that keeps all deadlines admits it;
2. if the event-interval program (`deadline-fluid`) shows that some part of a job must miss its
   deadline, the job is refused, and that is proven;
3. a solution of the program of `deadline-elastic` admits it (of up to 40 jobs);
4. otherwise it is refused, and nothing is proven.

Changes with which a refused job could be admitted are searched by rule, and for few jobs by
programs too. For each of them a plan was found; where only the rule searched, a smaller change may
be enough. Rounds do not use this module: they decline jobs by `optsched.rounds.admission`.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, Unpack

import numpy as np

from optsched.api import InstanceSource, Performance, load, make_formulation, solve
from optsched.arrays import EMPTY, IntArray, finite
from optsched.arrays.values import cached_property, replace
from optsched.assembly import compile_for, formulation_for
from optsched.candidates.going_on import UNKNOWN_END, unknown_ends
from optsched.display import Displayed, DisplayedTable, TableColumns, count, moment
from optsched.display.text import enumerated
from optsched.errors import InvalidArgument, InvalidInput, UsageError
from optsched.formulation import Restarts, Stretches
from optsched.formulation.notes import unread_note
from optsched.instance import Instance, jobs_of_documents, with_columns, with_jobs
from optsched.instance.arguments import checks_arguments
from optsched.instance.reading import show
from optsched.instance.references import job_row
from optsched.instance.resize import resized
from optsched.instance.staying import held_for
from optsched.placement import jobs_without_nodes
from optsched.solution import Schedule, Solution, Status
from optsched.solving.limits import LimitOptions, make_limits, takes_limits, timer_of
from optsched.study.conflicts import FLUID, MISSED, Shortfall, StoppedEarly, irreducible

FORMAT = "optsched-admission/1"
ELASTIC = "deadline-elastic"
MOST_PROGRAMMED = 40
"""Jobs up to which the program of `deadline-elastic` is solved. With more, it seldom finds a plan
that the rule does not, and not in a second.
"""
ORDERS = 4
"""Orders in which rules plan jobs that must all be kept (option `orders`)."""
NODES = 1000
"""Nodes of the search tree after which such a program gives up."""
FEW_GPUS, MOST_GPUS = 8, 4096
"""Most GPUs that are added to a pool in search of the fewest that let a job in; after the former
the latter are tried at once.
"""
MOST_MIXES = 100
"""Most mixtures of further GPUs that are tried in search of the cheapest."""
ACCURACY, ACCURACY_OF_RULE = 1e-3, 1e-2
"""Part of the time from now by which the earliest deadline may be off; by rule, which knows it no
better, the latter.
"""
SHORTEST, LONGEST = 1e-6, 1e12
"""Seconds from now between which a deadline that can be kept is searched."""

Job = str | Mapping[str, Any]
"""The id of a job of the instance, or a job as in an instance document."""
EndBy = Callable[[float], float | None]
"""A deadline of a job -> when the job ends in a plan that keeps it, both in seconds from now; None if
no plan was found.
"""


class Reason(StrEnum):
    """Why a job is refused."""

    ALONE = "alone"
    """It cannot meet its deadline even alone; proven."""
    CONFLICT = "conflict"
    """It and the jobs of ``conflict`` cannot all meet their deadlines; proven."""
    NOT_PROVEN = "not proven"
    """No plan was found, and it was not shown that there is none."""


@dataclass(frozen=True, repr=False)
class Refusal(Displayed):
    """Why a job is not admitted, and what would let it in.

    Attributes
    ----------
    job : str
    reason : Reason
    words : str
        One sentence.
    conflict : tuple of str
        Jobs that cannot all meet their deadlines beside it; empty if it cannot alone, or if nothing
        is proven.
    smallest : bool
        Whether none of them can be left out. Otherwise the search gave up: perhaps some can.
    earliest_deadline : float or None
        Seconds on the clock of ``now``: with this deadline it would be admitted. None: with none
        that was tried.
    extra_gpus : mapping of str to int or None
        By pool: with so many GPUs more it would be admitted; None: with no number that was tried.
    cheapest : mapping of str to int or None
        GPUs of pools, of those above and mixtures that were tried the cheapest; None if there are
        none.
    """

    job: str
    reason: Reason
    words: str
    conflict: tuple[str, ...] = ()
    smallest: bool = True
    earliest_deadline: float | None = None
    extra_gpus: Mapping[str, int | None] | None = None
    cheapest: Mapping[str, int] | None = None

    @property
    def proven(self) -> bool:
        """Whether it was shown that no schedule admits it."""
        return self.reason is not Reason.NOT_PROVEN

    def _headline(self) -> str:
        return f"{self.job}: {self.words}"

    def to_document(self) -> dict[str, Any]:
        """The refusal as plain data."""
        return {
            "job": self.job,
            "admitted": False,
            "reason": str(self.reason),
            "proven": self.proven,
            "words": self.words,
            "conflict": list(self.conflict),
            "smallest": self.smallest,
            "earliest_deadline": finite(self.earliest_deadline),
            "extra_gpus": None if self.extra_gpus is None else dict(self.extra_gpus),
            "cheapest": None if self.cheapest is None else dict(self.cheapest),
        }


@dataclass(frozen=True, repr=False)
class AdmissionDecision(DisplayedTable):
    """Which jobs are admitted, and the plan that keeps all deadlines.

    Attributes
    ----------
    instance : Instance
        With the jobs that were asked about.
    admitted : tuple of str
        Of the jobs that were asked about.
    refused : tuple of Refusal
    plan : Solution or None
        A schedule in which all admitted jobs, old and new, meet their deadlines; its instance has
        these jobs and those that run on. None if no plan of the jobs that were admitted before is
        known.
    changed : tuple of str
        Jobs admitted before whose plan is another one because of the new ones.
    without_nodes : mapping of str to str
        Jobs of the plan for which no nodes were found, and why: the plan counts the GPUs of whole
        pools. Other jobs might have to move, or no plan fits on nodes. Empty: this one does.
    notes : tuple of str
        Sentences: fields of the instance that the decision does not read, and running jobs whose
        end is not known. No proof of a refusal depends on these.
    """

    instance: Instance
    admitted: tuple[str, ...]
    refused: tuple[Refusal, ...]
    plan: Solution | None
    changed: tuple[str, ...]
    without_nodes: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def all_admitted(self) -> bool:
        """Whether no job was refused."""
        return not self.refused

    def to_document(self) -> dict[str, Any]:
        """The decision in the format ``optsched-admission/1``."""
        schedule = None if self.plan is None else self.plan.schedule
        return {
            "format": FORMAT,
            "instance": self.instance.identity,
            "jobs": [
                *({"job": job, "admitted": True, "ends": self._end(job)} for job in self.admitted),
                *(refusal.to_document() for refusal in self.refused),
            ],
            "changed": list(self.changed),
            "without_nodes": dict(self.without_nodes),
            "notes": list(self.notes),
            "schedule": None if schedule is None else schedule.to_records(),
        }

    def _headline(self) -> str:
        asked = count(len(self.admitted) + len(self.refused), "job")
        return f"of {self.instance.name}: {len(self.admitted)} of {asked} admitted"

    def _facts(self) -> Mapping[str, str]:
        facts = {"admitted": ", ".join(self.admitted)}
        facts |= {refusal.job: refusal.words for refusal in self.refused}
        facts["perhaps without room on nodes"] = ", ".join(self.without_nodes)
        return facts | {"plan changed of": ", ".join(self.changed)}

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The jobs that were asked about: whether admitted, when they end, or why not."""
        deadline = self.instance.jobs_table.deadline
        rows: list[dict[str, Any]] = [
            {"job": job, "admitted": True, "ends": self._end(job)} for job in self.admitted
        ]
        rows += [
            {
                "job": refusal.job,
                "admitted": False,
                "earliest_deadline": refusal.earliest_deadline,
                "why": refusal.words,
            }
            for refusal in self.refused
        ]
        names = ("job", "admitted", "ends", "earliest_deadline", "why")
        columns = {name: [row.get(name) for row in rows[:first]] for name in names}
        index = self.instance.jobs_table.names.index
        due = [float(deadline[index(row["job"])]) for row in rows[:first]]
        return {"job": columns.pop("job"), "deadline": due, **columns}

    def _end(self, job: str) -> float | None:
        """When the plan ends a job, s; None if the job has no work left."""
        if self.plan is None or self.plan.schedule is None:
            return None
        schedule = self.plan.schedule
        rows = schedule.rows_of(self.plan.instance.jobs_table.names.index(job))
        return float(schedule.end[rows].max()) if len(rows) else None


@checks_arguments
@takes_limits
def admit(
    instance: InstanceSource,
    jobs: Job | Sequence[Job],
    *,
    advise: bool = True,
    solver: str = "auto",
    performance: Performance | None = None,
    **limits: Unpack[LimitOptions],
) -> AdmissionDecision:
    """Decide whether jobs can be admitted with their deadlines.

    All other jobs of the instance with a hard deadline count as admitted before: a job is admitted
    only if they all keep their deadlines, restarts counted. Deadlines that have passed are held no
    more. Jobs without a deadline make way, but for those that run and cannot be preempted: these
    hold what they have until they are done, or until their exempt time ends. Jobs are taken in the
    order in which they are given, each beside those that were admitted before it.

    Parameters
    ----------
    instance : Instance, or what `optsched.load` takes
    jobs : str, mapping, or a sequence of these
        Ids of jobs of the instance, or jobs as in an instance document that are to join it. Each
        has a deadline, which counts as a hard one.
    advise : bool
        Whether to search, for each job that is refused, the earliest deadline and the further GPUs
        that would let it in.
    solver : str
        Of the programs.
    performance : optional
        As of `optsched.solve`.
    **limits : LimitOptions
        As of `optsched.solve`; the time limit covers the whole decision. Jobs that are not decided
        by then are refused, and nothing is proven.

    Returns
    -------
    AdmissionDecision

    Raises
    ------
    InvalidInput
        A job without a deadline, or the jobs that count as admitted cannot all be.
    UsageError
        No job, an id that there is not, or a job given twice.
    """
    timer = timer_of(limits.pop("time_limit", None))
    how = {**limits, "time_limit": timer, "solver": solver}
    given, asked = _with_newcomers(load(instance, performance), jobs)
    planner = _DeadlinePlanner(given, how)
    table = given.jobs_table
    firm = np.isfinite(table.deadline) & ~table.soft_deadline & (table.steps_left > 0)
    firm[asked] = False
    kept = np.flatnonzero(firm)
    plan = before = planner.plan(kept) if len(kept) else None
    if plan is not None:
        planner.keep(plan, kept)
    elif len(kept):
        _refuse_impossible(planner, kept)
    admitted, refused = [], []
    for row in asked.tolist():
        # Without a plan of the jobs that were admitted before no job is admitted.
        known = plan is not None or not len(kept)
        found = planner.plan(np.append(kept, row)) if known else None
        why_not = "" if found is None else dict(found.unplaced).get(table.names[row], "")
        if why_not and table.steps_left[row] > 0:
            refused.append(Refusal(table.names[row], Reason.NOT_PROVEN, why_not))
            continue
        if found is None:
            refused.append(_refusal(planner, kept, row, advise, known))
            continue
        kept, plan = np.append(kept, row), found
        planner.keep(plan, kept)
        admitted.append(table.names[row])
    return AdmissionDecision(
        given,
        tuple(admitted),
        tuple(refused),
        plan,
        _changed(given, before, plan),
        _without_nodes(plan),
        _notes(planner),
    )


def _without_nodes(plan: Solution | None) -> dict[str, str]:
    """Jobs of a plan for which no nodes were found, and why."""
    if plan is None or plan.schedule is None:
        return {}
    names = plan.instance.jobs_table.names
    found = jobs_without_nodes(plan.schedule, plan.constraints)
    return {names[row]: words for row, words in found.items()}


def _notes(planner: _DeadlinePlanner) -> tuple[str, ...]:
    """What a decision does not read, and jobs whose end it does not know."""
    unread = unread_note("admit", make_formulation(ELASTIC).all_reads, planner.instance)
    names = planner.instance.jobs_table.names
    unknown = [
        f"job {names[row]} keeps its GPUs: {UNKNOWN_END}" for row in planner.endless.tolist()
    ]
    return (*([unread] if unread else []), *unknown)


def _with_newcomers(instance: Instance, jobs: Job | Sequence[Job]) -> tuple[Instance, IntArray]:
    """The instance with the jobs that join it, their deadlines hard, and the rows that are asked
    about.
    """
    # What is neither a job nor a list of jobs is refused as a wrong single job.
    single = isinstance(jobs, str | Mapping) or not isinstance(jobs, Iterable)
    listed: list[Any] = [jobs] if single else list(jobs)
    for place, job in enumerate(listed):
        if not isinstance(job, str | Mapping):
            raise InvalidArgument(f"jobs[{place}]", show(job), "the id of a job, or a job")
    if not listed:
        raise UsageError("jobs: found none, expected at least one job")
    new = {place: dict(job) for place, job in enumerate(listed) if isinstance(job, Mapping)}
    count_before = len(instance.jobs_table)
    if new:
        all_rows = np.arange(count_before, dtype=np.int64)
        instance = with_jobs(instance, all_rows, _newcomers(instance, new))
    joins = iter(range(count_before, count_before + len(new)))
    rows = [
        next(joins)
        if isinstance(job, Mapping)
        else job_row(instance.jobs_table.names, job, instance.name)
        for job in listed
    ]
    table = instance.jobs_table
    for place, row in enumerate(rows):
        if row in rows[:place]:
            raise UsageError(f"jobs[{place}]: found {show(table.names[row])} a second time")
        if not np.isfinite(table.deadline[row]):
            raise InvalidInput(
                f"jobs[{place}].deadline", f"none (job {show(table.names[row])})", "a deadline, s"
            )
    # Nobody is held to a deadline that has passed.
    soft, deadline = table.soft_deadline | (table.deadline <= instance.now), table.deadline.copy()
    soft[rows] = False
    # Of these, a deadline that may be missed does not matter: they hold their GPUs anyhow.
    deadline[soft & (held_for(instance) > 0)] = np.inf
    instance = with_columns(instance, soft_deadline=soft, deadline=deadline)
    return instance, np.array(rows, np.int64)


def _newcomers(instance: Instance, documents: Mapping[int, dict[str, Any]]) -> Instance:
    """Jobs that join an instance, by their places in the list that was given."""
    places = list(documents)

    def at_place(error: InvalidInput) -> InvalidInput:
        path = re.sub(r"(?<=^jobs\[)\d+", lambda row: str(places[int(row[0])]), error.path)
        return InvalidInput(path, error.found, error.expected)

    try:
        return jobs_of_documents(instance, list(documents.values()))
    except InvalidInput as error:
        # Ids stand between documents in the list: messages count both.
        raise error.each(at_place) from None


def _refuse_impossible(planner: _DeadlinePlanner, kept: IntArray) -> None:
    """Refuse jobs that count as admitted, though not all of them can be."""
    if planner.refuted(kept):
        why = planner.why_refuted(kept)
        raise InvalidInput(
            "jobs",
            f"deadlines that cannot all be met{f': {why}' if why else ''}",
            "jobs that were admitted together",
        )


def _changed(
    instance: Instance, before: Solution | None, after: Solution | None
) -> tuple[str, ...]:
    """Jobs of the first plan whose stretches are different in the second."""
    if before is None or after is None or before is after:
        return ()
    old, new = (_stretches(solution.schedule) for solution in (before, after))
    return tuple(sorted(name for name, stretches in old.items() if stretches != new.get(name)))


def _stretches(schedule: Schedule | None) -> dict[str, list[dict[str, Any]]]:
    """The records of a schedule by job."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in [] if schedule is None else schedule.to_records():
        found.setdefault(record["job"], []).append(record)
    return found


# --- what can be planned ----------------------------------------------------------------------


class _DeadlinePlanner:
    """Whether some jobs of an instance can all meet their deadlines.

    Parameters
    ----------
    instance : Instance
    how : mapping
        Keywords of `optsched.solve`.
    last : Stretches, optional
        The last plan, by rows of the instance: it is kept where other jobs have room beside it.
    """

    def __init__(
        self, instance: Instance, how: Mapping[str, Any], last: Stretches | None = None
    ) -> None:
        self.instance = instance
        self.last = last
        self._how = how
        self._refuted: dict[bytes, bool] = {}

    def with_instance(self, instance: Instance) -> _DeadlinePlanner:
        """The same of another instance with the same jobs."""
        return _DeadlinePlanner(instance, self._how, self.last)

    @cached_property
    def beside(self) -> IntArray:
        """Running jobs without a deadline, which keep their GPUs."""
        keep = np.isinf(self.instance.jobs_table.deadline) & (held_for(self.instance) > 0)
        return np.flatnonzero(keep)

    @cached_property
    def endless(self) -> IntArray:
        """Jobs that keep their GPUs, and whose end is not known."""
        held = held_for(self.instance)
        if not held.any():
            return EMPTY
        candidates = compile_for(make_formulation(FLUID), self.instance)
        return np.flatnonzero(unknown_ends(candidates, held))

    def plan(self, rows: IntArray) -> Solution | None:
        """A plan by rule, else by the program; None if there is none, or none was found in time."""
        found = self.by_rule(rows)
        if found is not None or len(rows) > MOST_PROGRAMMED or self.refuted(rows):
            return found
        return self._planned(rows, program=True)

    def by_rule(self, rows: IntArray) -> Solution | None:
        """A plan of all of these jobs by rule."""
        return self._planned(rows)

    def _planned(
        self, rows: IntArray, *, program: bool = False, orders: int = ORDERS
    ) -> Solution | None:
        """A plan of all of these jobs; one whose certificate failed is none."""
        there = np.union1d(rows, self.beside)
        some = with_jobs(self.instance, there)
        options = {"admission": False, "program": program, "orders": orders}
        formulation = formulation_for(some, ELASTIC, options)
        if self.last is not None:
            last = self.last._replace(job=np.searchsorted(there, self.last.job))
            formulation = formulation.knowing(Restarts.of(some)._replace(planned=last))
        found = solve(some, formulation, **self._how)
        return found if found.schedule is not None and found.certificate.ok else None

    def keep(self, plan: Solution, rows: IntArray) -> None:
        """Make the plan of some jobs the last one."""
        schedule = plan.schedule
        assert schedule is not None
        job = np.union1d(rows, self.beside)[schedule.job]
        label = schedule.classes.labels_of(schedule.column)
        self.last = Stretches(job, label, schedule.start, schedule.end)

    def for_advice(self, rows: IntArray) -> Solution | None:
        """A plan of all of these jobs, if one is found: by rule, of few jobs by a program too."""
        few = len(rows) <= MOST_PROGRAMMED
        # Of many jobs one order is enough, as there are many of these questions.
        found = self._planned(rows, orders=ORDERS if few else 1)
        if found is not None or not few:
            return found
        return _DeadlinePlanner(self.instance, {**self._how, "work_limit": NODES}).plan(rows)

    def refuted(self, rows: IntArray) -> bool:
        """Whether a bound shows that no schedule keeps all deadlines of these jobs."""
        key = np.sort(rows).tobytes()
        if key not in self._refuted:
            found = self._relaxed(rows, {"schedule": False})
            # The program minimises the parts of jobs that miss their deadlines.
            shown = found.bound is not None and found.bound > MISSED
            self._refuted[key] = shown or found.status is Status.INFEASIBLE
        return self._refuted[key]

    def why_refuted(self, rows: IntArray) -> str:
        """What makes it impossible that jobs all meet their deadlines; empty if the time is
        over.
        """
        found = self._relaxed(rows, {"admission": False})
        return "; ".join(conflict.words for conflict in found.conflicts)

    def conflict(self, kept: IntArray, row: int) -> tuple[IntArray, bool]:
        """Jobs that cannot all meet their deadlines beside one, and whether none can be left
        out.
        """
        given = {name: how for name, how in self._how.items() if name != "solver"}
        # After a change of cost the last basis is a better start than any presolve.
        limits = replace(make_limits(**given), options={"presolve": "off"})
        known = self._known(np.append(kept, row))
        there = with_jobs(self.instance, known)
        proof, rows = Shortfall.of(there, self._solver, limits, given["time_limit"])
        jobs = known[rows]
        nowhere = np.setdiff1d(kept, [*jobs, *self.endless])
        if len(nowhere):
            return nowhere[:1], True
        last = jobs == row
        try:
            needed = None if proof is None else proof(np.ones(len(jobs), bool))
        except StoppedEarly:
            needed = None
        if proof is None or needed is None:
            return kept, False
        needed |= last
        jobs, last = jobs[needed], last[needed]
        asked, tried = irreducible(proof.only(needed), last)
        return jobs[asked & ~last], tried

    def _known(self, rows: IntArray) -> IntArray:
        """Jobs of a proof about some: it holds even if one whose end is not known ended now."""
        return np.setdiff1d(np.union1d(rows, self.beside), self.endless)

    @property
    def _solver(self) -> str:
        # The simplex method is the fastest here: ten times faster than an interior point.
        return "highs" if self._how["solver"] == "auto" else str(self._how["solver"])

    def _relaxed(self, rows: IntArray, options: Mapping[str, Any]) -> Solution:
        how = {**self._how, "solver": self._solver}
        return solve(with_jobs(self.instance, self._known(rows)), FLUID, options=options, **how)


# --- reasons of a refusal, and changes with which the job could be admitted ---------------------


def _refusal(
    planner: _DeadlinePlanner, kept: IntArray, row: int, advise: bool, known: bool
) -> Refusal:
    """Why a job is not admitted beside those that are, of which a plan is `known` or not."""
    names = planner.instance.jobs_table.names
    job = names[row]
    conflict: tuple[str, ...] = ()
    smallest = True
    if planner.refuted(np.array([row])):
        reason = Reason.ALONE
        words = planner.why_refuted(np.array([row])) or "it cannot meet its deadline even alone"
    elif planner.refuted(np.append(kept, row)):
        reason = Reason.CONFLICT
        rows, smallest = planner.conflict(kept, row)
        conflict = tuple(names[other] for other in rows.tolist())
        words = f"{enumerated(('it', *conflict), 'and')} cannot all meet their deadlines"
        words += "" if smallest else "; perhaps fewer of them cannot either"
    else:
        reason = Reason.NOT_PROVEN
        of = "all deadlines" if known else "the deadlines of the jobs admitted before, without it"
        words = f"no plan was found that keeps {of}; that there is none is not proven"
    if not advise:
        return Refusal(job, reason, words, conflict, smallest)
    extra = _extra_gpus(planner, np.append(kept, row))
    # No later deadline makes a plan of the others.
    earliest = _earliest_deadline(planner, kept, row) if known else None
    return Refusal(
        job,
        reason,
        words,
        conflict,
        smallest,
        earliest,
        extra,
        _cheapest(planner, np.append(kept, row), extra),
    )


class _PlannedDeadline(NamedTuple):
    """A deadline of a job with a plan that keeps it; all in seconds from now.

    Attributes
    ----------
    deadline : float
    end : float
        When the job ends in the plan.
    refused : float
        The latest earlier deadline for which no plan was found.
    """

    deadline: float
    end: float
    refused: float

    def kept(self, close: float) -> float:
        """The earliest deadline that the plan keeps. Half the accuracy is added to the end of the
        job, which the clock rounds.
        """
        return min(self.deadline, (1.0 + 0.5 * close) * max(self.end, self.refused))


def _earliest_deadline(planner: _DeadlinePlanner, kept: IntArray, row: int) -> float | None:
    """A deadline with which a job is admitted, close to one with which it is not; None if no plan
    was found with any deadline.
    """
    table, now = planner.instance.jobs_table, planner.instance.now

    def end_by(seconds: float) -> float | None:
        deadline = table.deadline.copy()
        deadline[row] = now + seconds
        there = planner.with_instance(with_columns(planner.instance, deadline=deadline))
        plan = there.for_advice(np.append(kept, row))
        if plan is None or plan.schedule is None:
            return None
        job = plan.instance.jobs_table.names.index(table.names[row])
        return float(plan.schedule.end[plan.schedule.rows_of(job)].max(initial=now)) - now

    # The stated deadline is refused, and none before the arrival can be kept.
    refused = max(float(table.deadline[row]), float(table.arrival[row])) - now
    first = _first_planned(end_by, refused)
    if first is None:
        return None
    close = ACCURACY if len(kept) < MOST_PROGRAMMED else ACCURACY_OF_RULE
    return now + _bisected(end_by, first, close)


def _first_planned(end_by: EndBy, refused: float) -> _PlannedDeadline | None:
    """The first deadline with a plan; each that is tried is twice the one before. None: no plan."""
    deadline = 2.0 * max(refused, SHORTEST)
    while (end := end_by(deadline)) is None:
        refused, deadline = deadline, 2.0 * deadline
        if deadline > LONGEST:
            return None
    return _PlannedDeadline(deadline, end, refused)


def _bisected(end_by: EndBy, planned: _PlannedDeadline, close: float) -> float:
    """A deadline with a plan, by at most its part `close` later than one without.

    A job that ends before its deadline keeps earlier ones too: the earliest of these is the upper
    end of the interval. The planner may find no plan if it is asked for that deadline, so it is
    asked at the end. If it finds none, the search goes on between that deadline and the one above.
    """
    deadline, _, refused = planned
    earliest = planned.kept(close)
    while True:
        if earliest - refused > close * earliest:
            middle = 0.5 * (refused + earliest)
            end = end_by(middle)
            if end is None:
                refused = middle
            else:
                deadline = middle
                earliest = _PlannedDeadline(middle, end, refused).kept(close)
        elif earliest == deadline or end_by(earliest) is not None:
            return earliest
        else:
            refused, earliest = earliest, deadline


def _extra_gpus(planner: _DeadlinePlanner, rows: IntArray) -> dict[str, int | None]:
    """The fewest further GPUs of each pool with which jobs are all planned."""

    def of_pool(pool: str) -> int | None:
        return _least(lambda gpus: _with_gpus(planner, rows, {pool: gpus}))

    return {pool.name: of_pool(pool.name) for pool in planner.instance.cluster.pools}


def _with_gpus(planner: _DeadlinePlanner, rows: IntArray, gpus: Mapping[str, int]) -> bool:
    """Whether jobs are all planned on a larger cluster."""
    larger = planner.with_instance(resized(planner.instance, dict(gpus)))
    return larger.for_advice(rows) is not None


def _least(enough: Callable[[int], bool]) -> int | None:
    """A number that is enough though the one before it is not; None if the most is not."""
    too_few, fitting = 0, 1
    while not enough(fitting):
        # Few are enough, or often none. A time limit may end the search at any number.
        if fitting == MOST_GPUS or (fitting == FEW_GPUS and not enough(MOST_GPUS)):
            return None
        too_few, fitting = fitting, 2 * fitting
    while fitting - too_few > 1:
        middle = (too_few + fitting) // 2
        too_few, fitting = (too_few, middle) if enough(middle) else (middle, fitting)
    return fitting


def _cheapest(
    planner: _DeadlinePlanner, rows: IntArray, extra: Mapping[str, int | None]
) -> dict[str, int] | None:
    """The cheapest further GPUs: the fewest of one pool (`extra`), or a mixture that costs less.

    They cost the pools' prices; if not all pools have prices, their number counts.
    """
    pools = [pool for pool in planner.instance.cluster.pools if extra.get(pool.name) is not None]
    if not pools:
        return None
    stated = {pool.name: pool.cost_per_gpu_hour or 0.0 for pool in pools}
    price = stated if all(stated.values()) else dict.fromkeys(stated, 1.0)
    fewest = {pool.name: extra[pool.name] or 0 for pool in pools}
    best = min(fewest, key=lambda name: (price[name] * fewest[name], name))
    node = {pool.name: max(int(pool.node_gpus.max(initial=1)), 1) for pool in pools}
    for cost, gpus in islice(_mixtures(price, node), MOST_MIXES):
        if cost >= price[best] * fewest[best]:
            break
        # Of one pool alone the fewest GPUs are known already.
        if len(gpus) > 1 and _with_gpus(planner, rows, gpus):
            return gpus
    return {best: fewest[best]}


def _mixtures(
    price: Mapping[str, float], node: Mapping[str, int]
) -> Iterator[tuple[float, dict[str, int]]]:
    """The cost and the GPUs of all mixtures of whole nodes, the cheapest first, from no GPU on.

    Parameters
    ----------
    price : mapping of str to float
        Of a GPU, by pool; above 0.
    node : mapping of str to int
        GPUs of a node, by pool.
    """
    names = sorted(price)
    # Dijkstra's search: each mixture is one node larger than another.
    heap = [(0.0, (0,) * len(names))]
    known = {heap[0][1]}
    while heap:
        cost, nodes = heapq.heappop(heap)
        yield cost, {name: n * node[name] for name, n in zip(names, nodes, strict=True) if n}
        for place, name in enumerate(names):
            more = (*nodes[:place], nodes[place] + 1, *nodes[place + 1 :])
            if more not in known:
                known.add(more)
                heapq.heappush(heap, (cost + price[name] * node[name], more))


def advice(refusal: Refusal, now: float) -> list[str]:
    """What would let a job in at a moment, in sentences."""
    found = []
    if refusal.earliest_deadline is not None:
        found.append(f"a deadline of {moment(refusal.earliest_deadline, now)} s would let it in")
    for pool, gpus in (refusal.extra_gpus or {}).items():
        if gpus is not None:
            found.append(f"{count(gpus, 'more GPU')} of {pool} would let it in")
    if refusal.cheapest is not None and len(refusal.cheapest) > 1:
        each = [f"{gpus} of {pool}" for pool, gpus in refusal.cheapest.items()]
        mixture = enumerated(each, "and")
        found.append(f"the cheapest that would let it in is a mixture of GPUs: {mixture}")
    if not found and refusal.extra_gpus is not None:
        found.append("no later deadline and no number of further GPUs was found that lets it in")
    return found
