"""Tasks on a Ray cluster: Ray carries a task to a machine, and says when a machine is lost.

On each machine the task is done as on this one (`optsched.executors.local_processes`), by an actor
that has its own slot: so limits on time and memory, crashes and answers are the same. An actor may
be lost, with its machine or because that ran out of memory; its task is lost as where a local
process is.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from optsched.errors import OptschedError, SolverUnavailable, UsageError
from optsched.executors.local_processes import LocalProcesses
from optsched.executors.protocol import (
    LOST,
    RunningTask,
    SharedWork,
    Slot,
    TaskEnd,
    only_what_can_be_sent,
)

LOOK_EVERY = 0.05
"""Seconds between looks at the limits of a task, on its machine."""
CONNECTING = 10.0
"""Seconds in which the machine of an address must accept a connection."""


class NodeSlot:
    """The actor: does tasks on its machine, one at a time, in processes there."""

    def __init__(self, work: bytes) -> None:
        """``work`` is the pickled `SharedWork`."""
        self._processes = LocalProcesses()
        [self._slot] = self._processes.slots(pickle.loads(work), 1)
        self._slot.start()

    def do(self, content: Any) -> TaskEnd:
        """Do one task in the process of this worker, and wait for its end."""
        self._slot.begin(content)
        while (end := self._slot.look()) is None:
            self._processes.wait([self._slot], LOOK_EVERY)
        return end


class RayCluster:
    """An `Executor`: an actor for each slot, wherever Ray finds room for its threads.

    Parameters
    ----------
    address : str, optional
        Of the cluster. Default: that of the environment (``RAY_ADDRESS``), else a cluster of this
        machine alone, which ends with the sweep.

    Raises
    ------
    SolverUnavailable
        Ray is not installed, or no cluster answers.
    """

    def __init__(self, address: str | None) -> None:
        try:
            ray = import_module("ray")  # an extra: nothing else loads it
        except ImportError as error:
            raise SolverUnavailable(
                f"executor ray: the package ray cannot be loaded ({error}); "
                "pip install 'optsched[ray]'"
            ) from None
        self._ray: Any = ray
        self._started = not ray.is_initialized()
        if self._started:
            try:
                _check_answers(address or os.environ.get("RAY_ADDRESS", ""))
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (OSError, ValueError, RuntimeError) as error:
                raise SolverUnavailable(f"executor ray: no cluster answers ({error})") from None

    def slots(self, work: SharedWork, count: int) -> Sequence[RaySlot]:
        """See `Executor.slots`; raises `UsageError` where no machine has the cores of one."""
        most = max(
            (node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]),
            default=0.0,
        )
        if most < work.limits.threads:
            raise UsageError(
                f"threads: found {work.limits.threads}, expected at most {most:g}: "
                "no machine of the Ray cluster has more cores"
            )
        with only_what_can_be_sent():
            # Once, however many slots there are. As bytes: arrays in Ray's store can only be read.
            stored = self._ray.put(pickle.dumps(work, pickle.HIGHEST_PROTOCOL))
        return [RaySlot(self._ray, work.limits.threads, stored) for _ in range(count)]

    def wait(self, slots: Sequence[Slot], seconds: float) -> None:
        # What has come for an idle slot, its actor, would end every wait at once.
        awaited = [
            slot.awaited
            for slot in slots
            if isinstance(slot, RaySlot) and (slot.running or not slot.has_come())
        ]
        if awaited:
            self._ray.wait(awaited, timeout=seconds)

    def close(self) -> None:
        if self._started:
            self._ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise `OSError` where nothing listens at HOST:PORT: Ray itself would try for more than ten
    minutes.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), CONNECTING).close()


class RaySlot:
    """A `Slot` whose worker is an actor.

    Attributes
    ----------
    running : RunningTask or None
    awaited : object
        Reference of Ray to the end of the task under way, before the first one to the start of the
        actor; None while there is nothing to wait for.
    """

    def __init__(self, ray: Any, cores: int, work: Any) -> None:
        """``work`` is Ray's reference to the pickled `SharedWork`."""
        self.running: RunningTask | None = None
        self.awaited: Any = None
        self._ray, self._cores, self._work = ray, cores, work
        self._actor: Any = None

    def start(self) -> bool:
        """Ask for an actor; Ray starts it where and when there is room."""
        if self._actor is None:
            remote = self._ray.remote(NodeSlot)
            self._actor = remote.options(num_cpus=self._cores, max_restarts=0).remote(self._work)
            self.awaited = self._actor.__ray_ready__.remote()
        # An actor that could not start has come to its end too: its first task finds that out.
        return self.running is None and self.has_come()

    def has_come(self) -> bool:
        """Whether what is awaited is there, or nothing is."""
        return self.awaited is None or bool(self._ray.wait([self.awaited], timeout=0)[0])

    def begin(self, content: Any) -> None:
        """Have a task done."""
        self.running = RunningTask()
        with only_what_can_be_sent():
            self.awaited = self._actor.do.remote(content)

    def look(self) -> TaskEnd | None:
        """How the task ended, once it has."""
        if self.running is None or not self.has_come():
            return None
        came, self.awaited, self.running = self.awaited, None, None
        try:
            end: TaskEnd = self._ray.get(came)
        except OptschedError:  # no worker can do any task
            raise
        except self._ray.exceptions.RayError as error:
            self.stop()
            words = str(error).strip().splitlines() or [type(error).__name__]
            if "creation task" in words[0]:  # as with other versions there; the next would fail too
                raise OptschedError(
                    f"executor ray: a worker could not start: {words[-1]}"
                ) from None
            return TaskEnd(LOST, words=f"its worker was lost ({words[0]})")
        return end

    def stop(self) -> None:
        """Kill the actor, and with it the process of its task."""
        actor, self._actor = self._actor, None
        self.awaited = self.running = None
        if actor is not None:
            self._ray.kill(actor)
