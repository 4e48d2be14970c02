"""What callers may ask of executors: their names, numbers of processes, limits of tasks.

Nothing of other processes is imported here: most calls check these arguments and start none.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Self

from optsched.errors import InvalidArgument, UsageError

LOCAL = "processes"
RAY = "ray"
"""Names of executors; an address of a cluster may follow ``ray:``."""
MOST_PROCESSES = 1024


@dataclass(frozen=True)
class RunLimits:
    """How many tasks at a time, and what each may take.

    Attributes
    ----------
    processes, threads : int
    time : float or None
        Seconds of a task.
    memory : int or None
        Bytes in use of a task.
    """

    processes: int = 1
    threads: int = 1
    time: float | None = None
    memory: int | None = None

    @classmethod
    def of(cls, processes: int, threads: int, time: float | None, memory: float | None) -> Self:
        """Check the limits; raises `UsageError`."""
        if not 1 <= processes <= MOST_PROCESSES:
            raise InvalidArgument(
                "processes", str(processes), f"a number from 1 to {MOST_PROCESSES}"
            )
        if threads < 1:
            raise InvalidArgument("threads", str(threads), "1 or more")
        for name, limit in (("time_limit", time), ("memory_limit", memory)):
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise InvalidArgument(name, f"{limit:g}", "a number above 0")
        if memory is not None and not sys.platform.startswith("linux"):
            raise UsageError("memory_limit: the memory of a task can be limited on Linux only")
        return cls(processes, threads, time, None if memory is None else int(memory))


def check_executor(name: str, processes: int = 1) -> None:
    """Refuse names of no executor, and numbers of processes out of range; raises `UsageError`."""
    RunLimits.of(processes, 1, None, None)
    if name != LOCAL and name.partition(":")[0] != RAY:
        raise InvalidArgument("executor", repr(name), f"{LOCAL}, {RAY} or {RAY}:ADDRESS")
