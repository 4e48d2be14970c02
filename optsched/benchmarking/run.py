"""`run_tasks`: many tasks in parallel processes, within limits, resumable:
benchmarks and simulations alike.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Self, TypedDict

from optsched.benchmarking.machine import cores, here
from optsched.benchmarking.results_file import FAILED, ResultsFile, Row
from optsched.benchmarking.task import Task
from optsched.benchmarking.worker import Prepare, Request, TaskEnd, Work
from optsched.display import DisplayedTable, TableColumns, columns_of, count, first_of
from optsched.display.picture import Picture
from optsched.errors import InvalidArgument, OptschedError, SolverCrashed, UsageError
from optsched.lazy import convenience
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

# --- limits --------------------------------------------------------------------------------------

MOST_PROCESSES = 1024


@dataclass(frozen=True)
class RunLimits:
    """How many tasks at a time, and what each may take.

    Attributes
    ----------
    processes, threads : int
    time : float or None
        Seconds of a task.
    memory : int or None
        Bytes in use of a task.
    """

    processes: int = 1
    threads: int = 1
    time: float | None = None
    memory: int | None = None

    @classmethod
    def of(cls, processes: int, threads: int, time: float | None, memory: float | None) -> Self:
        """Check the limits; raises `UsageError`."""
        if not 1 <= processes <= MOST_PROCESSES:
            raise InvalidArgument(
                "processes", str(processes), f"a number from 1 to {MOST_PROCESSES}"
            )
        if threads < 1:
            raise InvalidArgument("threads", str(threads), "1 or more")
        for name, limit in (("time_limit", time), ("memory_limit", memory)):
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise InvalidArgument(name, f"{limit:g}", "a number above 0")
        if memory is not None and not sys.platform.startswith("linux"):
            raise UsageError("memory_limit: the memory of a task can be limited on Linux only")
        return cls(processes, threads, time, None if memory is None else int(memory))


# --- one task at a time --------------------------------------------------------------------------

STARTS = 3
"""Workers that may be killed before they begin with a task."""
LOOK_EVERY = 0.05
"""Seconds between looks at limits."""
CRASHED = SolverCrashed.exit_code
MB = 1e6
# Methods in a summary, at most.
METHODS_TOLD = 10


@dataclass
class RunningTask:
    """A task under way: since when it was asked for, what is known of its process,
    and of workers killed before it.
    """

    task: Task
    asked: float
    pid: int = 0
    started: float | None = None
    seconds: float = 0.0
    peak: int = 0
    false_starts: int = 0

    @property
    def spent(self) -> float:
        """Seconds since its process began."""
        return 0.0 if self.started is None else time.monotonic() - self.started


class Slot:
    """Does one task at a time;
    a worker that was killed or crashed is replaced when the next task comes.

    Attributes
    ----------
    attempt : RunningTask or None
        What is under way.
    worker : Child or None
    """

    def __init__(
        self, work: Work, prepare: Prepare | None, limits: RunLimits, machine: Mapping[str, Any]
    ) -> None:
        self.attempt: RunningTask | None = None
        self.worker: Child | None = None
        self._addresses = address_of(work), "" if prepare is None else address_of(prepare)
        self._limits, self._machine = limits, machine

    def start(self) -> Child:
        """Its worker, started if there is none."""
        if self.worker is None:
            self.worker = Child(
                "tasks",
                "optsched.benchmarking.worker:serve",
                self._addresses,
                threads=self._limits.threads,
                keep_errors=True,
            )
        return self.worker

    def begin(self, task: Task) -> None:
        """Have the task done."""
        self.attempt = RunningTask(task, time.monotonic())
        self._give(self.attempt)

    def _give(self, attempt: RunningTask) -> None:
        """Send a task to the worker."""
        worker, attempt.asked = self.start(), time.monotonic()
        with suppress(Closed):  # `look` comes upon it, and says how the worker ended
            worker.send(Request(attempt.task.spec, self._limits.memory), Timeout(STARTING))

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
        now.false_starts += 1
        if now.false_starts < STARTS:
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
            # Libraries that get no memory say so in errors of their own.
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
        code = {"exit_code": CRASHED} if status == "error" else {}
        return self._row(now, {"status": status, "error": words, **code})

    def _row(self, now: RunningTask, answer: Mapping[str, Any]) -> Row:
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


# --- many tasks ----------------------------------------------------------------------------------


@dataclass
class SweepProgress:
    """How far a sweep is, kept up to date while it runs; to be looked at from any thread.

    Attributes
    ----------
    total : int
        Tasks of the sweep.
    done : int
        Those with a row, the ones of earlier runs included.
    resumed : int
        Those that had a row before.
    failed : int
        SweepRows of this run whose status is `FAILED`.
    running : mapping of task -> seconds of the clock
        What is under way, and since when (`time.monotonic`).
    started : float
        When the run began, by the same clock.
    """

    total: int
    done: int = 0
    resumed: int = 0
    failed: int = 0
    running: dict[Task, float] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)


class SweepOptions(TypedDict, total=False):
    """How a sweep is run, of `run_tasks`."""

    processes: int
    results_file: str | Path | None
    append: bool
    retry: bool
    on_row: Callable[[Row, SweepProgress], None] | None
    on_start: Callable[[SweepProgress, Sequence[str]], None] | None


@dataclass(frozen=True, repr=False)
class Sweep(DisplayedTable):
    """The rows of a sweep.

    Attributes
    ----------
    rows : tuple of mappings
        In the order of the tasks, however they came in. All of them, unless it was interrupted.
    notices : tuple of str
        What a user should hear.
    interrupted : bool
        Whether Ctrl-C ended it before the last task.
    """

    rows: tuple[Row, ...]
    notices: tuple[str, ...] = ()
    interrupted: bool = False

    def plot(self) -> Picture:
        """The performance profile of the methods: of times, or of gaps where no times are known.

        Raises
        ------
        UsageError
            If there are no two methods to compare.
        """
        return Picture(convenience("Sweep.plot")(self))

    def _headline(self) -> str:
        return count(len(self.rows), "row") + (", interrupted" if self.interrupted else "")

    def _facts(self) -> Mapping[str, str]:
        if not self.rows:
            return {"notices": "; ".join(self.notices)}
        from optsched.benchmarking.results import Results

        results = Results.of(self.rows)
        statuses = Counter(str(row.get("status")) for row in self.rows)
        facts = {"status": ", ".join(f"{found:,} {status}" for status, found in statuses.items())}
        for method in results.methods[:METHODS_TOLD]:
            facts[results.method_name(method)] = results.method_in_words(method)
        hidden = len(results.methods) - METHODS_TOLD
        return facts | {
            "...": f"{hidden:,} more" if hidden > 0 else "",
            "errors": first_of([str(row["error"]) for row in self.rows if row.get("error")], 2),
            "notices": "; ".join(self.notices),
        }

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The rows, one for each task."""
        return columns_of(self.rows[:first])


