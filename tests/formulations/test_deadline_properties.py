"""What theory says of deadlines: on-time counts, order, time, one job alone, and plans that are followed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from plan_instances import leases, made, soft_leases

import optsched
from optsched.instance import Instance

pytestmark = pytest.mark.property

Rows = list[tuple[float, float, float]]
"""Steps, deadline and weight of jobs."""


def pool(gpus: int) -> dict[str, Any]:
    return {"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": gpus}]}


def one_server(rows: Rows, speed: float = 1.0) -> Instance:
    """Jobs that are all there at 0, on one GPU."""
    return made(
        cluster=pool(1),
        jobs=[
            {"id": f"j{n}", "gpus": 1, "steps": steps, "deadline": due, "weight": weight}
            | {"throughput": {"v100": speed}}
            for n, (steps, due, weight) in enumerate(rows)
        ],
    )


def kept_value(instance: Instance, formulation: str = "deadline-fluid") -> float:
    """Value of the jobs that are in time."""
    solution = optsched.solve(instance, formulation, options={"admission": True})
    assert solution.status == "optimal" and solution.objective is not None
    return float(instance.jobs_table.weight.sum()) - solution.objective


def moore_hodgson(rows: Rows) -> int:
    """Jobs in time: by deadline, and the longest makes way where one is late (Moore 1968)."""
    taken: list[float] = []
    for steps, due, _ in sorted(rows, key=lambda row: row[1]):
        taken.append(steps)
        if sum(taken) > due:
            taken.remove(max(taken))
    return len(taken)


def lawler_moore(rows: Rows) -> float:
    """The largest weight in time, by the weight of each total of steps (Lawler and Moore 1969)."""
    best = {0.0: 0.0}
    for steps, due, weight in sorted(rows, key=lambda row: row[1]):
        for total, value in list(best.items()):
            if total + steps <= due:
                longer = total + steps
                best[longer] = max(best.get(longer, 0.0), value + weight)
    return max(best.values())


def drawn(random: np.random.Generator, jobs: int = 6, weights: bool = False) -> Rows:
    steps = random.integers(1, 9, jobs).astype(float)
    due = steps + random.integers(0, 18, jobs)
    weight = random.integers(1, 6, jobs) if weights else np.ones(jobs)
    return list(zip(steps.tolist(), due.tolist(), weight.astype(float).tolist(), strict=True))


# --- one server: section 1 of the theory of on-time counts --------------------------------------


@pytest.mark.parametrize("formulation", ["deadline-fluid", "deadline-elastic"])
def test_on_one_server_as_many_are_in_time_as_by_moore_and_hodgson(formulation: str) -> None:
    random, declining = np.random.default_rng(21), 0
    for _ in range(12):
        rows = drawn(random)
        kept = kept_value(one_server(rows), formulation)
        assert kept == pytest.approx(moore_hodgson(rows)), rows
        declining += kept < len(rows)
    assert declining > 6


def test_with_weights_it_is_the_program_of_lawler_and_moore() -> None:
    random, other = np.random.default_rng(22), 0
    for _ in range(12):
        rows = drawn(random, weights=True)
        assert kept_value(one_server(rows)) == pytest.approx(lawler_moore(rows)), rows
        other += lawler_moore(rows) > moore_hodgson(rows)
    assert other > 6


def test_later_deadlines_lose_nothing_and_speed_is_less_work() -> None:
    random = np.random.default_rng(23)
    for _ in range(6):
        rows = drawn(random, weights=True)
        value = kept_value(one_server(rows))
        later = [(steps, due + float(random.integers(0, 4)), w) for steps, due, w in rows]
        assert kept_value(one_server(later)) >= value - 1e-9
        halved = [(0.5 * steps, due, weight) for steps, due, weight in rows]
        assert kept_value(one_server(rows, 2.0)) == pytest.approx(kept_value(one_server(halved)))
        dearer = [(steps, due, 3.0) for steps, due, _ in rows]
        assert kept_value(one_server(dearer)) == pytest.approx(3.0 * moore_hodgson(rows))


# --- the fluid program: section 2 ------------------------------------------------------------------


def elastic(name: str, steps: float, deadline: float, rates: dict[int, float]) -> dict[str, Any]:
    levels = {"min": min(rates), "max": max(rates), "levels": list(rates)}
    table = {"v100": {str(number): rate for number, rate in rates.items()}}
    return {"id": name, "steps": steps, "deadline": deadline, "gpus": levels, "throughput": table}


def elastic_set(
    random: np.random.Generator, jobs: int = 5, tight: float = 1.0
) -> list[dict[str, Any]]:
    made_jobs = []
    for number in range(jobs):
        rates = {g: float(g ** random.uniform(0.5, 1.0)) for g in (1, 2, 4)}
        steps = float(random.integers(20, 120))
        made_jobs.append(
            elastic(f"j{number}", steps, float(tight * steps * random.uniform(0.5, 1.5)), rates)
        )
    return made_jobs


def test_the_order_of_jobs_changes_nothing() -> None:
    """One job is there twice."""
    random, lost = np.random.default_rng(24), []
    for _ in range(4):
        jobs = elastic_set(random, tight=0.5)
        jobs.append({**jobs[0], "id": "twin"})
        shuffled = [jobs[place] for place in random.permutation(len(jobs))]
        bounds = [
            optsched.solve(made(cluster=pool(4), jobs=one), "deadline-fluid", admission=True).bound
            for one in (jobs, shuffled)
        ]
        assert bounds[0] == pytest.approx(bounds[1])
        lost.append(bounds[0])
    assert max(lost) > 0
    for _ in range(4):
        rows = drawn(random, weights=True)
        turned = kept_value(one_server(rows[::-1]), "deadline-elastic")
        assert kept_value(one_server(rows), "deadline-elastic") == pytest.approx(turned)


def test_later_deadlines_take_no_more_gpu_time() -> None:
    random, feasible = np.random.default_rng(25), 0
    for _ in range(8):
        jobs = elastic_set(random, 3)
        spent = []
        for longer in (1.0, 1.3, 2.0):
            later = [{**one, "deadline": longer * one["deadline"]} for one in jobs]
            found = optsched.solve(made(cluster=pool(4), jobs=later), "deadline-fluid")
            spent.append(np.inf if found.status == "infeasible" else found.bound)
        assert spent[0] >= spent[1] - 1e-6 and spent[1] >= spent[2] - 1e-6
        feasible += np.isfinite(spent[0])
    assert feasible > 2


def left_after(instance: Instance, schedule: Any, time: float) -> list[dict[str, Any]]:
    """Jobs with the work that a schedule leaves at some time."""
    done: dict[str, float] = {}
    for row in schedule.to_records():
        seconds = max(min(row["end"], time) - row["start"], 0.0)
        done[row["job"]] = done.get(row["job"], 0.0) + seconds
    table = instance.jobs_table
    rows = zip(table.names, table.steps.tolist(), table.deadline.tolist(), strict=True)
    return [
        {"id": name, "gpus": 1, "deadline": due, "throughput": {"v100": 1.0}}
        | {"steps": steps, "steps_done": min(done.get(name, 0.0), steps)}
        for name, steps, due in rows
        if done.get(name, 0.0) < steps - 1e-6
    ]


@pytest.mark.parametrize("formulation", ["deadline-fluid", "deadline-elastic"])
def test_who_is_admitted_can_be_kept_at_every_moment_of_the_plan(formulation: str) -> None:
    random, checked = np.random.default_rng(26), 0
    for _ in range(8):
        rows = [(steps, 1.5 * due, 1.0) for steps, due, _ in drawn(random, 4)]
        instance = one_server(rows)
        schedule = optsched.solve(instance, formulation).schedule
        if schedule is None:
            continue
        for time in np.unique(schedule.end)[:-1].tolist():
            rest = left_after(instance, schedule, time)
            there = made(now=time, cluster=pool(1), jobs=rest)
            assert optsched.solve(there, formulation).schedule is not None, (rows, time)
            checked += 1
    assert checked > 5


# --- leases: section 4 -----------------------------------------------------------------------------


def options_of(random: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {"job": f"j{job}", "value": value, "gpus": int(gpus), "leases_needed": needed}
        | {"max_lease": needed + extra}
        for job in range(4)
        for gpus, needed in [(random.choice([1, 2, 4]), int(random.integers(1, 3)))]
        for extra, value in [(int(random.integers(0, 2)), 10.0), (3, 5.0)]
    ]


def lease_value(options: list[dict[str, Any]], capacity: int, **more: Any) -> float:
    given = {"admission": True, "capacity": {"v100": [capacity]}, **more}
    found = optsched.solve(soft_leases(options, 8), "lease", options=given)
    assert found.objective is not None
    return found.objective


def test_more_capacity_and_later_leases_are_worth_no_less() -> None:
    random = np.random.default_rng(27)
    for _ in range(4):
        options = options_of(random)
        value = lease_value(options, 4)
        assert lease_value(options, 6) >= value - 1e-9
        later = [{**one, "max_lease": one["max_lease"] + 1} for one in options]
        assert lease_value(later, 4) >= value - 1e-9


def test_least_and_most_gpus_of_the_first_lease_are_beside_the_value() -> None:
    random, apart = np.random.default_rng(28), 0
    for _ in range(4):
        options = options_of(random)
        value = lease_value(options, 4)
        least, most = (lease_value(options, 4, first_lease=how) for how in ("minimise", "maximise"))
        assert value - 1.0 - 1e-9 <= least <= value + 1e-9
        assert value - 1e-9 <= most <= value + 1.0 + 1e-9
        apart += least < most - 1e-9
    assert apart > 0


def test_one_option_of_each_job_is_the_hard_deadline() -> None:
    random, kept = np.random.default_rng(29), 0
    for _ in range(8):
        gangs = random.choice([1, 2, 4], 4).tolist()
        needed = random.integers(1, 4, 4).tolist()
        due = [b + int(random.integers(0, 3)) for b in needed]
        options = [
            {"job": f"j{n}", "value": 1.0, "gpus": g, "leases_needed": b, "max_lease": d}
            for n, (g, b, d) in enumerate(zip(gangs, needed, due, strict=True))
        ]
        soft = optsched.solve(soft_leases(options, 4), "lease").status
        assert soft == optsched.solve(leases(gangs, needed, due, 4), "lease").status
        kept += soft == "optimal"
    assert 0 < kept < 8


# --- elastic jobs: section 5 -----------------------------------------------------------------------


@pytest.mark.parametrize("program", [True, False])
def test_one_job_alone_has_the_least_level_that_is_fast_enough(program: bool) -> None:
    """The program may change levels: then it takes no more GPU time than that level alone."""
    random = np.random.default_rng(30)
    for _ in range(6):
        rates = {g: float(g ** random.uniform(0.4, 0.9)) for g in (1, 2, 4)}
        due = 100.0 / float(random.uniform(0.8, rates[4]))
        least = min((g for g, rate in rates.items() if rate * due >= 100.0), default=None)
        one = made(cluster=pool(4), jobs=[elastic("a", 100.0, due, rates)])
        found = optsched.solve(one, "deadline-elastic", options={"program": program}).schedule
        share = optsched.solve(one, "elasticflow").schedule
        assert (share is None) == (found is None) == (least is None)
        if found is None or least is None:
            continue
        pieces = found.to_records()
        if not program:
            assert [piece["gpus"] for piece in pieces] == [least]
        time = sum(piece["gpus"] * (piece["end"] - piece["start"]) for piece in pieces)
        assert time <= least * 100.0 / rates[least] * (1 + 1e-6)


def test_what_shares_keep_the_program_keeps() -> None:
    random, counts = np.random.default_rng(31), {True: 0, False: 0}
    for _ in range(12):
        instance = made(cluster=pool(4), jobs=elastic_set(random, 3, tight=0.55))
        shares = optsched.solve(instance, "elasticflow").schedule is not None
        program = optsched.solve(instance, "deadline-elastic").schedule is not None
        assert program or not shares
        counts[shares] += 1
    assert min(counts.values()) > 1


def test_every_way_to_leave_out_jobs_is_no_better_than_the_answer() -> None:
    """Of all subsets of jobs that the fluid program keeps none has more jobs than it admits."""
    random = np.random.default_rng(32)
    for _ in range(3):
        rows = drawn(random, 5)
        kept = kept_value(one_server(rows))
        most = max(
            len(some)
            for size in range(1, 6)
            for some in itertools.combinations(rows, size)
            if moore_hodgson(list(some)) == len(some)
        )
        assert kept == pytest.approx(most)
