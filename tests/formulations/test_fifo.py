"""First in, first out: the rule of the published policies, told again in plain Python."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from documents import instance_document
from refusals import refuses

import optsched
from optsched import Instance
from optsched.errors import UsageError
from optsched.solution import Solution

pytestmark = pytest.mark.property

POOLS = ("a", "b", "c")
LOSS = (0.2, 0.7, 0.8, 0.9, 1)
"""Throughput of a job that shares its GPUs, by its own alone."""


def document(capacity: dict[str, int], jobs: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    pools = [{"name": name, "nodes": 1, "gpus_per_node": gpus} for name, gpus in capacity.items()]
    return instance_document(pools, jobs, **more)


def solve(made: dict[str, Any], **options: Any) -> Solution:
    solution = optsched.solve(Instance.from_document(made), "fifo", **options)
    assert solution.ok, solution.certificate
    verification = optsched.verify(
        Instance.from_document(made), json.loads(json.dumps(solution.to_document()))
    )
    assert verification.ok, str(verification)
    return solution


def places(solution: Solution) -> dict[tuple[str, ...], str | None]:
    """Pool of every job, or pair in the order of the instance."""
    names = solution.instance.jobs_table.names
    rows = solution.allocation.to_records()
    assert all(row["fraction"] == 1.0 for row in rows)
    return {
        tuple(sorted(row.get("jobs", [row.get("job")]), key=lambda name: names.index(name))): row["pool"]
        for row in rows
    }  # fmt: skip


def random_case(seed: int) -> dict[str, Any]:
    """Mixed gangs, jobs that cannot run everywhere, equal rates, equal arrivals in any order, pairs."""
    random = np.random.default_rng(seed)
    gangs = (
        (1, 1, 2, 4) if seed % 2 else (1,)
    )  # gangs at the head of the queue stop the packing soon
    capacity = {name: int(random.integers(1, 6)) for name in POOLS}
    workloads = {
        f"w{i}": {"throughput": {pool: {str(s): float(random.choice([0, 1, 2, 3, 5])) for s in (1, 2, 4)}
                                 for pool in POOLS}}
        for i in range(4)
    }  # fmt: skip
    jobs = [
        {
            "id": f"j{i}", "workload": f"w{random.integers(4)}", "gpus": int(random.choice(gangs)),
            "steps": 100, "arrival": -float(random.integers(0, 6)),
        }
        for i in range(int(random.integers(1, 25)))
    ]  # fmt: skip
    pairs = [
        {
            "workloads": [f"w{a}", f"w{b}"], "pool": pool, "gpus": s,
            "throughput": [float(workloads[f"w{x}"]["throughput"][pool][str(s)] * random.choice(LOSS))
                           for x in (a, b)],
        }
        for a in range(4) for b in range(a, 4) for pool in POOLS for s in (1, 2) if random.random() < 0.9
    ]  # fmt: skip
    return document(capacity, jobs, workloads=workloads, colocation=pairs)


def told_again(made: dict[str, Any], packed: bool) -> dict[tuple[str, ...], str]:
    """The rule, job by job."""
    free = {pool["name"]: pool["gpus_per_node"] for pool in made["cluster"]["pools"]}
    size = dict(free)

    def rate(job: dict[str, Any], pool: str) -> float:
        fits = job["gpus"] <= size[pool]
        return (
            made["workloads"][job["workload"]]["throughput"][pool][str(job["gpus"])]
            if fits
            else 0.0
        )

    def ratio(one: dict[str, Any], other: dict[str, Any], pool: str) -> float:
        """Sum of the ratios of a pair; two jobs of one workload share the mean."""
        for entry in made["colocation"]:
            for first, second in ((one, other), (other, one)):
                if (entry["workloads"], entry["pool"], entry["gpus"]) == (
                    [first["workload"], second["workload"]], pool, first["gpus"]
                ) and first["gpus"] == second["gpus"] and rate(first, pool) and rate(second, pool):  # fmt: skip
                    return entry["throughput"][0] / rate(first, pool) + entry["throughput"][
                        1
                    ] / rate(second, pool)
        return 0.0

    queue = sorted(
        (job for job in made["jobs"] if any(rate(job, pool) for pool in POOLS)),
        key=lambda job: job["arrival"],
    )
    runs: list[tuple[tuple[str, ...], dict[str, Any], str]] = []
    while queue:
        room = [pool for pool in POOLS if free[pool] >= queue[0]["gpus"]]
        if not room:
            break
        job = queue.pop(0)
        best = max(room, key=lambda pool: rate(job, pool))
        if rate(job, best):
            free[best] -= job["gpus"]
            runs.append(((job["id"],), job, best))
    while packed and queue:
        job = queue.pop(0)
        worth = [
            (ratio(other, job, pool), -number)
            for number, (names, other, pool) in enumerate(runs) if len(names) == 1
        ]  # fmt: skip
        if not worth or max(worth)[0] <= 1.5:
            break
        number = -max(worth)[1]
        names, other, pool = runs[number]
        runs[number] = ((*names, job["id"]), other, pool)
    order = [job["id"] for job in made["jobs"]]
    return {tuple(sorted(names, key=order.index)): pool for names, _, pool in runs}


@pytest.mark.parametrize("variant", ["heterogeneity-aware", "packed"])
@pytest.mark.parametrize("seed", range(30))
def test_the_rule(seed: int, variant: str) -> None:
    made = random_case(seed)
    expected = told_again(made, variant == "packed")
    solution = solve(made, variant=variant)
    assert places(solution) == expected
    assert places(solve(made, variant=variant, classes=False)) == expected
    total = sum(solution.throughput.values())
    assert solution.objective == pytest.approx(total, rel=1e-12)


def test_some_random_cases_pack() -> None:
    packed = [told_again(random_case(seed), True) for seed in range(30)]
    assert sum(len(pair) == 2 for places in packed for pair in places) > 20


@pytest.mark.parametrize("seed", range(15))
def test_agnostic_draws_keep_the_capacity(seed: int) -> None:
    """F1: Gavel's agnostic policy puts 9 jobs on 4 GPUs, and gives 36 GPUs out of 8 to mixed gangs."""
    nine = document(
        dict.fromkeys(POOLS, 4),
        [{"id": f"j{i}", "throughput": {"a": 3, "b": 2, "c": 1}} for i in range(9)],
    )
    for made in (nine, random_case(seed)):
        solution = solve(made, variant="agnostic", seed=seed)
        usage, capacity = solution.allocation.usage, solution.candidates.resources.capacity
        assert (usage <= capacity).all()
        assert (solution.allocation.rows.rate > 0).all()
    assert len(places(solve(nine, variant="agnostic", seed=seed))) == 9


