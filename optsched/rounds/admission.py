"""Admission: the jobs whose requirements a round must meet.

Hard deadlines and guaranteed minimum service are promises of the scheduler. If not all of them can
be kept, some jobs are declined, so that the round can still be planned: a declined job runs without
its requirement, with its fair share of the remaining resources. The rules:

1. Jobs that were admitted in an earlier round come first. Such a job stays admitted while it falls
   short by at most two rounds (`admitting.ROUNDS_BEHIND`), because rounds give whole GPUs and it
   may catch up. The total shortfall is minimised; jobs with most time left fall short first.
2. All other jobs, new and declined ones, follow in the order of their arrival (then by deadline).
   Each is admitted if its requirements can be met together with those of the jobs before it.
3. A declined job is considered again in every round that is solved.

`optsched.solving.admitting` has the mathematics for one program. `optsched.study.admission` decides
whether new jobs can be admitted to an instance, without rounds.

`lease` decides about admission in its own program: all jobs that were admitted before, and others
by value. If not all of the former can be kept, for example after a failure, they are chosen by
value, and then the others: a new job never replaces an admitted job that can be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.candidates import Candidates, Classes
from optsched.formulation import Formulation, Infeasible
from optsched.instance import Instance
from optsched.program import AllocationProgram
from optsched.rounds.ledger import Standing
from optsched.solution import Solution
from optsched.solving.admitting import Admitting, Cut
from optsched.solving.engine import Engine

NAMED = 3
"""Jobs that a reason names."""
ALONE = "it could not keep the pace even if it ran all the time"
UNDECIDED = "whether there is room for it is not known yet"


@dataclass(frozen=True)
class Admissions:
    """The jobs that are admitted from this round on.

    Attributes
    ----------
    standing : IntArray, shape (jobs,)
        `Standing` of each job.
    declined : mapping of the row of a job to text
        Declined jobs, and why their requirements cannot be met.
    notices : tuple of str
        Notices about jobs that were not declined before.
    """

    standing: IntArray
    declined: Mapping[int, str]
    notices: tuple[str, ...] = ()


AdmittingFormulation = tuple[Formulation, Admissions | None]
"""The formulation with the requirements of the admitted jobs, and the admissions.

