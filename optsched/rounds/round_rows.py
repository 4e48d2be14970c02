"""The rows that may run in a round, with what decides on their order, as a `RowQueue`.

These are the rows of the allocation, and rows without a claim in which running jobs can go on as
they are, or starved jobs can run alone. A row has a **claim** to the part of the time that the
allocation gives it (its fraction, above 0). The order is that of `optsched.rounds.preemption`.

Which row a running job that cannot be preempted takes, alone or with a guest on its GPUs, is
decided before all others (`optsched.rounds.hosts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, find_rows, gathered, mask_of
from optsched.candidates import Classes, JobRows
from optsched.program import SideRows
from optsched.rounds.allocation import Answer
from optsched.rounds.exchange import worth_of
from optsched.rounds.hosts import Hosts
from optsched.rounds.ledger import Ledger, Standing
from optsched.rounds.preemption import (
    cannot_go_on_alone,
    due_times,
    head_start,
    order_due,
    priority_groups,
    rank_in_group,
    starved,
)
from optsched.rounds.rows import (
    DUE,
    RowQueue,
    concatenate,
    either,
    every_way_alone,
    jobs_of,
    larger,
    no_rows,
    room_at_least,
    rows_alone,
    rows_of_keys,
    side_rows,
    upper_sides,
    within_upper_sides,
)
from optsched.rounds.state import RoundState
from optsched.rounds.view import InPlace, View

URGENT_ROUNDS = 6.0
"""An admitted job that may wait for fewer rounds than this goes before those with more time.

