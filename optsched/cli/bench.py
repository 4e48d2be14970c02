"""``optsched bench``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from optsched.cli import values
from optsched.cli.bench_sweep import Contest, Swept, benchmark_of
from optsched.cli.options import OUTPUT, Json
from optsched.cli.shell import INTERRUPTED, Shell, check_target

RUNNING = "Running"
EXAMPLES = """
    optsched bench @quickstart @packing -f makespan -f max-throughput --solver highs --solver clarabel
    optsched bench 'instances/*.json' -f makespan --time-limit 60s --memory-limit 4GB --jobs 2 -o results.csv
    optsched bench 'models/*.mps' --solver highs --solver scip --seeds 5 -o results.json
    optsched bench generate:cluster:jobs=50,seeds=1..3 -f max-throughput:integral=true
    optsched bench sweep.toml -o results.csv
"""


@dataclass(frozen=True)
class Running:
    """How the tasks are run."""

    jobs: Annotated[
        str, typer.Option(metavar="N", help="Tasks at a time.", rich_help_panel=RUNNING, show_default=True)
    ] = "1"
    append: Annotated[
        bool, typer.Option("--append", help="Add to the results of another sweep.", rich_help_panel=RUNNING)
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
        typer.Option("--retry", help="Do again what ended in error, memory or limit.", rich_help_panel=RUNNING),
    ] = False


def bench(
    shell: Shell,
    swept: Swept,
    contest: Contest,
    running: Running,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", rich_help_panel=OUTPUT,
            help="FILE.csv or .json, with rows as they come in FILE.jsonl; or that alone.",
        ),
    ] = None,
    best: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", rich_help_panel=OUTPUT,
            help="Best known objectives: CSV with instance, formulation, objective.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Solve many instances with many formulations and solvers, each in a process of its own, and keep a table.

    The same command goes on where it was interrupted or killed, and ends with the same table.

    Exit codes: 0 every task has an answer or hit a limit, else the code of the first task that failed (see `optsched
    solve`), 130 interrupted; what there is is kept.
    """
    processes = values.whole(running.jobs, "--jobs") or 0
    benchmark = benchmark_of(swept, contest)
    lines = _lines_file(output)
    from optsched.benchmarking.best_known import read_best, with_best_known
    from optsched.benchmarking.table import rows_document, write_table
    from optsched.cli.sweep_progress import sweep_line

    table = None if best is None else read_best(best)
    benchmark.tasks()  # wrong words are told before a file is touched
    if lines is not None and not running.resume:
        _begin_anew(lines)
    with sweep_line(shell) as line:
        sweep = benchmark.run(
            processes=processes, results_file=lines, append=running.append, retry=running.retry,
            on_start=line.on_start,
        )  # fmt: skip
    rows = with_best_known(sweep.rows, table)
    if output is not None and lines is not None and Path(output) != lines and rows:
        write_table(rows, output)
    if as_json:
        shell.document(rows_document(rows))
    elif not shell.quiet:
        from optsched.cli.bench_view import bench_view

        shell.print(*bench_view(rows))
        if output is not None and rows:
            shell.tell("")
            shell.tell(f"results written to {output}")
    if sweep.interrupted:
        shell.complain(_interrupted_words(len(rows), len(benchmark.tasks()), output))
        return INTERRUPTED
    codes = [int(row.get("exit_code") or 1) for row in rows if row["status"] == "error"]
    return codes[0] if codes else 0


def _interrupted_words(done: int, total: int, output: str | None) -> str:
    kept = "" if output is None else "; the same command goes on from there"
    return f"interrupted after {done} of {total} tasks{kept}"


def _lines_file(output: str | None) -> Path | None:
    """Where rows go as they come."""
    if output is None:
        return None
    from optsched.benchmarking.table import check_results_name

    check_results_name(output)
    check_target(output)
    return Path(output).with_suffix(".jsonl")


def _begin_anew(lines: Path) -> None:
    """Take a results file away; one that is none of ours stays, and is refused when it is opened."""
    from optsched.benchmarking.results_file import parse_lines

    if lines.exists():
        parse_lines(lines.read_bytes(), lines)
        lines.unlink()
