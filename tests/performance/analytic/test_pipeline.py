"""Closed forms of pipeline schedules against an event simulation: operation graph, longest path."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from pipeline_events import chimera, gpipe, interleaved, one_f_one_b, simulate
from refusals import refuses

from optsched.errors import UsageError

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.analytic.parallel3d import SCHEDULES, in_flight, step_seconds

LENGTHS = [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0), (1.0, 3.5), (0.25, 0.5)]
SMALL = range(1, 9)


def bubble(name: str, p: int, M: int, f: float, b: float, chunks: int = 1) -> float:
    """Idle time over the ideal M (f + b)."""
    return float(step_seconds(name, p, M, f, b, chunks)) / (M * (f + b)) - 1


@pytest.mark.parametrize(("f", "b"), LENGTHS)
def test_gpipe_and_1f1b(f: float, b: float) -> None:
    for p, M in itertools.product(SMALL, SMALL):
        for name, orders in (("gpipe", gpipe(p, M)), ("1f1b", one_f_one_b(p, M))):
            found = simulate(orders, p, f, b)
            assert step_seconds(name, p, M, f, b) == pytest.approx(found.seconds, rel=1e-12)
            assert in_flight(name, p, M) == found.in_flight
            assert bubble(name, p, M, f, b) == pytest.approx((p - 1) / M, abs=1e-12)


@pytest.mark.parametrize(("f", "b"), LENGTHS)
def test_interleaved(f: float, b: float) -> None:
    for p, groups, v in itertools.product((1, 2, 3, 4), (1, 2, 3), (1, 2, 3)):
        M = p * groups
        found = simulate(interleaved(p, M, v), p * v, f / v, b / v)
        assert step_seconds("interleaved", p, M, f, b, v) == pytest.approx(found.seconds, rel=1e-12)
        assert in_flight("interleaved", p, M, v) == pytest.approx(found.in_flight / v)
        assert bubble("interleaved", p, M, f, b, v) == pytest.approx((p - 1) / (M * v), abs=1e-12)
    assert np.isnan(step_seconds("interleaved", 4, 6, f, b, 2))


@pytest.mark.parametrize(("f", "b"), LENGTHS)
def test_chimera(f: float, b: float) -> None:
    for p in (2, 4, 6, 8):
        for M in [*range(1, p + 1), 2 * p, 3 * p]:
            found = simulate(chimera(p, M), p, f, b)
            assert step_seconds("chimera", p, M, f, b) == pytest.approx(found.seconds, rel=1e-12), (
                p,
                M,
            )
            assert in_flight("chimera", p, M) == found.in_flight
    assert np.isnan(step_seconds("chimera", 3, 3, f, b))
    assert np.isnan(step_seconds("chimera", 4, 6, f, b))


def test_where_the_usual_form_of_chimera_holds() -> None:
    """Idle share of the step (p - 2)/(2M + p - 2): if f = b and p divides M, and nowhere else."""
    for p, M in itertools.product((2, 4, 6, 8), range(1, 25)):
        usual = Fraction(p - 2, 2 * M + p - 2)
        for f, b in LENGTHS:
            seconds = float(step_seconds("chimera", p, M, f, b))
            if np.isnan(seconds):
                continue
            holds = abs(1 - M * (f + b) / seconds - float(usual)) < 1e-12
            assert holds == ((f == b or p == 2) and M % p == 0), (p, M, f, b)
    assert (
        step_seconds("chimera", 6, 6, 1, 2) == 6 * 1 + 10 * 2
    )  # the critical path of the paper's figure


def test_pipemare_is_the_steady_state_of_1f1b() -> None:
    for p, M in itertools.product((1, 2, 5), (1, 2, 6)):
        long, longer = (simulate(one_f_one_b(p, M * steps), p, 1.0, 2.0) for steps in (8, 9))
        assert longer.seconds - long.seconds == step_seconds("pipemare", p, M, 1.0, 2.0)
        assert in_flight("pipemare", p, M * 8) == long.in_flight
        assert bubble("pipemare", p, M, 1.0, 2.0) == 0


def test_order_of_the_schedules() -> None:
    """Chimera beats 1F1B with equal halves, interleaving too; no schedule beats the ideal; one stage has no bubble."""
    p, M = np.array([2, 4, 8]), np.array([4, 8, 16])
    step = {name: step_seconds(name, p, M, 1.0, 1.0, 2) for name in SCHEDULES}
    assert (step["chimera"] < step["1f1b"]).all()
    assert (step["interleaved"] < step["1f1b"]).all()
    assert (step["pipemare"] == M * 2.0).all()
    for name in SCHEDULES:
        assert (step[name] >= M * 2.0).all()
        if name != "chimera":
            assert step_seconds(name, 1, 7, 1.0, 2.0) == 21
    assert (in_flight("1f1b", p, M) <= in_flight("gpipe", p, M)).all()


@pytest.mark.parametrize(
    "question", [lambda: step_seconds("gems", 2, 2, 1, 1), lambda: in_flight("gems", 2, 2)]
)
def test_unknown_schedules(question: object) -> None:
    expected = "one of 1f1b, chimera, gpipe, interleaved, pipemare"
    with refuses(f"schedule: found 'gems', expected {expected}", UsageError):
        question()  # type: ignore[operator]
