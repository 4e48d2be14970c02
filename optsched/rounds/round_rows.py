"""The rows that may run in a round, with what decides on their order, as a `RowQueue`.

These are the rows of the allocation, and rows without a claim: those in which running jobs can
continue, and those in which starved jobs can run alone. A row has a **claim** to its fraction of
the time, if the allocation gives it one above 0. The order is that of
`optsched.rounds.preemption`.

The row of a running job that cannot be preempted, alone or with a guest on its GPUs, is chosen
before all others (`optsched.rounds.hosts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, find_rows, gathered, mask_of
from optsched.arrays.values import cached_property
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
"""An admitted job that can wait for fewer rounds than this comes before jobs with more slack.

With 1 or 2, more jobs run out of slack in one round than there are GPUs, because allocations give
all of them the same pace.
"""

# --- kinds of rows ----------------------------------------------------------------------------


def parting_rows(rows: JobRows, partner: IntArray) -> BoolArray:
    """Rows in which a job leaves its present pair: only one of the two jobs keeps the GPUs."""
    return (rows.partner < 0) & (partner[rows.job] >= 0)


def mixed_pairs(rows: JobRows, continues: BoolArray, must: BoolArray) -> BoolArray:
    """Running pairs of a preemptible job and one that cannot be preempted, and may continue
    alone.
    """
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
        With the rows of this allocation.
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
        """Whether jobs may run on GPUs that no row with a claim uses."""
        fill = self.state.policy.fill
        return not self.answer.leaves_idle if fill is None else fill

    # --- the rows -------------------------------------------------------------------------

    @cached_property
    def rows(self) -> JobRows:
        """Rows of the allocation, then rows without a claim."""
        return concatenate(self.answer.rows, self.unclaimed)

    @cached_property
    def unclaimed(self) -> JobRows:
        """Rows without a claim: of running jobs and pairs as they run now, and of starved jobs."""
        ranked = self.answer.position is not None
        elsewhere = self.starved & (not ranked)  # a ranking already has all rows of all jobs
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
        """Rows in which jobs continue alone that can continue in no row of the allocation."""
        view = self.view
        rows = self.answer.rows
        continues = self._claimed_continue
        # In a mixed pair, the preemptible job may continue alone; the other job continues in any
        # case.
        mixed = mixed_pairs(rows, continues, view.must)
        go_on = jobs_of(rows, continues & ~mixed, len(view.must))
        go_on |= jobs_of(rows, mixed, len(view.must)) & ~view.must
        others = (view.running.runs & ~go_on & ~view.outside).nonzero()[0]
        return self._continuing(rows_alone(self.classes, others)) if len(others) else no_rows()

    def _running_pairs(self) -> JobRows:
        """Rows of running pairs that can continue and are not in the allocation."""
        before = self.state.ledger
        key = before.key[before.runs & (before.partner >= 0)]
        if not len(key):
            return no_rows()
        key = key[find_rows(self.ledger.key, key) < 0]
        return self._continuing(rows_of_keys(key, np.zeros(len(key)), self.classes))

    @cached_property
    def _claimed_continue(self) -> BoolArray:
        """Mask of the rows of the allocation whose jobs can continue on the GPUs that they hold."""
        known = self.answer.continues
        return self.in_place.rows_continue(self.answer.rows) if known is None else known

    def _continuing(self, rows: JobRows) -> JobRows:
        return rows.take(self.in_place.rows_continue(rows).nonzero()[0])

    # --- properties of the rows -----------------------------------------------------------

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
        """Rows whose jobs can continue on the GPUs that they hold; shape (A,)."""
        rows = self.rows
        view = self.view
        stuck = cannot_go_on_alone(view.must, view.together, self.partner_now)
        # Alone, such a job would lose the GPUs to its partner.
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
        """Cost of stopping the row's jobs now and starting them again, in rounds; shape (A,)."""
        return larger(self.rows, self.state.stops.cost) / self.view.instance.round

    @cached_property
    def head_start(self) -> FloatArray:
        """h_r: head start of running rows, in rounds; shape (A,)."""
        return head_start(self.continues, self.state.policy.hysteresis, self.restart)

    @cached_property
    def due(self) -> FloatArray:
        return due_times(self.rows.fraction, self.deficit, self.head_start)

    @cached_property
    def position(self) -> IntArray | None:
        """The position of each row in the order of a ranking, rows without a claim last."""
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
        """Waiting time of the job of each row, seconds; for a pair, the larger value."""
        return larger(self.rows, self.state.service.waited(self.state.now))

    @property
    def follows_plan(self) -> bool:
        """Whether a schedule keeps the deadlines, and not the pace that a constraint demands."""
        paced = any(constraint.hard_deadlines for constraint in self.answer.constraints)
        return self.answer.holds_deadlines and not paced

    @property
    def held(self) -> BoolArray:
        """Jobs that are admitted or planned, so that their deadlines count; shape (jobs,)."""
        admissions = self.answer.admissions
        standing = self.state.service.standing if admissions is None else admissions.standing
        return np.isin(standing, (Standing.ADMITTED, Standing.PLANNED))

    @cached_property
    def slack(self) -> FloatArray:
        """Rounds that each row's job can still wait and end in time in this row; shape (A,).

        inf for jobs without a deadline that counts, and for pairs.
        """
        rows = self.rows
        slack = np.full(len(rows), np.inf)
        if not self.answer.holds_deadlines:
            return slack
        table = self.view.instance.jobs_table
        held = self.held & np.isfinite(table.deadline)
        due = (held[rows.job] & (rows.partner < 0) & (rows.rate > 0)).nonzero()[0]
        left = self.seconds_to_spare(rows.take(due), self.continues[due])
        slack[due] = left / self.view.instance.round
        return slack

    def seconds_to_spare(self, rows: JobRows, continues: BoolArray) -> FloatArray:
        """Seconds that jobs can wait and still end in time, in rows of jobs alone."""
        table, job, column = self.view.instance.jobs_table, rows.job, rows.column
        pool, gpus = self.classes.pool[column], self.classes.gpus[column]
        takes = table.steps_left[job] / rows.rate
        takes += self.state.stops.delays(job, pool, gpus, continues)
        return np.asarray(table.deadline[job] - self.state.now - takes)

    @cached_property
    def urgent(self) -> BoolArray:
        """Rows in which jobs end in time, of jobs that can wait for few more rounds; shape (A,)."""
        urgent = np.zeros(len(self.rows), bool)
        if not self.answer.holds_deadlines or self.follows_plan:
            return urgent  # a schedule already orders jobs by their deadlines
        due = np.isfinite(self.slack).nonzero()[0]
        most = np.full(len(self.view.must), -np.inf)
        np.maximum.at(most, self.rows.job[due], self.slack[due])
        urgent[due] = (self.slack[due] >= 0) & (most[self.rows.job[due]] < URGENT_ROUNDS)
        return urgent

    @cached_property
    def hurried(self) -> BoolArray:
        """Running jobs that end in time where they run, but not after a restart; shape (jobs,)."""
        if not self.answer.holds_deadlines:
            return np.zeros(len(self.view.must), bool)
        in_time = self.continues & (self.slack >= 0) & (self.slack < self.restart)
        return jobs_of(self.rows, in_time, len(self.view.must))

    # --- the order ------------------------------------------------------------------------

    def _rank(self, group: IntArray) -> FloatArray:
        """`rank_in_group` of all rows."""
        # In most rounds no row is starved or urgent: then these values are not computed.
        zeros = np.zeros(len(group))
        longest = self.longest if self.waits.any() else zeros
        slack = self.slack - self.head_start if self.urgent.any() else zeros
        return rank_in_group(group, self.rows.partner >= 0, longest, slack)

    def _ordered(self, group: IntArray, rank: FloatArray) -> IntArray:
        """All rows by group, rank in the group, and due time or position in the ranking."""
        if self.position is None:
            return order_due(self.rows, self.due, group, rank)
        return np.lexsort((self.position, rank, group)).astype(np.int64)

    def _order_for_hosts(self) -> IntArray:
        """All rows in the order in which rows are considered for jobs that cannot be preempted.

        A running row of a job alone has no head start here: a guest that joins it preempts no job.
        """
        group = priority_groups(np.zeros(len(self.rows), bool), self.waits, self.urgent)
        if self.position is not None:
            return np.lexsort((self.position, group)).astype(np.int64)
        claimed = self.rows.fraction > 0
        removed = np.where((self.rows.partner < 0) & claimed, self.head_start, 0.0)
        due = self.due + removed / np.where(claimed, self.rows.fraction, 1.0)
        return order_due(self.rows, due, group, np.where(self.waits, -self.longest, 0.0))

    def _worth(self) -> FloatArray | None:
        """The worth of the rows if they are selected as one set; None if one by one."""
        rows = self.rows
        if self.position is not None or not self._block_each_other():
            return None
        # If a pair separates, only one job continues: its row alone has no head start over the
        # pair.
        head_start = np.where(parting_rows(rows, self.partner_now), 0.0, self.head_start)
        most_ahead = 1.0 + self.state.policy.hysteresis + self.restart
        return worth_of(rows, self.deficit, head_start, most_ahead)

    def _block_each_other(self) -> bool:
        """Whether pairs have claims, or claims on single GPUs are split over several rows.

        Split gangs are selected one by one: few allocations of gangs can be realised in full, and
        in the order of their due times all of them fall short alike.
        """
        claims = self.answer.rows.take((self.answer.rows.fraction > 0).nonzero()[0])
        if (claims.partner >= 0).any():
            return True
        split = np.bincount(claims.job).max(initial=0) > 1
        return bool(split and (self.classes.gpus[claims.column] <= 1).all())

    def _ahead(self, group: IntArray, limited: bool) -> BoolArray:
        """Rows that are ahead of their claim and count against an upper side of a constraint; shape
        (A,).

        An upper side, such as a quota, holds on average: the rows of the allocation take turns,
        even if GPUs are idle. So a row that is not due within this round is left to `IdleGpus`,
        which keeps upper sides in every round.

        Parameters
        ----------
        group : IntArray, shape (A,)
            Priority groups of the rows.
        limited : bool
            Whether the number of stopped jobs is limited: then running jobs continue.
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
        """The rows in their order, and the most running jobs that may be preempted or moved of
        those that could continue (inf: any number).
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
            # Jobs that cannot continue in any row are displaced anyway: they count against the
            # limit.
            unable, parting = hosts.unable
            preemptions_left = max(limit - unable, 0)
            beside_parting = preemptions_left - parting
        must_run = hosts.firm
        if hosts.shared.any():
            must_run = hosts.chosen(self._order_for_hosts(), beside_parting)
        group = priority_groups(must_run, self.waits, self.urgent)
        order = self._ordered(group, self._rank(group))
        order = order[~self._ahead(group, limited=limit is not None)[order]]
        uses, free = self.classes.uses, hosts.free
        if view.cells is not None:
            outside = view.occupied(hosts.rowless.nonzero()[0])
            uses = uses.with_more(view.cells.uses(self.classes))
            free = np.concatenate([free, view.cells.free(outside)])
        queue = RowQueue(
            classes=self.classes,
            rows=rows,
            order=order,
            continues=self.continues,
            group=group,
            busy=view.not_ready | hosts.rowless,
            partner_now=self.partner_now,
            free=room_at_least(free, rows, uses, order[must_run[order]]),
            uses=uses,
            worth=self._worth(),
            host=np.where(must_run & ~self.continues, hosts.anchor, -1),
            fills=self.fills and self.position is None,
        )
        never_stopped = either(rows, ~view.instance.jobs_table.preemptible)
        if (never_stopped & ~must_run).any():
            queue = within_upper_sides(queue, never_stopped, self.side())
        return queue, preemptions_left
