"""Deadlines of odd sets: consumables of jobs that change their level, values that rise, work of no time."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest
from plan_instances import made, verified
from refusals import refuses

import optsched
from formulations.deadline_elastic import DeadlineElastic
from optsched.instance import Instance


def on_one_pool(gpus: int, jobs: list[dict[str, Any]], now: float = 0.0, **more: Any) -> Instance:
    pools = [{"name": "p", "nodes": 1, "gpus_per_node": gpus}]
    return made(now=now, cluster={"pools": pools, **more}, jobs=jobs)


def of_mixed_levels(seed: int) -> Instance:
    """Jobs that may run on GPUs, or on none while they use energy."""
    draw = np.random.default_rng(seed)
    jobs: list[dict[str, Any]] = []
    for number in range(int(draw.integers(2, 4))):
        work = float(draw.uniform(10.0, 40.0))
        options: list[dict[str, Any]] = [
            {"pool": "p", "gpus": 1, "duration": work},
            {"pool": "p", "gpus": 2, "duration": 0.6 * work, "uses": {"energy": 1.0}},
            {"gpus": 0, "duration": 1.3 * work, "uses": {"energy": float(draw.choice([2, 12.5]))}},
        ]
        arrival = float(draw.choice([0.0, 7.0]))
        due = arrival + work * float(draw.uniform(0.9, 2.0))
        job = {"id": f"j{number}", "arrival": arrival, "deadline": due, "options": options}
        jobs.append(job | {"restart_cost": float(draw.choice([0.0, 3.0]))})
    energy = {"name": "energy", "kind": "consumable", "capacity": float(draw.choice([3.86, 9.0]))}
    return on_one_pool(int(draw.integers(1, 4)), jobs, resources=[energy])


def spent(solution: optsched.Solution) -> float:
    """Energy that a schedule uses up: each option its part of the work's; a restart uses none."""
    assert solution.schedule is not None
    jobs = solution.instance.to_document()["jobs"]
    of_job = {job["id"]: job for job in jobs}
    total, ran = 0.0, set()
    for row in sorted(solution.schedule.to_records(), key=lambda row: (row["job"], row["start"])):
        job = of_job[row["job"]]
        option = job["options"][row["option"]]
        restart = job.get("restart_cost", 0.0) if row["job"] in ran else 0.0
        ran.add(row["job"])
        part = (row["end"] - row["start"] - restart) / option["duration"]
        total += part * option.get("uses", {}).get("energy", 0.0)
    return total


@pytest.mark.parametrize("seed", range(1, 6))
def test_program_schedule_and_check_count_what_is_consumed_alike(seed: int) -> None:
    instance = of_mixed_levels(seed)
    most = instance.to_document()["cluster"]["resources"][0]["capacity"]
    for options in ({"intervals": 4}, {"program": False}):
        options = {"admission": True, **options}
        found = verified(optsched.solve(instance, "deadline-elastic", options=options))
        assert found.certificate.ok
        assert spent(found) <= most * (1 + 1e-6)


def test_a_level_without_gpus_uses_up_its_part_alone() -> None:
    """Half of the work on the GPU, half on energy, of which there is just enough for half."""
    options = [
        {"pool": "p", "gpus": 1, "duration": 100.0},
        {"gpus": 0, "duration": 100.0, "uses": {"energy": 4.0}},
    ]
    jobs = [
        {"id": "first", "deadline": 50.0, "options": [{"pool": "p", "gpus": 1, "duration": 50.0}]},
        {"id": "both", "deadline": 100.0, "options": options},
    ]
    energy = {"name": "energy", "kind": "consumable", "capacity": 2.0}
    instance = on_one_pool(1, jobs, resources=[energy])
    found = verified(optsched.solve(instance, "deadline-elastic"))
    assert found.objective == pytest.approx(100.0)
    assert spent(found) == pytest.approx(2.0)


@pytest.mark.parametrize("first", [0.0, 1.0])
def test_a_later_deadline_may_be_worth_more(first: float) -> None:
    options = [
        {"pool": "p", "gpus": 1, "duration": 40.0, "value": value, "attributes": {"deadline": due}}
        for due, value in ((50.0, first), (100.0, 3.0))
    ]
    instance = on_one_pool(1, [{"id": "a", "options": options}])
    of_elastic: tuple[dict[str, Any], ...] = ({}, {"columns": 0}, {"program": False})
    for plan, settings in (("deadline-fluid", ({},)), ("deadline-elastic", of_elastic)):
        for more in settings:
            found = verified(optsched.solve(instance, plan, options={"admission": True, **more}))
            assert (found.objective, found.status) == (0.0, "optimal")


