"""The page: a table of all entries, then each with its mathematics, options, commands and picture."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from formulation_gallery.docstrings import Docstring, markdown, parse
from formulation_gallery.figures import HINTS, Hint, Shown, show_constraint, show_formulation
from optsched.cli.formulations import described
from optsched.registry import load_constraint, load_formulation, names

PAGE = "reference/formulations.md"
PICTURES = "pictures/formulations"
HEAD = """# Formulations

<!-- Made by `make docs` from the docstrings and options of the catalogue: change those, not this page. -->

Every formulation and side constraint with its mathematics, options, commands and an answer on an instance that ships;
`optsched formulations NAME` shows the same. [Which objective?](../concepts/objectives.md) helps to choose.
[Words](../concepts/words.md) explains job, class and column. *Reads*: the fields of jobs that matter; jobs that agree
in them are one class. The [side constraints](constraints.md) come last.

With `-O quantile=0.9`, deadlines (the side constraint, `deadline-elastic`, `deadline-fluid`, `lease`) use the
throughput that is reached with a probability of 90 % by the performance model; objectives use the median.

With `-O parts=8`, jobs are dealt out at random to 8 parts, each with an eighth of every capacity, which are solved one
by one, or with `--jobs N` N at a time, and put together (POP; `-O parts_seed=1` draws others). That is for a smallest
level or a total over fractions of time, to compare with: the optimum of the whole is between objective and bound, and
[the exact method is nearly always faster](../studies/parts.md). Whole jobs, schedules and rules have no parts, nor have
`throughput-per-cost` (a ratio), `water-filling` and `drf` (levels rise stage by stage), and side constraints that ask
for something of several jobs together.
"""
SENSES = {"max": "maximised", "min": "minimised", "rule": "reported"}


@dataclass(frozen=True)
class Entry:
    """One entry of a catalogue: its description as plain data, and how it is shown.

    Attributes
    ----------
    document : mapping
        As `optsched formulations NAME --json` writes it.
    shown : Shown or None
    """

    document: Mapping[str, Any]
    shown: Shown | None

    @property
    def name(self) -> str:
        """Its name in the catalogue."""
        return str(self.document["name"])

    @property
    def is_formulation(self) -> bool:
        """Whether it is no side constraint."""
        return bool(self.document["kind"] == "formulation")

    @property
    def picture(self) -> str | None:
        """Path of its picture in the folder of the documentation, None without one."""
        return (
            f"{PICTURES}/{self.name}.png"
            if self.shown is not None and self.shown.solutions
            else None
        )

    @cached_property
    def docstring(self) -> Docstring:
        """Its docstring, taken apart."""
        return parse(self.document["text"])

    @property
    def commands(self) -> list[str]:
        """Commands that work."""
        if self.shown is None:
            return [f"optsched formulations {self.name}"]
        solve = f"optsched solve @{self.shown.instance} -f {self.shown.formulation}"
        if self.shown.constraint is not None:
            placed = " --rounds auto --place" if self.shown.placed else ""
            return [f"{solve} -C {shlex.quote(constraint_text(self.shown.constraint))}{placed}"]
        return [solve, *(f"{solve} {more}" for more in HINTS.get(self.name, Hint()).more)]


def constraint_text(constraint: Mapping[str, Any]) -> str:
    """A side constraint as it is typed: ``kind:key=value,key=value``."""
    options = [
        f"{key}={value if isinstance(value, str) else json.dumps(value)}"
        for key, value in constraint.items()
        if key != "kind"
    ]
    return str(constraint["kind"]) + (f":{','.join(options)}" if options else "")


def catalogue() -> list[Entry]:
    """All formulations, then all side constraints, each once and by name."""
    found = {owner.name: owner for owner in map(load_formulation, names("formulation"))}
    entries = [Entry(described(found[name]), show_formulation(name)) for name in sorted(found)]
    kinds = {owner.kind: owner for owner in map(load_constraint, names("constraint"))}
    return entries + [
        Entry(described(kinds[kind]), show_constraint(kind, kinds[kind].of_placement))
        for kind in sorted(kinds)
    ]


def page(entries: Sequence[Entry]) -> str:
    """The whole page."""
    formulations = [entry for entry in entries if entry.is_formulation]
    constraints = [entry for entry in entries if not entry.is_formulation]
    links = {entry.document["module"]: entry.name for entry in reversed(entries)}
    rows = [(_link(entry), entry.docstring.summary) for entry in formulations]
    parts = [
        HEAD,
        _table(("formulation", "what it does"), rows),
        *(_section(entry, links) for entry in formulations),
        *(_section(entry, links) for entry in constraints),
    ]
    return "\n".join(parts)


def _section(entry: Entry, links: Mapping[str, str]) -> str:
    lines = [
        f"## {entry.name}",
        "",
        entry.docstring.summary,
        "",
        *_picture(entry),
        *_facts(entry),
        "",
    ]
    for piece in entry.docstring.pieces:
        formula = re.sub(
            r"`formulations\.([\w.]+)`", lambda match: _named(match[1], links), piece.text
        )
        lines += ["```formula", formula, "```", ""] if piece.kind == "formula" else [piece.text, ""]
    lines += _options(entry)
    if entry.docstring.references:
        lines += [f"*Source.* {entry.docstring.references}", ""]
    lines += ["```sh", *entry.commands, "```", ""]
    text = "\n".join(lines)
    return re.sub(
        r"`(formulations\.[\w.]+)`", lambda match: _linked(match[1], links, entry.name), text
    )


def _named(module: str, links: Mapping[str, str]) -> str:
    """A module of the catalogue inside a formula, where a link would not be one."""
    return links.get(f"formulations.{module}", f"formulations.{module}")


def _linked(module: str, links: Mapping[str, str], here: str) -> str:
    """A module of the catalogue as a link to its section."""
    name = links.get(module)
    return f"`{module}`" if name in (None, here) else f"[`{name}`](#{name})"


def _picture(entry: Entry) -> list[str]:
    if entry.shown is None or entry.picture is None:
        return []
    text = f"{entry.name} on {entry.shown.instance}"
    if entry.shown.constraint is not None:
        text = (
            f"{entry.shown.formulation} on {entry.shown.instance}, without {entry.name} and with it"
        )
    return [f"![{text}](../{entry.picture})", ""]


def _facts(entry: Entry) -> Iterator[str]:
    document = entry.document
    if entry.is_formulation:
        yield f"- {_kind(entry)}; {SENSES[document['sense']]}: {markdown(document['objective'])}"
    if document["reads"]:
        yield f"- reads {_codes(document['reads'])}"
    if document.get("aliases"):
        yield f"- also called {_codes(document['aliases'])}"
    yield f"- code: `{document['module'].replace('.', '/')}.py`"


def _options(entry: Entry) -> list[str]:
    """Name, values, default and meaning; the docstring's words win over the field's.

    A list, as a table of four columns is too wide for a narrow window.
    """
    options = entry.document["options"]
    if not options:
        return []
    lines = ["Options (values; default):", ""]
    for option in options:
        meaning = entry.docstring.options.get(option["name"]) or markdown(option["description"])
        default = "required" if option["required"] else f"`{json.dumps(option['default'])}`"
        text = f": {meaning}" if meaning else ""
        lines.append(f"- `{option['name']}` ({_values(option['type'])}; {default}){text}")
    return [*lines, ""]


def _values(text: str) -> str:
    """Values of an option, separated by commas."""
    return ", ".join(text.split(" | ")) if "[" not in text else f"`{text}`".replace("|", "or")


def _kind(entry: Entry) -> str:
    return entry.shown.kind if entry.shown is not None else "-"


def _link(entry: Entry) -> str:
    return f"[`{entry.name}`](#{entry.name})"


def _codes(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |\n" for cells in (head, *rows)]
    return lines[0] + "|---" * len(head) + "|\n" + "".join(lines[1:])
