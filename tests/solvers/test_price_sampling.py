"""Prices of markets with many classes: the sample that they start from, and searches among the undecided."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from programs import allocation, scattered

# Private names: sessions and steps of one back-end, without the engine
from optsched.arrays import IntArray, compiling
from optsched.program import AllocationProgram
from optsched.registry import load_solver
from optsched.solution import Status
from optsched.solvers import Limits
from optsched.solvers.prices import cutting_planes, max_min, sampling
from optsched.solvers.prices.kernels import compiled
from optsched.solvers.prices.market import Market, market_of
from optsched.solvers.prices.max_min import MaxMinSearch
from optsched.solvers.prices.oracle import Oracle
from optsched.solvers.prices.polish import PinnedClasses, Polished
from optsched.solvers.prices.sampling import sample_of
from optsched.solving import Engine, Outcome

pytestmark = pytest.mark.property


@pytest.fixture(params=["numpy", "compiled"])
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both walks, for few classes too."""
    if request.param == "compiled" and compiled() is None:
        pytest.skip("numba is not installed")
    monkeypatch.setattr(compiling, "COMPILED", 0 if request.param == "compiled" else 10**12)
    yield request.param


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few classes count as many."""
    for name, value in (("LARGE", 0), ("PART", 4), ("LEAST", 1), ("SMALL", 2)):
        monkeypatch.setattr(sampling, name, value)
    monkeypatch.setattr(max_min, "MOST_FREE", 3)


def solved(program: AllocationProgram, solver: str = "prices", **limits: float) -> Outcome:
    return Engine(load_solver, solver, Limits(**limits)).solve_directly(program)  # type: ignore[arg-type]


def market(jobs: int = 240, pools: int = 3) -> Market:
    return market_of(scattered(jobs, pools))


def program(seed: int) -> AllocationProgram:
    random = np.random.default_rng(seed)
    jobs, pools = int(random.integers(12, 160)), int(random.integers(1, 5))
    rates = random.lognormal(0.0, 1.0, (jobs, pools)) * (random.random((jobs, pools)) > 0.2)
    if seed % 3 == 1:
        rates = rates[random.integers(0, 5, jobs)]
    elif seed % 3 == 2:
        rates = rates[:1] * random.lognormal(0.0, 1.0, (jobs, 1))
    rates[:, 0] = np.maximum(rates[:, 0], 0.1)
    gangs = random.choice([1, 2, 8], jobs)
    return allocation(
        rates, gangs, np.maximum(1, random.multinomial(gangs.sum() // 3, np.full(pools, 1 / pools)))
    )


def test_large_markets_agree_with_simplex(walk: str, large: None) -> None:
    for seed in range(18):
        one = program(seed)
        ours, theirs = solved(one), solved(one, "highs", tolerance=1e-10)
        assert ours.status is Status.OPTIMAL and ours.certificate.ok, (
            seed,
            ours.certificate.problems,
        )
        assert ours.value == pytest.approx(theirs.value, rel=1e-8), seed
        assert ours.bound == pytest.approx(ours.value, rel=1e-9), seed


def test_pinned_classes_hold_what_they_held_at_the_level_asked(walk: str) -> None:
    some = market()
    oracle = Oracle(some)
    prices = np.random.default_rng(0).random(len(some.capacity)) / some.capacity
    response = oracle.ask(prices, 0.8 * some.highest)
    pinned_demand = PinnedClasses.but(oracle, np.zeros(0, np.int64)).pinned_demand
    assert pinned_demand.alpha + response.level * pinned_demand.beta == pytest.approx(
        response.demand, rel=1e-9
    )
    # What a part of the market and those that it was taken out of say together is what all say.
    free = np.arange(0, len(some), 7)
    rest = PinnedClasses.but(oracle, free).pinned_demand
    part = Oracle(some.part(free, some.capacity, rest))
    again = part.ask(prices, response.level)
    assert again.demand == pytest.approx(response.demand, rel=1e-9)
    assert again.bound == pytest.approx(response.bound, rel=1e-9)


def test_the_rest_of_a_market_is_priced_as_if_it_stayed(walk: str, large: None) -> None:
    """The allocation among free classes and those that are pinned is one of all, of the level that it says."""
    some = market()
    search = MaxMinSearch(some)
    search.run()
    oracle = Oracle(some)
    oracle.ask(search.prices, search.bound, whole=True)
    found = search._decide(np.arange(0, len(some), 3), 5)
    assert found is not None and len(found.point.free) == len(range(0, len(some), 3))
    assert some.worth(found.point.totals(some)) <= search.bound * (1 + 1e-9)


def test_a_sample_counts_for_all_and_follows_no_period(large: None) -> None:
    some = market(400)
    drawn, sample = sample_of(some)
    assert len(sample) == 100 and sample.weight.sum() == pytest.approx(some.weight.sum())
    assert (sample.level == some.level[drawn]).all()
    rows = drawn.tolist()
    assert sorted(rows) == rows and len({row % 4 for row in rows}) == 4
    assert all(row // 4 == number for number, row in enumerate(rows))


def test_prices_of_the_sample_are_near_those_of_all(
    large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = market(3000, 3)
    asked: list[np.ndarray] = []
    ask = MaxMinSearch.ask

    def noted(self: MaxMinSearch, prices: np.ndarray, level: float, whole: bool = False) -> bool:
        if self.market is some:
            asked.append(prices / (prices @ some.capacity))
        return ask(self, prices, level, whole)

    monkeypatch.setattr(MaxMinSearch, "ask", noted)
    search = MaxMinSearch(some)
    search.run()
    final = search.prices / (search.prices @ some.capacity)
    assert len(asked) < 20  # cold it takes more
    assert np.abs(asked[1] / final - 1.0).max() < 0.05


def test_a_gap_that_rounding_leaves_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """More free classes would not close it; a program of half of all classes takes minutes."""
    free: list[int] = []
    decide = MaxMinSearch._decide

    def noted(self: MaxMinSearch, some: IntArray, near: int) -> Polished | None:
        free.append(len(some))
        return decide(self, some, near)

    monkeypatch.setattr(MaxMinSearch, "_decide", noted)
    search = MaxMinSearch(market(3000))
    search.wanted = -1.0  # nothing reaches it
    search.run()
    assert search.gap <= cutting_planes.EXACT
    assert max(free) < 1000, free
