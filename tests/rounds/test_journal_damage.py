"""A journal that is cut, changed or robbed: no acknowledged record is lost unsaid, and none is invented."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from journal_cases import (
    ARRAYS,
    DOCUMENT,
    RECORDS,
    SEGMENTS,
    SNAPSHOT,
    contents,
    copy_of,
    entries,
    same,
    small_journal,
)
from refusals import refuses

from optsched.errors import JournalDamaged, JournalError

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.journal import Journal, read_latest, records, snapshots
from optsched.rounds.journal.records import encode_line

pytestmark = pytest.mark.property


UNFIT = "found a line that its checksum does not fit, expected record"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_journal(tmp_path_factory.mktemp("journals") / "original")


def reopened(folder: Path) -> str:
    """What opening a journal says that it dropped."""
    with Journal.open(folder, fsync=False) as journal:
        return journal.dropped


def is_damaged(folder: Path, damage: str, *uses: Callable[[Path], object]) -> None:
    """Each use of a journal refuses it for this damage, and no use changes it."""
    before = {path: path.read_bytes() for path in folder.iterdir()}
    for use in uses:
        with refuses(damage, JournalDamaged):
            use(folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


# --- cut -----------------------------------------------------------------------------------------------------------


def test_cut_at_every_byte(original: Path, tmp_path: Path) -> None:
    folder = copy_of(original, tmp_path / "cut")
    segment = folder / SEGMENTS[1]
    data = segment.read_bytes()
    for size in range(len(data) + 1):
        segment.write_bytes(data[:size])
        whole = 3 + data[:size].count(b"\n")  # lines that were written wholly
        assert same(list(records(folder)), entries(0, whole))
        with Journal.open(folder, fsync=False) as journal:
            torn = size - len(b"".join(data[:size].splitlines(keepends=True)[: whole - 3]))
            assert journal.next_n == whole
            said = f"{SEGMENTS[1]}, line {whole - 2}: {torn} bytes without an end of line; record {whole} was never"
            assert journal.dropped.startswith(said) if torn else journal.dropped == ""
            assert bool(journal.empty) == (size == 0)
            assert segment.stat().st_size == size - torn
            assert journal.append({"after": size}) == whole
        assert list(records(folder))[whole:] == [(whole, {"after": size})]


def test_a_last_line_that_was_not_written_to_its_end_but_is_as_long(
    original: Path, tmp_path: Path
) -> None:
    """As a loss of power leaves it: the file's length is safe before its bytes are."""
    folder = copy_of(original, tmp_path / "zeros")
    segment = folder / SEGMENTS[1]
    data = segment.read_bytes()
    start = data.index(b"\n") + 1
    for torn in (
        b"\0" * 40,
        data[start:-9] + b"\0" * 9,
        b"\0" * 9 + data[start + 9 :],
        data[start:-1] + b"\0\0",
    ):
        segment.write_bytes(data[:start] + torn)
        found = contents(folder)
        assert same(found, (entries(0, 4), read_latest(original)[0], entries(3, 4)))
        assert "record 4 was never finished" in reopened(folder)
        assert segment.read_bytes() == data[:start]


def test_a_cut_in_the_middle_is_damage(original: Path, tmp_path: Path) -> None:
    folder = copy_of(original, tmp_path / "cut")
    segment = folder / SEGMENTS[0]
    data = segment.read_bytes()
    for size in range(len(data)):
        segment.write_bytes(data[:size])
        found = []
        with pytest.raises(JournalDamaged):
            found.extend(records(folder))
        assert same(found, entries()[: len(found)])
        assert segment.read_bytes() == data[:size]
    assert same(list(read_latest(folder)[1]), entries(3))  # which needs nothing older
    segment.write_bytes(b"".join(data.splitlines(keepends=True)[:2]))
    is_damaged(folder, f"{SEGMENTS[1]}: found records from 3 on, expected record 2 first", contents)


