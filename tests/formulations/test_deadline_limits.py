"""Limits of plans that meet deadlines: of time and work, of the size of a program, and bounds without one."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from plan_instances import made, verified

import optsched
from formulations import deadline_elastic
from optsched.instance import Instance
from optsched.instance.durations import Timer


def elastic_jobs(jobs: int, deadline: float = 100.0, gpus: int = 20, **more: Any) -> Instance:
    """Jobs of 10, 11, ... steps, of which each is done in a second on one GPU, and 1.5 on two."""
    pool = {"name": "v100", "nodes": 1, "gpus_per_node": gpus}
    rates = {"v100": {"1": 1.0, "2": 1.5}}
    levels = {"min": 1, "max": 2, "levels": [1, 2]}
    return made(
        cluster={"pools": [pool]},
        jobs=[
            {"id": f"j{n}", "gpus": levels, "steps": 10.0 + n, "deadline": deadline, "throughput": rates}
            | more
            for n in range(jobs)
        ],
    )  # fmt: skip


def ticking(seconds: float) -> Timer:
    """A time limit whose clock goes on by a second whenever somebody looks at it."""
    ticks = count()
    return Timer.after(seconds, clock=lambda: float(next(ticks)))


def solve(instance: Instance, formulation: str, **options: Any) -> optsched.Solution:
    return verified(optsched.solve(instance, formulation, admission=True, options=options))


@pytest.mark.property
def test_without_time_for_the_program_the_plan_by_rule_is_the_answer() -> None:
    """None of the limits is so short that there is nothing, from the first with which there is something."""
    instance = elastic_jobs(5, deadline=8.0)
    found = [
        optsched.solve(instance, "deadline-elastic", admission=True, time_limit=ticking(seconds))
        for seconds in range(1, 100)
    ]
    answers = [verified(solution) for solution in found if solution.status != "limit"]
    assert found[-len(answers) :] == answers
    first, last = answers[0], answers[-1]
    assert (first.status, first.termination, first.objective) == ("feasible", "time_limit", 2.0)
    assert "before the program was built" in first.solver.reason
    assert (last.status, last.bound) == ("optimal", 2.0)


def test_within_a_limit_that_leaves_no_optimum_the_plan_by_rule_is_the_answer() -> None:
    """Ten jobs of two pools, whose program takes more than one pivot."""
    instance = elastic_jobs(10, gpus=12)
    assert solve(instance, "deadline-fluid", early=0.5).status == "optimal"
    stopped = optsched.solve(instance, "deadline-fluid", work_limit=1)
    assert (verified(stopped).status, stopped.termination) == ("feasible", "work_limit")


def test_a_program_that_is_too_large_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three jobs of two thirds of the time on two GPUs none may stop, so that there is no room for one."""
    monkeypatch.setattr(deadline_elastic, "MOST_HELD", 2)
    instance = elastic_jobs(3, deadline=16.0, gpus=2, preemptible=False)
    solution = solve(instance, "deadline-elastic")
    assert (solution.termination, solution.objective) == ("by_rule", 1.0)
    assert "program would have" in solution.solver.reason


@pytest.mark.parametrize("formulation", ["deadline-elastic", "deadline-fluid"])
@pytest.mark.parametrize("program", [True, False])
def test_who_cannot_be_in_time_alone_is_in_the_bound(formulation: str, program: bool) -> None:
    """Of 10, 11, ..., 14 steps 12 are done by the deadline, at 1.5 steps/s on two GPUs."""
    options = {"program": program} if formulation == "deadline-elastic" else {}
    solution = solve(elastic_jobs(5, deadline=8.0), formulation, **options)
    assert (solution.status, solution.objective, solution.bound) == ("optimal", 2.0, 2.0)
