"""``optsched solve``: an instance or a program, certified."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from optsched.cli.command import Option
from optsched.cli.options import (
    DEFAULT_FORMULATION,
    OUTPUT,
    SOLVER,
    InstanceOrProgram,
    Json,
    ManyOptions,
    ProblemOptions,
    Search,
    certificate_failed,
    exit_code,
    formulation_option,
    output_option,
    solved,
    with_formulation,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, written_to
from optsched.cli.values import Name, Target
from optsched.errors import (
    Interrupted,
    InvalidArgument,
    OptschedError,
    UsageError,
    wrong_ending,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.solution import Solution
    from optsched.study.direct import ProgramSolution


@dataclass(frozen=True)
class Solved(ProblemOptions):
    """What is to be solved: an instance with a formulation, or a program."""

    instance: InstanceOrProgram
    formulation: Annotated[
        Name,
        formulation_option(
            "See `optsched formulations`.  [default: that of a library file, else "
            f"{DEFAULT_FORMULATION}]"
        ),
    ] = ""


@dataclass(frozen=True)
class RoundsOptions:
    """How an allocation is cut into rounds."""

    section: ClassVar = "Rounds"

    rounds: Annotated[
        str | None,
        Option(
            "Cut the allocation into slices in which whole jobs run: auto, open-shop, patterns or "
            "priority.",
            "METHOD",
        ),
    ] = None
    window: Annotated[
        int | None,
        Option("Length of all slices together, in rounds (default: one per slice; priority: 100)."),
    ] = None

    def check(self) -> None:
        """Refuse wrong values before anything is solved."""
        if self.rounds is None:
            if self.window is not None:
                raise UsageError(
                    "--window says how long the slices of --rounds last: give both, or none"
                )
            return
        from optsched.placement.realisation import METHODS, MOST_ROUNDS

        if self.window is not None and not 1 <= self.window <= MOST_ROUNDS:
            raise InvalidArgument(
                "--window", str(self.window), f"a number from 1 to {MOST_ROUNDS:,}"
            )
        if self.rounds not in METHODS:
            raise InvalidArgument("--rounds", repr(self.rounds), f"one of {', '.join(METHODS)}")

    def cut(self, shell: Shell, solution: Solution, search: Search) -> Solution:
        """The solution with its rounds, made within the remaining time."""
        from optsched import api

        assert self.rounds is not None
        given = {key: search.limits[key] for key in ("threads", "seed") if key in search.limits}
        with progress(shell, "cutting into rounds"):
            return api.realise(
                solution, self.rounds, rounds=self.window, time_limit=search.timer, **given
            )


@dataclass(frozen=True)
class Answers:
    """Where the search begins, and what it has to find."""

    section: ClassVar = SOLVER

    start: Annotated[
        str | None, Option("Solution (json) or point (.sol) to start from.", "FILE")
    ] = None
    generate_columns: Annotated[
        bool,
        Option(
            "Make columns only of pairs of jobs, or configurations, that are worth it; the optimum "
            "is the same."
        ),
    ] = False
    solutions: Annotated[
        int,
        Option(
            "Show the best N solutions in whole jobs that are found; with -o plan.json, "
            "others are written to "
            "plan-2.json, plan-3.json and so on."
        ),
    ] = 1
    require_optimal: Annotated[bool, Option("Exit 5 if optimality is not proven.")] = False


@dataclass(frozen=True)
class SolutionFiles:
    """What is added to the solution, and where it goes."""

    section: ClassVar = OUTPUT

    place: Annotated[bool, Option("Place the rows that run first on GPUs of nodes.")] = False
    output: Annotated[Target | None, output_option("Write the solution (json, or .sol).")] = None
    duals: Annotated[bool, Option("Write all row duals, however many there are.")] = False
    as_json: Json = False

    @property
    def file(self) -> str | None:
        return None if self.output == "-" else self.output

    @property
    def prints_json(self) -> bool:
        return self.as_json or self.output == "-"

    def check(self, solutions: int, read: tuple[str | None, ...]) -> None:
        """Refuse several solutions without a file, and one that would replace a file that is
        read.
        """
        if self.file is None:
            if solutions > 1 and self.prints_json:
                raise UsageError("--solutions writes a file for each solution: give -o FILE")
            return
        sources = {os.path.realpath(source) for source in read if source is not None}
        for number in range(2, solutions + 1):
            path = _beside(self.file, number)
            if os.path.realpath(path) in sources:
                raise InvalidArgument("--solutions", f"{path}, which is read", "another -o FILE")

    def show(
        self,
        shell: Shell,
        solution: Solution | ProgramSolution,
        document: Callable[[], Mapping[str, Any]],
        view: Iterable[RenderableType],
        alternatives: Sequence[Solution] = (),
        notes: Iterable[str] = (),
    ) -> None:
        """Write the solution and its alternatives, and show it."""
        from optsched.solvers.interrupt import interrupt_flag

        with interrupt_flag():  # after a first Ctrl-C the answer found so far is kept
            written = (
                self.file if self.file and _write(shell, solution, self.file, self.duals) else None
            )
            for number, other in enumerate(alternatives if written else (), 2):
                _write(shell, other, _beside(str(written), number), self.duals)
            # Print notes before the tables, which may fill more than a screen
            if not self.prints_json:
                shell.note(notes)
            shell.answer(self.prints_json, document, view, written=written_to(solution=written))


def solve(
    shell: Shell,
    problem: Solved,
    search: Search,
    answers: Answers,
    *,
    running: ManyOptions,
    slices: RoundsOptions,
    files: SolutionFiles,
) -> int:
    """Solve an instance with a formulation, or a program, and certify the answer.

    Exit codes: 0 solved and certified, 2 usage, 3 invalid input, 4 infeasible or unbounded, 5
    nothing found within the limits, 6 certificate failed, 7 solver missing or crashed, 130
    interrupted.

    Examples:
        optsched solve @quickstart
        optsched solve cluster.json -f makespan -o plan.json
        optsched solve cluster.json -f max-throughput -O integral=true --time-limit 30s
        optsched solve cluster.json --rounds auto -o plan.json
        optsched solve @quickstart -f max-throughput -O integral=true --place
        optsched solve cluster.json -O parts=8 --jobs 4
        optsched solve cluster.json -C deadlines:soft=true --json | jq .objective
        optsched solve cluster.json --start yesterday.json -o today.json
        optsched solve model.mps --time-limit 5m -o model.sol
        optsched solve mknapcb1.txt#2 --time-limit 20s
        optsched solve @unrelated -f makespan-unrelated --solutions 3 -o plan.json
    """
    # Start the clock before anything is checked, imported or read
    search.timer  # noqa: B018
    slices.check()
    files.check(answers.solutions, (problem.instance, answers.start))
    from optsched.formats.mps import is_program

    if is_program(problem.instance):
        needs_instance = {
            "--generate-columns needs": answers.generate_columns,
            "--solutions needs": answers.solutions != 1,
            "--rounds and --place need": files.place or slices.rounds is not None,
            "--jobs and --executor need": running != ManyOptions(),
        }
        _check_program(problem, files, needs_instance)
        return _solve_program(shell, problem.instance, search, answers, files)
    return _solve_instance(shell, problem, search, answers, running, slices, files)


def _solve_instance(
    shell: Shell,
    problem: Solved,
    search: Search,
    answers: Answers,
    running: ManyOptions,
    slices: RoundsOptions,
    files: SolutionFiles,
) -> int:
    # The content of a file such as plan.csv would be JSON
    if files.file is not None and Path(files.file).suffix.lower() not in ("", ".json", ".sol"):
        expected = ".json or .sol for a solution; for a table see to_frame()"
        raise wrong_ending(files.file, expected)
    from optsched import api
    from optsched.cli.solution_view import solution_view

    solution = solved(
        shell,
        with_formulation(problem),
        search,
        check=api.check_placeable if files.place else None,
        start=answers.start,
        generate_columns=answers.generate_columns,
        processes=running.jobs,
        executor=running.executor,
        solutions=answers.solutions,
    )
    code = exit_code(solution, answers.require_optimal)
    if certificate_failed(shell, solution):
        return code
    failure = None
    if solution.allocation is not None:
        solution, failure = _with_gpus(shell, solution, search, slices, files.place)
    files.show(
        shell,
        solution,
        partial(solution.to_document, files.duals),
        solution_view(solution),
        solution.alternatives,
        solution.notes,
    )
    return code if failure is None else shell.failed(failure)


def _with_gpus(
    shell: Shell, solution: Solution, search: Search, slices: RoundsOptions, place: bool
) -> tuple[Solution, BaseException | None]:
    """The solution with its rounds and placement, and the error that ended these early.

    In any case, such as Ctrl-C, the solution is kept: it may have taken an hour.
    """
    lacks = "rounds"
    try:
        if slices.rounds is not None:
            solution = slices.cut(shell, solution, search)
        lacks = "placement"
        if place:
            solution = _placed(solution, search)
    except (KeyboardInterrupt, Interrupted):
        return solution, Interrupted(f"interrupted: the solution is there without its {lacks}")
    except OptschedError as error:
        return solution, error
    return solution, None


def _placed(solution: Solution, search: Search) -> Solution:
    """The solution with its placement, made within the remaining time or `LEAST` seconds."""
    from optsched import api
    from optsched.instance.durations import LEAST

    timer = search.timer.keeping(len(solution.instance.jobs_table))
    left = None if search.time_limit is None else max(timer.left, LEAST)
    return api.place(solution, time_limit=left)


def _write(shell: Shell, solution: Any, output: str, duals: bool) -> bool:
    """Write the solution; a file of a point is not written if there is no point."""
    from optsched.api import write_atomically, write_solution
    from optsched.study.direct import ProgramSolution
    from optsched.verify.starts import sol_of

    point = solution.x if isinstance(solution, ProgramSolution) else solution.allocation
    sol = Path(output).suffix.lower() == ".sol"
    if sol and point is None:
        shell.complain(
            f"{output} is not written: there is no point, the status is {solution.status}"
        )
        return False
    if isinstance(solution, ProgramSolution):
        solution.write(output)
    elif sol:
        write_atomically(output, sol_of(solution))
    else:
        write_solution(solution, output, duals)
    return True


def _beside(output: str, number: int) -> str:
    """The file of another solution: ``plan-2.json`` beside ``plan.json``."""
    path = Path(output)
    return str(path.with_name(f"{path.stem}-{number}{path.suffix}"))


# --- programs that no formulation made ------------------------------------------------------------


def _check_program(
    problem: ProblemOptions, files: SolutionFiles, needs_instance: Mapping[str, bool]
) -> None:
    """Refuse options that a program does not have, before it is solved.

    ``needs_instance``: texts of other given options that only an instance can have.
    """
    given = {
        "-f": problem.formulation,
        "-O": problem.options,
        "-C": problem.constraints,
        "--no-classes": problem.no_classes,
        "--model": problem.model,
        "--duals": files.duals,
    }
    wrong = [option for option, value in given.items() if value]
    if wrong:
        verb = "are" if len(wrong) > 1 else "is"
        raise UsageError(
            f"{problem.instance} is a program: {', '.join(wrong)} {verb} for instances"
        )
    for words, asked in needs_instance.items():
        if asked:
            raise UsageError(f"{words} an instance: {problem.instance} is a program")
    if files.file is not None and Path(files.file).suffix.lower() not in (".sol", ".json"):
        raise wrong_ending(files.file, ".sol or .json for the solution of a program")


def _solve_program(
    shell: Shell, program: str, search: Search, answers: Answers, files: SolutionFiles
) -> int:
    from optsched.cli.solution_view import program_view
    from optsched.study.direct import solve_program

    with progress(shell, "solving", shown=not search.solver_log) as on_progress:
        solution = solve_program(
            program,
            start=answers.start,
            on_progress=on_progress,
            **search.limits | {"time_limit": search.timer},
        )
    code = exit_code(solution, answers.require_optimal)
    if certificate_failed(shell, solution):
        return code
    files.show(shell, solution, solution.to_document, program_view(solution))
    return code
