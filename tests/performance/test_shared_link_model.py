"""The shared-link model: its law, what it takes from one workload to another, its documents."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from time_cases import grid, join, random_ways

from optsched.performance import Profiles, Source

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.parametric.shared_link import (
    Anchors,
    ParameterPrior,
    Parameters,
    SharedLink,
    log_seconds,
    rows_of,
)
from optsched.performance.ways import Ways

DOCUMENT: dict[str, Any] = {
    "g": 2.5,
    "gradient_bytes": {"bert": 4.4e8, "ncf": 2e7, "yolo": 2.5e8},
    "gpus": {
        "t4": {
            "inside": {"bandwidth": 5e9, "latency": 2e-4},
            "across": {"bandwidth": 1e9, "latency": 5e-4},
            "slowdown": 0.1,
        },
        "a100": {
            "inside": {"bandwidth": 5e10, "latency": 1e-4},
            "across": {"bandwidth": 5e9, "latency": 3e-4, "measured": False},
        },
    },
    "compute": {
        "bert": {
            "t4": {"a": 0.1, "b": 0.02, "log_sd": [0.01, 0.02, 0.03]},
            "a100": {"a": 0.05, "b": 0.005},
        },
        "ncf": {
            "t4": {"a": 0.01, "b": 0.0001, "inside": 1.5, "across": 0.5, "slowdown": [0.3, 0.0]}
        },
        "yolo": {"t4": {"a": 0.2, "b": 0.03}, "a100": {"a": 0.1, "b": 0.01}},
    },
}
SHAPES = [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (4, 2), (8, 2), (16, 4), (32, 8)]


def scalar(workload: str, gpu: str, k: int, n: int, m: float, passes: int = 1) -> float:
    compute, types = DOCUMENT["compute"][workload][gpu], DOCUMENT["gpus"][gpu]
    level = "across" if n > 1 else "inside"
    slowdown = (
        compute["slowdown"][level == "across"]
        if "slowdown" in compute
        else types.get("slowdown", 0.0)
    )
    x = (compute["a"] + compute["b"] * m) * (1 + slowdown * (1 - 1 / k))
    if k == 1:
        return float(passes * x)
    link, g = types[level], DOCUMENT["g"]
    ring = DOCUMENT["gradient_bytes"][workload] * 2 * (k - 1) / k / link["bandwidth"]
    y = compute.get(level, 1.0) * (ring + 2 * (k - 1) * link["latency"])
    return float((passes - 1) * x + (x**g + y**g) ** (1 / g))


def planted(
    pairs: list[tuple[str, str]], shapes: list[tuple[int, int]] = SHAPES, noise: float = 0.0
) -> Profiles:
    parts = [
        grid(
            lambda k, n, m, pair=pair: scalar(*pair, k, n, m),
            shapes,
            [4, 16, 64],
            noise,
            seed,
            pair,
        )
        for seed, pair in enumerate(pairs)
    ]
    return join(*parts)


ALL = [("bert", "t4"), ("yolo", "t4"), ("ncf", "t4"), ("bert", "a100"), ("yolo", "a100")]
STATED = {"gradient_bytes": {"bert": 4.4e8}}


def test_times_equal_a_scalar_loop() -> None:
    model = SharedLink.from_document(DOCUMENT)
    ways = random_ways(20_000, 1, ("yolo", "x", "bert", "ncf"), ("a100", "t4", "h100"))
    times = model.times(ways)
    for row in range(0, 20_000, 7):
        workload, gpu = ways.workloads[ways.workload[row]], ways.gpu_types[ways.gpu[row]]
        if gpu not in DOCUMENT["compute"].get(workload, {}):
            assert np.isnan(times.seconds[row])
            continue
        k, n = int(ways.gpus[row]), int(ways.nodes[row])
        expected = scalar(workload, gpu, k, n, ways.samples[row], int(ways.passes[row]))
        assert times.seconds[row] == pytest.approx(expected, rel=1e-13)
        unmeasured = gpu == "a100" and n > 1
        assert times.source[row] == (Source.PRIOR if unmeasured else Source.PARAMETRIC)
        if (workload, gpu) == ("bert", "t4"):
            assert times.log_sd[row] == [0.01, 0.02, 0.03][(k > 1) + (n > 1)]


def test_behind_a_gate_communication_counts_from_a_part_of_the_compute_on() -> None:
    open_, gated = (SharedLink.from_document(DOCUMENT | {"gate": gate}) for gate in (0.0, 0.2))
    ways = random_ways(5_000, 1, ("yolo", "bert", "ncf"), ("a100", "t4"))
    before, after = open_.times(ways).seconds, gated.times(ways).seconds
    without = copy.deepcopy(DOCUMENT) | {
        "gradient_bytes": dict.fromkeys(DOCUMENT["gradient_bytes"], 1e-90)
    }
    for links in without["gpus"].values():
        links["inside"]["latency"] = links["across"]["latency"] = 0.0
    linear = SharedLink.from_document(without).times(ways).seconds
    known = ~np.isnan(before)
    shut = known & (after != before)
    assert shut.any() and (known & ~shut & (ways.gpus > 1)).any()
    assert after[shut] == pytest.approx(linear[shut], rel=1e-12)
    fitted = SharedLink.fit(planted(ALL), {"gate": 0.3})
    assert fitted.document()["gate"] == 0.3
    assert (
        SharedLink.from_document(
            {k: v for k, v in fitted.document().items() if k != "model"}
        ).stored
        == fitted.stored
    )


@given(st.floats(1e8, 1e12), st.floats(1.01, 10), st.integers(1, 64))
def test_more_bandwidth_is_never_slower(bandwidth: float, more: float, k: int) -> None:
    seconds = []
    for value in (bandwidth, bandwidth * more):
        document = copy.deepcopy(DOCUMENT)
        document["gpus"]["t4"]["inside"]["bandwidth"] = value
        zero = np.zeros(1, np.int64)
        ways = Ways(zero, zero, zero + k, zero + 1, np.ones(1), zero + 1, ("bert",), ("t4",))
        seconds.append(SharedLink.from_document(document).times(ways).seconds[0])
    assert seconds[1] <= seconds[0] * (1 + 1e-14)
    if k == 1:
        assert seconds[0] == pytest.approx(0.12, rel=1e-15)  # no communication


def test_derivatives_are_those_of_differences() -> None:
    random = np.random.default_rng(0)
    profiles = planted(ALL)
    at = Parameters(3, 2, 2)
    ways = profiles.ways
    pairs = zip(ways.workload, ways.gpu, strict=True)
    cell = np.array([ALL.index((ways.workloads[w], ways.gpu_types[g])) for w, g in pairs])
    base = np.where(cell < 2, cell, -1)
    rows = rows_of(profiles, cell, random.uniform(0.1, 1, len(cell)), base, ways.workload, ways.gpu)
    z = ParameterPrior(at, [(0.1, 0.01)] * 2).mean + random.normal(0, 0.3, at.size)
    slopes = log_seconds(z, at, rows)[1]
    for index in range(at.size):
        step = np.zeros(len(z))
        step[index] = 1e-6
        numeric = (log_seconds(z + step, at, rows)[0] - log_seconds(z - step, at, rows)[0]) / 2e-6
        np.testing.assert_allclose(slopes[:, index], numeric, atol=1e-7)


def test_planted_links_are_recovered() -> None:
    profiles = planted(ALL)
    model = SharedLink.fit(profiles, STATED)
    error = np.abs(np.log(model.times(profiles.ways).seconds / profiles.seconds))
    assert error.mean() < 0.03
    assert model.stored.gradient_bytes["bert"] == pytest.approx(4.4e8, rel=0.1)
    assert model.stored.gpus["t4"].across.bandwidth == pytest.approx(1e9, rel=0.3)
    assert model.stored.gradient_bytes["yolo"] == pytest.approx(2.5e8, rel=0.3)
    compute = model.stored.compute["bert"]["t4"]
    assert (compute.a, compute.b) == pytest.approx((0.1, 0.02), rel=1e-9)


def test_links_serve_a_workload_that_was_profiled_on_one_gpu_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        DOCUMENT["gpus"]["t4"], "slowdown", 0.0
    )  # which is a pair's own and is not passed on
    alone = planted([("yolo", "t4")], [(1, 1)], 0.02)
    rest = [pair for pair in ALL if pair != ("yolo", "t4")]
    model = SharedLink.fit(join(planted(rest, noise=0.02), alone), STATED)
    wanted = planted([("yolo", "t4")], SHAPES[1:])
    times = model.times(wanted.ways)
    shared = np.abs(np.log(times.seconds / wanted.seconds)).mean()
    linear = np.abs(np.log(np.tile(alone.seconds, len(SHAPES) - 1) / wanted.seconds)).mean()
    assert shared < 0.05 and shared < linear / 3
    assert (times.source == Source.PARAMETRIC).all() and (times.log_sd == 0.25).all()


def test_links_that_were_never_measured_are_those_of_other_types() -> None:
    profiles = join(
        planted([("bert", "t4"), ("yolo", "t4")]), planted([("bert", "a100")], [(1, 1)])
    )
    model = SharedLink.fit(profiles, STATED)
    links = model.stored.gpus
    assert links["a100"].inside.bandwidth == pytest.approx(links["t4"].inside.bandwidth, rel=0.3)
    times = model.times(planted([("bert", "a100")]).ways)
    assert times.source[0] == Source.PARAMETRIC and (times.source[3:] == Source.PRIOR).all()
    assert times.log_sd[3:].tolist() == [0.4] * len(times.log_sd[3:])
    stated = {"a100": {"inside": {"bandwidth": 5e10, "latency": 1e-4}}}
    known = SharedLink.fit(profiles, {**STATED, "links": stated})
    assert known.stored.gpus["a100"].inside.bandwidth == pytest.approx(5e10, rel=0.01)
    assert not known.stored.gpus["a100"].inside.measured


def test_a_few_steps_are_added_to_an_earlier_model() -> None:
    earlier = SharedLink.fit(planted(ALL[:4], noise=0.02), STATED)
    few = join(planted([("yolo", "a100")], [(1, 1)]), planted([("yolo", "a100")], [(2, 1)]))
    wanted = planted([("yolo", "a100")], [(3, 1), (4, 1)])
    model = SharedLink.fit(few, {"prior": earlier.document()})
    assert np.abs(np.log(model.times(wanted.ways).seconds / wanted.seconds)).max() < 0.05
    assert model.stored.gpus["a100"].across.measured  # by the earlier model
    assert model.stored.gpus["t4"].across.bandwidth == pytest.approx(
        earlier.stored.gpus["t4"].across.bandwidth
    )


def test_a_pair_that_is_slowed_down_is_told_from_one_that_sends_more() -> None:
    def slowed(k: int, n: int, m: float) -> float:
        one, sent = (
            0.2 + 0.03 * m,
            (scalar("yolo", "a100", k, n, m) ** 2.5 - (0.1 + 0.01 * m) ** 2.5) ** 0.4,
        )
        return float(((one * (1 + 1.5 * (1 - 1 / k) * (n == 1))) ** 2.5 + sent**2.5) ** 0.4)

    others = planted([pair for pair in ALL if pair[0] != "yolo"])
    shapes = [(1, 1), (2, 1), (4, 2)]  # one placement on each level
    model = SharedLink.fit(
        join(others, grid(slowed, shapes, [4, 16, 64, 256], names=("yolo", "a100"))), STATED
    )
    told = model.stored.compute["yolo"]["a100"].slowdown
    assert told is not None and told[0] == pytest.approx(1.5, rel=0.1) and told[1] < 0.05
    wanted = grid(slowed, [(4, 1), (8, 1)], [8, 32, 128], names=("yolo", "a100"))
    assert np.abs(np.log(model.times(wanted.ways).seconds / wanted.seconds)).max() < 0.08


def test_without_what_is_its_own_a_pair_is_as_its_links_say() -> None:
    profiles = planted(ALL, noise=0.3)
    model, plain = (
        SharedLink.fit(profiles, STATED),
        SharedLink.fit(profiles, {**STATED, "own": False}),
    )
    assert plain.stored.gpus == model.stored.gpus and plain.stored.g == model.stored.g
    told = [each for by_gpu in plain.stored.compute.values() for each in by_gpu.values()]
    assert {(each.inside, each.across, each.slowdown) for each in told} == {(1.0, 1.0, (0.0, 0.0))}
    assert model.stored.compute["bert"]["t4"].inside != 1.0


def test_where_a_pair_was_never_measured_it_is_neither_slowed_down_nor_apart() -> None:
    model = SharedLink.fit(
        join(planted(ALL[:2]), planted([("ncf", "t4")], [(1, 1), (2, 1)])), STATED
    )
    compute = model.stored.compute["ncf"]["t4"]
    assert compute.slowdown is not None
    assert (compute.across, compute.slowdown[1]) == (1.0, 0.0)
    assert compute.inside != 1.0


def test_what_all_share_is_not_decided_by_the_pair_that_was_measured_most() -> None:
    """Bytes are stated; a pair that was measured ten times as often as two others seems to have a slower link."""
    stated = {"gradient_bytes": dict(DOCUMENT["gradient_bytes"])}
    odd = grid(lambda k, n, m: 1.6 * scalar("yolo", "t4", k, n, m), SHAPES[1:4], np.linspace(4, 64, 40).tolist(),
               names=("yolo", "t4"))  # fmt: skip
    alone = planted([("yolo", "t4")], [(1, 1)])
    others = planted([("bert", "t4"), ("ncf", "t4")], SHAPES[:4])
    bandwidth = SharedLink.fit(join(others, alone, odd), stated).stored.gpus["t4"].inside.bandwidth
    assert bandwidth == pytest.approx(5e9, rel=0.2)  # 1.3e9 with all its measurements


def test_anchored_times_go_through_what_was_measured_on_one_gpu() -> None:
    random = np.random.default_rng(0)
    bent = grid(
        lambda k, n, m: scalar("yolo", "t4", k, n, m),
        [(1, 1)] * 2,
        [4, 8, 16, 64],
        names=("yolo", "t4"),
    )
    bent = replace(bent, seconds=bent.seconds * random.uniform(0.6, 1.6, len(bent)))
    profiles = join(planted([("bert", "t4")]), bent)
    model, line = (SharedLink.fit(profiles, {"anchored": anchored}) for anchored in (True, False))
    alone = bent.ways.take(np.arange(4))
    means = np.sqrt(bent.seconds[:4] * bent.seconds[4:])
    np.testing.assert_allclose(model.times(alone).seconds, means, rtol=1e-12)
    assert np.abs(np.log(line.times(alone).seconds / means)).max() > 0.05
    kept = model.stored.compute["yolo"]["t4"].one_gpu
    assert (
        kept is not None and kept.samples == (4, 8, 16, 64) and kept.seconds == pytest.approx(means)
    )
    # on several GPUs T_1 is the same, passes but the last are of it alone
    asked = grid(lambda k, n, m: 1.0, [(1, 1), (4, 1), (8, 2)], [16.0], names=("yolo", "t4")).ways
    told = model.times(asked).seconds
    twice = model.times(replace(asked, passes=np.full(3, 2))).seconds
    c = model.stored.compute["yolo"]["t4"].slowdown
    assert c is not None
    np.testing.assert_allclose(
        twice - told, told[0] * np.array([1.0, 1 + c[0] * 0.75, 1 + c[1] * 0.875]), rtol=1e-12
    )
    # how uncertain it is on one GPU is told by the line, as it is off by nothing itself
    assert (
        model.stored.compute["yolo"]["t4"].log_sd[0]
        == line.stored.compute["yolo"]["t4"].log_sd[0]
        > 0.1
    )


def test_anchors_are_straight_in_logs_between_measurements_and_constant_beyond() -> None:
    anchors = Anchors(
        [np.array([2.0, 8.0]), np.ones(1), np.array([5.0])],
        [np.array([0.0, 0.5]), np.zeros(1), np.array([-0.3])],
    )

    def scalar_factor(cell: int, m: float) -> float:
        if cell == 0:
            return float(np.exp(0.5 * np.clip(np.log(m / 2) / np.log(4), 0, 1)))
        return float(np.exp(-0.3)) if cell == 2 else 1.0

    random = np.random.default_rng(1)
    cell, samples = random.integers(0, 4, 500), np.exp(random.uniform(-12, 12, 500))
    cell[:3], samples[:3] = [0, 0, 2], [2.0, 8.0, 5.0]
    expected = [scalar_factor(*each) for each in zip(cell.tolist(), samples.tolist(), strict=True)]
    np.testing.assert_allclose(anchors.factor(cell, samples), expected, rtol=1e-10)
    assert anchors.factor(np.array([0, 0, 3]), np.array([2.0, 8.0, 1e300])).tolist() == [
        1.0,
        np.exp(0.5),
        1.0,
    ]


def test_compute_is_fitted_with_the_rest_where_one_gpu_was_never_measured() -> None:
    profiles = join(planted(ALL[1:4]), planted([("bert", "t4")], SHAPES[1:]))
    model = SharedLink.fit(profiles, STATED)
    compute = model.stored.compute["bert"]["t4"]
    assert compute.a + 64 * compute.b == pytest.approx(0.1 + 64 * 0.02, rel=0.15)
    single = Profiles.of(workload=["w"], gpu=["g"], gpus=[4], samples=[8], seconds=[1.0])
    assert SharedLink.fit(single, {}).times(single.ways).seconds[0] == pytest.approx(1.0, rel=0.2)


def test_errors_are_told() -> None:
    with refuses("performance.gradient_bytes.gpt: found an unknown workload, expected a work..."):
        SharedLink.fit(planted(ALL), {"gradient_bytes": {"gpt": 1e9}})
    with refuses("performance.links.t4.inside.bandwidth: found 0"):
        SharedLink.fit(planted(ALL), {"links": {"t4": {"inside": {"bandwidth": 0}}}})
    for field, message in (
        ("gradient_bytes", "bytes, as it has compute"),
        ("gpus", "links, as bert has compute"),
    ):
        document = copy.deepcopy(DOCUMENT)
        del document[field][next(iter(document[field]))]
        with refuses(f"performance.{field}...") as caught:
            SharedLink.from_document(document)
        assert (caught.value.found, caught.value.expected) == ("nothing", message)
    for one_gpu, message in (
        (
            {"samples": [4, 8], "seconds": [1]},
            "one_gpu.seconds: found 1 numbers, expected 2, as many as samples",
        ),
        (
            {"samples": [8, 8], "seconds": [1, 2]},
            "one_gpu.samples: found 8, 8, expected numbers in ascending order",
        ),
        ({"samples": [], "seconds": []}, "one_gpu.samples: found "),
        ({"samples": [4], "seconds": [0]}, "one_gpu.seconds[0]: found 0"),
    ):
        document = copy.deepcopy(DOCUMENT)
        document["compute"]["bert"]["t4"]["one_gpu"] = one_gpu
        with refuses(f"performance.compute.bert.t4.{message}..."):
            SharedLink.from_document(document)


@pytest.mark.parametrize("samples", [[32], [32, 64], [32, 32, 32]])
def test_steps_on_one_gpu_alone_leave_links_at_their_prior(samples: list[int]) -> None:
    profiles = planted([("bert", "t4"), ("yolo", "t4")], [(1, 1)])
    some = profiles.take(
        np.flatnonzero(np.isin(profiles.ways.samples, [4, 16][: len(set(samples))]))
    )
    model = SharedLink.fit(some, {})
    times = model.times(join(profiles, planted([("bert", "t4")], [(4, 1), (8, 2)])).ways)
    assert (times.seconds > 0).all() and np.isfinite(times.seconds).all()
    assert (times.source[len(profiles) :] == Source.PRIOR).all()
