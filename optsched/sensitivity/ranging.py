"""Ranging of capacities:
how far a price reaches, and the optimum over the capacity of one resource.

With everything else held, the optimum v of a linear program over the capacity b of one resource is
concave, does not fall, and is piecewise linear; its slope is the price. The price y at b0 is that
of the line v(b0) + y (b - b0), which lies on v for b in [low, high] and above it elsewhere. The
ends of this interval are found along the line: at a trial capacity c the optimum lies below it, so
the line of the dual at c, another tangent from above, meets it at a capacity between b0 and c,
which is the next trial; where the optimum lies on the line, the end is found. No piece of v is met
twice, and each trial is one run of a warm session.

That is the true interval. The ranging of a simplex basis, which solvers offer, is part of it: at a
degenerate optimum another basis has the same price, and goes on where the first one ends. Where b0
itself is a breakpoint, any price between the slopes on both sides is optimal, and a price strictly
between them is valid at b0 alone.

References
----------
T. Gal. "Postoptimal Analyses, Parametric Programming, and Related Topics", 2nd edition, de Gruyter
1995, chapter 4. M. Eisner, D. Severance. "Mathematical techniques for efficient record segmentation
in large shared databases", Journal of the ACM 23(4), 1976 (all breakpoints of a concave piecewise
linear function, by intersections of tangents).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from optsched.arrays import FloatArray
from optsched.assembly import formulation_of
from optsched.display import Displayed, DisplayedTable, TableColumns, amount, count
from optsched.errors import InvalidArgument, unknown_name
from optsched.instance.arguments import checks_arguments
from optsched.program import AllocationProgram
from optsched.registry import load_solver
from optsched.sensitivity.held import HeldProgram, single_program
from optsched.sensitivity.value_function import Tangent, ValueFunction
from optsched.solution import Solution, Status
from optsched.solvers import Capability, Limits
from optsched.solving import Engine, LimitOptions, make_limits, takes_limits

# Runs of a curve at most.
MOST_RUNS = 400


@dataclass(frozen=True, repr=False)
class CapacityRange(Displayed):
    """How far the price of a resource reaches.

    Attributes
    ----------
    resource : str
    capacity : float
    price : float
        Improvement of the objective per unit, as in `Solution.prices`.
    low, high : float
        Capacities between which the dual behind the price stays optimal, all others held; ``high``
        is inf where it has no end. ``low`` may be the least capacity with which the side
        constraints can be met.
    below, above : float or None
        Prices just below ``low`` and just above ``high``; None where there is nothing: no capacity
        below 0 or below what the side constraints need.
    finished : bool
        False if a limit was reached: the interval is then part of the true one.
    """

    resource: str
    capacity: float
    price: float
    low: float
    high: float
    below: float | None
    above: float | None
    finished: bool = True

    def _headline(self) -> str:
        where = f"{amount(self.capacity)} of {self.resource}"
        return (
            f"of {where}: price {amount(self.price)} from {amount(self.low)} to {amount(self.high)}"
        )

    def to_document(self) -> dict[str, Any]:
        """The range as plain data: an interval without end has null."""
        return {
            "resource": self.resource,
            "capacity": self.capacity,
            "price": self.price,
            "from": self.low,
            "to": self.high if np.isfinite(self.high) else None,
            "price_below": self.below,
            "price_above": self.above,
            "finished": self.finished,
        }


@dataclass(frozen=True, repr=False)
class CapacityCurve(DisplayedTable):
    """The optimum over the capacity of one resource, all others held:
    its breakpoints, and both ends.

    Attributes
    ----------
    resource : str
    capacity : FloatArray, shape (P,)
        Rising.
    value : FloatArray, shape (P,)
        Optimum of the program (a maximum): concave, does not fall, linear between these capacities.
    objective : FloatArray, shape (P,)
        The same in units of the objective. It is linear in between if the objective is linear in
        the program's value (that of the makespan is its reciprocal).
    finished : bool
        False if a limit was reached: further breakpoints may lie between.
    """

    resource: str
    capacity: FloatArray
    value: FloatArray
    objective: FloatArray
    finished: bool = True

    @property
    def slope(self) -> FloatArray:
        """Rise of the program's value per unit between neighbouring capacities,
        shape (P - 1,): it never rises.
        """
        return np.diff(self.value) / np.diff(self.capacity)

    def to_document(self) -> dict[str, Any]:
        """The curve as plain data; an objective that does not exist is null."""
        objective = [value if np.isfinite(value) else None for value in self.objective.tolist()]
        return {
            "resource": self.resource,
            "capacity": self.capacity.tolist(),
            "objective": objective,
            "finished": self.finished,
        }

    def _headline(self) -> str:
        low = amount(float(self.capacity[0]))
        high = amount(float(self.capacity[-1]))
        return f"of {self.resource}: {count(len(self.capacity), 'breakpoint')} from {low} to {high}"

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The breakpoints: capacity and objective of each."""
        rows = slice(first)
        return {
            "capacity": self.capacity[rows].tolist(),
            "objective": self.objective[rows].tolist(),
        }


