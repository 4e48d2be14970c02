"""Partial allocation: x* against another model, its conditions, the discounts, and that nobody gains by a lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from refusals import refuses

import formulations.discounts as discounting  # private: counts its programs
import optsched
from optsched import Instance, Solution
from optsched.errors import SolverUnavailable, UsageError
from optsched.solution import Termination, Values
from optsched.solving import Engine, Outcome

# Private names: the inner steps of an answer are compared with a reference
from optsched.solving.certify import nothing_found

pytestmark = pytest.mark.property

LEVELS = 1e-4
"""Levels of x* are right to the square root of what its value is right to, and with them the discounts."""


def data(seed: int, jobs: int = 4, pools: int = 2, distinct: bool = True) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    rate = random.lognormal(0, 1, (jobs, pools))
    return {
        "pools": {f"p{j}": int(random.integers(2, 4)) for j in range(pools)},
        "throughput": rate if distinct else rate[random.integers(0, 2, jobs)],
        "gpus": random.choice([1, 1, 2], jobs) if distinct else 1,
        "weight": random.choice([1.0, 2.0, 5.0], jobs),
    }


def solve(given: dict[str, Any], **options: object) -> Solution:
    solution = optsched.solve(Instance.from_arrays(**given), "partial-allocation", **options)
    assert solution.ok and solution.status == "optimal", solution.certificate
    assert solution.certificate.proof == "dual" and solution.gap <= 1e-6
    return solution


def discounts(solution: Solution) -> np.ndarray:
    return np.array(list(solution.figures["discount"].values()))


def optimum(solution: Solution) -> np.ndarray:
    """Throughputs at x*."""
    return np.array(list(solution.throughput.values())) / discounts(solution)


@pytest.mark.parametrize("weights", ["ignored", "exponent"])
@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_and_the_discounts_of_an_independent_model(seed: int, weights: str) -> None:
    cp = pytest.importorskip("cvxpy")
    given = data(seed, 5)
    rate, gpus, capacity = (
        given["throughput"],
        given["gpus"],
        np.array(list(given["pools"].values()), float),
    )
    p = given["weight"] if weights == "exponent" else np.ones(5)

    def welfare(jobs: Sequence[int]) -> tuple[float, np.ndarray]:
        x = cp.Variable((len(jobs), 2), nonneg=True)
        level = cp.sum(cp.multiply(rate[jobs], x), axis=1)
        rows = [cp.sum(x, axis=1) <= 1, gpus[jobs] @ x <= capacity]
        problem = cp.Problem(cp.Maximize(p[jobs] @ cp.log(level)), rows)
        problem.solve(solver="CLARABEL")
        return float(problem.value), level.value

    best, level = welfare(range(5))
    solution = solve(given, weights=weights)
    assert optimum(solution) == pytest.approx(level, rel=1e-4)
    share = rate @ capacity / capacity.sum()
    scale = gpus / share / (1 if weights == "exponent" else given["weight"])
    assert solution.objective == pytest.approx(
        np.exp(p @ np.log(level * scale) / p.sum()), rel=1e-6
    )
    for i, left in enumerate(solution.throughput.values()):
        without = welfare([j for j in range(5) if j != i])[0]
        assert left == pytest.approx(np.exp((best - without) / p[i]), rel=1e-5)


@pytest.mark.parametrize("roomy", [False, True])
@pytest.mark.parametrize("constrained", [False, True])
def test_few_programs_prove_the_discounts_of_many_jobs(
    monkeypatch: pytest.MonkeyPatch, roomy: bool, constrained: bool
) -> None:
    """In a roomy market many jobs run all the time, and the budget binds instead."""
    cp = pytest.importorskip("cvxpy")
    random, n = np.random.default_rng([roomy, constrained]), 200
    rate, gpus = random.lognormal(0, 1, (n, 3)), random.choice([1, 2, 4], n)
    capacity, price = np.array([30, 40, 50]) * (6 if roomy else 1), np.array([3.0, 2.0, 1.0])
    limit = 0.7 * float(capacity @ price)
    pools = [
        {"name": name, "nodes": int(nodes), "gpus_per_node": 1, "cost_per_gpu_hour": cost}
        for name, nodes, cost in zip("abc", capacity, price, strict=True)
    ]
    constraints = [{"kind": "budget", "limit": limit}] if constrained else []

    def welfare(jobs: np.ndarray) -> tuple[float, np.ndarray]:
        x = cp.Variable((len(jobs), 3), nonneg=True)
        level = cp.sum(cp.multiply(rate[jobs], x), axis=1)
        held = gpus[jobs] @ x
        rows = [cp.sum(x, axis=1) <= 1, cp.multiply(1 / capacity, held) <= 1]
        rows += [price @ held / limit <= 1] if constrained else []
        problem = cp.Problem(cp.Maximize(cp.sum(cp.log(level))), rows)
        problem.solve(solver="CLARABEL")
        return float(problem.value), level.value

    programs, solve_directly = [], Engine.solve_directly

    def counted(self: Engine, *arguments: Any) -> Outcome:
        programs.append(arguments)
        return solve_directly(self, *arguments)

    monkeypatch.setattr(Engine, "solve_directly", counted)
    given = {"pools": pools, "throughput": rate, "gpus": gpus}
    solution = solve(given, constraints=constraints, solver="prices")
    assert len(programs) < 50
    everybody, f = np.arange(n), discounts(solution)
    _, level = welfare(everybody)
    for k in random.choice(n, 8, replace=False):
        others = np.delete(everybody, k)
        without, _ = welfare(others)
        expected = np.exp(np.log(level[others]).sum() - without)
        assert f[k] == pytest.approx(expected, abs=1e-5)


def test_only_jobs_that_an_allocation_may_help_are_mixed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With quotas there are as many kinds of jobs as pools times tenants: 14 mixtures of each job
    if all are mixed every time.
    """
    random, n, mixed, greatest = np.random.default_rng(0), 300, [], discounting.greatest

    def counted(gain: np.ndarray, *others: Any) -> np.ndarray:
        mixed.append(len(gain))
        return greatest(gain, *others)

    monkeypatch.setattr(discounting, "greatest", counted)
    given = {
        "pools": {"a": 37, "b": 50, "c": 42},
        "throughput": random.lognormal(0, 1, (n, 3)),
        "gpus": random.choice([1, 2, 4, 8], n),
        "tenant": random.integers(0, 4, n),
        "tenants": [{"name": f"t{row}"} for row in range(4)],
    }
    quotas = [{"kind": "quota", "tenant": f"t{row}", "share": 0.15} for row in range(3)]
    assert discounts(solve(given, constraints=quotas, solver="prices")).max() < 1
    assert sum(mixed) < 8 * n


