"""Executors by name, and tasks handed to their slots until all have ended."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from optsched.executors.limits import RAY, check_executor
from optsched.executors.local_processes import LocalProcesses
from optsched.executors.protocol import LOST, Executor, Slot, TaskEnd
from optsched.processes import STARTING

LOOK_EVERY = 0.05
"""Seconds between looks at tasks that have nothing to tell, for their limits."""
RETRIES = 2
"""Times that a task is done again whose process was killed by others."""
OVERRUN = 2.0
"""A worker is lost if its task takes so many times its limit, and `STARTING` seconds. Tasks keep
their limit themselves, or their worker does, but for code that hangs and machines that freeze.
"""


def executor_of(name: str) -> Executor:
    """The executor of a name: ``processes``, ``ray``, ``ray:ADDRESS`` or a client's
    ``ray://HOST:PORT``.

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


@dataclass
class _Waiting:
    """A task that has not ended, and how often its process was lost."""

    number: int
    lost: int = 0


def finished(
    executor: Executor,
    slots: Sequence[Slot],
    tasks: int,
    content_of: Callable[[int], Any],
    on_begin: Callable[[int], None] | None = None,
    *,
    time_limit: float | None = None,
    keep: bool = False,
) -> Iterator[tuple[int, TaskEnd]]:
    """Hand out tasks, and yield the number and the end of each as they come.

    A task whose process was lost is done again, `RETRIES` times at most; then its end is an error.
    So is the end of all tasks that are left where no worker finds room (see ``time_limit``).

    Parameters
    ----------
    executor : Executor
    slots : sequence of Slot
    tasks : int
        How many there are.
    content_of : callable
        Content of a task by its number, each time that it is handed out.
    on_begin : callable, optional
        Called with the number of each task when it is first handed out.
    time_limit : float, optional
        Seconds that a task may take; see `OVERRUN`. Room for a first worker is awaited as long.
    keep : bool
        Whether workers that have nothing to do any more stay, for other tasks.
    """
    left = deque(_Waiting(number) for number in range(tasks))
    busy: dict[Slot, _Waiting] = {}
    most, last_busy = _most_seconds(time_limit), time.monotonic()
    while left or busy:
        if busy:
            last_busy = time.monotonic()
        elif time.monotonic() - last_busy > most:
            no_room = TaskEnd("error", words=f"no worker found room within {most:.6g} s")
            yield from ((task.number, no_room) for task in left)
            return
        if left:
            # All workers start before the first one is waited for. A cluster may have room for
            # some of them only: no task waits for the others.
            free = [slot for slot in slots if slot not in busy and slot.start()]
            for slot in free[: len(left)]:
                task = busy[slot] = left.popleft()
                slot.begin(content_of(task.number))
                if on_begin is not None and not task.lost:
                    on_begin(task.number)
        elif not keep:
            for slot in slots:
                if slot not in busy:
                    slot.stop()  # others of a cluster may wait for its cores
        executor.wait(slots, LOOK_EVERY)
        for slot, task in list(busy.items()):
            end = slot.look() or _lost_by_overrun(slot, most)
            if end is None:
                continue
            del busy[slot]
            if end.status == LOST:
                task.lost += 1
                if task.lost <= RETRIES:
                    left.appendleft(task)
                    continue
                words = f"{end.words}, {task.lost} times in a row"
                end = replace(end, status="error", words=words)
            yield task.number, end


def _most_seconds(time_limit: float | None) -> float:
    """Seconds after which a worker is lost that says nothing, or finds no room; see `OVERRUN`."""
    return math.inf if time_limit is None else OVERRUN * time_limit + STARTING


def _lost_by_overrun(slot: Slot, most: float) -> TaskEnd | None:
    """The end of a task that has taken far more than its limit, and was killed for it."""
    if slot.running is None or time.monotonic() - slot.running.asked <= most:
        return None
    slot.stop()
    return TaskEnd(LOST, words=f"its worker did not answer within {most:.6g} s and was killed")
