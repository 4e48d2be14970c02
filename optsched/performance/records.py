"""Predictions as records: one for each row of jobs, with all ways to run."""

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
    """What is known for one configurations table: a record for each distinct row of jobs.

    A record holds rates, log sds, feasibilities and sources of all ways together, so that a look-up
    copies one array: several of its size would be given back to the system after each call, and be
    made of new pages in the next.
    """

    def __init__(self, columns: int, rows: int = 0) -> None:
        self.table = np.zeros(rows, [(name, kind, (columns,)) for name, kind in FIELDS])
        self.known = np.zeros(rows, bool)

    def grow(self, rows: int) -> None:
        """Room for so many rows; at least twice as many as before."""
        more = rows - len(self.known)
        if more <= 0:
            return
        # Doubled, so that rows that come one by one cost a copy each only now and then.
        more = max(more, len(self.known))
        self.table = np.concatenate([self.table, np.zeros(more, self.table.dtype)])
        self.known = np.concatenate([self.known, np.zeros(more, bool)])

    def put(self, rows: IntArray, predicted: Prediction) -> None:
        """Remember the predictions of rows."""
        for name in ("rate", "log_sd", "feasible", "source"):
            self.table[name][rows] = getattr(predicted, name)
        self.known[rows] = True

    def take(self, rows: IntArray) -> Prediction:
        """All ways of the rows;
        ``np.take`` copies whole records several times as fast as an index does.
        """
        found = np.take(self.table, rows)
        return Prediction(found["rate"], found["log_sd"], found["feasible"], found["source"])

    def cells(self, rows: IntArray, columns: IntArray) -> Prediction:
        """One way of each row."""
        table = self.table
        where = (rows, columns)
        return Prediction(
            table["rate"][where],
            table["log_sd"][where],
            table["feasible"][where],
            table["source"][where],
        )
