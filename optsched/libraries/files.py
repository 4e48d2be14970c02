"""Files of benchmark libraries: their problems by name, each as an instance with its
formulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from optsched.display import Displayed
from optsched.display.text import enumerated
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.reading import GZIP_MAGIC, named, read_bytes, show, unpacked
from optsched.libraries import (
    bin_packing,
    generalised_assignment,
    knapsack,
    project_scheduling,
    unrelated_machines,
)
from optsched.libraries.layout import FileLayout, ReadProblem
from optsched.libraries.numbers import at_line
from optsched.libraries.recognised import GZIP, STDIN, file_and_problem

LAYOUTS = (
    project_scheduling.LAYOUT,
    bin_packing.LAYOUT,
    unrelated_machines.LAYOUT,
    generalised_assignment.LAYOUT,
    knapsack.LAYOUT,
)
"""In the order in which they are tried; the last ones look at the first lines alone."""
FIRST = 12
"""Lines in which a file shows what it holds."""


@dataclass(frozen=True, repr=False, eq=False)
class LibraryProblem(Displayed):
    """A problem of a library file.

    Attributes
    ----------
    instance : Instance
    formulation : str
        The one that the problem belongs to.
    """

    instance: Instance
    formulation: str

    def _headline(self) -> str:
        return f"{self.instance.name}, {self.formulation}"


def read_problem(source: str | Path) -> LibraryProblem:
    """Read a problem of a library file, which may be compressed with gzip.

    Parameters
    ----------
    source : str or path
        ``FILE``, or ``FILE#2`` for the second problem of a file that has several.

    Raises
    ------
    InvalidInput
        With the line, what was found and what was expected.
    """
    path, number = file_and_problem(source)
    with named(path):
        layout, problems = _read(path)
        count = len(problems)
        if number is None and count > 1:
            names = f"one of them, {path.name}#1 to {path.name}#{count}"
            raise InvalidInput("", f"{count} problems", names)
        stem = path.stem if path.suffix.lower() != GZIP else Path(path.stem).stem
        name = stem if number is None else f"{stem}#{number}"
        problem = _chosen(problems, 1 if number is None else number)
        return LibraryProblem(problem.instance(name), layout.formulation)


def problem_of_bytes(data: bytes) -> LibraryProblem | None:
    """The problem of a library file on standard input; None if no layout is recognised.

    Parameters
    ----------
    data : bytes

    Raises
    ------
    InvalidInput
        With the line, what was found and what was expected.
    """
    with named(STDIN):
        text = _text_of(data)
        layout = _recognised(text)
        if layout is None:
            return None
        problems = layout.read(text)
        if len(problems) > 1:
            raise InvalidInput("", f"{len(problems)} problems", "one; files may be read as FILE#2")
        return LibraryProblem(problems[0].instance("stdin"), layout.formulation)


def formulation_of_file(source: str | Path) -> str:
    """The formulation that the problems of a library file belong to."""
    path, _ = file_and_problem(source)
    with named(path):
        return _layout_of(_text_of(read_bytes(path))).formulation


class ListedProblem(NamedTuple):
    """A problem of a library file, not made into an instance yet.

    Attributes
    ----------
    source : str
        What `read_problem` takes: the file itself, or ``FILE#2``.
    formulation : str
    best_known : float or None
        The best objective that the file states.
    """

    source: str
    formulation: str
    best_known: float | None


def problems_in(source: str | Path) -> list[ListedProblem]:
    """The problems of a library file, or the one that ``FILE#2`` names; raises `InvalidInput`."""
    path, number = file_and_problem(source)
    with named(path):
        layout, problems = _read(path)
        if number is not None:
            problems = [_chosen(problems, number)]
    alone = len(problems) == 1
    return [
        ListedProblem(
            str(source) if alone else f"{source}#{row}", layout.formulation, problem.best_known
        )
        for row, problem in enumerate(problems, 1)
    ]


def _chosen(problems: Sequence[ReadProblem], number: int) -> ReadProblem:
    """The problem of a number, counted from 1."""
    if number == 0:
        raise InvalidInput("", "problem #0", "#1 for the first problem")
    if number > len(problems):
        some = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise InvalidInput("", some, f"at least {number}, as number {number} is asked for")
    return problems[number - 1]


def _read(path: Path) -> tuple[FileLayout, Sequence[ReadProblem]]:
    text = _text_of(read_bytes(path))
    layout = _layout_of(text)
    return layout, layout.read(text)


def _text_of(data: bytes) -> str:
    if data.startswith(GZIP_MAGIC):
        data = unpacked(data, "a text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise at_line(line, f"the byte 0x{data[error.start]:02x}", "text in UTF-8") from None


def _layout_of(text: str) -> FileLayout:
    """The layout of a text; raises `InvalidInput` where none is recognised."""
    layout = _recognised(text)
    if layout is None:
        lines = enumerate(text.splitlines(), 1)
        number, found = next(
            ((number, show(" ".join(line.split()))) for number, line in lines if line.strip()),
            (1, "an empty file"),
        )
        raise at_line(number, found, _expected())
    return layout


def _recognised(text: str) -> FileLayout | None:
    """The layout of a text, by its first lines that have words."""
    lines = (line.split() for line in text.splitlines())
    first = list(islice((words for words in lines if words), FIRST))
    if not first:
        return None
    return next((layout for layout in LAYOUTS if layout.recognises(first)), None)


def _expected() -> str:
    return f"a JSON document, or a file of {enumerated([each.words for each in LAYOUTS], 'or')}"
