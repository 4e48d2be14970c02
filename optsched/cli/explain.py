"""``optsched explain``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli.command import Option
from optsched.cli.exit_codes import certificate_failed, exit_code
from optsched.cli.options import OUTPUT, Json, Problem, Search, solved
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from rich.console import RenderableType

    from optsched.solution import Solution

EXAMPLES = """
    optsched explain @quickstart
    optsched explain @infeasible -f makespan
    optsched explain cluster.json -C deadlines --json | jq .holding
    optsched explain @quickstart -f makespan --job gpt-2-small-6
"""

SHOWN = 20


def explain(
    shell: Shell,
    problem: Problem,
    search: Search,
    job: Annotated[
        str | None,
        Option("One job: what it gets, what it pays, what else.", "ID", section=OUTPUT),
    ] = None,
    as_json: Json = False,
) -> int:
    """Solve an instance, and say why the answer is what it is.

    Infeasible: the requirements that conflict. Optimal: what one more GPU of each pool is worth, which jobs hold the
    level down, which requirements cost something. Always: jobs without a place, and why. With --job: what one job gets
    and pays, the rows that hold it, and what each other way to run would cost.

    Exit codes: as for `optsched solve`.
    """
    from optsched.cli.explanation import explanation
    from optsched.cli.job_view import job_view
    from optsched.study.explaining import explain_job

    solution = solved(shell, problem, search)
    code = exit_code(solution)
    # Nothing is explained of an answer that does not hold
    if certificate_failed(shell, solution):
        return code
    if job is None:
        document = explanation(solution)
        shell.answer(as_json, lambda: document, _view(solution, document), solution.notes)
    else:
        found = explain_job(solution, job)
        shell.answer(as_json, found.to_document, job_view(found), solution.notes)
    return code


def _view(solution: Solution, document: Mapping[str, Any]) -> Iterator[RenderableType]:
    from optsched.cli import solution_view as view
    from optsched.cli.solution_view import idle_jobs
    from optsched.cli.tables import facts

    yield from view.title(solution, view.classes_of(solution))
    shown = ("options", "constraints", "status", "objective", "bound")
    yield facts((key, words) for key, words in view.result_facts(solution) if key in shown)
    if solution.allocation is not None:
        yield from _pools(solution)
        yield from _holding(solution, document["holding"])
        yield from _requirements(document["requirements"])
        # Jobs of a schedule may run later
        if solution.schedule is None:
            yield from idle_jobs(solution.allocation)
    yield from view.unplaced(solution.unplaced)
    yield from view.unplaced(solution.declined, "Not admitted")
    yield from view.conflicts(solution)


def _pools(solution: Solution) -> Iterator[RenderableType]:
    from optsched.cli.solution_view import resource_tables
    from optsched.cli.tables import listed
    from optsched.solution import Status

    yield from resource_tables(solution)
    if solution.status is not Status.OPTIMAL:
        yield "Prices are told of optimal solutions only."
        return
    if not solution.prices:
        yield "An integer program or a rule has no prices."
        return
    # A price of 0 is an answer too: more of this resource would not help
    free = [name for name, price in solution.prices.items() if price == 0]
    if 0 < len(free) < len(solution.prices):
        yield f"More of {listed(free)} would not help."


def _holding(solution: Solution, holding: list[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Jobs whose level is the smallest, by how much of the objective hangs on them."""
    from optsched.cli.tables import heading, more, name, percent, rounded, table
    from optsched.registry import objective_words

    if not holding:
        return
    words, _ = objective_words(solution.formulation)
    yield ""
    yield heading(f"Jobs that hold the {words} {'up' if solution.sense == 'min' else 'down'}")
    rows = []
    for item in holding[:SHOWN]:
        others = f" and {item['jobs'] - 1:,} like it" if item["jobs"] > 1 else ""
        rows.append([name(item["job"]) + others, rounded(item["rate"]), percent(item["share"])])
    yield table("job", "steps/s", "share", rows=rows)
    yield from more(len(holding) - SHOWN, "class of jobs", "classes of jobs", see="--json")
    yield "share: if the job ran 1 % faster everywhere, the objective would improve by this part of 1 %"


def _requirements(requirements: list[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Side rows with a price."""
    from optsched.cli.tables import rounded, section

    items = [
        f"{item['requirement']}: 1 % less of it would be worth {rounded(item['worth'])}"
        for item in requirements
    ]
    title = "Requirements that cost something:"
    yield from section(title, items, SHOWN, "requirement", see="--json")
