"""What a search for the best places leaves where it is stopped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_prices_totals import scattered, solved

from optsched.solution import Status, Termination

# Private names: sessions and steps of one back-end, without the engine
from optsched.solvers.prices.linear_total import greedy_allocation

pytestmark = pytest.mark.property


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**6), classes=st.integers(1, 40), places=st.integers(1, 6))
def test_places_are_filled_within_time_and_capacity(seed: int, classes: int, places: int) -> None:
    random = np.random.default_rng(seed)
    worth = random.lognormal(0.0, 1.0, (classes, places)) * (random.random((classes, places)) > 0.3)
    weight, capacity = random.choice([1.0, 2.0, 8.0], classes), random.uniform(0.5, classes, places)
    prices = random.choice([0.0, 0.5], places)
    time = greedy_allocation(worth, weight, capacity, prices)
    assert (
        (time >= 0).all() and (time.sum(axis=1) <= 1.0 + 1e-12).all() and not time[worth == 0].any()
    )
    held = weight @ time
    assert (held <= capacity * (1.0 + 1e-12)).all()
    idle = time.sum(axis=1) == 0
    assert not (worth[idle] > 0)[
        :, held < capacity * (1.0 - 1e-9)
    ].any()  # who idles finds no place with room


@pytest.mark.unit
def test_the_one_place_goes_to_those_who_make_the_most_of_it() -> None:
    time = greedy_allocation(
        np.array([[1.0], [3.0], [2.0], [5.0]]), np.full(4, 2.0), np.array([5.0]), np.zeros(1)
    )
    assert time.ravel().tolist() == [0.0, 1.0, 0.5, 1.0]


@pytest.mark.parametrize("pools", [1, 4, 12])
def test_a_total_that_is_stopped_at_once_is_not_far_from_the_best(pools: int) -> None:
    program = scattered(2000, pools, 1.0)
    best, stopped = solved(program), solved(program, work=1)
    assert stopped.values.termination is Termination.WORK_LIMIT and stopped.certificate.ok
    assert stopped.status is Status.FEASIBLE and (
        pools > 1 or stopped.value == pytest.approx(best.value, rel=1e-9)
    )
    assert (
        0.7 * best.value
        <= stopped.value
        <= best.value * (1.0 + 1e-9)
        <= stopped.bound * (1.0 + 2e-9)
    )
