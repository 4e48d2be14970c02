"""Deadlines that may give way: as little as possible, then the formulation with what is left of them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from refusals import refuses

import optsched
from optsched.errors import UsageError

pytestmark = pytest.mark.property

POOLS = {"fast": 2, "slow": 3}


def tight(seed: int, jobs: int = 7, slack: float = 0.5) -> optsched.Instance:
    """Jobs whose deadlines ask for about twice what there is."""
    random = np.random.default_rng(seed)
    rate = random.uniform(1, 5, (jobs, 2)) * np.array([2.0, 1.0])
    steps = random.uniform(500, 2000, jobs)
    return optsched.Instance.from_arrays(
        pools=POOLS,
        throughput=rate,
        steps=steps,
        weight=random.choice([1.0, 3.0], jobs),
        gpus=random.choice([1, 2], jobs),
        deadline=steps / rate.max(axis=1) * random.uniform(1.0, 1.0 + slack, jobs),
    )


def parts(instance: optsched.Instance) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Constraint matrix, right side and pace of the deadlines, made by hand."""
    table = instance.jobs_table
    rate = np.array(
        [[entry for _, entry in sorted(job.throughput.items())] for job in instance.jobs]
    )
    n = len(table)
    gang = table.gpus_min
    columns = [
        (i, j)
        for i in range(n)
        for j in range(2)
        if rate[i, j] > 0 and gang[i] <= list(POOLS.values())[j]
    ]
    time = np.array([[float(i == k) for i, _ in columns] for k in range(n)])
    capacity = np.array([[float(j == p) * gang[i] for i, j in columns] for p in range(2)])
    made = np.array([[rate[i, j] * (i == k) for i, j in columns] for k in range(n)])
    return (
        np.vstack([time, capacity]),
        np.r_[np.ones(n), list(POOLS.values())],
        np.hstack([made, (table.steps_left / table.deadline)[:, None]]),
    )


def least_shortfall(instance: optsched.Instance, given_up: tuple[int, ...] | None = None) -> float:
    A, b, made = parts(instance)
    made, pace = made[:, :-1], made[:, -1]
    n, N = made.shape
    weight = instance.jobs_table.weight
    if given_up is not None:
        keep = np.array([k for k in range(n) if not given_up[k]], int)
        result = scipy.optimize.linprog(
            np.zeros(N), np.vstack([A, -made[keep]]), np.r_[b, -pace[keep]], method="highs"
        )
        return float(weight @ np.array(given_up)) if result.status == 0 else np.inf
    rows = sp.csr_matrix(
        np.vstack([np.hstack([A, np.zeros((len(b), n))]), np.hstack([-made, -np.diag(pace)])])
    )
    result = scipy.optimize.linprog(
        np.r_[np.zeros(N), weight],
        rows,
        np.r_[b, -pace],
        bounds=[(0, None)] * N + [(0, 1)] * n,
        method="highs",
    )
    return float(result.fun)


@pytest.mark.parametrize("seed", range(6))
def test_the_least_total_shortfall(seed: int) -> None:
    instance = tight(seed)
    wanted = least_shortfall(instance)
    for formulation in ("max-min-fairness", "max-throughput", "water-filling"):
        constraint = {"kind": "deadlines", "give_way": "shortfall"}
        solution = optsched.solve(instance, formulation, constraints=[constraint])
        assert solution.ok and solution.status == "optimal", solution.certificate
        stage = solution.stages[0]
        assert stage.value == pytest.approx(wanted, rel=1e-6, abs=1e-7)
        assert stage.bound == pytest.approx(wanted, rel=1e-6, abs=1e-7)
        table, found = instance.jobs_table, solution.throughput
        pace = table.steps_left / table.deadline
        made = np.array([found[table.names[job]] for job in range(len(table))])
        missed = np.maximum(1.0 - made / pace, 0.0)
        assert table.weight @ missed <= wanted + 1e-6
        assert len(stage.words) == (stage.kept["short"] > 0).sum()
        assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize("seed", range(4))
def test_the_fewest_are_given_up(seed: int) -> None:
    instance = tight(seed, jobs=5)
    wanted = min(least_shortfall(instance, given) for given in product((0, 1), repeat=5))
    constraint = {"kind": "deadlines", "give_way": "count"}
    solution = optsched.solve(instance, "max-throughput", constraints=[constraint])
    assert solution.ok and solution.status == "optimal"
    assert solution.stages[0].value == pytest.approx(wanted)
    assert set(solution.stages[0].kept["short"]) <= {0.0, 1.0}
    assert all(word.endswith("is given up") for word in solution.stages[0].words)
    assert optsched.verify(instance, solution.to_document()).ok


