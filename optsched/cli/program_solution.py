"""``optsched solve MODEL.mps``: a program that no formulation made, solved and shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from optsched.cli.options import Problem, Search
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.cli.solution_view import (
    certificate_words,
    explanation_words,
    objective_facts,
    solver_facts,
    status_words,
    time_words,
)
from optsched.cli.tables import bullets, count, facts, heading, listed, more, name, number, table
from optsched.errors import UsageError, wrong_ending
from optsched.solution.explanation import Explanation

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from optsched.study.direct import ProgramSolution

# Columns of the point that the table has.
SHOWN = 40


def solve_program_file(
    shell: Shell,
    problem: Problem,
    search: Search,
    start: str | None,
    output: str | None,
    *,
    duals: bool,
    needs_instance: Mapping[str, bool],
) -> ProgramSolution:
    """Solve the program of a file, with a progress line if it takes long.

    ``needs_instance`` says which further options, in words, were given that only an instance can have.
    """
    from optsched.study.direct import solve_program

    _check_options(problem, output, duals)
    for words, given in needs_instance.items():
        if given:
            raise UsageError(f"{words} an instance: {problem.instance} is a program")
    with progress(shell, "solving", shown=not search.solver_log) as on_progress:
        return solve_program(
            problem.instance,
            start=start,
            on_progress=on_progress,
            **search.limits | {"time_limit": search.deadline},
        )


def _check_options(problem: Problem, output: str | None, duals: bool) -> None:
    """Refuse options that a program does not have."""
    given = {
        "-f": problem.formulation,
        "-O": problem.options,
        "-C": problem.constraints,
        "--no-classes": problem.no_classes,
        "--model": problem.model,
        "--duals": duals,
    }
    wrong = [option for option, value in given.items() if value]
    if wrong:
        verb = "are" if len(wrong) > 1 else "is"
        raise UsageError(
            f"{problem.instance} is a program: {', '.join(wrong)} {verb} for instances"
        )
    if output is None or output == "-":
        return
    if Path(output).suffix.lower() not in (".sol", ".json"):
        raise wrong_ending(output, ".sol or .json for the solution of a program")


def program_view(solution: ProgramSolution) -> Iterator[RenderableType]:
    """Heading, result, the columns that are not 0, rows that cannot all hold."""
    rows, columns = solution.arrays.shape
    integer = int(solution.arrays.integer.sum())
    sense = "maximise" if solution.arrays.maximise else "minimise"
    yield heading(name(solution.name))
    kind = f" ({integer:,} integer)" if integer else ""
    size = count(solution.arrays.A.nnz, "coefficient")
    yield f"{sense}: {count(rows, 'row')}, {count(columns, 'column')}{kind}, {size}"
    yield ""
    yield facts(_facts(solution))
    if solution.x is not None:
        used = [(key, value) for key, value in solution.values.items() if value != 0]
        cells = [[name(key), number(value)] for key, value in used[:SHOWN]]
        if cells:
            yield table(
                "column",
                "value",
                rows=cells,
                title=f"Columns that are not 0: {len(used):,} of {columns:,}",
            )
        yield from more(len(used) - SHOWN)
    if solution.conflicts:
        yield ""
        yield heading("These rows cannot all hold:")
        yield bullets([listed(solution.conflicts, most=SHOWN)])
    if solution.outcome.explanation is not Explanation.IRREDUCIBLE:
        yield explanation_words(solution.outcome.explanation, bool(solution.conflicts))


def _facts(solution: ProgramSolution) -> Iterator[tuple[str, str | Text]]:
    yield "status", status_words(solution.status, solution.termination, "point")
    yield from objective_facts(solution)
    yield (
        "certificate",
        certificate_words(solution.certificate, solution.status, solution.x is not None, "point"),
    )
    yield from solver_facts(solution.solver)
    yield "time", time_words(solution.timings)
