"""Running the suite on one solver."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optsched.conformance import (
    allocation,
    conic,
    integer,
    limits,
    linear,
    sessions,
    timeline,
)
from optsched.conformance.case import Case, CaseVerdict, Failed, Result, Skipped, Subject
from optsched.errors import OptschedError
from optsched.registry import load_solver
from optsched.solvers import Capability, Solver

BANKS: Mapping[str, tuple[Case, ...]] = {
    "linear": linear.CASES,
    "integer": integer.CASES,
    "conic": conic.CASES,
    "sessions": sessions.CASES,
    "limits": limits.CASES,
    "timeline": timeline.CASES,
    "allocation": allocation.CASES,
}
"""All cases, bank by bank. A further kind of program is a further bank."""
OF_ROWS = frozenset({"linear", "integer", "sessions", "limits"})
"""Banks of programs in rows and columns."""
ROWS = frozenset({Capability.CONTINUOUS, Capability.INTEGER})
NO_ROWS = "does not take rows and columns"


def check_solver(solver: str | type[Solver], banks: Sequence[str] | None = None) -> list[Result]:
    """Run a solver through the suite.

    Parameters
    ----------
    solver : str or class
        Registry name, or a class that need not be registered.
    banks : sequence of str, optional
        Parts of the suite; default: all.

    Returns
    -------
    list of Result
        One per case, in the order of `BANKS`.

    Raises
    ------
    SolverUnavailable
        If the solver is unknown or cannot be used here.
    """
    return list(checks(solver, banks))


def checks(solver: str | type[Solver], banks: Sequence[str] | None = None) -> Iterator[Result]:
    """`check_solver`, one result after the other."""
    tested = load_solver(solver) if isinstance(solver, str) else solver
    # Not installed is an error, not a long list of failures.
    tested.version()
    for bank in BANKS if banks is None else banks:
        for item in BANKS[bank]:
            yield check_case(item, bank, tested)


def check_case(item: Case, bank: str, solver: type[Solver]) -> Result:
    """Run a solver through one case."""
    started = time.perf_counter()
    verdict, reason = _verdict(item, bank, solver)
    return Result(item.name, bank, verdict, reason, time.perf_counter() - started)


def _verdict(item: Case, bank: str, solver: type[Solver]) -> tuple[CaseVerdict, str]:
    # A solver of other programs is asked nothing about rows, whatever else it claims.
    if bank in OF_ROWS and not solver.capabilities & ROWS:
        return CaseVerdict.SKIPPED, NO_ROWS
    missing = sorted(capability.value for capability in item.needs - solver.capabilities)
    if missing:
        return CaseVerdict.SKIPPED, f"does not claim {', '.join(missing)}"
    try:
        item.check(Subject(solver))
    except Skipped as why:
        return CaseVerdict.SKIPPED, str(why)
    except Failed as why:
        return CaseVerdict.FAILED, str(why)
    except OptschedError as error:
        return CaseVerdict.FAILED, f"{type(error).__name__}: {error}"
    except Exception as error:
        # Whatever a foreign back-end raises is a finding about it.
        return (
            CaseVerdict.FAILED,
            f"raised {type(error).__name__}: {error}, expected an OptschedError at most",
        )
    return CaseVerdict.PASSED, ""


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """How many cases passed, failed and were skipped."""
    return {
        str(verdict): sum(result.verdict is verdict for result in results)
        for verdict in CaseVerdict
    }
