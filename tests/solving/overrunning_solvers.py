"""Solvers that look at no clock, in a module that the process that solves can import."""

from __future__ import annotations

import time
from typing import ClassVar

from optsched.errors import SolverUnavailable
from optsched.program import LinearArrays
from optsched.registry import load_solver
from optsched.solution import Values
from optsched.solvers import Highs, HighsSession, Limits, Session, Solver


class SleepingSession(HighsSession):
    """Sleeps before it solves, whatever the limits are."""

    def run(self, limits: Limits) -> Values:
        time.sleep(300.0)
        return super().run(limits)


class Sleeping(Highs):
    """The first choice of `auto` for small programs, and one that never keeps its time."""

    name: ClassVar[str] = "highs"
    keeps_time: ClassVar[bool] = False

    def open(self, program: LinearArrays) -> Session:
        return SleepingSession(program, "simplex")


def load(name: str) -> type[Solver]:
    """The usual solvers, with `Sleeping` in the place of HiGHS."""
    if name == "missing":
        raise SolverUnavailable("unknown solver 'missing'")
    return Sleeping if name == "highs" else load_solver(name)
