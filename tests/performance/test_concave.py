"""Concave envelopes against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched import concave_envelope, envelope_gap

rates = st.floats(0, 100)


def by_chords(k: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The highest chord over each point."""
    best = y.copy()
    for i in range(len(k)):
        for j in range(i + 1, len(k)):
            for here in range(i + 1, j):
                share = (k[here] - k[i]) / (k[j] - k[i])
                best[here] = max(best[here], (1 - share) * y[i] + share * y[j])
    return best


@given(st.lists(rates, min_size=1, max_size=8), st.booleans(), st.integers(0, 10**6))
def test_it_is_the_highest_chord(curve: list[float], from_zero: bool, seed: int) -> None:
    k = np.cumsum(np.random.default_rng(seed).integers(1, 5, len(curve))).astype(float)
    y = np.array(curve)
    envelope = concave_envelope(k, y, from_zero=from_zero)
    x, values = (np.append(0.0, k), np.append(0.0, y)) if from_zero else (k, y)
    expected = by_chords(x, values)[int(from_zero) :]
    np.testing.assert_allclose(envelope, expected, atol=1e-9)
    assert (envelope >= y).all()
    again = concave_envelope(k, envelope, from_zero=from_zero)
    np.testing.assert_allclose(again, envelope, rtol=1e-12)
    many = concave_envelope(k, np.stack([y, y[::-1], y * 2]), from_zero=from_zero)
    assert (many[0] == envelope).all()


def test_concave_curves_stay() -> None:
    k = np.array([1.0, 2, 4, 8])
    y = np.sqrt(k)
    assert (concave_envelope(k, y) == y).all() and envelope_gap(y, concave_envelope(k, y)) == 0


def test_the_gap_is_told() -> None:
    k, y = [1, 2, 3], [[1.0, 1.0, 3.0], [1.0, 2.0, 1.0]]
    envelope = concave_envelope(k, y)
    assert envelope.tolist() == [[1.0, 2.0, 3.0], [1.0, 2.0, 1.0]]
    assert envelope_gap(y, envelope).tolist() == [0.5, 0.0]


@pytest.mark.parametrize(
    ("k", "y", "message"),
    [
        ([1, 1], [1, 2], "k must grow strictly"),
        ([1, 2], [1, 2, 3], "rates of shape"),
        ([1, 2], [1, np.nan], "rates must be finite"),
    ],
)
def test_errors_are_told(k: list[float], y: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        concave_envelope(k, y)
