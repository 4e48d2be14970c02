"""The journal as a store: what is appended is read again, what cannot be is refused in one sentence."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_cases import (
    ARRAYS,
    DOCUMENT,
    RECORDS,
    SEGMENTS,
    SNAPSHOT,
    contents,
    entries,
    same,
    small_journal,
)
from refusals import refuses

from optsched.errors import InvalidInput, JournalDamaged, JournalError, UsageError

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.journal import Journal, read_from, read_latest, records, snapshots
from optsched.rounds.journal.records import check_line, decode_line, encode_line

TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def in_unicode(value: object) -> bool:
    """Whether JSON can tell the texts in it: not two halves of one character side by side."""
    return same(json.loads(json.dumps(value)), value)


# --- records -------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(TEXT, VALUES, max_size=4), st.integers(0, 10**13), st.integers(0, 2**32 - 1))
def test_a_record_is_read_as_it_was_written(record: dict[str, Any], n: int, check: int) -> None:
    if {"n", "crc"} & set(record) or not in_unicode(record):
        with pytest.raises(InvalidInput):
            encode_line(n, record, check)
        return
    line, following = encode_line(n, record, check)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line.isascii()
    assert check_line(line[:-1], n, check) == following
    assert same(decode_line(line[:-1]), record)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"a": {"b": [1.0, float("nan")]}}, "record 0.a.b[1]: found NaN, expected a finite number"),
        ({"a": float("-inf")}, "record 0.a: found -Infinity, expected a finite number"),
        ({"a": {1: 2}}, "record 0.a: found 1 as a key, expected text as the key"),
        (
            {"a": (1, 2)},
            "record 0.a: found a value of type tuple, expected a JSON value (a tuple as a list)",
        ),
        (
            {"a": np.int64(1)},
            "record 0.a: found a value of type int64, expected a JSON value (a tuple as a list)",
        ),
        (
            {"a": ["\ud83d\ude00"]},
            'record 0.a[0]: found "\\ud83d\\ude00", expected text in Unicode',
        ),
        (
            {"n": 1},
            "record 0.n: found 1, expected no such key: it is taken for the record's number",
        ),
        (
            {"crc": "x"},
            'record 0.crc: found "x", expected no such key: it is taken for the line\'s checksum',
        ),
        ([1], "record 0: found [1], expected an object"),
    ],
)
def test_what_is_no_record(tmp_path: Path, record: Any, message: str) -> None:
    with Journal.create(tmp_path, fsync=False) as journal:
        with refuses(message):
            journal.append(record)
        with refuses(message.replace("record 0", "record 1", 1)):
            journal.append_many([{}, record])
        assert journal.append({}) == 0


def test_endless_records(tmp_path: Path) -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with Journal.create(tmp_path, fsync=False) as journal, pytest.raises(InvalidInput) as error:
        journal.append(endless)
    assert "nested without end" in error.value.found


def test_numbers_of_records(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "a") as journal:
        assert [journal.append(record) for record in RECORDS[:2]] == [0, 1]
        assert journal.append_many(RECORDS[2:]) == range(2, 5)
        assert journal.append_many([]) == range(5, 5)
        assert journal.next_n == 5
    with Journal.open(tmp_path / "a") as journal:
        assert (journal.next_n, journal.dropped) == (5, "")
    assert same(list(records(tmp_path / "a")), entries())


# --- snapshots -----------------------------------------------------------------------------------------------------


def test_a_snapshot_is_read_as_it_was_written(tmp_path: Path) -> None:
    small_journal(tmp_path)
    snapshot, later = read_latest(tmp_path)
    assert snapshot is not None
    assert (snapshot.n, snapshot.document) == (3, DOCUMENT)
    assert list(snapshot.document) == list(DOCUMENT)
    assert list(snapshot.arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert snapshot.arrays[name].dtype == array.dtype
        assert snapshot.arrays[name].shape == array.shape
        assert snapshot.arrays[name].tobytes() == array.tobytes()
    assert same(list(later), entries(3))


def test_equal_journals_are_equal_bytes(tmp_path: Path) -> None:
    first, second = (small_journal(tmp_path / name) for name in "ab")
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted([*SEGMENTS, SNAPSHOT, "journal.json", "journal.lock"])
    names.remove("journal.lock")  # names the process
    assert [(first / name).read_bytes() for name in names] == [
        (second / name).read_bytes() for name in names
    ]
    with np.load(first / SNAPSHOT, allow_pickle=False) as archive:  # as anybody can read it
        assert archive["arrays/round"] == 7


@pytest.mark.parametrize(
    ("document", "arrays", "message"),
    [
        ({"a": float("inf")}, {}, "document.a: found Infinity, expected a finite number"),
        ([], {}, "document: found [], expected an object"),
        (
            {},
            {"a": np.array([{}])},
            "arrays.a: found an array of object, expected a numpy array without Python objects",
        ),
        ({}, {"a": [1.0]}, "arrays.a: found [1.0], expected a numpy array without Python objects"),
        ({}, {"../a": np.zeros(1)}, 'arrays: found the name "../a", expected 1 to 100 letters...'),
    ],
)
def test_what_is_no_snapshot(tmp_path: Path, document: Any, arrays: Any, message: str) -> None:
    with Journal.create(tmp_path, fsync=False) as journal:
        journal.append({})
        with refuses(message):
            journal.snapshot(document, arrays)
        assert journal.append({}) == 1
    assert snapshots(tmp_path) == []


def test_two_snapshots_of_one_moment(tmp_path: Path) -> None:
    with Journal.create(tmp_path, fsync=False) as journal:
        assert [journal.snapshot({"try": row}, {}) for row in range(2)] == [0, 0]
        journal.append({})
    snapshot, later = read_latest(tmp_path)
    assert snapshot is not None
    assert (snapshot.document, len(list(later))) == ({"try": 1}, 1)


def test_snapshots_are_chosen(tmp_path: Path) -> None:
    with Journal.create(tmp_path, fsync=False) as journal:
        for now in range(4):
            journal.append_many([{"now": now}] * 2)
            journal.snapshot({"now": now}, {"x": np.zeros(now)})
    assert [file.n for file in snapshots(tmp_path)] == [2, 4, 6, 8]
    assert [file.document()["now"] for file in snapshots(tmp_path)] == [0, 1, 2, 3]
    for before, n in (
        (5, 4),
        (4, 4),
        (100, 8),
        (1, None),
        (lambda document: document["now"] <= 1, 4),
    ):
        snapshot, later = read_from(tmp_path, before)
        assert (snapshot and snapshot.n) == n
        assert [entry.n for entry in later] == list(range(n or 0, 8))


@pytest.mark.parametrize("keep", [1, 3])
def test_old_snapshots_and_their_segments_are_deleted(tmp_path: Path, keep: int) -> None:
    with Journal.create(tmp_path, fsync=False, keep=keep) as journal:
        for row in range(10):
            journal.append_many([{}] * 10)
            journal.snapshot({"row": row}, {})
            kept = [10 * (row + 1) for row in range(max(0, row - keep + 1), row + 1)]
            assert [file.n for file in snapshots(tmp_path)] == kept
            first = kept[0] if len(kept) == keep else 0
            segments = sorted(path.name for path in tmp_path.glob("events*"))
            assert segments == [
                f"events-{start:012d}.jsonl" for start in range(first, 10 * row + 11, 10)
            ]
        journal.append({})
    assert [entry.n for entry in records(tmp_path)] == list(range(100 - 10 * (keep - 1), 101))
    with pytest.raises(
        JournalError, match=r"has no records before \d+ any more \(asked for: 5 and later\)"
    ):
        records(tmp_path, 5)
    with pytest.raises(JournalError, match=r"has no records before .* begin with a snapshot"):
        read_from(tmp_path, 5)


# --- what is no journal --------------------------------------------------------------------------------------------


def test_other_folders(tmp_path: Path) -> None:
    for use in (Journal.open, read_latest, records, snapshots):
        with pytest.raises(JournalError, match=r"^no journal at .*/nothing: no such folder$"):
            use(tmp_path / "nothing")
        with pytest.raises(JournalError, match=r"a folder without the file journal.json$"):
            use(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(
        JournalError, match=r"no journal at .*/file: that is a file, a journal is a folder$"
    ):
        Journal.open(tmp_path / "file")
    with pytest.raises(JournalError, match=r"no journal can be made at .*/file: that is a file$"):
        Journal.create(tmp_path / "file")
    with pytest.raises(
        JournalError, match=r"no journal can be made at .*: the folder is not empty \(file\)$"
    ):
        Journal.create(tmp_path)
    with pytest.raises(
        JournalError, match=r"^cannot write journal .*/nothing/at/all: No such file or directory$"
    ):
        Journal.create(tmp_path / "nothing" / "at" / "all")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_create_and_open(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal.open(path, create=True) as journal:
        journal.append({})
    with Journal.open(path, create=True) as journal:
        assert journal.next_n == 1
    with pytest.raises(
        JournalError, match=r"there is one already; Scheduler.recover goes on with it$"
    ):
        Journal.create(path)
    with refuses("keep: found 0", UsageError):
        Journal.open(path, keep=0)
    with refuses("start: found -1", UsageError):
        records(path, -1)
    with refuses("stop: found -1", UsageError):
        records(path, stop=-1)
    with pytest.raises(JournalError, match=r"^journal .*/journal is closed$"):
        journal.append({})


def test_a_creation_that_was_broken_off_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "journal.lock").touch()
    (tmp_path / SEGMENTS[0]).touch()
    (tmp_path / ".writing-journal.json").write_text("{")
    with Journal.create(tmp_path) as journal:
        journal.append({})
    assert sorted(os.listdir(tmp_path)) == [SEGMENTS[0], "journal.json", "journal.lock"]
    (tmp_path / "journal.json").unlink()
    with pytest.raises(JournalError, match=rf"not empty \({SEGMENTS[0]}\)$"):
        Journal.create(tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [("", '""'), ("[1]\n", r'"[1]\n"')],
)
def test_a_damaged_header(tmp_path: Path, text: str, found: str) -> None:
    small_journal(tmp_path)
    (tmp_path / "journal.json").write_text(text)
    for use in (Journal.open, read_latest):
        with refuses(
            f'journal.json: found {found}, expected {{"format": "optsched-journal/1"}}',
            JournalDamaged,
        ):
            use(tmp_path)


def test_another_format(tmp_path: Path) -> None:
    small_journal(tmp_path)
    (tmp_path / "journal.json").write_text('{"format": "optsched-journal/2"}')
    for use in (Journal.open, read_latest):
        with pytest.raises(
            JournalError, match='has the format "optsched-journal/2", expected "optsched-'
        ) as error:
            use(tmp_path)
        assert type(error.value) is JournalError


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may be allowed everything, so the system's word is made up."""
    small_journal(tmp_path)
    opened = os.open

    def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(
        JournalError, match=rf"^cannot write journal {tmp_path}: Permission denied$"
    ):
        Journal.open(tmp_path)
    assert contents(tmp_path)[1] is not None