@pytest.mark.parametrize("seed", range(4))
def test_discounts_are_bounded_and_the_rest_is_feasible(seed: int) -> None:
    """Each job keeps at least 1/e of its part (Cole et al., theorem 3.2, for whole utilities of degree one)."""
    given = data(seed, 8, 3)
    solution = solve(given)
    f = discounts(solution)
    assert (f > np.exp(-1.0)).all() and (f <= 1.0).all()
    C, x = solution.allocation.classes, solution.allocation.x
    assert (C.member @ x <= C.count * (1 + 1e-9)).all() and (
        C.usage @ x <= C.capacity * (1 + 1e-9)
    ).all()
    assert solution.certificate.residuals["rows"] <= 1e-9


def test_who_is_in_nobodys_way_keeps_all() -> None:
    one = solve({"pools": {"a": 4}, "throughput": [[3.0]]})
    assert one.figures == {"discount": {"j0": 1.0}}
    assert one.throughput["j0"] == pytest.approx(3.0, rel=1e-6)
    assert one.objective == pytest.approx(1.0, rel=1e-6)  # of its proportional share
    roomy = solve({"pools": {"a": 4}, "throughput": np.ones((3, 1))})
    assert discounts(roomy) == pytest.approx([1, 1, 1], abs=1e-5)


def test_equal_jobs_on_one_gpu() -> None:
    """n jobs with 1/n each; without one the others have 1/(n - 1): f = ((n - 1) / n)^(n - 1)."""
    for n in (2, 3, 6):
        for classes in (True, False):
            solution = solve({"pools": {"a": 1}, "throughput": np.ones((n, 1))}, classes=classes)
            assert len(solution.allocation.classes) == (1 if classes else n)
            expected = ((n - 1) / n) ** (n - 1)
            assert list(solution.throughput.values()) == pytest.approx([expected / n] * n, rel=1e-6)
            assert discounts(solution) == pytest.approx([expected] * n, abs=LEVELS)


