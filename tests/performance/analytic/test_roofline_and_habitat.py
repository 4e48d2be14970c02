"""The roofline and wave scaling: limits, identities, monotonicity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.errors import UsageError

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.analytic.habitat import (
    Device,
    Kernels,
    blocks_per_sm,
    memory_share,
    run_seconds,
    scale,
)
from optsched.performance.analytic.hardware import find, rows
from optsched.performance.analytic.roofline import Operations, ridge, roofline

V100, T4, K80 = (Device.of(find(name)) for name in ("V100", "T4", "K80"))
amounts = st.floats(1.0, 1e15)


# --- roofline ------------------------------------------------------------------------------------------------------


def test_an_operation_is_limited_by_one_of_two() -> None:
    peak, speed = 1e12, 1e11
    assert ridge(peak, speed) == 10
    assert roofline(1e12, 1.0, peak, speed) == 1
    assert roofline(1.0, 1e11, peak, speed) == 1
    assert roofline(1e12, 1e11, peak, speed, 0.5) == 1.5
    assert roofline(np.array([0.0, 10.0]), np.array([0.0, 1.0]), peak, speed).tolist() == [0, 1e-11]


@given(amounts, amounts, st.floats(1.0, 10.0))
def test_more_is_never_slower(flops: float, moved: float, more: float) -> None:
    usual = roofline(flops, moved, 1e13, 1e12)
    assert roofline(flops, moved, 1e13 * more, 1e12) <= usual
    assert roofline(flops, moved, 1e13, 1e12 * more) <= usual
    assert roofline(flops * more, moved, 1e13, 1e12) >= usual
    assert roofline(flops, moved * more, 1e13, 1e12) >= usual


def test_lists_of_operations() -> None:
    rng = np.random.default_rng(0)
    lists = [[tuple(rng.uniform(0, 10, 4)) for _ in range(size)] for size in (3, 0, 1, 5)]
    operations = Operations.of(lists)
    workload, samples = rng.integers(0, 4, 50), rng.uniform(1, 9, 50)
    peak, speed = rng.uniform(1, 5, 50), rng.uniform(1, 5, 50)
    found = operations.seconds(workload, samples, peak, speed, 0.01)
    for row in range(50):
        wanted = sum(c * (max(samples[row] * F / peak[row], (samples[row] * Q + R) / speed[row]) + 0.01)
                     for F, Q, R, c in lists[workload[row]])  # fmt: skip
        assert found[row] == pytest.approx(wanted)


# --- wave scaling --------------------------------------------------------------------------------------------------


def kernels(
    flops: list[float], moved: list[float], blocks: int = 10**6, wave: int = 1000
) -> Kernels:
    count = len(flops)
    return Kernels(
        np.ones(count),
        np.array(flops),
        np.array(moved),
        np.full(count, blocks),
        np.full((2, count), wave),
    )


@given(amounts, amounts)
def test_gamma_is_a_share(flops: float, moved: float) -> None:
    gamma = float(memory_share(np.array([flops]), np.array([moved]), V100)[0])
    assert 0 <= gamma <= 1
    assert (gamma >= 0.5) == (
        flops / moved <= V100.peak / V100.bandwidth
    ) or gamma == pytest.approx(0.5)


def test_limits_of_gamma() -> None:
    R = V100.peak / V100.bandwidth
    flops, moved = np.array([0.0, 1.0, 1e-9, R, 1e30]), np.array([1.0, 0.0, 1.0, 1.0, 1.0])
    assert memory_share(flops, moved, V100) == pytest.approx([1, 0, 1, 0.5, 0])
    falling = memory_share(np.linspace(1e-3, 10 * R, 200), np.ones(200), V100)
    assert (np.diff(falling) < 0).all()


NAN = float("nan")


@pytest.mark.parametrize("blocks", [10**6, 200])
@pytest.mark.parametrize("device", [V100, T4, K80])
def test_identity(device: Device, blocks: int) -> None:
    some = kernels([0, 1, 1e9, 1e12, NAN], [1, 0, 1e8, 1e6, NAN], blocks)
    assert (scale(some, device, device) == 1).all()
    assert run_seconds(some, device, device, 7.0) == 7.0


def test_the_formulas() -> None:
    R = T4.peak / T4.bandwidth
    many = kernels([0, 1, R, NAN], [1, 0, 1, NAN])
    D, C, S = V100.bandwidth / T4.bandwidth, V100.clock / T4.clock, V100.sms / T4.sms
    assert scale(many, V100, T4) == pytest.approx([D, C * S, (D * C * S) ** 0.5, D])
    few = kernels([0, 1, R, NAN], [1, 0, 1, NAN], blocks=100)
    rounds = 3 / 2  # 100 blocks on 40 SMs and on 80
    assert scale(few, V100, T4) == pytest.approx([1, C * rounds, (C * rounds) ** 0.5, 1])
    mixed = replace(
        few, waves=np.array([[1000] * 4, [50] * 4])
    )  # less than a wave on one of them only
    assert scale(mixed, V100, T4) == pytest.approx(scale(many, V100, T4))
    assert run_seconds(many, V100, T4, 10.0) == pytest.approx(6 + scale(many, V100, T4).sum())


@given(
    st.floats(0.0, 1e12),
    st.floats(1.0, 1e12),
    st.sampled_from(["bandwidth", "clock"]),
    st.floats(1.0, 10.0),
)
def test_a_better_destination_is_never_slower(
    flops: float, moved: float, what: str, more: float
) -> None:
    """At a fixed gamma, that is with the ridge kept: only one side of the roofline moves."""
    one = kernels([flops], [moved])
    better = replace(T4, **{what: getattr(T4, what) * more})
    if what == "bandwidth":
        better = replace(better, peak=T4.peak * more)
    assert scale(one, V100, better)[0] <= scale(one, V100, T4)[0] * (1 + 1e-12)
    there_and_back = scale(replace(one, seconds=scale(one, V100, V100)), V100, T4)
    assert there_and_back == scale(one, V100, T4)


def test_what_is_not_known() -> None:
    with pytest.raises(
        UsageError, match="the base clock of MI300X is not known, so nothing can be scaled"
    ):
        Device.of(find("MI300X"))
    assert Device.of(find("V100"), bandwidth=739).bandwidth == 739e9
    with pytest.raises(
        UsageError, match=r"the limits of compute capability 1.2 are not known; known: "
    ):
        blocks_per_sm(1.2, np.ones(1, np.int64), np.ones(1, np.int64), np.ones(1, np.int64))


def test_occupancy() -> None:
    threads, registers = np.array([256, 1024, 32, 256, 256]), np.array([32, 32, 16, 255, 32])
    shared = np.array([0, 0, 0, 0, 48 * 1024])
    assert blocks_per_sm(7.0, threads, registers, shared).tolist() == [8, 2, 32, 1, 2]
    assert blocks_per_sm(7.5, threads, registers, shared).tolist() == [4, 1, 16, 1, 1]
    for board in rows():
        if board.compute_capability is not None:
            assert (blocks_per_sm(board.compute_capability, threads, registers, shared) > 0).all()
