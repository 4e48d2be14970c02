"""Deadlines of elastic jobs: restarts, pieces, brute force, oracles, what is not proven, and what is refused."""

from __future__ import annotations

import itertools
import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from blocks import first_of
from plan_instances import leases, made, verified
from refusals import refuses

import optsched
from optsched.errors import InvalidArgument
from optsched.instance import Instance
from optsched.simulation import simulate

ORACLES = SHARED / "oracles"
SLOT = 60.0


def solve(instance: Instance, **options: Any) -> optsched.Solution:
    return verified(optsched.solve(instance, "deadline-elastic", options=options))


def pool(gpus: int, **more: Any) -> dict[str, Any]:
    return {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": gpus, **more}]}


def job(name: str, steps: float, deadline: float, gpus: int = 1, **more: Any) -> dict[str, Any]:
    rate = {"throughput": {"v100": 1.0}}
    return {"id": name, "gpus": gpus, "steps": steps, "deadline": deadline, **rate, **more}


def elastic(name: str, steps: float, deadline: float, rates: dict[int, float], **more: Any) -> Any:
    levels = {"min": min(rates), "max": max(rates), "levels": list(rates)}
    table = {"v100": {str(gpus): rate for gpus, rate in rates.items()}}
    return {
        "id": name, "gpus": levels, "steps": steps, "deadline": deadline, "throughput": table, **more
    }  # fmt: skip


def soft(name: str, durations: dict[int, float], worth: dict[float, float]) -> dict[str, Any]:
    """A job with durations by GPUs, and values by deadlines."""
    options = [
        {"pool": "v100", "gpus": gpus, "duration": seconds, "value": value}
        | {"attributes": {"deadline": due}}
        for due, value in worth.items()
        for gpus, seconds in durations.items()
    ]
    return {"id": name, "options": options}


def stretches(solution: optsched.Solution) -> list[tuple[str, int, float, float]]:
    assert solution.schedule is not None
    records = solution.schedule.to_records()
    return [(row["job"], row["gpus"], row["start"], row["end"]) for row in records]


def feasible(instance: Instance, **options: Any) -> bool:
    solution = solve(instance, **options)
    assert solution.status in ("optimal", "feasible", "infeasible")
    return solution.status != "infeasible"


# --- levels, restarts and pieces ------------------------------------------------------------------


def test_the_cheapest_level_that_meets_the_deadline() -> None:
    rates = {1: 1.0, 2: 1.5, 4: 2.0}
    for deadline, gpus in ((100.0, 1), (70.0, 2), (50.0, 4)):
        instance = made(
            cluster=pool(4), jobs=[elastic("a", 100.0, deadline, rates, restart_cost=100.0)]
        )
        assert stretches(solve(instance)) == [("a", gpus, 0.0, 100.0 / rates[gpus])]


def test_a_job_changes_its_level_where_no_level_alone_meets_the_deadline() -> None:
    """``b`` needs all GPUs for its last 20 s; ``a`` must take two first, and one beside ``c``."""
    jobs = [
        elastic("a", 130.0, 100.0, {1: 1.0, 2: 1.6}),
        job("c", 50.0, 100.0, gpus=1, arrival=50.0),
    ]
    instance = made(cluster=pool(2), jobs=jobs)
    found = solve(instance)
    assert found.status == "optimal"
    assert found.objective == pytest.approx(2 * 50 + 50 + 50)
    mine = [(gpus, start, end) for name, gpus, start, end in stretches(found) if name == "a"]
    assert mine == [(2, 0.0, 50.0), (1, 50.0, 100.0)]
    by_rule = solve(instance, program=False)
    assert (by_rule.status, by_rule.objective) == ("feasible", pytest.approx(found.objective))


@pytest.mark.parametrize(("restart", "kept"), [(10.0, True), (11.0, False)])
def test_every_start_after_the_first_costs_a_restart(restart: float, kept: bool) -> None:
    jobs = [
        job("long", 50.0, 80.0, restart_cost=restart),
        job("short", 20.0, 40.0, arrival=20.0, restart_cost=1000.0),
    ]
    found = solve(made(cluster=pool(1), jobs=jobs), slot=5.0)
    assert (found.status == "optimal") == kept
    if kept:
        assert found.objective == pytest.approx(80.0)
        assert [start for name, _, start, _ in stretches(found) if name == "long"] == [0.0, 40.0]


@pytest.mark.parametrize(
    ("state", "deadline", "kept"),
    [
        ({}, 50.0, True),  # it never ran
        ({"steps_done": 1.0}, 50.0, False),
        ({"steps_done": 1.0}, 79.0, True),
        ({"steps_done": 1.0, "running": {"pool": "v100", "gpus": ["v100-0/0"]}}, 49.0, True),
    ],
)
def test_who_has_run_before_pays_for_its_next_start(
    state: dict[str, Any], deadline: float, kept: bool
) -> None:
    stated = dict(state)
    running = stated.pop("running", None)
    if running:
        stated["running"] = running
    instance = made(cluster=pool(1), jobs=[job("a", 50.0, deadline, restart_cost=30.0, **stated)])
    assert (solve(instance, admission=True).declined == ()) == kept


def test_a_job_that_cannot_be_preempted_runs_in_one_piece() -> None:
    urgent = job("urgent", 20.0, 40.0, arrival=20.0)
    whole = job("whole", 40.0, 100.0, preemptible=False)
    found = solve(made(cluster=pool(1), jobs=[urgent, whole]))
    assert found.status == "optimal"
    assert [row[2:] for row in stretches(found) if row[0] == "whole"] == [(40.0, 80.0)]


def test_one_that_runs_and_cannot_be_preempted_goes_on_even_if_it_is_late() -> None:
    runs = {"pool": "v100", "gpus": ["v100-0/0"]}
    late = job("late", 50.0, 20.0, preemptible=False, running=runs)
    other = job("other", 10.0, 50.0)
    found = solve(made(cluster=pool(1), jobs=[late, other]), admission=True)
    assert {name for name, _ in found.declined} == {"late", "other"}


RUNS = {"running": {"pool": "v100", "gpus": ["v100-0/0"], "since": -5.0}, "exempt_time": 15.0}


@pytest.mark.parametrize("program", [True, False])
@pytest.mark.parametrize(("due", "kept"), [(30.0, True), (29.0, False)])
def test_a_job_is_not_preempted_within_its_exempt_time(
    due: float, kept: bool, program: bool
) -> None:
    """It runs for 10 s more, makes way for 20 s, restarts for 5 s, and has 30 s of work left."""
    jobs = [job("r", 40, 70, restart_cost=5.0, **RUNS), job("x", 20, due)]
    given = made(jobs=jobs, cluster=pool(1))
    found = solve(given, admission=not kept, program=program)
    if kept:
        assert stretches(found) == [("r", 1, 0, 10), ("x", 1, 10, 30), ("r", 1, 30, 65)]
        assert found.objective == 65.0
    else:
        assert stretches(found) == [("r", 1, 0, 40)]


def test_what_is_declined_within_its_exempt_time_keeps_its_gpus_all_the_same() -> None:
    jobs = [job("r", 40, 15, deadline_kind="soft", **RUNS), job("x", 20, 29), job("y", 9, 29)]
    found = solve(made(jobs=jobs, cluster=pool(1)), admission=True)
    assert stretches(found) == [("y", 1, 10, 19)]


@pytest.mark.parametrize("exempt", [3.0, 10.0, 100.0])
@pytest.mark.parametrize("state", ["up", "drain", "down"])
def test_exempt_jobs_on_nodes_that_close(state: str, exempt: float) -> None:
    """A node that drains lets the job stay until its exempt time ends; one that is down does not."""
    nodes = [{"name": "n0", "state": state}, {"name": "n1"}]
    held = {"running": {"pool": "v100", "gpus": ["n0/0"], "since": 0.0}, "exempt_time": exempt}
    given = made(
        jobs=[job("r", 10, 30, restart_cost=5.0, **held)],
        cluster={"pools": [{"name": "v100", "nodes": nodes, "gpus_per_node": 1}]},
    )
    moved = {"up": 0.0, "drain": 5.0 if exempt < 10 else 0.0, "down": 5.0}[state]
    assert stretches(solve(given))[-1][3] == 10.0 + moved


def test_nodes_that_open_later_and_calendars() -> None:
    nodes = {"pools": [{"name": "v100", "gpus_per_node": 1, "nodes": [
        {"name": "n0"}, {"name": "n1", "available_from": 30.0}]}]}  # fmt: skip
    jobs = [job("a", 40.0, 70.0, gpus=2), job("b", 30.0, 30.0)]
    found = solve(made(cluster=nodes, jobs=jobs))
    assert stretches(found) == [("b", 1, 0.0, 30.0), ("a", 2, 30.0, 70.0)]
    closed = made(cluster=pool(1), round=10.0, jobs=[job("a", 20.0, 40.0)])
    assert stretches(solve(closed, capacity={"v100": [0, 0, 1]})) == [("a", 1, 20.0, 40.0)]


def test_jobs_are_cut_where_as_many_as_fit_run_for_most_of_their_time() -> None:
    """Three jobs of 20 s on two GPUs are done at 30 only if one is cut, as McNaughton does."""
    jobs = [job(name, 20.0, 30.0) for name in "abc"]
    found = solve(made(cluster=pool(2), jobs=jobs), program=False)
    assert sorted(stretches(found), key=lambda row: row[2]) == [
        ("a", 1, 0.0, 20.0), ("c", 1, 0.0, 10.0), ("b", 1, 10.0, 30.0), ("c", 1, 20.0, 30.0)
    ]  # fmt: skip


def two_speeds(*names: str) -> Instance:
    """Jobs of 100 s on one GPU of the fast pool, and of 200 s on one of the slow pool."""
    rates = {"fast": {"1": 1.0}, "slow": {"1": 0.5}}
    pools = [{"name": name, "nodes": 1, "gpus_per_node": 1} for name in rates]
    jobs = [
        {"id": name, "gpus": 1, "steps": 100.0, "deadline": 1000.0, "throughput": rates}
        for name in names
    ]
    return made(cluster={"pools": pools}, jobs=jobs)


def test_without_the_program_jobs_that_wait_run_on_free_gpus_of_a_slow_pool() -> None:
    """The second job does half of its work there; the third waits, as it cannot end earlier."""
    found = solve(two_speeds("a", "b", "c"), program=False)
    assert found.schedule is not None
    rows = [
        (row["job"], row["pool"], row["start"], row["end"]) for row in found.schedule.to_records()
    ]
    assert rows == [
        ("a", "fast", 0.0, 100.0), ("b", "slow", 0.0, 100.0),
        ("b", "fast", 100.0, 150.0), ("c", "fast", 200.0, 300.0),
    ]  # fmt: skip
    least = solve(two_speeds("a", "b", "c"))
    assert least.objective == pytest.approx(300.0)  # the program asks for the least GPU time


# --- admission ------------------------------------------------------------------------------------


def test_the_long_job_makes_way_as_for_moore_and_hodgson() -> None:
    times, deadlines = [3, 1, 4, 2, 6], [4, 3, 9, 7, 10]
    jobs = [job(f"j{n}", p, d) for n, (p, d) in enumerate(zip(times, deadlines, strict=True))]
    found = solve(made(cluster=pool(1), jobs=jobs), admission=True)
    assert found.status == "optimal"
    assert (found.objective, len(found.declined)) == (2.0, 2)


def test_value_decides_who_is_declined() -> None:
    jobs = [job("cheap", 10.0, 10.0), job("dear", 10.0, 10.0, weight=3.0)]
    for options in ({}, {"program": False}):
        found = solve(made(cluster=pool(1), jobs=jobs), admission=True, **options)
        assert [name for name, _ in found.declined] == ["cheap"]
        assert found.objective == 1.0


def test_a_job_is_planned_for_the_deadline_that_is_worth_most() -> None:
    """By its last deadline the soft job would come second, and be worth 1."""
    jobs = [soft("soft", {1: 10.0}, {10.0: 10.0, 100.0: 1.0}), job("hard", 10.0, 30.0)]
    found = solve(made(cluster=pool(1), jobs=jobs), program=False, admission=True)
    assert found.objective == pytest.approx(0.0)
    assert stretches(found) == [("soft", 1, 0.0, 10.0), ("hard", 1, 10.0, 20.0)]


@pytest.mark.parametrize("name", ["deadline-elastic", "deadline-fluid", "elasticflow"])
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_a_job_whose_deadline_has_passed_counts_among_those_declined(
    name: str, others: int, kind: str
) -> None:
    """The deadlines are before now, now, and at the arrival."""
    late = [
        job("past", 10.0, 90.0, weight=5.0, deadline_kind=kind),
        job("now", 10.0, 100.0, weight=3.0, deadline_kind=kind),
        job("new", 10.0, 150.0, arrival=150.0, weight=2.0, deadline_kind=kind),
    ]
    jobs = [*late, *[job("a", 10.0, 200.0, weight=4.0)] * others]
    instance = made(now=100.0, cluster=pool(1), jobs=jobs)
    found = verified(optsched.solve(instance, name, options={"admission": True}))
    assert (found.status, found.objective, found.bound) == ("optimal", 10.0, 10.0)
    assert [name for name, _ in found.declined] == ["past", "now", "new"]


@pytest.mark.parametrize("name", ["deadline-elastic", "deadline-fluid", "elasticflow"])
@pytest.mark.parametrize(
    ("values", "planned", "lost"),
    [
        ((9.0, 2.0), "low", 2.0),
        ((None, None), "high", 1.0),
        ((None, 2.0), "high", 1.0),
        ((9.0, None), "low", 5.0),
    ],
)
def test_a_job_is_worth_the_value_of_its_option_or_its_weight(
    name: str, values: tuple[float | None, float | None], planned: str, lost: float
) -> None:
    jobs = [
        {"id": id_, "weight": weight, "deadline": 100.0}
        | {
            "options": [
                {"pool": "v100", "gpus": 1, "duration": 100.0}
                | ({} if value is None else {"value": value})
            ]
        }
        for id_, weight, value in zip(("low", "high"), (1.0, 5.0), values, strict=True)
    ]
    instance = made(cluster=pool(1), jobs=jobs)
    found = verified(optsched.solve(instance, name, options={"admission": True}))
    if name != "elasticflow":  # Its rule has no values.
        assert [row[0] for row in stretches(found)] == [planned]
        assert found.objective == lost
    assert not [note for note in found.notes if "values of options" in note]


def test_of_options_one_without_a_value_is_worth_nothing_beside_one_with_a_value() -> None:
    options = [
        {"pool": "v100", "gpus": 1, "duration": 10.0, "attributes": {"deadline": due}, **value}
        for due, value in ((10.0, {"value": 3.0}), (100.0, {}))
    ]
    jobs = [{"id": "soft", "weight": 7.0, "options": options}, job("hard", 10.0, 10.0, weight=4.0)]
    assert solve(made(cluster=pool(1), jobs=jobs), admission=True).objective == 3.0


def test_a_level_changes_before_a_value_is_lost() -> None:
    """On one GPU the job is done at 20, too late for 10; a second GPU is free from 4 on."""
    jobs = [soft("soft", {1: 16.0, 2: 8.0}, {10.0: 10.0, 100.0: 1.0})]
    cluster = {
        "pools": [
            {
                "name": "v100",
                "nodes": [{"name": "n0"}, {"name": "n1", "available_from": 4.0}],
                "gpus_per_node": 1,
            }
        ]
    }
    found = solve(made(cluster=cluster, jobs=jobs), program=False, admission=True)
    assert found.objective == pytest.approx(0.0)
    assert stretches(found) == [("soft", 1, 0.0, 4.0), ("soft", 2, 4.0, 10.0)]


# --- what is not possible, and what is not proven -------------------------------------------------


def test_only_what_the_relaxation_refutes_is_called_infeasible() -> None:
    refuted = solve(made(cluster=pool(1), jobs=[job("a", 8.0, 10.0), job("b", 8.0, 10.0)]))
    assert refuted.status == "infeasible"
    assert {"a", "b"} <= {
        word for conflict in refuted.conflicts for word in conflict.words.replace(",", "").split()
    }
    # Half of the time for a gang of four, all of it for one GPU beside it: the fluid program keeps both.
    gangs = made(cluster=pool(4), jobs=[job("a", 5.0, 10.0, gpus=4), job("b", 10.0, 10.0)])
    assert solve(gangs).status == "limit"
    free = {"id": "free", "steps": 5.0, "throughput": {"v100": 1.0}}
    beside = made(cluster=pool(4), jobs=[job("a", 5.0, 10.0, gpus=4), job("b", 10.0, 10.0), free])
    assert solve(beside).status == "limit"  # a job of best effort is in nobody's way
    slots = solve(gangs, slot=1.0)
    assert slots.status == "infeasible"
    assert all(conflict.assumption is not None for conflict in slots.conflicts)


@pytest.mark.parametrize("done", [{"deadline": 5.0}, {"deadline": 100.0}])
def test_a_job_that_cannot_meet_its_deadline_alone_is_named(done: dict[str, float]) -> None:
    instance = made(now=10.0, cluster=pool(1), jobs=[job("a", 1000.0, done["deadline"])])
    found = solve(instance)
    assert found.status == "infeasible"
    assert "job a" in found.conflicts[0].words


def test_slots_that_are_too_short_and_unknown_resources_are_refused() -> None:
    instance = made(cluster=pool(1), jobs=[job("a", 10.0, 1e6)])
    for slot, slots in ((0.01, "100,000,000"), (1e-300, "1e+306"), (1e-305, "inf")):
        found = f"found {slot:g} s: {slots} slots of 1 levels, expected so..."
        with refuses(f"option of deadline-elastic: slot: {found}", InvalidArgument):
            solve(instance, slot=slot)
    with refuses(
        'option of deadline-elastic: capacity: found "k80", expected one of v100', InvalidArgument
    ):
        solve(instance, capacity={"k80": [1]})


def test_a_schedule_that_does_not_do_the_work_is_none() -> None:
    solution = solve(made(cluster=pool(1), jobs=[job("a", 10.0, 20.0)]))
    document = solution.to_document()
    document["schedule"][0]["end"] = 9.0
    assert not optsched.verify(solution.instance, document).ok


# --- brute force ----------------------------------------------------------------------------------


def keeps_all(
    capacity: dict[str, int], jobs: list[dict[str, Any]], slots: int, restart: float
) -> bool:
    """Every choice of levels in every slot, by the work that is left."""

    @cache
    def keeps(t: int, left: tuple[float, ...], last: tuple[Any, ...]) -> bool:
        if all(work <= 1e-9 for work in left):
            return True
        alive = [n for n, work in enumerate(left) if work > 1e-9]
        if t == slots or any(jobs[n]["due"] <= t for n in alive):
            return False
        ways = [
            [None, *jobs[n]["levels"]] if n in alive and jobs[n]["arrives"] <= t else [None]
            for n in range(len(jobs))
        ]
        for chosen in itertools.product(*ways):
            held = dict.fromkeys(capacity, 0)
            for level in filter(None, chosen):
                held[level[0]] += level[1]
            if any(held[name] > capacity[name] for name in capacity):
                continue
            after, ran = list(left), list(last)
            for n, level in enumerate(chosen):
                if level is not None:
                    again = last[n] is not None and last[n] != level[:2]
                    after[n] -= level[2] * (SLOT - restart * again)
                    ran[n] = level[:2]
                elif last[n] is not None:
                    ran[n] = "stopped"
            if keeps(t + 1, tuple(round(work, 6) for work in after), tuple(ran)):
                return True
        return False

    return keeps(0, tuple(job["work"] for job in jobs), (None,) * len(jobs))


def random_set(seed: int) -> tuple[dict[str, int], list[dict[str, Any]], int, float]:
    """Two or three jobs of gangs, levels and pools, with arrivals, in at most four slots."""
    draw = np.random.default_rng(seed)
    capacity = {"a": int(draw.integers(2, 5))}
    if draw.random() < 0.5:
        capacity["b"] = int(draw.integers(1, 3))
    slots, jobs = int(draw.integers(2, 5)), []
    for _ in range(int(draw.integers(2, 4))):
        levels = []
        for name, gpus in capacity.items():
            sizes = [size for size in (1, 2, 4) if size <= gpus]
            for size in draw.permutation(sizes)[: draw.integers(0 if levels else 1, 3)].tolist():
                levels.append((name, size, float(draw.choice([0.5, 0.8, 1.0])) * size))
        arrives = int(draw.integers(0, 2))
        due = int(draw.integers(arrives + 1, slots + 1))
        work = round(float(draw.uniform(0.2, 1.0) * (due - arrives) * levels[0][2] * SLOT), 1)
        jobs.append({"levels": levels, "arrives": arrives, "due": due, "work": work})
    return capacity, jobs, slots, float(draw.choice([0.0, 0.0, 20.0]))


def instance_of(capacity: dict[str, int], jobs: list[dict[str, Any]], restart: float) -> Instance:
    def table(levels: list[tuple[str, int, float]]) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for name, gpus, rate in levels:
            found.setdefault(name, {})[str(gpus)] = rate
        return found

    return made(
        cluster={
            "pools": [
                {"name": name, "nodes": 1, "gpus_per_node": gpus} for name, gpus in capacity.items()
            ]
        },
        jobs=[
            {
                "id": f"j{n}",
                "gpus": {
                    "min": 1,
                    "max": 4,
                    "levels": sorted({gpus for _, gpus, _ in one["levels"]}),
                },
                "throughput": table(one["levels"]),
                "steps": one["work"],
                "arrival": one["arrives"] * SLOT,
                "deadline": one["due"] * SLOT,
                "restart_cost": restart,
            }
            for n, one in enumerate(jobs)
        ],
    )


@pytest.mark.property
def test_all_jobs_are_kept_by_rule_where_none_would_be_declined() -> None:
    """Where all must be kept the first plan that keeps all is the answer; else the best of all orders."""
    kept = 0
    for seed in range(60):
        capacity, jobs, _, restart = random_set(seed)
        instance = instance_of(capacity, jobs, restart)
        decided = solve(instance, program=False)
        best = solve(instance, program=False, admission=True)
        assert decided.schedule is not None or best.declined or best.unplaced, seed
        kept += decided.schedule is not None
    assert 10 < kept < 60


@pytest.mark.property
@pytest.mark.parametrize("block", first_of(10, blocks=2))
def test_sets_are_decided_as_by_brute_force(block: int) -> None:
    """Whoever keeps all deadlines in whole slots is found; what is found is verified; what the fluid
    program refutes nobody keeps."""
    kept = 0
    for seed in range(50 * block, 50 * block + 50):
        capacity, jobs, slots, restart = random_set(seed)
        instance = instance_of(capacity, jobs, restart)
        brute = keeps_all(capacity, jobs, slots, restart)
        found = solve(instance, slot=SLOT)
        assert found.status in ("optimal", "infeasible")
        assert found.status == "optimal" or not brute, seed
        kept += brute
        if seed % 5:
            continue
        events = solve(instance)
        assert not (brute and events.status == "infeasible"), seed
        declined = solve(instance, slot=SLOT, admission=True)
        assert declined.objective is not None
        assert declined.objective == 0 or not brute, seed
        by_rule = solve(instance, program=False, admission=True)
        assert by_rule.objective is not None
        assert declined.objective <= by_rule.objective, seed
    assert 5 < kept < 45


@pytest.mark.property
@pytest.mark.parametrize("block", first_of(10, blocks=2))
def test_admission_is_refuted_only_where_brute_force_keeps_no_plan(block: int) -> None:
    """Who is refused with a proof cannot be kept beside the jobs that are named, and beside fewer of
    them there is no proof."""
    conflicts = 0
    for seed in range(50 * block, 50 * block + 50):
        capacity, jobs, slots, restart = random_set(seed)
        instance = instance_of(capacity, jobs, restart)
        names = [f"j{n}" for n in range(len(jobs))]
        decision = optsched.admit(instance, names, advise=False)
        assert decision.plan is not None or not decision.admitted
        for refusal in decision.refused:
            if not refusal.proven:
                continue
            together = [names.index(name) for name in (*refusal.conflict, refusal.job)]
            assert not keeps_all(capacity, [jobs[n] for n in together], slots, restart), seed
            if refusal.smallest:
                fewer = [[n for n in together if n != left] for left in together]
                assert not any(refuted(capacity, [jobs[n] for n in some]) for some in fewer), seed
            conflicts += len(refusal.conflict) > 0
    assert conflicts > 0


def refuted(capacity: dict[str, int], jobs: list[dict[str, Any]]) -> bool:
    """Whether not even jobs that change at any moment without cost keep all deadlines."""
    if not jobs:
        return False
    options = {"schedule": False}
    bound = optsched.solve(
        instance_of(capacity, jobs, 0.0), "deadline-fluid", options=options
    ).bound
    return bound is not None and bound > 1e-6


@pytest.mark.property
@pytest.mark.parametrize("seed", range(30))
def test_leases_are_its_case_without_levels(seed: int) -> None:
    """Whoever keeps leases keeps slots; single GPUs lose nothing by whole leases."""
    draw = np.random.default_rng(seed)
    gangs = [1] * 5 if seed % 2 else draw.choice([1, 2, 4], 5).tolist()
    needed = draw.integers(1, 4, 5)
    deadline = (needed + draw.integers(0, 4, 5)).tolist()
    gpus = 2 if seed % 2 else 4
    instance = leases(gangs, needed.tolist(), deadline, gpus)
    lease = optsched.solve(instance, "lease", options={"admission": True})
    found = solve(instance, slot=100.0, admission=True)
    assert found.objective is not None
    assert len(found.declined) <= len(lease.declined)
    if seed % 2:
        assert len(found.declined) == len(lease.declined)


# --- oracles --------------------------------------------------------------------------------------


def elasticflow_case(case: dict[str, Any]) -> Instance:
    jobs = []
    for one in case["jobs"]:
        most = min(one.get("max_gpus", 64), case["capacity"])
        rates = {int(gpus): rate for gpus, rate in one["rate"].items() if int(gpus) <= most}
        due = case["slot_seconds"] * one["deadline_slot"]
        jobs.append(elastic(one["id"], one["iters"], due, rates))
    return made(cluster=pool(case["capacity"]), jobs=jobs)


@pytest.mark.oracle
@needs(ORACLES)
def test_elasticflow_sets() -> None:
    cases = json.loads((ORACLES / "elasticflow" / "elasticflow_cases.json").read_text())["cases"]
    won = 0
    for case in cases:
        found = solve(elasticflow_case(case), slot=float(case["slot_seconds"]))
        expected = case["expected"]
        assert (found.status == "optimal") == expected["exact_feasible"]
        if found.objective is not None:
            most = case["slot_seconds"] * expected["exact_min_gpu_slots"]
            assert found.objective <= most * (1 + 1e-9)
            won += not expected["all_admitted"]
    assert won == 2


@pytest.mark.oracle
@needs(ORACLES)
def test_elasticflow_as_published_keeps_what_its_shares_keep() -> None:
    """It keeps no set that cannot be kept, and each of which all jobs find a share."""
    path = ORACLES / "elasticflow" / "elasticflow_cases.json"
    for case in json.loads(path.read_text())["cases"]:
        expected = case["expected"]
        kept = optsched.solve(elasticflow_case(case), "elasticflow")
        if kept.schedule is not None:
            assert expected["exact_feasible"] and verified(kept).certificate.ok
        assert kept.schedule is not None or not expected["all_admitted"]


@pytest.mark.parametrize("orders", [1, 4])
def test_all_are_kept_by_cutting_jobs_where_most_is_free(orders: int) -> None:
    """Three jobs of two thirds of the time on two GPUs (McNaughton): as early as they can only two fit."""
    jobs = [job(name, 40.0, 60.0) for name in "abc"]
    found = solve(made(cluster=pool(2), jobs=jobs), program=False, orders=orders)
    assert (found.status, found.objective) == ("feasible", pytest.approx(120.0))


def test_a_job_that_found_no_room_comes_first_where_all_must_be_kept() -> None:
    """In none of the orders alone all find room."""
    sizes = [(1, 20.0, 40.0), (1, 30.0, 30.0), (2, 30.0, 50.0), (1, 30.0, 40.0)]
    jobs = [job(str(n), steps, due, gpus=gpus) for n, (gpus, steps, due) in enumerate(sizes)]
    assert solve(made(cluster=pool(3), jobs=jobs), program=False).status == "feasible"


RULES: dict[str, dict[str, Any]] = {"elasticflow": {}, "deadline-elastic": {"program": False}}
"""Formulations that answer by rule alone, with their options."""


@pytest.mark.parametrize("name", RULES)
def test_a_rule_alone_reaches_no_limit(name: str) -> None:
    """Nobody set one: it is the rule that proves no optimum, or finds no plan."""
    there = made(cluster=pool(1), jobs=[job("x", 60.0, 90.0)])
    found = optsched.solve(there, name, options=RULES[name])
    assert (found.status, found.termination) == ("feasible", "by_rule")
    gangs = made(cluster=pool(4), jobs=[job("a", 5.0, 10.0, gpus=4), job("b", 10.0, 10.0)])
    found = optsched.solve(gangs, name, options=RULES[name])
    assert (found.status, found.termination) == ("limit", "by_rule")
    assert found.reproducible and found.notes[0].startswith("not proven")


def test_elasticflow_is_infeasible_only_where_no_schedule_keeps_all() -> None:
    """What its shares do not keep is asked of the fluid program; who asks for a rule alone gets no proof."""
    none = made(cluster=pool(1), jobs=[job("x", 60.0, 90.0), job("y", 60.0, 90.0)])
    found = verified(optsched.solve(none, "elasticflow"))
    assert (found.status, found.certificate.proof) == ("infeasible", "dual")
    assert {"x", "y"} <= {word for one in found.conflicts for word in one.words.split()}
    assert optsched.solve(none, "deadline-elastic", program=False).status == "limit"
    # Three jobs of two thirds of the time on two GPUs: one has to be cut, which shares do not do here.
    kept = made(
        cluster=pool(2), jobs=[job("x", 40.0, 60.0), job("y", 40.0, 60.0), job("z", 40.0, 60.0)]
    )
    assert optsched.solve(kept, "deadline-elastic").status == "optimal"
    found = optsched.solve(kept, "elasticflow")
    assert (found.status, found.termination) == ("limit", "by_rule")


def test_elasticflow_gives_the_least_share_and_then_what_is_free() -> None:
    """Two jobs need 2 and 1 GPUs; of the two that are left, each step goes where GPU time grows most."""
    rates = {1: 1.0, 2: 1.5, 4: 2.0}
    jobs = [elastic("a", 170, 120, rates), elastic("b", 100, 170, rates)]
    alone = optsched.solve(made(cluster=pool(4), jobs=jobs[:1]), "elasticflow")
    assert stretches(alone) == [("a", 4, 0.0, 85.0)]
    both = optsched.solve(made(cluster=pool(4), jobs=jobs), "elasticflow")
    assert [row[:3] for row in stretches(both)] == [("a", 2, 0.0), ("b", 2, 0.0)]
    tight = optsched.solve(
        made(cluster=pool(2), jobs=jobs), "elasticflow", options={"admission": True}
    )
    assert [name for name, _ in tight.declined] == ["b"]


def test_elasticflow_expands_to_more_gpus_not_to_another_pool_with_as_many() -> None:
    pools = [{"name": name, "nodes": 1, "gpus_per_node": n} for name, n in (("a", 1), ("b", 2))]
    rates = {"a": {"1": 1.0}, "b": {"1": 2.0, "2": 3.0}}
    given = {"gpus": {"min": 1, "max": 2}, "steps": 90, "deadline": 200, "throughput": rates}
    found = optsched.solve(
        made(cluster={"pools": pools}, jobs=[{"id": "x", **given}]), "elasticflow"
    )
    assert stretches(found) == [("x", 2, 0.0, 30.0)]


@pytest.mark.oracle
@needs(ORACLES / "forms")
def test_golden_cores_of_leases() -> None:
    """Gangs in whole leases are slots of a single level."""
    decided = set()
    for case in json.loads((ORACLES / "forms" / "goldens.json").read_text())["lease"]:
        instance = leases(case["gang"], case["leases"], case["deadline"], case["gpus"])
        assert feasible(instance, slot=instance.round) == case["feasible"]
        decided.add(case["feasible"])
    assert decided == {True, False}


# --- times that are far apart ---------------------------------------------------------------------


def test_the_year_9999_does_not_swallow_short_jobs() -> None:
    """The time of one job is the rounding of the deadline of another."""
    far = job("far", 1.0, 253402300799.0)
    wide, long = job("wide", 10.0, 20.0, gpus=4), job("long", 20.0, 20.0)
    assert solve(made(cluster=pool(4), jobs=[far, wide, long])).schedule is None
    found = solve(made(cluster=pool(5), jobs=[far, wide, long]))
    assert {name for name, *_ in stretches(found)} == {"far", "wide", "long"}


@pytest.mark.parametrize("formulation", ["deadline-elastic", "deadline-fluid"])
@pytest.mark.parametrize(("now", "steps", "deadline"), [(1.7e9, 1e-3, 10.0), (0.0, 1e-9, 1.5e-3)])
def test_jobs_may_be_shorter_than_a_tick_of_the_clock(
    formulation: str, now: float, steps: float, deadline: float
) -> None:
    instance = made(now=now, cluster=pool(1), jobs=[job("x", steps, now + deadline)])
    # A tick is more than a millionth of the work: a schedule misses the bound by as much.
    assert verified(optsched.solve(instance, formulation)).status in ("optimal", "feasible")


# --- rounds ---------------------------------------------------------------------------------------


def test_rounds_follow_the_plan_and_fill_what_it_leaves() -> None:
    """The job without a deadline runs on what is left, from 0 s to 10 s and from 50 s to 140 s."""
    jobs = [
        {"id": "free", "gpus": 1, "steps": 100.0, "throughput": {"v100": 1.0}},
        job("first", 50.0, 60.0),
        job("second", 50.0, 70.0, arrival=10.0),
    ]
    result = simulate(
        made(cluster=pool(2), jobs=jobs),
        {"formulation": "deadline-elastic"},
        replan="events",
        round=1000.0,
    )
    assert result.metrics()["deadlines_met"] == 1.0
    assert result.metrics()["makespan"] == pytest.approx(140.0)


# --- all programs of deadlines ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deadline-elastic", "deadline-fluid", "elasticflow", "lease"])
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_who_can_run_nowhere_is_unplaced_and_counts_for_nothing_where_jobs_may_be_declined(
    name: str, others: int, kind: str
) -> None:
    wide = job("wide", 5, 200, gpus=4, deadline_kind=kind)
    given = made(cluster=pool(1), jobs=[wide, job("a", 5, 200)][: 1 + others], round=5.0)
    found = optsched.solve(given, name, options={"admission": True})
    assert (found.status == "infeasible", found.declined) == (False, ())
    assert found.objective == (others if name == "lease" else 0.0)
    assert [job for job, _ in found.unplaced] == ["wide"]
    strict = optsched.solve(given, name)
    assert [conflict.words[:8] for conflict in strict.conflicts] == ["job wide"] * (kind == "hard")
