"""``optsched verify``: a solution file, recomputed number by number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from optsched.cli.command import Argument, Option
from optsched.cli.options import PROBLEM, InstanceOrProgram, Json, ModelFile
from optsched.cli.progress import progress
from optsched.cli.shell import Shell
from optsched.display import count
from optsched.errors import UsageError

if TYPE_CHECKING:
    from optsched.verify import Verification

REFUSED = 6
HASH = "instance.sha256"
# Most findings that are shown; a wrong instance has many findings with one cause.
MOST, MOST_OF_OTHER = 20, 3

BOUND = {
    "verified": "its bound was recomputed",
    "consistent": "its bound is a claim that nothing contradicts",
    "not verifiable": (
        "its bound cannot be recomputed from what is in the file (solve --duals writes all duals)"
    ),
}


def verify(
    shell: Shell,
    instance: InstanceOrProgram,
    solution: Annotated[
        str, Argument("SOLUTION", "Solution file, or - for standard input.", source=True)
    ],
    model: ModelFile = None,
    resolve: Annotated[bool, Option("Also solve again and compare.", section=PROBLEM)] = False,
    as_json: Json = False,
) -> int:
    """Check a solution file against its instance or program: every number is recomputed.

    Exit codes: 0 the solution is right, 2 it is by a formulation or side constraint that is not
    installed here, 3 the file holds no solution, 6 it is refused, with a line for each wrong field
    on standard error (the first 20; --json has all).

    Examples:
        optsched verify cluster.json plan.json
        optsched solve @quickstart --json | optsched verify @quickstart -
        optsched verify cluster.json plan.json --resolve
        optsched verify model.mps solution.json
    """
    with progress(shell, "verifying"):
        found = _checked(instance, solution, model, resolve)
    if as_json:
        findings = [
            {"field": finding.field, "message": finding.message} for finding in found.findings
        ]
        shell.document(
            {
                "ok": found.ok,
                "bound": found.bound,
                "findings": findings,
                "notes": list(found.notes),
            }
        )
    other_instance = any(finding.field == HASH for finding in found.findings)
    most = MOST_OF_OTHER if other_instance else MOST
    for finding in found.findings[:most]:
        shell.complain(f"error: {finding}")
    if len(found.findings) > most:
        more = count(len(found.findings) - most, "more finding")
        why = ", as may follow from the other instance" if other_instance else ""
        shell.complain(f"error: and {more}{why}: --json lists them all")
    if not found.ok:
        return REFUSED
    if not as_json:
        unproved = found.bound == "consistent" and not found.has_bound
        bound = "it has no bound" if unproved else BOUND[found.bound]
        shell.tell("; ".join([f"the solution is right, {bound}", *found.notes]))
    return 0


def _checked(instance: str, solution: str, model: str | None, resolve: bool) -> Verification:
    from optsched.formats.mps import is_program
    from optsched.formats.sol import SUFFIX

    if Path(solution).suffix.lower() == SUFFIX:
        raise UsageError(
            f"{solution}: a {SUFFIX} file is a point without any claim; "
            "verify checks the json that `optsched solve "
            "-o` writes"
        )
    if is_program(instance):
        if model is not None:
            raise UsageError(f"{instance} is a program: --model is for instances")
        from optsched.study.direct import verify_program

        return verify_program(instance, solution, resolve=resolve)
    from optsched.verify import verify as check

    return check(instance, solution, resolve=resolve, performance=model)
