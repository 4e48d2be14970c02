"""Tables kept as a structure of arrays: what the dataclasses of this package have in common."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from optsched.arrays import IntArray


@dataclass(frozen=True)
class Columns:
    """Base of a dataclass whose array fields have one entry for each row.

    Fields that are such tables themselves are columns too; others, such as names, belong to the
    table as a whole.
    """

    def __len__(self) -> int:
        return len(next(iter(self._columns().values())))

    def take(self, rows: IntArray) -> Self:
        """The table of these rows."""
        chosen = {
            name: column.take(rows) if isinstance(column, Columns) else column[rows]
            for name, column in self._columns().items()
        }
        return replace(self, **chosen)

    def _columns(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value for name, value in values.items() if isinstance(value, np.ndarray | Columns)
        }
