"""The files of a journal: their names, segments of events, and snapshots."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from optsched.arrays import AnyArray
from optsched.arrays.npz import text_array, text_in, unzip_arrays, zip_arrays
from optsched.errors import InvalidInput, JournalDamaged, JournalError
from optsched.instance.reading import show
from optsched.rounds.journal.records import (
    END,
    TAIL,
    BadLine,
    check_line,
    check_rest,
    encode_object,
)

# --- names of files --------------------------------------------------------------------------

FORMAT = "optsched-journal/1"
HEADER = "journal.json"
SEGMENT = re.compile(r"events-(\d{12,})\.jsonl")
SNAPSHOT = re.compile(r"snapshot-(\d{12,})\.npz")


@dataclass(frozen=True)
class Layout:
    """The segments and snapshots of a journal, by the number of the first record after their start.

    Attributes
    ----------
    segments, snapshots : tuple[int, ...]
        Ascending.
    """

    segments: tuple[int, ...]
    snapshots: tuple[int, ...]


def segment_path(folder: Path, start: int) -> Path:
    """The file of the records from number ``start`` on."""
    return folder / f"events-{start:012d}.jsonl"


def snapshot_path(folder: Path, n: int) -> Path:
    """The file of the state before record n."""
    return folder / f"snapshot-{n:012d}.npz"


def header_bytes() -> bytes:
    """The bytes of the file ``journal.json``."""
    return f"{json.dumps({'format': FORMAT})}\n".encode()


def list_folder(folder: Path) -> Layout:
    """The content of a journal's folder at one moment.

    A listing made while files are created may have a later file without an earlier one. It is
    repeated until two listings are equal.
    """
    names = sorted(os.listdir(folder))
    while (again := sorted(os.listdir(folder))) != names:
        names = again
    found = [
        tuple(sorted(int(match[1]) for name in names if (match := pattern.fullmatch(name))))
        for pattern in (SEGMENT, SNAPSHOT)
    ]
    return Layout(*found)


def check_layout(folder: Path, layout: Layout) -> None:
    """Raise `JournalDamaged` if a snapshot has no segment, or there is no first segment."""
    lost = sorted({*layout.snapshots} - {*layout.segments})
    if not layout.segments or (not layout.snapshots and layout.segments[0] > 0):
        lost = [0]
    if lost:
        name = segment_path(folder, lost[0]).name
        raise JournalDamaged(
            str(folder),
            name,
            None,
            "no such file",
            f"the records from number {lost[0]} on",
        )


def check_journal(path: str | Path) -> Path:
    """The folder of a journal of this format; raises `JournalError` otherwise."""
    folder = Path(path)
    with reading(folder):
        if not folder.is_dir():
            found = "that is a file, a journal is a folder" if folder.exists() else "no such folder"
            raise JournalError(f"no journal at {folder}: {found}")
        try:
            text = (folder / HEADER).read_bytes()
        except FileNotFoundError:
            raise JournalError(
                f"no journal at {folder}: a folder without the file {HEADER}"
            ) from None
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    version = document.get("format") if isinstance(document, dict) else None
    if isinstance(version, str) and version != FORMAT:
        raise JournalError(
            f"journal {folder} has the format {show(version)}, expected {show(FORMAT)}"
        )
    if text != header_bytes():
        found = show(text.decode(errors="replace"))
        raise JournalDamaged(str(folder), HEADER, None, found, header_bytes().decode().strip())
    return folder


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn an `OSError` during reading into a `JournalError`."""
    try:
        yield
    except OSError as error:
        raise JournalError(f"cannot read journal {folder}: {error.strerror}") from None


# --- segments of events ----------------------------------------------------------------------

BLOCK = 1 << 16
"""Bytes read at a time; more only for a longer line."""


