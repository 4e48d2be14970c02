"""`run_tasks`: many tasks in parallel processes, within limits, resumable: benchmarks and simulations alike."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from optsched.benchmarking.limits import RunLimits
from optsched.benchmarking.machine import cores, here
from optsched.benchmarking.results_file import ResultsFile, Row
from optsched.benchmarking.slot import LOOK_EVERY, Slot
from optsched.benchmarking.task import Task
from optsched.benchmarking.worker import Work
from optsched.errors import UsageError

FAILED = ("error", "memory", "limit")
"""Status of a task that has no answer because it failed or was stopped."""


@dataclass
class Progress:
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
        Rows of this run whose status is `FAILED`.
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


@dataclass(frozen=True)
class Sweep:
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


def run_tasks(
    tasks: Sequence[Task],
    worker: Work,
    *,
    prepare: Callable[[Mapping[str, Any]], None] | None = None,
    processes: int = 1,
    threads: int = 1,
    time_limit: float | None = None,
    memory_limit: float | None = None,
    results_file: str | Path | None = None,
    kind: str = "tasks",
    append: bool = False,
    retry: bool = False,
    on_row: Callable[[Row, Progress], None] | None = None,
    on_start: Callable[[Progress, Sequence[str]], None] | None = None,
) -> Sweep:
    """Do tasks, each in a process of its own, and collect a row of each.

    Parameters
    ----------
    tasks : sequence of Task
        No task twice.
    worker : function
        Takes the content of a task and returns its row: plain JSON, with a ``status`` (by default ``ok``). A function
        at the top of a module, since other processes import it.
    prepare : function, optional
        Takes the content of a task too, and imports what the task needs, in the process from which tasks are forked: so
        that no task pays for imports. It must start no threads.
    processes : int
        Tasks at a time.
    threads : int
        Threads of each, as its libraries are told.
    time_limit : float, optional
        Seconds of a task, after which it is killed. Its row has the status ``limit``.
    memory_limit : float, optional
        Bytes of memory that a task may have in use, imports included (Linux). Its row has the status ``memory``.
    results_file : path, optional
        Rows are appended to it as they come (`ResultsFile`). Tasks that have a row in it are not done again.
    kind : str
        What sweep it is, for the file's first line.
    append : bool
        Add to a file of another sweep.
    retry : bool
        Do tasks again whose row has the status ``error``, ``memory`` or ``limit``.
    on_row : callable, optional
        Called with each new row once it is on the disk.
    on_start : callable, optional
        Called once with the progress and the notices, before the first task.

    Returns
    -------
    Sweep
        A task that raises, crashes or hits a limit is a row with words in ``error``, and stops nothing. Ctrl-C kills
        what runs; the rows so far are kept, and ``interrupted`` is true.

    Raises
    ------
    UsageError
        A task is given twice, a limit makes no sense, or the results file is of another sweep, in use, or cannot be
        written.
    InvalidInput
        The results file is damaged, or none.
    OptschedError
        Workers cannot be started at all.
    """
    limits = RunLimits.of(processes, threads, time_limit, memory_limit)
    _refuse_twice(tasks)
    machine = here()
    notices = _warnings(limits)
    file = None
    if results_file is not None:
        again = (lambda row: row.get("status") in FAILED) if retry else None
        file = ResultsFile.open(
            results_file, tasks, {"kind": kind, **machine}, append=append, again=again
        )
        notices += file.notices
    try:
        done = {} if file is None else dict(file.done)
        progress = Progress(len(tasks), len(done), len(done))
        if done:
            notices.append(
                f"{len(done)} of {len(tasks)} tasks have a row in {results_file}: they are not done again"
            )
        left = deque(task for task in tasks if task.key not in done)

        def keep(row: Row) -> None:
            done[row["key"]] = row  # first: Ctrl-C may come once the row is on the disk
            if file is not None:
                file.add(row)
            progress.done += 1
            progress.failed += row["status"] in FAILED
            if on_row is not None:
                on_row(row, progress)

        slots = [
            Slot(worker, prepare, limits, machine) for _ in range(min(limits.processes, len(left)))
        ]
        interrupted = False
        try:
            for slot in slots:
                slot.start()  # before the caller starts threads: without any, workers can be forked
            if on_start is not None:
                on_start(progress, notices)
            _loop(slots, left, progress, keep)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            for slot in slots:
                slot.stop()
    finally:
        if file is not None:
            file.close()
    rows = [done[task.key] for task in tasks if task.key in done]
    return Sweep(tuple(rows), tuple(notices), interrupted and len(rows) < len(tasks))


def _loop(
    slots: Sequence[Slot], left: deque[Task], progress: Progress, keep: Callable[[Row], None]
) -> None:
    """Hand out tasks and take rows until there are none."""
    while left or any(slot.attempt for slot in slots):
        for slot in slots:
            if slot.attempt is None and left:
                task = left.popleft()
                slot.begin(task)
                progress.running[task] = time.monotonic()
        wait([slot.process.socket for slot in slots if slot.process is not None], LOOK_EVERY)
        for slot in slots:
            attempt, row = slot.attempt, slot.look()
            if row is not None and attempt is not None:
                del progress.running[attempt.task]
                keep(row)


def _refuse_twice(tasks: Sequence[Task]) -> None:
    seen: set[str] = set()
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
