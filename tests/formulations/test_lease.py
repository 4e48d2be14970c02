"""Chronus' leases: published cases, theory, and infeasible sets in words."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from beside import SHARED, needs
from blocks import first_of
from plan_instances import LEASE, leases, made, soft_leases, verified
from refusals import refuses

import optsched
from optsched.errors import UsageError
from optsched.generate import generate

# Private names: the inner steps of an answer are compared with a reference
from optsched.solution.measures import measure

ORACLES = SHARED / "oracles"
SENSES = {"minimize": "minimise", "maximize": "maximise", "random": "random"}
REFERENCE = [
    ([1, 1, 1], [2, 2, 2], [2, 3, 4], 1, False),
    ([1, 1, 1], [2, 2, 2], [2, 4, 6], 1, True),
    ([2, 2, 1, 3], [2, 1, 3, 1], [3, 2, 4, 4], 4, True),
    ([4, 4, 2, 2], [1, 1, 2, 2], [2, 2, 3, 3], 4, False),
]


def solve(instance: optsched.Instance, **options: object) -> optsched.Solution:
    return verified(optsched.solve(instance, "lease", **options))


def published() -> list[dict]:
    path = ORACLES / "chronus" / "chronus_cases.json"
    return json.loads(path.read_text())["cases"] if path.is_file() else []


@pytest.mark.skipif(not published(), reason="the oracles are not beside this checkout")
@pytest.mark.parametrize(
    "case", published(), ids=lambda case: f"{case['name']}-{case['objective']}"
)
@pytest.mark.parametrize("solver", ["highs", "scip", "cbc"])
def test_published_cases(case: dict, solver: str) -> None:
    capacity = case["capacity_per_lease"]
    instance = soft_leases(case["options"], max(capacity))
    sense = SENSES[case["objective"]]
    solution = solve(
        instance, first_lease=sense, capacity={"v100": capacity}, solver=solver, prove=True
    )
    assert case["expected"]["feasible"] == (solution.status == "optimal")
    assert solution.objective == pytest.approx(case["expected"]["objective"])
    assert solution.certificate.proof == "cross-checked"


@pytest.mark.parametrize(("gang", "needed", "deadline", "gpus", "feasible"), REFERENCE)
def test_reference_feasibility(
    gang: list, needed: list, deadline: list, gpus: int, feasible: bool
) -> None:
    solution = solve(leases(gang, needed, deadline, gpus))
    assert (solution.status == "optimal") == feasible
    if not feasible:
        told = [conflict.words for conflict in solution.conflicts]
        assert any(" before its deadline" in words for words in told)
        assert any(" GPU" in words and " of pool v100" in words for words in told)
        assert len(set(told)) == len(told)


@needs(ORACLES / "forms")
def test_golden_feasibility() -> None:
    for case in json.loads((ORACLES / "forms" / "goldens.json").read_text())["lease"]:
        instance = leases(case["gang"], case["leases"], case["deadline"], case["gpus"])
        assert (solve(instance).status == "optimal") == case["feasible"]


SOFT = [
    ("A", 10, 4, 2, 2), ("A", 8, 4, 2, 3), ("A", 5, 4, 2, 5), ("B", 10, 4, 2, 2), ("B", 8, 4, 2, 4), ("C", 10, 8, 1, 1),
    ("C", 8, 8, 1, 3), ("C", 2, 8, 1, 6), ("D", 10, 2, 4, 6),
]  # fmt: skip


def test_soft_deadlines_of_the_reference() -> None:
    keys = ("job", "value", "gpus", "leases_needed", "max_lease")
    instance = soft_leases([dict(zip(keys, row, strict=True)) for row in SOFT], 8)
    assert solve(instance, first_lease="minimise").objective == pytest.approx(35.25)
    assert solve(instance, first_lease="maximise").objective == pytest.approx(37.0)
    plain = solve(instance).objective
    assert 35.25 <= plain <= 37.0
    reduced = solve(instance, first_lease="minimise", capacity={"v100": [8, 8, 4, 4, 8, 8]})
    assert reduced.objective == pytest.approx(26.25)


def least_laxity_first(needed: list[int], deadline: list[int], gpus: int) -> bool:
    left = list(needed)
    for t in range(max(deadline)):
        waiting = [j for j, b in enumerate(left) if b > 0]
        if any(deadline[j] - t < left[j] for j in waiting):
            return False
        for j in sorted(waiting, key=lambda j: deadline[j] - t - left[j])[:gpus]:
            left[j] -= 1
    return not any(left)


@pytest.mark.parametrize("seed", range(25))
def test_single_gpu_jobs_are_feasible_when_least_laxity_first_is(seed: int) -> None:
    random = np.random.default_rng(seed)
    needed = random.integers(1, 4, 5).tolist()
    deadline = [b + int(random.integers(0, 4)) for b in needed]
    gpus = int(random.integers(1, 4))
    solution = solve(leases([1] * 5, needed, deadline, gpus))
    assert (solution.status == "optimal") == least_laxity_first(needed, deadline, gpus)


def latest_first(jobs: list[tuple[int, int, int]], gpus: int) -> bool:
    """The published greedy: by (-gang, slack, -deadline), each filled from its latest lease backwards."""
    free = [gpus] * max(deadline for _, _, deadline in jobs)
    for gang, needed, deadline in sorted(jobs, key=lambda job: (-job[0], job[2] - job[1], -job[2])):
        for t in reversed(range(deadline)):
            if needed and free[t] >= gang:
                free[t] -= gang
                needed -= 1
        if needed:
            return False
    return True


@pytest.mark.parametrize("seed", range(25))
def test_what_the_greedy_packs_is_feasible(seed: int) -> None:
    random = np.random.default_rng(100 + seed)
    jobs = [
        (
            int(random.choice([1, 2, 4])),
            b := int(random.integers(1, 4)),
            b + int(random.integers(0, 3)),
        )
        for _ in range(5)
    ]
    solution = solve(leases(*map(list, zip(*jobs, strict=True)), 4))
    if latest_first(jobs, 4):
        assert solution.status == "optimal"
    if solution.status == "optimal":
        for T in range(1, max(d for _, _, d in jobs) + 1):
            assert sum(g * b for g, b, d in jobs if d <= T) <= 4 * T


@pytest.mark.property
def test_the_greedy_misses_a_set_that_can_be_met() -> None:
    """A stored counter-example: the greedy places 2x(2 GPUs) so that the gangs of 1 don't fit in time."""
    found = [
        seed for seed in range(3000)
        if not latest_first(jobs := random_set(seed), 4)
        and all(sum(g * b for g, b, d in jobs if d <= T) <= 4 * T for T in range(1, 7))
    ]  # fmt: skip
    missed = [
        seed
        for seed in found[:12]
        if solve(leases(*map(list, zip(*random_set(seed), strict=True)), 4)).status == "optimal"
    ]
    assert missed


