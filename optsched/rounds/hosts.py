"""Hosts and guests: the row in which each job that cannot be preempted continues.

A running job that cannot be preempted (a **host**) keeps its GPUs, but another job (its **guest**)
may join it there and leave again while the host keeps running. Of the rows in which a host keeps
its GPUs, it gets the first one in the order whose guest is free and has room (`Hosts.chosen`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered, mask_of, quotient
from optsched.arrays.values import cached_property
from optsched.candidates import Classes, JobRows
from optsched.placement.instant import first_fit
from optsched.placement.shares import FULL
from optsched.placement.staying import StayRule
from optsched.rounds.rows import (
    instant_of,
    jobs_of,
    room_at_least,
)
from optsched.rounds.view import InPlace, View

Fits = Callable[[IntArray], bool]
"""Whether rows can run side by side."""


@dataclass(frozen=True)
class Hosts:
    """Rows in which jobs that cannot be preempted keep their GPUs.

    Attributes
    ----------
    view : View
    in_place : InPlace
    rows : JobRows, A rows
    continues : BoolArray, shape (A,)
        Rows whose jobs all can continue on the GPUs that they hold.
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
        return pair & (self._first_must ^ self._second_must)

    @cached_property
    def firm(self) -> BoolArray:
        """Rows in which jobs that cannot be preempted run now."""
        return self.continues & (self._first_must | self._second_must)

    @cached_property
    def joins(self) -> BoolArray:
        """Rows in which a guest can join a host on the GPUs that the host holds."""
        rows = self.rows
        view = self.view
        mask = np.zeros(len(rows), bool)
        candidate = (self._one_must & (rows.fraction > 0) & ~self.continues).nonzero()[0]
        job = rows.job[candidate]
        partner = rows.partner[candidate]
        column = rows.column[candidate]
        host = np.where(self._first_must[candidate], job, partner)
        guest = job + partner - host
        can = self.in_place.same_nodes(host, column) & (self.classes.gpus[column] > 0)
        can &= view.hosts[host] & ~view.awaits[guest]
        mask[candidate[can]] = True
        return mask

    @cached_property
    def shared(self) -> BoolArray:
        """Rows in which a host runs with a guest, the present one or a new one."""
        return (self.continues | self.joins) & self._one_must

    @cached_property
    def anchor(self) -> IntArray:
        """The host of each shared row, -1 for other rows."""
        host = np.where(self._first_must, self.rows.job, self.rows.partner)
        return np.where(self.shared, host, -1)

    @cached_property
    def guest(self) -> IntArray:
        """The guest of each shared row."""
        return np.where(self.anchor == self.rows.job, self.rows.partner, self.rows.job)

    # --- jobs without a row ---------------------------------------------------------------

    @cached_property
    def rowless(self) -> BoolArray:
        """Jobs that cannot be preempted and continue in none of the rows; shape (jobs,)."""
        must = self.view.must
        return must & ~jobs_of(self.rows, self.firm, len(must))

    @cached_property
    def free(self) -> FloatArray:
        """Share of each renewable resource that these jobs leave free."""
        resources = self.classes.resources
        capacity = self.classes.capacity
        used = capacity - self.view.left_beside(self.rowless, resources)
        share = quotient(used, capacity)
        return FULL - share[resources.renewable]

    @property
    def unable(self) -> tuple[int, int]:
        """Number of running jobs that cannot continue in any row, and of pairs that cannot continue
        as pairs. They are moved or stopped whatever is selected.

        Jobs that cannot be preempted, or that must leave their nodes, do not count.
        """
        view = self.view
        jobs = len(self.view.must)
        able = jobs_of(self.rows, self.continues, jobs)
        in_pair = jobs_of(self.rows, self.continues & (self.rows.partner >= 0), jobs)
        may_stay = ~(view.must | view.evicted)
        unable = view.running.runs & may_stay & ~able
        alone = may_stay & able
        parting = alone & ~in_pair & gathered(alone, self.partner_now, False)
        return int(unable.sum()), int(parting.sum()) // 2

    # --- the choice -----------------------------------------------------------------------

    def chosen(self, order: IntArray, preemptions_left: float) -> BoolArray:
        """Mask of the rows that run: one row of each job that cannot be preempted and can stay.

        Parameters
        ----------
        order : IntArray
            All rows in the order in which they are tried.
        preemptions_left : float
            Most running jobs that may be preempted or moved.
        """
        if not self.shared.any():
            return self.firm
        fits = self._fit if np.isinf(preemptions_left) else self._fit_beside_all
        # The first pass assumes room for all guests, which is right in most rounds.
        hopeful = self._chosen(order, preemptions_left, lambda rows: True)
        if fits(hopeful.nonzero()[0]):
            return hopeful
        return self._chosen(order, preemptions_left, fits)

    def _chosen(self, order: IntArray, preemptions_left: float, fits: Fits) -> BoolArray:
        """Give each host the first of its rows whose guest is free and that fits."""
        has_shared = mask_of(self.anchor, len(self.view.must) + 1)
        has_shared[-1] = False
        alone = self.firm & (self.rows.partner < 0) & has_shared[self.rows.job]
        without_choice = self.firm & ~alone & ~self.shared
        choice = _Choice(self, alone, without_choice.nonzero()[0], preemptions_left)
        for row in order[(self.shared | alone)[order]].tolist():
            choice.consider(row, fits)
        mask = without_choice.copy()
        mask[choice.rows()] = True
        return mask

    # --- room -----------------------------------------------------------------------------

    def _fit(self, rows_of_set: IntArray) -> bool:
        """Whether rows can run side by side, with the hosts on their GPUs."""
        view = self.view
        rows = self.rows
        # Rows that must continue come first: they keep their GPUs whatever joins them.
        rows_of_set = rows_of_set[np.argsort(~self.firm[rows_of_set], kind="stable")]
        host = np.where(
            self.anchor[rows_of_set] >= 0, self.anchor[rows_of_set], rows.job[rows_of_set]
        )
        places = view.instance.jobs_table.places
        numbering = view.instance.cluster.numbering
        holder = places.among(len(view.must))[host]
        gpu = places.numbers_of(holder, numbering)
        count = places.length[holder]
        others = view.occupied(self.rowless.nonzero()[0])
        firm = self.firm[rows_of_set]
        uses = self.classes.uses
        keeping = StayRule(self.classes, others, self.constraints)
        if not keeping.keep(rows, rows_of_set, gpu, count, firm).all():
            return False
        free = room_at_least(self.free, rows, uses, rows_of_set[firm])
        return len(first_fit(instant_of(rows, uses), rows_of_set, free)) == len(rows_of_set)

    def _fit_beside_all(self, chosen: IntArray) -> bool:
        """Whether rows can run beside all other running jobs, so that no guest preempts a job."""
        return self._fit(np.concatenate([chosen, self._others_going_on(chosen)]))

    def _others_going_on(self, chosen: IntArray) -> IntArray:
        """Rows in which all jobs continue that are in none of these rows; pairs continue as
        pairs.
        """
        rows = self.rows
        jobs = len(self.view.must)
        busy = np.append(jobs_of(rows, chosen, jobs), False)
        on_gpus = self.classes.gpus[rows.column] > 0
        possible = self.continues & on_gpus & ~busy[rows.job] & ~busy[rows.partner]
        others = possible.nonzero()[0]
        # Pairs first: a job in a pair must not continue alone.
        others = others[np.argsort(rows.partner[others] < 0, kind="stable")]
        going = []
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

    At first each host continues as it runs now: in its pair if it has a guest, else alone.

    Parameters
    ----------
    hosts : Hosts
    alone : BoolArray, shape (A,)
        Rows in which hosts continue alone, if they also have shared rows.
    fixed : IntArray
        Rows of jobs without a choice, which need their room.
    preemptions_left : float
        Most running jobs that may be preempted or moved.
    """

    def __init__(
        self, hosts: Hosts, alone: BoolArray, fixed: IntArray, preemptions_left: float
    ) -> None:
        self._hosts = hosts
        self._fixed = fixed
        self._preemptions_left = preemptions_left
        rows = hosts.rows
        alone_rows = alone.nonzero()[0]
        self._alone: dict[int, int] = dict(
            zip(rows.job[alone_rows].tolist(), alone_rows.tolist(), strict=True)
        )
        pairs = (hosts.shared & hosts.continues).nonzero()[0]
        self._pair: dict[int, int] = dict(
            zip(hosts.anchor[pairs].tolist(), pairs.tolist(), strict=True)
        )
        self._row = {host: self._pair.get(host, row) for host, row in self._alone.items()}
        # The host has no row alone: there is nothing to choose.
        only_in_pair = {host: row for host, row in self._pair.items() if host not in self._alone}
        self._row |= only_in_pair
        self._decided = set(only_in_pair)
        self._placed_guests = {self._guest(row) for row in only_in_pair.values()}

    def rows(self) -> IntArray:
        """The row of each host."""
        return np.array(list(self._row.values()), np.int64)

    def consider(self, row: int, fits: Fits) -> None:
        """Give a row to its host, unless the host has one already, the guest is placed, the limit
        is exceeded or there is no room.
        """
        hosts = self._hosts
        shared = bool(hosts.shared[row])
        host = int(hosts.anchor[row]) if shared else int(hosts.rows.job[row])
        guest = self._guest(row) if shared else -1
        if host in self._decided or host not in self._row or guest in self._placed_guests:
            return
        cost = self._preempted(host, row, guest)
        changed = {**self._row, host: row}
        if cost > self._preemptions_left:
            return
        if hosts.joins[row]:
            beside = np.array(sorted(changed.values()), np.int64)
            if not fits(np.concatenate([self._fixed, beside])):
                return
        self._preemptions_left -= cost
        self._row = changed
        self._decided.add(host)
        if guest >= 0:
            self._placed_guests.add(guest)
            self._leave_other_hosts(guest, host)

    def _guest(self, row: int) -> int:
        return int(self._hosts.guest[row])

    def _preempted(self, host: int, row: int, guest: int) -> int:
        """Number of running jobs that are preempted or moved if a host gets a row."""
        if self._row[host] == row:
            return 0
        cost = 0
        before = self._pair.get(host)
        if before is not None and self._guest(before) not in self._placed_guests:
            cost += 1  # its present guest must leave
        if guest >= 0 and self._hosts.view.running.runs[guest]:
            cost += 1  # the new guest moves
            cost += self._leaves_a_partner(guest, host)
        return cost

    def _leaves_a_partner(self, guest: int, host: int) -> bool:
        """Whether the present partner of a guest cannot continue without it."""
        partner = int(self._hosts.partner_now[guest])
        return partner >= 0 and partner != host and not self._hosts.view.must[partner]

    def _leave_other_hosts(self, guest: int, host: int) -> None:
        """Let the host that a guest leaves continue alone."""
        for other, pair in self._pair.items():
            if other != host and self._guest(pair) == guest and self._row[other] == pair:
                self._row[other] = self._alone[other]
