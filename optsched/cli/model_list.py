"""``optsched model list``."""

from __future__ import annotations

import inspect
from typing import Any

from optsched.cli.options import Json
from optsched.cli.shell import Shell

EXAMPLES = """
    optsched model list
    optsched model list --json
"""

FITTED, COMPOSED, STATED = "profiles", "other models", "the instance"


def list_models(shell: Shell, as_json: Json = False) -> int:
    """List the performance models."""
    found = catalogue()
    if as_json:
        shell.document({"models": found})
    elif not shell.quiet:
        from optsched.cli.tables import table

        rows = [[item["name"], item["made_of"], item["summary"]] for item in found]
        shell.print(
            table("name", "made of", "in words", rows=rows, left=3, title="Performance models"),
            "",
            "Those made of profiles are fitted by `optsched model fit`.",
        )
    return 0


def catalogue() -> list[dict[str, Any]]:
    """Name, what it is made of, and the first line of the docstring of each model."""
    from optsched.performance.composed import ComposedModel
    from optsched.performance.times import TimeModel
    from optsched.registry import load_model, names

    found = []
    for name in names("performance model"):
        owner: Any = load_model(name)
        kind = FITTED if issubclass(owner, TimeModel) else COMPOSED if issubclass(owner, ComposedModel) else STATED
        summary = " ".join(inspect.cleandoc(owner.__doc__ or "").split("\n\n")[0].split())
        found.append({"name": name, "made_of": kind, "summary": summary.rstrip(".,:")})
    return found
