"""ortools, highspy, cvxpy and PuLP in one process: the order of import changes neither answers nor what is there.

Two of them ship a shared library of one name, and with versions that are not pinned the loser is dropped in silence.
osqp, which cvxpy calls, shares a symbol with highspy and is refused.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from itertools import combinations, permutations
from typing import Any

import pytest

pytestmark = pytest.mark.process

PACKAGES = ("ortools.linear_solver.python.model_builder", "highspy", "cvxpy", "pulp")
SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    __import__(name)
from optsched.cli.solvers import solver_documents
from optsched.conformance.integer import knapsack
from optsched.conformance.linear import dense
from optsched.solving.engine import Engine
from optsched.registry import load_solver
found, answers = solver_documents(), {}
for item in found:
    if item["version"] is None:
        continue
    for kind, program in (("continuous", dense()), ("integer", knapsack())):
        if kind in item["capabilities"]:
            outcome = Engine(load_solver, item["name"]).solve_linear(program)
            answers[f"{item['name']}, {kind}"] = [str(outcome.status), float(f"{outcome.value:.7g}")]
print(json.dumps({"solvers": found, "answers": answers}))
"""


def told(*order: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *order], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """Nothing is imported beforehand: each package when its solver is asked for."""
    return told()


ORDERS = list(permutations(range(4)))
COVERING = [(0, 1, 2, 3), (3, 1, 0, 2), (2, 1, 0, 3), (0, 3, 2, 1), (1, 3, 2, 0), (2, 3, 0, 1)]
"""Orders in which every three of the four come in each of their six orders; `test_covering` says whether."""


def test_covering() -> None:
    seen = {
        tuple(item for item in order if item in three)
        for order in COVERING
        for three in combinations(range(4), 3)
    }
    assert len(seen) == 24


def check(order: tuple[int, ...], reference: dict[str, Any]) -> None:
    found = told(*(PACKAGES[item] for item in order))
    assert found["solvers"] == reference["solvers"]
    assert found["answers"] == reference["answers"]


@pytest.mark.parametrize(
    "order", COVERING[1:2], ids=lambda order: " ".join(PACKAGES[item][:2] for item in order)
)
def test_no_order_changes_anything(order: tuple[int, ...], reference: dict[str, Any]) -> None:
    check(order, reference)


@pytest.mark.study
@pytest.mark.parametrize("order", [order for order in ORDERS if order != COVERING[1]])
def test_no_other_order_changes_anything(order: tuple[int, ...], reference: dict[str, Any]) -> None:
    check(order, reference)


@pytest.mark.skipif(importlib.util.find_spec("osqp") is None, reason="osqp is not installed")
def test_what_would_crash_is_refused(reference: dict[str, Any]) -> None:
    (osqp,) = (item for item in reference["solvers"] if item["name"] == "cvxpy:OSQP")
    assert osqp["version"] is None and "export functions of one name" in osqp["reason"]


def test_everything_answers(reference: dict[str, Any]) -> None:
    here = {item["name"] for item in reference["solvers"] if item["version"] is not None}
    assert here >= {
        "highs",
        "glop",
        "scip",
        "cp-sat",
        "cbc",
        "scs",
        "clarabel",
        "pulp:HiGHS",
        "cvxpy:HIGHS",
    }
    assert {key.split(",")[0] for key in reference["answers"]} == here - {
        "prices"
    }  # which takes no rows
    for key, (status, value) in reference["answers"].items():
        assert status == "optimal" and value == (52.0 if "integer" in key else 11.0), key
