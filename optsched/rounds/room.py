"""Room for a row that found none: others that stand on GPUs go elsewhere, or make way for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.candidates import Classes, JobRows
from optsched.placement.beside import place_beside
from optsched.placement.clearing import Clearing
from optsched.placement.needs import needs_per_gpu
from optsched.placement.standing import Standing

TRIES = 4
"""Sets of others that are tried for going elsewhere, before some make way."""

Held = dict[int, tuple[str, ...]]
"""GPUs by row."""


@dataclass(frozen=True)
class Change:
    """What is to change so that a row has room.

    Attributes
    ----------
    gpus : dict of row to GPUs
        Of the row, and of others that go elsewhere.
    out : tuple of int
        Rows that make way, and find no room elsewhere.
    """

    gpus: Held
    out: tuple[int, ...] = ()


@dataclass(frozen=True)
class Room:
    """What stands on GPUs while rows are seated, and who of it has to wait for whom.

    Attributes
    ----------
    classes : Classes
    rows : JobRows
    constraints : sequence of mappings
        Side constraints; those of kind ``anti-affinity`` are read.
    firm : Standing
        What stands in none of the rows.
    held : dict of row to GPUs
        The rows that stand.
    stuck : BoolArray, shape (A,)
        Rows that stay where they are.
    place : IntArray, shape (A,)
        Place of each row in the order: of two that cannot both stand the first stands.
    running : IntArray, shape (A,)
        Running jobs that would be stopped or moved with each row.
    barred : callable
        Nodes that rows must not have.
    """

    classes: Classes
    rows: JobRows
    constraints: Sequence[Mapping[str, Any]]
    firm: Standing
    held: Held
    stuck: BoolArray
    place: IntArray
    running: IntArray
    barred: Callable[[IntArray], list[Collection[str]] | None]

    def made_for(self, row: int, most: float) -> Change | None:
        """How a row gets room; None if it cannot, or not with so few running jobs that are stopped or moved.

        First everybody is to run on: those that stand on the nodes which lack fewest GPUs go elsewhere. If there is no
        room elsewhere, rows behind it in the order make way, as few and as late ones as can be; what finds room
        elsewhere after all goes there.
        """
        loose = self._loose(row)
        standing = self._beside(loose)
        bars = self.barred(np.array([row]))
        clearing = Clearing(
            self.classes, self.rows, row, standing, self._of(loose), self.constraints, bars[0] if bars else ()
        )  # fmt: skip
        place = self.place[loose]
        behind = np.argsort(-place, kind="stable")
        behind = behind[place[behind] > self.place[row]].astype(np.int64)
        order = clearing.nearest()
        for _ in range(TRIES if clearing.scattered else 0):
            gone = clearing.needed(order)
            if gone is None:
                break
            change = self._without(row, [loose[holder] for holder in gone.tolist()], most)
            if change is not None and not change.out:
                return change
            order = order[~np.isin(order, gone)]
        gone = clearing.needed(behind)
        return (
            None
            if gone is None
            else self._without(row, [loose[holder] for holder in gone.tolist()], most)
        )

    def _without(self, row: int, gone: list[int], most: float) -> Change | None:
        """Where a row and those that go for it get GPUs, the first in the order first."""
        if self.running[gone].sum() > most:
            return None
        standing = self._beside(gone)
        gpus: Held = {}
        for wanted in ([row], sorted(gone, key=lambda other: int(self.place[other]))):
            if wanted:
                some = np.array(wanted, np.int64)
                found = place_beside(
                    self.classes, self.rows, some, standing, self.constraints, barred=self.barred(some)
                )  # fmt: skip
                gpus |= zip(found.row.tolist(), found.gpus, strict=True)
                standing = standing.and_also(
                    Standing.of_rows(self.classes, self.rows, found.row, found.gpus)
                )
            if row not in gpus:
                return None
        return Change(gpus, tuple(other for other in gone if other not in gpus))

    def _loose(self, row: int) -> list[int]:
        """Rows that may go elsewhere, and whose GPUs or needs can be in the way of one."""
        C, rows = self.classes, np.array(list(self.held), np.int64)
        near = C.pool[self.rows.column[rows]] == C.pool[self.rows.column[row]]
        if needs_per_gpu(C, self.rows.column[[row]])[1].any():
            near |= needs_per_gpu(C, self.rows.column[rows])[1].any(axis=1)
        return [int(other) for other in rows[near & ~self.stuck[rows]]]

    def _beside(self, going: Sequence[int]) -> Standing:
        """What stands beside rows that go."""
        away = set(going)
        rows = [other for other in self.held if other not in away]
        return self.firm.and_also(self._of(rows)) if rows else self.firm

    def _of(self, rows: Sequence[int]) -> Standing:
        return Standing.of_rows(
            self.classes, self.rows, np.array(rows, np.int64), [self.held[row] for row in rows]
        )
