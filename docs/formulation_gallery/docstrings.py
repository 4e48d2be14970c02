"""Docstrings of formulations and side constraints, taken apart by their headings.

A docstring is a summary, then paragraphs, formulas (indented under a paragraph) and sections: a heading of one word on
its own line with an indented body. ``Options`` and ``References`` are special; every other section is mathematics.
Any of these may be missing, and no list of headings is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Literal

HEADING = re.compile(r"[A-Z][A-Za-z]+\.?")
OPTION = re.compile(r"(?P<names>[a-z_]\w*(?:, [a-z_]\w*)*)\s{2,}(?P<meaning>\S.*)")


@dataclass(frozen=True)
class Piece:
    """A paragraph in Markdown, or lines of mathematics as they stand."""

    kind: Literal["words", "formula"]
    text: str


@dataclass
class Docstring:
    """What a docstring says.

    Attributes
    ----------
    summary : str
        In Markdown.
    pieces : list of Piece
        All that is neither summary, options nor references, in its order; neighbouring formulas are one.
    options : dict of str to str
        Option -> what it means, in Markdown.
    references : str
        In Markdown; empty without any.
    """

    summary: str
    pieces: list[Piece] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    references: str = ""


def parse(text: str) -> Docstring:
    """Take a docstring (without its common indentation) apart."""
    first, _, rest = text.strip().partition("\n\n")
    found = Docstring(markdown(first))
    for heading, body in _blocks(rest.splitlines()):
        if heading.startswith("Options") and _is_heading(heading):
            found.options |= _options(body)
        elif heading.startswith("References") and _is_heading(heading):
            found.references = markdown("\n".join(body))
        elif _is_heading(heading) and body:
            _add_formula(found, "\n".join([heading.rstrip("."), *body]))
        else:
            if heading:
                found.pieces.append(Piece("words", markdown(heading)))
            if body:
                _add_formula(found, dedent("\n".join(body)))
    return found


def _is_heading(text: str) -> bool:
    return HEADING.fullmatch(text) is not None


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(unindented lines that belong together, indented lines below them)."""
    head: list[str] = []
    body: list[str] = []
    for line in lines:
        inside = line.startswith(" ")
        if not inside and line and (body or (head and (_is_heading(line) or _is_heading(head[0])))):
            yield "\n".join(head), _trimmed(body)
            head, body = [], []
        if inside or (body and not line):
            body.append(line)
        elif line:
            head.append(line)
        elif head and not _is_heading(head[0]) and not body:
            body.append("")  # a paragraph ends; what is indented below it is its formula
    if head or body:
        yield "\n".join(head), _trimmed(body)


def _trimmed(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip("\n").splitlines()


def _add_formula(found: Docstring, text: str) -> None:
    if found.pieces and found.pieces[-1].kind == "formula":
        text = f"{found.pieces.pop().text}\n{text}"
    found.pieces.append(Piece("formula", text))


def _options(lines: list[str]) -> dict[str, str]:
    """Options by name; a line that is indented deeper goes on with the option above it."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in dedent("\n".join(lines)).splitlines():
        match = OPTION.fullmatch(line)
        if match is not None:
            names = match["names"].split(", ")
            meaning = match["meaning"]
        elif line.strip():
            meaning = line.strip()
        else:
            continue
        for name in names:
            found[name] = f"{found[name]} {meaning}" if name in found else meaning
    return {name: markdown(meaning) for name, meaning in found.items()}


def markdown(text: str) -> str:
    """One paragraph of a docstring in Markdown: code in single backquotes, stars and underscores as they are."""
    words = " ".join(text.split())
    parts = re.split(r"(``.+?``|`.+?`)", words)
    plain = [re.sub(r"([*_\[\]<>|])", r"\\\1", part) for part in parts[::2]]
    code = [f"`{part.strip('`')}`" for part in parts[1::2]]
    return "".join(part for pair in zip(plain, [*code, ""], strict=True) for part in pair)
