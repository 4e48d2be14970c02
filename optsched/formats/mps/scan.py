"""Find errors in an MPS file, with their lines.

HiGHS reads ``1O0`` as 1, ``abc`` as 0, invents a column where a bound names one that does not
exist, and drops repeated entries. Solving a different program silently is worse than an error, so
the text is checked before HiGHS reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from optsched.errors import InvalidInput
from optsched.instance.reading import show

ROW_TYPES = ("N", "L", "G", "E")
VALUED, BARE = ("UP", "LO", "FX", "UI", "LI"), ("FR", "MI", "PL", "BV")
SENSES = ("MAX", "MIN", "MAXIMIZE", "MINIMIZE", "MAXIMISE", "MINIMISE")
SECTIONS = ("NAME", "ROWS", "COLUMNS", "RHS", "RANGES", "BOUNDS", "OBJSENSE", "ENDATA")
PIECE = 2**20
# Text columns of each field in the fixed format.
FIELDS = ((1, 3), (4, 12), (14, 22), (24, 36), (39, 47), (49, 61))


@dataclass
class Scan:
    """One pass over the lines of an MPS file;
    raises `InvalidInput` with the line of the first error.

    Attributes
    ----------
    name : str
        Name of the program, from the section NAME.
    rows : dict
        Type of each row: N, L, G or E. The first N row is the objective; other N rows are free and
        are dropped.
    columns : dict
        Whether each column is between integer markers.
    bounded : set of str
        Columns for which the file gives a bound.
    nonzeros : int
        Coefficients other than 0 in rows that are not of type N.
    fixed : bool
        Whether names with spaces make it the fixed format.
    """

    file: str
    name: str = ""
    rows: dict[str, str] = field(default_factory=dict)
    columns: dict[str, bool] = field(default_factory=dict)
    bounded: set[str] = field(default_factory=set)
    nonzeros: int = 0
    fixed: bool = False
    _line: int = 0
    _section: str = ""
    _integer: bool = False
    _last: str = ""
    _sets: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str, file: str) -> Scan:
        """Scan a whole text."""
        scan = cls(file)
        for number, line in enumerate(_lines(text), 1):
            if not line.strip() or line.startswith("*"):
                continue
            scan._line = number
            if line[0].isspace():
                scan._entry(line)
            elif scan._head(line.split()):
                break
        if scan._section != "ENDATA":
            raise InvalidInput(
                file, "the end of the file", "ENDATA: the file is cut off, or no MPS file"
            )
        return scan

    def _refuse(self, found: str, expected: str) -> InvalidInput:
        return InvalidInput(f"{self.file}:{self._line}", found, expected)

    def _head(self, words: list[str]) -> bool:
        """Begin a section; true at the end."""
        section = words[0]
        if section not in SECTIONS:
            known = ", ".join(SECTIONS)
            raise self._refuse(
                show(section), f"a section of a linear program ({known}) or an indented entry"
            )
        if (
            section != "NAME"
            and not self.rows
            and section in ("COLUMNS", "RHS", "RANGES", "BOUNDS", "ENDATA")
        ):
            raise self._refuse(section, "the section ROWS before it")
        self._section = section
        if section == "NAME":
            self.name = " ".join(words[1:])
        elif section == "OBJSENSE" and len(words) > 1:
            self._sense(words[1:])
        return section == "ENDATA"

    def _entry(self, line: str) -> None:
        if self._section == "ROWS":
            self._row(line)
        elif self._section == "COLUMNS":
            self._column(line)
        elif self._section in ("RHS", "RANGES"):
            self._sides(line)
        elif self._section == "BOUNDS":
            self._bound(line)
        elif self._section == "OBJSENSE":
            self._sense(line.split())
        else:
            raise self._refuse(show(line.strip()), "the head of a section")

    def _sense(self, words: list[str]) -> None:
        if len(words) != 1 or words[0].upper() not in SENSES:
            raise self._refuse(show(" ".join(words)), "MAX or MIN")

    def _slices(self, line: str) -> list[str]:
        """Fields of the fixed format, the first of which is the type."""
        return [line[start:stop].strip() for start, stop in FIELDS]

    def _name_and_pairs(self, line: str) -> tuple[str, list[str]]:
        """The name that a line begins with, empty before an even number of words, and the words
        after it.
        """
        if self.fixed:
            _, name, *entries = self._slices(line)
            return name, [word for word in entries if word]
        words = line.split()
        return (words[0], words[1:]) if len(words) % 2 else ("", words)

    def _row(self, line: str) -> None:
        words = line.split()
        self.fixed |= len(words) > 2
        kind, name = (
            self._slices(line)[:2] if self.fixed else (words if len(words) == 2 else (words[0], ""))
        )
        if kind not in ROW_TYPES or not name:
            raise self._refuse(
                show(line.strip()), f"a type ({', '.join(ROW_TYPES)}) and the name of a row"
            )
        if name in self.rows:
            raise self._refuse(f"a second row {show(name)}", "names that differ")
        self.rows[name] = kind

    def _column(self, line: str) -> None:
        words = line.split()
        if "'MARKER'" in words:
            if words[-1] not in ("'INTORG'", "'INTEND'"):
                raise self._refuse(show(line.strip()), "a marker 'INTORG' or 'INTEND'")
            self._integer = words[-1] == "'INTORG'"
            return
        if not self.fixed and len(words) in (4, 6):
            self.fixed = True
        name, entries = self._name_and_pairs(line)
        if name != self._last and name in self.columns:
            raise self._refuse(
                f"column {show(name)} a second time", "the entries of a column together"
            )
        if len(entries) not in (2, 4) or not name:
            raise self._refuse(
                show(line.strip()), "a column, then one or two pairs of a row and a number"
            )
        self._last = name
        self.columns[name] = self._integer
        for row, text in self._pairs(entries):
            value = self._number(text, finite=True)
            self.nonzeros += value != 0 and self.rows[row] != "N"

    def _pairs(self, entries: list[str]) -> Iterator[tuple[str, str]]:
        for row, text in zip(entries[::2], entries[1::2], strict=True):
            if row not in self.rows:
                raise self._refuse(f"row {show(row)}", "a row of the section ROWS")
            yield row, text

    def _sides(self, line: str) -> None:
        name, entries = self._name_and_pairs(line)
        self._one_set(name)
        if len(entries) not in (2, 4):
            raise self._refuse(show(line.strip()), "one or two pairs of a row and a number")
        for _, text in self._pairs(entries):
            self._number(text)

    def _one_set(self, name: str) -> None:
        """Refuse several sets of sides or bounds: it is not defined which one to use."""
        if self._sets.setdefault(self._section, name) != name:
            found = f"the set {show(name)} after {show(self._sets[self._section])}"
            raise self._refuse(found, f"one set of {self._section}")

    def _bound(self, line: str) -> None:
        if self.fixed:
            kind, name, column, text = self._slices(line)[:4]
        else:
            words = line.split()
            kind = words[0]
            rest = words[1:]
            if len(rest) == (2 if kind in VALUED else 1) or (
                kind in BARE and len(rest) == 2 and rest[0] in self.columns
            ):
                rest = ["", *rest]
            name, column, text = (*rest, "", "", "")[:3]
            if not 2 <= len(rest) <= 3:
                raise self._refuse(show(line.strip()), "a type, a set, a column and a number")
        if kind not in VALUED and kind not in BARE:
            raise self._refuse(
                f"a bound of type {show(kind)}", f"one of {', '.join((*VALUED, *BARE))}"
            )
        if column not in self.columns:
            raise self._refuse(f"column {show(column)}", "a column of the section COLUMNS")
        self._one_set(name)
        if kind in VALUED:
            self._number(text)
        self.bounded.add(column)

    def _number(self, text: str, finite: bool = False) -> float:
        try:
            value = float(text) if "_" not in text else np.nan
        except ValueError:
            value = np.nan
        if np.isnan(value) or (finite and np.isinf(value)):
            raise self._refuse(show(text), "a finite number" if finite else "a number")
        return value


def _lines(text: str) -> Iterator[str]:
    """``text.splitlines()``, piece by piece:
    a list of all lines could take eight times the memory of the text.
    """
    start = 0
    while start < len(text):
        end = text.find("\n", start + PIECE) + 1 or len(text)
        yield from text[start:end].splitlines()
        start = end
