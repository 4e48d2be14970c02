"""``optsched formulations``: the catalogue, and the mathematics of one of its entries."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer

from optsched.cli.options import Json
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from rich.console import RenderableType

WRAPPED = 112
"""A line of a docstring that is at least so long with the next word was wrapped there."""
SECOND_COLUMN = re.compile(r" +\S{1,12}(?: \S{1,12})?  +(?=\S)")

EXAMPLES = """
    optsched formulations
    optsched formulations makespan
    optsched formulations deadlines
"""


def formulations(
    shell: Shell,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A formulation or side constraint: its mathematics and options."),
    ] = None,
    as_json: Json = False,
) -> int:
    """List the formulations and side constraints, or show one in full."""
    from optsched.registry import catalogue, load_constraint, load_formulation, names

    if name is not None:
        side = name in catalogue("constraint") and name not in catalogue("formulation")
        owner = load_constraint(name) if side else load_formulation(name)
        document = described(owner)
        if as_json:
            shell.document(document)
        else:
            shell.print(*_one(document))
        return 0
    owners = {load_formulation(item).name: load_formulation(item) for item in names("formulation")}  # aliases once
    found = [described(owners[item]) for item in sorted(owners)]
    constraints = [described(load_constraint(item)) for item in names("constraint")]
    if as_json:
        shell.document({"formulations": found, "constraints": constraints})
    else:
        shell.print(*_catalogue(found, constraints))
    return 0


def described(owner: Any) -> dict[str, Any]:
    """A formulation or side constraint as plain data."""
    from optsched.formulation_options import own_options

    text = inspect.cleandoc(owner.__doc__ or "")
    common = {"summary": text.splitlines()[0] if text else "", "reads": sorted(owner.reads)}
    options = [
        {
            "name": name,
            "type": _type_name(field.annotation),
            "default": None if field.is_required() else field.get_default(call_default_factory=True),
            "required": field.is_required(),
            "description": field.description or "",
        }
        for name, field in own_options(owner).items()
    ]
    rest = {"module": owner.__module__, "options": options, "text": text}
    if not hasattr(owner, "sense"):
        return {"name": owner.kind, "kind": "constraint", **common, **rest}
    words = {"sense": owner.sense, "objective": owner.objective_words, "aliases": list(owner.aliases)}
    return {"name": owner.name, "kind": "formulation", **words, "accepts": sorted(owner.accepts), **common, **rest}


def _type_name(annotation: Any) -> str:
    """``true | false | literal``, ``number``, ``list of text``: a type as it is typed on the command line."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_name(arguments[0])
    if origin is Literal:
        return " | ".join(str(argument) for argument in arguments)
    if origin in (Union, UnionType):
        return " | ".join(_type_name(argument) for argument in arguments)
    if origin in (list, tuple, set, frozenset):
        return f"list of {_type_name(arguments[0])}"
    if origin is dict:
        return f"object of {_type_name(arguments[1])}"
    known = {bool: "true | false", int: "whole number", float: "number", str: "text", type(None): "null"}
    return known.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _catalogue(found: list[dict[str, Any]], constraints: list[dict[str, Any]]) -> Iterator[RenderableType]:
    from optsched.cli.tables import table

    rows = [[item["name"], item["sense"], item["objective"], ", ".join(item["reads"]) or "nothing"] for item in found]
    yield table("name", "sense", "objective", "reads of each job", rows=rows, left=4, title="Formulations (-f NAME)")
    also = [f"{alias} = {item['name']}" for item in found for alias in item["aliases"]]
    if also:
        yield f"Other names: {', '.join(sorted(also))}"
    yield ""
    rows = [
        [item["name"], item["summary"], ", ".join(option["name"] for option in item["options"]) or "none"]
        for item in constraints
    ]
    title = "Side constraints (-C KIND:KEY=VALUE,...)"
    yield table("kind", "what it asks for", "options", rows=rows, left=3, title=title)
    yield ""
    yield "optsched formulations NAME shows the mathematics and the options of one."


def _one(document: dict[str, Any]) -> Iterator[RenderableType]:
    from optsched.cli.tables import facts, heading, table

    yield heading(f"{document['name']}, a {'side constraint' if document['kind'] == 'constraint' else 'formulation'}")
    yield ""
    if document["kind"] == "formulation":
        yield facts(
            [
                ("objective", f"{document['sense']}  {document['objective']}"),
                ("reads", ", ".join(document["reads"]) or "nothing"),
                ("aliases", ", ".join(document["aliases"]) or "none"),
                ("code", document["module"]),
            ]
        )
        yield ""
    yield from mathematics(document["text"])
    if document["options"]:
        from optsched.cli.solution_view import plain

        rows = [
            [option["name"], option["type"], "required" if option["required"] else plain(option["default"])]
            for option in document["options"]
        ]
        flag = "-O KEY=VALUE" if document["kind"] == "formulation" else f"-C {document['name']}:KEY=VALUE"
        yield table("option", "values", "default", rows=rows, left=3, title=f"Options ({flag})")


def mathematics(text: str) -> Iterator[RenderableType]:
    """A docstring at the width of the terminal; a line that is too long is continued under its second column."""
    import textwrap

    from rich.text import Text

    from optsched.cli.shell import terminal_width

    lines: list[str] = []
    before = ""
    for line in text.splitlines():
        words = line.split()
        if words and len(before) + 1 + len(words[0]) > WRAPPED and _indent(line) >= _indent(before):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
        before = line
    for line in lines:
        column = SECOND_COLUMN.match(line)
        more = " " * (len(column[0]) if column else _indent(line))
        told = textwrap.fill(line.replace("``", ""), terminal_width(), subsequent_indent=more, break_on_hyphens=False)
        yield Text(told)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
