"""Programs whose answer is a schedule,
and how points of solvers and schedules turn into each other.

An allocation program decides fractions of time of the columns of classes. Others decide what runs
when: their points are read as a `Schedule`, and a schedule is completed to a point, so that a
solution file can be checked by anybody who builds the program again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.values import cached_property
from optsched.candidates import Classes, JobRows
from optsched.instance.durations import Timer
from optsched.program import Assumption, LinearProgram, TimelineProgram, Units
from optsched.program.list_schedule import list_schedule
from optsched.program.units import AS_IT_IS
from optsched.solution.certificate import ASKED, AVAILABLE, Certificate, certify_point, noise_at
from optsched.solution.explanation import Conflict
from optsched.solution.schedule import Schedule
from optsched.solution.time_prices import TimePrices
from optsched.solution.values import Termination

GUARANTEED = 1e-6
"""Relative amount by which a guarantee may be missed: rounding."""
LATER_COLUMNS = 4000
"""Most columns of the program of a later objective, which keeps it quick beside the first one and
does not depend on the clock.
"""


@dataclass(frozen=True)
class Later:
    """An objective that decides among the schedules that are equally good by those
    before it; it is minimised.

    Attributes
    ----------
    name : str
        Of its stage in a solution.
    words : str
        What it is, with its unit.
    value : callable
        `Schedule` -> the objective of a schedule.
    columns : int
        Of the program: at least as many as the one before it has.
    program : callable
        The linear or mixed-integer program, minimised; its columns begin with those of the program
        before it.
    complete : callable
        `Schedule` -> the point of this program.
    read : callable
        Point -> `Schedule`.
    """

    name: str
    words: str
    value: Callable[[Schedule], float]
    columns: int
    program: Callable[[], LinearProgram]
    complete: Callable[[Schedule], FloatArray]
    read: Callable[[FloatArray], Schedule]

    @property
    def is_solved(self) -> bool:
        """Whether its program is small enough to be solved."""
        return self.columns <= LATER_COLUMNS


class Shortage(NamedTuple):
    """Requirements that ask for more of a resource, added up, than there is."""

    conflicts: tuple[Conflict, ...]
    asked: float
    available: float

    @property
    def certificate(self) -> Certificate:
        """That of the infeasible instance."""
        return Certificate(True, "counted", {ASKED: self.asked, AVAILABLE: self.available})


Slices = Callable[[JobRows, FloatArray], tuple[FloatArray, sp.csr_matrix] | None]
"""How rows share an interval of time: (rows with their fractions of it, what there is of each
resource) -> lengths of slices as parts of the interval, and the rows that run in each; None if it
is not known that they can."""


@dataclass(frozen=True)
class Relaxation:
    """Where schedules come from if some points of a program have none: its optimum is a bound.

    Attributes
    ----------
    realise : callable
        (point, `Slices`, `Timer`) -> a schedule that does what the point says; None if none is
        known, or found in time.
    witness : callable
        A schedule that needs no solver, or None.
    note : callable
        What an answer says that is the witness; may be empty.
    witness_first : bool
        Whether it is looked for before the program is solved, which its value may make needless.
    """

    realise: Callable[[FloatArray, Slices, Timer], Schedule | None]
    witness: Callable[[], Schedule | None]
    note: Callable[[], str] = field(default=lambda: "")
    witness_first: bool = False


@dataclass(frozen=True)
class Parts:
    """A program that falls into parts, such as jobs, which few rows couple.

    Attributes
    ----------
    coupling : tuple of str
        Blocks of the rows that couple parts; every other row has columns of one part only.
    part : IntArray, shape (columns,)
        Part of each column of the program.
    required : BoolArray, shape (parts,)
        Parts whose columns cannot all be 0.
    cheapest : callable
        Costs of the columns, and how hard to look (1, 2, ...) -> a cheap point of each part, all in
        one array of the columns, and for each part a number that none of its points but 0 costs
        less than; shape (parts,).
    """

    coupling: tuple[str, ...]
    part: IntArray
    required: BoolArray
    cheapest: Callable[[FloatArray, int], tuple[FloatArray, FloatArray]]


class Patterns(NamedTuple):
    """A program whose point is a sum of patterns, of which there are to be as few as possible: each
    has some jobs of each kind, such as the filling of a bin.

    Attributes
    ----------
    demand : IntArray, shape (kinds,)
        How many jobs of each kind all patterns have together.
    best : callable
        Worth of the kinds, and how many jobs of each a pattern may have -> the pattern of the
        greatest worth, and how many jobs of each it has, shape (kinds,).
    of_point : callable
        Point of the program -> its patterns, shape (kinds, patterns).
    point : callable
        Patterns -> the point of the program.
    duals : callable
        Duals of the demand -> duals of the program, which prove the bound ``demand @ duals`` over
        the worth of the best pattern.
    """

    demand: IntArray
    best: Callable[[FloatArray, IntArray], tuple[float, IntArray]]
    of_point: Callable[[FloatArray], IntArray]
    point: Callable[[IntArray], FloatArray]
    duals: Callable[[FloatArray], FloatArray]


class Sifting(NamedTuple):
    """Which columns of a linear program may be in an optimum, where it has far more than that.

    Attributes
    ----------
    duals : callable
        Duals of the program that prove a bound; those of a relaxation, or 0.
    cheapest : callable
        Duals of the program -> its columns that would be used at these prices.
    """

    duals: Callable[[], FloatArray]
    cheapest: Callable[[FloatArray], IntArray]


class MachineTimes(NamedTuple):
    """Jobs that each run on one machine, one after the other, where the objective is when the last
    machine ends.

    Attributes
    ----------
    seconds : FloatArray, shape (machines, jobs)
        Infinite where a job cannot run.
    resource : IntArray, shape (machines,)
        Machines of a resource are alike.
    load : str
        The block of rows of the program that say what a machine has to do, in the same order.
    point : callable
        The machine of each job -> the point of the program.
    """

    seconds: FloatArray
    resource: IntArray
    load: str
    point: Callable[[IntArray], FloatArray]


@dataclass(frozen=True)
class LinearPlan:
    """A linear or mixed-integer program over its own columns.

    Attributes
    ----------
    classes : Classes
    program : LinearProgram
    read : callable
        Point -> `Schedule`; raises ValueError where there is none.
    complete : callable
        `Schedule` -> the point of it; raises ValueError where there is
        none.
    describe : callable
        (block, position) -> the requirement in the user's words.
    step : float or None
        All objective values are multiples of it, where such a number is known.
    assumption : Assumption or None
        What the program takes for granted of requirements that it may find to be in conflict.
    known : callable
        A feasible point that needs no solver, or None: where solvers start, and the answer where
        none finds a better.
    improve : callable or None
        Point -> a point of the same objective or a better one that is better by the later
        objectives, at no cost.
    later : tuple of Later
        What decides among optima, in this order. The bound of a solution is about the objective of
        `program` alone.
    solves_later : bool
        Whether their programs are solved, or `improve` is enough.
    unsearched : (Termination, str) or None
        How the solution ends, and why, if no solver looks for a better point than the known one.
    guarantee : float or None
        The objective of the known point is at most so many times the optimum of the minimised
        program, as the bounds of its columns show; None: nothing is known of it.
    declined : callable
        `Schedule` -> (row of the job table, why) of each job of the program that it leaves out.
    as_timeline : str
        How to ask for the same plan as a timeline, for users of a solver that takes nothing else;
        may be empty.
    shortage : callable
        Requirements that cannot all hold, where sums show it without a solver.
    relaxation : Relaxation or None
        None: every point of the program has a schedule, which `read` makes.
    refuted_by : callable or None
        The plan that must be infeasible too before this one is called so, as it has all schedules,
        and this one has some of them; None: it has all itself.
    parts : Parts or None
        Where the program is to be solved by column generation: a column is a point of a part.
    patterns : Patterns or None
        Where column generation comes before the solver.
    machines : callable or None
        The same plan as times of jobs on machines, where it is one: a local search comes before the
        solver then.
    sifting : Sifting or None
        Where the program, which is a relaxation that is minimised, is solved over some of its
        columns.
    of_schedule : callable or None
        `Schedule` -> the plan with a point for just this schedule, where the points of this one
        rest on a plan by rule, which a check does not make again; raises ValueError where there is
        none.
    rounding : float
        By how much the objective of a schedule may be off, as its times are rounded to those of the
        clock.
    time_prices : TimePrices or None
        Prices of time on resources that the formulation has found, which prove `bound`.
    bound_by : callable or None
        `TimePrices` -> the bound on the objective that they prove; None: they prove nothing.
    searched : float
        Seconds that went into a plan by rule and into prices before the program was built.
    """

    classes: Classes
    program: LinearProgram
    read: Callable[[FloatArray], Schedule]
    complete: Callable[[Schedule], FloatArray]
    describe: Callable[[str, int], str]
    step: float | None = None
    assumption: Assumption | None = None
    known: Callable[[], FloatArray | None] = field(default=lambda: None)
    improve: Callable[[FloatArray], FloatArray] | None = None
    later: tuple[Later, ...] = ()
    solves_later: bool = True
    unsearched: tuple[Termination, str] | None = None
    guarantee: float | None = None
    declined: Callable[[Schedule], tuple[tuple[int, str], ...]] = field(default=lambda schedule: ())
    as_timeline: str = ""
    shortage: Callable[[], Shortage | None] = field(default=lambda: None)
    relaxation: Relaxation | None = None
    refuted_by: Callable[[], LinearPlan] | None = None
    parts: Parts | None = None
    patterns: Patterns | None = None
    machines: Callable[[], MachineTimes] | None = None
    sifting: Sifting | None = None
    of_schedule: Callable[[Schedule], LinearPlan] | None = None
    rounding: float = 0.0
    time_prices: TimePrices | None = None
    bound_by: Callable[[TimePrices], float] | None = None
    searched: float = 0.0
    cost_unit: ClassVar[float] = 1.0
    """Value of a unit of the cost that a solver reports."""
    units: ClassVar[Units] = AS_IT_IS

    def to_refute(self) -> LinearPlan:
        """The plan that must be infeasible for this one to be called so."""
        return self if self.refuted_by is None else self.refuted_by().to_refute()

    @cached_property
    def bound(self) -> float | None:
        """The bound on the objective that the prices of time prove; None without."""
        if self.time_prices is None or self.bound_by is None:
            return None
        return self.bound_by(self.time_prices)

    @property
    def proves(self) -> bool:
        """Whether duals bound the program:
        it has no integer columns, as its vertices are whole numbers anyhow.
        """
        return not self.program.arrays.is_integer

    def as_checked(self, schedule: Schedule) -> LinearPlan:
        """The plan with which a check of a file recomputes what is stated of a schedule."""
        if self.of_schedule is None or self.unsearched is not None:
            return self  # of a plan without a search the check has the same points
        return self.of_schedule(schedule)

    def value(self, schedule: Schedule) -> float:
        """Objective of a schedule."""
        return self.program.arrays.objective(self.complete(schedule))

    def noise(self, schedule: Schedule) -> float:
        """Differences of the objective below this are rounding."""
        return noise_at(self.program.arrays, self.complete(schedule)) + self.rounding

    def known_value(self) -> float | None:
        """Objective of the point that needs no solver; None if there is none."""
        x, arrays = self.known(), self.program.arrays
        if x is None or not certify_point(arrays, x, arrays.objective(x), "none").ok:
            return None
        return arrays.objective(x)

    def broken_guarantee(self, value: float, bound: float | None) -> str:
        """In which way an objective and its bound break the guarantee; empty if they keep it."""
        factor = self.guarantee
        if factor is None or (bound is not None and value <= factor * bound * (1 + GUARANTEED)):
            return ""
        return f"{value:.9g} is more than {factor:g} times the bound {bound!r}"

    def certify(self, schedule: Schedule, value: float, proof: str) -> Certificate:
        """Check a schedule and its stated objective against every row."""
        return certify_point(self.program.arrays, self.complete(schedule), value, proof)


@dataclass(frozen=True)
class TimelinePlan:
    """A timeline program whose activities are jobs and whose modes are columns of classes.

    Attributes
    ----------
    classes : Classes
    timeline : TimelineProgram
    time_unit : float
        Seconds per unit of the timeline's time.
    job : IntArray, shape (A,)
    column : IntArray, shape (M,)
    """

    classes: Classes
    timeline: TimelineProgram
    time_unit: float
    job: IntArray
    column: IntArray
    units: ClassVar[Units] = AS_IT_IS
    assumption: ClassVar[Assumption | None] = None
    """Nothing is taken for granted of requirements in conflict."""

    @property
    def cost_unit(self) -> float:
        """Value of a unit of the cost that a solver reports: costs of a timeline are times."""
        return self.time_unit

    @cached_property
    def program(self) -> LinearProgram:
        """Rows that every schedule meets; without a point of them there is none."""
        return self.timeline.choice_of_modes()

    def to_refute(self) -> TimelinePlan:
        """The plan whose `program` must have no point for this one to be called infeasible."""
        return self

    def describe(self, block: str, position: int) -> str:
        """A row of `program` in the user's words."""
        if block == "one":
            name = self.classes.instance.jobs_table.names[int(self.job[position])]
            return f"job {name} must run in one of its configurations"
        row = self._row(False, position)
        resources = self.classes.resources
        return f"resource {resources.names[row]} has {resources.capacity[row]:g} to use up"

    def read(self, start: IntArray, mode: IntArray) -> Schedule:
        """The schedule of starts and modes."""
        now = self.classes.instance.now
        end = start + self.timeline.duration[mode]
        seconds = np.float64(self.time_unit)
        return Schedule.sorted(
            self.classes, self.job, self.column[mode], now + start * seconds, now + end * seconds
        )

    def complete(self, schedule: Schedule) -> tuple[IntArray, IntArray]:
        """(start, mode) of every activity;
        raises ValueError in words where the schedule does not say them.
        """
        names = self.classes.instance.jobs_table.names
        # Each job of the program has exactly one stretch; a job left out or there twice is named.
        order = np.argsort(schedule.job, kind="stable")
        if not np.array_equal(schedule.job[order], np.sort(self.job)):
            count = np.bincount(schedule.job, minlength=len(names))[self.job]
            odd = int(np.argmax(count != 1))
            raise ValueError(
                f"job {names[int(self.job[odd])]} runs {count[odd]} times, expected once"
            )
        # From the order of the schedule (S,) to that of the activities (A,).
        position = np.empty(len(names), np.int64)
        position[schedule.job] = np.arange(len(schedule))
        row = position[self.job]
        # Modes come activity by activity, and those of one activity have different columns.
        chosen = self.column == schedule.column[row][self.timeline.activity]
        mode = np.flatnonzero(chosen)
        if len(mode) < len(self.job):
            fits = np.bincount(self.timeline.activity[mode], minlength=len(self.job)) > 0
            job = names[int(self.job[int(np.argmin(fits))])]
            raise ValueError(f"job {job} runs in a configuration that does not fit")
        start = np.round((schedule.start[row] - self.classes.instance.now) / self.time_unit).astype(
            np.int64
        )
        length = np.round((schedule.end[row] - schedule.start[row]) / self.time_unit).astype(
            np.int64
        )
        wrong = np.flatnonzero(length != self.timeline.duration[mode])
        if len(wrong):
            a = int(wrong[0])
            needs = self.timeline.duration[mode[a]] * self.time_unit
            raise ValueError(
                f"job {names[int(self.job[a])]} runs {length[a] * self.time_unit:g} s, "
                f"expected {needs:g} s"
            )
        return start, mode

    def value(self, schedule: Schedule) -> float:
        """Objective of a schedule."""
        return self.timeline.objective(*self.complete(schedule)) * self.time_unit

    def noise(self, schedule: Schedule) -> float:
        """Costs are whole: a bound within half a unit is the cost itself."""
        return 0.5 * self.time_unit

    def known_value(self) -> float | None:
        """Objective of a list schedule; None if none was found that keeps all there is."""
        found = list_schedule(self.timeline)
        return None if found is None else self.timeline.objective(*found) * self.time_unit

    def certify(self, schedule: Schedule, value: float, proof: str) -> Certificate:
        """Check a schedule in integers: nothing is off by less than a unit."""
        start, mode = self.complete(schedule)
        residuals = dict.fromkeys(("release", "deadline", "precedence", "capacity", "budget"), 0.0)
        problems = []
        for name, number, amount in self.timeline.violations(start, mode):
            residuals[name] = max(residuals.get(name, 0.0), float(amount))
            problems.append(f"{self._words(name, number)} is broken by {amount}")
        actual = self.timeline.objective(start, mode) * self.time_unit
        residuals["objective"] = abs(actual - value) / max(abs(actual), abs(value), 1e-300)
        if residuals["objective"] > 1e-9:
            problems.append(
                f"the stated objective {value:.9g} is not that of the schedule, {actual:.9g}"
            )
        return Certificate(not problems, proof, residuals, tuple(problems[:10]))

    def _words(self, name: str, number: int) -> str:
        names = self.classes.instance.jobs_table.names
        if name == "capacity":
            return f"the capacity of {self._resource(True, number)}"
        if name == "budget":
            return f"the budget of {self._resource(False, number)}"
        if name == "precedence":
            a, b = self.timeline.precedence[number].tolist()
            return f"the order of jobs {names[int(self.job[a])]} and {names[int(self.job[b])]}"
        return f"the {name} of job {names[int(self.job[number])]}"

    def _resource(self, renewable: bool, number: int) -> str:
        """The name of one of the resources that are renewable, or of those that are not."""
        return self.classes.resources.names[self._row(renewable, number)]

    def _row(self, renewable: bool, number: int) -> int:
        of_kind = np.flatnonzero(self.classes.resources.renewable == renewable)
        return int(of_kind[number])


Plan = LinearPlan | TimelinePlan
