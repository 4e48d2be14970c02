"""What a formulation is: objective and constraints over candidates."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray, mask_of
from optsched.arrays.values import replace
from optsched.candidates import Candidates, Classes
from optsched.candidates.classes import KNOWN
from optsched.candidates.going_on import places_of, staying_on_closed, with_gpus_that_stay
from optsched.display import Displayed
from optsched.errors import InvalidArgument, UsageError
from optsched.formulation.options import FormulationOptions
from optsched.formulation.procedure import Procedure
from optsched.formulation.side_constraint import SHOWN, Infeasible, SideConstraint
from optsched.instance import FORMAT, Instance
from optsched.instance.documents import changed_fields
from optsched.instance.durations import UNLIMITED, Timer
from optsched.lazy import convenience
from optsched.program import AllocationProgram, LinearProgram, Variables
from optsched.solution import Conflict, Solution

if TYPE_CHECKING:  # most formulations plan no schedules, and have no side constraints
    from optsched.formulation.restarts import Restarts
    from optsched.program import SideRows, Space
    from optsched.program.space import TenantCells
    from optsched.solution import Schedule
    from optsched.solution.plan import Plan
    from optsched.solution.stage import Stage

Extend = Callable[[LinearProgram, Mapping[str, Variables], Classes], None]
"""A researcher's own rows:
called with the program, its blocks of variables by name, and the classes.
"""


class Formulation(ABC, Displayed):
    """Objective and constraints over candidates.

    A subclass's docstring is its mathematics. ``reads`` declares the job arrays that it looks at:
    jobs that agree in these (and in their columns) are one class.

    Parameters
    ----------
    options : FormulationOptions, optional
        Of the class ``Options`` of the formulation, which checks them (default: its defaults).
    constraints : sequence of SideConstraint
    extend : callable, optional
        ``extend(program, variables, classes)`` adds extra rows to the linear program.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    accepts: ClassVar[frozenset[str]] = frozenset({FORMAT})
    reads: ClassVar[frozenset[str]] = frozenset()
    order_only: ClassVar[frozenset[str]] = frozenset()
    """Arrays of `reads` by which jobs are only sorted:
    the allocation stays the same while only time passes.
    """
    also_reads: ClassVar[frozenset[str]] = frozenset()
    """Fields of the instance that it reads beside job arrays,
    such as ``value`` of options (`formulation.notes`).
    """
    reads_pairs: ClassVar[bool] = True
    """Whether it uses columns of two jobs that share GPUs (``colocation``);
    else it leaves them out.
    """
    sense: ClassVar[Literal["max", "min", "rule"]] = "max"
    plans_ahead: ClassVar[bool] = False
    """Whether jobs that have not arrived yet are planned too."""
    awaits_nodes: ClassVar[bool] = False
    """Whether nodes that are not available yet are planned with;
    the program keeps their times itself.
    """
    hard_deadlines: ClassVar[bool] = False
    """Whether the formulation itself holds jobs to deadlines."""
    takes_rows: ClassVar[bool] = True
    """Whether it has a program over fractions of time, to which side constraints can add rows."""
    generates_columns: ClassVar[bool] = False
    """Whether columns can be left to column generation:
    levels are throughputs times numbers of the jobs.
    """
    goes_on: ClassVar[bool] = False
    """Whether a round begins with the schedule of the last one (`Restarts.planned`)."""
    in_rounds: ClassVar[Mapping[str, Any]] = {}
    """Options that rounds take where a policy says nothing of them."""
    objective_words: ClassVar[str] = "objective"
    """What the objective is, with its unit."""

    class Options(FormulationOptions):
        """No options beside those that all formulations take."""

    def __init__(
        self,
        options: FormulationOptions | None = None,
        constraints: Sequence[SideConstraint] = (),
        extend: Extend | None = None,
    ) -> None:
        self.options: Any = self.Options() if options is None else options
        self._refuse_parts()
        # An instance and a command line may ask for the same thing; it is asked for once.
        self.constraints = tuple(
            {repr(constraint.document()): constraint for constraint in constraints}.values()
        )
        self.extend = extend
        self.promised: BoolArray | None = None
        """Jobs that a plan must not decline, shape (jobs,); None: it may decline any."""
        self.restarts: Restarts | None = None
        """What rounds know of restarts; None: what the instance says of them."""
        self.timer = UNLIMITED
        """When the answer is due, for what a formulation does before a solver runs."""
        self.searches = True
        """Whether plans are made without a solver; a check of a given schedule needs none."""

    @property
    def leaves_idle(self) -> bool:
        """Whether GPUs that the allocation leaves over are meant to stay idle:
        they cost money, or the order says so.
        """
        return False

    @property
    def rounds_what_is_known(self) -> bool:
        """Whether a rule rounds a relaxation as far as it is solved: where the clock ends that, the
        rule decides otherwise.
        """
        return False

    @property
    def has_ties(self) -> bool:
        """Whether pools count the same, so that many allocations are optimal (``agnostic``)."""
        return bool(getattr(self.options, "agnostic", False))

    def _headline(self) -> str:
        constraints = [constraint.kind for constraint in self.constraints]
        return ", ".join([self.name, *changed_fields(self.options), *constraints])

    def check(self, instance: Instance) -> None:
        """Refuse an instance that the formulation cannot deal with, whatever its jobs are.

        Parameters
        ----------
        instance : Instance

        Raises
        ------
        UsageError
            If the formulation is not for this instance.
        InvalidInput
            If a field of the instance makes no sense to it.
        """

    @abstractmethod
    def build(self, C: Classes) -> AllocationProgram | Plan:
        """The program of the classes, without side constraints.

        Parameters
        ----------
        C : Classes
            Classes of equal jobs with their columns, see `classes`.

        Returns
        -------
        AllocationProgram or a plan
            Of fractions of time, or of what runs when.
        """

    def isolated_rates(self, C: Classes) -> FloatArray | None:
        """Rates at which schedulers count ``history.isolated_time``.

        Parameters
        ----------
        C : Classes

        Returns
        -------
        FloatArray, shape (K,), or None
            steps/s of each class; None where the formulation does not read that time.
        """
        return None

    def figures(self, C: Classes, x: FloatArray) -> Mapping[str, FloatArray]:
        """Figures that belong to the formulation; a solution has them for every job.

        Parameters
        ----------
        C : Classes
        x : FloatArray, shape (N,)
            Job-fractions of each column.

        Returns
        -------
        mapping of str to FloatArray, shape (K,)
            A number for each class, by the name of the figure.
        """
        return {}

    def figures_within(self, C: Classes) -> float | None:
        """How far figures of another solver may be from ours, where only solving again gives them.

        Parameters
        ----------
        C : Classes

        Returns
        -------
        float or None
            None where `figures` makes them from the allocation.
        """
        return None

    def optimum(self, C: Classes, x: FloatArray, figures: Mapping[str, FloatArray]) -> FloatArray:
        """The point that objective, bound and certificate are about.

        It is the allocation itself, unless the formulation takes something away from an optimum.

        Parameters
        ----------
        C : Classes
        x : FloatArray, shape (N,)
            The allocation: job-fractions of each column.
        figures : mapping of str to FloatArray, shape (K,)
            Those of the classes, see `figures`.

        Returns
        -------
        FloatArray, shape (N,)

        Raises
        ------
        ValueError
            If these figures cannot belong to the allocation.
        """
        return x

    # --- the way from candidates to a solution ----------------------------------------------------

    def nowhere(self, candidates: Candidates) -> Mapping[int, str]:
        """Jobs that make the program infeasible whatever the others have.

        By default those that side constraints leave nowhere to run. Rounds go on without them.

        Parameters
        ----------
        candidates : Candidates

        Returns
        -------
        mapping of the row of a job to text
            Why it can run nowhere.
        """
        if not self.constraints:
            return {}
        C = self.classes(candidates)
        words = dict(_stranded(C, self.side_rows(C)))
        stranded = C.jobs_among(mask_of(list(words), len(C)))
        return {job: words[int(C.of_job[job])] for job in stranded}

    @property
    def integral(self) -> bool:
        """Whether jobs are whole: each runs in one configuration all the time, or not at all."""
        return False

    def classes(self, candidates: Candidates) -> Classes:
        """Classes of the jobs that neither the formulation nor its side constraints can tell apart.

        Whole jobs of one class may get different allocations, so a side constraint on each of them
        cannot be written for their sum. An integral program with side constraints therefore has a
        class for each job. One that knows nodes also has the capacity of GPUs that jobs keep on nodes
        that take no new work.

        Parameters
        ----------
        candidates : Candidates
            The compiled instance, see `optsched.compile`.

        Returns
        -------
        Classes
        """
        candidates = candidates.at_quantile(self._quantile())
        if any(constraint.counts_splits for constraint in self.constraints):
            candidates = candidates.on_fewest_nodes
        rows_of_jobs = self.integral and not all(
            constraint.of_placement or constraint.of_sums for constraint in self.constraints
        )
        if rows_of_jobs or any(constraint.per_job for constraint in self.constraints):
            candidates = candidates.per_job()
        _check_reads(f"formulation {self.name!r}", self.reads)
        for constraint in self.constraints:
            _check_reads(f"constraint {constraint.kind!r}", constraint.reads)
            constraint.check(candidates.instance)
        labels = [constraint.labels(candidates.instance) for constraint in self.constraints]
        # Jobs that are held to different parts of a requirement are never one class.
        asked = (constraint.asked for constraint in self.constraints)
        labels += [np.unique(part, return_inverse=True)[1] for part in asked if part is not None]
        labels += [jobs.astype(np.int64) for jobs in self._apart(candidates.instance)]
        labels += [] if self.promised is None else [self.promised.astype(np.int64)]
        labels += [] if self.options.parts == 1 else [self._dealt_out(candidates)]
        reads = self.reads.union(*(constraint.reads for constraint in self.constraints))
        on_closed = staying_on_closed(candidates.instance)
        if not (self.takes_rows and on_closed.any()):
            return candidates.classes(reads, [label for label in labels if label is not None])
        labels += [on_closed, places_of(candidates.instance, on_closed > 0)]
        classes = candidates.classes(reads, [label for label in labels if label is not None])
        return with_gpus_that_stay(classes)

    def _dealt_out(self, candidates: Candidates) -> IntArray:
        """Part of each job, shape (jobs,): at random, as many in each part as in another one."""
        present = np.flatnonzero(candidates.present)
        part = np.zeros(len(candidates.present), np.int64)
        order = np.random.default_rng(self.options.parts_seed).permutation(len(present))
        part[present[order]] = np.arange(len(present)) % self.options.parts
        return part

    def _refuse_parts(self) -> None:
        """Refuse the option ``parts`` of what has no program over fractions of time, or several."""
        if self.options.parts > 1 and not (self.takes_rows and self.is_one_program):
            what = "is no single program over fractions of time"
            raise InvalidArgument(
                f"option of {self.name}: parts",
                str(self.options.parts),
                "1",
                sentence=f"{self.name} {what}: it cannot be solved in parts",
            )

    def _with(self, **attributes: Any) -> Self:
        other = copy.copy(self)
        vars(other).update(attributes)
        return other

    def promising(self, jobs: BoolArray) -> Self:
        """The formulation that declines none of some jobs, where it declines any.

        Parameters
        ----------
        jobs : BoolArray, shape (jobs,)

        Returns
        -------
        Formulation
        """
        return self._with(promised=jobs)

    def promises(self, schedule: Schedule, promised: BoolArray) -> BoolArray:
        """Jobs of a schedule that later rounds keep in theirs; by default all.

        Parameters
        ----------
        schedule : Schedule
        promised : BoolArray, shape (jobs,)
            Jobs that were promised so before.

        Returns
        -------
        BoolArray, shape (jobs,)
        """
        return mask_of(schedule.job, len(promised))

    def knowing(self, restarts: Restarts) -> Self:
        """The formulation that knows this of restarts.

        Parameters
        ----------
        restarts : Restarts

        Returns
        -------
        Formulation
        """
        return self._with(restarts=restarts)

    def within(self, timer: Timer) -> Self:
        """The formulation whose answer is due then.

        Parameters
        ----------
        timer : Timer

        Returns
        -------
        Formulation
        """
        return self._with(timer=timer)

    def for_checking(self) -> Self:
        """The formulation whose programs only check schedules that somebody else made.

        Returns
        -------
        Formulation
        """
        return self._with(searches=False)

    def restarts_of(self, instance: Instance) -> Restarts:
        """What is known of restarts: what rounds said, else what the instance says.

        Parameters
        ----------
        instance : Instance

        Returns
        -------
        Restarts
        """
        from optsched.formulation.restarts import Restarts

        return self.restarts or Restarts.of(instance)

    def with_constraints(self, constraints: Sequence[SideConstraint]) -> Self:
        """The formulation with other side constraints.

        Parameters
        ----------
        constraints : sequence of SideConstraint

        Returns
        -------
        Formulation
        """
        return self._with(constraints=tuple(constraints))

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
        """The quantile of throughputs that hard deadlines count on;
        refused where there are none.
        """
        quantile: float | None = self.options.quantile
        if (
            quantile is None
            or self.hard_deadlines
            or any(constraint.hard_deadlines for constraint in self.constraints)
        ):
            return quantile
        expected = "nothing: no jobs are held to deadlines here (the side constraint does that)"
        raise InvalidArgument("quantile", f"{quantile:g}", expected)

    @property
    def no_rows(self) -> InvalidArgument:
        """The refusal of side constraints and ``extend``
        by what is no program of fractions of time.
        """
        why = "is a rule" if self.sense == "rule" else "decides what runs when"
        sentence = f"{self.name} {why}: it takes no side constraints and no extra rows"
        return InvalidArgument("constraints", "rows", f"none for {self.name}", sentence=sentence)

    def program(self, C: Classes) -> AllocationProgram | Plan:
        """`build` with the side constraints.

        Parameters
        ----------
        C : Classes

        Returns
        -------
        AllocationProgram or a plan

        Raises
        ------
        UsageError
            Side constraints and extra rows are rows over fractions of time: a plan has none
            of these.
        Infeasible
            If a side constraint cannot be met at all.
        """
        program = self.build(C)
        if not isinstance(program, AllocationProgram):
            if self.constraints or self.extend is not None:
                raise self.no_rows
            return program
        side = self.side_rows(C, program.side)
        # Whole jobs find the cells on nodes: `Space` has these rows.
        reserved = self.reserved_cells(C.instance)
        if reserved and not program.integral:
            from optsched.program.space import cell_rows  # few programs have them

            cells = cell_rows(C, reserved)
            side = side if cells is None else (*side, cells)
        if self.constraints or self.extend is not None:
            program = replace(program, side=side, extend=self.extend, space=self._space(program))
        if self.options.parts > 1 and len(C):
            program = replace(program, parts=C.common(self._dealt_out(C.candidates)))
        _refuse_stranded(program)
        return program

    def side_rows(self, C: Classes, own: Sequence[SideRows] = ()) -> tuple[SideRows, ...]:
        """Rows of the side constraints, after those of the program itself.

        Parameters
        ----------
        C : Classes
        own : sequence of SideRows
            Those of the program itself.

        Returns
        -------
        tuple of SideRows
            No two have the same name.

        Raises
        ------
        Infeasible
            If a side constraint cannot be met at all.
        """
        side = list(own)
        for constraint in self.constraints:
            rows = constraint.rows(C)
            if rows is not None:
                # Duals and conflicts go by the names of blocks, so no two are called the same.
                alike = sum(other.name.partition("#")[0] == rows.name for other in side)
                name = f"{rows.name}#{alike + 1}" if alike else rows.name
                side.append(replace(rows, name=name, assumption=constraint.assumes))
        return tuple(side)

    def reserved_cells(self, instance: Instance) -> list[TenantCells]:
        """Cells that the side constraints reserve for tenants.

        Parameters
        ----------
        instance : Instance

        Returns
        -------
        list of TenantCells
            One for each tenant with reserved cells.

        Raises
        ------
        UsageError
            For whole jobs, if no side constraint knows the nodes that hold them.
        """
        found = (constraint.reserves(instance) for constraint in self.constraints)
        cells = [one for one in found if one is not None]
        if cells and self.integral and not self._knows_nodes:
            raise UsageError(
                f"cells of tenant {cells[0].tenant} are reserved: programs of whole jobs find them "
                "with the constraint placeable"
            )
        return cells

    @property
    def _knows_nodes(self) -> bool:
        """Whether a side constraint decides on which nodes whole jobs are."""
        return any(constraint.knows_nodes for constraint in self.constraints)

    def _space(self, program: AllocationProgram) -> Space | None:
        """Where whole jobs must find room, as a side constraint asks."""
        if not program.integral:
            return None
        C = program.classes
        cells, apart = self.reserved_cells(C.instance), self._apart(C.instance)
        spaces = (constraint.space(C, apart, cells, self.timer) for constraint in self.constraints)
        return next((space for space in spaces if space is not None), None)

    def _apart(self, instance: Instance) -> list[BoolArray]:
        """Sets of jobs that must be on different nodes; none where no constraint knows nodes."""
        if not self._knows_nodes:
            return []
        sets = (constraint.apart(instance) for constraint in self.constraints)
        return [jobs for jobs in sets if jobs is not None]

    def procedure(self, C: Classes, seed: int) -> Procedure:
        """The programs that lead to the answer: its own, and others where a subclass needs them.

        Parameters
        ----------
        C : Classes
        seed : int
            Of the run, for rules that draw.

        Returns
        -------
        Procedure
            A generator: it yields programs, is sent their optima, and returns what it decided.
        """
        yield self.program(C)
        return None

    @property
    def is_one_program(self) -> bool:
        """Whether its own program is all that is solved."""
        own = type(self)
        return own.procedure is Formulation.procedure and own.solve is Formulation.solve

    def solve(self, candidates: Candidates, engine: Any) -> Solution:
        """Solve and certify what `procedure` asks for.

        A formulation of a third party may override this, and run an
        `optsched.solving.engine.Engine` itself.

        Parameters
        ----------
        candidates : Candidates
        engine : Engine
            Runs the solvers within one budget of time.

        Returns
        -------
        Solution
        """
        solve: Callable[..., Solution] = convenience("Formulation.solve")
        return solve(self, candidates, engine)

    def solution(
        self,
        candidates: Candidates,
        program: AllocationProgram | Plan,
        outcome: Any,
        engine: Any,
        schedule: Schedule | None = None,
        stages: tuple[Stage, ...] = (),
    ) -> Solution:
        """An outcome of an engine in the units of the formulation, for those that override `solve`.

        Parameters
        ----------
        candidates : Candidates
        program : AllocationProgram or a plan
            What was solved.
        outcome : Outcome
            What the engine made of the program.
        engine : Engine
            For the record of its runs.
        schedule : Schedule, optional
            Of a plan; its allocation is what the schedule runs first.
        stages : tuple of Stage
            Programs that were solved before.

        Returns
        -------
        Solution
        """
        solution: Callable[..., Solution] = convenience("Formulation.solution")
        return solution(self, candidates, program, outcome, engine, schedule, stages)

    def constraint_documents(self) -> tuple[dict[str, Any], ...]:
        """Its side constraints as a solution file has them."""
        documents = [constraint.document() for constraint in self.constraints]
        return (*documents, *([{"kind": "extend"}] if self.extend is not None else []))


