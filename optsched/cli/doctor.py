"""``optsched doctor``: versions, and whether the parts work together here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from optsched.cli.checks import Check, all_checks, versions_here
from optsched.cli.options import Json
from optsched.cli.progress import progress
from optsched.cli.shell import Shell

if TYPE_CHECKING:
    from rich.console import RenderableType

FAILED = 7
STYLE = {"ok": "green", "missing": "yellow", "FAILED": "bold red"}
EXAMPLES = """
    optsched doctor
    optsched doctor --json
"""


def doctor(shell: Shell, as_json: Json = False) -> int:
    """Tell the versions of everything that counts, and check that the parts work together here.

    Exit codes: 0 all is well, 7 something that is needed is missing, or something is broken.
    """
    with progress(shell, "checking"):
        versions, checks = versions_here(), list(all_checks())
    failed = [check for check in checks if check.verdict == "FAILED"]
    document = {
        "ok": not failed,
        "versions": versions,
        "checks": [
            {"name": check.name, "ok": check.ok, "needed": check.needed, "words": check.words}
            for check in checks
        ],
    }
    shell.answer(as_json, lambda: document, _view(versions, checks))
    if shell.quiet and not as_json:
        for check in failed:
            shell.complain(f"error: {check.name}: {check.words}")
    # Why is said above
    elif failed and not as_json:
        shell.complain(f"error: failed: {', '.join(check.name for check in failed)}")
    return FAILED if failed else 0


def _view(versions: dict[str, str | None], checks: list[Check]) -> Iterator[RenderableType]:
    from rich.text import Text

    from optsched.cli.tables import facts, heading

    yield heading("Versions")
    yield facts((name, version or "not installed") for name, version in versions.items())
    yield ""
    yield heading("Checks")
    lines = []
    for check in checks:
        mark = Text(f"{check.verdict:7}", style=STYLE[check.verdict])
        lines.append((check.name, Text.assemble(mark, "  ", (check.words, ""))))
    yield facts(lines)
