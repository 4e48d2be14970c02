"""The multiple-choice knapsack: brute force, its relaxation, dominated columns, values of generated columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from beside import SHARED, needs
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import optsched
from formulations import dominance
from formulations.dominance import dominated
from optsched import Instance, Solution
from optsched.candidates import Drop
from optsched.errors import UsageError

pytestmark = pytest.mark.property

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=15, deadline=None)


def document(
    seed: int, jobs: int = 5, ways: int = 4, resources: int = 2, integers: bool = False
) -> dict[str, Any]:
    """Jobs with options that use GPUs of a pool, CPUs, renewable and consumable resources; some are repeated."""
    random = np.random.default_rng(seed)
    names = [f"r{row}" for row in range(resources)]

    def option() -> dict[str, Any]:
        uses = {name: float(random.integers(0, 5)) for name in names if random.random() < 0.8}
        value = float(random.integers(-1, 12)) if integers else float(random.uniform(-1, 10))
        way: dict[str, Any] = {"uses": uses, "value": value}
        if random.random() < 0.4:
            way |= {"pool": "g", "gpus": int(random.integers(1, 4)), "duration": 5.0}
            uses["cpu"] = float(random.integers(0, 4))
        elif random.random() < 0.3:
            way["throughput"] = 0.0
        return way

    lists = [[option() for _ in range(int(random.integers(1, ways + 1)))] for _ in range(jobs)]
    lists[-1] = lists[0]
    kinds = ["renewable", "consumable"]
    return instance_document(
        [{"name": "g", "nodes": 2, "gpus_per_node": 2, "cpus_per_node": 3}],
        [
            {"id": f"j{row}", "options": options, "weight": float(random.choice([1, 3]))}
            for row, options in enumerate(lists)
        ],
        resources=[
            {"name": name, "kind": kinds[row % 2], "capacity": float(random.integers(3, 12))}
            for row, name in enumerate(names)
        ],
    )


def best_value(given: dict[str, Any]) -> float:
    """The optimum by trying all choices."""
    capacity = {"g": 4.0, "cpu": 6.0} | {
        item["name"]: item["capacity"] for item in given["cluster"]["resources"]
    }
    best = 0.0
    for choice in product(*([None, *job["options"]] for job in given["jobs"])):
        taken = [option for option in choice if option is not None]
        use = dict.fromkeys(capacity, 0.0)
        for option in taken:
            use["g"] += option.get("gpus", 0)
            for name, amount in option["uses"].items():
                use[name] += amount
        if all(use[name] <= capacity[name] for name in capacity):
            best = max(best, sum(option["value"] for option in taken))
    return best


def solve(instance: Instance | dict[str, Any], **options: Any) -> Solution:
    instance = Instance.from_document(instance) if isinstance(instance, dict) else instance
    solution = optsched.solve(instance, "multiple-choice", **options)
    assert solution.ok and solution.status == "optimal", solution.certificate
    return solution


@few
@given(seed=seeds)
def test_brute_force(seed: int) -> None:
    case = document(seed)
    solution = solve(case)
    assert solution.objective == pytest.approx(best_value(case), rel=1e-9, abs=1e-9)
    assert solve(case, prune=False).objective == pytest.approx(
        solution.objective, rel=1e-9, abs=1e-9
    )
    assert solve(case, classes=False).objective == pytest.approx(
        solution.objective, rel=1e-9, abs=1e-9
    )
    assert optsched.verify(solution.instance, solution.to_document()).ok
    runs = [row["job"] for row in solution.allocation.to_records()]
    assert len(runs) == len(set(runs))


@pytest.mark.parametrize("seed", range(4))
def test_solvers_agree(seed: int) -> None:
    case = document(seed, jobs=8, integers=True)
    values = {
        solver: solve(case, solver=solver).objective
        for solver in ("highs", "scip", "cbc", "cp-sat")
    }
    assert len({round(value, 6) for value in values.values()}) == 1, values


@few
@given(seed=seeds)
def test_the_relaxation_has_few_fractional_classes(seed: int) -> None:
    """A vertex: at most as many classes with a fractional choice as there are full resources; and it is a bound."""
    case = document(seed, jobs=12, resources=3)
    relaxed, whole = solve(case, relax=True), solve(case)
    assert relaxed.objective >= whole.objective - 1e-9
    C, x = relaxed.allocation.classes, relaxed.allocation.x
    fractional = np.unique(C.class_a[np.abs(x - np.round(x)) > 1e-7])
    full = relaxed.allocation.usage >= C.capacity * (1 - 1e-9)
    assert len(fractional) <= full.sum()
    assert relaxed.certificate.proof == "dual"
    rounded = float(
        sum(
            solve_value(C, column) * count
            for column, count in enumerate(np.floor(x + 1e-9))
            if count
        )
    )
    assert rounded <= whole.objective + 1e-9


def solve_value(C: Any, column: int) -> float:
    return float(C.candidates.columns.value[C.kind_column[column]])


@few
@given(seed=seeds)
def test_more_capacity_and_more_ways_never_hurt(seed: int) -> None:
    case = document(seed)
    value = solve(case).objective
    more = document(seed)
    for resource in more["cluster"]["resources"]:
        resource["capacity"] += 1
    assert solve(more).objective >= value - 1e-9
    other = document(seed)
    other["jobs"][0]["options"] = [*other["jobs"][0]["options"], {"value": 1.0, "uses": {"r0": 1}}]
    assert solve(other).objective >= value - 1e-9


def test_without_limits_every_job_has_its_best_way() -> None:
    case = document(3)
    for resource in case["cluster"]["resources"]:
        resource["capacity"] = 1e6
    case["cluster"]["pools"][0] |= {"nodes": 1000}
    best = sum(max(0.0, *(option["value"] for option in job["options"])) for job in case["jobs"])
    assert solve(case).objective == pytest.approx(best)


def test_a_plain_item_needs_no_rate() -> None:
    """Values 6, 5, 5 of sizes 3, 2, 2 in a knapsack of 4; a rate of 0 makes no difference."""
    items = [(6, 3, {}), (5, 2, {"throughput": 0.0}), (5, 2, {"throughput": 1.0})]
    case = document(0) | {
        "jobs": [
            {"id": f"j{row}", "options": [{"value": value, "uses": {"r0": size}} | more]}
            for row, (value, size, more) in enumerate(items)
        ]
    }
    case["cluster"]["resources"][0]["capacity"] = 4
    solution = solve(case)
    assert solution.objective == 10 and not solution.unplaced
    assert [row["job"] for row in solution.allocation.to_records()] == ["j1", "j2"]
    assert optsched.verify(solution.instance, solution.to_document()).ok
    assert optsched.solve(solution.instance, "max-throughput").unplaced == (
        ("j1", "can run nowhere: without a pool: rate 0"),
    )


# --- values of generated columns -----------------------------------------------------------------------------------


def rates() -> Instance:
    return Instance.from_arrays(
        pools={"fast": 2, "slow": 3},
        throughput=[[8.0, 4.0], [6.0, 1.0], [0.0, 5.0]],
        gpus=[1, 2, 3],
        weight=[1, 2, 4],
    )


@pytest.mark.parametrize(
    ("generated", "value"),
    # relative rate: either b (2) or a (1) on fast, c (4) or a (0.5) on slow; rate: b 12, c 20
    [("relative-rate", 6.0), ("rate", 32.0), ("weight", 6.0)],
)
def test_values_of_generated_columns(generated: str, value: float) -> None:
    solution = solve(rates(), generated=generated)
    assert solution.objective == pytest.approx(value)
    assert [row["job"] for row in solution.allocation.to_records()] == ["j1", "j2"]
    assert solve(rates(), generated=generated, prune=False).objective == pytest.approx(value)


def packed(first: float, second: float) -> Instance:
    return Instance.from_document(
        instance_document(
            {"g": 1},
            [
                {"id": "b", "workload": "B", "weight": 3},
                {"id": "a", "workload": "A", "weight": 2},
            ],
            throughputs={"A": {"g": 10.0}, "B": {"g": 4.0}},
            colocation=[{"workloads": ["A", "B"], "pool": "g", "throughput": [first, second]}],
        )
    )


@pytest.mark.parametrize(
    ("generated", "value"),
    [("relative-rate", 2 * 0.7 + 3 * 0.8), ("rate", 2 * 7 + 3 * 3.2), ("weight", 5)],
)
def test_a_pair_is_worth_both_of_its_jobs(generated: str, value: float) -> None:
    solution = solve(packed(7.0, 3.2), generated=generated)
    assert solution.objective == pytest.approx(value)
    (row,) = solution.allocation.to_records()
    assert set(row["jobs"]) == {"a", "b"}
    assert optsched.verify(solution.instance, solution.to_document()).ok


def test_classes_of_a_pair_need_not_be_in_the_order_of_their_kinds() -> None:
    """A third job, like the first but for its weight, comes after the second: with that one it is worth most."""
    document = packed(7.0, 3.2).to_document()
    document["jobs"].append({"id": "late", "workload": "B", "weight": 5})
    solution = solve(document)
    assert solution.objective == pytest.approx(2 * 0.7 + 5 * 0.8)
    (row,) = solution.allocation.to_records()
    assert set(row["jobs"]) == {"a", "late"}


def test_a_bad_pair_is_not_chosen() -> None:
    solution = solve(packed(1.0, 0.4))
    assert [row.get("job") for row in solution.allocation.to_records()] == ["b"]


def test_an_unknown_value() -> None:
    with refuses('generated: found "speed"', UsageError):
        solve(rates(), generated="speed")


def test_deadlines_are_kept_although_nothing_is_pruned() -> None:
    """The slow way is worth as much and needs less, so that it would dominate the fast one."""
    ways = [
        {"uses": {"r0": 1}, "duration": 100, "value": 5},
        {"uses": {"r0": 2}, "duration": 10, "value": 5},
    ]
    case = document(0) | {"jobs": [{"id": "a", "options": ways, "deadline": 50}]}
    assert solve(case).allocation.to_records()[0]["option"] == 0
    solution = solve(case, constraints=["deadlines"])
    assert solution.allocation.to_records()[0]["option"] == 1
    assert optsched.verify(solution.instance, solution.to_document()).ok


# --- dominated columns -----------------------------------------------------------------------------------------------


def pairwise(owner: np.ndarray, value: np.ndarray, use: np.ndarray) -> list[bool]:
    """By comparing all pairs; of equal columns the first stays."""
    count = len(owner)

    def beats(i: int, j: int) -> bool:
        if owner[i] != owner[j] or value[i] < value[j] or (use[:, i] > use[:, j]).any():
            return False
        equal = value[i] == value[j] and (use[:, i] == use[:, j]).all()
        return not equal or i < j

    return [any(beats(i, j) for i in range(count) if i != j) for j in range(count)]


@settings(max_examples=100, deadline=None)
@given(seed=seeds)
def test_dominated_columns(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(0, 25))
    owner, value = random.integers(0, 4, count), random.integers(0, 5, count).astype(float)
    use = random.integers(0, 4, (3, count)).astype(float)
    found = dominated(owner, value, sp.csr_matrix(use), np.ones(count, bool))
    assert found.tolist() == pairwise(owner, value, use)
    eligible = random.random(count) < 0.7
    part = dominated(owner, value, sp.csr_matrix(use), eligible)
    assert not part[~eligible].any()
    assert part[eligible].tolist() == pairwise(owner[eligible], value[eligible], use[:, eligible])


def test_pruning_may_stop_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dominance, "COMPARED", 1)
    owner, value = np.zeros(5, np.int64), np.array([5.0, 4, 3, 2, 1])
    use = sp.csr_matrix([[2.0, 3, 1, 1, 0]])
    assert dominated(owner, value, use, np.ones(5, bool)).tolist() == [
        False,
        True,
        False,
        False,
        False,
    ]


def test_pruned_columns_are_remembered() -> None:
    solution = solve(optsched.load("@smd"))
    candidates = solution.candidates
    assert Drop.DOMINATED in set(candidates.dropped.drop.tolist())
    whole = optsched.compile(candidates.instance)
    assert len(candidates.columns) + len(candidates.dropped) == len(whole.columns) + len(
        whole.dropped
    )


# --- the benchmark of Chu and Beasley --------------------------------------------------------------------------------

ORLIB = SHARED / "data" / "orlib" / "mkp"
beside = needs(ORLIB)


def chu_beasley(file: str) -> Iterator[Instance]:
    """Multi-dimensional knapsacks, one item a job with one option."""
    numbers = iter((ORLIB / file).read_text().split())
    for _ in range(int(next(numbers))):
        items, rows, _ = int(next(numbers)), int(next(numbers)), next(numbers)
        values = [float(next(numbers)) for _ in range(items)]
        sizes = [[float(next(numbers)) for _ in range(items)] for _ in range(rows)]
        yield Instance.from_document(
            instance_document(
                {"none": (0, 1)},
                [
                    {
                        "id": f"item{item}",
                        "options": [
                            {
                                "value": value,
                                "uses": {f"r{row}": sizes[row][item] for row in range(rows)},
                            }
                        ],
                    }
                    for item, value in enumerate(values)
                ],
                resources=[
                    {"name": f"r{row}", "capacity": float(next(numbers))} for row in range(rows)
                ],
            )
        )


def published() -> tuple[list[float], list[float]]:
    """Best values (of 100 items and 5 rows: optima) and values of the linear relaxation."""
    lines = [line.split() for line in (ORLIB / "best-feasible-slns.txt").read_text().splitlines()]
    found = [float(line[1]) for line in lines if line and line[0].startswith("5.100-")]
    return found[: len(found) // 2], found[len(found) // 2 :]


@beside
def test_relaxations_of_chu_and_beasley() -> None:
    best, relaxed = published()
    for instance, least, value in zip(chu_beasley("mknapcb1.txt"), best, relaxed, strict=True):
        solution = solve(instance, relax=True)
        assert solution.objective == pytest.approx(value, rel=1e-10)
        x = solution.allocation.x
        assert (np.abs(x - np.round(x)) > 1e-7).sum() <= 5
        assert solution.objective > least


@beside
@pytest.mark.study
def test_optima_of_chu_and_beasley() -> None:
    best, _ = published()
    for _, instance, value in zip(range(2), chu_beasley("mknapcb1.txt"), best, strict=False):
        assert solve(instance).objective == value
