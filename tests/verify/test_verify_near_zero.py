"""Sums of utilities whose terms cancel: an objective near 0 is judged by the size of its terms, and not by its own."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import optsched
from optsched import Instance, Solution
from optsched.program import LinearProgram
from optsched.solution import certify_point
from optsched.verify import verify

pytestmark = pytest.mark.property

Document = dict[str, Any]


def roomy(jobs: int, seed: int = 1) -> Instance:
    """One pool with room for all: every level is 1, and the sum of the logarithms 0 but for rounding."""
    random = np.random.default_rng(seed)
    gpus = random.choice([1, 2, 3, 5, 8], jobs)
    rates = random.lognormal(0.0, 1.0, (jobs, 1))
    return Instance.from_arrays(pools={"p": int(gpus.sum()) + 8}, throughput=rates, gpus=gpus)


def written(solution: Solution) -> Document:
    document: Document = json.loads(json.dumps(solution.to_document()))
    return document


def refused(instance: Instance, document: Document) -> set[str]:
    return {finding.field for finding in verify(instance, document).findings}


@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("solver", ["prices", "clarabel"])
def test_a_sum_of_logarithms_that_is_zero_is_right(solver: str, seed: int) -> None:
    instance = roomy(3 + 40 * (seed % 3), seed)
    solution = optsched.solve(instance, "proportional-fairness", solver=solver)
    assert solution.ok and solution.status == "optimal" and abs(solution.objective or 0.0) < 1e-6
    assert verify(instance, written(solution), resolve=True).findings == ()


@pytest.mark.parametrize("duals", [True, False])
def test_thousands_of_terms_that_cancel_are_right(
    duals: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not duals:  # as of more rows than a file has duals of
        monkeypatch.setattr("optsched.solution.solution.DUAL_ROWS", 5)
        monkeypatch.setattr("optsched.verify.numbers.DUAL_ROWS", 5)
    instance = roomy(6000)
    solution = optsched.solve(instance, "proportional-fairness", solver="prices", classes=False)
    assert solution.ok and abs(solution.objective or 0.0) < 1e-9
    document = written(solution)
    assert (document["duals"] is not None) is duals
    assert verify(instance, document).findings == ()


@pytest.mark.parametrize("amount", [1e-15, 1e-13])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_bounds_off_by_rounding_contradict_nothing(amount: float, side: float) -> None:
    instance = roomy(40)
    document = written(optsched.solve(instance, "proportional-fairness", solver="prices"))
    document["bound"] = document["objective"] + side * amount
    document["gap"] = abs(document["objective"] - document["bound"]) / 1e-9
    assert refused(instance, document) == set()


@pytest.mark.parametrize("amount", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_another_bound_than_the_duals_prove_is_refused_near_zero_too(
    amount: float, side: float
) -> None:
    instance = roomy(40)
    document = written(optsched.solve(instance, "proportional-fairness", solver="prices"))
    document["bound"] = document["objective"] + side * amount
    document["gap"] = abs(document["objective"] - document["bound"]) / 1e-9
    assert "bound" in refused(instance, document)


def test_another_objective_than_that_of_the_allocation_is_refused_near_zero_too() -> None:
    instance = roomy(40)
    document = written(optsched.solve(instance, "proportional-fairness", solver="prices"))
    document["objective"] -= 1e-8
    document["gap"] = abs(document["objective"] - document["bound"]) / max(
        1e-9, abs(document["objective"])
    )
    assert "objective" in refused(instance, document)


def test_the_objective_of_a_point_is_compared_by_the_size_of_its_terms() -> None:
    lp = LinearProgram()
    x = lp.variables(200, name="x", implied=(0.0, 1.0), upper=1.0)
    lp.maximise(np.where(np.arange(200) % 2, 1.0, -1.0)[np.newaxis, :] @ x)
    arrays, point = lp.arrays, np.ones(200)
    assert arrays.objective(point) == 0.0
    assert certify_point(arrays, point, 1e-11, "none").ok  # 200 terms of 1
    assert certify_point(arrays, point, -1e-11, "none").residuals["objective"] == 0.0
    assert not certify_point(arrays, point, 1e-9, "none").ok
    assert not certify_point(arrays, np.zeros(200), 1e-11, "none").ok  # nothing was summed