def test_agnostic_draws_are_draws() -> None:
    made = document(
        dict.fromkeys(POOLS, 4), [{"id": f"j{i}", "throughput": {"a": 3, "c": 1}} for i in range(6)]
    )
    drawn = [places(solve(made, variant="agnostic", seed=seed)) for seed in range(8)]
    assert drawn == [places(solve(made, variant="agnostic", seed=seed)) for seed in range(8)]
    assert len({json.dumps(sorted(places.values())) for places in drawn}) > 1
    assert {pool for places in drawn for pool in places.values()} == {"a", "c"}
    assert drawn == [
        places(solve(made, variant="agnostic", options={"seed": seed}, seed=99))
        for seed in range(8)
    ]
    one, other = (solve(made, seed=seed).to_document() for seed in (0, 1))
    assert one["allocation"] == other["allocation"]


def test_the_head_of_the_queue_blocks_smaller_jobs() -> None:
    jobs = [
        {"id": name, "gpus": gpus, "throughput": {"a": 1}}
        for name, gpus in (("x", 3), ("y", 2), ("z", 1))
    ]
    assert places(solve(document({"a": 4}, jobs))) == {("x",): "a"}
    jobs[0]["arrival"] = -2.0
    jobs[2]["arrival"] = -1.0
    assert places(solve(document({"a": 4}, jobs))) == {("x",): "a", ("z",): "a"}


def test_a_job_that_no_pool_with_room_runs_is_left_out() -> None:
    jobs: list[dict[str, Any]] = [
        {"id": "x", "throughput": {"a": 1}}, {"id": "y", "throughput": {"a": 1}}, {"id": "z", "throughput": {"b": 1}},
    ]  # fmt: skip
    assert places(solve(document({"a": 1, "b": 1}, jobs))) == {("x",): "a", ("z",): "b"}
    jobs.insert(1, {"id": "w", "throughput": {"b": 1}})  # now no pool has room when y comes
    assert places(solve(document({"a": 1, "b": 1}, jobs))) == {("x",): "a", ("w",): "b"}


def test_jobs_that_can_run_nowhere_block_nobody() -> None:
    """F5: a gang larger than every pool, and a job without a rate."""
    jobs = [
        {"id": "large", "gpus": 8, "throughput": {"a": 1}},
        {"id": "none", "throughput": {"a": 0}},
        {"id": "done", "throughput": {"a": 1}, "steps": 5, "steps_done": 5},
        {"id": "x", "throughput": {"a": 1}},
    ]
    solution = solve(document({"a": 4}, jobs))
    assert places(solution) == {("x",): "a"}
    assert [name for name, _ in solution.unplaced] == ["large", "none", "done"]


@pytest.mark.parametrize("pools", [1, 40])
def test_pools_of_any_name_and_number(pools: int) -> None:
    """F6."""
    capacity = {f"pool {i}": 1 for i in range(pools)}
    jobs = [{"id": f"j{i}", "throughput": {name: 1.0 for name in capacity}} for i in range(50)]
    assert places(solve(document(capacity, jobs))) == {
        (f"j{i}",): f"pool {i}" for i in range(pools)
    }