# --- one writer ----------------------------------------------------------------------------------------------------


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with Journal.create(tmp_path) as journal:
        journal.append({})
        program = f"from optsched.rounds.journal import Journal; Journal.open({str(tmp_path)!r})"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert (
            f"{tmp_path} is in use by process {os.getpid()} on {socket.gethostname()} since 20"
            in done.stderr
        )
        with pytest.raises(JournalError, match="is in use by process"):
            Journal.open(tmp_path)
        assert len(list(records(tmp_path))) == 1  # reading needs no lock
        journal.append({})
    Journal.open(tmp_path).close()


def test_a_writer_notices_what_it_has_not_written(tmp_path: Path) -> None:
    with Journal.create(tmp_path) as journal:
        journal.append({})
        with (tmp_path / SEGMENTS[0]).open("ab") as segment:
            segment.write(b"{}\n")
        with pytest.raises(JournalError, match="another process has written events-000000000000"):
            journal.append({})


def test_a_forked_child_neither_writes_nor_keeps_the_lock(tmp_path: Path) -> None:
    program = f"""
import os, signal
from optsched.errors import JournalError
from optsched.rounds.journal import Journal
journal = Journal.create({str(tmp_path / "journal")!r})
heard, said = os.pipe()
child = os.fork()
if not child:
    try:
        journal.append({{}})
    except JournalError as error:
        os.write(said, str(error).encode())
        signal.pause()
    os._exit(1)
os.close(said)
assert os.read(heard, 1000).endswith(b"is closed")
journal.append({{}})
journal.close()
Journal.open(journal.path).close()
os.kill(child, signal.SIGKILL)
assert os.waitpid(child, 0)[1] == signal.SIGKILL
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
