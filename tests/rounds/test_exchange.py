"""The set of rows of a round that is worth most: what worth means, and that chains of exchanges find it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import JobRows, RowUses
from optsched.placement import Instant

# Private names: single rules and files of a round, without a scheduler
from optsched.placement.instant import first_fit
from optsched.placement.shares import FULL
from optsched.rounds.exchange import MUCH, exchanged, worth_of

pytestmark = pytest.mark.property


def instant(rows: list[tuple[int, int, int, float]]) -> Instant:
    """Rows of a job, a partner (-1), a resource and the share of it."""
    job, partner, resource, share = (np.array(part) for part in zip(*rows, strict=True))
    usage = sp.csc_matrix(
        (share, (resource, np.arange(len(rows)))), shape=(int(resource.max()) + 1, len(rows))
    )
    return Instant(job, partner, np.full(len(rows), 0.5), RowUses.of(usage))


def valid(rules: Instant, chosen: IntArray) -> bool:
    ends = np.concatenate([rules.job[chosen], rules.partner[chosen]])
    ends = ends[ends >= 0]
    return len(np.unique(ends)) == len(ends) and bool((rules.uses.total(chosen) <= FULL).all())


def subsets(rules: Instant) -> list[IntArray]:
    rows = range(len(rules))
    every = (
        np.array(some, np.int64)
        for size in range(len(rules) + 1)
        for some in combinations(rows, size)
    )
    return [some for some in every if valid(rules, some)]


def found(rules: Instant, worth: FloatArray) -> IntArray:
    order = np.argsort(-worth, kind="stable")
    nobody = np.zeros(rules.jobs, bool)
    return exchanged(
        rules, worth, order[worth[order] > 0], np.full(rules.uses.resources, FULL), nobody
    )


def small(seed: int) -> tuple[Instant, FloatArray]:
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(11):
        first, second = random.choice(6, 2, replace=False).tolist()
        rows.append((first, second if random.random() < 0.6 else -1, int(random.integers(2)), 0.5))
    return instant(rows), random.uniform(0.1, 3.0, 11)


def test_two_rows_beside_each_other_go_before_the_larger_one_between_them() -> None:
    rules = instant([(0, 1, 0, 0.5), (1, 2, 0, 0.5), (2, 3, 0, 0.5)])
    worth = np.array([3.0, 4.0, 3.0])
    assert first_fit(rules, np.array([1, 0, 2])).tolist() == [1]
    assert found(rules, worth).tolist() == [0, 2]


def test_a_chain_follows_jobs_from_pool_to_pool() -> None:
    """Job 0 has GPU 0, so that 1 comes to GPU 1, 2 to GPU 2, and nothing is left for job 3: each has to move on."""
    rows = [
        (0, -1, 0, 1.0),
        (0, -1, 1, 1.0),
        (1, -1, 1, 1.0),
        (1, -1, 2, 1.0),
        (2, -1, 2, 1.0),
        (2, -1, 3, 1.0),
    ]
    rules = instant([*rows, (3, -1, 0, 1.0)])
    worth = np.array([3.0, 2.9, 3.0, 2.9, 3.0, 2.9, 2.0])
    assert found(rules, worth).tolist() == [1, 3, 5, 6]


def test_a_chain_is_found_among_many_rows_that_are_in_nobodys_way() -> None:
    """The same on 301 GPUs of each kind: 300 are taken by jobs worth more, and 300 more jobs are worth less."""
    some = [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 0)]
    worth = [3.0, 2.9, 3.0, 2.9, 3.0, 2.9, 2.0]
    for resource in range(4):
        some += [(4 + len(some) + one, resource) for one in range(600)]
        worth += [10.0] * 300 + [0.01] * 300
    rules = instant([(job, -1, resource, 1.0 / 301.0) for job, resource in some])
    chosen = found(rules, np.array(worth))
    assert chosen[:4].tolist() == [1, 3, 5, 6]
    assert len(chosen) == 4 * 301 and (np.array(worth)[chosen[4:]] == 10.0).all()


def test_exchanges_come_to_the_best_set_of_all() -> None:
    """In nearly all small cases, where taking rows one by one does in some; never to a set that cannot run."""
    best, one_by_one = 0, 0
    for seed in range(60):
        rules, worth = small(seed)
        chosen, most = found(rules, worth), max(worth[some].sum() for some in subsets(rules))
        greedy = worth[first_fit(rules, np.argsort(-worth, kind="stable"))].sum()
        assert valid(rules, chosen)
        assert greedy <= worth[chosen].sum() + 1e-9
        best += bool(worth[chosen].sum() > most - 1e-9)
        one_by_one += bool(greedy > most - 1e-9)
    assert one_by_one < 50
    assert best >= 58


def test_what_runs_already_stays_out_of_it() -> None:
    rules = instant([(0, 1, 0, 0.5), (2, -1, 0, 0.5), (3, -1, 0, 0.5)])
    busy = np.array([False, True, False, False])
    chosen = exchanged(rules, np.array([9.0, 1.0, 2.0]), np.array([0, 2, 1]), np.array([0.5]), busy)
    assert chosen.tolist() == [2]


def jobrows(rules: Instant, fraction: FloatArray) -> JobRows:
    nothing = np.zeros(len(rules))
    return JobRows(
        rules.job, rules.partner, np.zeros(len(rules), np.int64), fraction, nothing, nothing
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_set_worth_most_leaves_the_least_squares_of_what_is_owed(seed: int) -> None:
    random = np.random.default_rng(seed)
    rules, _ = small(seed)
    fraction, deficit = random.uniform(0.05, 0.3, len(rules)), random.uniform(-0.4, 0.4, len(rules))
    none = np.zeros(len(rules))
    worth = worth_of(jobrows(rules, fraction), deficit, none, none + 9.0)

    def squares(some: IntArray) -> float:
        owed = deficit + fraction
        owed[some] -= 1.0
        jobs = np.zeros(rules.jobs)
        for ends in (rules.job, rules.partner):
            np.add.at(jobs, ends[ends >= 0], owed[ends >= 0])
        return float((owed**2).sum() + (jobs**2).sum())

    every = subsets(rules)
    left = np.array([squares(some) for some in every])
    value = np.array([worth[some].sum() for some in every])
    assert left + 2.0 * value == pytest.approx(squares(np.zeros(0, np.int64)))
    assert np.argmax(value) == np.argmin(left)


def test_rows_count_as_owed_more_while_they_run_and_for_nothing_without_a_claim_or_credit() -> None:
    rules = instant([(0, -1, 0, 0.5), (1, 2, 0, 0.5), (3, -1, 0, 0.5), (4, -1, 0, 0.5)])
    fraction, deficit = np.array([0.5, 0.5, 0.0, 0.5]), np.array([0.0, 0.0, 0.0, -2.6])
    none = np.zeros(4)
    calm = worth_of(jobrows(rules, fraction), deficit, none, none + 2.0)
    assert calm.tolist() == [0.0, 0.0, -1.0, -1.0]
    runs = worth_of(jobrows(rules, fraction), deficit, none + 2.0, none + 2.0)
    assert runs[:2].tolist() == [4.0, 6.0]


def test_much_that_is_owed_counts_in_proportion_to_the_claims() -> None:
    rules = instant([(0, -1, 0, 0.5), (1, -1, 0, 0.5)])
    fraction, none = np.array([0.25, 0.75]), np.zeros(2)
    worth = worth_of(jobrows(rules, fraction), MUCH - fraction + 100.0 * fraction, none, none)
    assert worth[0] == pytest.approx(worth[1])
