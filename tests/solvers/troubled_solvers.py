"""HiGHS with troubles of all kinds, for tests of solvers in a process of their own, which must be able to import it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from optsched.errors import (
    Interrupted,
    InvalidArgument,
    InvalidInput,
    SolverCrashed,
    SolverUnavailable,
    UsageError,
)
from optsched.program import ConicProgram, LinearArrays
from optsched.solution import Termination, Values
from optsched.solvers import Highs, HighsSession, Limits, Progress, Session, Solver

# Private names: sessions and steps of one back-end, without the engine
from optsched.solvers.interrupt import interrupt_flag


class Unreadable:
    """Can be pickled, and not be read again."""

    def __reduce__(self) -> Any:
        return (_burst, ())


def _burst() -> None:
    raise RuntimeError("nobody can read this")


def _wire() -> socket.socket:
    """The socket to the other process, which no solver should ever look for."""
    for number in range(3, 64):
        try:
            return socket.socket(fileno=os.dup(number))
        except OSError:
            continue
    raise AssertionError("no socket")


def _cause(trouble: str, value: Any, limits: Limits) -> Any:
    """What the name says; returns what stands in for the values, or None."""
    if trouble == "sleep":
        time.sleep(value)
    elif trouble == "hold the lock":
        sum(range(10**12))
    elif trouble == "exit":
        os._exit(value)
    elif trouble == "signal":
        os.kill(os.getpid(), getattr(signal, value))
        time.sleep(60)
    elif trouble == "raise":
        raise ERRORS[value]
    elif trouble == "return":
        return RETURNS[value]
    elif trouble == "write":
        _wire().sendall(value)
        time.sleep(60)
    elif trouble == "hang up":
        _wire().shutdown(socket.SHUT_RDWR)
        time.sleep(60)
    elif trouble == "allocate":
        np.ones(int(value) // 8)
    elif trouble == "print":
        sys.stdout.write("by Python\n")
        sys.stdout.flush()
        os.write(1, b"by C\n")
    elif trouble == "start a process":
        process = subprocess.Popen(["sleep", "300"])
        limits.on_log(str(process.pid))
        time.sleep(60)
    elif trouble == "listen":
        with interrupt_flag() as flag:
            limits.on_log("listening")
            time.sleep(60) if not flag.wait(30) else None
        return Values(Termination.INTERRUPTED, x=np.zeros(2), words="heard")
    elif trouble == "report":
        for number in range(value):
            limits.on_progress(Progress(float(number), 1.0, 2.0, "on the way"))
            limits.on_log(f"line {number}\n")
    elif trouble == "report later":
        tell = limits.on_log
        threading.Timer(0.1, lambda: [tell("too late") for _ in range(1000)]).start()
    return None


ERRORS: dict[str, BaseException] = {
    "usage": UsageError("no such option"),
    "argument": InvalidArgument("threads", "0", "1 or more"),
    "unavailable": SolverUnavailable("no licence"),
    "crashed": SolverCrashed("it stopped with 'Error'"),
    "interrupted": Interrupted("stopped before anything was found"),
    "input": InvalidInput("jobs[3]", "nothing", "something"),
    "other": ZeroDivisionError("division by zero"),
    "wordless": KeyError(),
    "exit": SystemExit(3),
    "wrapped": SolverCrashed("HiGHS raised MemoryError: std::bad_alloc"),
}
RETURNS: dict[str, Any] = {
    "dict": {"termination": "optimal"},
    "unreadable": replace(Values(Termination.OPTIMAL), details={"it": Unreadable()}),
    "unsendable": replace(Values(Termination.OPTIMAL), details={"it": lambda: None}),
}


class TroubledSession(HighsSession):
    """Does what the options say before it solves, if they say anything."""

    def run(self, limits: Limits) -> Values:
        options = dict(limits.options)
        for trouble in [name for name in options if name in TROUBLES]:
            instead = _cause(trouble, options.pop(trouble), limits)
            if instead is not None:
                return instead  # type: ignore[no-any-return]
        return super().run(replace(limits, options=options))

    def conflict(self) -> Any:
        time.sleep(60)


TROUBLES = {
    "sleep", "hold the lock", "exit", "signal", "raise", "return", "write", "hang up", "allocate", "print",
    "start a process", "listen", "report", "report later",
}  # fmt: skip


class Troubled(Highs):
    """HiGHS, with troubles for options."""

    name: ClassVar[str] = "troubled"

    def open(self, program: LinearArrays) -> Session:
        return TroubledSession(program, "simplex")

    def solve_conic(self, program: ConicProgram, limits: Limits) -> Values:
        time.sleep(60)
        raise AssertionError


class Missing(Highs):
    """Not installed."""

    name: ClassVar[str] = "missing"

    @classmethod
    def version(cls) -> str:
        raise SolverUnavailable("solver missing cannot be loaded; install missing")


class Unstartable(Highs):
    """Ends the process that imports it."""

    name: ClassVar[str] = "unstartable"

    @classmethod
    def version(cls) -> str:
        os._exit(9)


class Slow(Highs):
    """Takes its time to be imported."""

    name: ClassVar[str] = "slow"

    @classmethod
    def version(cls) -> str:
        time.sleep(1.0)
        return "1"


class Boasts(Highs):
    """States a better objective than that of its point."""

    name: ClassVar[str] = "boasts"

    def open(self, program: LinearArrays) -> Session:
        return BoastingSession(program, "simplex")


class BoastingSession(HighsSession):
    """As `Boasts`."""

    def run(self, limits: Limits) -> Values:
        values = super().run(limits)
        return (
            values
            if values.objective is None
            else replace(values, objective=values.objective * 1.01)
        )


class Outer:
    """A namespace."""

    class Inner(Highs):
        """HiGHS inside of a class."""

        name: ClassVar[str] = "inner"


SOLVERS: dict[str, type[Solver]] = {
    owner.name: owner
    for owner in (Troubled, Missing, Unstartable, Slow, Boasts, Outer.Inner, Highs)
}


def load(name: str) -> type[Solver]:
    """These solvers by name, as a registry would."""
    if name not in SOLVERS:
        raise SolverUnavailable(f"unknown solver {name!r}")
    return SOLVERS[name]
