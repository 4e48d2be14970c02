"""The rows that may run in a round, with what decides on their order, as a `RowQueue`.

These are the rows of the allocation, and rows without a claim in which running jobs can go on as
they are, or starved jobs can run alone. A row has a **claim** to the part of the time that the
allocation gives it (its fraction, above 0). The order is that of `optsched.rounds.preemption`.

A job that runs and cannot be preempted (a **host**, `Hosts`) keeps its GPUs, but another job (its **guest**)
may join it there, and leave again, while it runs on. Of all rows in which the host stays where it
is the one runs that is due first, as everywhere (`optsched.rounds.selection`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered
from optsched.candidates import Classes, JobRows
from optsched.placement.instant import first_fit
from optsched.placement.shares import FULL
from optsched.placement.staying import StayRule
from optsched.program import SideRows
from optsched.rounds.allocation import Answer
from optsched.rounds.exchange import worth_of
from optsched.rounds.ledger import Ledger
from optsched.rounds.preemption import (
    STARVED,
    cannot_go_on_alone,
    due_times,
    head_start,
    order_due,
    priority_groups,
    rank_in_group,
    starved,
)
from optsched.rounds.rows import (
    RowQueue,
    concatenate,
    either,
    every_way_alone,
    instant_of,
    jobs_of,
    larger,
    no_rows,
    room_at_least,
    rows_alone,
    rows_of_keys,
    side_rows,
    take,
    uses_of,
    within_upper_sides,
)
from optsched.rounds.selection import backfill
from optsched.rounds.state import RoundState
from optsched.rounds.view import InPlace, View
from optsched.solving.warm_start import matched

# --- hosts and guests ------------------------------------------------------------------------

Fits = Callable[[IntArray], bool]
"""Whether rows can run side by side."""


@dataclass(frozen=True)
class Hosts:
    """Rows in which jobs that cannot be preempted stay where they are.

    Attributes
    ----------
    view : View
    in_place : InPlace
    rows : JobRows, A rows
    continues : BoolArray, shape (A,)
        Rows whose jobs can all go on as they are.
    partner_now : IntArray, shape (jobs,)
        The job with which each shares its GPUs now, -1 for none.
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    """

    view: View
    in_place: InPlace
    rows: JobRows
    continues: BoolArray
    partner_now: IntArray
    constraints: Sequence[Mapping[str, Any]]

    @property
    def classes(self) -> Classes:
        return self.in_place.classes

    # --- kinds of rows --------------------------------------------------------------------

    @cached_property
    def _first_must(self) -> BoolArray:
        """Rows whose job cannot be preempted."""
        return self.view.must[self.rows.job]

    @cached_property
    def _second_must(self) -> BoolArray:
        """Rows whose partner cannot be preempted."""
        return gathered(self.view.must, self.rows.partner, False)

    @cached_property
    def _one_must(self) -> BoolArray:
        """Rows of a host and a possible guest: one of the two jobs cannot be preempted."""
        pair = self.rows.partner >= 0
        return np.asarray(pair & (self._first_must ^ self._second_must))

    @cached_property
    def firm(self) -> BoolArray:
        """Rows of jobs that cannot be preempted, as they run now."""
        return self.continues & (self._first_must | self._second_must)

    @cached_property
    def joins(self) -> BoolArray:
        """Rows in which a guest can join a host on the GPUs that the host holds."""
        rows = self.rows
        view = self.view
        mask = np.zeros(len(rows), bool)
        some = np.flatnonzero(self._one_must & (rows.fraction > 0) & ~self.continues)
        job = rows.job[some]
        partner = rows.partner[some]
        column = rows.column[some]
        host = np.where(self._first_must[some], job, partner)
        guest = job + partner - host
        can = self.in_place.same_nodes(host, column) & (self.classes.gpus[column] > 0)
        can &= view.hosts[host] & ~view.awaits[guest]
        mask[some[can]] = True
        return mask

    @cached_property
    def shared(self) -> BoolArray:
        """Rows in which a host runs beside a guest, one that is there or one that joins."""
        return (self.continues | self.joins) & self._one_must

    @cached_property
    def anchor(self) -> IntArray:
        """The host of each row that is shared, else -1."""
        host = np.where(self._first_must, self.rows.job, self.rows.partner)
        return np.where(self.shared, host, -1)

    @cached_property
    def guest(self) -> IntArray:
        """The guest of each row that is shared."""
        return np.where(self.anchor == self.rows.job, self.rows.partner, self.rows.job)

    # --- jobs without a row ---------------------------------------------------------------

    @cached_property
    def rowless(self) -> BoolArray:
        """Jobs that cannot be preempted and go on in none of the rows; shape (jobs,)."""
        must = self.view.must
        return must & ~jobs_of(self.rows, self.firm, len(must))

    @cached_property
    def free(self) -> FloatArray:
        """Share of each renewable resource that is free beside these."""
        resources = self.classes.resources
        capacity = self.classes.capacity
        used = capacity - self.view.left_beside(self.rowless, resources)
        share = np.divide(used, capacity, out=np.zeros(len(used)), where=capacity > 0)
        return FULL - share[resources.renewable]

    @property
    def unable(self) -> tuple[int, int]:
        """Running jobs that cannot go on in any row, and pairs of jobs that can only go on apart.

        Jobs that cannot be preempted, or that have to leave their nodes, do not count.
        """
        view = self.view
        jobs = len(self.view.must)
        able = jobs_of(self.rows, self.continues, jobs)
        in_pair = jobs_of(self.rows, self.continues & (self.rows.partner >= 0), jobs)
        may_stay = ~(view.must | view.evicted)
        # They are moved or stopped whatever is selected.
        unable = view.running.runs & may_stay & ~able
        alone = may_stay & able
        parting = alone & ~in_pair & gathered(alone, self.partner_now, False)
        return int(unable.sum()), int(parting.sum()) // 2

    # --- the choice -----------------------------------------------------------------------

    def chosen(self, order: IntArray, most: float) -> BoolArray:
        """Mask of the rows that run: one of each job that cannot be preempted and can stay.

        Parameters
        ----------
        order : IntArray
            All rows, the first first.
        most : float
            Running jobs that may be preempted or moved, at most.
        """
        if not self.shared.any():
            return self.firm
        fits = self._fit if np.isinf(most) else self._fit_beside_all
        # Most rounds have room for all guests: only where not is each tried for room.
        # Two passes: the first ignores room, and is right in most rounds.
        hopeful = self._chosen(order, most, lambda rows: True)
        return hopeful if fits(np.flatnonzero(hopeful)) else self._chosen(order, most, fits)

    def _chosen(self, order: IntArray, most: float, fits: Fits) -> BoolArray:
        """Each host takes the first of its rows whose guest is free and that fits."""
        has_shared = np.zeros(len(self.view.must) + 1, bool)
        has_shared[self.anchor] = True
        has_shared[-1] = False
        alone = self.firm & (self.rows.partner < 0) & has_shared[self.rows.job]
        without_choice = self.firm & ~alone & ~self.shared
        choice = _Choice(self, alone, np.flatnonzero(without_choice), most)
        for row in order[(self.shared | alone)[order]].tolist():
            choice.consider(row, fits)
        mask = without_choice.copy()
        mask[choice.rows()] = True
        return mask

    # --- room -----------------------------------------------------------------------------

    def _fit(self, some: IntArray) -> bool:
        """Whether rows can run side by side, with the hosts where they are."""
        view = self.view
        rows = self.rows
        # Rows that must go on come first: they hold their GPUs whatever joins them.
        some = some[np.argsort(~self.firm[some], kind="stable")]
        host = np.where(self.anchor[some] >= 0, self.anchor[some], rows.job[some])
        places = view.instance.jobs_table.places
        numbering = view.instance.cluster.numbering
        holder = places.among(len(view.must))[host]
        gpu = places.numbers_of(holder, numbering)
        count = places.length[holder]
        others = view.occupied(np.flatnonzero(self.rowless))
        firm = self.firm[some]
        uses = uses_of(self.classes)
        keeping = StayRule(self.classes, others, self.constraints)
        if not keeping.keep(rows, some, gpu, count, firm).all():
            return False
        free = room_at_least(self.free, rows, uses, some[firm])
        return len(first_fit(instant_of(rows, uses), some, free)) == len(some)

    def _fit_beside_all(self, some: IntArray) -> bool:
        """Whether rows can run beside all others that run now: no guest preempts anybody."""
        return self._fit(np.concatenate([some, self._others_going_on(some)]))

    def _others_going_on(self, some: IntArray) -> IntArray:
        """Rows in which all jobs go on that are not in some rows: those in pairs stay in them."""
        rows = self.rows
        jobs = len(self.view.must)
        busy = np.append(jobs_of(rows, some, jobs), False)
        on_gpus = self.classes.gpus[rows.column] > 0
        possible = self.continues & on_gpus & ~busy[rows.job] & ~busy[rows.partner]
        others = np.flatnonzero(possible)
        # Pairs first: a job that is in one goes on in it, not alone.
        others = others[np.argsort(rows.partner[others] < 0, kind="stable")]
        going: list[int] = []
        for row in others.tolist():
            job = int(rows.job[row])
            partner = int(rows.partner[row])
            if not busy[job] and not busy[partner]:
                going.append(row)
                busy[job] = True
                busy[partner] = partner >= 0
        return np.array(going, np.int64)


class _Choice:
    """The row of each host, while the rows are considered one by one.

    At first each host goes on as it runs now: in its pair if it has a guest, else alone.

    Parameters
    ----------
    hosts : Hosts
    alone : BoolArray, shape (A,)
        Rows in which hosts go on that have shared rows too.
    fixed : IntArray
        Rows of jobs that have one row only; they need their room.
    most : float
        Running jobs that may be preempted or moved, at most.
    """

    def __init__(self, hosts: Hosts, alone: BoolArray, fixed: IntArray, most: float) -> None:
        self._hosts = hosts
        self._fixed = fixed
        self._most = most
        rows = hosts.rows
        alone_rows = np.flatnonzero(alone)
        self._alone: dict[int, int] = dict(
            zip(rows.job[alone_rows].tolist(), alone_rows.tolist(), strict=True)
        )
        pairs = np.flatnonzero(hosts.shared & hosts.continues)
        self._pair: dict[int, int] = dict(
            zip(hosts.anchor[pairs].tolist(), pairs.tolist(), strict=True)
        )
        self._row = {host: self._pair.get(host, row) for host, row in self._alone.items()}
        # Of these pairs neither job has a row alone: there is nothing to choose.
        only_in_pair = {host: row for host, row in self._pair.items() if host not in self._alone}
        self._row |= only_in_pair
        self._decided = set(only_in_pair)
        self._placed_guests = {self._guest(row) for row in only_in_pair.values()}

    def rows(self) -> IntArray:
        """The row of each host."""
        return np.array(list(self._row.values()), np.int64)

    def consider(self, row: int, fits: Fits) -> None:
        """Let the host of a row have it, if it has none yet that is due before."""
        hosts = self._hosts
        shared = bool(hosts.shared[row])
        host = int(hosts.anchor[row]) if shared else int(hosts.rows.job[row])
        guest = self._guest(row) if shared else -1
        if host in self._decided or host not in self._row or guest in self._placed_guests:
            return
        cost = self._preempted(host, row, guest)
        changed = {**self._row, host: row}
        # Over the limit the host goes on as it is.
        if cost > self._most:
            return
        if hosts.joins[row]:
            beside = np.array(sorted(changed.values()), np.int64)
            if not fits(np.concatenate([self._fixed, beside])):
                return
        self._most -= cost
        self._row = changed
        self._decided.add(host)
        if guest >= 0:
            self._placed_guests.add(guest)
            self._leave_other_hosts(guest, host)

    def _guest(self, row: int) -> int:
        return int(self._hosts.guest[row])

    def _preempted(self, host: int, row: int, guest: int) -> int:
        """Running jobs that are preempted or moved if a host takes a row."""
        if self._row[host] == row:
            return 0
        cost = 0
        before = self._pair.get(host)
        if before is not None and self._guest(before) not in self._placed_guests:
            cost += 1  # its guest until now has to leave
        if guest >= 0 and self._hosts.view.running.runs[guest]:
            cost += 1  # the guest moves here
            cost += self._leaves_a_partner(guest, host)
        return cost

    def _leaves_a_partner(self, guest: int, host: int) -> bool:
        """Whether a guest runs beside another job now that does not go on without it."""
        partner = int(self._hosts.partner_now[guest])
        return partner >= 0 and partner != host and not self._hosts.view.must[partner]

    def _leave_other_hosts(self, guest: int, host: int) -> None:
        """The host that a guest leaves goes on alone."""
        for other, pair in self._pair.items():
            if other != host and self._guest(pair) == guest and self._row[other] == pair:
                self._row[other] = self._alone[other]


# --- the rows of a round ---------------------------------------------------------------------

# --- kinds of rows ----------------------------------------------------------------------------


def parting_rows(rows: JobRows, partner: IntArray) -> BoolArray:
    """Rows in which a job leaves the pair that it runs in now: only one of the two can go on."""
    parts: BoolArray = (rows.partner < 0) & (partner[rows.job] >= 0)
    return parts


def mixed_pairs(rows: JobRows, continues: BoolArray, must: BoolArray) -> BoolArray:
    """Running pairs of which one job can be preempted and the other not: it goes on without it."""
    one_of_two = must[rows.job] ^ gathered(must, rows.partner, False)
    mixed: BoolArray = one_of_two & continues & (rows.partner >= 0)
    return mixed


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
        alone = rows_alone(
            self.classes,
            np.flatnonzero(view.running.runs & ~go_on & ~view.outside),
        )
        return self._continuing(alone)

    def _running_pairs(self) -> JobRows:
        """Pairs that run and can go on, though the allocation does not have them."""
        before = self.state.ledger
        key = before.key[before.runs & (before.partner >= 0)]
        if not len(key):
            return no_rows()
        # Pairs that the allocation has are among its rows already.
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
        """Rounds that a restart of the row's jobs costs."""
        instance = self.view.instance
        return larger(self.rows, instance.jobs_table.restart_cost) / instance.round

    @cached_property
    def lead(self) -> FloatArray:
        """h_r: rounds by which rows that run are ahead of others that are owed as much."""
        return head_start(self.continues, self.state.policy.hysteresis, self.restart)

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
        group = priority_groups(np.zeros(len(self.rows), bool), self.waits)
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
        # Of a pair that parts only one job can go on, so a row alone has no head start over the
        # pair.
        lead = np.where(parting_rows(rows, self.partner_now), 0.0, self.lead)
        most_ahead = 1.0 + self.state.policy.hysteresis + self.restart
        return worth_of(rows, self.deficit, lead, most_ahead)

    # --- the queue ------------------------------------------------------------------------

    def queue(self) -> tuple[RowQueue, int | None]:
        """The rows in their order, and how many running jobs that could go on may be preempted or moved."""
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
        unable, parting = hosts.unable
        # Those who can go on in no row are moved in any case: they are taken off the limit first.
        limit = self.state.policy.max_moves
        most = None if limit is None else max(limit - unable, 0)
        must_run = hosts.firm
        if hosts.shared.any():
            allowed = np.inf if most is None else most - parting
            must_run = hosts.chosen(self._order_for_hosts(), allowed)
        group = priority_groups(must_run, self.waits)
        rank = rank_in_group(group, rows.partner >= 0, self.longest)
        order = self._ordered(group, rank)
        uses = uses_of(self.classes)
        queue = RowQueue(
            classes=self.classes,
            rows=rows,
            order=order,
            continues=self.continues,
            must_run=must_run,
            starved=group == STARVED,
            busy=view.awaits | hosts.rowless,
            partner_now=self.partner_now,
            free=room_at_least(hosts.free, rows, uses, order[must_run[order]]),
            uses=uses,
            worth=self._worth(),
            host=np.where(must_run & ~self.continues, hosts.anchor, -1),
        )
        never_stopped = either(rows, ~view.instance.jobs_table.preemptible)
        if (never_stopped & ~must_run).any():
            queue = within_upper_sides(queue, never_stopped, self.side())
        return queue, most

    def backfill(self, left: RowQueue) -> RowQueue:
        """Rows without a claim, of jobs that do not run yet, that fit on what is left over."""
        C = self.classes
        uses = left.uses
        # By columns first: there are far fewer than rows, and most are too large for what is left.
        fits = C.alone.copy()
        fits[uses.row[uses.share > left.free[uses.resource]]] = False
        hopeful = np.zeros(len(C) + 1, bool)
        hopeful[C.class_a[fits]] = True  # the last entry is for jobs that are in no class
        jobs = np.flatnonzero((C.of_job >= 0) & ~left.busy & hopeful[C.of_job])
        others = rows_alone(C, jobs)
        others = take(others, np.flatnonzero(fits[others.column]))
        side = self.side() if len(others) else []
        continues = self.in_place.rows_continue(others)
        return backfill(left, others, continues, self.state.service.executed, side)
