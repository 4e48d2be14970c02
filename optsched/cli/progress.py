"""A line on the terminal while something takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from optsched.cli.shell import Shell, terminal_width
from optsched.cli.tables import number

if TYPE_CHECKING:
    from optsched.solvers import Progress

# Seconds before anything is shown.
PATIENCE = 1.0
EVERY = 0.2


class ProgressLine:
    """The last event of a solver, shown with the time that has passed."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = time.perf_counter()
        self._last: Progress | None = None
        self._done = threading.Event()
        # A daemon: it must not keep the program alive when the solver raises
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def __call__(self, event: Progress) -> None:
        """Take an event; called by the solver's thread."""
        self._last = event

    def words(self) -> str:
        """``solving: incumbent 3.2, bound 4.1, gap 28 %, 12 s``."""
        parts = []
        event = self._last
        if event is not None:
            parts += [
                f"{name} {number(value)}"
                for name, value in (("incumbent", event.incumbent), ("bound", event.bound))
                if value is not None
            ]
            if event.incumbent is not None and event.bound is not None:
                gap = abs(event.incumbent - event.bound) / max(1e-9, abs(event.incumbent))
                parts.append(f"gap {100 * gap:.2g} %")
            parts += [event.words] if event.words else []
        parts.append(f"{time.perf_counter() - self._started:.0f} s (Ctrl-C stops)")
        return f"{self._what}: {', '.join(parts)}"

    def _show(self) -> None:
        # Most runs end before anybody would read the line
        if self._done.wait(PATIENCE):
            return
        from rich.console import Console
        from rich.status import Status

        console = Console(
            file=sys.stderr, width=terminal_width(), markup=False, highlight=False, emoji=False
        )
        with Status(self.words(), console=console, refresh_per_second=1 / EVERY) as status:
            while not self._done.wait(EVERY):
                status.update(self.words())

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take the line away."""
        self._done.set()
        self._thread.join()


@contextmanager
def progress(
    shell: Shell, what: str, shown: bool = True
) -> Iterator[Callable[[Progress], None] | None]:
    """A progress callback with its line, or None where nobody would see one."""
    # Escape codes have no place in a log file
    if not shown or shell.quiet or not sys.stderr.isatty():
        yield None
        return
    line = ProgressLine(what)
    line.start()
    try:
        yield line
    finally:
        line.stop()
