"""The pollux model: its law, its fits against the published one, its documents."""

from __future__ import annotations

import csv
import json
from typing import Any

import numpy as np
import pytest
from beside import SHARED, needs
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from time_cases import grid, log_error, random_ways

from optsched.performance import Profiles, Source

# Private names: a model by its class, where the registry knows it by name; AdaptDL's objective
from optsched.performance.parametric.pollux import (
    Pollux,
    _Data,
    _objective,
    fit_adaptdl,
    fit_robust,
    log_step_seconds,
)
from optsched.performance.parametric.two_phases import overlapped
from optsched.performance.ways import Ways

pytestmark = pytest.mark.property

LAW = np.array([0.05, 0.002, 0.1, 0.004, 0.04, 0.001, 2.0])
SHAPES = [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (4, 2), (8, 2), (16, 4)]
CASES = SHARED / "oracles" / "pollux" / "fit_cases.json"
needs_oracle = needs(CASES)
positive = st.floats(1e-6, 1e3)


def scalar(law: np.ndarray, k: int, n: int, m: float, passes: int = 1) -> float:
    a_c, b_c, a_n, b_n, a_r, b_r, g = law.tolist()
    compute = a_c + b_c * m
    a, b = (0.0, 0.0) if k == 1 else (a_n, b_n) if n > 1 else (a_r, b_r)
    sync = a + b * max(k - 2, 0)
    return (passes - 1) * compute + (compute**g + sync**g) ** (1 / g)


def step_seconds(law: np.ndarray, ways: Ways) -> np.ndarray:
    return np.exp(log_step_seconds(law, ways)[0])


def sync_of(k: int, n: int) -> float:
    return float(scalar(LAW, k, n, 1e-9) ** 2 - 0.05**2) ** 0.5 if k > 1 else 0.0


def planted(noise: float = 0.0, shapes: list[tuple[int, int]] = SHAPES) -> Profiles:
    return grid(lambda k, n, m: scalar(LAW, k, n, m), shapes, [16, 32, 64, 128], noise)


def with_sync(profiles: Profiles) -> Profiles:
    """With the sync time that AdaptDL would have measured: the step less T_grad."""
    compute = LAW[0] + LAW[1] * profiles.ways.samples
    return Profiles(profiles.ways, profiles.seconds, np.maximum(profiles.seconds - compute, 0.0))


def test_times_equal_a_scalar_loop() -> None:
    random = np.random.default_rng(1)
    pairs = [("bert", "t4"), ("bert", "v100"), ("ncf", "t4")]
    laws = [[*random.uniform(0.001, 0.2, 6), g] for g in (1.0, 2.0, 9.5)]
    names = ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "g")
    coefficients: dict[str, dict[str, Any]] = {}
    for (workload, gpu), law in zip(pairs, laws, strict=True):
        coefficients.setdefault(workload, {})[gpu] = dict(zip(names, law, strict=True))
    ways = random_ways(20_000, 2, ("x", "ncf", "bert"), ("v100", "t4"))
    times = Pollux.from_document({"coefficients": coefficients}).times(ways)
    for row in range(0, 20_000, 7):
        pair = (ways.workloads[ways.workload[row]], ways.gpu_types[ways.gpu[row]])
        if pair not in pairs:
            assert np.isnan(times.seconds[row]) and np.isnan(times.log_sd[row])
            continue
        expected = scalar(
            np.array(laws[pairs.index(pair)]),
            int(ways.gpus[row]), int(ways.nodes[row]), ways.samples[row], int(ways.passes[row]),
        )  # fmt: skip
        assert times.seconds[row] == pytest.approx(expected, rel=1e-13)
        assert times.source[row] == Source.PARAMETRIC


@given(
    positive,
    st.one_of(st.just(0.0), positive),
    st.one_of(st.sampled_from([1.0, 2.0, 10.0]), st.floats(1, 10)),
)
def test_overlap_lies_between_the_maximum_and_the_sum(x: float, y: float, g: float) -> None:
    for power in (g, np.array([g])):  # scalars have short cuts
        t = float(overlapped(np.array([x]), np.array([y]), power)[0])
        assert max(x, y) * (1 - 1e-14) <= t <= (x + y) * (1 + 1e-14)


