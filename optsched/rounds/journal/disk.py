"""The few things that a journal asks of a disk. Each of them happens, or raises OSError."""

from __future__ import annotations

import contextlib
import fcntl
import os
from io import FileIO
from pathlib import Path
from typing import Self

TEMPORARY = ".writing-"
"""How the name of a file begins that is not yet what it is going to be;
such a file means nothing.
"""


class ClosedByWith:
    """What has files or processes to let go of: by `close`, or at the end of a ``with`` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_to_append(path: Path, new: bool = False) -> FileIO:
    """A file that every write makes longer;
    made if it is not there, or, if it is to be ``new``, refused if it is.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if new else 0)
    return FileIO(os.open(path, flags, 0o666), "ab")


def write(file: FileIO, data: bytes) -> None:
    """Hand all bytes to the system, which may take them piece by piece."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def sync(file: FileIO) -> None:
    """Wait until the bytes of a file, and its length, would survive a loss of power."""
    getattr(os, "fdatasync", os.fsync)(file.fileno())


def sync_folder(folder: Path) -> None:
    """The same for the names in a folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def truncate(file: FileIO, size: int) -> None:
    """Take away what follows the first ``size`` bytes."""
    file.truncate(size)


def write_temporary(target: Path, data: bytes, durable: bool) -> Path:
    """A file beside the target with these bytes, to be renamed to it; none if that fails."""
    temporary = target.with_name(f"{TEMPORARY}{target.name}")
    try:
        with FileIO(temporary, "w") as file:
            write(file, data)
            if durable:
                sync(file)
    except BaseException:
        remove_temporary(temporary)
        raise
    return temporary


def rename(temporary: Path, target: Path) -> None:
    """Put a file in the place of its target, which is one or the other at every moment."""
    temporary.replace(target)


def remove_temporary(temporary: Path) -> None:
    """Try to; one that stays means nothing, and is removed when the journal is opened."""
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def lock(path: Path) -> FileIO:
    """Open a file that one process has for itself until it closes it or ends, however it ends.

    BlockingIOError if another has it.
    """
    while True:
        file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_same_file(file, path):  # it may have been deleted after it was opened
                return file
        except BaseException:
            file.close()
            raise
        file.close()


class FolderLock:
    """A folder that one process has for itself, whatever becomes of the files in it."""

    def __init__(self, folder: Path) -> None:
        self._handle: int | None = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise
        except OSError:  # some disks in networks lock files, and no folders
            self.close()

    def holds(self, folder: Path) -> bool:
        """Whether a path leads to this folder, and it is locked."""
        return self._handle is not None and _is_open_at(self._handle, folder)

    def close(self) -> None:
        """Let other processes have it."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def is_same_file(file: FileIO, path: Path) -> bool:
    """Whether a path still leads to an open file: not to another one, nor to none."""
    return _is_open_at(file.fileno(), path)


def _is_open_at(handle: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(handle))


def size(file: FileIO) -> int:
    """Bytes of an open file."""
    return os.fstat(file.fileno()).st_size
