"""The smallest level by interior steps, which many pools need, against simplex."""

from __future__ import annotations

import numpy as np
import pytest
from programs import allocation
from test_price_method import drawn, solved

from optsched.program import AllocationProgram
from optsched.solution import Status

# Private names: a search of one back-end, without the engine
from optsched.solvers.prices import max_min
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.interior_minimum import InteriorMinimum, MinimumBalance
from optsched.solvers.prices.market import Market, market_of
from optsched.solvers.prices.max_min import MaxMinSearch

pytestmark = pytest.mark.property


def steps_for(market: Market) -> MinimumBalance:
    goods = Goods.of(market, np.arange(len(market)))
    return InteriorMinimum(goods, market.level, None).run()


def many_pools(jobs: int, pools: int) -> AllocationProgram:
    """Jobs that differ, on pools that all run out."""
    random = np.random.default_rng(0)
    gangs = random.choice([1, 2, 4], jobs)
    sizes = random.multinomial(int(gangs.sum() / 8), np.full(pools, 1.0 / pools)) + 1
    return allocation(random.lognormal(0.0, 1.0, (jobs, pools)), gangs, sizes)


def test_value_and_bound_of_random_instances_contain_that_of_simplex() -> None:
    checked = 0
    for seed in range(60):
        program = drawn(seed)
        if not len(program.classes) or market_of(program).highest <= 0:
            continue
        checked += 1
        market = market_of(program)
        found, best = steps_for(market), solved(program, "highs", tolerance=1e-10).value
        assert found.gap <= 1e-6, seed
        assert found.value * market.unit <= best * (1.0 + 1e-8), seed
        assert found.bound * market.unit >= best * (1.0 - 1e-8), seed
    assert checked > 50


@pytest.mark.unit
def test_they_close_the_gap_on_many_pools() -> None:
    assert 0.0 <= steps_for(market_of(many_pools(200, 24))).gap <= 1e-9


def test_a_search_goes_on_with_them_where_cutting_planes_leave_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, run = [], InteriorMinimum.run
    monkeypatch.setattr(MaxMinSearch, "passes", 3)
    monkeypatch.setattr(InteriorMinimum, "run", lambda self: asked.append(1) or run(self))
    program = many_pools(200, 24)
    ours, theirs = solved(program), solved(program, "highs", tolerance=1e-10)
    assert asked and ours.status is Status.OPTIMAL and ours.certificate.ok
    assert ours.value == pytest.approx(theirs.value, rel=1e-8)
    assert ours.bound == pytest.approx(ours.value, rel=1e-9)


def test_random_instances_after_them_agree_with_simplex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaxMinSearch, "passes", 0)
    monkeypatch.setattr(max_min, "LOST", -1.0)
    for seed in range(60):
        program = drawn(seed)
        if len(program.classes):
            ours, theirs = solved(program), solved(program, "highs", tolerance=1e-10)
            assert ours.status is Status.OPTIMAL and ours.certificate.ok, seed
            assert ours.value == pytest.approx(theirs.value, rel=1e-8), seed
