"""What a formulation is: objective and constraints over candidates."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.candidates import Candidates, Classes
from optsched.errors import UsageError
from optsched.formulation.options import FormulationOptions
from optsched.formulation.side_constraint import SHOWN, Infeasible, SideConstraint
from optsched.instance import FORMAT, Instance
from optsched.program import AllocationProgram, LinearProgram, Variables
from optsched.solution import (
    Allocation,
    Certificate,
    Conflict,
    Schedule,
    Solution,
    SolverRecord,
    Status,
    Termination,
)
from optsched.solution.figures import by_job
from optsched.solution.plan import LinearPlan, Plan
from optsched.solution.stage import Stage
from optsched.solving.engine import Engine
from optsched.solving.outcome import Outcome, is_reproducible
from optsched.solving.schedules import solve_plan
from optsched.solving.stages import solve_allocation

Extend = Callable[[LinearProgram, Mapping[str, Variables], Classes], None]
"""A researcher's own rows: called with the program, its blocks of variables by name, and the classes."""


class Formulation(ABC):
    """Objective and constraints over candidates.

    A subclass's docstring is its mathematics. ``reads`` declares the job arrays that it looks at: jobs that agree in
    these (and in their columns) are one class.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    accepts: ClassVar[frozenset[str]] = frozenset({FORMAT})
    reads: ClassVar[frozenset[str]] = frozenset()
    order_only: ClassVar[frozenset[str]] = frozenset()
    """Arrays of `reads` by which jobs are only sorted: the allocation stays the same while only time passes."""
    also_reads: ClassVar[frozenset[str]] = frozenset()
    """Fields of the instance that it reads beside job arrays, such as ``value`` of options (`formulation.notes`)."""
    reads_pairs: ClassVar[bool] = True
    """Whether it uses columns of two jobs that share GPUs (``colocation``); else it leaves them out."""
    sense: ClassVar[Literal["max", "min", "rule"]] = "max"
    plans_ahead: ClassVar[bool] = False
    """Whether jobs that have not arrived yet are planned too."""
    awaits_nodes: ClassVar[bool] = False
    """Whether nodes that are not available yet are planned with; the program keeps their times itself."""
    hard_deadlines: ClassVar[bool] = False
    """Whether the formulation itself holds jobs to deadlines."""
    takes_rows: ClassVar[bool] = True
    """Whether it has a program over fractions of time, to which side constraints can add rows."""
    leaves_idle: ClassVar[bool] = False
    """Whether GPUs that its allocation leaves over are meant to stay idle: they cost money, or the order says so."""
    generates_columns: ClassVar[bool] = False
    """Whether columns can be left to column generation: levels are throughputs times numbers of the jobs."""
    in_rounds: ClassVar[Mapping[str, Any]] = {}
    """Options that rounds take where a policy says nothing of them."""
    objective_words: ClassVar[str] = "objective"
    """What the objective is, with its unit."""

    class Options(FormulationOptions):
        """No options."""

    def __init__(
        self,
        options: FormulationOptions | None = None,
        constraints: Sequence[SideConstraint] = (),
        extend: Extend | None = None,
    ) -> None:
        self.options: Any = self.Options() if options is None else options
        # An instance and a command line may ask for the same thing; it is asked for once.
        self.constraints = tuple(
            {repr(constraint.document()): constraint for constraint in constraints}.values()
        )
        self.extend = extend

    def check(self, instance: Instance) -> None:  # noqa: B027 (most can deal with every instance)
        """Refuse an instance that it cannot deal with whatever its jobs are; raises `UsageError` or `InvalidInput`."""

    @abstractmethod
    def build(self, C: Classes) -> AllocationProgram | Plan:
        """The program of the classes, without side constraints."""

    def isolated_rates(self, C: Classes) -> FloatArray | None:
        """steps/s at which schedulers count ``history.isolated_time``, shape (classes,); None: it is not read."""
        return None

    def figures(self, C: Classes, x: FloatArray) -> Mapping[str, FloatArray]:
        """Figures of each class, shape (K,), that belong to the formulation: they are written for every job."""
        return {}

    def figures_within(self, C: Classes) -> float | None:
        """Accuracy of figures that only solving again gives; None where `figures` makes them from the allocation."""
        return None

    def optimum(self, C: Classes, x: FloatArray, figures: Mapping[str, FloatArray]) -> FloatArray:
        """The point that objective, bound and certificate are about, from an allocation and its figures.

        It is the allocation itself, unless the formulation takes something away from an optimum. ``figures`` are those
        of each class, shape (K,); raises ValueError in words where they cannot be.
        """
        return x

    # --- the way from candidates to a solution ----------------------------------------------------------------------

    @property
    def integral(self) -> bool:
        """Whether jobs are whole: each runs in one configuration all the time, or not at all."""
        return False

    def classes(self, candidates: Candidates) -> Classes:
        """Classes of the jobs that neither the formulation nor its side constraints can tell apart.

        Whole jobs of a class don't share equally, so that a side constraint on each of them is none on their sum: with
        side constraints every job of an integral program is a class of its own.
        """
        candidates = candidates.at_quantile(self._quantile())
        whole = self.integral and not all(
            constraint.of_placement for constraint in self.constraints
        )
        if whole or any(constraint.per_job for constraint in self.constraints):
            candidates = candidates.per_job()
        for constraint in self.constraints:
            constraint.check(candidates.instance)
        labels = [constraint.labels(candidates.instance) for constraint in self.constraints]
        reads = self.reads.union(*(constraint.reads for constraint in self.constraints))
        return candidates.classes(reads, [label for label in labels if label is not None])

    @property
    def all_reads(self) -> frozenset[str]:
        """Names of all fields that it and its side constraints read, of those that only some do."""
        return self.own_reads.union(
            *(constraint.reads | constraint.also_reads for constraint in self.constraints)
        )

    @property
    def own_reads(self) -> frozenset[str]:
        """Names of the fields that it reads itself, with the options that it has."""
        return self.reads | self.also_reads | ({"colocation"} if self.reads_pairs else frozenset())

    def _quantile(self) -> float | None:
        """The quantile of throughputs that hard deadlines reckon with; refused where there are none."""
        quantile: float | None = self.options.quantile
        if (
            quantile is None
            or self.hard_deadlines
            or any(constraint.hard_deadlines for constraint in self.constraints)
        ):
            return quantile
        raise UsageError(
            f"option quantile of {self.name}: found {quantile:g}, but nothing here holds jobs to deadlines (the side "
            "constraint deadlines does)"
        )

    def program(self, C: Classes) -> AllocationProgram | Plan:
        """`build` with the side constraints; may raise `Infeasible`.

        Raises
        ------
        UsageError
            Side constraints and rows of one's own are rows over fractions of time: a plan has none of these.
        """
        program = self.build(C)
        if not isinstance(program, AllocationProgram):
            if self.constraints:
                raise UsageError(
                    f"{self.name} decides what runs when: it takes no side constraints"
                )
            if self.extend is not None:
                raise UsageError(
                    f"{self.name} decides what runs when: it takes no rows of one's own (extend)"
                )
            return program
        side = list(program.side)
        for constraint in self.constraints:
            rows = constraint.rows(C)
            if rows is not None:
                alike = sum(other.name.partition("#")[0] == rows.name for other in side)
                name = f"{rows.name}#{alike + 1}" if alike else rows.name
                side.append(replace(rows, name=name, assumption=constraint.assumes))
        program = replace(program, side=tuple(side), extend=self.extend)
        # A value of 0 may be worth nothing that can be told: a job without GPUs makes a makespan endless.
        _refuse_stranded(
            program,
            program.utility.worthless_at_zero or bool(np.isinf(program.units.objective(0.0))),
        )
        return program

    def solve(self, candidates: Candidates, engine: Engine) -> Solution:
        """Build, solve and certify."""
        started = time.perf_counter()
        on_demand = candidates.elastic is not None or candidates.pairs is not None
        C = self.classes(candidates)
        candidates = C.candidates  # a formulation may have admitted or dropped columns
        try:
            program = self.program(C)
        except Infeasible as error:
            return self._infeasible(candidates, error.conflicts)
        engine.timings["build"] = time.perf_counter() - started
        if nothing_to_decide(program):
            return self._empty(candidates, C)
        if not isinstance(program, AllocationProgram):
            planned = solve_plan(engine, program)
            return self.solution(
                candidates, program, planned.outcome, engine, planned.schedule, planned.stages
            )
        if on_demand:
            from optsched.solving.column_generation import generate_columns  # few programs need it

            made = generate_columns(engine, program, self.program)
            solution = self.solution(
                made.program.classes.candidates, made.program, made.outcome, engine
            )
            return replace(solution, columns_made=made.count)
        answer = solve_allocation(engine, program)
        solution = self.solution(
            candidates, answer.program, answer.outcome, engine, stages=answer.stages
        )
        return replace(solution, notes=answer.notes)

    def solution(
        self,
        candidates: Candidates,
        program: AllocationProgram | Plan,
        outcome: Outcome,
        engine: Engine,
        schedule: Schedule | None = None,
        stages: tuple[Stage, ...] = (),
    ) -> Solution:
        """An outcome of the engine in the units of the formulation."""
        C = program.classes
        found = outcome.x is not None and outcome.value is not None
        planned = not isinstance(program, AllocationProgram)
        integral = True if not isinstance(program, AllocationProgram) else program.integral
        x = (
            schedule.running_at(C.instance.now)
            if schedule is not None
            else None
            if planned
            else outcome.x
        )
        prices: dict[str, float] = {}
        if outcome.duals is not None and found and not planned:
            assert isinstance(program, AllocationProgram) and outcome.x is not None
            worth = program.worth_of_duals(outcome.x)
            prices = {
                name: float(price) * worth + 0.0
                for name, price in zip(C.resources.names, outcome.duals["capacity"], strict=True)
            }
        objective = (
            program.units.objective(outcome.value) if found and outcome.value is not None else None
        )
        status, termination = outcome.status, outcome.values.termination
        if objective is not None and not np.isfinite(objective) and status is Status.OPTIMAL:
            status, termination = (
                Status.FEASIBLE,
                Termination.IMPRECISE,
            )  # an endless makespan is no optimum
        return Solution(
            candidates=candidates,
            formulation=self.name,
            options=self.options.model_dump(),
            constraints=self._constraint_documents(),
            solver=engine.solver_record(outcome.solver, engine.limits.gap if integral else None),
            sense=self.sense,
            objective=objective,
            bound=None if outcome.bound is None else program.units.objective(outcome.bound),
            bound_source=outcome.bound_source,
            termination=termination,
            status=status,
            certificate=outcome.certificate,
            allocation=None if x is None else Allocation(C, x, integral),
            schedule=schedule,
            stages=stages,
            figures={} if x is None or planned else by_job(C, self.figures(C, x)),
            declined=declined_jobs(program, schedule),
            prices=prices,
            duals=outcome.duals,
            conflicts=outcome.conflicts,
            explanation=outcome.explanation,
            reproducible=is_reproducible(termination, outcome.explanation, engine.by_clock),
            timings=dict(engine.timings),
        )

    def _constraint_documents(self) -> tuple[dict[str, Any], ...]:
        documents = [constraint.document() for constraint in self.constraints]
        return (*documents, *([{"kind": "extend"}] if self.extend is not None else []))

    def _bare(self, candidates: Candidates, **given: Any) -> Solution:
        default: dict[str, Any] = {
            "candidates": candidates,
            "formulation": self.name,
            "options": self.options.model_dump(),
            "constraints": self._constraint_documents(),
            "solver": SolverRecord("none", ""),
            "sense": self.sense,
            "objective": None,
            "bound": None,
            "bound_source": "none",
            "termination": Termination.CLOSED_FORM,
            "status": Status.OPTIMAL,
            "certificate": Certificate(True, "rule", {}),
            "allocation": None,
        }
        return Solution(**(default | given))

    def _infeasible(self, candidates: Candidates, conflicts: Sequence[Conflict]) -> Solution:
        return self._bare(
            candidates,
            termination=Termination.INFEASIBLE,
            status=Status.INFEASIBLE,
            conflicts=tuple(conflicts),
        )

    def _empty(self, candidates: Candidates, C: Classes) -> Solution:
        """No job is in the program: an empty total is 0, an empty minimum does not exist, nobody runs."""
        program = self.build(C)
        planned = not isinstance(program, AllocationProgram)
        value = 0.0 if not isinstance(program, AllocationProgram) else program.utility.empty_value
        objective = None if value is None else program.units.objective(value)
        no_job, no_time = np.zeros(0, np.int64), np.zeros(0)
        return self._bare(
            candidates,
            objective=objective,
            bound=objective,
            allocation=Allocation(C, np.zeros(C.columns), planned),
            schedule=Schedule(C, no_job, no_job, no_time, no_time) if planned else None,
        )


def _refuse_stranded(program: AllocationProgram, all_must_run: bool) -> None:
    """Raise `Infeasible` for jobs that rows which say where they may run leave nowhere, or any rows if all must run."""
    C = program.classes
    barring = [(rows, rows.closed.tocsc()) for rows in program.side if rows.barring or all_must_run]
    barred = np.zeros(C.columns, bool)
    for _, closed in barring:
        barred |= np.diff(closed.indptr) > 0
    if not barred.any():
        return
    stranded = np.flatnonzero(C.member @ (~barred).astype(np.float64) == 0)
    conflicts = []
    for k in stranded[:SHOWN].tolist():
        columns = C.member[[k]].indices
        words = [
            rows.describe(row)
            for rows, closed in barring
            for row in np.flatnonzero(np.diff(sp.csr_matrix(closed[:, columns]).indptr)).tolist()
        ]
        dropped = C.candidates.why_dropped(int(C.candidates.kinds.of_job[C.first[k]]))
        told = "; ".join([*words, dropped] if dropped else words)
        conflicts.append(Conflict("side", -1, f"{C.job_name(k)} is left nowhere to run: {told}"))
    if conflicts:
        raise Infeasible(conflicts)


def declined_jobs(
    program: AllocationProgram | Plan, schedule: Schedule | None
) -> tuple[tuple[str, str], ...]:
    """(job, why) of the jobs of a plan's program that its schedule leaves out."""
    if not isinstance(program, LinearPlan) or schedule is None:
        return ()
    names = program.classes.instance.jobs_table.names
    return tuple((names[job], why) for job, why in program.declined(schedule))


def nothing_to_decide(program: AllocationProgram | Plan) -> bool:
    """Whether no job is in the program, or nothing of it is planned."""
    empty = len(program.classes) == 0
    return empty or (isinstance(program, LinearPlan) and program.program.arrays.shape[1] == 0)
