"""The process that solves, seen from the one that started it: start, wait with a deadline, kill, tell how it ended."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress

from optsched.errors import SolverUnavailable
from optsched.solvers.isolated.messages import Address, Failure, Prepare, Reply
from optsched.solvers.isolated.wire import Closed, Garbled, Unsendable, Wire

STARTING = 60.0
"""Seconds that a process has to start and to import solvers."""
LOOK_EVERY = 0.05
"""Seconds between looks at whether Ctrl-C was pressed."""
DYING = 1.0
"""Seconds that a process that closed its socket has to end by itself."""
MAYBE_MEMORY = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGKILL)
"""How libraries end that cannot get memory."""


FINAL = ("ready", "answer", "failed")
"""Kinds of replies after which nothing more comes."""


class Late(Exception):
    """The time to wait is over."""


class Patience:
    """How long somebody waits for a process.

    Ctrl-C shortens it: the process is told once (``on_interrupt``), and has ``grace`` seconds from then.
    """

    def __init__(
        self, seconds: float | None, interrupted: threading.Event | None = None, grace: float = 0.0
    ) -> None:
        self.started = time.monotonic()
        self.end = float("inf") if seconds is None else self.started + seconds
        self.until_ready = float("inf")
        """When a process that still starts is given up."""
        self.interrupt_seen = False
        """Whether Ctrl-C was pressed, and seen here."""
        self.on_interrupt: Callable[[], None] | None = None
        self._interrupted = interrupted
        self._grace = grace

    def wait(self, connection: socket.socket, writing: bool) -> None:
        """Wait until a socket can be read or written; raises `Late`."""
        poller = select.poll()
        poller.register(connection, select.POLLOUT if writing else select.POLLIN)
        while not poller.poll(1000.0 * min(LOOK_EVERY, self.left())):
            pass

    def left(self) -> float:
        """Seconds that are left; raises `Late` if none are."""
        if self._interrupted is not None and self._interrupted.is_set() and not self.interrupt_seen:
            self.interrupt_seen = True
            grace = 0.0 if self.on_interrupt is None else self._grace
            self.end = min(time.monotonic() + grace, self.end)
            if self.on_interrupt is not None:
                self.on_interrupt()
        left = min(self.end, self.until_ready) - time.monotonic()
        if left <= 0:
            raise Late
        return left


class SolverChild:
    """A process that solves.

    It leads a session of its own: Ctrl-C at a terminal does not reach it, and what it starts is killed with it.

    Parameters
    ----------
    solvers : list of Address
        To be imported before it is ready.
    memory : int or None
        Bytes that it may take above what it needs for its imports.
    """

    def __init__(self, solvers: list[Address], memory: int | None) -> None:
        if os.name != "posix":
            raise SolverUnavailable("a solver in a process of its own needs POSIX (Linux, macOS)")
        self.memory = memory
        self.started = time.monotonic()
        self.ready = False
        """Whether it has told that it is there."""
        self.busy = False
        """Whether it owes an answer."""
        self.versions: dict[Address, str | Failure] = {}
        self.sessions: set[int] = set()
        """Keys of the sessions that it holds."""
        ours, theirs = socket.socketpair()
        reader, lifeline = os.pipe()
        descriptors = (theirs.fileno(), reader)
        worker = [
            sys.executable,
            "-P",
            "-m",
            "optsched.solvers.isolated.worker",
            *map(str, descriptors),
        ]
        paths = os.pathsep.join(
            path or os.getcwd() for path in sys.path
        )  # modules are found where they are here
        try:
            self._process = subprocess.Popen(
                worker, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=descriptors,
                env={**os.environ, "PYTHONPATH": paths}, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            os.close(lifeline)
            raise SolverUnavailable(f"no process can be started for solvers: {error}") from None
        finally:
            theirs.close()
            os.close(reader)
        ours.setblocking(False)
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end, self._process, ours, lifeline, self._owner)
        self._wire = Wire(ours)
        with suppress(Closed):  # it died already, which whoever waits for it will see
            self.send(Prepare(0, solvers, memory), Patience(STARTING))

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it runs, and is a child of this process and not of one that this was forked from."""
        if (
            self._owner != os.getpid()
            or not self._end.alive
            or self._process.returncode is not None
        ):
            return False
        if self._process.poll() is None:
            return True
        _kill(self._process)  # what it has started
        return False

    @property
    def midway(self) -> bool:
        """Whether part of a message has passed."""
        return self._wire.midway

    def send(self, message: object, patience: Patience) -> None:
        """Send a message that will be answered; raises `Late`, `Closed` and `Unsendable`."""
        connection = self._wire.connection
        try:
            self._wire.send(message, lambda writing: patience.wait(connection, writing))
        except Unsendable:
            raise
        except BaseException:
            self.busy = True
            raise
        self.busy = True

    def receive(self, patience: Patience) -> Reply:
        """The next thing that it says; raises `Late`, `Closed` and `Garbled`."""
        patience.left()
        connection = self._wire.connection
        reply = self._wire.receive(lambda writing: patience.wait(connection, writing))
        if not isinstance(reply, Reply):
            raise Garbled(f"an object of type {type(reply).__name__}")
        self.busy = self.busy and reply.kind not in FINAL
        return reply

    def await_prepared(self, number: int, patience: Patience) -> None:
        """Wait until it has imported what it was told to."""
        while True:
            reply = self.receive(patience)
            if reply.number != number:  # a late word of something before
                continue
            if reply.kind != "ready" or not isinstance(reply.content, dict):
                raise Garbled(f"{reply.kind!r}, expected 'ready'")
            self.versions |= reply.content
            self.ready = True
            return

    def interrupt(self) -> None:
        """Pass a Ctrl-C on."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill it with all that it has started, reap it, close what led to it."""
        self._end()

    def stop(self) -> None:
        """Kill it without closing anything: another thread may wait for it."""
        if self.usable:
            _kill(self._process)

    def how_it_ended(self) -> str:
        """How a process that closed its socket ended; it is reaped, and killed if it has not ended."""
        try:
            code = self._process.wait(DYING)
        except subprocess.TimeoutExpired:
            return "closed its connection and was killed"
        finally:
            _kill(self._process)  # what it has started, or itself
            self.kill()
        if code >= 0:
            return f"ended with exit code {code}"
        number = -code
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        words = f"was ended by {name}"
        if number in MAYBE_MEMORY and self.memory is not None:
            return f"{words}; it may have run out of memory (limit {size_words(self.memory)})"
        return f"{words}; it was not killed from here" if number == signal.SIGKILL else words


def size_words(size: int) -> str:
    """A size of memory, for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(
    process: subprocess.Popen[bytes], connection: socket.socket, lifeline: int, owner: int
) -> None:
    if (
        os.getpid() == owner and process.returncode is None
    ):  # a fork of that process only closes its copies
        _kill(process)
        process.wait()
    connection.close()
    os.close(lifeline)