def random_set(seed: int) -> list[tuple[int, int, int]]:
    random = np.random.default_rng(seed)
    return [
        (
            int(random.choice([1, 2, 4])),
            b := int(random.integers(1, 4)),
            b + int(random.integers(0, 3)),
        )
        for _ in range(4)
    ]


def test_admission_declines_the_fewest() -> None:
    instance = leases([4, 4, 2, 2], [1, 1, 2, 2], [2, 2, 3, 3], 4)
    solution = solve(instance, admission=True)
    assert solution.objective == 3.0
    planned = {row["job"] for row in solution.schedule.to_records()}
    assert len(planned) == 3


def test_soft_jobs_may_miss_and_best_effort_jobs_are_not_planned() -> None:
    job = {"gpus": 4, "steps": 2 * LEASE, "deadline": 2 * LEASE, "throughput": {"v100": 1.0}}
    jobs = [
        job | {"id": "hard"},
        job | {"id": "soft", "deadline_kind": "soft"},
        job | {"id": "free", "deadline": None},
    ]
    instance = made(
        round=LEASE,
        cluster={"pools": [{"name": "v100", "nodes": 1, "gpus_per_node": 4}]},
        jobs=jobs,
    )
    solution = solve(instance)
    assert solution.status == "optimal" and [
        row["job"] for row in solution.schedule.to_records()
    ] == ["hard"]
    assert solution.unplaced == (("free", "it has no deadline: best effort, not planned"),)


def test_a_cluster_without_any_deadline_says_so() -> None:
    solution = solve(optsched.load("@topology"))
    assert solution.objective == 0.0 and len(solution.schedule) == 0
    assert {reason for _, reason in solution.unplaced} == {
        "it has no deadline: best effort, not planned"
    }
    assert len(solution.unplaced) == 12
    told = measure(solution, solution.candidates)
    assert told is not None and told.idle == 12  # as comparisons count them


def test_an_option_may_bring_the_deadline() -> None:
    late = {"pool": "v100", "gpus": 1, "duration": LEASE, "attributes": {"deadline": 3 * LEASE}}
    jobs = [{"id": "own", "options": [late]}, {"id": "free", "throughput": {"v100": 1.0}}]
    pools = [{"name": "v100", "nodes": 1, "gpus_per_node": 4}]
    solution = solve(made(round=LEASE, cluster={"pools": pools}, jobs=jobs))
    assert [row["job"] for row in solution.schedule.to_records()] == ["own"]
    assert [job for job, _ in solution.unplaced] == ["free"]