The admissions are None if no job has requirements, if it is not known whether they can be met, or
if they follow from the solution (`planned`).
"""


def ways(
    before: IntArray, formulation: Formulation, candidates: Candidates, engine: Engine
) -> Iterator[AdmittingFormulation]:
    """Formulations to try in turn: the first one whose program has a solution is used.

    If no job was declined in the last round, all jobs can nearly always be admitted. So the
    formulation is solved with all requirements first. Only if that is infeasible, or a job was
    declined, the programs of admission are solved.

    Parameters
    ----------
    before : IntArray, shape (jobs,)
        `Standing` of each job until now.
    formulation : Formulation
    candidates : Candidates
    engine : Engine
        Its limits and its timer hold for the programs of admission too.
    """
    admitted = before == Standing.ADMITTED
    if formulation.hard_deadlines and admitted.any():
        yield from _tried(engine, (formulation.promising(admitted), None))
        kept = _can_be_kept(admitted, formulation, candidates, engine)
        yield from _tried(engine, (formulation.promising(kept), None))
    if not any(constraint.declinable for constraint in formulation.constraints):
        yield formulation, None
        return
    asked = np.ones(len(before))
    try:
        declined = _impossible(before, asked, formulation, candidates)
        others = np.ones(len(before), bool)
        others[list(declined)] = False
        if not (before[others] == Standing.DECLINED).any():
            admitting = _admitting(formulation, asked, candidates, engine)
            if admitting is not None:
                way = _way(before, asked, declined, formulation, admitting)
                yield from _tried(engine, way)
        found = _decided(before, asked, declined, formulation, candidates, engine)
    except Infeasible:
        found = None
    if found is None:
        # Admission is unknown: jobs that were declined before stay declined.
        asked[before == Standing.DECLINED] = 0.0
        found = _asking(formulation, asked), None
    yield found


def _tried(engine: Engine, way: AdmittingFormulation) -> Iterator[AdmittingFormulation]:
    """A way that is not the last one: conflicts are not searched if it is infeasible."""
    engine.explains = False
    try:
        yield way
    finally:  # also if no further way is tried
        engine.explains = True


@contextmanager
def _engine_beside(engine: Engine) -> Iterator[Engine]:
    """An engine with the same limits for further programs; their time counts for the round."""
    runs = Engine(engine.load, engine.solver, engine.limits, timer=engine.timer)
    yield runs
    engine.spend("admit", sum(runs.timings.values()))
    engine.by_clock |= runs.by_clock


def _can_be_kept(
    admitted: BoolArray, formulation: Formulation, candidates: Candidates, engine: Engine
) -> BoolArray:
    """Mask of the admitted jobs that can be kept together, with the greatest value; shape
    (jobs,).
    """
    alone = candidates.without_jobs(~admitted, "it was not admitted before")
    with _engine_beside(engine) as runs:
        schedule = formulation.solve(alone, runs).schedule
    return mask_of([] if schedule is None else schedule.job, len(admitted))


def _impossible(
    before: IntArray, asked: FloatArray, formulation: Formulation, candidates: Candidates
) -> dict[int, str]:
    """Jobs whose requirements no allocation can meet, and why; sets ``asked`` to 0 for them."""
    classes = formulation.classes(candidates)
    nowhere = {
        job: conflict.words
        for constraint in formulation.constraints
        if constraint.declinable
        for job, conflict in constraint.impossible(classes)
    }
    asked[list(nowhere)] = 0.0
    return nowhere


def _decided(
    before: IntArray,
    asked: FloatArray,
    declined: dict[int, str],
    formulation: Formulation,
    candidates: Candidates,
    engine: Engine,
) -> AdmittingFormulation | None:
    """Admit jobs in their order; sets ``asked`` to the part of its requirements that each must
    get.
    """
    with _engine_beside(engine) as runs:
        # One class per job: of equal jobs, some may be admitted and others not.
        admitting = _admitting(formulation, asked, candidates.per_job(), runs)
        refusals = None if admitting is None else _in_order(before, asked, admitting)
    if admitting is None or refusals is None:
        return None
    return _way(before, asked, declined | refusals, formulation, admitting)


def _way(
    before: IntArray,
    asked: FloatArray,
    declined: Mapping[int, str],
    formulation: Formulation,
    admitting: Admitting,
) -> AdmittingFormulation:
    """The formulation with the requirements ``asked``, and the admissions."""
    C = admitting.program.classes
    has = np.append(admitting.asked, False)[C.of_job]
    has[list(declined)] = True
    asking = _asking(formulation, asked)
    if not has.any():
        return asking, None
    standing = np.where(has, np.where(asked > 0, Standing.ADMITTED, Standing.DECLINED), before)

    def asks(job: int) -> str:
        return f"{admitting.words(int(C.of_job[job]))}: " if C.of_job[job] >= 0 else ""

    notices = tuple(_notices(before, declined, C.instance, asks))
    return asking, Admissions(standing.astype(np.int64), declined, notices)


def planned(before: IntArray, formulation: Formulation, solution: Solution) -> Admissions | None:
    """The admissions of a formulation that decides about deadlines itself, such as `lease`."""
    schedule = solution.schedule
    if not formulation.hard_deadlines or schedule is None:
        return None
    C = schedule.classes
    row = C.instance.jobs_table.names.index
    declined = {row(name): words for name, words in solution.declined}
    standing = before.copy()
    promised = formulation.promises(schedule, before == Standing.ADMITTED)
    standing[schedule.job] = np.where(promised[schedule.job], Standing.ADMITTED, Standing.PLANNED)
    standing[list(declined)] = Standing.DECLINED
    notices = tuple(_notices(before, declined, C.instance, lambda job: ""))
    return Admissions(standing.astype(np.int64), declined, notices)


def _admitting(
    formulation: Formulation, asked: FloatArray, candidates: Candidates, runs: Engine
) -> Admitting | None:
    """The requirements of the formulation's program; None if it is no allocation program."""
    asking = _asking(formulation, asked)
    program = asking.program(asking.classes(candidates))
    return Admitting(program, runs) if isinstance(program, AllocationProgram) else None


