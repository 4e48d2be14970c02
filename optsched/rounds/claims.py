"""From an allocation to claims: the rows that may run in a round, and in which order they are due.

Each rule of the order is a function here. The rules, the first first:

1. Jobs that cannot be preempted and run go on (`HELD`); of these, those beside a guest come first.
2. Starved jobs, the longest waiting first (`STARVED`).
3. All others by the time at which they are due (`DUE`; `due_times`), or by the order of a ranking.

What rows may run at all: those of the allocation, and rows without a claim in which running jobs
can go on as they are, or starved jobs can run alone (`with_unclaimed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered
from optsched.candidates import Classes, JobRows
from optsched.program import SideRows
from optsched.rounds.allocating import Answer
from optsched.rounds.exchange import worth_of
from optsched.rounds.in_place import InPlace
from optsched.rounds.joining import Hosts
from optsched.rounds.ledger import Ledger
from optsched.rounds.rows import (
    concatenate,
    either,
    every_way_alone,
    jobs_of,
    larger,
    no_rows,
    rows_alone,
    rows_of_keys,
    side_rows,
    take,
    uses_of,
)
from optsched.rounds.selection import (
    DUE,
    HELD,
    STARVED,
    Claims,
    lasting,
    leftovers,
    order_due,
    room_at_least,
)
from optsched.rounds.state import RoundState
from optsched.rounds.view import View, starved
from optsched.solving.warm_start import matched

# --- the rules --------------------------------------------------------------------------------


def due_times(fraction: FloatArray, deficit: FloatArray, lead: FloatArray) -> FloatArray:
    """Rounds from now until each row is due: ``(1/2 - deficit - lead) / fraction``.

    A row without a claim (fraction 0) is never due.

    Parameters
    ----------
    fraction : FloatArray, shape (A,)
    deficit : FloatArray, shape (A,)
        Rounds that a row is owed.
    lead : FloatArray, shape (A,)
        Rounds by which a running row is ahead in the order: hysteresis and restart cost.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        due: FloatArray = np.where(fraction > 0, (0.5 - deficit - lead) / fraction, np.inf)
    return due


