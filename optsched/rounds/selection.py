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

from optsched.arrays import BoolArray, FloatArray, IntArray, in_order, ranges
from optsched.candidates import Classes, JobRows
from optsched.placement.instant import FULL, Instant, Uses
from optsched.placement.priority import SCRAMBLE, first_fit
from optsched.program import SideRows
from optsched.rounds.exchange import exchanged

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
        return (
            instant
            if self.limits is None
            else replace(instant, uses=instant.uses.with_more(self.limits))
        )

    @cached_property
    def over_limits(self) -> BoolArray:
        """Rows that ask for more of the further limits than is left; shape (A,)."""
        mask = np.zeros(len(self.rows), bool)
        if self.limits is not None:
            mask[
                self.limits.row[
                    self.limits.share > self.free[self.uses.resources + self.limits.resource]
                ]
            ] = True
        return mask

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
        busy = self.busy.copy()
        busy[self.rows.job[placed]] = True
        partner = self.rows.partner[placed]
        busy[partner[partner >= 0]] = True
        free = self.free - self.instant.uses.total(placed)
        order = self.order[~np.isin(self.order, tried)]
        return replace(self, order=order, busy=busy, free=free)


def order_due(rows: JobRows, due: FloatArray, group: IntArray, rank: FloatArray) -> IntArray:
    """Rows in the order of their group, of their rank in it, and of the time when they are due."""
    first = [key for key in (due, rank, group) if (key != key[:1]).any()]
    order = (
        np.argsort(first[0]) if len(first) == 1 else np.lexsort((*first, np.zeros(len(rows))))
    ).astype(np.int64)
    tied = np.ones(max(len(rows) - 1, 0), bool)
    for key in first:
        tied &= key[order[1:]] == key[order[:-1]]
    if not tied.any():
        return order
    some = np.flatnonzero(
        np.append(tied, False) | np.insert(tied, 0, False)
    )  # places of rows that are due together
    tie = np.cumsum(np.insert(~tied, 0, True))[some]
    mine = order[some]
    further = (mine, mine * SCRAMBLE % 1.0, -rows.rate[mine], -rows.fraction[mine], tie)
    order[some] = mine[np.lexsort(further)]
    return order


def room_at_least(free: FloatArray, rows: JobRows, uses: Uses, firm: IntArray) -> FloatArray:
    """What is free of each resource; where that has shrunk, what rows hold that must go on, the first of each job."""
    return np.maximum(free, uses.total(rows.column[_first_of_jobs(rows, firm)]) * FULL)


def _first_of_jobs(rows: JobRows, some: IntArray) -> IntArray:
    return some[np.unique(rows.job[some], return_index=True)[1]]


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
    used = np.asarray(matrix[:, rows.column[_first_of_jobs(rows, held)]].sum(axis=1)).ravel()
    starts = sp.csr_matrix(
        matrix[:, rows.column] @ sp.diags_array((firm & ~claims.held).astype(np.float64))
    )
    return replace(
        claims, limits=Uses.of(starts), free=np.concatenate([claims.free, upper * FULL - used])
    )


def upper_sides(side: Sequence[SideRows], classes: Classes) -> tuple[sp.csr_matrix, FloatArray]:
    """Upper sides of rows without negative coefficients, over the class columns: who runs less keeps them."""
    matrices, upper = [sp.csr_matrix((0, classes.columns))], [np.zeros(0)]
    for rows in side:
        bounded = np.flatnonzero(np.isfinite(rows.upper) & (_least(rows.matrix) >= 0))
        matrices.append(sp.csr_matrix(rows.matrix)[bounded])
        upper.append(rows.upper[bounded])
    return sp.csr_matrix(sp.vstack(matrices)), np.concatenate(upper)


def uses_of(classes: Classes) -> Uses:
    """Shares of all renewable resources that each class column holds."""
    renewable = classes.resources.renewable
    uses = Uses.of(classes.holds.by_column)
    kept = renewable[uses.resource]
    number, count = np.cumsum(renewable) - 1, np.concatenate(([0], np.cumsum(kept)))
    capacity = classes.capacity[uses.resource[kept]]
    with np.errstate(divide="ignore", over="ignore"):
        share = np.minimum(uses.share[kept] / capacity, 2.0)
    return Uses(count[uses.start], number[uses.resource[kept]], share, int(renewable.sum()))


def instant_of(rows: JobRows, uses: Uses) -> Instant:
    """The rules of one instant for rows, from the uses of the class columns."""
    return Instant(rows.job, rows.partner, rows.fraction, uses.take(rows.column))


