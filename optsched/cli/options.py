"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from optsched.cli import values

PROBLEM, SOLVER, OUTPUT = "Problem", "Solver and limits", "Output"

Instance = Annotated[
    str, typer.Argument(metavar="INSTANCE", help="File (json, yaml, npz), - for standard input, @name for one that ships.")
]
FormulationName = Annotated[
    str, typer.Option("--formulation", "-f", metavar="NAME", help="See optsched formulations.", rich_help_panel=PROBLEM)
]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-O", metavar="KEY=VALUE", rich_help_panel=PROBLEM,
        help="Option of the formulation: true, false, a number, JSON, else text. Can be repeated.",
    ),
]  # fmt: skip
Constraints = Annotated[
    list[str] | None,
    typer.Option(
        "--constraint", "-C", metavar="KIND[:KEY=VALUE,...]", rich_help_panel=PROBLEM,
        help="Side constraint, beside those of the instance. Can be repeated.",
    ),
]  # fmt: skip
NoClasses = Annotated[
    bool, typer.Option("--no-classes", help="Keep equal jobs apart; the optimum is the same.", rich_help_panel=PROBLEM)
]
SolverName = Annotated[
    str, typer.Option("--solver", metavar="NAME", help="See optsched solvers.", rich_help_panel=SOLVER, show_default=True)
]
TimeLimit = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Stop after 90, 90s, 5m, 2h or 1d with what there is.", rich_help_panel=SOLVER),
]
WorkLimit = Annotated[
    int | None,
    typer.Option(metavar="N", help="Stop after N iterations or nodes: reproducible.", rich_help_panel=SOLVER),
]
Gap = Annotated[
    float | None,
    typer.Option(metavar="G", help="Relative gap at which an integer program may stop.", rich_help_panel=SOLVER),
]
Tolerance = Annotated[
    float,
    typer.Option(metavar="T", help="Feasibility and optimality asked of the solver.", rich_help_panel=SOLVER, show_default="1e-9"),
]
Threads = Annotated[int, typer.Option(metavar="N", help="0: all.", rich_help_panel=SOLVER, show_default=True)]
Seed = Annotated[int, typer.Option(metavar="N", help="Of the solver.", rich_help_panel=SOLVER, show_default=True)]
SolverOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--solver-option", metavar="KEY=VALUE", rich_help_panel=SOLVER,
        help="Option in the solver's own name. Can be repeated.",
    ),
]  # fmt: skip


def formulation_options(texts: list[str] | None) -> dict[str, Any]:
    """What ``-O`` gives."""
    return values.pairs(texts or (), "-O")


def side_constraints(texts: list[str] | None) -> list[dict[str, Any]]:
    """What ``-C`` gives."""
    return [values.constraint(text) for text in texts or ()]
