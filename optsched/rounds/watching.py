"""A scheduler as its journal shows it: figures, events and plans, without planning anything again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from optsched.errors import JournalDamaged, JournalError, UsageError
from optsched.rounds.journal import Follower, follow, records, snapshots
from optsched.rounds.metrics import Metrics

REMEMBERED = 200
"""Plans, and events, that are remembered."""
TRIES = 5
"""Fresh beginnings before a journal that changes all the time is given up."""


class Watcher:
    """Follows a journal that another process may be writing.

    It begins a snapshot or two before the end, so that what it costs does not grow with the
    journal.

    Attributes
    ----------
    path : Path
    metrics : Metrics
        What happened since the scheduler began.
    policy : dict
        How it decides its rounds.
    plans, events : deque of dict
        The last records of each kind, the oldest first.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._follower: Follower | None = None
        self._begin()

    def _begin(self) -> None:
        """Read from the last snapshot but one on."""
        for left in reversed(range(TRIES)):
            try:
                files = snapshots(self.path)
                if not files:
                    raise JournalError(
                        f"journal {self.path} has no snapshot to begin from: the scheduler never started"
                    )
                # The last but one: behind the newest there may be no plan yet.
                file = files[max(len(files) - 2, 0)]
                document = file.document()
                self.metrics = Metrics.read(document["metrics"])
                self.policy: dict[str, Any] = document["policy"]
                self.plans: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
                self.events: deque[dict[str, Any]] = deque(maxlen=REMEMBERED)
                self._follower = follow(self.path, file.n)
                self._take()
                return
            except JournalDamaged:
                raise
            except JournalError:
                self.close()
                if not left:
                    raise  # else the files that it began with may have been deleted meanwhile

    def poll(self) -> bool:
        """Take in what has been written since; returns whether there was anything.

        Raises
        ------
        JournalError
        """
        try:
            return self._take()
        except JournalDamaged:
            raise
        except (
            JournalError
        ):  # what comes next was deleted, or what came last taken back: begin again
            self.close()
            self._begin()
            return True

    def _take(self) -> bool:
        before = -1 if self._follower is None else self._follower.n
        for _, record in self._follower.poll() if self._follower is not None else ():
            self.metrics.record(record)
            (self.plans if record.get("event") == "plan" else self.events).append(record)
        return self._follower is not None and self._follower.n > before

    @property
    def written(self) -> float:
        """When the journal was last written to, seconds since 1970."""
        return max((path.stat().st_mtime for path in self.path.glob("events-*.jsonl")), default=0.0)

    def close(self) -> None:
        """Let go of the journal."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def planned(journal: str | Path) -> Iterator[Mapping[str, Any]]:
    """The records of all plans of a journal that are kept, the oldest first; raises `JournalError`."""
    for _, record in records(journal):
        if record.get("event") == "plan":
            yield record


def last_round(journal: str | Path) -> int:
    """Number of the last round of a journal.

    Raises
    ------
    UsageError
        No round was planned yet.
    JournalError
    """
    for file in reversed(snapshots(journal)):
        found = [
            record["round"]
            for _, record in records(journal, file.n)
            if record.get("event") == "plan"
        ]
        if found:
            return int(found[-1])
    raise UsageError(f"journal {journal}: no round was planned yet")
