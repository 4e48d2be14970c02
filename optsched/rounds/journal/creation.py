"""Beginning a journal, and having it for oneself."""

from __future__ import annotations

from io import FileIO
from pathlib import Path

from optsched.errors import JournalError
from optsched.instance.reading import listed
from optsched.rounds.journal import disk
from optsched.rounds.journal.layout import HEADER, LOCK, header_bytes, segment_path


def lock_journal(folder: Path) -> FileIO:
    """The lock of a journal; `JournalError` if another process has it."""
    try:
        return disk.lock(folder / LOCK)
    except BlockingIOError:
        holder = disk.lock_holder(folder / LOCK)
        raise JournalError(
            f"journal {folder} is in use by process {holder or 'unknown'}; one journal takes one scheduler at a time"
        ) from None
    except OSError as error:
        raise cannot_write(folder, error) from None


def make_journal(folder: Path, durable: bool) -> FileIO:
    """Make the files of an empty journal; returns its lock.

    The file that makes a folder a journal comes last, so that a creation which was broken off can
    be made again.
    """
    _check_room(folder)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from None
    lock = lock_journal(folder)
    try:
        _check_room(folder)  # it may have been made before the lock was there
        disk.open_to_append(segment_path(folder, 0)).close()
        disk.rename(disk.write_temporary(folder / HEADER, header_bytes(), durable), folder / HEADER)
        if durable:
            disk.sync_folder(folder)
            disk.sync_folder(folder.resolve().parent)
    except BaseException as error:
        lock.close()
        if isinstance(error, OSError):
            raise cannot_write(folder, error) from None
        raise
    return lock


def _check_room(folder: Path) -> None:
    """Nothing is there but, perhaps, what a creation that was broken off has left."""
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
        raise JournalError(f"no journal can be made at {folder}: there is one already")
    strange = [name for name in names if name not in begun and not name.startswith(disk.TEMPORARY)]
    if strange:
        raise JournalError(
            f"no journal can be made at {folder}: the folder is not empty ({listed(strange)})"
        )


def cannot_write(folder: Path, error: OSError, lost: str = "") -> JournalError:
    """The error for what the system refuses; ``lost`` says what was not done for it."""
    return JournalError(f"cannot write journal {folder}: {error.strerror}{lost and f'; {lost}'}")