@pytest.mark.parametrize("seed", range(3))
def test_classes_change_nothing(seed: int) -> None:
    given = data(seed, 9, 2, distinct=False)
    for weights in ("ignored", "exponent"):
        merged, single = solve(given, weights=weights), solve(given, weights=weights, classes=False)
        assert len(merged.allocation.classes) < 9
        assert merged.objective == pytest.approx(single.objective, rel=1e-7)
        assert discounts(merged) == pytest.approx(discounts(single), abs=LEVELS)
        assert merged.throughput == pytest.approx(single.throughput, rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_overstating_all_rates_changes_nothing(seed: int) -> None:
    given = data(seed)
    factor = np.ones((4, 1))
    factor[1] = 50.0
    told = given | {"throughput": given["throughput"] * factor}
    first, second = solve(given), solve(told)
    assert discounts(first) == pytest.approx(discounts(second), abs=LEVELS)
    assert optimum(first) * factor.ravel() == pytest.approx(optimum(second), rel=LEVELS)
    assert first.objective == pytest.approx(
        second.objective, rel=1e-7
    )  # levels are relative to what is reported


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.study) for seed in range(10, 20))]
)
def test_nobody_gains_by_misreporting(seed: int) -> None:
    """A job that reports a distorted row never gets more of what it truly values."""
    random = np.random.default_rng(1000 + seed)
    given = data(seed, int(random.integers(2, 5)))
    rate, liar = given["throughput"], int(random.integers(len(given["throughput"])))
    honest = solve(given).throughput[f"j{liar}"]
    for _ in range(3):
        lie = rate.copy()
        lie[liar] *= random.lognormal(0, random.choice([0.1, 1.0, 3.0]), rate.shape[1])
        solution = solve(given | {"throughput": lie})
        truly = sum(
            row["fraction"] * rate[liar, list(given["pools"]).index(row["pool"])]
            for row in solution.allocation.to_records()
            if row["job"] == f"j{liar}"
        )
        assert truly <= honest * (1 + 1e-6) + 1e-6


def test_without_discounts_lies_pay() -> None:
    """Proportional fairness itself is not strategy-proof: a stored example."""
    rate = np.array([[1.0, 0.9], [1.0, 0.1]])
    lie = np.array([[1.0, 2.5], [1.0, 0.1]])
    lie[0] = [1.0, 0.35]

    def truly(reported: np.ndarray, formulation: str) -> float:
        given = Instance.from_arrays(pools={"a": 1, "b": 1}, throughput=reported, gpus=1)
        solution = optsched.solve(given, formulation)
        return sum(
            row["fraction"] * rate[0, "ab".index(row["pool"])]
            for row in solution.allocation.to_records()
            if row["job"] == "j0"
        )

    assert truly(lie, "proportional-fairness") > truly(rate, "proportional-fairness") + 1e-3
    assert truly(lie, "partial-allocation") <= truly(rate, "partial-allocation") + 1e-6


@pytest.mark.parametrize("seed", range(3))
def test_conditions_of_optimality(seed: int) -> None:
    given = data(seed, 6, 3)
    solution = solve(given)
    C, n = solution.allocation.classes, float(len(given["throughput"]))
    worth = solution.objective / n  # prices are those of the geometric mean
    q, time = solution.duals["capacity"], solution.duals["time"]
    assert float(time @ C.count + q @ C.capacity) == pytest.approx(n, rel=1e-5)
    assert list(solution.prices.values()) == pytest.approx((q * worth).tolist())
    level = optimum(solution)[C.first[C.class_a]]
    left, right = C.rate_a / level, C.member.T @ time + C.usage.T @ q
    assert (left <= right * (1 + 1e-4)).all()
    used = solution.allocation.x > 1e-4
    assert left[used] == pytest.approx(right[used], rel=1e-4)


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [pytest.param("ignored", marks=pytest.mark.study), "exponent"])
def test_a_file_holds_what_is_left_and_leads_back_to_the_optimum(weights: str) -> None:
    solution = optsched.solve("@quickstart", "partial-allocation", weights=weights)
    good = solution.to_document()
    report = optsched.verify("@quickstart", good, resolve=True)
    assert report.ok and report.bound == "verified", report
    half = {job: 0.5 * f for job, f in good["figures"]["discount"].items()}
    more = good["allocation"][0] | {"fraction": 1.2 * good["allocation"][0]["fraction"]}
    changes = {
        "objective": {"objective": 1.01 * good["objective"]},
        "bound": {"bound": 1.01 * good["bound"]},
        "figures.discount": {"figures": {"discount": half}},
        "figures": {"figures": {"discount": {job: 0.0 for job in half}}},
        "figures ": {"figures": {}},
        "allocation[0].fraction": {"allocation": [more, *good["allocation"][1:]]},
        "duals": {"duals": None},
        "prices": {"prices": {pool: 2 * price for pool, price in good["prices"].items()}},
    }  # fmt: skip
    for name, change in changes.items():
        report = optsched.verify("@quickstart", good | change)
        assert any(finding.field.startswith(name.strip()) for finding in report.findings), (
            name,
            report,
        )


