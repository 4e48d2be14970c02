"""Each rule by which rows are ordered, and jobs get their verdicts, on arrays that can be read."""

from __future__ import annotations

import numpy as np
import pytest

from optsched.candidates import JobRows
from optsched.rounds import Verdict
from optsched.rounds.claims import (
    cannot_go_on_alone,
    due_times,
    mixed_pairs,
    parting_rows,
    rank_in_group,
    running_partner,
)
from optsched.rounds.ledger import Ledger
from optsched.rounds.plan_making import verdicts
from optsched.rounds.rows import concatenate, either, jobs_of, larger, no_rows, take
from optsched.rounds.selection import DUE, HELD, STARVED, order_due


def rows(*jobs: tuple[int, int], fraction: float = 0.5) -> JobRows:
    """Rows of (job, partner); a row's column is its place."""
    job, partner = np.array(jobs, np.int64).reshape(-1, 2).T
    part = np.full(len(job), fraction)
    return JobRows(job, partner, np.arange(len(job)), part, part * 0 + 1.0, part * 0 + 1.0)


def mask(*values: int) -> np.ndarray:
    return np.array(values, bool)


def ledger(*pairs: tuple[int, int], jobs: int) -> Ledger:
    """A ledger in which these rows run."""
    key = np.zeros((len(pairs), 9), np.int64)
    key[:, :2] = np.array(pairs, np.int64).reshape(-1, 2)
    zero = np.zeros(len(pairs))
    return Ledger(key, zero, zero, zero, np.ones(len(pairs), bool), np.zeros(jobs))


def test_a_row_is_due_half_a_round_before_it_is_owed_one() -> None:
    half = np.full(3, 0.5)
    assert due_times(half, np.zeros(3), np.zeros(3)).tolist() == [1.0, 1.0, 1.0]
    # Owed a round: overdue. A lead of a round: due two rounds earlier at half of the time.
    assert due_times(half, np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0])).tolist() == [
        -1.0,
        -1.0,
        1.0,
    ]


def test_a_row_without_a_claim_is_never_due() -> None:
    assert due_times(np.zeros(1), np.array([9.0]), np.zeros(1)).tolist() == [np.inf]


def test_the_partner_of_each_job_that_shares_gpus() -> None:
    assert running_partner(ledger((0, 2), (1, -1), jobs=4)).tolist() == [2, -1, 0, -1]


def test_guests_and_two_that_cannot_be_preempted_do_not_go_on_alone() -> None:
    # 0 cannot be preempted and has the guest 1; 2 and 3 cannot be preempted and share GPUs.
    must, together = mask(1, 0, 1, 1, 0), mask(0, 0, 1, 1, 0)
    partner = np.array([1, 0, 3, 2, -1])
    stuck = cannot_go_on_alone(must, together, partner)
    assert stuck.tolist() == [False, True, True, True, False]


def test_a_row_alone_of_a_job_in_a_pair_parts_it() -> None:
    some = rows((0, -1), (0, 1), (2, -1))
    assert parting_rows(some, np.array([1, 0, -1])).tolist() == [True, False, False]


def test_in_a_mixed_pair_one_of_two_cannot_be_preempted() -> None:
    some, must = rows((0, 1), (0, 2), (1, 2), (0, -1)), mask(1, 0, 1)
    every = np.ones(4, bool)
    assert mixed_pairs(some, every, must).tolist() == [True, False, True, False]
    assert not mixed_pairs(some, ~every, must).any()


def test_starved_rows_go_by_their_wait_and_held_pairs_before_held_rows_alone() -> None:
    group = np.array([HELD, HELD, STARVED, STARVED, DUE])
    is_pair, longest = mask(0, 1, 0, 1, 1), np.array([5.0, 5.0, 7.0, 9.0, 9.0])
    assert rank_in_group(group, is_pair, longest).tolist() == [0.0, -1.0, -7.0, -9.0, 0.0]


def test_groups_come_before_ranks_and_ranks_before_due_times() -> None:
    some = rows(*((job, -1) for job in range(4)))
    group, rank = np.array([DUE, DUE, STARVED, HELD]), np.array([0.0, -1.0, 0.0, 0.0])
    order = order_due(some, np.array([-9.0, 3.0, 3.0, 3.0]), group, rank)
    assert order.tolist() == [3, 2, 1, 0]


def test_rows_that_are_due_together_go_by_their_fraction() -> None:
    some = concatenate(rows((0, -1), fraction=0.2), rows((1, -1), fraction=0.8))
    zero = np.zeros(2)
    assert order_due(some, zero, np.zeros(2, np.int64), zero).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("on", "stays", "ran", "verdict"),
    [
        (1, 1, 1, Verdict.KEEP),
        (1, 0, 1, Verdict.MOVE),
        (1, 0, 0, Verdict.START),
        (1, 1, 0, Verdict.START),
        (0, 0, 1, Verdict.PREEMPT),
        (0, 0, 0, Verdict.HOLD),
    ],
)
def test_verdicts(on: int, stays: int, ran: int, verdict: Verdict) -> None:
    assert verdicts(mask(on), mask(stays), mask(ran)).tolist() == [verdict]


def test_jobs_of_rows() -> None:
    some = rows((0, 2), (3, -1))
    assert jobs_of(some, np.array([0]), 5).tolist() == [True, False, True, False, False]
    assert jobs_of(some, mask(0, 1), 5).tolist() == [False, False, False, True, False]
    assert not jobs_of(no_rows(), np.zeros(0, np.int64), 5).any()
    assert either(some, mask(0, 0, 1, 0, 0)).tolist() == [True, False]
    assert larger(some, np.array([1.0, 0.0, 4.0, 2.0, 9.0])).tolist() == [4.0, 2.0]


def test_rows_are_taken_in_the_order_given() -> None:
    some = take(rows((0, 2), (3, -1), (4, -1)), np.array([2, 0]))
    assert (some.job.tolist(), some.partner.tolist()) == ([4, 0], [-1, 2])
