"""The price method as a back-end: it takes an allocation program as it is."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import ClassVar

import numpy as np

from optsched.arrays import FloatArray
from optsched.errors import SolverUnavailable
from optsched.program import AllocationProgram, LinearArrays, Minimum, Total
from optsched.solution.values import PointStatus, Termination, Values
from optsched.solvers.base import PROGRESS_EVERY, Capability, Limits, Progress, Session, Solver
from optsched.solvers.interrupt import interrupt_flag
from optsched.solvers.prices.market import WIDEST, market_of
from optsched.solvers.prices.smallest_level import Equilibrium, Search
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
    def version(cls) -> str:
        """Version of optsched, whose own it is."""
        return version("optsched")

    def open(self, program: LinearArrays) -> Session:
        """Refused: rows and columns do not say who buys what."""
        raise SolverUnavailable("solver prices takes allocation programs, not rows and columns: choose another solver")

    @classmethod
    def refuses(cls, program: AllocationProgram) -> str | None:
        """Why an allocation program is none for prices; None if it is one."""
        C = program.classes
        if not isinstance(program.utility, Minimum | Total) or program.delayed:
            return "its utility is neither the smallest level nor a total"
        if program.integral:
            return "jobs are whole"
        if program.extend is not None or program.side:
            return "it has rows beside time and capacity"
        if not C.alone.all():
            return "jobs share GPUs"
        if len(C) == 0 or C.columns == 0:
            return "it has no jobs that can run"
        if int(np.bincount(C.class_a).max()) > WIDEST:
            return f"a job has more than {WIDEST} configurations"
        return refuses_total(program) if isinstance(program.utility, Total) else None

    def solve_allocation(self, program: AllocationProgram, limits: Limits, start: FloatArray | None = None) -> Values:
        """See `Solver.solve_allocation`; ``start`` are prices of the resources."""
        why = self.refuses(program)
        if why is not None:
            raise SolverUnavailable(f"solver prices cannot take this program: {why}")
        if isinstance(program.utility, Total):
            return solve_total(program, limits)
        began = last = time.perf_counter()
        market = market_of(program)
        asked = 0

        def stop(level: float, bound: float) -> bool:
            nonlocal last, asked
            now, asked = time.perf_counter(), asked + 1
            if limits.on_progress is not None and now - last > PROGRESS_EVERY:
                last = now
                limits.on_progress(Progress(now - began, level * market.unit, bound * market.unit, f"pass {asked}"))
            late = limits.time is not None and now - began > limits.time
            worn = limits.work is not None and asked >= limits.work
            return late or worn or interrupted.is_set()

        with interrupt_flag() as interrupted:
            if market.highest <= 0:  # somebody can have nothing at all
                found = _nothing(program)
            else:
                search = Search(market, None if start is None else start[market.row], stop)
                search.run()
                found = search.equilibrium()
            ended = _termination(found, limits, interrupted.is_set(), time.perf_counter() - began, asked)
        y = np.zeros(len(program.classes) * 2 + len(program.classes.capacity))
        y[: len(found.rent)] = found.rent
        y[len(found.rent) + market.row] = found.prices
        y[len(y) - len(found.slope) :] = -found.slope
        return Values(
            ended, PointStatus.FEASIBLE, PointStatus.FEASIBLE, np.append(found.x, found.level), y, found.level,
            found.bound, iterations=found.passes, seconds=time.perf_counter() - began,
            words=f"{found.passes} passes, {found.rounds} rounds, gap {max(found.bound / found.level - 1.0, 0.0):.1g}"
            if found.level > 0 else "the level 0",
        )  # fmt: skip


def _nothing(program: AllocationProgram) -> Equilibrium:
    """The equilibrium where the highest level of a class is 0."""
    C = program.classes
    slope = np.zeros(len(C))
    held = int(program.highest_level.argmin())
    slope[held] = 1.0 / C.count[held]
    limited = int(np.isfinite(C.capacity).sum())
    return Equilibrium(0.0, 0.0, np.zeros(C.columns), np.zeros(limited), slope, np.zeros(len(C)), 0, 0, True)


def _termination(found: Equilibrium, limits: Limits, interrupted: bool, seconds: float, asked: int) -> Termination:
    """Why the search ended."""
    if found.finished:
        return Termination.OPTIMAL
    if interrupted:
        return Termination.INTERRUPTED
    if limits.time is not None and seconds > limits.time:
        return Termination.TIME_LIMIT
    if limits.work is not None and asked >= limits.work:
        return Termination.WORK_LIMIT
    return Termination.IMPRECISE
