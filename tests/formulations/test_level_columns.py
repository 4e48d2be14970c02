"""Column generation for deadlines of elastic jobs: schedules as paths, against enumeration, slots and brute force."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from blocks import first_of
from plan_instances import made, verified
from test_deadline_elastic import SLOT, instance_of, keeps_all, random_set

import optsched
from formulations import level_paths
from formulations.level_paths import Costs, LevelPaths
from optsched.instance import Instance

NOISE = 1e-6


def solve(instance: Instance, **options: Any) -> optsched.Solution:
    return verified(optsched.solve(instance, "deadline-elastic", options=options))


# --- the cheapest schedule of one job -------------------------------------------------------------


def one_job(draw: np.random.Generator) -> tuple[LevelPaths, Costs]:
    """A job with a deadline, levels and intervals; some x are missing."""
    levels, T = int(draw.integers(1, 4)), int(draw.integers(1, 5))
    here = draw.random((levels, T)) < 0.9
    level, interval = np.nonzero(here)
    count = len(level)
    taken = draw.choice([0.0, 0.1, 0.4], count) * (draw.random(count) < 0.7)
    done = draw.choice([0.25, 0.3, 0.5, 0.7, 1.1], count)
    paths = LevelPaths(
        1,
        np.zeros(levels, np.int64),
        level,
        interval,
        taken,
        draw.random(1) < 0.5,
        draw.random(1) < 0.3,
        np.zeros(1, np.int64),
        np.zeros(count, np.int64),
        np.arange(count),
        done,
    )
    costs = Costs(
        draw.choice([0.0, 0.5, 1.0, 2.0], count),
        draw.choice([0.0, 0.3], count),
        -draw.random(1),
        np.full(1, np.inf),
    )
    return paths, costs


def cost_of(paths: LevelPaths, costs: Costs, chosen: tuple[int, ...]) -> float:
    """Cost of a level (-1: none) for each interval; inf if the work is not done."""
    x_of = {
        (level, t): x
        for x, (level, t) in enumerate(
            zip(paths.level.tolist(), paths.interval.tolist(), strict=True)
        )
    }
    done = np.zeros(len(paths.job))
    cost, starts = float(costs.meet[0]), 0
    before, ran = -1, bool(paths.ran[0] or paths.single[0])
    for t, level in enumerate(chosen):
        if level >= 0:
            if (level, t) not in x_of:
                return np.inf
            x = x_of[level, t]
            new = level != before
            starts += new
            done[level] += paths.done[x] - (paths.taken[x] if new and ran else 0.0)
            cost += costs.run[x] + (costs.restart[x] if new and ran else 0.0)
            ran = True
        before = level
    if (paths.single[0] and starts > 1) or (done < -1e-12).any() or done.sum() < 1.0 - 1e-9:
        return np.inf
    return cost


@pytest.mark.parametrize("seed", range(60))
def test_the_cheapest_path_is_that_of_enumeration(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many labels all are followed; of few the bound holds, and what is found costs no less."""
    paths, costs = one_job(np.random.default_rng(seed))
    T = int(paths.interval.max(initial=-1)) + 1
    each = itertools.product(range(-1, len(paths.job)), repeat=T)
    best = min(cost_of(paths, costs, chosen) for chosen in each)
    monkeypatch.setattr(level_paths, "LABELS", 6)
    for effort in (10_000, 1):
        found = paths.cheapest(costs, effort)
        assert found.least[0] <= best + 1e-9
        if effort > 1:
            assert found.least[0] == pytest.approx(best)
        if found.deadline[0] >= 0:
            chosen = np.full(T, -1)
            chosen[paths.interval[found.x]] = paths.level[found.x]
            own = cost_of(paths, costs, tuple(chosen.tolist()))
            assert own >= best - 1e-9
            assert effort == 1 or own == pytest.approx(best)
        if np.isfinite(best):  # nobody asks for what costs more
            limited = paths.cheapest(costs._replace(most=np.full(1, best - 0.1)), effort)
            assert (limited.deadline[0], len(limited.x)) == (-1, 0)
            assert limited.least[0] <= best - 0.1 + 1e-9


# --- slots, columns and brute force ---------------------------------------------------------------


