"""A progress line: for a solver that runs for more than a second, and for a sweep."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from optsched.cli.shell import Shell, terminal_width
from optsched.cli.tables import name, number, seconds, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optsched.benchmarking import SweepProgress
    from optsched.solvers import Progress

# Seconds before a line is shown; most runs end earlier.
PATIENCE = 1.0
# Seconds between two updates, on a terminal and elsewhere.
EVERY, ELSEWHERE = 0.2, 10.0
STOPS = "(Ctrl-C stops)"


class ProgressLine:
    """Shows a text repeatedly, in a thread, until it is stopped."""

    def __init__(self, text: Callable[[], str], patience: float = 0.0) -> None:
        self._text = text
        self._patience = patience
        self._done = threading.Event()
        # A daemon thread, so that it does not keep the program alive when the solver raises
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and erase the line."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _show(self) -> None:
        if self._done.wait(self._patience):
            return
        from rich.console import Console
        from rich.status import Status

        width = terminal_width()
        console = Console(file=sys.stderr, width=width, markup=False, highlight=False, emoji=False)
        with Status(self._text(), console=console, refresh_per_second=1 / EVERY) as status:
            while not self._done.wait(EVERY):
                line = self._text()
                # A wrapped line could not be erased completely
                status.update(line if len(line) <= width - 3 else f"{line[: width - 6]}...")


class ProgressLog(ProgressLine):
    """As `ProgressLine`, but without a terminal: it prints a new line at intervals."""

    def __init__(self, text: Callable[[], str], shell: Shell) -> None:
        super().__init__(text)
        self._shell = shell

    def _show(self) -> None:
        while not self._done.wait(ELSEWHERE):
            self._shell.complain(self._text())


def on_terminal() -> bool:
    """Whether a line can be overwritten: on a terminal with control sequences."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


# --- of a solver ----------------------------------------------------------------------------------


@contextmanager
def progress(
    shell: Shell, what: str, shown: bool = True
) -> Iterator[Callable[[Progress], None] | None]:
    """A progress callback with its line; None if the line would not be visible."""
    # Do not write escape codes to a log file
    if not shown or shell.quiet or not on_terminal():
        yield None
        return
    started = time.perf_counter()
    last: list[Progress] = []

    def on_progress(event: Progress) -> None:
        last[:] = [event]

    def text() -> str:
        spent = f"{time.perf_counter() - started:.0f} s {STOPS}"
        return f"{what}: {', '.join([*solver_words(last[0] if last else None), spent])}"

    line = ProgressLine(text, PATIENCE)
    line.start()
    try:
        yield on_progress
    finally:
        line.stop()


def solver_words(event: Progress | None) -> list[str]:
    """``incumbent 3.2``, ``bound 4.1``, ``gap 28 %``: the last event of a solver."""
    if event is None:
        return []
    from optsched.solution import gap_of  # not at the top: help and completion must not load numpy

    figures = (("incumbent", event.incumbent), ("bound", event.bound))
    parts = [f"{figure} {number(value)}" for figure, value in figures if value is not None]
    gap = gap_of(event.incumbent, event.bound)
    if gap is not None:
        parts.append(f"gap {share(gap)}")
    return [*parts, *([event.words] if event.words else [])]


# --- of a sweep -----------------------------------------------------------------------------------


@contextmanager
def sweep_progress(
    shell: Shell,
) -> Iterator[Callable[[SweepProgress, Sequence[str]], None]]:
    """The callback of `run_tasks` for a sweep, with its notices; the line is erased at the end."""
    lines = []

    def on_start(progress: SweepProgress, notices: Sequence[str]) -> None:
        if shell.quiet:
            return
        for notice in notices:
            shell.complain(notice)
        if progress.done == progress.total:
            return

        def whole_line() -> str:
            return f"{sweep_words(progress)} {STOPS}{under_way(progress)}"

        lines.append(
            ProgressLine(whole_line)
            if on_terminal()
            else ProgressLog(lambda: sweep_words(progress), shell)
        )
        lines[0].start()

    try:
        yield on_start
    finally:
        for line in lines:
            line.stop()


def sweep_words(progress: SweepProgress) -> str:
    """``12 of 40 tasks done, 1 without an answer, 31 s, about 1.2 min left``."""
    spent = time.monotonic() - progress.started
    parts = [f"{progress.done:,} of {progress.total:,} tasks done"]
    if progress.failed:
        parts.append(f"{progress.failed:,} without an answer")
    parts.append(seconds(spent))
    # Tasks of an earlier run took no time in this one
    done_now = progress.done - progress.resumed
    if done_now:
        parts.append(f"about {seconds(spent / done_now * (progress.total - progress.done))} left")
    return ", ".join(parts)


def under_way(progress: SweepProgress) -> str:
    """``; now @quickstart makespan highs (3 s)``: the task that has been running longest."""
    running = sorted(progress.running.items(), key=lambda item: item[1])
    if not running:
        return ""
    task, since = running[0]
    keys = ("instance", "trace", "formulation", "policy", "solver")
    named = [name(str(task.labels[key])) for key in keys if task.labels.get(key)]
    more = f" and {len(running) - 1} more" if len(running) > 1 else ""
    return f"; now {' '.join(named)} ({seconds(time.monotonic() - since)}){more}"
