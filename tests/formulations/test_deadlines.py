"""The side constraint `deadlines`, composed with every formulation that takes rows."""

from __future__ import annotations

from typing import Any

import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched import Instance
from optsched.errors import UsageError


def document(*jobs: dict[str, Any], gpus: int = 2) -> dict[str, Any]:
    return instance_document(
        {"a": gpus}, [{"throughput": {"a": 2.0}, "steps": 3600, **job} for job in jobs], now=100.0
    )


def solve(
    *jobs: dict[str, Any], formulation: str = "max-throughput", **options: Any
) -> optsched.Solution:
    return optsched.solve(Instance.from_document(document(*jobs)), formulation, **options)


@pytest.mark.parametrize("formulation", ("max-min-fairness", "max-throughput", "makespan"))
def test_the_pace_is_kept(formulation: str) -> None:
    jobs = [{"id": "urgent", "deadline": 100 + 1800}, *({"id": f"j{i}"} for i in range(5))]
    solution = solve(*jobs, formulation=formulation, constraints=["deadlines"])
    assert solution.ok and solution.throughput["urgent"] >= 2.0 - 1e-7
    free = solve(*jobs, formulation=formulation)
    worse = -1 if formulation == "makespan" else 1
    assert worse * (free.objective - solution.objective) >= -1e-9
    assert solution.to_document()["constraints"] == [
        {"kind": "deadlines", "soft": False, "give_way": "none"}
    ]


def test_constraints_of_the_instance_are_applied() -> None:
    jobs = [{"id": "urgent", "deadline": 100 + 1800}, *({"id": f"j{i}"} for i in range(5))]
    instance = Instance.from_document(document(*jobs) | {"constraints": [{"kind": "deadlines"}]})
    assert optsched.solve(instance).throughput["urgent"] == pytest.approx(2.0)


def test_conflicting_deadlines_are_named_and_the_set_is_minimal() -> None:
    tight = [{"id": f"tight{i}", "deadline": 100 + 2000} for i in range(3)]
    solution = solve({"id": "easy", "deadline": 1e6}, *tight, constraints=["deadlines"])
    assert solution.status == "infeasible" and solution.allocation is None
    assert (
        solution.certificate.proof == "dual"
        and solution.certificate.residuals["least_violation"] > 1e-3
    )
    words = " | ".join(conflict.words for conflict in solution.conflicts)
    assert "tight0 (and 2 like it) needs 0.5 GPU h of a each by 2100 s" in words
    assert "pool a has 2 usable GPUs" in words and "easy" not in words


def test_a_deadline_that_passed_is_named() -> None:
    solution = solve(
        {"id": "late", "arrival": 0, "deadline": 50}, {"id": "ok"}, constraints=["deadlines"]
    )
    assert solution.status == "infeasible"
    assert (
        "job late has 3600 steps left and its deadline, 50 s, is not after now (100 s)"
        in solution.conflicts[0].words
    )


def test_of_many_deadlines_that_passed_the_number_of_those_not_named_is_told() -> None:
    late = [{"id": f"late{i}", "arrival": 0, "deadline": 50} for i in range(25)]
    words = [conflict.words for conflict in solve(*late, constraints=["deadlines"]).conflicts]
    assert len(words) == 21 and words[-1] == "and 5 more of this kind"


def test_a_passed_deadline_of_finished_work_is_no_problem() -> None:
    done = {"id": "late", "arrival": 0, "deadline": 50, "steps_done": 3600}
    assert solve(done, {"id": "ok"}, constraints=["deadlines"]).status == "optimal"


def test_a_deadline_of_a_job_that_runs_nowhere_is_named() -> None:
    solution = solve(
        {"id": "huge", "gpus": 9, "deadline": 5000}, {"id": "ok"}, constraints=["deadlines"]
    )
    assert (
        solution.status == "infeasible" and "job huge has a deadline" in solution.conflicts[0].words
    )


def test_soft_deadlines_only_on_demand() -> None:
    jobs = [{"id": f"s{i}", "deadline": 100 + 2000, "deadline_kind": "soft"} for i in range(3)]
    assert solve(*jobs, constraints=["deadlines"]).status == "optimal"
    assert (
        solve(*jobs, constraints=[{"kind": "deadlines", "soft": True, "give_way": "none"}]).status
        == "infeasible"
    )


def test_integral_program_with_deadlines() -> None:
    jobs = [{"id": f"j{i}", "deadline": 100 + 2000} for i in range(3)]
    solution = solve(*jobs, constraints=["deadlines"], integral=True)
    assert solution.status == "infeasible" and solution.conflicts


@pytest.mark.parametrize(
    ("constraint", "message"),
    (
        ("deadline", "constraint: found 'deadline', expected one of anti-affinity..."),
        (
            {"kind": "deadlines", "sof": True},
            "option of deadlines: found 'sof', expected one of soft, give_way",
        ),
        (
            {"soft": True, "give_way": "none"},
            'constraint: found {"soft": true, "give_way": "none"}',
        ),
        (7, 'constraint: found 7, expected a kind or an object with "kind"'),
    ),
)
def test_broken_constraints(constraint: Any, message: str) -> None:
    with refuses(message, UsageError):
        solve({"id": "a"}, constraints=[constraint])


def test_own_rows_through_extend() -> None:
    """A researcher's row: at most a quarter of the pool in all."""

    def quarter(program: Any, variables: Any, C: Any) -> None:
        program.constrain((C.usage @ variables["x"]) <= 0.25 * C.capacity, name="quarter")

    solution = solve({"id": "a"}, {"id": "b"}, extend=quarter)
    assert solution.ok and solution.allocation.usage.sum() == pytest.approx(0.5)
    assert solution.to_document()["constraints"] == [{"kind": "extend"}]
    assert "quarter" in solution.duals


def test_the_same_constraint_twice_is_one_and_two_of_a_kind_are_two() -> None:
    jobs = [
        {"id": "a", "deadline": 100 + 3600},
        {"id": "s", "deadline": 100 + 9000, "deadline_kind": "soft"},
    ]
    instance = Instance.from_document(document(*jobs) | {"constraints": [{"kind": "deadlines"}]})
    once = optsched.solve(instance, "max-throughput", constraints=["deadlines"])
    assert once.ok and once.to_document()["constraints"] == [
        {"kind": "deadlines", "soft": False, "give_way": "none"}
    ]
    softer = {"kind": "deadlines", "soft": True, "give_way": "none"}
    replaced = optsched.solve(instance, "max-throughput", constraints=[softer])
    assert replaced.ok and replaced.to_document()["constraints"] == [
        softer
    ]  # in place of the instance's own
    both = optsched.solve(instance, "max-throughput", constraints=["deadlines", softer])
    assert both.ok and {"deadlines", "deadlines#2"} <= set(both.duals)
    assert optsched.verify(instance, both.to_document()).ok
