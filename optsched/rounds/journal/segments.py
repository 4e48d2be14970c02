"""Reading one segment: its lines in order, each checked, as far as they are whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from optsched.errors import JournalDamaged, JournalError
from optsched.rounds.journal.layout import segment_path
from optsched.rounds.journal.records import END, TAIL, BadLine, check_line, check_rest

BLOCK = 1 << 16
"""Bytes read at a time; more only for a line that is longer."""


class SegmentReader:
    """Goes through a segment from its first line on, which may be written meanwhile, or deleted.

    Attributes
    ----------
    start : int
        The number of the segment's first record.
    n : int
        The number of the record that comes next.
    position : int
        Where its line begins, in bytes.
    check : int
        The checksum of the line before it.
    torn : str
        What stands at ``position`` and is no whole line, in words; empty if that is the end of the
        file.
    """

    def __init__(self, folder: Path, start: int) -> None:
        self.path = segment_path(folder, start)
        self._file = FileIO(self.path)
        self.start = self.n = start
        self.position = self.check = 0
        self.torn = ""

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def lines(self) -> Iterator[bytes]:
        """The lines from ``position`` on, without their ends, until no whole one follows.

        A bad line with nothing after it may be one that is just being written; any other is damage.
        """
        self._compare_with_what_was_read()
        self.torn = ""
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
        """The error for something else where record n should stand."""
        return JournalDamaged(
            str(self.path.parent), self.path.name, n - self.start + 1, found, f"record {n}"
        )

    def _check_rest(self, rest: bytes) -> None:
        self.torn = f"{len(rest)} bytes without an end of line"
        try:
            check_rest(rest, self.n, self.check)
        except BadLine as bad:
            raise self.damaged(self.n, bad.found) from None

    def _judge(self, line: bytes, bad: BadLine) -> bool:
        """Whether a bad line ends what can be read; False if the writer has changed it since, so that it is read again.

        The writer takes away what it could not write wholly, and writes something else there.
        """
        again = self._read(len(line) + 2, self.position)
        if again[: len(line) + 1] != line + b"\n":
            return False
        self._compare_with_what_was_read()
        if bad.sure or len(again) > len(line) + 1:
            raise self.damaged(self.n, bad.found) from None
        self.torn = bad.found
        return True

    def _compare_with_what_was_read(self) -> None:
        """The last line read still stands there; its checksum vouches for all before it."""
        end = END % self.check + b"\n"
        if self.position and self._read(len(end), self.position - TAIL - 1) != end:
            raise JournalError(
                f"journal {self.path.parent}: the last records before {self.n} were seen before they were safe, and"
                " were taken back as writing them failed; read again from a snapshot"
            )

    def _read(self, size: int, position: int) -> bytes:
        return os.pread(self._file.fileno(), size, position)
