"""``optsched generate``: one command per generator, its options read off the generator's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli.command import Group, Option, derived_command, flag_of, keyword
from optsched.cli.export import document_kind, write_instance
from optsched.cli.options import OUTPUT, DocumentOutput
from optsched.cli.progress import progress
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from optsched.generate.generator import Generator

EXAMPLES = {
    "cluster": """
        optsched generate cluster --jobs 200 --pools 3 --load 2 -o cluster.json
        optsched generate cluster --jobs 500 --topology racks --unavailable 0.1 -o racks.yaml -q
        optsched generate cluster --rows repeated --kinds 50 --elastic 0.2 --gangs 0.2,0.2,0 -o - | optsched solve -
    """,
    "unrelated": """
        optsched generate unrelated --jobs 50 --machines 5 --correlation jobs --seed 7 -o unrelated.json
    """,
    "gap": """
        optsched generate gap --type d --jobs 20 --agents 5 -o gap.json
    """,
    "knapsack": """
        optsched generate knapsack --jobs 30 --resources 5 --tightness 0.25 --choices 3 -o knapsack.json
    """,
    "leases": """
        optsched generate leases --jobs 40 --nodes 4 --tightness 1.5 -o leases.json
    """,
    "trace": """
        optsched generate trace --jobs 500 --load 0.9 -o trace.json
        optsched generate trace --jobs 2000 --pools 3 --arrivals diurnal --durations gavel --deadlines 0.3 -o day.json
        optsched generate trace --rate 30 --durations pareto --tenants 5 -o - | optsched trace describe -
    """,
}
METAVARS = {"boolean": "true|false", "integer": "N", "number": "X", "string": "TEXT"}
GENERATED = "Instance"


def _commands() -> dict[str, Callable[..., int]]:
    """The command of each generator."""
    from optsched.generate.catalogue import GENERATORS

    return {name: _command(generator, EXAMPLES[name]) for name, generator in GENERATORS.items()}


GENERATED_BY = Group("Make an instance with a seeded generator.", _commands)


def _command(generator: Generator, examples: str) -> Callable[..., int]:
    """A function whose parameters are the generator's options."""

    def run(shell: Shell, output: str, **given: str | None) -> int:
        kind = document_kind(output)
        with progress(shell, "generating"):
            made = generator(
                {name: text for name, text in given.items() if text is not None}, named=flag_of
            )
        write_instance(shell, made.instance, output, kind)
        if not shell.quiet:
            # Notes on an instance, such as its optimum, may need a solver
            with progress(shell, "solving"):
                notes = made.notes()
            for note in notes:
                shell.complain(note)
        return 0

    return derived_command(run, generator.words, examples, _parameters(generator))


def _parameters(generator: Generator) -> list[inspect.Parameter]:
    """The options of the generator, then seed, output and name."""
    declared: dict[str, inspect.Parameter] = {}
    fields = generator.options.model_fields
    for name, schema in generator.options.model_json_schema()["properties"].items():
        # The generator parses the texts, so that errors are those of the library
        option = Option(
            f"{schema['description']} {_limits(schema, fields[name].default)}".rstrip(),
            _metavar(schema),
            section=OUTPUT if name == "name" else GENERATED,
        )
        declared[name] = keyword(name, Annotated[str | None, option], None)
    declared["output"] = keyword("output", DocumentOutput)
    # In the help, options of the generator come first, these three last
    for name in ("seed", "output", "name"):
        declared[name] = declared.pop(name)
    return list(declared.values())


def _metavar(schema: dict[str, Any]) -> str:
    if "metavar" in schema:
        return str(schema["metavar"])
    return "|".join(schema["enum"]) if "enum" in schema else METAVARS[schema.get("type", "string")]


def _limits(schema: dict[str, Any], default: Any) -> str:
    """Range and default, such as ``[1 to 16; default: 4]``."""
    parts = []
    if "minimum" in schema and "maximum" in schema:
        parts.append(f"{_number(schema['minimum'])} to {_number(schema['maximum'])}")
    elif "exclusiveMinimum" in schema and "maximum" in schema:
        parts.append(
            f"above {_number(schema['exclusiveMinimum'])}, to {_number(schema['maximum'])}"
        )
    if default is not None:
        shown = ",".join(map(_number, default)) if isinstance(default, tuple) else _number(default)
        parts.append(f"default: {shown}")
    return f"[{'; '.join(parts)}]" if parts else ""


def _number(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return f"{int(value):,}" if whole or isinstance(value, int) else str(value)
