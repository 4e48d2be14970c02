"""The disk, or a signal, lets the journal down: the record is not taken in, and the next one may be."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from journal_cases import RECORDS, entries, same

from optsched.errors import JournalError

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.journal import Journal, disk, read_latest, records, snapshots

pytestmark = pytest.mark.process


class Fault:
    """A disk on which one kind of call fails once, after having done half of its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException) -> None:
        self.left, self.error, self.call, self.do = 1, error, call, getattr(disk, call)
        monkeypatch.setattr(disk, call, self)

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        if self.left == 0:
            return self.do(*arguments, **more)
        self.left -= 1
        if self.call == "write":
            self.do(arguments[0], arguments[1][: len(arguments[1]) // 2])
        raise self.error


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def broken() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("error", [no_space, broken])
def test_a_record_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: Callable[[], OSError]
) -> None:
    with Journal.create(tmp_path) as journal:
        journal.append_many(RECORDS[:2])
        size = (tmp_path / "events-000000000000.jsonl").stat().st_size
        Fault(monkeypatch, call, error())
        with pytest.raises(JournalError) as refusal:
            journal.append(RECORDS[2])
        words = f"cannot write journal {tmp_path}: {error().strerror}; record 2 was not taken in"
        assert (str(refusal.value), refusal.value.exit_code) == (words, 2)
        assert (tmp_path / "events-000000000000.jsonl").stat().st_size == size
        Fault(monkeypatch, call, error())
        with pytest.raises(JournalError, match=r"; records 2 to 4 were not taken in$"):
            journal.append_many([{"other": 1}] * 3)
        assert journal.append_many(RECORDS[2:]) == range(2, 5)
    assert same(list(records(tmp_path)), entries())


@pytest.mark.parametrize(("call", "lost"), [("write", "half"), ("sync", "nothing")])
def test_a_record_that_cannot_be_taken_away_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, lost: str
) -> None:
    with Journal.create(tmp_path) as journal:
        journal.append({})
        Fault(monkeypatch, call, no_space())
        Fault(monkeypatch, "truncate", broken())
        with pytest.raises(
            JournalError, match=r"No space left on device; record 1 was not taken in for sure, as "
        ):
            journal.append(RECORDS[0])
        reason = (
            "takes nothing more until it is opened again: "
            r"what a failed write left could not be taken away \(Input"
        )
        for use in (lambda: journal.append({}), lambda: journal.snapshot({}, {})):
            with pytest.raises(JournalError, match=reason):
                use()
    with Journal.open(tmp_path) as journal:
        assert bool(journal.dropped) == (lost == "half")
        found = list(records(tmp_path))
        assert found == [(0, {}), *([] if lost == "half" else [(1, RECORDS[0])])]
        assert journal.append({"after": 1}) == len(found)


