"""Predictions as records: one per row of jobs, with all ways to run."""

from __future__ import annotations

import numpy as np

from optsched.arrays import IntArray
from optsched.performance.protocol import Prediction

FIELDS = (
    ("rate", np.float64),
    ("log_sd", np.float64),
    ("feasible", np.uint8),
    ("source", np.uint8),
)


class Records:
    """Cached predictions for one configurations table: a record per distinct row of jobs.

    A record has rates, log sds, feasibilities and sources of all ways in one array, so that a
    lookup copies one array. Several large arrays would be returned to the system after each call
    and allocated as new pages in the next.
    """

    def __init__(self, columns: int, rows: int = 0) -> None:
        self.table = np.zeros(rows, [(name, kind, (columns,)) for name, kind in FIELDS])
        self.known = np.zeros(rows, bool)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` rows, and at least twice as many as before."""
        more = rows - len(self.known)
        if more <= 0:
            return
        # Double the size, so that rows that are added one by one cause few copies.
        more = max(more, len(self.known))
        self.table = np.concatenate([self.table, np.zeros(more, self.table.dtype)])
        self.known = np.concatenate([self.known, np.zeros(more, bool)])

    def put(self, rows: IntArray, predicted: Prediction) -> None:
        """Store the predictions of rows."""
        for (name, _), column in zip(FIELDS, predicted.arrays, strict=True):
            self.table[name][rows] = column
        self.known[rows] = True

    def take(self, rows: IntArray) -> Prediction:
        """All ways of the rows;
        ``np.take`` copies whole records several times as fast as an index does.
        """
        found = np.take(self.table, rows)
        return Prediction(*(found[name] for name, _ in FIELDS))

    def cells(self, rows: IntArray, columns: IntArray) -> Prediction:
        """One way of each row."""
        return Prediction(*(self.table[name][rows, columns] for name, _ in FIELDS))
