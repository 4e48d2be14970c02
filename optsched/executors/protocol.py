"""The seam between many tasks and where they are done: processes of this machine, or a cluster.

`optsched.executors.running.finished` gives each `Slot` of an `Executor` a task and looks for its
end. Two executors exist: `optsched.executors.local_processes` and `optsched.executors.ray_cluster`.
The workers of the second use the first on their machine, so limits and crashes are the same
everywhere.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from optsched.errors import UsageError
from optsched.executors.limits import RunLimits
from optsched.processes import Unsendable

OK, LOST = "ok", "lost"
"""Status of a task that returned, and of one whose process was killed by others."""

Work = Callable[..., Any]
"""Takes what all tasks share, where there is any, then the content of a task."""
Prepare = Callable[[Any], None]


@dataclass(frozen=True)
class SharedWork:
    """What all tasks share: it is sent to each worker once.

    Attributes
    ----------
    worker, prepare : str
        Addresses ``module:function`` of the `Work`, and of what imports for it (may be empty).
    limits : RunLimits
    shared : object
        First argument of the work; None: it has none.
    forks : bool
        Whether each task has a process of its own, which is measured and limited. Without it a
        worker does its tasks itself, which costs less and keeps what they made for the next one.
    """

    worker: str
    prepare: str
    limits: RunLimits
    shared: Any = None
    forks: bool = True

    @classmethod
    def of(
        cls, worker: Work, prepare: Prepare | None, limits: RunLimits, shared: Any = None
    ) -> Self:
        """Other processes import the functions; raises `UsageError` where they cannot.

        Tasks that share something are done by the workers themselves.
        """
        ready = "" if prepare is None else address_of(prepare)
        return cls(address_of(worker), ready, limits, shared, forks=shared is None)


def address_of(function: Any) -> str:
    """``module:name`` of a function that another process can import; raises `UsageError`."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or not name.isidentifier() or module == "__main__":
        raise UsageError(
            f"{name or function!r} is no function at the top of a module: other processes import it"
        )
    return f"{module}:{name}"


@contextmanager
def only_what_can_be_sent() -> Iterator[None]:
    """Refuse what cannot be pickled, with a `UsageError`."""
    try:
        yield
    except (pickle.PicklingError, AttributeError, TypeError, Unsendable) as error:
        raise UsageError(f"what is to be sent to other processes cannot be: {error}") from None


@dataclass(frozen=True)
class TaskEnd:
    """How a task ended.

    Attributes
    ----------
    status : str
        ``ok``; ``error``: it raised or crashed; ``limit`` or ``memory``: it took more than it may;
        ``lost``: others killed its process, as where memory is short.
    answer : bytes
        What the work returned, pickled; of ``ok``.
    words : str
        Why there is no answer.
    exit_code : int or None
        That of the error which the work raised.
    seconds : float
    memory : int
        Bytes in use at the most; 0 if not measured.
    machine : mapping
        `optsched.executors.machine.here` where it ran; empty where that is not known.
    """

    status: str
    answer: bytes = b""
    words: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    memory: int = 0
    machine: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class RunningTask:
    """A task under way: since when, in which process, and the most memory that was seen."""

    asked: float = field(default_factory=time.monotonic)
    pid: int = 0
    started: float | None = None
    peak: int = 0

    @property
    def spent(self) -> float:
        """Seconds since its process began."""
        return 0.0 if self.started is None else time.monotonic() - self.started


class Slot(Protocol):
    """Does one task at a time; a worker that was lost is replaced.

    Attributes
    ----------
    running : RunningTask or None
    """

    running: RunningTask | None

    def start(self) -> bool:
        """Start its worker, if there is none; whether a task can be given to it now."""

    def begin(self, content: Any) -> None:
        """Have a task done."""

    def look(self) -> TaskEnd | None:
        """How the task ended, once it has; the slot is free then."""

    def stop(self) -> None:
        """Kill its worker, with what that has started; harmless where there is none."""


class Executor(Protocol):
    """Where tasks are done: processes of this machine, or workers of a cluster."""

    def slots(self, work: SharedWork, count: int) -> Sequence[Slot]:
        """So many slots, which have not started anything yet."""

    def wait(self, slots: Sequence[Slot], seconds: float) -> None:
        """Wait until a slot may have something to tell, for so many seconds at most."""

    def close(self) -> None:
        """Let go of what the executor itself has started."""
