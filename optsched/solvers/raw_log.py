"""Output that back-ends write to standard output, caught at the file descriptor."""

from __future__ import annotations

import codecs
import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

EVERY = 0.2
"""Seconds between reads of the output."""


@contextmanager
def caught_output(on_log: Callable[[str], None] | None) -> Iterator[None]:
    """While inside, standard output of the process goes to ``on_log``; None changes nothing.

    This is the only way to get the log of a library that prints from C. It affects all threads. The
    output goes through a file, not a pipe: a library that holds Python's lock and fills a pipe
    would wait for ever.
    """
    if on_log is None:
        yield
        return
    # Text that is still in buffers was written before, and is no part of the log.
    _flush()
    kept = os.dup(1)
    with tempfile.NamedTemporaryFile(prefix="optsched-") as file, open(file.name, "rb") as reader:
        os.dup2(file.fileno(), 1)
        # Python's own standard output may be no descriptor at all, as in a notebook.
        python = sys.stdout
        sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
        done = threading.Event()
        tail = threading.Thread(
            target=_pass_on, args=(reader, on_log, done), name="solver log", daemon=True
        )
        tail.start()
        try:
            yield
        finally:
            _flush()
            sys.stdout.close()
            sys.stdout = python
            os.dup2(kept, 1)
            os.close(kept)
            done.set()
            tail.join()


def _flush() -> None:
    """Write out the buffers of Python and C, so that they go to the right place."""
    sys.stdout.flush()
    if os.name == "posix":
        ctypes.CDLL(None).fflush(None)


def _pass_on(reader: IO[bytes], on_log: Callable[[str], None], done: threading.Event) -> None:
    """Pass on what was written so far, until ``done``."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    last = False
    while not last:
        # Once more after the end: what was written since the last read.
        last = done.wait(EVERY)
        text = decoder.decode(reader.read(), final=last)
        if text:
            on_log(text)
