"""Project scheduling with limited resources and modes (RCPSP): files of PSPLIB and MMLIB."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.reading import show
from optsched.libraries.layout import FileLayout, FirstLines, instance_of_resources, used
from optsched.libraries.numbers import MOST, at_line, is_exact

JOBS = "jobs (incl. supersource/sink)"
RENEWABLE, NONRENEWABLE, BOTH = "renewable", "nonrenewable", "doubly constrained"
PRECEDENCE = "PRECEDENCE RELATIONS"
REQUESTS = "REQUESTS/DURATIONS"
AVAILABLE = "RESOURCE AVAILABILITIES"


class Mode(NamedTuple):
    """A way to do an activity: seconds, and what it uses of each resource meanwhile."""

    duration: int
    use: tuple[int, ...]


class ProjectScheduling(NamedTuple):
    """Activities in one mode each, after those before them, within the resources.

    Attributes
    ----------
    modes : tuple of tuples of Mode
        Of each activity. The first one and the last one are the start and the end of the project.
    successors : tuple of tuples of int
        Of each activity, counted from 0.
    capacity : tuple of int
        Of renewable resources, then of those that are used up.
    renewable : int
        How many resources are renewable.
    """

    modes: tuple[tuple[Mode, ...], ...]
    successors: tuple[tuple[int, ...], ...]
    capacity: tuple[int, ...]
    renewable: int
    best_known: None = None

    def instance(self, name: str) -> Instance:
        """Activities are jobs ``a2``, ``a3``, ... with the numbers of the file, and modes their
        options.

        Start and end of the project take no time: all others are between them, so they are left
        out.
        """
        names = [f"R{k + 1}" for k in range(self.renewable)]
        names += [f"N{k + 1}" for k in range(len(self.capacity) - self.renewable)]
        inner = range(1, len(self.modes) - 1)
        before: dict[int, list[str]] = {activity: [] for activity in inner}
        for activity in inner:
            for after in self.successors[activity]:
                if after in before:
                    before[after].append(f"a{activity + 1}")
        jobs: list[dict[str, Any]] = []
        for activity in inner:
            options = [
                {"duration": mode.duration, "uses": used(names, mode.use)}
                for mode in self.modes[activity]
            ]
            waits = {"after": before[activity]} if before[activity] else {}
            jobs.append({"id": f"a{activity + 1}", **waits, "options": options})
        kinds = ["renewable"] * self.renewable
        kinds += ["consumable"] * (len(self.capacity) - self.renewable)
        resources = [
            {"name": each, "kind": kind, "capacity": amount}
            for each, kind, amount in zip(names, kinds, self.capacity, strict=True)
        ]
        return instance_of_resources(name, resources, jobs)


def recognises(lines: FirstLines) -> bool:
    """A line states the number of jobs, with source and sink."""
    return any(_letters(" ".join(words)).startswith(_letters(JOBS)) for words in lines)


def read(text: str) -> list[ProjectScheduling]:
    """Numbers of jobs and resources, then tables of successors, of modes and of capacities."""
    lines = text.splitlines()
    n = _stated(lines, JOBS, 3)
    renewable = _stated(lines, RENEWABLE)
    resources = renewable + _stated(lines, NONRENEWABLE) + _stated(lines, BOTH)
    table = _Table(lines, PRECEDENCE)
    modes, successors = [], []
    for activity in range(n):
        _, count, stated, *after = table.row(f"job {activity + 1}, its modes and successors", 3)
        if len(after) != stated:
            raise table.refused(f"{len(after)} successors", f"as many as stated, {stated}")
        wrong = [other for other in after if not 1 <= other <= n]
        if wrong:
            raise table.refused(f"successor {wrong[0]}", f"jobs from 1 to {n}")
        modes.append(count)
        successors.append(tuple(other - 1 for other in after))
    table.end()
    table = _Table(lines, REQUESTS)
    ways = tuple(
        _modes(table, activity, count, resources, inner=0 < activity < n - 1)
        for activity, count in enumerate(modes)
    )
    table.end()
    table = _Table(lines, AVAILABLE, last=True)
    capacity = tuple(table.row("the capacities", resources, exactly=True))
    table.end()
    return [ProjectScheduling(ways, tuple(successors), capacity, renewable)]


def _modes(
    table: _Table, activity: int, count: int, resources: int, inner: bool
) -> tuple[Mode, ...]:
    """The modes of one activity; only the first row begins with its number."""
    found = []
    for mode in range(count):
        what = f"mode {mode + 1} of job {activity + 1}: its duration and {resources} uses"
        number = [activity + 1] * (mode == 0) + [mode + 1]
        row = table.row(what, len(number) + 1 + resources, exactly=True)
        if row[: len(number)] != number:
            raise table.refused(f"a row that begins with {row[0]}", what)
        duration, *use = row[len(number) :]
        if inner != (duration > 0):
            expected = "above 0" if inner else "0, as the project begins and ends there"
            raise table.refused(f"a duration of {duration} of job {activity + 1}", expected)
        found.append(Mode(duration, tuple(use)))
    return tuple(found)


def _letters(line: str) -> str:
    """A line as titles are compared: files differ in spaces, colons and capitals."""
    return re.sub(r"[^a-z]", "", line.lower())


def _stated(lines: Sequence[str], title: str, least: int = 0) -> int:
    """The number that a line states after its title and a colon."""
    for number, line in enumerate(lines, 1):
        before, colon, after = line.partition(":")
        if colon and _letters(before) == _letters(title):
            word = (after.split() or [""])[0]
            digits = word.isascii() and word.isdigit()
            if digits and not is_exact(word):
                raise at_line(number, show(word), f"{title}: a number of at most {MOST:g}")
            if not (digits and int(word) >= least):
                raise at_line(number, show(word), f"{title}: a whole number of at least {least}")
            if title == BOTH and int(word):
                raise at_line(number, show(word), f"0: no resource is {BOTH}")
            return int(word)
    raise at_line(len(lines), "the end of the file", f"a line that states {title}")


class _Table:
    """The rows of numbers under a title, up to a line of stars.

    Parameters
    ----------
    lines : sequence of str
    title : str
    last : bool
        Whether nothing but stars may follow: its rows are all others of the file.
    """

    def __init__(self, lines: Sequence[str], title: str, last: bool = False) -> None:
        titles = (row for row, line in enumerate(lines) if _letters(line) == _letters(title))
        first = next(titles, None)
        if first is None:
            raise at_line(len(lines), "the end of the file", f"a table {title}")
        self._title = title
        self._line = first + 1
        # The line under the title names the columns
        rows: Iterable[tuple[int, str]] = enumerate(lines[first + 2 :], first + 3)
        if not last:
            rows = takewhile(lambda row: not row[1].startswith("*"), rows)
        self._rows = [(number, row) for number, row in rows if row.strip(" \t-*")]

    def row(self, what: str, least: int, exactly: bool = False) -> list[int]:
        """The numbers of the next row.

        Parameters
        ----------
        what : str
            What they are, for messages.
        least : int
            How many there are at least.
        exactly : bool
            Whether there are no more.
        """
        if not self._rows:
            raise at_line(self._line + 1, f"the end of the table {self._title}", what)
        self._line, row = self._rows.pop(0)
        words = row.split()
        wrong = [word for word in words if not (word.isascii() and word.isdigit())]
        if wrong:
            raise self.refused(show(wrong[0]), f"whole numbers: {what}")
        large = [word for word in words if not is_exact(word)]
        if large:
            raise self.refused(show(large[0]), f"numbers of at most {MOST:g}: {what}")
        if len(words) < least or (exactly and len(words) > least):
            raise self.refused(f"{len(words)} numbers", f"{least}: {what}")
        return [int(word) for word in words]

    def refused(self, found: str, expected: str) -> InvalidInput:
        """The refusal of the last row."""
        return at_line(self._line, found, expected)

    def end(self) -> None:
        """Refuse rows that follow."""
        if self._rows:
            self._line, row = self._rows[0]
            raise self.refused(show(row.strip()), f"the end of the table {self._title}")


LAYOUT = FileLayout("project scheduling with modes", "makespan-unrelated", recognises, read)
