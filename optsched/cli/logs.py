"""Where the log of the library goes during a command."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from optsched.errors import UsageError


class _Lines(logging.Handler):
    """Log lines on the standard error of the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; the traceback comes with ``-vv`` alone."""
        line = self.format(record) if self.level <= logging.DEBUG else record.getMessage()
        sys.stderr.write(f"optsched: {line}\n")


def _format(file: str) -> logging.Formatter:
    """Lines of JSON for a file whose name says so."""
    if not file.lower().endswith(".jsonl"):
        return logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    from optsched.rounds.telling import JsonLines

    return JsonLines()


@contextmanager
def logging_to(verbosity: int, file: str | None) -> Iterator[None]:
    """Send the log of optsched to standard error (warnings; INFO with ``-v``, DEBUG from two on) and to a file."""
    log = logging.getLogger("optsched")
    level = logging.DEBUG if verbosity > 1 else logging.INFO
    handlers: list[logging.Handler] = [_Lines()]
    if file is not None:
        try:
            handlers.append(logging.FileHandler(file, encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"cannot write {file}: {error.strerror}") from None
        handlers[-1].setFormatter(_format(file))
    before = log.level
    log.setLevel(level)
    for handler in handlers:
        handler.setLevel(level)
    if not verbosity:
        # Without -v only warnings reach the screen, but the file gets everything
        handlers[0].setLevel(logging.WARNING)
    for handler in handlers:
        log.addHandler(handler)
    try:
        yield
    # A program may run several command lines, as tests do
    finally:
        log.setLevel(before)
        for handler in handlers:
            log.removeHandler(handler)
            handler.close()
