"""The price method as a back-end: it takes an allocation program as it is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import ClassVar

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import SolverUnavailable, UsageError
from optsched.program import AllocationProgram, LinearArrays, Method
from optsched.solution.values import Values
from optsched.solvers.base import Capability, Limits, Session, Solver
from optsched.solvers.prices.market import WIDEST
from optsched.solvers.prices.minimum_utility import solve_minimum
from optsched.solvers.prices.total_utility import refuses_total, solve_total


class Prices(Solver):
    """Prices of resources, at which every job decides for itself: exact for jobs alone.

    The smallest level is found by cutting planes on the prices (`optsched.solvers.prices.smallest_level`), a total of
    concave utilities by an interior method whose steps are small systems in the prices
    (`optsched.solvers.prices.interior`).
    """

    name: ClassVar[str] = "prices"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {Capability.ALLOCATION, Capability.DUALS, Capability.PROGRESS, Capability.INTERRUPT}
    )

    @classmethod
    @cache  # reading what is installed takes milliseconds
    def version(cls) -> str:
        """Version of optsched, whose own it is."""
        return version("optsched")

    def open(self, program: LinearArrays) -> Session:
        """Refused: rows and columns do not say who buys what."""
        raise SolverUnavailable(
            "solver prices takes no programs of rows and columns: choose auto, highs or clarabel"
        )

    @classmethod
    def refuses(cls, program: AllocationProgram) -> str | None:
        """Why an allocation program is none for prices; None if it is one."""
        C = program.classes
        if program.utility.method is not Method.DIRECT or program.utility.homogenised:
            return "its utility is neither the smallest level nor a total"
        if program.integral:
            return "jobs are whole"
        if program.extend is not None or program.side:
            return "it has rows beside time and capacity"
        if not C.all_alone:
            return "jobs share GPUs"
        if len(C) == 0 or C.columns == 0:
            return "it has no jobs that can run"
        if int(np.bincount(C.class_a).max()) > WIDEST:
            return f"a job has more than {WIDEST} configurations"
        return None if program.utility.smallest_level else refuses_total(program)

    def solve_allocation(
        self, program: AllocationProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """See `Solver.solve_allocation`; ``start`` are prices of the resources."""
        why = self.refuses(program)
        if why is not None:
            raise SolverUnavailable(
                f"solver prices cannot take this program: {why}; auto takes a solver that can"
            )
        if limits.options:
            raise UsageError(
                f"solver prices has no option {next(iter(limits.options))!r}: it has none"
            )
        solve = solve_minimum if program.utility.smallest_level else solve_total
        return solve(program, limits, start)
