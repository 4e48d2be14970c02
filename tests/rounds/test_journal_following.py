"""Reading while the journal is written: new records, new segments, deleted ones, and memory that stays flat."""

from __future__ import annotations

import json
import os
import tracemalloc
import zlib
from pathlib import Path

import pytest
from journal_cases import RECORDS

from optsched.errors import JournalDamaged, JournalError
from optsched.rounds.journal import Journal, disk, follow, read_from, records
from optsched.rounds.journal import reader as reading
from optsched.rounds.journal.files import BLOCK, Layout, SegmentReader, list_folder


def test_following_across_segments(tmp_path: Path) -> None:
    with Journal.create(tmp_path, fsync=False) as journal, follow(tmp_path) as follower:
        assert list(follower.poll()) == []
        for row in range(12):
            first = journal.next_n
            journal.append_many([{"row": row}] * (row % 4))
            if row % 3 == 2:
                journal.snapshot({}, {})
            assert [entry.n for entry in follower.poll()] == list(range(first, journal.next_n))
            assert list(follower.poll()) == []
            assert follower.n == journal.next_n
        journal.append_many([{}] * 3)
        assert next(follower.poll()).n == follower.n - 1  # one is taken, the others stay for later
        assert len(list(follower.poll())) == 2


def test_following_from_somewhere(tmp_path: Path) -> None:
    with Journal.create(tmp_path, fsync=False) as journal:
        journal.append_many([{}] * 5)
        with follow(tmp_path, 3) as middle, follow(tmp_path, 7) as later:
            assert [entry.n for entry in middle.poll()] == [3, 4]
            assert list(later.poll()) == []
            journal.append_many([{}] * 5)
            journal.snapshot({}, {})
            assert [entry.n for entry in middle.poll()] == [5, 6, 7, 8, 9]
            assert [entry.n for entry in later.poll()] == [7, 8, 9]


def test_a_line_that_is_just_being_written(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "a", fsync=False) as journal, follow(tmp_path / "a") as follower:
        journal.append_many(RECORDS)
        segment = tmp_path / "a" / "events-000000000000.jsonl"
        data = segment.read_bytes()
        segment.write_bytes(b"")
        seen = 0
        for size in range(1, len(data) + 1):
            with segment.open("ab") as file:
                file.write(data[size - 1 : size])
            seen += len(list(follower.poll()))
            assert seen == data[:size].count(b"\n")


def test_old_segments_are_deleted_under_a_follower(tmp_path: Path) -> None:
    with (
        Journal.create(tmp_path, fsync=False, keep=1) as journal,
        follow(tmp_path) as quick,
        follow(tmp_path) as slow,
    ):
        journal.append({"row": 0})
        assert len(list(quick.poll())) == len(list(slow.poll())) == 1
        for row in range(1, 4):
            journal.append({"row": row})
            journal.snapshot({}, {})
            assert [entry.n for entry in quick.poll()] == [row]
        assert next(slow.poll()).n == 1  # of the segment that it holds open
        with pytest.raises(
            JournalError,
            match=r"has no records before 4 any more \(asked for: 2 and later\); begin wi",
        ):
            list(slow.poll())


@pytest.mark.parametrize("batch", [[{"row": 1}], [{"row": 1}, {"row": 2}]])
def test_records_that_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: list[dict[str, int]]
) -> None:
    """Whoever reads between a write and its failure has seen what is not there; and it may look just the same."""
    with Journal.create(tmp_path) as journal, follow(tmp_path) as follower:
        journal.append({"row": 0})
        sync = disk.sync

        def fail(file: object) -> None:
            monkeypatch.setattr(disk, "sync", sync)
            assert len(list(follower.poll())) == 1 + len(batch)
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(disk, "sync", fail)
        with pytest.raises(JournalError, match="No space left"):
            journal.append_many(batch)
        journal.append_many([{"row": 7}, *batch[1:]])
        with pytest.raises(
            JournalError,
            match=r"the last records before \d were seen before they were safe, and were",
        ):
            list(follower.poll())
    assert [entry.record["row"] for entry in records(tmp_path)] == [0, 7, *[2] * (len(batch) - 1)]


