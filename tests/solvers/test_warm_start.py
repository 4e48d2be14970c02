"""A basis with labels: the same optimum warm and cold, nothing to do where nothing changed, and jobs in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optsched
from optsched.api import make_formulation
from optsched.instance import Instance
from optsched.registry import load_solver
from optsched.solution import Solution
from optsched.solving import Engine, WarmStart

# Private names: sessions and steps of one back-end, without the engine
from optsched.solving.warm_start import BASIC

pytestmark = pytest.mark.property

seeds = st.integers(0, 2**32 - 1)


def arrays(seed: int, jobs: int = 30) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "throughput": rng.uniform(1, 9, (jobs, 1)) * rng.uniform(1, 4, (jobs, 3)),
        "gpus": rng.choice([1, 2, 4], jobs),
        "weight": rng.choice([1.0, 2.0], jobs),
    }


def instance_of(table: dict[str, np.ndarray], ids: list[str], gpus: int = 4) -> Instance:
    pools = [{"name": f"p{j}", "nodes": 2, "gpus_per_node": gpus} for j in range(3)]
    return Instance.from_arrays(pools=pools, ids=ids, steps=1e4, **table)


def solved(instance: Instance, name: str, warm: WarmStart | None = None) -> tuple[Solution, Engine]:
    engine = Engine(load_solver, "highs")
    engine.bases.warm, engine.bases.keep = warm, True
    solution = make_formulation(name).solve(optsched.compile(instance), engine)
    assert solution.ok
    return solution, engine


NAMES = ["max-min-fairness", "max-throughput", "makespan", "water-filling", "finish-time-fairness"]


@pytest.mark.parametrize("name", ["max-min-fairness", "max-throughput", "makespan"])
def test_an_unchanged_program_takes_no_iterations(name: str) -> None:
    instance = instance_of(arrays(0), [f"j{i}" for i in range(30)])
    cold, engine = solved(instance, name)
    warm, again = solved(instance, name, engine.bases.ended)
    assert again.iterations == 0
    assert again.bases.words.startswith("basis mapped: 90 of 90")
    assert warm.objective == pytest.approx(cold.objective, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(seed=seeds)
def test_the_optimum_is_the_same_warm_and_cold_whoever_comes_and_goes(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table, ids = arrays(seed), [f"j{i}" for i in range(30)]
    engine = solved(instance_of(table, ids), name)[1]
    stay = rng.permutation(30)[: int(rng.integers(0, 31))]
    added = int(rng.integers(1, 12))
    new = arrays(seed + 1)
    table = {key: np.concatenate([table[key][stay], new[key][:added]]) for key in table}
    ids = [ids[i] for i in stay.tolist()] + [f"n{i}" for i in range(added)]
    instance = instance_of(table, ids, gpus=int(rng.integers(2, 6)))
    assert engine.bases.ended is not None
    warm, again = solved(instance, name, engine.bases.ended.revised(stay.astype(np.int64), added))
    cold, _ = solved(instance, name)
    assert again.bases.words.startswith("basis mapped")
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9)


def test_a_mapped_basis_is_never_short_of_basic_variables() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        engine = solved(
            instance_of(arrays(seed), [f"j{i}" for i in range(30)]), "max-min-fairness"
        )[1]
        stay = np.sort(rng.choice(30, 20, replace=False))
        table = {key: value[stay] for key, value in arrays(seed).items()}
        formulation = make_formulation("max-min-fairness")
        classes = formulation.classes(
            optsched.compile(instance_of(table, [f"j{i}" for i in stay.tolist()]))
        )
        lowered = formulation.program(classes).to_linear().arrays  # type: ignore[union-attr]
        assert engine.bases.ended is not None
        basis, _ = engine.bases.ended.revised(stay, 0).basis(classes, lowered)
        assert (basis.columns == BASIC).sum() + (basis.rows == BASIC).sum() >= len(basis.rows)


def test_a_solver_without_a_basis_starts_cold_and_says_so() -> None:
    engine = Engine(load_solver, "clarabel")
    engine.bases.keep = True
    instance = instance_of(arrays(0), [f"j{i}" for i in range(30)])
    make_formulation("max-min-fairness").solve(optsched.compile(instance), engine)
    assert engine.bases.words == "cold: solver clarabel has no basis"
    assert engine.bases.ended is None
