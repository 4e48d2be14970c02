"""Plans: the schedule of a solution file as a point of its program, and every number recomputed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optsched.candidates import Classes
from optsched.formulation import declined_jobs
from optsched.program.integers import rounded_bound
from optsched.solution import Allocation, Schedule
from optsched.solution.certificate import OPTIMALITY, dual_bound, dual_residual, is_closed
from optsched.solution.document import (
    AllocationRow,
    RowColumns,
    ScheduleRow,
    SolutionDocument,
    TimePricesDocument,
)
from optsched.solution.plan import LinearPlan, Plan
from optsched.solution.solution import DUAL_ROWS
from optsched.solution.time_prices import TimePrices
from optsched.verify.findings import RELATIVE, BoundVerdict, Findings
from optsched.verify.numbers import check_contradiction, check_metrics, read_duals
from optsched.verify.rows import Resolver, check_throughput, compare_rows
from optsched.verify.run_record import CLAIM, PROOFS, RESIDUAL, check_residuals
from optsched.verify.subject import RebuiltSolution

MOST_PIECES = 100
"""Pieces of time with prices that are read: arrays have a number for each piece, level and job."""


def check_plan(subject: RebuiltSolution, plan: Plan, findings: Findings) -> BoundVerdict:
    """Check a solution whose answer is a schedule."""
    document = subject.document
    if subject.expects_nothing:
        if document.schedule is not None:
            findings.add(
                "schedule", f"found a schedule, expected none: the status is {document.status}"
            )
        from optsched.verify.nothing import check_nothing  # most files have a plan

        return check_nothing(subject, plan, findings)
    findings.alike("conflicts", document.conflicts, [])
    findings.alike("prices", document.prices, {})
    if not isinstance(plan, LinearPlan):
        findings.same("duals", document.duals, None, "a timeline has none")
    schedule = resolve_schedule(subject, findings)
    if schedule is None:
        return "not verifiable"
    before = len(findings)
    _check_first(subject, schedule, findings)
    try:
        if isinstance(plan, LinearPlan) and plan.of_schedule is not None:
            plan = plan.of_schedule(schedule)
        value = plan.value(schedule)
    except ValueError as error:
        # All that follows is about the point of the schedule, and there is none.
        findings.add("schedule", str(error))
        return "not verifiable"
    _check_later(subject, plan, schedule, findings)
    method = _check_numbers(subject, plan, schedule, value, findings)
    known = plan.known_value() if document.bound_source == "solver" else None
    check_contradiction(document, findings, plan.noise(schedule), known)
    return method if len(findings) == before else "not verifiable"


def resolve_schedule(subject: RebuiltSolution, findings: Findings) -> Schedule | None:
    """The schedule of the file; None with findings if a stretch matches no column or ends before it
    starts.
    """
    rows = subject.document.schedule
    if rows is None:
        findings.add(
            "schedule",
            f"found null, expected a schedule: {subject.formulation.name} decides what runs when",
        )
        return None
    layouts = subject.document.layouts
    schedule = schedule_of(subject.classes, rows, findings)
    return schedule if schedule is None else replace(schedule, layouts=layouts)


def schedule_of(
    classes: Classes, rows: Sequence[ScheduleRow], findings: Findings
) -> Schedule | None:
    """A schedule from its rows in a file;
    None with findings where one of them matches no column.
    """
    before = len(findings)
    for index, row in enumerate(rows):
        if not row.start < row.end:
            findings.add(
                f"schedule[{index}].end", f"found {row.end!r}, expected a time after {row.start!r}"
            )
    # While a stretch lasts, its job runs all the time: the fraction is 1.
    running = [
        AllocationRow(**row.model_dump(exclude={"start", "end"}), fraction=1.0) for row in rows
    ]
    columns = RowColumns.of(AllocationRow, running)
    job, _, column = Resolver(classes).resolve(columns, "schedule", findings)
    if len(findings) > before or not _one_at_a_time(rows, findings):
        return None
    start, end = (
        np.array([getattr(row, name) for row in rows], np.float64) for name in ("start", "end")
    )
    return Schedule.sorted(classes, job, column, start, end)


def _check_later(
    subject: RebuiltSolution,
    plan: Plan,
    schedule: Schedule,
    findings: Findings,
) -> None:
    """Check the later objectives and the jobs that are left out; older files state neither.

    The values follow from the schedule. Their bounds are claims of the solver; none may exceed its
    value.
    """
    document = subject.document
    later = plan.later if isinstance(plan, LinearPlan) else ()
    for index, stage in enumerate(document.stages or ()):
        path = f"stages[{index}]"
        if index >= len(later):
            findings.add(path, f"found a stage, expected at most {len(later)}")
            return
        findings.same(f"{path}.name", stage.name, later[index].name)
        findings.same(f"{path}.words", stage.words, [later[index].words])
        if stage.name == later[index].name:
            value = later[index].value(schedule)
            findings.close(
                f"{path}.value",
                stage.value,
                value,
                "what the schedule gives",
                absolute=RESIDUAL,
            )
            if stage.bound is not None and stage.bound > value + OPTIMALITY * max(1.0, abs(value)):
                findings.add(
                    f"{path}.bound",
                    f"found {stage.bound!r}, above {value!r}, which the schedule has",
                )
    # Older files have neither field, and are valid.
    if document.declined is not None or document.stages:
        expected = [{"job": job, "reason": why} for job, why in declined_jobs(plan, schedule)]
        findings.alike("declined", [row.model_dump() for row in document.declined or ()], expected)


def _one_at_a_time(rows: Sequence[ScheduleRow], findings: Findings) -> bool:
    """Whether no job begins a stretch before its last one has ended."""
    last: dict[str, int] = {}
    holds = True
    for index in sorted(range(len(rows)), key=lambda index: (rows[index].start, index)):
        before = last.get(rows[index].job)
        # The slack is relative, and times may be below 0: the sign makes it point backwards.
        if before is not None and rows[index].start < rows[before].end * (
            1 - np.sign(rows[before].end) * RELATIVE
        ):
            holds = False
            findings.add(
                f"schedule[{index}].start",
                f"found {rows[index].start!r}, expected {rows[before].end!r} or later: "
                f"job {rows[index].job} runs until then (schedule[{before}])",
            )
        # A stretch inside an earlier one must not hide the rest of the earlier one.
        if before is None or rows[index].end > rows[before].end:
            last[rows[index].job] = index
    return holds


def _check_first(subject: RebuiltSolution, schedule: Schedule, findings: Findings) -> None:
    """Check that the allocation is what the schedule runs now."""
    rows = subject.rows(findings)
    if rows is None:
        return
    check_throughput(rows, subject.document.throughput, findings)
    C = subject.classes
    first = Allocation(C, schedule.running_at(C.instance.now), True)
    compare_rows(rows, first.rows, "the schedule runs it now", 0.0, findings)
    check_metrics(subject.document, first, findings)


def _check_numbers(
    subject: RebuiltSolution,
    plan: Plan,
    schedule: Schedule,
    value: float,
    findings: Findings,
) -> BoundVerdict:
    """Objective, bound, certificate and status from the point of the schedule."""
    document = subject.document
    stated = subject.document.certificate
    certificate = plan.certify(schedule, value, stated.proof)
    noise = plan.noise(schedule)
    findings.close(
        "objective", document.objective, value, "what the schedule gives", absolute=noise
    )
    if isinstance(plan, LinearPlan) and (broken := plan.broken_guarantee(value, document.bound)):
        findings.add("objective", broken)
    method, of_duals = _check_bound(subject, plan, findings)
    residuals = {**certificate.residuals, **of_duals}
    problems = [(problem, "") for problem in certificate.problems]
    check_residuals(stated, residuals, problems, "schedule", findings)
    proof = PROOFS.get(document.bound_source, ())
    linear = isinstance(plan, LinearPlan)
    if (document.bound_source == "dual" and not linear) or stated.proof not in proof:
        findings.add(
            "certificate.proof",
            f'found "{stated.proof}" of a bound from "{document.bound_source}", which none gives',
        )
    allowed = max(OPTIMALITY, document.solver.gap or 0.0) * (1 + 1e-6)
    bound = document.bound
    closed = (
        bound is not None
        and document.objective is not None
        and is_closed(document.objective, bound, allowed, noise)
    )
    reason = (
        "there is no gap"
        if document.gap is None
        else f"the gap is {document.gap:.3g}, {allowed:.3g} is allowed"
    )
    if isinstance(plan, LinearPlan) and plan.proves and document.bound_source == "solver":
        closed = False
        reason = CLAIM
    findings.same("status", str(document.status), "optimal" if closed else "feasible", reason)
    return method


def _check_bound(
    subject: RebuiltSolution, plan: Plan, findings: Findings
) -> tuple[BoundVerdict, dict[str, float]]:
    """The bound of a linear plan, recomputed from the duals or prices of time if the file has them;
    residual of the signs of duals.
    """
    document = subject.document
    if document.time_prices is not None:
        return _check_time_prices(document, document.time_prices, plan, findings), {}
    if not isinstance(plan, LinearPlan):
        return "consistent", {}
    arrays = plan.program.arrays
    source = document.bound_source
    if document.duals is None and source != "dual":
        return "consistent", {}
    duals = read_duals(document, arrays, findings)
    if duals is None:
        if document.duals is None and arrays.shape[0] <= DUAL_ROWS:
            findings.add(
                "duals",
                f"found null, expected those of the {arrays.shape[0]} rows, which prove the bound",
            )
        stated = document.certificate.residuals  # many rows: not verifiable
        return "not verifiable", {"duals": stated["duals"]} if "duals" in stated else {}
    bound = dual_bound(arrays, duals)
    if bound is not None and document.bound == rounded_bound(bound, plan.step, arrays.maximise):
        bound = document.bound  # that of column generation is rounded, others are not
    findings.same(
        "bound_source",
        source,
        "none" if bound is None else "dual",
        "what the duals in the file give",
    )
    findings.close(
        "bound",
        document.bound,
        bound,
        "what the duals in the file give",
        relative=1e-10,
    )
    return "verified", {"duals": dual_residual(arrays, duals)}


def _check_time_prices(
    document: SolutionDocument,
    stated: TimePricesDocument,
    plan: Plan,
    findings: Findings,
) -> BoundVerdict:
    """The bound of a plan, recomputed from the prices of time in the file."""
    if not isinstance(plan, LinearPlan) or plan.bound_by is None:
        findings.add("time_prices", "found prices, expected none: they prove nothing of this plan")
        return "not verifiable"
    findings.same("duals", document.duals, None, "prices of time prove the bound")
    prices = read_time_prices(stated, plan, findings)
    if prices is None:
        return "not verifiable"
    findings.same("bound_source", document.bound_source, "dual", "prices of time prove the bound")
    bound = plan.bound_by(prices)
    findings.close("bound", document.bound, bound, "what the prices of time give", relative=1e-10)
    return "verified"


def read_time_prices(
    stated: TimePricesDocument, plan: LinearPlan, findings: Findings
) -> TimePrices | None:
    """The prices of time of a file; None with findings where they are no prices."""
    before = len(findings)
    resources = plan.classes.resources
    names = tuple(np.array(resources.names, object)[resources.renewable].tolist())
    ends = np.array(stated.ends, np.float64)
    if not 0 < len(ends) <= MOST_PIECES:
        findings.add("time_prices.ends", f"found {len(ends)}, expected 1 to {MOST_PIECES} of them")
    elif not (np.isfinite(ends).all() and (np.diff(ends, prepend=0.0) > 0).all()):
        findings.add("time_prices.ends", "expected numbers above 0, ascending")
    findings.same("time_prices.prices", sorted(stated.prices), sorted(names), "the resources")
    for name, price in stated.prices.items():
        path = f"time_prices.prices.{name}"
        if len(price) != len(ends):
            findings.add(
                path, f"found {len(price)} numbers, expected {len(ends)}, one for each end"
            )
        elif not all(math.isfinite(each) and each >= 0.0 for each in price):
            findings.add(path, "expected finite numbers of 0 or more")
    if len(findings) > before:
        return None
    return TimePrices(names, ends, np.array([stated.prices[name] for name in names], np.float64))
