"""`Rounds`: an allocation of fractions of time cut into slices in which whole jobs run side by side."""

from __future__ import annotations

from dataclasses import dataclass

import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.candidates import JobRows


@dataclass(frozen=True)
class Rounds:
    """Slices of a window, one after the other; in each a set of rows of the allocation runs.

    Attributes
    ----------
    rows : JobRows
        The rows of the allocation (`Allocation.rows`).
    length : FloatArray, shape (S,)
        Length of each slice as a share of the window; they add up to at most 1.
    runs : csr_matrix of 0/1, shape (S, rows)
        Which rows run in each slice.
    scale : float
        The largest share of every row's fraction that the slices were made for: 1 where the allocation is realised.
    bound : float
        No slices realise a larger share than this (1 at most).
    """

    rows: JobRows
    length: FloatArray
    runs: sp.csr_matrix
    scale: float
    bound: float

    def __len__(self) -> int:
        return len(self.length)
