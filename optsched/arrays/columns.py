"""Tables as a structure of arrays: base of dataclasses whose fields are columns."""

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

    A field that is such a table is a column too. Other fields, such as names, describe the whole
    table.
    """

    def __len__(self) -> int:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, (np.ndarray, Columns)):
                return len(value)
        raise TypeError(f"{type(self).__name__} has no column")

    @property
    def arrays(self) -> tuple[AnyArray, ...]:
        """The columns that are arrays, in order."""
        values = (getattr(self, name) for name in self.__dataclass_fields__)
        return tuple(value for value in values if isinstance(value, np.ndarray))

    def take(self, rows: AnyArray | slice) -> Self:
        """The table of these rows. For a slice, its arrays are views of this table's arrays."""
        columns = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            # Fields of the whole table are the same for any rows.
            if isinstance(value, np.ndarray):
                value = value[rows]
            elif isinstance(value, Columns):
                value = value.take(rows)
            columns[name] = value
        return type(self)(**columns)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Concatenate tables. Fields of the whole table are those of the first one."""
        columns = {name: getattr(parts[0], name) for name in cls.__dataclass_fields__}
        for name, value in columns.items():
            if isinstance(value, np.ndarray):
                columns[name] = np.concatenate([getattr(part, name) for part in parts])
        return type(parts[0])(**columns)
