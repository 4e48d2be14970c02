"""``optsched solvers --check NAME``: the conformance suite as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from optsched.cli.progress import progress
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from rich.text import Text

    from optsched.cli.grid import Grid
    from optsched.conformance import Result

FAILED = 6
UNCLAIMED = "does not claim"
STYLE = {"passed": "green", "failed": "bold red", "skipped": "yellow"}


def check(shell: Shell, name: str, as_json: bool) -> int:
    """Run a solver through the suite and show what came out; returns the exit code."""
    from optsched.conformance import check_solver, summary

    with progress(shell, f"checking {name}"):
        results = check_solver(name)
    counts = summary(results)
    document = {"solver": name, "ok": not counts["failed"], "counts": counts}
    # What a solver does not claim is no failure, and would fill the table
    claimed = [result for result in results if not result.reason.startswith(UNCLAIMED)]
    hidden = len(results) - len(claimed)
    outcome = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped'] - hidden} skipped"
    if hidden:
        outcome += f"; {hidden} more need what it does not claim"
    shell.answer(
        as_json,
        lambda: {**document, "cases": documents(results)},
        _view(name, claimed),
        written=[outcome],
    )
    failed = [result for result in results if result.verdict == "failed"]
    # Which ones and why is said above
    if failed and (as_json or not shell.quiet):
        shell.complain(f"error: {name} fails {len(failed):,} of {len(results):,} cases")
    elif failed:
        for result in failed:
            shell.complain(f"error: {name} fails {result.case!r}: {result.reason}")
    return FAILED if counts["failed"] else 0


def _view(name: str, results: Sequence[Result]) -> Iterator[Grid]:
    from optsched.cli.tables import seconds, table

    columns = ("bank", "case", "result", "time")
    rows: list[list[str | Text]] = [
        [result.bank, result.case, _verdict(result), seconds(result.seconds)] for result in results
    ]
    yield table(*columns, rows=rows, left=3, title=f"Conformance of {name}")


def _verdict(result: Result) -> Text:
    from rich.text import Text

    text = Text(str(result.verdict), style=STYLE[result.verdict])
    return text.append(f": {result.reason}", style="default") if result.reason else text


def documents(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Results as they stand in JSON."""
    return [
        {
            "bank": result.bank,
            "case": result.case,
            "verdict": str(result.verdict),
            "reason": result.reason,
            "seconds": result.seconds,
        }
        for result in results
    ]
