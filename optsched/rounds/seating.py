"""GPUs for the rows that run in a round: who goes on keeps its own, who starts gets what is free or can be cleared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.instance import Instance
from optsched.placement.beside import moving, place_beside
from optsched.placement.keeping import FULL, Keeping
from optsched.placement.plain import Movable
from optsched.placement.requests import ANTI_AFFINITY
from optsched.placement.standing import Standing
from optsched.rounds.room import Held, Room
from optsched.rounds.rows import concatenate, either, jobs_of, no_rows, take
from optsched.rounds.selection import Claims, before_blocked, displaced, select
from optsched.rounds.state import Reservation

MANY = 2**62
BARRED = "side constraints leave no room for it beside what runs"
ATTEMPTS = 8
"""Rows for which room is made one by one in a round; beyond these only the one that has starved longest gets it."""


@dataclass(frozen=True)
class Seats:
    """Rows that run, each with its GPUs.

    Attributes
    ----------
    rows : JobRows, P rows
    gpus : tuple of tuples of str, length P
        ``node/index``; empty for rows that run without GPUs.
    stays : BoolArray, shape (P,)
        Rows whose jobs go on where they are.
    """

    rows: JobRows
    gpus: tuple[tuple[str, ...], ...]
    stays: BoolArray

    @classmethod
    def none(cls) -> Seats:
        return cls(no_rows(), (), np.zeros(0, bool))

    def __len__(self) -> int:
        return len(self.gpus)

    def and_also(self, other: Seats) -> Seats:
        """These and others."""
        rows, stays = concatenate(self.rows, other.rows), [self.stays, other.stays]
        return Seats(rows, self.gpus + other.gpus, np.concatenate(stays))


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
    fixed : Standing
        What stands in no row: jobs that cannot be preempted, on nodes that take no more work.
    must : BoolArray, shape (jobs,)
        Jobs that cannot be preempted and run: they stay where they are.
    reservations : sequence of Reservation
        Of nodes on which jobs must not start that could not be stopped in time.
    most_moved : float
        Running jobs that may still be preempted or moved.
    may_move : bool
        Whether plain gangs may still be moved for others in this round: it is tried once.
    attempts : int
        Rows for which room may still be made in this round, one by one.
    seats : Seats
        What has GPUs.
    refused : dict of the row of a job to words
    """

    instance: Instance
    classes: Classes
    constraints: Sequence[Mapping[str, Any]]
    fixed: Standing
    must: BoolArray
    reservations: Sequence[Reservation]
    most_moved: float
    may_move: bool = True
    attempts: int = ATTEMPTS
    seats: Seats = field(default_factory=Seats.none)
    refused: dict[int, str] = field(default_factory=dict)
    # Of the claims that are being run through: GPUs of the rows that are seated, and those of these
    # rows whose jobs go on where they are.
    _on: Held = field(default_factory=dict)
    _stays: set[int] = field(default_factory=set)

    def run_through(
        self, claims: Claims, most_displaced: int | None = None, strict: bool = False
    ) -> Claims:
        """Give GPUs to the rows of claims that fit; what is refused makes way for the next in the order.

        With ``strict`` the first job that has no room keeps all jobs behind it waiting.

        Returns
        -------
        Claims
            What is left of them: no row of it that fits the resources could be placed.
        """
        self._on, self._stays = {}, set()
        run = self._run_strictly if strict else self._run
        left = run(claims, most_displaced)
        rows, stays = _numbers(self._on), np.zeros(len(claims.rows), bool)
        stays[_numbers(self._stays)] = True
        self.seats = self.seats.and_also(
            Seats(take(claims.rows, rows), tuple(self._on.values()), stays[rows])
        )
        for job in np.unique(left.rows.job[left.order[left.over_limits[left.order]]]).tolist():
            self.refused.setdefault(job, BARRED)
        return left

    def _run(self, claims: Claims, most_displaced: int | None) -> Claims:
        first, most, most_moved = claims, most_displaced, self.most_moved
        tried = np.zeros(len(claims.rows), bool)
        chosen = select(claims, most)
        while len(chosen):
            self._may_displace(most_moved, first, claims, chosen)
            before, mine = len(self._on), np.zeros(len(claims.rows), bool)
            mine[chosen] = True
            self._seat(first, claims.order[mine[claims.order]])
            tried[chosen] = True
            claims = self._beside(first, claims.order, tried)
            if len(self._on) == before + len(chosen):
                break
            mine[_numbers(self._on)] = False
            claims = self._without_hopeless(claims, np.flatnonzero(mine))
            if most_displaced is not None:
                most = max(most_displaced - self._displaced(first, claims), 0)
            chosen = select(claims, most)
        claims = self._longest_starved(first, claims, tried)
        self._may_displace(most_moved, first, claims, np.zeros(0, np.int64))
        return claims

    def _beside(self, first: Claims, order: IntArray, tried: BoolArray) -> Claims:
        """What is left of claims beside what has GPUs now."""
        return replace(first, order=order).beside(np.flatnonzero(tried), _numbers(self._on))

    def _may_displace(self, most: float, first: Claims, claims: Claims, chosen: IntArray) -> None:
        """Set how many running jobs may be preempted or moved besides those already displaced.

        Parameters
        ----------
        most : float
            Before any row was seated.
        first, claims : Claims
            All claims, and what is left of them.
        chosen : IntArray
            Rows that are seated next.
        """
        if not np.isinf(most):
            gone = self._displaced(first, claims) + int(displaced(claims, chosen).sum())
            self.most_moved = max(most - gone, 0)

    def _spend(self, moved: int) -> None:
        """Running jobs were preempted or moved."""
        self.most_moved = max(self.most_moved - moved, 0)

    def _displaced(self, first: Claims, left: Claims) -> int:
        """Jobs that could go on, and have been moved, or have no row left in which they could."""
        rows, jobs = first.rows, len(first.busy)

        def continuing(order: IntArray) -> BoolArray:
            return jobs_of(rows, order[first.continues[order]], jobs)

        seated = jobs_of(rows, np.array(sorted(self._stays), np.int64), jobs)
        still_can = continuing(left.order) & ~left.busy
        displaced_jobs = continuing(first.order) & ~(seated | self.must) & ~still_can
        return int((displaced_jobs & ~first.busy).sum())

    def _without_hopeless(self, claims: Claims, refused: IntArray) -> Claims:
        """Claims without those that need no less than one that was refused.

        Such a row is in the same pool, on as many nodes, of the same workload, and has no fewer
        GPUs. Rows that go on, and pairs, may find room all the same.
        """
        C, column = self.classes, claims.rows.column
        pool, gpus = C.pool[column], C.gpus[column]
        nodes = C.configurations.nodes[C.configuration[column]]
        kinds = C.candidates.kinds
        workload = kinds.workload[kinds.of_job[claims.rows.job]]
        fewest: dict[tuple[int, int, int], int] = {}
        for row in refused.tolist():
            key = (int(pool[row]), int(nodes[row]), int(workload[row]))
            fewest[key] = min(fewest.get(key, MANY), int(gpus[row]))
        hopeless = np.zeros(len(column), bool)
        for (one_pool, count, one), least in fewest.items():
            alike = (pool == one_pool) & (nodes == count) & (workload == one)
            hopeless |= alike & (gpus >= least)
        hopeless &= ~claims.continues & (claims.rows.partner < 0)
        return replace(claims, order=claims.order[~hopeless[claims.order]])

    def _run_strictly(self, claims: Claims, most_displaced: int | None) -> Claims:
        """The rows before the first job that has no room, in any of its rows.

        What is refused is taken out, and all is seated anew: rows behind it were seated as if it
        ran.
        """
        reasons, most_moved = self.refused, self.most_moved
        while True:
            self._on, self._stays, self.refused = {}, set(), dict(reasons)
            chosen = before_blocked(claims, select(claims, most_displaced))
            self._may_displace(most_moved, claims, claims, chosen)
            ranked = claims.order[np.isin(claims.order, chosen)]
            self._seat(claims, ranked)
            refused = [row for row in ranked.tolist() if row not in self._on]
            if not refused:
                return claims.beside(chosen, chosen)
            job = int(claims.rows.job[refused[0]])
            reasons.setdefault(job, self.refused[job])
            at = int(np.flatnonzero(claims.order == refused[0])[0])
            left = np.delete(claims.order, at)
            # Without a further row the job lets nobody pass.
            others = (claims.rows.job[left] == job).any()
            claims = replace(claims, order=left if others else left[:at])

    def _seat(self, claims: Claims, ranked: IntArray) -> None:
        """Seat as many rows as possible, the first in the order first.

        Rows that go on keep their GPUs, rows without GPUs need none, all others get free ones; for
        the first of these that find none, room is made.
        """
        held = self._held_by(claims, ranked)
        keeps, needs_none = np.zeros((2, len(claims.rows)), bool)
        keeps[_numbers(held)] = True
        bare = ranked[claims.classes.gpus[claims.rows.column[ranked]] == 0]
        needs_none[bare] = True
        new, going = ranked[~(keeps | needs_none)[ranked]], ranked[keeps[ranked]]
        # Others have the GPUs of rows that could have gone on.
        elsewhere = new[claims.continues[new]]
        self._spend(len(elsewhere) + int((claims.rows.partner[elsewhere] >= 0).sum()))
        placed = self._placed(claims, going, new, held) if len(new) else {}
        seated = [row for row in new.tolist() if row in placed]
        order = [*going.tolist(), *bare.tolist(), *seated]
        self._on |= {**dict.fromkeys(order, ()), **held, **placed}
        keeps[_numbers(placed)] = False  # rows that were moved for others
        keeps[bare] = True
        self._stays.update(np.flatnonzero(keeps & claims.continues).tolist())
        for row in new.tolist():
            if row not in self._on and self.attempts:
                self.attempts -= 1
                self._make_room(claims, row)

    def _make_room(self, claims: Claims, row: int) -> bool:
        """Seat a row that found no room, if others can go elsewhere or make way for it."""
        room = self._room(claims)
        change = room.made_for(row, np.inf if claims.urgent[row] else self.most_moved)
        if change is None:
            return False
        gone = [other for other in (*change.gpus, *change.out) if other in self._stays]
        self._spend(int(room.running[gone].sum()))
        self._stays.difference_update(gone)
        self._on |= change.gpus
        name = self.instance.jobs_table.names[int(claims.rows.job[row])]
        for other in change.out:
            del self._on[other]
            self._refuse(claims.rows, other, f"GPUs that it needs go to job {name} before it")
        return True

    def _room(self, claims: Claims) -> Room:
        """What is seated, and which rows may have to make way for which."""
        rows = claims.rows
        place = np.empty(len(rows), np.int64)
        place[claims.order] = np.arange(len(claims.order))
        running, stays = np.zeros(len(rows), np.int64), np.array(sorted(self._stays), np.int64)
        running[stays] = 1 + (rows.partner[stays] >= 0)
        return Room(
            self.classes,
            rows,
            self.constraints,
            self._earlier(),
            held={other: gpus for other, gpus in self._on.items() if gpus},
            stuck=claims.held | either(rows, self.must),
            place=place,
            running=running,
            barred=lambda wanted: self._bars(rows, wanted),
        )

    def _refuse(self, rows: JobRows, row: int, reason: str) -> None:
        """Remember why the jobs of a row have no GPUs; the first reason counts."""
        for job in (int(rows.job[row]), int(rows.partner[row])):
            if job >= 0:
                self.refused.setdefault(job, reason)

    def _longest_starved(self, first: Claims, claims: Claims, tried: BoolArray) -> Claims:
        """Seat the job that has starved longest of those that can have room at all, if it is not seated."""
        rows = first.rows
        waits = first.order[first.urgent[first.order]]
        on = jobs_of(rows, _numbers(self._on), len(first.busy))
        seated = np.append(first.busy | on, False)
        hopeless: set[tuple[int, ...]] = set()
        for job in dict.fromkeys(rows.job[waits].tolist()):
            if seated[job]:
                break
            for row in waits[rows.job[waits] == job].tolist():
                needs_gpus = first.classes.gpus[rows.column[row]] > 0
                if seated[rows.partner[row]] or not needs_gpus or claims.over_limits[row]:
                    continue
                # Rows alike have room or not alike; reservations bar nodes to single jobs.
                alone = -1 if self.instance.jobs_table.preemptible[job] else job
                key = (int(rows.column[row]), alone, *self._apart(rows, row))
                if key in hopeless:
                    continue
                if self._make_room(first, row):
                    tried[row] = True
                    return self._beside(first, claims.order, tried)
                hopeless.add(key)
        return claims

    def _placed(self, claims: Claims, going: IntArray, new: IntArray, held: Held) -> Held:
        """GPUs of rows that start, and of rows that have to move for them."""
        rows, documents = claims.rows, self.constraints
        table, numbering = self.instance.jobs_table, self.instance.cluster.numbering
        where = table.places.among(len(table))[claims.stands_with(going)]
        gpu, count = table.places.numbers_of(where, numbering), table.places.length[where]
        on = Standing.of_numbers(self.classes, rows, going, gpu, count)
        standing = self._seated(rows).and_also(on)
        bars = self._bars(rows, new)
        result = place_beside(self.classes, rows, new, standing, documents, barred=bars)
        found = dict(zip(result.row.tolist(), result.gpus, strict=True))
        scattered = np.array([item.row for item in result.refused if item.scattered], np.int64)
        refused = {item.row: item.reason for item in result.refused}
        if self.may_move and self.most_moved != 0 and len(scattered):
            self.may_move = False
            beside = Standing.of_rows(self.classes, rows, result.row, result.gpus)
            placed, moved = self._moved(
                claims, going, scattered, held, on, standing.and_also(beside)
            )
            found |= placed | moved
            refused = {row: reason for row, reason in refused.items() if row not in placed}
            self._spend(len(moved))
        for row, reason in refused.items():
            self._refuse(rows, row, reason)
        return found

    def _moved(
        self,
        claims: Claims,
        going: IntArray,
        scattered: IntArray,
        held: Held,
        on: Standing,
        standing: Standing,
    ) -> tuple[Held, Held]:
        """GPUs of rows that find room once others move, and of those that move for them.

        Only for plain gangs on nodes without anti-affinity, of which many are seated in one go. ``on`` is where the
        rows stand that are going on, ``standing`` is all that stands.
        """
        anti = any(item.get("kind") == ANTI_AFFINITY for item in self.constraints)
        rows, C = claims.rows, self.classes
        firm = either(rows, self.must, going)
        may = ~firm & np.isin(C.pool[rows.column[going]], C.pool[rows.column[scattered]])
        may &= (on.share == 1.0) & ~on.need.any(axis=1) & ~on.group_need.any(axis=1)
        may[on.owner[1:][(on.owner[1:] == on.owner[:-1]) & (on.node[1:] != on.node[:-1])]] = False
        free, node = np.flatnonzero(may), np.zeros(len(going), np.int64)
        node[on.owner] = on.node
        movable = Movable(
            C.pool[rows.column[going[free]]],
            node[free],
            [held[row] for row in going[free].tolist()],
        )
        result = None if anti else moving(C, rows, scattered, standing, movable, self.most_moved)
        if result is None:
            return {}, {}
        owner = going[free].tolist()
        return result[0], {owner[number]: gpus for number, gpus in result[1].items()}

    def _held_by(self, claims: Claims, ranked: IntArray) -> Held:
        """GPUs of the rows that can go on where they are, beside those before them in the order."""
        places, rows, C = self.instance.jobs_table.places, claims.rows, claims.classes
        host = claims.hosts
        going = ranked[
            (claims.continues[ranked] | (host[ranked] >= 0)) & (C.gpus[rows.column[ranked]] > 0)
        ]
        if not len(going):
            return {}
        stays = claims.stands_with(going)
        gpus = places.gpus(places.among(len(self.must))[stays])
        if (
            (host[going] >= 0).any()
            or len(self.fixed)
            or not self.seats.stays.all()
            or len(self._on) > len(self._stays)
        ):
            return Keeping(C, self._seated(rows), self.constraints).keep(
                rows, going, gpus, claims.held[going]
            )
        return self._held_together(claims, going, stays, gpus)

    def _held_together(
        self, claims: Claims, going: IntArray, stays: IntArray, gpus: Sequence[tuple[str, ...]]
    ) -> Held:
        """The same where nothing is in the way that did not run beside them: only what shares GPUs anew is."""
        C, load, held = claims.classes, dict[str, float](), {}
        share = C.configurations.share[C.configuration[claims.rows.column[going]]]
        if not len(self.seats) and not self._on and self._share_nothing(stays, share):
            return dict(zip(going.tolist(), gpus, strict=True))
        before = [(self.seats.rows.column, self.seats.gpus)]
        on = np.array(list(self._on), np.int64)
        before.append((claims.rows.column[on], tuple(self._on.values())))
        for column, seats in before:
            part_of = C.configurations.share[C.configuration[column]]
            for names, part in zip(seats, part_of.tolist(), strict=True):
                for gpu in names:
                    load[gpu] = load.get(gpu, 0.0) + part
        for row, names, part in zip(going.tolist(), gpus, share.tolist(), strict=True):
            if all(load.get(gpu, 0.0) + part <= FULL for gpu in names):
                for gpu in names:
                    load[gpu] = load.get(gpu, 0.0) + part
                held[row] = names
        return held

    def _share_nothing(self, jobs: IntArray, share: FloatArray) -> bool:
        """Whether running jobs with such shares of their GPUs all have room there beside each other."""
        table, numbering = self.instance.jobs_table, self.instance.cluster.numbering
        part = np.zeros(len(table))
        np.add.at(part, jobs, share)
        load = np.bincount(
            table.places.numbers(numbering), part[table.places.job[table.places.owner]]
        )
        return bool((load <= FULL).all())

    def _earlier(self) -> Standing:
        """What has places and is in none of the claims that are being run through."""
        if not len(self.seats):
            return self.fixed
        return self.fixed.and_also(
            Standing.of_rows(self.classes, self.seats.rows, *_with_gpus(self.seats))
        )

    def _seated(self, rows: JobRows) -> Standing:
        """All that has places."""
        held = {row: gpus for row, gpus in self._on.items() if gpus}
        if not held:
            return self._earlier()
        mine = Standing.of_rows(
            self.classes, rows, np.array(list(held), np.int64), list(held.values())
        )
        return self._earlier().and_also(mine)

    def _apart(self, rows: JobRows, row: int) -> tuple[int, ...]:
        """Anti-affinity sets of a row's jobs."""
        names = self.instance.jobs_table.names
        mine = {names[job] for job in (int(rows.job[row]), int(rows.partner[row])) if job >= 0}
        sets = [item["jobs"] for item in self.constraints if item.get("kind") == ANTI_AFFINITY]
        return tuple(number for number, jobs in enumerate(sets) if mine.intersection(jobs))

    def _bars(self, rows: JobRows, wanted: IntArray) -> list[Collection[str]] | None:
        """Nodes on which each row must not start, as it could not be stopped before they are reserved."""
        table, now = self.instance.jobs_table, self.instance.now
        later = [item for item in self.reservations if item.end > now]
        firm = either(rows, ~table.preemptible, wanted)
        if not later or not firm.any():
            return None
        with np.errstate(divide="ignore"):
            lasts = (
                table.steps_left[rows.job[wanted]] / rows.rate[wanted]
                + table.restart_cost[rows.job[wanted]]
            )
        return [
            {name for item in later if item.start < now + seconds for name in item.nodes}
            if stays
            else ()
            for seconds, stays in zip(lasts.tolist(), firm.tolist(), strict=True)
        ]


def _with_gpus(seats: Seats) -> tuple[IntArray, list[tuple[str, ...]]]:
    rows = [row for row, gpus in enumerate(seats.gpus) if gpus]
    return np.array(rows, np.int64), [seats.gpus[row] for row in rows]


def _numbers(rows: Iterable[int]) -> IntArray:
    return np.fromiter(rows, np.int64)
