"""Idle GPUs: jobs are put on the GPUs that no row with a claim uses.

After the rows with a claim are seated, and if the policy fills idle GPUs (``fill``), two rules hold
within `max_moves`, budgets and upper sides of side constraints:

R1. No job waits that has a configuration for which there is room.
R2. No preemptible job stays on its GPUs if it would end sooner on other GPUs, which may include its
    own, but at least one idle GPU. A job that shares its GPUs leaves them to its partner, which
    must run alone there no slower than now, and moves to idle GPUs only:

        delay' + S / R'  <  delay + S / R

    S steps are left; R is the present rate in steps/s, and R' > R the rate on the other GPUs. A
    delay is the time until the job makes progress: the rest of a restart where it continues, a
    whole restart where it starts again (with the work that it loses, and the grace time), 0 for a
    first start.

If the round follows a schedule that keeps deadlines, a job of the schedule that loses time by a
stop starts only when the schedule starts it, or where it ends in time. On other GPUs it might have
to stop before its own GPUs are free.

No job is stopped for these rules. Rows with a claim come first, by their due times, then jobs that
can continue where they ran (under a ranking, all jobs in its order). The others are ordered by the
progress that they gain per GPU, relative to their best rate:

    (R' - R) / (R_best * GPUs taken),      R = 0 for a job that waits.

Ties go to the first job. A job that moves leaves its GPUs to others, so this is repeated until no
job gains. It ends, because rates only rise and no job stops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import (
    EMPTY,
    BoolArray,
    FloatArray,
    IntArray,
    find_rows,
    gathered,
    mask_of,
    table_of,
)
from optsched.arrays.columns import Columns
from optsched.arrays.values import cached_property
from optsched.candidates import JobRows, RowUses
from optsched.placement.instant import Instant, first_fit
from optsched.placement.shares import FULL
from optsched.rounds.round_rows import RoundRows
from optsched.rounds.rows import RowQueue, no_rows, rows_alone, upper_sides
from optsched.rounds.seating import Seating

# --- when a move pays -------------------------------------------------------------------------

ROUNDING = 1e-9
"""A move must save more than this part of the remaining time: rounding must not move a job."""


def seconds_saved(
    steps_left: FloatArray,
    rate: FloatArray,
    rate_there: FloatArray,
    *,
    delay: FloatArray | float = 0.0,
    delay_there: FloatArray | float = 0.0,
) -> FloatArray:
    """Seconds by which jobs end sooner on other GPUs; at most 0 where a move does not pay.

        (delay + steps_left / rate)  -  (delay_there + steps_left / rate_there)

    Parameters
    ----------
    steps_left : FloatArray, shape (n,)
    rate, rate_there : FloatArray, shape (n,)
        steps/s on the present GPUs, and on the other GPUs.
    delay, delay_there : FloatArray or float
        Seconds until the jobs make progress.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        now = delay + steps_left / rate
        elsewhere = delay_there + steps_left / rate_there
        saved = np.where((rate > 0) & (rate_there > rate), now - elsewhere, 0.0)
    return np.where(saved > ROUNDING * now, saved, np.minimum(saved, 0.0))


# --- jobs on idle GPUs ------------------------------------------------------------------------

NOTHING = 2e-9
"""Share of a resource that counts as none: the rounding that `FULL` allows."""


@dataclass(frozen=True)
class Wanted(Columns):
    """A rows of jobs alone that could use idle GPUs.

    Attributes
    ----------
    rows : JobRows
    seat : IntArray, shape (A,)
        The seat of this round that the job gives up, -1 for a job that waits.
    partner_alone : IntArray, shape (A,)
        Column in which the partner keeps the shared GPUs alone, -1 for a job that shares none.
    moves : BoolArray, shape (A,)
        Rows for which a job leaves GPUs on which it could continue.
    continues : BoolArray, shape (A,)
        Rows in which a job continues on the GPUs of the last round.
    saved : FloatArray, shape (A,)
        Seconds by which the job ends sooner than in its seat; 0 if it has none.
    """

    rows: JobRows
    seat: IntArray
    partner_alone: IntArray
    moves: BoolArray
    continues: BoolArray
    saved: FloatArray

    @classmethod
    def none(cls) -> Wanted:
        no = np.zeros(0, bool)
        return cls(no_rows(), EMPTY, EMPTY, no, no, np.zeros(0))


