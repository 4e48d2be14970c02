"""The roofline: limits and monotonicity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.analytic.roofline import Operations, roofline

amounts = st.floats(1.0, 1e15)


# --- roofline ------------------------------------------------------------------------------------------------------


def test_an_operation_is_limited_by_one_of_two() -> None:
    peak, speed = 1e12, 1e11
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
