"""Rules whose search for a bound was cut off by the clock: with more time they may decide
otherwise.
"""

from __future__ import annotations

from optsched.formulation import by_job
from optsched.program import AllocationProgram
from optsched.solution import Status, certify_point, gap_of
from optsched.solution.certificate import OPTIMALITY
from optsched.verify.findings import BoundVerdict, Findings
from optsched.verify.numbers import check_metrics
from optsched.verify.rows import check_shares, check_throughput
from optsched.verify.run_record import check_residuals, check_termination
from optsched.verify.subject import RebuiltSolution


def check_cut_short(subject: RebuiltSolution, findings: Findings) -> BoundVerdict:
    """Check the allocation and all that follows from it; the bound may not be tighter than with all
    the time.
    """
    before = len(findings)
    document, formulation = subject.document, subject.formulation
    check_termination(document, findings)
    for name, nothing in (("conflicts", []), ("prices", {}), ("duals", None), ("schedule", None)):
        findings.alike(name, getattr(document, name), nothing, "a rule has none")
    _check_bound(subject, findings)
    rows = subject.rows(findings)
    if rows is None:
        return "not verifiable"
    program = formulation.build(rows.classes)
    assert isinstance(program, AllocationProgram)
    check_throughput(rows, document.throughput, findings)
    allocation = check_shares(rows, program.integral, findings)
    if allocation is None:
        return "not verifiable"
    check_metrics(document, allocation, findings)
    given = "what the allocation gives"
    figures = by_job(rows.classes, formulation.figures(rows.classes, rows.x))
    findings.alike("figures", document.figures or {}, figures, given)
    value = program.value(rows.x)
    findings.close("objective", document.objective, value, given)
    found = certify_point(program.to_linear().arrays, rows.x, value, "rule")
    findings.same("certificate.proof", document.certificate.proof, found.proof)
    problems = [(problem, "") for problem in found.problems]
    check_residuals(document.certificate, found.residuals, problems, "allocation", findings)
    return "consistent" if len(findings) == before else "not verifiable"


def _check_bound(subject: RebuiltSolution, findings: Findings) -> None:
    """The bound of the file against the one with all the time, and the status against its gap."""
    document, again = subject.document, subject.again
    findings.same("bound_source", document.bound_source, again.bound_source)
    if document.bound is None or again.bound is None:
        findings.same("bound", document.bound, again.bound)
        return
    if document.bound < again.bound - OPTIMALITY * max(1.0, abs(again.bound)):
        why = f"solving again for the bound of {again.formulation} gives {again.bound!r}"
        findings.add("bound", f"found {document.bound!r}, which is tighter than is known: {why}")
    gap = gap_of(document.objective, document.bound)
    closed = gap is not None and gap <= OPTIMALITY
    status = Status.OPTIMAL if closed else Status.FEASIBLE
    findings.same("status", str(document.status), str(status), f"the gap is {gap}")
