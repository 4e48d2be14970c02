"""Deadlines by event intervals: theory, brute force, oracles, wrong beliefs, and what is refused."""

from __future__ import annotations

import heapq
import json
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from plan_instances import leases, made, soft_leases, verified
from refusals import refuses
from test_lease import SOFT

import optsched
from formulations import deadline_fluid
from formulations.deadline_fluid import FluidProgram
from optsched.arrays.values import replace
from optsched.candidates import JobRows
from optsched.errors import UsageError
from optsched.instance import Instance
from optsched.instance.durations import UNLIMITED
from optsched.solving import schedules

ORACLES = SHARED / "oracles"


def solve(instance: Instance, **options: Any) -> optsched.Solution:
    return verified(optsched.solve(instance, "deadline-fluid", **options))


def feasible(instance: Instance, **options: Any) -> bool:
    """Whether a schedule was found; false only of what is proven infeasible."""
    status = solve(instance, **options).status
    assert status in ("optimal", "feasible", "infeasible")
    return status != "infeasible"


def pool(gpus: int, name: str = "v100", **more: Any) -> dict[str, Any]:
    return {"pools": [{"name": name, "nodes": 1, "gpus_per_node": gpus, **more}]}


def job(name: str, steps: float, deadline: float, gpus: int = 1, **more: Any) -> dict[str, Any]:
    rate = {"throughput": {"v100": 1.0}}
    return {"id": name, "gpus": gpus, "steps": steps, "deadline": deadline, **rate, **more}


# --- theory ---------------------------------------------------------------------------------------

Jobs = list[tuple[int, int, int]]
"""(release, work, deadline)"""


def edf_meets_all(jobs: Jobs) -> bool:
    """Preemptive earliest deadline first on one machine, in whole units of time."""
    time, ready, arriving = 0, [], sorted(jobs)
    while ready or arriving:
        if not ready:
            time = max(time, arriving[0][0])
        while arriving and arriving[0][0] <= time:
            _, work, deadline = arriving.pop(0)
            heapq.heappush(ready, (deadline, work))
        deadline, work = heapq.heappop(ready)
        until = min(time + work, arriving[0][0]) if arriving else time + work
        if until > deadline:
            return False
        if until < time + work:
            heapq.heappush(ready, (deadline, time + work - until))
        time = until
    return True


def random_jobs(random: np.random.Generator, jobs: int) -> Jobs:
    release, work = random.integers(0, 12, jobs), random.integers(1, 6, jobs)
    deadline = release + work + random.integers(0, 14, jobs)
    return list(zip(release.tolist(), work.tolist(), deadline.tolist(), strict=True))


def machine(jobs: Jobs, gpus: int = 1, rate: float = 1.0) -> Instance:
    return made(
        cluster=pool(gpus),
        jobs=[
            job(f"j{i}", w, d, arrival=r, throughput={"v100": rate})
            for i, (r, w, d) in enumerate(jobs)
        ],
    )


@pytest.mark.property
def test_on_one_gpu_it_is_feasible_exactly_when_earliest_deadline_first_meets_all() -> None:
    random, kept = np.random.default_rng(7), 0
    for _ in range(200):
        jobs = random_jobs(random, 5)
        kept += edf_meets_all(jobs)
        assert feasible(machine(jobs)) == edf_meets_all(jobs), jobs
    assert 40 < kept < 160


@pytest.mark.property
def test_a_bound_above_zero_shows_that_not_all_are_kept() -> None:
    random, kept = np.random.default_rng(13), 0
    for _ in range(40):
        jobs = random_jobs(random, 5)
        found = optsched.solve(machine(jobs), "deadline-fluid", options={"schedule": False})
        assert (found.status, found.schedule) == ("limit", None)
        assert found.bound is not None
        assert (found.bound < 1e-6) == edf_meets_all(jobs), jobs
        kept += found.bound < 1e-6
    assert 5 < kept < 38


def test_a_later_deadline_of_less_value_is_met_too() -> None:
    options = [
        {"job": "a", "value": value, "gpus": 1, "leases_needed": 2, "max_lease": last}
        for value, last in ((10.0, 1), (8.0, 3))
    ]
    found = optsched.solve(soft_leases(options, 1), "deadline-fluid", options={"schedule": False})
    assert found.bound == pytest.approx(0.0, abs=1e-9)


