"""GPUs for the rows that run in a round: who goes on keeps its own, who starts gets what is free."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.instance import Instance
from optsched.placement.beside import place_beside
from optsched.placement.standing import Standing
from optsched.rounds.selection import Claims, before_blocked, joined, select, taken
from optsched.rounds.state import Reservation

FULL = 1.0 + 1e-9


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
        while len(chosen):
            ranked = claims.order[np.isin(claims.order, chosen)]
            placed = self._seat(claims, ranked)
            claims = claims.beside(chosen, placed)
            if len(placed) == len(chosen):
                break
            chosen = select(claims, most_displaced)
        return claims

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
        seated = Standing.of_rows(
            self.classes, self.seats.rows, *_with_gpus(self.seats)
        ).and_also(self.fixed)  # fmt: skip
        going_on = Standing.of_rows(self.classes, rows, going, [held[row] for row in going.tolist()])
        bars = self._bars(rows, new)
        result = place_beside(self.classes, rows, new, seated.and_also(going_on), documents, barred=bars)
        found = dict(zip(result.row.tolist(), result.gpus, strict=True))
        if any(item.scattered for item in result.refused) and self.most_moved != 0:
            firm = self.must[rows.job[going]] | _at(self.must, rows.partner[going])
            fixed = Standing.of_rows(self.classes, rows, going[firm], [held[row] for row in going[firm].tolist()])
            wanted = np.concatenate([going[~firm], new])
            bars = self._bars(rows, wanted)
            again = place_beside(self.classes, rows, wanted, seated.and_also(fixed), documents, barred=bars)
            other = dict(zip(again.row.tolist(), again.gpus, strict=True))
            moves = [row for row in going[~firm].tolist() if other.get(row) != held[row]]
            lost = [row for row in moves if row not in other]
            if not lost and len(other) > len(found) + (~firm).sum() and len(moves) <= _most(self.most_moved):
                result = again
                found = {row: gpus for row, gpus in other.items() if row not in held or gpus != held[row]}
                self.most_moved = None if self.most_moved is None else self.most_moved - len(moves)
        for item in result.refused:
            self.refused.setdefault(int(rows.job[item.row]), item.reason)
            if rows.partner[item.row] >= 0:
                self.refused.setdefault(int(rows.partner[item.row]), item.reason)
        return found

    def _held_by(self, claims: Claims, ranked: IntArray) -> dict[int, tuple[str, ...]]:
        """GPUs of the rows that can go on where they are, beside those before them in the order."""
        running, rows, C = self.instance.jobs_table.running, claims.rows, claims.classes
        going = ranked[claims.continues[ranked] & (C.gpus[rows.column[ranked]] > 0)]
        share = C.configurations.share[C.configuration[rows.column[going]]]
        load = self._load()
        held = {}
        for row, job, part in zip(going.tolist(), rows.job[going].tolist(), share.tolist(), strict=True):
            gpus = running[job][1]
            if all(load.get(gpu, 0.0) + part <= FULL for gpu in gpus):
                for gpu in gpus:
                    load[gpu] = load.get(gpu, 0.0) + part
                held[row] = gpus
        return held

    def _load(self) -> dict[str, float]:
        """Share of each GPU that is given away."""
        share = self.classes.configurations.share[self.classes.configuration[self.seats.rows.column]]
        load: dict[str, float] = {}
        for gpus, part in zip(self.seats.gpus, share.tolist(), strict=True):
            for gpu in gpus:
                load[gpu] = load.get(gpu, 0.0) + part
        return load

    def _bars(self, rows: JobRows, wanted: IntArray) -> list[Collection[str]] | None:
        """Nodes on which each row must not start, as it could not be stopped before they are reserved."""
        table, now = self.instance.jobs_table, self.instance.now
        later = [item for item in self.reservations if item.end > now]
        firm = ~table.preemptible[rows.job[wanted]] | _at(~table.preemptible, rows.partner[wanted])
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


def _at(mask: BoolArray, index: IntArray) -> BoolArray:
    return np.asarray(np.where(index >= 0, mask[index], False))


def _most(limit: int | None) -> float:
    return np.inf if limit is None else limit
