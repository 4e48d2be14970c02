"""The folder of a journal: names of its files, and which of them are there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from optsched.errors import JournalDamaged, JournalError
from optsched.instance.reading import show

FORMAT = "optsched-journal/1"
HEADER = "journal.json"
LOCK = "journal.lock"
SEGMENT = re.compile(r"events-(\d{12,})\.jsonl")
SNAPSHOT = re.compile(r"snapshot-(\d{12,})\.npz")


@dataclass(frozen=True)
class Layout:
    """The segments and snapshots of a journal, by the number of the record that each begins before.

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
    """What a journal's folder has, as it is at one moment.

    A listing made while files come and go may have the later of two without the earlier. It is made
    again until it stays the same.
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
    """Every snapshot has the segment that was begun with it, and there is a first segment to read from."""
    lost = sorted({*layout.snapshots} - {*layout.segments})
    if not layout.segments or (not layout.snapshots and layout.segments[0] > 0):
        lost = [0]
    if lost:
        name = segment_path(folder, lost[0]).name
        raise JournalDamaged(
            str(folder), name, None, "no such file", f"the records from number {lost[0]} on"
        )


def check_journal(path: str | Path) -> Path:
    """The folder of a journal of this format; a `JournalError` in one sentence if it is anything else."""
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
    """What the system refuses while a journal is read is a `JournalError`."""
    try:
        yield
    except OSError as error:
        raise JournalError(f"cannot read journal {folder}: {error.strerror}") from None
