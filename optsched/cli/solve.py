"""``optsched solve``: an instance or a program, certified."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
from optsched.cli.values import Target
from optsched.errors import (
    Interrupted,
    InvalidArgument,
    OptschedError,
    UsageError,
    wrong_ending,
)

if TYPE_CHECKING:
    from optsched.solution import Solution
    from optsched.study.direct import ProgramSolution


@dataclass(frozen=True)
class Solved(ProblemOptions):
    """What is to be solved: an instance with a formulation, or a program."""

    instance: InstanceOrProgram
    formulation: Annotated[
        str,
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


def solve(
    shell: Shell,
    problem: Solved,
    search: Search,
    start: Annotated[
        str | None,
        Option("Solution (json) or point (.sol) to start from.", "FILE", section=SOLVER),
    ] = None,
    generate_columns: Annotated[
        bool,
        Option(
            "Make columns only of pairs of jobs, or configurations, that are worth it; the optimum "
            "is the same.",
            section=SOLVER,
        ),
    ] = False,
    solutions: Annotated[
        int,
        Option(
            "Show the best N solutions in whole jobs that are found; with -o plan.json, others are written to "
            "plan-2.json, plan-3.json and so on.  [default: 1]",
            section=SOLVER,
        ),
    ] = 1,
    require_optimal: Annotated[
        bool, Option("Exit 5 if optimality is not proven.", section=SOLVER)
    ] = False,
    *,
    running: ManyOptions,
    slices: RoundsOptions,
    place: Annotated[
        bool, Option("Place the rows that run first on GPUs of nodes.", section=OUTPUT)
    ] = False,
    output: Annotated[Target | None, output_option("Write the solution (json, or .sol).")] = None,
    duals: Annotated[
        bool, Option("Write all row duals, however many there are.", section=OUTPUT)
    ] = False,
    as_json: Json = False,
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
    if solutions > 1 and (output == "-" or (as_json and output is None)):
        raise UsageError("--solutions writes a file for each solution: give -o FILE")
    if output is not None and output != "-":
        _check_others(output, solutions, (problem.instance, start))
    from optsched import api
    from optsched.cli.solution_view import program_view, solution_view
    from optsched.formats.mps import is_program
    from optsched.solvers.interrupt import interrupt_flag

    program = is_program(problem.instance)
    solution: Any
    if program:
        needs_instance = {
            "--generate-columns needs": generate_columns,
            "--solutions needs": solutions != 1,
            "--rounds and --place need": place or slices.rounds is not None,
            "--jobs and --executor need": running != ManyOptions(),
        }
        _check_program(problem, output, duals, needs_instance)
        solution = _solve_program(shell, problem.instance, search, start)
    else:
        _check_ending(output)
        chosen = with_formulation(problem)
        solution = solved(
            shell, chosen, search, check=api.check_placeable if place else None,
            start=start, generate_columns=generate_columns,
            processes=running.jobs, executor=running.executor,
            solutions=solutions,
        )  # fmt: skip
    code = exit_code(solution, require_optimal)
    if certificate_failed(shell, solution):
        return code
    failure = None
    if not program and solution.allocation is not None:
        solution, failure = _with_gpus(shell, solution, search, slices, place)
    as_json = as_json or output == "-"
    with interrupt_flag():  # after a first Ctrl-C the answer found so far is kept
        written = output is not None and output != "-" and _write(shell, solution, output, duals)
        if written and output is not None and not program:
            for number, other in enumerate(solution.alternatives, 2):
                _write(shell, other, _beside(output, number), duals)
        # Print it before the tables, which may fill more than a screen
        if not (as_json or program):
            shell.note(solution.notes)
        shell.answer(
            as_json,
            solution.to_document if program else partial(solution.to_document, duals),
            program_view(solution) if program else solution_view(solution),
            written=written_to(solution=output if written else None),
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


def _check_others(output: str, solutions: int, read: tuple[str | None, ...]) -> None:
    """Refuse to write another solution over a file that is read."""
    sources = {os.path.realpath(source) for source in read if source is not None}
    for number in range(2, solutions + 1):
        path = _beside(output, number)
        if os.path.realpath(path) in sources:
            raise InvalidArgument("--solutions", f"{path}, which is read", "another -o FILE")


def _beside(output: str, number: int) -> str:
    """The file of another solution: ``plan-2.json`` beside ``plan.json``."""
    path = Path(output)
    return str(path.with_name(f"{path.stem}-{number}{path.suffix}"))


def _check_ending(output: str | None) -> None:
    """Refuse a file such as ``plan.csv`` before anything is solved:
    its content would be JSON.
    """
    ending = "" if output is None else Path(output).suffix.lower()
    if output is not None and ending not in ("", ".json", ".sol"):
        raise wrong_ending(output, ".json or .sol for a solution; for a table see to_frame()")


# --- programs that no formulation made ------------------------------------------------------------


def _check_program(
    problem: ProblemOptions, output: str | None, duals: bool, needs_instance: Mapping[str, bool]
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
        "--duals": duals,
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
    if output is None or output == "-":
        return
    if Path(output).suffix.lower() not in (".sol", ".json"):
        raise wrong_ending(output, ".sol or .json for the solution of a program")


def _solve_program(
    shell: Shell, program: str, search: Search, start: str | None
) -> ProgramSolution:
    from optsched.study.direct import solve_program

    with progress(shell, "solving", shown=not search.solver_log) as on_progress:
        return solve_program(
            program,
            start=start,
            on_progress=on_progress,
            **search.limits | {"time_limit": search.timer},
        )
