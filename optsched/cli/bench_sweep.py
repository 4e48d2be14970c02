"""What ``optsched bench`` solves: the options that say it, together with a sweep file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import PROBLEM, SOLVER
from optsched.errors import UsageError

if TYPE_CHECKING:
    from optsched.benchmarking.sources import Source
    from optsched.benchmarking.sweep import Benchmark

GENERATE = "generate:"


@dataclass(frozen=True)
class Swept:
    """What is to be solved."""

    set: Annotated[
        list[str],
        typer.Argument(
            metavar="SET...",
            help="Instances and programs: files, folders, patterns, @names, generate:NAME:KEY=VALUE,... (seeds=1..5), "
            "or one sweep file (.toml).",
        ),
    ]
    formulation: Annotated[
        list[str] | None,
        typer.Option(
            "--formulation", "-f", metavar="NAME[:KEY=VALUE,...]", rich_help_panel=PROBLEM, show_default=False,
            help="Can be repeated, also with other options.  [default: max-min-fairness]",
        ),
    ] = None  # fmt: skip
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-O", metavar="[NAME:]KEY=VALUE", rich_help_panel=PROBLEM,
            help="Option of the formulation NAME, or of all. Can be repeated.",
        ),
    ] = None  # fmt: skip
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint", "-C", metavar="KIND[:KEY=VALUE,...]", rich_help_panel=PROBLEM,
            help="Side constraint of all, beside those of the instances. Can be repeated.",
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True)
class Contest:
    """With what, how often, and how long."""

    solver: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", rich_help_panel=SOLVER, show_default=False,
            help="See `optsched solvers`. Can be repeated.  [default: auto]",
        ),
    ] = None  # fmt: skip
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="N", rich_help_panel=SOLVER, show_default=False,
            help="Seeds of the solvers: N of them from 0 on, a span such as 3..7, or a list.  [default: 1]",
        ),
    ] = None  # fmt: skip
    repeat: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=SOLVER,
            help="Do each N times, for the times.  [default: 1]",
        ),
    ] = None
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=SOLVER,
            help="Of each task, reading included: 90s, 5m, 2h.",
        ),
    ] = None
    memory_limit: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", rich_help_panel=SOLVER, help="In use by each task: 500MB, 4GB (Linux)."
        ),
    ] = None
    work_limit: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=SOLVER,
            help="Stop after N iterations, nodes, or conflicts.",
        ),
    ] = None
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="G",
            help="Relative gap at which an integer program may stop.",
            rich_help_panel=SOLVER,
        ),
    ] = None
    threads: Annotated[
        str | None,
        typer.Option(metavar="N", help="Of the solvers.  [default: 1]", rich_help_panel=SOLVER),
    ] = None
    solver_option: Annotated[
        list[str] | None,
        typer.Option(
            "--solver-option", metavar="KEY=VALUE", rich_help_panel=SOLVER,
            help="Option in the solver's own name. Can be repeated.",
        ),
    ] = None  # fmt: skip


def benchmark_of(swept: Swept, contest: Contest) -> Benchmark:
    """What the command line and a sweep file say together; the command line wins."""
    given = _given(swept, contest)
    from optsched.benchmarking.sources import seeds_of
    from optsched.benchmarking.sweep import DEFAULT, Benchmark
    from optsched.cli.sweep_file import is_sweep_file, options_of, read_sweep

    files = [name for name in swept.set if is_sweep_file(name)]
    if files:
        if len(swept.set) > 1:
            raise UsageError(
                f"{files[0]} is a sweep file, which stands alone: put other instances into it"
            )
        document = read_sweep(files[0])
        sources = _sources(document.instances, Path(files[0]).parent)
        given = {**options_of(document), "seeds": document.seeds, **given}
    else:
        sources = _sources(swept.set, None)
    entries = [values.named(text, "-f") for text in swept.formulation or ()]
    entries = entries or given.pop("formulations", [(DEFAULT, {})])
    given.pop("formulations", None)
    seeds = given.pop("seeds", None)
    if seeds is not None:
        given["seeds"] = seeds_of(seeds, 0, "seeds")
    if sources and all(source.program for source in sources):
        wrong = [option for option, value in (("-f", swept.formulation), ("-O", swept.option), ("-C", swept.constraint))
                 if value]  # fmt: skip
        if wrong:
            raise UsageError(
                f"{', '.join(wrong)}: the set has programs alone, which no formulation makes"
            )
    return Benchmark(sources, formulations=_with_options(entries, swept.option or ()), **given)


def _given(swept: Swept, contest: Contest) -> dict[str, Any]:
    """What the command line says, without what it does not."""
    found = {
        "constraints": [values.constraint(text) for text in swept.constraint or ()] or None,
        "solvers": contest.solver,
        "seeds": None if contest.seeds is None else values.value(contest.seeds),
        "repeat": values.whole(contest.repeat, "--repeat"),
        "threads": values.whole(contest.threads, "--threads"),
        "time_limit": values.duration(contest.time_limit, "--time-limit"),
        "memory_limit": values.size(contest.memory_limit, "--memory-limit"),
        "work_limit": values.whole(contest.work_limit, "--work-limit"),
        "gap": values.real(contest.gap, "--gap"),
        "solver_options": values.pairs(contest.solver_option or (), "--solver-option") or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _sources(given: Sequence[Any], folder: Path | None) -> list[Source]:
    from optsched.benchmarking.sources import from_names, generated

    found: dict[str, Source] = {}
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
            found.setdefault(source.name, source)
    return list(found.values())


def _with_options(
    entries: Sequence[tuple[str, Any]], texts: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """The formulations with the options of -O; those of -f win."""
    made = []
    for name, own in entries:
        given: dict[str, Any] = {}
        for text in texts:
            owner, colon, rest = text.partition(":")
            one = bool(colon) and "=" not in owner
            if one and owner.strip() not in [other for other, _ in entries]:
                known = ", ".join(dict.fromkeys(other for other, _ in entries))
                raise UsageError(
                    f"-O {owner.strip()}: it is not in the sweep, expected one of {known}"
                )
            if not one or owner.strip() == name:
                given |= values.pairs([rest if one else text], "-O")
        made.append((name, {**given, **own}))
    return made