def test_explained_at_the_optimum() -> None:
    solution = optsched.solve("@quickstart", "partial-allocation")
    told = optsched.explain_job(solution, "resnet-50-1")
    assert told.no_prices is None and told.pays


# --- what is refused -------------------------------------------------------------------------------------------------


def test_what_cannot_be_solved_is_told() -> None:
    with pytest.raises(
        UsageError, match=r"job \S+ .*may share GPUs with job .*; solve it without colocation"
    ):
        optsched.solve("@packing", "partial-allocation")
    with pytest.raises(
        UsageError, match="reduces what every job has, so it cannot keep a minimum: "
    ):
        optsched.solve("@quickstart", "partial-allocation", constraints=["deadlines"])
    with refuses("solver: found highs, expected one with conic", SolverUnavailable):
        optsched.solve("@quickstart", "partial-allocation", solver="highs")
    with refuses('option of partial-allocation: weights: found "both"', UsageError):
        optsched.solve("@quickstart", "partial-allocation", weights="both")


def test_no_job() -> None:
    given = Instance.from_arrays(pools={"a": 1}, throughput=np.zeros((1, 1)))
    solution = optsched.solve(given, "partial-allocation")
    assert solution.objective is None and solution.unplaced
    assert optsched.verify(given, solution.to_document()).ok


def test_a_stopped_run_has_a_point_without_discounts() -> None:
    best = optsched.solve("@quickstart", "partial-allocation")
    solution = optsched.solve("@quickstart", "partial-allocation", work_limit=2)
    assert solution.status == "feasible" and not solution.figures
    assert (
        solution.objective is not None
        and best.objective is not None
        and solution.objective < best.objective
    )
    assert "without discounts" in solution.solver.attempts[-1].outcome
    document = solution.to_document()
    assert optsched.verify("@quickstart", document).ok
    document["status"] = "optimal"
    assert {"status", "figures.discount"} <= {
        item.field for item in optsched.verify("@quickstart", document).findings
    }


def test_an_optimum_whose_discounts_are_not_found_is_feasible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solve_directly, runs = Engine.solve_directly, 0

    def stopped(self: Engine, *arguments: Any) -> Outcome:
        nonlocal runs
        runs += 1
        outcome = solve_directly(self, *arguments)
        return outcome if runs < 3 else nothing_found(self, Values(Termination.TIME_LIMIT))

    best = optsched.solve("@quickstart", "partial-allocation")
    monkeypatch.setattr(Engine, "solve_directly", stopped)
    solution = optsched.solve("@quickstart", "partial-allocation")
    assert (solution.status, solution.termination, solution.reproducible) == (
        "feasible",
        "time_limit",
        False,
    )
    assert (solution.objective, solution.bound) == pytest.approx((best.objective, best.bound))
    assert "1 of 12 were found" in solution.solver.attempts[-1].outcome
    monkeypatch.undo()
    assert optsched.verify("@quickstart", solution.to_document()).ok


@pytest.mark.filterwarnings("error")
def test_a_point_that_gives_some_job_nothing_is_none() -> None:
    """A conic run stopped at its start: the logarithm of 0 has no tangent."""
    stopped = optsched.solve("@large", "alpha-fairness", work_limit=1)
    assert stopped.status == "feasible" and stopped.ok and np.isfinite(stopped.objective)


@pytest.mark.parametrize("weight", [1e6, 1e12])
def test_ignored_weights_never_reach_the_program(weight: float) -> None:
    given = data(3, jobs=6)
    plain = solve({**given, "weight": np.ones(6)})
    extreme = solve({**given, "weight": np.array([weight, 1.0, 1.0, 1 / weight, 1 / weight, 1.0])})
    np.testing.assert_allclose(discounts(extreme), discounts(plain), rtol=LEVELS)
    assert extreme.objective == pytest.approx(plain.objective * weight ** (1 / 6), rel=1e-6)
    assert optsched.verify(extreme.instance, extreme.to_document()).ok
