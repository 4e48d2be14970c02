"""Checks of the run that every solution file states, whether of an instance or of a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from optsched.program import LinearArrays
from optsched.solution import Status, Termination, gap_of
from optsched.solution.certificate import is_bounded
from optsched.solution.document import (
    CertificateDocument,
    ProgramSolutionDocument,
    SolutionDocument,
)
from optsched.solving.outcome import STOPPED, is_reproducible
from optsched.verify.findings import Findings

Document = SolutionDocument | ProgramSolutionDocument

UNFINISHED = (Termination.IMPRECISE, Termination.IN_PARTS, *STOPPED)
TERMINATIONS = {
    Status.OPTIMAL: (Termination.OPTIMAL, *UNFINISHED),
    Status.FEASIBLE: (Termination.OPTIMAL, *UNFINISHED),
    Status.INFEASIBLE: (Termination.INFEASIBLE,),
    Status.UNBOUNDED: (Termination.UNBOUNDED,),
    Status.LIMIT: UNFINISHED,
    Status.ERROR: (Termination.ERROR,),
}
"""Terminations that lead to each status."""
PROOFS = {
    "dual": ("dual",),
    # Cross-checked: a second run agreed with the claim.
    "solver": ("claimed", "cross-checked"),
    "none": ("none",),
}
"""Proofs of a bound, by its source."""
CLAIM = "no duals prove the bound, and of a program of fractions a solver's word is no proof"
RESIDUAL = 1e-9
"""Largest absolute difference between residuals."""


def check_gap(document: Document, findings: Findings, why: str) -> None:
    """The gap follows from objective and bound."""
    gap = gap_of(document.objective, document.bound)
    if gap is not None and document.gap is not None and abs(document.objective or 0.0) < 1e-9:
        # Earlier releases divided by 1e-9 at least.
        earlier = gap * abs(document.objective or document.bound or 0.0) / 1e-9
        gap = earlier if math.isclose(document.gap, earlier) else gap
    findings.close("gap", document.gap, gap, why, relative=1e-12)


def check_reproducible(document: Document, findings: Findings) -> None:
    """A run that was stopped by the clock cannot be repeated."""
    # Earlier releases do not state that the clock stopped an attempt, or a step before the last
    # program.
    several = bool(document.solver.attempts) or document.termination is Termination.IMPRECISE
    by_clock = document.solver.by_clock or (not document.reproducible and several)
    findings.same(
        "reproducible",
        document.reproducible,
        is_reproducible(document.termination, document.explanation, by_clock),
        f"the run ended with {document.termination}",
    )


def check_termination(document: Document, findings: Findings) -> None:
    """The termination leads to the status."""
    if document.termination not in TERMINATIONS[document.status]:
        words = f'found "{document.termination}", which leads to no status "{document.status}"'
        findings.add("termination", words)


def check_own_certificate(document: Document, findings: Findings) -> bool:
    """Check that the certificate of the file holds by its own statement."""
    certificate = document.certificate
    if not certificate.ok:
        words = "; ".join(certificate.problems) or "no problem is stated"
        findings.add(
            "certificate.ok", f"found false: the solution's own certificate does not hold ({words})"
        )
    return certificate.ok


def check_residuals(
    stated: CertificateDocument,
    residuals: Mapping[str, float],
    problems: Iterable[tuple[str, str]],
    field: str,
    findings: Findings,
) -> None:
    """Compare the residuals with ours; problems of the point become findings at its field.

    Parameters
    ----------
    stated : CertificateDocument
    residuals : mapping of str to float
        Recomputed.
    problems : iterable of (str, str)
        Problems of the recomputed certificate, and explanations to be added at the field.
    field : str
        Where the file has the point.
    findings : Findings
    """
    findings.alike(
        "certificate.residuals",
        stated.residuals,
        residuals,
        "what we find",
        absolute=RESIDUAL,
    )
    for problem, explanation in problems:
        findings.add(field, problem + explanation)
        if stated.ok:
            findings.add("certificate.ok", f"found true, expected false: {problem}")


def check_unproved(document: Document, arrays: LinearArrays, findings: Findings) -> None:
    """Check a file without a point that does not claim infeasibility: it may prove nothing, and an
    unbounded program must have columns without bounds.
    """
    unbounded = document.status is Status.UNBOUNDED
    findings.alike("conflicts", document.conflicts, [])
    findings.alike("certificate.residuals", document.certificate.residuals, {})
    findings.same(
        "certificate.proof", document.certificate.proof, "claimed" if unbounded else "none"
    )
    if unbounded and is_bounded(arrays):
        findings.add(
            "status", 'found "unbounded", but the columns are bounded, and with them the objective'
        )
