"""What the rows of a results file must be like, so that everything that reads them can rely on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from optsched.benchmarking.results import OVERHEAD
from optsched.errors import InvalidInput
from optsched.instance.reading import show

TEXT = frozenset(
    {
        "instance",
        "trace",
        "sha256",
        "formulation",
        "options",
        "constraints",
        "policy",
        "solver",
        "solver_used",
        "solver_version",
        "settings",
        "status",
        "sense",
        "proof",
        "best_known_from",
        "termination",
        "error",
        "optsched",
        "python",
        "cpu",
        "date",
        "key",
        "notes",
    }
)
"""Columns whose cells are text, in CSV even those that look like numbers."""
STRUCTURED = frozenset({"options", "constraints", "settings"})
"""Columns that may be lists and objects as well."""
COUNTS = frozenset({"seed", "threads"})
"""Columns that say what was asked, by a number."""
LARGEST = 1e150
"""No figure is larger: squares of it are still numbers."""


def check_rows(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Refuse rows that no sweep writes.

    Raises
    ------
    InvalidInput
        With the row (from 1) and the column.
    """
    for place, row in enumerate(rows, 1):
        for name, value in row.items():
            expected = _wrong(name, value)
            if expected is not None:
                raise InvalidInput(f"row {place}, {name}", show(value), expected, str(path))
        if row.get("status") is None:
            raise InvalidInput(
                f"row {place}, status", "nothing", "the outcome of the task", str(path)
            )
        if row.get("instance") is None and row.get("trace") is None:
            raise InvalidInput(
                f"row {place}",
                "neither instance nor trace",
                "what was solved or simulated",
                str(path),
            )


def _wrong(name: str, value: Any) -> str | None:
    """What was expected in the place of a value; None if it is fine."""
    if value is None:
        return None
    if name == "sense":
        return None if value in ("max", "min", "rule") else "max, min or rule"
    if name in TEXT:
        return (
            None
            if isinstance(value, str) or (name in STRUCTURED and isinstance(value, list | dict))
            else "text"
        )
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not -LARGEST <= value <= LARGEST:
        return f"a number between {-LARGEST:g} and {LARGEST:g}, or nothing"
    if name in OVERHEAD or name in COUNTS:
        return None if number else "a number, or nothing"
    if name.endswith(("_s", "_ms")):
        return None if number and value >= 0 else "a time, or nothing"
    return None
