"""``optsched solvers``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from optsched.cli.options import Json
from optsched.cli.shell import Shell

EXAMPLES = """
    optsched solvers
    optsched solvers --json
    optsched solvers --check glop
"""


def solvers(
    shell: Shell,
    check: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Run one through the conformance suite instead."),
    ] = None,
    as_json: Json = False,
) -> int:
    """List the solvers: version, or why one is not available, and capabilities.

    Exit codes of --check: 0 all that it claims holds, 6 a case failed, 7 the solver is not here.
    """
    if check is not None:
        from optsched.cli import conformance

        return conformance.check(shell, check, as_json)
    from optsched.cli.tables import table

    found = solver_documents()
    if as_json:
        shell.document({"solvers": found})
        return 0
    rows = [
        [
            item["name"],
            item["version"] or f"not available: {item['reason']}",
            ", ".join(item["capabilities"]),
        ]
        for item in found
    ]
    shell.print(
        table("name", "version", "capabilities", rows=rows, left=3, title="Solvers (--solver NAME)")
    )
    return 0


def solver_documents() -> list[dict[str, Any]]:
    """Every solver with its version, or the reason why it cannot be used."""
    from optsched.errors import OptschedError
    from optsched.registry import load_solver, solver_names

    found = []
    for name in solver_names():
        item: dict[str, Any] = {"name": name, "version": None, "reason": None, "capabilities": []}
        try:
            solver = load_solver(name)
            item["capabilities"] = sorted(capability.value for capability in solver.capabilities)
            item["version"] = solver.version()
        except (OptschedError, ImportError) as error:
            item["reason"] = str(error)
        found.append(item)
    return found
