"""Every case with a known optimum that the formulations here cover, on every solver, with and without classes."""

from __future__ import annotations

import json

import pytest
from beside import SHARED, needs

import optsched
from optsched.registry import names

CASES = SHARED / "oracles" / "gavel"
RULES = ("isolated", "fifo", "proportional-shares", "gandiva", "matching")
SOLVERS = ("highs", "clarabel")
MORE_SOLVERS = ("highs-ipm", "glop")
OTHER_SOLVERS = {"partial-allocation": ("clarabel",)}


def cases() -> list[dict[str, object]]:
    found = []
    for path in sorted(CASES.glob("*.expected.json")):
        case = json.loads(path.read_text())
        if case["formulation"] in names("formulation"):
            found.append(case | {"id": path.name.removesuffix(".expected.json")})
    return found


pytestmark = [
    pytest.mark.oracle,
    needs(CASES),
]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_known_optimum(case: dict) -> None:
    rule = ("auto",) if case["formulation"] in RULES else SOLVERS
    solvers = OTHER_SOLVERS.get(case["formulation"], rule)
    check(case, solvers, jobwise=solvers[:1])


@pytest.mark.study
@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_known_optimum_by_every_solver(case: dict) -> None:
    if case["formulation"] not in RULES and case["formulation"] not in OTHER_SOLVERS:
        check(case, (*SOLVERS, *MORE_SOLVERS), jobwise=SOLVERS)


def check(case: dict, solvers: tuple[str, ...], jobwise: tuple[str, ...]) -> None:
    """Solve with classes by all solvers, and without by some, and compare."""
    options = dict(case["options"])
    constraints = options.pop("constraints", [])
    instance = optsched.load(CASES / case["instance"])
    for solver in solvers:
        for classes in (True, False) if solver in jobwise else (True,):
            solution = optsched.solve(
                instance,
                case["formulation"],
                solver=solver,
                classes=classes,
                constraints=constraints,
                tolerance=1e-9,
                **options,
            )
            if case.get("status") == "infeasible":
                check_infeasible(solution)
                continue
            assert solution.ok and solution.status == "optimal", solution.certificate
            if case["objective"] is not None:
                assert solution.objective == pytest.approx(
                    case["objective"], rel=min(1e-6, case["tolerance"])
                )
            if solver != "auto":
                assert solution.certificate.proof == "dual"
                assert solution.gap <= 1e-7
            name = case.get("vector_name", "").removesuffix(" nt_j").removesuffix(" f_j")
            found = solution.figures.get(name, solution.throughput)
            if case.get("vector_name") == "pool":
                rows = solution.allocation.to_records()
                assert {row["job"]: row["pool"] for row in rows} == case["vector"]
                continue
            for job, value in case.get("vector", {}).items():
                assert found[job] == pytest.approx(
                    value, rel=case["tolerance"], abs=case["tolerance"]
                )


def check_infeasible(solution: optsched.Solution) -> None:
    """Refused, proved, and told in words."""
    assert solution.status == "infeasible" and solution.ok and solution.objective is None
    assert solution.certificate.proof == "dual"
    assert any("GPU h of" in conflict.words for conflict in solution.conflicts)


@pytest.mark.parametrize(
    "case",
    [case for case in cases() if "objective_without_deadlines" in case],
    ids=lambda case: case["id"],
)
def test_known_optimum_without_its_deadlines(case: dict) -> None:
    solution = optsched.solve(CASES / case["instance"], case["formulation"], tolerance=1e-9)
    assert solution.ok and solution.objective == pytest.approx(
        case["objective_without_deadlines"], rel=1e-6
    )


def test_all_families_are_covered() -> None:
    covered = {case["formulation"] for case in cases()}
    assert covered >= {
        "max-min-fairness",
        "makespan",
        "max-throughput",
        "isolated",
        "fifo",
        "throughput-per-cost",
    }
    assert covered >= {"water-filling", "finish-time-fairness", "allox", "partial-allocation"}
    assert len(cases()) >= 64
