"""``optsched whatif``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from optsched.cli import values
from optsched.cli.options import PROBLEM, Json, Problem, Search, check_inputs, solved
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.cli.solve import NOT_CERTIFIED, exit_code
from optsched.errors import InvalidArgument, UsageError

if TYPE_CHECKING:
    from optsched.sensitivity import WhatIf
    from optsched.solution import Solution

EXAMPLES = """
    optsched whatif @quickstart --add v100:8
    optsched whatif @quickstart -f makespan --add v100:4 --add k80:-2
    optsched whatif @quickstart -f max-throughput --add v100:4 --add p100:4 --add k80:4 --each
    optsched whatif @quickstart -f max-throughput --ranging
    optsched whatif @quickstart -f makespan --curve v100
    optsched whatif cluster.json --add budget:50 --json | jq '.changes[0].difference'
"""


def whatif(
    shell: Shell,
    problem: Problem,
    search: Search,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add", metavar="NAME:AMOUNT", rich_help_panel=PROBLEM,
            help="GPUs of a pool, or units of a resource of the instance: budget:50 is of a resource called budget, "
            "not of the constraint -C budget. Negative: taken away. Can be repeated: all together.",
        ),
    ] = None,
    each: Annotated[
        bool, typer.Option("--each", help="Each --add by itself, in one table.", rich_help_panel=PROBLEM)
    ] = False,
    ranging: Annotated[
        bool,
        typer.Option(
            "--ranging", rich_help_panel=PROBLEM, show_default=False,
            help="Between which capacities does the price of each resource hold?",
        ),
    ] = False,
    curve: Annotated[
        str | None,
        typer.Option(
            metavar="RESOURCE", rich_help_panel=PROBLEM,
            help="The optimum over all capacities of one resource, with every breakpoint.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Solve an instance with other capacities, beside what the prices had said.

    "change" is that of the objective with a truly larger (or smaller) cluster, everything recompiled; "held" that with
    all coefficients held, also those normalisers of throughputs that depend on the cluster; "by prices" is price x
    amount, and no held change is better. GPUs come and go in nodes of the pool's size.

    Exit codes: 0 solved with the other capacities (with --each: any of them), else as for `optsched solve`.
    """
    amounts = _amounts(add or [])
    asked = [bool(amounts), ranging, curve is not None]
    if each and not amounts:
        raise UsageError("--each says how several --add are to be taken: give these")
    if sum(asked) != 1:
        raise UsageError(
            "expected one of --add NAME:AMOUNT (once or more), --ranging, --curve RESOURCE"
        )
    if amounts:
        return _changes(shell, problem, search, amounts, each, as_json)
    return _ranges(shell, problem, search, curve, as_json)


def _amounts(texts: list[str]) -> dict[str, float]:
    """What --add gives, by resource."""
    found: dict[str, float] = {}
    for text in texts:
        name, colon, amount = text.rpartition(":")
        if not colon or not name.strip():
            raise InvalidArgument("--add", repr(text), "name:amount, such as v100:8 or k80:-4")
        number = values.real(amount.strip(), f"--add {name.strip()}")
        assert number is not None
        if name.strip() in found:
            raise UsageError(f"--add: {name.strip()} is given twice")
        found[name.strip()] = number
    return found


def _changes(
    shell: Shell,
    problem: Problem,
    search: Search,
    amounts: dict[str, float],
    each: bool,
    as_json: bool,
) -> int:
    from optsched import sensitivity

    check_inputs(instance=problem.instance, model=problem.model)
    with progress(shell, "solving", shown=not search.solver_log) as on_progress:
        found = sensitivity.whatif(
            problem.instance,
            problem.formulation,
            add=amounts,
            each=each,
            constraints=problem.constraints,
            options=problem.options,
            performance=problem.model,
            classes=not problem.no_classes,
            on_progress=on_progress,
            **search.limits,
        )
    code = _exit_code(shell, found)
    if code == NOT_CERTIFIED:
        return code
    if as_json:
        shell.document(found.to_document())
    elif not shell.quiet:
        from optsched.cli.whatif_view import whatif_view

        shell.print(*whatif_view(found))
        shell.note(found.base.notes)
    return code


def _exit_code(shell: Shell, found: WhatIf) -> int:
    """6 if any certificate failed, else 0 if any change was solved, else the code of the first change."""
    held = [change.held for change in found.changes if change.held is not None]
    for solution in (found.base, *(change.solution for change in found.changes), *held):
        if _failed(shell, solution):
            return NOT_CERTIFIED
    codes = [exit_code(change.solution) for change in found.changes]
    return 0 if 0 in codes else codes[0]


def _failed(shell: Shell, solution: Solution) -> bool:
    for wrong in solution.certificate.problems:
        shell.complain(f"error: the certificate failed: {wrong}")
    return not solution.certificate.ok


def _ranges(
    shell: Shell, problem: Problem, search: Search, curve: str | None, as_json: bool
) -> int:
    from optsched import sensitivity
    from optsched.cli import whatif_view as view
    from optsched.solution import Status

    solution = solved(shell, problem, search)
    code = exit_code(solution)
    if _failed(shell, solution):
        return code
    if solution.status is not Status.OPTIMAL:
        shell.complain(
            f"error: the solution is {solution.status}: prices are told of optimal solutions only"
        )
        return code or exit_code(solution, require_optimal=True)
    given: dict[str, Any] = {
        key: value
        for key, value in search.limits.items()
        if key not in ("prove", "gap", "work_limit")
    }
    with progress(shell, "ranging", shown=not search.solver_log):
        if curve is not None:
            drawn = sensitivity.capacity_curve(solution, curve, **given)
            document, shown = view.curve_document(solution, drawn), view.curve_view(solution, drawn)
        else:
            ranges = sensitivity.capacity_ranging(solution, **given)
            document, shown = (
                view.ranging_document(solution, ranges),
                view.ranging_view(solution, ranges),
            )
    if as_json:
        shell.document(document)
    elif not shell.quiet:
        shell.print(*shown)
        shell.note(solution.notes)
    return 0
