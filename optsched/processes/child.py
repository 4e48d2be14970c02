"""The parent's side: start a child, send and receive with a timeout, kill it, say how it ended.

Facts that shape this file: libraries look at their time limit when they please, so that a limit
that is kept needs somebody who can kill; a library can hold Python's lock for as long as it runs,
so that nothing in the same process can be trusted to act meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from optsched.errors import SolverUnavailable
from optsched.processes.forking import THREADS, Forked, can_fork
from optsched.processes.serving import serve
from optsched.processes.wire import Garbled, Reply, Unsendable, Wire

STARTING = 60.0
"""Seconds that a process has to start, and to import what it needs."""
LOOK_EVERY = 0.05
"""Seconds between looks at whether Ctrl-C was pressed."""
DYING = 1.0
"""Seconds that a process that closed its connection has to end by itself."""
TAIL = 4096
"""Bytes that are looked at of what a process wrote on its standard error."""
FINAL = ("ready", "answer", "failed")
"""Kinds of replies after which nothing more comes."""

Process = Forked | subprocess.Popen[bytes]

# --- waiting -------------------------------------------------------------------------------------


class TimedOut(Exception):
    """The time to wait is over."""


class Timeout:
    """How long a process is waited for.

    Ctrl-C shortens it: ``on_interrupt`` is called once, and has ``grace`` seconds from
    then.
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
        """Wait until a socket can be read or written; raises `TimedOut`."""
        poller = select.poll()
        poller.register(connection, select.POLLOUT if writing else select.POLLIN)
        while not poller.poll(1000.0 * min(LOOK_EVERY, self.left())):
            pass

    def left(self) -> float:
        """Seconds that are left; raises `TimedOut` if none are."""
        if self._interrupted is not None and self._interrupted.is_set() and not self.interrupt_seen:
            self.interrupt_seen = True
            # Nobody to tell means that the request was not sent yet: there is no answer to wait
            # for.
            grace = 0.0 if self.on_interrupt is None else self._grace
            self.end = min(time.monotonic() + grace, self.end)
            if self.on_interrupt is not None:
                self.on_interrupt()
        left = min(self.end, self.until_ready) - time.monotonic()
        if left <= 0:
            raise TimedOut
        return left


# --- the child -----------------------------------------------------------------------------------


