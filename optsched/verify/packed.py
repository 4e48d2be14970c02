"""What a solution file says of shares of GPUs: who says nothing claims that whole jobs find GPUs side by side."""

from __future__ import annotations

from optsched.placement import packed
from optsched.solution import Allocation
from optsched.verify.findings import Findings
from optsched.verify.plans import schedule_of
from optsched.verify.rows import resolve_rows
from optsched.verify.subject import Subject


def check_packed(subject: Subject, findings: Findings) -> None:
    """Compare ``packed`` of the file with a packing made anew."""
    document = subject.document
    if subject.expects_nothing:
        findings.same("packed", document.packed, None, "there is no allocation")
        return
    wrong = Findings()  # what is wrong with the rows is told elsewhere
    schedule = schedule_of(subject.classes, document.schedule, wrong) if document.schedule else None
    rows = resolve_rows(subject, wrong)
    if len(wrong) or rows is None:
        return
    made = packed(Allocation(rows.classes, rows.x, subject.formulation.integral), schedule)
    if made is not None and document.packed is None:
        can = "fit" if made.held == made.most else "are shown to fit"
        told = f"of {made.rows} rows that run side by side {made.held} {can} into whole GPUs"
        findings.add(
            "packed", f"found nothing, which says that all rows fit side by side, but {told}"
        )
        return
    stated = None if document.packed is None else document.packed.model_dump(exclude_none=True)
    expected = (
        None
        if made is None
        else {name: value for name, value in made._asdict().items() if value is not None}
    )
    findings.alike("packed", stated, expected, "what packing the shares of GPUs again gives")
