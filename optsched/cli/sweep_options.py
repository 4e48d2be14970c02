"""How sweeps run: the options that ``optsched bench`` and ``optsched simulate`` share, and their files of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optsched.cli.options import OUTPUT
from optsched.cli.shell import check_target

if TYPE_CHECKING:
    from optsched.benchmarking import Row

RUNNING = "Running"

RowsFile = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT,
        help="FILE.csv or .json, with rows as they come in FILE.jsonl; or that alone.",
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Running:
    """How the tasks are run."""

    jobs: Annotated[
        str,
        typer.Option(
            metavar="N", help="Tasks at a time.", rich_help_panel=RUNNING, show_default=True
        ),
    ] = "1"
    append: Annotated[
        bool,
        typer.Option(
            "--append", help="Add to the results of another sweep.", rich_help_panel=RUNNING
        ),
    ] = False
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--restart", rich_help_panel=RUNNING, show_default=False,
            help="Go on with the results that are there (default), or begin anew and lose them.",
        ),
    ] = True  # fmt: skip
    retry: Annotated[
        bool,
        typer.Option(
            "--retry",
            help="Do again what ended in error, memory or limit.",
            rich_help_panel=RUNNING,
        ),
    ] = False


def interrupted_words(done: int, total: int, output: str | None) -> str:
    """What is said after Ctrl-C."""
    kept = "" if output is None else "; the same command goes on from there"
    return f"interrupted after {done} of {total} tasks{kept}"


def lines_file(output: str | None) -> Path | None:
    """Where rows go as they come."""
    if output is None:
        return None
    from optsched.benchmarking.table import check_results_name

    check_results_name(output)
    check_target(output)
    return Path(output).with_suffix(".jsonl")


def begin_anew(lines: Path) -> None:
    """Take a results file away; one that is none of ours stays, and is refused when it is opened."""
    from optsched.benchmarking.results_file import parse_lines

    if lines.exists():
        parse_lines(lines.read_bytes(), lines)
        lines.unlink()


def table_rows(rows: Sequence[Row], lines: Path | None, append: bool) -> list[Row]:
    """Rows for the table: those of this sweep, and with ``--append`` those that were in the file before as well."""
    if lines is None or not append:
        return list(rows)
    from optsched.benchmarking.table import read_rows

    mine = {row["key"] for row in rows}
    return [*(row for row in read_rows(lines)[0] if row.get("key") not in mine), *rows]
