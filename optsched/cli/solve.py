"""``optsched solve``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import OUTPUT, PROBLEM, SOLVER, Json, Problem, Search, solved
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from optsched.solution import Solution
    from optsched.study.direct import ProgramSolution

ROUNDS = "Rounds"
DEFAULT = "max-min-fairness"
INFEASIBLE, NOTHING_FOUND, NOT_CERTIFIED, SOLVER_FAILED = 4, 5, 6, 7

EXAMPLES = """
    optsched solve @quickstart
    optsched solve cluster.json -f makespan -o plan.json
    optsched solve cluster.json -f max-throughput -O integral=true --time-limit 30s
    optsched solve cluster.json --rounds auto -o plan.json
    optsched solve @quickstart -f max-throughput -O integral=true --place
    optsched solve cluster.json -C deadlines:soft=true --json | jq .objective
    optsched solve cluster.json --start yesterday.json -o today.json
    optsched solve model.mps --time-limit 5m -o model.sol
"""


@dataclass(frozen=True)
class Solved(Problem):
    """What is to be solved: an instance with a formulation, or a program."""

    instance: Annotated[
        str,
        typer.Argument(
            metavar="INSTANCE",
            help="File (json, yaml, npz), - for standard input, @name of one that ships; or a program (mps, lp, .gz).",
        ),
    ]
    formulation: Annotated[
        str,
        typer.Option(
            "--formulation", "-f", metavar="NAME", rich_help_panel=PROBLEM, show_default=False,
            help=f"See `optsched formulations`.  [default: {DEFAULT}]",
        ),
    ] = ""  # fmt: skip


def solve(
    shell: Shell,
    problem: Solved,
    search: Search,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Solution (json) or point (.sol) to start from.",
            rich_help_panel=SOLVER,
        ),
    ] = None,
    generate_columns: Annotated[
        bool,
        typer.Option(
            "--generate-columns",
            help="Make columns only of pairs of jobs, or configurations, that are worth it; the optimum is the same.",
            rich_help_panel=SOLVER,
        ),
    ] = False,
    require_optimal: Annotated[
        bool,
        typer.Option(
            "--require-optimal", help="Exit 5 if optimality is not proven.", rich_help_panel=SOLVER
        ),
    ] = False,
    rounds: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD",
            rich_help_panel=ROUNDS,
            help="Cut the allocation into slices in which whole jobs run: auto, open-shop, patterns or priority.",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=ROUNDS,
            help="Rounds that the slices last together (default: one per slice; by priority: 100).",
        ),
    ] = None,
    place: Annotated[
        bool,
        typer.Option(
            "--place", help="Put what runs first on GPUs of nodes.", rich_help_panel=OUTPUT
        ),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write the solution (json, or .sol).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    duals: Annotated[
        bool,
        typer.Option(
            "--duals", help="Write all row duals, however many there are.", rich_help_panel=OUTPUT
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Solve an instance with a formulation, or a program, and certify the answer.

    Exit codes: 0 solved and certified, 2 usage, 3 invalid input, 4 infeasible or unbounded, 5 nothing found within the
    limits, 6 certificate failed, 7 solver missing or crashed, 130 interrupted.
    """
    check_target(output)
    cut = _cut(rounds, window)
    from optsched.formats.mps import is_program

    program = is_program(problem.instance)
    if program:
        from optsched.cli.program_solution import check_options, solve_file

        check_options(problem, duals, output)
        if generate_columns:
            raise UsageError(
                f"--generate-columns needs an instance: {problem.instance} is a program"
            )
        if cut is not None or place:
            raise UsageError(
                f"--rounds and --place need an instance: {problem.instance} is a program"
            )
        solution: Any = solve_file(shell, problem.instance, search, start)
    else:
        chosen = replace(problem, formulation=problem.formulation or DEFAULT)
        solution = solved(shell, chosen, search, start=start, generate_columns=generate_columns)
        if cut is not None and solution.allocation is not None and solution.certificate.ok:
            with progress(shell, "cutting into rounds"):
                solution = cut(solution, search)
    code = exit_code(solution, require_optimal)
    if code == NOT_CERTIFIED:
        for problem_found in solution.certificate.problems:
            shell.complain(f"error: the certificate failed: {problem_found}")
        return code
    if place and solution.allocation is not None:
        from optsched import api

        solution = api.place(solution)
    written = output is not None and output != "-" and _write(shell, solution, output, duals)
    if as_json or output == "-":
        shell.document(solution.to_document() if program else solution.to_document(duals))
        return code
    if not shell.quiet:
        shell.note(
            () if program else solution.notes
        )  # before the tables, which may fill more than a screen
        _show(shell, solution, program)
        if written:
            shell.tell("")
            shell.tell(f"solution written to {output}")
    return code


def _cut(method: str | None, window: str | None) -> Callable[[Solution, Search], Solution] | None:
    """What cuts a solution into rounds, within what is left of the time; wrong values are refused before solving."""
    number = values.whole(window, "--window")
    if method is None:
        if number is not None:
            raise UsageError(
                "--window says how long the slices of --rounds last: give both, or none"
            )
        return None
    from optsched.placement.realisation import METHODS, MOST_ROUNDS

    if number is not None and not 1 <= number <= MOST_ROUNDS:
        raise InvalidArgument("--window", str(number), f"a number from 1 to {MOST_ROUNDS:,}")

    if method not in METHODS:
        raise InvalidArgument("--rounds", repr(method), f"one of {', '.join(METHODS)}")

    def cut(solution: Solution, search: Search) -> Solution:
        from optsched import api

        limits = search.limits
        limit, spent = limits["time_limit"], solution.timings.get("total", 0.0)
        left = None if limit is None else max(limit - spent, 1e-3)
        return api.realise(
            solution,
            method,
            rounds=number,
            time_limit=left,
            threads=limits["threads"],
            seed=limits["seed"],
        )

    return cut


def _write(shell: Shell, solution: Any, output: str, duals: bool) -> bool:
    """Write what was found; a file of a point is not written where there is none."""
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


def _show(shell: Shell, solution: Any, program: bool) -> None:
    if program:
        from optsched.cli.program_solution import program_view

        shell.print(*program_view(solution))
    else:
        from optsched.cli.solution_view import solution_view

        shell.print(*solution_view(solution))


def exit_code(solution: Solution | ProgramSolution, require_optimal: bool = False) -> int:
    """The exit code that a solution stands for."""
    from optsched.solution import Status

    if not solution.certificate.ok:
        return NOT_CERTIFIED
    return {
        Status.OPTIMAL: 0,
        Status.FEASIBLE: NOTHING_FOUND if require_optimal else 0,
        Status.INFEASIBLE: INFEASIBLE,
        Status.UNBOUNDED: INFEASIBLE,
        Status.LIMIT: NOTHING_FOUND,
    }.get(solution.status, SOLVER_FAILED)
