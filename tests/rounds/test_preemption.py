"""Each rule of preemption, on arrays that can be read."""

from __future__ import annotations

import numpy as np
import pytest
from documents import instance_document
from row_cases import mask, rows

import optsched
from optsched.candidates import Classes, JobRows

# Private names: single rules and files of a round, without a scheduler
from optsched.instance.staying import Running
from optsched.rounds.preemption import (
    cannot_go_on_alone,
    displaced,
    displaced_so_far,
    due_times,
    evicted,
    head_start,
    order_due,
    priority_groups,
    rank_in_group,
    runs_unplanned,
    second_of_parting,
    starved,
    victims,
)
from optsched.rounds.rows import DUE, MUST_RUN, STARVED, URGENT, RowQueue, concatenate, rows_alone
from optsched.rounds.selection import select


def single_gpu_jobs(names: str, gpus: int) -> tuple[Classes, JobRows]:
    """A row of one GPU for each job."""
    pool = {"name": "p", "nodes": 1, "gpus_per_node": gpus}
    document = instance_document(
        [pool], [{"id": name, "steps": 1.0, "throughput": {"p": 1.0}} for name in names]
    )
    classes = optsched.compile(optsched.Instance.from_document(document)).classes(frozenset())
    return classes, rows_alone(classes, np.arange(len(names)))


def queue_of(
    classes: Classes,
    some: JobRows,
    order: np.ndarray,
    continues: np.ndarray,
    partner_now: np.ndarray,
) -> RowQueue:
    none = np.zeros(len(some), bool)
    free, uses = np.full(1, 1.0), classes.uses
    return RowQueue(
        classes,
        some,
        order,
        continues,
        np.full(len(some), DUE),
        none,
        partner_now,
        free=free,
        uses=uses,
    )


# --- who has to leave its nodes ---------------------------------------------------------------


def test_jobs_leave_nodes_that_are_down_or_take_no_work_or_are_crowded() -> None:
    none = np.zeros(4, np.int64)
    running = Running(none, none, none, lost=mask(1, 0, 0, 0), leaves=mask(0, 1, 0, 0))
    assert evicted(running, mask(0, 0, 1, 0)).tolist() == [True, True, True, False]


def test_without_a_plan_all_run_on_that_may_stay_and_are_not_done() -> None:
    # 0 runs on; 1 is evicted, 2 too, but cannot be preempted; 3 has no steps left; 4 did not run.
    ran, must, gone = mask(1, 1, 1, 1, 0), mask(0, 0, 1, 0, 0), mask(0, 1, 1, 0, 0)
    on = runs_unplanned(ran, must, gone, np.array([5.0, 5.0, 5.0, 0.0, 5.0]))
    assert on.tolist() == [True, False, True, False, False]


# --- the order --------------------------------------------------------------------------------


def test_jobs_are_starved_after_the_patience_unless_they_are_exempt() -> None:
    waited = np.array([59.0, 60.0, 99.0])
    assert starved(waited, 60.0, mask(0, 0, 1)).tolist() == [False, True, False]
    assert not starved(waited, np.inf, mask(0, 0, 0)).any()


def test_rows_that_must_run_come_before_starved_ones() -> None:
    groups = priority_groups(mask(1, 1, 0, 0, 0), mask(1, 0, 1, 0, 0), mask(1, 0, 1, 1, 0))
    assert groups.tolist() == [MUST_RUN, MUST_RUN, STARVED, URGENT, DUE]


def test_running_rows_are_ahead_by_the_hysteresis_and_their_restart() -> None:
    ahead = head_start(mask(1, 0, 1), 2.0, np.array([0.5, 0.5, 0.0]))
    assert ahead.tolist() == [2.5, 0.0, 2.0]


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


