"""Rows of a benchmark as tables for people: what came of the tasks, and each of them if they are few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optsched.cli.tables import (
    bullets,
    count,
    heading,
    name,
    number,
    optional,
    seconds,
    share,
    table,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

# An objective that is better than the best known by less is not.
ROUNDING = 1e-9
# Rows that are listed one by one.
SHOWN = 40
# Errors that are listed.
ERRORS = 10


def bench_view(rows: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    yield heading(f"{count(len(rows), 'task')}: {_counts(rows)}" if rows else "no task is done")
    if 0 < len(rows) <= SHOWN:
        columns = (
            "instance",
            "formulation",
            "solver",
            "status",
            "objective",
            "gap",
            "to best",
            "time",
        )
        yield table(*columns, rows=[_cells(row) for row in rows], left=4)
    errors = [f"{_title(row)}: {row['error']}" for row in rows if row.get("error")]
    if errors:
        yield ""
        yield heading("Without an answer:")
        yield bullets(errors[:ERRORS])
        if len(errors) > ERRORS:
            yield f"... and {len(errors) - ERRORS:,} more"


def _counts(rows: Sequence[Mapping[str, Any]]) -> str:
    statuses = [str(row["status"]) for row in rows]
    return ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))


def _cells(row: Mapping[str, Any]) -> list[str]:
    solver = row.get("solver_used") or row["solver"]
    objective, gap, best, spent = (
        row.get(key) for key in ("objective", "gap", "gap_to_best", "total_s")
    )
    return [
        name(str(row["instance"])),
        f"{row['formulation'] or '-'}{' *' if row.get('options') else ''}",
        str(solver) if row["seed"] == 0 else f"{solver} seed {row['seed']}",
        str(row["status"]),
        optional(objective, number),
        optional(gap, share),
        "" if best is None else share(best) if best > -ROUNDING else f"-{share(-best)}",
        seconds(row["wall_s"] if spent is None else spent),
    ]


def _title(row: Mapping[str, Any]) -> str:
    named = [row["instance"], row["formulation"], row["solver"]]
    return " ".join(str(part) for part in named if part is not None)
