"""Arguments and options that several commands share."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from optsched.cli import values
from optsched.cli.command import Argument, Option
from optsched.cli.progress import progress
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from optsched.instance.durations import Deadline
    from optsched.solution import Solution
    from optsched.solvers import Progress

PROBLEM, SOLVER, OUTPUT = "Problem", "Solver and limits", "Output"
DEFAULT_FORMULATION = "max-min-fairness"

InstanceFile = Annotated[
    str,
    Argument(
        "INSTANCE",
        "File (json, yaml, npz), - for standard input, or @name of one that ships.",
        source=True,
    ),
]
InstanceOrProgram = Annotated[
    str,
    Argument(
        "INSTANCE",
        "File (json, yaml, npz), - for standard input, @name of one that ships; "
        "or a program (mps, lp, .gz).",
        source=True,
    ),
]
ModelFile = Annotated[
    str | None,
    Option(
        "Fitted performance model (`optsched model fit`) in the place of the instance's own.",
        "FILE",
        section=PROBLEM,
        source=True,
    ),
]
Json = Annotated[bool, Option("Print JSON and nothing else.", flag="--json", section=OUTPUT)]


def formulation_option(help: str) -> Option:
    """-f NAME."""
    return Option(help, "NAME", short="-f", section=PROBLEM)


def formulations_option(help: str) -> Option:
    """-f NAME:KEY=VALUE, more than once."""
    return Option(
        help,
        "NAME[:KEY=VALUE,...]",
        flag="--formulation",
        short="-f",
        section=PROBLEM,
        read=values.named_each,
        many=True,
    )


def settings_option(help: str, section: str = PROBLEM) -> Option:
    """-O KEY=VALUE, more than once."""
    return Option(
        help,
        "KEY=VALUE",
        flag="--option",
        short="-O",
        section=section,
        read=values.pairs,
        many=True,
    )


def constraints_option(help: str) -> Option:
    """-C KIND:KEY=VALUE, more than once."""
    return Option(
        help,
        "KIND[:KEY=VALUE,...]",
        flag="--constraint",
        short="-C",
        section=PROBLEM,
        read=values.constraints,
        many=True,
    )


def output_option(help: str) -> Option:
    """-o FILE, which is checked before any work is done."""
    return Option(help, "FILE", short="-o", section=OUTPUT, read=values.target)


SolverOptions = Annotated[
    dict[str, Any],
    Option(
        "Option in the solver's own name. Can be repeated.",
        "KEY=VALUE",
        flag="--solver-option",
        section=SOLVER,
        read=values.pairs,
        many=True,
    ),
]


@dataclass(frozen=True)
class Problem:
    """What is to be solved."""

    section: ClassVar = PROBLEM

    instance: InstanceFile
    formulation: Annotated[str, formulation_option("See `optsched formulations`.")] = (
        DEFAULT_FORMULATION
    )
    options: Annotated[
        dict[str, Any],
        settings_option(
            "Option of the formulation: true, false, a number, JSON, else text. Can be repeated."
        ),
    ] = field(default_factory=dict)
    constraints: Annotated[
        list[dict[str, Any]],
        constraints_option(
            "Side constraint, beside those of the instance; deadlines and moves replace its own. "
            "Can be repeated."
        ),
    ] = field(default_factory=list)
    no_classes: Annotated[bool, Option("Keep equal jobs apart; the optimum is the same.")] = False
    model: ModelFile = None

    @property
    def given(self) -> dict[str, Any]:
        """The problem in the words of `optsched.solve`, without instance and formulation."""
        return {
            "options": self.options,
            "constraints": self.constraints,
            "classes": not self.no_classes,
            "performance": self.model,
        }

    @property
    def asks_to_solve(self) -> bool:
        """Whether an option of the problem was given, where no formulation is the default."""
        return bool(self.formulation or self.options or self.constraints or self.no_classes)


@dataclass(frozen=True)
class Search:
    """With what, and how long; the fields are keywords of `optsched.solve`."""

    section: ClassVar = SOLVER

    solver: Annotated[str, Option("See `optsched solvers`.", "NAME")] = "auto"
    time_limit: Annotated[
        float | None,
        Option(
            "Stop after 90, 90s, 5m, 2h or 1d with what there is.", "TIME", read=values.duration
        ),
    ] = None
    work_limit: Annotated[
        int | None,
        Option("Stop after N iterations, nodes, or conflicts (cp-sat): reproducible.", "N"),
    ] = None
    gap: Annotated[
        float | None, Option("Relative gap at which an integer program may stop.", "G")
    ] = None
    tolerance: Annotated[
        float,
        Option("Feasibility and optimality asked of the solver.", "T", default="1e-9"),
    ] = 1e-9
    threads: Annotated[int, Option("Of the solver; 0: all.", "N")] = 1
    seed: Annotated[int, Option("Of the solver.", "N")] = 0
    prove: Annotated[
        bool, Option("Try a claim of optimality again with another solver or search.")
    ] = False
    solver_options: SolverOptions = field(default_factory=dict)
    solver_log: Annotated[bool, Option("The solver's own log on standard error.")] = False

    @cached_property
    def deadline(self) -> Deadline:
        """When the answer of a single solve is due; the clock starts where a command first asks."""
        # Importing the library takes part of the time as well
        began = time.monotonic()
        from optsched.instance.durations import Deadline

        return Deadline(self.time_limit, began)

    @property
    def limits(self) -> dict[str, Any]:
        """What `optsched.solve` takes of it; the time limit is that of each call."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        # The library takes a function for the log, not a switch
        if given.pop("solver_log"):
            given["on_log"] = write_log
        return given


def write_log(text: str) -> None:
    """Write the log of a solver as it is to standard error."""
    with suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def given_fields(options: Any, *without: str) -> dict[str, Any]:
    """The fields of a dataclass of options that were given on the command line."""
    # An option that is not given is None, False or empty, whatever its type
    found = {item.name: getattr(options, item.name) for item in fields(options)}
    return {
        name: value
        for name, value in found.items()
        if name not in without and not (value is None or value is False or value == {})
    }


def solved(
    shell: Shell,
    problem: Problem,
    search: Search,
    listener: Callable[[Progress], None] | None = None,
    **more: Any,
) -> Solution:
    """Solve, with a progress line if it takes long; ``more`` goes to `optsched.solve`.

    Parameters
    ----------
    listener : callable, optional
        Gets the progress as well.
    """
    deadline = search.deadline
    from optsched import api

    # Names are checked before anything is read.
    api.make_formulation(problem.formulation, problem.options, problem.constraints)
    with progress(shell, "solving", shown=not search.solver_log) as line:
        callbacks = [callback for callback in (listener, line) if callback is not None]

        def on_progress(event: Progress) -> None:
            for callback in callbacks:
                callback(event)

        return api.solve(
            problem.instance,
            problem.formulation,
            on_progress=on_progress if callbacks else None,
            **problem.given,
            **search.limits | {"time_limit": deadline},
            **more,
        )
