"""The file that a sweep writes its rows to as they come, and goes on from:
JSON lines, one writer at a time.

The first line says which sweep it is, every other line is a row. A row is on the disk when
`ResultsFile.add` returns. A process that is killed leaves whole lines, and perhaps a part of one at
the end, which is removed when the file is opened again.

Limits are part of a task. A sweep whose failed tasks are tried again under other limits gets its
own header, and what did not fail under the earlier limits counts as done. A row that takes
the place of a failed one ``replaces`` it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from optsched.benchmarking.task import Row as Row
from optsched.benchmarking.task import Task, sweep_digest
from optsched.errors import InvalidInput, UsageError, cannot_write
from optsched.instance.reading import once

FORMAT = "optsched-results/1"
HEAD = f'{{"format": "{FORMAT}"'.encode()
"""What a results file begins with."""
REPLACES = "replaces"
"""Field of a row in the file: the key of a row that failed under other limits."""
BEGINNING = f'"format": "{FORMAT}", the first line of a results file'

FAILED = ("error", "memory", "limit")
"""Status of a task that has no answer because it failed or was stopped."""


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
    incomplete : int
        Bytes of an incomplete last line after them.
    """

    headers: tuple[Row, ...]
    rows: tuple[Row, ...]
    size: int
    incomplete: int

    @property
    def latest(self) -> list[Row]:
        """The last row of each task, without those that others replace."""
        replaced = {row.get(REPLACES) for row in self.rows}
        last = {row.get("key", number): row for number, row in enumerate(self.rows)}
        return [_plain(row) for key, row in last.items() if key not in replaced]


def parse_lines(data: bytes, path: str | Path) -> Lines:
    """Read the lines of a results file;
    raises `InvalidInput` with the number of a line that is no row.
    """
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


def _plain(row: Row) -> Row:
    """A row as it was given to `ResultsFile.add`."""
    return {name: value for name, value in row.items() if name != REPLACES}


class ResultsFile:
    """A results file that this process alone writes until it is closed; made by `open`.

    Attributes
    ----------
    path : Path
    done : dict of key -> row
        The rows of the tasks of this sweep that are there already; of several rows of a task the
        last one.
    notices : list of str
        What a user should hear about the file.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path, self._descriptor = path, descriptor
        self._failed_before: dict[str, str] = {}
        """Key of the row that failed under other limits, by the key of the task."""
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
        retry: bool = False,
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
        retry : bool
            Do again what failed, perhaps under other limits than those of the file.

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
            file._begin(tasks, about, append, retry)
        except BaseException:
            file.close()
            raise
        return file

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row; it is on the disk when this returns."""
        written = dict(row)
        if row["key"] in self._failed_before:
            written[REPLACES] = self._failed_before[row["key"]]
        self._write(json.dumps(written, allow_nan=False, ensure_ascii=False))

    def close(self) -> None:
        """Let others have the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- how --------------------------------------------------------------------------------------

    def _begin(
        self, tasks: Sequence[Task], about: Mapping[str, Any], append: bool, retry: bool
    ) -> None:
        found = parse_lines(self.path.read_bytes(), self.path)
        sweep = sweep_digest(tasks)
        same_sweep = [header for header in found.headers if header.get("sweep") == sweep]
        earlier = _same_under_other_limits(tasks, found.headers)
        # A sweep that has retried keeps the rows under earlier limits whenever it is resumed.
        goes_on = retry or any(header.get("retry") for header in same_sweep)
        if found.headers and not same_sweep and not append and not (retry and earlier):
            self._refuse_other(tasks, found, earlier)
        if found.incomplete:
            # A process that was killed left half a row: its task is done again.
            os.ftruncate(self._descriptor, found.size)
            self.notices.append(
                f"{self.path}: dropped an incomplete last line ({found.incomplete} bytes)"
            )
        if found.headers and (same_sweep or (retry and earlier)):
            self._note_changes(found.headers[-1], about)
        if not same_sweep:
            header = {"format": FORMAT, "sweep": sweep, "tasks": len(tasks), **about}
            limits = {"limits": tasks[0].limits} if tasks else {}
            again = {"retry": True} if retry and earlier else {}
            self._write(json.dumps({**header, **limits, **again}, allow_nan=False))
        self._take_rows(found.rows, tasks, earlier if goes_on else {})
        if retry:
            # Last, so that failures of these very tasks are done again as well.
            self.done = {key: row for key, row in self.done.items() if row["status"] not in FAILED}

    def _take_rows(
        self, rows: Sequence[Row], tasks: Sequence[Task], earlier: Mapping[str, str]
    ) -> None:
        """Rows of the tasks that count as done:
        the last one of each task, and no failure under other limits.

        ``earlier`` leads from keys under other limits to those of the tasks.
        """
        wanted = {task.key for task in tasks}
        for row in rows:
            key = str(row.get("key"))
            if key in wanted:
                self.done[key] = _plain(row)
            elif key in earlier and row.get("status") in FAILED:
                self._failed_before[earlier[key]] = key
            elif key in earlier:
                self.done[earlier[key]] = _plain(row)

    def _note_changes(self, header: Row, about: Mapping[str, Any]) -> None:
        """Tell a user what was otherwise when the file was begun: times cannot be compared."""
        other = [key for key in about if header.get(key) != about[key]]
        if other:
            changes = ", ".join(f"{key} {header.get(key)!r}, now {about[key]!r}" for key in other)
            self.notices.append(f"{self.path} was begun elsewhere or otherwise: {changes}")

    def _refuse_other(
        self, tasks: Sequence[Task], found: Lines, earlier: Mapping[str, str]
    ) -> None:
        if earlier:
            raise UsageError(
                f"{self.path} is of this sweep with other limits: "
                "give --retry to do again what failed "
                "under them, --append to do everything again, or another file"
            )
        keys = {row.get("key") for row in found.rows}
        shared = sum(task.key in keys for task in tasks)
        overlap = "none of its rows is of this one"
        if shared:
            overlap = f"{shared} of its rows are of tasks of this one"
        raise UsageError(
            f"{self.path} is of another sweep ({overlap}): give another file, "
            "or --append to add this sweep to it"
        )

    def _write(self, line: str) -> None:
        try:
            data = memoryview(f"{line}\n".encode())
            # One call may write less than all of it.
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise cannot_write(self.path, error.strerror) from None


def _same_under_other_limits(tasks: Sequence[Task], headers: Sequence[Row]) -> dict[str, str]:
    """Keys of the tasks under the limits of earlier headers of the same sweep,
    each with the key that it has now.
    """
    found: dict[str, str] = {}
    for header in headers:
        limits = header.get("limits")
        if not isinstance(limits, dict) or not tasks or limits == tasks[0].limits:
            continue
        before = [task.under(limits) for task in tasks]
        if sweep_digest(before) == header.get("sweep"):
            found |= {old.key: task.key for old, task in zip(before, tasks, strict=True)}
    return found


def _open_locked(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise cannot_write(path, error.strerror) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UsageError(f"{path} is in use: another run writes to it") from None
    except OSError as error:
        os.close(descriptor)
        raise UsageError(f"cannot lock {path}: {error.strerror}") from None
    return descriptor
