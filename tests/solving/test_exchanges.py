"""Local search around whole points: what it keeps, and where it ends."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from core_cases import core_of

import optsched
from optsched.arrays import FloatArray
from optsched.generate import generate
from optsched.solvers import Highs, Limits

# Private: a core and its local search without the engine that runs them
from optsched.solving.core import Core
from optsched.solving.exchanges import exchanged


def keeps_all_rows(core: Core, x: FloatArray) -> bool:
    arrays = core.arrays
    rows = arrays.A @ x
    within = (arrays.row_lower <= rows) & (rows <= arrays.row_upper)
    return bool(within.all() and (arrays.lower <= x).all() and (x <= arrays.upper).all())


def never(value: float) -> bool:
    return False


@pytest.mark.parametrize("seed", range(6))
def test_no_pair_of_moves_is_left_that_gains(seed: int) -> None:
    instance = generate(
        "knapsack", jobs=12, choices=2, resources=2, tightness=0.4, seed=seed
    ).instance
    core = core_of(instance)
    C = core.classes
    idle = np.zeros(core.arrays.shape[1])
    best = exchanged(core, idle, never)
    assert keeps_all_rows(core, best) and (best == np.round(best)).all()
    units = [*np.eye(C.columns), idle]
    owner = [*C.class_a.tolist(), -1]
    here = [best * (C.class_a == k) for k in range(len(C))]
    moves = [
        (k, unit - here[k])
        for k in range(len(C))
        for unit, of in zip(units, owner, strict=True)
        if of in (k, -1)
    ]
    for (a, first), (b, second) in product(moves, repeat=2):
        both = best + first + (second if a != b else 0.0)
        assert not keeps_all_rows(core, both) or core.value(both) <= core.value(best) + 1e-6


def test_it_ends_where_the_value_is_enough() -> None:
    core = core_of(generate("knapsack", jobs=40, choices=2, resources=3, seed=1).instance)
    idle = np.zeros(core.arrays.shape[1])
    end = core.value(exchanged(core, idle, never))
    enough = core.value(exchanged(core, idle, lambda value: value >= 0.5 * end))
    assert 0.5 * end <= enough < end
    assert (exchanged(core, idle, lambda value: True) == idle).all()


@pytest.mark.property
@pytest.mark.parametrize("seed", range(4))
def test_classes_of_several_jobs_keep_time_and_floors(seed: int) -> None:
    draw = np.random.default_rng(seed)
    b = optsched.InstanceBuilder(round="6m")
    pools = [b.add_pool(name, nodes=4, gpus_per_node=4) for name in ("v100", "k80")]
    for kind in range(6):
        rates = dict(zip(pools, draw.uniform(1, 5, 2).tolist(), strict=True))
        for copy in range(4):
            b.add_job(f"j{kind}.{copy}", steps=1000, gpus=1 + kind % 3, throughput=rates)
    core = core_of(b.instance(), "max-throughput", integral=True)
    C = core.classes
    assert C.count.max() == 4.0
    best = exchanged(core, np.zeros(core.arrays.shape[1]), never)
    assert keeps_all_rows(core, best) and (C.time(best) <= C.count).all()
    values = Highs().open(core.arrays).run(Limits(gap=0.0))
    assert values.objective is not None
    assert 0.9 * values.objective <= core.value(best) <= values.objective * (1 + 1e-9)


@pytest.mark.property
def test_no_other_solver_is_asked_where_it_comes_near_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optsched.solving.engine.RELAXED_FIRST", 10)
    instance = generate(
        "knapsack", jobs=2000, choices=4, resources=5, tightness=0.25, seed=0
    ).instance
    solution = optsched.solve(instance, "multiple-choice", gap=3e-4)
    assert solution.solver.name == "prices" and solution.status == "optimal"
    assert solution.gap is not None and solution.gap <= 3e-4
    assert optsched.verify(instance, solution.to_document()).ok
    monkeypatch.setattr("optsched.solving.exchanges.MOVES", 1)
    rounded = optsched.solve(instance, "multiple-choice", gap=3e-4)
    assert rounded.solver.name == "highs"