@pytest.mark.parametrize("classes", [True, False])
def test_equal_jobs_take_turns(classes: bool) -> None:
    """Three equal jobs of 2 leases on 2 GPUs in 3 leases: every lease is full, no job twice in one."""
    instance = leases([1, 1, 1], [2, 2, 2], [3, 3, 3], 2)
    solution = solve(instance, classes=classes)
    assert solution.status == "optimal" and solution.objective == 3.0
    assert len(solution.allocation.classes) == (1 if classes else 3)
    held = {}
    for row in solution.schedule.to_records():
        held[row["job"]] = held.get(row["job"], 0) + (row["end"] - row["start"]) / LEASE
    assert held == {"j0": 2.0, "j1": 2.0, "j2": 2.0}


def test_a_job_stays_on_its_gpu_type() -> None:
    pools = [
        {"name": "fast", "nodes": 1, "gpus_per_node": 1},
        {"name": "slow", "nodes": 1, "gpus_per_node": 1},
    ]
    jobs = [
        {
            "id": f"j{i}",
            "steps": 4 * LEASE,
            "deadline": 4 * LEASE,
            "throughput": {"fast": 2.0, "slow": 1.0},
        }
        for i in range(3)
    ]
    instance = made(round=LEASE, cluster={"pools": pools}, jobs=jobs)
    solution = solve(instance)
    assert solution.status == "optimal"
    pool_of = {}
    for row in solution.schedule.to_records():
        assert pool_of.setdefault(row["job"], row["pool"]) == row["pool"]
    assert sorted(pool_of.values()) == ["fast", "fast", "slow"]


def test_nodes_that_become_available_count_from_then_on() -> None:
    nodes = [{"name": "n0", "gpus": 1}, {"name": "n1", "gpus": 1, "available_from": 1.5 * LEASE}]
    jobs = [
        {"id": f"j{i}", "steps": 2 * LEASE, "deadline": 4 * LEASE, "throughput": {"v100": 1.0}}
        for i in range(3)
    ]
    instance = made(round=LEASE, cluster={"pools": [{"name": "v100", "nodes": nodes}]}, jobs=jobs)
    solution = solve(instance)  # 1 + 1 + 2 + 2 leases are exactly enough
    assert solution.status == "optimal"
    assert sum(row["start"] < 2 * LEASE for row in solution.schedule.to_records()) >= 1


def test_impossible_alone_is_told_without_a_solver() -> None:
    solution = solve(leases([4], [3], [2], 4))
    assert solution.status == "infeasible" and solution.solver.name == "none"
    assert solution.conflicts[0].words == "job j0 needs 3 leases of 4 GPUs, 2 before its deadline"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"capacity": {"k80": [1]}},
            'option of lease: capacity: found "k80", expected one of v100',
        ),
        ({"capacity": {"v100": []}}, "capacity.v100: found []"),
        ({"capacity": {"v100": [-1]}}, "capacity.v100[0]: found -1"),
        ({"first_lease": "most"}, 'first_lease: found "most"'),
        ({"no_such": 1}, "option of lease: found 'no_such'"),
    ],
)
def test_wrong_options(options: dict, told: str) -> None:
    with refuses(told, UsageError):
        optsched.solve(leases(*REFERENCE[1][:4]), "lease", **options)


def test_a_wrong_deadline_of_an_option() -> None:
    option = {"job": "A", "value": 1, "gpus": 1, "leases_needed": 1, "max_lease": 1}
    instance = soft_leases([option], 1)
    instance.options.attributes[0]["deadline"] = "soon"
    with refuses('options: attributes.deadline: found "soon", expected seconds...'):
        optsched.solve(instance, "lease")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda row: row | {"end": row["end"] + LEASE / 2}, "whole leases"),
        (lambda row: row | {"end": row["end"] + LEASE}, "after its deadline|expected 2"),
        (lambda row: row | {"start": row["start"] - LEASE}, "before now|expected"),
    ],
)
def test_a_tampered_plan_is_refused(change: object, told: str) -> None:
    solution = optsched.solve(leases([1, 1], [2, 2], [2, 2], 2), "lease")
    document = solution.to_document()
    document["schedule"][0] = change(document["schedule"][0])
    report = optsched.verify(solution.instance, document)
    assert not report.ok and re.search(told, str(report)), report


