"""``optsched doctor``: versions, and whether the parts work together here."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from optsched.cli.options import SOLVER_FAILED, Json
from optsched.cli.progress import progress
from optsched.cli.shell import Shell, one_line
from optsched.cli.tables import facts, heading

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLE = {"ok": "green", "missing": "yellow", "FAILED": "bold red"}


def doctor(shell: Shell, as_json: Json = False) -> int:
    """Show the versions of optsched and its packages, and check that they work together.

    Exit codes: 0 all checks pass, 7 a required part is missing or broken.

    Examples:
        optsched doctor
        optsched doctor --json
    """
    with progress(shell, "checking"):
        versions = versions_here()
        checks = list(all_checks())
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
    # The reason is printed above
    elif failed and not as_json:
        shell.complain(f"error: failed: {', '.join(check.name for check in failed)}")
    return SOLVER_FAILED if failed else 0


def _view(versions: dict[str, str | None], checks: list[Check]) -> Iterator[RenderableType]:
    from rich.text import Text

    yield heading("Versions")
    yield facts((name, version or "not installed") for name, version in versions.items())
    yield ""
    yield heading("Checks")
    lines = []
    for check in checks:
        mark = Text(f"{check.verdict:7}", style=STYLE[check.verdict])
        lines.append((check.name, Text.assemble(mark, "  ", (check.words, ""))))
    yield facts(lines)


# --- the checks -----------------------------------------------------------------------------------

ALSO_SHOWN = ("matplotlib", "numba", "rich", "typer")
# Seconds for the import of two packages.
PATIENCE = 60.0

IMPORTS = """
import {first}
import {second}
import highspy
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model
highs = highspy.Highs()
highs.setOptionValue("output_flag", False)
x = highs.addVariable(0, 4)
highs.maximize(x)
assert abs(highs.getObjectiveValue() - 4) < 1e-9, "HiGHS got another optimum"
model = cp_model.CpModel()
y = model.new_int_var(0, 4, "y")
model.maximize(y)
solver = cp_model.CpSolver()
assert solver.solve(model) == cp_model.OPTIMAL and solver.value(y) == 4, "CP-SAT got another optimum"
"""


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes
    ----------
    name : str
    ok : bool
    words : str
        The finding, as text.
    needed : bool
        False for optional parts, such as a commercial solver: a missing one is not a failure.
    """

    name: str
    ok: bool
    words: str
    needed: bool = True

    @property
    def verdict(self) -> Literal["ok", "missing", "FAILED"]:
        return "ok" if self.ok else "FAILED" if self.needed else "missing"


def requirements() -> dict[str, str]:
    """Version limits of the packages that optsched needs, from its metadata."""
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    every = [Requirement(text) for text in requires("optsched") or ()]
    # Packages of extras have a marker.
    return {item.name.lower(): str(item.specifier) for item in every if item.marker is None}


def versions_here() -> dict[str, str | None]:
    """Versions of Python, optsched and the packages it needs; None for missing ones."""
    from importlib.metadata import PackageNotFoundError, version

    from optsched import __version__

    system = f"{platform.system()} {platform.machine()}"
    found: dict[str, str | None] = {
        "python": f"{platform.python_version()} ({system})",
        "optsched": __version__,
    }
    for name in sorted({*requirements(), *ALSO_SHOWN}):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def all_checks() -> Iterator[Check]:
    """All checks in order; slow ones run in parallel with the others."""
    # Shared libraries of the two packages have clashed: each order is tried in a fresh process
    imports = [
        (order, _start_import(*order)) for order in (("highspy", "ortools"), ("ortools", "highspy"))
    ]
    yield check_requirements(versions_here(), requirements())
    yield from check_entry_points()
    yield from check_solvers()
    for (first, second), process in imports:
        yield _finish_import(f"import {first}, {second}", process)


def check_requirements(versions: dict[str, str | None], limits: dict[str, str]) -> Check:
    """Check that every package is installed in a version within its limits."""
    from packaging.specifiers import SpecifierSet

    wrong = []
    for name, limit in limits.items():
        found = versions.get(name)
        if found is None:
            wrong.append(f"{name} is missing, expected {limit or 'any version'}")
        elif not SpecifierSet(limit).contains(found, prereleases=True):
            wrong.append(f"{name} is {found}, expected {limit}")
    return Check(
        "requirements", not wrong, "; ".join(wrong) or f"{len(limits)} packages within their limits"
    )


def check_entry_points() -> Iterator[Check]:
    """Check that every entry of the catalogues can be loaded."""
    from optsched.registry import GROUPS, load, names

    for what in GROUPS:
        try:
            found = names(what)
            for name in found:
                load(what, name)
            # Each solver has its own check, which shows whether it is installed.
            text = f"{len(found)} names" if what == "solver" else ", ".join(found)
            ok, words = bool(found), text if found else "none was found; is optsched installed?"
        except Exception as error:  # a third party's package may fail in any way
            ok = False
            words = f"{type(error).__name__}: {one_line(str(error))}"
        yield Check(f"{what}s", ok, words)


def check_solvers() -> Iterator[Check]:
    """Check each solver with a tiny linear program, including the certificate."""
    from optsched.errors import SolverUnavailable
    from optsched.registry import load_solver, names

    for name in names("solver"):
        needed = True
        try:
            ok, words = _solve_tiny(name)
        except SolverUnavailable as error:
            ok = False
            words = one_line(str(error))
            needed = not load_solver(name).optional
        except Exception as error:  # the check reports it
            ok = False
            words = f"{type(error).__name__}: {one_line(str(error))}"
        yield Check(f"solver {name}", ok, words, needed)


def _solve_tiny(name: str) -> tuple[bool, str]:
    """Maximise x + y with x + 2 y <= 4 and x <= 2: 3, also with integers; or share 3 GPUs equally
    among jobs.
    """
    import numpy as np

    from optsched.conformance.allocation import allocation
    from optsched.program import LinearProgram
    from optsched.registry import load_solver
    from optsched.solvers import Capability
    from optsched.solving.engine import Engine

    engine = Engine(load_solver, name)
    capabilities = load_solver(name).capabilities
    if capabilities & {Capability.CONTINUOUS, Capability.INTEGER}:
        program = LinearProgram()
        x = program.variables(
            2, name="x", upper=[2.0, 10.0], integer=Capability.CONTINUOUS not in capabilities
        )
        program.constrain(np.array([[1.0, 2.0]]) @ x <= 4.0, name="row")
        program.maximise(x.sum())
        outcome = engine.solve_linear(program)
    else:
        outcome = engine.solve_directly(allocation([[4.0], [4.0], [4.0], [4.0]], pools=(3,)))
    right = outcome.certificate.ok and outcome.value is not None and abs(outcome.value - 3.0) < 1e-6
    version = outcome.solver.version()
    if right:
        return True, f"{version}: a tiny program solved and certified"
    problems = "; ".join(outcome.certificate.problems) or "no problem reported"
    return (
        False,
        f"{version}: a tiny program ends {outcome.status} with {outcome.value}, "
        f"expected 3 ({problems})",
    )


def _start_import(first: str, second: str) -> subprocess.Popen[str]:
    code = IMPORTS.format(first=first, second=second)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish_import(name: str, process: subprocess.Popen[str]) -> Check:
    try:
        _, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Check(name, False, f"no answer within {PATIENCE:g} s")
    if process.returncode == 0:
        return Check(name, True, "both work in one process")
    last = errors.strip().splitlines()[-1:] or [f"the process ended with {process.returncode}"]
    return Check(
        name, False, f"{one_line(last[0])} (highspy and ortools cannot share a process here)"
    )
