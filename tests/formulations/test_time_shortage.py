"""Jobs with deadlines that need more time than there is, as sums show: quickly, and never falsely."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plan_instances import made, verified

import optsched
from formulations import deadline_fluid
from optsched.instance import Instance
from optsched.solution import Status

# Private: sums show it only of many jobs, and the tests are about few
EVERY_SIZE = pytest.mark.usefixtures("every_size")


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline_fluid, "COUNTED_FROM", 0)


def two_pools(jobs: list[dict[str, Any]], gpus: int = 2) -> Instance:
    pools = [{"name": name, "nodes": 1, "gpus_per_node": gpus} for name in "ab"]
    return made(cluster={"pools": pools}, jobs=[{"id": f"j{i}"} | j for i, j in enumerate(jobs)])


def job(steps: float, deadline: float, pools: str = "a", **more: Any) -> dict[str, Any]:
    rates = {"throughput": dict.fromkeys(pools, 1.0)}
    return {"steps": steps, "deadline": deadline, "gpus": 1, **rates, **more}


def counted(instance: Instance, formulation: str = "deadline-fluid") -> optsched.Solution:
    solution = verified(optsched.solve(instance, formulation))
    assert (solution.status, solution.certificate.proof) == (Status.INFEASIBLE, "counted")
    return solution


@EVERY_SIZE
@pytest.mark.parametrize("formulation", ["deadline-fluid", "deadline-elastic"])
def test_the_fewest_jobs_that_need_too_much_are_named(formulation: str) -> None:
    jobs = [job(10, 50), job(30, 40), job(40, 40), job(25, 40), job(500, 5000)]
    solution = counted(two_pools(jobs), formulation)
    assert [conflict.words for conflict in solution.conflicts] == [
        "from 0 s to 40 s there are 80 GPU seconds of pool a, and these jobs need at least 95",
        "job j1 needs at least 30 s, on 1 GPU of a, and has 40 s before its deadline, 40 s",
        "job j2 needs at least 40 s, on 1 GPU of a, and has 40 s before its deadline, 40 s",
        "job j3 needs at least 25 s, on 1 GPU of a, and has 40 s before its deadline, 40 s",
    ]
    assert solution.certificate.residuals == {"asked": 95.0, "available": 80.0}


@EVERY_SIZE
def test_jobs_that_may_choose_are_counted_in_all_pools() -> None:
    assert (
        "160 GPU seconds of all pools"
        in counted(two_pools([job(36, 40, "ab") for _ in range(5)])).conflicts[0].words
    )
    kept = optsched.solve(two_pools([job(32, 40, "ab") for _ in range(5)]), "deadline-fluid")
    assert kept.status is Status.OPTIMAL


@EVERY_SIZE
def test_pools_of_unlike_speed_are_counted_by_their_speed() -> None:
    """Pool b needs four times as long: its 200 GPU seconds do the work of 50."""
    way = {"throughput": {"a": 1.0, "b": 0.25}}
    jobs = [job(40, 100) | way for _ in range(7)]
    words = counted(two_pools(jobs)).conflicts[0].words
    assert words == (
        "from 0 s to 100 s there are 250 GPU seconds of all pools, by speed "
        "(a second is 1 on a and 0.25 on b), and these jobs need at least 280"
    )
    kept = optsched.solve(two_pools(jobs[:6]), "deadline-fluid")
    assert kept.status is Status.OPTIMAL


@EVERY_SIZE
def test_windows_begin_at_arrivals_and_count_what_must_be_done_inside() -> None:
    """Of 60 s before 100 at least 20 lie in the last 40 s, where the others need all."""
    late = {"arrival": 60.0}
    jobs = [job(80, 100), job(40, 100, **late), job(30, 100, **late)]
    words = counted(two_pools(jobs)).conflicts[0].words
    assert words.startswith("from 60 s to 100 s there are 80 GPU seconds of pool a")


@EVERY_SIZE
@pytest.mark.parametrize("soft", [False, True])
def test_jobs_that_may_be_declined_are_not_counted(soft: bool) -> None:
    jobs = [job(30, 40, deadline_kind="soft" if soft else "hard") for _ in range(5)]
    options = {} if soft else {"admission": True}
    kept = verified(optsched.solve(two_pools(jobs), "deadline-fluid", options=options))
    assert (kept.status, kept.objective) == (Status.OPTIMAL, 3.0)


def random_set(random: np.random.Generator) -> Instance:
    """Levels, pools, arrivals and nodes that open later; about as much as there is."""
    jobs = []
    for _ in range(random.integers(8, 15)):
        arrival = float(random.choice([0, 0, 20, 35]))
        rates = {"1": 1.0, "2": float(random.choice([1.5, 2.0]))}
        pools = random.choice(["a", "b", "ab"])
        jobs.append(
            {
                "steps": float(random.integers(10, 60)),
                "arrival": arrival,
                "deadline": arrival + float(random.integers(35, 70)),
                "gpus": {"min": 1, "max": 2, "levels": [1, 2]},
                "throughput": {
                    name: {
                        gpus: rate * float(random.choice([1, 2])) for gpus, rate in rates.items()
                    }
                    for name in pools
                },
            }
        )
    pools = [
        {"name": "a", "nodes": 1, "gpus_per_node": 2},
        {
            "name": "b",
            "gpus_per_node": 1,
            "nodes": [{"name": "b0"}, {"name": "b1", "available_from": 30.0}],
        },
    ]
    return made(cluster={"pools": pools}, jobs=[{"id": f"j{i}"} | j for i, j in enumerate(jobs)])


def with_a_faster(instance: Instance) -> Instance:
    """The same where pool a does four times the work of pool b for jobs that run in both."""
    document = instance.to_document()
    for item in document["jobs"]:
        rates = item["throughput"]
        if set(rates) == {"a", "b"}:
            rates["a"] = {gpus: 4.0 * rate for gpus, rate in rates["b"].items()}
            item["steps"] *= 3.0
    return Instance.from_document(document)


@EVERY_SIZE
def test_a_solver_finds_no_schedule_where_sums_find_none(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(18)
    instances = [random_set(random) for _ in range(60)]
    instances += [with_a_faster(instance) for instance in instances[:30]]
    shown = [
        instance
        for instance in instances
        if optsched.solve(instance, "deadline-fluid").certificate.proof == "counted"
    ]
    assert len(shown) > 10
    monkeypatch.setattr(deadline_fluid, "COUNTED_FROM", 10**9)
    for instance in shown:
        assert optsched.solve(instance, "deadline-fluid").status is Status.INFEASIBLE


@pytest.mark.parametrize("formulation", ["deadline-fluid", "deadline-elastic"])
def test_a_large_set_is_refused_before_any_plan_is_made(
    monkeypatch: pytest.MonkeyPatch, formulation: str
) -> None:
    """A rule would look for room for each of 200 jobs, and a program would have 10,000 columns."""
    monkeypatch.setattr("formulations.deadline_elastic.DeadlineElastic.rule", None)
    none = property(lambda program: pytest.fail("a plan by rule is made"))
    monkeypatch.setattr("formulations.deadline_fluid.FluidProgram.by_rule", none)
    jobs = [job(100.0 + i, 5000.0 + i) for i in range(200)]
    solution = optsched.solve(two_pools(jobs), formulation, time_limit=600.0)
    window, named = [conflict.words for conflict in solution.conflicts]
    assert window.startswith("from 0 s to 51") and "GPU seconds of pool a" in window
    assert named.startswith("they are j") and named.endswith(", j197, j198 and j199")


def test_a_wrong_sum_in_a_file_is_refused() -> None:
    jobs = [job(100.0 + i, 5000.0 + i) for i in range(200)]
    solution = counted(two_pools(jobs))
    document = solution.to_document()
    document["certificate"]["residuals"]["asked"] += 5.0
    report = optsched.verify(solution.instance, document)
    assert not report.ok and "certificate.residuals" in str(report)
