"""Best known objectives: from a table, else from library files, else the best of the sweep;
and how far each row is from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optsched.benchmarking.cells import text_of
from optsched.errors import InvalidInput
from optsched.formats.tables import Kind, read_table

Row = Mapping[str, Any]
PROVED = ("dual", "cross-checked")
"""Proofs that do not rest on a solver's word."""
WITH_POINT = ("optimal", "feasible")
"""Status of rows whose objective is that of a point that was checked."""
READ: dict[str, Kind] = {
    "instance": "text",
    "formulation": "text",
    "objective": "number",
    "source": "text",
}
"""Columns of a table of best known objectives."""

COLUMNS = ("best_known", "best_known_from", "gap_to_best")


@dataclass(frozen=True)
class BestKnown:
    """The best known objective of a problem.

    Attributes
    ----------
    objective : float
    source : str
        Of the user's table what its column ``source`` says, or ``table``; ``file``: what the file
        of a benchmark library says; ``proven``: the optimum of a row of the sweep, proved;
        ``claimed``: an optimum on a solver's word; ``found``: the best point of the sweep.
    """

    objective: float
    source: str


Table = Mapping[tuple[str, str], BestKnown]
"""By instance and formulation."""


def problem_of(row: Row) -> tuple[str, ...]:
    """What rows have in common whose objectives can be compared:
    instance, formulation, options, constraints.
    """
    return tuple(
        str(row.get(name) or "") for name in ("instance", "formulation", "options", "constraints")
    )


def read_best(path: str | Path) -> dict[tuple[str, str], BestKnown]:
    """A table of best known objectives: CSV with the columns instance, objective, formulation,
    which may be empty, and source, such as a paper or the version of a list.

    Raises
    ------
    InvalidInput
        With ``file:line:column``, what was found and what was expected.
    """
    table = read_table(
        Path(path), "", READ, ("instance", "objective"), least="problem", others=True
    )
    known: dict[tuple[str, str], BestKnown] = {}
    for row, cells in enumerate(table.documents()):
        key = (text_of(str(cells["instance"])), str(cells.get("formulation", "")))
        best = BestKnown(float(cells["objective"]), str(cells.get("source") or "table"))
        if known.setdefault(key, best).objective != best.objective:
            found = f"{key[0]} {key[1]} again with another objective"
            raise InvalidInput(table.row_place(row), found, "each problem once")
    return known


def best_of(
    rows: Iterable[Row], table: Table | None = None, of_files: Table | None = None
) -> dict[tuple[str, ...], BestKnown]:
    """The best known objective of each problem that has any.

    Parameters
    ----------
    rows : iterable of mappings
    table : mapping, optional
        A user's, whose instances are named as in the rows, or by their files without the folders.
    of_files : mapping, optional
        What library files say of their problems, without options and side constraints.
    """
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(problem_of(row), []).append(row)
    found = {}
    for problem, group in groups.items():
        best = _told(problem, table or {}, of_files or {}) or _best_in(group)
        if best is not None:
            found[problem] = best
    return found


def _told(problem: tuple[str, ...], table: Table, of_files: Table) -> BestKnown | None:
    """What a table or a library file says of a problem."""
    instance, formulation, options, constraints = problem
    for name in (instance, Path(instance).name):
        if (name, formulation) in table:
            return table[name, formulation]
    return None if options or constraints else of_files.get((instance, formulation))


def _best_in(group: Sequence[Row]) -> BestKnown | None:
    """The best of rows of one problem; an objective that is proved beats one that is only found."""
    points = [
        row
        for row in group
        if row.get("status") in WITH_POINT
        and row.get("objective") is not None
        and row.get("sense") in ("max", "min")
    ]
    if not points:
        return None
    optimal = [row for row in points if row["status"] == "optimal"]
    proved = [row for row in optimal if row.get("proof") in PROVED]
    # The best kind of evidence that some row has.
    chosen, source = next(
        (rows, name)
        for rows, name in ((proved, "proven"), (optimal, "claimed"), (points, "found"))
        if rows
    )
    # Beside a proof the other points do not matter; beside a claim a better point refutes it.
    objectives = [float(row["objective"]) for row in (chosen if source == "proven" else points)]
    best = max(objectives) if points[0]["sense"] == "max" else min(objectives)
    # A claim of an optimum that another point disproves is none.
    if source == "claimed" and best not in [float(row["objective"]) for row in optimal]:
        source = "found"
    return BestKnown(best, source)


def gap_to(row: Row, best: BestKnown | None) -> float | None:
    """(best - objective) / max(1e-9, |best|) of a maximum,
    and the reverse of a minimum: above 0 is worse.
    """
    objective, sense = row.get("objective"), row.get("sense")
    if (
        best is None
        or objective is None
        or sense not in ("max", "min")
        or row.get("status") not in WITH_POINT
    ):
        return None
    worse = best.objective - objective if sense == "max" else objective - best.objective
    return float(worse) / max(1e-9, abs(best.objective))


def with_best_known(
    rows: Sequence[Row], table: Table | None = None, of_files: Table | None = None
) -> list[dict[str, Any]]:
    """The rows with `COLUMNS`, None where nothing is known;
    rows that have them already keep them without a table.

    ``table`` and ``of_files`` are those of `best_of`.
    """
    if table is None and rows and all(name in rows[0] for name in COLUMNS):
        return [dict(row) for row in rows]
    best = best_of(rows, table, of_files)
    full = []
    for row in rows:
        known = best.get(problem_of(row))
        values: tuple[Any, ...] = (None, None, None)
        if known is not None:
            values = known.objective, known.source, gap_to(row, known)
        full.append({**row, **dict(zip(COLUMNS, values, strict=True))})
    return full