def test_nothing_gives_way_where_all_can_be_met() -> None:
    instance = tight(0, jobs=2, slack=20.0)
    hard = optsched.solve(instance, "max-min-fairness", constraints=["deadlines"])
    soft = optsched.solve(
        instance, "max-min-fairness", constraints=[{"kind": "deadlines", "give_way": "shortfall"}]
    )
    assert soft.stages[0].value == 0.0 and soft.stages[0].words == ()
    assert soft.objective == pytest.approx(hard.objective)


def test_a_deadline_that_has_passed_is_named_and_given_up() -> None:
    document = tight(1).to_document()
    document["jobs"][0]["arrival"] = -100.0
    document["jobs"][0]["deadline"] = -5.0
    instance = optsched.Instance.from_document(document)
    refused = optsched.solve(instance, "max-throughput", constraints=["deadlines"])
    assert refused.status == "infeasible" and "is not after now" in refused.conflicts[0].words
    solution = optsched.solve(
        instance, "max-throughput", constraints=[{"kind": "deadlines", "give_way": "count"}]
    )
    assert solution.status == "optimal"
    assert solution.stages[0].words[0].endswith("is not after now (0 s): is given up")
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("kept", "short", 0), 0.9, "stages[0].value"),
        (("value",), 9.0, "stages[0].value"),
        (("bound",), 0.0, "stages[0].bound"),
        (("words",), ["nothing"], "stages[0].words"),
        (("name",), "filling", "stages"),
        (("duals", "capacity"), [0.0], "stages[0].duals"),
        (("kept",), {}, "stages"),
    ],
)
def test_a_tampered_stage_is_refused(path: tuple, value: object, told: str) -> None:
    instance = tight(2)
    constraint = {"kind": "deadlines", "give_way": "shortfall"}
    document = optsched.solve(instance, "max-min-fairness", constraints=[constraint]).to_document()
    place = document["stages"][0]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    verification = optsched.verify(instance, document)
    assert not verification.ok and any(
        str(finding).startswith(told) for finding in verification.findings
    )


def test_an_unknown_way_is_refused() -> None:
    expected = "one of 'none', 'shortfall' or 'count'"
    with refuses(f'option of deadlines: give_way: found "never", expected {expected}', UsageError):
        optsched.solve(
            tight(0), "max-throughput", constraints=[{"kind": "deadlines", "give_way": "never"}]
        )


# --- an instance's own, and a caller's -------------------------------------------------------------------------------


def own_deadlines(*more: dict[str, object]) -> optsched.Instance:
    """An instance that asks for deadlines which cannot all be met."""
    document = tight(3).to_document()
    return optsched.Instance.from_document(
        {**document, "constraints": [{"kind": "deadlines"}, *more]}
    )


def test_a_caller_s_deadlines_replace_the_instance_s_own() -> None:
    given = own_deadlines()
    assert optsched.solve(given).status == "infeasible"
    way = {"kind": "deadlines", "give_way": "shortfall"}
    solution = optsched.solve(given, constraints=[way])
    assert solution.ok and solution.status == "optimal"
    assert solution.constraints == ({"kind": "deadlines", "soft": False, "give_way": "shortfall"},)
    free = optsched.Instance.from_document({**given.to_document(), "constraints": []})
    assert solution.objective == optsched.solve(free, constraints=[way]).objective
    verification = optsched.verify(given, solution.to_document())
    assert verification.ok and verification.bound == "verified"
    compared = optsched.compare(given, ["max-min-fairness"], constraints=[way])
    assert compared.constraints == solution.constraints
    assert (
        compared.rows[0].solution is not None
        and compared.rows[0].solution.objective == solution.objective
    )


def test_other_constraints_of_an_instance_stay_in_force() -> None:
    quota = {"kind": "forbidden", "jobs": ["j0"], "pools": ["fast"]}
    given = own_deadlines(quota, quota | {"jobs": ["j1"]})
    mine = [{"kind": "deadlines", "give_way": "count"}, quota | {"jobs": ["j2"]}]
    solution = optsched.solve(given, constraints=mine)
    assert [item["kind"] for item in solution.constraints] == [
        "forbidden",
        "forbidden",
        "deadlines",
        "forbidden",
    ]
    document = solution.to_document()
    assert optsched.verify(given, document).ok
    for gone in (0, 1):
        less = {
            **document,
            "constraints": [
                item for row, item in enumerate(document["constraints"]) if row != gone
            ],
        }
        assert "constraints" in {
            finding.field.partition("[")[0] for finding in optsched.verify(given, less).findings
        }
    without = {
        **document,
        "constraints": [item for item in document["constraints"] if item["kind"] != "deadlines"],
    }
    assert "constraints[0]" in {
        finding.field for finding in optsched.verify(given, without).findings
    }