@given(
    st.lists(st.floats(1e-3, 1), min_size=6, max_size=6), st.floats(1.0, 9), st.integers(0, 10**6)
)
def test_derivatives_are_those_of_differences(
    coefficients: list[float], g: float, seed: int
) -> None:
    law, ways = np.array([*coefficients, g + 0.01]), random_ways(20, seed)
    _, slopes = log_step_seconds(law, ways)
    for index in range(7):
        step = 1e-6
        up, down = law.copy(), law.copy()
        up[index], down[index] = (
            (law[index] + step, law[index] - step)
            if index == 6
            else (law[index] * np.exp([step, -step])).tolist()
        )
        above, below = (log_step_seconds(each, ways)[0] for each in (up, down))
        numeric = (above - below) / (2 * step)
        np.testing.assert_allclose(slopes[:, index], numeric, atol=1e-7)


@needs_oracle
@pytest.mark.parametrize("case", range(10))
def test_the_published_objective_is_met_or_beaten(case: int) -> None:
    told = json.loads(CASES.read_text())["cases"][case]
    profiles = _oracle_profiles(told)
    found = fit_adaptdl(profiles)
    assert len(profiles) == told["n_points"]
    assert _objective(found.law, _Data(profiles))[0] <= told["best_objective"] * (1 + 1e-4)
    names = ("alpha_c", "beta_c", "alpha_n", "beta_n", "alpha_r", "beta_r", "gamma")
    theirs = np.array([told["best_params"][name] for name in names])
    assert _objective(theirs, _Data(profiles))[0] == pytest.approx(told["best_objective"], rel=1e-9)


def _oracle_profiles(told: dict[str, Any]) -> Profiles:
    if "profile" in told:
        given = told["profile"]
        seconds = np.array(given["optim_step_time"])
        return Profiles.of(
            workload=["w"] * len(seconds), gpu=["g"] * len(seconds), gpus=given["num_replicas"],
            nodes=given["num_nodes"], samples=given["atomic_bsz"], seconds=seconds,
            sync=np.maximum(seconds - np.array(given["accum_step_time"]), 0.0),
        )  # fmt: skip
    job, gpu = told["name"].split("/")
    rows: dict[tuple[int, int, int], tuple[float, float]] = {}
    for kind in ("placements", "scalability"):
        path = SHARED / "data" / "sia" / "profiles" / job / f"{kind}-{gpu}.csv"
        if not path.is_file():
            pytest.skip("the shared profiles are not here")
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                digits = [int(digit) for digit in row.get("placement", "")]
                nodes = len(digits) or int(row["num_nodes"])
                gpus = sum(digits) or int(row["num_replicas"])
                rows.setdefault(
                    (nodes, gpus, int(row["local_bsz"])),
                    (float(row["step_time"]), float(row["sync_time"])),
                )
    return Profiles.of(
        workload=[job] * len(rows), gpu=[gpu] * len(rows), gpus=[gpus for _, gpus, _ in rows],
        nodes=[nodes for nodes, _, _ in rows], samples=[samples for _, _, samples in rows],
        seconds=[seconds for seconds, _ in rows.values()], sync=[sync for _, sync in rows.values()],
    )  # fmt: skip


def test_planted_coefficients_are_recovered() -> None:
    np.testing.assert_allclose(fit_adaptdl(with_sync(planted())).law, LAW, rtol=1e-3)
    found = fit_robust(planted())  # its weak priors cost a little
    np.testing.assert_allclose(found.law, LAW, rtol=0.05)
    assert found.log_sd == 0.05  # nothing is left, but no more is believed
    noisy = fit_robust(planted(0.05))
    assert 0.05 < noisy.log_sd < 0.08
    ways = planted().ways
    assert log_error(step_seconds(noisy.law, ways), planted().seconds) < 0.06


def test_the_robust_fit_shrugs_at_an_outlier() -> None:
    profiles = planted()
    profiles.seconds[5] *= 20
    assert (
        log_error(step_seconds(fit_robust(profiles).law, profiles.ways), planted().seconds) < 0.03
    )


