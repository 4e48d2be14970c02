"""Reading a journal, without a lock, while another process may be writing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from optsched.errors import InvalidArgument, JournalDamaged, JournalError
from optsched.rounds.journal.disk import ClosedByWith
from optsched.rounds.journal.files import (
    Layout,
    SegmentReader,
    Snapshot,
    SnapshotFile,
    check_journal,
    check_layout,
    list_folder,
    reading,
    segment_path,
    snapshot_path,
)
from optsched.rounds.journal.records import BadLine, Entry, decode_line


def snapshots(path: str | Path) -> list[SnapshotFile]:
    """The snapshots of a journal, the oldest first, none of them read yet."""
    folder = check_journal(path)
    with reading(folder):
        layout = list_folder(folder)
        check_layout(folder, layout)
    return [SnapshotFile(folder, n) for n in layout.snapshots]


def without_snapshot(path: str | Path) -> JournalError:
    """The error for a journal without a snapshot: damaged if it has records, else never used."""
    if next(iter(records(path)), None) is None:
        words = f"journal {path} has no snapshot to begin from: the scheduler never started"
        return JournalError(words)
    name = snapshot_path(Path(path), 0).name
    return JournalDamaged(str(path), name, None, "no such file", "the state before record 0")


def read_latest(path: str | Path) -> tuple[Snapshot | None, Iterator[Entry]]:
    """The newest snapshot, None if there is none yet, and the records after it.

    Segments before the snapshot are not opened. The records are read on demand, a block at a time.

    Raises
    ------
    JournalError
        If there is no journal of this format, or it is damaged (`JournalDamaged`); the iterator of
        the records may raise it too.
    """
    return read_from(path, lambda document: True)


def read_from(
    path: str | Path, before: int | Callable[[dict[str, Any]], bool]
) -> tuple[Snapshot | None, Iterator[Entry]]:
    """The newest snapshot that is early enough, None if all records are kept, and all records after
    it.

    Parameters
    ----------
    path : str or Path
        The journal's folder.
    before : int or function
        The number of a record that must come after the snapshot, or a condition on the snapshot's
        document. Documents are read, without the arrays, from the newest on until one meets it.
    """
    while True:
        files = snapshots(path)
        try:
            file = next(
                (file for file in reversed(files) if _early_enough(file, before)),
                None,
            )
            snapshot = None if file is None else file.read()
            return snapshot, records(path, 0 if snapshot is None else snapshot.n)
        except JournalError:
            if snapshots(path) == files:
                raise  # otherwise a newer snapshot was made, and this one may have been deleted


def _early_enough(file: SnapshotFile, before: int | Callable[[dict[str, Any]], bool]) -> bool:
    return before(file.document()) if callable(before) else file.n <= before


def records(path: str | Path, start: int | None = None, stop: int | None = None) -> Iterator[Entry]:
    """The records with numbers from ``start`` (None: the oldest that is kept)
    to ``stop`` - 1 (None: the newest).

    An incomplete last line counts as not written yet. Memory use does not grow with the journal.
    """
    if stop is not None and stop < 0:
        raise InvalidArgument("stop", str(stop), "0 or more")
    follower = Follower(path, start)
    return _until(follower, stop)


def _until(follower: Follower, stop: int | None) -> Iterator[Entry]:
    with follower:
        if stop is not None and follower.n >= stop:
            return
        for entry in follower.poll():
            yield entry
            if follower.n == stop:
                return


def follow(path: str | Path, start: int | None = None) -> Follower:
    """Records from number ``start`` on (None: the oldest that is kept), also those written
    later.
    """
    return Follower(path, start)


class Follower(ClosedByWith):
    """Reads the records of a journal as they are appended.

    It does not wait: `poll` returns the present records. It continues from segment to segment, and
    finishes its segment even if that is deleted meanwhile.

    Attributes
    ----------
    n : int
        The number of the next record.
    """

    def __init__(self, path: str | Path, start: int | None = None) -> None:
        if start is not None and start < 0:
            raise InvalidArgument("start", str(start), "0 or more")
        self._folder = check_journal(path)
        self._segment: SegmentReader | None = None
        with reading(self._folder):
            oldest = self._list(start).segments[0]
        self.n = oldest if start is None else start

    def close(self) -> None:
        """Close the segment that is being read."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def poll(self) -> Iterator[Entry]:
        """The records that have been appended since, one by one.

        Raises
        ------
        JournalError
            If the next record was deleted before it was read, or the writer took back the last
            records because its disk was full: begin again from a snapshot.
        JournalDamaged
            If there is other content in the place of the next record.
        """
        with reading(self._folder):
            if self._segment is None:
                self._segment = self._open(self.n)
            yield from self._new(self._segment)
            while any(start > self._segment.start for start in list_folder(self._folder).segments):
                # Another segment was begun, so this one is finished; it may have grown before that.
                yield from self._new(self._segment)
                if self._segment.incomplete:
                    raise self._segment.damaged(self._segment.n, self._segment.incomplete)
                following = self._open_next(self._segment)
                self._segment.close()
                self._segment = following
                yield from self._new(following)

    def _new(self, segment: SegmentReader) -> Iterator[Entry]:
        for line in segment.lines():
            if segment.n > self.n:
                try:
                    record = decode_line(line)
                except BadLine as bad:
                    raise segment.damaged(self.n, bad.found) from None
                self.n = segment.n
                yield Entry(self.n - 1, record)

    def _list(self, n: int | None) -> Layout:
        """The content of the folder; raises `JournalError` if record n is no longer kept."""
        layout = list_folder(self._folder)
        check_layout(self._folder, layout)
        oldest = layout.segments[0]
        if n is not None and n < oldest:
            raise JournalError(
                f"journal {self._folder} has no records before {oldest} any more (asked for: "
                f"{n} and later); begin with"
                " a snapshot"
            )
        return layout

    def _open(self, n: int) -> SegmentReader:
        """The segment that has record n, or will have it."""
        while True:
            layout = self._list(n)
            try:
                return SegmentReader(
                    self._folder,
                    max(start for start in layout.segments if start <= n),
                )
            except FileNotFoundError:  # deleted meanwhile
                if list_folder(self._folder) == layout:
                    raise

    def _open_next(self, finished: SegmentReader) -> SegmentReader:
        """The segment after a finished one."""
        following = self._open(finished.n)
        if following.start == finished.n > finished.start:
            return following
        following.close()
        start = min(start for start in self._list(None).segments if start > finished.start)
        name = segment_path(self._folder, start).name
        raise JournalDamaged(
            str(self._folder),
            name,
            None,
            f"records from {start} on",
            f"record {finished.n} first",
        )