# --- changed -------------------------------------------------------------------------------------------------------


def any_byte_changed(file: Path, end: int | None = None) -> Iterator[int]:
    """Change one byte after the other, by one bit and to an end of line (if that is given); yields its place."""
    data = file.read_bytes()
    for place in range(len(data)):
        flipped = data[place] ^ (1 << place % 8)
        for other in sorted({flipped, flipped if end is None else end} - {data[place]}):
            file.write_bytes(data[:place] + bytes([other]) + data[place + 1 :])
            yield place


def test_any_byte_of_a_segment_changed(original: Path, tmp_path: Path) -> None:
    folder = copy_of(original, tmp_path / "changed")
    for name in SEGMENTS:
        data = (folder / name).read_bytes()
        last = data.index(b"\n") if name == SEGMENTS[1] else len(data)
        for place in any_byte_changed(folder / name, ord("\n")):
            found = []
            try:
                found.extend(records(folder))
            except JournalDamaged as error:
                assert error.file in SEGMENTS
                assert same(found, entries()[: len(found)])
            else:
                assert place > last and b"\0" in (folder / name).read_bytes()
                assert same(found, entries(0, 4))
        (folder / name).write_bytes(data)


def test_a_bit_of_a_last_line_that_has_its_end_is_damage(original: Path, tmp_path: Path) -> None:
    """It was written wholly, and may have been acknowledged: it is not dropped as if it had been broken off."""
    folder = copy_of(original, tmp_path / "flipped")
    segment = folder / SEGMENTS[1]
    data = segment.read_bytes()
    place = data.rindex(b'"crc"') - 3
    segment.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    is_damaged(folder, f"{SEGMENTS[1]}, line 2: {UNFIT} 4", contents, reopened)


def test_any_byte_of_a_snapshot_changed(tmp_path: Path) -> None:
    with Journal.create(tmp_path, fsync=False) as journal:
        journal.snapshot(DOCUMENT, {"owed": ARRAYS["owed"]})
    (file,) = snapshots(tmp_path)
    original = file.read()
    outcomes = Counter[str]()
    for _ in any_byte_changed(tmp_path / "snapshot-000000000000.npz"):
        try:
            assert same(file.read(), original)
            outcomes["same"] += 1  # a time stamp, or the like
        except JournalDamaged:
            outcomes["error"] += 1
    assert outcomes["error"] > 2 * outcomes["same"]
    (tmp_path / "snapshot-000000000000.npz").write_bytes(b"PK")
    found = 'an npz file that can\'t be read ("File is not a zip file")'
    is_damaged(tmp_path, f"snapshot-000000000000.npz: found {found}, expected a snapshot", contents)


def test_any_byte_of_the_header_changed(original: Path, tmp_path: Path) -> None:
    folder = copy_of(original, tmp_path / "changed")
    for _ in any_byte_changed(folder / "journal.json"):
        with pytest.raises(JournalError) as error:
            read_latest(folder)
        if isinstance(error.value, JournalDamaged):
            assert error.value.file == "journal.json"
        else:
            assert "has the format" in str(error.value)


def swap(lines: list[bytes]) -> list[bytes]:
    return [lines[1], lines[0], *lines[2:]]


def exchange(lines: list[bytes]) -> list[bytes]:
    """Another line with the right number, whole in itself."""
    return [lines[0], encode_line(1, {"other": 1}, 0)[0], *lines[2:]]


def rewrite(lines: list[bytes]) -> list[bytes]:
    """Another line with the right number and checksum; only the next one tells."""
    first, check = encode_line(0, RECORDS[0], 0)
    return [first, encode_line(1, {"other": 1}, check)[0], *lines[2:]]


