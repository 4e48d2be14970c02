"""How far a sweep is, on standard error: a line that changes on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from optsched.cli.shell import Shell, terminal_width
from optsched.cli.tables import name, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optsched.benchmarking import Progress

# Seconds between two looks.
ON_TERMINAL, ELSEWHERE = 0.2, 10.0


class SweepLine:
    """Tells notices at once, and the progress from time to time; pass `on_start` to `run_tasks`."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._progress: Progress | None = None
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def on_start(self, progress: Progress, notices: Sequence[str]) -> None:
        """Tell the notices, and begin to look."""
        for notice in notices:
            if not self._shell.quiet:
                self._shell.complain(notice)
        self._progress = progress
        if not self._shell.quiet and progress.done < progress.total:
            show = self._on_terminal if sys.stderr.isatty() else self._elsewhere
            self._thread = threading.Thread(
                target=show, args=(progress,), name="progress", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _on_terminal(self, progress: Progress) -> None:
        from rich.console import Console
        from rich.status import Status

        width = terminal_width()
        console = Console(file=sys.stderr, width=width, markup=False, highlight=False, emoji=False)
        with Status(words(progress), console=console, refresh_per_second=1 / ON_TERMINAL) as status:
            while not self._done.wait(ON_TERMINAL):
                line = f"{words(progress)} (Ctrl-C stops){under_way(progress)}"
                status.update(line if len(line) <= width - 3 else f"{line[: width - 6]}...")

    def _elsewhere(self, progress: Progress) -> None:
        while not self._done.wait(ELSEWHERE):
            self._shell.complain(words(progress))


@contextmanager
def sweep_line(shell: Shell) -> Iterator[SweepLine]:
    """A `SweepLine` that is gone at the end."""
    line = SweepLine(shell)
    try:
        yield line
    finally:
        line.stop()


def words(progress: Progress) -> str:
    """``12 of 40 tasks done, 1 without an answer, 31 s, about 1.2 min left``."""
    spent = time.monotonic() - progress.started
    parts = [f"{progress.done:,} of {progress.total:,} tasks done"]
    if progress.failed:
        parts.append(f"{progress.failed:,} without an answer")
    parts.append(seconds(spent))
    # Tasks that an earlier run had done took no time now
    mine = progress.done - progress.resumed
    if mine:
        parts.append(f"about {seconds(spent / mine * (progress.total - progress.done))} left")
    return ", ".join(parts)


def under_way(progress: Progress) -> str:
    """``; now @quickstart makespan highs (3 s)``: the task that has been under way for longest."""
    running = sorted(progress.running.items(), key=lambda item: item[1])
    if not running:
        return ""
    task, since = running[0]
    labels = task.labels
    named = [
        name(str(labels[key]))
        for key in ("instance", "trace", "formulation", "policy", "solver")
        if labels.get(key)
    ]
    more = f" and {len(running) - 1} more" if len(running) > 1 else ""
    return f"; now {' '.join(named)} ({seconds(time.monotonic() - since)}){more}"