def test_elasticflow_takes_a_level_without_gpus() -> None:
    options = [
        {"gpus": 0, "duration": 30.0},
        {"pool": "p", "gpus": 1, "duration": 15.0},
    ]
    job = {"id": "a", "arrival": 0.0, "deadline": 80.0, "options": options}
    waits = {"id": "b", "deadline": 60.0, "options": [{"pool": "p", "gpus": 1, "duration": 40.0}]}
    verified(optsched.solve(on_one_pool(1, [job, waits]), "elasticflow"))


TINY = (1e-18, 1e-9, 1e-5)


@pytest.mark.parametrize("work", TINY)
@pytest.mark.parametrize("now", [0.0, 100.0, 1.7e9])
def test_jobs_of_hardly_any_work_keep_their_certificates(work: float, now: float) -> None:
    """Clocks round such times; a job of them neither breaks a row nor makes others impossible."""
    jobs = [
        {"id": "tiny", "options": [{"pool": "p", "gpus": 1, "duration": work}]},
        {"id": "other", "options": [{"pool": "p", "gpus": 2, "duration": 10.0}]},
    ]
    for job, due in zip(jobs, (20.0, 10.5), strict=True):
        job["deadline"] = now + due
        job["arrival"] = now
    instance = on_one_pool(2, jobs, now=now)
    for plan in ("deadline-elastic", "deadline-fluid", "elasticflow"):
        for admission in (False, True):
            options = {"admission": admission}
            found = verified(optsched.solve(instance, plan, options=options))
            assert found.certificate.ok
            assert found.objective is not None


def running_beyond(resource: str, due: float, **more: Any) -> tuple[Instance, dict[str, Any]]:
    """A job that runs for 50 s more on two GPUs, one that waits, and less of one resource than the
    former takes; with options that say so of GPUs.
    """
    jobs: list[dict[str, Any]] = [
        {"id": "runs", "deadline": due, "options": [{"pool": "p", "gpus": 2, "duration": 50.0}]},
        {"id": "waits", "deadline": 200.0, "options": [{"pool": "p", "gpus": 1, "duration": 30.0}]},
    ]
    where = {"pool": "p", "gpus": ["p-0/0", "p-0/1"], "since": -5.0}
    jobs[0] |= {"running": where, "arrival": -10.0, **more}
    if resource == "p":
        return on_one_pool(2, jobs), {"capacity": {"p": [1]}}
    kind = {"kind": "consumable"} if resource == "energy" else {}
    for job, amount in zip(jobs, (2.0, 0.5), strict=True):
        job["options"][0]["uses"] = {resource: amount}
    return on_one_pool(2, jobs, resources=[{"name": resource, "capacity": 1.0, **kind}]), {}


RULE_AND_PROGRAMS: tuple[dict[str, Any], ...] = (
    {"admission": True},
    {"admission": True, "columns": 0},
    {"admission": True, "program": False},
    {},
)


@pytest.mark.parametrize("resource", ["p", "licences", "energy"])
@pytest.mark.parametrize("more", [{"preemptible": False}, {"exempt_time": 300.0}])
def test_jobs_that_go_on_with_more_than_there_is_are_named(
    resource: str, more: dict[str, Any]
) -> None:
    instance, least = running_beyond(resource, 100.0, **more)
    for options in RULE_AND_PROGRAMS:
        found = verified(optsched.solve(instance, "deadline-elastic", options=options | least))
        assert found.status == "infeasible"
        assert "job runs runs, goes on as it does, and takes 2" in found.conflicts[1].words


def calls_of_build(jobs: int, **more: Any) -> int:
    """Function calls in which the program of so many running jobs is made, without a search."""
    where = {"pool": "p", "since": -5.0}
    on_a_gpu = [
        {"id": f"j{number}", "deadline": 200.0, "arrival": -10.0, **more}
        | {"options": [{"pool": "p", "gpus": 1, "duration": 50.0 + number}]}
        | {"running": {**where, "gpus": [f"p-0/{number}"]}}
        for number in range(jobs)
    ]
    instance = on_one_pool(jobs, on_a_gpu)
    formulation = DeadlineElastic(DeadlineElastic.Options(admission=True)).for_checking()
    C = formulation.classes(optsched.compile(instance))
    count = 0

    def profiler(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profiler)
    try:
        formulation.build(C)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("more", [{"preemptible": False}, {"exempt_time": 30.0}])
def test_no_loop_goes_over_jobs_that_go_on(more: dict[str, Any]) -> None:
    """Loops would take seconds for tens of thousands, outside of the time limit."""
    few, many = (calls_of_build(jobs, **more) for jobs in (50, 350))
    assert many < few + 300