class Child:
    """A process that serves this one.

    It leads its own session: Ctrl-C at a terminal does not reach it, and what it starts is
    killed with it.

    Parameters
    ----------
    purpose : str
        What it is for, in messages: ``solvers``, ``tasks``.
    address : str
        ``module:function`` that serves, called in the child with its `Wire` and the arguments.
    arguments : sequence of str
    inherited : object
        Last argument of a child that is forked, which has it without its being sent (`is_forked`).
        None: there is none.
    threads : int or None
        Threads that libraries there may start by themselves. With a number, the child is forked
        from this process where that is safe (`can_fork`), as imports take longer than most tasks.
        With None, it is a new interpreter that has imported nothing but what serves, in the
        environment of this one.
    keep_errors : bool
        Keep its standard error for `last_words`, instead of sharing that of this process.
    """

    def __init__(
        self,
        purpose: str,
        address: str,
        arguments: Sequence[str] = (),
        *,
        inherited: object = None,
        threads: int | None = None,
        keep_errors: bool = False,
    ) -> None:
        if os.name != "posix":
            raise SolverUnavailable(f"{purpose} in their own processes need POSIX (Linux, macOS)")
        self.started = time.monotonic()
        self.ready = False
        """Whether it has said that it is there."""
        self.busy = False
        """Whether it owes an answer."""
        # Closed by `kill`.
        self._errors: IO[bytes] | None = tempfile.TemporaryFile() if keep_errors else None  # noqa: SIM115
        ours, theirs = socket.socketpair()
        reader, lifeline = os.pipe()
        try:
            if threads is not None and can_fork(threads):
                given = arguments if inherited is None else [*arguments, inherited]
                self._process: Process = self._forked(
                    (ours, lifeline), (theirs, reader), address, given
                )
            else:
                self._process = self._spawned((theirs, reader), address, arguments, threads)
        except OSError as error:
            _close(ours, lifeline, self._errors)
            raise SolverUnavailable(f"no process can be started for {purpose}: {error}") from None
        finally:
            theirs.close()
            os.close(reader)
        ours.setblocking(False)
        self._owner = os.getpid()
        self._end = weakref.finalize(
            self, _end, self._process, ours, lifeline, self._errors, self._owner
        )
        self._wire = Wire(ours)

    def _forked(
        self,
        ours: tuple[socket.socket, int],
        theirs: tuple[socket.socket, int],
        address: str,
        arguments: Sequence[object],
    ) -> Forked:
        """A copy of this process, which has imported already what it needs."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()  # else the copy could write it a second time
        pid = os.fork()
        if pid:
            return Forked(pid)
        code = 1
        try:
            os.setsid()
            # The handler of the command line is not for children.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDWR)
            errors = 2 if self._errors is None else self._errors.fileno()
            for target, source in ((0, nothing), (1, nothing), (2, errors)):
                os.dup2(source, target)
            # The parent's may be no descriptors at all, as in a notebook or a test.
            sys.stdout = os.fdopen(1, "w", buffering=1, errors="backslashreplace", closefd=False)
            sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
            # A copy that kept the lifeline would hold itself alive.
            ours[0].close()
            os.close(ours[1])
            serve(theirs[0].detach(), theirs[1], address, arguments)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.stderr.flush()
            # Not `sys.exit`: what this process does at its end is not for the copy to do.
            os._exit(code)

    def _spawned(
        self,
        theirs: tuple[socket.socket, int],
        address: str,
        arguments: Sequence[str],
        threads: int | None,
    ) -> subprocess.Popen[bytes]:
        """A new interpreter, which imports what serves."""
        descriptors = (theirs[0].fileno(), theirs[1])
        # Not with -m: the facade has imported the module by then, which Python warns of.
        program = "from optsched.processes.serving import main; main()"
        # Modules are found there where they are here; -P keeps the working directory out.
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        few = {} if threads is None else dict.fromkeys(THREADS, str(threads))
        return subprocess.Popen(
            [sys.executable, "-P", "-c", program, *map(str, descriptors), address, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            pass_fds=descriptors,
            env={**os.environ, **few, "PYTHONPATH": paths},
            start_new_session=True,
        )

    # --- messages --------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    @property
    def is_forked(self) -> bool:
        """Whether it is a copy of the process that started it."""
        return isinstance(self._process, Forked)

    @property
    def usable(self) -> bool:
        """Whether it runs, and is a child of this process and not of one
        that this was forked from.
        """
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
    def mid_message(self) -> bool:
        """Whether part of a message has passed."""
        return self._wire.mid_message

    def fileno(self) -> int:
        """Descriptor to wait on until it has said something (`multiprocessing.connection.wait`)."""
        return self._wire.connection.fileno()

    def send(self, message: object, timeout: Timeout) -> None:
        """Send a message that will be answered; raises `TimedOut`, `Closed` and `Unsendable`."""
        connection = self._wire.connection
        # What it wrote before it was ready stays: it may say why it never was.
        if self._errors is not None and self.ready:
            self._errors.truncate(0)
            self._errors.seek(0)
        try:
            self._wire.send(message, lambda writing: timeout.wait(connection, writing))
        except Unsendable:
            raise
        except BaseException:
            self.busy = True
            raise
        self.busy = True

    def receive(self, timeout: Timeout, number: int | None = None) -> Reply:
        """The next reply, or the next to a request; raises `TimedOut`, `Closed` and `Garbled`."""
        connection = self._wire.connection
        while True:
            timeout.left()
            reply = self._wire.receive(lambda writing: timeout.wait(connection, writing))
            if not isinstance(reply, Reply):
                raise Garbled(f"an object of type {type(reply).__name__}")
            self.busy = self.busy and reply.kind not in FINAL
            self.ready = self.ready or reply.kind == "ready"
            # Threads of a library may still report on a run that has ended.
            if number is None or reply.number == number:
                return reply

    def has_spoken(self) -> bool:
        """Whether there is something to receive, be it the end of the connection."""
        # Not `select.select`, which takes no descriptor above 1,023.
        poller = select.poll()
        poller.register(self, select.POLLIN)
        return bool(poller.poll(0))

    def interrupt(self) -> None:
        """Pass a Ctrl-C on."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGINT)

    # --- the end ---------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill it with all that it has started, reap it, close what led to it."""
        self._end()

    def stop(self) -> None:
        """Kill it without closing anything: another thread may wait for it."""
        if self.usable:
            _kill(self._process)

    def wait_or_kill(self) -> int | None:
        """The exit code, as `subprocess` has it, of a process that closed its connection.

        It has `DYING` seconds to end, and what it has started is killed. None: it had to be killed
        itself.
        """
        try:
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(DYING)
            return None
        finally:
            _kill(self._process)  # what it has started, or itself

    def last_words(self) -> str:
        """The last line that it wrote on standard error since it was sent something."""
        if self._errors is None:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - TAIL))
        lines = self._errors.read().decode(errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def exit_text(code: int | None) -> str:
    """How a process ended, as text."""
    if code is None:
        return "closed its connection and was killed"
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"was ended by {name}"


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(
    process: Process, connection: socket.socket, lifeline: int, errors: IO[bytes] | None, owner: int
) -> None:
    """Kill and reap a process.

    Not a method: a finalizer must not hold what it waits to be collected.
    """
    # A fork of the process that started it only closes its copies.
    if os.getpid() == owner and process.returncode is None:
        _kill(process)
        with suppress(ProcessLookupError):  # a copy that leads no session yet has no group to kill
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
    _close(connection, lifeline, errors)


def _close(connection: socket.socket, lifeline: int, errors: IO[bytes] | None) -> None:
    connection.close()
    os.close(lifeline)
    if errors is not None:
        errors.close()
