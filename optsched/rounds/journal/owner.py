"""Who writes a journal:
one process, which names itself in the folder and looks there before each write.

Three things keep a second writer out. The system's locks on the folder and on the file `LOCK` are
free again when their process has ended, however it ended. The one on the folder stays when `LOCK` is
deleted; older versions look at the other one only, and disks in a network may have none. The token in
the file is that of the process which opened the journal last. Any other finds at its next write that
it is no longer the owner.
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
    """This process as the writer of a journal, until it closes it, ends,
    or another process takes it.
    """

    def __init__(self, path: Path, folder: disk.FolderLock, lock: FileIO) -> None:
        self._path = path
        self._folder = folder
        self._lock = lock
        self._token = b""

    @classmethod
    def take(cls, folder: Path) -> Self:
        """Lock the journal in a folder, also after an owner that has ended.

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
        """Put the own token in the place of the one before:
        from now on no other process may write.
        """
        about = {
            # Numbers of processes and names of hosts come again, in containers above all.
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
        """Let another process become the owner."""
        self._lock.close()
        self._folder.close()

    def why_not(self) -> str:
        """Why this process may not write any more; empty if it may."""
        if not self._path.exists() and self._folder.holds(self._path.parent):
            self._lock_again()
        if not disk.is_same_file(self._lock, self._path):
            # The folder may be another one, too: moved away, or written back from a copy.
            return f"its {LOCK} was deleted or replaced, so that another process may write it"
        found = os.pread(self._lock.fileno(), MOST, 0)
        return "" if found == self._token else f"{words(found)} has taken it over"

    def _lock_again(self) -> None:
        """Make the file again that was deleted, as nobody else can have taken the journal."""
        with suppress(BlockingIOError):  # an older version has just taken it, by its file alone
            lock = disk.lock(self._path)
            self._lock.close()
            self._lock = lock
            self._write_token()


def words(token: bytes) -> str:
    """``process 17 on name since 2026-01-31T12:00:00+00:00``: the owner that a file names."""
    try:
        about = json.loads(token)
    except ValueError:
        return "another process"
    if not isinstance(about, dict):  # before there were tokens, the number of the process alone
        return f"process {about}"
    return f"process {about.get('process')} on {about.get('host')} since {about.get('since')}"