def test_a_plan_from_before_starts_were_made_early_is_right() -> None:
    """Files of then have neither ``refine`` nor ``stages``, and jobs may start late."""
    solution = solve(leases([1], [2], [4], 1), first_lease="minimise")
    document = solution.to_document()
    assert document["schedule"][0]["start"] >= LEASE
    document["options"]["first_lease"] = "ignore"
    del document["options"]["refine"], document["stages"]
    report = optsched.verify(solution.instance, document, resolve=True)
    assert report.ok, report


def test_whole_gangs_that_cannot_all_run_are_named() -> None:
    """Half of a gang at a time would do; whole ones leave a GPU idle in every lease.

    What the jobs need, added up, is just what there is.
    """
    solution = solve(leases([2, 2, 1], [2, 2, 1], [3, 3, 4], 3))
    assert (solution.status, solution.certificate.proof, solution.explanation) == (
        "infeasible",
        "claimed",
        "irreducible",
    )
    assert [conflict.words for conflict in solution.conflicts] == [
        "job j0 (and 1 like it) needs 2 leases of 2 GPUs each, 3 before its deadline",
        *(f"lease {t} has 3 GPUs of pool v100" for t in range(3)),
    ]


@pytest.mark.parametrize("now", [1e17, 1.7e18])
def test_a_clock_that_does_not_tell_leases_apart_is_refused(now: float) -> None:
    """Such as nanoseconds since 1970: numbers are 16 s apart, or 256 s."""
    instance = optsched.Instance.from_arrays(
        pools={"p": 2},
        throughput=np.ones((4, 1)),
        steps=np.full(4, 700.0),
        deadline=np.full(4, now + 5000.0),
        now=now,
    )
    with refuses(f"now: found {now:g} s, where..., expected at most 3e+12 s, with leases of 360 s"):
        optsched.solve(instance, "lease")


@pytest.mark.filterwarnings("error")
def test_a_job_that_needs_leases_without_number_is_declined() -> None:
    """10^36 s of work are more leases than 64 bits count: as a negative number they would fit."""
    builder = optsched.InstanceBuilder(round="6m")
    pool = builder.add_pool("v100", nodes=1, gpus_per_node=2)
    builder.add_job("endless", steps=1e6, gpus=1, throughput={pool: 1e-30}, deadline="2h")
    builder.add_job("short", steps=100, gpus=1, throughput={pool: 1.0}, deadline="2h")
    solution = solve(builder.instance(), admission=True)
    assert solution.objective == 1.0
    assert [job for job, _ in solution.declined] == ["endless"]


@pytest.mark.property
@pytest.mark.parametrize("seed", first_of(6, blocks=2))
def test_deadlines_beyond_all_work_need_no_more_leases_than_the_work(seed: int) -> None:
    """A calendar that closes at first, gangs, and deadlines of some jobs that bind."""
    random = np.random.default_rng(seed)
    gang, needed = random.integers(1, 5, 8), random.integers(1, 6, 8)
    near = random.integers(4, 16, 8)
    calendar = {"v100": [float(gpus) for gpus in random.integers(0, 5, 4)] + [4.0]}
    plans = []
    for far in (200, 10**9, 10**16):
        deadline = np.where(np.arange(8) % 2, near, far)
        instance = leases(gang.tolist(), needed.tolist(), deadline.tolist(), gpus=4)
        solution = optsched.solve(instance, "lease", admission=True, capacity=calendar)
        plans.append(verified(solution))
    assert plans[0].objective >= 4 and {plan.status for plan in plans} == {"optimal"}
    values = np.array([(plan.objective, plan.stages[0].value) for plan in plans])
    np.testing.assert_allclose(values, values[[0, 0, 0]], rtol=1e-9)


def test_cp_sat_keeps_the_plan_where_it_takes_no_later_objective() -> None:
    instance = generate("leases", jobs=6, nodes=1, tightness=0.8, seed=1).instance
    assert solve(instance, solver="cp-sat").objective == solve(instance).objective


def test_a_deadline_that_has_passed_is_called_so() -> None:
    job = {"id": "late", "steps": 5.0, "throughput": {"v100": 1.0}, "deadline": 90.0}
    pools = [{"name": "v100", "nodes": 1, "gpus_per_node": 1}]
    given = optsched.Instance.from_document(
        {"format": "optsched-instance/1", "now": 100.0, "cluster": {"pools": pools}, "jobs": [job]}
    )
    words = [conflict.words for conflict in optsched.solve(given, "lease").conflicts]
    assert words == ["job late has work left, and its deadline, 90 s, is not after now (100 s)"]
