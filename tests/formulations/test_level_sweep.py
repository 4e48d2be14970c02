"""Plans by sweeps over time, of jobs too many for plans in which they come one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plan_instances import made, verified

import optsched
from formulations import deadline_elastic, level_sweep
from formulations.level_table import LevelTable
from optsched.instance import Instance
from optsched.instance.durations import Timer


@pytest.fixture(autouse=True)
def only_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with tens of thousands of jobs, of which no objects are made: that took ten seconds."""
    monkeypatch.setattr(LevelTable, "jobs", None)
    monkeypatch.setattr(deadline_elastic, "MOST_PLANNED", 0)
    monkeypatch.setattr(deadline_elastic, "MOST_REPAIRED", 0)


def drawn(seed: int, load: float = 1.0) -> Instance:
    """Elastic jobs of two pools, of which some run, may not stop, or are in their exempt time; with
    CPUs and licences; a node that opens later.
    """
    draw = np.random.default_rng(seed)
    late = [{"name": "b-0", "gpus": 4}, {"name": "b-1", "gpus": 4, "available_from": 30.0}]
    pools = [
        {"name": "a", "nodes": 2, "gpus_per_node": 4, "cpus_per_node": 20},
        {"name": "b", "nodes": late},
    ]
    free = {"a": list(range(8)), "b": list(range(4))}
    jobs: list[dict[str, Any]] = []
    for n in range(30):
        rates = {str(gpus): float(gpus**0.8) for gpus in (1, 2, 4)}
        arrival = float(draw.choice([0.0, draw.uniform(0.0, 60.0)]))
        steps = float(draw.uniform(5.0, 60.0) * load)
        job = {
            "id": f"j{n}",
            "arrival": arrival,
            "steps": steps,
            "gpus": {"min": 1, "max": 4, "levels": [1, 2, 4]},
            "workload": str(draw.choice(["light", "heavy"])),
            "throughput": {"a": rates, "b": {g: 0.6 * rate for g, rate in rates.items()}},
            "deadline": arrival + float(draw.uniform(0.5, 3.0)) * steps,
            "restart_cost": float(draw.choice([0.0, 3.0])),
        }
        gpus = int(draw.choice([1, 2]))
        pool = str(draw.choice(["a", "b"]))
        if arrival == 0.0 and draw.random() < 0.5 and len(free[pool]) >= gpus:
            held = [free[pool].pop() for _ in range(gpus)]
            names = [f"{pool}-{at // 4}/{at % 4}" for at in held]
            job["running"] = {"pool": pool, "gpus": names, "since": -2.0}
            job["preemptible"] = bool(draw.random() < 0.7)
            job["exempt_time"] = float(draw.choice([0.0, 5.0, 1000.0]))
        jobs.append(job)
    cluster = {"pools": pools, "resources": [{"name": "lic", "capacity": 12}]}
    demand = {"light": {"cpu": 1.0}, "heavy": {"cpu": 5.0, "lic": 1.0}}
    workloads = {name: {"demand": needs} for name, needs in demand.items()}
    return made(cluster=cluster, workloads=workloads, jobs=jobs)


@pytest.mark.property
@pytest.mark.parametrize("seed", range(12))
def test_a_sweep_is_a_plan_that_can_be_carried_out(seed: int) -> None:
    """`verified` checks capacity, restarts, exempt times and deadlines of every job."""
    solution = optsched.solve(drawn(seed), "deadline-elastic", program=False, admission=True)
    assert verified(solution).objective < 30.0


@pytest.mark.property
def test_what_is_used_up_is_lost_for_all_that_follow() -> None:
    """There is enough for three jobs of four, which could run one after the other."""
    pool = {"name": "a", "nodes": 1, "gpus_per_node": 1}
    energy = {"name": "energy", "capacity": 7.0, "kind": "consumable"}
    option = {"pool": "a", "gpus": 1, "duration": 10.0, "uses": {"energy": 2.0}}
    jobs = [{"id": f"j{n}", "deadline": 100.0, "options": [option]} for n in range(4)]
    instance = made(cluster={"pools": [pool], "resources": [energy]}, jobs=jobs)
    solution = optsched.solve(instance, "deadline-elastic", program=False, admission=True)
    assert verified(solution).objective == 1.0


