"""A scheduler seen through its journal: counters, events and plans. Nothing is planned again."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optsched.display import Displayed, count, seconds
from optsched.errors import JournalDamaged, JournalError, UsageError
from optsched.rounds.journal import Follower, follow, records, snapshots, without_snapshot
from optsched.rounds.journal.disk import ClosedByWith
from optsched.rounds.plan import Plan
from optsched.rounds.transitions import DECIDING, Event

# --- counters --------------------------------------------------------------------------------

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of planning times, seconds."""
PREFIX = "optsched_"
FIGURES = (
    "round",
    "now",
    "gap",
    "objective",
    "jobs",
    "gpus",
    "gpus_in_use",
    "utilisation",
)
"""Figures of the last plan."""
COUNTERS = (
    ("jobs_submitted_total", "Jobs submitted.", "submitted"),
    ("jobs_completed_total", "Jobs completed.", "completed"),
    ("jobs_cancelled_total", "Jobs cancelled.", "cancelled"),
    ("rounds_total", "Rounds planned.", "rounds"),
    ("fallbacks_total", "Plans that follow no new allocation.", "fallbacks"),
    ("starts_total", "Jobs put on GPUs.", "starts"),
    ("moves_total", "Jobs moved to other GPUs.", "moves"),
    ("preemptions_total", "Jobs that plans stopped.", "preemptions"),
)
"""Name and help of each counter for Prometheus, and its field."""


@dataclass(repr=False)
class Metrics(Displayed):
    """Counters since the scheduler began.

    Attributes
    ----------
    submitted, completed, cancelled : int
        Jobs.
    rounds, fallbacks : int
        Plans, and plans that follow no new allocation.
    starts, moves, preemptions : int
        Decisions.
    seconds : float
        Time of planning.
    histogram : list of int
        Number of plans by their time (`BUCKETS`); the last entry counts all longer times.
    last : dict
        Figures of the last plan.
    """

    submitted: int = 0
    completed: int = 0
    cancelled: int = 0
    rounds: int = 0
    fallbacks: int = 0
    starts: int = 0
    moves: int = 0
    preemptions: int = 0
    seconds: float = 0.0
    histogram: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    last: dict[str, Any] = field(default_factory=dict)

    def _headline(self) -> str:
        return (
            f"{count(self.rounds, 'round')} in {seconds(self.seconds)}, "
            f"{count(self.submitted, 'job')} submitted, {self.completed:,} completed"
        )

    def _facts(self) -> Mapping[str, str]:
        last = self.last
        return {
            "jobs": f"{self.submitted:,} submitted, {self.completed:,} completed, "
            f"{self.cancelled:,} cancelled",
            "plans": f"{self.rounds:,}, {self.fallbacks:,} of them fall back",
            "decisions": f"{self.starts:,} starts, {self.moves:,} moves, "
            f"{self.preemptions:,} preemptions",
            "last plan": (
                f"round {last['round']}, {last['gpus_in_use']:,} of {last['gpus']:,} GPUs in use"
            )
            if last
            else "",
        }

    def event(self, event: Event) -> None:
        """Count the jobs of an event."""
        self._count(event.event, len(getattr(event, "jobs", ())))

    def plan(self, plan: Plan, seconds: float | None) -> None:
        """Count a plan and the seconds that planning took."""
        figures = {name: getattr(plan, name) for name in ("round", "now", "gap", "objective")}
        self._planned({**figures, **plan.metrics}, plan.fallback is not None, seconds)

    def record(self, record: Mapping[str, Any]) -> None:
        """Count an event or a plan, given as the record of a journal."""
        if record.get("event") != "plan":
            self._count(str(record.get("event")), len(record.get("jobs", ())))
            return
        last = {key: record[key] for key in FIGURES}
        self._planned(last, record["fallback"] is not None, record["seconds"])

    def _count(self, kind: str, jobs: int) -> None:
        self.submitted += jobs if kind == "submit" else 0
        self.completed += jobs if kind == "complete" else 0
        self.cancelled += jobs if kind == "cancel" else 0

    def _planned(self, last: dict[str, Any], fell_back: bool, seconds: float | None) -> None:
        jobs = last["jobs"]
        self.rounds += 1
        self.fallbacks += fell_back
        self.starts += jobs["start"]
        self.moves += jobs["move"]
        self.preemptions += jobs["preempt"]
        if seconds is not None:
            self.seconds += seconds
            self.histogram[bisect_left(BUCKETS, seconds)] += 1
        self.last = last

    def prometheus(self) -> str:
        """All figures in the text format of Prometheus, version 0.0.4."""
        lines = []
        for name, help_text, counter in COUNTERS:
            lines += _metric(name, "counter", help_text, [("", getattr(self, counter))])
        lines += self._histogram()
        for name, help_text, values in self._gauges():
            lines += _metric(name, "gauge", help_text, values)
        return "\n".join(lines) + "\n"

    def _histogram(self) -> Iterator[str]:
        """Planning times; each bucket counts all plans up to its bound."""
        name = f"{PREFIX}plan_seconds"
        yield f"# HELP {name} Time to plan a round."
        yield f"# TYPE {name} histogram"
        total = 0
        for bound, plans in zip((*BUCKETS, "+Inf"), self.histogram, strict=True):
            total += plans
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self.seconds!r}"
        yield f"{name}_count {total}"

    def _gauges(self) -> Iterator[tuple[str, str, list[tuple[str, Any]]]]:
        """Name, help and labelled values of the figures of the last plan."""
        last = self.last
        if not last:
            return
        yield "round", "Number of the last round.", [("", last["round"])]
        if last["gap"] is not None:
            yield "gap", "Relative gap of the last allocation.", [("", last["gap"])]
        jobs = [(f'{{verdict="{verdict}"}}', count) for verdict, count in last["jobs"].items()]
        yield "jobs", "Jobs by what the last plan does with them.", jobs
        shares = [
            (f'{{pool="{_escaped(pool)}"}}', share)
            for pool, share in last["utilisation"].items()
            if share is not None
        ]
        yield "utilisation", "Share of the GPUs of a pool that are held.", shares


