"""Where prices hold, and the optimum over a capacity: against finite differences, scipy and the ranging of a basis."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses
from test_whatif import LINEAR, held_value, random_instance

import optsched
from optsched.errors import SolverUnavailable, UsageError

# Private names: the held program that answers are computed with
from optsched.sensitivity.ranging import held_of
from optsched.sensitivity.value_function import Tangent, ValueFunction
from optsched.solution import Solution

pytestmark = pytest.mark.property

THREE: dict[str, Any] = {
    "format": "optsched-instance/1", "name": "three",
    "cluster": {"pools": [{"name": "p", "nodes": 2, "gpus_per_node": 1}]},
    "jobs": [{"id": name, "throughput": {"p": rate}} for name, rate in (("a", 5.0), ("b", 3.0), ("c", 1.0))],
}  # fmt: skip


def capacities(solution: Solution) -> np.ndarray:
    assert solution.allocation is not None
    return solution.allocation.classes.capacity.copy()


# --- prices and their ranges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("formulation", LINEAR)
@pytest.mark.parametrize("instance", ["@quickstart", "random"])
def test_prices_are_finite_differences_within_their_range_and_no_further(
    formulation: str, instance: str
) -> None:
    solution = optsched.solve(random_instance(7) if instance == "random" else instance, formulation)
    assert solution.allocation is not None
    duals = solution.duals["capacity"]  # type: ignore[index]
    base = capacities(solution)
    here = held_value(solution, base)
    ranges = optsched.capacity_ranging(solution)
    assert list(ranges) == list(solution.prices)
    for row, item in enumerate(ranges.values()):
        assert item.finished and item.low <= item.capacity <= item.high
        assert item.price == solution.prices[item.resource]

        def value(capacity: float, row: int = row) -> float:
            trial = base.copy()
            trial[row] = capacity
            return held_value(solution, trial)

        top = min(item.high, item.capacity + 10.0)
        for inside in (
            item.low,
            0.5 * (item.low + item.capacity),
            0.5 * (item.capacity + top),
            top,
        ):
            assert value(inside) == pytest.approx(
                here + duals[row] * (inside - item.capacity), rel=1e-7, abs=1e-9
            )
        if np.isfinite(item.high):
            step = 0.05
            assert (
                value(item.high + step)
                < here + duals[row] * (item.high + step - item.capacity) - 1e-9
            )
        if item.below is not None:
            step = min(0.05, 0.5 * item.low)
            assert (
                value(item.low - step)
                < here + duals[row] * (item.low - step - item.capacity) - 1e-9
            )


def test_neighbouring_prices_are_one_sided_derivatives() -> None:
    solution = optsched.solve("@quickstart", "max-throughput")
    base, ranges = capacities(solution), optsched.capacity_ranging(solution)
    for row, item in enumerate(ranges.values()):
        for end, price, side in ((item.low, item.below, -1e-3), (item.high, item.above, 1e-3)):
            values = []
            for capacity in (end, end + side):
                trial = base.copy()
                trial[row] = capacity
                values.append(held_value(solution, trial))
            assert price == pytest.approx((values[1] - values[0]) / side, rel=1e-6)


def test_a_degenerate_optimum_has_the_true_interval() -> None:
    """Jobs of 5, 3 and 1 steps/s on GPUs of a pool: the optimum over GPUs has slopes 5, 3, 1, 0, and kinks between."""
    instance = optsched.Instance.from_document(THREE)
    solution = optsched.solve(instance, "max-throughput")
    item = optsched.capacity_ranging(solution)["p"]
    assert solution.prices["p"] == pytest.approx(item.price)
    if item.price == pytest.approx(
        3.0
    ):  # the slope on the left of the kink at 2, or the one on its right
        assert (item.low, item.high, item.below, item.above) == pytest.approx((1.0, 2.0, 5.0, 1.0))
    else:
        assert (item.low, item.high, item.below, item.above) == pytest.approx((2.0, 3.0, 3.0, 0.0))
    curve = optsched.capacity_curve(solution, "p")
    assert curve.capacity.tolist() == pytest.approx([0, 1, 2, 3])
    assert curve.objective.tolist() == pytest.approx([0, 5, 8, 9])


def test_a_price_between_the_slopes_holds_nowhere_else() -> None:
    solution = optsched.solve(optsched.Instance.from_document(THREE), "max-throughput")
    value = ValueFunction(held_of(solution), 0)
    between = Tangent(2.0, 8.0, 2.0)
    assert value.end_of_line(between, value.saturation)[0] == pytest.approx(2.0)
    assert value.end_of_line(between, 0.0)[0] == pytest.approx(2.0)


def test_a_pool_that_is_not_full_has_no_end() -> None:
    instance = optsched.Instance.from_document({**THREE, "cluster": {"pools": [
        {"name": "p", "nodes": 9, "gpus_per_node": 1}]}})  # fmt: skip
    solution = optsched.solve(instance, "max-throughput")
    item = optsched.capacity_ranging(solution, ["p"])["p"]
    assert (item.price, item.low, item.high, item.above) == pytest.approx((0.0, 3.0, np.inf, None))
    assert item.below == pytest.approx(1.0)
    assert item.to_document()["to"] is None and json.dumps(item.to_document(), allow_nan=False)


def test_ranges_contain_those_of_the_basis() -> None:
    """HiGHS ranges the basis that it ended with: part of the true interval, or all of it."""
    import highspy

    equal = 0
    for seed in range(6):
        solution = optsched.solve(random_instance(seed), "max-throughput")
        held = held_of(solution)
        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        arrays = held.arrays
        highs.passModel(
            *arrays.shape[::-1], arrays.A.nnz, int(highspy.MatrixFormat.kColwise), int(highspy.ObjSense.kMaximize), 0.0,
            arrays.cost, arrays.lower, arrays.upper, arrays.row_lower, arrays.row_upper,
            arrays.A.indptr.astype(np.int32), arrays.A.indices.astype(np.int32), arrays.A.data,
            arrays.integer.astype(np.int32),
        )  # fmt: skip
        highs.run()
        _, ranging = highs.getRanging()
        block = arrays.row_block("capacity")
        for row, item in enumerate(optsched.capacity_ranging(solution).values()):
            low = ranging.row_bound_dn.value_[block.start + row]
            high = ranging.row_bound_up.value_[block.start + row]
            if highs.getSolution().row_dual[block.start + row] != pytest.approx(
                item.price, rel=1e-6, abs=1e-9
            ):
                continue  # another optimal dual
            if item.price == 0:
                continue  # the basic row is ranged by its activity
            assert item.low <= low + 1e-6 and high - 1e-6 <= item.high
            equal += abs(low - item.low) + abs(high - item.high) < 1e-6
    assert equal > 0


@given(st.integers(0, 10_000), st.sampled_from(LINEAR))
@settings(max_examples=15, deadline=None)
def test_curves_are_concave_and_right_everywhere(seed: int, formulation: str) -> None:
    solution = optsched.solve(random_instance(seed, jobs=6), formulation)
    curve = optsched.capacity_curve(solution, "p1")
    assert curve.finished and (np.diff(curve.capacity) > 0).all()
    scale = float(np.abs(curve.value).max())
    assert (np.diff(curve.value) >= -1e-9 * scale).all()
    assert (np.diff(curve.slope) <= 1e-6 * scale).all()
    base = capacities(solution)
    for capacity in np.random.default_rng(seed).uniform(0, curve.capacity[-1], 4):
        trial = base.copy()
        trial[1] = capacity
        told = np.interp(capacity, curve.capacity, curve.value)
        assert told == pytest.approx(held_value(solution, trial), rel=1e-6, abs=1e-7 * scale)
    beyond = base.copy()
    beyond[1] = 2 * curve.capacity[-1]
    assert held_value(solution, beyond) == pytest.approx(curve.value[-1], rel=1e-7)


def test_a_curve_starts_where_deadlines_can_be_met() -> None:
    instance = optsched.Instance.from_document({**THREE, "jobs": [
        {"id": "a", "steps": 1800, "deadline": 3600, "throughput": {"p": 1.0}}, {"id": "b", "throughput": {"p": 2.0}},
    ]})  # fmt: skip
    solution = optsched.solve(instance, "max-throughput", constraints=["deadlines"])
    curve = optsched.capacity_curve(solution, "p")
    assert curve.capacity.tolist() == pytest.approx([0.5, 1.5, 2.0], rel=1e-6)
    assert curve.objective.tolist() == pytest.approx([0.5, 2.5, 3.0], rel=1e-6)
    item = optsched.capacity_ranging(solution)["p"]
    assert item.low == pytest.approx(1.5, rel=1e-6) or item.low == pytest.approx(2.0, rel=1e-6)
    with refuses("p: found a capacity of 0.25 or less", UsageError):
        optsched.capacity_curve(solution, "p", 0.0, 0.25)
    part = optsched.capacity_curve(solution, "p", 1.0, 1.75)
    assert part.capacity.tolist() == pytest.approx([1.0, 1.5, 1.75], rel=1e-6)


def test_one_session_ranges_everything() -> None:
    solution = optsched.solve("@quickstart", "makespan")
    held = held_of(solution)
    value = ValueFunction(held, 0)
    points, finished = value.breakpoints(0.0, value.saturation, 400)
    assert finished and len(points) > 5
    assert held.runs > len(points) and held.rebuilt == ()
    few, done = ValueFunction(held_of(solution), 0).breakpoints(0.0, value.saturation, 5)
    assert not done and 2 <= len(few) <= 7


def test_a_limit_leaves_part_of_the_interval() -> None:
    solution = optsched.solve("@large", "max-min-fairness")
    item = optsched.capacity_ranging(solution, [next(iter(solution.prices))], work_limit=1)
    (found,) = item.values()
    assert not found.finished and found.low == found.capacity == found.high


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formulation", "options", "words"),
    [
        ("isolated", {}, "formulation: found isolated, expected one that is a single program..."),
        (
            "proportional-fairness",
            {},
            "formulation: found proportional-fairness, expected a linear program...",
        ),
        (
            "max-throughput",
            {"integral": True},
            "solution: found one of max-throughput without prices",
        ),
        ("lease", {}, "formulation: found lease, expected one that is a single program..."),
    ],
)
def test_what_has_no_ranges(formulation: str, options: dict[str, Any], words: str) -> None:
    with refuses(words, UsageError):
        optsched.capacity_ranging(optsched.solve("@quickstart", formulation, options=options))


def test_other_refusals() -> None:
    solution = optsched.solve("@quickstart", "makespan")
    with refuses("resource: found 'v10', expected one of v100, p100, k80", UsageError):
        optsched.capacity_ranging(solution, ["v10"])
    with refuses(
        "v100: found the capacities from 5 to 3, expected 0 or more, and rising", UsageError
    ):
        optsched.capacity_curve(solution, "v100", 5.0, 3.0)
    with refuses("solution: found one that is infeasible", UsageError):
        optsched.capacity_ranging(optsched.solve("@infeasible", "makespan"))
    with refuses("solver: found scip, expected one with duals", SolverUnavailable):
        optsched.capacity_ranging(solution, solver="scip")
    own = optsched.solve("@quickstart", "makespan", extend=lambda lp, variables, C: None)
    with refuses("solution: found one that was made with extend", UsageError):
        optsched.capacity_ranging(own)
    nobody = optsched.solve(
        optsched.Instance.from_document({**THREE, "jobs": []}), "max-throughput"
    )
    with refuses("solution: found one without jobs", UsageError):
        optsched.capacity_ranging(nobody)
