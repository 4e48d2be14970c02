"""`Placement`: which GPUs on which nodes each row of an allocation holds while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from optsched.arrays import IntArray
from optsched.candidates import JobRows


@dataclass(frozen=True)
class Placement:
    """GPUs of the rows that run at one time.

    Attributes
    ----------
    rows : JobRows
        The rows of the allocation (`Allocation.rows`).
    row : IntArray, shape (P,)
        Which of them are placed.
    gpus : tuple of tuples of str, length P
        GPUs of each, written ``node/index``.
    refused : tuple of (int, str)
        Rows that found no place, each with the reason.
    figures : mapping of str to float
        What the placement is worth: nodes spanned, its bound, moves ...
    """

    rows: JobRows
    row: IntArray
    gpus: tuple[tuple[str, ...], ...]
    refused: tuple[tuple[int, str], ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.row)
