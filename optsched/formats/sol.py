"""Points of programs as ``.sol`` files: ``=obj= VALUE``, then a line ``NAME VALUE`` for every column.

That is the form of MIPLIB. Read are also the files of HiGHS, SCIP, Gurobi and CBC; columns that a file does not name
are 0, as all of these leave zeros out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.formats.mps.read import show_path
from optsched.instance.reading import read_bytes, show

SUFFIX = ".sol"
OBJECTIVE = "=obj="
HEADING = re.compile(r"solution status:|.*objective value|Stopped on|(Integer i|I)nfeasible|Unbounded", re.IGNORECASE)
"""How SCIP and CBC begin their files."""
HIGHS_COLUMNS = re.compile(r"^# Columns \d+\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)


def sol_text(objective: float, names: Sequence[str], x: FloatArray) -> bytes:
    """A point as the content of a ``.sol`` file, every number to its last bit."""
    lines = [f"{OBJECTIVE} {_number(objective)}"]
    lines += [f"{name} {_number(value)}" for name, value in zip(names, x.tolist(), strict=True)]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def _number(value: float) -> str:
    return repr(float(value) + 0.0).removesuffix(".0")  # + 0.0 turns -0.0 into 0.0


def read_sol(path: str | Path, names: Sequence[str]) -> FloatArray:
    """Read a point.

    Parameters
    ----------
    path : str or Path
    names : sequence of str, N of them
        Of the columns of the program.

    Returns
    -------
    FloatArray, shape (N,)
        In the order of ``names``; 0 where the file says nothing.

    Raises
    ------
    InvalidInput
        With file and line: a name that no column has or that stands twice, or what is not a finite number.
    """
    file = show_path(Path(path))
    text = read_bytes(Path(path)).decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    if text.lstrip().startswith("<"):
        raise InvalidInput(
            file, "XML, as CPLEX writes it", f"lines of a column's name and its value, as in {SUFFIX} files"
        )
    place = {name: number for number, name in enumerate(names)}
    x = np.zeros(len(names))
    seen: set[str] = set()
    empty = True
    for number, line in _lines(text):
        where = f"{file}:{number}"
        empty = False
        name, value = _entry(line, place, where, first=not seen)
        if name == "":
            continue
        if name in seen:
            raise InvalidInput(where, f"column {show(name)} a second time", "every column once")
        seen.add(name)
        x[place[name]] = value
    if empty:
        raise InvalidInput(file, "no value", f"{OBJECTIVE} or lines of a column's name and its value")
    return x


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that may have a value, with their numbers; of a file of HiGHS those of its section of columns."""
    first, columns = 1, HIGHS_COLUMNS.search(text)
    if columns is not None:
        first, text = text[: columns.start(1)].count("\n") + 1, columns[1]
    for number, line in enumerate(text.splitlines(), first):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _entry(line: str, place: dict[str, int], where: str, first: bool) -> tuple[str, float]:
    """Name and value of a line; no name for a heading or the objective."""
    words = line.replace("**", " ").split()  # CBC marks columns out of their bounds
    if words[0] == OBJECTIVE:
        _finite(" ".join(words[1:]), where)
        return "", 0.0
    if len(words) >= 2 and words[0] in place:
        return words[0], _finite(words[1], where)
    if len(words) >= 3 and words[0].isdigit() and words[1] in place:  # CBC numbers the columns
        return words[1], _finite(words[2], where)
    spaced = " ".join(words[:-1])
    if spaced in place:
        return spaced, _finite(words[-1], where)
    if first and HEADING.match(line.lstrip()):
        return "", 0.0
    unknown = words[1] if len(words) >= 3 and words[0].isdigit() else words[0]
    if unknown in place:
        raise InvalidInput(where, show(line.strip()), "the name of a column and its value")
    raise InvalidInput(where, f"column {show(unknown)}", "a column of the program")


def _finite(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise InvalidInput(where, show(text), "a finite number")
    return value