@pytest.mark.property
def test_single_gpu_jobs_on_slots_are_those_of_leases() -> None:
    random, kept = np.random.default_rng(8), 0
    for _ in range(40):
        needed = random.integers(1, 4, 5)
        deadline = (needed + random.integers(0, 4, 5)).tolist()
        instance = leases([1] * 5, needed.tolist(), deadline, int(random.integers(1, 4)))
        met = optsched.solve(instance, "lease").status == "optimal"
        kept += met
        assert feasible(instance) == met
    assert 5 < kept < 35


@pytest.mark.property
def test_more_gpus_later_deadlines_and_higher_rates_never_hurt() -> None:
    random = np.random.default_rng(9)
    for _ in range(30):
        jobs = random_jobs(random, 6)
        before = feasible(machine(jobs))
        later = [(r, w, d + int(random.integers(0, 3))) for r, w, d in jobs]
        easier = (machine(jobs, gpus=2), machine(later), machine(jobs, rate=1.25))
        assert all(feasible(instance) >= before for instance in easier)


def unrelated(durations: list[list[float]], deadline: float) -> Instance:
    """Jobs with a duration on each of some machines, all due at the same time."""
    count = len(durations[0])
    return made(
        cluster={
            "pools": [{"name": f"m{i}", "nodes": 1, "gpus_per_node": 1} for i in range(count)]
        },
        jobs=[
            {
                "id": f"j{j}",
                "deadline": deadline,
                "options": [{"pool": f"m{i}", "gpus": 1, "duration": d} for i, d in enumerate(row)],
            }
            for j, row in enumerate(durations)
        ],
    )


def least_time(durations: list[list[float]]) -> float:
    """R|pmtn|Cmax by the program of Lawler and Labetoulle."""
    from scipy.optimize import linprog

    d = np.array(durations)
    jobs, machines = d.shape
    # x[j, i] seconds, then C
    cost = np.append(np.zeros(d.size), 1.0)
    work = np.hstack([np.kron(np.eye(jobs), np.ones(machines)) / d.ravel(), np.zeros((jobs, 1))])
    of_job = np.hstack([np.kron(np.eye(jobs), np.ones(machines)), -np.ones((jobs, 1))])
    of_machine = np.hstack([np.kron(np.ones(jobs), np.eye(machines)), -np.ones((machines, 1))])
    upper = np.vstack([of_job, of_machine])
    found = linprog(cost, upper, np.zeros(len(upper)), work, np.ones(jobs))
    return float(found.fun)


@pytest.mark.parametrize("seed", range(6))
def test_one_common_deadline_is_the_makespan_of_unrelated_machines(seed: int) -> None:
    random = np.random.default_rng(seed)
    durations = random.integers(10, 60, (6, 3)).astype(float).tolist()
    least = least_time(durations)
    assert feasible(unrelated(durations, least * (1 + 1e-4)))
    assert not feasible(unrelated(durations, least * (1 - 1e-4)))


@pytest.mark.property
def test_jobs_that_are_kept_are_at_least_those_of_leases() -> None:
    random = np.random.default_rng(10)
    for _ in range(20):
        gang = random.choice([1, 2, 4], 6).tolist()
        needed = random.integers(1, 4, 6)
        deadline = (needed + random.integers(0, 3, 6)).tolist()
        instance = leases(gang, needed.tolist(), deadline, 4)
        kept = optsched.solve(instance, "lease", admission=True).objective
        solution = solve(instance, admission=True)
        assert solution.bound <= solution.objective + 1e-9
        assert solution.bound <= 6 - kept + 1e-9


def test_the_plan_by_rule_is_no_better_than_the_program() -> None:
    random = np.random.default_rng(11)
    for _ in range(10):
        solution = solve(machine(random_jobs(random, 8)), admission=True)
        assert solution.status == "optimal"
        declined = len(solution.declined)
        assert solution.objective == pytest.approx(declined)


