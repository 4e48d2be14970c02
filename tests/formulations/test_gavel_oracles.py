"""Every case with a known optimum that the formulations here cover, on every solver, with and without classes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import optsched
from optsched.registry import names

CASES = Path(__file__).resolve().parents[3] / "shared" / "oracles" / "gavel"
SOLVERS = ("highs", "highs-ipm", "clarabel", "glop")
OTHER_SOLVERS = {"isolated": ("auto",), "partial-allocation": ("clarabel",)}


def cases() -> list[dict[str, object]]:
    found = []
    for path in sorted(CASES.glob("*.expected.json")):
        case = json.loads(path.read_text())
        if case["formulation"] in names("formulation"):
            found.append(case | {"id": path.name.removesuffix(".expected.json")})
    return found


pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the oracles are not beside this checkout")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_known_optimum(case: dict) -> None:
    options = dict(case["options"])
    constraints = options.pop("constraints", [])
    instance = optsched.load(CASES / case["instance"])
    for solver in OTHER_SOLVERS.get(case["formulation"], SOLVERS):
        for classes in (True, False):
            solution = optsched.solve(
                instance,
                case["formulation"],
                solver=solver,
                classes=classes,
                constraints=constraints,
                tolerance=1e-9,
                **options,
            )
            assert solution.ok and solution.status == "optimal", solution.certificate
            assert solution.objective == pytest.approx(case["objective"], rel=min(1e-6, case["tolerance"]))
            if solver != "auto":
                assert solution.certificate.proof == "dual"
                assert solution.gap <= 1e-7
            told = solution.throughput
            if case["formulation"] == "partial-allocation":
                told = solution.figures["discount"]
            for job, value in case.get("vector", {}).items():
                assert told[job] == pytest.approx(value, rel=case["tolerance"])


def test_all_families_are_covered() -> None:
    wanted = {"max-min-fairness", "makespan", "max-throughput", "isolated", "allox", "partial-allocation"}
    assert {case["formulation"] for case in cases()} >= wanted
    assert len(cases()) >= 32