def select(claims: Claims, most_displaced: int | None) -> IntArray:
    """Rows that run, ascending.

    Parameters
    ----------
    claims : Claims
    most_displaced : int, optional
        Running jobs that may have to make way for others, at most: the ones that are due first stay. Rows that are
        urgent need not ask.
    """
    if claims.worth is not None:
        claims = worth_most(claims, claims.worth)
    chosen = first_fit(claims.instant, claims.order, claims.free, claims.busy)
    if most_displaced is None:
        return chosen
    going = displaced(claims, chosen)
    if going.sum() <= most_displaced:
        return chosen
    mine = np.zeros(len(claims.rows), bool)
    mine[chosen] = True
    ahead, mask = mine & claims.urgent, np.append(going, False)
    firm = np.zeros(
        len(mask), bool
    )  # who has to run, though it may take others away from where they are
    firm[claims.rows.job[chosen[claims.held[chosen]]]] = firm[
        claims.rows.partner[chosen[claims.held[chosen]]]
    ] = True
    firm[-1] = False
    stay = np.zeros(len(claims.rows), bool)
    left = int(going.sum())
    possible = claims.continues & ~mine & ~(firm[claims.rows.job] | firm[claims.rows.partner])
    rest = claims.order[possible[claims.order]]
    together = rest[
        claims.rows.partner[rest] >= 0
    ].tolist()  # who shares GPUs can stay only as a pair
    pair = {
        job: row
        for row in together
        for job in (int(claims.rows.job[row]), int(claims.rows.partner[row]))
    }
    mate = np.append(claims.sharing, -1)  # of two that part the other cannot stay where it is
    mate[list(pair)] = -1
    alone = claims.rows.job[chosen[(claims.continues & (claims.rows.partner < 0))[chosen]]]
    mask[mate[alone[~going[alone]]]] = False
    for row in rest.tolist():
        row = pair.get(int(claims.rows.job[row]), row)
        jobs = [
            job for job in (int(claims.rows.job[row]), int(claims.rows.partner[row])) if mask[job]
        ]
        if left > most_displaced and jobs:
            stay[row] = True
            mask[jobs] = False
            left -= len(jobs)
            if claims.rows.partner[row] < 0:
                mask[mate[claims.rows.job[row]]] = False
    others = np.zeros(len(going) + 1, bool)
    others[claims.rows.job[stay]] = others[claims.rows.partner[stay]] = True
    others[-1] = False
    stay |= (
        mine
        & claims.continues
        & ~(others[claims.rows.job] | others[claims.rows.partner])
        & ~going[claims.rows.job]
    )
    front = claims.first(stay).first(ahead).first(claims.held)
    return first_fit(front.instant, front.order, front.free, front.busy)


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
    mine = np.zeros(len(worth), bool)
    mine[exchanged(instant, worth, order, free, busy)] = True
    return claims.first(mine).first(firm)


def displaced(claims: Claims, chosen: IntArray) -> BoolArray:
    """Mask of the jobs that could go on, and do not if these rows run.

    Of two jobs that share GPUs now only the first in the order goes on alone.
    """
    rows, jobs = claims.rows, len(claims.busy)
    mine = np.zeros(len(rows), bool)
    mine[chosen] = True
    could, goes = np.zeros(jobs + 1, bool), np.zeros(jobs + 1, bool)
    left = claims.order[claims.continues[claims.order]]
    could[rows.job[left]] = could[rows.partner[left]] = True
    going = left[mine[left]]
    goes[rows.job[going]] = goes[rows.partner[going]] = True
    if claims.host is not None:
        goes[claims.host[chosen]] = True
    alone = np.full(jobs + 1, len(going))
    alone[rows.job[going]] = np.where(rows.partner[going] < 0, np.arange(len(going)), len(going))
    alone[-1] = len(going)
    second = (alone[:-1] < len(going)) & (alone[claims.sharing] < alone[:-1])
    return could[:-1] & ~(goes[:-1] & ~second) & ~claims.busy


def before_blocked(claims: Claims, chosen: IntArray) -> IntArray:
    """The chosen rows that stand, in the order, before every row of the first job that was not chosen."""
    runs = np.zeros(len(claims.busy), bool)
    runs[claims.rows.job[chosen]] = True
    waiting = np.flatnonzero(~(runs | claims.busy)[claims.rows.job[claims.order]])
    if not len(waiting):
        return chosen
    return chosen[np.isin(chosen, claims.order[: waiting[0]])]


def rows_alone(classes: Classes, jobs: IntArray) -> JobRows:
    """Every column without a partner of some jobs, as rows without a claim."""
    alone = np.flatnonzero(classes.alone)
    if not in_order([classes.class_a]):
        alone = alone[np.argsort(classes.class_a[alone], kind="stable")]
    count = np.bincount(classes.class_a[alone], minlength=len(classes)).astype(np.int64)
    first = np.concatenate(([0], np.cumsum(count)))[:-1].astype(np.int64)
    mine = classes.of_job[jobs]
    jobs, mine = jobs[mine >= 0], mine[mine >= 0]
    column = alone[ranges(first[mine], count[mine])]
    job = np.repeat(jobs, count[mine])
    nobody, nothing = np.full(len(job), -1, np.int64), np.zeros(len(job))
    return JobRows(job, nobody, column, nothing, classes.rate_a[column], nothing)


def joined(first: JobRows, second: JobRows) -> JobRows:
    """Rows, one set behind the other."""
    names = ("job", "partner", "column", "fraction", "rate", "partner_rate")
    return JobRows(
        **{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in names}
    )


def taken(rows: JobRows, some: IntArray) -> JobRows:
    """Some of the rows."""
    names = ("job", "partner", "column", "fraction", "rate", "partner_rate")
    return JobRows(**{name: getattr(rows, name)[some] for name in names})


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


def _least(matrix: sp.csr_matrix) -> FloatArray:
    """Smallest coefficient of each row, 0 where all are positive."""
    if not matrix.nnz:
        return np.zeros(matrix.shape[0])
    return np.asarray(sp.csr_matrix(matrix).min(axis=1).todense()).ravel()
