"""A table of results as data: cells with their kinds, formatted in one way on the shell and on a
page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optsched.display.columns import written

NO_VALUE = "-"
"""A cell without a value."""


@dataclass(frozen=True)
class Column:
    """A column: its heading, and the kind of its cells.

    The kind is text, count, seconds, percent, number, ratio, p, or formatted: numbers that are text
    already, and aligned like numbers. It may also be the name of a column that
    `optsched.display.columns` knows.
    """

    name: str
    kind: str = "number"


@dataclass(frozen=True)
class SummaryTable:
    """A table with a title, and words on how to read it.

    Attributes
    ----------
    name : str
        For documents.
    title : str
    columns : tuple of Column
    rows : tuple of tuples
        Values; None where there is none.
    words : str
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    words: str = ""

    @property
    def texts(self) -> list[list[str]]:
        """The cells as text."""
        kinds = [column.kind for column in self.columns]
        return [
            [cell_text(value, kind) for value, kind in zip(row, kinds, strict=True)]
            for row in self.rows
        ]

    def to_document(self) -> list[dict[str, Any]]:
        """The rows as mappings."""
        return [
            dict(zip([column.name for column in self.columns], row, strict=True))
            for row in self.rows
        ]


def cell_text(value: Any, kind: str) -> str:
    """A value as text."""
    if value is None:
        return NO_VALUE
    if kind in ("text", "formatted") or not isinstance(
        value, int | float
    ):  # a column nobody foresaw may hold anything
        return str(value)
    if kind == "count":
        return f"{value:,}"
    return str(_TEXTS[kind](value)) if kind in _TEXTS else written(kind, float(value))


def _seconds(value: float) -> str:
    size = abs(value)  # differences may be negative
    if size < 0.9995:
        return f"{1000 * value:.0f} ms" if size >= 0.0995 else f"{1000 * value:.3g} ms"
    return f"{value:,.3g} s" if size < 1000 else f"{value:,.0f} s"


def _percent(value: float) -> str:
    return "0 %" if abs(value) < 1e-9 else f"{100 * value:.3g} %"


_TEXTS: Mapping[str, Any] = {
    "seconds": _seconds,
    "percent": _percent,
    "number": lambda value: f"{value:,.5g}",
    "ratio": lambda value: f"{value:.3g}",
    "p": lambda value: "< 0.001" if value < 0.001 else f"{value:.3f}",
}
