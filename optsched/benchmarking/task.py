"""`Task`: one thing to be done in a sweep, known by its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from optsched.display import Displayed
from optsched.errors import UsageError

Row = dict[str, Any]
"""What came of a task, as plain JSON."""
LIMITS = ("time_limit", "memory_limit")
"""Parts of a task's content that say no more than how long it may go on;
the same for all tasks of a sweep.
"""


@dataclass(frozen=True, repr=False)
class Task(Displayed):
    """A task; two with the same content are the same task, in this run and in any other.

    Made by `Task.of`.

    Attributes
    ----------
    text : str
        The content as canonical JSON: keys sorted, no blanks.
    labels_text : str
        JSON of what every row of the task begins with, also of a task that crashes; no part of the
        content.
    """

    text: str
    labels_text: str = field(default="{}", compare=False)

    @classmethod
    def of(cls, spec: Mapping[str, Any], labels: Mapping[str, Any] | None = None) -> Self:
        """A task from its content, which must be plain JSON; raises `UsageError`."""
        try:
            return cls(canonical(spec), json.dumps(dict(labels or {}), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise UsageError(f"a task is plain JSON without NaN and infinity: {error}") from None

    @property
    def spec(self) -> dict[str, Any]:
        """The content, as the worker gets it."""
        spec: dict[str, Any] = json.loads(self.text)
        return spec

    @property
    def labels(self) -> dict[str, Any]:
        """What its rows begin with, in this order."""
        labels: dict[str, Any] = json.loads(self.labels_text)
        return labels

    @property
    def key(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def limits(self) -> dict[str, Any]:
        """The limits in its content."""
        return {name: value for name, value in self.spec.items() if name in LIMITS}

    def under(self, limits: Mapping[str, Any]) -> Task:
        """The same task with other limits."""
        return replace(self, text=canonical({**self.spec, **limits}))


def canonical(document: Any) -> str:
    """A document as JSON that depends on its content alone."""
    return json.dumps(
        document, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False
    )


def sweep_digest(tasks: Iterable[Task]) -> str:
    """SHA-256 of the tasks of a sweep, in whatever order they come."""
    return hashlib.sha256("\n".join(sorted(task.key for task in tasks)).encode()).hexdigest()
