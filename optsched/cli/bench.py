"""``optsched bench``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from optsched.cli.bench_sweep import Contest, Swept, benchmark_of
from optsched.cli.command import Option
from optsched.cli.options import OUTPUT, Json
from optsched.cli.shell import Shell, written_to
from optsched.cli.sweep_options import (
    RowsFile,
    SweepRunning,
    run_sweep,
    sweep_exit_code,
    write_rows,
)

if TYPE_CHECKING:
    from optsched.benchmarking import Row

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
    running: SweepRunning,
    output: RowsFile = None,
    best: Annotated[
        str | None,
        Option(
            "Best known objectives: CSV with instance, formulation, objective.",
            "FILE",
            section=OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Solve many instances with many formulations and solvers, each in a process of its own, and keep a table.

    The same command goes on where it was interrupted or killed, and ends with the same table.

    Exit codes: 0 every task has an answer or hit a limit, else the code of the first task that failed (see `optsched
    solve`), 130 interrupted; what there is is kept.
    """
    benchmark = benchmark_of(swept, contest)
    from optsched.benchmarking.best_known import read_best, with_best_known
    from optsched.benchmarking.solve_task import NEXT_NOTE
    from optsched.benchmarking.table import rows_document
    from optsched.cli.bench_view import bench_view

    table = None if best is None else read_best(best)

    def completed(rows: Sequence[Row]) -> list[Row]:
        return with_best_known(rows, table)

    sweep = run_sweep(shell, benchmark, running, output)
    write_rows(sweep.rows, output, running.append, completed)
    rows = completed(sweep.rows)
    notes = [row["notes"].split(NEXT_NOTE) for row in rows if row.get("notes")]
    shell.answer(
        as_json,
        lambda: rows_document(rows),
        bench_view(rows),
        notes=(note for found in notes for note in found),
        written=written_to(results=output if rows else None),
    )
    failures = [int(row.get("exit_code") or 1) for row in rows if row["status"] == "error"]
    return sweep_exit_code(shell, sweep, len(benchmark.tasks()), output, failures)
