"""What the optimum becomes with other capacities, beside what the prices predict.

Two readings of "8 more GPUs" are sensible, and both are reported:

- **recompiled** (``solution``): a larger cluster, everything made again. Jobs may run in ways that
  did not fit before, new nodes bring CPUs and memory, and normalisers that depend on the cluster (a
  job's proportional share of it, against which max-min fairness measures) move with it;
- **held** (``held``): the program as it is with another right side: coefficients, columns and
  normalisers stay. This is what prices speak of. With v the optimum of the program as a function of
  all capacities b and y their duals, v is concave, so that v(b + d) <= v(b) + y'd: no held optimum
  is better than the prices say (``limit``).

The held optima come from one session whose right sides are changed in place.

References
----------
D. Bertsimas, J. Tsitsiklis. "Introduction to Linear Optimization", Athena Scientific 1997, section
5.2 (the optimum as a function of the right side).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from optsched.api import (
    InstanceSource,
    Performance,
    formulation_for,
    load,
    make_formulation,
    solve,
)
from optsched.arrays import FloatArray, finite
from optsched.assembly import classes_of
from optsched.display import Displayed, DisplayedTable, TableColumns, amount, count
from optsched.errors import InvalidArgument, UsageError
from optsched.executors import LOCAL, all_results_of, cores
from optsched.formulation import Extend, Formulation, Infeasible
from optsched.instance import Instance
from optsched.instance.arguments import checks_arguments
from optsched.instance.resize import resized
from optsched.performance import PerformanceModel
from optsched.registry import load_formulation, load_solver, objective_words
from optsched.sensitivity.held import HeldProgram, single_program
from optsched.solution import Solution, Status
from optsched.solving import Engine, LimitOptions, make_limits, takes_limits

FORMAT = "optsched-whatif/1"
# Changes in a summary, at most.
CHANGES_SHOWN = 10


@dataclass(frozen=True, repr=False)
class Change(Displayed):
    """What comes of other capacities.

    Attributes
    ----------
    add : mapping
        What was added, by resource; negative where it was taken away.
    solution : Solution
        Of the cluster with these capacities, everything recompiled.
    held : Solution or None
        With coefficients, columns and normalisers held; None where the formulation is no single
        program.
    predicted : float or None
        Change of the objective by the prices: the sum of price x amount. None without prices.
    limit : float or None
        The best objective that a held program can have by concavity. It is the old objective and
        ``predicted`` together where the objective is linear in the program's value, and tighter
        where it is not (makespan).
    """

    add: Mapping[str, float]
    solution: Solution
    held: Solution | None
    predicted: float | None
    limit: float | None

    @property
    def label(self) -> str:
        """What was added, such as ``v100 +8, k80 -4``."""
        return ", ".join(f"{name} {more:+g}" for name, more in self.add.items())

    def _headline(self) -> str:
        objective = self.solution.objective
        return f"{self.label}: {self.solution.status}" + (
            "" if objective is None else f", {amount(objective)}"
        )


@dataclass(frozen=True, repr=False)
class WhatIf(DisplayedTable):
    """An optimum and what it becomes.

    Attributes
    ----------
    base : Solution
        With the capacities as they are.
    changes : tuple of Change
    not_held : str
        Why there are no held optima; empty if there are.
    runs : int
        Runs of the session of the held program.
    rebuilt : tuple of str
        Why that session was rebuilt or something solved anew; empty if it was only changed in
        place.
    """

    base: Solution
    changes: tuple[Change, ...]
    not_held: str = ""
    runs: int = 0
    rebuilt: tuple[str, ...] = ()

    def difference(self, solution: Solution | None) -> float | None:
        """Objective of a solution less that of the base.

        Parameters
        ----------
        solution : Solution or None
            Of a change: its ``solution`` or ``held``.

        Returns
        -------
        float or None
            None if one of the objectives does not exist.
        """
        old = self.base.objective
        new = None if solution is None else solution.objective
        return (
            None if old is None or new is None or not np.isfinite([old, new]).all() else new - old
        )

    def to_document(self) -> dict[str, Any]:
        """All of it in the format ``optsched-whatif/1``; what does not exist is null."""
        base = self.base
        return {
            "format": FORMAT,
            "instance": base.instance.identity,
            "formulation": base.formulation,
            "options": dict(base.options),
            "constraints": [dict(item) for item in base.constraints],
            "sense": base.sense,
            "objective_words": load_formulation(base.formulation).objective_words,
            "now": _record(base),
            "changes": [
                {
                    "add": dict(change.add),
                    "then": _record(change.solution),
                    "difference": self.difference(change.solution),
                    "held": None if change.held is None else _record(change.held),
                    "held_difference": self.difference(change.held),
                    "predicted": finite(change.predicted),
                    "limit": finite(change.limit),
                }
                for change in self.changes
            ],
            "not_held": self.not_held or None,
            "session": {"runs": self.runs, "rebuilt": list(self.rebuilt)},
        }

    def _headline(self) -> str:
        changes = count(len(self.changes), "change")
        return f"of {self.base.instance.name} by {self.base.formulation}: {changes} of capacity"

    def _facts(self) -> Mapping[str, str]:
        base = self.base
        words, unit = objective_words(base.formulation)
        better = "less" if base.sense == "min" else "more"
        facts = {
            "objective": f"{words}{f', {unit}' if unit else ''} ({better} is better)",
            "now": str(base.status) if base.objective is None else amount(base.objective),
        }
        for change in self.changes[:CHANGES_SHOWN]:
            facts[change.label] = self._change_in_words(change)
        hidden = len(self.changes) - CHANGES_SHOWN
        return facts | {"...": f"{hidden:,} more" if hidden > 0 else "", "no held": self.not_held}

    def _change_in_words(self, change: Change) -> str:
        """The new objective, and by how much it changes in each reading."""
        difference = self.difference(change.solution)
        if change.solution.objective is None or difference is None:
            return str(change.solution.status)
        parts = {
            "change": difference,
            "held": self.difference(change.held),
            "by prices": change.predicted,
        }
        words = [f"{how} {value:+.4g}" for how, value in parts.items() if value is not None]
        return f"{amount(change.solution.objective)}: {', '.join(words)}"

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The changes: what was added, and what the objective becomes,
        with all else held and by the prices too.
        """
        changes = self.changes[:first]
        return {
            "add": [change.label for change in changes],
            "status": [str(change.solution.status) for change in changes],
            "objective": [change.solution.objective for change in changes],
            "change": [self.difference(change.solution) for change in changes],
            "held": [self.difference(change.held) for change in changes],
            "by_prices": [change.predicted for change in changes],
        }