def test_what_was_not_measured_is_pinned_and_told() -> None:
    model = Pollux.fit(planted(shapes=[(1, 1)]), {})
    law = dict(
        zip(
            ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "g"),
            next(iter(model.laws.values())).law,
            strict=True,
        )
    )
    assert law["a_r"] == law["b_r"] < 1e-8 and law["a_n"] == law["b_n"] == pytest.approx(
        1.1 * law["a_r"]
    )
    times = model.times(grid(lambda *_: 1.0, [(1, 1), (4, 1), (4, 2)], [64]).ways)
    assert times.source.tolist() == [Source.PARAMETRIC, Source.PRIOR, Source.PRIOR]
    assert times.log_sd[0] == pytest.approx(0.25 / 3**0.5)  # four steps for two coefficients
    assert times.log_sd[1:].tolist() == [0.3, 0.3]
    np.testing.assert_allclose(times.seconds, 0.05 + 0.002 * 64, rtol=1e-5)

    model = Pollux.fit(planted(shapes=[(1, 1), (2, 1)]), {})
    law = dict(
        zip(
            ("a_c", "b_c", "a_n", "b_n", "a_r", "b_r", "g"),
            next(iter(model.laws.values())).law,
            strict=True,
        )
    )
    assert law["b_r"] < 1e-8 and law["a_n"] == pytest.approx(1.1 * law["a_r"])


@pytest.mark.parametrize(
    ("of_seconds", "of_samples"), [(1e-6, 1.0), (1e6, 1.0), (1.0, 1e6), (1.0, 1e-6), (1e-9, 1e9)]
)
def test_units_do_not_matter(of_seconds: float, of_samples: float) -> None:
    profiles = planted(0.1)
    ways = profiles.ways.with_batches(profiles.ways.samples * of_samples, profiles.ways.passes)
    scaled = Profiles(ways, profiles.seconds * of_seconds, profiles.sync)
    plain, other = fit_robust(profiles), fit_robust(scaled)
    np.testing.assert_allclose(
        step_seconds(other.law, ways), of_seconds * step_seconds(plain.law, profiles.ways), 1e-4
    )
    assert other.log_sd == pytest.approx(plain.log_sd, rel=1e-4)


@pytest.mark.parametrize(
    ("of_seconds", "of_samples", "words"),
    [(1e-6, 1.0,
        "profiles of bert on t4: seconds: found 1.8022e-07 in the median, expected 1e-06 to 1e+06 s for..."),
     (1e8, 1.0, "profiles of bert on t4: seconds"),
     (1.0, 1e6,
      "profiles of bert on t4: samples: found 4.8e+07 in the median, in 0.18022 s, expected at least "
      "1e-07 s each for this method...")],
)  # fmt: skip
def test_the_published_objective_has_bounds(
    of_seconds: float, of_samples: float, words: str
) -> None:
    profiles = with_sync(planted())
    ways = profiles.ways.with_batches(profiles.ways.samples * of_samples, profiles.ways.passes)
    with refuses(words):
        Pollux.fit(
            Profiles(ways, profiles.seconds * of_seconds, profiles.sync * of_seconds),
            {"method": "adaptdl"},
        )


@pytest.mark.parametrize("method", ["robust", "adaptdl"])
def test_a_single_measurement_is_halved(method: str) -> None:
    profiles = Profiles.of(workload=["w"], gpu=["g"], gpus=[1], samples=[10], seconds=[0.5])
    fit = (fit_robust if method == "robust" else fit_adaptdl)(profiles)
    assert fit.law[0] == 0.25 and fit.law[1] == pytest.approx(0.025, rel=1e-6)


def test_errors_are_told() -> None:
    with refuses("profiles of bert on t4: sync: found no measured sync..."):
        Pollux.fit(planted(shapes=[(2, 1)]), {"method": "adaptdl"})
    with refuses('performance.method: found "magic"'):
        Pollux.fit(planted(), {"method": "magic"})
    with refuses("performance.coefficients.w.g.g: found 0.5, expected a number of at..."):
        Pollux.from_document({"coefficients": {"w": {"g": {"a_c": 1.0, "b_c": 0.0, "g": 0.5}}}})
