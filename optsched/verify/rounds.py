"""Rounds of a solution file: every slice is checked against the allocation and the capacities."""

from __future__ import annotations

import numpy as np

from optsched.candidates import JobRows
from optsched.errors import UsageError
from optsched.placement import check_rounds, realise
from optsched.placement.instant import run_matrix
from optsched.placement.node_room import NodeRoom
from optsched.program import AllocationProgram
from optsched.program.space import PLACEABLE
from optsched.registry import load_solver
from optsched.solution import Allocation, Rounds
from optsched.solution.document import RoundsDocument
from optsched.solving.engine import Engine
from optsched.verify.findings import RELATIVE, Findings
from optsched.verify.rows import AllocationRows
from optsched.verify.subject import RebuiltSolution

AGAIN = 1e-7
"""Largest difference of a scale that is found again."""


def check_document_rounds(
    subject: RebuiltSolution, document: RoundsDocument, resolve: bool, findings: Findings
) -> None:
    """Check the rounds of the file; ``resolve`` also makes them again."""
    if subject.expects_nothing or (not subject.document.allocation and document.slices):
        findings.add("rounds", "found slices, expected null: there is no allocation")
        return
    if subject.document.schedule is not None:
        findings.add("rounds", "found slices, expected null: the schedule says what runs when")
        return
    rows = subject.rows(Findings())  # what is wrong with the rows is reported elsewhere
    if rows is None:
        return
    rounds = _as_rounds(document, rows, subject.instance.round, findings)
    if rounds is None:
        return
    before = len(findings)
    for problem in check_rounds(rounds, subject.classes):
        findings.add(f"rounds.{problem.field}", problem.words)
    if resolve and len(findings) == before:
        _check_nodes(subject, rounds, findings)
        _make_again(subject, rounds, rows, findings)


def _as_rounds(
    document: RoundsDocument,
    rows: AllocationRows,
    seconds: float,
    findings: Findings,
) -> Rounds | None:
    """The rounds of the file over its own rows, or None with findings."""
    before = len(findings)
    count = len(rows.job)
    # The window is in seconds, and holds whole rounds.
    rounds = document.window / seconds
    number = round(rounds)
    if number < 1 or abs(rounds - number) > RELATIVE * number:
        findings.add(
            "rounds.window",
            f"found {document.window!r}, expected a whole number of rounds of {seconds!r} s",
        )
    for place, part in enumerate(document.slices):
        wrong = [row for row in part.run if not 0 <= row < count]
        if wrong:
            findings.add(
                f"rounds.slices[{place}].run", f"found {wrong[0]}, expected rows of the allocation"
            )
        elif len(set(part.run)) < len(part.run):
            findings.add(f"rounds.slices[{place}].run", "found a row twice")
    if len(findings) > before:
        return None
    column = rows.column
    made = JobRows(
        rows.job,
        rows.partner,
        column,
        rows.fraction,
        rows.classes.rate_a[column],
        rows.classes.rate_b[column],
    )
    return Rounds(
        classes=rows.classes,
        rows=made,
        length=np.array([part.duration for part in document.slices]) / document.window,
        runs=run_matrix([np.array(part.run, np.int64) for part in document.slices], count),
        scale=document.scale,
        bound=document.bound,
        method=document.method,
        rounds=number,
        finished=document.finished,
    )


def _check_nodes(subject: RebuiltSolution, rounds: Rounds, findings: Findings) -> None:
    """With ``placeable``, the rows of each slice find nodes together."""
    constraints = subject.document.constraints
    counted = any(item["kind"] == PLACEABLE for item in constraints)
    if not counted or rounds.method == "priority":
        return
    nodes = NodeRoom.of(rounds.classes, rounds.rows.column, Engine(load_solver), constraints)
    # Contents of nodes that are made on demand may be missing here, and prove nothing.
    if nodes is None or not nodes.space.complete:
        return
    for number in range(len(rounds)):
        running = rounds.running(number)
        if len(nodes.fitting(running)) < len(running):
            words = f"its rows find no nodes side by side, expected rows that do ({PLACEABLE})"
            findings.add(f"rounds.slices[{number}].run", words)


def _make_again(
    subject: RebuiltSolution,
    rounds: Rounds,
    rows: AllocationRows,
    findings: Findings,
) -> None:
    """The same method gives the same share, unless a limit stopped it."""
    integral = isinstance(subject.program, AllocationProgram) and subject.program.integral
    allocation = Allocation(subject.classes, rows.x, integral)
    # All rows at once is what any method finds where they fit: it cannot be asked for.
    method = "auto" if rounds.method == "at-once" else rounds.method
    try:
        constraints = subject.document.constraints
        again = realise(allocation, Engine(load_solver), method, rounds.rounds, constraints)
    except UsageError as error:
        findings.add("rounds.method", str(error))
        return
    # A search that a limit stopped may end elsewhere the next time.
    if rounds.finished and abs(again.scale - rounds.scale) > AGAIN:
        findings.add(
            "rounds.scale",
            f"found {rounds.scale!r}, but making the rounds again gives {again.scale!r}",
        )
    if again.scale > rounds.bound + AGAIN:
        findings.add(
            "rounds.bound",
            f"found {rounds.bound!r}, but making the rounds again gives {again.scale!r}",
        )
