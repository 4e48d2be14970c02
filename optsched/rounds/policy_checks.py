"""Whether rounds can be planned with a policy: what is wrong with it is refused before the first one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optsched.assembly import compile_for, constraints_in_force, make_formulation
from optsched.candidates import Absence, Candidates, Classes
from optsched.errors import (
    InvalidInput,
    OptschedError,
    SolverCrashed,
    SolverUnavailable,
    UsageError,
)
from optsched.formulation import Formulation, Infeasible
from optsched.instance import Instance
from optsched.program import AllocationProgram
from optsched.registry import load_ranking, load_solver
from optsched.rounds.allocating import formulation_of
from optsched.rounds.policy import RoundPolicy
from optsched.solution.plan import LinearPlan
from optsched.solvers import Capability, Solver
from optsched.solving.engine import Engine

AUTO = "auto"
CONTINUOUS = "a program with continuous columns"


def check_names(policy: RoundPolicy) -> None:
    """Refuse a formulation, an option of it, or a solver that there is not. Rankings are checked before.

    Raises
    ------
    UsageError, SolverUnavailable
    """
    if policy.ranking is None:
        make_formulation(policy.formulation, policy.options)
        if policy.solver != AUTO:
            load_solver(policy.solver)


def check_policy(
    policy: RoundPolicy, instance: Instance, load: Callable[[str], type[Solver]] = load_solver
) -> None:
    """Refuse a policy that no round of an instance can be planned with, in the words of `optsched.solve`.

    What only some of the jobs are to blame for, or only what runs now, is no reason: others come,
    and plans say it.

    Parameters
    ----------
    policy : RoundPolicy
    instance : Instance
    load : callable
        Solver class by name.

    Raises
    ------
    UsageError, InvalidInput
        Names, options and values that make no sense, or not with this instance.
    SolverUnavailable
        The solver is not installed, or lacks what the formulation needs.
    """
    constraints = constraints_in_force(instance, policy.constraints)
    for constraint in constraints:
        constraint.check(instance)
    if policy.ranking is not None:
        load_ranking(policy.ranking)(policy.options)
        return
    formulation = formulation_of(policy, instance, policy.constraints)
    formulation.check(instance)
    candidates = compile_for(formulation, instance)
    try:
        C = formulation.classes(candidates)
        for constraint in constraints:
            constraint.rows(C)
    except Infeasible:
        return
    except (UsageError, InvalidInput) as error:
        if error.jobs and not _all(candidates, error.jobs):
            return
        raise
    if policy.solver != AUTO:
        _check_solver(formulation, C, Engine(load, policy.solver))


def _all(candidates: Candidates, jobs: tuple[int, ...]) -> bool:
    """Whether these are all jobs that could be planned."""
    there = np.flatnonzero(candidates.absence == Absence.PRESENT)
    return bool(np.isin(there, jobs).all())


def _check_solver(formulation: Formulation, C: Classes, engine: Engine) -> None:
    """Refuse a solver that is not here, or lacks what the program needs; one that crashes costs a plan later."""
    try:
        engine.load(engine.solver).version()
        if formulation.sense == "rule":  # most of them solve no program
            return
        try:
            program = formulation.program(C)
        except (
            OptschedError,
            Infeasible,
        ):  # a matter of the jobs: of another round there may be a program
            return
        asked = engine.load(engine.solver)
        if isinstance(program, AllocationProgram) and Capability.ALLOCATION in asked.capabilities:
            why = asked.refuses(program) if len(C) else None
            if why is not None:
                text = f"solver {asked.name} cannot take this program: {why}"
                raise SolverUnavailable(f"{text}; auto takes a solver that can")
        elif isinstance(program, AllocationProgram) and (program.conic or not len(C)):
            solver = engine.choose(rows=0, integer=program.integral, conic=program.conic)
            if not (program.integral or program.conic):
                solver.require(Capability.CONTINUOUS, CONTINUOUS)
        elif not len(C):  # the jobs tell what kind of plan it is
            return
        elif isinstance(program, AllocationProgram | LinearPlan):
            linear = (
                program.to_linear() if isinstance(program, AllocationProgram) else program.program
            )
            solver = engine.choose(rows=0, integer=linear.arrays.is_integer, conic=False)
            if not linear.arrays.integer.all():
                solver.require(Capability.CONTINUOUS, CONTINUOUS)
        else:
            engine.choose_for_timeline(program.timeline)
    except SolverCrashed:
        return
