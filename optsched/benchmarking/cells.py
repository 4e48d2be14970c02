"""Cells of tables in CSV that people open in spreadsheets."""

from __future__ import annotations

import json
import re
from typing import Any

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
"""How a cell begins that a spreadsheet runs as a formula,
after the apostrophes that keep it from doing so.
"""


def cell_of(value: Any) -> Any:
    """A value as `csv.writer` takes it:
    text that looks like a formula begins with an apostrophe, lists are JSON.
    """
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return repr(value) if isinstance(value, float) else value


def text_of(cell: str) -> str:
    """The text of a cell of `cell_of`."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell
