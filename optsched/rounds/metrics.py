"""Counters of a scheduler, and their text in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from optsched.rounds.events import Event, Leave, Outcome, Submit
from optsched.rounds.plan import Plan, Verdict
from optsched.rounds.plan_document import metrics as figures_of

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of planning times, seconds."""
PREFIX = "optsched_"


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
        """Count an event."""
        if isinstance(event, Submit):
            self.submitted += len(event.jobs)
        elif isinstance(event, Leave) and event.event == "complete":
            self.completed += len(event.jobs)
        elif isinstance(event, Leave):
            self.cancelled += len(event.jobs)

    def plan(self, plan: Plan, seconds: float | None) -> None:
        """Count a plan that took so many seconds."""
        count = np.bincount(plan.verdict, minlength=len(Verdict))
        self.rounds += 1
        self.fallbacks += plan.fallback is not None
        self.starts += int(count[Verdict.START])
        self.moves += int(count[Verdict.MOVE])
        self.preemptions += int(count[Verdict.PREEMPT])
        if seconds is not None:
            self.seconds += seconds
            self.histogram[int(np.searchsorted(BUCKETS, seconds))] += 1
        solution = plan.solution
        self.last = {
            "round": plan.number,
            "now": plan.now,
            "gap": None if solution is None else solution.gap,
            "objective": None if solution is None else solution.objective,
            **figures_of(plan),
        }

    def document(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Metrics:
        """What `document` wrote."""
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
            lines += _told(name, "counter", help_text, [("", value)])
        name, total = f"{PREFIX}plan_seconds", 0
        lines += [f"# HELP {name} Time to plan a round.", f"# TYPE {name} histogram"]
        for bound, count in zip((*BUCKETS, "+Inf"), self.histogram, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        lines += [f"{name}_sum {self.seconds!r}", f"{name}_count {total}"]
        if self.last:
            lines += _told("round", "gauge", "Number of the last round.", [("", self.last["round"])])
            if self.last["gap"] is not None:
                lines += _told("gap", "gauge", "Relative gap of the last allocation.", [("", self.last["gap"])])
            jobs = [(f'{{verdict="{verdict}"}}', count) for verdict, count in self.last["jobs"].items()]
            lines += _told("jobs", "gauge", "Jobs by what the last plan does with them.", jobs)
            shares = [
                (f'{{pool="{_escaped(pool)}"}}', share)
                for pool, share in self.last["utilisation"].items()
                if share is not None
            ]
            lines += _told("utilisation", "gauge", "Share of the GPUs of a pool that are held.", shares)
        return "\n".join(lines) + "\n"


def _told(name: str, kind: str, help_text: str, values: list[tuple[str, Any]]) -> list[str]:
    name = PREFIX + name
    head = [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{label} {value}" for label, value in values]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
