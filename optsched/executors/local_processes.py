"""Tasks in processes of this machine, each within its limits."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from optsched.errors import OptschedError
from optsched.executors.machine import here
from optsched.executors.protocol import (
    LOST,
    RunningTask,
    SharedWork,
    Slot,
    TaskEnd,
    only_what_can_be_sent,
)
from optsched.executors.worker import ProcessEnd
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

MB = 1e6
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""Exit codes of processes that others killed: the kernel where memory is short, or an operator. A
process that crashes has another one, and would crash again."""


class LocalProcesses:
    """An `Executor`: a worker for each slot."""

    def slots(self, work: SharedWork, count: int) -> Sequence[ProcessSlot]:
        machine = here()
        return [ProcessSlot(work, machine) for _ in range(count)]

    def wait(self, slots: Sequence[Slot], seconds: float) -> None:
        # An idle worker that has died would end every wait at once.
        busy = [slot for slot in slots if isinstance(slot, ProcessSlot) and slot.running]
        wait([slot.worker.fileno() for slot in busy if slot.worker], seconds)

    def close(self) -> None:
        """Nothing to close: each slot ends its own process."""


class ProcessSlot:
    """Does one task at a time; a worker that is gone is replaced when the next task comes.

    Attributes
    ----------
    running : RunningTask or None
    worker : Child or None
    """

    def __init__(self, work: SharedWork, machine: Mapping[str, Any]) -> None:
        self.running: RunningTask | None = None
        self.worker: Child | None = None
        self._work, self._limits, self._machine = work, work.limits, machine
        self._knows_work = False

    def start(self) -> bool:
        if self.worker is None:
            self.worker = Child(
                "tasks",
                "optsched.executors.worker:serve",
                inherited=self._work,
                threads=self._limits.threads,
                keep_errors=True,
            )
            self._knows_work = self.worker.is_forked
        return True  # a task waits in the socket while its worker starts

    def begin(self, content: Any) -> None:
        """Have a task done."""
        self.start()
        worker, self.running = self.worker, RunningTask()
        assert worker is not None
        # `look` comes upon a worker that is gone, and says how it ended
        with only_what_can_be_sent(), suppress(Closed, TimedOut):
            if not self._knows_work:
                worker.send(self._work, Timeout(STARTING))
                self._knows_work = True
            worker.send(content, Timeout(STARTING))

    def look(self) -> TaskEnd | None:
        """How the task ended, once it has; the slot is free then."""
        now, worker = self.running, self.worker
        if now is None or worker is None:
            return None
        try:
            end = self._reported(now, worker)
        except (Closed, TimedOut, Garbled):
            end = self._without_worker(now, worker)
        end = end or self._over_limits(now)
        if end is None:
            return None
        self.running = None
        memory = max(now.peak, end.memory)
        return replace(end, seconds=end.seconds or now.spent, memory=memory, machine=self._machine)

    def stop(self) -> None:
        """Kill its worker, with what that has started."""
        worker, self.worker, self.running = self.worker, None, None
        if worker is not None:
            worker.kill()

    # --- how a task ended -------------------------------------------------------------------------

    def _reported(self, now: RunningTask, worker: Child) -> TaskEnd | None:
        """The end of a task as its worker reports it, once it does."""
        while worker.has_spoken():
            reply = worker.receive(Timeout(STARTING))
            if reply.kind == "progress":
                now.pid, now.started = reply.content, time.monotonic()
            elif reply.kind == "answer":
                found: ProcessEnd = reply.content
                now.peak = max(now.peak, found.memory)
                if found.end is None:
                    return self._crashed(f"its process {exit_text(found.code)}", found.code, worker)
                return self._or_out_of_memory(found.end)
        return None

    def _crashed(self, words: str, code: int | None, worker: Child) -> TaskEnd:
        """The end of a task whose process ended without an answer."""
        if code is None or code in FROM_OUTSIDE:
            return TaskEnd(LOST, words=words)
        last = worker.last_words()
        return self._or_out_of_memory(TaskEnd("error", words=f"{words}: {last}" if last else words))

    def _or_out_of_memory(self, end: TaskEnd) -> TaskEnd:
        """The same end, as one for want of memory where its words say so."""
        # Without a limit an error that speaks of memory is the task's own. Libraries that get no
        # memory say so in their own errors.
        limited = self._limits.memory is not None
        if limited and end.status == "error" and tells_of_memory(end.words):
            return replace(end, status="memory")
        return end

    def _without_worker(self, now: RunningTask, worker: Child) -> TaskEnd:
        """The end of a task whose worker is gone.

        Raises
        ------
        OptschedError
            A worker that ends by itself before its first task: another one would do the same, as
            what it imports is wrong.
        """
        code = worker.wait_or_kill()
        ended = exit_text(code)
        if not worker.ready and code is not None and code >= 0:
            words = worker.last_words()
            raise OptschedError(f"a worker {ended} before its first task: {words}")
        if not worker.ready:
            when = " before it could begin"
        elif now.started is None:
            when = " while it prepared the task"
        else:
            when = ""
        end = self._crashed(f"its process {ended}{when}", code, worker)
        self.stop()
        return end

    def _over_limits(self, now: RunningTask) -> TaskEnd | None:
        """The end of a task that has taken too much, and was killed for it."""
        limits, end = self._limits, None
        if now.started is None:
            if time.monotonic() - now.asked > STARTING:
                words = f"its worker was not ready within {STARTING:g} s and was killed"
                end = TaskEnd(LOST, words=words)
        # The time counts from the process of the task on: what it imports is ready by then.
        elif limits.time is not None and now.spent > limits.time:
            now.peak = max(now.peak, peak_memory(now.pid) or 0)
            words = f"did not end within {limits.time:.6g} s and was killed"
            end = TaskEnd("limit", words=words)
        elif limits.memory is not None:
            used = memory_in_use(now.pid)
            now.peak = max(now.peak, used)
            if used > limits.memory:
                most = f"{limits.memory / MB:,.0f} MB"
                words = f"had {used / MB:,.0f} MB in use, more than {most}, and was killed"
                end = TaskEnd("memory", words=words)
        if end is not None:
            self.stop()
        return end
