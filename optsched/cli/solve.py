"""``optsched solve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from optsched.cli import options, values
from optsched.cli.command import JSON
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target

if TYPE_CHECKING:
    from optsched.solution import Solution

INFEASIBLE, NOTHING_FOUND, NOT_CERTIFIED, SOLVER_FAILED = 4, 5, 6, 7

EXAMPLES = """
    optsched solve @quickstart
    optsched solve cluster.json -f makespan -o plan.json
    optsched solve cluster.json -f max-throughput -O integral=true --time-limit 30s
    optsched solve cluster.json -C deadlines:soft=true --json | jq .objective
"""

Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the solution (JSON).", rich_help_panel=options.OUTPUT),
]
Duals = Annotated[
    bool,
    typer.Option("--duals", help="Write all row duals, however many.", rich_help_panel=options.OUTPUT),
]
RequireOptimal = Annotated[
    bool,
    typer.Option("--require-optimal", help="Exit 5 if optimality is not proven.", rich_help_panel=options.SOLVER),
]


def solve(
    shell: Shell,
    instance: options.Instance,
    formulation: options.FormulationName = "max-min-fairness",
    option: options.Options = None,
    constraint: options.Constraints = None,
    no_classes: options.NoClasses = False,
    solver: options.SolverName = "auto",
    time_limit: options.TimeLimit = None,
    work_limit: options.WorkLimit = None,
    gap: options.Gap = None,
    require_optimal: RequireOptimal = False,
    tolerance: options.Tolerance = 1e-9,
    threads: options.Threads = 1,
    seed: options.Seed = 0,
    solver_option: options.SolverOptions = None,
    output: Output = None,
    duals: Duals = False,
    as_json: JSON = False,
) -> int:
    """Solve an instance with a formulation, and certify the answer.

    Exit codes: 0 solved and certified, 3 invalid input, 4 infeasible or unbounded, 5 nothing found within the limits,
    6 certificate failed, 7 solver missing or crashed.
    """
    check_target(output)
    request = options.request(
        shell, instance, formulation, option, constraint, no_classes, solver, time_limit, work_limit, gap, tolerance,
        threads, seed, solver_option,
    )  # fmt: skip
    solution = request()
