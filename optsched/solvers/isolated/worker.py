"""The process that solves for another one (`optsched.processes`):
answers calls, and keeps the sessions that it opened.

It imports what the solvers need that it is asked for, and no others.
"""

from __future__ import annotations

from typing import Any

from optsched.arrays.values import replace
from optsched.processes import Closed, Reply, Wire, limit_memory
from optsched.solvers.base import Limits, Session
from optsched.solvers.isolated.messages import Address, Call, Failure, Prepare


def serve(wire: Wire) -> None:
    """Answer one message after the other; raises `Closed` when the other side hangs up."""
    worker = Worker(wire)
    while True:
        message = wire.receive()
        if isinstance(message, Prepare):
            wire.send(Reply(message.number, "ready", versions_of(message)))
        else:
            worker.answer(message)


def versions_of(message: Prepare) -> dict[Address, str | Failure]:
    """Version of every solver, or why it cannot be used; importing them to find out."""
    limit_memory(None)  # the limit is on what comes after the imports
    versions: dict[Address, str | Failure] = {}
    for address in message.solvers:
        try:
            versions[address] = address.solver().version()
        except BaseException as error:  # raised on the other side
            versions[address] = Failure.of(error)
    if message.memory is not None:
        limit_memory(message.memory)
    return versions


class Worker:
    """Answers calls, and keeps the sessions that they opened, by their keys."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.sessions: dict[int, Session] = {}

    def answer(self, call: Call) -> None:
        """Do what a call asks, and send what comes of it."""
        for key in call.forgotten:
            self.sessions.pop(key, None)
        try:
            self._wire.send(Reply(call.number, "answer", self._result(call)))
        except Closed:
            raise
        except BaseException as error:  # raised on the other side
            failure = Failure.of(error)
            # The state of the session is not known: the other side opens it again.
            if call.session is not None:
                self.sessions.pop(call.session, None)
            self._wire.send(Reply(call.number, "failed", failure))

    def _result(self, call: Call) -> Any:
        arguments = tuple(
            self._listening(item, call) if isinstance(item, Limits) else item
            for item in call.arguments
        )
        if call.session is None:
            return getattr(call.solver.solver()(), call.method)(*arguments)
        if call.program is not None:
            self.sessions[call.session] = call.solver.solver()().open(call.program)
        session = self.sessions[call.session]
        for setter, given in call.changes:
            getattr(session, setter)(*given)
        return getattr(session, call.method)(*arguments)

    def _listening(self, limits: Limits, call: Call) -> Limits:
        """The limits with callbacks that send what they are given to the other side."""

        def sender(kind: str) -> Any:
            return lambda content: self._wire.send(Reply(call.number, kind, content))

        return replace(
            limits,
            on_progress=sender("progress") if call.progress else None,
            on_log=sender("log") if call.log else None,
        )
