"""Tables as a structure of arrays: base of dataclasses whose fields are columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from optsched.arrays import AnyArray
from optsched.arrays.values import replace
from optsched.display import Displayed


@dataclass(frozen=True, repr=False, eq=False)
class Columns(Displayed):
    """Base of a dataclass whose array fields have one entry for each row.

    A field that is such a table is a column too. Other fields, such as names, describe the whole
    table.
    """

    def __len__(self) -> int:
        for value in vars(self).values():
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
        values = vars(self)
        columns: dict[str, Any] = {}
        for name in self.__dataclass_fields__:
            value = values[name]
            # Fields of the whole table are the same for any rows.
            if type(value) is np.ndarray:
                columns[name] = value[rows]
            elif isinstance(value, Columns):
                columns[name] = value.take(rows)
        return replace(self, **columns)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Concatenate tables. Fields of the whole table are those of the first one."""
        every = [vars(part) for part in parts]
        columns: dict[str, Any] = {
            name: np.concatenate([values[name] for values in every])
            for name in cls.__dataclass_fields__
            if type(every[0][name]) is np.ndarray
        }
        return replace(parts[0], **columns)
