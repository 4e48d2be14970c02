"""``optsched pareto``: the front of two objectives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar

from optsched.cli.command import Option
from optsched.cli.options import (
    NOT_CERTIFIED,
    NOTHING_FOUND,
    OUTPUT,
    PROBLEM,
    InstanceFile,
    Json,
    ManyOptions,
    ModelFile,
    Search,
    certificate_failed,
    constraints_option,
    exit_code,
    formulations_option,
    output_option,
)
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, write_document, written_to
from optsched.cli.values import Constraints, JsonTarget, NamedList, Picture
from optsched.errors import InvalidArgument

if TYPE_CHECKING:
    from optsched.sensitivity import Front


@dataclass(frozen=True)
class Objectives:
    """The two objectives, and under what constraints."""

    section: ClassVar = PROBLEM

    instance: InstanceFile
    objectives: Annotated[
        NamedList,
        formulations_option(
            "The two objectives: give the option twice. `cost` is the cost per hour. "
            "Formulations of "
            "several stages (finish-time-fairness, water-filling, drf), ratios "
            "(throughput-per-cost), rules and plans are refused."
        ),
    ] = field(default_factory=list)
    constraints: Annotated[
        Constraints,
        constraints_option(
            "Side constraint of all points, in addition to those of the instance. Can be repeated."
        ),
    ] = field(default_factory=list)
    points: Annotated[int, Option("Points, both ends included.")] = 11
    model: ModelFile = None


def pareto(
    shell: Shell,
    problem: Objectives,
    search: Search,
    running: ManyOptions,
    output: Annotated[JsonTarget | None, output_option("Write the front.")] = None,
    plot: Annotated[
        Picture | None, Option("Draw the front (png, svg or pdf).", section=OUTPUT)
    ] = None,
    as_json: Json = False,
) -> int:
    """Compute a Pareto front of two objectives, every point certified.

    The first objective is optimised while the second keeps at least a level; the levels are
    equidistant between the two lexicographic optima. Dominated points are left out. The second
    objective must be linear or a minimum. --time-limit is for the whole front.

    Exit codes: 0 there are points, all certified, or no job is in the program; else as for
    `optsched solve`.

    Examples:
        optsched pareto @quickstart -f max-min-fairness -f max-throughput
        optsched pareto @quickstart -f makespan -f cost --points 21 --plot front.png
        optsched pareto @quickstart -f max-throughput:integral=true -f cost -o front.json
        optsched pareto @large -f makespan -f cost --points 41 --jobs 2
        optsched pareto cluster.json -f proportional-fairness -f makespan -C deadlines --json
    """
    if len(problem.objectives) != 2:
        found = f"{len(problem.objectives)} objectives"
        raise InvalidArgument("-f", found, "two: -f NAME -f NAME")
    from optsched import sensitivity
    from optsched.cli.comparison_view import pareto_view

    with progress(shell, "trading", shown=not search.solver_log) as on_progress:
        front = sensitivity.pareto(
            problem.instance,
            problem.objectives,
            points=problem.points,
            constraints=problem.constraints,
            performance=problem.model,
            processes=running.jobs,
            executor=running.executor,
            on_progress=on_progress,
            **search.limits,
        )
    code = _exit_code(shell, front)
    if code == NOT_CERTIFIED:
        return code
    write_document(front.to_document, output)
    picture = plot if front.points else None
    if picture is not None:
        front.plot().save(picture)
    shell.answer(
        as_json or output == "-",
        front.to_document,
        pareto_view(front),
        written=[*written_to(front=output), *written_to(picture=picture)],
    )
    return code


def _exit_code(shell: Shell, front: Front) -> int:
    """6 if any certificate failed, 0 if there are points, else the code of an end without an
    optimum.
    """
    if certificate_failed(shell, *front.ends, *(point.solution for point in front.points)):
        return NOT_CERTIFIED
    if front.points:
        return 0
    # Without points the ends have the reason
    worst = max((exit_code(end) for end in front.ends), default=0)
    return worst or (NOTHING_FOUND if front.missing else 0)
