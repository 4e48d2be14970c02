"""What side constraints say: when they cannot be met, and when they are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from refusals import Refusal, refuses, stated
from side_cases import ELASTIC, running, six_jobs, solve

import optsched
from optsched import Instance, Solution
from optsched.errors import InvalidInput, UsageError

SERVICE = {"kind": "minimum-service", "fraction": 1.0}
W, VISION = {"workload": "w"}, {"tenant": "vision"}


def words(solution: Solution) -> str:
    assert solution.status == "infeasible"
    return " | ".join(conflict.words for conflict in solution.conflicts)


# --- what cannot be met --------------------------------------------------------------------------------------------

CONFLICTS: list[tuple[list[dict[str, Any]], list[str]]] = [
    (
        [SERVICE, {"kind": "budget", "limit": 4}],
        ["all jobs together spend at most 4 USD per hour (budget)"],
    ),
    (
        [SERVICE, {"kind": "budget", "limit": 2, **VISION}],
        [
            "the jobs of tenant vision together spend at most 2 USD per hour (budget)",
            "must run 100 % of the time",
        ],
    ),
    (
        [SERVICE, {"kind": "power", "limit": 500}],
        ["the GPUs of all pools draw at most 500 W, of which they draw 320 W idle (power)"],
    ),
    (
        [SERVICE, {"kind": "power", "limit": 90, "idle": False, "pools": ["a", "b"]}],
        ["the GPUs of a, b draw at most 90 W while in use (power)"],
    ),
    (
        [{"kind": "power", "limit": 319}],
        [
            "draw at most 319 W, of which they draw 320 W idle (power): more than allowed before any job runs"
        ],
    ),
    (
        [SERVICE, {"kind": "quota", "gpus": 1, **VISION}],
        ["the jobs of tenant vision hold at most 1 GPU (quota)"],
    ),
    (
        [SERVICE, {"kind": "quota", "share": 0.25, **VISION}],
        ["hold at most 2 GPUs (25 % of those usable) (quota)"],
    ),
    (
        [
            {"kind": "minimum-share", "gpus": 2, "pools": "a", **VISION},
            {"kind": "forbidden", "pools": "a", **VISION},
        ],
        [
            "the jobs of tenant vision hold at least 2 GPUs of a (minimum-share)",
            "may not run in a (forbidden)",
        ],
    ),
    (
        [{"kind": "minimum-share", "gpus": 4, "up_to_demand": False, **VISION}],
        ["hold at least 4 GPUs (minimum-share), but in all they can hold 3"],
    ),
    (
        [{"kind": "minimum-share", "gpus": 4, "up_to_demand": False, "tenant": "empty"}],
        ["tenant empty hold at least 4 GPUs", "but none of them can hold any now"],
    ),
    (
        [
            {**SERVICE, **W},
            {"kind": "pinned", "pools": "a", **W},
            {"kind": "power", "limit": 500, "idle": False},
        ],
        [
            "job j0 (and 2 like it) must run 100 % of the time each",
            "may run only in a (pinned)",
            "at most 500 W",
        ],
    ),
    (
        [{"kind": "minimum-service", "fraction": 3, "of": "isolated"}],
        [
            "steps/s each, 300 % of its isolated throughput (minimum-service)",
            "cannot run more than all the time",
        ],
    ),
    (
        [{"kind": "pinned", "pools": "a", "jobs": "j2"}, {"kind": "forbidden", "pools": "a", **W}],
        [
            "job j2 is left nowhere to run: job j2 may run only in a (pinned); job j2 may not run in a (forbidden)"
        ],
    ),
]


@pytest.mark.parametrize(("constraints", "told"), CONFLICTS)
def test_conflicts_are_told(constraints: list[dict[str, Any]], told: list[str]) -> None:
    for formulation in ("max-throughput", "proportional-fairness"):
        found = words(solve(*constraints, formulation=formulation))
        assert [item for item in told if item not in found] == [], found


def test_jobs_that_cannot_stay_are_named() -> None:
    workloads = {"e": {"throughput": {"a": {"1": 2.0}, "b": {"1": 1.0}}}}
    more = {"jobs": running(("p", "a", 2), ("q", "b", 1)), "workloads": workloads}
    for bound in ({"limit": 0}, {"keep": 0.1}, {"limit": 2, "keep": 0.1}):
        found = words(solve({"kind": "moves", **bound}, **more))
        assert found == "job p is to stay in a on 2 GPUs (moves), but cannot run so any more"
    assert solve({"kind": "moves", "limit": 1}, **more).status == "optimal"


def test_moves_conflict_in_words() -> None:
    more = {"jobs": running(("p", "a", 1), ("q", "b", 1)), "workloads": ELASTIC}
    elsewhere = {"kind": "pinned", "pools": "b", "jobs": "p"}
    found = words(solve({"kind": "moves", "limit": 0}, elsewhere, **more))
    assert "of the 2 jobs that run now at most 0 are moved or stopped" in found
    found = words(solve({"kind": "moves", "keep": 0.5, "gpus": False}, elsewhere, **more))
    assert (
        "job p is to stay in a at least 50 % of the time (moves)" in found and "job q" not in found
    )
    found = words(solve({"kind": "moves", "keep": 0.5, "limit": 2}, elsewhere, **more))
    assert "job p is to stay in a on 1 GPU at least 50 % of the time (moves)" in found


def test_a_named_job_that_runs_nowhere_cannot_be_served() -> None:
    jobs = [*six_jobs()["jobs"], {"id": "huge", "workload": "w", "gpus": 8}]
    wanted = {"kind": "minimum-service", "fraction": 0.1}
    assert solve(wanted, jobs=jobs).status == "optimal"  # it is in no program
    found = words(solve({**wanted, "jobs": ["huge", "j0"]}, jobs=jobs))
    assert (
        "job huge runs at least 10 % of the time (minimum-service), but can run nowhere: a, b: needs 8"
        in found
    )


def test_what_was_dropped_helps_to_say_why_a_job_is_left_nowhere() -> None:
    jobs = [{"id": "only", "throughput": {"a": 1.0, "b": 0.0}}]
    found = words(solve({"kind": "forbidden", "pools": ["a"]}, jobs=jobs, workloads={}))
    assert (
        found
        == "job only is left nowhere to run: job only may not run in a (forbidden); b: rate 0 on 1 GPU"
    )
    found = words(
        solve(
            {"kind": "pinned", "gpus": [1]},
            {"kind": "forbidden", "gpus": 1},
            jobs=jobs,
            workloads={},
        )
    )
    assert "job only may not run on 1 GPU (forbidden)" in found


def test_rows_that_leave_a_job_nothing_conflict_with_a_utility_that_needs_every_job() -> None:
    nothing = {"kind": "quota", "gpus": 0, **VISION}
    quota = "the jobs of tenant vision hold at most 0 GPUs (quota)"
    for formulation in ("proportional-fairness", "alpha-fairness"):
        found = words(solve(nothing, formulation=formulation))
        assert f"job j1 is left nowhere to run: {quota}" in found and "job j0" not in found
        assert "all jobs together spend at most 0 USD" in words(
            solve({"kind": "budget", "limit": 0}, formulation=formulation)
        )
    for formulation, objective in (("max-throughput", 8.0), ("max-min-fairness", 0.0)):
        assert solve(nothing, formulation=formulation).objective == pytest.approx(objective)


# --- what is refused -----------------------------------------------------------------------------------------------

REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "budget"}, "limit: found nothing, expected this key"),
    ({"kind": "budget", "limit": -1}, "limit: found -1, expected a number of at least 0"),
    ({"kind": "budget", "limit": float("nan")}, "limit: found NaN, expected a..."),
    ({"kind": "budget", "limit": True}, "limit: found true, expected a number"),
    ({"kind": "budget", "limit": "5"}, 'limit: found "5", expected a number'),
    ({"kind": "deadlines", "soft": 1}, "soft: found 1, expected true or false"),
    ({"kind": "pinned", "pools": [True]}, "pools[0]: found true, expected text"),
    (
        {"kind": "budget", "limit": 1, "tenant": "visoin"},
        'tenant: found "visoin", expected one of the tenants vision, language, empty; did you mean vision?',
    ),
    (
        {"kind": "power", "limit": 1, "pools": ["a", "c"]},
        'pools[1]: found "c", expected one of the pools a, b',
    ),
    ({"kind": "power", "limit": 1, "pools": []}, "pools: found [], expected at least 1 entry"),
    (
        {"kind": "quota", **VISION},
        "found neither, expected either gpus (a number of GPUs) or share...",
    ),
    ({"kind": "quota", "gpus": 1, "share": 0.5, **VISION}, "found both, expected either gpus..."),
    ({"kind": "quota", "gpus": 1}, "tenant: found nothing, expected this key"),
    ({"kind": "quota", "share": 2, **VISION}, "share: found 2, expected a number of at most 1"),
    (
        {"kind": "quota", "tenant": "x", "gpus": 1},
        'tenant: found "x", expected one of the tenants...',
    ),
    ({"kind": "minimum-share", "tenant": "x", "gpus": 1}, 'tenant: found "x", expected one of...'),
    (
        {"kind": "minimum-share", "gpus": 1, "pools": "x", **VISION},
        'pools[0]: found "x", expected one of the pools a, b',
    ),
    ({"kind": "pinned"}, "found neither, expected pools, gpus, level, or several of them"),
    (
        {"kind": "pinned", "pools": "a", "jobs": ["j0", "j1x"]},
        'jobs[1]: found "j1x", expected the id of a job of the instance; did you mean j1?',
    ),
    (
        {"kind": "pinned", "pools": "a", "jobs": ["j0", "j0"]},
        'jobs[1]: found "j0" a second time, expected each job once',
    ),
    (
        {"kind": "pinned", "pools": "a", "workload": "v"},
        'workload: found "v", expected one of the workloads w, u',
    ),
    ({"kind": "pinned", "gpus": 0}, "gpus[0]: found 0, expected a number of at least 1"),
    ({"kind": "pinned", "gpus": [1.5]}, "gpus[0]: found 1.5, expected a whole number"),
    ({"kind": "forbidden", "pools": ["c"]}, 'pools[0]: found "c", expected one of the pools a, b'),
    (
        {"kind": "forbidden", **VISION},
        "found neither, expected pools, gpus, level, or several of them",
    ),
    ({"kind": "minimum-service"}, "fraction: found nothing, expected this key"),
    ({"kind": "minimum-service", "fraction": 0}, "fraction: found 0, expected a number above 0"),
    (
        {"kind": "minimum-service", "fraction": 1.5},
        "fraction: found 1.5, expected at most 1, all the time",
    ),
    ({"kind": "minimum-service", "fraction": 0.5, "of": "x"}, 'of: found "x", expected one of...'),
    (
        {"kind": "minimum-service", "fraction": 0.5, "jobs": ["x"]},
        'jobs[0]: found "x", expected the id of a job...',
    ),
    ({"kind": "moves"}, "found neither, expected limit (a number of jobs), keep (a fraction..."),
    ({"kind": "moves", "keep": 1.1}, "keep: found 1.1, expected a number of at most 1"),
    (
        {"kind": "anti-affinity", "jobs": ["j0", "x"]},
        'jobs[1]: found "x", expected the id of a job...',
    ),
]


@pytest.mark.parametrize(("constraint", "message"), REFUSALS)
def test_refusals(constraint: dict[str, Any], message: str) -> None:
    with refuses(message, UsageError):
        solve(constraint)
    path, found, expected = stated(message)  # of a constraint of the instance: with its number
    with pytest.raises(InvalidInput) as invalid:
        optsched.solve(six_jobs(constraints=[{"kind": "budget", "limit": 1.0}, constraint]))
    assert Refusal(f"constraints[1].{path}".removesuffix("."), found, expected).holds(invalid.value)


def test_the_sentence_of_a_constraint_that_is_refused() -> None:
    budget = {"kind": "budget", "limit": 1}
    for more, sentence in (
        (
            {"kind": "anti-affinity"},
            "anti-affinity needs the option jobs: write anti-affinity:jobs=[NAME,NAME] (in Python jobs=[NAME,NAME])",
        ),
        ({"limit": -1}, "option of budget: limit: found -1, expected a number of at least 0"),
        (
            {"tenant": "visoin"},
            'budget: tenant: found "visoin", expected one of the tenants vision, language, empty; did you mean vision?',
        ),
        (
            {"teant": "x"},
            "budget has no option 'teant', expected one of limit, tenant; did you mean tenant?",
        ),
    ):
        with pytest.raises(UsageError) as refusal:
            solve(more if "kind" in more else budget | more)
        assert str(refusal.value) == sentence


def test_numbers_of_numpy_and_tuples_are_values() -> None:
    plain = solve(
        {"kind": "budget", "limit": 1}, {"kind": "pinned", "jobs": ["j0"], "pools": ["a"]}
    )
    from_python = solve(
        {"kind": "budget", "limit": np.int64(1)},
        {"kind": "pinned", "jobs": ("j0",), "pools": np.array(["a"])},
    )
    assert from_python.constraints == plain.constraints and from_python.objective == plain.objective


@pytest.mark.parametrize("name", ["makespan", "finish-time-fairness", "alpha-fairness"])
def test_a_quota_of_nothing_leaves_a_job_nowhere_where_all_must_run(name: str) -> None:
    """An endless makespan is no optimum; a smallest throughput of 0 is."""
    quota = {"kind": "quota", "gpus": 0, **VISION}
    own = Instance.from_document(six_jobs(constraints=[quota]))
    solution = optsched.solve(own, name)
    assert "is left nowhere to run: " in words(solution) and "(quota)" in words(solution)
    assert solution.objective is None and optsched.verify(own, solution.to_document()).ok
    worst = optsched.solve(own, "max-min-fairness")
    assert (worst.status, worst.objective) == ("optimal", 0.0)


def test_an_instance_without_tenants_says_so() -> None:
    with refuses(
        'tenant: found "vision", expected none, as the instance has no tenants', UsageError
    ):
        solve(
            {"kind": "quota", "gpus": 1, **VISION}, tenants=[], jobs=[{"id": "a", "workload": "w"}]
        )


def without(*fields: tuple[int, str]) -> dict[str, Any]:
    """The cluster with some fields of its pools left out."""
    pools = six_jobs()["cluster"]["pools"]
    for row, field in fields:
        del pools[row][field]
    return {"pools": pools}


def test_pools_that_do_not_say_what_they_cost_or_draw_are_named() -> None:
    bare = without(
        (0, "watts_idle"), (1, "watts_idle"), (1, "cost_per_gpu_hour"), (1, "watts_per_gpu")
    )
    for constraint, fields in (
        (
            {"kind": "budget", "limit": 6.0},
            "cluster.pools[1].cost_per_gpu_hour: found nothing, expected a price in USD "
            "(0 if free of charge): job j0 (and 2 like it) can run there and has a budget",
        ),
        (
            {"kind": "power", "limit": 9.0},
            "cluster.pools[1].watts_per_gpu: found nothing, "
            "expected what a GPU draws in W, as power is limited",
        ),
        (
            {"kind": "power", "limit": 9.0, "pools": "a"},
            "cluster.pools[0].watts_idle: found nothing, "
            "expected what a GPU draws in W, as power is limited, or idle=false",
        ),
    ):
        with refuses(fields, UsageError):
            solve(constraint, cluster=bare)
    # What is said of pool b is of no matter where it does not count.
    jobs = [{"id": "v", "throughput": {"a": 1.0}, **VISION}, {"id": "l", "throughput": {"b": 1.0}}]
    ours = [
        {"kind": "budget", "limit": 6.0, **VISION},
        {"kind": "power", "limit": 300, "idle": False, "pools": "a"},
    ]
    assert solve(*ours, cluster=bare, jobs=jobs, workloads={}).status == "optimal"


@pytest.mark.parametrize(
    "formulation", ["fifo", "isolated", "matching", "allox", "makespan-unrelated"]
)
def test_schedules_and_rules_take_none(formulation: str) -> None:
    with refuses(f"constraints: found rows, expected none for {formulation}", UsageError):
        solve({"kind": "budget", "limit": 1.0}, formulation=formulation)
