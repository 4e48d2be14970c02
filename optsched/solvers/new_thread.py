"""Runs of solvers in new threads.

HiGHS runs in a new thread where it needs one (`in_new_thread`), because it keeps a scheduler for
every thread that runs it. The first run in a thread makes it with the number of threads that this
run asks for, and it stays until the thread ends. A later run in the same thread that asks for
another number fails: model status 'Not Set', no point. The first run need not be ours; it may be
the caller's own, with highspy or through cvxpy. ``Highs.resetGlobalScheduler`` removes the
scheduler of the calling thread, but it also does so under a run in progress there (a caller may
solve from inside a callback), which crashes the process.

A new thread has no scheduler yet, and takes its own with it when it ends. So nothing that ran
before, runs beside or runs later in another thread can be in the way, whatever its number of
threads.

OR-tools runs in a new thread so that the waiting thread can handle Ctrl-C and ask it to stop
(`run_stoppable`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from optsched.errors import SolverCrashed
from optsched.solvers.interrupt import interrupt_flag

T = TypeVar("T")

NAME = "highs"
"""Name of the threads of HiGHS."""
LOOK_EVERY = 0.02
"""Seconds between checks for Ctrl-C."""


def left_running() -> bool:
    """Whether an abandoned run still continues in its thread."""
    return any(thread.name == NAME for thread in threading.enumerate())


def in_new_thread(
    work: Callable[[], T],
    seconds: float | None = None,
    interrupt: threading.Event | None = None,
    grace: float = 0.0,
) -> T:
    """Call a function in a new thread, and return its result or raise its exception.

    Ctrl-C reaches the waiting thread. The new thread is left to end by itself if the handler of
    Ctrl-C raises, after ``seconds``, and ``grace`` seconds after ``interrupt`` is set; in the last
    two cases `TimeoutError` is raised. The process waits for that thread at its end: a run of HiGHS
    that is still going on while Python shuts down aborts the process. The ``optsched`` command
    leaves at once (`left_running`).
    """
    future, thread = _started(work, NAME, daemon=False)
    until = math.inf if seconds is None else time.monotonic() + seconds
    asked = False
    while not wait([future], LOOK_EVERY).done and time.monotonic() < until:
        if not asked and interrupt is not None and interrupt.is_set():
            asked, until = True, min(until, time.monotonic() + grace)
    result = future.result(0)
    thread.join()
    return result


def run_stoppable(name: str, work: Callable[[], T], stop: Callable[[], Any]) -> tuple[T, bool]:
    """Call something in a new thread;
    ``stop`` asks it to end early, and is called from Ctrl-C on until it does.

    Returns its result and whether Ctrl-C was pressed; raises `SolverCrashed` if it raises.
    """
    with interrupt_flag() as interrupt:
        future, thread = _started(work, name, daemon=True)
        while not wait([future], LOOK_EVERY).done:
            if interrupt.is_set():
                stop()
        thread.join()
    if (error := future.exception()) is not None:
        raise SolverCrashed(f"{name} raised {type(error).__name__}: {error}")
    return future.result(), interrupt.is_set()


def _started(work: Callable[[], T], name: str, daemon: bool) -> tuple[Future[T], threading.Thread]:
    """A new thread that does the work, and where its result or its exception will be."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised in the thread that waits
            future.set_exception(error)

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return future, thread
