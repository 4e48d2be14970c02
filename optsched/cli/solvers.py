"""``optsched solvers``: the list of solvers, and a check of the claims of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli.command import Option
from optsched.cli.options import NOT_CERTIFIED, Json
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.cli.tables import Grid, seconds, table

if TYPE_CHECKING:
    from rich.text import Text

    from optsched.conformance import Result


def solvers(
    shell: Shell,
    check: Annotated[
        str | None,
        Option("Run the conformance suite on this solver instead.", "NAME"),
    ] = None,
    as_json: Json = False,
) -> int:
    """List the solvers: version, or why a solver is not available, and capabilities.

    Exit codes of --check: 0 the solver has the capabilities that it claims, 6 a case failed, 7 the
    solver is missing.

    Examples:
        optsched solvers
        optsched solvers --json
        optsched solvers --check glop
    """
    if check is not None:
        return _check(shell, check, as_json)
    found = solver_documents()
    shell.answer(as_json, lambda: {"solvers": found}, [_table(found)])
    return 0


def _table(found: list[dict[str, Any]]) -> Grid:
    rows = [
        [
            item["name"],
            item["version"] or f"not available: {item['reason']}",
            ", ".join(item["capabilities"]),
        ]
        for item in found
    ]
    return table(
        "name", "version", "capabilities", rows=rows, left=3, title="Solvers (--solver NAME)"
    )


def solver_documents() -> list[dict[str, Any]]:
    """Every solver with its version, or the reason why it cannot be used."""
    from optsched.errors import OptschedError
    from optsched.registry import load_solver, solver_names

    found = []
    for name in solver_names():
        item: dict[str, Any] = {"name": name, "version": None, "reason": None, "capabilities": []}
        try:
            solver = load_solver(name)
            item["capabilities"] = sorted(capability.value for capability in solver.capabilities)
            item["version"] = solver.version()
        except (OptschedError, ImportError) as error:
            item["reason"] = str(error)
        found.append(item)
    return found


# --- the conformance suite as a table -------------------------------------------------------------

UNCLAIMED = "does not claim"
STYLE = {"passed": "green", "failed": "bold red", "skipped": "yellow"}


def _check(shell: Shell, name: str, as_json: bool) -> int:
    """Run the suite on a solver and show the results; returns the exit code."""
    from optsched.conformance import check_solver, summary

    with progress(shell, f"checking {name}"):
        results = check_solver(name)
    counts = summary(results)
    document = {"solver": name, "ok": not counts["failed"], "counts": counts}
    # Leave out cases that a solver does not claim: they are not failures and would fill the table
    claimed = [result for result in results if not result.reason.startswith(UNCLAIMED)]
    hidden = len(results) - len(claimed)
    outcome = (
        f"{counts['passed']} passed, {counts['failed']} failed, "
        f"{counts['skipped'] - hidden} skipped"
    )
    if hidden:
        outcome += f"; {hidden} more need what it does not claim"
    shell.answer(
        as_json,
        lambda: {
            **document,
            "cases": [{"bank": result.bank, **asdict(result)} for result in results],
        },
        _cases(name, claimed),
        written=[outcome],
    )
    failed = [result for result in results if result.verdict == "failed"]
    # The failed cases and reasons are shown above
    if failed and (as_json or not shell.quiet):
        shell.complain(f"error: {name} fails {len(failed):,} of {len(results):,} cases")
    elif failed:
        for result in failed:
            shell.complain(f"error: {name} fails {result.case!r}: {result.reason}")
    return NOT_CERTIFIED if counts["failed"] else 0


def _cases(name: str, results: Sequence[Result]) -> Iterator[Grid]:
    columns = ("bank", "case", "result", "time")
    rows: list[list[str | Text]] = [
        [result.bank, result.case, _verdict(result), seconds(result.seconds)] for result in results
    ]
    yield table(*columns, rows=rows, left=3, title=f"Conformance of {name}")


def _verdict(result: Result) -> Text:
    from rich.text import Text

    text = Text(str(result.verdict), style=STYLE[result.verdict])
    return text.append(f": {result.reason}", style="default") if result.reason else text
