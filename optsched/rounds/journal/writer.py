"""Writing a journal: a record is on the disk when `append` returns.

When `append` raises, the record is not in the journal, unless the message says otherwise. After a
crash within `append` it may be there.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Self

from optsched.arrays import AnyArray
from optsched.errors import InvalidArgument, JournalError
from optsched.instance.reading import listed, show
from optsched.rounds.journal import disk
from optsched.rounds.journal.disk import ClosedByWith
from optsched.rounds.journal.files import (
    HEADER,
    SegmentReader,
    check_journal,
    check_layout,
    encode_snapshot,
    header_bytes,
    list_folder,
    reading,
    segment_path,
    snapshot_path,
)
from optsched.rounds.journal.owner import LOCK, Owner
from optsched.rounds.journal.records import encode_line

# --- a new journal ---------------------------------------------------------------------------


def take_journal(folder: Path) -> Owner:
    """Become the owner of a journal; raises `JournalError` if the owner is alive."""
    try:
        return Owner.take(folder)
    except OSError as error:
        raise cannot_write(folder, error) from None


def make_journal(folder: Path, durable: bool) -> Owner:
    """Make the files of an empty journal, as its owner.

    The file ``journal.json``, which makes a folder a journal, is written last, so that an
    interrupted creation can be repeated.
    """
    _check_room(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from None
    owner = take_journal(folder)
    try:
        _check_room(folder)  # another process may have made a journal before the lock
        disk.open_to_append(segment_path(folder, 0)).close()
        disk.rename(
            disk.write_temporary(folder / HEADER, header_bytes(), durable),
            folder / HEADER,
        )
        if durable:
            disk.sync_folder(folder)
            disk.sync_folder(folder.resolve().parent)
    except BaseException as error:
        owner.close()
        if isinstance(error, OSError):
            raise cannot_write(folder, error) from None
        raise
    return owner


def _check_room(folder: Path) -> None:
    """Raise `JournalError` unless the folder is empty, or has only files of an interrupted
    creation.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
        segment = segment_path(folder, 0)
        begun = (
            {LOCK, segment.name} if not segment.exists() or segment.stat().st_size == 0 else {LOCK}
        )
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise JournalError(f"no journal can be made at {folder}: that is a file") from None
    except OSError as error:
        raise cannot_write(folder, error) from None
    if HEADER in names:
        raise JournalError(
            f"no journal can be made at {folder}: there is one already; "
            "Scheduler.recover goes on with it"
        )
    strange = [name for name in names if name not in begun and not name.startswith(disk.TEMPORARY)]
    if strange:
        raise JournalError(
            f"no journal can be made at {folder}: the folder is not empty ({listed(strange)})"
        )


def cannot_write(folder: Path, error: OSError, lost: str = "") -> JournalError:
    """The error for an `OSError`; ``lost`` is the consequence, as text."""
    return JournalError(f"cannot write journal {folder}: {error.strerror}{lost and f'; {lost}'}")


