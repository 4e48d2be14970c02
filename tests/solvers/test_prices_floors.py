"""Linear totals above floors in the price method: floors of any measure, costs, ties, closed columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from test_prices_side_rows import limited, solved

from optsched.program import AllocationProgram, SideRows, Total
from optsched.registry import load_solver
from optsched.solution import Status
from optsched.solvers.prices import sampling
from optsched.solvers.prices.goods import Goods
from optsched.solvers.prices.linear_total import LinearTotalSearch
from optsched.solvers.prices.market import market_of

pytestmark = pytest.mark.property


def floored(seed: int) -> AllocationProgram:
    """Random worth, also below 0 and with ties; half of the jobs are asked for time, or for a rate of
    their own; some for all that they can give.
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
    asks = SideRows("service", rows, np.array(lower), np.full(len(lower), np.inf), str)
    side = (*program.side, asks) if lower else program.side
    return replace(program, levels=levels, utility=Total(weight), side=side)


@pytest.mark.parametrize("by_sample", [False, True])
@pytest.mark.parametrize("start", range(0, 400, 40))
def test_floors_of_any_measure_agree_with_simplex(
    start: int, by_sample: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To 1e-12, and bounds too: both end at a vertex, from whatever prices they start."""
    if by_sample:  # of three jobs and more
        for name, value in (("LARGE", 0), ("PART", 3), ("LEAST", 1), ("SMALL", 2)):
            monkeypatch.setattr(sampling, name, value)
    found = set()
    for seed in range(start, start + 40):
        program = floored(seed)
        if load_solver("prices").refuses(program) is not None:
            continue  # a job that can run nowhere
        ours, theirs = solved(program, "prices"), solved(program, "highs")
        assert ours.status is theirs.status, seed
        assert ours.certificate.ok, (seed, ours.certificate.problems)
        found.add(ours.status)
        if theirs.value is not None:
            assert ours.value == pytest.approx(theirs.value, rel=1e-9, abs=1e-9), seed
            assert ours.bound == pytest.approx(ours.value, rel=1e-9, abs=1e-12), seed
    assert found == {Status.OPTIMAL, Status.INFEASIBLE}


@pytest.mark.parametrize("seed", range(12))
def test_any_prices_bound_the_total(seed: int) -> None:
    program = floored(seed)
    if load_solver("prices").refuses(program) is not None or not program.class_floors.side:
        return
    best = solved(program, "highs")
    if best.value is None:
        return
    market, floors, C = market_of(program), program.class_floors, program.classes
    scale = market.unit / market.amount
    worth = market.level * (program.total.weight * scale)[:, np.newaxis]
    asks = C.count[:, np.newaxis] * np.append(floors.part, 0.0)[market.place]
    base = np.append(best.x, 0.0)[market.place] * (market.amount / market.weight)[:, np.newaxis]
    search = LinearTotalSearch(Goods.of(market, np.arange(len(C))), worth, None, asks, base)
    random = np.random.default_rng(seed)
    for _ in range(30):
        search.bound = np.inf
        search.ask(random.exponential(1.0, len(market.capacity)))
        assert search.bound >= best.value - 1e-9 * max(1.0, abs(best.value))


def test_two_floors_of_one_job_are_one_if_one_implies_the_other() -> None:
    program = floored(7)
    (asks,) = (rows for rows in program.side if rows.name == "service")
    half = replace(asks, name="half", matrix=sp.csr_matrix(2.0 * asks.matrix))
    other = replace(asks, name="other", matrix=sp.csr_matrix(asks.matrix.power(2)))
    once = program.class_floors
    twice = replace(program, side=(*program.side, half)).class_floors
    assert once is not None and twice is not None and (twice.row == once.row).all()
    assert (twice.part == once.part).all()
    assert replace(program, side=(*program.side, other)).class_floors is None
