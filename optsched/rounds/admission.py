"""Which jobs a round holds to their own requirements: those that are admitted.

Hard deadlines and guaranteed minimum service are promises of the scheduler. If not all of them can
be kept, jobs are declined, and no round stands still for it: a declined job runs without its
requirement, on its fair part of what is left. The rules:

1. A job that was admitted in an earlier round goes before all others. It stays admitted while it
   falls short by no more than two rounds (`admitting.ROUNDS_BEHIND`), as rounds give whole GPUs and
   it may catch up. All together fall short by as little as possible, those with most time left
   first.
2. All others, new ones and those that were declined before, follow in the order of their arrival
   (then by deadline). Each is admitted if its requirements can be met beside those before it.
3. A declined job is tried again in every round that is planned anew.

`optsched.solving.admitting` has the mathematics, for one program. `optsched.study.admission`
answers another question: whether newcomers can be admitted to an instance, without any round.

`lease` decides in its own program whom it admits: all that were admitted before, and others by
value. If the first cannot all be kept, as after a failure, value decides among them which ones are,
and then among all others: a newcomer takes the place of nobody who can be kept.
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
    """Who is held to its requirements from this round on.

    Attributes
    ----------
    standing : IntArray, shape (jobs,)
        `Standing` of each job.
    declined : mapping of the row of a job to text
        Jobs that are not held to what they ask for, and why that cannot be kept.
    notices : tuple of str
        Of jobs that were not declined before.
    """

    standing: IntArray
    declined: Mapping[int, str]
    notices: tuple[str, ...] = ()


AdmittingFormulation = tuple[Formulation, Admissions | None]
"""The formulation with the requirements of the jobs that are admitted, and who these are.

None where no job has its own requirements, where it is not known whether they can be met, or
where the solution says it (`planned`).
"""


def ways(
    before: IntArray, formulation: Formulation, candidates: Candidates, engine: Engine
) -> Iterator[AdmittingFormulation]:
    """What a round may ask for: the first way whose program has a solution counts.

    Where nobody was declined in the last round, it is nearly always possible to admit everybody: so
    the formulation is solved with all requirements first. Only if it is infeasible, or somebody was
    declined, its own programs decide.

    Parameters
    ----------
    before : IntArray, shape (jobs,)
        `Standing` of each job until now.
    formulation : Formulation
    candidates : Candidates
    engine : Engine
        Its limits and its timer hold here too.
    """
    admitted = before == Standing.ADMITTED
    if formulation.hard_deadlines and admitted.any():
        yield from _tried(engine, (formulation.promising(admitted), None))
        kept = _can_be_kept(admitted, formulation, candidates, engine)
        yield from _tried(engine, (formulation.promising(kept), None))
    if not any(own.declinable for own in formulation.constraints):
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
        # Nothing is known that speaks for those that were declined.
        asked[before == Standing.DECLINED] = 0.0
        found = _asking(formulation, asked), None
    yield found


def _tried(engine: Engine, way: AdmittingFormulation) -> Iterator[AdmittingFormulation]:
    """A way that others follow: nobody asks why it is infeasible."""
    engine.explains = False
    try:
        yield way
    finally:  # also where nobody asks for another way
        engine.explains = True


@contextmanager
def _engine_beside(engine: Engine) -> Iterator[Engine]:
    """An engine with the same limits, for programs beside that of the round; what they take counts."""
    runs = Engine(engine.load, engine.solver, engine.limits, timer=engine.timer)
    yield runs
    engine.spend("admit", sum(runs.timings.values()))
    engine.by_clock |= runs.by_clock  # another run may decide otherwise


def _can_be_kept(
    admitted: BoolArray, formulation: Formulation, candidates: Candidates, engine: Engine
) -> BoolArray:
    """Those of the admitted jobs that can be kept together, and are worth most; shape (jobs,)."""
    alone = candidates.without_jobs(~admitted, "it was not admitted before")
    with _engine_beside(engine) as runs:
        schedule = formulation.solve(alone, runs).schedule
    return mask_of([] if schedule is None else schedule.job, len(admitted))


def _impossible(
    before: IntArray, asked: FloatArray, formulation: Formulation, candidates: Candidates
) -> dict[int, str]:
    """Jobs whose requirements nothing can meet, and why; ``asked`` is 0 for them then."""
    everybody = formulation.classes(candidates)
    nowhere = {
        job: conflict.words
        for own in formulation.constraints
        if own.declinable
        for job, conflict in own.impossible(everybody)
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
    """Admit jobs in their order; the part that each is held to goes to ``asked``."""
    with _engine_beside(engine) as runs:
        # Equal jobs are told apart: some may be admitted, and others not.
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
    """The formulation that holds jobs to what they are ``asked``, and who is admitted with it."""
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
    """Who is admitted by a formulation that holds jobs to deadlines itself, as `lease` does."""
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
    """The requirements of the formulation's program; None of one that is no allocation program."""
    asking = _asking(formulation, asked)
    program = asking.program(asking.classes(candidates))
    return Admitting(program, runs) if isinstance(program, AllocationProgram) else None