# --- the writer ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the journal: number of the next record, bytes of the last segment, and checksum of
    its last line.
    """

    n: int
    size: int
    check: int


class Journal(ClosedByWith):
    """A journal that only this process writes, until it is closed; made by `create` and `open`.

    One thread at a time may use it. In a forked child the copy is closed and holds no lock.
    `optsched.rounds.journal.owner` excludes other processes.

    Attributes
    ----------
    path : Path
        The journal's folder.
    dropped : str
        Describes the incomplete last line that `open` removed; empty if there was none.
    empty : str
        Set by `open` if the last segment has no records: nothing was written since its snapshot, or
        the file was emptied. Only the caller can know which.
    """

    def __init__(self, path: Path, owner: Owner, durable: bool, keep: int | None) -> None:
        self.path = path
        self.dropped = ""
        self.empty = ""
        self._owner = owner
        self._durable = durable
        self._keep = keep
        self._refusal = ""
        self._start, self._end = self._find_end()
        try:
            owner.sign()  # after the checks, so that a damaged journal is not changed
            self._file = self._open_end()
        except OSError as error:
            raise cannot_write(path, error) from None
        # A forked child would otherwise be a second writer with the same lock.
        os.register_at_fork(after_in_child=partial(_call, weakref.WeakMethod(self.close)))

    @classmethod
    def create(cls, path: str | Path, *, fsync: bool = True, keep: int | None = None) -> Self:
        """Begin a journal in a folder that is empty or does not exist yet.

        Parameters
        ----------
        path : str or Path
            The folder; its parent must exist.
        fsync : bool
            Whether records must survive a loss of power, and not only the end of the process.
        keep : int, optional
            Number of snapshots to keep, with all records after the oldest of them. None: all.

        Raises
        ------
        JournalError
            If the folder has other files, or the disk fails.
        """
        _check_keep(keep)
        return cls._owned_by(Path(path), make_journal(Path(path), fsync), fsync, keep)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        create: bool = False,
        fsync: bool = True,
        keep: int | None = None,
    ) -> Self:
        """Continue a journal; with ``create``, begin it if there is none.

        Other parameters as for `create`.

        The last segment is read and checked. An incomplete last line is removed and described in
        `dropped`.

        Raises
        ------
        JournalError
            If there is no journal, it is in use, or the disk fails; `JournalDamaged`, without any
            change, if anything but an incomplete last line is wrong. A complete last line with a
            wrong checksum is damage, unless it has zero bytes, which a loss of power leaves.
        """
        if create and not (Path(path) / HEADER).exists():
            return cls.create(path, fsync=fsync, keep=keep)
        _check_keep(keep)
        folder = check_journal(path)
        return cls._owned_by(folder, take_journal(folder), fsync, keep)

    @classmethod
    def _owned_by(cls, folder: Path, owner: Owner, durable: bool, keep: int | None) -> Self:
        try:
            return cls(folder, owner, durable, keep)
        except BaseException:
            owner.close()
            raise

    @property
    def next_n(self) -> int:
        """The number of the next record."""
        return self._end.n

    def append(self, record: dict[str, Any]) -> int:
        """Write a record; return its number once it is safe.

        Raises
        ------
        InvalidInput
            If the record is not a JSON object, or has one of the keys ``n`` and ``crc``.
        JournalError
            If it could not be written: then it is not in the journal. A later call may succeed,
            unless the message says that the journal must be opened again, for example after its
            lock was deleted.
        """
        return self.append_many([record])[0]

    def append_many(self, records: Iterable[dict[str, Any]]) -> range:
        """Write records, waiting for the disk once; return their numbers once all are safe.

        Errors as for `append`; then none of the records is in the journal. If the process ends
        meanwhile, the first few of them may be.
        """
        self._check_usable()
        n = self._end.n
        check = self._end.check
        lines: list[bytes] = []
        for record in records:
            line, check = encode_line(n + len(lines), record, check)
            lines.append(line)
        numbers = range(n, n + len(lines))
        if lines:
            data = b"".join(lines)
            self._write(data, _End(numbers.stop, self._end.size + len(data), check))
        return numbers

    def snapshot(self, document: dict[str, Any], arrays: Mapping[str, AnyArray]) -> int:
        """Write the state before the next record, and begin a new segment; return the number of
        that record.

        Afterwards, older snapshots and segments are deleted (``keep``).

        Parameters
        ----------
        document : dict
            A JSON object.
        arrays : mapping of str to array
            Arrays without Python objects; names of letters, digits, ``_``, ``.`` and ``-``.

        Raises
        ------
        InvalidInput
            If document or arrays are invalid.
        JournalError
            If the disk fails: then no older snapshot is deleted, and records can be appended as
            before.
        """
        self._check_usable()
        n = self._end.n
        data = encode_snapshot(n, document, arrays)
        target = snapshot_path(self.path, n)
        lost = f"the snapshot before record {n} was not taken"
        try:
            temporary = disk.write_temporary(target, data, self._durable)
            try:
                self._begin_segment(n)  # first: no snapshot may be without its segment
                disk.rename(temporary, target)
            except BaseException:
                disk.remove_temporary(temporary)
                raise
            lost = f"the snapshot before record {n} is there, but may not survive a loss of power"
            self._sync_folder()
            lost = f"the snapshot before record {n} was taken, but older files could not be deleted"
            self._delete_older()
        except OSError as error:
            raise cannot_write(self.path, error, lost) from None
        return n

    def close(self) -> None:
        """Close the journal, so that another process can write it."""
        self._refusal = f"journal {self.path} is closed"
        self._file.close()
        self._owner.close()

    def _find_end(self) -> tuple[int, _End]:
        """The start of the last segment, and its end."""
        with reading(self.path):
            layout = list_folder(self.path)
            check_layout(self.path, layout)
            # Older segments are complete: a new one is begun only after that.
            segment = SegmentReader(self.path, layout.segments[-1])
            try:
                for _ in segment.lines():
                    pass
            finally:
                segment.close()
        if segment.incomplete:
            line = segment.n - segment.start + 1
            where = f"{segment.path.name}, line {line}"
            self.dropped = f"{where}: {segment.incomplete}; record {segment.n} was never finished"
        elif segment.n == segment.start:
            self.empty = (
                f"{segment.path.name} has no records: nothing happened after the snapshot before "
                f"record {segment.start}, or what was recorded is lost"
            )
        return segment.start, _End(segment.n, segment.position, segment.check)

    def _open_end(self) -> FileIO:
        """Open the last segment, without an incomplete last line, and make all earlier writes
        safe.
        """
        for temporary in self.path.glob(f"{disk.TEMPORARY}*"):
            temporary.unlink()
        file = disk.open_to_append(segment_path(self.path, self._start))
        try:
            if self.dropped:
                disk.truncate(file, self._end.size)
            if self._durable:  # the last writer may have ended before it synced
                disk.sync(file)
            self._sync_folder()
        except BaseException:
            file.close()
            raise
        return file

    def _check_usable(self) -> None:
        """Raise `JournalError` if this process is no longer the owner, or another process has
        written.
        """
        if self._refusal:
            raise JournalError(self._refusal)
        segment = segment_path(self.path, self._start)
        try:
            why = self._owner.why_not()
            if not why and not disk.is_same_file(self._file, segment):
                why = f"{segment.name} was deleted or replaced"
            # The length of the file reveals a writer that uses neither lock nor token.
            if not why and disk.size(self._file) != self._end.size:
                why = f"another process has written {segment.name}"
        except OSError as error:
            raise cannot_write(self.path, error) from None
        if why:
            self._refuse(why)
            raise JournalError(self._refusal)

    def _refuse(self, reason: str) -> None:
        self._refusal = f"journal {self.path} takes nothing more until it is opened again: {reason}"

    def _write(self, data: bytes, end: _End) -> None:
        """Append the data, or leave the segment as it was."""
        self._refuse("a write was broken off")  # stands if an exception ends this method early
        try:
            disk.write(self._file, data)
            if self._durable:
                disk.sync(self._file)
            self._end = end
        except BaseException as error:
            # The partial write is removed, so that the journal ends with a complete record.
            first = self._end.n
            last = end.n - 1
            lost = f"record {first} was" if first == last else f"records {first} to {last} were"
            try:
                disk.truncate(self._file, self._end.size)
                if self._durable:
                    disk.sync(self._file)
                self._refusal = ""
                lost = f"{lost} not taken in"
            except OSError as second:
                self._refuse(
                    f"what a failed write left could not be taken away ({second.strerror})"
                )
                lost = (
                    f"{lost} not taken in for sure, as the disk does not take them away either; "
                    "open the journal again"
                )
            if isinstance(error, OSError):
                raise cannot_write(self.path, error, lost) from None
            raise
        self._refusal = ""

    def _begin_segment(self, n: int) -> None:
        """Begin a new segment with the next record, or change nothing."""
        if self._start == n:
            return
        path = segment_path(self.path, n)
        self._refuse("a segment was begun, but not for sure")
        try:
            disk.open_to_append(path, new=True).close()
            self._sync_folder()
        except BaseException as error:
            # An existing file is that of a writer without the lock, and is not removed.
            if not isinstance(error, FileExistsError):
                path.unlink(missing_ok=True)
                self._refusal = ""
            raise
        file = disk.open_to_append(path)
        self._file.close()
        self._file = file
        self._start = n
        self._end = _End(n, 0, 0)
        self._refusal = ""

    def _delete_older(self) -> None:
        """Delete the oldest files first, and snapshots before segments, so that the remaining files
        are a complete journal at any time.
        """
        layout = list_folder(self.path)
        if self._keep is None or len(layout.snapshots) < self._keep:
            return
        oldest = layout.snapshots[-self._keep]
        for n in layout.snapshots[: -self._keep]:
            snapshot_path(self.path, n).unlink()
        self._sync_folder()
        for start in layout.segments:
            if start < oldest:
                segment_path(self.path, start).unlink()

    def _sync_folder(self) -> None:
        if self._durable:
            disk.sync_folder(self.path)


def _check_keep(keep: int | None) -> None:
    if keep is not None and (not isinstance(keep, int) or keep < 1):
        raise InvalidArgument("keep", show(keep), "1 or more, or None for all")


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Call a method if its object is still there."""
    bound = method()
    if bound is not None:
        bound()
