"""Sweeps: the common part of ``optsched bench`` and ``optsched simulate``, from options to files of
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optsched.cli.command import Option
from optsched.cli.options import ManyOptions, output_option
from optsched.cli.progress import sweep_progress
from optsched.cli.shell import INTERRUPTED, Shell, check_target
from optsched.cli.values import Kind

if TYPE_CHECKING:
    from optsched.benchmarking import Row
    from optsched.benchmarking.run import Sweep
    from optsched.benchmarking.simulations import Simulations
    from optsched.benchmarking.sweep import Benchmark


def _rows_file(path: str, option: str) -> str:
    """A file for rows that can be written."""
    from optsched.benchmarking.table import check_results_name

    check_results_name(path)
    check_target(path)
    return path


RowsFile = Annotated[
    Annotated[str, Kind(_rows_file, "FILE", writes=True)] | None,
    output_option("FILE.csv or .json, with rows as they come in FILE.jsonl; or FILE.jsonl alone."),
]


@dataclass(frozen=True)
class TaskOptions(ManyOptions):
    """How the tasks are run."""

    append: Annotated[bool, Option("Add to the results of another sweep.")] = False
    resume: Annotated[
        bool,
        Option(
            "Continue with the results of an earlier run (default), "
            "or delete them and start again.",
            flag="--resume/--restart",
        ),
    ] = True
    retry: Annotated[bool, Option("Run tasks again that ended in error, memory or limit.")] = False


def run_sweep(
    shell: Shell, sweep: Benchmark | Simulations, running: TaskOptions, output: str | None
) -> Sweep:
    """Run all tasks with a progress line; rows are appended to a file of lines as they arrive."""
    # Wrong values are refused before a file is written
    sweep.tasks()
    lines = lines_file(output)
    if lines is not None and not running.resume and lines.exists():
        _remove(lines)
    with sweep_progress(shell) as on_start:
        return sweep.run(
            processes=running.jobs,
            executor=running.executor,
            results_file=lines,
            append=running.append,
            retry=running.retry,
            on_start=on_start,
        )


def lines_file(output: str | None) -> Path | None:
    """The file to which rows are appended."""
    return None if output is None else Path(output).with_suffix(".jsonl")


def _remove(lines: Path) -> None:
    """Remove a file of rows; other files are refused."""
    from optsched.benchmarking.results_file import parse_lines

    # --restart must not delete a file that is not a file of rows
    parse_lines(lines.read_bytes(), lines)
    lines.unlink()


def write_rows(
    rows: Sequence[Row],
    output: str | None,
    append: bool,
    completed: Callable[[Sequence[Row]], Sequence[Row]] = list,
) -> None:
    """Write the table of a sweep, unless the file of lines is the only requested output.

    With ``append`` the table also has the rows of earlier sweeps. ``completed`` adds columns.
    """
    lines = lines_file(output)
    if output is None or lines is None or Path(output) == lines or not rows:
        return
    from optsched.benchmarking.table import read_rows, write_table

    earlier = []
    if append:
        # A task that was done again replaces its earlier row
        own = {row["key"] for row in rows}
        earlier = [row for row in read_rows(lines)[0] if row.get("key") not in own]
    write_table(completed([*earlier, *rows]), output)


def sweep_exit_code(
    shell: Shell, sweep: Sweep, total: int, output: str | None, failures: Sequence[int]
) -> int:
    """130 with a message after Ctrl-C; else the code of the first task that failed."""
    if sweep.interrupted:
        kept = "" if output is None else "; the same command goes on from there"
        shell.complain(f"interrupted after {len(sweep.rows)} of {total} tasks{kept}")
        return INTERRUPTED
    return failures[0] if failures else 0
