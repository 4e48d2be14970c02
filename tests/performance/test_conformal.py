"""Split conformal intervals: how often they hold what they are for, and that they are told exactly."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from learned_cases import Linear
from pair_cases import every_pair
from pair_cases import profiles_of as pairs_of
from refusals import refuses

from optsched import performance
from optsched.performance import Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.learned.combined import Conformal
from optsched.performance.learned.pair_models import ConformalPairs
from optsched.performance.learned.validation import Radius, hold_out

pytestmark = pytest.mark.property

OF = {"of": {"model": Linear.name}}


@pytest.fixture(autouse=True)
def linear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(performance.CATALOGUE, Linear.name, f"{Linear.__module__}:Linear")


def steps(count: int, seed: int) -> Profiles:
    """Steps with errors of a skewed law with heavy tails, which is not normal."""
    random = np.random.default_rng(seed)
    samples = random.integers(1, 64, count).astype(float)
    errors = 0.1 * random.standard_t(3, count) + 0.05 * random.exponential(size=count)
    return Profiles.of(
        workload=["a"] * count, gpu=["g"] * count, gpus=[1] * count, samples=samples,
        seconds=0.01 * samples * np.exp(errors),
    )  # fmt: skip


@pytest.mark.unit
def test_the_radius_is_an_order_statistic() -> None:
    errors = np.array([-9.0, 1.0, -2.0, 3.0, 4.0, 5.0, -6.0, 7.0, 8.0])
    assert Radius.of(errors, 0.9) == Radius(0.9, 9.0, 9)  # ceil(10 x 0.9) = 9
    assert Radius.of(errors, 0.5).radius == 5.0
    assert Radius.of(errors, 0.51).radius == 6.0
    assert Radius.of(errors, 0.9).log_sd == pytest.approx(9.0 / NormalDist().inv_cdf(0.95))
    with refuses("profiles: found 8 rows held out, expected at least 9 for a level of 0.9"):
        Radius.of(errors[1:], 0.9)


@pytest.mark.unit
def test_rows_of_a_group_are_held_out_together() -> None:
    group = np.repeat(np.arange(40), 3)
    seen, out = hold_out(group, 0.25, 0)
    assert len(out) == 30
    assert not set(group[seen]) & set(group[out])
    assert sorted([*seen, *out]) == list(range(120))
    assert hold_out(group, 0.25, 1)[1].tolist() != out.tolist()


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_hold_as_often_as_they_say(level: float) -> None:
    inside = []
    for seed in range(40):
        model = Conformal.fit(steps(400, seed), OF | {"level": level, "seed": seed})
        new = steps(200, 1000 + seed)
        least, most = model.intervals(new.ways)
        inside.append(((least <= new.seconds) & (new.seconds <= most)).mean())
    assert np.mean(inside) == pytest.approx(level, abs=0.02)


@pytest.mark.unit
def test_times_are_those_of_the_model_that_saw_three_quarters() -> None:
    profiles = steps(400, 0).sorted()  # the rows that are held out are numbered so
    model = Conformal.fit(profiles, OF)
    seen, out = hold_out(np.arange(400), 0.25, 0)
    base = Linear.fit(profiles.take(seen), {})
    said, plain = model.times(profiles.ways), base.times(profiles.ways)
    np.testing.assert_array_equal(said.seconds, plain.seconds)
    assert set(said.source) == {Source.PARAMETRIC}
    errors = np.abs(np.log(profiles.seconds / plain.seconds)[out])
    assert model.radius.rows == 100
    assert model.radius.radius == np.sort(errors)[90]
    assert set(said.log_sd) == {model.radius.log_sd}


def test_pairs_hold_as_often_as_they_say() -> None:
    inside = []
    for seed in range(12):
        profiles = pairs_of(jobs=14, share=0.9, noise=0.2, seed=seed)
        split = np.random.default_rng(seed).permutation(len(profiles))
        known, new = profiles.take(np.sort(split[40:])), profiles.take(split[:40])
        model = ConformalPairs.fit(known, {"of": {"model": "row-column"}, "seed": seed})
        least, most = model.intervals(new.pairs)
        true = np.column_stack((new.first, new.second))
        inside.append(((least <= true) & (true <= most)).mean())
    assert 0.87 <= np.mean(inside) <= 0.93


def test_what_was_measured_is_certain() -> None:
    profiles = pairs_of(jobs=8, share=0.5, noise=0.2)
    model = ConformalPairs.fit(profiles, {"of": {"model": "row-column"}})
    pairs = every_pair(8)
    said, (least, most) = model.fractions(pairs), model.intervals(pairs)
    measured = said.source == Source.MEASURED
    assert 0 < measured.sum() < len(pairs)
    assert (said.log_sd[measured] == 0).all()
    assert (said.log_sd[~measured] == model.radius.log_sd).all()
    np.testing.assert_array_equal(least[measured], most[measured])
    assert (least[~measured] < most[~measured]).all()
    assert (most <= 1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "performance.of: found nothing, expected this key"),
        (OF | {"level": 1.0}, "performance.level: found 1.0, expected a number of at most 0.999"),
        (OF | {"held_out": 0.0}, "performance.held_out: found 0.0, expected a number above 0"),
        (OF | {"held_out": 0.01}, "profiles: found 1 rows held out, expected at least 9..."),
        ({"of": {"model": Linear.name, "slope": 1}}, "performance.of.slope"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with refuses(message):
        Conformal.fit(steps(40, 0), options)
