"""Patterns: the share that is realised is the largest there is, by enumeration of all sets of rows that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from documents import instance_document
from rounds_cases import allocation, cut, largest_share, of_instance

import optsched
from optsched import Instance
from optsched.errors import SolverCrashed, UsageError
from optsched.placement import Instant, realise

# Private names: single searches and bounds, without the choice among them
from optsched.placement.patterns import Items, shortest, spread
from optsched.registry import load_solver
from optsched.solution import Allocation
from optsched.solvers import Limits, Session
from optsched.solving import Engine

pytestmark = pytest.mark.property


def small(seed: int) -> Instance:
    """Gangs, pairs (of one class too), CPUs that can be scarce: few enough rows to enumerate all patterns."""
    random = np.random.default_rng(seed)
    jobs, pools = int(random.integers(2, 7)), int(random.integers(1, 3))
    names = [f"p{j}" for j in range(pools)]
    workloads = {
        f"w{k}": {
            "throughput": {name: {str(size): float(random.lognormal()) for size in (1, 2, 3, 4)} for name in names},
            "demand": {"cpu": float(random.integers(0, 4))},
        }
        for k in range(3)
    }  # fmt: skip
    together = [
        {
            "workloads": ["w0", "w1"],
            "pool": "p0",
            "gpus": size,
            "throughput": random.lognormal(0, 1, 2).tolist(),
        }
        for size in (1, 2)
    ]
    return Instance.from_arrays(
        pools=[
            {
                "name": name,
                "nodes": 1,
                "gpus_per_node": int(random.integers(4, 7)),
                "cpus_per_node": int(random.integers(6, 12)),
            }
            for name in names
        ],
        workloads=workloads,
        workload=random.integers(0, 3, jobs),
        gpus=random.choice([1, 1, 2, 3, 4], jobs),
        weight=random.choice([1.0, 2.0], jobs),
        steps=100.0,
        colocation=[
            *together,
            {"workloads": ["w2", "w2"], "pool": "p0", "gpus": 1, "throughput": [1.1, 1.1]},
        ],
    )


def solved(seed: int) -> Allocation:
    formulation = ("max-min-fairness", "makespan", "proportional-fairness")[seed % 3]
    made = optsched.solve(small(seed), formulation).allocation
    assert made is not None
    return made


@pytest.mark.parametrize(
    "part", [0, 1, *(pytest.param(part, marks=pytest.mark.study) for part in (2, 3))]
)
def test_the_share_is_the_largest_there_is(part: int) -> None:
    below = 0
    for seed in range(15 * part, 15 * part + 15):
        made = solved(seed)
        best = largest_share(made)
        for method in ("patterns", "auto"):
            rounds = cut(made, method)
            assert rounds.scale == pytest.approx(best, abs=1e-8), (seed, method)
            assert rounds.bound == pytest.approx(best, abs=1e-8) and rounds.finished
        below += best < 1 - 1e-6
    assert below > 3  # the relaxation is one


def test_the_relaxation_of_gangs_is_one() -> None:
    """On 4 GPUs a gang of 4 for 1/2 and one GPU for 1 use 3 GPUs' time, but cannot overlap: 2/3 of both is the most."""
    made = allocation(
        {("j0", "g"): 0.5, ("j1", "g"): 1.0},
        pools={"g": 4},
        throughput=np.ones((2, 1)),
        gpus=[4, 1],
    )
    assert (made.usage <= made.classes.capacity).all()
    rounds = cut(made)
    assert rounds.method == "patterns" and rounds.finished
    assert rounds.scale == pytest.approx(2 / 3, abs=1e-12) and rounds.bound == pytest.approx(
        2 / 3, abs=1e-9
    )
    assert sorted(rounds.length.tolist()) == pytest.approx([1 / 3, 2 / 3], abs=1e-12)


def test_equal_jobs_are_counted_together_and_go_round() -> None:
    """5 gangs of 2 with two pools each, equal to the last bit, and 3 gangs of 3: rows again, each gets its share."""
    gpus = np.repeat([2, 3], [5, 3])
    fractions = {(f"j{i}", "a"): 0.4 for i in range(5)} | {(f"j{i}", "b"): 0.3 for i in range(5)}
    fractions |= {(f"j{i}", "b"): 0.7 for i in range(5, 8)}
    made = allocation(fractions, pools={"a": 5, "b": 7}, throughput=np.ones((8, 2)), gpus=gpus)
    instant = Instant.of(made.classes, made.rows)
    items = Items.of(instant)
    assert items.count.tolist() == [5, 3] and len(items) == 3
    assert sorted(items.need) == pytest.approx([1.5, 2.0, 2.1])
    packing = shortest(items, Engine(load_solver))
    for limits in (
        Limits(),
        Limits(work=1),
    ):  # a vertex; and what is done where none is found in time
        length, runs = spread(
            items, packing.lengths, packing.counts, Engine(load_solver, "highs", limits)
        )
        received = runs.T @ length
        assert length.sum() == pytest.approx(packing.lengths.sum(), abs=1e-9)
        for item, rows in enumerate(items.rows):
            assert received[rows] == pytest.approx(
                (packing.counts[:, item] @ packing.lengths) / len(rows), abs=1e-9
            )
        for number in range(len(length)):
            run = runs.indices[runs.indptr[number] : runs.indptr[number + 1]]
            assert len(np.unique(made.rows.job[run])) == len(run)
            assert (instant.usage[:, run].sum(axis=1) <= 1 + 1e-9).all()
    rounds = cut(made, "patterns")
    assert rounds.scale == pytest.approx(largest_share(made), abs=1e-8)
    assert len(rounds) <= 2 * len(made.rows)  # not one for each turn of each group


