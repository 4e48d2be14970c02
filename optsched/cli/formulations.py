"""``optsched formulations``:
the catalogue with side constraints and rankings, and the mathematics of one entry.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from operator import itemgetter
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from optsched.cli.command import Argument
from optsched.cli.options import Json
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from rich.console import RenderableType

# A line of a docstring was wrapped if it is at least this long including the next word.
WRAPPED = 112
SECOND_COLUMN = re.compile(r" +\S{1,12}(?: \S{1,12})?  +(?=\S)")


def formulations(
    shell: Shell,
    name: Annotated[
        str | None,
        Argument("NAME", "A formulation, side constraint or ranking: its mathematics and options."),
    ] = None,
    as_json: Json = False,
) -> int:
    """List the formulations, side constraints and rankings, or show one in full.

    Examples:
        optsched formulations
        optsched formulations makespan
        optsched formulations deadlines
        optsched formulations srtf
    """
    from optsched.registry import KINDS, kinds_of, load, names

    if name is not None:
        kind = kinds_of(name, tuple(KINDS), "formulation")[0]
        document = described(load(kind, name))
        shell.answer(as_json, lambda: document, _one(document))
        return 0
    catalogue = {}
    for kind in KINDS:
        # Aliases once
        owners = {load(kind, item) for item in names(kind)}
        catalogue[f"{kind}s"] = sorted(
            (described(owner) for owner in owners), key=itemgetter("name")
        )
    shell.answer(as_json, lambda: catalogue, _catalogue(**catalogue))
    return 0


def described(owner: Any) -> dict[str, Any]:
    """A formulation, side constraint or ranking as plain data."""
    from optsched.formulation import SideConstraint
    from optsched.formulation.options import own_options, shared_options
    from optsched.ranking import Ranking

    kind = "formulation"
    if issubclass(owner, SideConstraint):
        kind = "constraint"
    elif issubclass(owner, Ranking):
        kind = "ranking"
    document = {"name": owner.kind if kind == "constraint" else owner.name, "kind": kind}
    if kind == "formulation":
        document |= {"sense": owner.sense, "objective": owner.objective_words}
    if kind != "constraint":
        document["aliases"] = list(owner.aliases)
    if kind == "formulation":
        document["accepts"] = sorted(owner.accepts)
    text = inspect.cleandoc(owner.__doc__ or "")
    document["summary"] = text.partition("\n")[0]
    if kind != "ranking":
        document["reads"] = sorted(owner.reads)
    return document | {
        "module": owner.__module__,
        "options": _options(own_options(owner)),
        "shared_options": _options(shared_options(owner)),
        "text": text,
    }


def _options(fields: Mapping[str, FieldInfo]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "type": _type_name(field.annotation),
            "default": None
            if field.is_required()
            else field.get_default(call_default_factory=True),
            "required": field.is_required(),
            "description": field.description or "",
        }
        for name, field in fields.items()
    ]


def _type_name(annotation: Any) -> str:
    """``true | false | literal``, ``number``, ``list of text``:
    a type as it is typed on the command line.
    """
    origin = get_origin(annotation)
    arguments = get_args(annotation)
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
    known = {
        bool: "true | false",
        int: "whole number",
        float: "number",
        str: "text",
        type(None): "null",
    }
    return known.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _catalogue(
    formulations: list[dict[str, Any]],
    constraints: list[dict[str, Any]],
    rankings: list[dict[str, Any]],
) -> Iterator[RenderableType]:
    from optsched.cli.tables import table

    rows = [
        [item["name"], item["sense"], item["objective"], ", ".join(item["reads"]) or "nothing"]
        for item in formulations
    ]
    yield table(
        "name",
        "sense",
        "objective",
        "reads of each job",
        rows=rows,
        left=4,
        title="Formulations (-f NAME)",
    )
    yield from _other_names(formulations)
    yield ""
    title = "Side constraints (-C KIND:KEY=VALUE,...)"
    yield table(
        "kind", "what it asks for", "options", rows=_summaries(constraints), left=3, title=title
    )
    yield ""
    title = (
        "Rankings: an order of the jobs for rounds, no program (simulate -p NAME, "
        "round --ranking NAME)"
    )
    yield table(
        "name", "which job goes first", "options", rows=_summaries(rankings), left=3, title=title
    )
    yield from _other_names(rankings)
    yield ""
    yield "optsched formulations NAME shows the mathematics and the options of one."


def _summaries(found: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            item["name"],
            item["summary"],
            ", ".join(option["name"] for option in item["options"]) or "none",
        ]
        for item in found
    ]


def _other_names(found: list[dict[str, Any]]) -> Iterator[str]:
    also = sorted(f"{alias} = {item['name']}" for item in found for alias in item["aliases"])
    if also:
        yield f"Other names: {', '.join(also)}"


def _one(document: dict[str, Any]) -> Iterator[RenderableType]:
    from optsched.cli.tables import facts, heading, table

    kind = document["kind"]
    name = document["name"]
    yield heading(f"{name}, a {'side constraint' if kind == 'constraint' else kind}")
    yield ""
    lines = []
    if kind == "formulation":
        lines += [
            ("objective", f"{document['sense']}  {document['objective']}"),
            ("reads", ", ".join(document["reads"]) or "nothing"),
        ]
    if kind != "constraint":
        yield facts(
            [
                *lines,
                ("aliases", ", ".join(document["aliases"]) or "none"),
                ("code", document["module"]),
            ]
        )
        yield ""
    yield from mathematics(document["text"])
    if document["options"]:
        from optsched.cli.solution_view import plain

        rows = [
            [
                option["name"],
                option["type"],
                "required" if option["required"] else plain(option["default"]),
            ]
            for option in document["options"]
        ]
        flag = {
            "formulation": "-O KEY=VALUE",
            "constraint": f"-C {name}:KEY=VALUE",
            "ranking": f"simulate -p {name}:KEY=VALUE, round --ranking {name} -O KEY=VALUE",
        }[kind]
        yield table("option", "values", "default", rows=rows, left=3, title=f"Options ({flag})")
    if document["shared_options"]:
        yield ""
        yield (
            "Options that formulations share (-O KEY=VALUE); one that cannot use them refuses them:"
        )
        for option in document["shared_options"]:
            yield f"  {option['name']}  {option['description']}"


def mathematics(text: str) -> Iterator[RenderableType]:
    """A docstring at the width of the terminal;
    long lines are continued under their second column.
    """
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
        wrapped = textwrap.fill(
            line.replace("``", ""), terminal_width(), subsequent_indent=more, break_on_hyphens=False
        )
        yield Text(wrapped)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
