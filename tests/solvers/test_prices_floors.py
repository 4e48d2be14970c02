"""Floors of any measure in the price method: linear totals, costs, ties, closed columns, and the
smallest level above them.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType

import numpy as np
import pytest
import scipy.sparse as sp
from blocks import later
from programs import allocation
from scipy.optimize import linprog
from test_prices_side_rows import limited, solved

from optsched.program import AllocationProgram, Minimum, SideRows, Total
from optsched.registry import load_solver
from optsched.solution import Status
from optsched.solvers.prices import sampling
from optsched.solvers.prices.floor_choice import FloorChoice
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.linear_total import LinearTotalSearch
from optsched.solvers.prices.market import market_of
from optsched.solvers.prices.requirements import floor_measures

pytestmark = pytest.mark.property


def floored(seed: int, measures: int = 1) -> AllocationProgram:
    """Random worth, also below 0 and with ties; half of the jobs are asked for time, or for a rate of
    their own, or for several; some for all that they can give.
    """
    random = np.random.default_rng([7, seed])
    program = limited(seed)
    C, levels = program.classes, program.levels.copy()
    entries = len(levels.data)
    match random.integers(0, 4):
        case 0:
            levels.data = np.round(levels.data)
        case 1:
            levels.data = -random.choice([1.0, 2.0, 3.0], entries)
        case 2:
            levels.data = random.normal(size=entries)
    weight = random.choice([0.0, 1.0, 2.0], len(C)) if random.random() < 0.5 else np.ones(len(C))
    side = program.side
    for number in range(measures):
        side += _service(program, random, number)
    return replace(program, levels=levels, utility=Total(weight), side=side)


def _service(
    program: AllocationProgram, random: np.random.Generator, number: int
) -> tuple[SideRows, ...]:
    """Rows that ask half of the jobs for time, or for a rate of their own."""
    C = program.classes
    of_time, tight = random.random() < 0.5, random.choice([0.05, 0.2, 0.5])
    matrix, lower = [np.zeros((0, C.columns))], []
    for k in np.flatnonzero(random.random(len(C)) < 0.5):
        mine = np.flatnonzero(C.class_a == k)
        rate = np.ones(len(mine)) if of_time else random.lognormal(size=len(mine))
        rate[random.random(len(mine)) < 0.2] = 0.0
        if not rate.any():
            continue
        row = np.zeros((1, C.columns))
        row[0, mine] = rate
        part = 1.0 if random.random() < 0.1 else random.random() * tight
        matrix.append(row)
        lower.append(C.count[k] * rate.max() * part)
    rows = sp.csr_matrix(np.concatenate(matrix))
    name = "service" if number == 0 else f"service-{number}"
    asks = SideRows(name, rows, np.array(lower), np.full(len(lower), np.inf), str)
    return (asks,) if lower else ()


def status_as_highs(program: AllocationProgram, seed: int) -> Status:
    """Status by prices, which is that of HiGHS, as are the value and the bound."""
    ours, theirs = solved(program, "prices"), solved(program, "highs")
    assert ours.status is theirs.status, seed
    assert ours.certificate.ok, (seed, ours.certificate.problems)
    if theirs.value is not None:
        assert ours.value == pytest.approx(theirs.value, rel=1e-9, abs=1e-9), seed
        assert ours.bound == pytest.approx(ours.value, rel=1e-9, abs=1e-12), seed
    return ours.status


@pytest.mark.parametrize(
    ("measures", "block"),
    [
        *((1, block) for block in (0, 1)),
        (2, 0),
        (3, 4),
        *later(*((1, block) for block in range(2, 10)), (2, 5), (3, 8)),
    ],
)
@pytest.mark.parametrize("by_sample", [False, True])
def test_floors_of_any_measure_agree_with_simplex(
    block: int, by_sample: bool, measures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To 1e-12, and bounds too: both end at a vertex, from whatever prices they start."""
    if by_sample:  # of three jobs and more
        for name, value in (("LARGE", 0), ("PART", 3), ("LEAST", 1), ("SMALL", 2)):
            monkeypatch.setattr(sampling, name, value)
    found = set()
    for seed in range(40 * block, 40 * block + 40):
        program = floored(seed, measures)
        if load_solver("prices").refuses(program) is not None:
            continue  # a job that can run nowhere
        found.add(status_as_highs(program, seed))
    assert found == {Status.OPTIMAL, Status.INFEASIBLE}


@pytest.mark.parametrize("seed", range(12))
def test_any_prices_bound_the_total(seed: int) -> None:
    program = floored(seed)
    if load_solver("prices").refuses(program) is not None or not program.class_floors.side:
        return
    best = solved(program, "highs")
    if best.value is None:
        return
    floors, C = program.class_floors, program.classes
    market = market_of(program, floors.closed)
    scale = market.unit / market.amount
    worth = market.level * (program.total.weight * scale)[:, np.newaxis]
    (asks,) = floor_measures(program, market)
    asks[np.isinf(asks)] = 0.0
    base = np.append(best.x, 0.0)[market.place] * (market.amount / market.weight)[:, np.newaxis]
    search = LinearTotalSearch(Goods.of(market, np.arange(len(C))), worth, None, asks, base)
    random = np.random.default_rng(seed)
    for _ in range(30):
        search.bound = np.inf
        search.ask(random.exponential(1.0, len(market.capacity)))
        assert search.bound >= best.value - 1e-9 * max(1.0, abs(best.value))


