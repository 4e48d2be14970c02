"""A new thread for each run of HiGHS that needs one.

HiGHS keeps a scheduler for every thread that runs it. The first run in a thread makes it with the number of threads
that this run asks for, and it stays until the thread ends. A later run in the same thread that asks for another number
fails: model status 'Not Set', no point. The first run need not be ours; it may be the caller's own, with highspy or
through cvxpy. ``Highs.resetGlobalScheduler`` removes the scheduler of the calling thread, but it also does so under a
run in progress there (a caller may solve from inside a callback), which crashes the process.

A new thread has no scheduler yet, and takes its own with it when it ends. So nothing that ran before, runs beside or
runs later in another thread can be in the way, whatever its number of threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

NAME = "highs"
"""Name of the threads."""


def left_running() -> bool:
    """Whether a run that nobody waits for any longer is still going on."""
    return any(thread.name == NAME for thread in threading.enumerate())


def in_new_thread(work: Callable[[], T], seconds: float | None = None) -> T:
    """Call something in a new thread and wait for it: its result, or what it raises.

    Ctrl-C reaches the waiting thread. If its handler raises, the new thread is left to end by itself; so it is after
    ``seconds``, when `TimeoutError` is raised. The process waits for it at its end: a run of HiGHS that is still going
    on while Python shuts down aborts the process. The ``optsched`` command leaves at once (`left_running`).
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised in the thread that waits
            future.set_exception(error)

    thread = threading.Thread(target=run, name=NAME)
    thread.start()
    result = future.result(seconds)
    thread.join()
    return result