def agrees(seed: int) -> bool:
    """Compare the three on one set; whether column generation has the optimum."""
    capacity, jobs, slots, restart = random_set(seed)
    instance = instance_of(capacity, jobs, restart)
    by_slots = solve(instance, slot=SLOT, admission=True)
    by_columns = solve(instance, slot=SLOT, admission=True, columns=0)
    least, found, bound = by_slots.objective, by_columns.objective, by_columns.bound
    assert least is not None and found is not None and bound is not None
    assert by_slots.status == "optimal" and bound <= least + NOISE <= found + 2 * NOISE, seed
    # Brute force keeps whole slots; the plan by rule, a point of the program, may begin in between.
    most = max(
        len(some)
        for count in range(len(jobs) + 1)
        for some in itertools.combinations(jobs, count)
        if keeps_all(capacity, list(some), slots, restart)
    )
    assert least <= len(jobs) - most + NOISE, seed
    return found <= least + NOISE


@pytest.mark.property
@pytest.mark.parametrize("block", first_of(10, blocks=2))
def test_slots_columns_and_brute_force_agree(block: int) -> None:
    """There is no branching: in one or two of a hundred sets the columns hold no optimum."""
    assert sum(agrees(seed) for seed in range(50 * block, 50 * block + 50)) >= 48


# --- jobs of all kinds ----------------------------------------------------------------------------


def of_all_kinds(seed: int) -> Instance:
    """Jobs that ran or run, that cannot be preempted, with several deadlines, exempt times and budgets."""
    draw = np.random.default_rng(seed)
    gpus, free = int(draw.integers(2, 5)), 0
    jobs: list[dict[str, Any]] = []
    for number in range(int(draw.integers(2, 6))):
        arrival = float(draw.choice([0.0, 0.0, 30.0, 75.0]))
        work = float(draw.uniform(20.0, 150.0))
        own: dict[str, Any] = {
            "id": f"j{number}",
            "arrival": arrival,
            "restart_cost": float(draw.choice([0.0, 10.0, 40.0])),
            "preemptible": bool(draw.random() < 0.7),
            "weight": float(draw.choice([1.0, 2.0])),
        }
        due = arrival + work * float(draw.uniform(0.7, 2.5))
        if draw.random() < 0.3:
            own["options"] = [
                {"pool": "v100", "gpus": size, "duration": work / size**0.8, "value": value}
                | {"attributes": {"deadline": end}}
                for end, value in ((due, 3.0), (1.5 * due, 1.0))
                for size in (1, 2)
            ]
            del own["weight"]
        else:
            own |= {
                "gpus": {"min": 1, "max": 2, "levels": [1, 2]},
                "throughput": {"v100": {"1": 1.0, "2": float(draw.choice([1.3, 2.0]))}},
                "steps": work,
                "deadline": due,
            }
            if draw.random() < 0.3:
                own["steps_done"] = 1.0
            if arrival == 0 and free < gpus and draw.random() < 0.5:
                own["running"] = {"pool": "v100", "gpus": [f"v100-0/{free}"], "since": -5.0}
                own["exempt_time"] = float(draw.choice([0.0, 25.0]))
                free += 1
        jobs.append(own)
    pools = [{"name": "v100", "nodes": 1, "gpus_per_node": gpus}]
    return made(cluster={"pools": pools}, jobs=jobs)


def agrees_on_kinds(seed: int) -> int:
    """Whether column generation proves the optimum; its bound holds in any case."""
    instance = of_all_kinds(seed)
    options = {"admission": True} | ({"slot": 20.0} if seed % 2 else {"intervals": 8})
    by_slots = solve(instance, **options)
    by_columns = solve(instance, columns=0, **options)
    assert by_slots.objective is not None and by_columns.objective is not None
    assert by_columns.bound is not None and by_slots.status == "optimal"
    assert by_columns.bound <= by_slots.objective + NOISE, seed
    assert by_columns.objective >= by_slots.objective - NOISE, seed
    return int(by_columns.objective <= by_slots.objective + NOISE)


@pytest.mark.property
@pytest.mark.parametrize("block", first_of(8, blocks=1))
def test_jobs_of_all_kinds_are_paths(block: int) -> None:
    assert sum(agrees_on_kinds(seed) for seed in range(25 * block, 25 * block + 25)) >= 22
