"""Jobs whose options have no rate or duration, jobs that fit nowhere, and objectives that are 0 whatever is done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plan_instances import made, verified
from refusals import refuses

import optsched
from optsched import Instance
from optsched.program import LinearProgram
from optsched.registry import load_solver

# Private names: the inner steps of an answer are compared with a reference
from optsched.solution.explanation import conflict_statement
from optsched.solving import Engine

ONE_GPU = [{"name": "m0", "nodes": 1, "gpus_per_node": 1}]


def with_options(count: int, option: dict[str, Any], **fields: Any) -> Instance:
    """Jobs with one option each."""
    jobs = [
        {"id": f"h{i}", **fields, "options": [{"pool": "m0", "gpus": 1, **option}]}
        for i in range(count)
    ]
    return made(
        cluster={"pools": ONE_GPU, "resources": [{"name": "licence", "capacity": 2}]}, jobs=jobs
    )


@pytest.mark.parametrize("formulation", ["makespan-unrelated", "lease"])
def test_a_job_that_would_never_end_is_no_job_of_a_plan(formulation: str) -> None:
    instance = with_options(2, {"value": 3}, deadline=100.0)
    told = "jobs[0].options: found no throughput or duration (job 'h0'), expected one of them, as jobs run..."
    with refuses(told):
        optsched.solve(instance, formulation)


@pytest.mark.parametrize("solver", ["auto", "clarabel"])
@pytest.mark.parametrize(
    "formulation", ["max-throughput", "isolated", "max-min-fairness", "makespan"]
)
def test_values_alone_are_no_rates(formulation: str, solver: str) -> None:
    told = "jobs[0].options: found no throughput or duration (job 'j0'), expected a rate..."
    with refuses(told):
        optsched.solve("@knapsack", formulation, solver=solver)


@pytest.mark.parametrize("formulation", ["max-min-fairness", "max-throughput", "makespan"])
def test_of_values_alone_the_formulation_that_solves_them_is_named(formulation: str) -> None:
    with pytest.raises(optsched.InvalidInput) as caught:
        optsched.solve("@knapsack", formulation)
    assert caught.value.expected.endswith(
        "; -f multiple-choice needs no rates, but values of options"
    )
    assert (optsched.solve("@knapsack", "multiple-choice").objective or 0) > 0


def test_jobs_that_fit_nowhere_are_named_and_counted() -> None:
    options = {"uses": {"licence": 3}}
    jobs = [
        {"id": f"h{i}", "options": [{"pool": "m0", "gpus": 1, "duration": i + 1, **options}]}
        for i in range(23)
    ]
    cluster = {"pools": ONE_GPU, "resources": [{"name": "licence", "capacity": 2}]}
    solution = verified(optsched.solve(made(cluster=cluster, jobs=jobs), "makespan-unrelated"))
    words = [conflict.words for conflict in solution.conflicts]
    assert words[0] == "job h0 needs more than the whole capacity in every configuration"
    assert len(words) == 21 and words[-1] == "and 3 more of this kind"


def test_what_fails_for_itself_does_not_conflict() -> None:
    """No two of these requirements are at odds: each is impossible."""
    one = optsched.solve(
        with_options(1, {"duration": 1, "uses": {"licence": 3}}), "makespan-unrelated"
    )
    assert conflict_statement(one.conflicts, one.certificate.proof) == "this cannot be met"
    both = one.conflicts * 2
    assert (
        conflict_statement(both, one.certificate.proof)
        == "none of these can be met, each for itself"
    )


@pytest.mark.parametrize("solver", ["clarabel", "highs", "highs-ipm"])
def test_where_nothing_can_be_gained_no_duals_prove_it(solver: str) -> None:
    """An interior point's duals are 1e-12 then, which are no bound on a 0 relative to itself."""
    lp = LinearProgram()
    x = lp.variables(5, name="x")
    lp.constrain(np.random.default_rng(0).uniform(1, 2, (3, 5)) @ x <= 1.0, name="rows")
    lp.maximise(np.zeros((1, 5)) @ x)
    outcome = Engine(load_solver, solver).solve_linear(lp)
    assert outcome.certificate.ok and outcome.certificate.proof == "dual", (
        outcome.certificate.problems
    )
    assert (outcome.status, outcome.value, outcome.bound) == ("optimal", 0.0, 0.0)
