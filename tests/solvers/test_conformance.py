"""Every back-end that is here, case by case through the conformance suite that anybody can run on an own one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from refusals import refuses

from optsched.conformance import BANKS, Case, CaseVerdict, check_case, check_solver, summary

# Private names: sessions and steps of one back-end, without the engine
from optsched.conformance.run import OF_ROWS, ROWS
from optsched.errors import SolverUnavailable
from optsched.registry import load_solver, names
from optsched.solvers import Capability

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore:Solution may be inaccurate:UserWarning"
    ),
]

CASES = [(bank, case) for bank, cases in BANKS.items() for case in cases]
MAY_SKIP = {
    ("pdlp", "unbounded"),  # stops at a limit of its own, and says so
    ("pdlp", "unbounded in free columns"),
}
"""Cases about which a back-end of ours says nothing though it claims what they need."""
TOO_FAST = {"progress is reported", "Ctrl-C stops the run"}
"""On a fast machine there is nothing to report or to stop."""

TIMED_BANKS = ("limits",)
"""Banks whose cases measure how long a back-end takes to stop."""

SHIPPED = [name for name in names("solver") if not load_solver(name).optional]
CLAIMED = [
    pytest.param(
        name,
        bank,
        case,
        id=f"{name}-{case.name}",
        marks=[pytest.mark.clock] if bank in TIMED_BANKS else [],
    )
    for name in SHIPPED
    for bank, case in CASES
    if case.needs <= load_solver(name).capabilities
    and (bank not in OF_ROWS or load_solver(name).capabilities & ROWS)
]


@pytest.mark.parametrize(("name", "bank", "case"), CLAIMED)
def test_conformance(name: str, bank: str, case: Case) -> None:
    result = check_case(case, bank, load_solver(name))
    assert result.verdict is not CaseVerdict.FAILED, result.reason
    if result.verdict is CaseVerdict.SKIPPED:
        assert (name, case.name) in MAY_SKIP or case.name in TOO_FAST, result.reason
        pytest.skip(result.reason)


@pytest.mark.parametrize("name", sorted(set(names("solver")) - set(SHIPPED)))
def test_conformance_of_what_the_user_has(name: str) -> None:
    try:
        results = check_solver(name)
    except SolverUnavailable as error:
        pytest.skip(str(error))
    assert [result for result in results if result.verdict is CaseVerdict.FAILED] == []


def test_solvers_of_pulp_stop_at_no_gap_of_their_own() -> None:
    """HiGHS as PuLP calls it would stop at 1e-4."""
    (near_ties,) = (case for _, case in CASES if case.name == "no gap is left by default")
    result = check_case(near_ties, "integer", load_solver("pulp:HiGHS"))
    assert result.verdict is CaseVerdict.PASSED, result.reason


@pytest.mark.unit
def test_the_names_of_the_cases_differ() -> None:
    assert len({case.name for _, case in CASES}) == len(CASES) > 70


@pytest.mark.unit
def test_every_capability_is_needed_by_a_case() -> None:
    """What a back-end claims is used by some case; what belongs to a further bank comes with it."""
    used = set().union(*(case.needs for _, case in CASES))
    assert set(Capability) - used == set()


def test_all_cases_of_one_solver() -> None:
    results = check_solver("glop", ["linear", "integer"])
    counts = summary(results)
    assert [result.case for result in results] == [
        case.name for bank, case in CASES if bank in ("linear", "integer")
    ]
    assert counts["failed"] == 0 and counts["passed"] >= len(BANKS["linear"])
    assert {result.reason for result in results if result.verdict is CaseVerdict.SKIPPED} >= {
        "does not claim integer"
    }


def test_a_solver_that_is_not_there_is_an_error() -> None:
    with refuses("solver: found 'highz'", SolverUnavailable):
        check_solver("highz")


def test_the_suite_needs_neither_pytest_nor_the_back_ends() -> None:
    script = (
        "import sys, optsched.conformance\n"
        "loaded = {'pytest', 'highspy', 'ortools', 'pulp', 'cvxpy', 'clarabel'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
