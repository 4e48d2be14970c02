"""The file that a sweep writes its rows to as they come, and goes on from: JSON lines, one writer at a time.

The first line says which sweep it is, every other line is a row. A row is on the disk when `ResultsFile.add` returns. A
process that is killed leaves whole lines, and perhaps half of one at the end, which counts for nothing and is taken
away when the file is opened again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from optsched.benchmarking.task import Task, sweep_digest
from optsched.errors import InvalidInput, UsageError
from optsched.instance.reading import once

FORMAT = "optsched-results/1"
HEAD = f'{{"format": "{FORMAT}"'.encode()
"""What a results file begins with."""
BEGINNING = f'"format": "{FORMAT}", the first line of a results file'

Row = dict[str, Any]


@dataclass(frozen=True)
class Lines:
    """What a results file holds.

    Attributes
    ----------
    headers : tuple of mappings
        One for each sweep that wrote to it.
    rows : tuple of mappings
        In the order in which they were written.
    size : int
        Bytes of all whole lines.
    torn : int
        Bytes of a line after them that is not finished.
    """

    headers: tuple[Row, ...]
    rows: tuple[Row, ...]
    size: int
    torn: int


def parse_lines(data: bytes, path: str | Path) -> Lines:
    """Read the lines of a results file; raises `InvalidInput` with the number of a line that is no row."""
    whole = data.rfind(b"\n") + 1
    headers: list[Row] = []
    rows: list[Row] = []
    for number, line in enumerate(data[:whole].splitlines(), 1):
        entry = _parsed(line)
        if entry is None or (number == 1 and entry.get("format") != FORMAT):
            raise InvalidInput(
                f"line {number}", _shown(line), "a row" if headers else BEGINNING, str(path)
            )
        (headers if entry.get("format") == FORMAT else rows).append(entry)
    if not headers and data[: len(HEAD)] != HEAD[: len(data)]:
        raise InvalidInput("line 1", _shown(data), BEGINNING, str(path))
    return Lines(tuple(headers), tuple(rows), whole, len(data) - whole)


def _parsed(line: bytes) -> Row | None:
    try:
        entry = json.loads(line, object_pairs_hook=once)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _shown(line: bytes) -> str:
    text = line[:40].decode(errors="replace")
    return f"{text!r}{'...' if len(line) > 40 else ''}" if text.strip() else "an empty line"


class ResultsFile:
    """A results file that this process alone writes until it is closed; made by `open`.

    Attributes
    ----------
    path : Path
    done : dict of key -> row
        The rows of the tasks of this sweep that are there already; of several rows of a task the last one.
    notices : list of str
        What a user should hear about the file.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor
        self.done: dict[str, Row] = {}
        self.notices: list[str] = []

    @classmethod
    def open(
        cls,
        path: str | Path,
        tasks: Sequence[Task],
        about: Mapping[str, Any],
        *,
        append: bool = False,
        again: Callable[[Row], bool] | None = None,
    ) -> Self:
        """Begin a results file, or go on with one.

        Parameters
        ----------
        path : str or Path
        tasks : sequence of Task
            The sweep.
        about : mapping
            What the first line says of it besides, such as its kind and the machine.
        append : bool
            Add the sweep to a file of another one.
        again : callable, optional
            Says of a row that is there whether its task is to be done again.

        Raises
        ------
        UsageError
            It is the file of another sweep (without ``append``), in use, or cannot be written.
        InvalidInput
            It is no results file, or a line of it is damaged.
        """
        target = Path(path)
        file = cls(target, _open_locked(target))
        try:
            file._begin(tasks, about, append, again)
        except BaseException:
            file.close()
            raise
        return file

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row; it is on the disk when this returns."""
        self._write(json.dumps(dict(row), allow_nan=False, ensure_ascii=False))

    def close(self) -> None:
        """Let others have the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- how -------------------------------------------------------------------------------------------------------

    def _begin(
        self,
        tasks: Sequence[Task],
        about: Mapping[str, Any],
        append: bool,
        again: Callable[[Row], bool] | None,
    ) -> None:
        found = parse_lines(self.path.read_bytes(), self.path)
        sweep = sweep_digest(tasks)
        known = sweep in {header.get("sweep") for header in found.headers}
        if found.headers and not known and not append:
            self._refuse_other(tasks, found)
        if found.torn:
            # A process that was killed left half a row: its task is done again.
            os.ftruncate(self._descriptor, found.size)
            self.notices.append(
                f"{self.path}: dropped an unfinished last line ({found.torn} bytes)"
            )
        if not known:
            header = {"format": FORMAT, "sweep": sweep, "tasks": len(tasks), **about}
            self._write(json.dumps(header, allow_nan=False))
        else:
            self._note_changes(found.headers[-1], about)
        wanted = {task.key for task in tasks}
        for row in found.rows:
            if row.get("key") in wanted:
                self.done[str(row["key"])] = row
        if again is not None:
            self.done = {key: row for key, row in self.done.items() if not again(row)}

    def _note_changes(self, header: Row, about: Mapping[str, Any]) -> None:
        """Tell a user what was otherwise when the file was begun: times cannot be compared."""
        other = [key for key in about if header.get(key) != about[key]]
        if other:
            changes = ", ".join(f"{key} {header.get(key)!r}, now {about[key]!r}" for key in other)
            self.notices.append(f"{self.path} was begun elsewhere or otherwise: {changes}")

    def _refuse_other(self, tasks: Sequence[Task], found: Lines) -> None:
        keys = {row.get("key") for row in found.rows}
        shared = sum(task.key in keys for task in tasks)
        overlap = "none of its rows is of this one"
        if shared:
            overlap = f"{shared} of its rows are of tasks of this one"
        raise UsageError(
            f"{self.path} is of another sweep ({overlap}): give another file, or --append to add this sweep to it"
        )

    def _write(self, line: str) -> None:
        try:
            data = memoryview(f"{line}\n".encode())
            # One call may write less than all of it.
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise UsageError(f"cannot write {self.path}: {error.strerror}") from None


def _open_locked(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(f"{path} is in use: another run writes to it") from None
    except OSError as error:
        os.close(descriptor)
        raise UsageError(f"cannot lock {path}: {error.strerror}") from None
    return descriptor