def test_places_that_reach_a_floor_but_for_rounding_are_no_mixture() -> None:
    program = allocation(np.array([[1.0, 1.0]]), np.array([1]), np.array([1, 1]))
    market = market_of(program)
    asks = np.array([[1.0 - 2e-16, 1.0]])
    floors = FloorChoice(market, np.array([[0.0, 0.0]]), asks)
    floors.ask(np.array([0.5, 1.0]))
    assert floors.upper.tolist() == [0]
    assert floors.slope == pytest.approx([0.5])


def test_two_floors_of_one_job_are_one_if_one_implies_the_other() -> None:
    program = floored(7)
    (asks,) = (rows for rows in program.side if rows.name == "service")
    half = replace(asks, name="half", matrix=sp.csr_matrix(2.0 * asks.matrix))
    other = replace(asks, name="other", matrix=sp.csr_matrix(asks.matrix.power(2)))
    (once,) = program.class_floors.measures
    (twice,) = replace(program, side=(*program.side, half)).class_floors.measures
    assert (twice.row == once.row).all() and (twice.part == once.part).all()
    two = replace(program, side=(*program.side, other)).class_floors.measures
    assert len(two) == 2 and (two[1].row[once.row < 0] == -1).all() and (two[1].row >= 0).any()


@pytest.mark.parametrize("start", [0, 40])
def test_the_smallest_level_above_floors_of_other_measures(start: int) -> None:
    """Pairs of columns balance the level and what is asked for."""
    found = set()
    for seed in range(start, start + 40):
        made = floored(seed, 1 + seed % 2)
        program = replace(made, levels=limited(seed).levels, utility=Minimum())
        if load_solver("prices").refuses(program) is not None:
            continue
        found.add(status_as_highs(program, seed))
    assert found == {Status.OPTIMAL, Status.INFEASIBLE}


@pytest.mark.parametrize("pools", [4, 40])
@pytest.mark.parametrize("seed", range(8))
def test_the_highest_level_beside_a_floor_is_that_of_a_small_program(seed: int, pools: int) -> None:
    random = np.random.default_rng(seed)
    program = allocation(random.lognormal(size=(6, pools)), np.ones(6, int), np.full(pools, 9))
    columns = 6 * pools
    asks = sp.csr_matrix(random.lognormal(size=(6, columns)) * (program.levels.toarray() > 0))
    rows = SideRows("asks", asks, asks.max(axis=1).toarray().ravel() * 0.7, np.full(6, np.inf), str)
    C, (measure,) = program.classes, replace(program, side=(rows,)).class_floors.measures
    some, none, is_open = np.ones(6, bool), np.zeros(6, bool), np.ones(columns, bool)
    for tight, full in ((none, none), (some, none), (some, some)):
        highest = measure.highest_level(C, program.gain, is_open, tight, full)
        for k in range(6):
            mine = np.flatnonzero(C.class_a == k)
            A, b = np.stack([measure.part[mine], np.ones(pools)]), np.ones(2)
            equal = np.array([tight[k], full[k]])
            sign = np.array([-1.0, 1.0])[~equal]
            best = linprog(
                -program.gain[mine],
                A_ub=A[~equal] * sign[:, np.newaxis] if (~equal).any() else None,
                b_ub=(b[~equal] * sign) if (~equal).any() else None,
                A_eq=A[equal] if equal.any() else None,
                b_eq=b[equal] if equal.any() else None,
            )
            assert highest[k] == pytest.approx(-best.fun)


def test_the_highest_level_of_classes_with_many_columns_looks_at_no_pairs_of_columns() -> None:
    """A class with hundreds of columns, as `smd` has, took half a minute pair by pair."""
    random = np.random.default_rng(0)
    program = allocation(random.lognormal(size=(2, 300)), np.ones(2, int), np.full(300, 9))
    asks = sp.csr_matrix(random.lognormal(size=(2, 600)) * (program.levels.toarray() > 0))
    rows = SideRows("asks", asks, asks.max(axis=1).toarray().ravel() * 0.7, np.full(2, np.inf), str)
    C, (measure,) = program.classes, replace(program, side=(rows,)).class_floors.measures
    all_open, none = np.ones(600, bool), np.zeros(2, bool)
    gain = program.gain
    calls = 0

    def count(frame: FrameType, event: str, value: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        measure.highest_level(C, gain, all_open, none, none)
    finally:
        sys.setprofile(None)
    assert calls < 600
