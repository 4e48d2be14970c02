"""Several solutions: other points that the search for the best one found on its way.

Solvers and searches pass on each better point (`Limits.on_point`, `SolverRuns.report`), and every
run its last one. Each point is checked: it is another solution if its whole numbers satisfy every
row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.program import AllocationProgram
from optsched.program.timeline import split_point
from optsched.solution import Certificate, Schedule, Status, Termination, certify_point
from optsched.solution.certificate import INTEGRALITY, OPTIMALITY, is_closed
from optsched.solution.plan import LinearPlan, Plan
from optsched.solving.outcome import Outcome, SolvedProgram

EACH, MORE = 4, 16
"""Points that are kept: so many for each requested solution, and some more, because points of other
programs are among them."""


class FoundPoints:
    """The last points that solvers and searches offered.

    Parameters
    ----------
    solutions : int
        How many are asked for, with the best one.
    """

    def __init__(self, solutions: int) -> None:
        self.solutions = solutions
        self._points: deque[FloatArray] = deque(maxlen=EACH * solutions + MORE)

    def add(self, point: FloatArray) -> None:
        """Keep a point; it may belong to any of the programs that are solved."""
        self._points.append(np.array(point, np.float64))

    def latest(self) -> Iterator[FloatArray]:
        """The points, the last one first."""
        yield from reversed(self._points)


def other_solutions(answer: SolvedProgram, found: FoundPoints) -> list[SolvedProgram]:
    """The best solutions that differ from the answer and from each other, best first.

    Parameters
    ----------
    own : SolvedProgram
        The formulation's own program, solved.
    found : FoundPoints

    Returns
    -------
    list of SolvedProgram
        Each with its objective and certificate, and the bound of the answer.
    """
    program, best = answer.program, answer.outcome
    if best.x is None or best.value is None or not best.certificate.ok:
        return []
    if isinstance(program, AllocationProgram):
        if not program.integral or program.space is not None:
            return []
        read = (_allocated(program, point, best) for point in found.latest())
        maximise = True
    else:
        read = (_planned(program, point, best) for point in found.latest())
        maximise = isinstance(program, LinearPlan) and program.program.arrays.maximise
    known = {_key(answer)}
    others = []
    for other in read:
        if other is not None and (key := _key(other)) not in known:
            known.add(key)
            others.append(other)
    sign = -1.0 if maximise else 1.0
    others.sort(key=lambda other: sign * (other.outcome.value or 0.0))
    return others[: found.solutions - 1]


def _key(solved: SolvedProgram) -> bytes:
    """Equal for two solutions that run the same at the same times."""
    schedule = solved.schedule
    if schedule is None:
        assert solved.outcome.x is not None
        rows = np.round(solved.outcome.x)
    else:
        rows = np.concatenate([schedule.job, schedule.column, schedule.start, schedule.end])
    return bytes((rows + 0.0).tobytes())  # -0.0 is 0


def _allocated(
    program: AllocationProgram, point: FloatArray, best: Outcome
) -> SolvedProgram | None:
    """A point as an allocation in whole jobs; None if it is none, or violates a row."""
    columns = program.classes.columns
    x = np.round(point[:columns])
    if len(x) < columns or np.abs(point[:columns] - x).max(initial=0.0) > INTEGRALITY:
        return None
    complete, value = program.complete_and_value(x)
    arrays = program.tangent(x).arrays
    certificate = certify_point(arrays, complete, value, best.certificate.proof)
    return (
        None
        if not certificate.ok
        else SolvedProgram(program, _as_good(best, x, value, certificate))
    )


def _planned(plan: Plan, point: FloatArray, best: Outcome) -> SolvedProgram | None:
    """A point as a schedule; None if it is none, or violates a row."""
    schedule = _schedule_of(plan, point)
    if schedule is None:
        return None
    value = plan.value(schedule)
    certificate = plan.certify(schedule, value, best.certificate.proof)
    if not certificate.ok:
        return None
    return SolvedProgram(plan, _as_good(best, point, value, certificate), schedule)


def _schedule_of(plan: Plan, point: FloatArray) -> Schedule | None:
    if isinstance(plan, LinearPlan):
        if plan.relaxation is not None or len(point) != plan.program.arrays.shape[1]:
            return None
        try:
            schedule = plan.read(point)
            plan.complete(schedule)
        except ValueError:  # a point of another program, or of a relaxation
            return None
        return schedule
    if len(point) != 2 * len(plan.timeline):
        return None
    start, mode = split_point(plan.timeline, point)
    if next(plan.timeline.violations(start, mode), None) is not None:
        return None
    return plan.read(start, mode)


def _as_good(best: Outcome, x: FloatArray, value: float, certificate: Certificate) -> Outcome:
    """The outcome of the answer with another point; the bound holds for that too."""
    closed = best.bound is not None and is_closed(value, best.bound, OPTIMALITY, best.noise)
    status = Status.OPTIMAL if closed and best.status is Status.OPTIMAL else Status.FEASIBLE
    ended = best.values.termination if status is Status.OPTIMAL else Termination.IMPRECISE
    values = replace(best.values, x=x, termination=ended)
    return replace(best, values=values, x=x, value=value, certificate=certificate, status=status)
