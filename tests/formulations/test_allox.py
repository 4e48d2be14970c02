"""AlloX: sums of completion times against brute force, closed forms, known optima, and each other."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize as so
from beside import SHARED, needs
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_instances import made, verified
from refusals import refuses

import optsched
from formulations.slots import cheapest_slots, whole_assignment
from optsched import Instance
from optsched.api import make_formulation
from optsched.errors import UsageError
from optsched.solution.plan import LinearPlan

pytestmark = pytest.mark.property

FORMS = SHARED / "oracles" / "forms" / "goldens.json"
REFERENCE = [[4, 7], [3, 9], [8, 5], [6, 6], [2, 10]]
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)


def pools_of(free: Sequence[Sequence[float]]) -> list[dict]:
    """A pool per list, with one node of one GPU for each time from which it is available."""
    return [
        {
            "name": f"m{j}",
            "nodes": [
                {"name": f"m{j}n{i}", "gpus": 1, "available_from": a} for i, a in enumerate(times)
            ],
        }
        for j, times in enumerate(free)
    ]


def jobs_of(p: Sequence[Sequence[float]], **more: object) -> list[dict]:
    """Jobs that state their duration on each pool; None where they cannot run."""
    return [
        {
            "id": f"j{j}",
            "options": [
                {"pool": f"m{i}", "gpus": 1, "duration": float(d)}
                for i, d in enumerate(row)
                if d is not None
            ],
            **more,
        }
        for j, row in enumerate(p)
    ]


def instance(
    p: Sequence[Sequence[float]], free: Sequence[Sequence[float]], **parts: object
) -> Instance:
    return made(cluster={"pools": pools_of(free)}, jobs=jobs_of(p), **parts)


def solve(problem: Instance, **options: object) -> optsched.Solution:
    solution = verified(optsched.solve(problem, "allox", **options))
    assert solution.status == "optimal", solution
    return solution


def brute_force(p: np.ndarray, free: Sequence[Sequence[float]]) -> float:
    """Every assignment of jobs to machines; on each machine the shortest first."""
    machines = [(pool, a) for pool, times in enumerate(free) for a in times]
    best = np.inf
    for choice in itertools.product(range(len(machines)), repeat=len(p)):
        total = 0.0
        for m, (pool, a) in enumerate(machines):
            times = np.sort([p[j, pool] for j, at in enumerate(choice) if at == m])
            total += float((a + np.cumsum(times)).sum())
        best = min(best, total)
    return best


@pytest.mark.parametrize("name", ["allox", "sum-completion"])
@pytest.mark.parametrize("solver", ["auto", "highs", "highs-ipm", "clarabel", "glop", "scip"])
def test_reference(name: str, solver: str) -> None:
    solution = verified(optsched.solve(instance(REFERENCE, [[0], [2]]), name, solver=solver))
    assert solution.objective == 36.0 and solution.formulation == "allox"
    assert solution.certificate.proof == "dual"  # scip gives no duals: another solver does
    assert solution.bound == pytest.approx(36.0, rel=1e-7)


@needs(FORMS)
def test_golden_value() -> None:
    golden = json.loads(FORMS.read_text())["allox"]
    assert (
        solve(instance(golden["proc"], [[a] for a in golden["avail"]])).objective
        == golden["opt_sumC"]
    )


@pytest.mark.parametrize("seed", range(12))
def test_brute_force_with_machines_that_are_free_later(seed: int) -> None:
    random = np.random.default_rng(seed)
    p = random.integers(1, 20, (5, 2)).astype(float)
    free = [random.choice([0.0, 0.0, 3.0, 7.5], 2).tolist(), random.choice([0.0, 4.0], 1).tolist()]
    solution = solve(instance(p.tolist(), free))
    assert solution.objective == pytest.approx(brute_force(p, free), rel=1e-12)
    ends = solution.schedule.end
    assert float(ends.sum()) == pytest.approx(solution.objective, rel=1e-12)


def test_brute_force_of_six_jobs() -> None:
    p = np.random.default_rng(6).integers(1, 20, (6, 2)).astype(float)
    assert solve(instance(p.tolist(), [[0.0, 5.0], [1.0]])).objective == pytest.approx(
        brute_force(p, [[0.0, 5.0], [1.0]])
    )


def test_shortest_first_on_one_machine() -> None:
    times = [5.0, 1.0, 4.0, 2.0, 9.0]
    solution = solve(instance([[d] for d in times], [[0]]))
    assert solution.objective == float(np.cumsum(sorted(times)).sum())
    assert [row["job"] for row in solution.schedule.to_records()] == ["j1", "j3", "j2", "j0", "j4"]
    assert list(solution.throughput) == [f"j{j}" for j in range(5)]
    assert solution.allocation.to_records()[0]["job"] == "j1"  # what runs first


@pytest.mark.parametrize("machines", [1, 2, 3, 7])
def test_identical_machines(machines: int) -> None:
    p = np.random.default_rng(machines).lognormal(2, 1, 11)
    longest_first = np.sort(p)[::-1]
    expected = float(sum(d * np.ceil((k + 1) / machines) for k, d in enumerate(longest_first)))
    solution = solve(instance([[d] for d in p], [[0.0] * machines]))
    assert solution.objective == pytest.approx(expected, rel=1e-12)


@few
@given(seed=seeds)
def test_equals_the_whole_assignment_of_jobs_to_places_of_every_machine(seed: int) -> None:
    """All n places of every single machine, solved by scipy: no pool is compressed and nothing is left out."""
    random = np.random.default_rng(seed)
    n, pools = int(random.integers(1, 14)), int(random.integers(1, 4))
    p = (
        random.choice([1.0, 2.0, 3.0, 5.5, 40.0], (n, pools))
        if seed % 2
        else random.lognormal(1, 1, (n, pools))
    )
    free = [
        random.choice([0.0, 0.0, 2.0, random.lognormal(1, 1)], random.integers(1, 5)).tolist()
        for _ in range(pools)
    ]
    cost = np.hstack(
        [a + np.arange(1, n + 1) * p[:, [j]] for j, times in enumerate(free) for a in times]
    )
    rows, columns = so.linear_sum_assignment(cost)
    expected = float(cost[rows, columns].sum())
    for classes in (True, False):
        solution = solve(instance(p.tolist(), free), classes=classes)
        assert solution.objective == pytest.approx(expected, rel=1e-10)
        assert solution.bound == pytest.approx(expected, rel=1e-8)


@few
@given(seed=seeds)
def test_splitting_a_pool_into_machines_changes_nothing(seed: int) -> None:
    random = np.random.default_rng(seed)
    p = random.lognormal(1, 1, (9, 2))
    together = solve(instance(p.tolist(), [[0.0, 0.0, 0.0], [1.0, 1.0]])).objective
    apart = solve(
        instance(p[:, [0, 0, 0, 1, 1]].tolist(), [[0.0], [0.0], [0.0], [1.0], [1.0]])
    ).objective
    assert together == pytest.approx(apart, rel=1e-12)


def test_equal_jobs_are_one_class() -> None:
    problem = instance([[2.0, 3.0]] * 5 + [[4.0, 1.0]], [[0.0, 0.0], [0.0]])
    merged, single = solve(problem), solve(problem, classes=False)
    assert (len(merged.allocation.classes), len(single.allocation.classes)) == (2, 6)
    assert merged.objective == single.objective == 2 + 2 + 4 + 4 + 4 + 1


def test_age_counts_and_later_jobs_wait() -> None:
    parts = {"now": 100.0}
    jobs = jobs_of([[3.0], [5.0], [1.0]])
    for job, arrival in zip(jobs, (90.0, 100.0, 101.0), strict=True):
        job["arrival"] = arrival
    cluster = {"pools": [{"name": "m0", "nodes": 1, "gpus_per_node": 1}]}
    solution = solve(made(cluster=cluster, jobs=jobs, **parts))
    assert solution.objective == (3 + 10) + (3 + 5)
    assert solution.unplaced == (("j2", "arrives at 101 s, after now (100 s)"),)
    assert solution.schedule.start.tolist() == [100.0, 103.0]


# --- jobs that run, and jobs that are held back -----------------------------------------------------------------------


def running(preemptible: bool = True) -> Instance:
    """The reference on two GPUs, the second of which a job holds for 2 s more."""
    pools = [{"name": f"m{i}", "nodes": 1, "gpus_per_node": 1} for i in range(2)]
    here = {"running": {"pool": "m1", "gpus": ["m1-0/0"]}, "preemptible": preemptible}
    jobs = [*jobs_of(REFERENCE), {**jobs_of([[9, 2]])[0], "id": "r", **here}]
    return made(cluster={"pools": pools}, jobs=jobs)


def test_who_runs_keeps_its_gpu() -> None:
    solution = solve(running())
    assert solution.objective == 36.0 + 2.0
    first = solution.schedule.to_records()[:2]
    assert [(row["job"], row["pool"], row["end"]) for row in first] == [
        ("j4", "m0", 2.0),
        ("r", "m1", 2.0),
    ]
    free = solve(running(), keep_running=False)
    assert free.objective <= 38.0
    assert free.objective == pytest.approx(
        brute_force(np.array([*REFERENCE, [9, 2]], float), [[0], [0]])
    )
    assert solve(running(False), keep_running=False).objective == 38.0


def test_a_job_that_ends_on_a_node_that_takes_no_more_work() -> None:
    nodes = [{"name": "a", "gpus": 1}, {"name": "b", "gpus": 1, "state": "drain"}]
    jobs = [
        {
            "id": "r",
            "steps": 10,
            "throughput": {"m": 1.0},
            "running": {"pool": "m", "gpus": ["b/0"]},
        },
        {"id": "w", "steps": 3, "throughput": {"m": 1.0}},
        {"id": "x", "steps": 4, "throughput": {"m": 1.0}},
    ]
    solution = solve(made(cluster={"pools": [{"name": "m", "nodes": nodes}]}, jobs=jobs))
    assert solution.objective == 10 + 3 + (3 + 4)  # b is no machine afterwards


def test_only_running_jobs() -> None:
    problem = made(
        cluster={"pools": [{"name": "m", "nodes": 1, "gpus_per_node": 1}]},
        jobs=[
            {
                "id": "r",
                "steps": 10,
                "throughput": {"m": 1.0},
                "running": {"pool": "m", "gpus": ["m-0/0"]},
            }
        ],
    )
    solution = solve(problem)
    assert solution.objective == 10.0 and len(solution.schedule) == 1


def test_alpha_plans_the_oldest() -> None:
    jobs = jobs_of([[d] for d in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)])
    for job, arrival in zip(jobs, (0, -5, -3, -4, -1, -2), strict=True):
        job["arrival"] = arrival
    problem = made(cluster={"pools": pools_of([[0.0]])}, jobs=jobs)
    solution = solve(problem, alpha=0.5)
    assert {row["job"] for row in solution.schedule.to_records()} == {"j1", "j3", "j2"}
    assert solution.unplaced == tuple(
        (f"j{j}", "waits, as others are planned first") for j in (0, 4, 5)
    )
    assert solution.objective == (2 + 5) + (2 + 3 + 3) + (2 + 3 + 4 + 4)
    assert {row["job"] for row in solve(problem, alpha=0).schedule.to_records()} == {
        "j1"
    }  # as many as GPUs are free
    assert not solve(problem).unplaced
    again = make_formulation("allox", {"alpha": 0.5}).classes(solution.candidates)
    assert len(again) == 3  # asked twice, nobody else is held back


# --- what is refused -------------------------------------------------------------------------------------------------


def test_what_the_program_does_not_know_is_refused() -> None:
    pools = [{"name": "m0", "nodes": 1, "gpus_per_node": 4, "cpus_per_node": 8}]
    gang = [{"id": "g", "gpus": 4, "throughput": {"m0": 1.0}}]
    options = [
        {"id": "o", "options": [{"pool": "m0", "gpus": 1, "duration": 3, "uses": {"licence": 1}}]}
    ]
    order = [*jobs_of([[1.0], [2.0]])]
    order[1]["after"] = ["j0"]
    hidden = [
        {
            "id": "r",
            "options": [{"pool": "m1", "gpus": 1, "duration": 3}],
            "running": {"pool": "m0", "gpus": ["m0-0/0"]},
        }
    ]
    two = [*pools, {"name": "m1", "nodes": 1, "gpus_per_node": 1}]
    few = [{"name": "licence", "capacity": 1}]
    for cluster, jobs, told in (
        (
            {"pools": pools},
            gang,
            "allox plans jobs on one GPU each: job g has no configuration of exactly one GPU (its smallest has 4)",
        ),
        (
            {"pools": pools, "resources": few},
            [*options, {**options[0], "id": "p"}],
            "allox counts GPUs alone, but licence may run out: its jobs could hold 2 of 1",
        ),
        (
            {"pools": pools},
            order,
            "allox plans jobs that wait for nobody: job j1 waits for j0 (after)",
        ),
        ({"pools": two}, hidden, "allox: job r runs on pool m0 without a rate on one GPU there..."),
    ):
        with refuses(told, UsageError):
            optsched.solve(made(cluster=cluster, jobs=jobs), "allox")
    assert solve(made(cluster={"pools": pools, "resources": few}, jobs=options)).objective == 3.0
    with refuses("option of allox: alpha: found 1.5", UsageError):
        optsched.solve(instance(REFERENCE, [[0], [2]]), "allox", alpha=1.5)


def test_cpus_that_cannot_run_out_are_no_matter() -> None:
    pools = [{"name": "m", "nodes": 1, "gpus_per_node": 2, "cpus_per_node": 8}]
    workloads = {
        "w": {"throughput": {"m": 1.0}, "demand": {"cpu": 4}},
        "v": {"throughput": {"m": 1.0}, "demand": {"cpu": 5}},
    }
    jobs = [{"id": f"j{i}", "workload": "w", "steps": 2} for i in range(3)]
    assert (
        solve(made(cluster={"pools": pools}, workloads=workloads, jobs=jobs)).objective == 2 + 2 + 4
    )
    with pytest.raises(UsageError, match="allox counts GPUs alone"):
        optsched.solve(
            made(
                cluster={"pools": pools},
                workloads=workloads,
                jobs=[job | {"workload": "v"} for job in jobs],
            ),
            "allox",
        )


def test_no_job() -> None:
    solution = solve(made(cluster={"pools": pools_of([[0.0]])}, jobs=[]))
    assert solution.objective == 0.0 and len(solution.schedule) == 0


# --- points and schedules --------------------------------------------------------------------------------------------


def test_points_that_are_no_vertices_become_whole() -> None:
    """Two equal solutions mixed half and half; nothing at all; and whole points that are no optimum."""
    p, n, a, N = np.array([[2.0, 2.0]] * 3), np.ones(3), np.zeros(2), np.array([1, 1])
    slots = cheapest_slots(p, n, a, N, 1000)
    count = n.astype(np.int64)
    first = whole_assignment(slots, count, N, None)
    swapped = np.zeros(len(slots), np.int64)
    swapped[slots.find(slots.k[first > 0], 1 - slots.g[first > 0], slots.i[first > 0])] = 1
    mixed = whole_assignment(slots, count, N, 0.5 * (first + swapped))
    for whole in (first, mixed, whole_assignment(slots, count, N, np.zeros(len(slots)))):
        assert np.bincount(slots.k, whole).tolist() == [1, 1, 1]
        assert float(slots.cost @ whole) == 2 + 2 + 4


def test_a_whole_point_that_is_no_optimum_still_becomes_a_schedule() -> None:
    """Whatever a stopped solver leaves: the schedule that is read stands for a point of the program."""
    problem = instance([[1.0, 30.0]] * 6 + [[3.0, 2.0]] * 2, [[0.0, 0.0], [1.0]])
    formulation = make_formulation("allox")
    C = formulation.classes(optsched.compile(problem, later_nodes=True))
    plan = formulation.program(C)
    assert isinstance(plan, LinearPlan)
    count, N = C.count.astype(np.int64), np.array([2, 1])
    p = np.array([[1.0, 30.0], [3.0, 2.0]])
    slots = cheapest_slots(p, C.count, np.array([0.0, 1.0]), N, 1000)
    assert len(slots) == plan.program.arrays.shape[1]
    random, values = np.random.default_rng(0), []
    for attempt in range(60):
        point = random.random(len(slots)) * (random.random() < 0.8)
        if attempt % 2:
            cost = random.random(len(slots)) * slots.cost
            point = whole_assignment(replace(slots, cost=cost), count, N, None).astype(float)
        schedule = plan.read(point)
        assert plan.certify(schedule, plan.value(schedule), "none").ok
        values.append(plan.value(schedule))
    assert max(values) > min(values)  # whole points are kept as they are


def test_every_job_has_its_cheapest_places_and_no_more_than_needed() -> None:
    random = np.random.default_rng(3)
    p, n, a, N = (
        random.lognormal(0, 1, (7, 4)),
        np.ones(7),
        np.array([0.0, 0.5, 0.0, 2.0]),
        np.array([1, 2, 3, 1]),
    )
    slots = cheapest_slots(p, n, a, N, 1000)
    for k in range(7):
        everything = sorted((a[g] + i * p[k, g], N[g]) for g in range(4) for i in range(1, 8))
        before = np.cumsum([0, *(count for _, count in everything)])
        needed = [cost for (cost, _), held in zip(everything, before, strict=False) if held < 7]
        assert np.sort(slots.cost[slots.k == k]) == pytest.approx(needed)
    with pytest.raises(
        UsageError, match=r"7 jobs on 4 groups of equal GPUs make .* variables, at most 5 are taken"
    ):
        cheapest_slots(p, n, a, N, 5)


TAMPERED = {
    "earlier": (lambda row: moved(row, -1.0), "no GPU of pool m1 is free|runs|starts"),
    "waiting": (lambda row: moved(row, 1.0), "starts after its GPU is free|no GPU of pool"),
    "longer": (lambda row: row | {"end": row["end"] + 1}, "does not run for as long as it needs"),
    "elsewhere": (lambda row: row | {"pool": "m0", "option": 0, "end": row["start"] + 6}, "GPU"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_schedule_is_refused(name: str) -> None:
    change, told = TAMPERED[name]
    solution = solve(instance(REFERENCE, [[0], [2]]))
    document = solution.to_document()
    row = next(i for i, row in enumerate(document["schedule"]) if row["job"] == "j3")
    document["schedule"][row] = change(document["schedule"][row])
    report = optsched.verify(solution.instance, document)
    assert not report.ok and re.search(told, str(report)), report


def moved(row: dict, by: float) -> dict:
    return row | {"start": row["start"] + by, "end": row["end"] + by}


def test_the_bound_of_a_file_is_made_from_its_duals() -> None:
    solution = solve(instance(REFERENCE, [[0], [2]]))
    good = solution.to_document()
    assert optsched.verify(solution.instance, good).bound == "verified"
    one = [2 * value for value in good["duals"]["one"]]
    changes = {
        "bound": {"bound": 35.0, "gap": 1 / 36}, "duals": {"duals": None},
        "duals.one": {"duals": good["duals"] | {"one": one[1:]}},
        "bound ": {"duals": good["duals"] | {"one": one}}, "objective": {"objective": 35.0, "gap": 0.0},
        "certificate.proof": {"certificate": good["certificate"] | {"proof": "claimed"}},
        "figures": {"figures": {"discount": {}}},
    }  # fmt: skip
    for name, change in changes.items():
        report = optsched.verify(solution.instance, good | change)
        assert any(finding.field.startswith(name.strip()) for finding in report.findings), (
            name,
            report,
        )


def test_far_from_the_beginning_of_time() -> None:
    """Absolute seconds of today, where a double has seven digits after the point."""
    p = np.random.default_rng(1).lognormal(3, 1, (30, 2))
    near = solve(instance(p.tolist(), [[0.0] * 2, [0.0] * 3]))
    later = [
        {"name": f"m{j}", "nodes": count, "gpus_per_node": 1} for j, count in enumerate((2, 3))
    ]
    far = solve(made(cluster={"pools": later}, jobs=jobs_of(p.tolist(), arrival=1.7e9), now=1.7e9))
    assert far.objective == pytest.approx(near.objective, rel=1e-12)