def running_partner(ledger: Ledger) -> IntArray:
    """The job with which each job shares its GPUs now, -1 for none; shape (jobs,)."""
    pairs = ledger.key[ledger.runs & (ledger.partner >= 0)]
    partner = np.full(len(ledger.carried), -1, np.int64)
    partner[pairs[:, 0]], partner[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
    return partner


def cannot_go_on_alone(must: BoolArray, together: BoolArray, partner: IntArray) -> BoolArray:
    """Jobs for which a row alone is no way to go on, though they hold its GPUs; shape (jobs,).

    The guest of a job that cannot be preempted has to leave when the two part. Two jobs that both
    cannot be preempted and share GPUs (``together``) never part.
    """
    guests = ~must & gathered(must, partner, False)
    return together | guests


def parting_rows(rows: JobRows, partner: IntArray) -> BoolArray:
    """Rows in which a job leaves the pair that it runs in now: only one of the two can go on."""
    parts: BoolArray = (rows.partner < 0) & (partner[rows.job] >= 0)
    return parts


def mixed_pairs(rows: JobRows, continues: BoolArray, must: BoolArray) -> BoolArray:
    """Running pairs of which one job can be preempted and the other not: it goes on without it."""
    one_of_two = must[rows.job] ^ gathered(must, rows.partner, False)
    mixed: BoolArray = one_of_two & continues & (rows.partner >= 0)
    return mixed


def rank_in_group(group: IntArray, is_pair: BoolArray, longest: FloatArray) -> FloatArray:
    """The order inside the groups: starved rows by their wait, rows that are held pairs first."""
    held_pairs = np.where(is_pair, -1.0, 0.0) * (group == HELD)
    rank: FloatArray = np.where(group == STARVED, -longest, held_pairs)
    return rank


# --- a round's claims -------------------------------------------------------------------------


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

    # --- which rows there are -------------------------------------------------------------

    @cached_property
    def rows(self) -> JobRows:
        """Rows of the allocation, then rows without a claim."""
        return concatenate(self.answer.rows, self.unclaimed)

    @cached_property
    def unclaimed(self) -> JobRows:
        """Rows without a claim: of running jobs and pairs as they are, and of starved jobs."""
        ranked = self.answer.place is not None
        elsewhere = self.starved & (not ranked)  # a ranking has all rows of all jobs already
        return concatenate(
            self._running_alone(),
            self._running_pairs(),
            every_way_alone(self.classes, self.answer.rows, elsewhere, self.answer.constraints),
        )

    def _running_alone(self) -> JobRows:
        """Rows in which jobs go on that can go on in no row of the allocation."""
        view, rows, continues = self.view, self.answer.rows, self._claimed_continue
        mixed = mixed_pairs(rows, continues, view.must)
        go_on = jobs_of(rows, continues & ~mixed, len(view.must))
        go_on |= jobs_of(rows, mixed, len(view.must)) & ~view.must
        alone = rows_alone(self.classes, np.flatnonzero(view.running.runs & ~go_on & ~view.outside))
        return self._continuing(alone)

    def _running_pairs(self) -> JobRows:
        """Pairs that run and can go on, though the allocation does not have them."""
        before = self.state.ledger
        key = before.key[before.runs & (before.partner >= 0)]
        if not len(key):
            return no_rows()
        key = key[matched(self.ledger.key.T, key.T) < 0]
        return self._continuing(rows_of_keys(key, np.zeros(len(key)), self.classes))

    @cached_property
    def _claimed_continue(self) -> BoolArray:
        """Rows of the allocation that run now as they are."""
        return self.in_place.rows_continue(self.answer.rows)

    def _continuing(self, rows: JobRows) -> JobRows:
        return take(rows, np.flatnonzero(self.in_place.rows_continue(rows)))

    # --- what is known of the rows --------------------------------------------------------

    @cached_property
    def starved(self) -> BoolArray:
        """Jobs that have waited longer than the policy's patience; shape (jobs,)."""
        return starved(self.state, self.view)

    @cached_property
    def partner_now(self) -> IntArray:
        """The job with which each job shares its GPUs now, -1 for none; shape (jobs,)."""
        return running_partner(self.state.ledger)

    @cached_property
    def continues(self) -> BoolArray:
        """Rows whose jobs can go on as they are; shape (A,)."""
        rows, view = self.rows, self.view
        stuck = cannot_go_on_alone(view.must, view.together, self.partner_now)
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
        """Rounds that a restart of the row's jobs costs."""
        instance = self.view.instance
        return larger(self.rows, instance.jobs_table.restart_cost) / instance.round

    @cached_property
    def lead(self) -> FloatArray:
        """h_r: rounds by which rows that run are ahead of others that are owed as much."""
        return np.where(self.continues, self.state.policy.hysteresis + self.restart, 0.0)

    @cached_property
    def due(self) -> FloatArray:
        return due_times(self.rows.fraction, self.deficit, self.lead)

    @cached_property
    def place(self) -> IntArray | None:
        """The place of each row in the order of a ranking, those without a claim last."""
        if self.answer.place is None:
            return None
        count = len(self.answer.rows)
        return np.concatenate([self.answer.place, np.full(len(self.rows) - count, count)])

    @cached_property
    def waits(self) -> BoolArray:
        """Rows of which a job is starved."""
        return either(self.rows, self.starved)

    @cached_property
    def longest(self) -> FloatArray:
        """Seconds that the job of each row that waits longest has waited."""
        return larger(self.rows, self.state.service.waited(self.state.now))

    # --- the order ------------------------------------------------------------------------

    def _ordered(self, group: IntArray, rank: FloatArray) -> IntArray:
        """All rows by group, rank in it, and when they are due or their place in the ranking."""
        if self.place is None:
            return order_due(self.rows, self.due, group, rank)
        return np.lexsort((self.place, rank, group)).astype(np.int64)

    def _order_for_hosts(self) -> IntArray:
        """All rows in the order in which jobs that cannot be preempted choose among theirs.

        A running row alone has no lead here: a guest that joins its job preempts nobody.
        """
        group = np.where(self.waits, STARVED, DUE)
        if self.place is not None:
            return np.lexsort((self.place, group)).astype(np.int64)
        claimed = self.rows.fraction > 0
        lead = np.where((self.rows.partner < 0) & claimed, self.lead, 0.0)
        due = self.due + lead / np.where(claimed, self.rows.fraction, 1.0)
        return order_due(self.rows, due, group, np.where(self.waits, -self.longest, 0.0))

    def _worth(self) -> FloatArray | None:
        """What rows are worth where pairs are chosen as one set; None where none has a claim."""
        rows = self.rows
        if self.place is not None or not ((rows.partner >= 0) & (rows.fraction > 0)).any():
            return None
        lead = np.where(parting_rows(rows, self.partner_now), 0.0, self.lead)
        most_ahead = 1.0 + self.state.policy.hysteresis + self.restart
        return worth_of(rows, self.deficit, lead, most_ahead)

    # --- claims ---------------------------------------------------------------------------

    def claims(self) -> tuple[Claims, int | None]:
        """The claims, and how many running jobs that could go on may be preempted or moved."""
        rows, view = self.rows, self.view
        hosts = Hosts(
            view, self.in_place, rows, self.continues, self.partner_now, self.constraints
        )  # fmt: skip
        unable, parting = hosts.unable
        limit = self.state.policy.max_moves
        most = None if limit is None else max(limit - unable, 0)
        held = hosts.firm
        if hosts.shared.any():
            allowed = np.inf if most is None else most - parting
            held = hosts.held(self._order_for_hosts(), allowed)
        group = np.where(held, HELD, np.where(self.waits, STARVED, DUE))
        rank = rank_in_group(group, rows.partner >= 0, self.longest)
        order = self._ordered(group, rank)
        uses = uses_of(self.classes)
        claims = Claims(
            self.classes,
            rows,
            order,
            self.continues,
            held,
            urgent=group == STARVED,
            busy=view.awaits | hosts.rowless,
            sharing=self.partner_now,
            free=room_at_least(hosts.free, rows, uses, order[held[order]]),
            uses=uses,
            worth=self._worth(),
            host=np.where(held & ~self.continues, hosts.anchor, -1),
        )
        firm = either(rows, ~view.instance.jobs_table.preemptible)
        if (firm & ~held).any():
            claims = lasting(claims, firm, self.side())
        return claims, most

    def leftovers(self, left: Claims) -> Claims:
        """Rows without a claim, of jobs that do not run yet, that fit on what is left over."""
        C, uses = self.classes, left.uses
        fits = C.alone.copy()
        fits[uses.row[uses.share > left.free[uses.resource]]] = False
        hopeful = np.zeros(len(C) + 1, bool)
        hopeful[C.class_a[fits]] = True  # the last entry is for jobs that are in no class
        jobs = np.flatnonzero((C.of_job >= 0) & ~left.busy & hopeful[C.of_job])
        others = rows_alone(C, jobs)
        others = take(others, np.flatnonzero(fits[others.column]))
        side = self.side() if len(others) else []
        continues = self.in_place.rows_continue(others)
        return leftovers(left, others, continues, self.state.service.executed, side)
