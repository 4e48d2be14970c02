"""Counters of a scheduler, and their text in the format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from optsched.rounds.events import Event, Leave, Outcome, Submit
from optsched.rounds.plan import Plan, finite

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of planning times, seconds."""
PREFIX = "optsched_"
FIGURES = ("round", "now", "gap", "objective", "jobs", "gpus", "gpus_in_use", "utilisation")
"""What is known of the last plan."""


@dataclass
class Metrics:
    """What happened since the scheduler began.

    Attributes
    ----------
    submitted, completed, cancelled : int
        Jobs.
    rounds, fallbacks : int
        Plans, and those that follow no new allocation.
    starts, moves, preemptions : int
        Decisions.
    seconds : float
        Spent on planning.
    histogram : list of int
        Plans by their time, as `BUCKETS` says; the last one counts all that took longer.
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

    def take(self, event: Event, outcome: Outcome) -> None:
        self._happened(event.event, len(event.jobs) if isinstance(event, Submit | Leave) else 0)

    def plan(self, plan: Plan, seconds: float | None) -> None:
        """Count a plan that took so many seconds."""
        solution = plan.solution
        figures = {
            "round": plan.number,
            "now": plan.now,
            "gap": None if solution is None else finite(solution.gap),
            "objective": None if solution is None else finite(solution.objective),
        }
        self._planned({**figures, **plan.figures()}, plan.fallback is not None, seconds)

    def record(self, record: Mapping[str, Any]) -> None:
        """Count an event or a plan as it stands in a journal."""
        if record.get("event") != "plan":
            self._happened(str(record.get("event")), len(record.get("jobs", ())))
            return
        last = {key: record[key] for key in FIGURES}
        self._planned(last, record["fallback"] is not None, record["seconds"])

    def _happened(self, kind: str, jobs: int) -> None:
        self.submitted += jobs if kind == "submit" else 0
        self.completed += jobs if kind == "complete" else 0
        self.cancelled += jobs if kind == "cancel" else 0

    def _planned(self, last: dict[str, Any], fell_back: bool, seconds: float | None) -> None:
        count = last["jobs"]
        self.rounds += 1
        self.fallbacks += fell_back
        self.starts += count["start"]
        self.moves += count["move"]
        self.preemptions += count["preempt"]
        if seconds is not None:
            self.seconds += seconds
            self.histogram[bisect_left(BUCKETS, seconds)] += 1
        self.last = last

    def document(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Metrics:
        """The counters from a document that `document` wrote."""
        return cls(**document)

    def prometheus(self) -> str:
        """All figures in the text format of Prometheus, version 0.0.4."""
        lines: list[str] = []
        for name, help_text, value in (
            ("jobs_submitted_total", "Jobs submitted.", self.submitted),
            ("jobs_completed_total", "Jobs completed.", self.completed),
            ("jobs_cancelled_total", "Jobs cancelled.", self.cancelled),
            ("rounds_total", "Rounds planned.", self.rounds),
            ("fallbacks_total", "Plans that follow no new allocation.", self.fallbacks),
            ("starts_total", "Jobs put on GPUs.", self.starts),
            ("moves_total", "Jobs moved to other GPUs.", self.moves),
            ("preemptions_total", "Jobs stopped for others.", self.preemptions),
        ):
            lines += _metric(name, "counter", help_text, [("", value)])
        name = f"{PREFIX}plan_seconds"
        total = 0
        lines += [f"# HELP {name} Time to plan a round.", f"# TYPE {name} histogram"]
        for bound, count in zip((*BUCKETS, "+Inf"), self.histogram, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{name}_sum {self.seconds!r}", f"{name}_count {total}"]
        if self.last:
            lines += _metric(
                "round", "gauge", "Number of the last round.", [("", self.last["round"])]
            )
            if self.last["gap"] is not None:
                lines += _metric(
                    "gap", "gauge", "Relative gap of the last allocation.", [("", self.last["gap"])]
                )
            jobs = [
                (f'{{verdict="{verdict}"}}', count) for verdict, count in self.last["jobs"].items()
            ]
            lines += _metric("jobs", "gauge", "Jobs by what the last plan does with them.", jobs)
            shares = [
                (f'{{pool="{_escaped(pool)}"}}', share)
                for pool, share in self.last["utilisation"].items()
                if share is not None
            ]
            lines += _metric(
                "utilisation", "gauge", "Share of the GPUs of a pool that are held.", shares
            )
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, help_text: str, values: list[tuple[str, Any]]) -> list[str]:
    name = PREFIX + name
    head = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{label} {value}" for label, value in values]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
