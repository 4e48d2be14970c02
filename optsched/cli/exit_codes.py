"""The exit codes of commands that solve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from optsched.solution import Solution
    from optsched.study.direct import ProgramSolution

INFEASIBLE, NOTHING_FOUND, NOT_CERTIFIED, SOLVER_FAILED = 4, 5, 6, 7


def exit_code(solution: Solution | ProgramSolution, require_optimal: bool = False) -> int:
    """The exit code that a solution stands for."""
    from optsched.solution import Status

    # A status is worth nothing where its certificate does not hold
    if not solution.certificate.ok:
        return NOT_CERTIFIED
    return {
        Status.OPTIMAL: 0,
        Status.FEASIBLE: NOTHING_FOUND if require_optimal else 0,
        Status.INFEASIBLE: INFEASIBLE,
        Status.UNBOUNDED: INFEASIBLE,
        Status.LIMIT: NOTHING_FOUND,
    }.get(solution.status, SOLVER_FAILED)


def certificate_failed(shell: Shell, *solutions: Solution | ProgramSolution) -> bool:
    """Whether a certificate failed; its problems are reported, each once."""
    problems = [problem for solution in solutions for problem in solution.certificate.problems]
    # Several solutions of one command often fail in the same way
    for problem in dict.fromkeys(problems):
        shell.complain(f"error: the certificate failed: {problem}")
    return not all(solution.certificate.ok for solution in solutions)
