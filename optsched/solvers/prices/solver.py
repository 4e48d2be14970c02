"""The price method as a back-end: which programs it takes, and which search solves them.

Searches count levels and worth in their own units, so that tolerances are relative; ``unit``
leads back to those of the program.
"""

from __future__ import annotations

import time
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.errors import SolverUnavailable, UsageError
from optsched.program import AllocationProgram, LinearArrays, Method
from optsched.solution.values import Values
from optsched.solvers.base import Capability, Limits, Session, Solver
from optsched.solvers.prices.market import WIDEST
from optsched.solvers.prices.requirements import width_of

# Each search has its own modules, which take tens of milliseconds to load: a process loads those
# of the searches that it runs.
if TYPE_CHECKING:
    from optsched.solvers.prices.solve_filling import PricedFilling

MOST_GOODS = 1000
"""Resources that can run out, beyond which the system in their prices is no small one."""
NOTHING_LEFT = "a job needs what there is none of"


class PriceMethod(Solver):
    """Prices of resources, at which every job decides for itself: exact for jobs alone.

    The smallest level is found by cutting planes on the prices (`optsched.solvers.prices.max_min`),
    a total of concave utilities by an interior method whose steps are small systems in the prices
    (`optsched.solvers.prices.interior`).
    """

    name = "prices"
    keeps_time = True
    capabilities = frozenset(
        {Capability.ALLOCATION, Capability.DUALS, Capability.PROGRESS, Capability.INTERRUPT}
    )

    @classmethod
    @cache  # reading what is installed takes milliseconds
    def version(cls) -> str:
        """Version of optsched, whose own it is."""
        return version("optsched")

    def open(self, program: LinearArrays) -> Session:
        """Refused: rows and columns do not show the classes."""
        raise SolverUnavailable(
            "solver prices takes no programs of rows and columns: choose auto, highs or clarabel"
        )

    @classmethod
    def refuses(cls, program: AllocationProgram) -> str | None:
        """Why an allocation program is none for prices; None if it is one."""
        C = program.classes
        utility = program.utility
        direct = utility.method is Method.DIRECT and not utility.homogenised
        if not direct and utility.method not in (Method.NEWTON, Method.WATER_FILLING):
            return "its utility is neither the smallest level nor a total"
        if program.integral:
            return "jobs are whole"
        if program.extend is not None:
            return "there are extra rows (extend)"
        if not C.all_alone:
            return "jobs share GPUs"
        if len(C) == 0 or C.columns == 0:
            return "it has no jobs that can run"
        floors = program.class_floors
        if floors is None or (program.conic and program.level_floors is None):
            asks = next(rows for rows in program.side if not rows.only_limit)
            return f"its rows {asks.name!r} do not only limit sums"
        measures = len(floors.measures) + utility.smallest_level
        if program.level_floors is not None:  # a level and a multiple of it are one measure
            measures = 1
        if width_of(int(np.bincount(C.class_a).max()), measures) > WIDEST:
            return f"a job has more than {WIDEST} configurations, or pairs of them with its floors"
        if not utility.smallest_level:
            return _refuses_total(program)
        asks_for_levels = bool(floors.side) and utility.method is not Method.WATER_FILLING
        by_targets = asks_for_levels or utility.method is Method.NEWTON
        # Targets are steps down from a value above 0.
        return NOTHING_LEFT if by_targets and (_open_level(program) == 0).any() else None

    def check(self, program: AllocationProgram, limits: Limits) -> None:
        """Refuse a program that is none for prices, and options."""
        why = self.refuses(program)
        if why is not None:
            raise SolverUnavailable(
                f"solver prices cannot take this program: {why}; auto takes a solver that can"
            )
        if limits.options:
            raise UsageError(
                f"solver prices has no option {next(iter(limits.options))!r}: it has none"
            )

    def open_filling(self, program: AllocationProgram, limits: Limits) -> PricedFilling:
        """See `Solver.open_filling`; each stage starts from the prices of the one before."""
        from optsched.solvers.prices.solve_filling import PricedFilling

        self.check(program, limits)
        return PricedFilling(program)

    def solve_allocation(
        self, program: AllocationProgram, limits: Limits, start: FloatArray | None = None
    ) -> Values:
        """See `Solver.solve_allocation`; a search begins at the prices ``start``."""
        self.check(program, limits)
        began = time.perf_counter()
        if program.utility.smallest_level:
            from optsched.solvers.prices.solve_minimum import solve_minimum

            values = solve_minimum(program, limits, start)
        elif program.conic:
            from optsched.solvers.prices.solve_concave import solve_concave

            values = solve_concave(program, limits, start)
        else:
            from optsched.solvers.prices.solve_linear import solve_linear

            values = solve_linear(program, limits, start=start)
        return replace(values, seconds=time.perf_counter() - began)


def _open_level(program: AllocationProgram) -> FloatArray:
    """A level of each class that is 0 only if all its columns are closed or bring nothing."""
    is_open = np.ones(program.classes.columns)
    is_open[program.limit_rows.closed_columns] = 0.0
    if program.class_floors is not None:
        is_open[program.class_floors.closed] = 0.0
    return np.asarray(program.levels @ is_open)


def _refuses_total(program: AllocationProgram) -> str | None:
    """Why a total of utilities is none for prices; None if it is one."""
    utility = program.total
    # A total of levels may leave a job out; a concave one has no slope for it.
    weighs = utility.weight > 0 if program.conic else utility.weight >= 0
    if not weighs.all():
        return "a job has no weight"
    if utility.worthless_at_zero and not (program.highest_level > 0).all():
        return "a job can have nothing, which is worth minus infinity"
    limits = program.limit_rows
    # The slope of a level that is 0 is infinite: no price is high enough.
    if program.conic and (_open_level(program)[program.highest_level > 0] == 0).any():
        return NOTHING_LEFT
    most = limits.most
    if int((np.isfinite(most) & (most > 0)).sum()) > MOST_GOODS:
        return f"it has more than {MOST_GOODS} resources that can run out"
    return None
