"""Tables kept as a structure of arrays: the base of dataclasses whose fields are columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from optsched.arrays import AnyArray
from optsched.display import Displayed


@dataclass(frozen=True, repr=False, eq=False)
class Columns(Displayed):
    """Base of a dataclass whose array fields have one entry for each row.

    Fields that are such tables themselves are columns too; others, such as names, belong to the
    table as a whole.
    """

    def __len__(self) -> int:
        return len(next(iter(self._columns().values())))

    def take(self, rows: AnyArray | slice) -> Self:
        """The table of these rows; of a slice, arrays share their memory with this one's."""
        chosen = {
            name: column.take(rows) if isinstance(column, Columns) else column[rows]
            for name, column in self._columns().items()
        }
        return replace(self, **chosen)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The rows of several tables, one after the other;
        what belongs to a table as a whole is the first one's.
        """
        first, *_ = tables = [part._columns() for part in parts]  # noqa: SLF001
        joined = {name: np.concatenate([table[name] for table in tables]) for name in first}
        return replace(parts[0], **joined)

    def _columns(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value for name, value in values.items() if isinstance(value, np.ndarray | Columns)
        }
