"""The priority rule: who runs next, and what rows receive over many rounds."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from rounds_cases import allocation, cut

import optsched
from optsched import Instance

# Private names: single searches and bounds, without the choice among them
from optsched.candidates import RowUses
from optsched.placement import Instant
from optsched.placement.instant import first_fit, next_round, priorities
from optsched.placement.shares import FULL

pytestmark = pytest.mark.property


def one_by_one(instant: Instant, order: np.ndarray) -> list[int]:
    """The rule, row by row."""
    free, busy, chosen = np.full(instant.usage.shape[0], FULL), set(), []
    usage = instant.usage.toarray()
    for row in order.tolist():
        jobs = {int(instant.job[row]), int(instant.partner[row])} - {-1}
        if not jobs & busy and (usage[:, row] <= free).all():
            chosen.append(row)
            busy |= jobs
            free -= usage[:, row]
    return sorted(chosen)


def random_instant(seed: int) -> Instant:
    random = np.random.default_rng(seed)
    rows, jobs, resources = (
        int(random.integers(1, 40)),
        int(random.integers(2, 15)),
        int(random.integers(1, 4)),
    )
    job = random.integers(0, jobs, rows)
    partner = np.where(random.random(rows) < 0.3, (job + random.integers(1, jobs, rows)) % jobs, -1)
    usage = random.choice(
        [0.0, 0.125, 0.25, 0.5, 1.5], (resources, rows), p=[0.4, 0.2, 0.2, 0.15, 0.05]
    )
    return Instant(job, partner, random.random(rows), RowUses.of(usage))


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_passes_over_arrays_are_the_rule_row_by_row(seed: int) -> None:
    instant = random_instant(seed)
    order = np.random.default_rng(seed + 1).permutation(len(instant))
    assert first_fit(instant, order).tolist() == one_by_one(instant, order)


def test_priority_is_the_fraction_over_the_share_received() -> None:
    found = priorities(np.array([0.5, 0.25, 0.0]), np.array([2.0, 0.0, 0.0]), 4.0)
    assert found.tolist() == [0.5 * 4.5 / 2.5, 0.25 * 4.5 / 0.5, 0.0]


def test_one_gpu_is_shared_as_seats_by_webster() -> None:
    made = allocation(
        {("j0", "g"): 0.5, ("j1", "g"): 0.3, ("j2", "g"): 0.2},
        pools={"g": 1},
        throughput=np.ones((3, 1)),
    )
    rounds = cut(made, "priority", rounds=10)
    assert [rounds.running(k).tolist() for k in range(10)] == [
        [0],
        [1],
        [2],
        [0],
        [0],
        [1],
        [0],
        [2],
        [1],
        [0],
    ]
    assert rounds.received.tolist() == pytest.approx(
        [0.5, 0.3, 0.2]
    ) and rounds.scale == pytest.approx(1)


def test_rows_come_close_to_their_fractions() -> None:
    for seed in range(12):
        random = np.random.default_rng(seed)
        jobs, pools = int(random.integers(3, 40)), int(random.integers(1, 4))
        instance = Instance.from_arrays(
            pools={f"p{j}": int(random.integers(1, 6)) for j in range(pools)},
            throughput=random.lognormal(0, 1, (jobs, pools)),
            weight=random.choice([1.0, 2.0, 5.0], jobs),
        )
        made = optsched.solve(instance, ("max-min-fairness", "isolated")[seed % 2]).allocation
        assert made is not None
        instant, received = Instant.of(made.classes, made.rows), np.zeros(len(made.rows))
        for elapsed in range(200):
            chosen = next_round(instant, received, float(elapsed))
            received[chosen] += 1
            assert (instant.fraction * (elapsed + 1) - received).max() < 1.5
            assert (
                one_by_one(instant, np.concatenate([chosen, np.arange(len(instant))]))
                == chosen.tolist()
            )  # no idle


def test_rows_of_fraction_0_fill_what_is_left() -> None:
    usage = sp.csr_matrix(np.array([[0.5, 0.5, 0.5]]))
    instant = Instant(np.arange(3), np.full(3, -1), np.array([0.0, 0.5, 0.0]), RowUses.of(usage))
    chosen = next_round(instant, np.zeros(3), 0.0)
    assert 1 in chosen and len(chosen) == 2


def test_permuting_the_jobs_changes_nothing_but_ties() -> None:
    random = np.random.default_rng(3)
    instant = Instant(
        np.arange(12), np.full(12, -1), random.random(12), RowUses.of(np.full((1, 12), 0.25))
    )
    order = random.permutation(12)
    other = Instant(instant.job, instant.partner, instant.fraction[order], instant.uses)
    received = np.zeros(12)
    for elapsed in range(20):
        chosen = next_round(instant, received, float(elapsed))
        assert set(order[next_round(other, received[order], float(elapsed))]) == set(chosen)
        received[chosen] += 1


@pytest.mark.clock
def test_ten_thousand_jobs_take_milliseconds() -> None:
    random = np.random.default_rng(0)
    sizes = random.choice([1, 2, 4, 8], 10_000)
    usage = sp.csr_matrix(
        (sizes / 2500, (random.integers(0, 4, 10_000), np.arange(10_000))), shape=(4, 10_000)
    )
    # pairs in a chain, all alike: each waits for the one before it, unless the order of a tie is scrambled
    partner = np.append(np.arange(1, 10_000), -1)
    for mates in (np.full(10_000, -1), partner):
        instant = Instant(np.arange(10_000), mates, np.full(10_000, 0.4), RowUses.of(usage))
        started = time.perf_counter()
        next_round(instant, np.zeros(10_000), 0.0)
        assert time.perf_counter() - started < 0.5
