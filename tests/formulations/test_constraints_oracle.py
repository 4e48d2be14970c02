"""Side constraints, two or three at once, against programs written by hand and solved by scipy and cvxpy."""

from __future__ import annotations

import pytest
from side_cases import ByHand, random_constraints, random_document

import optsched
from optsched import Instance

pytestmark = pytest.mark.oracle

FORMULATIONS = ("max-min-fairness", "max-throughput", "makespan", "proportional-fairness")


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_random_instances(formulation: str) -> None:
    solved = 0
    for seed in range(12 if formulation == "proportional-fairness" else 20):
        document = random_document(seed)
        constraints = random_constraints(seed, document)
        by_hand = ByHand(document)
        for constraint in constraints:
            by_hand.add(constraint)
        expected, instance = by_hand.solve(formulation), Instance.from_document(document)
        merged, single = (
            optsched.solve(instance, formulation, constraints=constraints, classes=classes)
            for classes in (True, False)
        )
        told = (seed, constraints)
        assert merged.ok and single.ok, told
        assert optsched.verify(instance, merged.to_document()).ok, told
        if expected is None:
            assert merged.status == single.status == "infeasible", told
            assert merged.conflicts and single.conflicts, told
            continue
        solved += 1
        assert merged.status == single.status == "optimal", told
        assert merged.objective == pytest.approx(expected, rel=1e-6, abs=1e-6), told
        assert single.objective == pytest.approx(merged.objective, rel=1e-7, abs=1e-7), told
        assert len(merged.allocation.classes) <= len(single.allocation.classes)
    assert solved >= 6
