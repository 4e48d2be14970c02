"""Tables kept as a structure of arrays: the base of dataclasses whose fields are columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

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
        columns = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            # What belongs to the table as a whole is the same for any rows.
            if isinstance(value, np.ndarray):
                value = value[rows]
            elif isinstance(value, Columns):
                value = value.take(rows)
            columns[name] = value
        return type(self)(**columns)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The rows of several tables, one after the other;
        what belongs to a table as a whole is the first one's.
        """
        columns = {name: getattr(parts[0], name) for name in cls.__dataclass_fields__}
        for name, value in columns.items():
            if isinstance(value, np.ndarray):
                columns[name] = np.concatenate([getattr(part, name) for part in parts])
        return type(parts[0])(**columns)
