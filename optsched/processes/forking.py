"""Whether children can be forked from a program, and what the program does for it."""

from __future__ import annotations

import os
import time

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that set how many threads libraries start."""
POLL_EVERY = 0.01


class Forked:
    """A process that was forked from this one,
    with the methods of `subprocess.Popen` that `Child` needs.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._reap(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code; None if it still runs after so many seconds."""
        if timeout is None:
            return self._reap(0)
        end = time.monotonic() + timeout
        while self.poll() is None and time.monotonic() < end:
            time.sleep(POLL_EVERY)
        return self.returncode

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def can_fork(threads: int) -> bool:
    """Whether a copy of this process can do tasks:
    nothing else runs in it, and libraries have as many threads.

    A copy has one thread alone, so that locks which other threads held at the time stay locked in
    it for ever.
    """
    if any(os.environ.get(name) != str(threads) for name in THREADS):
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # not Linux
        return False


def few_threads() -> None:
    """Have libraries that are not loaded yet start one thread each;
    variables that are set already stay.

    A program that calls this first, and starts no threads itself, has its children forked
    (`can_fork`): they need not import again what the program has imported.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
