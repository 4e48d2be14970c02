"""Collective operations: closed forms, limits, and the model by which NCCL chooses."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from beside import SHARED, needs
from hypothesis import given
from hypothesis import strategies as st

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.analytic import collectives

DATA = SHARED / "data" / "perfmodel"
ALL = [collectives.ring_all_reduce, collectives.tree_all_reduce]
sizes = st.floats(1.0, 1e12)
speeds = st.floats(1e6, 1e13)
delays = st.floats(0.0, 1e-3)
ranks = st.integers(2, 5000)


@pytest.mark.parametrize("operation", ALL)
def test_one_rank_communicates_with_nobody(operation: object) -> None:
    assert operation(1e9, np.array([0, 1]), 0.0, 1.0).tolist() == [0, 0]  # type: ignore[operator]
    assert np.isinf(operation(1.0, 2, 0.0))  # type: ignore[operator]
    assert operation(0.0, 2, 0.0, 0.0) == 0  # type: ignore[operator]


def test_factors_of_the_bus_bandwidth() -> None:
    for k in (2, 3, 8, 1000):
        factor = [float(operation(1e9, k, 1e9)) for operation in ALL]
        assert factor == pytest.approx([2 * (k - 1) / k, 2])
        steps = [float(operation(0.0, k, 1.0, 1.0)) for operation in ALL]
        assert steps == [2 * (k - 1), 2 * math.ceil(math.log2(k))]
    assert collectives.ring_all_reduce(1.0, 10**9, 1.0) == pytest.approx(2, rel=1e-8)


@given(sizes, ranks, speeds, delays, st.floats(1.0, 10.0))
def test_more_bandwidth_is_never_slower(
    size: float, k: int, speed: float, delay: float, more: float
) -> None:
    for operation in ALL:
        assert operation(size, k, speed * more, delay) <= operation(size, k, speed, delay)
        assert operation(size * more, k, speed, delay) >= operation(size, k, speed, delay)


@given(sizes, st.integers(1, 64), st.integers(1, 64), speeds, speeds, delays, delays)
def test_hierarchy(
    size: float, G: int, n: int, inside: float, between: float, near: float, far: float
) -> None:
    found = collectives.hierarchical_all_reduce(size, G, n, inside, between, near, far)
    parts = 2 * (G - 1) / G * size / inside + 2 * (n - 1) / n * size / G / between
    assert found == pytest.approx(parts + 2 * (G - 1) * near + 2 * (n - 1) * far, rel=1e-12)
    if n == 1:
        assert found == collectives.ring_all_reduce(size, G, inside, near)
    if G == 1:
        assert found == collectives.ring_all_reduce(size, n, between, far)


def test_hierarchy_with_equal_links_and_shares_is_the_ring() -> None:
    """Of S/G bytes per GPU over n nodes, at a share B/G of the node's link, the ring and the hierarchy move as much."""
    ring = collectives.ring_all_reduce(1e9, 32, 1e10)
    assert collectives.hierarchical_all_reduce(1e9, 8, 4, 1e10, 1e10 / 8) >= ring
    assert collectives.hierarchical_all_reduce(1e9, 8, 4, 1e10, 1e10) == pytest.approx(
        ring, rel=1e-12
    )


# --- NCCL ----------------------------------------------------------------------------------------------------------


