"""``optsched solve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from optsched.cli.options import OUTPUT, SOLVER, Json, Problem, Search, solved
from optsched.cli.shell import Shell, check_target

if TYPE_CHECKING:
    from optsched.solution import Solution

INFEASIBLE, NOTHING_FOUND, NOT_CERTIFIED, SOLVER_FAILED = 4, 5, 6, 7

EXAMPLES = """
    optsched solve @quickstart
    optsched solve cluster.json -f makespan -o plan.json
    optsched solve cluster.json -f max-throughput -O integral=true --time-limit 30s
    optsched solve @quickstart -f max-throughput -O integral=true --place
    optsched solve cluster.json -C deadlines:soft=true --json | jq .objective
"""


def solve(
    shell: Shell,
    problem: Problem,
    search: Search,
    require_optimal: Annotated[
        bool,
        typer.Option("--require-optimal", help="Exit 5 if optimality is not proven.", rich_help_panel=SOLVER),
    ] = False,
    place: Annotated[
        bool,
        typer.Option("--place", help="Put what runs first on GPUs of nodes.", rich_help_panel=OUTPUT),
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the solution.", rich_help_panel=OUTPUT)
    ] = None,
    duals: Annotated[
        bool, typer.Option("--duals", help="Write all row duals, however many there are.", rich_help_panel=OUTPUT)
    ] = False,
    as_json: Json = False,
) -> int:
    """Solve an instance with a formulation, and certify the answer.

    Exit codes: 0 solved and certified, 2 usage, 3 invalid input, 4 infeasible or unbounded, 5 nothing found within the
    limits, 6 certificate failed, 7 solver missing or crashed, 130 interrupted.
    """
    check_target(output)
    solution = solved(shell, problem, search)
    code = exit_code(solution, require_optimal)
    if code == NOT_CERTIFIED:
        for problem_found in solution.certificate.problems:
            shell.complain(f"error: the certificate failed: {problem_found}")
        return code
    if place and solution.allocation is not None:
        from optsched import api

        solution = api.place(solution)
    if output is not None and output != "-":
        from optsched.api import write_solution

        write_solution(solution, output, duals)
    if as_json or output == "-":
        shell.document(solution.to_document(duals))
        return code
    if not shell.quiet:
        from optsched.cli.solution_view import solution_view

        shell.print(*solution_view(solution))
        if output is not None:
            shell.tell("")
            shell.tell(f"solution written to {output}")
    return code


def exit_code(solution: Solution, require_optimal: bool = False) -> int:
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
