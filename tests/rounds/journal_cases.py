"""Small journals for the tests of the journal."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from optsched.rounds.journal import Entry, Journal, Snapshot, read_latest, records

RECORDS: list[dict[str, Any]] = [
    {"kind": "submit", "job": "ä\u2028\ud800", "gpus": 4, "rate": 0.1 + 0.2},
    {},
    {
        "nested": [1, {"crc": "00000000", "n": -0.0}, None, True],
        "text": '"},\n{"n":2,"crc":"00000000"}',
    },
    {"kind": "tick"},
    {"at": 5e-324, "most": 1.7976931348623157e308, "whole": 2**70},
]
DOCUMENT = {"now": 12.5, "jobs": ["b", "a"]}
ARRAYS = {
    "owed": np.array([[0.1, -0.0], [np.inf, np.nan]]),
    "job.rows": np.arange(3),
    "round": np.array(7),
}
SEGMENTS = ("events-000000000000.jsonl", "events-000000000003.jsonl")
SNAPSHOT = "snapshot-000000000003.npz"


def small_journal(folder: Path) -> Path:
    """Three records, a snapshot, two records."""
    with Journal.create(folder, fsync=False) as journal:
        journal.append_many(RECORDS[:3])
        journal.snapshot(DOCUMENT, ARRAYS)
        journal.append_many(RECORDS[3:])
    return folder


def copy_of(folder: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(folder, target))


def contents(folder: Path) -> tuple[list[Entry], Snapshot | None, list[Entry]]:
    """All that can be read from a journal."""
    snapshot, later = read_latest(folder)
    return list(records(folder)), snapshot, list(later)


def same(first: object, second: object) -> bool:
    """Whether two contents are the same, to the last bit of every number."""
    return repr(first) == repr(second)


def entries(first: int = 0, last: int = len(RECORDS)) -> list[Entry]:
    return [Entry(n, RECORDS[n]) for n in range(first, last)]
