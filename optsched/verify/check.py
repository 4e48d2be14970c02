"""`verify`: the checks in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from optsched.arrays import FloatArray
from optsched.assembly import InstanceSource, Performance, load
from optsched.errors import InvalidArgument, checks_keywords
from optsched.formulation import by_class, by_job
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments
from optsched.lazy import no_collection
from optsched.performance import PerformanceModel
from optsched.program import AllocationProgram
from optsched.registry import load_solver
from optsched.solution import Allocation, Solution, Status
from optsched.solution.certificate import OPTIMALITY
from optsched.solution.document import SolutionDocument
from optsched.solution.solution import Packed
from optsched.solving.engine import Engine
from optsched.verify.cut_short import check_cut_short
from optsched.verify.findings import RELATIVE, BoundVerdict, Finding, Findings, Verification
from optsched.verify.numbers import (
    CheckedPoint,
    check_metrics,
    check_numbers,
    metrics_of_allocation,
)
from optsched.verify.placement import check_packed, check_placed
from optsched.verify.plans import check_plan
from optsched.verify.reading import SolutionSource, read_solution
from optsched.verify.rows import (
    AllocationRows,
    check_shares,
    check_throughput,
    check_time,
    compare_rows,
)
from optsched.verify.run_record import (
    check_gap,
    check_own_certificate,
    check_reproducible,
    check_termination,
)
from optsched.verify.subject import RebuiltSolution, rebuild

OF_CLOSED_FORM = (
    "status",
    "termination",
    "objective",
    "bound_source",
    "certificate",
    "prices",
    "duals",
    "conflicts",
    "schedule",
    "figures",
)
"""Fields that a closed form decides."""
OF_ALLOCATION = ("allocation", "throughput", "metrics")
"""Fields that follow from the allocation of a closed form."""
FIGURE = 1e-9
"""Largest absolute difference of figures, which may be near 0 for jobs that get nearly nothing."""


@no_collection()
@checks_arguments
@checks_keywords
def verify(
    instance: InstanceSource | Solution,
    document: SolutionSource | None = None,
    *,
    resolve: bool = False,
    model: PerformanceModel | None = None,
    performance: Performance | None = None,
) -> Verification:
    """Check a solution against its instance, with every number recomputed.

    The candidates are compiled and the formulation is built anew, by name, options and side
    constraints; each row of the allocation is found among the columns; objective, throughputs,
    bound, gap, prices, metrics, certificate, status and the reasons of unplaced jobs are recomputed
    from there. Believed are a bound without duals in the file, the gap that was asked for
    (``solver.gap``), and which rows of an infeasible integer program conflict.

    Parameters
    ----------
    instance : Solution, or what `optsched.load` takes
        A solution alone is checked against the instance that it has.
    document : Solution, mapping or path
        The solution; ``-`` is standard input.
    resolve : bool
        Also solve again and compare the objectives.
    model : PerformanceModel, optional
        What the throughputs came from (default: the instance's model).
    performance : mapping or path, optional
        The performance object, or the file of a model, that replaced the instance's
        own.

    Returns
    -------
    Verification
        ``ok``, the ``findings`` and what the ``bound`` is worth.

    Raises
    ------
    InvalidInput
        If the instance is invalid, or the solution cannot be read, is not JSON, or has not the
        format of a solution. Everything else that is wrong with the solution is a finding.
    UsageError
        A formulation or side constraint of the solution is not installed here.
    """
    if isinstance(instance, Solution):
        if document is not None:
            raise InvalidArgument("verify", "two solutions", "one, or an instance and its solution")
        given = load(instance.instance, performance)
        document = instance
    elif document is None:
        raise InvalidArgument("verify", "no solution", "one, alone or behind its instance")
    else:
        given = load(instance, performance)
    findings = Findings()
    solution = read_solution(document, findings)
    bound: BoundVerdict = "not verifiable"
    notes = []
    if solution is not None and not _extended(solution, findings):
        # A wrong file may lead to any number: overflow and nan are compared, not warned of.
        with np.errstate(all="ignore"):
            other = performance is not None
            bound = _check(solution, given, resolve, model, findings, other)
        packed = solution.packed
        if not findings.items and packed is not None:
            notes.append(Packed(**packed.model_dump()).words(given.now))
    has_bound = solution is not None and solution.bound is not None
    # An infeasible instance has no bound to state, and its proof is what was checked.
    has_bound |= solution is not None and solution.status == "infeasible"
    return Verification(tuple(findings.items), bound, tuple(notes), has_bound)


def _extended(document: SolutionDocument, findings: Findings) -> bool:
    """Whether rows were added by `extend`, which a file cannot hold."""
    for index, constraint in enumerate(document.constraints):
        if constraint.get("kind") == "extend":
            # Only this finding: all others would follow from the missing rows.
            findings.items[:] = [
                Finding(
                    f"constraints[{index}]",
                    "the solution was made with rows added by extend, which a file cannot hold: "
                    "it cannot be verified",
                )
            ]
            return True
    return False


def _check(
    document: SolutionDocument,
    instance: Instance,
    resolve: bool,
    model: PerformanceModel | None,
    findings: Findings,
    other_performance: bool,
) -> BoundVerdict:
    # The hash covers the performance object: with another model it is another instance.
    hashed = "the solution is of another instance, or was made " + (
        "without this model" if other_performance else "with --model FILE"
    )
    findings.same("instance.sha256", document.instance.sha256, instance.sha256, hashed)
    findings.same("instance.name", document.instance.name, instance.name)
    subject = rebuild(document, instance, model, findings)
    if subject is None:
        return "not verifiable"
    _check_header(subject, findings)
    _check_unplaced(subject, findings)
    bound = _check_outcome(subject, findings)
    check_packed(subject, findings)
    if document.rounds is not None:
        from optsched.verify.rounds import check_document_rounds  # few files have rounds

        check_document_rounds(subject, document.rounds, resolve, findings)
    check_placed(subject, findings)
    if resolve:
        _check_again(subject, findings)
    return bound


def _check_header(subject: RebuiltSolution, findings: Findings) -> None:
    """Check the fields that follow from the formulation and from other fields."""
    document = subject.document
    if document.schedule is None:
        findings.same(
            "declined",
            document.declined,
            None,
            "there is no schedule that leaves out jobs",
        )
        findings.same(
            "time_prices",
            document.time_prices,
            None,
            "there is no schedule whose value they could bound",
        )
    findings.same("sense", document.sense, subject.formulation.sense)
    check_gap(document, findings, "what objective and bound give")
    check_reproducible(document, findings)
    if check_own_certificate(document, findings) and document.certificate.problems:
        findings.add(
            "certificate.problems", "found problems, expected none where the certificate is ok"
        )
    if document.assumptions is not None and not document.conflicts:
        findings.add(
            "assumptions", "found some, expected none: there are no conflicts that rest on them"
        )


def _check_unplaced(subject: RebuiltSolution, findings: Findings) -> None:
    """Jobs that are not in the program, with their reasons; none where compiling was cut off."""
    document = subject.document
    if document.status == Status.LIMIT and document.solver.name == "none" and not document.unplaced:
        return
    # Reasons that the file states are removed; those that remain are missing in it.
    names = subject.instance.jobs_table.names
    expected = {names[job]: reason for job, reason in subject.classes.candidates.unplaced()}
    for index, row in enumerate(subject.document.unplaced):
        reason = expected.pop(row.job, None)
        if reason is None:
            findings.add(
                f"unplaced[{index}].job",
                f"found {row.job!r}, expected a job that is not in the program",
            )
        else:
            findings.same(f"unplaced[{index}].reason", row.reason, reason)
    for name, reason in expected.items():
        findings.add("unplaced", f"job {name} is missing: {reason}")


def _check_outcome(subject: RebuiltSolution, findings: Findings) -> BoundVerdict:
    """Check the status, and with it the allocation, the objective and the bound."""
    document = subject.document
    program = subject.program
    if subject.closed_form or program is None:
        return _check_closed_form(subject, findings)
    if document.schedule is not None and isinstance(program, AllocationProgram):
        findings.add(
            "schedule",
            f"found a schedule, expected none: {document.formulation} decides fractions of time",
        )
    check_termination(document, findings)
    if not isinstance(program, AllocationProgram):
        findings.same("figures", document.figures, None, "a plan has none")
        return check_plan(subject, program, findings)
    if subject.expects_nothing:
        from optsched.verify.nothing import check_nothing  # most files have an allocation

        return check_nothing(subject, program, findings)
    findings.alike("conflicts", document.conflicts, [])
    # Without the columns of all rows no number can be checked.
    rows = subject.rows(findings)
    if rows is None:
        return "not verifiable"
    check_throughput(rows, document.throughput, findings)
    allocation = check_shares(rows, program.integral, findings)
    if allocation is not None:
        check_metrics(document, allocation, findings)
        _check_figures(subject, rows, findings)
    # Some formulations allocate less than their optimum: the numbers are about the optimum.
    x = _optimum(subject, rows, findings)
    return (
        "not verifiable"
        if x is None
        else check_numbers(CheckedPoint(subject, program, x, findings))
    )


def _check_figures(subject: RebuiltSolution, rows: AllocationRows, findings: Findings) -> None:
    """Figures of the jobs; some follow from the allocation, others only by solving again.

    A run that was stopped may have none of the latter: its allocation is checked without them.
    """
    within = subject.formulation.figures_within(rows.classes)
    if (
        within is not None
        and subject.document.figures is None
        and subject.document.status == Status.FEASIBLE
    ):
        return
    if within is None:
        why = "what the allocation gives"
        within = FIGURE
        expected: Mapping[str, Mapping[str, float]] = by_job(
            rows.classes, subject.formulation.figures(rows.classes, rows.x)
        )
    else:
        why = "what solving again gives"
        expected = subject.again.figures
    findings.alike("figures", subject.document.figures or {}, expected, why, absolute=within)


def _optimum(
    subject: RebuiltSolution, rows: AllocationRows, findings: Findings
) -> FloatArray | None:
    """The point to which the numbers of the file belong; None with a finding if its figures give
    none.
    """
    figures = by_class(rows.classes, subject.document.figures or {})
    try:
        return subject.formulation.optimum(rows.classes, rows.x, figures)
    except ValueError as error:
        findings.add("figures", str(error))
        return None


def _check_closed_form(subject: RebuiltSolution, findings: Findings) -> BoundVerdict:
    """Check a rule, an empty program or an impossible side constraint: solve again and compare."""
    if subject.formulation.sense == "rule" and subject.document.status == Status.LIMIT:
        from optsched.verify.nothing import check_empty

        check_empty(subject, findings)  # stopped by a limit, which cannot be checked
        return "not verifiable"
    if subject.cut_short:
        return check_cut_short(subject, findings)
    before = len(findings)
    closed = subject.again
    allocation = closed.allocation if len(subject.classes) else None
    names = OF_CLOSED_FORM if allocation is not None else (*OF_CLOSED_FORM, *OF_ALLOCATION)
    found = subject.document.model_dump(mode="json", include=set(names))
    if allocation is None:
        found["metrics"] = metrics_of_allocation(found["metrics"])
    # The allocation is compared row by row below, not as a document.
    made = closed if allocation is None else replace(closed, allocation=None)
    expected = made.to_document()
    for name in names:
        # Residuals and figures may be 0, where a relative difference has no meaning.
        absolute = RELATIVE if name in ("certificate", "figures") else 0.0
        findings.alike(
            name,
            found[name],
            expected.get(name),
            "what the closed form gives",
            absolute=absolute,
        )
    if subject.document.assumptions is not None:
        findings.same("assumptions", subject.document.assumptions, expected.get("assumptions"))
    source = f"what solving again for the bound of {closed.formulation} gives"
    findings.close("bound", subject.document.bound, closed.bound, source, relative=OPTIMALITY)
    if allocation is not None:
        _check_rule(subject, allocation, findings)
    return "verified" if len(findings) == before else "not verifiable"


def _check_rule(subject: RebuiltSolution, allocation: Allocation, findings: Findings) -> None:
    rows = subject.rows(findings)
    if rows is None:
        return
    check_throughput(rows, subject.document.throughput, findings)
    check_time(rows, findings)
    compare_rows(rows, allocation.rows, "what the rule gives", RELATIVE, findings)
    check_metrics(subject.document, allocation, findings)


def _check_again(subject: RebuiltSolution, findings: Findings) -> None:
    """Solve again: an optimum must be the same, and no objective may exceed the bound."""
    document = subject.document
    if subject.cut_short:  # solved again already, and with more time
        return
    rule = subject.formulation.sense == "rule"
    again = (
        subject.again
        if rule
        else subject.formulation.solve(subject.candidates, Engine(load_solver))
    )
    again_gives = f"solving again gives {again.objective!r} ({again.status})"
    # Two optima within the gap that was asked for may differ by as much.
    allowed = max(OPTIMALITY, document.solver.gap or 0.0)
    noise = _meaningless(subject)
    if (again.status in (Status.INFEASIBLE, Status.UNBOUNDED) or subject.expects_nothing) and (
        document.status not in (again.status, Status.LIMIT)
    ):
        findings.add("status", f'found "{document.status}": {again_gives}')
    elif document.status == Status.OPTIMAL:
        findings.close(
            "objective",
            document.objective,
            again.objective,
            again_gives,
            relative=allowed,
            absolute=noise,
        )
    if again.objective is not None and document.bound is not None and document.sense != "rule":
        excess = (
            again.objective - document.bound
            if document.sense == "max"
            else document.bound - again.objective
        )
        if excess > max(OPTIMALITY * max(1.0, abs(again.objective)), noise):
            findings.add("bound", f"found {document.bound!r}, but {again_gives}")


def _meaningless(subject: RebuiltSolution) -> float:
    """Objectives below this are rounding, if the objective may be 0 because its terms cancel."""
    program = subject.program
    if not isinstance(program, AllocationProgram) or program.units.objective(0.0) != 0.0:
        return 0.0
    return program.worth_of_noise(None) * program.units.slope(0.0)
