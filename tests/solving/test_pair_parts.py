"""Programs of pairs that are solved in parts: against those of all pairs, on small instances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from generation_cases import check_stopped, interference

import optsched
from optsched.assembly import compile, make_formulation
from optsched.errors import Interrupted, SolverCrashed
from optsched.program import AllocationProgram
from optsched.solution import Termination

# Private names: single strategies, without the engine that chooses them
from optsched.solving.column_generation import PairPricing, pair_generation, pair_parts, pair_sample
from optsched.solving.column_generation.pair_search import PairSearch

pytestmark = pytest.mark.property

FORMULATIONS = ("max-min-fairness", "makespan", "max-throughput")


def packed(seed: int, jobs: int, part: float = 1 / 12, equal: bool = False) -> optsched.Instance:
    """Jobs of five workloads on two pools, with gangs of 1 and 2 GPUs; some of them equal if wanted."""
    rng = np.random.default_rng(seed)
    utilisation = {
        f"w{row}": {"utilisation": {"P": b, "Q": c}}
        for row, (b, c) in enumerate(rng.random((5, 2)) * 0.7)
    }
    rows = rng.integers(0, jobs // 2, jobs) if equal else np.arange(jobs)
    few = max(1, int(part * jobs))
    return optsched.Instance.from_arrays(
        pools=[
            {"name": "p", "gpu": "P", "nodes": few, "gpus_per_node": 2, "cpus_per_node": 8},
            {"name": "q", "gpu": "Q", "nodes": few, "gpus_per_node": 1},
        ],
        throughput=rng.uniform(1, 4, (jobs, 2))[rows],
        gpus=rng.choice([1, 1, 2], jobs)[rows],
        weight=rng.choice([1.0, 2.0], jobs)[rows],
        steps=rng.uniform(10, 100, jobs)[rows],
        workload=rng.integers(0, 5, jobs)[rows],
        workloads={name: {} for name in utilisation},
        performance=interference(utilisation),
    )  # fmt: skip


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Parts of about 20 classes, for programs of 40 and more; and what comes of them."""
    seen: list[Any] = []

    def watched(*args: Any) -> Any:
        seen.append(pair_parts.solve_in_parts(*args))
        return seen[-1]

    monkeypatch.setattr(pair_generation, "IN_PARTS_FROM", 40)
    monkeypatch.setattr(pair_parts, "EACH", 20)
    monkeypatch.setattr(pair_generation, "solve_in_parts", watched)
    return seen


def sign(formulation: str) -> float:
    return -1.0 if formulation == "makespan" else 1.0


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("seed", range(5))
def test_near_the_program_of_all_pairs(seed: int, formulation: str, small_parts: list[Any]) -> None:
    instance = packed(seed, 60 + seed, equal=seed % 2 == 1)
    solution = optsched.solve(instance, formulation, generate_columns=True)
    full = optsched.solve(instance, formulation, solver="highs")
    assert solution.ok, solution.certificate
    assert len(small_parts) == (1 if len(solution.allocation.classes) >= 40 else 0)
    way = sign(formulation)
    assert way * solution.objective <= way * full.objective + 1e-9 * abs(full.objective)
    assert way * solution.bound >= way * full.objective - 1e-9 * abs(full.objective)
    assert solution.status == ("optimal" if solution.gap <= 1e-6 else "feasible")
    assert solution.objective == pytest.approx(full.objective, rel=0.15)  # parts are tiny
    assert optsched.verify(instance, solution.to_document()).ok


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_a_makespan_have_units_of_their_own(
    seed: int, small_parts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_parts, "EACH", 5)
    monkeypatch.setattr(pair_sample, "LEAST", 3)
    instance = packed(seed, 60, part=0.5)
    solution = optsched.solve(instance, "makespan", generate_columns=True)
    assert small_parts[0].value <= small_parts[0].bound * (1 + 1e-9)
    assert solution.ok, solution.certificate
    assert solution.objective >= optsched.solve(instance, "makespan", solver="highs").objective * (
        1 - 1e-9
    )


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_who_asks_for_a_gap_gets_it(formulation: str, small_parts: list[Any]) -> None:
    instance = packed(7, 64)
    near = optsched.solve(instance, formulation, generate_columns=True)
    exact = optsched.solve(instance, formulation, generate_columns=True, gap=0.0)
    full = optsched.solve(instance, formulation, solver="highs")
    assert len(small_parts) == 2
    assert near.gap > 1e-6, "parts alone close the gap: this shows nothing"
    assert exact.ok and exact.status == "optimal"
    assert exact.objective == pytest.approx(full.objective, rel=1e-7)


