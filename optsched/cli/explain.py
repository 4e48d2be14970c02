"""``optsched explain``."""

from __future__ import annotations

from typing import Annotated

from optsched.cli.command import Option
from optsched.cli.options import (
    OUTPUT,
    Json,
    ProblemOptions,
    Search,
    certificate_failed,
    exit_code,
    solved,
)
from optsched.cli.shell import Shell


def explain(
    shell: Shell,
    problem: ProblemOptions,
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

    Examples:
        optsched explain @quickstart
        optsched explain @infeasible -f makespan
        optsched explain cluster.json -C deadlines --json | jq .holding
        optsched explain @quickstart -f makespan --job gpt-2-small-6
    """
    from optsched.cli.explain_view import explanation_view, job_view
    from optsched.study import explain_job, explanation

    solution = solved(shell, problem, search)
    code = exit_code(solution)
    # Nothing is explained of an answer that does not hold
    if certificate_failed(shell, solution):
        return code
    if job is None:
        document = explanation(solution)
        shell.answer(
            as_json, lambda: document, explanation_view(solution, document), solution.notes
        )
    else:
        found = explain_job(solution, job)
        shell.answer(as_json, found.to_document, job_view(found), solution.notes)
    return code
