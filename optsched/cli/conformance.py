"""``optsched solvers --check NAME``: the conformance suite as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optsched.cli.progress import progress
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from rich.text import Text

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
    if as_json:
        shell.document(
            {
                "solver": name,
                "ok": not counts["failed"],
                "counts": counts,
                "cases": documents(results),
            }
        )
    else:
        from optsched.cli.tables import seconds, table

        shown = [result for result in results if not result.reason.startswith(UNCLAIMED)]
        rows: list[list[str | Text]] = [
            [item.bank, item.case, _verdict(item), seconds(item.seconds)] for item in shown
        ]
        shell.print(
            table(
                "bank", "case", "result", "time", rows=rows, left=3, title=f"Conformance of {name}"
            )
        )
        hidden = len(results) - len(shown)
        told = f"; {hidden} more need what it does not claim" if hidden else ""
        skipped = counts["skipped"] - hidden
        shell.tell(f"{counts['passed']} passed, {counts['failed']} failed, {skipped} skipped{told}")
    failed = [result for result in results if result.verdict == "failed"]
    if failed and (as_json or not shell.quiet):  # which ones and why is said above
        shell.complain(f"error: {name} fails {len(failed):,} of {len(results):,} cases")
    elif failed:
        for result in failed:
            shell.complain(f"error: {name} fails {result.case!r}: {result.reason}")
    return FAILED if counts["failed"] else 0


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
