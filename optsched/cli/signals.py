"""A command that is asked to terminate (SIGTERM) does what it does at Ctrl-C: it keeps what it has found.

Programs that use the library keep their own way to terminate.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """While inside, SIGTERM does what SIGINT would; outside of the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        interrupted = signal.getsignal(signal.SIGINT)
        # As for commands in the background of a script
        if not callable(interrupted):
            raise KeyboardInterrupt
        interrupted(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
