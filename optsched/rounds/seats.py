"""`Seats`: rows that run in a round, each with its GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import BoolArray
from optsched.candidates import JobRows
from optsched.rounds.selection import joined


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
        return cls(
            JobRows(nobody, nobody, nobody, nothing, nothing, nothing), (), np.zeros(0, bool)
        )

    def __len__(self) -> int:
        return len(self.gpus)

    def and_also(self, other: Seats) -> Seats:
        """These and others."""
        return Seats(
            joined(self.rows, other.rows), self.gpus + other.gpus, np.concatenate([self.stays, other.stays])
        )  # fmt: skip
