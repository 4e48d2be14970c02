"""``optsched pareto``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import (
    OUTPUT,
    PROBLEM,
    InstanceFile,
    Json,
    ModelFile,
    Search,
    check_inputs,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, check_target
from optsched.cli.solve import NOT_CERTIFIED, NOTHING_FOUND, exit_code
from optsched.errors import InvalidArgument

if TYPE_CHECKING:
    from optsched.sensitivity import Front

EXAMPLES = """
    optsched pareto @quickstart -f max-min-fairness -f max-throughput
    optsched pareto @quickstart -f makespan -f cost --points 21 --plot front.png
    optsched pareto @quickstart -f max-throughput:integral=true -f cost -o front.json
    optsched pareto cluster.json -f proportional-fairness -f makespan -C deadlines --json
"""


@dataclass(frozen=True)
class Trading:
    """What is to be traded against what."""

    instance: InstanceFile
    formulation: Annotated[
        list[str] | None,
        typer.Option(
            "--formulation", "-f", metavar="NAME[:KEY=VALUE,...]", rich_help_panel=PROBLEM, show_default=False,
            help="The two objectives: give it twice. `cost` is what is in use per hour. Formulations of several stages "
            "(finish-time-fairness, water-filling, drf), ratios (throughput-per-cost), rules and plans are refused.",
        ),
    ] = None  # fmt: skip
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint", "-C", metavar="KIND[:KEY=VALUE,...]", rich_help_panel=PROBLEM,
            help="Side constraint of all points, beside those of the instance. Can be repeated.",
        ),
    ] = None  # fmt: skip
    points: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Points, both ends included.",
            rich_help_panel=PROBLEM,
            show_default=True,
        ),
    ] = "11"
    model: ModelFile = None

    @property
    def objectives(self) -> list[tuple[str, dict[str, Any]]]:
        """What -f gives."""
        given = self.formulation or []
        if len(given) != 2:
            raise InvalidArgument("-f", f"{len(given)} objectives", "two: -f NAME -f NAME")
        return [values.named(text, "-f") for text in given]

    @property
    def constraints(self) -> list[dict[str, Any]]:
        """What -C gives."""
        return [values.constraint(text) for text in self.constraint or ()]


def pareto(
    shell: Shell,
    problem: Trading,
    search: Search,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the front.", rich_help_panel=OUTPUT
        ),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw the front (png, svg or pdf).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Find the compromises between two objectives, each one certified.

    The first objective is optimised while the second keeps a level; the levels are equidistant between the two ends,
    at which one objective is as good as can be, and the other as good as that allows. Points that others dominate are
    left out. The second objective must be linear or a minimum. --time-limit is that of the whole front.

    Exit codes: 0 there are points, all certified, else as for `optsched solve`.
    """
    objectives, constraints, count = (
        problem.objectives,
        problem.constraints,
        values.whole(problem.points, "--points"),
    )
    check_target(output)
    check_inputs(instance=problem.instance, model=problem.model)
    if plot is not None:
        from optsched.report.pictures import picture_format, require_matplotlib

        picture_format(plot)
        check_target(plot)
        require_matplotlib()
    from optsched import sensitivity

    assert count is not None
    with progress(shell, "trading", shown=not search.solver_log) as on_progress:
        front = sensitivity.pareto(
            problem.instance,
            objectives,
            points=count,
            constraints=constraints,
            performance=problem.model,
            on_progress=on_progress,
            **search.limits,
        )
    code = _exit_code(shell, front)
    if code == NOT_CERTIFIED:
        return code
    document = front.to_document()
    if output is not None and output != "-":
        from optsched.api import write_atomically
        from optsched.instance.files import pretty_json

        write_atomically(output, pretty_json(document).encode())
    if plot is not None and front.points:
        from optsched.report import front_picture, save_picture

        save_picture(front_picture(front), plot)
    if as_json or output == "-":
        shell.document(document)
    elif not shell.quiet:
        from optsched.cli.pareto_view import pareto_view

        shell.print(*pareto_view(front))
        for file, what in ((output, "front"), (plot if front.points else None, "picture")):
            if file is not None:
                shell.tell("")
                shell.tell(f"{what} written to {file}")
    return code


def _exit_code(shell: Shell, front: Front) -> int:
    """6 if any certificate failed, 0 if there are points, else the code of the end that has no optimum."""
    solutions = [*front.ends, *(point.solution for point in front.points)]
    problems = [wrong for solution in solutions for wrong in solution.certificate.problems]
    for wrong in dict.fromkeys(problems):
        shell.complain(f"error: the certificate failed: {wrong}")
    if problems:
        return NOT_CERTIFIED
    if front.points:
        return 0
    return max((exit_code(end) for end in front.ends), default=0) or (
        NOTHING_FOUND if front.missing else 0
    )
