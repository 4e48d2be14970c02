"""Programs in which many classes are equal, proportional or tie: the same optimum, proved, in few passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from documents import instance_document
from test_prices_totals import several, solved

import optsched
from optsched.arrays.values import replace
from optsched.candidates import compile
from optsched.instance import Instance
from optsched.performance import TableModel
from optsched.program import AllocationProgram, Minimum, Total
from optsched.solution import Status, Termination

# Private names: sessions and steps of one back-end, without the engine
from optsched.solvers.prices import linear_total, max_min, merging
from optsched.solvers.prices.linear_total import LinearTotalSearch
from optsched.solvers.prices.market import Market, market_of
from optsched.solvers.prices.max_min import MaxMinSearch
from optsched.solvers.prices.merging import merged

pytestmark = pytest.mark.property

SORTS = (
    "equal",
    "few",
    "proportional",
    "few, proportional",
    "whole numbers",
    "equal pools",
    "two rates",
)


def tied(sort: str, jobs: int, pools: int, utility: str, seed: int = 0) -> AllocationProgram:
    """A program of one job per class, with scarce capacity."""
    random = np.random.default_rng(seed)
    rates, scale = random.lognormal(0.0, 0.7, (jobs, pools)), random.lognormal(0.0, 0.6, (jobs, 1))
    if sort in ("equal", "proportional"):
        rates = rates[np.zeros(jobs, int)]
    elif sort in ("few", "few, proportional"):
        rates = rates[random.integers(0, 5, jobs)]
    elif sort == "whole numbers":
        rates = random.integers(0, 4, (jobs, pools)) + np.eye(pools)[0]
    elif sort == "equal pools":
        rates = rates[:, np.zeros(pools, int)]
    elif sort == "two rates":
        rates = random.choice([1.0, 2.0], (jobs, pools))
    if sort in ("proportional", "few, proportional", "equal pools"):
        rates = rates * scale
    gangs = random.choice([1, 2, 4], jobs)
    sizes = np.maximum(4, random.dirichlet(np.full(pools, 3.0)) * gangs.sum() / 12).astype(int)
    instance = Instance.from_arrays(
        pools={f"p{j}": int(n) for j, n in enumerate(sizes)}, throughput=rates, gpus=gangs
    )
    return of_all(instance, utility)


def of_all(instance: Instance, utility: str = "linear") -> AllocationProgram:
    """Every job is a class of its own."""
    classes = compile(instance, TableModel(instance.rates, instance)).per_job().classes(frozenset())
    chosen = Minimum() if utility == "smallest" else Total(np.ones(len(classes)), "linear")
    return AllocationProgram(classes, chosen, sp.csr_matrix(classes.throughput))


@pytest.fixture(params=["merged", "apart"])
def merging_or_not(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Equal rows are one class, or not."""
    if request.param == "apart":
        monkeypatch.setattr(merging, "WORTH", 0.0)
    return str(request.param)


@pytest.mark.parametrize("utility", ["smallest", "linear"])
@pytest.mark.parametrize("sort", SORTS)
def test_ties_are_solved_in_few_passes(sort: str, utility: str, merging_or_not: str) -> None:
    for seed, (jobs, pools) in enumerate([(300, 8), (60, 1), (150, 3), (600, 12)]):
        program = tied(sort, jobs, pools, utility, seed)
        ours, theirs = solved(program), solved(program, "highs", tolerance=1e-10)
        assert ours.values.termination is Termination.OPTIMAL, (seed, ours.values.words)
        assert ours.status is Status.OPTIMAL and ours.certificate.ok, (
            seed,
            ours.certificate.problems,
        )
        assert ours.value == pytest.approx(theirs.value, rel=1e-9), seed
        assert ours.bound == pytest.approx(ours.value, rel=1e-9), seed
        assert ours.values.iterations <= 150, (seed, ours.values.words)


@pytest.mark.parametrize("utility", ["smallest", "linear"])
@pytest.mark.parametrize("sort", SORTS)
def test_cuts_save_small_programs(sort: str, utility: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "WORTH", 0.0)
    words = solved(tied(sort, 1500, 4, utility)).values.words
    assert words is not None and any(f" {rounds} rounds" in words for rounds in range(3)), words


