"""Rates from one array and from a document per job: the same candidates, classes and programs, to the last bit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

import optsched
from formulations.reference_rates import proportional, reference_columns, reference_rates
from optsched import arrays
from optsched.arrays import is_constant
from optsched.assembly import compile, make_formulation
from optsched.candidates import Candidates, Drop, KindColumns

# Private names: single steps of the compilation are compared with the whole
from optsched.candidates.columns import gathered
from optsched.instance import rates
from optsched.program import AllocationProgram

pytestmark = pytest.mark.property

FIELDS = [field.name for field in fields(KindColumns) if field.name not in ("way", "ways")]
CASES = ("distinct", "zeros", "twice", "one pool", "one job", "too large", "all alike", "nowhere")


def made(case: str) -> dict[str, Any]:
    random = np.random.default_rng(CASES.index(case))
    jobs, pools = {"one job": 1}.get(case, 23), {"one pool": 1}.get(case, 3)
    rate = random.lognormal(0, 1, (jobs, pools))
    gpus, weight = random.choice([1, 2, 4], jobs), random.choice([1.0, 2.0], jobs)
    if case in ("zeros", "nowhere"):
        rate[random.random((jobs, pools)) < 0.4] = 0.0
        rate[:, 0] += case == "zeros"
    elif case == "twice":
        rate[12:] = rate[:11]
    elif case == "too large":
        gpus[::4] = 9
    elif case == "all alike":
        rate[:], gpus[:], weight[:] = rate[0], 2, 1.0
    return {
        "pools": {f"p{pool}": 8 for pool in range(pools)}, "throughput": rate, "gpus": gpus, "weight": weight,
        "steps": random.lognormal(3, 1, jobs),
    }  # fmt: skip


def from_documents(given: dict[str, Any]) -> optsched.Instance:
    rows = zip(
        *(given[name].tolist() for name in ("throughput", "gpus", "weight", "steps")), strict=True
    )
    return optsched.Instance.from_document(
        {
            "format": "optsched-instance/1",
            "name": "arrays",
            "cluster": {
                "pools": [{"name": name, "nodes": gpus, "gpus_per_node": 1} for name, gpus in given["pools"].items()]
            },
            "jobs": [
                {
                    "id": f"j{row}", "gpus": gpus, "weight": weight, "steps": steps,
                    "throughput": {pool: rate for pool, rate in zip(given["pools"], rates, strict=True) if rate},
                }
                for row, (rates, gpus, weight, steps) in enumerate(rows)
            ],
        }
    )  # fmt: skip


def told(candidates: Candidates) -> list[Any]:
    """Everything that a program may be made of, as bytes."""
    C = candidates.classes(frozenset({"weight"}))
    program = make_formulation("max-min-fairness").program(C)
    assert isinstance(program, AllocationProgram)
    of_columns = [
        getattr(columns, name)
        for columns in (candidates.columns, candidates.dropped)
        for name in (
            *(field.name for field in fields(KindColumns) if field.name not in ("way", "ways")),
            "pool",
            "gpus",
        )
    ]
    of_classes = [
        C.of_job,
        C.first,
        C.count,
        C.kind_column,
        C.class_a,
        C.class_b,
        C.rate_a,
        C.limit,
        C.configuration,
    ]
    matrices = [candidates.usage, C.usage, C.throughput, C.member, program.levels]
    of_matrices = [
        array for matrix in matrices for array in (matrix.data, matrix.indices, matrix.indptr)
    ]
    return [
        array.tobytes()
        for array in (*of_columns, candidates.configuration, *of_classes, *of_matrices)
    ]


@pytest.mark.parametrize("case", CASES)
def test_an_array_of_rates_says_what_documents_say(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = made(case)
    expected = told(compile(from_documents(given)))
    assert told(compile(optsched.Instance.from_arrays(**given))) == expected
    monkeypatch.setattr(rates, "SMALL_TABLE", -(10**6))  # pairs of profile and place by sorted keys
    assert told(compile(optsched.Instance.from_arrays(**given))) == expected
    for block in (1, 5):
        monkeypatch.setattr(arrays, "BLOCK", block)
        assert told(compile(optsched.Instance.from_arrays(**given))) == expected
        assert told(compile(from_documents(given))) == expected


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0, 1e-300])
@pytest.mark.parametrize("row", [0, 17])
def test_a_wrong_rate_is_refused_with_its_place(wrong: float, row: int) -> None:
    given = made("distinct")
    given["throughput"][row, 1] = wrong
    with refuses(f"throughput[{row}, 1]"):
        optsched.Instance.from_arrays(**given)


def test_one_number_for_all_jobs_is_checked_as_many_are() -> None:
    for weight in (-1.0, np.full(23, -1.0)):
        with refuses('weight[0]: found -1.0 (job "j0...'):
            optsched.Instance.from_arrays(**made("distinct") | {"weight": weight})
    table = optsched.Instance.from_arrays(**made("distinct") | {"weight": -0.0 + 2}).jobs_table
    assert is_constant(table.weight)
    assert is_constant(table.deadline)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("block", [1, 4, 2**16])
def test_reference_rates_some_by_some(
    case: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "BLOCK", block)
    C = compile(optsched.Instance.from_arrays(**made(case))).classes(frozenset({"weight", "gang"}))
    column, T = reference_columns(C)
    assert reference_rates(C).tolist() == T.tolist()
    W = np.full(T.shape[1], 8.0)
    assert proportional(C).tolist() == pytest.approx((T @ W / W.sum()).tolist(), rel=1e-15)
    dense = C.throughput.toarray()
    for k in range(len(C)):
        for pool in range(T.shape[1]):
            mine = np.flatnonzero((C.class_a == k) & (C.pool == pool))
            assert column[k, pool] == (mine[0] if len(mine) else -1)
            assert T[k, pool] == (dense[k, mine[0]] if len(mine) else 0.0)


def test_gathered_columns_are_those_of_one_after_the_other() -> None:
    random = np.random.default_rng(3)
    parts = []
    for size in (0, 4, 1, 6):
        one = KindColumns.make(*(random.integers(0, 3, size) for _ in range(4)))
        drop = random.integers(0, 2, size).astype(np.uint8)
        parts.append(
            KindColumns.of(
                one.kind, random.integers(0, 2, size), one.ways, rate=random.random(size), drop=drop
            )
        )
    ways = KindColumns.make(np.zeros(2, int), *(np.arange(2) for _ in range(3))).ways
    alike = [
        KindColumns.of(part.kind, part.way, ways, rate=part.rate, drop=part.drop) for part in parts
    ]
    last = KindColumns.of(
        np.array([7]), np.array([1]), ways, value=np.array([2.5]), rate=np.array([1.0])
    )
    for some in (parts, alike, [*alike, last], [*parts, last], [], parts[:1]):
        kept, dropped = gathered((part.sifted(part.drop) for part in some), 12)
        every = KindColumns.concatenate([KindColumns.none(), *some])
        for found, where in ((kept, every.drop == Drop.KEPT), (dropped, every.drop != Drop.KEPT)):
            for name in (
                "kind",
                "partner",
                "pool",
                "gpus",
                "nodes",
                "share",
                "rate",
                "value",
                "drop",
            ):
                assert getattr(found, name).tolist() == getattr(every, name)[where].tolist()
        assert is_constant(kept.option) or len(kept) == 0


def naive_repair(program: AllocationProgram, x: np.ndarray) -> np.ndarray:
    C = program.classes
    for matrix, limit in ((C.member, C.count), (C.usage, C.capacity)):
        use = matrix @ x
        entries = sp.coo_matrix(matrix)
        smallest = np.ones(len(x))
        for row, column in zip(entries.row.tolist(), entries.col.tolist(), strict=True):
            if use[row] > limit[row]:
                smallest[column] = min(smallest[column], limit[row] / use[row])
        x = x * smallest
    return x


@pytest.mark.parametrize("instance", ["@packing", "@quickstart", "distinct", "twice", "zeros"])
def test_points_are_repaired_and_lifted_as_before(instance: str) -> None:
    given = (
        optsched.load(instance)
        if instance[0] == "@"
        else optsched.Instance.from_arrays(**made(instance))
    )
    formulation = make_formulation("max-min-fairness")
    C = formulation.classes(compile(given))
    program = formulation.program(C)
    assert isinstance(program, AllocationProgram)
    dense = program.levels.toarray() / np.where(C.class_a == C.class_b, 2.0, 1.0)
    assert program.highest_level.tolist() == dense.max(axis=1).tolist()
    for scale in (0.0, 0.3, 1.0, 4.0):
        x = scale * np.random.default_rng(5).random(C.columns) * C.limit
        assert program.repaired(x).tolist() == naive_repair(program, x).tolist()
    level = 0.9 * program.value(program.even())
    lifted = program.lifted(np.zeros(C.columns), level)
    for k in range(len(C)):
        mine = np.flatnonzero(C.alone & (C.class_a == k))
        if len(mine):
            best = mine[np.flatnonzero(dense[k, mine] == dense[k, mine].max())[-1]]
            assert set(np.flatnonzero(lifted * (C.class_a == k) * C.alone).tolist()) <= {best}


def test_where_rates_are_found_is_worked_out_once_for_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_of = []
    of = rates.Entries.of
    monkeypatch.setattr(
        rates.Entries, "of", classmethod(lambda cls, table: made_of.append(table) or of(table))
    )
    instance = optsched.load("@quickstart")
    first, again = optsched.solve(instance), optsched.solve(instance, "makespan")
    assert made_of == [instance.rates]
    fresh = optsched.solve(optsched.load("@quickstart"))
    assert len(made_of) == 2
    assert fresh.objective == first.objective
    assert again.certificate.ok
