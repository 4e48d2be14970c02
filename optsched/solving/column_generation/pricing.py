"""Pricing of columns that are not generated: duals, reduced costs, and the bound over all
columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.arrays.values import replace
from optsched.candidates import Classes
from optsched.errors import InvalidArgument, UsageError
from optsched.program import AllocationProgram, Method
from optsched.solution.certificate import OPTIMALITY, gap_of, is_closed
from optsched.solution.plan import Plan
from optsched.solution.solution import Status
from optsched.solving.outcome import Outcome

Build = Callable[[Classes], AllocationProgram | Plan]
"""Builds the program over classes, such as those that have more columns."""


@dataclass(frozen=True)
class Duals:
    """Multipliers of the rows, all >= 0:
    u of time, p of capacity, y of levels (of a linear total: their weights).
    """

    time: FloatArray
    capacity: FloatArray
    levels: FloatArray

    @classmethod
    def of(cls, blocks: Mapping[str, FloatArray], program: AllocationProgram) -> Duals:
        """From the duals of a program's rows, which are derivatives."""
        # The weights of a linear total; other utilities have level rows
        levels = program.utility.level_prices(program)
        if levels is None:
            levels = np.maximum(-blocks["levels"], 0.0)
        return cls(np.maximum(blocks["time"], 0.0), np.maximum(blocks["capacity"], 0.0), levels)

    def towards(self, other: Duals, part: float) -> Duals:
        """Convex combination with other duals; ``part`` is the weight of the others."""
        return Duals(
            (1 - part) * self.time + part * other.time,
            (1 - part) * self.capacity + part * other.capacity,
            (1 - part) * self.levels + part * other.levels,
        )

    def rows(self, program: AllocationProgram) -> FloatArray:
        """As derivatives, row by row: the inverse of `of`."""
        levels = [-self.levels] if program.utility.level_prices(program) is None else []
        return np.concatenate([self.time, self.capacity, *levels])


ROUNDING = 1e-12
"""Relative difference of levels from throughputs times numbers."""


def refuse(program: AllocationProgram, *, gone: bool, concave: bool) -> None:
    """Raise `UsageError` if columns cannot be priced by the levels of jobs alone.

    Parameters
    ----------
    program : AllocationProgram
    gone : bool
        Whether columns are no longer on demand.
    concave : bool
        Whether totals of concave utilities are supported.
    """
    utility = program.utility
    plain = (
        utility.method is Method.DIRECT
        and not utility.homogenised
        and (concave or not utility.conic)
    )
    why = (
        "jobs are whole"
        if program.integral
        else "side constraints have rows"
        if program.side
        else "there are extra rows (extend)"
        if program.extend is not None
        else "the utility is another one"
        if not plain
        else "an option changes which columns there are"
        if gone
        else None
    )
    if why is not None:
        where = "a smallest level or a total of levels"
        raise InvalidArgument(
            "generate_columns",
            why,
            where,
            sentence=f"columns are generated for {where}, not where {why}",
        )


def level_scale(program: AllocationProgram) -> FloatArray:
    """Level of each class per steps/s, shape (K,); raises `UsageError` if levels are not
    proportional to throughputs.
    """
    C, levels = program.classes, program.levels.tocsc()
    some = np.flatnonzero(C.alone & (C.rate_a > 0))
    scale = np.zeros(len(C))
    # The factor is taken from one column alone of each class, and must hold for all columns.
    scale[C.class_a[some]] = np.asarray(levels[C.class_a[some], some]).ravel() / C.rate_a[some]
    off = abs(levels - sp.diags_array(scale) @ C.throughput)
    if off.nnz and off.max() > ROUNDING * abs(levels).max():
        raise UsageError(
            "columns are generated only where the level of a job is its throughput times a number"
        )
    return scale


@dataclass(frozen=True)
class ColumnPricing(ABC):
    """Reduced costs of all columns that could be generated, at given duals.

    Attributes
    ----------
    program : AllocationProgram
        Over the columns to start with.
    scale : FloatArray, shape (K,)
        Level of a class per steps/s that it gets.
    """

    program: AllocationProgram
    scale: FloatArray

    of_what: ClassVar[str]
    """Name of the columns in solutions."""

    @property
    def classes(self) -> Classes:
        """The classes of the program."""
        return self.program.classes

    @abstractmethod
    def left_out(self, duals: Duals) -> float:
        """The most that columns which are not generated can add to the bound of these duals."""

    def bounded(self, outcome: Outcome, program: AllocationProgram) -> Outcome:
        """An outcome over the columns in use, with the bound over all columns.

        An optimum stays one only if this bound closes the gap too. ``program`` is the program of
        the outcome.
        """
        if outcome.bound is None or outcome.duals is None:
            return outcome
        bound = outcome.bound + self.left_out(Duals.of(outcome.duals, program))
        value, gap = outcome.value, gap_of(outcome.value, bound)
        if outcome.status is not Status.OPTIMAL or value is None or gap is None:
            return replace(outcome, bound=bound)
        # A sum of logarithms may be 0, so that a relative gap means nothing: its noise is allowed
        # too.
        if not is_closed(value, bound, OPTIMALITY, outcome.noise):
            problem = (
                f"with all {self.of_what} that could be columns the duals leave a gap of {gap:.2g}"
            )
            certificate = outcome.certificate.with_problem(problem)
            outcome = replace(outcome, certificate=certificate, status=Status.FEASIBLE)
        return replace(outcome, bound=bound)