@pytest.mark.property
def test_merged_intervals_bound_the_program_and_leave_a_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random, gaps = np.random.default_rng(12), []
    for _ in range(20):
        rates = random.uniform(0.5, 2.0, (12, 2))
        jobs = [
            job(f"j{i}", w, 2 * d, arrival=r, throughput={"v100": a, "p100": b})
            for i, ((r, w, d), (a, b)) in enumerate(
                zip(random_jobs(random, 12), rates.tolist(), strict=True)
            )
        ]
        pools = [pool(2)["pools"][0], pool(2, "p100")["pools"][0]]
        instance = made(cluster={"pools": pools}, jobs=jobs)
        exact = solve(instance)
        with monkeypatch.context() as patch:
            patch.setattr(deadline_fluid, "MOST_SIFTED", 100)
            merged = solve(instance)
        if merged.status == "infeasible":
            assert exact.status == "infeasible"
        if exact.status == "optimal" and merged.bound is not None:
            assert merged.bound <= exact.objective * (1 + 1e-9)
        if merged.status in ("feasible", "optimal"):
            assert merged.objective >= exact.objective * (1 - 1e-9)
            gaps.append(merged.gap)
            assert ("relaxation" in merged.notes[0]) == (merged.status == "feasible")
    assert len(gaps) > 10
    assert np.median(gaps) < 0.1


@pytest.mark.property
def test_sifting_finds_the_optimum_of_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relaxation that it begins with has few intervals; what is infeasible is so in the merged program."""
    random, sifted = np.random.default_rng(13), 0
    for _ in range(12):
        rates = random.uniform(0.8, 1.4, (18, 2))
        jobs = [
            job(f"j{i}", w, 1.2 * d, arrival=r, throughput={"v100": a, "p100": b})
            for i, ((r, w, d), (a, b)) in enumerate(
                zip(random_jobs(random, 18), rates.tolist(), strict=True)
            )
        ]
        pools = [pool(1)["pools"][0], pool(1, "p100")["pools"][0]]
        instance = made(cluster={"pools": pools}, jobs=jobs)
        exact = solve(instance)
        with monkeypatch.context() as patch:
            patch.setattr(deadline_fluid, "SIFTED_FROM", 1)
            patch.setattr(deadline_fluid, "MOST_PRICING", (60,))
            found = solve(instance)
        assert found.status == exact.status
        if exact.status == "optimal":
            assert found.objective == pytest.approx(exact.objective, rel=1e-9)
            sifted += "sifting" in found.solver.reason
    assert 2 < sifted < 12


def test_sifting_takes_jobs_that_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that needs no GPUs has no least cost, to which that of leaving it out could be relative."""
    by_licence = [{"gpus": 0, "duration": 5.0, "uses": {"licence": 1}}]
    jobs = [job("a", 5, 10), job("b", 5, 10), {"id": "c", "deadline": 10, "options": by_licence}]
    cluster = {**pool(1), "resources": [{"name": "licence", "capacity": 1}]}
    monkeypatch.setattr(FluidProgram, "witness", None)
    monkeypatch.setattr(deadline_fluid, "SIFTED_FROM", 1)
    found = solve(made(cluster=cluster, jobs=jobs))
    assert "sifting" in found.solver.reason
    assert (found.status, found.objective) == ("optimal", pytest.approx(10.0, rel=1e-9))


# --- wrong beliefs --------------------------------------------------------------------------------


GANG_BESIDE_ONE = [job("four", 50, 100, 4), job("one", 100, 100)]


def test_gangs_that_no_schedule_runs_are_not_claimed_to_be_kept() -> None:
    instance = made(cluster=pool(4), jobs=GANG_BESIDE_ONE)
    solution = solve(instance)
    assert (solution.status, solution.schedule) == ("limit", None)
    assert "undecided" in solution.notes[0]
    declining = solve(instance, admission=True)
    assert (declining.objective, declining.bound) == (1.0, 0.0)
    assert declining.status == "feasible"
    assert [name for name, _ in declining.declined] == ["four"]
    assert "relaxation" in declining.notes[0]


def test_gangs_take_turns_where_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """By rule they take turns as well, which proves the optimum without the program."""
    jobs = [job("four", 50, 100, 4), job("two", 50, 100, 2), job("other", 50, 100, 2)]
    instance = made(cluster=pool(4), jobs=jobs)
    assert solve(instance).notes[0] == schedules.IDEAL
    monkeypatch.setattr(FluidProgram, "witness", None)
    solution = solve(instance)
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(400.0)
    assert "runs an optimum of the program" in solution.notes[0]