@pytest.mark.parametrize("resource", ["p", "licences"])
def test_late_jobs_that_go_on_leave_nothing_where_they_hold_more_than_there_is(
    resource: str,
) -> None:
    instance, least = running_beyond(resource, 40.0, preemptible=False, deadline_kind="soft")
    for options in RULE_AND_PROGRAMS:
        found = verified(optsched.solve(instance, "deadline-elastic", options=options | least))
        assert (found.status, found.objective) == ("optimal", 1.0)
        assert found.schedule is not None
        assert [row["start"] for row in found.schedule.to_records()] == [50.0]


SHORT_WORK = ((0.0, 1e-12, 1e-4), (100.0, 3e-6, 1e-4), (1.7e9, 0.06, 2.0**-21 / 1e-6))
"""(now, work, seconds that count for it)."""


@pytest.mark.parametrize(("now", "work", "counts"), SHORT_WORK)
@pytest.mark.parametrize("running", [{}, {"preemptible": False}, {"exempt_time": 0.5e-12}])
def test_work_that_no_clock_can_tell_counts_as_the_shortest(
    now: float, work: float, counts: float, running: dict[str, Any]
) -> None:
    """The same rule for all programs: three such jobs on a GPU need three times as long."""
    option = {"pool": "p", "gpus": 1, "duration": work}
    jobs = [{"id": f"j{n}", "deadline": now + 2.5 * counts, "options": [option]} for n in range(3)]
    if running:
        where = {"pool": "p", "gpus": ["p-0/0"], "since": now}
        jobs[0] |= {"running": where, "arrival": now, **running}
    instance = on_one_pool(1, jobs, now=now)
    for plan in ("deadline-elastic", "deadline-fluid", "elasticflow"):
        found = verified(optsched.solve(instance, plan, options={"admission": True}))
        assert (found.bound or 0.0) <= 1.0 == found.objective
        alone = on_one_pool(1, [jobs[0] | {"deadline": now + 0.5 * counts}], now=now)
        assert optsched.solve(alone, plan).schedule is None
    decision = optsched.admit(instance, ["j1", "j2"], advise=False)
    assert decision.admitted == ("j1",)


def test_work_that_the_clock_can_hardly_measure_keeps_its_certificate() -> None:
    """On a clock from 1970 the shortest work is two million ticks: its end is off by half of one."""
    now = 1.7e9
    duration = 2_000_000.45 * float(np.spacing(now))
    job = {"id": "a", "deadline": now + 1.0}
    job |= {"options": [{"pool": "p", "gpus": 1, "duration": duration}]}
    for admission in (False, True):
        options = {"admission": admission}
        instance = on_one_pool(1, [job], now=now)
        found = verified(optsched.solve(instance, "deadline-fluid", options=options))
        assert found.certificate.ok
        assert found.schedule is not None
        assert len(found.schedule.to_records()) == 1


@pytest.mark.parametrize("formulation", ["deadline-fluid", "deadline-elastic", "elasticflow"])
def test_a_clock_that_is_too_coarse_is_refused(formulation: str) -> None:
    """In milliseconds since 1970 a job of a second would count as 500 s."""
    now = 1.7e12
    jobs = [{"id": "j", "steps": 1.0, "deadline": now + 50.0, "throughput": {"p": 1.0}, "gpus": 1}]
    with refuses("now: found 1.7e+12 s, expected at most 1e+11 s: later, ..."):
        optsched.solve(on_one_pool(1, jobs, now), formulation)


@pytest.mark.parametrize("formulation", ["deadline-fluid", "deadline-elastic"])
def test_jobs_that_begin_after_the_precision_of_numbers_have_a_plan(formulation: str) -> None:
    """The time that counts as rounding is longer than the job."""
    far = 1e13
    job = {"id": "j", "steps": 1.0, "arrival": far, "deadline": far + 5.0, "gpus": 1}
    instance = on_one_pool(1, [job | {"throughput": {"p": 1.0}}])
    assert verified(optsched.solve(instance, formulation)).status == "optimal"


def test_a_piece_that_the_clock_rounds_to_nothing_belongs_to_the_plan() -> None:
    """Work of 3e-8 s is left where the last plan, as it is written, ends a tick later."""
    rows = [  # arrival and deadline, as a clock from 1970 has them, and the work
        (1700000024.7560687, 1700000187.0211272, 54.11047765173266),
        (1700000001.2733712, 1700000065.5566957, 41.70084213963504),
        (1700000000.0, 1700000127.2443123, 53.51907305443245),
        (1700000019.4509926, 1700000051.2881608, 13.854148496337775),
        (1700000023.5105174, 1700000208.546163, 43.24509081513142),
        (1700000005.1199496, 1700000125.2581275, 43.980497919628476),
    ]
    jobs = [
        {"id": f"j{number}", "arrival": arrival, "deadline": due, "options": [option]}
        for number, (arrival, due, work) in enumerate(rows)
        for option in [{"pool": "p", "gpus": 1, "duration": work}]
    ]
    decision = optsched.admit(on_one_pool(4, [], 1.7e9), jobs, advise=False)
    assert decision.all_admitted
    assert decision.plan is not None
    verified(decision.plan)


