"""``optsched solvers``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from optsched.cli.command import Option
from optsched.cli.options import Json
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from optsched.cli.grid import Grid

EXAMPLES = """
    optsched solvers
    optsched solvers --json
    optsched solvers --check glop
"""


def solvers(
    shell: Shell,
    check: Annotated[
        str | None,
        Option("Run one through the conformance suite instead.", "NAME"),
    ] = None,
    as_json: Json = False,
) -> int:
    """List the solvers: version, or why one is not available, and capabilities.

    Exit codes of --check: 0 all that it claims holds, 6 a case failed, 7 the solver is not here.
    """
    if check is not None:
        from optsched.cli import conformance

        return conformance.check(shell, check, as_json)
    found = solver_documents()
    shell.answer(as_json, lambda: {"solvers": found}, [_table(found)])
    return 0


def _table(found: list[dict[str, Any]]) -> Grid:
    from optsched.cli.tables import table

    rows = [
        [
            item["name"],
            item["version"] or f"not available: {item['reason']}",
            ", ".join(item["capabilities"]),
        ]
        for item in found
    ]
    return table(
        "name", "version", "capabilities", rows=rows, left=3, title="Solvers (--solver NAME)"
    )


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
