"""`Placement`: which GPUs on which nodes each row of an allocation holds while it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optsched.arrays import FloatArray, IntArray
from optsched.candidates import JobRows
from optsched.display import DisplayedTable, TableColumns, columns_of, count
from optsched.instance.tables import JobNames


@dataclass(frozen=True, repr=False)
class Placement(DisplayedTable):
    """GPUs of the rows that run at one time.

    Attributes
    ----------
    rows : JobRows
        The rows of the allocation (`Allocation.rows`).
    row : IntArray, shape (P,)
        Which of them are placed.
    gpus : tuple of tuples of str, length P
        GPUs of each, written ``node/index``.
    granted : FloatArray or None, shape (P,)
        Share of each of its GPUs that each may use while others leave them idle; None where no
        option states a limit above its share.
    refused : tuple of (int, str)
        Rows that found no place, each with the reason.
    figures : mapping of str to float
        What the placement is worth: ``rows_wanted``, ``rows_placed`` and ``rows_bound``,
        ``nodes_spanned`` and ``nodes_bound``, ``bandwidth`` (GB/s), ``gpus_moved``, and ``exact``:
        1 where no placement is better.
    contradicted : tuple of (int, str)
        Jobs that run and cannot be preempted, but that the rows do not let run on where they are,
        each with the reason. They keep their GPUs all the same.
    names : sequence of str
        Names of the jobs, in the order of the job table.
    """

    rows: JobRows
    row: IntArray
    gpus: tuple[tuple[str, ...], ...]
    granted: FloatArray | None = None
    refused: tuple[tuple[int, str], ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    contradicted: tuple[tuple[int, str], ...] = ()
    names: Sequence[str] | JobNames = ()

    def __len__(self) -> int:
        return len(self.row)

    def to_records(self) -> list[dict[str, Any]]:
        """One record per row that is placed or refused, in the order of the rows,
        as in the solution format.

        Returns
        -------
        list of dict
        """
        names = self.names
        entries: dict[int, dict[str, Any]] = {
            int(row): {"gpus": list(gpus)} for row, gpus in zip(self.row, self.gpus, strict=True)
        }
        if self.granted is not None:
            for row, share in zip(self.row.tolist(), self.granted.tolist(), strict=True):
                entries[row]["granted"] = share
        entries |= {row: {"gpus": [], "reason": reason} for row, reason in self.refused}
        records = []
        for row, entry in sorted(entries.items()):
            job, partner = names[int(self.rows.job[row])], int(self.rows.partner[row])
            record: dict[str, Any] = {"row": row}
            record |= {"job": job} if partner < 0 else {"jobs": [job, names[partner]]}
            records.append(record | entry)
        return records

    def _headline(self) -> str:
        return f"{count(len(self), 'row')} placed, {len(self.refused):,} refused"

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The rows of the allocation:
        number and job (or jobs), then the GPUs, or why there are none.
        """
        return columns_of(self.to_records()[:first])
