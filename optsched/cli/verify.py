"""``optsched verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from optsched.cli.options import InstanceFile, Json
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.errors import UsageError

REFUSED = 6

EXAMPLES = """
    optsched verify cluster.json plan.json
    optsched solve @quickstart --json | optsched verify @quickstart -
    optsched verify cluster.json plan.json --resolve
"""

BOUND = {
    "verified": "its bound was recomputed",
    "consistent": "its bound is a claim that nothing contradicts",
    "not verifiable": "its bound cannot be verified, as the duals are not in the file",
}


def verify(
    shell: Shell,
    instance: InstanceFile,
    solution: Annotated[str, typer.Argument(metavar="SOLUTION", help="Solution file, or - for standard input.")],
    resolve: Annotated[bool, typer.Option("--resolve", help="Also solve again and compare.")] = False,
    as_json: Json = False,
) -> int:
    """Check a solution file against its instance, with every number recomputed.

    Exit codes: 0 the solution is right, 6 it is refused, with a line for each wrong field on standard error.
    """
    if instance == solution == "-":
        raise UsageError("the instance and the solution cannot both come from standard input")
    from optsched.verify import verify as check

    with progress(shell, "verifying"):
        found = check(instance, solution, resolve=resolve)
    if as_json:
        findings = [{"field": finding.field, "message": finding.message} for finding in found.findings]
        shell.document({"ok": found.ok, "bound": found.bound, "findings": findings})
    for finding in found.findings:
        shell.complain(f"error: {finding.field}: {finding.message}" if finding.field else f"error: {finding.message}")
    if not found.ok:
        return REFUSED
    if not as_json:
        shell.tell(f"the solution is right, {BOUND[found.bound]}")
    return 0
