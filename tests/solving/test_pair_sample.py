"""Duals of a sample of the classes: what they are worth for all, and that programs end the same with and without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generation_cases import check_stopped, interference

import optsched
from optsched.assembly import compile, make_formulation
from optsched.program import AllocationProgram

# Private names: single strategies, without the engine that chooses them
from optsched.solving.column_generation import Duals, PairPricing, pair_sample

pytestmark = pytest.mark.property

FORMULATIONS = ("max-min-fairness", "makespan", "max-throughput")
SORTS = 6


def packed(seed: int, jobs: int, *, demand: bool = False, part: float = 1 / 8) -> optsched.Instance:
    """Jobs with rates of their own on two pools; their workloads say what they do to each other."""
    rng = np.random.default_rng(seed)
    utilisation = {
        f"w{row}": {"utilisation": {"P": b, "Q": c}}
        for row, (b, c) in enumerate(rng.random((SORTS, 2)))
    }
    few = max(1, int(part * jobs))
    return optsched.Instance.from_arrays(
        pools=[
            {"name": "p", "gpu": "P", "nodes": few, "gpus_per_node": 2, "cpus_per_node": 8},
            {"name": "q", "gpu": "Q", "nodes": few, "gpus_per_node": 1, "cpus_per_node": 4},
        ],
        throughput=rng.uniform(1, 4, (jobs, 2)) * (rng.random((jobs, 2)) < 0.8) + np.array([1e-3, 0.0]),
        gpus=rng.choice([1, 1, 2], jobs),
        weight=rng.choice([1.0, 2.0], jobs),
        steps=rng.uniform(10, 100, jobs),
        workload=rng.integers(0, SORTS, jobs),
        workloads={name: {"demand": {"cpu": 3.0 * (demand and row % 2)}} for row, name in enumerate(utilisation)},
        performance=interference(utilisation),
    )  # fmt: skip


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Samples of 8 classes, of programs of 32 and more; and what comes of them."""
    seen: list[Any] = []
    spread = pair_sample.spread

    def watched(*args: Any) -> Duals:
        seen.append(args)
        return spread(*args)

    monkeypatch.setattr(pair_sample, "LEAST", 8)
    monkeypatch.setattr(pair_sample, "spread", watched)
    return seen


@pytest.mark.parametrize("demand", [False, True])
@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("seed", range(4))
def test_ends_as_the_program_of_all_pairs(
    seed: int, formulation: str, demand: bool, small_samples: list[Any]
) -> None:
    instance = packed(seed, 40 + seed, demand=demand)
    generated = optsched.solve(instance, formulation, generate_columns=True)
    full = optsched.solve(instance, formulation, solver="highs")
    assert len(small_samples) == 1
    assert generated.ok and generated.status == "optimal", generated.certificate
    assert generated.objective == pytest.approx(full.objective, rel=1e-7)
    assert optsched.verify(instance, generated.to_document()).ok


@pytest.mark.unit
def test_where_nothing_is_scarce_a_sample_says_nothing(small_samples: list[Any]) -> None:
    instance = packed(0, 40, part=2.0)
    generated = optsched.solve(instance, generate_columns=True)
    assert generated.ok and generated.status == "optimal"
    assert generated.objective == pytest.approx(
        optsched.solve(instance, solver="highs").objective, rel=1e-7
    )


def test_few_classes_are_not_sampled(small_samples: list[Any]) -> None:
    assert optsched.solve(packed(0, 31), generate_columns=True).ok
    assert not small_samples


def test_the_same_is_made_of_the_same(small_samples: list[Any]) -> None:
    one, other = (
        optsched.solve(packed(1, 60), generate_columns=True).to_document() for _ in range(2)
    )
    for document in (one, other):
        document.pop("timings")
    assert one == other


@pytest.mark.parametrize("work", [1, 20, 60, 200, 500])
def test_a_run_that_is_stopped_has_a_bound_that_holds(work: int, small_samples: list[Any]) -> None:
    check_stopped(packed(2, 80), work)


def pricing_of(instance: optsched.Instance, formulation: str) -> tuple[PairPricing, PairPricing]:
    """That of all classes, and that of a sample."""
    made = make_formulation(formulation)
    program = made.program(made.classes(compile(instance, on_demand=True)))
    assert isinstance(program, AllocationProgram)
    return PairPricing.of(program), PairPricing.of(pair_sample.sample_of(program, made.program))


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_a_sample_has_its_part_of_the_capacities(
    formulation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_sample, "LEAST", 16)
    whole, sample = (each.classes for each in pricing_of(packed(5, 64), formulation))
    gangs = [(each.count * each.candidates.kinds.gang[each.kind]).sum() for each in (whole, sample)]
    assert len(sample) == 16
    assert sample.capacity == pytest.approx(whole.capacity * gangs[1] / gangs[0])
    jobs = np.flatnonzero(sample.of_job >= 0)
    assert len(jobs) == sample.count.sum()
    assert set(sample.first) <= set(whole.first)


@pytest.mark.parametrize("formulation", ["max-min-fairness", "max-throughput"])
def test_duals_of_a_sample_bound_all_closely(
    formulation: str, small_samples: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_sample, "LEAST", 60)
    instance = packed(3, 400, part=1 / 20)
    full = optsched.solve(instance, formulation, generate_columns=True)
    ((pricing, *others),) = small_samples
    duals, C = pair_sample.spread(pricing, *others), pricing.classes
    part = float(C.count @ duals.levels) if formulation == "max-min-fairness" else 1.0
    bound = (
        float(C.count @ (duals.time + pricing.excess(duals) / 2) + C.capacity @ duals.capacity)
        / part
    )
    assert full.objective * (1 - 1e-9) <= bound <= full.objective * 1.1


def test_levels_that_cannot_be_reached_and_sorts_without_partners(small_samples: list[Any]) -> None:
    instance = packed(4, 48)
    optsched.solve(instance, generate_columns=True)
    ((pricing, sample, duals, _),) = small_samples
    assert (
        len(np.unique(sample.table.sort[sample.classes.kind])) < SORTS * 2
    )  # of as many workloads and two gangs
    spread = pair_sample.spread(
        pricing, sample, duals, 1e9
    )  # a level beyond all: the highest point of each
    assert np.isfinite(spread.time).all() and np.isfinite(spread.levels).all()
    assert (spread.time >= 0).all() and (spread.levels >= 0).all()