class IdleGpus:
    """Gives idle GPUs to jobs by the rules R1 and R2.

    Parameters
    ----------
    rows : RoundRows
    seating : Seating
        That of the round; all rows with a claim have been tried.
    left : RowQueue
        The rows that were not seated.
    """

    def __init__(self, rows: RoundRows, seating: Seating, left: RowQueue) -> None:
        self._rows = rows
        self._seating = seating
        self._left = left
        # Rows that were refused although their columns have room. They are not tried again before a
        # job leaves GPUs.
        self._refused = EMPTY
        # Resources that the class columns use; upper sides of side constraints count as resources.
        self._uses = left.uses
        self._free = left.free[: left.uses.resources]
        side = rows.side()
        if side:
            matrix, upper = upper_sides(side, rows.classes)
            used = np.asarray(matrix[:, seating.seats.rows.column].sum(axis=1)).ravel()
            self._uses = self._uses.with_more(RowUses.of(matrix))
            self._free = np.concatenate([self._free, upper * FULL - used])
        self._allowed = self._allowed_columns()

    @cached_property
    def _most(self) -> bool:
        """Whether the ranking's sizes give jobs as many GPUs as possible, and not the fastest
        GPUs.
        """
        policy = self._rows.state.policy
        return policy.ranking is not None and policy.made_ranking().sizes == "most"

    def give(self) -> None:
        """Let jobs start on idle GPUs, or move to them, until no job gains."""
        while True:
            fits, idle = self._columns_by_sums()
            if not (fits.any() or idle.any()):
                return
            wanted = self._wanted(fits, idle)
            chosen = self._chosen(wanted) if len(wanted) else EMPTY
            if not len(chosen):
                return
            self._reseat(wanted, chosen)

    # --- the rows -------------------------------------------------------------------------

    def _allowed_columns(self) -> BoolArray:
        """Mask of the columns in which jobs may use idle GPUs; shape (N,)."""
        rows = self._rows
        C = rows.classes
        allowed = C.alone & (C.rate_a > 0)
        # Budgets are only for rows with a claim.
        consumable = (~C.resources.renewable).nonzero()[0]
        if len(consumable):
            allowed &= np.asarray(C.usage[consumable].sum(axis=0)).ravel() == 0
        if rows.answer.order is not None:
            # The rows of a ranking fix the numbers of GPUs that jobs may have.
            ranked = mask_of(rows.answer.rows.column, C.columns)
            allowed &= ranked
        return allowed

    def _columns_by_sums(self) -> tuple[BoolArray, BoolArray]:
        """Masks of the columns that fit into the free resources, and of the columns of pools with
        an idle GPU, by sums over all nodes of a pool; shape (N,).
        """
        C = self._rows.classes
        uses = self._uses
        fits = self._allowed.copy()
        fits[uses.row[uses.share > self._free[uses.resource]]] = False
        pool = C.resources.pool[C.resources.renewable]
        idle = mask_of(pool[self._free[: len(pool)] > NOTHING], len(C.instance.cluster.pools) + 1)
        idle[-1] = False  # pool -1: other resources, and columns without GPUs
        return fits, self._allowed & idle[C.pool]

    def _best_rate(self, columns: BoolArray) -> FloatArray:
        """The best rate of each job in some columns, 0 where it has none; shape (jobs,)."""
        C = self._rows.classes
        best = np.zeros(len(C) + 1)  # the last entry is for jobs in no class
        column = columns.nonzero()[0]
        np.maximum.at(best, C.class_a[column], C.rate_a[column])
        return best[C.of_job]

    def _seats(self) -> tuple[IntArray, FloatArray, IntArray]:
        """The seat of each job, -1 if it waits; its rate there; `Wanted.partner_alone`.

        All have shape (jobs,). The rate is inf for jobs that must keep their seats, or must not
        start: no row is faster.
        """
        table = self._rows.view.instance.jobs_table
        seats = self._seating.seats.rows
        seat = np.full(len(table), -1, np.int64)
        partner_alone = seat.copy()
        may_start = not self._rows.answer.strict
        rate = np.where(self._left.busy | (not may_start), np.inf, 0.0)
        may_move = table.preemptible & ~self._rows.view.must
        alone = (seats.partner < 0).nonzero()[0]
        job = seats.job[alone]
        seat[job] = alone
        rate[job] = np.where(may_move[job], seats.rate[alone], np.inf)
        pair = (seats.partner >= 0).nonzero()[0]
        if len(pair):
            shared = seats.take(pair)
            for leaves, rate_now, stays, least in (
                (shared.job, shared.rate, shared.partner, shared.partner_rate),
                (shared.partner, shared.partner_rate, shared.job, shared.rate),
            ):
                column = self._column_alone(stays, shared.column)
                no_slower = (column >= 0) & (self._rows.classes.rate_a[column] >= least)
                seat[leaves] = pair
                partner_alone[leaves] = column
                rate[leaves] = np.where(may_move[leaves] & no_slower, rate_now, np.inf)
        return seat, rate, partner_alone

    @cached_property
    def _as_planned(self) -> BoolArray:
        """Jobs of a schedule that lose time by a stop; shape (jobs,)."""
        rows = self._rows
        if not rows.follows_plan:
            return np.zeros(len(rows.view.must), bool)
        C = rows.classes
        alone = rows_alone(C, (rows.held & (C.of_job >= 0)).nonzero()[0])
        costless = rows.state.stops.costless(alone.job, C.pool[alone.column], C.gpus[alone.column])
        return mask_of(alone.job[~costless], len(rows.view.must))

    def _column_alone(self, job: IntArray, column: IntArray) -> IntArray:
        """Columns of jobs alone with the configurations of some columns, -1 for none."""
        C = self._rows.classes
        rows = rows_alone(C, np.unique(job))
        known = table_of(rows.job, C.labels_of(rows.column))
        found = find_rows(known, table_of(job, C.labels_of(column)))
        return gathered(rows.column, found, -1)

    def _wanted(self, fits: BoolArray, idle: BoolArray) -> Wanted:
        """Rows in which jobs gain and that have room on nodes, perhaps with the GPUs that they give
        up.

        Parameters
        ----------
        fits : BoolArray, shape (N,)
            Columns for jobs that wait.
        idle : BoolArray, shape (N,)
            Columns of pools with idle GPUs, for jobs that have a seat.
        """
        seat_of, rate, partner_alone = self._seats()
        if ((seat_of < 0) & np.isfinite(rate)).any():
            # Thousands of jobs may wait: columns without room on any node are left out at once.
            fits = self._seating.columns_with_room(fits.nonzero()[0]).mask
        rows = self._may_gain(fits, idle, seat_of, rate)
        if not len(rows):
            return Wanted.none()
        seat = seat_of[rows.job]
        waits = seat < 0
        continues = self._rows.in_place.rows_continue(rows)
        stays = gathered(self._seating.seats.stays, seat, False)
        saved = self._seconds_saved(rows, seat, continues, stays)
        wanted = Wanted(rows, seat, partner_alone[rows.job], stays & ~waits, continues, saved)
        gains = self._gains(wanted) & ~np.isin(self._keys(rows), self._refused)
        # A job that gives up none of the GPUs that it needs must find room in the free GPUs.
        asks = gains & ~waits & ~self._gives_up(wanted)
        room = self._seating.columns_with_room(np.unique(rows.column[asks])).mask
        gains[asks] = room[rows.column[asks]]
        return wanted.take(gains.nonzero()[0])

    def _may_gain(
        self, fits: BoolArray, idle: BoolArray, seat: IntArray, rate: FloatArray
    ) -> JobRows:
        """Rows in these columns that are faster than the seats of their jobs (`_seats`), or as fast
        as a seat for which the job leaves the GPUs that it holds.
        """
        waits = seat < 0
        stays = gathered(self._seating.seats.stays, seat, True)
        # Jobs whose best rate is no gain are left out before rows are made: these are most jobs.
        best = np.where(waits, self._best_rate(fits), self._best_rate(idle))
        may_gain = (best > rate) | ((best == rate) & ~stays)
        rows = rows_alone(self._rows.classes, may_gain.nonzero()[0])
        if not len(rows):
            return rows
        has_room = np.where(waits[rows.job], fits[rows.column], idle[rows.column])
        now = rate[rows.job]
        gains = (rows.rate > now) | ((rows.rate == now) & ~stays[rows.job])
        return rows.take((has_room & gains).nonzero()[0])

    def _gains(self, wanted: Wanted) -> BoolArray:
        """Rows in which a waiting job may start, or a job with a seat ends sooner."""
        waits = wanted.seat < 0
        # A job that its seat restarts gains if it continues where it ran, even at the same rate.
        restarts = ~waits
        seats = self._seating.seats.rows.take(wanted.seat[restarts])
        restarts[restarts] = ~self._rows.in_place.rows_continue(seats)
        sooner = (wanted.saved > 0) | (wanted.continues & restarts)
        if self._most:
            # The number of GPUs was decided before and does not change.
            sooner &= self._same_size(wanted.rows, wanted.seat)
        starts = waits & ~self._as_planned[wanted.rows.job]
        delayed = (waits & ~starts).nonzero()[0]
        left = self._rows.seconds_to_spare(wanted.rows.take(delayed), wanted.continues[delayed])
        starts[delayed] = left >= 0
        return starts | sooner

    def _same_size(self, rows: JobRows, seat: IntArray) -> BoolArray:
        """Mask of the rows with as many GPUs as the seat of the job."""
        gpus = self._rows.classes.gpus
        in_seat = gathered(gpus[self._seating.seats.rows.column], seat, -1)
        same: BoolArray = gpus[rows.column] == in_seat
        return same

    def _gives_up(self, wanted: Wanted) -> BoolArray:
        """Mask of the rows whose jobs give up GPUs of the same pool, which they may need."""
        C = self._rows.classes
        leaves = (wanted.seat >= 0) & (wanted.partner_alone < 0)
        # Nodes of several pools may share a resource.
        if C.instance.cluster.groups:
            return leaves
        before = gathered(C.pool[self._seating.seats.rows.column], wanted.seat, -1)
        found: BoolArray = leaves & (before == C.pool[wanted.rows.column])
        return found

    def _keys(self, rows: JobRows) -> IntArray:
        return rows.job * self._rows.classes.columns + rows.column

    def _seconds_saved(
        self, rows: JobRows, seat: IntArray, continues: BoolArray, stays: BoolArray
    ) -> FloatArray:
        seats = self._seating.seats.rows
        C = self._rows.classes
        stops = self._rows.state.stops
        # Jobs that wait save nothing, because their rate is 0.
        now = gathered(seats.column, seat, 0)
        return seconds_saved(
            self._rows.view.instance.jobs_table.steps_left[rows.job],
            self._rate_now(rows, seat),
            rows.rate,
            delay=stops.delays(rows.job, C.pool[now], C.gpus[now], stays),
            delay_there=stops.delays(rows.job, C.pool[rows.column], C.gpus[rows.column], continues),
        )

    def _rate_now(self, rows: JobRows, seat: IntArray) -> FloatArray:
        """steps/s of the job of each row in its seat, 0 where it waits."""
        seats = self._seating.seats.rows
        first = gathered(seats.job, seat, -1) == rows.job
        rate: FloatArray = np.where(
            first, gathered(seats.rate, seat, 0.0), gathered(seats.partner_rate, seat, 0.0)
        )
        return rate

    # --- the order ------------------------------------------------------------------------

    def _chosen(self, wanted: Wanted) -> IntArray:
        """Rows that fit side by side when each is selected in the order, within `max_moves`."""
        rows = wanted.rows
        most = self._seating.preemptions_left
        order = self._order(wanted)
        if most < 1:
            order = order[~wanted.moves[order]]
        fits = np.zeros(len(rows), bool)
        # Of two jobs that share GPUs at most one leaves: the other counts as its partner here.
        seats = self._seating.seats.rows
        other = gathered(seats.job + seats.partner, wanted.seat, -1) - rows.job
        other = np.where(wanted.partner_alone >= 0, other, -1)
        instant = Instant(rows.job, other, rows.fraction, self._need(wanted))
        fits[first_fit(instant, order, self._free)] = True
        chosen = order[fits[order]]
        return chosen[wanted.moves[chosen].cumsum() <= most]

    def _need(self, wanted: Wanted) -> RowUses:
        """Shares of resources that rows need beyond those that their jobs give up."""
        # A column behind the last one stands for nothing: jobs that wait give up nothing.
        nothing = len(self._uses)
        given_up = gathered(self._seating.seats.rows.column, wanted.seat, nothing)
        # A job that leaves a pair gives up the use of the pair, but its partner still needs its
        # own.
        shares = wanted.partner_alone >= 0
        if shares.any():
            partner = np.where(shares, wanted.partner_alone, nothing)
            return self._uses.beyond(wanted.rows.column, given_up, partner)
        return self._uses.beyond(wanted.rows.column, given_up)

    def _order(self, wanted: Wanted) -> IntArray:
        rows = wanted.rows
        order = self._rows.answer.order
        if order is not None:
            most_first = -self._rows.classes.gpus[rows.column] * self._most
            return np.lexsort((-rows.rate, most_first, order.position[rows.job]))
        return np.lexsort((-self._gain(wanted), ~wanted.continues, self._due(wanted)))

    def _due(self, wanted: Wanted) -> FloatArray:
        """Due times of rows of waiting jobs with a claim, inf for all other rows."""
        rows = wanted.rows
        all_rows = self._rows.rows
        waits = mask_of(rows.job[wanted.seat < 0], len(self._left.busy))
        claimed = ((all_rows.fraction > 0) & waits[all_rows.job]).nonzero()[0]
        known = table_of(all_rows.job[claimed], all_rows.partner[claimed], all_rows.column[claimed])
        row = find_rows(known, table_of(rows.job, rows.partner, rows.column))
        return gathered(self._rows.due[claimed], row, np.inf)

    def _gain(self, wanted: Wanted) -> FloatArray:
        """Rate that jobs gain per GPU taken, relative to their best rate."""
        C = self._rows.classes
        rows = wanted.rows
        before = gathered(self._seating.seats.rows.column, wanted.seat, 0)
        now = self._rate_now(rows, wanted.seat)
        leaves = (wanted.seat >= 0) & (wanted.partner_alone < 0)
        same_pool = leaves & (C.pool[before] == C.pool[rows.column])
        gpus = C.gpus[rows.column] - np.where(same_pool, C.gpus[before], 0)
        best = self._best_rate(self._allowed)[rows.job]
        gain: FloatArray = (rows.rate - now) / (best * np.maximum(gpus, 1))
        return gain

    # --- seats ----------------------------------------------------------------------------

    def _reseat(self, wanted: Wanted, chosen: IntArray) -> None:
        """Seat rows as far as their nodes have room."""
        seating = self._seating
        seated = seating.seats.rows.column
        placed = seating.reseat(wanted.rows, chosen, wanted.continues, wanted.partner_alone)
        left = wanted.seat[placed]
        left = left[left >= 0]
        seating.spend(int(wanted.moves[placed].sum()))
        self._free = self._free - self._uses.total(wanted.rows.column[placed])
        self._free += self._uses.total(seated[left])
        partner_alone = wanted.partner_alone[placed]
        self._free -= self._uses.total(partner_alone[partner_alone >= 0])
        # Only jobs that could have continued: the others leave their GPUs for another reason.
        for row in placed[wanted.moves[placed] & (wanted.saved[placed] > 0)].tolist():
            where = (int(wanted.rows.job[row]), int(wanted.rows.column[row]))
            seating.saved[where] = float(wanted.saved[row])
        if len(left):
            # Refused rows may have room now.
            self._refused = EMPTY
        refused = wanted.rows.take(chosen[~np.isin(chosen, placed)])
        self._refused = np.concatenate([self._refused, self._keys(refused)])