With 1 or 2, more jobs run out of slack in the same round than there are GPUs: allocations hold all
of them to the same pace.
"""

# --- kinds of rows ----------------------------------------------------------------------------


def parting_rows(rows: JobRows, partner: IntArray) -> BoolArray:
    """Rows in which a job leaves the pair that it runs in now: only one of the two can go on."""
    return (rows.partner < 0) & (partner[rows.job] >= 0)


def mixed_pairs(rows: JobRows, continues: BoolArray, must: BoolArray) -> BoolArray:
    """Running pairs of which one job can be preempted and the other not: it goes on without it."""
    one_of_two = must[rows.job] ^ gathered(must, rows.partner, False)
    return one_of_two & continues & (rows.partner >= 0)


# --- the rows of a round ----------------------------------------------------------------------


@dataclass(frozen=True)
class RoundRows:
    """The rows that may run in a round, with what decides on their order.

    Attributes
    ----------
    state : RoundState
    view : View
        That of the state.
    answer : Answer
        The allocation, or the ranking, that the round follows.
    ledger : Ledger
        What the rows of this allocation are owed.
    """

    state: RoundState
    view: View
    answer: Answer
    ledger: Ledger

    @property
    def classes(self) -> Classes:
        return self.answer.classes

    @cached_property
    def in_place(self) -> InPlace:
        return InPlace(self.view, self.classes, self.state.ledger)

    @cached_property
    def constraints(self) -> Sequence[Mapping[str, Any]]:
        """Side constraints as documents: the placement reads those of kind ``anti-affinity``."""
        return [constraint.document() for constraint in self.answer.constraints]

    def side(self) -> list[SideRows]:
        return side_rows(self.answer.constraints, self.classes)

    @property
    def fills(self) -> bool:
        """Whether jobs may have GPUs that rows with a claim leave over."""
        fill = self.state.policy.fill
        return not self.answer.leaves_idle if fill is None else fill

    # --- which rows there are -------------------------------------------------------------

    @cached_property
    def rows(self) -> JobRows:
        """Rows of the allocation, then rows without a claim."""
        return concatenate(self.answer.rows, self.unclaimed)

    @cached_property
    def unclaimed(self) -> JobRows:
        """Rows without a claim: of running jobs and pairs as they are, and of starved jobs."""
        ranked = self.answer.position is not None
        elsewhere = self.starved & (not ranked)  # a ranking has all rows of all jobs already
        return concatenate(
            self._running_alone(),
            self._running_pairs(),
            every_way_alone(
                self.classes,
                self.answer.rows,
                elsewhere,
                self.answer.constraints,
            ),
        )

    def _running_alone(self) -> JobRows:
        """Rows in which jobs go on that can go on in no row of the allocation."""
        view = self.view
        rows = self.answer.rows
        continues = self._claimed_continue
        # The job of a mixed pair that can be preempted may go on alone; the other goes on in any
        # case.
        mixed = mixed_pairs(rows, continues, view.must)
        go_on = jobs_of(rows, continues & ~mixed, len(view.must))
        go_on |= jobs_of(rows, mixed, len(view.must)) & ~view.must
        others = np.flatnonzero(view.running.runs & ~go_on & ~view.outside)
        return self._continuing(rows_alone(self.classes, others)) if len(others) else no_rows()

    def _running_pairs(self) -> JobRows:
        """Pairs that run and can go on, though the allocation does not have them."""
        before = self.state.ledger
        key = before.key[before.runs & (before.partner >= 0)]
        if not len(key):
            return no_rows()
        # Pairs that the allocation has are among its rows already.
        key = key[find_rows(self.ledger.key, key) < 0]
        return self._continuing(rows_of_keys(key, np.zeros(len(key)), self.classes))

    @cached_property
    def _claimed_continue(self) -> BoolArray:
        """Rows of the allocation that run now as they are."""
        known = self.answer.continues
        return self.in_place.rows_continue(self.answer.rows) if known is None else known

    def _continuing(self, rows: JobRows) -> JobRows:
        return rows.take(np.flatnonzero(self.in_place.rows_continue(rows)))

    # --- what is known of the rows --------------------------------------------------------

    @cached_property
    def starved(self) -> BoolArray:
        """Jobs that have waited longer than the policy's patience; shape (jobs,)."""
        waited = self.state.service.waited(self.state.now)
        return starved(waited, self.state.patience, self.view.never_starved)

    @cached_property
    def partner_now(self) -> IntArray:
        """The job with which each job shares its GPUs now, -1 for none; shape (jobs,)."""
        return self.state.ledger.partner_now

    @cached_property
    def continues(self) -> BoolArray:
        """Rows whose jobs can go on as they are; shape (A,)."""
        rows = self.rows
        view = self.view
        stuck = cannot_go_on_alone(view.must, view.together, self.partner_now)
        # A row alone would part a pair whose other job keeps the GPUs.
        leaves_pair = (rows.partner < 0) & stuck[rows.job]
        unclaimed = self.in_place.rows_continue(self.unclaimed)
        return np.concatenate([self._claimed_continue, unclaimed]) & ~leaves_pair

    @cached_property
    def deficit(self) -> FloatArray:
        """Rounds that each row is owed; 0 for those without a claim."""
        unclaimed = np.zeros(len(self.rows) - len(self.answer.rows))
        return np.concatenate([self.ledger.deficit, unclaimed]) / self.view.instance.round

    @cached_property
    def restart(self) -> FloatArray:
        """Rounds that it costs to stop the row's jobs now and start them again."""
        return larger(self.rows, self.state.stops.cost) / self.view.instance.round

    @cached_property
    def head_start(self) -> FloatArray:
        """h_r: rounds by which rows that run are ahead of others that are owed as much."""
        return head_start(self.continues, self.state.policy.hysteresis, self.restart)

    @cached_property
    def due(self) -> FloatArray:
        return due_times(self.rows.fraction, self.deficit, self.head_start)

    @cached_property
    def position(self) -> IntArray | None:
        """The position of each row in the order of a ranking, those without a claim last."""
        if self.answer.position is None:
            return None
        count = len(self.answer.rows)
        return np.concatenate([self.answer.position, np.full(len(self.rows) - count, count)])

    @cached_property
    def waits(self) -> BoolArray:
        """Rows of which a job is starved."""
        return either(self.rows, self.starved)

    @cached_property
    def longest(self) -> FloatArray:
        """Seconds that the job of each row that waits longest has waited."""
        return larger(self.rows, self.state.service.waited(self.state.now))

    @property
    def follows_plan(self) -> bool:
        """Whether a plan of what runs when keeps deadlines, not a pace that a constraint asks for."""
        paced = any(own.hard_deadlines for own in self.answer.constraints)
        return self.answer.holds_deadlines and not paced

    @property
    def held(self) -> BoolArray:
        """Jobs that are to meet a deadline, shape (jobs,)."""
        admissions = self.answer.admissions
        standing = self.state.service.standing if admissions is None else admissions.standing
        return np.isin(standing, (Standing.ADMITTED, Standing.PLANNED))

    @cached_property
    def slack(self) -> FloatArray:
        """Rounds that each row's job may still wait and end in time in this row; shape (A,).

        inf for jobs that are not held to a deadline, and for pairs.
        """
        rows = self.rows
        slack = np.full(len(rows), np.inf)
        if not self.answer.holds_deadlines:
            return slack
        table = self.view.instance.jobs_table
        held = self.held & np.isfinite(table.deadline)
        some = np.flatnonzero(held[rows.job] & (rows.partner < 0) & (rows.rate > 0))
        left = self.seconds_to_spare(rows.take(some), self.continues[some])
        slack[some] = left / self.view.instance.round
        return slack

    def seconds_to_spare(self, rows: JobRows, continues: BoolArray) -> FloatArray:
        """Seconds that jobs may wait and end in time in rows alone, in some of which they go on."""
        table, job, column = self.view.instance.jobs_table, rows.job, rows.column
        pool, gpus = self.classes.pool[column], self.classes.gpus[column]
        takes = table.steps_left[job] / rows.rate
        takes += self.state.stops.delays(job, pool, gpus, continues)
        return np.asarray(table.deadline[job] - self.state.now - takes)

    @cached_property
    def urgent(self) -> BoolArray:
        """Rows in which jobs end in time that may wait for few rounds more; shape (A,)."""
        urgent = np.zeros(len(self.rows), bool)
        if not self.answer.holds_deadlines or self.follows_plan:
            return urgent  # a formulation that plans deadlines has decided who goes first
        some = np.flatnonzero(np.isfinite(self.slack))
        most = np.full(len(self.view.must), -np.inf)
        np.maximum.at(most, self.rows.job[some], self.slack[some])
        urgent[some] = (self.slack[some] >= 0) & (most[self.rows.job[some]] < URGENT_ROUNDS)
        return urgent

    @cached_property
    def hurried(self) -> BoolArray:
        """Running jobs that are in time where they are, but not if they restart; shape (jobs,)."""
        if not self.answer.holds_deadlines:
            return np.zeros(len(self.view.must), bool)
        in_time = self.continues & (self.slack >= 0) & (self.slack < self.restart)
        return jobs_of(self.rows, in_time, len(self.view.must))

    # --- the order ------------------------------------------------------------------------

    def _rank(self, group: IntArray) -> FloatArray:
        """`rank_in_group` of all rows."""
        # In most rounds no row is starved or urgent: then nobody asks how long jobs may wait.
        nothing = np.zeros(len(group))
        longest = self.longest if self.waits.any() else nothing
        slack = self.slack - self.head_start if self.urgent.any() else nothing
        return rank_in_group(group, self.rows.partner >= 0, longest, slack)

    def _ordered(self, group: IntArray, rank: FloatArray) -> IntArray:
        """All rows by group, rank in it, and when they are due or their position in the ranking."""
        if self.position is None:
            return order_due(self.rows, self.due, group, rank)
        return np.lexsort((self.position, rank, group)).astype(np.int64)

    def _order_for_hosts(self) -> IntArray:
        """All rows in the order in which jobs that cannot be preempted choose among theirs.

        A running row alone has no head start here: a guest that joins its job preempts nobody.
        """
        group = priority_groups(np.zeros(len(self.rows), bool), self.waits, self.urgent)
        if self.position is not None:
            return np.lexsort((self.position, group)).astype(np.int64)
        claimed = self.rows.fraction > 0
        own = np.where((self.rows.partner < 0) & claimed, self.head_start, 0.0)
        due = self.due + own / np.where(claimed, self.rows.fraction, 1.0)
        return order_due(self.rows, due, group, np.where(self.waits, -self.longest, 0.0))

    def _worth(self) -> FloatArray | None:
        """What rows are worth where they are chosen as one set; None where one by one."""
        rows = self.rows
        if self.position is not None or not self._block_each_other():
            return None
        # Of a pair that parts only one job can go on, so a row alone has no head start over the
        # pair.
        own = np.where(parting_rows(rows, self.partner_now), 0.0, self.head_start)
        most_ahead = 1.0 + self.state.policy.hysteresis + self.restart
        return worth_of(rows, self.deficit, own, most_ahead)

    def _block_each_other(self) -> bool:
        """Whether claims on GPUs are shared, or claims on single GPUs are split over several rows.

        Split gangs are taken one by one: few allocations of gangs can be realised in full, and in
        the order in which they are due all of them fall short alike.
        """
        claims = self.answer.rows.take(np.flatnonzero(self.answer.rows.fraction > 0))
        if (claims.partner >= 0).any():
            return True
        split = np.bincount(claims.job).max(initial=0) > 1
        return bool(split and (self.classes.gpus[claims.column] <= 1).all())

    def _ahead(self, group: IntArray, limited: bool) -> BoolArray:
        """Rows that have had their part of what upper sides of constraints allow; shape (A,).

        Such a side, as a quota, holds on average: the rows of the allocation take turns at it, even
        where GPUs are idle. So a row that is not due within this round is left to `IdleGpus`, which
        keeps these sides in every round.

        Parameters
        ----------
        group : IntArray, shape (A,)
            Priority groups of the rows.
        limited : bool
            Whether the jobs that may be stopped are counted: those that run go on then.
        """
        side = self.side() if self.position is None else []
        if not side:
            return np.zeros(len(self.rows), bool)
        matrix, _ = upper_sides(side, self.classes)
        bounded = mask_of(matrix.indices.astype(np.int64), self.classes.columns)
        ahead: BoolArray = bounded[self.rows.column] & (group == DUE) & (self.due > 1.0)
        return ahead & ~(self.continues & limited)

    # --- the queue ------------------------------------------------------------------------

    def queue(self) -> tuple[RowQueue, float]:
        """The rows in their order,
        and how many running jobs that could go on may be preempted or moved (inf: any number).
        """
        rows = self.rows
        view = self.view
        hosts = Hosts(
            view,
            self.in_place,
            rows,
            self.continues,
            self.partner_now,
            self.constraints,
        )
        limit = self.state.most_moves
        preemptions_left = beside_parting = np.inf
        if limit is not None:
            # Those who can go on in no row are moved in any case: they are taken off the limit first.
            unable, parting = hosts.unable
            preemptions_left = max(limit - unable, 0)
            beside_parting = preemptions_left - parting
        must_run = hosts.firm
        if hosts.shared.any():
            must_run = hosts.chosen(self._order_for_hosts(), beside_parting)
        group = priority_groups(must_run, self.waits, self.urgent)
        order = self._ordered(group, self._rank(group))
        order = order[~self._ahead(group, limited=limit is not None)[order]]
        uses = self.classes.uses
        queue = RowQueue(
            classes=self.classes,
            rows=rows,
            order=order,
            continues=self.continues,
            group=group,
            busy=view.awaits | hosts.rowless,
            partner_now=self.partner_now,
            free=room_at_least(hosts.free, rows, uses, order[must_run[order]]),
            uses=uses,
            worth=self._worth(),
            host=np.where(must_run & ~self.continues, hosts.anchor, -1),
            fills=self.fills and self.position is None,
        )
        never_stopped = either(rows, ~view.instance.jobs_table.preemptible)
        if (never_stopped & ~must_run).any():
            queue = within_upper_sides(queue, never_stopped, self.side())
        return queue, preemptions_left