def test_pools_without_cpus_left_have_no_room() -> None:
    made = document(
        {"a": 4, "b": 4},
        [{"id": f"j{i}", "workload": "w"} for i in range(4)],
        workloads={"w": {"throughput": {"a": 2, "b": 1}, "demand": {"cpu": 3}}},
    )
    made["cluster"]["pools"][0]["cpus_per_node"] = 7
    made["cluster"]["pools"][1]["cpus_per_node"] = 3
    # The fourth finds GPUs on both pools and CPUs on neither.
    assert places(solve(made)) == {("j0",): "a", ("j1",): "a", ("j2",): "b"}


def test_a_pair_needs_the_cpus_of_both() -> None:
    made = document(
        {"a": 1},
        [{"id": "x", "workload": "w"}, {"id": "y", "workload": "w"}],
        workloads={"w": {"throughput": {"a": 1}, "demand": {"cpu": 3}}},
        colocation=[{"workloads": ["w", "w"], "pool": "a", "gpus": 1, "throughput": [0.9, 0.9]}],
    )
    made["cluster"]["pools"][0]["cpus_per_node"] = 6
    assert places(solve(made, variant="packed")) == {("x", "y"): "a"}
    made["cluster"]["pools"][0]["cpus_per_node"] = 5
    assert places(solve(made, variant="packed")) == {("x",): "a"}


def test_options_without_a_pool_need_only_their_resources() -> None:
    made = document(
        {"a": 1},
        [
            {"id": f"j{i}", "options": [{"throughput": 1.0, "uses": {"licence": 1}}]}
            for i in range(3)
        ],
    )
    made["cluster"]["resources"] = [{"name": "licence", "kind": "renewable", "capacity": 2}]
    assert places(solve(made)) == {("j0",): None, ("j1",): None}


def test_a_job_without_any_rate_is_refused() -> None:
    made = document(
        {"a": 1}, [{"id": "x", "steps": 3, "options": [{"pool": "a", "gpus": 1, "value": 2}]}]
    )
    with refuses("jobs[0].options: found no throughput or duration (job 'x')"):
        optsched.solve(Instance.from_document(made), "fifo")


@pytest.mark.parametrize("formulation", ["fifo", "isolated", "proportional-shares"])
@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_the_largest_total_throughput(formulation: str, seed: int) -> None:
    instance = Instance.from_document(random_case(seed))
    best = optsched.solve(instance, "max-throughput")
    solution = optsched.solve(instance, formulation, bound=True)
    assert solution.bound == pytest.approx(best.objective, rel=1e-6)
    assert solution.bound_source == "relaxation"
    assert solution.objective <= solution.bound * (1 + 1e-9)
    assert solution.status == ("optimal" if solution.gap <= 1e-6 else "feasible")
    assert optsched.solve(instance, formulation).bound is None

    written = solution.to_document()
    assert optsched.verify(instance, written).ok
    wrong = written | {"bound": solution.objective * 1.01, "gap": 0.01}
    assert "bound" in {finding.field for finding in optsched.verify(instance, wrong).findings}


def test_a_bound_that_a_limit_stops_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from optsched.solution import Status, Termination
    from optsched.solving import Engine

    real = Engine.solve_directly

    def stopped(engine: Engine, *given: Any) -> Any:
        outcome = real(engine, *given)
        values = replace(outcome.values, termination=Termination.WORK_LIMIT)
        return replace(outcome, values=values, status=Status.FEASIBLE)

    instance = optsched.load("@quickstart")
    monkeypatch.setattr(Engine, "solve_directly", stopped)
    solution = optsched.solve(instance, "fifo", bound=True)
    assert (solution.status, solution.termination) == ("limit", "work_limit")
    assert solution.allocation is None and solution.objective is None and solution.bound is None
    assert optsched.verify(instance, solution.to_document()).ok


def test_a_job_moved_to_another_pool_is_found() -> None:
    made = random_case(3)
    instance, written = Instance.from_document(made), solve(made).to_document()
    row = written["allocation"][0]
    row["pool"] = next(pool for pool in POOLS if pool != row["pool"])
    assert not optsched.verify(instance, written).ok


def test_what_makes_no_sense() -> None:
    with refuses('variant: found "lifo", expected one of...', UsageError):
        optsched.solve("@quickstart", "fifo", variant="lifo")
    with refuses("seed: found -1", UsageError):
        optsched.solve("@quickstart", "fifo", options={"seed": -1})
    with refuses("constraints: found rows, expected none for fifo", UsageError):
        optsched.solve("@quickstart", "fifo", extend=lambda lp, variables, C: None)


def test_nobody_in_the_program() -> None:
    solution = solve(document({"a": 1}, [{"id": "x", "throughput": {"a": 0}}]), bound=True)
    assert (solution.objective, solution.bound, len(solution.unplaced)) == (0.0, 0.0, 1)