# --- the time model -------------------------------------------------------------------------------


def test_jobs_run_after_they_arrive_and_nodes_after_they_open() -> None:
    cluster = {
        "pools": [
            {
                "name": "v100",
                "nodes": [
                    {"name": "n0", "gpus": 1},
                    {"name": "n1", "gpus": 1, "available_from": 60},
                ],
            }
        ]
    }
    jobs = [job("a", 100, 100), job("b", 40, 100), job("c", 10, 130, arrival=110)]
    solution = solve(made(cluster=cluster, jobs=jobs))
    assert solution.status == "optimal"
    stretches = {row["job"]: row for row in solution.schedule.to_records()}
    assert stretches["b"]["start"] >= 60
    assert stretches["c"]["start"] >= 110
    late = solve(made(cluster=cluster, jobs=[*jobs[:1], job("b", 41, 100), *jobs[2:]]))
    assert late.status == "infeasible"


def test_a_calendar_wins_over_the_pool() -> None:
    instance = made(round=50, cluster=pool(1), jobs=[job("a", 60, 150)])
    solution = solve(instance, capacity={"v100": [0, 1, 1]})
    assert solution.schedule.to_records()[0]["start"] == 50.0
    assert solve(instance, capacity={"v100": [0, 1, 0]}).status == "infeasible"
    with refuses(
        'option of deadline-fluid: capacity: found "p100", expected one of v100', UsageError
    ):
        solve(instance, capacity={"p100": [1]})


def test_jobs_of_microseconds_beside_jobs_of_days_cut_off_no_optimum() -> None:
    """With columns of seconds up to a million HiGHS proved that one job is declined."""
    now = 1.7e9
    energy = {
        "uses": {"energy": 12.5},
        "attributes": {"deadline": now + 137000.00001},
        "value": 1.0,
    }
    instant = {"gpus": 1, "duration": 6e-06, "pool": "p1"}
    elastic = {
        "gpus": {"min": 1, "max": 2, "levels": [1, 2]},
        "throughput": {"p0": {"1": 1.0, "2": 2.0}, "p1": {"1": 1.0, "2": 1.3}},
    }
    alone = {"gpus": 1, "duration": 1261347.2813303727, "pool": "p0"}
    without = {"gpus": 0, "duration": 2144290.3782616337, "uses": {"energy": 1.0}}
    instance = made(
        now=now,
        round=200000.0,
        cluster={
            "pools": [
                {"name": "p0", "nodes": 2, "gpus_per_node": 1},
                {"name": "p1", "nodes": 1, "gpus_per_node": 4},
            ],
            "resources": [{"name": "energy", "kind": "consumable", "capacity": 2.0}],
        },
        jobs=[
            {"id": "a", "options": [instant, instant | energy], "deadline": now + 137000.00001},
            {"id": "b", **elastic, "deadline": now + 500000.05},
            {
                "id": "c",
                "arrival": now + 3e5,
                "options": [alone, without],
                "deadline": now + 1561347.2813303,
            },
        ],
    )
    assert solve(instance, admission=True).objective == 0.0


def test_a_consumable_resource_binds_over_all_time() -> None:
    def budget(amount: float) -> Instance:
        options = [
            {"pool": "v100", "gpus": 1, "duration": 100, "uses": {"dollars": 4}},
            {"pool": "v100", "gpus": 1, "duration": 300, "uses": {"dollars": 1}},
        ]
        return made(
            cluster={
                **pool(1),
                "resources": [{"name": "dollars", "capacity": amount, "kind": "consumable"}],
            },
            jobs=[{"id": "a", "deadline": 200, "options": options}],
        )

    assert feasible(budget(4))
    # Half of the work in 50 s for 2, and half in 150 s for 0.5
    assert feasible(budget(2.5))
    assert not feasible(budget(2.4))