@pytest.mark.unit
def test_one_slow_job_holds_the_level(small_parts: list[Any]) -> None:
    """Capacity is plenty, so the bound is what the job that is worst off can have at most, and is reached."""
    instance = packed(1, 60, part=2.0)
    solution = optsched.solve(instance, generate_columns=True)
    assert small_parts[0].gap <= 1e-9
    assert solution.ok and solution.status == "optimal"
    assert solution.objective == pytest.approx(
        optsched.solve(instance, solver="highs").objective, rel=1e-9
    )


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_moving_capacities_raises_the_smallest_level(
    rounds: int, small_parts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_parts, "ROUNDS", 7)
    instance = packed(11, 80)
    best = optsched.solve(instance, generate_columns=True)
    monkeypatch.setattr(pair_parts, "ROUNDS", rounds)
    some = optsched.solve(instance, generate_columns=True)
    assert best.ok and some.ok
    assert some.objective <= best.objective * (1 + 1e-12)
    if rounds == 0:
        assert some.objective < 0.999 * best.objective


@pytest.mark.parametrize("work", [1, 30, 100, 300, 1000])
def test_a_run_that_is_stopped_has_a_bound_that_holds(work: int, small_parts: list[Any]) -> None:
    check_stopped(packed(2, 80), work)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_classes_are_dealt_out_with_all_capacity(formulation: str) -> None:
    made = make_formulation(formulation)
    instance = packed(5, 70)
    program = made.program(made.classes(compile(instance, on_demand=True)))
    assert isinstance(program, AllocationProgram)
    C, parts = program.classes, pair_sample.dealt_out(program, 4)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(C)))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    small = [pair_sample.part_of(program, made.program, some).classes for some in parts]
    assert sum(each.capacity for each in small) == pytest.approx(C.capacity)
    assert sum(each.count.sum() for each in small) == C.count.sum()
    for some, each in zip(parts, small, strict=True):
        assert each.first.tolist() == C.first[some].tolist()


@pytest.mark.unit
def test_capacities_that_move_are_those_of_the_whole() -> None:
    rng = np.random.default_rng(0)
    whole = np.array([30.0, 10.0, np.inf, 0.0])
    held = [whole / 3 for _ in range(3)]
    cuts = [pair_parts._PartCut(part, rng.random(), rng.random(4), held[part]) for part in range(3)]
    for total in (False, True):
        moved = pair_parts._moved(cuts, held, whole, 0.05, total)
        assert sum(moved)[:2] == pytest.approx(whole[:2])
        assert all((each[2], each[3]) == (np.inf, 0.0) for each in moved)
        assert all(
            (abs(each[:2] - whole[:2] / 3) <= 0.05 * whole[:2] / 3 + 1e-9).all() for each in moved
        )


@pytest.mark.unit
def test_the_bound_of_the_worst_off_is_a_dual_of_all(small_parts: list[Any]) -> None:
    made = make_formulation("max-min-fairness")
    program = made.program(made.classes(compile(packed(3, 50), on_demand=True)))
    assert isinstance(program, AllocationProgram)
    pricing = PairPricing.of(program)
    bound, duals = pair_parts._held_by_one(pricing)
    assert bound == pytest.approx(pricing.highest)
    assert pricing.excess(duals).max() <= 1e-12 and pricing.alone_excess(duals).max() <= 1e-12
    assert program.classes.count @ duals.time == pytest.approx(bound)
    assert program.classes.count @ duals.levels == pytest.approx(1.0)


def interrupted_at(number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From that search on the user has had enough; returns what counts the searches."""
    real, count = PairSearch.run, [0]

    def run(search: PairSearch) -> None:
        real(search)
        count[0] += 1
        if count[0] >= number:
            assert search.values is not None
            search.values = replace(search.values, termination=Termination.INTERRUPTED)

    monkeypatch.setattr(PairSearch, "run", run)
    return count


@pytest.mark.parametrize("error", [SolverCrashed("the process was killed"), KeyboardInterrupt()])
def test_what_ends_a_round_leaves_the_one_before(
    error: BaseException, small_parts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, count = PairSearch.run, [0]

    def run(search: PairSearch) -> None:
        count[0] += 1
        if count[0] == 6:
            raise error
        real(search)

    monkeypatch.setattr(PairSearch, "run", run)
    solution = optsched.solve(packed(11, 80), generate_columns=True)
    assert count == [6]  # four parts, and the second of the first round
    assert solution.ok and solution.status == "feasible"
    assert solution.objective == pytest.approx(small_parts[0].value)
    crashed = isinstance(error, SolverCrashed)
    assert small_parts[0].end == ("imprecise" if crashed else "interrupted")
    recorded = [each.outcome for each in solution.solver.attempts]
    assert recorded == (["the process was killed"] if crashed else [])


def test_who_interrupts_a_part_gets_no_other_one(
    small_parts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = interrupted_at(2, monkeypatch)
    with pytest.raises(Interrupted):
        optsched.solve(packed(11, 80), generate_columns=True)
    assert count == [2]


@pytest.mark.parametrize("gap", [None, 0.0])
def test_who_interrupts_a_round_has_the_one_before(
    gap: float | None, small_parts: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = interrupted_at(6, monkeypatch)
    solution = optsched.solve(packed(11, 80), generate_columns=True, gap=gap)
    assert count == [6]  # four parts, and the second of the first round
    assert solution.ok and solution.status == "feasible"
    assert small_parts[0].end is Termination.INTERRUPTED
    assert solution.objective == pytest.approx(small_parts[0].value)
