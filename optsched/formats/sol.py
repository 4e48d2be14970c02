"""Points of programs as ``.sol`` files:
``=obj= VALUE``, then a line ``NAME VALUE`` for every column.

This is the format of MIPLIB. Files of HiGHS, SCIP, Gurobi and CBC can be read too. Columns that a
file does not name are 0, because all of these solvers leave out zeros.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import InvalidInput
from optsched.formats.mps.read import show_path
from optsched.instance.reading import listed, read_bytes, show

log = logging.getLogger("optsched")

SUFFIX = ".sol"
OBJECTIVE = "=obj="
# Objectives with a smaller relative difference count as equal, because some solvers print few
# digits.
AGREES = 1e-6
# First lines of files of SCIP and CBC.
HEADING = re.compile(
    r"solution status:|.*objective value|Stopped on|(Integer i|I)nfeasible|Unbounded", re.IGNORECASE
)
HIGHS_COLUMNS = re.compile(r"^# Columns \d+\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)


def sol_text(objective: float, names: Sequence[str], x: FloatArray) -> bytes:
    """A point as the content of a ``.sol`` file, without loss of digits."""
    lines = [f"{OBJECTIVE} {_number(objective)}"]
    lines += [f"{name} {_number(value)}" for name, value in zip(names, x.tolist(), strict=True)]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def _number(value: float) -> str:
    # + 0.0 turns -0.0 into 0.0
    return repr(float(value) + 0.0).removesuffix(".0")


def read_start(
    path: str | Path, names: Sequence[str], objective: Callable[[FloatArray], float]
) -> FloatArray:
    """Read a point to start from, and warn if it seems to belong to another program, because many
    programs have names such as ``x_0``.

    The number of named columns is logged. There are warnings for missing columns, and if the
    objective stated in the file differs from the objective of its point in this program.

    Parameters
    ----------
    path, names
        As in `read_sol`, which also documents the errors.
    objective : callable
        The program's objective at a point.
    """
    x, named, stated = _read(path, names)
    file = show_path(Path(path))
    lacking = [name for name in names if name not in named]
    log.info("start: %s names %d of %d columns", file, len(named), len(names))
    if lacking:
        first = f"{listed(lacking[:3])}{', ...' if len(lacking) > 3 else ''}"
        log.warning(
            "start: %s names %d of the program's %d columns, the others (%s) start at 0",
            file,
            len(named),
            len(names),
            first,
        )
    found = objective(x)
    # The same names occur in many programs; a different objective shows that the point belongs to
    # another one
    if stated is not None and abs(stated - found) > AGREES * max(1.0, abs(stated), abs(found)):
        log.warning(
            "start: %s states the objective %.9g, its point has %.9g here: "
            "it may be of another program",
            file,
            stated,
            found,
        )
    return x


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
        In the order of ``names``; 0 for columns that the file does not name.

    Raises
    ------
    InvalidInput
        With file and line: an unknown or repeated name, or a value that is not a finite number.
    """
    return _read(path, names)[0]


def _read(path: str | Path, names: Sequence[str]) -> tuple[FloatArray, set[str], float | None]:
    """The point, the columns that the file names, and the objective that it states."""
    file = show_path(Path(path))
    text = read_bytes(Path(path)).decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    if text.lstrip().startswith("<"):
        raise InvalidInput(
            file,
            "XML, as CPLEX writes it",
            f"lines of a column's name and its value, as in {SUFFIX} files",
        )
    place = {name: number for number, name in enumerate(names)}
    x = np.zeros(len(names))
    seen: set[str] = set()
    stated: float | None = None
    empty = True
    for number, line in _lines(text):
        where = f"{file}:{number}"
        empty = False
        name, value = _entry(line, place, where, first=not seen)
        if name == "":
            stated = value if value is not None else stated
            continue
        assert value is not None
        if name in seen:
            raise InvalidInput(where, f"column {show(name)} a second time", "every column once")
        seen.add(name)
        x[place[name]] = value
    if empty:
        raise InvalidInput(
            file, "no value", f"{OBJECTIVE} or lines of a column's name and its value"
        )
    return x, seen, stated


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that may have a value, with their numbers; in a file of HiGHS, only its section of
    columns.
    """
    # A file of HiGHS also lists rows, whose names are not those of columns
    first = 1
    columns = HIGHS_COLUMNS.search(text)
    if columns is not None:
        first = text[: columns.start(1)].count("\n") + 1
        text = columns[1]
    for number, line in enumerate(text.splitlines(), first):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _entry(line: str, place: dict[str, int], where: str, first: bool) -> tuple[str, float | None]:
    """Name and value of a line. The objective has the name "", a heading the name "" and the value
    None.
    """
    # CBC marks columns that violate their bounds
    words = line.replace("**", " ").split()
    if words[0] == OBJECTIVE:
        return "", _finite(" ".join(words[1:]), where)
    if len(words) >= 2 and words[0] in place:
        return words[0], _finite(words[1], where)
    # CBC numbers the columns
    if len(words) >= 3 and words[0].isdigit() and words[1] in place:
        return words[1], _finite(words[2], where)
    spaced = " ".join(words[:-1])
    if spaced in place:
        return spaced, _finite(words[-1], where)
    if first and HEADING.match(line.lstrip()):
        return "", None
    # CBC puts the column's number before its name
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