@checks_arguments
@takes_limits
def whatif(
    instance: InstanceSource,
    formulation: str = "max-min-fairness",
    *,
    add: Mapping[str, float],
    each: bool = False,
    solver: str = "auto",
    constraints: Sequence[Any] = (),
    extend: Extend | None = None,
    model: PerformanceModel | None = None,
    performance: Performance | None = None,
    classes: bool = True,
    options: Mapping[str, Any] | None = None,
    prove: bool = False,
    processes: int = 1,
    executor: str = LOCAL,
    on_change: Callable[[Mapping[str, float]], None] | None = None,
    **limits: Unpack[LimitOptions],
) -> WhatIf:
    """Solve an instance as it is, and with more or less of some resources.

    Parameters
    ----------
    instance : Instance, or what `optsched.load` takes
    formulation : str
        Registry name.
    add : mapping
        Resource -> amount: GPUs of a pool, its CPUs or memory (``v100.cpu``), or units of a
        resource; negative amounts are taken away. `optsched.instance.resize` says which nodes come
        and go.
    each : bool
        One change for each resource alone, instead of one change of them all.
    processes, executor
        As of `optsched.compare`: changes that are solved at a time, and where.
    on_change : callable, optional
        Called with what is added before each change is solved.
    solver, constraints, extend, model, performance, classes, options, prove
        As of `optsched.solve`.
    **limits : LimitOptions
        As of `optsched.solve`, of each run by itself; those of the held program have one more
        together.

    Returns
    -------
    WhatIf

    Raises
    ------
    UsageError
        Nothing to add, a name that there is not, less than nothing left; or as `optsched.solve`.
    InvalidInput, SolverUnavailable, SolverCrashed, Interrupted
    """
    if not add:
        raise InvalidArgument("add", "nothing", "the name of a pool or resource, and an amount")
    budget = make_limits(**limits)
    # A wrong name is refused before anything is read
    make_formulation(formulation, options, constraints, extend)
    given = load(instance, performance)
    wanted = [{name: amount} for name, amount in add.items()] if each else [dict(add)]
    larger = [resized(given, change) for change in wanted]
    how: dict[str, Any] = {
        "solver": solver,
        "constraints": constraints,
        "extend": extend,
        "model": model,
        "classes": classes,
        "options": options,
        "prove": prove,
        **limits,
    }
    base = solve(given, formulation, **how)
    engine = Engine(load_solver, solver, budget, prove)
    held, not_held = _held(
        formulation_for(given, formulation, options, constraints, extend), base, engine
    )
    if processes > 1 or executor != LOCAL:
        how |= {"on_progress": None, "on_log": None}  # other processes do not report them
    solutions = all_results_of(
        _solved,
        (formulation, how),
        larger,
        processes=processes,
        executor=executor,
        threads=limits.get("threads", 1) or cores(),
        time_limit=budget.time,
        on_begin=None if on_change is None else lambda number: on_change(wanted[number]),
    )
    changes = [
        _change(base, change, solution, held)
        for change, solution in zip(wanted, solutions, strict=True)
    ]
    runs, rebuilt = (0, ()) if held is None else (held.runs, held.rebuilt)
    return WhatIf(base, tuple(changes), not_held, runs, rebuilt)


