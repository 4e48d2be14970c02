"""Wrap-around: fractions of an interval on identical machines."""

from __future__ import annotations

import numpy as np
import pytest

from formulations.wrap_around import wrapped
from optsched.arrays import FloatArray, IntArray


def pieces(
    place: list[int], machines: list[int], fraction: list[float], **given: bool
) -> tuple[IntArray, FloatArray, FloatArray]:
    count = len(place)
    before, after = (np.full(count, given.get(name, False)) for name in ("before", "after"))
    of, takes = np.array(place, np.int64), np.array(machines, np.int64)
    return wrapped(of, takes, np.array(fraction), before, after)


def test_a_row_that_reaches_into_the_next_machine_has_two_pieces() -> None:
    row, begin, end = pieces([0, 0, 0], [2, 2, 2], [0.75, 0.75, 0.5])
    assert row.tolist() == [0, 1, 2, 1]
    assert begin.tolist() == [0.0, 0.75, 0.5, 0.0]
    assert end.tolist() == [0.75, 1.0, 1.0, 0.5]


def test_rows_that_go_on_run_to_the_end_of_the_interval() -> None:
    row, begin, end = pieces([0, 1, 1], [1, 1, 1], [0.25, 0.25, 0.5], after=True)
    assert dict(zip(row.tolist(), end.tolist(), strict=True)) == {0: 1.0, 1: 1.0, 2: 0.75}
    assert dict(zip(row.tolist(), begin.tolist(), strict=True)) == {0: 0.75, 1: 0.75, 2: 0.25}


def random_rows(rng: np.random.Generator) -> tuple[IntArray, IntArray, FloatArray]:
    """Rows of which some are whole, and some places are full."""
    places = int(rng.integers(1, 5))
    machines = rng.integers(1, 6, places)
    place = rng.integers(0, places, int(rng.integers(1, 25)))
    fraction = np.where(rng.random(len(place)) < 0.2, 1.0, rng.uniform(0.0, 1.0, len(place)))
    used = np.bincount(place, fraction, places)
    if rng.random() < 0.7:
        fraction = fraction * (np.minimum(1.0, machines / np.maximum(used, 1e-9)))[place]
    else:
        machines = np.maximum(machines, np.ceil(used).astype(np.int64))
    return place, machines[place], fraction


@pytest.mark.parametrize("seed", range(200))
def test_every_row_runs_for_its_fraction_on_one_machine_at_a_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    place, machines, fraction = random_rows(rng)
    before, after = rng.random((2, len(place))) < 0.5
    row, begin, end = wrapped(place, machines, fraction, before, after)
    assert np.bincount(row, end - begin, len(place)) == pytest.approx(fraction, abs=1e-11)
    assert (begin >= 0).all() and (end <= 1).all()
    assert (end[fraction[row] == 1.0] == 1.0).all()
    for moment in np.unique(begin):
        running = row[(begin <= moment) & (moment < end)]
        assert len(set(running)) == len(running)
        assert (np.bincount(place[running], minlength=5)[place] <= machines).all()


def test_sums_that_rounding_makes_too_large_shrink_and_whole_rows_stay() -> None:
    row, begin, end = pieces([0, 0, 0], [2, 2, 2], [1.0, 0.5, 0.5 + 1e-9])
    length = np.bincount(row, end - begin)
    assert length[0] == 1.0
    assert 2.0 - 1e-11 < length.sum() <= 2.0


def test_short_rows_of_long_intervals_lose_nothing() -> None:
    """An interval of ten years, and jobs of a minute on many machines: they lose less than the clock counts."""
    machines, fraction = [1000] * 1500, [2e-7] * 1500
    row, begin, end = pieces([0] * 1500, machines, fraction)
    assert np.bincount(row, end - begin) == pytest.approx(2e-7, rel=1e-8, abs=0.0)


def test_no_rows_have_no_pieces() -> None:
    assert all(len(each) == 0 for each in pieces([], [], []))
