"""A scheduler's journal:
numbered records and snapshots in a folder that survives crashes and full disks.
"""

from optsched.rounds.journal.files import FORMAT, Snapshot, SnapshotFile
from optsched.rounds.journal.reader import (
    Follower,
    follow,
    read_from,
    read_latest,
    records,
    snapshots,
    without_snapshot,
)
from optsched.rounds.journal.records import Entry
from optsched.rounds.journal.writer import Journal

__all__ = [
    "FORMAT",
    "Entry",
    "Follower",
    "Journal",
    "Snapshot",
    "SnapshotFile",
    "follow",
    "read_from",
    "read_latest",
    "records",
    "snapshots",
    "without_snapshot",
]