@pytest.mark.parametrize("utility", ["smallest", "linear"])
def test_more_places_are_kept_where_few_say_nothing(
    utility: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for search, module in ((MaxMinSearch, max_min), (LinearTotalSearch, linear_total)):
        monkeypatch.setattr(search, "_cut", lambda *_, **__: None)
        monkeypatch.setattr(module, "NEAR", 2)
    program = tied("equal pools", 100, 12, utility)
    ours = solved(program)
    assert ours.values.termination is Termination.OPTIMAL, ours.values.words
    assert ours.value == pytest.approx(solved(program, "highs", tolerance=1e-10).value, rel=1e-9)


@pytest.mark.parametrize("utility", ["smallest", "linear"])
def test_classes_on_several_resources_are_merged_too(
    utility: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = several(6).to_document()
    jobs = document["jobs"]
    document["jobs"] = [{**job, "id": f"{job['id']}-{copy}"} for job in jobs for copy in range(4)]
    program = of_all(Instance.from_document(document), utility)
    ours = solved(program)
    made = merged(market_of(program), market_of(program).level)
    assert made is not None and len(made.market) == len(jobs) - 2 < len(
        made.whole
    )  # three elastic jobs are alike
    monkeypatch.setattr(merging, "WORTH", 0.0)
    apart = solved(program)
    assert ours.status is Status.OPTIMAL and ours.certificate.ok, ours.certificate.problems
    assert ours.value == pytest.approx(apart.value, rel=1e-9)
    assert ours.bound == pytest.approx(ours.value, rel=1e-9)


def test_equal_levels_of_columns_that_hold_different_amounts_stay_apart() -> None:
    pools = [{"name": "p", "nodes": 2, "gpus_per_node": 4, "cpus_per_node": 10}]
    workloads = {f"w{n}": {"throughput": {"p": 1.0}, "demand": {"cpu": n}} for n in (1, 2)}
    jobs = [{"id": f"j{k}", "workload": f"w{1 + k % 2}"} for k in range(20)]
    program = of_all(Instance.from_document(instance_document(pools, jobs, workloads=workloads)))
    market = market_of(program)
    made = merged(market, market.level)
    assert market.good is None and made is not None and len(made.market) == 2
    ours = solved(program)
    assert (
        ours.value == pytest.approx(solved(program, "highs").value, rel=1e-9)
        and ours.status is Status.OPTIMAL
    )


def test_columns_of_equal_hashes_that_hold_different_amounts_are_not_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    level, amount = np.ones((4, 1)), sp.csr_matrix([[1.0, 1.0, 2.0, 2.0]])
    market = replace(plain(level), good=None, held_by=lambda: amount)
    made = merged(market, level)
    assert made is not None and len(made.market) == 2
    monkeypatch.setattr(
        merging, "hash_lists", lambda indptr, _: np.zeros(len(indptr) - 1, np.uint64)
    )
    assert merged(market, level) is None


def test_rows_that_differ_are_not_merged() -> None:
    market = market_of(tied("few, proportional", 500, 3, "smallest"))
    assert merged(market, market.level) is None
    level = np.arange(30_000.0).reshape(10_000, 3)
    level[5] = level[4]  # too few to be worth it
    assert merged(plain(level), level) is None
    assert merged(plain(level[:1]), level[:1]) is None


def test_what_groups_do_is_shared_out_by_weight() -> None:
    level = np.array([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0], [3.0, 0.0]])
    market = plain(
        level, weight=np.array([1.0, 6.0, 2.0, 5.0]), amount=np.array([1.0, 2.0, 1.0, 1.0])
    )
    made = merged(market, level)
    assert made is not None and made.market.weight.tolist() == [9.0, 5.0]
    assert made.market.place.tolist() == [[0, 1], [2, -1]]
    assert made.totals(np.array([9.0, 4.5, 5.0, 0.0])).tolist() == [
        1.0,
        0.5,
        3.0,
        1.5,
        2.0,
        1.0,
        5.0,
    ]
    assert made.of_each(np.array([1.0, 4.0])).tolist() == [1.0, 2.0, 1.0, 4.0]
    assert (made.market.usage.toarray() == [[1, 0, 1, 0], [0, 1, 0, 1]]).all()


def plain(level: np.ndarray, **fields: Any) -> Market:
    """Places are goods."""
    count, width = level.shape
    ones = np.ones(count)
    place = np.where(level > 0, np.cumsum(level.ravel() > 0).reshape(level.shape) - 1, -1)
    usage = sp.csr_matrix(np.tile(np.eye(width), count)[:, (level > 0).ravel()])
    filled = {"weight": ones, "amount": ones, **fields}
    return Market(
        level, capacity=np.ones(width), row=np.arange(width), good=np.arange(width), place=place,
        columns=usage.shape[1], held_by=lambda: usage,
        unit=1.0, highest=1.0, **filled,
    )  # fmt: skip


def test_one_pool_that_binds_beside_slack_ones_does_not_stall() -> None:
    """Prices of slack pools are tiny; where they count as nothing, the last 4e-9 of the gap stay for many rounds."""
    random = np.random.default_rng([0, 10_000, 10])
    base, speed = np.exp(random.normal(0, 1.0, 10_000)), np.geomspace(1.0, 6.0, 10)
    rate = (
        base[:, None]
        * speed ** random.beta(2, 2, 10_000)[:, None]
        * np.exp(random.normal(0, 0.2, (10_000, 10)))
    )
    unusable = random.random(rate.shape) < 0.05
    unusable[np.arange(10_000), random.integers(0, 10, 10_000)] = False
    rate[unusable] = 0.0
    gpus = random.choice([1, 2, 4, 8], 10_000, p=[0.7, 0.1, 0.15, 0.05])
    random.choice([1.0, 2.0, 4.0], 10_000, p=[0.8, 0.15, 0.05]), random.dirichlet(np.full(10, 5.0))
    steps = base * np.exp(random.normal(np.log(28800), 1.2, 10_000))
    counts = (3, 5, 5, 2, 10, 4, 6, 1, 2, 5)
    instance = optsched.Instance.from_arrays(
        pools={f"pool{j}": count for j, count in enumerate(counts)},
        throughput=rate,
        gpus=gpus,
        steps=steps,
    )
    solution = optsched.solve(instance, "makespan", solver="prices")
    assert solution.ok and solution.status == "optimal" and solution.solver.iterations < 110
    assert solution.objective == pytest.approx(solution.bound, rel=1e-9)
