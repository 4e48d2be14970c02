"""When a job may not be stopped yet, and what it costs to stop it: exempt times and checkpoints."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses

import optsched
from optsched.instance.archive import from_npz, to_npz
from optsched.instance.restart import restart_costs
from optsched.rounds import Plan, RoundState, Scheduler, Verdict
from optsched.rounds.stops import Stops

ROUND = 10.0


def job(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "steps": 1e6, "throughput": {"v100": 1.0}, **more}


def instance(*jobs: dict[str, Any], gpus: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "format": "optsched-instance/1",
        "round": ROUND,
        "cluster": {"pools": [{"name": "v100", "nodes": gpus, "gpus_per_node": 1}]},
        "jobs": list(jobs),
        **more,
    }


def runs(plan: Plan) -> set[str]:
    assert plan.fallback is None
    return {item.job for item in (*plan.start, *plan.keep, *plan.move)}


# --- exempt time -----------------------------------------------------------------------------------

EAGER = {"hysteresis": 0.0}


def rounds_until_it_stops(given: dict[str, Any], policy: dict[str, Any]) -> int:
    """Rounds that the first job runs before another one that came later has its GPU."""
    scheduler = Scheduler(given, policy, isolate=False)
    scheduler.solve(now=0.0)
    scheduler.submit(job("new", weight=50.0), now=1.0)
    for number in range(1, 30):
        if "a" not in runs(scheduler.solve(now=ROUND * number)):
            return number
    raise AssertionError("it never stops")


@pytest.mark.parametrize(
    ("own", "policy", "rounds"),
    [({}, {}, 1), ({"exempt_time": 60}, {}, 6), ({}, {"exempt_time": "1m"}, 6),
     ({"exempt_time": 20}, {"exempt_time": 55}, 6), ({"exempt_time": "50s"}, {"exempt_time": 5}, 5)],
)  # fmt: skip
def test_no_preemption_within_the_exempt_time(
    own: dict[str, Any], policy: dict[str, Any], rounds: int
) -> None:
    assert rounds_until_it_stops(instance(job("a", **own)), EAGER | policy) == rounds


def test_a_ranking_waits_for_it_too() -> None:
    given = instance(job("a", exempt_time=40.0))
    scheduler = Scheduler(given, {"ranking": "srtf"}, isolate=False)
    scheduler.solve(now=0.0)
    scheduler.submit(job("short", steps=20), now=1.0)
    found = [runs(scheduler.solve(now=ROUND * number)) for number in range(1, 5)]
    assert found == [{"a"}, {"a"}, {"a"}, {"short"}]


def test_a_node_that_is_down_stops_it_all_the_same() -> None:
    scheduler = Scheduler(instance(job("a", exempt_time=1000)), EAGER, isolate=False)
    scheduler.solve(now=0.0)
    scheduler.node_down("v100-0", now=5.0)
    assert runs(scheduler.solve(now=ROUND)) == set()


def test_a_start_that_is_not_known_is_not_exempt() -> None:
    held = {"pool": "v100", "gpus": ["v100-0/0"]}
    given = instance(
        job("a", exempt_time=30, running=held | {"since": -15.0}),
        job("b", exempt_time=30, running=held | {"gpus": ["v100-1/0"]}),
        job("c", preemptible=False),
        gpus=2,
    )
    stops = optsched.rounds.state_of(given).stops
    assert stops.preemptible.tolist() == [False, True, False]


@pytest.mark.property
@pytest.mark.parametrize("policy", [{}, {"max_moves": 1}, {"patience": 3}, {"ranking": "srtf"}])
def test_nobody_is_stopped_too_early_in_a_storm(policy: dict[str, Any]) -> None:
    draw = random.Random(3)
    policy = {"exempt_time": 25.0, **({} if "ranking" in policy else EAGER), **policy}
    scheduler = Scheduler(instance(gpus=4), policy, isolate=False)
    began: dict[str, float] = {}
    exempt: dict[str, float] = {}
    stopped = 0
    for number in range(40):
        now = ROUND * number
        if draw.random() < 0.6:
            name = f"j{number}"
            exempt[name] = draw.choice([0.0, 40.0, 70.0])
            gpus, weight = draw.choice([1, 1, 2]), draw.uniform(0.1, 20)
            scheduler.submit(
                job(name, gpus=gpus, weight=weight, steps=draw.uniform(50, 900),
                    exempt_time=exempt[name], checkpoint_interval=draw.choice([0.0, 35.0])),
                now=now,
            )  # fmt: skip
        if began and draw.random() < 0.2:
            name = draw.choice(sorted(began))
            scheduler.complete(name, now=now)
            del began[name]
        plan = scheduler.solve(now=now)
        assert plan.fallback is None
        for item in (*plan.move, *plan.preempt):
            stopped += 1
            assert now - began.pop(item.job) >= max(exempt[item.job], 25.0), item
        began |= {item.job: now for item in (*plan.start, *plan.move)}
    assert stopped > 3


# --- checkpoints -----------------------------------------------------------------------------------


def state_at(now: float, **own: Any) -> RoundState:
    """A job that runs since 0, with a checkpoint every 30 s."""
    scheduler = Scheduler(
        instance(job("a", checkpoint_interval=30, restart_cost=7, **own)), EAGER, isolate=False
    )
    scheduler.solve(now=0.0)
    # The time passes when the next event, or somebody who asks, needs it.
    scheduler.submit(job("b", arrival=1e9), now=now)
    return scheduler.state


@pytest.mark.parametrize(
    ("now", "lost"), [(0, 0), (10, 10), (29, 29), (30, 0), (45, 15), (90, 0), (100, 10)]
)
def test_what_is_lost_is_the_time_since_the_last_checkpoint(now: float, lost: float) -> None:
    state = state_at(now)
    assert state.stops.work_lost[0] == pytest.approx(lost)
    assert state.stops.cost[0] == pytest.approx(lost + 7)


def test_a_restart_is_no_work() -> None:
    """The intervals count from when the job makes progress again."""
    state = state_at(50)
    service = replace(state.service, resumes=np.full(2, 12.0))
    stops = Stops(state.instance, state.policy, service)
    assert stops.work_lost.tolist() == pytest.approx([8.0, 0.0])


@pytest.mark.parametrize("interval", [0.0, 4.0, 60.0])
def test_who_is_stopped_goes_on_from_its_checkpoint(interval: float) -> None:
    scheduler = Scheduler(instance(job("a", checkpoint_interval=interval)), EAGER, isolate=False)
    scheduler.solve(now=0.0)
    scheduler.submit(job("heavy", weight=50.0), now=1.0)
    made = ROUND
    while scheduler.solve(now=made).verdict[0] != Verdict.PREEMPT:
        made += ROUND
    kept = made if interval == 0 else made // interval * interval
    assert scheduler.state.instance.jobs_table.steps_done[0] == pytest.approx(kept)


@pytest.mark.parametrize("saved", ["a", "b"])
def test_who_has_just_saved_its_state_gives_way(saved: str) -> None:
    """Of two jobs that are owed the same, the one that loses less is stopped."""
    held = {"pool": "v100", "since": 72.0}
    every = {name: 10.0 if name == saved else 1000.0 for name in ("a", "b")}
    given = instance(
        job("a", checkpoint_interval=every["a"], running=held | {"gpus": ["v100-0/0"]}),
        job("b", checkpoint_interval=every["b"], running=held | {"gpus": ["v100-1/0"]}),
        job("c"),
        gpus=2,
        now=100.0,
    )
    state = optsched.rounds.state_of(given, EAGER)
    plan = optsched.solve_round(state)
    while not plan.preempt:
        state = optsched.rounds.followed(state, plan)
        state = optsched.rounds.advanced(state, state.now + ROUND)
        plan = optsched.solve_round(state)
    assert [item.job for item in plan.preempt] == [saved]


def test_states_and_journals_keep_them(tmp_path: Path) -> None:
    given = instance(job("a", exempt_time="2m", checkpoint_interval="1h"), job("b"))
    journal = tmp_path / "journal"
    with Scheduler(given, {"exempt_time": "30s"}, journal=journal, isolate=False) as scheduler:
        scheduler.solve(now=0.0)
        scheduler.update("b", exempt_time="5m", checkpoint_interval=60.0, now=1.0)
        scheduler.solve(now=ROUND)
        state = scheduler.state
    table = state.instance.jobs_table
    assert table.exempt_time.tolist() == [120.0, 300.0]
    assert table.checkpoint_interval.tolist() == [3600.0, 60.0]
    with Scheduler.recover(journal, isolate=False) as again:
        assert again.state.to_document() == state.to_document()
    read = RoundState.from_document(state.to_document())
    assert read.policy.exempt_time == 30.0
    assert optsched.solve_round(read).id == optsched.solve_round(state).id


def test_instances_keep_them_and_others_stay_as_they_were() -> None:
    given = optsched.Instance.from_document(instance(job("a", exempt_time=5), job("b")))
    assert from_npz(to_npz(given)).to_document() == given.to_document()
    assert given.to_document()["jobs"][0]["exempt_time"] == 5.0
    plain = optsched.Instance.from_document(instance(job("a"), job("b")))
    assert from_npz(to_npz(plain)).sha256 == plain.sha256 != given.sha256
    with refuses("jobs[0].exempt_time: found -1"):
        optsched.Instance.from_document(instance(job("a", exempt_time=-1)))


def test_a_simulation_loses_what_was_not_saved() -> None:
    """Two jobs take turns on a GPU; one writes its first checkpoint only after 25 s."""
    jobs = [{**job(name), "steps": 200.0} for name in ("a", "b")]
    policy = {"hysteresis": 0.0}
    free = optsched.simulate(instance(*jobs), policy)
    jobs[0]["checkpoint_interval"] = 15.0
    found = optsched.simulate(instance(*jobs), policy)
    assert free.jobs.lost.tolist() == [0.0, 0.0]
    assert found.jobs.lost[0] > 0 and found.jobs.lost[1] == 0.0
    assert found.jobs.held[0] == pytest.approx(200.0 + found.jobs.lost[0])


# --- grace time --------------------------------------------------------------------------------------


def alternating(policy: dict[str, Any], rounds: int = 12) -> list[Plan]:
    """Two jobs that take turns on a GPU, and their plans."""
    scheduler = Scheduler(instance(job("a"), job("b")), EAGER | policy, isolate=False)
    return [scheduler.solve(now=ROUND * number) for number in range(rounds)]


@pytest.mark.parametrize("grace", [0.0, 4.0, 25.0])
def test_a_job_begins_when_the_one_before_has_left(grace: float) -> None:
    found = [
        (plan.now, plan, item) for plan in alternating({"grace_time": grace}) for item in plan.start
    ]
    for now, plan, item in found:
        later = bool(plan.preempt) and grace > 0
        assert item.begins == (now + grace if later else None)
        (start,) = [step for step in plan.diff() if step.kind == "start"]
        assert start.to_document().get("begins") == item.begins
    assert sum(bool(plan.preempt) for _, plan, _ in found) > (1 if grace < ROUND else 0)


def test_gpus_that_nobody_took_at_once_are_held_until_the_grace_time_ends() -> None:
    """Also in later plans, and by whoever gets them then; after a resize too."""
    given = instance(
        job("a", preemptible=True, running={"pool": "v100", "gpus": ["v100-0/0"]}), now=0.0
    )
    scheduler = Scheduler(given, EAGER | {"grace_time": 25.0}, isolate=False)
    scheduler.node_drain("v100-0", now=0.0)
    assert [item.job for item in scheduler.solve(now=0.0).preempt] == ["a"]
    scheduler.node_up("v100-0", now=1.0)
    scheduler.resize({"v100": 1}, now=1.0)
    scheduler.submit(job("b"), now=1.0)
    starts = {item.gpus[0]: item.begins for item in scheduler.solve(now=ROUND).start}
    assert starts == {"v100-0/0": 25.0, "v100-1/0": None}
    resumes = scheduler.state.service.resumes
    assert sorted(resumes.tolist()) == [ROUND, 25.0]


def test_progress_begins_after_the_grace_time() -> None:
    plans = alternating({"grace_time": 4.0})
    for before, after in itertools.pairwise(plans):
        done = after.instance.jobs_table.steps_done - before.instance.jobs_table.steps_done
        assert done.sum() == pytest.approx(ROUND - 4.0 if before.preempt else ROUND)


def test_who_must_leave_reserved_nodes_is_told_in_time() -> None:
    held = {"pool": "v100", "gpus": ["v100-0/0"]}
    for grace, verdict in ((0.0, Verdict.KEEP), (5.0, Verdict.PREEMPT)):
        scheduler = Scheduler(
            instance(job("a", running=held)), {"grace_time": grace}, isolate=False
        )
        scheduler.reserve("r", ["v100-0"], ROUND + 1.0, 100.0, now=0.0)
        assert scheduler.solve(now=0.0).verdict.tolist() == [verdict]


def test_states_and_journals_keep_graces(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    policy = EAGER | {"grace_time": 25.0, "checkpoint_interval": 15.0}
    with Scheduler(
        instance(job("a"), job("b")), policy, journal=journal, isolate=False, snapshot_every=3
    ) as scheduler:
        for number in itertools.count():
            plan = scheduler.solve(now=ROUND * number)
            if number > 7 and plan.preempt:
                break
        state = scheduler.state
    assert state.graces
    with Scheduler.recover(journal, isolate=False) as again:
        assert again.state.to_document() == state.to_document()
        assert again.plan is not None
        assert again.plan.begins.tolist() == plan.begins.tolist()
    read = RoundState.from_document(state.to_document())
    assert read.graces == state.graces
    assert optsched.solve_round(read).id == optsched.solve_round(state).id


@pytest.mark.parametrize("policy", [{"formulation": "isolated"}, {"ranking": "srtf"}])
@pytest.mark.parametrize(
    ("steps", "moves"), [(100.0 / 0.75 + 1.0, True), (100.0 / 0.75 - 1.0, False)]
)
def test_a_move_pays_when_it_saves_more_than_all_of_its_costs(
    policy: dict[str, Any], steps: float, moves: bool
) -> None:
    """Four times as fast elsewhere: 20 s of grace, 10 s of work lost, 30 s and 40 s to restart there."""
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 1} for name in ("slow", "fast")]
    work = {"restart_cost": {"fast": {"1": 40.0, "2": 99.0}, "slow": 1e3}}
    own = {
        "id": "a", "workload": "w", "throughput": {"slow": 1.0, "fast": 4.0}, "steps": steps,
        "restart_cost": 30.0, "running": {"pool": "slow", "gpus": ["slow-0/0"], "since": 30.0},
    }  # fmt: skip
    given = instance(cluster={"pools": pools}, workloads={"w": work}, jobs=[own], now=100.0)
    costs = {"grace_time": 20.0, "checkpoint_interval": 60.0}
    plan = optsched.solve_round(optsched.rounds.state_of(given, policy | costs))
    assert [item.job for item in plan.move] == ["a"] * moves


# --- restart costs by configuration --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "gpus", "cost"),
    [(0, 1, 10), (0, 2, 20), (0, 3, 25), (0, 4, 30), (0, 8, 30), (1, 1, 7), (1, 8, 7), (-1, 0, 0)],
)
def test_restart_costs_by_hand(pool: int, gpus: int, cost: float) -> None:
    """The job's own 3 s come on top of what its workload states."""
    pools = [
        {"name": "v100", "nodes": 1, "gpus_per_node": 8},
        {"name": "old", "gpu": "k80", "nodes": 1, "gpus_per_node": 8},
    ]
    stated = {"v100": {"4": 30, "1": 10, "2": 20}, "k80": 7.0}
    rates = {"v100": 1.0, "old": 1.0}
    jobs = [
        {"id": "a", "workload": "w", "throughput": rates, "restart_cost": 3.0},
        {"id": "b", "throughput": rates, "restart_cost": 5.0},
    ]
    document = instance(
        cluster={"pools": pools}, workloads={"w": {"restart_cost": stated}}, jobs=jobs
    )
    given = optsched.Instance.from_document(document)
    assert optsched.Instance.from_document(given.to_document()).sha256 == given.sha256
    assert from_npz(to_npz(given)).to_document() == given.to_document()
    found = restart_costs(given, *(np.array(two) for two in ([0, 1], [pool] * 2, [gpus] * 2)))
    assert found.tolist() == pytest.approx([cost + 3.0, 5.0])


