"""``optsched compare``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import (
    OUTPUT,
    PROBLEM,
    InstanceFile,
    Json,
    ModelFile,
    Search,
    check_inputs,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target
from optsched.cli.solve import exit_code
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from optsched.study.comparison import Comparison, ComparisonRow, Entry

EXAMPLES = """
    optsched compare @quickstart
    optsched compare @quickstart -f makespan -f max-min-fairness -f isolated
    optsched compare @quickstart -f alpha-fairness:alpha=0.5 -f alpha-fairness:alpha=4
    optsched compare cluster.json --time-limit 30s -O max-throughput:integral=true --json
"""


@dataclass(frozen=True)
class Comparing:
    """What is to be compared."""

    instance: InstanceFile
    formulation: Annotated[
        list[str] | None,
        typer.Option(
            "--formulation", "-f", metavar="NAME[:KEY=VALUE,...]", rich_help_panel=PROBLEM, show_default=False,
            help="Can be repeated, also with other options. Default: all that take the instance.",
        ),
    ] = None  # fmt: skip
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-O", metavar="NAME:KEY=VALUE", rich_help_panel=PROBLEM,
            help="Option of the formulation NAME, wherever it is compared. Can be repeated.",
        ),
    ] = None  # fmt: skip
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint", "-C", metavar="KIND[:KEY=VALUE,...]", rich_help_panel=PROBLEM,
            help="Side constraint of all, beside those of the instance. Can be repeated.",
        ),
    ] = None  # fmt: skip
    model: ModelFile = None

    @property
    def entries(self) -> list[tuple[str, dict[str, Any]]] | None:
        """The formulations of -f with their options; None for all."""
        return (
            None
            if self.formulation is None
            else [values.named(text, "-f") for text in self.formulation]
        )

    @property
    def options(self) -> list[tuple[str, dict[str, Any]]]:
        """What -O gives, formulation by formulation."""
        found = [values.named(text, "-O") for text in self.option or ()]
        for text, (_, options) in zip(self.option or (), found, strict=True):
            if not options:
                raise InvalidArgument("-O", repr(text), "name:key=value")
        return found

    @property
    def constraints(self) -> list[dict[str, Any]]:
        """What -C gives."""
        return [values.constraint(text) for text in self.constraint or ()]


def compare(
    shell: Shell,
    problem: Comparing,
    search: Search,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the comparison.", rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Solve an instance with many formulations, and measure all answers alike.

    The limits hold for each formulation by itself. One that refuses the instance is a row that says why.

    Exit codes: 0 at least one formulation solved it, else the code of the first that did not (see `optsched solve`).
    """
    check_target(output)
    check_inputs(instance=problem.instance, model=problem.model)
    entries, options, constraints, limits = (
        problem.entries,
        problem.options,
        problem.constraints,
        search.limits,
    )
    from optsched.study import comparison

    with progress(shell, "comparing") as on_progress:
        found = comparison.compare(
            problem.instance,
            _with_options(entries, options),
            constraints=constraints,
            performance=problem.model,
            on_progress=on_progress,
            **limits,
        )
    document = found.to_document()
    if output is not None and output != "-":
        from optsched.api import write_atomically
        from optsched.instance.files import pretty_json

        write_atomically(output, pretty_json(document).encode())
    if as_json or output == "-":
        shell.document(document)
    elif not shell.quiet:
        from optsched.cli.comparison_view import comparison_view

        shell.print(*comparison_view(found))
        shell.note(
            note for row in found.rows if row.solution is not None for note in row.solution.notes
        )
        if output is not None:
            shell.tell("")
            shell.tell(f"comparison written to {output}")
    return _exit_code(found)


def _with_options(
    entries: list[tuple[str, dict[str, Any]]] | None, options: list[tuple[str, dict[str, Any]]]
) -> list[Entry] | None:
    """The entries with the options of -O; those of -f win."""
    if not options:
        return None if entries is None else list(entries)
    if entries is None:
        from optsched.instance import FORMAT
        from optsched.study.comparison import accepting

        entries = [(name, {}) for name in accepting(FORMAT)]
    given: dict[str, dict[str, Any]] = {}
    for name, pairs in options:
        if name not in [other for other, _ in entries]:
            compared = ", ".join(dict.fromkeys(other for other, _ in entries))
            raise UsageError(f"-O {name}: {name} is not compared, expected one of {compared}")
        for key, value in pairs.items():
            if key in given.setdefault(name, {}):
                raise UsageError(f"-O {name}: {key} is given twice")
            given[name][key] = value
    return [(name, {**given.get(name, {}), **own}) for name, own in entries]


def _exit_code(found: Comparison) -> int:
    codes = [_code(row) for row in found.rows]
    return 0 if 0 in codes else codes[0]


def _code(row: ComparisonRow) -> int:
    if row.error is not None:
        return row.error.exit_code
    assert row.solution is not None
    return exit_code(row.solution)