@pytest.mark.parametrize(
    ("change", "line", "found"),
    [
        (lambda lines: lines[1:], 1, "found record 1, expected record 0"),
        (lambda lines: [lines[0], *lines[2:]], 2, "found record 2, expected record 1"),
        (lambda lines: [*lines[:3], lines[4]], 4, "found record 4, expected record 3"),
        (lambda lines: [lines[0], *lines], 2, "found record 0, expected record 1"),
        (
            lambda lines: [lines[0], b"\n", *lines[1:]],
            2,
            f"{UNFIT} 1",
        ),
        (
            lambda lines: [lines[0][:-1], *lines[1:]],
            1,
            "found record 0 without an end of line, expected record 0...",
        ),
        (
            lambda lines: [*lines[:3], lines[3][:-1], lines[4]],
            4,
            "found record 3 without an end of line",
        ),
        (
            lambda lines: [*lines[:4], lines[4][:-1], b"x"],
            5,
            "found record 4 without an end of line",
        ),
        (lambda lines: [*lines, b"x\n", b"y"], 6, f"{UNFIT} 5"),
        (swap, 1, "found record 1, expected record 0"),
        (exchange, 2, f"{UNFIT} 1"),
        (rewrite, 3, f"{UNFIT} 2"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_lines_changed(
    tmp_path: Path,
    change: Callable[[list[bytes]], list[bytes]],
    line: int,
    found: str,
    finished: bool,
) -> None:
    with Journal.create(tmp_path, fsync=False) as journal:
        journal.append_many(RECORDS)
        if finished:
            journal.snapshot({}, {})
    file = tmp_path / SEGMENTS[0]
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
    uses = (lambda folder: list(records(folder)), *(() if finished else (reopened,)))
    is_damaged(tmp_path, f"{SEGMENTS[0]}, line {line}: {found}", *uses)


# --- files gone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (SEGMENTS[1], f"{SEGMENTS[1]}: found no such file, expected the records from number 3 on"),
        (SEGMENTS[0], None),  # as if it had not been kept
        (SNAPSHOT, None),  # a segment may begin without one
    ],
)
def test_a_file_is_missing(original: Path, tmp_path: Path, name: str, message: str | None) -> None:
    folder = copy_of(original, tmp_path / "robbed")
    (folder / name).unlink()
    if message is None:
        assert same(list(read_latest(folder)[1]), entries(3 * (name == SEGMENTS[0])))
        assert reopened(folder) == ""
    else:
        is_damaged(folder, message, contents, reopened)


def test_neither_the_first_segment_nor_a_snapshot(original: Path, tmp_path: Path) -> None:
    folder = copy_of(original, tmp_path / "robbed")
    (folder / SEGMENTS[0]).unlink()
    (folder / SNAPSHOT).unlink()
    missing = f"{SEGMENTS[0]}: found no such file, expected the records from number 0 on"
    is_damaged(folder, missing, contents, reopened)


def test_another_snapshot_by_this_name(original: Path, tmp_path: Path) -> None:
    folder = copy_of(original, tmp_path / "robbed")
    with Journal.open(folder, fsync=False) as journal:
        journal.snapshot(DOCUMENT, ARRAYS)
    (folder / "snapshot-000000000005.npz").write_bytes((folder / SNAPSHOT).read_bytes())
    found = "found the state before record 3, expected that before record 5"
    is_damaged(folder, f"snapshot-000000000005.npz: {found}", contents)


def test_a_snapshot_that_was_not_finished_does_not_count(original: Path, tmp_path: Path) -> None:
    folder = copy_of(original, tmp_path / "left")
    temporary = folder / ".writing-snapshot-000000000005.npz"
    temporary.write_bytes(b"PK")
    (folder / "events-000000000005.jsonl").touch()  # begun before the snapshot gets its name
    assert same(contents(folder), contents(original))
    assert temporary.exists()
    assert reopened(folder) == ""
    assert not temporary.exists()
    with Journal.open(folder, fsync=False) as journal:
        assert journal.append({"next": 5}) == 5
        assert journal.snapshot({}, {}) == 6
    assert [entry.n for entry in records(folder)] == list(range(6))
