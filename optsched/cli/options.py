"""Common parts of commands: arguments, options, limits of a solver, the call of the solver, and
exit codes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from optsched.cli.command import Argument, Option
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.cli.values import Constraints, Name, Seconds, Settings, Target
from optsched.errors import NOTHING_YET, Interrupted

if TYPE_CHECKING:
    from optsched.instance import Instance
    from optsched.instance.durations import Timer
    from optsched.solution import Solution
    from optsched.solvers import Progress
    from optsched.study.direct import ProgramSolution

PROBLEM, SOLVER, OUTPUT = "Problem", "Solver and limits", "Output"
DEFAULT_FORMULATION = "max-min-fairness"
WRITING = 2e-5
"""Seconds of a time limit that are reserved per job for writing the answer:
100,000 jobs take 0.7 to 1.7 s of CPU time, and more where each has several rows."""
INFEASIBLE, NOTHING_FOUND, NOT_CERTIFIED, SOLVER_FAILED = 4, 5, 6, 7

FILE = (
    "File (json, yaml, npz, or of a benchmark library), - for standard input, "
    "or @name of a shipped "
    "instance"
)
InstanceFile = Annotated[str, Argument("INSTANCE", f"{FILE}.", source=True)]
InstanceOrProgram = Annotated[
    str, Argument("INSTANCE", f"{FILE}; or a program (mps, lp, .gz).", source=True)
]
ModelFile = Annotated[
    str | None,
    Option(
        "Performance model (`optsched model fit`) instead of the instance's own.",
        "FILE",
        section=PROBLEM,
        source=True,
    ),
]
Json = Annotated[bool, Option("Print JSON and nothing else.", flag="--json", section=OUTPUT)]


@dataclass(frozen=True)
class ManyOptions:
    """How what is many is run."""

    section: ClassVar = "Running"

    jobs: Annotated[int, Option("Tasks at a time.")] = 1
    executor: Annotated[
        str,
        Option(
            "Where they run: processes of this machine, or ray, the cluster at RAY_ADDRESS, "
            "or ray:ADDRESS.",
            "NAME",
        ),
    ] = "processes"


# --- declarations of options that differ only in their help --------------------------------------


def formulation_option(help: str) -> Option:
    """The option -f, --formulation NAME."""
    return Option(help, short="-f", section=PROBLEM)


def formulations_option(help: str) -> Option:
    """-f NAME:KEY=VALUE, more than once."""
    return Option(help, flag="--formulation", short="-f", section=PROBLEM)


def settings_option(help: str, section: str = PROBLEM) -> Option:
    """-O KEY=VALUE, more than once."""
    return Option(help, flag="--option", short="-O", section=section)


def constraints_option(help: str) -> Option:
    """-C KIND:KEY=VALUE, more than once."""
    return Option(help, flag="--constraint", short="-C", section=PROBLEM)


def output_option(help: str) -> Option:
    """The option -o, --output FILE."""
    return Option(help, "FILE", short="-o", section=OUTPUT)


DocumentOutput = Annotated[
    Target, output_option("FILE.json, .yaml or .npz; - for JSON on standard output.")
]


# --- what is solved, and with what ----------------------------------------------------------------


@dataclass(frozen=True)
class ProblemOptions:
    """What is to be solved."""

    section: ClassVar = PROBLEM

    instance: InstanceFile
    formulation: Annotated[Name, formulation_option("See `optsched formulations`.")] = (
        DEFAULT_FORMULATION
    )
    options: Annotated[
        Settings,
        settings_option(
            "Option of the formulation; VALUE is true, false, a number, JSON or text. "
            "Can be repeated."
        ),
    ] = field(default_factory=dict)
    constraints: Annotated[
        Constraints,
        constraints_option(
            "Side constraint in addition to those of the instance; `deadlines`, `moves` and "
            "`placeable` replace the instance's. Can be repeated."
        ),
    ] = field(default_factory=list)
    no_classes: Annotated[
        bool, Option("Do not group equal jobs into classes; the optimum is the same.")
    ] = False
    model: ModelFile = None

    @property
    def given(self) -> dict[str, Any]:
        """The problem as keywords of `optsched.solve`, without instance and formulation."""
        return {
            "options": self.options,
            "constraints": self.constraints,
            "classes": not self.no_classes,
            "performance": self.model,
        }

    @property
    def asks_to_solve(self) -> bool:
        """Whether an option of the problem was given; for commands that may also not solve."""
        return bool(self.formulation or self.options or self.constraints or self.no_classes)


@dataclass(frozen=True)
class Search:
    """With what, and how long; the fields are keywords of `optsched.solve`.

    One that is not given is None, and has the default of the library.
    """

    section: ClassVar = SOLVER

    solver: Annotated[str | None, Option("See `optsched solvers`.  [default: auto]", "NAME")] = None
    seed: Annotated[int | None, Option("Seed of the solver.  [default: 0]")] = None
    time_limit: Annotated[
        Seconds | None, Option("Stop after 90, 90s, 5m, 2h or 1d with the best answer so far.")
    ] = None
    work_limit: Annotated[
        int | None,
        Option("Stop after N iterations, nodes or conflicts; unlike a time limit, reproducible."),
    ] = None
    gap: Annotated[
        float | None, Option("Relative gap at which an integer program may stop.", "G")
    ] = None
    threads: Annotated[int | None, Option("Threads of the solver; 0: all cores.  [default: 1]")] = (
        None
    )
    tolerance: Annotated[
        float | None,
        Option("Feasibility and optimality tolerance of the solver.  [default: 1e-9]", "T"),
    ] = None
    prove: Annotated[
        bool, Option("Cross-check a claim of optimality with a second solver or search.")
    ] = False
    solver_options: Annotated[
        Settings,
        Option(
            "Option of the solver, under the solver's own name. Can be repeated.",
            flag="--solver-option",
        ),
    ] = field(default_factory=dict)
    solver_log: Annotated[bool, Option("Show the solver's own log on standard error.")] = False

    @cached_property
    def timer(self) -> Timer:
        """The timer of a single solve; it starts at the first access."""
        # The time for importing the library counts too
        began = time.monotonic()
        from optsched.instance.durations import Timer

        return Timer(self.time_limit, began, kept_per_job=WRITING)

    @property
    def limits(self) -> dict[str, Any]:
        """The keywords of `optsched.solve`; the time limit is per call."""
        given = given_fields(self)
        # The library takes a function for the log, not a switch
        if given.pop("solver_log", False):
            given["on_log"] = write_log
        return given


def write_log(text: str) -> None:
    """Write the log of a solver unchanged to standard error."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def given_fields(options: Any, *without: str) -> dict[str, Any]:
    """The fields of a dataclass of options that were given on the command line."""
    # An option that was not given is None, False or empty
    found = {item.name: getattr(options, item.name) for item in fields(options)}
    return {
        name: value
        for name, value in found.items()
        if name not in without and not (value is None or value is False or value == {})
    }


