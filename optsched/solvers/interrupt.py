"""Ctrl-C as a flag that a running solver can check, instead of an exception inside its
callbacks."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_active: list[threading.Event] = []
"""Flags of the main thread, outer ones first:
a search of many runs has one, and each run its own.
"""

_keeps_answers = False


class interrupt_flag:
    """While inside, SIGINT sets the event that ``with`` gives;
    a second SIGINT raises KeyboardInterrupt as usual.

    Nested flags are set together, and an inner flag begins in the state of the outer one: an
    interrupt that one run did not notice stops the next run, and one that came before a run stops
    it at once.

    Outside of the main thread signals do not arrive, and the event is never set.
    """

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._handler: Any = None  # that of SIGINT before the outermost flag

    def __enter__(self) -> threading.Event:
        # Python lets the main thread alone set handlers.
        if threading.current_thread() is threading.main_thread():
            if interrupted():
                self._flag.set()
            # One handler for all flags: to set one takes longer than a small step that it guards
            if not _active:
                self._handler = signal.signal(signal.SIGINT, _on_signal)
            _active.append(self._flag)
        return self._flag

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._flag in _active:
            _active.remove(self._flag)
            if not _active:
                signal.signal(signal.SIGINT, self._handler)


def interrupted() -> bool:
    """Whether Ctrl-C was pressed while a flag is active; searches of optsched end then."""
    return any(flag.is_set() for flag in _active)


def _on_signal(number: int, frame: FrameType | None) -> None:
    # A second Ctrl-C always raises: the solver may not check the flag.
    if _active[-1].is_set():
        raise KeyboardInterrupt
    for flag in _active:
        flag.set()


@contextmanager
def keeping_answers() -> Iterator[None]:
    """While inside, an answer is returned even if Ctrl-C came when it was nearly complete.

    Commands write that answer. A script that solves one instance after the other must end instead:
    there Ctrl-C is raised, unless the answer states that it was interrupted.
    """
    global _keeps_answers
    before, _keeps_answers = _keeps_answers, True
    try:
        yield
    finally:
        _keeps_answers = before


class delayed_interrupt(interrupt_flag):
    """`interrupt_flag` around the steps to an answer; a flag that is set at the end raises
    KeyboardInterrupt, unless answers are kept (`keeping_answers`).
    """

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        super().__exit__(kind, error, trace)
        if error is None and self._flag.is_set() and not _keeps_answers:
            raise KeyboardInterrupt
