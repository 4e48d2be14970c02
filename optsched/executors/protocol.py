"""Where tasks are done: the seam between what is many and the processes or the cluster that does it.

`finished` gives each `Slot` of an `Executor` a task, and looks for rows. Two executors exist:
processes of this machine (`optsched.executors.local_processes`) and a Ray cluster
(`optsched.executors.ray_cluster`), whose workers use the former on their own machine. So limits,
crashes and rows are the same everywhere.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol, Self

from optsched.errors import InvalidArgument, SolverCrashed, UsageError
from optsched.executors.task import Row, Task
from optsched.executors.worker import Prepare

MOST_PROCESSES = 1024
CRASHED = SolverCrashed.exit_code
MB = 1e6


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


@dataclass(frozen=True)
class SweepWork:
    """What every task of a sweep shares.

    Attributes
    ----------
    worker, prepare : str
        Addresses ``module:function`` of the worker, and of what imports for it (may be empty).
    limits : RunLimits
    content : bytes
        Pickled first argument of the worker, which is sent once to each process; empty: it has none.
    """

    worker: str
    prepare: str
    limits: RunLimits
    content: bytes = b""

    @classmethod
    def of(
        cls,
        worker: Callable[..., Any],
        prepare: Prepare | None,
        limits: RunLimits,
        content: bytes = b"",
    ) -> Self:
        """Other processes import the functions; raises `UsageError` where they cannot."""
        ready = "" if prepare is None else address_of(prepare)
        return cls(address_of(worker), ready, limits, content)


def address_of(function: Any) -> str:
    """``module:name`` of a function that another process can import; raises `UsageError`."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or not name.isidentifier() or module == "__main__":
        raise UsageError(
            f"{name or function!r} is no function at the top of a module: other processes import it"
        )
    return f"{module}:{name}"


@dataclass
class RunningTask:
    """A task under way: since when it was asked for, what is known of its process,
    and of workers lost before it.
    """

    task: Task
    asked: float
    pid: int = 0
    started: float | None = None
    seconds: float = 0.0
    peak: int = 0
    lost_workers: int = 0

    @property
    def spent(self) -> float:
        """Seconds since its process began."""
        return 0.0 if self.started is None else time.monotonic() - self.started

    def row(self, answer: Mapping[str, Any], machine: Mapping[str, Any]) -> Row:
        """The row of the task: labels, answer, what it took, and where."""
        return {
            "key": self.task.key,
            **self.task.labels,
            **{"status": "ok", "error": None, **answer},
            "wall_s": round(self.seconds, 6),
            "peak_memory_mb": round(self.peak / MB, 1) if self.peak else None,
            **machine,
            "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def failed(self, status: str, words: str, machine: Mapping[str, Any]) -> Row:
        """The row of a task that left none."""
        code = {"exit_code": CRASHED} if status == "error" else {}
        return self.row({"status": status, "error": words, **code}, machine)


class Slot(Protocol):
    """Does one task at a time; a worker that was lost is replaced.

    Attributes
    ----------
    attempt : RunningTask or None
        What is under way.
    """

    attempt: RunningTask | None

    def start(self) -> object:
        """Start its worker, if there is none."""

    def begin(self, task: Task) -> None:
        """Have a task done."""

    def look(self) -> Row | None:
        """The row of the task once there is one; the slot is free then."""

    def stop(self) -> None:
        """Kill its worker, with what that has started; harmless where there is none."""


class Executor(Protocol):
    """Does tasks somewhere."""

    def slots(self, work: SweepWork, count: int) -> Sequence[Slot]:
        """So many slots, which have not started anything yet."""

    def wait(self, slots: Sequence[Slot], seconds: float) -> None:
        """Wait until a slot may have something to tell, for so many seconds at most."""

    def close(self) -> None:
        """Let go of what the executor itself has started."""