def scalar(
    size: float, k: int, n: int, inside: float, between: float, cc: float, fast: bool, c: int
) -> list[float]:
    """The model of `optsched.performance.analytic.collectives`, one case at a time, in GB/s and us."""
    generation = sum(cc >= start for start in (8.0, 9.0, 10.0))
    scale = min(n, 3) - 1
    bus = (inside if n == 1 else min(inside, between)) / 1e9
    ll_max = (
        collectives.LL_MAX[generation, scale] if n == 1 else collectives.LL_MAX_HOSTS[scale]
    ) / 1e9
    trunk = min(0.92 * bus, c * collectives.TREE_ANY[generation, scale] / 1e9)
    row = int(math.log2(size / 64)) if size >= 64 else 0
    answers = []
    for a in (collectives.TREE, collectives.RING):
        for p in (collectives.LL, collectives.LL128, collectives.SIMPLE):
            if a == collectives.RING:
                width = [
                    min(bus / 2, ll_max),
                    min(0.92 * bus, c * collectives.RING_LL128[generation] / 1e9),
                    bus,
                ][p]
                width *= k / (2 * (k - 1))
            else:
                cap = c * collectives.TREE_LL128[generation, scale] / 1e9
                width = [
                    min(trunk / 3.8, ll_max),
                    min((7 / 9 if n == 1 else 15 / 16) * trunk, cap),
                    trunk,
                ][p] / 2
                width *= collectives.CORRECTION[p, row] if row < 23 else 1
            hop = collectives.HOP[:, a, p] * 1e6
            intra = hop[0] if fast else hop[1]
            inter = collectives.HOP[2, collectives.TREE, p] * 1e6 if n == k else hop[2]
            lat = collectives.BASE[a, p] * 1e6
            if a == collectives.TREE:
                lat += 2 * ((k // n - 1) * intra + int(math.log2(n)) * inter)
            else:
                post = 0 if n == 1 else 3 if p == collectives.SIMPLE else 1
                lat += (2 * (k - 1) - 2 * (n - 1)) * max(intra, post) + 2 * (n - 1) * inter
                if p == collectives.SIMPLE and n > 1 and size / (c * k) >= 64:
                    lat *= 1.9 if cc < 8 else 1.4
            allowed = p != collectives.LL128 or (fast and cc >= 7)
            answers.append((lat + size / width / 1e3) * 1e-6 if allowed else math.inf)
    return answers


def test_the_arrays_say_what_a_scalar_loop_says() -> None:
    rng = np.random.default_rng(0)
    n = rng.choice([1, 2, 3, 4, 16], 300)
    k = n * rng.choice([1, 2, 8], 300)
    k = np.where(k == 1, 2, k)
    n = np.minimum(n, k)
    size = 2 ** rng.uniform(3, 40, 300)
    inside, between = rng.choice([12e9, 130e9, 240e9], 300), rng.choice([1e9, 12e9, 100e9], 300)
    cc, fast, c = (
        rng.choice([6.0, 7.0, 7.5, 8.0, 9.0, 10.0], 300),
        rng.random(300) < 0.5,
        rng.choice([1, 2, 12], 300),
    )
    found = collectives.nccl_times(size, k, n, inside, between, cc, fast, c)
    for row in range(300):
        case = (
            float(size[row]),
            int(k[row]),
            int(n[row]),
            inside[row],
            between[row],
            cc[row],
            fast[row],
            int(c[row]),
        )
        assert found[:, row] == pytest.approx(scalar(*case), rel=1e-12), case


def test_what_is_chosen() -> None:
    """Latency decides for small messages, bandwidth for large ones; both as nccl-tests show them on a DGX A100."""
    small = collectives.nccl_times(1024, 8, 1, 240e9, 0)
    assert divmod(int(small.argmin()), 3) in (
        (collectives.TREE, collectives.LL),
        (collectives.RING, collectives.LL),
    )
    assert 5e-6 < small.min() < 40e-6
    large = collectives.nccl_times(4e9, 8, 1, 240e9, 0)
    assert divmod(int(large.argmin()), 3) == (collectives.RING, collectives.SIMPLE)
    bus = 4e9 * 2 * 7 / 8 / large.min()
    assert bus == pytest.approx(240e9, rel=0.01)
    many = collectives.nccl_times(1e6, 1024, 128, 240e9, 100e9)
    assert many.argmin() // 3 == collectives.TREE
    assert collectives.nccl_times(1e9, 1, 1, 240e9, 0).min() == 0


@given(
    sizes,
    st.sampled_from([(2, 1), (8, 1), (16, 2), (64, 8)]),
    st.floats(1e8, 1e12),
    st.floats(1.0, 10.0),
)
def test_nccl_with_more_bandwidth_is_never_slower(
    size: float, k_n: tuple[int, int], b: float, more: float
) -> None:
    k, n = k_n
    faster = collectives.nccl_times(size, k, n, b * more, b * more).min(axis=0)
    assert faster <= collectives.nccl_times(size, k, n, b, b).min(axis=0) * (1 + 1e-12)


@needs(DATA)
def test_a_second_reading_of_the_constants_agrees() -> None:
    other = json.loads((DATA / "nccl_model_constants.json").read_text())
    order = ("LL", "LL128", "Simple")
    assert tuple(other["order"]) == order
    for a, name in ((collectives.TREE, "tree"), (collectives.RING, "ring")):
        assert (collectives.BASE[a] * 1e6).tolist() == pytest.approx(
            [other["base_latency_us"][name][p] for p in order]
        )
        for link, words in (
            (collectives.NVLINK, "NVLINK"),
            (collectives.PCI, "PCI"),
            (collectives.NET, "NET"),
        ):
            assert (collectives.HOP[link, a] * 1e6).tolist() == pytest.approx(
                other["hw_latency_us"][words][name]
            )
