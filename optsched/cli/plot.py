"""``optsched plot``: pictures of solutions and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.options import (
    DEFAULT_FORMULATION,
    NOTHING_FOUND,
    OUTPUT,
    ProblemOptions,
    Search,
    certificate_failed,
    exit_code,
    formulation_option,
    output_option,
    solved,
    with_formulation,
)
from optsched.cli.shell import Shell
from optsched.cli.values import Kind, Name, Picture
from optsched.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from optsched.report import ProgressRecorder
    from optsched.solution import Solution

KINDS = ("allocation", "topology", "gantt", "rounds", "prices", "slices", "progress")


@dataclass(frozen=True)
class Drawn(ProblemOptions):
    """What is to be solved first where no solution is given."""

    formulation: Annotated[
        Name,
        formulation_option(
            "Solve with this one first, where no SOLUTION is given "
            f"(default: that of a library file, else {DEFAULT_FORMULATION})."
        ),
    ] = ""


def plot(
    shell: Shell,
    problem: Drawn,
    search: Search,
    output: Annotated[Picture, output_option("FILE.png, .svg or .pdf.")],
    solution: Annotated[
        str | None,
        Argument("SOLUTION", "Solution file, or - for standard input.", source=True),
    ] = None,
    kind: Annotated[
        str | None,
        Option(
            f"One of {', '.join(KINDS)} (default: slices of a solution with layouts, "
            "gantt of one with a "
            "schedule, else allocation).",
            short="-k",
            section=OUTPUT,
        ),
        Kind(values.choice(*KINDS), "KIND"),
    ] = None,
) -> int:
    """Draw a solution or a cluster:
    allocation, topology, Gantt diagram, rounds, prices, slices of GPUs, progress of the solver.

    Without SOLUTION the instance is solved first. --kind topology without SOLUTION and without -f
    draws the cluster and the running jobs, and solves nothing.

    Exit codes: as for `optsched solve`; 7 also where matplotlib is missing.

    Examples:
        optsched plot @quickstart -o allocation.png
        optsched plot @quickstart --kind topology -o cluster.svg
        optsched plot @quickstart -f makespan --kind prices -o prices.pdf
        optsched plot cluster.json plan.json --kind gantt -o plan.png
        optsched plot cluster.json -f max-throughput -O integral=true --kind progress -o search.png
    """
    _check(problem, search, solution, kind)
    if solution is not None:
        from optsched import api
        from optsched.report import SolutionFile
        from optsched.report.plots import solution_picture

        # A solution file is drawn without solving again
        answer = SolutionFile.read(api.load(problem.instance, problem.model), solution)
        return _save(shell, solution_picture(answer, kind), output)
    if kind == "topology" and not problem.asks_to_solve:
        from optsched import api
        from optsched.report import topology_picture

        return _save(shell, topology_picture(api.load(problem.instance, problem.model)), output)
    return _solve_and_draw(shell, problem, search, output, kind)


def _check(problem: Drawn, search: Search, solution: str | None, kind: str | None) -> None:
    """Refuse contradictory options before anything is read."""
    if solution is None:
        if kind == "topology" and not problem.asks_to_solve and search != Search():
            raise UsageError(
                "--kind topology draws the instance as it is; "
                "name a formulation with -f to solve it"
            )
        return
    if kind == "progress":
        raise UsageError(
            "a solution file holds no progress: leave SOLUTION out, "
            "and the instance is solved again"
        )
    if problem.asks_to_solve or search != Search():
        raise UsageError(
            "options of the problem and of the solver make no sense where SOLUTION is given"
        )


def _solve_and_draw(
    shell: Shell, problem: Drawn, search: Search, output: str, kind: str | None
) -> int:
    from optsched.report import ProgressRecorder
    from optsched.report.plots import completed, solution_picture

    problem = with_formulation(problem)
    # Only a new run of the solver has progress events
    recorder = ProgressRecorder() if kind == "progress" else None
    made = solved(shell, problem, search, recorder)
    code = exit_code(made)
    if certificate_failed(shell, made):
        return code
    if recorder is not None:
        return _save(shell, _progress(made, recorder), output) or code
    if code:
        found = (
            "nothing was found within the limits"
            if code == NOTHING_FOUND
            else f"the solution is {made.status}"
        )
        shell.complain(f"error: {found}: there is nothing to draw")
        return code
    return _save(shell, solution_picture(completed(made, kind), kind), output)


def _progress(solution: Solution, recorder: ProgressRecorder) -> Axes:
    from optsched.report import ProgressLines, progress_picture

    return progress_picture(ProgressLines.of_solution(solution, recorder.events))


def _save(shell: Shell, ax: Axes, output: str) -> int:
    from optsched.report import save_picture

    save_picture(ax, output)
    shell.tell(f"picture written to {output}")
    return 0