def _asking(formulation: Formulation, asked: FloatArray) -> Formulation:
    """The formulation with this part of the requirements of each job."""
    if (asked == 1.0).all():
        return formulation
    return formulation.with_constraints(
        [item.asking(asked) if item.declinable else item for item in formulation.constraints]
    )


def _in_order(before: IntArray, asked: FloatArray, admitting: Admitting) -> dict[int, str] | None:
    """Admit jobs in their order; return the reasons for the others, or None if nothing is known."""
    C = admitting.program.classes
    table = C.instance.jobs_table
    job = C.first
    k = admitting.asked.nonzero()[0]
    order = k[np.lexsort((job[k], table.deadline[job[k]], table.arrival[job[k]]))]
    found = admitting.admit(before[job] == Standing.ADMITTED, order)
    if found is None:
        return None
    asked[job[k]] = found.part[k]
    # One proof may decline thousands of jobs: its text is made once.
    words = {cut: _beside(C, cut, found.part) for cut in dict.fromkeys(found.refused_by.values())}
    # Assumptions of the requirements, such as a steady pace, are part of each reason.
    assumed = {
        class_: f"{rows.assumption.words}, "
        for rows in admitting.requirements
        if rows.assumption is not None and rows.of_class is not None
        for class_ in rows.of_class.tolist()
    }
    refusals = {}
    for declined in k[found.part[k] == 0].tolist():
        cut = found.refused_by.get(declined)
        if cut is None:
            why = UNDECIDED
        elif np.isinf(cut.cost[declined]):
            why = ALONE
        else:
            why = assumed.get(declined, "") + words[cut]
        refusals[int(job[declined])] = why
    return refusals


def _beside(C: Classes, cut: Cut, part: FloatArray) -> str:
    """The scarce resource as text, and the admitted jobs that use most of it."""
    cost = np.where(part > 0, cut.cost, 0.0)
    most = np.argsort(-cost, kind="stable")
    taking = most[cost[most] > 0]
    names = C.instance.jobs_table.names
    what = "the side constraints leave" if cut.scarce < 0 else f"{_resource(C, cut.scarce)} leaves"
    text = f"{what} no room for it"
    if not len(taking):
        return text
    named = ", ".join(names[int(C.first[class_])] for class_ in taking[:NAMED].tolist())
    more = f" and {len(taking) - NAMED:,} more" if len(taking) > NAMED else ""
    return f"{text} beside jobs that are admitted: {named}{more}"


def _resource(C: Classes, resource: int) -> str:
    kind = "pool" if C.resources.pool[resource] >= 0 else "resource"
    return f"{kind} {C.resources.names[resource]}"


def _notices(
    before: IntArray, declined: Mapping[int, str], instance: Instance, asks: Callable[[int], str]
) -> Iterator[str]:
    """Notices about newly declined jobs, with the requirements of the first of them."""
    names = instance.jobs_table.names
    new = [job for job in declined if before[job] != Standing.DECLINED]
    for job in new[:NAMED]:
        any_more = " any more" if before[job] == Standing.ADMITTED else ""
        yield f"job {names[job]} is not admitted{any_more}: {asks(job)}{declined[job]}"
    if len(new) > NAMED:
        yield f"{len(new) - NAMED:,} more jobs are not admitted"
