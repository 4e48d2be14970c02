"""Each side constraint on a small instance: what it does, and what its rows are worth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from side_cases import ELASTIC, running, six_jobs, solve

import optsched
from optsched import Instance, Solution
from optsched.candidates import Classes
from optsched.program import SideRows

VISION = ("j1", "j3", "j5")


def gpus(solution: Solution, pool: str | None = None, jobs: tuple[str, ...] | None = None) -> float:
    """GPUs held on average, in a pool, by some jobs."""
    rows = [row for row in solution.allocation.to_records() if pool in (None, row["pool"])]
    return sum(row["gpus"] * row["fraction"] for row in rows if jobs is None or row["job"] in jobs)


def time_in(solution: Solution, job: str, pool: str, count: int) -> float:
    """Fraction of the time that a job runs in a pool on so many GPUs."""
    rows = [row for row in solution.allocation.to_records() if row["job"] == job]
    return sum(row["fraction"] for row in rows if (row["pool"], row["gpus"]) == (pool, count))


# --- amounts -------------------------------------------------------------------------------------------------------


def test_a_budget_without_any_price_is_a_number_of_gpus() -> None:
    pools = six_jobs()["cluster"]["pools"]
    for pool in pools:
        pool.pop("cost_per_gpu_hour", None)
    solution = solve({"kind": "budget", "limit": 2.0}, cluster={"pools": pools})
    assert solution.status == "optimal" and solution.ok
    assert gpus(solution) == pytest.approx(2.0)
    assert any("no pool states cost_per_gpu_hour" in note for note in solution.notes)


def test_a_budget_is_spent_where_it_gives_most() -> None:
    # On b every job makes 1 step/s per USD; the first USD more go to jobs w, 2 steps/s for 2 USD by moving to a.
    for limit, expected in ((3.0, 3.0), (6.0, 6.0), (0.0, 0.0)):
        solution = solve({"kind": "budget", "limit": limit})
        assert solution.objective == pytest.approx(expected)
        assert 3 * gpus(solution, "a") + gpus(solution, "b") == pytest.approx(limit)


def test_a_budget_of_one_tenant_leaves_the_others_alone() -> None:
    solution = solve({"kind": "budget", "limit": 0.0, "tenant": "vision"})
    assert gpus(solution, jobs=VISION) == 0 and solution.objective == pytest.approx(3 + 3 + 2)


def test_power_with_and_without_idle_gpus() -> None:
    with_idle = solve({"kind": "power", "limit": 320 + 480})  # 4 x 60 + 4 x 20 W at rest
    assert 240 * gpus(with_idle, "a") + 80 * gpus(with_idle, "b") == pytest.approx(480)
    busy = solve({"kind": "power", "limit": 480, "idle": False})
    assert 300 * gpus(busy, "a") + 100 * gpus(busy, "b") == pytest.approx(480)
    only = solve({"kind": "power", "limit": 300, "idle": False, "pools": "a"})
    assert gpus(only, "a") == pytest.approx(1.0) and gpus(only, "b") == pytest.approx(4.0)
    rest = solve({"kind": "power", "limit": 240 + 240, "pools": ["a"]})
    assert gpus(rest, "a") == pytest.approx(1.0) and gpus(rest, "b") == pytest.approx(4.0)


def test_quota() -> None:
    assert gpus(
        solve({"kind": "quota", "tenant": "vision", "gpus": 1}), jobs=VISION
    ) == pytest.approx(1.0)
    assert gpus(
        solve({"kind": "quota", "tenant": "vision", "share": 0.25}), jobs=VISION
    ) == pytest.approx(2.0)
    of_pool = solve({"kind": "quota", "tenant": "vision", "share": 0.25, "pools": ["b"]})
    assert gpus(of_pool, "b", VISION) <= 1 + 1e-9 and gpus(of_pool, jobs=VISION) > 2


def test_minimum_share_and_the_demand_of_its_jobs() -> None:
    least = solve({"kind": "minimum-share", "tenant": "vision", "gpus": 2.5, "pools": "a"})
    assert gpus(least, "a", VISION) == pytest.approx(2.5) and least.objective < solve().objective
    capped = solve(
        {"kind": "minimum-share", "tenant": "vision", "share": 1.0}
    )  # 8 GPUs, of which they can hold 3
    assert gpus(capped, jobs=VISION) == pytest.approx(3.0)
    assert (
        solve({"kind": "minimum-share", "tenant": "empty", "gpus": 4}).objective
        == solve().objective
    )


def test_a_pair_of_two_tenants_counts_half_for_each() -> None:
    tenants = (("v", "vision"), ("l", "language"))
    jobs = [{"id": name, "throughput": {"a": 1.0}, "tenant": tenant} for name, tenant in tenants]
    more = {"jobs": jobs, "workloads": {}}
    more["colocation"] = [{"jobs": ["v", "l"], "pool": "a", "gpus": 1, "throughput": [0.9, 0.9]}]
    # Of a quarter of a GPU v makes most as one of a pair half of the time; l is alone in the other half.
    for constraint in (
        {"kind": "quota", "tenant": "vision", "gpus": 0.25},
        {"kind": "budget", "tenant": "vision", "limit": 0.75},
    ):
        assert solve(constraint, **more).objective == pytest.approx(0.5 * 1.8 + 0.5)


# --- ways to run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "formulation"),
    [
        ("highs", "max-min-fairness"),
        ("clarabel", "makespan"),
        ("clarabel", "proportional-fairness"),
    ],
)
def test_pinned_and_forbidden_leave_exactly_nothing_elsewhere(
    solver: str, formulation: str
) -> None:
    constraints = [
        {"kind": "pinned", "pools": "a", "jobs": ["j0"]},
        {"kind": "forbidden", "pools": ["a"], "tenant": "vision"},
    ]
    instance = Instance.from_document(six_jobs())
    solution = optsched.solve(instance, formulation, solver=solver, constraints=constraints)
    assert solution.ok and solution.status == "optimal"
    where = {(row["job"], row["pool"]) for row in solution.allocation.to_records()}
    assert ("j0", "b") not in where and not {(job, "a") for job in VISION} & where


def test_the_noise_of_a_loose_solver_is_cleaned_from_barred_columns() -> None:
    random = np.random.default_rng(0)
    rates, weight = random.lognormal(0, 1, (60, 3)), random.choice([1.0, 2.0, 5.0], 60)
    instance = Instance.from_arrays(
        pools={"a": 20, "b": 15, "c": 10}, throughput=rates, weight=weight
    )
    even = [f"j{job}" for job in range(0, 60, 2)]
    constraints = [{"kind": "pinned", "pools": ["a", "b"], "jobs": even}]
    solution = optsched.solve(instance, solver="clarabel", constraints=constraints, tolerance=1e-3)
    assert {row["job"] for row in solution.allocation.to_records() if row["pool"] == "c"} & set(
        even
    ) == set()


def test_rows_close_what_they_leave_nothing_to() -> None:
    matrix = sp.csr_matrix([[1.0, 0, 2], [1, 1, 0], [1, -1, 0], [0, 3, 0]])
    lower, upper = np.array([-np.inf, 0, -np.inf, -np.inf]), np.array([0.0, 1, 0, 0])
    rows = SideRows("rows", matrix, lower, upper, str)
    assert rows.closed.toarray().tolist() == [[1, 0, 2], [0, 0, 0], [0, 0, 0], [0, 3, 0]]
    assert SideRows("none", sp.csr_matrix((1, 3)), lower[:1], upper[:1], str).closed.nnz == 0


def test_gpu_counts_can_be_pinned_and_forbidden() -> None:
    workloads = {"w": {"throughput": {"a": {"1": 1.0, "2": 1.5, "4": 2.0}}}}
    jobs = [{"id": "e", "workload": "w", "gpus": {"min": 1, "max": 4}}]
    for constraint, expected in (
        ({"kind": "pinned", "gpus": 2}, 2),
        ({"kind": "forbidden", "gpus": [4]}, 2),
        ({"kind": "forbidden", "gpus": [2, 4]}, 1),
        ({"kind": "forbidden", "gpus": [2, 4], "pools": "b"}, 4),
    ):
        (row,) = solve(constraint, jobs=jobs, workloads=workloads).allocation.to_records()
        assert row["gpus"] == expected


def test_a_pair_runs_only_where_both_may() -> None:
    jobs = [{"id": name, "throughput": {"a": 1.0, "b": 1.0}} for name in ("v", "l")]
    pairs = [
        {"jobs": ["v", "l"], "pool": pool, "gpus": 1, "throughput": [0.9, 0.9]} for pool in "ab"
    ]
    budget = {"kind": "budget", "limit": 1.0}  # enough for a pair on b, or for one job there
    free = solve(budget, jobs=jobs, workloads={}, colocation=pairs)
    pinned = solve(
        budget,
        {"kind": "pinned", "pools": "a", "jobs": "v"},
        jobs=jobs,
        workloads={},
        colocation=pairs,
    )
    assert free.objective == pytest.approx(1.8) and pinned.objective == pytest.approx(1.0)
    assert all(
        row["pool"] == "a"
        for row in pinned.allocation.to_records()
        if "v" in row.get("jobs", [row.get("job")])
    )


def test_what_uses_no_pool_is_in_none() -> None:
    options = [{"pool": None, "throughput": 5.0}, {"pool": "a", "gpus": 1, "throughput": 1.0}]
    more: dict[str, Any] = {"jobs": [{"id": "o", "options": options}], "workloads": {}}
    assert solve(**more).objective == pytest.approx(5.0)
    assert solve({"kind": "pinned", "pools": ["a", "b"]}, **more).objective == pytest.approx(1.0)
    assert solve({"kind": "forbidden", "pools": ["a", "b"]}, **more).objective == pytest.approx(5.0)
    assert solve(
        {"kind": "budget", "limit": 0}, {"kind": "power", "limit": 320}, **more
    ).objective == pytest.approx(5.0)


# --- time ----------------------------------------------------------------------------------------------------------


def test_minimum_service_of_time_and_of_the_isolated_throughput() -> None:
    served = solve(
        {"kind": "minimum-service", "fraction": 1.0, "workload": "u"},
        {"kind": "budget", "limit": 6.0},
    )
    assert gpus(served, jobs=("j3", "j4", "j5")) == pytest.approx(3.0)
    isolated = solve(formulation="isolated").throughput
    fair = solve({"kind": "minimum-service", "fraction": 1.0, "of": "isolated"})
    assert all(fair.throughput[job] >= rate * (1 - 1e-7) for job, rate in isolated.items())
    assert (
        min(solve({"kind": "budget", "limit": 3.0}).throughput.values()) == 0
    )  # it is the constraint that does it
    some = solve(
        {"kind": "minimum-service", "fraction": 1.2, "of": "isolated", "jobs": ["j4", "j5"]}
    )
    assert min(some.throughput[job] / isolated[job] for job in ("j4", "j5")) >= 1.2 - 1e-7


def test_moves_are_bounded_in_all_and_of_each() -> None:
    jobs = [*running(("p", "b", 1), ("q", "b", 1)), {"id": "new", "workload": "e"}]
    more = {"jobs": jobs, "workloads": ELASTIC}
    free = solve(**more)
    assert time_in(free, "p", "b", 1) == time_in(free, "q", "b", 1) == 0
    for limit in (0, 0.5, 1):
        some = solve({"kind": "moves", "limit": limit}, **more)
        assert time_in(some, "p", "b", 1) + time_in(some, "q", "b", 1) == pytest.approx(2 - limit)
    keep = solve({"kind": "moves", "keep": 0.75}, **more)
    assert time_in(keep, "p", "b", 1) == time_in(keep, "q", "b", 1) == pytest.approx(0.75)
    both = solve({"kind": "moves", "limit": 0.3, "keep": 0.5}, **more)
    assert time_in(both, "p", "b", 1) + time_in(both, "q", "b", 1) == pytest.approx(1.7)
    assert solve({"kind": "moves", "limit": 0}).objective == solve().objective  # nobody runs


def test_another_number_of_gpus_is_a_move_unless_one_says_otherwise() -> None:
    more = {"jobs": running(("p", "a", 1)), "workloads": ELASTIC}
    assert solve({"kind": "moves", "limit": 0}, **more).throughput["p"] == pytest.approx(2.0)
    assert solve({"kind": "moves", "limit": 0, "gpus": False}, **more).throughput[
        "p"
    ] == pytest.approx(3.0)


def test_integral_programs_count_whole_jobs() -> None:
    instance = Instance.from_document(
        six_jobs(jobs=running(("p", "b", 1), ("q", "b", 1)), workloads=ELASTIC)
    )
    for limit, moved in ((0, 0), (1, 1), (1.9, 1), (2, 2)):
        constraints = [{"kind": "moves", "limit": limit}]
        solution = optsched.solve(
            instance, "max-throughput", constraints=constraints, integral=True
        )
        assert solution.ok and optsched.verify(instance, solution.to_document()).ok
        assert 2 - sum(time_in(solution, job, "b", 1) for job in "pq") == moved


# --- classes -------------------------------------------------------------------------------------------------------


def test_jobs_that_are_meant_alike_stay_one_class() -> None:
    jobs = running(("p", "b", 1), ("q", "b", 1), ("r", "a", 1), ("s", "b", 2))
    more = {"jobs": jobs, "workloads": ELASTIC}
    service = {"kind": "minimum-service", "fraction": 0.1}
    for constraints, classes in (
        ([], 1),
        ([{"kind": "budget", "limit": 5}, {"kind": "power", "limit": 900}, service], 1),
        ([{"kind": "pinned", "pools": "a"}], 1),
        ([{"kind": "pinned", "pools": "a", "jobs": ["p", "s"]}], 2),
        ([{"kind": "pinned", "pools": "a", "jobs": ["p", "s"]}, {**service, "jobs": ["s"]}], 3),
        ([{"kind": "moves", "limit": 1}], 3),
        ([{"kind": "moves", "limit": 1, "gpus": False}], 2),
        ([{"kind": "quota", "tenant": "vision", "gpus": 1}], 1),
    ):
        assert len(solve(*constraints, **more).allocation.classes) == classes, constraints


def test_a_value_that_jobs_of_a_class_do_not_share_is_an_error() -> None:
    candidates = optsched.compile(Instance.from_document(six_jobs()))
    tenant = candidates.instance.jobs_table.tenant
    merged, split = candidates.classes(frozenset()), candidates.classes(frozenset(), [tenant])
    assert isinstance(merged, Classes) and (len(merged), len(split)) == (2, 4)
    assert split.common(tenant).tolist() == tenant[split.first].tolist()
    with pytest.raises(KeyError, match="jobs of one class differ"):
        merged.common(tenant)


# --- prices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraint", "field"),
    [
        ({"kind": "budget", "limit": 7.3}, "limit"),
        ({"kind": "power", "limit": 911.0}, "limit"),
        ({"kind": "quota", "tenant": "vision", "gpus": 1.7}, "gpus"),
        ({"kind": "minimum-share", "tenant": "vision", "gpus": 2.7, "pools": ["a"]}, "gpus"),
    ],
)
def test_duals_are_finite_differences(constraint: dict[str, Any], field: str) -> None:
    step = 1e-3
    here, more = solve(constraint), solve({**constraint, field: constraint[field] + step})
    (dual,) = here.duals[constraint["kind"]]
    assert abs(dual) > 1e-3
    assert dual == pytest.approx((more.objective - here.objective) / step, rel=1e-5)


def test_explain_names_the_row_that_holds_a_job() -> None:
    solution = solve({"kind": "pinned", "pools": "b", "jobs": "j0"})
    told = {binding.row: binding for binding in optsched.explain_job(solution, "j0").binding}
    assert told["pinned"].words == "job j0 may run only in b (pinned)" and told[
        "pinned"
    ].price == pytest.approx(1.0)
    assert "pinned" not in {binding.row for binding in optsched.explain_job(solution, "j1").binding}


def test_explain_counts_what_the_service_rows_pay_for_steps() -> None:
    budget = {"kind": "budget", "limit": 3.0}
    solution = solve(
        {"kind": "minimum-service", "fraction": 0.6, "of": "isolated", "workload": "u"}, budget
    )
    for job in ("j0", "j3"):
        explained = optsched.explain_job(solution, job)
        assert explained.no_prices is None
        assert all(abs(way.gain) < 1e-7 for way in explained.ways if way.in_use)
        assert all(way.gain < 1e-7 for way in explained.ways)


def test_several_of_a_kind_hold_together() -> None:
    solution = solve(
        *({"kind": "quota", "tenant": tenant, "gpus": 1} for tenant in ("vision", "language"))
    )
    assert gpus(solution) == pytest.approx(2.0) and {"quota", "quota#2"} <= set(solution.duals)
