"""The interpolation model: exact where measured, between otherwise, nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from time_cases import grid, join

from optsched.performance import Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.interpolation import Interpolation
from optsched.performance.parametric.fitting import fit_affine
from optsched.performance.ways import Ways


def at(k: list[int], n: list[int], m: list[float], passes: int = 1, workload: str = "bert") -> Ways:
    zeros = np.zeros(len(k), np.int64)
    return Ways(
        zeros, zeros, np.array(k), np.array(n), np.array(m), zeros + passes, (workload,), ("t4",)
    )


def power(k: int, n: int, m: float) -> float:
    return (0.1 + 0.01 * m) * k**0.3 * n**0.2


SHAPES = [(1, 1), (2, 1), (4, 1), (4, 2), (8, 2), (16, 4), (16, 8)]


def test_exact_hits_are_returned_bit_for_bit() -> None:
    random = np.random.default_rng(0)
    profiles = grid(lambda *_: float(random.random()), SHAPES, [1.5, 8, 64])
    shuffled = profiles.take(random.permutation(len(profiles)))
    times = Interpolation.fit(profiles, {}).times(shuffled.ways)
    assert (times.seconds == shuffled.seconds).all()
    assert (times.source == Source.MEASURED).all() and (times.log_sd == 0.05).all()


def test_repeated_measurements_count_by_their_median() -> None:
    profiles = join(*(grid(lambda *_: seconds, [(1, 1)], [8]) for seconds in (1.0, 5.0, 2.0)))  # noqa: B023
    assert Interpolation.fit(profiles, {}).times(profiles.ways).seconds.tolist() == [2.0] * 3


def test_a_missing_batch_is_on_the_line() -> None:
    model = Interpolation.fit(grid(power, SHAPES, [8, 16, 64]), {})
    times = model.times(at([1, 4, 16], [1, 2, 4], [32, 100, 1]))
    np.testing.assert_allclose(
        times.seconds, [power(1, 1, 32), power(4, 2, 100), power(16, 4, 1)], rtol=1e-9
    )
    assert times.source.tolist() == [Source.INTERPOLATED, Source.EXTRAPOLATED, Source.EXTRAPOLATED]
    assert (times.log_sd == 0.05).all()  # nothing left out was missed: as sure as what was measured


def test_a_missing_count_is_between_its_neighbours_and_never_beyond() -> None:
    model = Interpolation.fit(grid(power, SHAPES, [8, 64]), {})
    ways = at([3, 3, 6, 12, 5, 32, 2, 7], [1, 1, 2, 3, 1, 8, 2, 7], [8, 20, 8, 8, 8, 8, 8, 8])
    seconds = model.times(ways).seconds
    np.testing.assert_allclose(
        seconds[:3], [power(3, 1, 8), power(3, 1, 20), power(6, 2, 8)], rtol=1e-9
    )
    assert power(8, 2, 8) < seconds[3] < power(16, 4, 8)  # as many GPUs per node
    assert np.isnan(seconds[4:]).all()


def test_a_fixed_batch_is_interpolated_by_its_own_points() -> None:
    profiles = Profiles.of(
        workload=["bert"] * 3,
        gpu=["t4"] * 3,
        gpus=[1, 4, 16],
        samples=[64, 16, 4],
        seconds=[8.0, 4.0, 1.0],
    )
    model = Interpolation.fit(profiles, {})
    seconds = model.times(at([2, 8, 2, 32], [1, 1, 1, 1], [32, 8, 64, 2])).seconds
    np.testing.assert_allclose(seconds[:2], [32**0.5, 2.0], rtol=1e-12)
    assert np.isnan(seconds[2:]).all()  # another batch; beyond


def test_what_is_not_known_is_not_said() -> None:
    model = Interpolation.fit(grid(power, SHAPES, [8]), {})
    assert np.isnan(model.times(at([1], [1], [9])).seconds[0])  # one m makes no line
    assert np.isnan(model.times(at([1], [1], [8], passes=2)).seconds[0])
    assert np.isnan(model.times(at([1], [1], [8], workload="other")).seconds[0])


def test_times_equal_a_scalar_loop() -> None:
    random = np.random.default_rng(3)
    profiles = grid(lambda *_: float(random.uniform(1, 2)), SHAPES, [1, 8, 64])
    model = Interpolation.fit(profiles, {})
    told = {
        (int(k), int(n), float(m)): float(t)
        for k, n, m, t in zip(
            profiles.ways.gpus,
            profiles.ways.nodes,
            profiles.ways.samples,
            profiles.seconds,
            strict=True,
        )
    }

    def line(k: int, n: int, m: float) -> float:
        if (k, n, m) in told:
            return told[k, n, m]
        points = [(batch, told[k, n, batch]) for batch in (1.0, 8.0, 64.0)]
        a, b = fit_affine(*(np.array(column) for column in zip(*points, strict=True)))
        return a + b * m

    def scalar(k: int, n: int, m: float) -> float:
        if (k, n) in SHAPES:
            return line(k, n, m)
        for key in (lambda k, n: n, lambda k, n: -(-k // n)):
            series = sorted(shape for shape in SHAPES if key(*shape) == key(k, n))
            below, above = [s for s in series if s[0] <= k], [s for s in series if s[0] >= k]
            if below and above:
                (k0, n0), (k1, n1) = below[-1], above[0]
                place = (np.log(k) - np.log(k0)) / (np.log(k1) - np.log(k0)) if k1 > k0 else 0.0
                return float(
                    np.exp((1 - place) * np.log(line(k0, n0, m)) + place * np.log(line(k1, n1, m)))
                )
        return float("nan")

    shapes = [(k, n) for k in range(1, 20) for n in range(1, k + 1)]
    ways = at(
        [k for k, _ in shapes] * 2,
        [n for _, n in shapes] * 2,
        [8.0] * len(shapes) + [20.0] * len(shapes),
    )
    expected = [scalar(k, n, m) for m in (8.0, 20.0) for k, n in shapes]
    np.testing.assert_allclose(model.times(ways).seconds, expected, rtol=1e-12)


@given(
    st.floats(1e-3, 10),
    st.floats(1e-5, 1),
    st.lists(st.floats(1, 1000), min_size=2, max_size=6, unique=True),
)
def test_lines_recover_what_was_planted(a: float, b: float, samples: list[float]) -> None:
    m = np.array(samples)
    if np.ptp(m) > 0.1 * m.max():
        found = fit_affine(m, a + b * m)
        assert found[0] + found[1] * m == pytest.approx(a + b * m, rel=1e-8)
    one = fit_affine(m[:1], np.array([a]))
    assert one == (pytest.approx(a / 2), pytest.approx(a / 2 / m[0]))


def test_uncertainty_is_that_of_points_left_out() -> None:
    shapes = [(k, 1) for k in (1, 2, 3, 4, 6, 8, 12, 16)]
    noisy = Interpolation.fit(grid(power, shapes, [8, 16, 32, 64], noise=0.1), {})
    assert 0.08 < noisy.stored.batch_log_sd < 0.3 and 0.08 < noisy.stored.count_log_sd < 0.2
    little = Interpolation.fit(grid(power, [(1, 1), (2, 1)], [8, 16]), {})
    assert (little.stored.batch_log_sd, little.stored.count_log_sd) == (0.18, 0.12)  # stated


def test_errors_are_told() -> None:
    with refuses("performance.points.w.g[0]: found 2 nodes for 1 GPUs"):
        Interpolation.from_document({"points": {"w": {"g": [[1, 2, 8, 1, 0.5]]}}})
    with refuses("performance.points.w.g[1]: found a point that is in the list already"):
        Interpolation.from_document(
            {"points": {"w": {"g": [[1, 1, 8, 1, 0.5], [1, 1, 8.0, 1, 0.6]]}}}
        )
    with refuses("performance.points: found no points"):
        Interpolation.from_document({"points": {}})
    with refuses("performance.smooth: found an unknown key..."):
        Interpolation.fit(grid(power, SHAPES, [8]), {"smooth": True})
