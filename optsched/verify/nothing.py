"""Solutions without an allocation: infeasible, unbounded, or nothing found within the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from optsched.arrays import EMPTY, IntArray
from optsched.instance.reading import show
from optsched.program import AllocationProgram, LinearArrays, LinearProgram
from optsched.program.relaxing import RelaxedRows
from optsched.program.some_time import NO_SHARE, SomeTime, time_is_scarce
from optsched.solution.certificate import LARGEST_SHARE
from optsched.solution.document import CertificateDocument, SolutionDocument
from optsched.solution.explanation import Conflict, Explanation, assumptions_of, describe_row
from optsched.solution.plan import LinearPlan, Plan
from optsched.solvers import Limits
from optsched.solving.in_space import with_space
from optsched.solving.infeasibility import (
    Analyst,
    Checked,
    ClaimFinding,
    check_claim,
    leave_job_without_time,
    prove_job_without_time,
    rows_alone,
)
from optsched.verify.findings import BoundVerdict, Findings
from optsched.verify.run_record import check_unproved
from optsched.verify.stages import claims_no_time
from optsched.verify.subject import RebuiltSolution

ROWS_READ = 20_000
"""Rows whose words are compared with the conflicts of the file."""


def check_nothing(
    subject: RebuiltSolution, program: AllocationProgram | Plan, findings: Findings
) -> BoundVerdict:
    """Check a solution that states no allocation."""
    document = subject.document
    check_empty(subject, findings)
    if isinstance(program, AllocationProgram):
        relaxation = RelaxedRows(program)
        if relaxation.needed:  # rows that may give way are no reason why nothing is feasible
            program = replace(relaxation.strict, space=None)
    elif document.status == "infeasible":
        program = program.to_refute()
    arrays = _linear(program).arrays
    findings.same("certificate.ok", document.certificate.ok, True, "nothing is wrong with it")
    if document.status == "infeasible":
        return _check_infeasible(subject, program, arrays, findings)
    check_unproved(document, arrays, findings)
    return "consistent"


def _linear(program: AllocationProgram | Plan) -> LinearProgram:
    # Where lowering mixes rows over x with others, infeasibility is explained by the former.
    if not isinstance(program, AllocationProgram):
        return program.program
    if program.space is not None and program.space.complete:
        return with_space(program, program.space, whole=True)
    return program.feasible_set() if program.explained_apart else program.to_linear()


def check_empty(subject: RebuiltSolution, findings: Findings) -> None:
    """Check that fields which depend on an allocation are empty."""
    document = subject.document
    why = f"the status is {document.status}"
    for name in ("objective", "gap", "duals"):
        findings.same(name, getattr(document, name), None, why)
    for name in ("allocation", "throughput", "prices", "metrics", "figures"):
        if getattr(document, name):
            findings.add(
                name, f"found {len(getattr(document, name))} entries, expected none: {why}"
            )
    # A solver that was stopped without a point may still have a bound.
    if document.status != "limit":
        findings.same("bound", document.bound, None, why)
    source = ("none",) if document.bound is None else ("solver", "relaxation")
    if document.bound_source not in source:
        findings.add("bound_source", f'found "{document.bound_source}", expected "{source[0]}"')


def _check_infeasible(
    subject: RebuiltSolution,
    program: AllocationProgram | Plan,
    arrays: LinearArrays,
    findings: Findings,
) -> BoundVerdict:
    """Prove again that no allocation meets all rows; the conflicts must be rows that conflict."""
    document = subject.document
    if isinstance(program, LinearPlan) and document.certificate.proof == "counted":
        return _check_counted(document, program, findings)
    if isinstance(program, AllocationProgram) and claims_no_time(document):
        return _check_no_time(document, SomeTime(program), findings)
    checked = check_claim(arrays, Analyst(Limits()))
    if (
        checked.finding is ClaimFinding.FEASIBLE
        and isinstance(program, AllocationProgram)
        and program.space is not None
    ):
        # There may be room for all shares, but not on different GPUs for those of one job.
        program = replace(program, space=program.space.numbered())
        arrays = _linear(program).arrays
        checked = check_claim(arrays, Analyst(Limits()))
    if not check_infeasible(
        document.certificate,
        checked,
        findings,
        "an allocation exists that meets every requirement",
    ):
        return "not verifiable"
    # Duals prove infeasibility of the relaxation: its rows must conflict.
    arrays = arrays.relaxed() if checked.needed is not None else arrays

    def conflicting(rows: IntArray) -> bool:
        # Conflicts of rows over whole numbers would need another search: the file is trusted.
        return arrays.is_integer or are_shown_to_conflict(arrays, rows)

    _check_conflicts(document, program, arrays, findings, conflicting)
    return "verified" if document.certificate.proof == "dual" else "consistent"


def _check_counted(
    document: SolutionDocument, plan: LinearPlan, findings: Findings
) -> BoundVerdict:
    """Add up the requirements again; the conflicts must be the same."""
    shortage = plan.shortage()
    if shortage is None:
        findings.add("certificate.proof", 'found "counted", but no sum shows a shortage')
        return "not verifiable"
    residuals, expected = document.certificate.residuals, shortage.certificate.residuals
    findings.alike("certificate.residuals", residuals, expected, "what we find")
    words = [conflict.words for conflict in shortage.conflicts]
    findings.alike("conflicts", document.conflicts, words, "what is asked for, added up")
    if document.assumptions is not None:
        assumed = [item.words for item in assumptions_of(shortage.conflicts)]
        findings.same("assumptions", document.assumptions, assumed)
    return "verified"


def _check_no_time(document: SolutionDocument, some: SomeTime, findings: Findings) -> BoundVerdict:
    """Prove again that every allocation leaves a job without any time; the conflicts must
    suffice.
    """
    scarce = time_is_scarce(some.program, None)
    shown = prove_job_without_time(some, Analyst(Limits())) if scarce else None
    if shown is None:
        findings.add("status", 'found "infeasible", but an allocation has time for every job')
        return "not verifiable"
    certificate = document.certificate
    findings.same("certificate.proof", certificate.proof, "dual")
    expected = {LARGEST_SHARE: shown.largest_share}
    findings.alike(
        "certificate.residuals",
        certificate.residuals,
        expected,
        "what we find",
        absolute=NO_SHARE,
    )

    def conflicting(rows: IntArray) -> bool:
        return leave_job_without_time(some, rows, Analyst(Limits()))

    _check_conflicts(document, some.program, some.arrays, findings, conflicting)
    return "verified"


def check_infeasible(
    certificate: CertificateDocument,
    checked: Checked,
    findings: Findings,
    refuted: str,
) -> bool:
    """Check the certificate of an infeasible program; returns False if the program is feasible.

    The file may state ``claimed`` although duals prove infeasibility: that claims less. Its least
    violation is then that of the integer program, and no smaller than that of the relaxation.
    """
    if checked.finding is ClaimFinding.FEASIBLE:
        findings.add("status", f'found "infeasible", but {refuted}')
        return False
    stated = certificate.residuals
    needed = checked.needed
    # Another solver than ours agreed, where duals show nothing
    weaker = ("claimed",) if needed is not None else ("claimed", "cross-checked")
    if certificate.proof not in weaker:
        expected = "claimed" if needed is None else "dual"
        findings.same("certificate.proof", certificate.proof, expected)
    if certificate.proof == "dual" and needed is not None:
        findings.alike(
            "certificate.residuals",
            stated,
            {"least_violation": needed},
            "what we find",
            absolute=1e-7 * needed,
        )
        return True
    for name, value in stated.items():
        if name != "least_violation" or value < (needed or 0.0) * (1 - 1e-7):
            findings.add(
                f"certificate.residuals.{name}",
                f"found {value!r}, which is not that of an infeasible program",
            )
    return True


def _check_conflicts(
    document: SolutionDocument,
    program: AllocationProgram | Plan,
    arrays: LinearArrays,
    findings: Findings,
    conflicting: Callable[[IntArray], bool],
) -> None:
    """Check that the conflicts of a file are rows that conflict; older files have no
    assumptions.
    """
    conflicts = document.conflicts
    assumptions = document.assumptions
    if not conflicts and document.explanation is Explanation.IRREDUCIBLE:
        findings.add("conflicts", "found none, expected the requirements that conflict")
    # To describe more rows takes longer than to solve the program.
    if arrays.shape[0] > ROWS_READ:
        return
    wanted = set(conflicts)
    said: dict[str, list[tuple[int, Conflict]]] = {}  # several rows may have the same text
    for row, conflict in _described(program, arrays):
        if conflict.words in wanted:
            said.setdefault(conflict.words, []).append((row, conflict))
    rows = {words: [row for row, _ in saying] for words, saying in said.items()}
    if assumptions is not None:
        expected = [
            item.words
            for item in assumptions_of([said[words][0][1] for words in conflicts if words in said])
        ]
        findings.same("assumptions", assumptions, expected, "what these rows take for granted")
    for index, words in enumerate(conflicts):
        if words not in rows:
            findings.add(
                f"conflicts[{index}]", f"found {show(words)}, which no row of the program says"
            )
    saying = np.sort(np.concatenate([EMPTY, *map(np.array, rows.values())])).astype(np.int64)
    if conflicts and len(rows) == len(wanted) and not conflicting(saying):
        findings.add(
            "conflicts",
            "nothing shows that these requirements conflict: some that do may be missing",
        )


def _described(
    program: AllocationProgram | Plan, arrays: LinearArrays
) -> Iterator[tuple[int, Conflict]]:
    for block in arrays.rows:
        for row in range(block.start, block.stop):
            position = row - block.start
            if isinstance(program, AllocationProgram):
                yield row, describe_row(program, block.name, position, arrays.is_integer)
            else:
                words = program.describe(block.name, position)
                yield row, Conflict(block.name, position, words, program.assumption)


def are_shown_to_conflict(arrays: LinearArrays, rows: IntArray) -> bool:
    """Whether duals prove that no point meets these rows, of a linear program."""
    return check_claim(rows_alone(arrays, rows), Analyst(Limits())).finding is ClaimFinding.SHOWN
