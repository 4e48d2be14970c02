"""HiGHS that fails in the way that a file says, for rounds whose solver runs in a process of its own."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from optsched.program import LinearArrays
from optsched.solution import Values
from optsched.solvers import Highs, HighsSession, Limits, Session

FAULT = "OPTSCHED_TEST_FAULT"
"""Environment variable: a file with the name of the fault."""


class FaultySession(HighsSession):
    """Solves, and then tells something else."""

    def run(self, limits: Limits) -> Values:
        fault = Path(os.environ[FAULT]).read_text()
        if fault == "hang":
            time.sleep(60)
        if fault.startswith("raise"):
            raise ZeroDivisionError(f"division by zero{fault.removeprefix('raise')}")
        if fault == "exit":
            os._exit(3)
        if fault == "memory":
            raise MemoryError
        if fault == "allocate":
            np.empty(10**9)  # 8 GB, of which nothing is touched
        values = super().run(limits)
        if values.x is None or fault == "none":
            return values
        answers = {
            "short": lambda: replace(values, x=values.x[:3]),
            "nan": lambda: replace(values, x=np.full_like(values.x, np.nan)),
            "infeasible": lambda: replace(values, x=values.x + 5.0),
            "nothing": lambda: replace(values, x=np.zeros_like(values.x)),
            "lie": lambda: replace(values, objective=(values.objective or 0.0) + 1.0),
            "duals": lambda: replace(values, y=None if values.y is None else values.y * 3.0),
        }
        return answers[fault]()


class FaultyHighs(Highs):
    """See the module."""

    name: ClassVar[str] = "highs"

    def open(self, program: LinearArrays) -> Session:
        return FaultySession(program, "simplex")