def test_early_work_is_preferred_where_it_is_asked_for() -> None:
    jobs = [job("a", 10, 100), job("b", 10, 50)]
    solution = solve(made(cluster=pool(2), jobs=jobs), early=0.5)
    assert {row["end"] for row in solution.schedule.to_records()} <= {10.0, 50.0}
    assert solution.objective == pytest.approx(20.0)


def test_a_job_runs_on_without_interruption_through_intervals() -> None:
    jobs = [job("long", 90, 100), job("a", 10, 20), job("b", 10, 50), job("c", 10, 70)]
    schedule = solve(made(cluster=pool(2), jobs=jobs), early=1).schedule
    assert len(schedule.rows_of(0)) == 1


def test_a_clock_that_counts_from_1970() -> None:
    now = 1.7e9
    jobs = [job("a", 10.1, now + 33.3, arrival=now + 3.7), job("b", 20.3, now + 32.2)]
    assert solve(made(now=now, cluster=pool(1), jobs=jobs)).status == "optimal"


def in_either_pool(name: str, due: float, on_a: float, on_b: float) -> dict[str, Any]:
    options = [
        {"pool": where, "gpus": 1, "duration": duration}
        for where, duration in (("a", on_a), ("b", on_b))
    ]
    return {"id": name, "deadline": due, "options": options}


YEAR = 3e7


def test_jobs_of_a_second_in_an_interval_of_a_year_do_all_their_work() -> None:
    jobs = [in_either_pool(f"j{i}", YEAR, 1.0, 1.1) for i in range(3)]
    jobs += [in_either_pool("x", 100.0, 90.0, 95.0), in_either_pool("y", 101.0, 80.0, 100.0)]
    cluster = {"pools": pool(1, "a")["pools"] + pool(1, "b")["pools"]}
    found = solve(made(cluster=cluster, jobs=jobs))
    assert found.status == "optimal"
    # Of the 101 seconds of a, y takes 80 and x the other 21; b does the rest of x.
    assert found.objective == pytest.approx(3 + 101 + 95 * (1 - 21 / 90), rel=1e-9)


def test_half_of_the_work_is_no_rounding_in_an_interval_of_a_year() -> None:
    """Half a millisecond is 2e-11 of the interval, in which the other pool opens."""
    job_of_a = {"pool": "a", "gpus": 1, "duration": 100.0 - 5e-4}
    jobs = [
        {"id": "x", "deadline": 100.0, "options": [job_of_a]},
        in_either_pool("z", YEAR, 1e-3, 1.5e-3),
    ]
    later = [{"name": "b0", "gpus": 1, "available_from": 100.0}]
    cluster = {"pools": [*pool(1, "a")["pools"], {"name": "b", "nodes": later}]}
    found = solve(made(cluster=cluster, jobs=jobs, round=100), capacity={"a": [1, 0]})
    assert found.status == "optimal"
    assert found.objective == pytest.approx(100.0 + 7.5e-4, rel=1e-9)


# --- soft deadlines -------------------------------------------------------------------------------


def test_later_options_are_worth_less() -> None:
    keys = ("job", "value", "gpus", "leases_needed", "max_lease")
    options = [dict(zip(keys, row, strict=True)) for row in SOFT]
    instance = soft_leases(options, 8)
    lease = optsched.solve(instance, "lease")
    solution = solve(instance)
    assert solution.bound <= 40.0 - lease.objective + 1e-6
    assert solution.objective >= solution.bound
    # One option is a hard deadline
    assert solve(soft_leases(options[:1], 8)).objective == pytest.approx(800.0)


def test_soft_jobs_may_miss_and_best_effort_jobs_are_not_planned() -> None:
    jobs = [job("hard", 60, 100), job("soft", 60, 100, deadline_kind="soft", weight=3)]
    jobs.append({"id": "free", "gpus": 1, "steps": 5, "throughput": {"v100": 1.0}})
    solution = solve(made(cluster=pool(1), jobs=jobs))
    assert solution.objective == pytest.approx(3.0)
    assert [name for name, _ in solution.declined] == ["soft"]
    assert solution.unplaced == (("free", "it has no deadline: best effort, not planned"),)