def elastic(
    name: str, steps: float, deadline: float, rates: dict[int, float], **more: Any
) -> dict[str, Any]:
    gpus = {"min": min(rates), "max": max(rates), "levels": list(rates)}
    by_count = {"p": {str(count): rate for count, rate in rates.items()}}
    job = {"id": name, "steps": steps, "deadline": deadline, "gpus": gpus, "throughput": by_count}
    return job | more


@pytest.mark.parametrize("order", range(4))
def test_a_restart_that_takes_longer_than_there_is_counts_as_so_long(order: int) -> None:
    """A hundred thousand seconds in a row hid some of the work: plans were called optimal that were not."""
    pools = [
        {"name": "p", "nodes": 2, "gpus_per_node": 4},
        {"name": "other", "nodes": 1, "gpus_per_node": 2},
    ]
    on_other = {"other": {"1": 1.585, "2": 2.922}}
    objectives = []
    for cost in (100.0, 1e5):
        jobs = [
            elastic("a", 50.0, 77.43, {1: 1.437}),
            elastic("b", 50.0, 28.84, {1: 1.0, 2: 2.0}, restart_cost=cost)
            | {"throughput": on_other},
            elastic("c", 20.0, 91.91, {3: 0.551}, restart_cost=100.0),
            elastic("d", 100.0, 70.9, {1: 1.095, 2: 2.178, 4: 2.76}),
        ]
        ordered = jobs[order:] + jobs[:order]
        found = optsched.solve(made(cluster={"pools": pools}, jobs=ordered), "deadline-elastic")
        assert found.status == "optimal"
        objectives.append(found.objective)
    assert objectives[1] == pytest.approx(objectives[0], rel=1e-9)


def test_no_optimum_is_claimed_of_values_that_a_solver_cannot_tell_apart() -> None:
    """Beside a thousand million, 1 is as much as solvers round by: they called 2 the least that is declined."""
    jobs = [
        elastic("a", 20.0, 37.13, {2: 1.517}, weight=2.0),
        elastic("b", 50.0, 25.34, {3: 3.528}),
        elastic("c", 20.0, 16.9, {1: 1.454}, weight=1e9),
        elastic("d", 20.0, 50.39, {2: 1.16}, weight=1e9),
        elastic("e", 50.0, 42.85, {1: 1.991, 2: 3.466}),
        elastic("f", 50.0, 72.74, {3: 1.408}),
        elastic("g", 20.0, 18.36, {2: 1.893}),
    ]
    for order in (jobs, jobs[::-1]):
        found = optsched.solve(
            on_one_pool(4, order), "deadline-elastic", options={"admission": True}
        )
        assert found.objective in (1.0, 2.0) and found.bound <= 1.0
        assert optsched.verify(found).ok


@pytest.mark.property
@pytest.mark.parametrize("seed", [3, 4, 5, 7, 16, 18])  # sets that cannot be kept
def test_without_any_one_job_of_a_conflict_the_others_meet_their_deadlines(seed: int) -> None:
    """Not only beside the limits that the conflict names: those are fewer than there are."""
    draw = np.random.default_rng(seed)
    jobs: list[dict[str, Any]] = []
    for number in range(int(draw.integers(6, 10))):
        work, arrival = float(draw.uniform(5.0, 30.0)), float(draw.choice([0.0, 5.0, 9.0]))
        due = arrival + work * float(draw.uniform(1.2, 2.0))
        rates = {"p": 1.0} | ({"q": 0.7} if draw.random() < 0.5 else {})
        job = {"id": f"j{number}", "arrival": arrival, "steps": work, "deadline": due}
        jobs.append(job | {"gpus": int(draw.choice([1, 1, 2, 3])), "throughput": rates})
    pools = [
        {"name": "p", "nodes": 1, "gpus_per_node": 4},
        {"name": "q", "nodes": 1, "gpus_per_node": 3},
    ]

    def solved(some: list[dict[str, Any]]) -> optsched.Solution:
        return optsched.solve(made(cluster={"pools": pools}, jobs=some), "deadline-fluid")

    found = solved(jobs)
    assert found.status == "infeasible" and found.explanation == "irreducible"
    named = {name for job in jobs if f"job {(name := job['id'])} " in f"{found.conflicts}"}
    for one in named:
        assert solved([job for job in jobs if job["id"] in named - {one}]).status != "infeasible"
