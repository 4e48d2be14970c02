"""Numbers of all columns that are made when they are looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from optsched.arrays import FloatArray


class ColumnSlices(Protocol):
    """Numbers of all columns, as an array has them."""

    def __getitem__(self, part: slice, /) -> FloatArray:
        """Those of some columns beside each other."""


class PairedSlices(Protocol):
    """Two numbers of all columns, as two arrays have them."""

    def __getitem__(self, part: slice, /) -> tuple[FloatArray, FloatArray]:
        """Those of some columns beside each other."""


@dataclass(frozen=True)
class Both:
    """Two arrays, some by some."""

    first: ColumnSlices
    second: ColumnSlices

    def __getitem__(self, part: slice) -> tuple[FloatArray, FloatArray]:
        return self.first[part], self.second[part]