@checks_arguments
@takes_limits
def capacity_ranging(
    solution: Solution,
    resources: Sequence[str] | None = None,
    *,
    solver: str = "auto",
    **limits: Unpack[LimitOptions],
) -> dict[str, CapacityRange]:
    """For each resource, the capacities between which its price stays valid, all else held.

    Coefficients are held too: normalisers of throughputs stay those of the cluster as it is.

    Parameters
    ----------
    solution : Solution
        An optimal one of a linear program, with prices.
    resources : sequence of str, optional
        Names as in ``solution.prices``; default: all.
    solver : str
        One with duals.
    **limits : LimitOptions
        As of `optsched.solve`; the limits are for all resources together.

    Returns
    -------
    dict of name -> CapacityRange
        In the order of ``solution.prices``.

    Raises
    ------
    UsageError
        The solution is not optimal, has no prices, is not of one linear program, or was made with
        ``extend``; or there is no such resource.
    """
    budget = make_limits(**limits)
    held = held_of(solution, solver, budget)
    names = held.classes.resources.names
    wanted = [
        names.index(_known(name, names)) for name in (names if resources is None else resources)
    ]
    return {names[row]: _range(solution, held, row) for row in sorted(set(wanted))}


@checks_arguments
@takes_limits
def capacity_curve(
    solution: Solution,
    resource: str,
    low: float = 0.0,
    high: float | None = None,
    *,
    solver: str = "auto",
    **limits: Unpack[LimitOptions],
) -> CapacityCurve:
    """The optimum over the capacity of a resource, all else held:
    every breakpoint between two capacities.

    Parameters
    ----------
    solution : Solution
        As of `capacity_ranging`.
    resource : str
    low, high : float
        Ends; ``low`` is raised to the least capacity with which the side constraints can be met. By
        default ``high`` is a capacity beyond which more never helps, whatever the jobs run in.
    solver, **limits : LimitOptions
        As of `capacity_ranging`.

    Returns
    -------
    CapacityCurve

    Raises
    ------
    UsageError
        As of `capacity_ranging`; or ``low`` is not below ``high``, or nothing is feasible between
        them.
    """
    budget = make_limits(**limits)
    held = held_of(solution, solver, budget)
    names = held.classes.resources.names
    row = names.index(_known(resource, names))
    value = ValueFunction(held, row)
    # The capacity as it is belongs to the curve, even if nobody could use all of it.
    end = max(value.saturation, float(held.classes.capacity[row])) if high is None else float(high)
    if not 0 <= low < end or not np.isfinite(end):
        raise InvalidArgument(
            resource, f"the capacities from {low:g} to {end:g}", "0 or more, and rising"
        )
    points, finished = value.breakpoints(float(low), end, MOST_RUNS)
    if not points:
        most = f"a capacity of {end:g} or less"
        raise InvalidArgument(resource, most, "one with which something is feasible")
    capacity, values = (np.array(part) for part in zip(*points, strict=True))
    objective = np.array([held.program.units.objective(float(v)) for v in values])
    return CapacityCurve(resource, capacity, values, objective, finished)


def held_of(solution: Solution, solver: str = "auto", limits: Limits | None = None) -> HeldProgram:
    """The linear program of an optimal solution, to be held;
    raises `UsageError` as `capacity_ranging` says.
    """
    if solution.extended:
        known = "one without rows of extend, which are not known here"
        raise InvalidArgument("solution", "one that was made with extend", known)
    if solution.status is not Status.OPTIMAL:
        optimal = "an optimal one, as only these have prices and ranges"
        raise InvalidArgument("solution", f"one that is {solution.status}", optimal)
    formulation = formulation_of(solution)
    assert solution.allocation is not None or solution.schedule is not None
    if solution.allocation is None or len(solution.allocation.classes) == 0:
        raise InvalidArgument("solution", "one without jobs", "one with prices")
    program = single_program(formulation, solution.allocation.classes)
    if program.concave:
        linear = "a linear program: prices of others change with every capacity"
        raise InvalidArgument("formulation", solution.formulation, linear)
    if program.integral or not solution.prices:
        prices = "one with prices, which integer programs do not have"
        raise InvalidArgument("solution", f"one of {solution.formulation} without prices", prices)
    if solver != "auto":
        load_solver(solver).require(Capability.DUALS, "ranging")
    return HeldProgram(formulation, program, Engine(load_solver, solver, limits or Limits()))


def _known(name: str, names: Sequence[str]) -> str:
    if name not in names:
        problem = f"no resource of the program is called {name!r}"
        raise unknown_name("resource", name, names, problem)
    return name


def _range(solution: Solution, held: HeldProgram, row: int) -> CapacityRange:
    assert solution.allocation is not None and solution.duals is not None
    capacity = float(held.classes.capacity[row])
    here = Tangent(
        capacity, held.program.value(solution.allocation.x), float(solution.duals["capacity"][row])
    )
    value = ValueFunction(held, row)
    up, above, up_finished = value.end_of_line(here, max(value.saturation, capacity))
    if above is None and up_finished and not value.is_flat(here):
        # More than all jobs could use never helps
        above = Tangent(up, here.at(up), 0.0)
    down, below, down_finished = value.end_of_line(here, 0.0)
    name = solution.allocation.classes.resources.names[row]
    prices = (below, above)
    shown = [None if line is None else _price(held.program, line) for line in prices]
    return CapacityRange(
        name,
        capacity,
        solution.prices[name],
        down,
        np.inf if above is None and up_finished else up,
        shown[0],
        shown[1],
        up_finished and down_finished,
    )


def _price(program: AllocationProgram, line: Tangent) -> float:
    """The slope of a line in units of the objective."""
    return line.slope * program.units.slope(line.value) + 0.0
