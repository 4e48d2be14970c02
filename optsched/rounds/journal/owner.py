"""Who writes a journal:
one process, which names itself in the folder and looks there before each write.

Two things keep a second writer out. The system's lock on the file `LOCK` is free again when its
process has ended, however it ended; but it goes with the file, and disks in a network may have
none. The token in the file is that of the process which opened the journal last. Any other finds at
its next write that it is no longer the owner.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
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

    def __init__(self, path: Path, lock: FileIO) -> None:
        self._path = path
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
            return cls(path, disk.lock(path))
        except BlockingIOError:
            owner = words(path.read_bytes())
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
        os.pwrite(self._lock.fileno(), self._token, 0)
        self._lock.truncate(len(self._token))

    def close(self) -> None:
        """Let another process become the owner."""
        self._lock.close()

    def why_not(self) -> str:
        """Why this process may not write any more; empty if it may."""
        if not disk.is_same_file(self._lock, self._path):
            # The folder may be another one, too: moved away, or written back from a copy.
            return f"its {LOCK} was deleted or replaced, so that another process may write it"
        found = os.pread(self._lock.fileno(), MOST, 0)
        return "" if found == self._token else f"{words(found)} has taken it over"


def words(token: bytes) -> str:
    """``process 17 on name since 2026-01-31T12:00:00+00:00``: the owner that a file names."""
    try:
        about = json.loads(token)
    except ValueError:
        return "another process"
    if not isinstance(about, dict):  # before there were tokens, the number of the process alone
        return f"process {about}"
    return f"process {about.get('process')} on {about.get('host')} since {about.get('since')}"