def _check_reads(reader: str, reads: frozenset[str]) -> None:
    """Refuse names in ``reads`` that are no job arrays, as classes cannot differ by them."""
    for name in sorted(reads - KNOWN):
        arrays = f"job arrays, some of {', '.join(sorted(KNOWN))}"
        raise InvalidArgument(f"reads of {reader}", repr(name), arrays)


def _refuse_stranded(program: AllocationProgram) -> None:
    """Raise `Infeasible` for jobs that rows which say where they may run leave nowhere,
    or any rows if all must run.
    """
    C = program.classes
    conflicts = [
        Conflict("side", -1, f"{C.job_name(k)} {words}")
        for k, words in islice(_stranded(C, program.side, program.all_must_run), SHOWN)
    ]
    if conflicts:
        raise Infeasible(conflicts)


def _stranded(
    C: Classes, side: Sequence[SideRows], all_must_run: bool = False
) -> Iterator[tuple[int, str]]:
    """Classes whose jobs rows leave nowhere to run, and why: rows that say where jobs may run,
    or any rows if all must run.
    """
    barring = [(rows, rows.closed.tocsc()) for rows in side if rows.barring or all_must_run]
    barred = np.zeros(C.columns, bool)
    for _, closed in barring:
        barred |= np.diff(closed.indptr) > 0
    if not barred.any():
        return
    for k in np.flatnonzero(C.member @ (~barred).astype(np.float64) == 0).tolist():
        # Both what bars the columns that there are, and why others were dropped before.
        columns = C.member[[k]].indices
        words = [
            rows.describe(row)
            for rows, closed in barring
            for row in np.flatnonzero(np.diff(sp.csr_matrix(closed[:, columns]).indptr)).tolist()
        ]
        dropped = C.candidates.why_dropped(int(C.candidates.kinds.of_job[C.first[k]]))
        reasons = "; ".join([*words, dropped] if dropped else words)
        yield k, f"is left nowhere to run: {reasons}"


def declined_jobs(
    program: AllocationProgram | Plan, schedule: Schedule | None
) -> tuple[tuple[str, str], ...]:
    """(job, why) of the jobs of a plan's program that its schedule leaves out."""
    if schedule is None:
        return ()
    from optsched.solution.plan import LinearPlan

    if not isinstance(program, LinearPlan):
        return ()
    names = program.classes.instance.jobs_table.names
    return tuple((names[job], why) for job, why in program.declined(schedule))


def nothing_to_decide(program: AllocationProgram | Plan) -> bool:
    """Whether no job is in the program, or nothing of it is planned."""
    if isinstance(program, AllocationProgram) or len(program.classes) == 0:
        return len(program.classes) == 0
    from optsched.solution.plan import LinearPlan

    return isinstance(program, LinearPlan) and program.program.arrays.shape[1] == 0
