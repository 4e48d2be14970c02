"""Kinds of rows, helpers on rows, and verdicts of jobs, on arrays that can be read."""

from __future__ import annotations

import numpy as np
import pytest
from documents import instance_document
from row_cases import mask, rows

import optsched
from optsched.placement.shares import FULL
from optsched.rounds import Verdict
from optsched.rounds import rows as rows_module

# Private names: single rules and files of a round, without a scheduler
from optsched.rounds.ledger import Ledger
from optsched.rounds.round_rows import mixed_pairs, parting_rows
from optsched.rounds.rows import DUE, RowQueue, either, jobs_of, larger, no_rows, rows_alone
from optsched.rounds.solve_round import verdicts


def ledger(*pairs: tuple[int, int], jobs: int) -> Ledger:
    """A ledger in which these rows run."""
    key = np.zeros((len(pairs), 9), np.int64)
    key[:, :2] = np.array(pairs, np.int64).reshape(-1, 2)
    zero = np.zeros(len(pairs))
    return Ledger(key, zero, zero, zero, np.ones(len(pairs), bool), np.zeros(jobs))


def test_the_partner_of_each_job_that_shares_gpus() -> None:
    assert ledger((0, 2), (1, -1), jobs=4).partner_now.tolist() == [2, -1, 0, -1]


def test_a_row_alone_of_a_job_in_a_pair_parts_it() -> None:
    some = rows((0, -1), (0, 1), (2, -1))
    assert parting_rows(some, np.array([1, 0, -1])).tolist() == [True, False, False]


def test_in_a_mixed_pair_one_of_two_cannot_be_preempted() -> None:
    some, must = rows((0, 1), (0, 2), (1, 2), (0, -1)), mask(1, 0, 1)
    every = np.ones(4, bool)
    assert mixed_pairs(some, every, must).tolist() == [True, False, True, False]
    assert not mixed_pairs(some, ~every, must).any()


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
    some = rows((0, 2), (3, -1), (4, -1)).take(np.array([2, 0]))
    assert (some.job.tolist(), some.partner.tolist()) == ([4, 0], [-1, 2])


# --- rows side by side ------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 4, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_rows_run_that_fit_beside_those_before_them(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are looked at together: as when each is tried alone, one after the other."""
    monkeypatch.setattr(rows_module, "ROWS_AT_ONCE", at_once)
    random = np.random.default_rng(seed)
    pools = [
        {"name": name, "nodes": 2, "gpus_per_node": 4, "cpus_per_node": 16} for name in ("p", "q")
    ]
    jobs = [
        {"id": f"j{number}", "steps": 1.0, "gpus": int(random.integers(1, 5)),
         "throughput": {"p": 1.0, "q": 2.0}, "workload": f"w{random.integers(3)}"}
        for number in range(20)
    ]  # fmt: skip
    workloads = {
        f"w{number}": {"throughput": {}, "demand": {"cpu": 2 * number}} for number in range(3)
    }
    document = instance_document(pools, jobs, workloads=workloads)
    classes = optsched.compile(optsched.Instance.from_document(document)).classes(frozenset())
    some = rows_alone(classes, np.arange(20))
    order = random.permutation(len(some))
    uses = classes.uses
    free = random.uniform(0.4, FULL, uses.resources)
    busy = random.random(20) < 0.1
    nobody = np.full(20, -1, np.int64)
    group = np.full(len(some), DUE)
    queue = RowQueue(classes, some, order, group < 0, group, busy, nobody, free=free, uses=uses)

    amount = np.zeros((len(some), uses.resources))
    of_rows = uses.take(some.column)
    amount[of_rows.row, of_rows.resource] = of_rows.share
    left, runs, expected = free.copy(), busy.copy(), []
    for row in order.tolist():
        if not runs[some.job[row]] and (amount[row] <= left).all():
            left = left - amount[row]
            runs[some.job[row]] = True
            expected.append(row)
    assert queue.side_by_side().tolist() == sorted(expected)
    assert 0 < len(expected) < 20
