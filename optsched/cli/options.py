"""Arguments and options that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.errors import UsageError

if TYPE_CHECKING:
    from optsched.solution import Solution
    from optsched.solvers import Progress

PROBLEM, SOLVER, OUTPUT = "Problem", "Solver and limits", "Output"

InstanceFile = Annotated[
    str,
    typer.Argument(
        metavar="INSTANCE",
        help="File (json, yaml, npz), - for standard input, or @name of one that ships.",
    ),
]
ModelFile = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="FILE", rich_help_panel=PROBLEM,
        help="Fitted performance model (`optsched model fit`) in the place of the instance's own.",
    ),
]  # fmt: skip
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON and nothing else.", rich_help_panel=OUTPUT)
]


@dataclass(frozen=True)
class Problem:
    """What is to be solved."""

    instance: InstanceFile
    formulation: Annotated[
        str,
        typer.Option(
            "--formulation", "-f", metavar="NAME", rich_help_panel=PROBLEM, show_default=True,
            help="See `optsched formulations`.",
        ),
    ] = "max-min-fairness"  # fmt: skip
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-O", metavar="KEY=VALUE", rich_help_panel=PROBLEM,
            help="Option of the formulation: true, false, a number, JSON, else text. Can be repeated.",
        ),
    ] = None  # fmt: skip
    constraint: Annotated[
        list[str] | None,
        typer.Option(
            "--constraint", "-C", metavar="KIND[:KEY=VALUE,...]", rich_help_panel=PROBLEM,
            help="Side constraint, beside those of the instance; deadlines and moves replace its own. Can be repeated.",
        ),
    ] = None  # fmt: skip
    no_classes: Annotated[
        bool,
        typer.Option(
            "--no-classes",
            help="Keep equal jobs apart; the optimum is the same.",
            rich_help_panel=PROBLEM,
        ),
    ] = False

    model: ModelFile = None

    @property
    def options(self) -> dict[str, Any]:
        """What -O gives."""
        return values.pairs(self.option or (), "-O")

    @property
    def constraints(self) -> list[dict[str, Any]]:
        """What -C gives."""
        return [values.constraint(text) for text in self.constraint or ()]


@dataclass(frozen=True)
class Search:
    """With what, and how long."""

    solver: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="See `optsched solvers`.",
            rich_help_panel=SOLVER,
            show_default=True,
        ),
    ] = "auto"
    time_limit: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Stop after 90, 90s, 5m, 2h or 1d with what there is.",
            rich_help_panel=SOLVER,
        ),
    ] = None
    work_limit: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Stop after N iterations, nodes, or conflicts (cp-sat): reproducible.",
            rich_help_panel=SOLVER,
        ),
    ] = None
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="G",
            help="Relative gap at which an integer program may stop.",
            rich_help_panel=SOLVER,
        ),
    ] = None
    tolerance: Annotated[
        str,
        typer.Option(
            metavar="T",
            help="Feasibility and optimality asked of the solver.",
            rich_help_panel=SOLVER,
            show_default=True,
        ),
    ] = "1e-9"
    threads: Annotated[
        str,
        typer.Option(
            metavar="N", help="Of the solver; 0: all.", rich_help_panel=SOLVER, show_default=True
        ),
    ] = "1"
    seed: Annotated[
        str,
        typer.Option(metavar="N", help="Of the solver.", rich_help_panel=SOLVER, show_default=True),
    ] = "0"
    prove: Annotated[
        bool,
        typer.Option(
            "--prove", rich_help_panel=SOLVER, show_default=False,
            help="Try a claim of optimality again with another solver or search.",
        ),
    ] = False  # fmt: skip
    solver_option: Annotated[
        list[str] | None,
        typer.Option(
            "--solver-option", metavar="KEY=VALUE", rich_help_panel=SOLVER,
            help="Option in the solver's own name. Can be repeated.",
        ),
    ] = None  # fmt: skip

    solver_log: Annotated[
        bool,
        typer.Option(
            "--solver-log", help="The solver's own log on standard error.", rich_help_panel=SOLVER
        ),
    ] = False

    @property
    def limits(self) -> dict[str, Any]:
        """What `optsched.solve` takes of it."""
        return {
            **({"on_log": raw_log} if self.solver_log else {}),
            "solver": self.solver,
            "time_limit": values.duration(self.time_limit, "--time-limit"),
            "work_limit": values.whole(self.work_limit, "--work-limit"),
            "gap": values.real(self.gap, "--gap"),
            "prove": self.prove,
            "tolerance": values.real(self.tolerance, "--tolerance"),
            "threads": values.whole(self.threads, "--threads"),
            "seed": values.whole(self.seed, "--seed"),
            "solver_options": values.pairs(self.solver_option or (), "--solver-option"),
        }


def check_inputs(**sources: str | None) -> None:
    """Refuse to read two things from standard input."""
    piped = [what for what, source in sources.items() if source == "-"]
    if len(piped) > 1:
        raise UsageError(f"the {piped[0]} and the {piped[1]} cannot both come from standard input")


def raw_log(text: str) -> None:
    """Write the log of a solver as it is to standard error."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def solved(
    shell: Shell,
    problem: Problem,
    search: Search,
    listener: Callable[[Progress], None] | None = None,
    **more: Any,
) -> Solution:
    """Solve, with a progress line if it takes long; a listener hears of the progress too.

    ``more`` goes to `optsched.solve`.
    """
    options, constraints, limits = problem.options, problem.constraints, search.limits
    from optsched import api

    check_inputs(instance=problem.instance, model=problem.model)
    api.make_formulation(
        problem.formulation, options, constraints
    )  # names are checked before anything is read
    with progress(shell, "solving", shown=not search.solver_log) as line:
        return api.solve(
            problem.instance,
            problem.formulation,
            constraints=constraints,
            performance=problem.model,
            classes=not problem.no_classes,
            on_progress=line if listener is None else _both(listener, line),
            options=options,
            **limits,
            **more,
        )


def _both(
    listener: Callable[[Progress], None], line: Callable[[Progress], None] | None
) -> Callable[[Progress], None]:
    """A callback that passes events on to a listener, and to the progress line if there is one."""

    def tell(event: Progress) -> None:
        listener(event)
        if line is not None:
            line(event)

    return tell
