"""GPUs for the rows that run in a round.

A running job keeps its GPUs (`StayRule`). A new one gets free GPUs (`place_beside`). If it finds
none, others are moved or stopped (`Occupants.make_room`). Who may be moved or stopped for whom is in
`optsched.rounds.preemption`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from optsched.placement.occupied import Occupied
from optsched.placement.requests import ANTI_AFFINITY, needs_per_gpu
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
"""Rows for which room is made one by one in a round; beyond these only for the longest starved."""


@dataclass(frozen=True)
class Seats:
    """Rows that run, each with its GPUs.

    Attributes
    ----------
    rows : JobRows, P rows
    gpu : IntArray, shape (F,)
        Their GPUs, row by row, by their numbers in the cluster.
    count : IntArray, shape (P,)
        How many GPUs each row has; 0 for rows that run without GPUs.
    stays : BoolArray, shape (P,)
        Rows whose jobs go on where they are.
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

    def gpus(self, some: IntArray) -> IntArray:
        """GPUs of some rows, row by row."""
        first = np.cumsum(self.count) - self.count
        return self.gpu[ranges(first[some], self.count[some])]

    def on_same_gpus(
        self, row: IntArray, before: RunningJobs, held: IntArray, numbering: Numbering
    ) -> BoolArray:
        """Whether seated rows have the very GPUs that running jobs (by their place in ``before``) hold."""
        same: BoolArray = self.count[row] == before.length[held]
        row = row[same]
        count = self.count[row]
        owner = owners(count)
        now = self.gpus(row)
        then = before.numbers_of(held[same], numbering)
        # GPUs of a row ascending, as two lists of the same GPUs may differ in their order.
        differs = now[np.lexsort((now, owner))] != then[np.lexsort((then, owner))]
        same[same] = np.bincount(owner[differs], minlength=len(row)) == 0
        return same

    def occupied(self, classes: Classes) -> Occupied:
        """The GPUs of all rows."""
        return Occupied.of_numbers(classes, self.rows, np.arange(len(self)), self.gpu, self.count)

    def part(self, some: IntArray) -> Seats:
        return Seats(self.rows.take(some), self.gpus(some), self.count[some], self.stays[some])

    def and_also(self, other: Seats) -> Seats:
        return Seats(
            concatenate(self.rows, other.rows),
            np.concatenate([self.gpu, other.gpu]),
            np.concatenate([self.count, other.count]),
            np.concatenate([self.stays, other.stays]),
        )


