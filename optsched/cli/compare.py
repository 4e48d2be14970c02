"""``optsched compare``: one instance with many formulations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from optsched.cli import values
from optsched.cli.options import (
    PROBLEM,
    InstanceFile,
    Json,
    ManyOptions,
    ModelFile,
    Search,
    constraints_option,
    exit_code,
    formulations_option,
    output_option,
    settings_option,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, write_document, written_to
from optsched.cli.values import Constraints, JsonTarget, Kind, NamedList
from optsched.errors import InvalidArgument, UsageError, given_twice

if TYPE_CHECKING:
    from optsched.study.comparison import ComparisonRow, Entry


def _options_by_formulation(texts: Sequence[str], option: str) -> dict[str, dict[str, Any]]:
    """Options of texts such as ``makespan:key=value``, by formulation."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, options = values.named(text, option)
        if not options:
            raise InvalidArgument(option, repr(text), "name:key=value")
        of_name = found.setdefault(name, {})
        for key, value in options.items():
            if key in of_name:
                raise given_twice(f"{option} {name}", key)
            of_name[key] = value
    return found


OptionsByFormulation = Annotated[
    dict[str, dict[str, Any]], Kind(_options_by_formulation, "NAME:KEY=VALUE", many=True)
]


@dataclass(frozen=True)
class Comparing:
    """What is to be compared."""

    section: ClassVar = PROBLEM

    instance: InstanceFile
    formulations: Annotated[
        NamedList | None,
        formulations_option(
            "Can be repeated, also with other options. Default: "
            "all formulations that accept the instance."
        ),
    ] = None
    options: Annotated[
        OptionsByFormulation,
        settings_option("Option of the formulation NAME. Can be repeated."),
    ] = field(default_factory=dict)
    constraints: Annotated[
        Constraints,
        constraints_option(
            "Side constraint of all formulations, in addition to those of the instance. "
            "Can be repeated."
        ),
    ] = field(default_factory=list)
    model: ModelFile = None

    @property
    def entries(self) -> list[Entry] | None:
        """The formulations with their options (-f overrides -O); None for all."""
        entries = self.formulations
        if not self.options:
            return None if entries is None else list(entries)
        # An option names a formulation, so the list of all must be known
        if entries is None:
            from optsched.instance import FORMAT
            from optsched.study.comparison import accepting

            entries = [(name, {}) for name in accepting(FORMAT)]
        compared = list(dict.fromkeys(name for name, _ in entries))
        for name in self.options:
            if name not in compared:
                raise UsageError(
                    f"-O {name}: {name} is not compared, expected one of {', '.join(compared)}"
                )
        return [(name, {**self.options.get(name, {}), **own}) for name, own in entries]


def compare(
    shell: Shell,
    problem: Comparing,
    search: Search,
    running: ManyOptions,
    output: Annotated[JsonTarget | None, output_option("Write the comparison.")] = None,
    as_json: Json = False,
) -> int:
    """Solve an instance with many formulations, and compare the answers by the same measures.

    The limits hold for each formulation separately. A formulation that refuses the instance is a
    row with the reason.

    Exit codes: 0 at least one formulation solved it, else the code of the first that did not (see
    `optsched solve`).

    Examples:
        optsched compare @quickstart
        optsched compare @quickstart -f makespan -f max-min-fairness -f isolated
        optsched compare @quickstart -f alpha-fairness:alpha=0.5 -f alpha-fairness:alpha=4
        optsched compare @large -f makespan -f max-min-fairness --jobs 2
        optsched compare cluster.json --time-limit 30s -O max-throughput:integral=true --json
    """
    from optsched.cli.comparison_view import comparison_view
    from optsched.study import comparison

    with progress(shell, "comparing") as on_progress:
        found = comparison.compare(
            problem.instance,
            problem.entries,
            constraints=problem.constraints,
            performance=problem.model,
            processes=running.jobs,
            executor=running.executor,
            on_progress=on_progress,
            **search.limits,
        )
    write_document(found.to_document, output)
    solutions = [row.solution for row in found.rows if row.solution is not None]
    shell.answer(
        as_json or output == "-",
        found.to_document,
        comparison_view(found),
        notes=(note for solution in solutions for note in solution.notes),
        written=written_to(comparison=output),
    )
    # A comparison needs at least one formulation that accepts the instance
    codes = [_code(row) for row in found.rows]
    return 0 if 0 in codes else codes[0]


def _code(row: ComparisonRow) -> int:
    if row.error is not None:
        return row.error.exit_code
    assert row.solution is not None
    return exit_code(row.solution)
