"""The disk operations of a journal. Each one is carried out, or raises OSError."""

from __future__ import annotations

import contextlib
import fcntl
import os
from io import FileIO
from pathlib import Path
from typing import Self

TEMPORARY = ".writing-"
"""Prefix of the names of temporary files, which are renamed when they are complete."""


class ClosedByWith:
    """An object with files or processes that `close` releases, or the end of a ``with`` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_to_append(path: Path, new: bool = False) -> FileIO:
    """Open a file for appending; create it if it does not exist. With ``new`` it must not exist."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (os.O_EXCL if new else 0)
    return FileIO(os.open(path, flags, 0o666), "ab")


def write(file: FileIO, data: bytes) -> None:
    """Write all bytes, in several system calls if necessary."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def sync(file: FileIO) -> None:
    """Wait until the content and the length of a file would survive a loss of power."""
    getattr(os, "fdatasync", os.fsync)(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder would survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def truncate(file: FileIO, size: int) -> None:
    """Remove all bytes after the first ``size``."""
    file.truncate(size)


def write_temporary(target: Path, data: bytes, durable: bool) -> Path:
    """Write a temporary file beside the target, to be renamed to it; it is removed if that
    fails.
    """
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
    """Replace the target by a temporary file, atomically."""
    temporary.replace(target)


def remove_temporary(temporary: Path) -> None:
    """Try to remove a temporary file; one that remains is removed when the journal is opened."""
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def lock(path: Path) -> FileIO:
    """Open a file and lock it for this process, until the process closes it or ends.

    Raises BlockingIOError if another process has the lock.
    """
    while True:
        file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_same_file(file, path):  # it may have been deleted between open and lock
                return file
        except BaseException:
            file.close()
            raise
        file.close()


class FolderLock:
    """A lock on a folder, which does not depend on the files in it."""

    def __init__(self, folder: Path) -> None:
        self._handle: int | None = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise
        except OSError:  # some network disks lock files, but no folders
            self.close()

    def holds(self, folder: Path) -> bool:
        """Whether a path is this folder, and it is locked."""
        return self._handle is not None and _is_open_at(self._handle, folder)

    def close(self) -> None:
        """Release the lock of the folder."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def is_same_file(file: FileIO, path: Path) -> bool:
    """Whether a path is still that of an open file."""
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