@dataclass
class Seating:
    """Takes rows in turn and gives them GPUs beside those that have some.

    Attributes
    ----------
    instance : Instance
        As it is in this round.
    classes : Classes
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    fixed : Occupied
        What has GPUs in no row: jobs that cannot be preempted, on nodes that take no more work.
    must : BoolArray, shape (jobs,)
        Jobs that cannot be preempted and run: they stay where they are.
    hurried : BoolArray, shape (jobs,)
        Running jobs that a restart would make late: they make no room for others.
    reservations : sequence of Reservation
        Of nodes on which jobs must not start that could not be stopped in time.
    preemptions_left : float
        Running jobs that may still be preempted or moved.
    attempts : int
        Rows for which room may still be made in this round, one by one.
    seats : Seats
        What has GPUs.
    refused : dict of the row of a job to text
        Jobs that found no room, and why.
    saved : dict of (job, column) to float
        Seconds by which jobs end sooner in seats on GPUs that were left over.
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
    seats: Seats = field(default_factory=Seats.none)
    refused: dict[int, str] = field(default_factory=dict)
    saved: dict[tuple[int, int], float] = field(default_factory=dict)
    # What has GPUs and is in no row of the queue that is being seated.
    _earlier: Occupied = field(init=False)
    # Of the queue that is being seated: GPUs of its rows, and a mask of those of these rows whose
    # jobs go on where they are.
    _gpus: GpusOfRows = field(default_factory=lambda: GpusOfRows(0))
    _staying: BoolArray = field(default_factory=lambda: np.zeros(0, bool))
    # Columns that had no room beside what has GPUs; they have none until somebody leaves some.
    _full: BoolArray = field(init=False)
    # All that has GPUs, after so many changes of these.
    _all_occupied: tuple[int, Occupied] | None = None

    def __post_init__(self) -> None:
        self._earlier = self.fixed
        self._somebody_left()

    def seat(self, queue: RowQueue, strict: bool = False) -> RowQueue:
        """Give GPUs to the rows of a queue that fit; a row without room is skipped.

        With ``strict`` all jobs behind the first one that has no room wait, and stop if they run.

        Returns
        -------
        RowQueue
            What is left of it: no row of it that fits the resources could be placed.
        """
        self._begin(queue)
        seat = self._seat_strictly if strict else self._seat_in_turn
        left = seat(queue)
        rows = self._gpus.rows
        more = Seats(queue.rows.take(rows), *self._gpus.gpus(rows), self._staying[rows])
        self.seats = self.seats.and_also(more)
        self._earlier = self._occupied(queue.rows)
        for job in np.unique(left.rows.job[left.order[left.over_limits[left.order]]]).tolist():
            self.refused.setdefault(job, BARRED)
        return left

    def reseat(
        self, rows: JobRows, chosen: IntArray, continues: BoolArray, partner_alone: IntArray
    ) -> IntArray:
        """Give free GPUs to jobs alone; who has GPUs in this round gives them up for others.

        Parameters
        ----------
        rows : JobRows
        chosen : IntArray
            Rows of different jobs that have room by the sums, the first first.
        continues : BoolArray
            Rows in which a job goes on if it gets the GPUs that it holds.
        partner_alone : IntArray
            The column in which the partner of a job that shares its GPUs keeps them, -1 for none.
            Of two such jobs only one is chosen.

        Returns
        -------
        IntArray
            The chosen rows that found room; jobs of the others stay as they are.
        """
        C = self.classes
        seats = self.seats.rows
        while len(chosen):
            # The last entries are for jobs in no table, and for no partner.
            leaves = np.zeros(len(self.must) + 1, bool)
            leaves[rows.job[chosen]] = True
            column = np.full(len(self.must), -1, np.int64)
            column[rows.job[chosen]] = partner_alone[chosen]
            left_alone = self._left_alone(leaves, column)
            earlier = self._earlier
            stays = earlier.part(~(leaves[earlier.job] | leaves[earlier.partner]))
            stays = stays.and_also(left_alone.occupied(C))
            barred = self._barred_nodes(rows, chosen)
            result = place_beside(C, rows, chosen, stays, self.constraints, barred=barred)
            self._refuse(rows, result.refused)
            if not result.refused:
                bare = chosen[C.gpus[rows.column[chosen]] == 0]
                placed = np.concatenate([result.row, bare])
                count = np.concatenate([result.count, np.zeros(len(bare), np.int64)])
                more = Seats(rows.take(placed), result.gpu, count, np.zeros(len(placed), bool))
                more.stays[:] = continues[placed] & self._on_held_gpus(more)
                stay = np.flatnonzero(~(leaves[seats.job] | leaves[seats.partner]))
                if len(stay) < len(seats):
                    self._somebody_left()
                self.seats = self.seats.part(stay).and_also(left_alone).and_also(more)
                on = Occupied.of_numbers(C, rows, result.row, result.gpu, result.count)
                self._earlier = stays.and_also(on)
                return placed
            # Jobs of refused rows keep their GPUs: without these the others are placed anew.
            chosen = chosen[~np.isin(chosen, [item.row for item in result.refused])]
        return chosen

    def _left_alone(self, leaves: BoolArray, column: IntArray) -> Seats:
        """Seats of jobs whose partners leave them; they keep the GPUs.

        Parameters
        ----------
        leaves : BoolArray, shape (jobs + 1,)
        column : IntArray, shape (jobs,)
            The column of its partner alone, for each job that leaves one.
        """
        seats = self.seats
        pair = np.flatnonzero(
            (seats.rows.partner >= 0) & (leaves[seats.rows.job] | leaves[seats.rows.partner])
        )
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
        """Seats in which jobs have the GPUs that they hold now."""
        places = self.instance.jobs_table.places
        held = places.among(len(self.must))[seats.rows.job]
        same = held >= 0
        numbering = self.instance.cluster.numbering
        same[same] = seats.on_same_gpus(np.flatnonzero(same), places, held[same], numbering)
        return same

    def _begin(self, queue: RowQueue) -> None:
        """No row of the queue has GPUs."""
        self._gpus = GpusOfRows(len(queue.rows))
        self._staying = np.zeros(len(queue.rows), bool)
        self._all_occupied = None
        self._somebody_left()

    def _somebody_left(self) -> None:
        self._full = np.zeros(self.classes.columns, bool)

    def _seat_in_turn(self, queue: RowQueue) -> RowQueue:
        """Select rows and seat them; select others for those without room, until all have some."""
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
            # All of them found room: nothing was refused that others could replace.
            if self._gpus.runs.sum() == before + len(chosen):
                break
            # The selection knows sums over pools only: rows that no node has room for come out.
            left = self._with_room(left, chosen[~self._gpus.runs[chosen]])
            chosen = select(left, self._preemptions_beyond(limit, queue, left))
        left = self._seat_longest_starved(queue, left, tried)
        self._limit_preemptions(limit, queue, left, EMPTY)
        return left

    def _seat_strictly(self, queue: RowQueue) -> RowQueue:
        """Seat the rows before the first job that has no room, in any of its rows.

        What is refused is taken out, and all is seated anew: rows behind it were seated as if it
        ran.
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
            at = int(np.flatnonzero(queue.order == refused[0])[0])
            left = np.delete(queue.order, at)
            # Without a further row the job lets nobody pass.
            others = (queue.rows.job[left] == job).any()
            queue = queue.of(left if others else left[:at])

    def _beside(self, queue: RowQueue, order: IntArray, tried: BoolArray) -> RowQueue:
        """What is left of a queue beside what has GPUs now."""
        return queue.of(order[~tried[order]]).beside(self._gpus.rows)

    # --- how many running jobs may still be preempted -------------------------------------

    def _limit_preemptions(
        self, limit: float, queue: RowQueue, left: RowQueue, chosen: IntArray
    ) -> None:
        """Set how many running jobs may be preempted or moved besides those already displaced.

        Parameters
        ----------
        limit : float
            Before any row was seated.
        queue, left : RowQueue
            All rows, and those that are left to try.
        chosen : IntArray
            Rows that are seated next.
        """
        if not np.isinf(limit):
            more = int(displaced(left, chosen).sum())
            self.preemptions_left = max(self._preemptions_beyond(limit, queue, left) - more, 0)

    def _preemptions_beyond(self, limit: float, queue: RowQueue, left: RowQueue) -> float:
        """What is left of a limit beside the running jobs that are displaced so far."""
        # Counting who is displaced costs a pass over all rows: only where there is a limit.
        if np.isinf(limit):
            return limit
        staying = np.flatnonzero(self._staying)
        return max(limit - displaced_so_far(queue, left, staying, self.must), 0)

    def spend(self, moved: int) -> None:
        """Running jobs were preempted or moved."""
        self.preemptions_left = max(self.preemptions_left - moved, 0)

    # --- rows that need no try ------------------------------------------------------------

    def _with_room(self, queue: RowQueue, refused: IntArray) -> RowQueue:
        """A queue without rows that find no room: neither where their jobs run nor elsewhere.

        Rows in the columns of refused rows are left out as well. As long as room may still be made,
        so many rows can be refused that no others need be left out.
        """
        rows = queue.rows
        occupied = self._occupied(rows)
        going = queue.continues.copy()
        room = np.ones(self.classes.columns, bool)
        free = queue.free
        if not self.attempts:
            asked = mask_of(rows.column[queue.order], self.classes.columns)
            asked &= queue.columns_that_fit
            room, gpus = self.columns_with_room(asked.nonzero()[0], occupied)
            # Sums over pools count GPUs on nodes whose CPUs or memory have all been given out.
            free = self._no_more(free, gpus)
            some = queue.order[going[queue.order]]
            rule = StayRule(self.classes, occupied, self.constraints)
            going[some] = ~rule.blocked(rows, some, *self._held_now(queue, some))
        room[rows.column[refused]] = False
        possible = room[rows.column] | going | (queue.hosts >= 0)
        return queue.of(queue.order[possible[queue.order]], free=free)

    def _no_more(self, free: FloatArray, gpus: FloatArray) -> FloatArray:
        """What is free of each limit, but no more of a pool's GPUs than so many."""
        R = self.classes.resources
        pool = R.pool[R.renewable]
        some = np.flatnonzero(pool >= 0)
        least = free.copy()
        share = quotient(gpus[pool[some]] * FULL, R.capacity[R.renewable][some])
        least[some] = np.minimum(free[some], share)
        return least

    def columns_with_room(
        self, column: IntArray, occupied: Occupied | None = None
    ) -> ColumnsWithRoom:
        """In which of some columns one more job alone finds room.

        Beside what has GPUs, or what is given in its place.
        """
        C = self.classes
        bare = C.gpus[column] == 0
        asked = column[~bare & ~self._full[column]]
        beside = self._earlier if occupied is None else occupied
        found = columns_with_room(C, asked, beside)
        self._full[asked] = ~found.mask[asked]
        found.mask[column[bare]] = True
        return found

    # --- rows that are seated together ----------------------------------------------------

    def _seat_rows(self, queue: RowQueue, ranked: IntArray) -> None:
        """Seat as many rows as possible, the first in the order first.

        Rows that go on keep their GPUs, rows without GPUs need none, all others get free ones; for
        the first of these that find none, room is made.
        """
        gpus = queue.classes.gpus[queue.rows.column]
        occupied = self._occupied(queue.rows)
        going = self._can_stay(queue, ranked, occupied)
        keeps = queue.mask(going)
        bare = ranked[gpus[ranked] == 0]
        new = ranked[(~keeps & (gpus > 0))[ranked]]
        # These could go on, but rows before them have their GPUs: they have to move.
        elsewhere = new[queue.continues[new]]
        self.spend(len(elsewhere) + int((queue.rows.partner[elsewhere] >= 0).sum()))
        self._gpus.give(going, *self._held_now(queue, going))
        self._gpus.give(bare, bare[:0], np.zeros(len(bare), np.int64))
        if len(new):
            self._place(queue, going, new, occupied)
        keeps[bare] = True
        self._staying |= keeps & queue.continues
        refused = new[~self._gpus.runs[new]]
        if self.attempts and len(refused):
            self._make_room_in_turn(queue, refused)

    def _can_stay(self, queue: RowQueue, ranked: IntArray, occupied: Occupied) -> IntArray:
        """Rows that can go on where they are, beside those before them in the order."""
        rows = queue.rows
        C = queue.classes
        goes_on = queue.continues | (queue.hosts >= 0)
        going = ranked[(goes_on & (C.gpus[rows.column] > 0))[ranked]]
        if not len(going):
            return going
        # Between rounds nobody moves: if only jobs that ran are seated, they fit as they did.
        somebody_came = (
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
            ran_together=not somebody_came,
        )
        return going[stays]

    def _held_now(self, queue: RowQueue, going: IntArray) -> tuple[IntArray, IntArray]:
        """GPUs (by their numbers) that rows which go on hold now, row by row, and how many each."""
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
            Rows that go on, and rows that start.
        occupied : Occupied
            What had GPUs before these rows.
        """
        rows = queue.rows
        on = Occupied.of_numbers(self.classes, rows, going, *self._gpus.gpus(going))
        barred = self._barred_nodes(rows, new)
        result = place_beside(
            self.classes, rows, new, occupied.and_also(on), self.constraints, barred=barred
        )
        self._refuse(rows, result.refused)
        self._gpus.give(result.row, result.gpu, result.count)

    # --- rows for which room is made one by one -------------------------------------------

    def _make_room_in_turn(self, queue: RowQueue, refused: IntArray) -> None:
        """Make room for rows that found none, as long as there are attempts left."""
        some = refused[: self.attempts]
        self.attempts -= len(some)
        occupants = self._occupants(queue, some)
        hopeless: set[tuple[Any, ...]] = set()
        for row in some.tolist():
            # A row alike failed before it in the order: fewer rows may stop for this one.
            if hopeless and self._alike(queue, row) in hopeless:
                continue
            if self._make_room(queue, occupants, row):
                hopeless.clear()
            else:
                hopeless.add(self._alike(queue, row))

    def _make_room(self, queue: RowQueue, occupants: Occupants, row: int) -> bool:
        """Seat a row that found no room, if others can go elsewhere or make way for it."""
        movable = ((self._gpus.count > 0) & occupants.movable).nonzero()[0]
        may_go = victims(occupants.position, row, movable)
        # A starved job goes before all that can be stopped, whatever `max_moves` says.
        most = np.inf if queue.starved[row] else self.preemptions_left
        change = occupants.make_room(row, may_go, most)
        if change is None:
            return False
        self._somebody_left()
        gone = [*change.gpus, *change.out]
        self.spend(int(occupants.running[gone].sum()))
        occupants.running[gone] = 0
        self._staying[gone] = False
        name = self.instance.jobs_table.names[int(queue.rows.job[row])]
        why = f"GPUs that it needs go to job {name} before it"
        self._refuse(queue.rows, [RefusedRow(other, why, False) for other in change.out])
        return True

    def _occupants(self, queue: RowQueue, wanted: IntArray) -> Occupants:
        """The rows that are seated, and which of them may leave their GPUs for those wanted."""
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
            barred=lambda some: self._barred_nodes(rows, some),
            wanted=wanted,
        )

    def _refuse(self, rows: JobRows, refused: Sequence[RefusedRow]) -> None:
        """Remember why the jobs of some rows have no GPUs; the first reason of a job counts."""
        some = [item.row for item in refused]
        both = zip(rows.job[some].tolist(), rows.partner[some].tolist(), strict=True)
        for jobs, item in zip(both, refused, strict=True):
            for job in jobs:
                if job >= 0:
                    self.refused.setdefault(job, item.reason)

    def _seat_longest_starved(self, queue: RowQueue, left: RowQueue, tried: BoolArray) -> RowQueue:
        """Seat the job that has starved longest of those that can have room, if it has none yet."""
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
                if self._make_room(queue, occupants, row):
                    tried[row] = True
                    return self._beside(queue, left.order, tried)
                hopeless.add(alike)
        return left

    def _alike(self, queue: RowQueue, row: int) -> tuple[Any, ...]:
        """What room for a row depends on, beside its position: equal for rows that need the same."""
        rows = queue.rows
        configuration = int(self.classes.configuration[rows.column[row]])
        needs = needs_per_gpu(self.classes, rows.column[[row]])
        # Reservations bar nodes to single jobs that cannot be preempted.
        firm = either(rows, ~self.instance.jobs_table.preemptible, np.array([row]))
        job = int(rows.job[row]) if firm.any() else -1
        amounts = tuple(part.tobytes() for part in needs)
        return configuration, amounts, bool(queue.starved[row]), job, self._apart(rows, row)

    # --- what has GPUs, and what may not have them ----------------------------------------

    def _occupied(self, rows: JobRows) -> Occupied:
        """All that has GPUs; the rows are those of the queue that is being seated."""
        seated = self._gpus.with_gpus
        if not len(seated):
            return self._earlier
        if self._all_occupied is None or self._all_occupied[0] != self._gpus.changes:
            mine = Occupied.of_numbers(self.classes, rows, seated, *self._gpus.gpus(seated))
            self._all_occupied = self._gpus.changes, self._earlier.and_also(mine)
        return self._all_occupied[1]

    def _apart(self, rows: JobRows, row: int) -> tuple[int, ...]:
        """Anti-affinity sets of a row's jobs."""
        names = self.instance.jobs_table.names
        mine = {names[job] for job in (int(rows.job[row]), int(rows.partner[row])) if job >= 0}
        sets = [item["jobs"] for item in self.constraints if item.get("kind") == ANTI_AFFINITY]
        return tuple(number for number, jobs in enumerate(sets) if mine.intersection(jobs))

    def _barred_nodes(self, rows: JobRows, wanted: IntArray) -> list[Collection[str]] | None:
        """Nodes on which each row must not start: it could not be stopped when they are reserved.

        None where that is so for no row.
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
