"""The sweeps of an interior step, in numpy and compiled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_prices_totals import scattered

# Private names: sessions and steps of one back-end, without the engine
from optsched.arrays import compiling
from optsched.registry import load_solver
from optsched.solvers import Limits
from optsched.solvers.prices import steps, steps_compiled

pytestmark = pytest.mark.property


@pytest.mark.parametrize("exponent", [0.0, -4.0])
def test_numpy_and_compiled_sweeps_agree(exponent: float, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    program, found = scattered(400, 4, exponent), []
    for least in (0, 10**12):
        monkeypatch.setattr(compiling, "COMPILED", least)
        found.append(load_solver("prices")().solve_allocation(program, Limits()))
    assert found[0].objective == pytest.approx(found[1].objective, rel=2e-9)
    assert found[0].y == pytest.approx(
        found[1].y, rel=1e-4, abs=1e-6 * float(np.abs(found[1].y).max())
    )


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("classes", [3, 30, 600])
def test_each_compiled_sweep_does_what_numpy_does(classes: int, wide: bool) -> None:
    pytest.importorskip("numba")
    check_against_numpy(steps_compiled.compiled(), classes, wide)


@pytest.mark.unit
@pytest.mark.parametrize("wide", [False, True])
def test_each_sweep_does_what_numpy_does_before_it_is_compiled(
    wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two chunks of classes, the second of them not full."""
    monkeypatch.setattr(steps_compiled, "CHUNK", 8)
    monkeypatch.setattr(compiling, "compiler", lambda **_: lambda function: function)
    check_against_numpy(steps_compiled.compiled.__wrapped__(), 11, wide)


@pytest.mark.unit
@pytest.mark.parametrize("wide", [False, True])
def test_sweeps_over_blocks_do_what_one_sweep_does(
    wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "ENTRIES", 12)
    names = "advance", "weigh", "look_ahead", "complete"
    whole = SimpleNamespace(**{name: getattr(steps, name).__wrapped__ for name in names})
    check_against_numpy(whole, 11, wide)


def check_against_numpy(fast: Any, classes: int, wide: bool) -> None:
    """Do each sweep both ways on random numbers, and compare everything that it returns or changes."""
    random = np.random.default_rng(0)

    def table() -> np.ndarray:
        return random.uniform(0.1, 1.0, (3, classes))

    def column() -> np.ndarray:
        return random.uniform(0.1, 1.0, classes)

    a, x, z, cross, dx, dz = (table() for _ in range(6))
    u, y, s, spent, bend, pull, weight, *steps_of = (column() for _ in range(13))
    q, dq = (table() if wide else random.uniform(0.1, 1.0, (3, 1)) for _ in range(2))
    open_ = random.random((3, classes)) > 0.2
    a, x, z, cross = (
        a * open_,
        x * open_,
        np.where(open_, z, 1.0),
        cross * open_,
    )  # as the search keeps them
    dx, dz = dx * open_, dz * open_
    results = []
    for sweeps in (steps, fast):
        moved, back, level, time, rent = x.copy(), z.copy(), *np.zeros((3, classes))
        product = sweeps.advance(a, q, moved, back, y, weight, dx, dz, 0.3, level, time, rent)
        total_, centre, damp, dy, du = np.zeros((5, classes))
        tables = np.zeros((3, *x.shape)) if wide else np.zeros((3, 0, 0))
        at = (spent, bend, pull, weight, total_, centre, damp, dy, du)
        weighed = [
            *sweeps.weigh(a, q, x, z, s, u, y, *at, *tables),
            tables.copy(),
            dy.copy(),
            du.copy(),
        ]
        twice, (ds, dy_aim, du_aim, rise) = np.zeros_like(x), np.zeros((4, classes))
        look = sweeps.look_ahead(
            a, q, dq, x, z, s, u, y, *at, twice, ds, dy_aim, du_aim, tables[0], tables[1]
        )
        ahead = [*look, dy.copy(), du.copy(), ds.copy()]
        up, down, (dy, du, ds) = np.zeros_like(x), np.zeros_like(x), np.copy(steps_of[:3])
        lengths = sweeps.complete(
            a,
            q,
            dq,
            x,
            z,
            s,
            u,
            y,
            0.3,
            bend,
            weight,
            total_,
            centre,
            damp,
            dy,
            du,
            ds,
            rise,
            cross,
            up,
            down,
        )
        results.append(
            [moved, back, level, time, rent, product, *weighed, total_, centre, damp, *ahead, twice, dy_aim, du_aim,
             tables, *lengths, dy, du, ds, rise, up, down]
        )  # fmt: skip
    for one, other in zip(*results, strict=True):
        assert one == pytest.approx(other, rel=1e-10, abs=1e-12)