class SegmentReader:
    """Reads a segment from its first line on, while it may be written or deleted.

    Attributes
    ----------
    start : int
        The number of the segment's first record.
    n : int
        The number of the next record.
    position : int
        Where its line begins, in bytes.
    check : int
        The checksum of the line before it.
    incomplete : str
        Describes an incomplete line at ``position``; empty if that is the end of the file.
    """

    def __init__(self, folder: Path, start: int) -> None:
        self.path = segment_path(folder, start)
        self._file = FileIO(self.path)
        self.start = self.n = start
        self.position = self.check = 0
        self.incomplete = ""

    def close(self) -> None:
        """Close the file of the segment."""
        self._file.close()

    def lines(self) -> Iterator[bytes]:
        """The complete lines from ``position`` on, without their ends.

        An incomplete last line may be one that is being written. Any other bad line is damage.
        """
        self._compare_with_what_was_read()
        self.incomplete = ""
        size = BLOCK
        while block := self._read(size, self.position):
            *lines, rest = block.split(b"\n")
            for line in lines:
                try:
                    self.check = check_line(line, self.n, self.check)
                except BadLine as bad:
                    if self._judge(line, bad):
                        return
                    break
                self.position += len(line) + 1
                self.n += 1
                yield line
            if lines:
                size = BLOCK
            elif len(block) < size:
                self._check_rest(rest)
                return
            else:
                size *= 2

    def damaged(self, n: int, found: str) -> JournalDamaged:
        """The error for other content in the place of record n."""
        return JournalDamaged(
            str(self.path.parent),
            self.path.name,
            n - self.start + 1,
            found,
            f"record {n}",
        )

    def _check_rest(self, rest: bytes) -> None:
        self.incomplete = f"{len(rest)} bytes without an end of line"
        try:
            check_rest(rest, self.n, self.check)
        except BadLine as bad:
            raise self.damaged(self.n, bad.found) from None

    def _judge(self, line: bytes, bad: BadLine) -> bool:
        """Whether a bad line is the end of the readable records; False if the writer has changed
        it, so that it must be read again.

        The writer removes an incomplete line after a failed write, and writes other lines there.
        """
        again = self._read(len(line) + 2, self.position)
        if again[: len(line) + 1] != line + b"\n":
            return False
        self._compare_with_what_was_read()
        if bad.sure or len(again) > len(line) + 1:
            raise self.damaged(self.n, bad.found) from None
        self.incomplete = bad.found
        return True

    def _compare_with_what_was_read(self) -> None:
        """Raise `JournalError` unless the last line read is still there; its checksum covers all
        lines before it.
        """
        end = END % self.check + b"\n"
        if self.position and self._read(len(end), self.position - TAIL - 1) != end:
            raise JournalError(
                f"journal {self.path.parent}: the last records before {self.n} were seen before "
                "they were safe, and"
                " were taken back as writing them failed; read again from a snapshot"
            )

    def _read(self, size: int, position: int) -> bytes:
        return os.pread(self._file.fileno(), size, position)


# --- snapshots -------------------------------------------------------------------------------

HEADER_ARRAY = "header"
ARRAYS = "arrays/"
ARRAY_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,100}")


@dataclass(frozen=True)
class Snapshot:
    """The state before record n.

    Attributes
    ----------
    n : int
        The number of the first record after the state.
    document : dict
        Its JSON part.
    arrays : dict of str to array
        Its arrays, with the types and shapes that were written.
    """

    n: int
    document: dict[str, Any]
    arrays: dict[str, AnyArray]


@dataclass(frozen=True)
class SnapshotFile:
    """A snapshot that has not been read yet.

    Attributes
    ----------
    folder : Path
        That of the journal.
    n : int
        The number of the first record after it.
    """

    folder: Path
    n: int

    def document(self) -> dict[str, Any]:
        """Its JSON part; the arrays are not read."""
        document, _, _ = self._read(with_arrays=False)
        return document

    def read(self) -> Snapshot:
        """Read the whole snapshot.

        Raises
        ------
        JournalDamaged
            If the file differs from what was written.
        JournalError
            If the file has been deleted since it was listed.
        """
        document, names, arrays = self._read(with_arrays=True)
        if [ARRAYS + name for name in names] != list(arrays):
            raise self._damaged(
                f"the arrays {show(list(arrays))}",
                f"{show(names)}, as its header says",
            )
        return Snapshot(self.n, document, dict(zip(names, arrays.values(), strict=True)))

    def _read(self, with_arrays: bool) -> tuple[dict[str, Any], list[str], dict[str, AnyArray]]:
        """Document, names of all arrays, and, with ``with_arrays``, the arrays by the names of
        their entries.
        """
        path = snapshot_path(self.folder, self.n)
        with reading(self.folder), path.open("rb") as file:
            try:
                header = json.loads(text_in(unzip_arrays(file, {HEADER_ARRAY})[HEADER_ARRAY]))
                n, names, document = (header[key] for key in ("n", "arrays", "document"))
                wanted = {ARRAYS + name for name in names} if with_arrays else set()
                arrays = unzip_arrays(file, wanted)
            except (ValueError, LookupError, TypeError) as error:
                found = f"an npz file that can't be read ({show(str(error))})"
                raise self._damaged(found, "a snapshot") from None
        if n != self.n:
            raise self._damaged(f"the state before record {n}", f"that before record {self.n}")
        return document, names, arrays

    def _damaged(self, found: str, expected: str) -> JournalDamaged:
        return JournalDamaged(
            str(self.folder),
            snapshot_path(self.folder, self.n).name,
            None,
            found,
            expected,
        )


def encode_snapshot(n: int, document: dict[str, Any], arrays: Mapping[str, AnyArray]) -> bytes:
    """The bytes of a snapshot's file, equal for equal keys, names and values in the same order.

    Raises
    ------
    InvalidInput
        If the document is not JSON, an array has Python objects, or its name is not allowed.
    """
    text = encode_object(document, "document")
    entries: dict[str, AnyArray] = {}
    for name, array in arrays.items():
        if not isinstance(name, str) or not ARRAY_NAME.fullmatch(name):
            raise InvalidInput(
                "arrays",
                f"the name {show(name)}",
                "1 to 100 letters, digits, '_', '.' and '-'",
            )
        if not isinstance(array, np.ndarray) or array.dtype.hasobject:
            found = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else show(array)
            raise InvalidInput(f"arrays.{name}", found, "a numpy array without Python objects")
        entries[ARRAYS + name] = array
    header = f'{{"n":{n},"arrays":{json.dumps(list(arrays))},"document":{text}}}'
    return zip_arrays({HEADER_ARRAY: text_array(header), **entries})