def test_a_line_that_changes_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block may have the beginning of what was taken back, and the file by then something else."""
    with Journal.create(tmp_path, fsync=False) as journal:
        journal.append_many([{"row": 0}, {"row": 1}, {"row": 2}])
    read, stale = SegmentReader._read, []

    def read_stale(segment: SegmentReader, size: int, position: int) -> bytes:
        data = read(segment, size, position)
        if size == BLOCK and not stale:
            stale.append(data)
            return data.replace(b'"row":1', b'"row":7')
        return data

    monkeypatch.setattr(SegmentReader, "_read", read_stale)
    assert [entry.record["row"] for entry in records(tmp_path)] == [0, 1, 2]
    assert stale


def test_a_segment_that_grows_and_ends_after_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.create(tmp_path, fsync=False) as journal, follow(tmp_path) as follower:
        journal.append({})
        assert len(list(follower.poll())) == 1

        def write_then_list(folder: Path) -> Layout:
            if journal.next_n < 4:
                journal.append({})
                journal.snapshot({}, {})
                journal.append({})
            return list_folder(folder)

        monkeypatch.setattr(reading, "list_folder", write_then_list)
        assert [entry.n for entry in follower.poll()] == [1, 2, 3, 4]


def test_a_folder_that_changes_while_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may name a file that came later and leave out one that came before."""
    with Journal.create(tmp_path, fsync=False) as journal:
        journal.append({})
        journal.snapshot({}, {})
    whole = list_folder(tmp_path)
    names = os.listdir(tmp_path)
    listings = [[name for name in names if not name.startswith("events")]]
    monkeypatch.setattr(os, "listdir", lambda folder: listings.pop() if listings else names)
    assert list_folder(tmp_path) == whole
    assert listings == []


def test_reading_again_where_files_went_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Journal.create(tmp_path, fsync=False, keep=1) as journal:
        journal.append({})
        journal.snapshot({"first": True}, {})
        listed = []

        def list_then_write(folder: Path) -> Layout:
            layout = list_folder(folder)
            if not listed:
                listed.append(layout)
                journal.append({})
                journal.snapshot({"first": False}, {})
            return layout

        monkeypatch.setattr(reading, "list_folder", list_then_write)
        snapshot, later = read_from(tmp_path, 99)
        assert snapshot is not None
        assert (snapshot.n, list(later)) == (2, [])
        listed.clear()
        with pytest.raises(JournalError, match="has no records before 3 any more"):
            list(records(tmp_path, 2))


def test_only_the_segments_that_are_needed_are_opened(tmp_path: Path) -> None:
    with Journal.create(tmp_path, fsync=False) as journal:
        for _ in range(4):
            journal.append_many([{}] * 5)
            journal.snapshot({}, {})
    for start in (0, 15):
        (tmp_path / f"events-{start:012d}.jsonl").write_text("damaged\n\n")
    assert [entry.n for entry in records(tmp_path, 7, 13)] == list(range(7, 13))
    assert [entry.n for entry in records(tmp_path, 7, 15)] == list(range(7, 15))
    assert list(records(tmp_path, 7, 7)) == []
    for start, stop in ((0, 1), (7, 16)):
        with pytest.raises(JournalDamaged):
            list(records(tmp_path, start, stop))


def test_lines_longer_than_a_block(tmp_path: Path) -> None:
    long = [{"text": "x" * size} for size in (BLOCK - 30, BLOCK, 5 * BLOCK, 3)]
    with Journal.create(tmp_path, fsync=False) as journal:
        journal.append_many(long)
    assert [entry.record for entry in records(tmp_path)] == long


@pytest.mark.property
def test_memory_stays_flat(tmp_path: Path) -> None:
    Journal.create(tmp_path).close()
    check, lines = 0, []
    for n in range(60_000):
        covered = b'{"n":%d,"row":%d' % (n, n)
        check = zlib.crc32(covered, check)
        lines.append(b'%s,"crc":"%08x"}\n' % (covered, check))
    (tmp_path / "events-000000000000.jsonl").write_bytes(b"".join(lines))
    assert json.loads(lines[-1])["row"] == 59_999
    del lines
    tracemalloc.start()
    try:
        found = sum(1 for _ in records(tmp_path, 50_000))  # those before are read and checked, too
        assert found == 10_000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
