"""``optsched bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from optsched.cli import values
from optsched.cli.bench_sweep import Contest, Swept, benchmark_of
from optsched.cli.options import OUTPUT, Json
from optsched.cli.shell import INTERRUPTED, Shell
from optsched.cli.sweep_options import (
    RowsFile,
    Running,
    begin_anew,
    interrupted_words,
    lines_file,
    table_rows,
)

EXAMPLES = """
    optsched bench @quickstart @packing -f makespan -f max-throughput --solver highs --solver clarabel
    optsched bench 'instances/*.json' -f makespan --time-limit 60s --memory-limit 4GB --jobs 2 -o results.csv
    optsched bench 'models/*.mps' --solver highs --solver scip --seeds 5 -o results.json
    optsched bench generate:cluster:jobs=50,seeds=1..3 -f max-throughput:integral=true
    optsched bench sweep.toml -o results.csv
"""


def bench(
    shell: Shell,
    swept: Swept,
    contest: Contest,
    running: Running,
    output: RowsFile = None,
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
    lines = lines_file(output)
    from optsched.benchmarking.best_known import read_best, with_best_known
    from optsched.benchmarking.table import rows_document, write_table
    from optsched.cli.sweep_progress import sweep_line

    table = None if best is None else read_best(best)
    benchmark.tasks()  # wrong words are told before a file is touched
    if lines is not None and not running.resume:
        begin_anew(lines)
    with sweep_line(shell) as line:
        sweep = benchmark.run(
            processes=processes, results_file=lines, append=running.append, retry=running.retry,
            on_start=line.on_start,
        )  # fmt: skip
    rows = with_best_known(sweep.rows, table)
    if output is not None and lines is not None and Path(output) != lines and rows:
        write_table(with_best_known(table_rows(sweep.rows, lines, running.append), table), output)
    if as_json:
        shell.document(rows_document(rows))
    elif not shell.quiet:
        from optsched.benchmarking.solve_task import NEXT_NOTE
        from optsched.cli.bench_view import bench_view

        shell.print(*bench_view(rows))
        shell.note(
            note for row in rows if row.get("notes") for note in row["notes"].split(NEXT_NOTE)
        )
        if output is not None and rows:
            shell.tell("")
            shell.tell(f"results written to {output}")
    if sweep.interrupted:
        shell.complain(interrupted_words(len(rows), len(benchmark.tasks()), output))
        return INTERRUPTED
    codes = [int(row.get("exit_code") or 1) for row in rows if row["status"] == "error"]
    return codes[0] if codes else 0