def _asking(formulation: Formulation, asked: FloatArray) -> Formulation:
    """The formulation that holds each job to this part of its requirements."""
    if (asked == 1.0).all():
        return formulation
    return formulation.with_constraints(
        [own.asking(asked) if own.declinable else own for own in formulation.constraints]
    )


def _in_order(before: IntArray, asked: FloatArray, admitting: Admitting) -> dict[int, str] | None:
    """Let jobs be admitted in their order, and say why others are not; None if nothing is known."""
    C = admitting.program.classes
    table = C.instance.jobs_table
    job = C.first
    k = np.flatnonzero(admitting.asked)
    order = k[np.lexsort((job[k], table.deadline[job[k]], table.arrival[job[k]]))]
    found = admitting.admit(before[job] == Standing.ADMITTED, order)
    if found is None:
        return None
    asked[job[k]] = found.part[k]
    # Thousands may be declined by one proof: its words are made once.
    words = {cut: _beside(C, cut, found.part) for cut in dict.fromkeys(found.refused_by.values())}
    # What the requirements take for granted, such as a steady pace, each refusal says.
    assumed = {
        one: f"{rows.assumption.words}, "
        for rows in admitting.requirements
        if rows.assumption is not None and rows.of_class is not None
        for one in rows.of_class.tolist()
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
    """For what there is no room, and beside whom: the jobs that take most of it."""
    cost = np.where(part > 0, cut.cost, 0.0)
    most = np.argsort(-cost, kind="stable")
    taking = most[cost[most] > 0]
    names = C.instance.jobs_table.names
    what = "the side constraints leave" if cut.scarce < 0 else f"{_resource(C, cut.scarce)} leaves"
    text = f"{what} no room for it"
    if not len(taking):
        return text
    told = ", ".join(names[int(C.first[one])] for one in taking[:NAMED].tolist())
    more = len(taking) - NAMED
    return f"{text} beside jobs that are admitted: {told}" + (
        f" and {more:,} more" if more > 0 else ""
    )


def _resource(C: Classes, resource: int) -> str:
    kind = "pool" if C.resources.pool[resource] >= 0 else "resource"
    return f"{kind} {C.resources.names[resource]}"


def _notices(
    before: IntArray, declined: Mapping[int, str], instance: Instance, asks: Callable[[int], str]
) -> Iterator[str]:
    """Who is declined that was not before, with what the first of them ask for."""
    names = instance.jobs_table.names
    new = [job for job in declined if before[job] != Standing.DECLINED]
    for job in new[:NAMED]:
        any_more = " any more" if before[job] == Standing.ADMITTED else ""
        yield f"job {names[job]} is not admitted{any_more}: {asks(job)}{declined[job]}"
    if len(new) > NAMED:
        yield f"{len(new) - NAMED:,} more jobs are not admitted"
