"""One process owns a journal: a second one is refused, or takes it for good, and the first one writes no more."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from io import FileIO
from pathlib import Path

import pytest
from documents import instance_document

import optsched
from optsched.errors import JournalError
from optsched.rounds import Scheduler
from optsched.rounds.journal import Journal, records

pytestmark = pytest.mark.process

PROGRAM = """
import fcntl, sys
from optsched.rounds.journal import Journal
path, lockless = sys.argv[1:]
if lockless == "lockless":  # as on a disk in a network without locks
    fcntl.flock = lambda *_: None
with Journal.open(path) as journal:
    journal.append({"by": "second"})
    print("written", flush=True)
    for line in sys.stdin:
        journal.append({"by": "second"})
        print("written", flush=True)
"""


def second(path: Path, lock: str = "locks") -> subprocess.Popen[str]:
    """Another process that opens the journal, writes a record, and one more for each line that it is given."""
    pipe = subprocess.PIPE
    arguments = [sys.executable, "-c", PROGRAM, str(path), lock]
    return subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def writers(path: Path) -> list[str]:
    return [entry.record["by"] for entry in records(path)]


def token(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((path / "journal.lock").read_text())
    return found


def test_the_owner_stands_in_the_folder(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j"):
        first = token(tmp_path / "j")
        assert (first["process"], first["host"]) == (os.getpid(), socket.gethostname())
    with Journal.open(tmp_path / "j"):
        assert token(tmp_path / "j")["token"] != first["token"]


def test_a_second_process_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.create(path) as journal:
        journal.append({"by": "first"})
        out, err = second(path).communicate("")
        owner = f"process {os.getpid()} on {socket.gethostname()} since "
        assert not out and f"journal {path} is in use by {owner}" in err
        journal.append({"by": "first"})
    assert writers(path) == ["first"] * 2


@pytest.mark.parametrize("lock_deleted", [False, True])
def test_what_a_dead_process_owned_is_taken(tmp_path: Path, lock_deleted: bool) -> None:
    path = tmp_path / "j"
    Journal.create(path).close()
    process = second(path)
    assert process.stdout is not None and process.stdout.readline() == "written\n"
    owner = f"process {process.pid} on "
    if lock_deleted:
        (path / "journal.lock").unlink()
        owner = "another process"
    with pytest.raises(JournalError, match=f"is in use by {owner}"):
        Journal.open(path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with Journal.open(path) as journal:
        journal.append({"by": "first"})
    assert writers(path) == ["second", "first"]


def test_the_one_who_took_it_last_is_the_owner_where_locks_do_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.create(path) as journal:
        journal.append({"by": "first"})
        process = second(path, "lockless")
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        for _ in range(2):
            with pytest.raises(JournalError) as caught:
                journal.append({"by": "first"})
            assert f"opened again: process {process.pid} on " in str(caught.value)
            assert str(caught.value).endswith(" has taken it over")
        out, err = process.communicate("go on\n")
        assert (out, err) == ("written\n", "")
        with pytest.raises(JournalError, match="has taken it over"):
            journal.append({"by": "first"})  # though the other one has ended
    assert writers(path) == ["first", "second", "second"]
    with Journal.open(path) as journal:
        journal.append({"by": "first"})


def moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def written_back(path: Path) -> None:
    """The folder of a backup has the same token, and other files."""
    shutil.copytree(path, path.with_name("backup"))
    shutil.rmtree(path)
    path.with_name("backup").rename(path)


def segment_written_back(path: Path) -> None:
    (segment,) = path.glob("events-*")
    shutil.copy(segment, path / "copy")
    (path / "copy").rename(segment)


@pytest.mark.parametrize(
    ("done", "words"),
    [
        (moved, "its journal.lock was deleted or replaced"),
        (written_back, "its journal.lock was deleted or replaced"),
        (segment_written_back, "events-000000000000.jsonl was deleted or replaced"),
    ],
)
def test_a_writer_notices_that_the_files_are_others(
    done: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "j"
    with Journal.create(path) as journal:
        journal.append({"by": "first"})
        done(path)
        for call in (lambda: journal.append({}), lambda: journal.snapshot({}, {})):
            with pytest.raises(JournalError, match=f"takes nothing more .*: {words}"):
                call()
    there = path if path.exists() else path.with_name("elsewhere")
    assert writers(there) == ["first"]
    Journal.open(there).close()


def test_a_copy_has_an_owner_of_its_own(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j") as journal:
        shutil.copytree(tmp_path / "j", tmp_path / "copy")
        with Journal.open(tmp_path / "copy") as other:
            other.append({"by": "second"})
        journal.append({"by": "first"})
    assert (writers(tmp_path / "j"), writers(tmp_path / "copy")) == (["first"], ["second"])


def test_a_second_process_is_refused_though_the_lock_was_deleted(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.create(path) as journal:
        journal.append({"by": "first"})
        (path / "journal.lock").unlink()
        out, err = second(path).communicate("")
        assert not out and f"journal {path} is in use by another process" in err
        journal.append({"by": "first"})
        assert token(path)["process"] == os.getpid()  # the file is there again
        out, err = second(path).communicate("")
        assert not out and f"is in use by process {os.getpid()} on " in err
    assert writers(path) == ["first"] * 2
    Journal.open(path).close()


OLDER = """
import fcntl, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write("17")
print("locked", flush=True)
time.sleep(600)
"""


def test_a_version_that_looks_at_the_lock_alone_is_seen_after_the_lock_was_deleted(
    tmp_path: Path,
) -> None:
    path = tmp_path / "j"
    with Journal.create(path) as journal:
        (path / "journal.lock").unlink()
        older = subprocess.Popen(
            [sys.executable, "-c", OLDER, str(path / "journal.lock")],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with older:
            assert older.stdout is not None and older.stdout.readline() == "locked\n"
            with pytest.raises(JournalError, match=r"its journal\.lock was deleted or replaced"):
                journal.append({"by": "first"})
            older.kill()


def test_a_disk_that_locks_no_folders_has_the_lock_of_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = fcntl.flock

    def flock(file: int | FileIO, operation: int) -> None:
        if isinstance(file, int):  # a folder
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    path = tmp_path / "j"
    with Journal.create(path) as journal:
        journal.append({"by": "first"})
        with pytest.raises(JournalError, match=f"is in use by process {os.getpid()} on "):
            Journal.open(path)
        (path / "journal.lock").unlink()
        with pytest.raises(JournalError, match=r"its journal\.lock was deleted or replaced"):
            journal.append({"by": "first"})


def test_a_scheduler_that_lost_its_journal_takes_no_event_and_no_plan(tmp_path: Path) -> None:
    document = instance_document([{"name": "v100", "nodes": 1, "gpus_per_node": 2}], [])
    job = {"id": "a", "steps": 1e5, "throughput": {"v100": 1.0}}
    path, elsewhere = tmp_path / "j", tmp_path / "elsewhere"
    with Scheduler(optsched.Instance.from_document(document), journal=path, isolate=False) as first:
        first.submit(job)
        (path / "journal.lock").unlink()
        with pytest.raises(JournalError, match="is in use by another process"):
            Scheduler.recover(path, isolate=False)
        first.submit(job | {"id": "b"})
        state = first.state
        shutil.copytree(path, elsewhere)
        shutil.rmtree(path)
        elsewhere.rename(path)
        with Scheduler.recover(path, isolate=False) as other:
            for call in (lambda: first.cancel("a"), first.solve):
                with pytest.raises(JournalError, match="another process may write it"):
                    call()
            assert first.state is state
            other.cancel("a")
    with Scheduler.recover(path, isolate=False) as other:
        assert len(other.instance.jobs_table) == 1