def test_starved_rows_go_by_their_wait_and_pairs_before_rows_alone_that_must_run() -> None:
    group = np.array([MUST_RUN, MUST_RUN, STARVED, STARVED, DUE, URGENT])
    is_pair, longest = mask(0, 1, 0, 1, 1, 0), np.array([5.0, 5.0, 7.0, 9.0, 9.0, 9.0])
    slack = np.full(6, 3.0)
    ranks = rank_in_group(group, is_pair, longest, slack)
    assert ranks.tolist() == [0.0, -1.0, -7.0, -9.0, 0.0, 3.0]


def test_groups_come_before_ranks_and_ranks_before_due_times() -> None:
    some = rows(*((job, -1) for job in range(4)))
    group, rank = np.array([DUE, DUE, STARVED, MUST_RUN]), np.array([0.0, -1.0, 0.0, 0.0])
    order = order_due(some, np.array([-9.0, 3.0, 3.0, 3.0]), group, rank)
    assert order.tolist() == [3, 2, 1, 0]


def test_rows_that_are_due_together_go_by_their_fraction() -> None:
    some = concatenate(rows((0, -1), fraction=0.2), rows((1, -1), fraction=0.8))
    zero = np.zeros(2)
    assert order_due(some, zero, np.zeros(2, np.int64), zero).tolist() == [1, 0]


# --- pairs that part --------------------------------------------------------------------------


def test_guests_and_two_that_cannot_be_preempted_do_not_go_on_alone() -> None:
    # 0 cannot be preempted and has the guest 1; 2 and 3 cannot be preempted and share GPUs.
    must, together = mask(1, 0, 1, 1, 0), mask(0, 0, 1, 1, 0)
    partner = np.array([1, 0, 3, 2, -1])
    stuck = cannot_go_on_alone(must, together, partner)
    assert stuck.tolist() == [False, True, True, True, False]


def test_of_two_that_part_the_second_in_the_order_loses_the_gpus() -> None:
    # 0 and 1 share GPUs, and so do 2 and 3; 2 does not go on, so that 3 is no second.
    partner_now = np.array([1, 0, 3, 2])
    some = rows((0, -1), (1, -1), (3, -1))
    second = second_of_parting(some, np.array([1, 0, 2]), partner_now)
    assert second.tolist() == [True, False, False, False]


# --- who is preempted, and how many at most ---------------------------------------------------


@pytest.mark.parametrize(("most", "runs"), [(0, "ac"), (1, "ac"), (2, "aw")])
def test_of_two_that_part_only_one_can_stay(most: int, runs: str) -> None:
    # a and b share a GPU, c has another, and w comes before b and c: b has to leave, and c must
    # not leave as well.
    classes, rows = single_gpu_jobs("abcw", 2)
    order = np.array([int(np.flatnonzero(rows.job == "abcw".index(name))[0]) for name in "awbc"])
    partner_now = np.array([1, 0, -1, -1])
    queue = queue_of(classes, rows, order, rows.job < 3, partner_now)
    chosen = select(queue, most)
    assert "".join(sorted("abcw"[job] for job in rows.job[chosen].tolist())) == runs
    assert displaced(queue, chosen).sum() == max(most, 1)


def test_jobs_that_were_moved_or_have_no_row_left_are_displaced() -> None:
    classes, some = single_gpu_jobs("abcd", 4)
    none = np.full(4, -1)
    queue = queue_of(classes, some, np.arange(4), mask(1, 1, 1, 0), none)
    left = queue_of(classes, some, np.array([1, 3]), mask(1, 1, 1, 0), none)
    # a stays, b may still go on, c has no row left, d did not run.
    assert displaced_so_far(queue, left, np.array([0]), mask(0, 0, 0, 0)) == 1
    assert displaced_so_far(queue, left, np.array([0]), mask(0, 0, 1, 0)) == 0


def test_rows_behind_one_without_room_make_way_the_last_first() -> None:
    position = np.array([3, 0, 2, 1, 4])
    assert victims(position, 3, np.array([0, 1, 2, 4])).tolist() == [4, 0, 2]
    assert not len(victims(position, 4, np.array([0, 1, 2])))