def test_equal_jobs_share_their_time() -> None:
    jobs = [job(f"j{i}", 30, 90) for i in range(6)]
    assert solve(made(cluster=pool(2), jobs=jobs)).status == "optimal"
    jobs = [job(f"j{i}", 30, 80) for i in range(6)]
    solution = solve(made(cluster=pool(2), jobs=jobs), admission=True)
    assert solution.objective == pytest.approx(1.0)
    assert solution.status == "optimal"


def test_a_job_keeps_its_deadline_with_a_probability() -> None:
    instance = made(
        cluster=pool(1),
        performance={"model": "noisy", "of": {"model": "table"}, "sd": 0.2, "seed": 3},
        workloads={"w": {"throughput": {"v100": 1.0}}},
        jobs=[{"id": "a", "workload": "w", "steps": 60, "deadline": 100}],
    )
    median = solve(instance).objective
    assert solve(instance, quantile=0.9).objective == pytest.approx(
        median * np.exp(0.2 * 1.2815516)
    )
    assert solve(instance, quantile=0.9999).status == "infeasible"


# --- bad input ------------------------------------------------------------------------------------


def told(instance: Instance, **options: Any) -> list[str]:
    solution = solve(instance, **options)
    assert solution.status == "infeasible"
    return [conflict.words for conflict in solution.conflicts]


def test_a_deadline_in_the_past_is_one_sentence() -> None:
    instance = made(now=100, cluster=pool(1), jobs=[job("late", 10, 90), job("b", 10, 200)])
    assert told(instance) == [
        "job late has work left, and its deadline, 90 s, is not after now (100 s)"
    ]
    assert solve(instance, admission=True).objective == pytest.approx(1.0)


def test_where_all_deadlines_have_passed_all_jobs_are_declined() -> None:
    jobs = [job("a", 10, 90), job("b", 10, 95, weight=2)]
    solution = solve(made(now=100, cluster=pool(1), jobs=jobs), admission=True)
    assert (solution.objective, len(solution.schedule)) == (3.0, 0)
    assert dict(solution.declined)["a"].startswith("it has work left, and its deadline, 90 s")


def test_rounds_follow_the_plan() -> None:
    jobs = [job("a", 2, 2), job("b", 2, 4), job("c", 2, 5), job("d", 9, 5)]
    instance = made(round=1, cluster=pool(1), jobs=jobs)
    plan = optsched.Scheduler(instance, {"formulation": "deadline-fluid"}).solve(now=0)
    assert plan.fallback is None
    assert [item.job for item in plan.start] == ["a"]
    assert set(dict(plan.solution.declined)) == {"c", "d"}


def test_more_work_than_time_is_one_sentence() -> None:
    words = told(made(cluster=pool(8), jobs=[job("big", 500, 100, arrival=20)]))
    assert words == [
        "job big needs at least 500 s, on 1 GPU of v100, and has 80 s before its deadline, 100 s"
    ]


def test_jobs_that_cannot_all_be_kept_are_named() -> None:
    jobs = [job("a", 60, 100), job("b", 60, 110), job("fine", 10, 900)]
    words = told(made(cluster=pool(1), jobs=jobs))
    assert len(words) == 3
    assert any(text.startswith("job a needs") for text in words)
    assert any(text.startswith("job b needs") for text in words)
    assert "the time from 0 s to 100 s has 1 GPU of pool v100" in words


def test_a_job_that_runs_nowhere_is_named() -> None:
    words = told(made(cluster=pool(1), jobs=[job("wide", 10, 100, gpus=4)]))
    assert words[0].startswith("job wide has a deadline, but")


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"end": 99.0}, "does 0.983333 of its work by its deadline"),
        ({"start": 10.0, "end": 70.0}, "beyond its capacity"),
        ({"start": -5.0, "end": 55.0}, "runs before now"),
    ],
)
def test_a_tampered_plan_is_refused(change: dict[str, float], words: str) -> None:
    jobs = [job("a", 40, 40), job("b", 60, 200)]
    instance = made(cluster=pool(1), jobs=jobs)
    document = solve(instance).to_document()
    row = next(row for row in document["schedule"] if row["job"] == "b")
    row |= change if "end" not in change or change["end"] != 99.0 else {"end": row["end"] - 1.0}
    report = optsched.verify(instance, document)
    assert not report.ok
    assert words in str(report)


# --- oracles --------------------------------------------------------------------------------------


