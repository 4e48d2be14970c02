"""Knapsacks by how many items are taken: the best point, and bounds that hold whatever is listed."""

from __future__ import annotations

import numpy as np
import pytest

import optsched
from optsched.arrays import BoolArray, FloatArray
from optsched.assembly import make_formulation
from optsched.generate import generate
from optsched.program import AllocationProgram
from optsched.solvers import Highs, Limits

# Private: the search without the engine that runs it
from optsched.solving import knapsack_search
from optsched.solving.knapsack_search import (
    KnapsackItems,
    KnapsackRelaxation,
    KnapsackSearch,
    NumberOfItems,
)

pytestmark = pytest.mark.property


def items_of(seed: int, n: int = 14, whole: bool = True) -> KnapsackItems:
    """Some items, three resources, and room for a part of them."""
    random = np.random.default_rng(seed)
    use = random.integers(0, 50, (3, n)).astype(np.float64)
    value = np.round(use.mean(axis=0)) + random.integers(1, 30, n)
    if not whole:
        use, value = use * random.random(use.shape), value * random.random(n)
    room = use.sum(axis=1) * random.uniform(0.3, 0.7)
    return KnapsackItems(value, use, room, np.arange(n), np.arange(3))


def every_set(n: int) -> BoolArray:
    """All sets of items, shape (sets, items)."""
    return ((np.arange(2**n)[:, np.newaxis] >> np.arange(n)) & 1).astype(bool)


def best_of(items: KnapsackItems) -> float:
    sets = every_set(len(items.value))
    fits = (sets @ items.use.T <= items.room + 1e-9).all(axis=1)
    return float((sets[fits] @ items.value).max())


def searched(items: KnapsackItems, price: FloatArray, step: float) -> KnapsackSearch:
    """The search at one price of the resources for all numbers of items."""
    search = KnapsackSearch(items, step, np.zeros(len(items.value), bool))
    worth = np.sort(items.value - price @ items.use)[::-1]
    search.relax(
        len(worth) / 2, lambda k: KnapsackRelaxation.at(items, k, price, float(worth[min(k, 13)]))
    )
    search.run(lambda: False)
    return search


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_the_best_set_is_found_and_nothing_is_left_open(seed: int, whole: bool) -> None:
    items = items_of(seed, whole=whole)
    price = np.random.default_rng(seed).random(3)
    search = searched(items, price, 1.0 if whole else 0.0)
    assert search.value == pytest.approx(best_of(items))
    assert search.settled
    assert search.bound == search.value
    assert items.fits(search.best)
    assert items.value @ search.best == pytest.approx(search.value)


@pytest.mark.parametrize("seed", range(10))
def test_lists_that_are_too_short_leave_a_bound_that_holds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knapsack_search, "LISTED", (6,))
    items = items_of(seed)
    search = searched(items, np.random.default_rng(seed).random(3), 1.0)
    assert search.value <= best_of(items) <= search.bound + 1e-9
    assert search.settled == (search.bound == search.value)


def test_pairs_that_are_not_looked_at_leave_a_bound_that_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(knapsack_search, "PAIRS", 0)
    for seed in range(10):
        items = items_of(seed)
        search = searched(items, np.random.default_rng(seed).random(3), 1.0)
        assert best_of(items) <= search.bound + 1e-9
        assert not search.settled


def test_more_changes_than_a_code_has_bits_leave_a_bound_that_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(knapsack_search, "HALF", 2)
    for seed in range(10):
        items = items_of(seed)
        search = searched(items, np.random.default_rng(seed).random(3), 1.0)
        assert search.value <= best_of(items) <= search.bound + 1e-9


def test_any_prices_bound_every_set_with_as_many_items() -> None:
    items = items_of(3, n=10)
    sets = every_set(10)
    sets = sets[(sets @ items.use.T <= items.room).all(axis=1)]
    random = np.random.default_rng(3)
    for number in range(11):
        found = KnapsackRelaxation.at(
            items, number, random.normal(size=3), float(random.normal() * 20)
        )
        mine = sets[sets.sum(axis=1) == number]
        changed = mine != found.base
        left = (items.room - mine @ items.use.T) @ found.price
        worth = found.most - changed @ found.loss - left
        np.testing.assert_allclose(mine @ items.value, worth, atol=1e-9)
        assert (left >= 0).all()


def knapsack_program(**options: float) -> AllocationProgram:
    return program_of(generate("knapsack", **options).instance)


def program_of(instance: optsched.Instance) -> AllocationProgram:
    formulation = make_formulation("multiple-choice")
    program = formulation.build(formulation.classes(optsched.compile(instance)))
    assert isinstance(program, AllocationProgram)
    return program


def test_the_numbers_of_the_relaxation_bound_it() -> None:
    """The largest bound of all numbers of items is at least the optimum, and at most the relaxation."""
    program = knapsack_program(jobs=40, resources=4, seed=2)
    items = KnapsackItems.of(program)
    assert items is not None
    arrays = program.to_linear().arrays
    best = Highs().open(arrays).run(Limits(gap=0.0))
    relaxed = Highs().open(arrays.relaxed()).run(Limits())
    numbered = NumberOfItems(program, items, arrays)
    session = Highs().open(numbered.arrays)

    def relaxation(number: int) -> KnapsackRelaxation | None:
        session.set_rows(*numbered.sides(number))
        return numbered.at(session.run(Limits()), number)

    assert best.objective is not None and relaxed.objective is not None
    search = KnapsackSearch(items, 1.0, np.zeros(40, bool))
    search.relax(numbered.of_point(relaxed.x), relaxation)
    assert best.objective <= search.bound <= relaxed.objective + 1e-6
    search.run(lambda: False)
    assert search.value == pytest.approx(best.objective)
    assert search.settled


def test_options_of_which_a_job_has_several_are_no_items() -> None:
    assert KnapsackItems.of(knapsack_program(jobs=20, choices=2, resources=3, seed=1)) is None


def test_the_answer_is_that_of_branch_and_bound() -> None:
    instance = generate("knapsack", jobs=70, resources=5, tightness=0.5, seed=4).instance
    found = optsched.solve(instance, "multiple-choice")
    assert found.solver.name == "enumeration"
    assert found.status == "optimal"
    assert found.certificate.ok
    other = optsched.solve(instance, "multiple-choice", solver="highs", gap=0.0)
    assert found.objective == pytest.approx(other.objective)


def test_equal_items_are_taken_several_times() -> None:
    instance = generate("knapsack", jobs=20, resources=4, tightness=0.5, seed=5).instance
    document = instance.to_document()
    twice = [{**job, "id": f"{job['id']}-{copy}"} for job in document["jobs"] for copy in range(2)]
    program = program_of(optsched.Instance.from_document({**document, "jobs": twice}))
    items = KnapsackItems.of(program)
    assert items is not None
    assert len(program.classes) == 20
    assert len(items.value) == 40
    best = Highs().open(program.to_linear().arrays).run(Limits(gap=0.0))
    assert best.x is not None and best.objective is not None
    taken = items.taken(best.x)
    assert items.fits(taken)
    assert items.value @ taken == pytest.approx(best.objective)
    np.testing.assert_allclose(items.point(taken, 20), best.x, atol=1e-6)
