"""`run_tasks`: many tasks in parallel processes, within limits, resumable:
benchmarks and simulations alike.
"""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

from optsched.benchmarking.results_file import FAILED, ResultsFile, Row
from optsched.benchmarking.task import Task
from optsched.display import DisplayedTable, TableColumns, columns_of, count, first_of
from optsched.display.picture import Picture
from optsched.errors import SolverCrashed, UsageError
from optsched.executors.limits import LOCAL, RunLimits
from optsched.executors.machine import cores, here
from optsched.executors.protocol import (
    OK,
    Executor,
    Prepare,
    SharedWork,
    Slot,
    TaskEnd,
    Work,
)
from optsched.executors.running import executor_of, finished
from optsched.instance.reading import first_repeated
from optsched.lazy import convenience

MB = 1e6
MOST_METHODS = 10
"""Methods in a summary, at most."""

# --- many tasks ----------------------------------------------------------------------------------


@dataclass
class SweepProgress:
    """How far a sweep is, kept up to date while it runs; to be looked at from any thread.

    Attributes
    ----------
    total : int
        Tasks of the sweep.
    done : int
        Tasks with a row, also of earlier runs.
    resumed : int
        Tasks that had a row before this run.
    failed : int
        Rows of this run whose status is `FAILED`.
    running : mapping of task -> seconds of the clock
        Tasks that run, and since when (`time.monotonic`).
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
    executor: str
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
        for method in results.methods[:MOST_METHODS]:
            facts[results.method_name(method)] = results.method_in_words(method)
        hidden = len(results.methods) - MOST_METHODS
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
    executor: str = LOCAL,
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
    """Do tasks, each in its own process, and collect a row of each.

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
    executor : str
        Where they run: ``processes`` of this machine; ``ray``, on the Ray cluster of the
        environment (``RAY_ADDRESS``), or on this machine alone; ``ray:ADDRESS``.
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
    SolverUnavailable
        Ray is not installed, or no cluster answers.
    OptschedError
        Workers end by themselves before their first task, as where the function cannot be imported.
    """
    limits = RunLimits.of(processes, threads, time_limit, memory_limit)
    work = SharedWork.of(worker, prepare, limits)
    if (twice := first_repeated(task.text for task in tasks)) is not None:
        raise UsageError(f"a task is given twice: {twice[:200]}")
    file = None
    if results_file is not None:
        about = {"kind": kind, **here()}
        file = ResultsFile.open(results_file, tasks, about, append=append, retry=retry)
    # The file is locked until the last row, so that no other run adds to it.
    with file or nullcontext():
        rows = SweepRows(tasks, file, on_row)
        notices = [
            *(_warnings(limits) if executor == LOCAL else ()),
            *rows.notices(),
        ]
        # As many workers as there are tasks at most: one without a task would import for nothing.
        most = min(limits.processes, len(rows.left))
        with closing(executor_of(executor)) as where:
            slots = where.slots(work, most)
            interrupted = _do_until_interrupted(where, slots, rows, notices, on_start, limits.time)
    found = rows.in_order()
    return Sweep(found, tuple(notices), interrupted and len(found) < len(tasks))


class SweepRows:
    """The rows of a sweep while it runs.

    Attributes
    ----------
    left : list of Task
        Those without a row from an earlier run.
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
        self.left = [task for task in tasks if task.key not in self._done]
        count = len(self._done)
        self.progress = SweepProgress(len(tasks), count, count)

    def notices(self) -> list[str]:
        """What the file says of itself, and how many tasks have a row in it already."""
        if self._file is None:
            return []
        notices = list(self._file.notices)
        if resumed := self.progress.resumed:
            notices.append(
                f"{resumed} of {len(self._tasks)} tasks have a row in {self._file.path}: "
                "they are not done again"
            )
        return notices

    def begin(self, task: Task) -> None:
        """Take note of a task that is under way now."""
        self.progress.running[task] = time.monotonic()

    def add(self, task: Task, row: Row) -> None:
        """Keep the row of a task, on the disk too."""
        self.progress.running.pop(task, None)  # not there: no worker found room for it
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


def row_of(task: Task, end: TaskEnd) -> Row:
    """The row of a task: labels, answer, what it took, and where, if that is known."""
    return {
        "key": task.key,
        **task.labels,
        **_answer_of(end),
        "wall_s": round(end.seconds, 6),
        "peak_memory_mb": round(end.memory / MB, 1) if end.memory else None,
        **(end.machine or dict.fromkeys(here())),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _answer_of(end: TaskEnd) -> Row:
    """Status, error, and what the worker returned."""
    if end.status != OK:
        failed: Row = {"status": end.status, "error": end.words}
        if end.exit_code is not None:
            return failed | {"exit_code": end.exit_code}
        return failed | ({"exit_code": SolverCrashed.exit_code} if end.status == "error" else {})
    try:
        # As it is read again from a results file: tuples become lists.
        answer: Row = dict(json.loads(json.dumps(pickle.loads(end.answer), allow_nan=False)))
    except (TypeError, ValueError) as error:
        return {"status": "error", "error": f"{type(error).__name__}: {error}", "exit_code": 1}
    return {"status": OK, "error": None, **answer}


def _do_until_interrupted(
    executor: Executor,
    slots: Sequence[Slot],
    rows: SweepRows,
    notices: Sequence[str],
    on_start: Callable[[SweepProgress, Sequence[str]], None] | None,
    time_limit: float | None,
) -> bool:
    """Do all tasks, or those that Ctrl-C leaves time for; whether it came."""
    try:
        # Before the caller starts threads, as for a line of progress: without any, workers can be
        # forked.
        for slot in slots:
            slot.start()
        if on_start is not None:
            on_start(rows.progress, notices)
        left = rows.left
        for number, end in finished(
            executor,
            slots,
            len(left),
            content_of=lambda number: left[number].spec,
            on_begin=lambda number: rows.begin(left[number]),
            time_limit=time_limit,
        ):
            rows.add(left[number], row_of(left[number], end))
    except KeyboardInterrupt:
        return True
    finally:
        for slot in slots:
            slot.stop()
    return False


def _warnings(limits: RunLimits) -> list[str]:
    wanted, have = limits.processes * limits.threads, cores()
    if wanted <= have:
        return []
    return [
        f"{limits.processes} processes x {limits.threads} threads are {wanted}, on {have} cores: "
        "they slow each other down, and times tell little"
    ]
