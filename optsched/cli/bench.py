"""``optsched bench``: a sweep, and its table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.derived import Fields
from optsched.cli.options import (
    OUTPUT,
    PROBLEM,
    SOLVER,
    Json,
    constraints_option,
    formulations_option,
    given_fields,
)
from optsched.cli.shell import Shell, written_to
from optsched.cli.sweeps import RowsFile, TaskOptions, run_sweep, sweep_exit_code, write_rows
from optsched.cli.values import Constraints, NamedList
from optsched.errors import UsageError

if TYPE_CHECKING:
    from optsched.benchmarking import Row
    from optsched.benchmarking.sources import ProblemSource
    from optsched.benchmarking.sweep import Benchmark

GENERATE = "generate:"
Best = Annotated[
    str | None,
    Option(
        "Best known objectives: CSV with instance, formulation, objective, source.",
        "FILE",
        section=OUTPUT,
    ),
]


@dataclass(frozen=True)
class Swept:
    """What is to be solved."""

    section: ClassVar = PROBLEM

    set: Annotated[
        list[str],
        Argument(
            "SET...",
            "Instances and programs: files (of libraries all problems), folders, patterns, @names, "
            "generate:NAME:KEY=VALUE,... (seeds=1..5), or one sweep file (.toml).",
        ),
    ]
    formulations: Annotated[
        NamedList | None,
        formulations_option(
            "Can be repeated, also with other options.  [default: "
            "that of a library file or generator, else "
            "max-min-fairness]"
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        Option(
            "Option of the formulation NAME, or of all. Can be repeated.",
            "[NAME:]KEY=VALUE",
            short="-O",
        ),
    ] = None
    constraints: Annotated[
        Constraints | None,
        constraints_option(
            "Side constraint of all tasks, in addition to those of the instances. Can be repeated."
        ),
    ] = None


Contest = Annotated[
    dict[str, Any],
    Fields(
        "optsched.benchmarking.sweep:Benchmark",
        {
            SOLVER: "time_limit work_limit gap threads memory_limit solvers seeds repeat "
            "solver_options",
        },
    ),
]


def bench(
    shell: Shell,
    swept: Swept,
    contest: Contest,
    running: TaskOptions,
    output: RowsFile = None,
    best: Best = None,
    as_json: Json = False,
) -> int:
    """Solve many instances with many formulations and solvers,
    each in its own process, and write a table.

    The same command continues where it was interrupted or killed, and ends with the same table.

    Exit codes: 0 every task has an answer or hit a limit, else the code of the first task that
    failed (see `optsched solve`), 130 interrupted; the results so far are kept.

    Examples:
        optsched bench @quickstart @packing -f makespan -f max-throughput --solver highs --solver clarabel
        optsched bench 'instances/*.json' -f makespan --time-limit 60s --memory-limit 4GB --jobs 2 -o results.csv
        optsched bench 'models/*.mps' --solver highs --solver scip --seeds 5 -o results.json
        optsched bench generate:cluster:jobs=50,seeds=1..3 -f max-throughput:integral=true
        optsched bench sweep.toml -o results.csv
    """
    benchmark = benchmark_of(swept, contest)
    from optsched.benchmarking.best_known import BestKnown, read_best, with_best_known
    from optsched.benchmarking.solve_task import NEXT_NOTE
    from optsched.benchmarking.table import rows_document
    from optsched.cli.sweep_view import bench_view

    table = None if best is None else read_best(best)

    of_files = {
        (source.name, source.formulation): BestKnown(source.best_known, "file")
        for source in benchmark.sources
        if source.best_known is not None
    }

    def completed(rows: Sequence[Row]) -> list[Row]:
        return with_best_known(rows, table, of_files)

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


# --- from options to a benchmark ------------------------------------------------------------------


def benchmark_of(swept: Swept, contest: Mapping[str, Any]) -> Benchmark:
    """The benchmark of the command line and a sweep file; the command line takes precedence."""
    given = {**contest, **given_fields(swept, "set", "formulations", "option")}
    from optsched.benchmarking.sources import seeds_of
    from optsched.benchmarking.sweep import OWN, Benchmark
    from optsched.cli.sweep_file import is_sweep_file, options_of, read_sweep

    files = [name for name in swept.set if is_sweep_file(name)]
    if files:
        if len(swept.set) > 1:
            raise UsageError(
                f"{files[0]} is a sweep file, which takes no other instances beside it: "
                "put them into it"
            )
        document = read_sweep(files[0])
        sources = _sources(document.instances, Path(files[0]).parent)
        # Later entries override: the command line replaces the file
        given = {**options_of(document), **given}
    else:
        sources = _sources(swept.set, None)
    own = {source.formulation for source in sources if not source.program}
    # A formulation can have its own options (-O NAME:KEY=VALUE)
    kept = given.pop("formulations", [(own.pop() if len(own) == 1 else OWN, {})])
    entries = swept.formulations or kept
    seeds = given.pop("seeds", None)
    if seeds is not None:
        given["seeds"] = seeds_of(seeds, 0, "seeds")
    # A program has its objective already: options of formulations would be ignored
    if sources and all(source.program for source in sources):
        needs_formulation = {
            "-f": swept.formulations,
            "-O": swept.option,
            "-C": swept.constraints,
        }
        wrong = [option for option, value in needs_formulation.items() if value]
        if wrong:
            raise UsageError(
                f"{', '.join(wrong)}: the set has programs alone, which no formulation makes"
            )
    return Benchmark(sources, formulations=_with_options(entries, swept.option or ()), **given)


def _sources(given: Sequence[Any], folder: Path | None) -> list[ProblemSource]:
    from optsched.benchmarking.sources import from_names, generated

    found: dict[str, ProblemSource] = {}
    for item in given:
        if not isinstance(item, str):
            made = generated(item.generate, item.options, item.seeds)
        elif item.startswith(GENERATE):
            name, options = values.named(item.removeprefix(GENERATE), "generate")
            seeds = options.pop("seeds", None)
            made = generated(name, options, seeds)
        else:
            made = from_names([item], folder)
        for source in made:
            # A pattern and a name may both find the same instance
            found.setdefault(source.name, source)
    return list(found.values())


def _with_options(
    entries: Sequence[tuple[str, Any]], texts: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """The formulations with the options of -O; options of -f override them."""
    from optsched.benchmarking.sweep import OWN

    made = []
    for name, own in entries:
        given: dict[str, Any] = {}
        for text in texts:
            owner, colon, rest = text.partition(":")
            # `a:b=c` names its formulation; in `key=a:b` the colon belongs to the value
            one = bool(colon) and "=" not in owner
            if one and owner.strip() not in [other for other, _ in entries]:
                known = ", ".join(dict.fromkeys(other for other, _ in entries if other != OWN))
                known = known or "those that -f names"
                raise UsageError(
                    f"-O {owner.strip()}: it is not in the sweep, expected one of {known}"
                )
            if not one or owner.strip() == name:
                given |= values.pairs([rest if one else text], "-O")
        made.append((name, {**given, **own}))
    return made
