"""smd, smd-tight and multiple-choice on jobs with parameter servers: reference values, the chain, properties."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from hypothesis import given, settings
from hypothesis import strategies as st
from parameter_server_cases import REFERENCE, Case, Job, options_document, random_case

import optsched
from optsched import Instance, Solution
from optsched.api import make_formulation
from optsched.cli.main import main

pytestmark = pytest.mark.oracle

GOLDENS = SHARED / "oracles" / "forms" / "goldens.json"
NAMES = ("smd", "smd-tight", "multiple-choice")
VALUES = dict(zip(NAMES, (87.613932, 87.613932, 120.431270), strict=True))

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)


def solve(instance: Instance, name: str, **options: Any) -> Solution:
    solution = optsched.solve(instance, name, **options)
    assert solution.ok and solution.status == "optimal", solution.certificate
    return solution


def chosen(solution: Solution) -> dict[str, tuple[int, int]]:
    """(workers, servers) of the jobs that run."""
    rows = solution.allocation.to_records()
    return {
        row["job"]: (row["attributes"]["workers"], row["attributes"]["servers"]) for row in rows
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "solver", ["highs", "scip", pytest.param("cbc", marks=pytest.mark.study), "cp-sat"]
)
def test_reference_values_on_every_solver(name: str, solver: str) -> None:
    loose = (
        {"gap": 1e-4} if solver == "cp-sat" else {}
    )  # it rounds values that are no integers to about 1e-5
    solution = solve(REFERENCE.instance(), name, solver=solver, **loose)
    assert solution.objective == pytest.approx(VALUES[name], abs=1e-5)
    if name != "multiple-choice":
        assert chosen(solution) == {"j1": (4, 6), "j3": (5, 6)}


@pytest.mark.parametrize("name", NAMES)
def test_solutions_verify(name: str) -> None:
    instance = REFERENCE.instance()
    document = optsched.solve(instance, name).to_document()
    found = optsched.verify(instance, document, resolve=True)
    assert found.ok and found.bound == "consistent", found
    row = document["allocation"][0]
    row["attributes"]["servers"] = 1 if name == "multiple-choice" else 5
    assert not optsched.verify(instance, document).ok


@needs(GOLDENS)
def test_the_oracle() -> None:
    golden = json.loads(GOLDENS.read_text())["smd"]
    jobs = [
        Job(
            job["theta_a_b_c_d_e"], job["worker_demand"], job["ps_demand"], job["limit"], job["iterations"],
            job["sigmoid"],
        )
        for job in golden["jobs"]
    ]  # fmt: skip
    instance = Case(jobs, golden["capacity"]).instance()
    laws = optsched.compile(instance).kinds.laws
    w, p, t = laws.fastest()
    assert [(job["w"], job["p"]) for job in golden["jobs"]] == list(zip(w, p, strict=True))
    assert t == pytest.approx([job["tau_opt"] for job in golden["jobs"]], rel=1e-12)
    steps = np.array([job["iterations"] for job in golden["jobs"]])
    utility = laws.utility(np.arange(len(jobs)), steps * t)
    assert utility == pytest.approx([job["utility"] for job in golden["jobs"]], rel=1e-12)
    for name, key in zip(
        NAMES, ("value_reserved", "value_actual_use", "value_joint_mckp"), strict=True
    ):
        assert solve(instance, name).objective == pytest.approx(golden[key], rel=1e-9)


# --- brute force -----------------------------------------------------------------------------------------------------


def by_hand(case: Case) -> dict[str, float]:
    """The three programs by trying everything."""
    capacity = np.array(case.capacity)
    best = {name: 0.0 for name in NAMES}
    inner = []
    for job in case.jobs:
        w, p = min(job.pairs(), key=lambda pair: job.tau(*pair))
        inner.append((job.mu(job.tau(w, p)), job.use(w, p), np.array(job.limit)))
    for x in product((0, 1), repeat=len(inner)):
        value = sum(u for u, _, _ in (item for item, taken in zip(inner, x, strict=True) if taken))
        for name, place in (("smd", 2), ("smd-tight", 1)):
            use = sum(
                (item[place] for item, taken in zip(inner, x, strict=True) if taken),
                np.zeros(len(capacity)),
            )
            if (use <= capacity + 1e-9).all():
                best[name] = max(best[name], value)
    ways = [[None, *job.pairs()] for job in case.jobs]
    for choice in product(*ways):
        taken = [
            (job, pair) for job, pair in zip(case.jobs, choice, strict=True) if pair is not None
        ]
        use = sum((job.use(*pair) for job, pair in taken), np.zeros(len(capacity)))
        if (use <= capacity + 1e-9).all():
            value = sum(job.mu(job.tau(*pair)) for job, pair in taken)
            best["multiple-choice"] = max(best["multiple-choice"], value)
    return best


@settings(max_examples=12, deadline=None)
@given(seed=seeds)
def test_brute_force(seed: int) -> None:
    case = random_case(seed, jobs=3)
    case = replace(
        case, jobs=[replace(job, limit=np.minimum(job.limit, 9).tolist()) for job in case.jobs]
    )
    case = replace(case, jobs=[job for job in case.jobs if any(True for _ in job.pairs())])
    if not case.jobs:
        return
    expected = by_hand(case)
    for name in NAMES:
        assert solve(case.instance(), name).objective == pytest.approx(expected[name], rel=1e-7), (
            name
        )


# --- properties ------------------------------------------------------------------------------------------------------


@few
@given(seed=seeds)
def test_the_chain(seed: int) -> None:
    """Reserving <= holding what is used <= choosing jointly <= the linear relaxation of that."""
    instance = random_case(seed, jobs=7).instance()
    values = [solve(instance, name).objective for name in NAMES]
    values.append(solve(instance, "multiple-choice", relax=True).objective)
    assert (np.diff(values) >= -1e-7 * np.array(values[:-1])).all(), values


def test_the_chain_is_strict_where_it_matters() -> None:
    values = [solve(optsched.load("@smd"), name).objective for name in NAMES]
    assert values == pytest.approx([253.589, 267.968, 325.490], abs=1e-3)


@few
@given(seed=seeds)
def test_bounds_of_the_knapsack(seed: int) -> None:
    """LP >= MILP >= max(rounded down, best single job) >= LP / (K + 1), for the jobs whose limit fits at all."""
    case = random_case(seed, jobs=8)
    solution = solve(case.instance(), "smd")
    arrays = _program(solution).to_linear().arrays
    from scipy.optimize import linprog

    lp = linprog(
        -arrays.cost,
        A_ub=arrays.A,
        b_ub=arrays.row_upper,
        bounds=list(zip(arrays.lower, _limits(solution), strict=True)),
    )
    assert lp.status == 0
    floor = -float(lp.x.round(9) // 1 @ -arrays.cost)
    single = float(arrays.cost.max())
    assert -lp.fun >= solution.objective * (1 - 1e-9)
    assert solution.objective >= max(floor, single) * (1 - 1e-9)
    assert max(floor, single) >= -lp.fun / (len(case.capacity) + 1) * (1 - 1e-9)


def _program(solution: Solution) -> Any:
    return make_formulation(solution.formulation).program(solution.allocation.classes)


def _limits(solution: Solution) -> list[float]:
    return solution.allocation.classes.limit.tolist()


@few
@given(seed=seeds)
def test_order_does_not_matter(seed: int) -> None:
    case = random_case(seed)
    order = np.random.default_rng(seed).permutation(len(case.jobs))
    other = replace(case, jobs=[case.jobs[row] for row in order])
    for name in NAMES:
        first, second = solve(case.instance(), name), solve(other.instance(), name)
        assert first.objective == pytest.approx(second.objective, rel=1e-9)


@few
@given(seed=seeds)
def test_more_capacity_never_hurts(seed: int) -> None:
    case = random_case(seed)
    more = replace(case, capacity=[amount + 2 for amount in case.capacity])
    for name in NAMES:
        less = solve(case.instance(), name).objective
        assert solve(more.instance(), name).objective >= less * (1 - 1e-9)


def test_limits_of_the_whole_cluster_admit_one_job() -> None:
    jobs = [replace(job, limit=REFERENCE.capacity) for job in REFERENCE.jobs]
    case = Case(jobs, REFERENCE.capacity)
    solution = solve(case.instance(), "smd")
    values = [job.mu(job.best()) for job in jobs]
    assert solution.objective == pytest.approx(max(values))
    assert list(chosen(solution)) == [f"j{int(np.argmax(values))}"]


def test_enough_for_all_admits_all() -> None:
    capacity = np.sum([job.limit for job in REFERENCE.jobs], axis=0).tolist()
    solution = solve(replace(REFERENCE, capacity=capacity).instance(), "smd")
    assert solution.objective == pytest.approx(sum(job.mu(job.best()) for job in REFERENCE.jobs))


def test_a_larger_limit_can_cost_value() -> None:
    """A wrong belief: a larger reservation is never slower, but leaves less for others."""
    greedy = [replace(job, limit=[2 * amount for amount in job.limit]) for job in REFERENCE.jobs]
    larger = solve(replace(REFERENCE, jobs=greedy).instance(), "smd")
    assert larger.objective < solve(REFERENCE.instance(), "smd").objective


def test_a_limit_above_the_capacity_is_never_reserved() -> None:
    job = REFERENCE.jobs[0]
    wide = replace(job, limit=(100, 100, 100))
    case = Case((wide,), REFERENCE.capacity)
    assert solve(case.instance(), "smd").objective == 0
    held = replace(job, limit=REFERENCE.capacity)
    assert solve(case.instance(), "smd-tight").objective == pytest.approx(held.mu(held.best()))


def test_equal_jobs_are_one_class_and_counted_whole() -> None:
    document = REFERENCE.document()
    document["jobs"] += [{"id": f"more{i}", "workload": "law3", "steps": 15} for i in range(5)]
    instance = Instance.from_document(document)
    for name in ("smd", "smd-tight"):
        solution = solve(instance, name)
        assert solution.allocation.classes.count.tolist() == [1, 1, 1, 6]
        assert solution.objective == pytest.approx(
            solve(instance, name, classes=False).objective, rel=1e-9
        )
        assert set(solution.allocation.x.tolist()) <= {0, 1, 2, 3, 4, 5, 6}
        assert optsched.verify(instance, solution.to_document()).ok


def test_side_constraints_compose() -> None:
    """A deadline that only more than the chosen speed meets is kept, or the program is infeasible."""
    document = REFERENCE.document()
    document["jobs"][0]["deadline"] = 80  # j0 takes 73 s at best
    instance = Instance.from_document(document)
    for name in NAMES:
        solution = solve(instance, name, constraints=["deadlines"])
        assert "j0" in chosen(solution)
        assert solution.objective <= VALUES[name] + 1e-6
        assert optsched.verify(instance, solution.to_document()).ok
    document["jobs"][0]["deadline"] = 70
    for name in NAMES:
        assert (
            optsched.solve(Instance.from_document(document), name, constraints=["deadlines"]).status
            == "infeasible"
        )


def test_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "solution.json"
    assert main(["solve", "@smd", "-f", "smd", "-o", str(out)]) == 0
    assert "total value" in capsys.readouterr().out
    assert json.loads(out.read_text())["objective"] == pytest.approx(253.589, abs=1e-3)
    assert main(["verify", "@smd", str(out)]) == 0
    assert main(["solve", "@quickstart", "-f", "smd"]) == 2
    assert 'smd: job "resnet-50-1" has plain rates, expected options' in capsys.readouterr().err


# --- jobs with options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "reserved", "tight", "way"), [(4, 9, 9, "large"), (3, 10, 10, "middle"), (3.5, 10, 10, "middle"),
                                            (2.2, 15, 15, "small"), (2.4, 10, 15, "small")]
)  # fmt: skip
def test_options_inside_the_limit(limit: float, reserved: float, tight: float, way: str) -> None:
    instance = Instance.from_document(options_document({"r": limit}))
    for name, value in (("smd", reserved), ("smd-tight", tight)):
        solution = solve(instance, name)
        assert solution.objective == pytest.approx(value)
        assert {row["attributes"]["way"] for row in solution.allocation.to_records()} == {way}
        assert optsched.verify(instance, solution.to_document()).ok
    assert solve(instance, "multiple-choice").objective == pytest.approx(15)


def test_of_options_the_most_valuable_is_taken_and_then_the_fastest() -> None:
    document = options_document({"r": 4})
    ways = document["jobs"][0]["options"]
    ways += [
        {"uses": {"r": 1}, "duration": 30, "value": 11, "attributes": {"way": "slow"}},
        {"uses": {"r": 1}, "throughput": 0.05, "value": 11, "attributes": {"way": "by rate"}},
        {"uses": {"r": 1}, "value": 11, "attributes": {"way": "without a rate"}},
    ]
    solution = solve(Instance.from_document(document), "smd")
    assert solution.objective == pytest.approx(11)
    assert [row["attributes"]["way"] for row in solution.allocation.to_records()] == [
        "by rate"
    ]  # 1 step in 20 s


def test_a_reservation_of_what_nobody_uses_counts() -> None:
    """The limit names the pool's GPU too, of which there is one."""
    document = options_document({"r": 4, "g": 1})
    document["cluster"]["resources"][0]["capacity"] = 100
    instance = Instance.from_document(document)
    assert solve(instance, "smd").objective == pytest.approx(9)
    assert solve(instance, "smd-tight").objective == pytest.approx(27)


def test_no_option_inside_the_limit() -> None:
    solution = optsched.solve(Instance.from_document(options_document({"r": 1})), "smd")
    assert solution.unplaced[0] == (
        "a",
        "can run nowhere: without a pool: needs more than its limit",
    )
