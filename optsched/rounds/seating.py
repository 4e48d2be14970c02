"""GPUs for the rows that run in a round.

A running job keeps its GPUs (`StayRule`). A new job gets free GPUs (`place_beside`). If there are
none, other jobs are moved or stopped (`Occupants.clear_for`). The rules for this are in
`optsched.rounds.preemption`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optsched.arrays import (
    EMPTY,
    BoolArray,
    FloatArray,
    IntArray,
    mask_of,
    owners,
    quotient,
    ranges,
)
from optsched.arrays.values import replace
from optsched.candidates import Classes, JobRows
from optsched.instance import Instance
from optsched.instance.cluster import Numbering
from optsched.instance.restart import restart_costs
from optsched.instance.running import RunningJobs
from optsched.placement.beside import (
    ColumnsWithRoom,
    GpusOfRows,
    Occupants,
    RefusedRow,
    columns_with_room,
    place_beside,
)
from optsched.placement.bound_cells import BoundCells
from optsched.placement.occupied import Occupied
from optsched.placement.requests import anti_affinity_sets, needs_per_gpu
from optsched.placement.shares import FULL
from optsched.placement.staying import StayRule
from optsched.rounds.preemption import displaced, displaced_so_far, victims
from optsched.rounds.rows import (
    RowQueue,
    concatenate,
    either,
    jobs_of,
    no_rows,
)
from optsched.rounds.selection import ahead_of_first_blocked, select
from optsched.rounds.state import Reservation

BARRED = "side constraints leave no room for it beside what runs"
ATTEMPTS = 8
"""Rows for which room is made in a round; after these, only for the job that has starved
longest."""


@dataclass(frozen=True)
class Seats:
    """Rows that run, each with its GPUs.

    Attributes
    ----------
    rows : JobRows, P rows
    gpu : IntArray, shape (F,)
        Their GPUs, row by row, by their numbers in the cluster.
    count : IntArray, shape (P,)
        Number of GPUs of each row; 0 for rows that run without GPUs.
    stays : BoolArray, shape (P,)
        Rows whose jobs keep their GPUs.
    """

    rows: JobRows
    gpu: IntArray
    count: IntArray
    stays: BoolArray

    @classmethod
    def none(cls) -> Seats:
        return cls(no_rows(), EMPTY, EMPTY, np.zeros(0, bool))

    def __len__(self) -> int:
        return len(self.count)

    def gpus(self, chosen: IntArray) -> IntArray:
        """GPUs of some rows, row by row."""
        first = self.count.cumsum() - self.count
        return self.gpu[ranges(first[chosen], self.count[chosen])]

    def on_same_gpus(
        self, row: IntArray, before: RunningJobs, held: IntArray, numbering: Numbering
    ) -> BoolArray:
        """Mask of the seated rows with exactly the GPUs that some running jobs hold (``held``:
        their place in ``before``).
        """
        same: BoolArray = self.count[row] == before.length[held]
        row = row[same]
        count = self.count[row]
        owner = owners(count)
        now = self.gpus(row)
        then = before.numbers_of(held[same], numbering)
        # The order of the GPUs of a row does not matter.
        differs = now[np.lexsort((now, owner))] != then[np.lexsort((then, owner))]
        same[same] = np.bincount(owner[differs], minlength=len(row)) == 0
        return same

    def occupied(self, classes: Classes) -> Occupied:
        """The GPUs of all rows."""
        return Occupied.of_numbers(classes, self.rows, np.arange(len(self)), self.gpu, self.count)

    def part(self, chosen: IntArray) -> Seats:
        return Seats(
            self.rows.take(chosen), self.gpus(chosen), self.count[chosen], self.stays[chosen]
        )

    def and_also(self, other: Seats) -> Seats:
        return Seats(
            concatenate(self.rows, other.rows),
            np.concatenate([self.gpu, other.gpu]),
            np.concatenate([self.count, other.count]),
            np.concatenate([self.stays, other.stays]),
        )


@dataclass
class Seating:
    """Gives GPUs to rows, one queue after the other.

    Attributes
    ----------
    instance : Instance
        That of the round.
    classes : Classes
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    fixed : Occupied
        Occupied GPUs of jobs in no row: they cannot be preempted, and their nodes take no more
        work.
    must : BoolArray, shape (jobs,)
        Running jobs that cannot be preempted: they keep their GPUs.
    hurried : BoolArray, shape (jobs,)
        Running jobs that a restart would make late: they are not moved to make room.
    reservations : sequence of Reservation
        Jobs that could not be stopped in time must not start on these nodes.
    preemptions_left : float
        Most running jobs that may still be preempted or moved.
    attempts : int
        Number of rows for which room may still be made in this round.
    cells : BoundCells or None
        Reserved cells of tenants.
    seats : Seats
        The rows that have GPUs.
    refused : dict of the row of a job to text
        Jobs that found no room, and the reasons.
    saved : dict of (job, column) to float
        Seconds by which jobs end sooner because they moved to idle GPUs.
    """

    instance: Instance
    classes: Classes
    constraints: Sequence[Mapping[str, Any]]
    fixed: Occupied
    must: BoolArray
    hurried: BoolArray
    reservations: Sequence[Reservation]
    preemptions_left: float
    attempts: int = ATTEMPTS
    cells: BoundCells | None = None
    seats: Seats = field(default_factory=Seats.none)
    refused: dict[int, str] = field(default_factory=dict)
    saved: dict[tuple[int, int], float] = field(default_factory=dict)
    # Occupied GPUs of holders that are in no row of the present queue, and the rows of the last
    # queue if they are still to be added.
    _before: Occupied = field(init=False)
    _settled: JobRows | None = None
    # The GPUs of the rows of the present queue, and a mask of its rows whose jobs keep their GPUs.
    _gpus: GpusOfRows = field(default_factory=lambda: GpusOfRows(0))
    _staying: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    # Columns without room. They stay full until a job leaves its GPUs.
    _full: BoolArray = field(init=False)
    # All occupied GPUs, with the number of changes for which they were computed.
    _all_occupied: tuple[int, Occupied] | None = None

    def __post_init__(self) -> None:
        self._before = self.fixed
        self._gpus_were_left()

    def seat(self, queue: RowQueue, strict: bool = False) -> RowQueue:
        """Give GPUs to the rows of a queue that fit; a row without room is skipped.

        With ``strict`` all jobs behind the first job without room wait, and stop if they run.

        Returns
        -------
        RowQueue
            The rows that were not seated. No node has room for them.
        """
        self._begin(queue)
        seat = self._seat_strictly if strict else self._seat_in_turn
        left = seat(queue)
        rows = self._gpus.rows
        more = Seats(queue.rows.take(rows), *self._gpus.gpus(rows), self._staying[rows])
        self.seats = self.seats.and_also(more)
        self._settled = queue.rows
        for job in np.unique(left.rows.job[left.order[left.over_limits[left.order]]]).tolist():
            self.refused.setdefault(job, BARRED)
        return left

    def reseat(
        self, rows: JobRows, chosen: IntArray, continues: BoolArray, partner_alone: IntArray
    ) -> IntArray:
        """Give free GPUs to rows of jobs alone; a job that is seated already leaves its GPUs.

        Parameters
        ----------
        rows : JobRows
        chosen : IntArray
            Rows of different jobs within the sums of the pools, in the order of their priority.
        continues : BoolArray
            Rows in which a job continues if it gets the GPUs that it holds.
        partner_alone : IntArray
            The column in which the partner of a job that leaves shared GPUs keeps them, -1 for
            none. Of two such jobs only one is chosen.

        Returns
        -------
        IntArray
            The chosen rows that found room; the jobs of the other rows keep their seats.
        """
        C = self.classes
        seats = self.seats.rows
        while len(chosen):
            # The last entry is for partner -1.
            leaves = np.zeros(len(self.must) + 1, bool)
            leaves[rows.job[chosen]] = True
            column = np.full(len(self.must), -1, np.int64)
            column[rows.job[chosen]] = partner_alone[chosen]
            left_alone = self._left_alone(leaves, column)
            earlier = self._earlier
            stays = earlier.part(~(leaves[earlier.job] | leaves[earlier.partner]))
            stays = stays.and_also(left_alone.occupied(C))
            barred = self._barred_nodes(rows, chosen)
            result = place_beside(
                C, rows, chosen, stays, self.constraints, barred=barred, cells=self.cells
            )
            self._refuse(rows, result.refused)
            if not result.refused:
                bare = chosen[C.gpus[rows.column[chosen]] == 0]
                placed = np.concatenate([result.row, bare])
                count = np.concatenate([result.count, np.zeros(len(bare), np.int64)])
                more = Seats(rows.take(placed), result.gpu, count, np.zeros(len(placed), bool))
                more.stays[:] = continues[placed] & self._on_held_gpus(more)
                stay = (~(leaves[seats.job] | leaves[seats.partner])).nonzero()[0]
                if len(stay) < len(seats):
                    self._gpus_were_left()
                self.seats = self.seats.part(stay).and_also(left_alone).and_also(more)
                on = Occupied.of_numbers(C, rows, result.row, result.gpu, result.count)
                self._before = stays.and_also(on)
                return placed
            # The jobs of refused rows keep their GPUs, so the other rows must be placed again.
            chosen = chosen[~np.isin(chosen, [item.row for item in result.refused])]
        return chosen

    def _left_alone(self, leaves: BoolArray, column: IntArray) -> Seats:
        """Seats of jobs that keep the shared GPUs when their partners leave.

        Parameters
        ----------
        leaves : BoolArray, shape (jobs + 1,)
        column : IntArray, shape (jobs,)
            For each job that leaves a partner, the column of the partner alone.
        """
        seats = self.seats
        pair = (
            (seats.rows.partner >= 0) & (leaves[seats.rows.job] | leaves[seats.rows.partner])
        ).nonzero()[0]
        shared = seats.part(pair)
        first_leaves = leaves[shared.rows.job]
        job = np.where(first_leaves, shared.rows.partner, shared.rows.job)
        alone = column[np.where(first_leaves, shared.rows.job, shared.rows.partner)]
        zero = np.zeros(len(job))
        rows = JobRows(
            job, np.full(len(job), -1, np.int64), alone, zero, self.classes.rate_a[alone], zero
        )
        return replace(shared, rows=rows)

    def _on_held_gpus(self, seats: Seats) -> BoolArray:
        """Mask of the seats in which jobs have the GPUs that they hold now."""
        places = self.instance.jobs_table.places
        held = places.among(len(self.must))[seats.rows.job]
        same = held >= 0
        numbering = self.instance.cluster.numbering
        same[same] = seats.on_same_gpus(same.nonzero()[0], places, held[same], numbering)
        return same

    def _begin(self, queue: RowQueue) -> None:
        """Begin with a queue of which no row has GPUs."""
        self._before = self._earlier
        self._gpus = GpusOfRows(len(queue.rows))
        self._staying = np.zeros(len(queue.rows), bool)
        self._all_occupied = None
        self._gpus_were_left()

    def _gpus_were_left(self) -> None:
        self._full = np.zeros(self.classes.columns, bool)

    def _seat_in_turn(self, queue: RowQueue) -> RowQueue:
        """Select rows and seat them; select other rows instead of those without room, until all
        selected rows have room.
        """
        left = queue
        limit = self.preemptions_left
        tried = np.zeros(len(queue.rows), bool)
        chosen = select(queue, limit)
        while len(chosen):
            self._limit_preemptions(limit, queue, left, chosen)
            before = self._gpus.runs.sum()
            self._seat_rows(queue, left.order[queue.mask(chosen)[left.order]])
            tried[chosen] = True
            left = self._beside(queue, left.order, tried)
            if self._gpus.runs.sum() == before + len(chosen):
                break
            # The selection compares sums over pools; rows without room on the nodes are removed
            # now.
            left = self._with_room(left, chosen[~self._gpus.runs[chosen]])
            chosen = select(left, self._preemptions_beyond(limit, queue, left))
        left = self._seat_longest_starved(queue, left, tried)
        self._limit_preemptions(limit, queue, left, EMPTY)
        return left

    def _seat_strictly(self, queue: RowQueue) -> RowQueue:
        """Seat the rows before the first job that has no room in any of its rows.

        After a row is refused, all rows are seated again without it: the rows behind it were seated
        as if it ran.
        """
        reasons = self.refused
        limit = self.preemptions_left
        while True:
            self._begin(queue)
            self.refused = dict(reasons)
            chosen = ahead_of_first_blocked(queue, select(queue, limit))
            self._limit_preemptions(limit, queue, queue, chosen)
            ranked = queue.order[np.isin(queue.order, chosen)]
            self._seat_rows(queue, ranked)
            refused = ranked[~self._gpus.runs[ranked]]
            if not len(refused):
                return queue.beside(chosen)
            job = int(queue.rows.job[refused[0]])
            reasons.setdefault(job, self.refused[job])
            place = int((queue.order == refused[0]).nonzero()[0][0])
            left = np.delete(queue.order, place)
            # A job without another row blocks all rows behind it.
            others = (queue.rows.job[left] == job).any()
            queue = queue.of(left if others else left[:place])

    def _beside(self, queue: RowQueue, order: IntArray, tried: BoolArray) -> RowQueue:
        """The rows of a queue that are not tried yet, beside the seated rows."""
        return queue.of(order[~tried[order]]).beside(self._gpus.rows)

    # --- the limit on preemptions ---------------------------------------------------------

    def _limit_preemptions(
        self, limit: float, queue: RowQueue, left: RowQueue, chosen: IntArray
    ) -> None:
        """Set the number of running jobs that may still be preempted or moved.

        Parameters
        ----------
        limit : float
            The number before any row was seated.
        queue, left : RowQueue
            All rows, and the rows that are not tried yet.
        chosen : IntArray
            Rows that are seated next.
        """
        if not np.isinf(limit):
            more = int(displaced(left, chosen).sum())
            self.preemptions_left = max(self._preemptions_beyond(limit, queue, left) - more, 0)

    def _preemptions_beyond(self, limit: float, queue: RowQueue, left: RowQueue) -> float:
        """The limit minus the number of running jobs that are displaced so far."""
        # The count is a pass over all rows.
        if np.isinf(limit):
            return limit
        staying = self._staying.nonzero()[0]
        return max(limit - displaced_so_far(queue, left, staying, self.must), 0)

    def spend(self, moved: int) -> None:
        """Count running jobs that were preempted or moved."""
        self.preemptions_left = max(self.preemptions_left - moved, 0)

    # --- rows that need not be tried ------------------------------------------------------

    def _with_room(self, queue: RowQueue, refused: IntArray) -> RowQueue:
        """The queue without rows that have no room, neither where their jobs run nor on other
        nodes.

        Rows in the columns of refused rows are removed too. While attempts to make room are left,
        no other rows are removed.
        """
        rows = queue.rows
        occupied = self._occupied(rows)
        going = queue.continues.copy()
        room = np.ones(self.classes.columns, bool)
        free = queue.free
        if not self.attempts:
            asked = mask_of(rows.column[queue.order], self.classes.columns)
            asked &= queue.uses.within(queue.free)
            room, gpus = self.columns_with_room(asked.nonzero()[0], occupied)
            # GPUs of nodes without free CPUs or memory do not count as free.
            free = self._at_most(free, gpus)
            continuing = queue.order[going[queue.order]]
            rule = StayRule(self.classes, occupied, self.constraints)
            going[continuing] = ~rule.blocked(rows, continuing, *self._held_now(queue, continuing))
        room[rows.column[refused]] = False
        possible = room[rows.column] | going | (queue.hosts >= 0)
        return queue.of(queue.order[possible[queue.order]], free=free)

    def _at_most(self, free: FloatArray, gpus: FloatArray) -> FloatArray:
        """``free`` with at most the given number of GPUs of each pool."""
        R = self.classes.resources
        pool = R.pool[R.renewable]
        of_pools = (pool >= 0).nonzero()[0]
        least = free.copy()
        share = quotient(gpus[pool[of_pools]] * FULL, R.capacity[R.renewable][of_pools])
        least[of_pools] = np.minimum(free[of_pools], share)
        return least

    def columns_with_room(
        self, column: IntArray, occupied: Occupied | None = None
    ) -> ColumnsWithRoom:
        """The columns among these in which one more job alone has room beside ``occupied``
        (default: all occupied GPUs).
        """
        C = self.classes
        without_gpus = C.gpus[column] == 0
        asked = column[~without_gpus & ~self._full[column]]
        beside = self._earlier if occupied is None else occupied
        found = columns_with_room(C, asked, beside, self.cells)
        self._full[asked] = ~found.mask[asked]
        found.mask[column[without_gpus]] = True
        return found

    # --- rows that are seated together ----------------------------------------------------

    def _seat_rows(self, queue: RowQueue, ranked: IntArray) -> None:
        """Seat as many rows as possible, in their order.

        Rows that continue keep their GPUs, other rows get free GPUs; for the first rows that find
        none, room is made.
        """
        gpus = queue.classes.gpus[queue.rows.column]
        occupied = self._occupied(queue.rows)
        going = self._can_stay(queue, ranked, occupied)
        keeps = queue.mask(going)
        without_gpus = ranked[gpus[ranked] == 0]
        new = ranked[(~keeps & (gpus > 0))[ranked]]
        # These rows could continue, but rows before them have their GPUs: they must move.
        moved = new[queue.continues[new]]
        self.spend(len(moved) + int((queue.rows.partner[moved] >= 0).sum()))
        self._gpus.give(going, *self._held_now(queue, going))
        self._gpus.give(without_gpus, EMPTY, np.zeros(len(without_gpus), np.int64))
        if len(new):
            self._place(queue, going, new, occupied)
        keeps[without_gpus] = True
        self._staying |= keeps & queue.continues
        refused = new[~self._gpus.runs[new]]
        if self.attempts and len(refused):
            self._clear_in_turn(queue, refused)

    def _can_stay(self, queue: RowQueue, ranked: IntArray, occupied: Occupied) -> IntArray:
        """Rows that can continue on their GPUs, beside the rows before them in the order."""
        rows = queue.rows
        C = queue.classes
        goes_on = queue.continues | (queue.hosts >= 0)
        going = ranked[(goes_on & (C.gpus[rows.column] > 0))[ranked]]
        if not len(going):
            return going
        # If only rows that ran in the last round are seated, they fit as they did then.
        any_new = (
            bool((queue.hosts[going] >= 0).any())
            or len(self.fixed) > 0
            or not self.seats.stays.all()
            or bool((self._gpus.runs & ~self._staying).any())
        )
        stays = StayRule(C, occupied, self.constraints).keep(
            rows,
            going,
            *self._held_now(queue, going),
            queue.must_run[going],
            ran_together=not any_new,
        )
        return going[stays]

    def _held_now(self, queue: RowQueue, going: IntArray) -> tuple[IntArray, IntArray]:
        """Numbers of the GPUs that rows which continue hold now, row by row, and the number of GPUs
        of each row.
        """
        places = self.instance.jobs_table.places
        holder = places.among(len(self.must))[queue.gpus_of(going)]
        gpu = places.numbers_of(holder, self.instance.cluster.numbering)
        return gpu, places.length[holder]

    def _place(self, queue: RowQueue, going: IntArray, new: IntArray, occupied: Occupied) -> None:
        """Give free GPUs to rows that start.

        Parameters
        ----------
        queue : RowQueue
        going, new : IntArray
            Rows that continue, and rows that start.
        occupied : Occupied
            GPUs that were occupied before these rows.
        """
        rows = queue.rows
        on = Occupied.of_numbers(self.classes, rows, going, *self._gpus.gpus(going))
        barred = self._barred_nodes(rows, new)
        result = place_beside(
            self.classes,
            rows,
            new,
            occupied.and_also(on),
            self.constraints,
            barred=barred,
            cells=self.cells,
        )
        self._refuse(rows, result.refused)
        self._gpus.give(result.row, result.gpu, result.count)

    # --- rows for which room is made one by one -------------------------------------------

    def _clear_in_turn(self, queue: RowQueue, refused: IntArray) -> None:
        """Make room for rows that found none, while attempts are left."""
        attempted = refused[: self.attempts]
        self.attempts -= len(attempted)
        occupants = self._occupants(queue, attempted)
        hopeless: set[tuple[Any, ...]] = set()
        for row in attempted.tolist():
            # An equal row before it failed, and even fewer rows may be stopped for this one.
            if hopeless and self._alike(queue, row) in hopeless:
                continue
            if self._clear_for(queue, occupants, row):
                hopeless.clear()
            else:
                hopeless.add(self._alike(queue, row))

    def _clear_for(self, queue: RowQueue, occupants: Occupants, row: int) -> bool:
        """Seat a row that found no room, if other rows can be moved or stopped for it."""
        movable = ((self._gpus.count > 0) & occupants.movable).nonzero()[0]
        may_go = victims(occupants.position, row, movable)
        # A starved job ignores the limit `max_moves`.
        most = np.inf if queue.starved[row] else self.preemptions_left
        change = occupants.clear_for(row, may_go, most)
        if change is None:
            return False
        self._gpus_were_left()
        gone = [*change.gpus, *change.out]
        self.spend(int(occupants.running[gone].sum()))
        occupants.running[gone] = 0
        self._staying[gone] = False
        name = self.instance.jobs_table.names[int(queue.rows.job[row])]
        why = f"GPUs that it needs go to job {name} before it"
        self._refuse(queue.rows, [RefusedRow(other, why, False) for other in change.out])
        return True

    def _occupants(self, queue: RowQueue, wanted: IntArray) -> Occupants:
        """The seated rows, and the rules about which of them may leave their GPUs for wanted
        rows.
        """
        rows = queue.rows
        running = np.where(self._staying, 1 + (rows.partner >= 0), 0)
        return Occupants(
            self.classes,
            rows,
            self.constraints,
            self._earlier,
            self._gpus,
            movable=~(queue.must_run | either(rows, self.must | self.hurried)),
            position=queue.positions(),
            running=running,
            barred=lambda chosen: self._barred_nodes(rows, chosen),
            wanted=wanted,
            cells=self.cells,
        )

    def _refuse(self, rows: JobRows, refused: Sequence[RefusedRow]) -> None:
        """Record why the jobs of some rows have no GPUs; the first reason of a job is kept."""
        row = [item.row for item in refused]
        members = zip(rows.job[row].tolist(), rows.partner[row].tolist(), strict=True)
        for jobs, item in zip(members, refused, strict=True):
            for job in jobs:
                if job >= 0:
                    self.refused.setdefault(job, item.reason)

    def _seat_longest_starved(self, queue: RowQueue, left: RowQueue, tried: BoolArray) -> RowQueue:
        """Seat the job that has starved longest, of those that can have room, unless it is
        seated.
        """
        rows = queue.rows
        waits = queue.order[queue.starved[queue.order]]
        if not len(waits):
            return left
        on = jobs_of(rows, self._gpus.rows, len(queue.busy))
        seated = np.append(queue.busy | on, False)
        occupants: Occupants | None = None
        hopeless = set()
        for job in dict.fromkeys(rows.job[waits].tolist()):
            if seated[job]:
                break
            for row in waits[rows.job[waits] == job].tolist():
                needs_gpus = queue.classes.gpus[rows.column[row]] > 0
                if seated[rows.partner[row]] or not needs_gpus or left.over_limits[row]:
                    continue
                if (alike := self._alike(queue, row)) in hopeless:
                    continue
                occupants = occupants or self._occupants(queue, waits)
                if self._clear_for(queue, occupants, row):
                    tried[row] = True
                    return self._beside(queue, left.order, tried)
                hopeless.add(alike)
        return left

    def _alike(self, queue: RowQueue, row: int) -> tuple[Any, ...]:
        """A key that is equal for rows with the same needs, so that room for them depends only on
        their position.
        """
        rows = queue.rows
        configuration = int(self.classes.configuration[rows.column[row]])
        needs = needs_per_gpu(self.classes, rows.column[[row]])
        # The nodes that reservations bar depend on the single job, if it cannot be preempted.
        firm = either(rows, ~self.instance.jobs_table.preemptible, np.array([row]))
        job = int(rows.job[row]) if firm.any() else -1
        amounts = tuple(part.tobytes() for part in needs)
        return configuration, amounts, bool(queue.starved[row]), job, self._apart(rows, row)

    # --- occupied GPUs and barred nodes ---------------------------------------------------

    @property
    def _earlier(self) -> Occupied:
        """Occupied GPUs of holders that are in no row of the present queue."""
        if self._settled is not None:
            rows, self._settled = self._settled, None
            self._before = self._occupied(rows)
        return self._before

    def _occupied(self, rows: JobRows) -> Occupied:
        """All occupied GPUs; the rows are those of the present queue."""
        seated = self._gpus.with_gpus
        if not len(seated):
            return self._earlier
        if self._all_occupied is None or self._all_occupied[0] != self._gpus.changes:
            new = Occupied.of_numbers(self.classes, rows, seated, *self._gpus.gpus(seated))
            self._all_occupied = self._gpus.changes, self._earlier.and_also(new)
        return self._all_occupied[1]

    def _apart(self, rows: JobRows, row: int) -> tuple[int, ...]:
        """Anti-affinity sets of a row's jobs."""
        jobs_of_row = (rows.job[row], rows.partner[row])
        sets = enumerate(anti_affinity_sets(self.classes, self.constraints))
        return tuple(number for number, jobs in sets if np.isin(jobs, jobs_of_row).any())

    def _barred_nodes(self, rows: JobRows, wanted: IntArray) -> list[Collection[str]] | None:
        """Names of the nodes on which each row must not start: it could not be stopped before they
        are reserved. None if no row has such nodes.
        """
        table = self.instance.jobs_table
        now = self.instance.now
        later = [item for item in self.reservations if item.end > now]
        if not later:
            return None
        never_stopped = either(rows, ~table.preemptible, wanted)
        if not never_stopped.any():
            return None
        job = rows.job[wanted]
        column = rows.column[wanted]
        restart = restart_costs(
            self.instance, job, self.classes.pool[column], self.classes.gpus[column]
        )
        with np.errstate(divide="ignore"):
            ends = now + (table.steps_left[job] / rows.rate[wanted] + restart)
        return [
            {name for item in later if item.start < end for name in item.nodes} if firm else ()
            for end, firm in zip(ends.tolist(), never_stopped.tolist(), strict=True)
        ]
