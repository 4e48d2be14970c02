"""Which rows of an allocation run in the coming round.

A row r with the fraction x_r of the time and the deficit d_r (rounds that it is owed) is **due** when it will be owed
half a round more than it has received:

    due_r = (1/2 - d_r - h_r) / x_r      rounds from now,       h_r = hysteresis + restart cost / round  if r runs now

Rows are taken by ascending due time, each if it fits beside those taken before, so smaller ones fill what is left. With
a fixed allocation d_r = x_r e - k after e rounds, k of them with the row, and the order is that of (k + 1/2) / x_r:
Webster's method of apportionment, and Gavel's priority x_r / f_r (`optsched.placement.priority`). Unlike these the due
time stays meaningful when the allocation changes. With h_r > 0 a row that runs goes on until another one is owed h_r
rounds more.

Where jobs share GPUs, rows taken one by one get in each other's way; the rows of a round are then the set that is worth
most (`optsched.rounds.exchange`), and what it leaves is taken in that order.

Before all others go jobs that must not be stopped, then jobs that have waited longer than the policy's patience, the
longest first. What is left over goes to jobs without a claim: first to those that run, then to the ones that have had
least time, each in its fastest configuration that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.placement.instant import FULL, Instant, Uses
from optsched.placement.priority import SCRAMBLE, first_fit
from optsched.program import SideRows
from optsched.rounds.exchange import exchanged
from optsched.rounds.rows import first_of_each_job, instant_of, jobs_of, upper_sides

HELD, STARVED, DUE = 0, 1, 2
"""Groups of rows, one after the other."""


@dataclass(frozen=True)
class Claims:
    """Rows that may run in the coming round.

    Attributes
    ----------
    classes : Classes
    rows : JobRows, A rows
    order : IntArray, shape (A,)
        All rows, the first first.
    continues : BoolArray, shape (A,)
        Whether the row's jobs hold such GPUs now, so that it can go on as it is.
    held : BoolArray, shape (A,)
        Rows that must go on; they come first in the order.
    urgent : BoolArray, shape (A,)
        Rows of jobs that have waited longer than the policy's patience; they come next.
    busy : BoolArray, shape (jobs,)
        Jobs that are not to run in any of the rows.
    sharing : IntArray, shape (jobs,)
        The job with which each stands in a pair now, -1 for none.
    free : FloatArray, shape (limits,)
        Share of each renewable resource that is not occupied, and what is left of further limits.
    uses : Uses
        Shares of the renewable resources that each class column holds.
    limits : Uses, A rows, optional
        Use of further limits, which are not to be exceeded for any row.
    worth : FloatArray, shape (A,), optional
        What the rows are worth (`optsched.rounds.exchange.worth_of`), where they are not taken by their order alone.
    host : IntArray, shape (A,), optional
        Of pairs of which one job goes on where it is and the other joins it there: the first; else -1.
    """

    classes: Classes
    rows: JobRows
    order: IntArray
    continues: BoolArray
    held: BoolArray
    urgent: BoolArray
    busy: BoolArray
    sharing: IntArray
    free: FloatArray
    uses: Uses
    limits: Uses | None = None
    worth: FloatArray | None = None
    host: IntArray | None = None

    @cached_property
    def instant(self) -> Instant:
        """The rules of one instant."""
        instant = instant_of(self.rows, self.uses)
        if self.limits is None:
            return instant
        return replace(instant, uses=instant.uses.with_more(self.limits))

    @cached_property
    def over_limits(self) -> BoolArray:
        """Rows that ask for more of the further limits than is left; shape (A,)."""
        if self.limits is None:
            return np.zeros(len(self.rows), bool)
        left = self.free[self.uses.resources :]
        over = self.limits.share > left[self.limits.resource]
        return _mask(self.limits.row[over], len(self.rows))

    @property
    def hosts(self) -> IntArray:
        """``host``; -1 where there is none, shape (A,)."""
        return np.full(len(self.rows), -1, np.int64) if self.host is None else self.host

    def stands_with(self, some: IntArray) -> IntArray:
        """The job on whose GPUs each of some rows goes on."""
        host = self.hosts[some]
        return np.where(host >= 0, host, self.rows.job[some])

    def first(self, mask: BoolArray) -> Claims:
        """The same with the rows of a mask before all others."""
        ahead = mask[self.order]
        return replace(self, order=np.concatenate([self.order[ahead], self.order[~ahead]]))

    def beside(self, tried: IntArray, placed: IntArray) -> Claims:
        """What is left of the claims after some rows were tried and those of them placed that could be."""
        busy = self.busy | jobs_of(self.rows, placed, len(self.busy))
        free = self.free - self.instant.uses.total(placed)
        order = self.order[~np.isin(self.order, tried)]
        return replace(self, order=order, busy=busy, free=free)


def order_due(rows: JobRows, due: FloatArray, group: IntArray, rank: FloatArray) -> IntArray:
    """Rows in the order of their group, of their rank in it, and of the time when they are due."""
    # Most keys are constant, and a plain sort is several times as fast as a lexsort.
    keys = [key for key in (due, rank, group) if (key != key[:1]).any()]
    if len(keys) == 1:
        order = np.argsort(keys[0]).astype(np.int64)
    else:
        order = np.lexsort((*keys, np.zeros(len(rows)))).astype(np.int64)
    tied = np.ones(max(len(rows) - 1, 0), bool)
    for key in keys:
        tied &= key[order[1:]] == key[order[:-1]]
    if not tied.any():
        return order
    # Rows that are due together: by fraction, rate, and then scrambled, so that no job is favoured.
    places = np.flatnonzero(np.append(tied, False) | np.insert(tied, 0, False))
    tie = np.cumsum(np.insert(~tied, 0, True))[places]
    mine = order[places]
    further = (mine, mine * SCRAMBLE % 1.0, -rows.rate[mine], -rows.fraction[mine], tie)
    order[places] = mine[np.lexsort(further)]
    return order


def room_at_least(free: FloatArray, rows: JobRows, uses: Uses, firm: IntArray) -> FloatArray:
    """What is free of each resource; where that has shrunk, what rows hold that must go on, the first of each job."""
    return np.maximum(free, uses.total(rows.column[first_of_each_job(rows, firm)]) * FULL)


def lasting(claims: Claims, firm: BoolArray, side: Sequence[SideRows]) -> Claims:
    """Claims of which rows that could not be stopped again start only where upper sides are kept if they run for ever.

    An allocation keeps the upper sides of constraints on average, by turns. What cannot be stopped takes none, and two
    that start may leave no allocation at all that keeps them.

    Parameters
    ----------
    claims : Claims
    firm : BoolArray, shape (A,)
        Rows of jobs that cannot be preempted.
    side : sequence of SideRows
    """
    matrix, upper = upper_sides(side, claims.classes)
    rows, held = claims.rows, claims.order[claims.held[claims.order]]
    used = np.asarray(matrix[:, rows.column[first_of_each_job(rows, held)]].sum(axis=1)).ravel()
    starts = sp.csr_matrix(
        matrix[:, rows.column] @ sp.diags_array((firm & ~claims.held).astype(np.float64))
    )
    return replace(
        claims, limits=Uses.of(starts), free=np.concatenate([claims.free, upper * FULL - used])
    )


def select(claims: Claims, most_displaced: int | None) -> IntArray:
    """Rows that run, ascending.

    Parameters
    ----------
    claims : Claims
    most_displaced : int, optional
        Running jobs that may have to make way for others, at most: the ones that are due first
        stay. Rows that are urgent need not ask.
    """
    if claims.worth is not None:
        claims = worth_most(claims, claims.worth)
    chosen = first_fit(claims.instant, claims.order, claims.free, claims.busy)
    if most_displaced is None:
        return chosen
    going = displaced(claims, chosen)
    if going.sum() <= most_displaced:
        return chosen
    urgent = claims.urgent & _mask(chosen, len(claims.rows))
    stay = _rows_that_stay(claims, chosen, going, most_displaced)
    front = claims.first(stay).first(urgent).first(claims.held)
    return first_fit(front.instant, front.order, front.free, front.busy)


def _rows_that_stay(
    claims: Claims, chosen: IntArray, going: BoolArray, most_displaced: int
) -> BoolArray:
    """Rows in which running jobs stay, so that fewer of them are displaced; shape (A,).

    These are rows of displaced jobs, the first due first, until few enough are displaced; and the
    chosen rows that go on and are not in the way of these.

    Parameters
    ----------
    claims : Claims
    chosen : IntArray
        Rows that would run if displacement were free.
    going : BoolArray, shape (jobs,)
        The jobs that these displace.
    most_displaced : int
    """
    rows, jobs = claims.rows, len(going)
    is_chosen = _mask(chosen, len(rows))
    kept = _back_in_place(claims, chosen, going, most_displaced)
    back = np.append(jobs_of(rows, kept, jobs), False)
    in_the_way = back[rows.job] | back[rows.partner] | going[rows.job]
    going_on: BoolArray = is_chosen & claims.continues & ~in_the_way
    return kept | going_on


def _back_in_place(
    claims: Claims, chosen: IntArray, going: BoolArray, most_displaced: int
) -> BoolArray:
    """Rows in which displaced jobs stay after all, the first due first; shape (A,)."""
    rows, jobs = claims.rows, len(going)
    # A job whose row is held runs there, though that takes it away from where it is.
    held = np.append(jobs_of(rows, chosen[claims.held[chosen]], jobs), False)
    possible = claims.continues & ~_mask(chosen, len(rows)) & ~(held[rows.job] | held[rows.partner])
    candidates = claims.order[possible[claims.order]]
    # Jobs that share GPUs can only stay together.
    pair_of = {
        job: row
        for row in candidates[rows.partner[candidates] >= 0].tolist()
        for job in (int(rows.job[row]), int(rows.partner[row]))
    }
    # Of two that part, only one stays where it is: the other counts as displaced for good.
    mate = np.append(claims.sharing, -1)
    mate[list(pair_of)] = -1
    movable = np.append(going, False)
    goes_on_alone = chosen[(claims.continues & (rows.partner < 0))[chosen]]
    alone = rows.job[goes_on_alone]
    movable[mate[alone[~going[alone]]]] = False
    stay = np.zeros(len(rows), bool)
    left = int(going.sum())
    for first in candidates.tolist():
        row = pair_of.get(int(rows.job[first]), first)
        job, partner = int(rows.job[row]), int(rows.partner[row])
        back = [one for one in (job, partner) if movable[one]]
        if left <= most_displaced or not back:
            continue
        stay[row] = True
        movable[back] = False
        left -= len(back)
        if partner < 0:
            movable[mate[job]] = False
    return stay


def _mask(some: IntArray, count: int) -> BoolArray:
    mask = np.zeros(count, bool)
    mask[some] = True
    return mask


def worth_most(claims: Claims, worth: FloatArray) -> Claims:
    """The claims with the set that is worth most before all others but those that are held or urgent."""
    firm = claims.held | claims.urgent
    instant, free, busy = claims.instant, claims.free, claims.busy
    ahead = first_fit(instant, claims.order[firm[claims.order]], free, busy)
    if len(ahead):
        beside = claims.beside(ahead, ahead)
        free, busy = beside.free, beside.busy
    order = claims.order[~firm[claims.order] & (worth[claims.order] > 0)]
    order = order[np.argsort(-worth[order], kind="stable")]
    best = _mask(exchanged(instant, worth, order, free, busy), len(worth))
    return claims.first(best).first(firm)


def displaced(claims: Claims, chosen: IntArray) -> BoolArray:
    """Mask of the jobs that could go on, and do not if these rows run.

    Of two jobs that share GPUs now only the first in the order goes on alone.
    """
    rows, jobs = claims.rows, len(claims.busy)
    possible = claims.order[claims.continues[claims.order]]
    going = possible[_mask(chosen, len(rows))[possible]]
    could = jobs_of(rows, possible, jobs)
    goes_on = np.append(jobs_of(rows, going, jobs), False)
    if claims.host is not None:
        goes_on[claims.host[chosen]] = True  # the last entry is for rows without a host
    second = _second_of_parting(rows, going, claims.sharing)
    return could & ~(goes_on[:-1] & ~second) & ~claims.busy


def _second_of_parting(rows: JobRows, going: IntArray, partner_now: IntArray) -> BoolArray:
    """Jobs that go on alone after the job that they share GPUs with now; shape (jobs,)."""
    jobs, last = len(partner_now), len(going)
    place = np.full(jobs + 1, last)  # in the order, of jobs that go on alone
    place[rows.job[going]] = np.where(rows.partner[going] < 0, np.arange(last), last)
    place[-1] = last
    second: BoolArray = (place[:-1] < last) & (place[partner_now] < place[:-1])
    return second


def before_blocked(claims: Claims, chosen: IntArray) -> IntArray:
    """The chosen rows that stand, in the order, before every row of the first job that was not chosen."""
    runs = np.zeros(len(claims.busy), bool)
    runs[claims.rows.job[chosen]] = True
    waiting = np.flatnonzero(~(runs | claims.busy)[claims.rows.job[claims.order]])
    if not len(waiting):
        return chosen
    return chosen[np.isin(chosen, claims.order[: waiting[0]])]


def leftovers(
    claims: Claims, others: JobRows, continues: BoolArray, had: FloatArray, side: Sequence[SideRows]
) -> Claims:
    """Rows without a claim that may run on what the rows with a claim leave over.

    Parameters
    ----------
    claims : Claims
        After all that could be placed was (`Claims.beside`).
    others : JobRows
        Rows of jobs that do not run yet.
    continues : BoolArray
        Which of them can go on as they are.
    had : FloatArray, shape (jobs,)
        Seconds that each job has run.
    side : sequence of SideRows
        Upper sides are kept by all that runs, where the rows with a claim leave room below them.
    """
    C = claims.classes
    free, limits = claims.free[: claims.uses.resources], None
    if side:
        running = np.flatnonzero(claims.busy[claims.rows.job])
        matrix, upper = upper_sides(side, C)
        used = np.asarray(matrix[:, claims.rows.column[running]].sum(axis=1)).ravel()
        free = np.concatenate([free, upper * FULL - used])
        limits = Uses.of(sp.csr_matrix(matrix[:, others.column]))
    allowed, nobody = np.ones(len(others), bool), np.zeros(len(others), bool)
    if not C.resources.renewable.all():
        consumes = np.asarray(C.usage[np.flatnonzero(~C.resources.renewable)].sum(axis=0)).ravel()
        allowed = consumes[others.column] == 0
    order = np.lexsort(
        (np.arange(len(others)) * SCRAMBLE % 1.0, -others.rate, had[others.job], ~continues)
    )
    return Claims(
        C, others, order[allowed[order]].astype(np.int64), continues, nobody, nobody, claims.busy,
        claims.sharing, free, claims.uses, limits,
    )  # fmt: skip