Problem = TypeVar("Problem", bound=ProblemOptions)


def with_formulation(problem: Problem) -> Problem:
    """The problem; if no formulation was given, with the one of its source."""
    from optsched import api

    if problem.formulation:
        return problem
    try:
        source, formulation = api.default_formulation(problem.instance)
    except KeyboardInterrupt:  # while standard input is read
        raise Interrupted(NOTHING_YET) from None
    return replace(problem, instance=source, formulation=formulation)


def solved(
    shell: Shell,
    problem: ProblemOptions,
    search: Search,
    listener: Callable[[Progress], None] | None = None,
    check: Callable[[Instance], None] | None = None,
    **more: Any,
) -> Solution:
    """Solve, with a progress line if it takes long; ``more`` goes to `optsched.solve`.

    Parameters
    ----------
    listener : callable, optional
        Gets the progress as well.
    check : callable, optional
        Refuses an instance before it is solved.
    """
    timer = search.timer
    from optsched import api
    from optsched.solvers.interrupt import keeping_answers

    # Names are checked before anything is read
    api.make_formulation(problem.formulation, problem.options, problem.constraints)
    with progress(shell, "solving", shown=not search.solver_log) as line:
        callbacks = [callback for callback in (listener, line) if callback is not None]

        def on_progress(event: Progress) -> None:
            for callback in callbacks:
                callback(event)

        try:
            with keeping_answers():
                source: str | Instance = problem.instance
                began = time.perf_counter()
                if check is not None:
                    source = api.load(source)
                    check(source)
                read = time.perf_counter() - began
                solution = api.solve(
                    source,
                    problem.formulation,
                    on_progress=on_progress if callbacks else None,
                    **problem.given,
                    **search.limits | {"time_limit": timer},
                    **more,
                )
                taken = {stage: solution.timings[stage] + read for stage in ("load", "total")}
                return replace(solution, timings={**solution.timings, **taken})
        except KeyboardInterrupt:  # while an instance is read there is no point to return
            raise Interrupted(NOTHING_YET) from None


# --- exit codes -----------------------------------------------------------------------------------


def exit_code(solution: Solution | ProgramSolution, require_optimal: bool = False) -> int:
    """The exit code of a solution."""
    from optsched.solution import Status

    # A status has no meaning if its certificate does not hold
    if not solution.certificate.ok:
        return NOT_CERTIFIED
    unproven = NOTHING_FOUND if require_optimal else 0
    # If rows may not fit side by side, the optimum is that of a relaxation
    relaxed = getattr(solution, "packed", None) is not None
    return {
        Status.OPTIMAL: unproven if relaxed else 0,
        Status.FEASIBLE: unproven,
        Status.INFEASIBLE: INFEASIBLE,
        Status.UNBOUNDED: INFEASIBLE,
        Status.LIMIT: NOTHING_FOUND,
    }.get(solution.status, SOLVER_FAILED)


def certificate_failed(shell: Shell, *solutions: Solution | ProgramSolution) -> bool:
    """Whether a certificate failed; its problems are reported, each once."""
    problems = [problem for solution in solutions for problem in solution.certificate.problems]
    # Solutions of one command often fail in the same way
    for problem in dict.fromkeys(problems):
        shell.complain(f"error: the certificate failed: {problem}")
    return not all(solution.certificate.ok for solution in solutions)
