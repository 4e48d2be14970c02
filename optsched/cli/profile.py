"""``optsched profile``: the results of a sweep, summarised."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import OUTPUT, Json, output_option
from optsched.cli.shell import Shell
from optsched.cli.values import Kind, Page, Seconds
from optsched.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from optsched.benchmarking.results import Results
    from optsched.benchmarking.summary_table import SummaryTable


def _columns(text: str, option: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


@dataclass(frozen=True)
class Readings:
    """How the rows are read."""

    section: ClassVar = "Reading"

    by: Annotated[
        list[str] | None,
        Option(
            "Columns that tell the methods apart.  [default: the first of policy, solver, "
            "formulation, options, settings, threads that has several values]",
        ),
        Kind(_columns, "COLUMN[,COLUMN]"),
    ] = None
    metric: Annotated[
        list[str] | None,
        Option(
            "Column to average. Can be repeated.  [default: the metrics of simulations]", "COLUMN"
        ),
    ] = None
    best: Annotated[
        str | None,
        Option("Best known objectives: CSV with instance, formulation, objective.", "FILE"),
    ] = None
    interval: Annotated[str, Option("Confidence interval: bootstrap or t.", "KIND")] = "bootstrap"
    seed: Annotated[int, Option("Seed of the bootstrap.")] = 0
    shift: Annotated[Seconds, Option("Shift of the geometric means of times.", default="1s")] = 1.0

    def results(self, shell: Shell, files: Sequence[str]) -> Results:
        """The rows of some files, by method."""
        from optsched.benchmarking.best_known import read_best
        from optsched.benchmarking.results import Results
        from optsched.benchmarking.table import read_rows

        rows = []
        for path in files:
            found, notices = read_rows(path)
            rows += found
            for notice in notices:
                shell.complain(notice)
        results = Results.of(rows, self.by, None if self.best is None else read_best(self.best))
        for name in self.metric or ():
            if not any(name in row for row in rows):
                known = dict.fromkeys(column for row in rows for column in row)
                raise UsageError(
                    f"--metric: no row has a column {name!r}: the columns are {', '.join(known)}"
                    f"{did_you_mean(name, known)}"
                )
        return results


def profile(
    shell: Shell,
    results: Annotated[
        list[str], Argument("RESULTS...", "Files of results: .csv, .json or .jsonl; read together.")
    ],
    readings: Readings,
    output: Annotated[
        Page | None,
        output_option(
            "FILE.html: a page with everything; .svg, .png or .pdf: the performance profile."
        ),
    ] = None,
    picture: Annotated[
        str,
        Option("Profile to draw: time or gap.", section=OUTPUT),
        Kind(values.choice("time", "gap"), "KIND"),
    ] = "time",
    full: Annotated[
        bool,
        Option("Show every table: each metric with its interval and its pairs.", section=OUTPUT),
    ] = False,
    as_json: Json = False,
) -> int:
    """Summarise the results of a sweep:
    outcomes, times, pairwise tests, gaps, performance profiles.

    Missing values are counted, never averaged over. Methods are compared on the tasks that all of
    them solved. Of simulations the screen shows the metrics that policies are judged by; --full, -o
    FILE.html and --json have all.

    Examples:
        optsched profile results.csv
        optsched profile runs.csv --full
        optsched profile results.jsonl -o results.html
        optsched profile results.csv --by formulation --picture gap -o gaps.svg
        optsched profile monday.csv tuesday.csv --by optsched --interval t --json
    """
    from optsched.benchmarking.summary import Reading, overview, summary
    from optsched.cli.sweep_view import profile_view

    arranged = readings.results(shell, results)
    reading = Reading(readings.interval, readings.seed, readings.shift)
    tables = summary(arranged, reading, readings.metric)
    shown = tables if full or readings.metric else overview(arranged, reading)
    written = []
    if output is not None:
        page = Path(output).suffix.lower() == ".html"
        if page:
            _write_page(arranged, tables, results, output)
        else:
            _draw(arranged, output, picture)
        written = ["", f"{'page' if page else 'picture'} written to {output}"]
    documents = {item.name: item.to_document() for item in tables}
    shell.answer(
        as_json,
        lambda: {"by": list(arranged.by), **documents},
        profile_view(arranged, shown, hidden=len(tables) - len(shown)),
        written=written,
    )
    return 0


def _write_page(
    results: Results, tables: Sequence[SummaryTable], files: Sequence[str], output: str
) -> None:
    from optsched.report.page import page, write_page
    from optsched.report.results_page import result_sections

    problems = len(results.problems)
    methods = len(results.methods)
    lead = f"{problems:,} problems, {methods:,} methods ({' '.join(results.by)})"
    write_page(page("Results", lead, result_sections(results, tables, files)), output)


def _draw(results: Results, output: str, picture: str) -> None:
    from optsched.report.pictures import save_picture
    from optsched.report.results_page import gap_picture, time_picture

    axes = time_picture(results) if picture == "time" else gap_picture(results)
    if axes is None:
        raise UsageError(
            f"there is no profile of {picture}s to draw: it needs two methods and a task "
            "that was solved"
        )
    save_picture(axes, output)
