"""GPUs for the rows that run in a round: who goes on keeps its own, who starts gets what is free."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, IntArray, gathered
from optsched.candidates import Classes, JobRows
from optsched.instance import Instance
from optsched.placement.beside import moving, place_beside
from optsched.placement.needs import needs_per_gpu
from optsched.placement.plain import Movable
from optsched.placement.requests import ANTI_AFFINITY
from optsched.placement.standing import Standing
from optsched.rounds.keeping import FULL, Keeping
from optsched.rounds.selection import Claims, before_blocked, displaced, joined, select, taken
from optsched.rounds.state import Reservation

MANY = 2**62


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
        """Nobody runs."""
        nobody, nothing = np.zeros(0, np.int64), np.zeros(0)
        return cls(JobRows(nobody, nobody, nobody, nothing, nothing, nothing), (), np.zeros(0, bool))

    def __len__(self) -> int:
        return len(self.gpus)

    def and_also(self, other: Seats) -> Seats:
        """These and others."""
        return Seats(
            joined(self.rows, other.rows), self.gpus + other.gpus, np.concatenate([self.stays, other.stays])
        )  # fmt: skip


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
        Jobs that may be moved to make room, at most.
    may_move : bool
        Whether jobs that run may still be moved to make room in this round: it is tried once.
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
    seats: Seats = field(default_factory=Seats.none)
    refused: dict[int, str] = field(default_factory=dict)

    def run_through(self, claims: Claims, most_displaced: int | None = None, strict: bool = False) -> Claims:
        """Give GPUs to the rows of claims that fit; what is refused makes way for the next in the order.

        With ``strict`` the first job that has no room keeps all jobs behind it waiting.

        Returns
        -------
        Claims
            What is left of them: no row of it that fits the resources could be placed.
        """
        if strict:
            return self._run_strictly(claims, most_displaced)
        chosen = select(claims, most_displaced)
        if self.most_moved is not None:  # what is displaced counts as well
            self.most_moved = max(self.most_moved - int(displaced(claims, chosen).sum()), 0)
        while len(chosen):
            ranked = claims.order[np.isin(claims.order, chosen)]
            placed = self._seat(claims, ranked)
            claims = claims.beside(chosen, placed)
            if len(placed) == len(chosen):
                break
            claims = self._without_hopeless(claims, np.setdiff1d(chosen, placed))
            chosen = select(claims, most_displaced)
        return claims

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
            same = (C.pool[column] == pool) & (C.configurations.nodes[way] == nodes) & (need == workload)
            hopeless |= same & (C.gpus[column] >= gpus) & ~claims.continues & (claims.rows.partner < 0)
        return replace(claims, order=claims.order[~hopeless[claims.order]])

    def _run_strictly(self, claims: Claims, most_displaced: int | None) -> Claims:
        """The rows before the first job that has no room, in any of its rows.

        What is refused is taken out, and all is seated anew: rows behind it were seated as if it ran.
        """
        before, told, most_moved = self.seats, self.refused, self.most_moved
        while True:
            self.seats, self.most_moved, self.refused = before, most_moved, dict(told)
            chosen = before_blocked(claims, select(claims, most_displaced))
            ranked = claims.order[np.isin(claims.order, chosen)]
            placed = self._seat(claims, ranked)
            refused = ranked[~np.isin(ranked, placed)]
            if not len(refused):
                return claims.beside(chosen, placed)
            job = int(claims.rows.job[refused[0]])
            told.setdefault(job, self.refused[job])
            at = int(np.flatnonzero(claims.order == refused[0])[0])
            left = np.delete(claims.order, at)
            claims = replace(claims, order=left if (claims.rows.job[left] == job).any() else left[:at])

    def _seat(self, claims: Claims, ranked: IntArray) -> IntArray:
        """Seat rows, the most important first; returns those that have got GPUs (or need none)."""
        held = self._held_by(claims, ranked)
        bare = ranked[claims.classes.gpus[claims.rows.column[ranked]] == 0]
        new = np.array([row for row in ranked.tolist() if row not in held and row not in set(bare.tolist())], np.int64)
        going = np.array([row for row in ranked.tolist() if row in held], np.int64)
        moved: dict[int, tuple[str, ...]] = {}
        if len(new):
            moved = self._placed(claims, going, new, held)
        order = np.concatenate([going, bare, new[[row in moved for row in new.tolist()]] if len(new) else new])
        gpus = tuple(moved.get(row, held.get(row, ())) for row in order.tolist())
        stays = np.array([row in held and row not in moved for row in order.tolist()], bool)
        stays[len(going) : len(going) + len(bare)] = claims.continues[bare]
        self.seats = self.seats.and_also(Seats(taken(claims.rows, order), gpus, stays))
        return order

    def _placed(
        self, claims: Claims, going: IntArray, new: IntArray, held: Mapping[int, tuple[str, ...]]
    ) -> dict[int, tuple[str, ...]]:
        """GPUs of rows that start, and of rows that have to move for them."""
        rows, documents = claims.rows, self.constraints
        standing = self._seated()
        if len(going):
            gpus = [held[row] for row in going.tolist()]
            standing = standing.and_also(Standing.of_rows(self.classes, rows, going, gpus))
        bars = self._bars(rows, new)
        result = place_beside(self.classes, rows, new, standing, documents, barred=bars)
        found = dict(zip(result.row.tolist(), result.gpus, strict=True))
        scattered = np.array([item.row for item in result.refused if item.scattered], np.int64)
        refused = {item.row: item.reason for item in result.refused}
        if self.may_move and self.most_moved != 0 and len(scattered):
            self.may_move = False
            beside = Standing.of_rows(self.classes, rows, result.row, result.gpus)
            placed, moved = self._moved(claims, going, scattered, held, standing.and_also(beside))
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
        held: Mapping[int, tuple[str, ...]],
        standing: Standing,
    ) -> tuple[dict[int, tuple[str, ...]], dict[int, tuple[str, ...]]]:
        """GPUs of rows that find room once others move, and of those that move for them."""
        rows, C = claims.rows, self.classes
        firm = self.must[rows.job[going]] | gathered(self.must, rows.partner[going], False)
        free = going[~firm & np.isin(C.pool[rows.column[going]], C.pool[rows.column[scattered]])]
        needs, group_needs = needs_per_gpu(C, rows.column[free])
        whole = C.configurations.share[C.configuration[rows.column[free]]] == 1.0
        free = free[whole & ~needs.any(axis=1) & ~group_needs.any(axis=1)]
        number = self.instance.cluster.numbering.by_name
        movable, owner = [], []
        for row in free.tolist():
            nodes = {gpu.rpartition("/")[0] for gpu in held[row]}
            if len(nodes) == 1:
                movable.append(Movable(int(C.pool[rows.column[row]]), number[nodes.pop()], held[row]))
                owner.append(row)
        anti = any(item.get("kind") == ANTI_AFFINITY for item in self.constraints)
        result = None if anti else moving(C, rows, scattered, standing, movable, _most(self.most_moved))
        if result is None:
            return {}, {}
        return result[0], {owner[number]: gpus for number, gpus in result[1].items()}

    def _held_by(self, claims: Claims, ranked: IntArray) -> dict[int, tuple[str, ...]]:
        """GPUs of the rows that can go on where they are, beside those before them in the order."""
        running, rows, C = self.instance.jobs_table.running, claims.rows, claims.classes
        going = ranked[claims.continues[ranked] & (C.gpus[rows.column[ranked]] > 0)]
        if not len(going):
            return {}
        gpus = [running[job][1] for job in rows.job[going].tolist()]
        if len(self.fixed) or not self.seats.stays.all():
            return Keeping(C, self._seated(), self.constraints).keep(rows, going, gpus)
        return self._held_together(claims, going, gpus)

    def _held_together(
        self, claims: Claims, going: IntArray, gpus: Sequence[tuple[str, ...]]
    ) -> dict[int, tuple[str, ...]]:
        """The same where nothing is in the way that did not run beside them: only what shares GPUs anew is."""
        C, load, held = claims.classes, dict[str, float](), {}
        share = C.configurations.share[C.configuration[claims.rows.column[going]]]
        part_of = C.configurations.share[C.configuration[self.seats.rows.column]]
        for names, part in zip(self.seats.gpus, part_of.tolist(), strict=True):
            for gpu in names:
                load[gpu] = load.get(gpu, 0.0) + part
        for row, names, part in zip(going.tolist(), gpus, share.tolist(), strict=True):
            if all(load.get(gpu, 0.0) + part <= FULL for gpu in names):
                for gpu in names:
                    load[gpu] = load.get(gpu, 0.0) + part
                held[row] = names
        return held

    def _seated(self) -> Standing:
        """All that has places."""
        if not len(self.seats):
            return self.fixed
        return self.fixed.and_also(Standing.of_rows(self.classes, self.seats.rows, *_with_gpus(self.seats)))

    def _bars(self, rows: JobRows, wanted: IntArray) -> list[Collection[str]] | None:
        """Nodes on which each row must not start, as it could not be stopped before they are reserved."""
        table, now = self.instance.jobs_table, self.instance.now
        later = [item for item in self.reservations if item.end > now]
        firm = ~table.preemptible[rows.job[wanted]] | gathered(~table.preemptible, rows.partner[wanted], False)
        if not later or not firm.any():
            return None
        with np.errstate(divide="ignore"):
            lasts = table.steps_left[rows.job[wanted]] / rows.rate[wanted] + table.restart_cost[rows.job[wanted]]
        return [
            {name for item in later if item.start < now + seconds for name in item.nodes} if stays else ()
            for seconds, stays in zip(lasts.tolist(), firm.tolist(), strict=True)
        ]


def _with_gpus(seats: Seats) -> tuple[IntArray, list[tuple[str, ...]]]:
    rows = [row for row, gpus in enumerate(seats.gpus) if gpus]
    return np.array(rows, np.int64), [seats.gpus[row] for row in rows]


def _most(limit: int | None) -> float:
    return np.inf if limit is None else limit
