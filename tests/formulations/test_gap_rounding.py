"""Rounding of generalised assignments: cost and loads within what Shmoys and Tardos promise."""

from __future__ import annotations

import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.generate import generate

pytestmark = pytest.mark.property


@pytest.mark.parametrize("kind", ["a", "c", "d", "e"])
@pytest.mark.parametrize("seed", range(3))
def test_the_guarantee_holds(kind: str, seed: int) -> None:
    instance = generate("gap", jobs=24, agents=4, type=kind, seed=seed).instance
    rounded, best = optsched.solve(instance, "gap-rounding"), optsched.solve(instance, "gap")
    assert rounded.certificate.ok, rounded.certificate.problems
    assert rounded.objective is not None and rounded.bound is not None
    assert best.objective is not None
    assert rounded.objective <= rounded.bound <= best.objective + 1e-6
    assert rounded.bound_source == "relaxation"
    capacity = {item.name: item.capacity for item in instance.cluster.resources}
    use, largest = dict.fromkeys(capacity, 0.0), dict.fromkeys(capacity, 0.0)
    document = instance.to_document()
    options = {job["id"]: job["options"] for job in document["jobs"]}
    for choices in options.values():
        for option in choices:
            for agent, amount in option["uses"].items():
                if amount <= capacity[agent]:
                    largest[agent] = max(largest[agent], amount)
    cost = 0.0
    for row in rounded.to_document()["allocation"]:
        option = options[row["job"]][row["option"]]
        cost += option["cost"]
        for agent, amount in option["uses"].items():
            use[agent] += amount
    assert len(rounded.to_document()["allocation"]) == 24
    assert cost == pytest.approx(rounded.objective)
    for agent, most in capacity.items():
        assert use[agent] <= most + largest[agent] + 1e-6
    assert optsched.verify(rounded).ok


def two_agents(first: dict[str, float], second: dict[str, float]) -> optsched.Instance:
    """Three equal jobs with two options; the first agent has room for one of them at most."""
    options = [{"uses": first, "cost": 1.0}, {"uses": second, "cost": 5.0}]
    return optsched.Instance.from_document(
        instance_document(
            {"none": (0, 1)},
            [{"id": f"j{row}", "options": options} for row in range(3)],
            resources=[{"name": "a", "capacity": 3.0}, {"name": "b", "capacity": 9.0}],
        )
    )


def test_options_that_never_fit_are_left_out() -> None:
    """Three quarters of a job would fit, and the relaxation would cost less."""
    solution = optsched.solve(two_agents({"a": 4.0}, {"b": 3.0}), "gap-rounding")
    assert solution.objective == solution.bound == 15.0
    assert solution.status == "optimal"
    assert solution.notes[0].endswith("every agent keeps its capacity, so no assignment costs less")


def test_an_agent_exceeds_its_capacity_by_one_job_at_most() -> None:
    solution = optsched.solve(two_agents({"a": 2.0}, {"b": 3.0}), "gap-rounding")
    assert solution.bound == pytest.approx(1.5 * 1.0 + 1.5 * 5.0)
    assert solution.objective == 7.0  # two jobs with the first agent, which has room for 1.5
    assert solution.notes[0].endswith("beyond their capacity: a by 1")
    assert solution.certificate.ok


def test_options_of_several_agents_cannot_be_rounded() -> None:
    wanted = "gap-rounding: every option must use one resource, its agent; use gap"
    with refuses(wanted, UsageError):
        optsched.solve(two_agents({"a": 1.0, "b": 1.0}, {"b": 3.0}), "gap-rounding")


def test_jobs_that_fit_nowhere_are_infeasible() -> None:
    solution = optsched.solve(two_agents({"a": 4.0}, {"b": 10.0}), "gap-rounding")
    assert solution.status == "infeasible"


def test_what_has_no_split_assignment_has_no_whole_one() -> None:
    instance = two_agents({"a": 3.0}, {"b": 9.0})
    solution = optsched.solve(instance, "gap-rounding")
    assert solution.status == "infeasible"
    assert solution.certificate.proof == "dual"
    assert solution.conflicts
    assert optsched.verify(solution).ok
