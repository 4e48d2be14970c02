"""Prices of time on GPUs: a bound on what plans of levels keep, and plans in which overpriced jobs come last."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plan_instances import made, verified
from scipy.optimize import linprog
from test_deadline_elastic import instance_of, keeps_all, random_set

import optsched
from formulations import deadline_elastic
from formulations.deadline_elastic import ElasticProgram
from formulations.level_planner import Profile
from formulations.level_prices import PricedLevels
from optsched.instance import Instance
from optsched.instance.durations import UNLIMITED

HOUR = 3600.0


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few jobs are priced, and no columns are generated."""
    monkeypatch.setattr(deadline_elastic, "FEWEST_PRICED", 1)
    monkeypatch.setattr(deadline_elastic, "MOST_GENERATED", 0)


def overloaded(jobs: int, weights: tuple[float, ...] = (1.0,)) -> Instance:
    """Jobs of 1 to 4 GPUs on two pools that ask for more than there is."""
    draw = np.random.default_rng(jobs)
    due = draw.uniform(2.0, 24.0, jobs) * HOUR
    work = due * draw.uniform(0.1, 0.8, jobs)
    speed = draw.uniform(0.7, 1.6, (jobs, 2))
    return made(
        cluster={
            "pools": [{"name": p, "nodes": jobs // 80 or 1, "gpus_per_node": 4} for p in "ab"]
        },
        jobs=[
            {
                "id": f"j{row}",
                "gpus": {"min": 1, "max": 4, "levels": [1, 2, 4]},
                "steps": float(work[row]),
                "deadline": float(due[row]),
                "weight": float(draw.choice(weights)),
                "restart_cost": 30.0,
                "throughput": {
                    pool: {str(g): float(speed[row, k] * g**0.8) for g in (1, 2, 4)}
                    for k, pool in enumerate("ab")
                },
            }
            for row in range(jobs)
        ],
    )


def solve(instance: Instance, **options: Any) -> optsched.Solution:
    return verified(
        optsched.solve(instance, "deadline-elastic", options={"admission": True, **options})
    )


def priced_levels(instance: Instance) -> PricedLevels:
    """As the formulation prices the jobs of an instance."""
    found: list[PricedLevels] = []
    plan = ElasticProgram.plan

    def kept(program: ElasticProgram) -> Any:
        found.append(program.priced())
        return plan(program)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ElasticProgram, "plan", kept)
        optsched.solve(instance, "deadline-elastic", options={"admission": True, "program": False})
    return found[0]


@pytest.mark.oracle
def test_prices_bound_what_brute_force_keeps() -> None:
    """Of two or three jobs each subset is tried; a bound of prices below one that is kept is false."""
    for seed in range(40):
        capacity, jobs, slots, restart = random_set(seed)
        kept = [0]
        for code in range(2 ** len(jobs)):
            some = [job for n, job in enumerate(jobs) if code >> n & 1]
            if len(some) > max(kept) and keeps_all(capacity, some, slots, restart):
                kept.append(len(some))
        levels = priced_levels(instance_of(capacity, jobs, restart))
        prices = levels.prices(float(max(kept)), UNLIMITED)
        assert prices is not None and prices.kept >= max(kept) - 1e-5


@pytest.mark.parametrize("seed", range(4))
def test_any_prices_bound_as_the_linear_program_of_each_job_does(seed: int) -> None:
    """Work in pieces of time at the least cost, for every job and deadline: the hulls give no less
    and no more. Prices that end before the last deadline leave the rest of the time for nothing.
    """
    draw = np.random.default_rng(seed)
    levels = priced_levels(overloaded(30, (1.0, 2.0)))
    ends = np.sort(draw.uniform(1.0, 30.0 if seed % 2 else 10.0, 4)) * HOUR
    price = draw.exponential(2e-5, (len(levels.held), 4)) * (draw.random((2, 4)) < 0.8)
    times, capacity = np.append(0.0, ends), levels.profile.free[:, 0]
    expected = float(price @ np.diff(times) @ capacity)
    times, of_piece = np.append(times, np.inf), np.column_stack([price, np.zeros(2)])
    for number, k in enumerate(levels.k):
        of_job = np.flatnonzero(levels.table.k == k)
        begin, due = levels.table.release[k], levels.due[number]
        seconds = np.clip(np.minimum(times[1:], due) - np.maximum(times[:-1], begin), 0.0, None)
        cost = (levels.held[:, of_job].T @ of_piece).ravel()
        work = np.repeat(1.0 / levels.table.duration[of_job], 5)
        least = linprog(
            cost,
            A_ub=np.vstack([-work, np.tile(np.eye(5), len(of_job))]),
            b_ub=np.append(-(1.0 - 1e-6), seconds),
        )
        assert least.status in (0, 2)
        expected += max(0.0, levels.value[number] - least.fun) if least.status == 0 else 0.0
    assert replace(levels, ends=ends).kept_at_most(price) == pytest.approx(expected, rel=1e-7)


def test_the_best_uniform_price_is_that_of_all_tried() -> None:
    """The bound is convex in it, so that bisection finds the least one."""
    for jobs in (40, 90, 160):
        levels = priced_levels(overloaded(jobs))
        _, found = levels._best_uniform(UNLIMITED)  # no public name gives the first step alone
        there = np.where(levels._main[:, np.newaxis], levels._there, 0.0)
        least = min(levels._cheapest(price * there).kept for price in levels._uniform)
        assert found.kept <= least + 1e-9 * abs(least)


def test_jobs_that_cost_more_than_they_are_worth_come_last(
    priced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one value and with several, more is kept than by all orders without prices, and the gap is known."""
    for weights in ((1.0,), (1.0, 2.0, 5.0)):
        instance = overloaded(80, weights)
        with_prices = solve(instance)
        assert with_prices.bound > 0.0 and with_prices.certificate.proof == "dual"
        monkeypatch.setattr(deadline_elastic, "FEWEST_PRICED", 1_000)
        without = solve(instance, program=False)
        monkeypatch.undo()
        monkeypatch.setattr(deadline_elastic, "FEWEST_PRICED", 1)
        monkeypatch.setattr(deadline_elastic, "MOST_GENERATED", 0)
        assert with_prices.objective < without.objective
        assert with_prices.bound <= with_prices.objective
        # A plan with all its schedules is a bound of neither.
        total = sum(job.weight for job in instance.jobs)
        assert with_prices.objective - with_prices.bound < 0.1 * total


def test_the_next_round_goes_on_with_the_plan_by_prices(priced: None) -> None:
    scheduler = optsched.Scheduler(
        overloaded(80),
        {"formulation": "deadline-elastic", "options": {"program": True}},
        isolate=False,
    )
    declined = [len(scheduler.solve(now=number * 60.0).declined) for number in range(3)]
    assert declined[0] > 0 and declined == sorted(declined, reverse=True)


def test_prices_are_none_where_a_job_that_must_be_kept_cannot_be() -> None:
    """And where nothing is there: prices of nothing are 0."""
    levels = priced_levels(overloaded(40))
    nothing = Profile(np.zeros(1), np.zeros((len(levels.held), 1)), np.zeros(0))
    must = np.zeros(len(levels.optional), bool)
    assert replace(levels, profile=nothing, optional=must).prices(0.0, UNLIMITED) is None
    none = replace(levels, profile=nothing, optional=~must).prices(0.0, UNLIMITED)
    assert none is not None and none.kept == 0.0 and none.overpriced.all()


def test_the_bound_holds_where_options_of_a_job_have_different_deadlines(priced: None) -> None:
    """The fast option may run until 50 and the slow one after it: no level is best all the time."""
    ways = [(2, 60.0, 50.0), (1, 180.0, 100.0)]
    options = [
        {"pool": "v", "gpus": gpus, "duration": seconds, "value": 5.0}
        | {"attributes": {"deadline": due}}
        for gpus, seconds, due in ways
    ]
    other = {"gpus": 1, "steps": 99.0, "deadline": 100.0, "weight": 0.5, "throughput": {"v": 1.0}}
    instance = made(
        cluster={"pools": [{"name": "v", "nodes": 1, "gpus_per_node": 2}]},
        jobs=[{"id": "a", "options": options}, *({"id": f"j{n}", **other} for n in range(14))],
    )
    solution = solve(instance)
    assert solution.bound is not None
    assert solution.bound <= 7.0  # declined in the optimum: all but one of the others


# --- the bound in a file --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved() -> optsched.Solution:
    return optsched.solve(
        overloaded(210), "deadline-elastic", options={"admission": True, "program": False}
    )


def fields(solution: optsched.Solution, document: dict[str, Any]) -> list[str]:
    return [finding.field for finding in optsched.verify(solution.instance, document).findings]


def test_verify_recomputes_the_bound_from_the_prices_in_the_file(solved: optsched.Solution) -> None:
    document = solved.to_document()
    report = optsched.verify(solved.instance, document)
    assert report.ok and report.bound == "verified", report
    assert set(document["time_prices"]["prices"]) == {"a", "b"}
    # Other prices prove another bound, and so does a file from before there were any.
    wrong = deepcopy(document)
    wrong["bound"] += 1.0
    assert "bound" in fields(solved, wrong)
    wrong = deepcopy(document)
    wrong["time_prices"]["prices"]["a"][0] *= 2.0
    assert fields(solved, wrong) == ["bound"]
    older = deepcopy(document) | {"bound_source": "solver"}
    older["certificate"]["proof"] = "claimed"
    assert "bound_source" in fields(solved, older)
    del older["time_prices"]
    assert fields(solved, older) == []


def test_prices_in_a_file_that_are_none_are_refused(solved: optsched.Solution) -> None:
    good = solved.to_document()
    ends = good["time_prices"]["ends"]
    cases = {
        "time_prices.prices.a": [
            {"prices": good["time_prices"]["prices"] | {"a": [-1.0] * len(ends)}},
            {"prices": good["time_prices"]["prices"] | {"a": [1.0]}},
        ],
        "time_prices.prices": [
            {"prices": {"a": [0.0] * len(ends)}},
            {"prices": good["time_prices"]["prices"] | {"c": [0.0] * len(ends)}},
        ],
        "time_prices.ends": [
            {"ends": ends[::-1]},
            {"ends": [0.0, *ends[1:]]},
            {"ends": []},
            {"ends": np.arange(1.0, 200.0).tolist()},
        ],
    }
    for field, changes in cases.items():
        for change in changes:
            document = deepcopy(good)
            document["time_prices"] |= change
            assert field in fields(solved, document), change
    without = deepcopy(good)
    del without["time_prices"]
    assert "duals" in fields(solved, without)


def test_prices_of_time_are_refused_where_they_prove_nothing(solved: optsched.Solution) -> None:
    prices = solved.to_document()["time_prices"]
    alone = optsched.Instance.from_arrays(pools={"a": 2}, throughput=[[1.0]] * 4, steps=[9.0] * 4)
    for formulation in ("allox", "max-min-fairness"):
        solution = optsched.solve(alone, formulation)
        assert "time_prices" in fields(solution, solution.to_document() | {"time_prices": prices})
