"""Whole GPUs in a solution file:
whether rows that run side by side fit, and which GPUs each row has.

If rows that run side by side are shown not to fit, the file is refused: it cannot be carried out. A
file with rounds states which rows take turns. A file without ``packed`` claims that all rows fit.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import IntArray
from optsched.candidates import JobRows
from optsched.instance.reading import show
from optsched.placement import check_placement, packed, placement_worth
from optsched.placement.fragmentation import fragmentation_beside
from optsched.placement.granted import granted_shares
from optsched.placement.staying import PinnedRows, pinned_rows
from optsched.solution import Allocation
from optsched.solution.document import PlacementRow, SolutionDocument
from optsched.verify.findings import Findings
from optsched.verify.plans import schedule_of
from optsched.verify.rows import AllocationRows
from optsched.verify.subject import RebuiltSolution

FIGURES = (
    "rows_wanted",
    "rows_placed",
    "rows_bound",
    "nodes_spanned",
    "nodes_bound",
    "bandwidth",
    "gpus_moved",
    "exact",
)


def check_packed(subject: RebuiltSolution, findings: Findings) -> None:
    """Compare ``packed`` of the file with a packing made anew."""
    document = subject.document
    if subject.expects_nothing:
        findings.same("packed", document.packed, None, "there is no allocation")
        return
    wrong = Findings()  # what is wrong with the rows is reported elsewhere
    schedule = schedule_of(subject.classes, document.schedule, wrong) if document.schedule else None
    rows = subject.rows(wrong)
    if len(wrong) or rows is None:
        return
    integral = subject.formulation.integral
    made = packed(Allocation(rows.classes, rows.x, integral), schedule)
    if made is not None and made.refuted and document.rounds is None:
        words = made.words(subject.instance.now)
        remedy = "" if schedule is not None else "; in rounds (--rounds) they take turns"
        findings.add("packed", f"{words} on whole GPUs, so that it cannot be carried out{remedy}")
    elif document.packed is None and not (integral or schedule is not None):
        return  # fractions for which a search was inconclusive: no claim
    elif made is not None and document.packed is None:
        fit = f"of {made.rows} rows that run side by side {made.held} are shown to fit"
        findings.add(
            "packed", f"found nothing, which says that all rows fit side by side, but {fit}"
        )
    if made is not None and document.packed is None:
        return
    stated = None if document.packed is None else document.packed.model_dump(exclude_none=True)
    expected = None if made is None else made.to_document()
    findings.alike("packed", stated, expected, "what packing the shares of GPUs again gives")


def check_placed(subject: RebuiltSolution, findings: Findings) -> None:
    """Check placement and figures, where the file has them.

    The method that placed the rows chose which of them run at the same time; only that choice is
    checked. The two bounds are claims, and refused if the placement contradicts them.
    """
    document = subject.document
    if (document.placement is None) != (document.placement_figures is None):
        missing = "placement" if document.placement is None else "placement_figures"
        findings.add(missing, "found nothing, expected placement and placement_figures, or neither")
    fragmentation = document.metrics.get("fragmentation")
    if document.placement is None:
        if fragmentation is not None:
            findings.add("metrics.fragmentation", "expected no such entry: there is no placement")
        return
    before = len(findings)
    # What is wrong with the allocation itself is reported elsewhere.
    rows = subject.rows(Findings())
    if rows is None:
        findings.add(
            "placement", "the rows of the allocation are wrong, so that it cannot be checked"
        )
        return
    # Entries that are about no row of the allocation are None here.
    wanted = [
        _row(document, rows, number, entry, findings)
        for number, entry in enumerate(document.placement)
    ]
    if document.rounds is not None and document.rounds.slices:
        _check_first_slice(subject, document.rounds.slices[0].run, wanted, rows, findings)
    if len(findings) > before:
        return
    row = np.array([place for place in wanted if place is not None], np.int64)
    placed = np.array([bool(entry.gpus) for entry in document.placement], bool)
    _check_once(document.placement, findings)
    entries = np.flatnonzero(placed)
    gpus = [document.placement[entry].gpus for entry in entries.tolist()]
    row_of_entry = row[entries]
    parts = (rows.job[row_of_entry], rows.partner[row_of_entry], rows.column[row_of_entry])
    for flaw in check_placement(subject.classes, *parts, gpus, document.constraints):
        findings.add(f"placement[{entries[flaw.entry]}].{flaw.part}", flaw.message)
    pinned = _pinned(subject, rows, row)
    _check_contradicted(subject, pinned, findings)
    if len(findings) == before:
        _check_figures(subject, rows, row_of_entry, gpus, len(row), findings)
        granted = granted_shares(
            subject.classes,
            rows.column[row_of_entry],
            gpus,
            pinned.occupied.without(rows.job[row_of_entry]),
        )
        # Files of older versions do not state it.
        if fragmentation is not None:
            made = _as_rows(rows)
            free = fragmentation_beside(subject.classes, made, row_of_entry, gpus)
            words = "what the placement leaves free"
            findings.alike("metrics.fragmentation", fragmentation, free.metric, words)
        for number, entry in enumerate(entries.tolist()):
            expected = None if granted is None else float(granted[number])
            stated = document.placement[entry].granted
            findings.alike(f"placement[{entry}].granted", stated, expected)


def _pinned(subject: RebuiltSolution, rows: AllocationRows, row: IntArray) -> PinnedRows:
    """The rows of jobs that cannot be preempted, found anew."""
    return pinned_rows(subject.classes, _as_rows(rows), row, subject.document.constraints)


def _as_rows(rows: AllocationRows) -> JobRows:
    """The rows of the file, without rates: they do not matter for who has which GPUs."""
    rate = np.zeros(len(rows.job))
    return JobRows(rows.job, rows.partner, rows.column, rows.fraction, rate, rate)


def _check_contradicted(subject: RebuiltSolution, pinned: PinnedRows, findings: Findings) -> None:
    """The file names the jobs that cannot be preempted and
    that the rows it places do not let run on.
    """
    names = subject.instance.jobs_table.names
    expected = sorted(names[job] for job in pinned.contradicted)
    found = sorted(item.job for item in subject.document.placement_contradicts or ())
    findings.alike(
        "placement_contradicts",
        found,
        expected,
        "jobs that run and cannot be preempted",
    )


def _check_first_slice(
    subject: RebuiltSolution,
    first: list[int],
    wanted: list[int | None],
    rows: AllocationRows,
    findings: Findings,
) -> None:
    """With rounds, what is placed is the first slice, as far as it uses GPUs."""
    C = subject.classes
    listed = set(wanted)
    for row in first:
        on_gpus = (
            0 <= row < len(rows.job)
            and C.pool[rows.column[row]] >= 0
            and C.gpus[rows.column[row]] > 0
        )
        if on_gpus and row not in listed:
            findings.add(
                "placement",
                f"found no entry for row {row} of the allocation, which runs in the first slice",
            )


def _row(
    document: SolutionDocument,
    rows: AllocationRows,
    number: int,
    entry: PlacementRow,
    findings: Findings,
) -> int | None:
    """The row of the allocation that an entry is about."""
    path = f"placement[{number}]"
    if entry.row >= len(document.allocation):
        expected = f"the number of a row of the allocation, which has {len(document.allocation)}"
        findings.add(f"{path}.row", f"found {entry.row}, expected {expected}")
        return None
    of = document.allocation[entry.row]
    findings.same(f"{path}.job", entry.job, of.job, f"row {entry.row} of the allocation")
    stated = sorted(entry.jobs or ())
    jobs_of_row = sorted(of.jobs or ())
    findings.same(f"{path}.jobs", stated, jobs_of_row, f"row {entry.row} of the allocation")
    if entry.gpus and entry.reason is not None:
        findings.add(f"{path}.reason", "found a reason why the row has no GPUs, but it has some")
    if not entry.gpus and not entry.reason:
        findings.add(f"{path}.gpus", "found no GPUs and no reason, expected one of them")
    if rows.fraction[entry.row] <= 0:
        findings.add(f"{path}.row", f"found {entry.row}, a row that runs at no time")
    return entry.row


def _check_once(placement: list[PlacementRow], findings: Findings) -> None:
    """No job has two entries, with or without GPUs."""
    seen: dict[str, int] = {}
    for number, entry in enumerate(placement):
        for job in (entry.job, *(entry.jobs or ())):
            if job is not None and seen.setdefault(job, number) != number:
                found = f"job {show(job)} a second time (placement[{seen[job]}] is the first)"
                findings.add(f"placement[{number}].row", f"found {found}, expected each job once")


def _check_figures(
    subject: RebuiltSolution,
    rows: AllocationRows,
    row: IntArray,
    gpus: list[list[str]],
    wanted: int,
    findings: Findings,
) -> None:
    """Figures that follow from the GPUs are recomputed; bounds may not contradict them."""
    # Which figures there are comes first: the comparisons below read all of them.
    figures = subject.document.placement_figures or {}
    for name in [name for name in FIGURES if name not in figures]:
        findings.add(f"placement_figures.{name}", "found nothing, expected a number")
    for name in [name for name in figures if name not in FIGURES]:
        findings.add(f"placement_figures.{name}", "expected no such entry")
    if any(name not in figures for name in FIGURES):
        return
    worth = placement_worth(
        subject.classes,
        rows.job[row],
        rows.partner[row],
        rows.column[row],
        gpus,
    )
    expected = {
        "rows_wanted": wanted,
        "rows_placed": worth.rows,
        "nodes_spanned": worth.nodes,
        "bandwidth": worth.bandwidth,
        "gpus_moved": worth.moved,
    }
    for name, value in expected.items():
        findings.close(
            f"placement_figures.{name}",
            figures[name],
            float(value),
            "what the placement gives",
        )
    least = figures["rows_placed"]
    most = figures["rows_wanted"]
    if not least <= figures["rows_bound"] <= most:
        allowed = f"from {least:g}, which are placed, to {most:g}, which are wanted"
        findings.add(
            "placement_figures.rows_bound",
            f"found {figures['rows_bound']:g}, expected a number {allowed}",
        )
    if not worth.rows <= figures["nodes_bound"] <= worth.nodes:
        allowed = f"from {worth.rows}, one per row, to {worth.nodes}, which are spanned"
        findings.add(
            "placement_figures.nodes_bound",
            f"found {figures['nodes_bound']:g}, expected a number {allowed}",
        )
    # ``exact`` claims that no placement is better, so the bounds must be met.
    closed = figures["rows_bound"] == worth.rows and figures["nodes_bound"] == worth.nodes
    if figures["exact"] not in (0.0, 1.0) or (figures["exact"] == 1.0 and not closed):
        findings.add(
            "placement_figures.exact",
            f"found {figures['exact']:g}, expected 0, or 1 where the bounds leave no gap",
        )