def run_tasks(
    tasks: Sequence[Task],
    worker: Work,
    *,
    prepare: Prepare | None = None,
    processes: int = 1,
    threads: int = 1,
    time_limit: float | None = None,
    memory_limit: float | None = None,
    results_file: str | Path | None = None,
    kind: str = "tasks",
    append: bool = False,
    retry: bool = False,
    on_row: Callable[[Row, SweepProgress], None] | None = None,
    on_start: Callable[[SweepProgress, Sequence[str]], None] | None = None,
) -> Sweep:
    """Do tasks, each in a process of its own, and collect a row of each.

    Parameters
    ----------
    tasks : sequence of Task
        No task twice.
    worker : function
        Takes the content of a task and returns its row: plain JSON, with a ``status`` (by default
        ``ok``). A function at the top of a module, since other processes import it.
    prepare : function, optional
        Takes the content of a task too, and imports what the task needs, in the process from which
        tasks are forked: so that no task pays for imports. It must start no threads.
    processes : int
        Tasks at a time.
    threads : int
        Threads that the libraries of each may start.
    time_limit : float, optional
        Seconds of a task, after which it is killed. Its row has the status ``limit``.
    memory_limit : float, optional
        Bytes of memory that a task may have in use, imports included (Linux). Its row has the
        status ``memory``.
    results_file : path, optional
        Rows are appended to it as they come (`ResultsFile`). Tasks that have a row in it are
        not done again.
    kind : str
        What sweep it is, for the file's first line.
    append : bool
        Add to a file of another sweep.
    retry : bool
        Do tasks again whose row has the status ``error``, ``memory`` or ``limit``, also under other
        limits than those of the file.
    on_row : callable, optional
        Called with each new row once it is on the disk.
    on_start : callable, optional
        Called once with the progress and the notices, before the first task.

    Returns
    -------
    Sweep
        A task that raises, crashes or hits a limit is a row with words in ``error``, and stops
        nothing. Ctrl-C kills what runs; the rows so far are kept, and ``interrupted`` is true.

    Raises
    ------
    UsageError
        A task is given twice, a limit makes no sense, or the results file is of another sweep, in
        use, or cannot be written.
    InvalidInput
        The results file is damaged, or none.
    OptschedError
        Workers end by themselves before their first task, as where the function cannot be imported.
    """
    limits = RunLimits.of(processes, threads, time_limit, memory_limit)
    _refuse_twice(tasks)
    machine = here()
    file = None
    if results_file is not None:
        about = {"kind": kind, **machine}
        file = ResultsFile.open(results_file, tasks, about, append=append, retry=retry)
    # The file is locked until the last row, so that no other run adds to it.
    with file or nullcontext():
        rows = SweepRows(tasks, file, on_row)
        notices = [*_warnings(limits), *([] if file is None else file.notices)]
        if resumed := rows.progress.resumed:
            notices.append(
                f"{resumed} of {len(tasks)} tasks have a row in {results_file}: "
                "they are not done again"
            )
        # As many workers as there are tasks at most: one without a task would import for nothing.
        slots = [
            Slot(worker, prepare, limits, machine)
            for _ in range(min(limits.processes, len(rows.left)))
        ]
        interrupted = _do_until_interrupted(slots, rows, notices, on_start)
    found = rows.in_order()
    return Sweep(found, tuple(notices), interrupted and len(found) < len(tasks))


