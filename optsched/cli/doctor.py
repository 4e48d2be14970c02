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
EXAMPLES = """
    optsched doctor
    optsched doctor --json
"""


def doctor(shell: Shell, as_json: Json = False) -> int:
    """Tell the versions of everything that counts, and check that the parts work together here.

    Exit codes: 0 all is well, 7 something is missing or broken.
    """
    with progress(shell, "checking"):
        versions, checks = versions_here(), list(all_checks())
    if as_json:
        found = [{"name": check.name, "ok": check.ok, "words": check.words} for check in checks]
        shell.document({"ok": all(check.ok for check in checks), "versions": versions, "checks": found})
    else:
        shell.print(*_view(versions, checks))
    for check in checks:
        if not check.ok and not as_json:
            shell.complain(f"error: {check.name}: {check.words}")
    return 0 if all(check.ok for check in checks) else FAILED


def _view(versions: dict[str, str | None], checks: list[Check]) -> Iterator[RenderableType]:
    from rich.text import Text

    from optsched.cli.tables import facts, heading

    yield heading("Versions")
    yield facts((name, version or "not installed") for name, version in versions.items())
    yield ""
    yield heading("Checks")
    lines = []
    for check in checks:
        mark = Text("ok    " if check.ok else "FAILED", style="green" if check.ok else "bold red")
        lines.append((check.name, Text.assemble(mark, "  ", (check.words, ""))))
    yield facts(lines)