@pytest.mark.parametrize(
    ("stated", "where", "found"),
    [
        ({"a100": 3.0}, ".a100", "no pool or GPU type of the cluster"),
        ({"v100": {"0": 3.0}}, ".v100", '"0"'),
        ({"v100": {"two": 3.0}}, ".v100", '"two"'),
        ({"v100": -1.0}, ".v100", "-1.0"),
        ({"v100": {}}, ".v100", "{}"),
        ({"v100": {"2": "x"}}, ".v100.2", '"x"'),
    ],
)
def test_restart_costs_that_make_no_sense(stated: dict[str, Any], where: str, found: str) -> None:
    given = instance(job("a"), workloads={"w": {"restart_cost": stated}})
    with pytest.raises(optsched.InvalidInput) as error:
        optsched.Instance.from_document(given)
    assert (error.value.path, error.value.found) == (f"workloads.w.restart_cost{where}", found)


def test_a_simulation_pays_for_the_configuration_and_waits_for_the_grace_time() -> None:
    """Two jobs take turns; each turn costs 3 s of grace and 4 s to restore the state."""
    work = {"w": {"restart_cost": {"v100": 4.0}}}
    jobs = [{**job(name), "steps": 100.0, "workload": "w"} for name in ("a", "b")]
    policy = {"hysteresis": 0.0, "grace_time": 3.0}
    found = optsched.simulate(instance(*jobs, workloads=work), policy).jobs
    turns = int(found.starts.sum()) - 1
    assert turns > 2
    # The first start of each restores nothing. The last turn begins when the other job is done.
    assert found.held.sum() == pytest.approx(200.0 + (3.0 + 4.0) * (turns - 1))
    free = optsched.simulate(instance(*jobs, workloads=work), policy, restart_cost=0.0).jobs
    assert free.held.sum() == pytest.approx(200.0 + 3.0 * (int(free.starts.sum()) - 2))