@pytest.mark.oracle
@needs(ORACLES / "elasticflow")
def test_what_slots_can_keep_is_kept_with_less_gpu_time() -> None:
    path = ORACLES / "elasticflow" / "elasticflow_cases.json"
    for case in json.loads(path.read_text())["cases"]:
        slot, gpus = case["slot_seconds"], case["capacity"]
        jobs = [
            {
                "id": row["id"],
                "steps": row["iters"],
                "deadline": row["deadline_slot"] * slot,
                "options": [
                    {"pool": "v100", "gpus": int(level), "throughput": rate}
                    for level, rate in row["rate"].items()
                    if int(level) <= min(row["max_gpus"], gpus)
                ],
            }
            for row in case["jobs"]
        ]
        solution = solve(made(round=slot, cluster=pool(gpus), jobs=jobs))
        expected = case["expected"]
        if expected["exact_feasible"]:
            assert solution.status in ("optimal", "feasible")
            assert solution.bound <= expected["exact_min_gpu_slots"] * slot * (1 + 1e-9)
        else:  # without slots more can be kept
            assert solution.status != "feasible"


@pytest.mark.oracle
@needs(ORACLES / "chronus")
def test_no_lease_is_worth_more() -> None:
    path = ORACLES / "chronus" / "chronus_cases.json"
    for case in json.loads(path.read_text())["cases"]:
        if case["objective"] == "random":
            continue
        capacity, options = case["capacity_per_lease"], case["options"]
        instance = soft_leases(options, max(capacity))
        solution = solve(instance, capacity={"v100": capacity})
        if not case["expected"]["feasible"] or len({row["job"] for row in options}) == len(options):
            continue
        best = {row["job"]: 0.0 for row in options}
        for row in options:
            best[row["job"]] = max(best[row["job"]], row["value"])
        # The first lease changes the published objective by one at most
        assert solution.bound <= sum(best.values()) - case["expected"]["objective"] + 1.0


@pytest.mark.oracle
@needs(ORACLES / "forms")
def test_golden_cores() -> None:
    goldens = json.loads((ORACLES / "forms" / "goldens.json").read_text())
    for case in goldens["lease"]:
        instance = leases(case["gang"], case["leases"], case["deadline"], case["gpus"])
        if case["feasible"]:
            assert solve(instance).status in ("optimal", "feasible")
        else:
            assert solve(instance).status in ("infeasible", "limit")


def test_values_of_jobs_that_do_not_add_up_exactly_are_verified() -> None:
    """5 + 0.7 less 5 and 0.7 is 2e-16 in one order and 0 in another."""
    jobs = [job("a", 10, 100, weight=5.0), job("b", 11, 100, weight=0.7)]
    found = solve(made(cluster=pool(2), jobs=jobs), admission=True)
    assert (found.status, found.objective) == ("optimal", pytest.approx(0.0, abs=1e-12))


def test_a_job_that_is_given_up_gives_back_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filling: `optional` has half of its work and no room for the rest; `last` ends in what it had."""
    programs: list[FluidProgram] = []
    plan = FluidProgram.plan
    monkeypatch.setattr(FluidProgram, "plan", lambda self: programs.append(self) or plan(self))
    jobs = [
        {"id": "optional", "steps": 10.0, "deadline": 10.0},
        {"id": "first", "steps": 5.0, "deadline": 10.0},
        {"id": "last", "steps": 5.0, "deadline": 12.0},
    ]
    pools = [{"name": "p", "nodes": 1, "gpus_per_node": 1}]
    jobs = [job | {"throughput": {"p": 1.0}} for job in jobs]
    optsched.solve(
        made(cluster={"pools": pools}, jobs=jobs), "deadline-fluid", options={"admission": True}
    )
    program = replace(programs[0], optional=np.array([True, False, False]))
    job, interval = np.array([0, 1, 2]), np.array([0, 0, 1])
    alone, column = np.full(3, -1), program.c[[0, 1, 2]]
    rows = JobRows(job, alone, column, np.array([0.5, 0.5, 1.0]), np.ones(3), np.zeros(3))
    found = program._filled(rows, interval, UNLIMITED)
    assert found is not None and set(found.job.tolist()) == {1, 2}
