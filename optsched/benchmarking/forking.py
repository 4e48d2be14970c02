"""Whether workers can be forked from a program, and what the program does for it. Loads nothing else of the package."""

from __future__ import annotations

import os
from dataclasses import dataclass

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that set how many threads libraries start."""


@dataclass
class Forked:
    """A process that was forked from this one.

    Attributes
    ----------
    pid : int
    """

    pid: int
    _code: int | None = None

    def wait(self) -> int:
        """Its exit code, as `subprocess.Popen.wait` gives it."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code


def can_fork(threads: int) -> bool:
    """Whether a copy of this process can do tasks: nothing else runs in it, and libraries have as many threads.

    A copy has one thread alone, so that locks which other threads held at the time stay locked in it for ever.
    """
    if any(os.environ.get(name) != str(threads) for name in THREADS):
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # not Linux
        return False


def few_threads(threads: int = 1) -> None:
    """Set how many threads libraries start that are not loaded yet; variables that are set already stay.

    A program that calls this first, and starts no threads itself, has its workers forked (`can_fork`): they need not
    import again what the program has imported.
    """
    for name in THREADS:
        os.environ.setdefault(name, str(threads))