def test_equal_jobs_kept_apart_have_the_same_share() -> None:
    for seed in range(5):
        random = np.random.default_rng(seed)
        kind = random.integers(0, 3, 30)
        data: dict[str, Any] = {
            "pools": {"a": 11, "b": 9},
            "throughput": random.lognormal(0, 1, (3, 2))[kind],
            "gpus": np.array([2, 3, 5])[kind],
        }
        instance = Instance.from_arrays(**data)
        shares = []
        for classes in (True, False):
            made = optsched.solve(instance, "isolated", classes=classes).allocation
            assert made is not None
            shares.append(cut(made, "patterns").scale)
        assert shares[0] == pytest.approx(shares[1], abs=1e-8)


def test_a_row_that_needs_more_than_there_is_realises_nothing() -> None:
    """8 of 12 CPUs at 2/3 of the time satisfy the row of the program; at one instant they are 12.

    Only an explicit option gets so far: what a workload demands per GPU is compared with the nodes at once.
    """
    pool = {"name": "g", "nodes": 1, "gpus_per_node": 4, "cpus_per_node": 8}
    option = {"pool": "g", "gpus": 2, "throughput": 1.0, "uses": {"cpu": 12}}
    document = instance_document([pool], [{"id": "j0", "options": [option], "steps": 10}])
    made = of_instance({("j0", "g"): 2 / 3}, Instance.from_document(document))
    for method in ("auto", "patterns", "open-shop"):
        rounds = cut(made, method)
        assert (rounds.scale, rounds.bound, len(rounds)) == (0, 0, 0)
    assert cut(made, "priority").scale == 0


def test_consumable_resources_do_not_bind_at_an_instant() -> None:
    option = {"pool": "g", "gpus": 1, "throughput": 1.0, "uses": {"budget": 2}}
    resource = {"name": "budget", "kind": "consumable", "capacity": 1.0}
    document = instance_document(
        {"g": (2, 1)},
        [{"id": name, "options": [option], "steps": 10} for name in ("a", "b")],
        resources=[resource],
    )
    fractions = {("a", "g"): 0.25, ("b", "g"): 0.25}
    assert cut(of_instance(fractions, Instance.from_document(document))).scale == 1
    resource["kind"] = "renewable"
    assert cut(of_instance(fractions, Instance.from_document(document))).scale == 0


def test_a_limit_leaves_an_honest_bound() -> None:
    random = np.random.default_rng(1)
    instance = Instance.from_arrays(
        pools={"a": 20, "b": 15},
        throughput=random.lognormal(0, 1, (60, 2)),
        gpus=random.choice([1, 3, 5, 7], 60),
    )
    made = optsched.solve(instance, "makespan").allocation
    assert made is not None
    best = cut(made, "patterns").scale
    stopped = realise(made, Engine(load_solver, "auto", Limits(work=1)), "patterns")
    assert (
        not stopped.finished and 0 < stopped.scale <= best + 1e-9 and stopped.bound >= best - 1e-9
    )


def test_patterns_need_an_engine() -> None:
    made = allocation(
        {("j0", "g"): 0.5, ("j1", "g"): 1.0},
        pools={"g": 4},
        throughput=np.ones((2, 1)),
        gpus=[4, 1],
    )
    with pytest.raises(
        UsageError, match="patterns runs linear programs, for which it needs an engine"
    ):
        realise(made)


def test_a_solver_s_pattern_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = allocation(
        {("j0", "g"): 0.5, ("j1", "g"): 1.0},
        pools={"g": 4},
        throughput=np.ones((2, 1)),
        gpus=[4, 1],
    )
    run = Engine.run

    def lie(self: Engine, session: Session) -> Any:
        values = run(self, session)
        if session.arrays.is_integer and values.x is not None:
            values.x[:] = 1
        return values

    monkeypatch.setattr(Engine, "run", lie)
    with pytest.raises(SolverCrashed, match="a pattern of rows that do not fit side by side"):
        realise(made, Engine(load_solver))
