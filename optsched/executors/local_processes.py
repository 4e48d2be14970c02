"""Tasks in processes of this machine, each within its limits."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

from optsched.errors import OptschedError
from optsched.executors.machine import here
from optsched.executors.protocol import MB, RunningTask, Slot, SweepWork
from optsched.executors.task import Row, Task
from optsched.executors.worker import Request, TaskEnd
from optsched.processes import (
    STARTING,
    Child,
    Closed,
    Garbled,
    TimedOut,
    Timeout,
    exit_text,
    memory_in_use,
    peak_memory,
    tells_of_memory,
)

STARTS = 3
"""Workers that may be killed before they begin with a task."""


class LocalProcesses:
    """An `Executor`: a worker for each slot, which forks for each task."""

    def slots(self, work: SweepWork, count: int) -> Sequence[ProcessSlot]:
        """See `Executor.slots`."""
        machine = here()
        return [ProcessSlot(work, machine) for _ in range(count)]

    def wait(self, slots: Sequence[Slot], seconds: float) -> None:
        """See `Executor.wait`."""
        # An idle worker that has died would end every wait at once.
        busy = [slot for slot in slots if isinstance(slot, ProcessSlot) and slot.attempt]
        wait([slot.worker.fileno() for slot in busy if slot.worker], seconds)

    def close(self) -> None:
        """See `Executor.close`."""


class ProcessSlot:
    """Does one task at a time;
    a worker that was killed or crashed is replaced when the next task comes.

    Attributes
    ----------
    attempt : RunningTask or None
        What is under way.
    worker : Child or None
    """

    def __init__(self, work: SweepWork, machine: Mapping[str, Any]) -> None:
        self.attempt: RunningTask | None = None
        self.worker: Child | None = None
        self._work, self._limits, self._machine = work, work.limits, machine
        self._unsent = b""
        """What the worker has still to be told before its first task."""

    def start(self) -> Child:
        """Its worker, started if there is none."""
        if self.worker is None:
            self.worker = Child(
                "tasks",
                "optsched.executors.worker:serve",
                (self._work.worker, self._work.prepare),
                threads=self._limits.threads,
                keep_errors=True,
            )
            self._unsent = self._work.content
        return self.worker

    def begin(self, task: Task) -> None:
        """Have the task done."""
        self.attempt = RunningTask(task, time.monotonic())
        self._give(self.attempt)

    def _give(self, attempt: RunningTask) -> None:
        """Send a task to the worker."""
        worker, attempt.asked = self.start(), time.monotonic()
        with suppress(Closed):  # `look` comes upon it, and says how the worker ended
            content, self._unsent = self._unsent, b""
            asked = Request(attempt.task.spec, self._limits.memory, content)
            worker.send(asked, Timeout(STARTING))

    def look(self) -> Row | None:
        """The row of the task once there is one; the slot is free then."""
        now, worker = self.attempt, self.worker
        if now is None or worker is None:
            return None
        try:
            while worker.has_spoken():
                reply = worker.receive(Timeout(STARTING))
                if reply.kind == "progress":
                    now.pid, now.started = reply.content, time.monotonic()
                elif reply.kind == "answer":
                    return self._ended(now, worker, reply.content)
        except (Closed, TimedOut, Garbled):
            return self._without_worker(now, worker)
        return self._over_limits(now)

    def _without_worker(self, now: RunningTask, worker: Child) -> Row | None:
        """The row of a task whose worker is gone; None where another worker is to try it.

        A worker that ends by itself before its first task would always do so: what it imports is
        wrong. One that was killed, as where memory is short, says nothing of the next one.

        Raises
        ------
        OptschedError
        """
        code = worker.wait_or_kill()
        ended = exit_text(code)
        if worker.ready:
            return self._failed(now, "error", f"its worker {ended} while it prepared the task")
        words = worker.last_words()
        if code is None or code >= 0:
            raise OptschedError(f"a worker {ended} before its first task: {words}")
        self.stop()
        now.lost_workers += 1
        if now.lost_workers < STARTS:
            self._give(now)
            return None
        problem = f"its worker {ended} before it could begin, {STARTS} times in a row"
        return self._failed(now, "error", f"{problem}: {words}" if words else problem)

    def stop(self) -> None:
        """Kill its worker, with what that has started."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.kill()

    # --- rows of tasks ---------------------------------------------------------------------------

    def _ended(self, now: RunningTask, worker: Child, end: TaskEnd) -> Row:
        """The row of a task whose process has ended, with or without an answer."""
        now.peak = max(now.peak, end.memory)
        # Without a limit an error that speaks of memory is the task's own.
        limited = self._limits.memory is not None
        if end.text:
            found = json.loads(end.text)
            answer, now.seconds = found["row"], float(found["seconds"])
            # Libraries that get no memory say so in their own errors.
            no_memory = tells_of_memory(str(answer.get("error") or ""))
            if limited and answer.get("status") == "error" and no_memory:
                return self._row(now, {**answer, "status": "memory"})
            return self._row(now, answer)
        last = worker.last_words()
        words = f"the task {exit_text(end.code)}{f': {last}' if last else ''}"
        return self._failed(now, "memory" if limited and tells_of_memory(last) else "error", words)

    def _over_limits(self, now: RunningTask) -> Row | None:
        """A row if the task has taken too much, and was killed for it."""
        limits = self._limits
        if now.started is None:
            if time.monotonic() - now.asked <= STARTING:
                return None
            return self._failed(
                now, "error", f"its worker was not ready within {STARTING:g} s and was killed"
            )
        # The time counts from the process of the task on: what it imports is ready by then.
        if limits.time is not None and now.spent > limits.time:
            now.peak = max(now.peak, peak_memory(now.pid) or 0)
            return self._failed(
                now, "limit", f"did not end within {limits.time:.6g} s and was killed"
            )
        if limits.memory is not None:
            used = memory_in_use(now.pid)
            now.peak = max(now.peak, used)
            if used > limits.memory:
                words = f"had {used / MB:,.0f} MB in use, more than {limits.memory / MB:,.0f} MB, and was killed"
                return self._failed(now, "memory", words)
        return None

    def _failed(self, now: RunningTask, status: str, words: str) -> Row:
        """The row of a task that left none; its worker goes, with all that the task has started."""
        now.seconds = now.spent
        self.stop()
        self.attempt = None
        return now.failed(status, words, self._machine)

    def _row(self, now: RunningTask, answer: Mapping[str, Any]) -> Row:
        self.attempt = None
        return now.row(answer, self._machine)
