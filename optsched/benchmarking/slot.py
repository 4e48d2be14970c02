"""`Slot`: room for one task at a time: its process, its limits, and the row that comes of it, whatever happens."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from optsched.benchmarking.limits import RunLimits
from optsched.benchmarking.results_file import Row
from optsched.benchmarking.task import Task
from optsched.benchmarking.worker import Work
from optsched.benchmarking.worker_process import (
    WorkerProcess,
    how_it_ended,
    memory_in_use,
    peak_memory,
)
from optsched.errors import SolverCrashed, UsageError

LOOK_EVERY = 0.05
"""Seconds between looks at limits."""
STARTING = 60.0
"""Seconds that a worker has to start, and to import what a task needs."""
NO_MEMORY = re.compile(r"bad_alloc|MemoryError|out of memory|cannot allocate", re.IGNORECASE)
"""What libraries say that can get no memory."""
CRASHED = SolverCrashed.exit_code
MB = 1e6


@dataclass
class Attempt:
    """A task under way: since when it was asked for, and what is known of its process."""

    task: Task
    asked: float
    pid: int = 0
    started: float | None = None
    answer: Row | None = None
    seconds: float = 0.0
    peak: int = 0

    @property
    def spent(self) -> float:
        """Seconds since its process began."""
        return 0.0 if self.started is None else time.monotonic() - self.started


class Slot:
    """Does one task at a time; a process that was killed or crashed is replaced when the next task comes.

    Attributes
    ----------
    attempt : Attempt or None
        What is under way.
    process : WorkerProcess or None
    """

    def __init__(
        self,
        worker: Work,
        prepare: Callable[[Mapping[str, Any]], None] | None,
        limits: RunLimits,
        machine: Mapping[str, Any],
    ) -> None:
        self.attempt: Attempt | None = None
        self.process: WorkerProcess | None = None
        self._work, self._prepare = (
            address_of(worker),
            "" if prepare is None else address_of(prepare),
        )
        self._limits, self._machine = limits, machine
        self._ready = False

    def start(self) -> None:
        """Start its process, if there is none."""
        if self.process is None:
            self.process, self._ready = (
                WorkerProcess(self._work, self._prepare, self._limits.threads),
                False,
            )

    def begin(self, task: Task) -> None:
        """Have the task done."""
        self.start()
        assert self.process is not None
        self.attempt = Attempt(task, time.monotonic())
        self.process.ask(task.spec, self._limits.memory)

    def look(self) -> Row | None:
        """The row of the task once there is one; the slot is free then."""
        now, process = self.attempt, self.process
        if now is None or process is None:
            return None
        for message in process.messages():
            if "ready" in message:
                self._ready = True
            elif "started" in message:
                now.pid, now.started = int(message["started"]), time.monotonic()
            elif "row" in message:
                now.answer, now.seconds = message["row"], float(message["seconds"])
            elif "ended" in message:
                now.peak = max(now.peak, int(message["memory"]))
                return self._ended(now, process, int(message["ended"]))
        if process.closed:
            if not self._ready:
                raise process.could_not_start()
            return self._failed(
                now,
                "error",
                f"its worker {how_it_ended(process.exit_code())} while it prepared the task",
            )
        return None if now.answer is not None else self._over_limits(now)

    def stop(self) -> None:
        """Kill what runs."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()

    # --- how -------------------------------------------------------------------------------------------------------

    def _ended(self, now: Attempt, process: WorkerProcess, code: int) -> Row:
        """The process of the task has ended, with or without a row."""
        limited = self._limits.memory is not None
        if now.answer is not None and code == 0:
            words = str(now.answer.get("error") or "")
            if limited and now.answer.get("status") == "error" and NO_MEMORY.search(words):
                return self._row(now, {**now.answer, "status": "memory"})
            return self._row(now, now.answer)
        last = process.last_words()
        words = f"the task {how_it_ended(code)}{f': {last}' if last else ''}"
        return self._failed(now, "memory" if limited and NO_MEMORY.search(last) else "error", words)

    def _over_limits(self, now: Attempt) -> Row | None:
        """A row if the task has taken too much, and was killed for it."""
        limits = self._limits
        if now.started is None:
            if time.monotonic() - now.asked <= STARTING:
                return None
            return self._failed(
                now, "error", f"its worker was not ready within {STARTING:g} s and was killed"
            )
        if limits.time is not None and now.spent > limits.time:
            now.peak = max(now.peak, peak_memory(now.pid) or 0)
            return self._failed(
                now, "limit", f"did not end within {limits.time:.6g} s and was killed"
            )
        if limits.memory is not None:
            used = memory_in_use(now.pid)
            now.peak = max(now.peak, used)
            if used > limits.memory:
                told = f"had {used / MB:,.0f} MB in use, more than {limits.memory / MB:,.0f} MB, and was killed"
                return self._failed(now, "memory", told)
        return None

    def _failed(self, now: Attempt, status: str, words: str) -> Row:
        """The row of a task that left none; its process goes, with all that the task has started."""
        now.seconds = now.spent
        self.stop()
        code = {"exit_code": CRASHED} if status == "error" else {}
        return self._row(now, {"status": status, "error": words, **code})

    def _row(self, now: Attempt, answer: Mapping[str, Any]) -> Row:
        self.attempt = None
        return {
            "key": now.task.key,
            **now.task.labels,
            **{"status": "ok", "error": None, **answer},
            "wall_s": round(now.seconds, 6),
            "peak_memory_mb": round(now.peak / MB, 1) if now.peak else None,
            **self._machine,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


def address_of(function: Any) -> str:
    """``module:name`` of a function that another process can import; raises `UsageError`."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or not name.isidentifier() or module == "__main__":
        raise UsageError(
            f"{name or function!r} is no function at the top of a module: other processes import it"
        )
    return f"{module}:{name}"
