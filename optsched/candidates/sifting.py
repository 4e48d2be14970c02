"""Sifting: columns that come some by some, put into those that are kept and those that are dropped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np

from optsched.arrays import AnyArray, constant, is_constant
from optsched.candidates.columns import Drop, KindColumns

COLUMNS = tuple(field.name for field in fields(KindColumns) if field.name != "ways")


def sifted(parts: Iterable[KindColumns], most: int) -> tuple[KindColumns, KindColumns]:
    """The columns of all parts that are kept, and those that are dropped, each in order.

    Parameters
    ----------
    parts : iterable of KindColumns
        They may have different ways, of which the first are taken to be those of the most columns.
    most : int
        Columns that have these ways, at most. Memory is asked for once, for so many, and what is not used of it is
        never touched.
    """
    kept, others, dropped = Gathered(most), [], []
    for part in parts:
        keep = part.drop == Drop.KEPT
        everything = keep.all()
        stay = part if everything else part.take(np.flatnonzero(keep))
        stay = replace(stay, drop=constant(Drop.KEPT, len(stay), np.uint8))
        if kept.takes(stay):
            kept.add(stay)
        else:
            others.append(stay)
        if not everything:
            dropped.append(part.take(np.flatnonzero(~keep)))
    return KindColumns.concatenate([kept.columns(), *others]), KindColumns.concatenate(
        [KindColumns.none(), *dropped]
    )


class Gathered:
    """Columns with the same ways one after the other, at most so many; what is constant in all of them stays so."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._first: KindColumns | None = None
        self._constant: dict[str, AnyArray] = {}
        self._arrays: dict[str, AnyArray] = {}

    def takes(self, part: KindColumns) -> bool:
        """Whether a part has the ways of the first one."""
        return self._first is None or part.ways is self._first.ways

    def add(self, part: KindColumns) -> None:
        """Put a part after the others."""
        if not len(part):
            return
        if self._first is None:
            self._first = part
        for name in COLUMNS:
            self._add(name, getattr(part, name))
        self._count += len(part)

    def _add(self, name: str, column: AnyArray) -> None:
        if name not in self._arrays:
            value = self._constant.setdefault(name, column[:1])
            if is_constant(column) and column[:1].tobytes() == value.tobytes():
                return
            self._arrays[name] = np.empty(self._most, column.dtype)
            self._arrays[name][: self._count] = value
        self._arrays[name][self._count : self._count + len(column)] = column

    def columns(self) -> KindColumns:
        """All of them."""
        if self._first is None:
            return KindColumns.none()
        together = {name: array[: self._count] for name, array in self._arrays.items()}
        alike = {
            name: constant(value[0], self._count, value.dtype.type)
            for name, value in self._constant.items()
        }
        return KindColumns(ways=self._first.ways, **(alike | together))