def test_a_caller_may_ask_twice() -> None:
    """Hard deadlines that are kept, and soft ones as far as they can be."""
    mine = [{"kind": "deadlines"}, {"kind": "deadlines", "soft": True, "give_way": "shortfall"}]
    given = tight(3, slack=6.0)
    solution = optsched.solve(given, constraints=mine)
    assert [item["soft"] for item in solution.constraints] == [False, True]


@pytest.mark.unit
def test_deadlines_that_give_way_are_no_reason_for_infeasibility() -> None:
    """The budget and the minimum service contradict each other; the deadlines could always give way."""
    instance = optsched.load("@quickstart")
    constraints: list[dict[str, object]] = [
        {"kind": "budget", "limit": 2},
        {"kind": "deadlines", "give_way": "shortfall"},
        {"kind": "minimum-service", "fraction": 0.3},
    ]
    solution = optsched.solve(instance, "max-throughput", constraints=constraints)
    assert solution.status == "infeasible"
    verification = optsched.verify(instance, solution.to_document())
    assert verification.ok, verification.findings


ALL_MUST_RUN = [
    ("makespan", {}),
    ("finish-time-fairness", {}),
    ("proportional-fairness", {}),
    ("alpha-fairness", {"alpha": 2.0}),
]
"""Objectives that are infinite as soon as one job has no time."""


@pytest.mark.parametrize(("name", "options"), ALL_MUST_RUN)
@pytest.mark.parametrize("seed", range(6))
def test_deadlines_that_leave_a_job_no_time_leave_no_plan(
    name: str, options: dict[str, float], seed: int
) -> None:
    """The deadlines of all jobs but the last take all GPUs, by as little as they must fall short."""
    random = np.random.default_rng(seed)
    steps = random.uniform(500, 2000, 5)
    instance = optsched.Instance.from_arrays(
        pools={"p": 3},
        throughput=np.ones((5, 1)),
        steps=steps,
        deadline=np.append(steps[:4] * random.uniform(1.0, 1.2, 4), np.inf),
    )
    way = {"kind": "deadlines", "give_way": "shortfall"}
    solution = optsched.solve(instance, name, options=options, constraints=[way])
    assert (solution.status, solution.termination) == ("infeasible", "infeasible")
    assert solution.certificate.proof == "dual" and solution.explanation == "irreducible"
    needy = [item for item in solution.conflicts if item.block == "some time"]
    assert needy[-1].words == "job j4 must have some time, or the objective is infinite"
    assert {item.block for item in solution.conflicts} >= {"capacity", "deadlines"}
    assert solution.stages[0].words

    document = solution.to_document()
    assert optsched.verify(instance, document).ok
    some = document["conflicts"][1:]
    assert not optsched.verify(instance, {**document, "conflicts": some}).ok
    assert not optsched.verify(instance, {**document, "stages": None}).ok


@pytest.mark.parametrize(("name", "options"), ALL_MUST_RUN)
def test_deadlines_that_leave_a_little_time_leave_a_plan(
    name: str, options: dict[str, float]
) -> None:
    instance = optsched.Instance.from_arrays(
        pools={"p": 1},
        throughput=np.ones((2, 1)),
        steps=np.array([1000.0, 1000.0]),
        deadline=np.array([1000.0 / (1.0 - 1e-4), np.inf]),
    )
    way = {"kind": "deadlines", "give_way": "shortfall"}
    solution = optsched.solve(instance, name, options=options, constraints=[way])
    # Conic programs of tiny shares may stop short of their precision.
    assert solution.status in ("optimal", "feasible")
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize(("name", "options"), ALL_MUST_RUN)
@pytest.mark.parametrize("limit", [1e-9, 1e-10])
def test_a_tiny_budget_leaves_every_job_a_little(
    name: str, options: dict[str, float], limit: float
) -> None:
    """Shares below 1e-10 are time all the same: a budget above 0 makes nothing infeasible."""
    pools = [{"name": "a", "nodes": 4, "gpus_per_node": 1, "cost_per_gpu_hour": 2.0}]
    rate = np.random.default_rng(0).lognormal(0.0, 1.0, (20, 1))
    instance = optsched.Instance.from_arrays(pools=pools, throughput=rate)
    budget = [{"kind": "budget", "limit": limit}]
    solution = optsched.solve(instance, name, options=options, constraints=budget)
    assert solution.status in ("optimal", "feasible") and solution.ok
    assert all(rate > 0 for rate in solution.throughput.values())
    assert optsched.verify(instance, solution.to_document()).ok
    claim = {"status": "infeasible", "termination": "infeasible", "objective": None, "bound": None}
    none = optsched.solve(
        instance, name, options=options, constraints=[{"kind": "budget", "limit": 0.0}]
    )
    assert none.status == "infeasible"
    wrong = none.to_document() | {"constraints": solution.to_document()["constraints"]} | claim
    assert not optsched.verify(instance, wrong).ok
