"""The owner of a journal: the one process that writes it.

Three mechanisms exclude a second writer. The system locks on the folder and on the file `LOCK` are
released when their process ends, for whatever reason. The lock on the folder remains if `LOCK` is
deleted; the lock on the file also excludes older versions, and works on network disks that do not
lock folders. The file has the token of the process that opened the journal last: any other process
finds at its next write that it is no longer the owner.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Self

from optsched.errors import JournalError
from optsched.rounds.journal import disk

LOCK = "journal.lock"
MOST = 1000
"""Bytes of the file that are read."""


class Owner:
    """This process as the writer of a journal, until it closes the journal or ends, or another
    process takes it over.
    """

    def __init__(self, path: Path, folder: disk.FolderLock, lock: FileIO) -> None:
        self._path = path
        self._folder = folder
        self._lock = lock
        self._token = b""

    @classmethod
    def take(cls, folder: Path) -> Self:
        """Lock the journal in a folder, unless its owner is alive.

        Raises
        ------
        JournalError
            The owner is alive.
        OSError
        """
        path = folder / LOCK
        try:
            whole = disk.FolderLock(folder)
            try:
                return cls(path, whole, disk.lock(path))
            except BaseException:
                whole.close()
                raise
        except BlockingIOError:
            owner = words(path.read_bytes() if path.exists() else b"")
            raise JournalError(
                f"journal {folder} is in use by {owner}; one journal takes one scheduler at a time"
            ) from None

    def sign(self) -> None:
        """Write the token of this process: from now on no other process may write."""
        about = {
            # Process numbers and host names repeat, in containers above all.
            "token": secrets.token_hex(16),
            "process": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self._token = f"{json.dumps(about)}\n".encode()
        self._write_token()

    def _write_token(self) -> None:
        os.pwrite(self._lock.fileno(), self._token, 0)
        self._lock.truncate(len(self._token))

    def close(self) -> None:
        """Release the locks: another process can become the owner."""
        self._lock.close()
        self._folder.close()

    def why_not(self) -> str:
        """Why this process may not write any more; empty if it may."""
        if not self._path.exists() and self._folder.holds(self._path.parent):
            self._lock_again()
        if not disk.is_same_file(self._lock, self._path):
            # The folder, too, may have been moved away, or restored from a copy.
            return f"its {LOCK} was deleted or replaced, so that another process may write it"
        found = os.pread(self._lock.fileno(), MOST, 0)
        return "" if found == self._token else f"{words(found)} has taken it over"

    def _lock_again(self) -> None:
        """Make the deleted file again: with the folder locked, no other process has the journal."""
        with suppress(
            BlockingIOError
        ):  # an older version, which locks only the file, has just taken it
            lock = disk.lock(self._path)
            self._lock.close()
            self._lock = lock
            self._write_token()


def words(token: bytes) -> str:
    """The owner in a token as text: ``process 17 on name since 2026-01-31T12:00:00+00:00``."""
    try:
        about = json.loads(token)
    except ValueError:
        return "another process"
    if not isinstance(about, dict):  # older versions wrote only the number of the process
        return f"process {about}"
    return f"process {about.get('process')} on {about.get('host')} since {about.get('since')}"
