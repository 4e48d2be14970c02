"""GPUs for the rows that run in a round: who goes on keeps its own, who starts gets what is free or can be cleared."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray, gathered
from optsched.candidates import Classes, JobRows
from optsched.instance import Instance
from optsched.placement.beside import moving, place_beside
from optsched.placement.keeping import FULL, Keeping
from optsched.placement.plain import Movable
from optsched.placement.requests import ANTI_AFFINITY
from optsched.placement.standing import Standing
from optsched.rounds.room import Held, Room
from optsched.rounds.rows import concatenate, no_rows, take
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
    most_moved : int, optional
        Running jobs that may be stopped or moved, at most; what is done is taken from it.
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
    most_moved: int | None
    may_move: bool = True
    attempts: int = ATTEMPTS
    seats: Seats = field(default_factory=Seats.none)
    refused: dict[int, str] = field(default_factory=dict)
    _on: Held = field(
        default_factory=dict
    )  # GPUs of the rows of the claims that are being run through
    _stays: set[int] = field(default_factory=set)  # those of them whose jobs go on where they are

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
        left = (
            self._run_strictly(claims, most_displaced)
            if strict
            else self._run(claims, most_displaced)
        )
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

    def _may_displace(
        self, most: int | None, first: Claims, claims: Claims, chosen: IntArray
    ) -> None:
        """Reckon how many running jobs may still be stopped or moved beside those that the chosen rows displace."""
        if most is not None:
            gone = self._displaced(first, claims) + int(displaced(claims, chosen).sum())
            self.most_moved = max(most - gone, 0)

    def _displaced(self, first: Claims, left: Claims) -> int:
        """Jobs that could go on, and have been moved, or have no row left in which they could."""
        rows, jobs = first.rows, len(first.busy)
        able, stays = (
            first.order[first.continues[first.order]],
            np.array(sorted(self._stays), np.int64),
        )
        open = left.order[left.continues[left.order]]
        could, stay, may = np.zeros((3, jobs + 1), bool)
        for mask, some in ((could, able), (stay, stays), (may, open)):
            mask[rows.job[some]] = mask[rows.partner[some]] = True
        stay[:-1] |= self.must
        may[:-1] &= ~left.busy
        return int((could & ~stay & ~may)[:-1][~first.busy].sum())

    def _without_hopeless(self, claims: Claims, refused: IntArray) -> Claims:
        """Claims without those that ask for no less than one that was refused, in the same pool and way."""
        C, column = self.classes, claims.rows.column
        way = C.configuration[column]
        kind = C.candidates.kinds.of_job[claims.rows.job]
        need = C.candidates.kinds.workload[kind]
        fewest: dict[tuple[int, int, int], int] = {}
        for row in refused.tolist():
            key = (int(C.pool[column[row]]), int(C.configurations.nodes[way[row]]), int(need[row]))
            fewest[key] = min(fewest.get(key, MANY), int(C.gpus[column[row]]))
        hopeless = np.zeros(len(column), bool)
        for (pool, nodes, workload), gpus in fewest.items():
            same = (
                (C.pool[column] == pool)
                & (C.configurations.nodes[way] == nodes)
                & (need == workload)
            )
            hopeless |= (
                same & (C.gpus[column] >= gpus) & ~claims.continues & (claims.rows.partner < 0)
            )
        return replace(claims, order=claims.order[~hopeless[claims.order]])

    def _run_strictly(self, claims: Claims, most_displaced: int | None) -> Claims:
        """The rows before the first job that has no room, in any of its rows.

        What is refused is taken out, and all is seated anew: rows behind it were seated as if it ran.
        """
        told, most_moved = self.refused, self.most_moved
        while True:
            self._on, self._stays, self.refused = {}, set(), dict(told)
            chosen = before_blocked(claims, select(claims, most_displaced))
            self._may_displace(most_moved, claims, claims, chosen)
            ranked = claims.order[np.isin(claims.order, chosen)]
            self._seat(claims, ranked)
            refused = [row for row in ranked.tolist() if row not in self._on]
            if not refused:
                return claims.beside(chosen, chosen)
            job = int(claims.rows.job[refused[0]])
            told.setdefault(job, self.refused[job])
            at = int(np.flatnonzero(claims.order == refused[0])[0])
            left = np.delete(claims.order, at)
            claims = replace(
                claims, order=left if (claims.rows.job[left] == job).any() else left[:at]
            )

    def _seat(self, claims: Claims, ranked: IntArray) -> None:
        """Seat rows, the most important first: all that can be, though others may have to go for them."""
        held = self._held_by(claims, ranked)
        bare = ranked[claims.classes.gpus[claims.rows.column[ranked]] == 0]
        stands, seatless = np.zeros((2, len(claims.rows)), bool)
        stands[_numbers(held)] = seatless[bare] = True
        new, going = ranked[~(stands | seatless)[ranked]], ranked[stands[ranked]]
        if self.most_moved is not None:  # others have the GPUs of these already
            elsewhere = new[claims.continues[new]]
            jobs = len(elsewhere) + int((claims.rows.partner[elsewhere] >= 0).sum())
            self.most_moved = max(self.most_moved - jobs, 0)
        moved = self._placed(claims, going, new, held) if len(new) else {}
        stands[_numbers(moved)] = True
        order = np.concatenate([going, bare, new[stands[new]]])
        self._on |= {**dict.fromkeys(order.tolist(), ()), **held, **moved}
        stands[_numbers(moved)] = False
        stands[bare] = True
        self._stays.update(np.flatnonzero(stands & claims.continues).tolist())
        for row in new.tolist():
            if row not in self._on and self.attempts:
                self.attempts -= 1
                self._make_room(claims, row)

    def _make_room(self, claims: Claims, row: int) -> bool:
        """Seat a row that found no room, if others can go elsewhere or make way for it."""
        rows = claims.rows
        place = np.empty(len(rows), np.int64)
        place[claims.order] = np.arange(len(claims.order))
        stuck = claims.held | self.must[rows.job] | gathered(self.must, rows.partner, False)
        running, stays = np.zeros(len(rows), np.int64), np.array(sorted(self._stays), np.int64)
        running[stays] = 1 + (rows.partner[stays] >= 0)
        held = {other: gpus for other, gpus in self._on.items() if gpus}
        room = Room(
            self.classes, rows, self.constraints, self._earlier(), held, stuck, place, running,
            lambda wanted: self._bars(rows, wanted),
        )  # fmt: skip
        change = room.made_for(row, np.inf if claims.urgent[row] else _most(self.most_moved))
        if change is None:
            return False
        gone = [other for other in (*change.gpus, *change.out) if other in self._stays]
        if self.most_moved is not None:
            self.most_moved = max(self.most_moved - int(running[gone].sum()), 0)
        self._stays.difference_update(gone)
        self._on |= change.gpus
        for other in change.out:
            del self._on[other]
            words = f"GPUs that it needs go to job {self.instance.jobs_table.names[int(rows.job[row])]} before it"
            for job in (int(rows.job[other]), int(rows.partner[other])):
                if job >= 0:
                    self.refused.setdefault(job, words)
        return True

    def _longest_starved(self, first: Claims, claims: Claims, tried: BoolArray) -> Claims:
        """Seat the job that has starved longest of those that can have room at all, if it is not seated."""
        rows = first.rows
        waits = first.order[first.urgent[first.order]]
        seated = np.append(first.busy, False)
        on = np.array(list(self._on), np.int64)
        seated[rows.job[on]] = seated[rows.partner[on]] = True
        seated[-1] = False
        hopeless: set[tuple[int, ...]] = set()
        for job in dict.fromkeys(rows.job[waits].tolist()):
            if seated[job]:
                break
            for row in waits[rows.job[waits] == job].tolist():
                if (
                    seated[rows.partner[row]]
                    or not first.classes.gpus[rows.column[row]]
                    or claims.over_limits[row]
                ):
                    continue
                alone = (
                    -1 if self.instance.jobs_table.preemptible[job] else job
                )  # reservations bar nodes to it
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
            self.most_moved = None if self.most_moved is None else self.most_moved - len(moved)
        for row, reason in refused.items():
            self.refused.setdefault(int(rows.job[row]), reason)
            if rows.partner[row] >= 0:
                self.refused.setdefault(int(rows.partner[row]), reason)
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
        firm = self.must[rows.job[going]] | gathered(self.must, rows.partner[going], False)
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
        result = (
            None if anti else moving(C, rows, scattered, standing, movable, _most(self.most_moved))
        )
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
        firm = ~table.preemptible[rows.job[wanted]] | gathered(
            ~table.preemptible, rows.partner[wanted], False
        )
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


def _most(limit: int | None) -> float:
    return np.inf if limit is None else limit
