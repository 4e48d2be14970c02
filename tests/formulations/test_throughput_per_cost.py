"""Throughput per cost: the sum by prices, and the true ratio against Dinkelbach's method with another solver."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize as so
import scipy.sparse as sp
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from formulations.throughput_per_cost import ThroughputPerCost
from optsched import Instance
from optsched.candidates import Classes
from optsched.errors import UsageError
from optsched.formats.mps import allocation_names
from optsched.formulation import SideConstraint
from optsched.program import AllocationProgram, SideRows
from optsched.program.ratio import dual_of
from optsched.registry import load_solver
from optsched.solution import dual_bound
from optsched.solving import Engine

# Private names: the inner steps of an answer are compared with a reference
from optsched.study import explain_job, explanation
from optsched.verify.starts import sol_of

pytestmark = pytest.mark.property

RATIO = {"objective": "ratio"}
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)


def document(
    seed: int, prices: Any = None, jobs: int = 7, slack: float = 3.0, pairs: bool = True
) -> dict[str, Any]:
    """Two or three pools, gangs, pairs of single-GPU jobs, deadlines for some jobs that an equal split about meets."""
    random = np.random.default_rng(seed)
    names = ["a", "b", "c"][: int(random.integers(2, 4))]
    prices = random.uniform(0.2, 5.0, len(names)) if prices is None else prices
    pools = [
        {
            "name": name,
            "nodes": 1,
            "gpus_per_node": int(random.integers(2, 5)),
            "cost_per_gpu_hour": float(price),
        }
        for name, price in zip(names, prices, strict=False)
    ]
    gangs = random.choice([1, 1, 2], jobs)
    rates = random.lognormal(0, 1, (jobs, len(names)))
    due = random.random(jobs) < 0.5
    share = slack * jobs / sum(pool["gpus_per_node"] for pool in pools)
    found = {
        "format": "optsched-instance/1",
        "cluster": {"pools": pools},
        "jobs": [
            {
                "id": f"j{j}", "gpus": int(gangs[j]), "steps": 1000.0,
                "throughput": dict(zip(names, rates[j].tolist(), strict=True)),
                "deadline": float(1000.0 / rates[j].mean() * gangs[j] * share) if due[j] else None,
            }
            for j in range(jobs)
        ],
    }  # fmt: skip
    single = np.flatnonzero(gangs == 1)[:3]
    if pairs and len(single) >= 2:
        first, second = single[:2]
        rate = (0.7 * rates[[first, second], 0]).tolist()
        found["colocation"] = [
            {"jobs": [f"j{first}", f"j{second}"], "pool": "a", "throughput": rate}
        ]
    return found


def solve(given: dict[str, Any], **options: Any) -> optsched.Solution:
    solution = optsched.solve(Instance.from_document(given), "throughput-per-cost", **options)
    assert solution.ok, solution.certificate
    return solution


def program_of(
    solution: optsched.Solution, constraints: tuple[SideConstraint, ...] = ()
) -> AllocationProgram:
    assert solution.allocation is not None
    made = optsched.api.make_formulation(
        "throughput-per-cost", solution.options, [*solution.constraints]
    )
    made.constraints = (*made.constraints, *constraints)
    program = made.program(solution.allocation.classes)
    assert isinstance(program, AllocationProgram)
    return program


def linear(program: AllocationProgram, cost: np.ndarray) -> np.ndarray:
    """Maximise over the rows of a program with scipy."""
    rows = program.requirements
    A, low, high = rows.A.tocsr(), rows.row_lower, rows.row_upper
    up, down = np.isfinite(high), np.isfinite(low)
    found = so.linprog(
        -cost,
        A_ub=sp.vstack([A[up], -A[down]]),
        b_ub=np.concatenate([high[up], -low[down]]),
        method="highs",
    )
    assert found.status == 0, found.message
    return found.x


def dinkelbach(program: AllocationProgram) -> float:
    """Maximise gain x - q spent x, and q = gain x / spent x, until q stays."""
    gain, spent = program.gain, program.utility.denominator
    x = linear(program, gain)
    q = 0.0
    for _ in range(100):
        if spent @ x <= 0:  # nothing beats q
            return q
        new = float(gain @ x / (spent @ x))
        if abs(new - q) <= 1e-13 * new:
            return new
        q, x = new, linear(program, gain - new * spent)
    raise AssertionError("Dinkelbach's method did not end")


# --- the sum -------------------------------------------------------------------------------------------------------


def test_the_sum_by_hand() -> None:
    """A gang of two counts by the price of one GPU: 6 / 2 on a, 4 / 1 on b; single jobs 3 / 2 and 1 / 1."""
    given = instance_document(
        [
            {"name": "a", "nodes": 1, "gpus_per_node": 2, "cost_per_gpu_hour": 2.0},
            {"name": "b", "nodes": 1, "gpus_per_node": 2, "cost_per_gpu_hour": 1.0},
        ],
        [
            {"id": "gang", "gpus": 2, "throughput": {"a": 6.0, "b": 4.0}},
            {"id": "one", "throughput": {"a": 3.0, "b": 1.0}},
            {"id": "two", "throughput": {"a": 3.0, "b": 1.0}},
        ],
    )
    solution = solve(given)
    assert solution.objective == pytest.approx(4.0 + 1.5 + 1.5)
    assert solution.to_document()["figures"]["cost_per_hour"] == pytest.approx(
        {"gang": 2.0, "one": 2.0, "two": 2.0}
    )


@few
@given(seed=seeds)
def test_equal_prices_give_the_optimum_of_max_throughput(seed: int) -> None:
    given = document(seed, prices=[2.5, 2.5, 2.5])
    plain = optsched.solve(Instance.from_document(given), "max-throughput")
    assert solve(given).objective == pytest.approx(plain.objective / 2.5, rel=1e-9)


@pytest.mark.parametrize("options", ({}, RATIO), ids=("sum", "ratio"))
@few
@given(seed=seeds)
def test_loosening_a_deadline_never_lowers_the_objective(
    options: dict[str, str], seed: int
) -> None:
    given = document(seed)
    tight = solve(given, constraints=["deadlines"], **options)
    if tight.status == "infeasible":
        return
    late = next((job for job in given["jobs"] if job["deadline"] is not None), None)
    if late is None:
        return
    late["deadline"] *= 2.0
    loose = solve(given, constraints=["deadlines"], **options)
    assert loose.objective >= tight.objective * (1 - 1e-9)
    free = solve(given, **options)
    assert free.objective >= loose.objective * (1 - 1e-9)


# --- the ratio -----------------------------------------------------------------------------------------------------


@few
@given(seed=seeds)
def test_without_side_constraints_the_best_column_is_the_optimum(seed: int) -> None:
    solution = solve(document(seed), **RATIO)
    program = program_of(solution)
    assert solution.status == "optimal" and solution.certificate.proof == "dual"
    assert solution.objective == pytest.approx(
        (program.gain / program.utility.denominator).max(), rel=1e-9
    )
    assert set(solution.prices.values()) == {0.0}
    C, x = program.classes, solution.allocation.x
    room = np.concatenate([(C.member @ x) / C.count, (C.usage @ x) / C.capacity])
    assert room.max() == pytest.approx(1.0), "as large as time and capacity allow"


def no_solver(name: str) -> Any:
    raise AssertionError(f"solver {name} was loaded")


@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_rows_that_only_limit_need_no_solver(seed: int) -> None:
    """Equal ratios, limits of every size, 0 included, and duals that prove the optimum of the linear program."""
    given = document(seed)
    if seed % 2:  # every job has the same ratio everywhere: all columns tie
        for job in given["jobs"]:
            prices = {pool["name"]: pool["cost_per_gpu_hour"] for pool in given["cluster"]["pools"]}
            job["throughput"] = {name: 3.0 * job["gpus"] * price for name, price in prices.items()}
    problem = Instance.from_document(given)
    candidates = optsched.compile(problem)
    C = candidates.classes(frozenset({"gang"}))
    random = np.random.default_rng(seed)
    matrix = random.random((3, C.columns)) * (random.random((3, C.columns)) < 0.5)
    side = Between(matrix, [-np.inf, -1.0, 0.0], [random.random(), 2.0 * random.random(), 0.0])
    made = ThroughputPerCost(ThroughputPerCost.Options(objective="ratio"), (side,))
    program = made.program(C)
    assert isinstance(program, AllocationProgram)
    if program.utility.closed_form(program) is None:  # the last row leaves nothing to anybody
        assert ((C.usage @ np.ones(C.columns)) > 0).all() and (matrix[2] > 0).all()
        return
    solution = made.solve(candidates, Engine(no_solver))
    assert (solution.solver.name, solution.status, solution.certificate.proof) == (
        "closed form",
        "optimal",
        "dual",
    )
    by_rows = made.solve(candidates, Engine(load_solver, "highs"))
    assert by_rows.solver.name == "highs" and by_rows.status == "optimal"
    assert solution.objective == pytest.approx(by_rows.objective, rel=1e-9)
    x, rows = solution.allocation.x, program.requirements
    ratio = program.gain / program.utility.denominator
    assert (ratio[x > 0] >= solution.objective * (1 - 1e-9)).all()
    room = rows.row_upper - rows.A @ x  # no column of the best ratio has room left
    for column in np.flatnonzero(ratio >= solution.objective * (1 - 1e-13)).tolist():
        uses = rows.A[:, [column]].toarray().ravel()
        assert (room[uses > 0] <= 1e-9 * np.maximum(rows.row_upper[uses > 0], 1.0)).any()


@pytest.mark.unit
def test_the_best_ratio_of_a_file_is_verified() -> None:
    problem = Instance.from_document(document(3))
    solution = optsched.solve(
        problem, "throughput-per-cost", constraints=[{"kind": "budget", "limit": 1.0}], **RATIO
    )
    assert solution.solver.name == "closed form" and solution.metrics["cost_per_hour"] <= 1.0 + 1e-9
    answer = solution.to_document()
    assert optsched.verify(problem, answer, resolve=True).ok
    assert not optsched.verify(problem, answer | {"objective": 2.0 * answer["objective"]}).ok


def test_a_small_allocation_is_raised_as_far_as_rows_allow() -> None:
    """A third of the optimum has its ratio; a row that asks for at least or exactly 0 stops nothing."""
    solution = solve(document(4), **RATIO)
    x = solution.allocation.x
    columns = len(x)
    rows = Between(
        np.vstack([np.ones(columns), np.zeros(columns)]), [0.0, 0.0], [0.5 * x.sum(), 0.0]
    )
    for constraints, factor in (((), 1.0), ((rows,), 0.5)):
        program = program_of(solution, constraints)
        raised = program.allocation_of(program.complete(x / 3))
        np.testing.assert_allclose(raised, factor * x, rtol=1e-12)
    assert not program.allocation_of(np.zeros(columns + 1)).any()
    for wrong in (np.zeros(columns), np.append(x, np.nan)):  # the engine refuses NaN
        assert np.isnan(program.allocation_of(wrong)).all()


@few
@given(seed=seeds)
def test_wrong_duals_are_moved_to_where_they_prove_most(seed: int) -> None:
    solution = solve(document(seed), constraints=["deadlines"], tolerance=1e-9, **RATIO)
    if solution.status == "infeasible":
        return
    arrays = program_of(solution).to_linear().arrays
    random = np.random.default_rng(seed)
    y = np.concatenate([solution.duals[block.name] for block in arrays.rows])
    noisy = y + 1e-5 * np.abs(y).max() * random.normal(size=len(y))
    moved = program_of(solution).polished(arrays, noisy)
    bound = dual_bound(arrays, moved)
    assert solution.objective * (1 - 1e-9) <= bound <= dual_bound(arrays, noisy) * (1 + 1e-12)
    assert bound <= solution.objective * 1.01


@pytest.mark.parametrize("solver", ("highs", "highs-ipm", "clarabel", "glop"))
@settings(max_examples=8, deadline=None)
@given(seed=seeds)
def test_with_deadlines_it_is_what_dinkelbach_finds(solver: str, seed: int) -> None:
    solution = solve(
        document(seed), solver=solver, constraints=["deadlines"], tolerance=1e-9, **RATIO
    )
    if solution.status == "infeasible":
        assert solution.conflicts and solution.certificate.proof == "dual"
        return
    assert solution.status == "optimal" and solution.certificate.proof == "dual"
    assert solution.objective == pytest.approx(dinkelbach(program_of(solution)), rel=1e-6)
    C, x = solution.allocation.classes, solution.allocation.x
    spent = C.configurations.cost_per_hour(C.instance.cluster)[C.configuration] @ x
    assert solution.objective == pytest.approx(sum(solution.throughput.values()) / spent, rel=1e-9)
    assert sum(solution.to_document()["figures"]["cost_per_hour"].values()) == pytest.approx(spent)
    program = program_of(solution)
    arrays = program.to_linear().arrays
    assert np.isfinite(arrays.implied_upper).all()
    assert (program.complete(x) <= arrays.implied_upper * (1 + 1e-9)).all(), (
        "what the certificate takes for granted"
    )
    jobwise = solve(
        document(seed),
        solver=solver,
        constraints=["deadlines"],
        tolerance=1e-9,
        classes=False,
        **RATIO,
    )
    assert jobwise.objective == pytest.approx(solution.objective, rel=1e-6)


class Between(SideConstraint):
    """Spending and GPU time of a pool between two sides, and an equality: all forms of rows."""

    kind = "between"

    def __init__(self, matrix: sp.csr_matrix, lower: Any, upper: Any) -> None:
        super().__init__(self.Options())
        self.matrix, self.lower, self.upper = (
            sp.csr_matrix(matrix),
            np.array(lower, float),
            np.array(upper, float),
        )

    def rows(self, C: Classes) -> SideRows:
        return SideRows(
            "between", self.matrix, self.lower, self.upper, lambda row: f"between {row}"
        )


@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_rows_with_two_sides_equalities_and_negative_sides(seed: int) -> None:
    problem = Instance.from_document(document(seed))
    candidates = optsched.compile(problem)
    C = candidates.classes(frozenset({"gang"}))
    random = np.random.default_rng(seed)
    inside = linear(
        AllocationProgram(C, ThroughputPerCost().build(C).utility, C.throughput),
        random.random(C.columns),
    )
    matrix = np.vstack(
        [
            C.gpus * 1.0,
            random.random(C.columns),
            -random.random(C.columns),
            random.normal(size=C.columns),
        ]
    )
    at = matrix @ (0.7 * inside)
    side = Between(
        matrix,
        [0.9 * at[0], at[1], -np.inf, at[3] - 0.5],
        [1.1 * at[0], at[1], 0.8 * at[2], at[3] + 0.5],
    )
    made = ThroughputPerCost(ThroughputPerCost.Options(objective="ratio"), (side,))
    solution = made.solve(candidates, Engine(load_solver))
    assert solution.status == "optimal" and solution.ok, solution.certificate
    program = made.program(C)
    assert solution.objective == pytest.approx(dinkelbach(program), rel=1e-7)
    combined = dual_of(solution.duals, "between", side.lower, side.upper)
    assert combined.shape == (4,) and "between:upper" in solution.duals


def test_prices_are_derivatives() -> None:
    """Against differences of the optimum, where both pools are full of jobs that have to keep their deadlines."""
    given = document(6, jobs=9, slack=1.0)
    solution = solve(given, constraints=["deadlines"], tolerance=1e-10, **RATIO)
    paid = {name: price for name, price in solution.prices.items() if price > 1e-6}
    assert solution.status == "optimal" and paid
    program = program_of(solution)
    names = list(program.classes.resources.names)
    for name, price in paid.items():
        values = []
        for step in (-1e-4, 1e-4):
            rows = program.requirements
            limit = rows.row_upper.copy()
            limit[rows.row_block("capacity").start + names.index(name)] += step
            moved = AllocationProgram(
                program.classes, program.utility, program.levels, program.side
            )
            object.__setattr__(moved, "requirements", replace(rows, row_upper=limit))
            values.append(dinkelbach(moved))
        assert price == pytest.approx((values[1] - values[0]) / 2e-4, rel=1e-3)


def test_explanations_of_a_ratio() -> None:
    given = document(6, jobs=9, slack=1.0)
    solution = solve(given, constraints=["deadlines"], **RATIO)
    told = explanation(solution)
    assert told["requirements"] and all(item["worth"] > 0 for item in told["requirements"])
    for job in given["jobs"]:
        explained = explain_job(solution, job["id"])
        assert explained.no_prices is None
        for way in explained.ways:
            assert way.gain == pytest.approx(0.0, abs=1e-9) if way.in_use else way.gain <= 1e-9


def test_the_gain_of_a_column_is_a_derivative() -> None:
    """Push 1e-4 of a job into a column that it does not use: the optimum falls by its reduced cost."""
    given = document(6, jobs=9, slack=1.0)
    solution = solve(given, constraints=["deadlines"], tolerance=1e-10, **RATIO)
    program = program_of(solution)
    unused = [
        way
        for job in given["jobs"]
        for way in explain_job(solution, job["id"]).ways
        if not way.in_use
    ]
    way = min(unused, key=lambda way: way.gain)
    rows, step = program.requirements, 1e-5
    pushed = np.zeros(rows.shape[1])
    pushed[way.column] = step
    moved = replace(
        rows, row_upper=rows.row_upper - rows.A @ pushed, row_lower=rows.row_lower - rows.A @ pushed
    )
    shifted = AllocationProgram(program.classes, program.utility, program.levels, program.side)
    object.__setattr__(shifted, "requirements", moved)
    gain, spent, q = program.gain, program.utility.denominator, solution.objective
    for _ in range(50):
        x = linear(shifted, gain - q * spent) + pushed
        q = float(gain @ x / (spent @ x))
    assert (q - solution.objective) / step == pytest.approx(way.gain, rel=1e-3)


# --- what passes on ------------------------------------------------------------------------------------------------


def test_a_file_is_verified_and_a_wrong_one_refused(tmp_path: Path) -> None:
    given = document(6, jobs=9, slack=1.0)
    problem = Instance.from_document(given)
    solution = solve(given, constraints=["deadlines"], **RATIO)
    answer = solution.to_document()
    assert optsched.verify(problem, answer).ok
    assert optsched.verify(problem, answer, resolve=True).ok
    for name, value in (
        ("objective", answer["objective"] * 1.01),
        ("bound", answer["bound"] * 0.9),
    ):
        assert any(
            name in str(finding)
            for finding in optsched.verify(problem, answer | {name: value}).findings
        )
    price = next(name for name, value in answer["prices"].items() if value > 1e-6)
    wrong = answer | {"prices": answer["prices"] | {price: answer["prices"][price] * 2}}
    assert any("prices" in str(finding) for finding in optsched.verify(problem, wrong).findings)


def test_the_exported_program_is_the_homogenised_one(tmp_path: Path) -> None:
    problem = Instance.from_document(document(6, jobs=9, slack=1.0))
    solution = optsched.solve(problem, "throughput-per-cost", constraints=["deadlines"], **RATIO)
    program = program_of(solution)
    names = allocation_names(program, program.to_linear().arrays)
    assert names.columns[-1] == "tau" and names.columns[0] == "y_0" and "spending" in names.rows
    (tmp_path / "point.sol").write_bytes(sol_of(solution))
    again = optsched.solve(
        problem,
        "throughput-per-cost",
        constraints=["deadlines"],
        start=tmp_path / "point.sol",
        **RATIO,
    )
    assert again.objective == pytest.approx(solution.objective, rel=1e-9)


def test_rows_of_one_s_own() -> None:
    given = document(3)

    def most(lp: Any, variables: Any, C: Classes) -> None:
        lp.constrain(np.ones((1, C.columns)) @ variables["x"] >= 2.0, name="two-jobs")

    solution = solve(given, extend=most, **RATIO)
    assert solution.allocation.x.sum() >= 2.0 - 1e-9
    assert solution.objective < solve(given, **RATIO).objective

    def columns(lp: Any, variables: Any, C: Classes) -> None:
        lp.variables(1, name="z")

    with pytest.raises(
        UsageError, match="extend may add rows over x, and neither columns nor an objective"
    ):
        solve(given, extend=columns, **RATIO)


def test_extreme_prices_and_rates() -> None:
    """Units do not matter: rates by 1e-9, prices by 1e6."""
    given = document(5, slack=4.0)
    usual = solve(given, constraints=["deadlines"], **RATIO)
    for pool in given["cluster"]["pools"]:
        pool["cost_per_gpu_hour"] *= 1e6
    for job in given["jobs"]:
        job["throughput"] = {pool: rate * 1e-9 for pool, rate in job["throughput"].items()}
        job["steps"] *= 1e-9
    for entry in given["colocation"]:
        entry["throughput"] = [rate * 1e-9 for rate in entry["throughput"]]
    scaled = solve(given, constraints=["deadlines"], **RATIO)
    assert usual.status == scaled.status == "optimal"
    assert scaled.objective == pytest.approx(usual.objective * 1e-15, rel=1e-9)


# --- refusals ------------------------------------------------------------------------------------------------------


def two_pools(**prices: float | None) -> dict[str, Any]:
    """A job that runs on both pools; "due" only keeps its deadline on paid."""
    return instance_document(
        [
            {"name": name, "nodes": 1, "gpus_per_node": 1}
            | ({} if price is None else {"cost_per_gpu_hour": price})
            for name, price in prices.items()
        ],
        [
            {"id": "any", "steps": 100, "throughput": dict.fromkeys(prices, 1.0)},
            {"id": "due", "steps": 100, "deadline": 100.0, "throughput": {next(iter(prices)): 1.0}},
        ],
    )


@pytest.mark.parametrize("options", ({}, RATIO), ids=("sum", "ratio"))
def test_a_pool_without_a_price_is_named(options: dict[str, str]) -> None:
    with refuses(
        "cluster.pools[1].cost_per_gpu_hour: found none (pool 'gift'), "
        "expected a price, as throughput-per-cost divides by it"
    ):
        solve(two_pools(paid=1.0, gift=None), **options)


def test_a_pool_without_a_price_that_nobody_uses_is_no_matter() -> None:
    given = two_pools(paid=1.0, gift=None)
    given["jobs"] = given["jobs"][1:]
    assert solve(given).objective == pytest.approx(1.0)


@pytest.mark.parametrize("options", ({}, RATIO), ids=("sum", "ratio"))
def test_work_for_nothing_is_refused(options: dict[str, str]) -> None:
    objective = options.get("objective", "sum")
    with refuses(
        "cluster.pools[1].cost_per_gpu_hour: found 0, expected a price above 0, "
        f"as throughput-per-cost ({objective}) has no bound where work is free"
    ):
        solve(two_pools(paid=1.0, gift=0.0), **options)


def test_a_free_pool_is_taken_where_deadlines_force_a_cost() -> None:
    """1 on paid is needed and costs 2; the other job adds 1 for nothing."""
    solution = solve(two_pools(paid=2.0, gift=0.0), constraints=["deadlines"], **RATIO)
    assert solution.status == "optimal" and solution.certificate.proof == "dual"
    assert solution.objective == pytest.approx(1.0)
    assert optsched.verify(solution.instance, solution.to_document()).ok


def test_a_free_pool_that_nobody_may_use_is_no_matter() -> None:
    candidates = optsched.compile(Instance.from_document(two_pools(paid=2.0, gift=0.0)))
    C = candidates.classes(frozenset({"gang"}))
    side = Between((C.pool == 1)[np.newaxis, :] * 1.0, [0.0], [0.0])
    made = ThroughputPerCost(ThroughputPerCost.Options(objective="ratio"), (side,))
    solution = made.solve(candidates, Engine(load_solver))
    assert solution.status == "optimal" and solution.objective == pytest.approx(0.5)


def test_options_without_a_pool_are_refused() -> None:
    given = two_pools(paid=1.0, other=1.0)
    given["jobs"].append(
        {"id": "loose", "steps": 10, "options": [{"pool": None, "throughput": 2.0, "uses": {}}]}
    )
    with refuses("jobs[2].options: found no pool (job 'loose'), expected a pool with..."):
        solve(given)


def test_where_nothing_may_run_there_is_no_ratio() -> None:
    candidates = optsched.compile(Instance.from_document(two_pools(paid=1.0, other=1.0)))
    columns = candidates.classes(frozenset({"gang"})).columns
    side = Between(np.ones((1, columns)), [-np.inf], [0.0])
    made = ThroughputPerCost(ThroughputPerCost.Options(objective="ratio"), (side,))
    with pytest.raises(UsageError, match="a ratio to a cost of 0 does not exist"):
        made.solve(candidates, Engine(load_solver))


def test_deadlines_that_cannot_be_kept_are_told() -> None:
    given = two_pools(paid=1.0, other=1.0)
    given["jobs"].append(given["jobs"][1] | {"id": "too"})
    solution = solve(given, constraints=["deadlines"], **RATIO)
    assert solution.status == "infeasible" and solution.certificate.proof == "dual"
    words = " | ".join(conflict.words for conflict in solution.conflicts)
    assert (
        "needs 0.0278 GPU h of paid each by 100 s" in words
        and "pool paid has 1 usable GPU" in words
    )
    assert optsched.verify(solution.instance, solution.to_document()).ok


def test_an_unknown_objective_is_refused() -> None:
    with refuses('option of throughput-per-cost: objective: found "mean"', UsageError):
        solve(two_pools(paid=1.0), objective="mean")


def test_nobody_to_run() -> None:
    given = two_pools(paid=1.0)
    for job in given["jobs"]:
        job["steps_done"] = 100
    assert solve(given).objective == 0.0
    assert solve(given, **RATIO).objective is None