def _metric(name: str, kind: str, help_text: str, values: list[tuple[str, Any]]) -> list[str]:
    name = PREFIX + name
    head = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{label} {value}" for label, value in values]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- following a journal ---------------------------------------------------------------------

REMEMBERED = 200
"""Plans, and events, that are kept."""
TRIES = 5
"""Attempts to begin with a journal that another process changes all the time."""


class Watcher(ClosedByWith):
    """Follows a journal that another process may be writing.

    It begins one or two snapshots before the end, so that its cost does not grow with the journal.

    Attributes
    ----------
    path : Path
    metrics : Metrics
        Counters since the scheduler began.
    policy : dict
        The policy of the scheduler.
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
                    raise without_snapshot(self.path)
                # After the newest snapshot there may be no plan yet.
                file = files[max(len(files) - 2, 0)]
                document = file.document()
                self.metrics = Metrics(**document["metrics"])
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
                    raise  # otherwise the files may have been deleted meanwhile: try again

    def poll(self) -> bool:
        """Read the new records; return whether there were any.

        Raises
        ------
        JournalError
        """
        try:
            return self._take()
        except JournalDamaged:
            raise
        except JournalError:
            # The next records were deleted, or the last ones were taken back: begin again.
            self.close()
            self._begin()
            return True

    def _take(self) -> bool:
        follower = self._follower
        if follower is None:
            return False
        before = follower.n
        for _, record in follower.poll():
            self.metrics.record(record)
            record.pop("decisions", None)  # large, and not for display
            if record.get("event") == "policy":
                self.policy = record["policy"]
            (self.plans if record.get("event") == "plan" else self.events).append(record)
        return follower.n > before

    @property
    def written(self) -> float:
        """When the journal was last written to, seconds since 1970."""
        return max(
            (path.stat().st_mtime for path in self.path.glob("events-*.jsonl")),
            default=0.0,
        )

    def close(self) -> None:
        """Close the file of the journal."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None


LISTED = frozenset({"plan", *DECIDING})


def planned(journal: str | Path) -> Iterator[Mapping[str, Any]]:
    """Records of the plans in a journal, and of events that change the rules of rounds, the oldest
    first; raises `JournalError`.
    """
    for _, record in records(journal):
        if record.get("event") in LISTED:
            yield record


def last_round(journal: str | Path) -> int:
    """Number of the last round of a journal.

    Raises
    ------
    UsageError
        No round was planned yet.
    JournalError
    """
    files = snapshots(journal)
    if not files:
        raise without_snapshot(journal)
    for file in reversed(files):
        found = [
            record["round"]
            for _, record in records(journal, file.n)
            if record.get("event") == "plan"
        ]
        if found:
            return int(found[-1])
    raise UsageError(f"journal {journal}: no round was planned yet")
