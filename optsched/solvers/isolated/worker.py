"""The process that solves for another one: ``python -m optsched.solvers.isolated.worker SOCKET LIFELINE``.

It imports what the solvers need that it is asked for, and no others. Its standard output is its standard error, so that
what a solver prints is neither lost nor in anybody's way. It ignores Ctrl-C but for the solvers that listen to it: who
started it decides, and sends it a signal of its own.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from optsched.solvers.base import Limits, Session
from optsched.solvers.isolated.messages import Call, Failure, Prepare, Reply
from optsched.solvers.isolated.wire import Closed, Wire


class Worker:
    """Answers one call after the other, and keeps the sessions that it was told to open."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._sessions: dict[int, Session] = {}

    def serve(self) -> None:
        """Until the other side hangs up."""
        with suppress(Closed):
            while True:
                message = self._wire.receive()
                if isinstance(message, Prepare):
                    self._wire.send(Reply(message.number, "ready", self._prepared(message)))
                else:
                    self._answer(message)

    def _prepared(self, message: Prepare) -> dict[Any, str | Failure]:
        """Version of every solver, or why it cannot be used."""
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        if soft != hard:  # the limit is on what comes after the imports
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        versions: dict[Any, str | Failure] = {}
        for address in message.solvers:
            try:
                versions[address] = address.solver().version()
            except BaseException as error:  # told to the other side, which raises it
                versions[address] = Failure.of(error)
        if message.memory is not None:
            most = _address_space() + message.memory
            resource.setrlimit(
                resource.RLIMIT_AS,
                (most if hard == resource.RLIM_INFINITY else min(most, hard), hard),
            )
        return versions

    def _answer(self, call: Call) -> None:
        for key in call.forgotten:
            self._sessions.pop(key, None)
        try:
            self._wire.send(Reply(call.number, "answer", self._result(call)))
        except Closed:
            raise
        except BaseException as error:  # told to the other side, which raises it
            failure = Failure.of(error)
            if call.session is not None:
                self._sessions.pop(call.session, None)
            self._wire.send(Reply(call.number, "failed", failure))

    def _result(self, call: Call) -> Any:
        arguments = tuple(
            self._listening(item, call) if isinstance(item, Limits) else item
            for item in call.arguments
        )
        if call.session is None:
            return getattr(call.solver.solver()(), call.method)(*arguments)
        if call.program is not None:
            self._sessions[call.session] = call.solver.solver()().open(call.program)
        session = self._sessions[call.session]
        for setter, given in call.changes:
            getattr(session, setter)(*given)
        return getattr(session, call.method)(*arguments)

    def _listening(self, limits: Limits, call: Call) -> Limits:
        """The limits with callbacks that tell the other side."""

        def teller(kind: str) -> Any:
            return lambda content: self._wire.send(Reply(call.number, kind, content))

        return replace(
            limits,
            on_progress=teller("progress") if call.progress else None,
            on_log=teller("log") if call.log else None,
        )


def _address_space() -> int:
    """Bytes of address space that this process has taken (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def end_with(lifeline: int) -> None:
    """Have the kernel end this process, and those that it starts, when the other end of a pipe is closed.

    A thread that waits for that would wait for Python's lock as well, which some solvers hold while they run; and
    ``PR_SET_PDEATHSIG`` ends a process with the *thread* that started it.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # closed already
        sys.exit(1)


def main() -> None:
    """Serve the process at the other end of the socket."""
    descriptor, lifeline = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)  # not for processes that solvers start
    os.set_inheritable(lifeline, False)
    end_with(lifeline)
    with suppress(OSError):  # without a standard error, what solvers print goes nowhere
        os.dup2(2, 1)
    with socket.socket(fileno=descriptor) as connection:
        Worker(Wire(connection)).serve()


if __name__ == "__main__":
    main()
