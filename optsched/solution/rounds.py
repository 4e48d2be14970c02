"""`Rounds`: an allocation of fractions of time cut into slices in
which whole jobs run side by side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.arrays.values import cached_property
from optsched.candidates import Classes, JobRows
from optsched.display import DisplayedTable, TableColumns, count, seconds
from optsched.display.picture import Picture
from optsched.lazy import convenience

WHOLE = 1e-9
"""Share of the window that is rounding."""


@dataclass(frozen=True, repr=False)
class Rounds(DisplayedTable):
    """Slices of a window, one after the other; in each a set of rows of the allocation runs.

    Attributes
    ----------
    classes : Classes
    rows : JobRows
        The rows of the allocation (`Allocation.rows`).
    length : FloatArray, shape (S,)
        Length of each slice as a share of the window; they add up to at most 1.
    runs : csr_matrix of 0/1, shape (S, rows)
        Which rows run in each slice.
    scale : float
        The largest share of every row's fraction that the slices were made for: 1 where the
        allocation is realised.
    bound : float
        No slices realise a larger share than this (1 at most).
    method : str
        How they were made: ``at-once``, ``open-shop``, ``patterns``, or ``priority``, whose slices
        are rounds and may give a row more than ``scale`` of its fraction.
    rounds : int
        Rounds that the window lasts.
    finished : bool
        False if a limit stopped the search, or if it ended without a proof, as it can where shares
        of GPUs have to be packed: ``scale`` may then be below ``bound`` though more can be
        realised.
    """

    classes: Classes
    rows: JobRows
    length: FloatArray
    runs: sp.csr_matrix
    scale: float
    bound: float
    method: str = "patterns"
    rounds: int = 1
    finished: bool = True

    def __len__(self) -> int:
        return len(self.length)

    @cached_property
    def received(self) -> FloatArray:
        """Share of the window in which each row runs, shape (rows,)."""
        return np.asarray(self.runs.T @ self.length, np.float64)

    @cached_property
    def switches(self) -> int:
        """How often a row starts that did not run in the slice before."""
        before = sp.vstack(
            [sp.csr_matrix((1, self.runs.shape[1]), dtype=self.runs.dtype), self.runs[:-1]]
        )
        return int(self.runs.sum() - self.runs.multiply(before).sum()) if len(self) else 0

    def stopped(self, jobs: BoolArray) -> IntArray:
        """Jobs that do not run in one row for the whole window.

        Parameters
        ----------
        jobs : BoolArray, shape (jobs,)
            Which jobs to look at.

        Returns
        -------
        IntArray
            Those of them that stop or change.
        """
        rows, whole = self.rows, self.received >= 1.0 - WHOLE
        runs = np.zeros(len(jobs) + 1, bool)
        # A job alone has partner -1, which marks the entry added at the end.
        runs[rows.job[whole]] = runs[rows.partner[whole]] = True
        return np.flatnonzero(jobs & ~runs[:-1])

    @property
    def window(self) -> float:
        """Seconds that the slices last together where they fill the window."""
        return self.rounds * self.classes.instance.round

    def to_record(self) -> dict[str, Any]:
        """The rounds as in the solution format."""
        duration = (self.length * self.window).tolist()
        return {
            "method": self.method,
            "window": self.window,
            "scale": self.scale,
            "bound": self.bound,
            "finished": self.finished,
            "slices": [
                {"duration": length, "run": self.running(number).tolist()}
                for number, length in enumerate(duration)
            ],
        }

    def running(self, number: int) -> IntArray:
        """Rows that run in a slice, ascending.

        Parameters
        ----------
        number : int
            Of the slice, from 0.

        Returns
        -------
        IntArray
            Numbers of rows.
        """
        part = self.runs.indices[self.runs.indptr[number] : self.runs.indptr[number + 1]]
        return np.sort(part).astype(np.int64)

    def plot(self) -> Picture:
        """What runs side by side in each slice, as a Gantt diagram.

        Raises
        ------
        UsageError
            If nothing runs.
        """
        return Picture(convenience("Rounds.plot")(self))

    def _headline(self) -> str:
        share = "" if self.scale >= 1.0 - WHOLE else f", {100 * self.scale:.3g} % of each fraction"
        slices, rows = count(len(self), "slice"), count(len(self.rows), "row")
        return f"of {self.classes.instance.name}: {slices} of {rows} by {self.method}{share}"

    def _facts(self) -> Mapping[str, str]:
        return {"window": seconds(self.window), "starts of rows": f"{self.switches:,}"}

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The slices: when each starts (seconds from the beginning of the window),
        its length, and who runs.
        """
        end = np.cumsum(self.length)[:first] * self.window
        lengths = self.length[:first] * self.window
        return {
            "start": np.maximum(end - lengths, 0.0).tolist(),
            "seconds": lengths.tolist(),
            "jobs": [self._jobs(number) for number in range(len(lengths))],
        }

    def _jobs(self, number: int) -> list[str]:
        """The jobs that run in a slice, each once, in the order of the rows."""
        rows = self.running(number)
        jobs = np.stack([self.rows.job[rows], self.rows.partner[rows]], axis=1).ravel()
        names = self.classes.instance.jobs_table.names
        return [names[job] for job in dict.fromkeys(jobs[jobs >= 0].tolist())]
