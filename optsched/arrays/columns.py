"""Tables kept as a structure of arrays: the base of dataclasses whose fields are columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, (np.ndarray, Columns)):
                return len(value)
        raise TypeError(f"{type(self).__name__} has no column")

    def take(self, rows: AnyArray | slice) -> Self:
        """The table of these rows; of a slice, arrays share their memory with this one's."""
        values = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return type(self)(**{name: _taken(value, rows) for name, value in values})

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The rows of several tables, one after the other;
        what belongs to a table as a whole is the first one's.
        """
        values = ((name, getattr(parts[0], name)) for name in cls.__dataclass_fields__)
        joined = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name, value in values
            if isinstance(value, np.ndarray)
        }
        return replace(parts[0], **joined)


def _taken(value: Any, rows: AnyArray | slice) -> Any:
    """Some rows of a column; what belongs to a table as a whole is the same for any rows."""
    if isinstance(value, np.ndarray):
        return value[rows]
    return value.take(rows) if isinstance(value, Columns) else value
