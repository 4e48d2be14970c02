"""What a point and duals are worth: the one rule of rounding by which an answer is optimal, and checked."""

from __future__ import annotations

import numpy as np
import pytest

import optsched
from optsched.program import LinearProgram
from optsched.solution import Schedule, Status, Termination, Values
from optsched.solution.plan import LinearPlan
from optsched.solvers import Highs, Limits

# Private: the rule itself, without a solver before it
from optsched.solving.certify import EvaluatedPoint, recompute
from optsched.solving.outcome import Outcome


def cancelling(size: float) -> LinearProgram:
    """maximise  size x - size y,  x <= y <= 1: the optimum 0 is a difference of large terms."""
    lp = LinearProgram()
    x = lp.variables(2, name="x", upper=1.0)
    lp.constrain(np.array([[1.0, -1.0]]) @ x <= 0.0, name="below")
    lp.maximise(np.array([[size, -size]]) @ x)
    return lp


def judge(size: float, off: float, *, claims: bool = True) -> Outcome:
    """The point (1, 1) with a dual that proves a bound of ``off``."""
    arrays, x = cancelling(size).arrays, np.ones(2)
    end = Termination.OPTIMAL if claims else Termination.TIME_LIMIT
    point = EvaluatedPoint(arrays, x, x, arrays.objective(x))
    return recompute(Highs, Limits(), Values(end, x=x), point, np.array([size + off]))


@pytest.mark.parametrize(
    ("size", "off", "optimal"),
    [
        (1e9, 1e-4, True),  # 1e-13 of terms that add up to 2e9 is 2e-4
        (1e9, 1e-3, False),
        (1e3, 1e-4, False),  # the same gap where terms are small
        (1.0, 0.0, True),
    ],
)
def test_a_gap_within_the_rounding_of_terms_that_cancel_is_none(
    size: float, off: float, optimal: bool
) -> None:
    outcome = judge(size, off)
    assert outcome.bound == pytest.approx(off, rel=0.3)
    assert (outcome.status is Status.OPTIMAL) == optimal
    assert outcome.certificate.ok == optimal, outcome.certificate.problems
    stopped = judge(size, off, claims=False)
    assert stopped.certificate.ok and (stopped.status is Status.OPTIMAL) == optimal


def test_a_bound_below_the_objective_by_more_than_rounding_is_a_contradiction() -> None:
    """Whoever states it: here a solver of whole numbers, whose bound is no proof."""
    lp = LinearProgram()
    x = lp.variables(1, name="x", upper=5.0, integer=True)
    lp.constrain(np.array([[1.0]]) @ x <= 5.0, name="row")
    lp.maximise(np.array([[1.0]]) @ x)
    arrays, at = lp.arrays, np.array([5.0])
    for stated, ok in ((5.0, True), (5.0 - 1e-9, True), (4.9, False)):
        values = Values(Termination.OPTIMAL, x=at, bound=stated)
        outcome = recompute(Highs, Limits(), values, EvaluatedPoint(arrays, at, at, 5.0), None)
        assert outcome.certificate.ok == ok, stated


@pytest.mark.parametrize(("bound", "optimal"), [(1.39, True), (1.5, False)])
def test_the_gap_that_is_accepted_is_the_gap_that_is_shown(bound: float, optimal: bool) -> None:
    """Relative to the objective: from 1 to 1.5 it is 50 %, though 33 % of the bound."""
    lp = LinearProgram()
    lp.maximise(np.array([[1.0]]) @ lp.variables(1, name="x", upper=5.0, integer=True))
    at = np.ones(1)
    values = Values(Termination.TIME_LIMIT, x=at, bound=bound)
    point = EvaluatedPoint(lp.arrays, at, at, 1.0)
    outcome = recompute(Highs, Limits(gap=0.4), values, point, None)
    assert (outcome.status is Status.OPTIMAL) == optimal


def test_a_point_that_violates_rows_is_no_optimum() -> None:
    arrays, x = cancelling(1.0).arrays, np.array([1.0, 0.5])
    point = EvaluatedPoint(arrays, x, x, arrays.objective(x))
    outcome = recompute(Highs, Limits(), Values(Termination.OPTIMAL, x=x), point, np.array([0.5]))
    assert outcome.status is Status.FEASIBLE and not outcome.certificate.ok


@pytest.mark.parametrize("size", [1.0, 1e9])
def test_the_noise_of_a_plan_is_that_by_which_its_answer_was_judged(size: float) -> None:
    classes = optsched.compile("@quickstart").classes(frozenset())
    nothing = Schedule(classes, *np.zeros((2, 0), np.int64), *np.zeros((2, 0)))
    plan = LinearPlan(
        classes,
        cancelling(size),
        read=lambda x: nothing,
        complete=lambda schedule: np.ones(2),
        describe=lambda block, position: "",
    )
    noise = plan.noise(nothing)
    assert noise == pytest.approx(2e-13 * size)
    assert judge(size, 0.4 * noise).status is Status.OPTIMAL
    if size > 1e3:  # OPTIMALITY, which is relative, accepts no difference from 0
        assert judge(size, 20.0 * noise).status is Status.FEASIBLE


def test_a_row_that_bars_a_column_does_not_outweigh_the_duals_of_all_others() -> None:
    """maximise  x + 2e12 y,  x <= 1,  y <= 0: of the dual 1 beside 2e12 the bound 1 is made."""
    lp = LinearProgram()
    x = lp.variables(2, name="x", upper=np.array([2.0, 1.0]))
    lp.constrain(np.array([[1.0, 0.0]]) @ x <= 1.0, name="limit")
    lp.constrain(np.array([[0.0, 1.0]]) @ x <= 0.0, name="bar")
    lp.maximise(np.array([[1.0, 2e12]]) @ x)
    arrays, at = lp.arrays, np.array([1.0, 0.0])
    point = EvaluatedPoint(arrays, at, at, arrays.objective(at))
    values = Values(Termination.OPTIMAL, x=at)
    outcome = recompute(Highs, Limits(), values, point, np.array([1.0, 2e12]))
    assert (outcome.status, outcome.bound) == (Status.OPTIMAL, 1.0)
