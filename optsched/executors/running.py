"""Executors by name, and tasks handed to their slots until all have a row."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from optsched.errors import InvalidArgument
from optsched.executors.local_processes import LocalProcesses
from optsched.executors.protocol import Executor, RunLimits, Slot
from optsched.executors.task import Row, Task

LOCAL = "processes"
RAY = "ray"
"""Names of executors; an address of a cluster may follow ``ray:``."""
LOOK_EVERY = 0.05
"""Seconds between looks at tasks that have nothing to tell, for their limits."""


def executor_of(name: str) -> Executor:
    """The executor of a name: ``processes``, ``ray``, ``ray:ADDRESS`` or a client's ``ray://HOST:PORT``.

    Raises
    ------
    UsageError, SolverUnavailable
    """
    check_executor(name)
    kind, _, address = name.partition(":")
    if kind == RAY:
        from optsched.executors.ray_cluster import RayCluster  # loads nothing of Ray before

        return RayCluster(name if address.startswith("//") else address or None)
    return LocalProcesses()


def check_executor(name: str, processes: int = 1) -> None:
    """Refuse names of no executor, and numbers of processes out of range; raises `UsageError`."""
    RunLimits.of(processes, 1, None, None)
    if name != LOCAL and name.partition(":")[0] != RAY:
        raise InvalidArgument("executor", repr(name), f"{LOCAL}, {RAY} or {RAY}:ADDRESS")


def finished(
    executor: Executor,
    slots: Sequence[Slot],
    left: deque[Task],
    on_begin: Callable[[Task], None] | None = None,
    *,
    keep: bool = False,
) -> Iterator[tuple[Task, Row]]:
    """Hand out tasks, and yield each with its row as they come.

    Parameters
    ----------
    executor : Executor
    slots : sequence of Slot
    left : deque of Task
        Emptied on the way.
    on_begin : callable, optional
        Called with each task that is handed out.
    keep : bool
        Whether workers that have nothing to do any more stay, for other tasks.
    """
    while left or any(slot.attempt for slot in slots):
        for slot in slots:
            if slot.attempt is not None:
                continue
            if not left:
                if not keep:
                    slot.stop()  # others of a cluster may wait for its cores
                continue
            task = left.popleft()
            slot.begin(task)
            if on_begin is not None:
                on_begin(task)
        executor.wait(slots, LOOK_EVERY)
        for slot in slots:
            attempt, row = slot.attempt, slot.look()
            if row is not None and attempt is not None:
                yield attempt.task, row
