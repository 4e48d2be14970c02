"""Fits of parameter-server laws and of loss curves, and the law of the busiest resource."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from documents import instance_document
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from optsched import BottleneckLaw, Instance, fit_loss_curve, fit_parameter_server

# Private names: a model by its class, where the registry knows it by name
from optsched.performance.loss_curve import LossCurve
from optsched.performance.parameter_server_documents import read_parameter_servers
from optsched.performance.parameter_server_fit import LAWS

W, P = (column.ravel().astype(float) for column in np.meshgrid(np.arange(1, 9), np.arange(1, 9)))
PLANTED = {"a": 0.02, "b": 0.3, "c": 0.4, "d": 0.01, "e": 0.015}


def speed(law: str, theta: dict[str, float], w: Any, p: Any, batch: float) -> Any:
    a, b, c, d = (theta[name] for name in "abcd")
    if law == "ps-sync":
        return 1 / (a * batch / w + b + c * w / p + d * w + theta["e"] * p)
    return w / (a + b * w / p + c * w + d * p)


@pytest.mark.parametrize("law", ["ps-sync", "ps-async"])
def test_planted_coefficients_are_recovered(law: Literal["ps-sync", "ps-async"]) -> None:
    exact = fit_parameter_server(W, P, speed(law, PLANTED, W, P, 32), law=law, batch=32)
    assert exact.coefficients == pytest.approx(
        {name: PLANTED[name] for name in LAWS[law]}, rel=1e-8
    )
    assert exact.log_sd < 1e-8
    np.testing.assert_allclose(
        exact.steps_per_second(W, P), speed(law, PLANTED, W, P, 32), rtol=1e-9
    )
    noise = np.exp(0.03 * np.random.default_rng(0).normal(size=len(W)))
    noisy = fit_parameter_server(W, P, speed(law, PLANTED, W, P, 32) * noise, law=law, batch=32)
    np.testing.assert_allclose(
        noisy.steps_per_second(W, P), speed(law, PLANTED, W, P, 32), rtol=0.05
    )
    assert 0.02 < noisy.log_sd < 0.04
    big = [name for name in LAWS[law] if PLANTED[name] >= 0.1]
    assert [noisy.coefficients[name] for name in big] == pytest.approx(
        [PLANTED[name] for name in big], rel=0.3
    )


def test_a_fit_is_a_piece_of_an_instance() -> None:
    fit = fit_parameter_server(W, P, speed("ps-sync", PLANTED, W, P, 32), batch=32)
    limits = {"worker": {"p": 1}, "server": {"p": 1}, "limit": {"p": 16}}
    instance = Instance.from_document(
        instance_document(
            {"p": (4, 4)},
            [{"id": "j", "workload": "w"}],
            workloads={"w": {"parameters": {"parameter_server": fit.document() | limits}}},
        )
    )
    laws = read_parameter_servers(instance)
    w, p = np.array([3, 8]), np.array([5, 2])
    np.testing.assert_allclose(
        1 / laws.step_seconds(np.zeros(2, np.int64), w, p), fit.steps_per_second(w, p)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([1, 1, 2], [1, 1, 1], [1, 1, 1]),
            "workers: found 2 pairs of workers and servers, expected at least 5 diff...",
        ),
        (([1, 0], [1, 1], [1, 1]), "workers[1]: found 0.0, expected a finite number above 0"),
        (([1], [1, 2], [1, 1]), "workers: found shape (1,), expected 2 values..."),
    ],
)
def test_bad_speeds_are_told(arguments: tuple[Any, Any, Any], message: str) -> None:
    with refuses(message):
        fit_parameter_server(*arguments)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 1), st.floats(0.2, 1), st.floats(0, 1))
def test_planted_loss_curves_are_recovered(a: float, b: float, c: float) -> None:
    planted = LossCurve(a, b, c)
    epochs = np.arange(30)
    found = fit_loss_curve(epochs, planted.loss(epochs))
    np.testing.assert_allclose(found.loss(epochs), planted.loss(epochs), rtol=1e-3)


def test_later_thirds_weigh_more() -> None:
    planted = LossCurve(0.5, 0.5, 0.2)
    epochs = np.arange(30)
    early, late = planted.loss(epochs), planted.loss(epochs)
    early[2], late[-3] = early[2] + 0.2, late[-3] + 0.2
    shifts = [
        abs(fit_loss_curve(epochs, loss).loss(29) - planted.loss(29)) for loss in (early, late)
    ]
    assert shifts[0] < 0.2 * shifts[1]


def test_convergence_is_where_the_loss_stops_falling() -> None:
    curve = LossCurve(1.0, 1.0, 0.0)  # 1, 1/2, 1/3, ...
    assert (
        curve.convergence_epoch(0.1) == 3 and curve.convergence_epoch(0.2) == 2
    )  # falls of 1/2, 1/6, 1/12
    assert curve.convergence_epoch(1e-9) == 100
    with refuses("threshold: found 0"):
        curve.convergence_epoch(0)
    with refuses("window: found 0"):
        curve.convergence_epoch(0.1, 0)
    with refuses("epochs: found 2 different ones, expected at least 3"):
        fit_loss_curve([0, 1, 1], [3, 2, 2])
    with refuses("losses[1]: found 0.0"):
        fit_loss_curve([0, 1, 2], [3, 0, 2])


def test_the_busiest_resource_sets_the_pace() -> None:
    law = BottleneckLaw(
        compute=1.0, gradient_bytes=1e8, worker_bandwidth=1e9, server_bandwidth=1e9, update=0.01
    )
    assert law.asynchronous(1, 1) == pytest.approx(1 / 1.2)
    assert law.asynchronous(1000, 1) == pytest.approx(10)  # the server's network
    assert law.synchronous(4, 1) == pytest.approx(1 / (0.25 + 0.8))
    w = np.arange(1, 50)
    assert (np.diff(law.asynchronous(w, 4)) >= 0).all() and (
        law.synchronous(w, 8) >= law.synchronous(w, 4)
    ).all()
    with refuses("compute: found 0.0, expected a finite number above 0"):
        BottleneckLaw(0, 1, 1, 1)
