"""``optsched explain``: why an answer is what it is."""

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
        Option(
            "Explain this job: what it gets and pays, and its alternatives.", "ID", section=OUTPUT
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Solve an instance, and explain the answer.

    Of an infeasible instance: the requirements that conflict. Of an optimum: the worth of one more
    GPU of each pool, the jobs that limit the objective, the requirements that cost something.
    Always: the jobs that are not placed, and why. With --job: what one job gets and pays, the
    binding rows, and the cost of every other configuration.

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
