"""``optsched profile``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import OUTPUT, Json
from optsched.cli.shell import Shell, check_target
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from optsched.benchmarking.results import Results
    from optsched.benchmarking.summary_table import SummaryTable

READING = "Reading"
PICTURES = (".png", ".svg", ".pdf")
EXAMPLES = """
    optsched profile results.csv
    optsched profile results.jsonl -o results.html
    optsched profile results.csv --by formulation --picture gap -o gaps.svg
    optsched profile monday.csv tuesday.csv --by optsched --interval t --json
"""


@dataclass(frozen=True)
class Readings:
    """How the rows are read."""

    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN[,COLUMN]", rich_help_panel=READING, show_default=False,
            help="Columns that tell the methods apart.  [default: the first of policy, solver, formulation, options, "
            "settings, threads that has several values]",
        ),
    ] = None  # fmt: skip
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", rich_help_panel=READING, show_default=False,
            help="Column to be averaged. Can be repeated.  [default: the figures of simulations]",
        ),
    ] = None  # fmt: skip
    best: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=READING,
            help="Best known objectives: CSV with instance, formulation, objective.",
        ),
    ] = None  # fmt: skip
    interval: Annotated[
        str,
        typer.Option(
            metavar="KIND", help="bootstrap or t.", rich_help_panel=READING, show_default=True
        ),
    ] = "bootstrap"
    seed: Annotated[
        str,
        typer.Option(
            metavar="N", help="Of the bootstrap.", rich_help_panel=READING, show_default=True
        ),
    ] = "0"
    shift: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Of geometric means of times.",
            rich_help_panel=READING,
            show_default=True,
        ),
    ] = "1s"


def profile(
    shell: Shell,
    results: Annotated[
        list[str], typer.Argument(metavar="RESULTS...", help="Files of rows: .csv, .json or .jsonl; read together.")
    ],
    readings: Readings,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT,
            help="FILE.html: a page with everything; .svg, .png or .pdf: the performance profile.",
        ),
    ] = None,
    picture: Annotated[
        str, typer.Option(metavar="KIND", help="Profile to draw: time or gap.", rich_help_panel=OUTPUT)
    ] = "time",
    as_json: Json = False,
) -> int:  # fmt: skip
    """Tell what the rows of a sweep say: outcomes, times, pairwise tests, gaps, performance profiles.

    What is missing is counted, and never averaged over. Methods are compared on the tasks that they have all solved.
    """
    kind = _check(output, picture)
    seed, shift = (
        values.whole(readings.seed, "--seed") or 0,
        values.duration(readings.shift, "--shift") or 0.0,
    )
    if kind is not None:
        from optsched.report.pictures import require_matplotlib

        require_matplotlib()
    from optsched.benchmarking.best_known import read_best
    from optsched.benchmarking.results import Results
    from optsched.benchmarking.summary import Reading, summary
    from optsched.benchmarking.table import read_rows

    rows: list[dict[str, Any]] = []
    for path in results:
        found, notices = read_rows(path)
        rows += found
        for notice in notices:
            shell.complain(notice)
    by = None if readings.by is None else [name.strip() for name in readings.by.split(",")]
    table = None if readings.best is None else read_best(readings.best)
    arranged = Results.of(rows, by, table)
    for name in readings.metric or ():
        if not any(name in row for row in rows):
            raise UsageError(
                f"--metric: no row has a column {name!r}: the columns are {', '.join(rows[0])}"
            )
    tables = summary(arranged, Reading(readings.interval, seed, shift), readings.metric)
    if kind is not None:
        assert output is not None
        _draw(arranged, tables, results, output, kind, picture)
    if as_json:
        shell.document(
            {"by": list(arranged.by), **{item.name: item.to_document() for item in tables}}
        )
    elif not shell.quiet:
        from optsched.cli.profile_view import profile_view

        shell.print(*profile_view(arranged, tables))
    if kind is not None and not as_json:
        shell.tell("")
        shell.tell(f"{'page' if kind == '.html' else 'picture'} written to {output}")
    return 0


def _check(output: str | None, picture: str) -> str | None:
    """The suffix of the output; refuses what makes no sense."""
    if picture not in ("time", "gap"):
        raise InvalidArgument("--picture", repr(picture), "time or gap")
    if output is None:
        return None
    kind = Path(output).suffix.lower()
    if kind not in (".html", *PICTURES):
        raise UsageError(f"{output}: expected a name that ends in .html, .svg, .png or .pdf")
    check_target(output)
    return kind


def _draw(
    results: Results,
    tables: Sequence[SummaryTable],
    files: Sequence[str],
    output: str,
    kind: str,
    picture: str,
) -> None:
    from optsched.report.page import page, write_page
    from optsched.report.pictures import save_picture
    from optsched.report.results_page import gap_picture, result_sections, time_picture

    if kind == ".html":
        lead = f"{len(results.problems):,} problems, {len(results.methods):,} methods ({' '.join(results.by)})"
        write_page(page("Results", lead, result_sections(results, tables, files)), output)
        return
    ax = time_picture(results) if picture == "time" else gap_picture(results)
    if ax is None:
        raise UsageError(
            f"there is no profile of {picture}s to draw: it needs two methods and a task that was solved"
        )
    save_picture(ax, output)
