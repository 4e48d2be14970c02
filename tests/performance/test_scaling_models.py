"""The amdahl and usl models."""

from __future__ import annotations

import numpy as np
import pytest
from beside import SHARED, needs
from refusals import refuses
from time_cases import join

from optsched.formats import read_profiles
from optsched.performance import Profiles

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.parametric.scaling import Amdahl, UniversalScalability
from optsched.performance.ways import Ways

pytestmark = pytest.mark.property


def usl(work: float, serial: float, crosstalk: float, k: np.ndarray) -> np.ndarray:
    return work * (1 + serial * (k - 1) + crosstalk * k * (k - 1)) / k


def curve(
    batch: float, law: tuple[float, float, float], counts: list[int], noise: float = 0.0
) -> Profiles:
    k = np.array(counts, float)
    seconds = usl(*law, k) * np.exp(noise * np.random.default_rng(0).normal(size=len(k)))
    return Profiles.of(
        workload=["w"] * len(k), gpu=["g"] * len(k), gpus=counts, samples=batch / k, seconds=seconds
    )


def at(k: list[int], samples: list[float]) -> Ways:
    zeros = np.zeros(len(k), np.int64)
    return Ways(
        zeros, zeros, np.array(k), zeros + 1, np.array(samples, float), zeros + 1, ("w",), ("g",)
    )


def test_planted_laws_are_recovered() -> None:
    law = (2.0, 0.05, 0.002)
    found = UniversalScalability.fit(curve(256, law, [1, 2, 4, 8, 64]), {}).curves["w", "g"][0]
    assert (found.work, found.serial, found.crosstalk) == pytest.approx(law, rel=1e-9)
    noisy = UniversalScalability.fit(curve(256, law, list(range(1, 65)), 0.05), {}).curves[
        "w", "g"
    ][0]
    assert (noisy.work, noisy.serial, noisy.crosstalk) == pytest.approx(law, rel=0.2)
    assert 0.03 < noisy.log_sd < 0.07
    found = Amdahl.fit(curve(256, (2.0, 0.05, 0.0), [1, 8]), {}).curves["w", "g"][0]
    assert (found.work, found.serial, found.crosstalk) == pytest.approx((2.0, 0.05, 0.0), rel=1e-9)


@pytest.mark.unit
def test_times_equal_a_scalar_loop() -> None:
    model = UniversalScalability.from_document(
        {
            "curves": {
                "w": {"g": [
                    {"batch": 100, "work": 2.0, "serial": 0.1, "crosstalk": 0.01, "log_sd": 0.2},
                    {"batch": 64, "work": 1.0},
                ]}
            }
        }
    )  # fmt: skip
    ways = at([1, 3, 8, 1, 64, 1, 1, 2], [100, 34, 13, 64, 1, 101, 99, 100])
    times = model.times(ways)
    first = [float(usl(2.0, 0.1, 0.01, np.array(float(k)))) for k in (1, 3, 8)]
    np.testing.assert_allclose(
        times.seconds, [*first, 1.0, 1 / 64, np.nan, np.nan, np.nan], rtol=1e-13
    )
    assert times.log_sd[:5].tolist() == [0.2] * 3 + [0.1] * 2


def test_too_little_pins_coefficients() -> None:
    one = UniversalScalability.fit(curve(256, (2.0, 0.5, 0.5), [4]), {}).curves["w", "g"][0]
    assert (one.serial, one.crosstalk) == (0.0, 0.0)
    two = UniversalScalability.fit(curve(256, (2.0, 0.05, 0.0), [1, 4]), {}).curves["w", "g"][0]
    assert two.serial == pytest.approx(0.05) and two.crosstalk == 0.0


def test_errors_are_told() -> None:
    curves = [{"batch": 8, "work": 1.0, "crosstalk": 0.1}]
    with refuses("performance.curves.w.g[0].crosstalk: found 0.1, expected 0 in the amdahl model"):
        Amdahl.from_document({"curves": {"w": {"g": curves}}})
    with refuses("performance.curves.w.g[1].batch: found 8 again, expected each batch once"):
        UniversalScalability.from_document({"curves": {"w": {"g": curves * 2}}})
    rising = Profiles.of(
        workload=["w"] * 2, gpu=["g"] * 2, gpus=[2, 4], samples=[8, 4], seconds=[1.0, 100.0]
    )
    with refuses("profiles of w on g: seconds: found no part that shrinks..."):
        Amdahl.fit(rising, {})


@pytest.mark.parametrize("model", [Amdahl, UniversalScalability])
def test_a_curve_that_follows_no_law_leaves_the_others(model: type[UniversalScalability]) -> None:
    odd = Profiles.of(
        workload=["w", "w", "x", "x"], gpu=["g"] * 4, gpus=[2, 4, 2, 4], samples=[4, 2, 4, 2],
        seconds=[1.0, 100.0, 1.0, 100.0],
    )  # fmt: skip
    fine = curve(256, (2.0, 0.05, 0.0), [1, 2, 4])
    fitted = model.fit(join(odd, fine), {})
    assert [(pair, [one.batch for one in curves]) for pair, curves in fitted.curves.items()] == [
        (("w", "g"), [256])
    ]
    assert fitted.document() == model.fit(fine, {}).document()
    times = fitted.times(join(odd, fine).ways)
    assert np.isnan(times.seconds[:4]).all() and np.isfinite(times.seconds[4:]).all()


@needs(SHARED / "data" / "sia" / "profiles" / "bert")
@pytest.mark.parametrize("model", [Amdahl, UniversalScalability])
def test_measured_profiles_are_fitted(model: type[UniversalScalability]) -> None:
    profiles = read_profiles(SHARED / "data" / "sia" / "profiles" / "bert")
    told = model.fit(profiles, {}).times(profiles.ways).seconds
    assert np.isfinite(told).mean() > 0.9
