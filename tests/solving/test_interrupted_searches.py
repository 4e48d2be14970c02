"""Ctrl-C ends the searches of optsched's own: the best point so far is the answer."""

from __future__ import annotations

import signal

import numpy as np
import pytest

import optsched
from optsched.decomposition import CoupledRows, Relaxed, lagrangian
from optsched.generate import generate
from optsched.solvers import Progress
from optsched.solvers.interrupt import interrupt_flag


@pytest.mark.property
def test_a_search_of_assignments_ends_with_its_best_point() -> None:
    instance = generate("gap", type="d", jobs=200, agents=20, seed=2).instance
    seen: list[str] = []

    def press_at_first_assignment(progress: Progress) -> None:
        if progress.words == "search of assignments":
            if not seen:
                signal.raise_signal(signal.SIGINT)
            seen.append(progress.words)

    solution = optsched.solve(instance, "gap", on_progress=press_at_first_assignment)
    assert solution.termination == "interrupted"
    assert solution.objective is not None
    assert solution.certificate.ok
    assert len(seen) < 5


def test_a_bundle_search_ends_after_the_evaluation_that_it_is_in() -> None:
    evaluations = 0

    def solve(y: np.ndarray) -> Relaxed:
        nonlocal evaluations
        evaluations += 1
        signal.raise_signal(signal.SIGINT)
        x = (y > np.array([1.0, 2.0])).astype(float)
        return Relaxed(x, float(np.array([1.0, 2.0]) @ x), x)

    with interrupt_flag():
        bound = lagrangian(CoupledRows.of(np.ones(2), np.ones(2)), solve)
    assert evaluations == 1
    assert np.isfinite(bound.bound)
