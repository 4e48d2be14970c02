"""Output files: replaced as a whole, or left as they were; never what is no file."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from refusals import refuses

from optsched.api import write_atomically
from optsched.errors import UsageError


def test_a_link_is_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_atomically(link, b"new")
    assert link.is_symlink() and real.read_text() == "new"


def test_a_pipe_is_written_to_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"through")
    reader.join(10)
    assert got == [b"through"] and stat.S_ISFIFO(pipe.stat().st_mode)


def test_permissions_are_kept_or_follow_the_umask(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("x")
    old.chmod(0o600)
    mask = os.umask(0o027)
    try:
        write_atomically(old, b"y")
        write_atomically(new, b"y")
    finally:
        os.umask(mask)
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
    assert stat.S_IMODE(new.stat().st_mode) == 0o640


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with refuses("file: found No such file or directory, expected a...", UsageError) as caught:
        write_atomically(tmp_path / "missing" / "file", b"x")
    assert str(caught.value).startswith("cannot write /")
    with refuses(f"{tmp_path}: found Is a directory", UsageError):
        write_atomically(tmp_path, b"x")
    assert list(tmp_path.iterdir()) == []