def test_jobs_that_wait_take_faster_levels() -> None:
    """One GPU is cheapest, and two jobs of three can have that; the last needs both at the end."""
    rates = {"a": {"1": 1.0, "2": 1.5}}
    jobs = [
        {"id": name, "steps": 12.0, "deadline": 20.0, "throughput": rates}
        | {"gpus": {"min": 1, "max": 2, "levels": [1, 2]}}
        for name in ("x", "y", "z")
    ]
    pool = {"name": "a", "nodes": 1, "gpus_per_node": 2}
    solution = optsched.solve(
        made(cluster={"pools": [pool]}, jobs=jobs), "deadline-elastic", program=False
    )
    assert verified(solution).objective == pytest.approx(12.0 + 12.0 + 16.0)


def test_a_sweep_that_the_clock_stops_keeps_what_it_has_planned() -> None:
    """Of thirty jobs some are planned; more time never keeps fewer."""
    kept = []
    for looks in (20, 60, 120, 10_000):
        ticks = iter(range(1_000_000))
        limit = Timer.after(looks, clock=lambda ticks=ticks: float(next(ticks)))
        solution = optsched.solve(
            drawn(0), "deadline-elastic", program=False, admission=True, time_limit=limit
        )
        kept.append(0 if solution.schedule is None else len(set(solution.schedule.job.tolist())))
        assert solution.schedule is None or verified(solution)
    assert kept == sorted(kept) and 0 < kept[1] < kept[-1], kept


def test_of_the_orders_the_best_plan_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By deadline a long job of low cost per second comes before two short ones."""
    orders = level_sweep.TimeSweep.orders.fget
    lost = []
    for chosen in (slice(0, 1), slice(1, 2), slice(2, 3), slice(None)):
        monkeypatch.setattr(
            level_sweep.TimeSweep,
            "orders",
            property(lambda sweep, part=chosen: list(orders(sweep))[part]),
        )
        solution = optsched.solve(drawn(3, 3.0), "deadline-elastic", program=False, admission=True)
        lost.append(verified(solution).objective)
    assert lost[-1] == min(lost[:-1])


@pytest.mark.parametrize(
    "job",
    [
        pytest.param({"gpus": 1, "duration": 60.0}, id="all are late"),
        pytest.param({"duration": 10.0}, id="nothing is held"),
        pytest.param({"gpus": 1, "duration": 1e-20}, id="no work that the clock knows"),
    ],
)
def test_a_sweep_of_jobs_that_leave_nothing_to_plan_ends(job: dict[str, Any]) -> None:
    """Each ended with an internal error."""
    option = job | ({"pool": "a"} if "gpus" in job else {})
    jobs = [
        {"id": name, "arrival": 1000.0, "deadline": 1050.0, "options": [option]} for name in "xyz"
    ]
    cluster = {"pools": [{"name": "a", "nodes": 1, "gpus_per_node": 1}]}
    instance = made(cluster=cluster, jobs=jobs)
    solution = optsched.solve(instance, "deadline-elastic", program=False, admission=True)
    assert (solution.schedule is None) or verified(solution)


def test_more_jobs_go_on_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four run and cannot be preempted, where a slot looks at two that wait."""
    monkeypatch.setattr(level_sweep, "MOST_WAITING", 2)
    job = {"steps": 10.0, "deadline": 50.0, "throughput": {"a": 1.0}}
    running = [
        {
            "id": f"r{n}",
            "preemptible": False,
            "running": {"pool": "a", "gpus": [f"a-0/{n}"], "since": 0.0},
        }
        | job
        for n in range(4)
    ]
    cluster = {"pools": [{"name": "a", "nodes": 1, "gpus_per_node": 4}]}
    instance = made(cluster=cluster, jobs=[*running, {"id": "waits"} | job])
    solution = optsched.solve(instance, "deadline-elastic", program=False, admission=True)
    assert verified(solution).objective == 0.0