class SweepRows:
    """The rows of a sweep while it runs.

    Attributes
    ----------
    left : deque of Task
        Those that nobody has begun.
    progress : SweepProgress
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        file: ResultsFile | None,
        on_row: Callable[[Row, SweepProgress], None] | None,
    ) -> None:
        self._tasks, self._file, self._on_row = tasks, file, on_row
        self._done = {} if file is None else dict(file.done)
        self.left = deque(task for task in tasks if task.key not in self._done)
        count = len(self._done)
        self.progress = SweepProgress(len(tasks), count, count)

    def add(self, row: Row) -> None:
        """Keep a row, on the disk too."""
        # First in memory: Ctrl-C may come once the row is on the disk.
        self._done[row["key"]] = row
        if self._file is not None:
            self._file.add(row)
        self.progress.done += 1
        self.progress.failed += row["status"] in FAILED
        if self._on_row is not None:
            self._on_row(row, self.progress)

    def in_order(self) -> tuple[Row, ...]:
        """Those that there are, in the order of the tasks."""
        return tuple(self._done[task.key] for task in self._tasks if task.key in self._done)


def _do_until_interrupted(
    slots: Sequence[Slot],
    rows: SweepRows,
    notices: Sequence[str],
    on_start: Callable[[SweepProgress, Sequence[str]], None] | None,
) -> bool:
    """Do all tasks, or those that Ctrl-C leaves time for; whether it came."""
    try:
        # Before the caller starts threads, as for a line of progress: without any, workers can be
        # forked.
        for slot in slots:
            slot.start()
        if on_start is not None:
            on_start(rows.progress, notices)
        _do_all(slots, rows)
    except KeyboardInterrupt:
        return True
    finally:
        for slot in slots:
            slot.stop()
    return False


def _do_all(slots: Sequence[Slot], rows: SweepRows) -> None:
    """Hand out tasks and take rows until there are none."""
    running = rows.progress.running
    while rows.left or any(slot.attempt for slot in slots):
        for slot in slots:
            if slot.attempt is None and rows.left:
                task = rows.left.popleft()
                slot.begin(task)
                running[task] = time.monotonic()
        # An idle worker that has died would end every wait at once.
        wait([slot.worker.fileno() for slot in slots if slot.worker and slot.attempt], LOOK_EVERY)
        for slot in slots:
            attempt, row = slot.attempt, slot.look()
            if row is not None and attempt is not None:
                del running[attempt.task]
                rows.add(row)


def _refuse_twice(tasks: Sequence[Task]) -> None:
    seen = set()
    for task in tasks:
        if task.text in seen:
            raise UsageError(f"a task is given twice: {task.text[:200]}")
        seen.add(task.text)


def _warnings(limits: RunLimits) -> list[str]:
    wanted, have = limits.processes * limits.threads, cores()
    if wanted <= have:
        return []
    return [
        f"{limits.processes} processes x {limits.threads} threads are {wanted}, on {have} cores: "
        "they slow each other down, and times tell little"
    ]