def _solved(shared: tuple[Any, ...], instance: Instance) -> Solution:
    """The solution with other capacities."""
    formulation, how = shared
    return solve(instance, formulation, **how)


def _held(
    formulation: Formulation, base: Solution, engine: Engine
) -> tuple[HeldProgram | None, str]:
    """The program of the base, to be held; or why there is none."""
    C = classes_of(base, formulation)
    if len(C) == 0:
        return None, "no job is in the program"
    try:
        return HeldProgram(formulation, single_program(formulation, C), engine), ""
    except (UsageError, Infeasible) as reason:
        return None, str(reason)


def _change(
    base: Solution,
    add: Mapping[str, float],
    then: Solution,
    held: HeldProgram | None,
) -> Change:
    if held is None:
        return Change(add, then, None, None, None)
    names = held.classes.resources.names
    amounts = np.array([float(add.get(name, 0.0)) for name in names])
    program = held.with_capacity(held.classes.capacity + amounts)
    solution = held.solution(program, held.run(program))
    return Change(add, then, solution, *_by_prices(base, held, amounts))


def _by_prices(
    base: Solution, held: HeldProgram, amounts: FloatArray
) -> tuple[float | None, float | None]:
    """(sum of price x amount as a change of the objective, best objective by concavity)."""
    if (
        base.status is not Status.OPTIMAL
        or not base.prices
        or base.duals is None
        or base.allocation is None
    ):
        return None, None
    price = np.array([base.prices[name] for name in held.classes.resources.names])
    # v(b) + y'd in the program's value, then as an objective, which need not be linear in it.
    value = held.program.value(base.allocation.x) + float(base.duals["capacity"] @ amounts)
    sign = -1.0 if base.sense == "min" else 1.0
    return sign * float(price @ amounts) + 0.0, held.program.units.objective(value)


def _record(solution: Solution) -> dict[str, Any]:
    return {
        "status": str(solution.status),
        "objective": finite(solution.objective),
        "bound": finite(solution.bound),
        "gap": solution.gap,
        "certificate": solution.certificate.to_document(residuals=False),
        "capacity": dict(
            zip(
                solution.candidates.resources.names,
                solution.candidates.resources.capacity.tolist(),
                strict=True,
            )
        ),
        "prices": dict(solution.prices) if solution.status is Status.OPTIMAL else {},
        "conflicts": [conflict.words for conflict in solution.conflicts],
        "unplaced": [job for job, _ in solution.unplaced],
    }