@pytest.mark.parametrize("call", ["write", "sync", "truncate"])
def test_interrupted_at_any_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with Journal.create(tmp_path) as journal:
        journal.append({})
        if call == "truncate":
            Fault(monkeypatch, "write", no_space())
        Fault(monkeypatch, call, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            journal.append(RECORDS[0])
        if call == "truncate":
            with pytest.raises(
                JournalError, match="until it is opened again: a write was broken off"
            ):
                journal.append({})
        else:
            assert journal.append({"next": 1}) == 1
            assert list(records(tmp_path)) == [(0, {}), (1, {"next": 1})]


@pytest.mark.parametrize(
    "call", ["write_temporary", "write", "sync", "sync_folder", "rename", "open_to_append"]
)
@pytest.mark.parametrize("error", [no_space(), KeyboardInterrupt()])
def test_a_snapshot_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    with Journal.create(tmp_path, keep=1) as journal:
        journal.append_many(RECORDS[:2])
        journal.snapshot({"first": 1}, {})
        journal.append(RECORDS[2])
        Fault(monkeypatch, call, error)
        with pytest.raises((JournalError, KeyboardInterrupt)) as refusal:
            journal.snapshot({"second": 1}, {})
        if isinstance(error, OSError):
            words = f"cannot write journal {tmp_path}: No space left on device; the snapshot before record 3 was not"
            assert str(refusal.value) == f"{words} taken"
        assert [file.n for file in snapshots(tmp_path)] == [2]
        assert [path.name for path in tmp_path.glob(".*")] == []
        assert journal.append(RECORDS[3]) == 3
        assert journal.snapshot({"third": 1}, {}) == 4
        assert journal.append(RECORDS[4]) == 4
    snapshot, later = read_latest(tmp_path)
    assert snapshot is not None
    assert (snapshot.document, list(later)) == ({"third": 1}, entries(4))
    assert [file.n for file in snapshots(tmp_path)] == [4]


def test_a_segment_begun_for_a_snapshot_that_failed_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.create(tmp_path) as journal:
        journal.append_many(RECORDS[:2])
        Fault(monkeypatch, "rename", no_space())
        with pytest.raises(JournalError):
            journal.snapshot({}, {})
        journal.append_many(RECORDS[2:])
    assert (tmp_path / "events-000000000002.jsonl").stat().st_size > 0
    assert same(list(records(tmp_path)), entries())
    assert read_latest(tmp_path)[0] is None


def test_a_segment_that_cannot_be_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Journal.create(tmp_path) as journal:
        journal.append({})
        Fault(monkeypatch, "sync_folder", no_space())
        with monkeypatch.context() as patched:
            patched.setattr(
                Path, "unlink", lambda *arguments, **more: (_ for _ in ()).throw(broken())
            )
            with pytest.raises(
                JournalError, match="Input/output error; the snapshot before record 1 was not taken"
            ):
                journal.snapshot({}, {})
        with pytest.raises(
            JournalError, match="opened again: a segment was begun, but not for sure"
        ):
            journal.append({})
    with Journal.open(tmp_path) as journal:
        assert journal.append({}) == 1
    assert list(records(tmp_path)) == [(0, {}), (1, {})]


def test_older_files_that_cannot_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.create(tmp_path, keep=1) as journal:
        journal.append({})
        with monkeypatch.context() as patched:
            patched.setattr(
                Path, "unlink", lambda *arguments, **more: (_ for _ in ()).throw(broken())
            )
            with pytest.raises(
                JournalError, match=r"record 1 was taken, but older files could not be deleted$"
            ):
                journal.snapshot({}, {})
        journal.append({})
        journal.snapshot({}, {})
    assert [file.n for file in snapshots(tmp_path)] == [2]
    assert len(list(tmp_path.glob("events*"))) == 1


def test_what_is_safe_before_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal.create(tmp_path, keep=1)
    quick = Journal.create(tmp_path / "quick", fsync=False, keep=1)
    calls: list[str] = []

    def log(owner: Any, name: str, do: Callable[..., Any]) -> None:
        monkeypatch.setattr(
            owner, name, lambda *given, **more: (calls.append(name), do(*given, **more))[1]
        )

    for name in ("write", "sync", "sync_folder", "rename", "open_to_append", "truncate"):
        log(disk, name, getattr(disk, name))
    log(Path, "unlink", Path.unlink)
    segment = ["open_to_append", "sync_folder", "open_to_append"]
    older = ["unlink", "sync_folder", "unlink"]
    taken = ["write", "sync", *segment, "rename", "sync_folder"]
    for steps in (["sync_folder", "unlink"], older):
        calls.clear()
        journal.append_many([{}, {}])
        assert calls == ["write", "sync"]
        calls.clear()
        journal.snapshot({}, {})
        assert calls == [*taken, *steps]
    for _ in range(2):
        calls.clear()
        quick.append({})
        quick.snapshot({}, {})
        assert [name for name in calls if name.startswith("sync")] == []
    journal.close()
    quick.close()


def test_a_creation_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal"
    for call in ("write", "sync_folder", "rename", "open_to_append", "sync", "lock"):
        Fault(monkeypatch, call, no_space())
        with pytest.raises(
            JournalError, match=rf"^cannot write journal {path}: No space left on device$"
        ):
            Journal.create(path)
        monkeypatch.undo()
        if call == "sync_folder":  # all is there, only its name was not safe
            Journal.open(path).close()
            (path / "journal.json").unlink()
    with Journal.create(path) as journal:
        assert journal.append({}) == 0


def test_the_system_s_own_limit(tmp_path: Path) -> None:
    """A process that may not write files of more than some bytes, and then may."""
    program = f"""
import resource, numpy as np
from optsched.errors import JournalError
from optsched.rounds.journal import Journal, records
journal = Journal.create({str(tmp_path / "journal")!r}, fsync=False)
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, most))
taken = 0
try:
    while True:
        assert journal.append({{"row": taken, "text": "x" * 100}}) == taken
        taken += 1
except JournalError as error:
    assert str(error).endswith(f"File too large; record {{taken}} was not taken in"), error
assert taken == len(list(records(journal.path))) > 20
try:
    journal.snapshot({{}}, {{"x": np.random.default_rng(0).random(2000)}})
except JournalError as error:
    assert str(error).endswith(f"File too large; the snapshot before record {{taken}} was not taken"), error
else:
    raise AssertionError
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
assert journal.append({{"row": taken}}) == taken
journal.snapshot({{}}, {{"x": np.random.default_rng(0).random(2000)}})
journal.close()
assert [entry.record["row"] for entry in records(journal.path)] == list(range(taken + 1))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
