"""Formulation x packing x side constraint x solver: all is solved and certified, or refused in a sentence."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from documents import instance_document

import optsched
from optsched.errors import OptschedError, SolverUnavailable
from optsched.registry import load_formulation, load_solver, names

pytestmark = pytest.mark.oracle

CONSTRAINTS: dict[str, dict[str, Any]] = {
    "none": {},
    "deadlines": {},
    "deadlines that give way": {"kind": "deadlines", "give_way": "shortfall"},
    "the fewest deadlines": {"kind": "deadlines", "give_way": "count"},
    "budget": {"limit": 12.0},
    "power": {"limit": 1500.0},
    "quota": {"tenant": "vision", "gpus": 3.0},
    "minimum-share": {"tenant": "speech", "gpus": 1.5},
    "pinned": {"jobs": ["j0"], "pools": ["v100"]},
    "forbidden": {"jobs": ["j1"], "pools": ["k80"]},
    "minimum-service": {"fraction": 0.2},
    "moves": {"limit": 1.0},
    "anti-affinity": {"jobs": ["j0", "j1"]},
}
FORMULATIONS = sorted({load_formulation(name).name for name in names("formulation")})
EMPTY_HANDED = ("highs", "clarabel")
"""Solvers that must answer whatever they are able to; others may stop short of their precision, and say so."""


def document(packed: bool) -> dict[str, Any]:
    """Nine jobs of two tenants on three pools, some running, some with deadlines."""
    pools = [
        {"name": name, "gpu": name.upper(), "nodes": nodes, "gpus_per_node": 2, "cost_per_gpu_hour": cost,
         "watts_per_gpu": watts, "watts_idle": 40.0}
        for name, nodes, cost, watts in (("v100", 2, 2.48, 300.0), ("p100", 1, 1.46, 250.0), ("k80", 2, 0.45, 150.0))
    ]  # fmt: skip
    jobs: list[dict[str, Any]] = []
    for number in range(9):
        fast = 4.0 + 3.0 * ((number * 7) % 5)
        jobs.append(
            {
                "id": f"j{number}",
                "gpus": 1 if number % 4 else 2,
                "steps": 4000.0 + 900.0 * number,
                "steps_done": 100.0 * number,
                "weight": 1.0 + number % 3,
                "arrival": -600.0 * number,
                "tenant": "vision" if number % 2 else "speech",
                "throughput": {"v100": fast, "p100": 0.6 * fast, "k80": 0.2 * fast + 0.3 * number},
            }
        )
    for number in (2, 5):
        jobs[number]["deadline"] = 36000.0 + 3600.0 * number
    for number, gpu in ((1, "v100-0/0"), (3, "p100-0/1")):
        jobs[number]["running"] = {"pool": gpu.split("-")[0], "gpus": [gpu], "since": -60.0}
    made: dict[str, Any] = instance_document(
        pools,
        jobs,
        name="grid",
        tenants=[{"name": "vision", "weight": 2.0}, {"name": "speech", "policy": "fifo"}],
    )
    if packed:
        made["colocation"] = [
            {"jobs": [f"j{a}", f"j{b}"], "pool": pool, "gpus": 1, "throughput": [
                0.7 * jobs[a]["throughput"][pool], 0.6 * jobs[b]["throughput"][pool]]}
            for a, b in ((1, 2), (3, 5), (6, 7)) for pool in ("v100", "p100", "k80")
        ]  # fmt: skip
    return made


@cache
def instance(packed: bool) -> optsched.Instance:
    return optsched.Instance.from_document(document(packed))


def check(formulation: str, packed: bool, constraint: str, solver: str) -> str:
    """Solve, certify and verify; returns the status, or the sentence of a refusal."""
    given = CONSTRAINTS[constraint]
    constraints = [] if constraint == "none" else [{"kind": constraint} | given]
    try:
        solution = optsched.solve(
            instance(packed), formulation, constraints=constraints, solver=solver, time_limit=10
        )
    except OptschedError as error:
        told = str(error)
        assert told and "\n" not in told and "Traceback" not in told, told
        return told
    if not solution.ok:
        assert solver not in ("auto", *EMPTY_HANDED), (solution, solution.certificate)
        return f"not certified: {solution.certificate.problems[0]}"
    verification = optsched.verify(instance(packed), solution.to_document())
    assert verification.ok, verification
    if solution.status == "infeasible":
        assert solution.conflicts, "infeasible, and nobody says why"
    return str(solution.status)


ALONE = ("partial-allocation", "makespan-unrelated")
"""Formulations that take no packed jobs; what a packed instance has of others is more than one alone."""


@pytest.mark.parametrize(
    ("formulation", "packed"),
    [
        pytest.param(
            name, packed, id=f"{name}-{'packed' if packed else 'alone'}",
            marks=() if packed or name in ALONE else pytest.mark.study,
        )
        for name in FORMULATIONS for packed in (False, True)
    ],
)  # fmt: skip
def test_with_every_side_constraint(formulation: str, packed: bool) -> None:
    found = {
        constraint: check(formulation, packed, constraint, "auto") for constraint in CONSTRAINTS
    }
    composes = load_formulation(formulation).sense != "rule" and found["none"] in (
        "optimal",
        "feasible",
    )
    solved = [
        constraint
        for constraint, told in found.items()
        if told in ("optimal", "feasible", "infeasible")
    ]
    if (
        composes
        and load_formulation(formulation).takes_rows
        and formulation != "partial-allocation"
    ):
        assert solved == list(CONSTRAINTS), found
    else:  # what has no side constraints is refused, but the placement's own, which everybody takes
        assert set(solved) <= set(CONSTRAINTS), found


@pytest.mark.parametrize("solver", ["highs-ipm", "clarabel", "glop"])
def test_by_other_solvers(solver: str) -> None:
    for formulation in FORMULATIONS:
        check(formulation, True, "none", solver)


@pytest.mark.study
@pytest.mark.parametrize("solver", names("solver"))
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_the_whole_grid(formulation: str, solver: str) -> None:
    try:
        load_solver(solver).version()
    except SolverUnavailable as error:
        pytest.skip(str(error))
    for packed in (False, True):
        for constraint in CONSTRAINTS:
            check(formulation, packed, constraint, solver)


@pytest.mark.unit
def test_a_point_near_an_objective_of_0_is_no_false_claim() -> None:
    """The least cost is 0: Clarabel stops at an absolute gap, which is no relative one there."""
    check("cost", False, "budget", "clarabel")
