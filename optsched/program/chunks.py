"""`ColumnChunk` and `RowChunk`: consecutive columns or rows of one program, which is read chunk by
chunk, so that constant arrays are never written out in full. Not parts of a problem that are solved
one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from optsched.arrays import FloatArray, blocks, constant, is_constant


class ColumnChunk(NamedTuple):
    """Consecutive columns of a program with their bounds and costs; arrays of shape (columns,)."""

    at: slice
    lower: FloatArray
    upper: FloatArray
    implied_lower: FloatArray
    implied_upper: FloatArray
    cost: FloatArray

    @property
    def reach(self) -> FloatArray:
        """The largest absolute value of each column; inf without implied bounds."""
        if is_constant(self.implied_lower) and not self.implied_lower[:1].any():
            return self.implied_upper  # and this is at least 0
        return np.maximum(np.abs(self.implied_lower), np.abs(self.implied_upper))

    @property
    def free(self) -> bool:
        """Whether the costs are a constant array of 0."""
        return is_constant(self.cost) and not self.cost[:1].any()


class RowChunk(NamedTuple):
    """Consecutive rows of a program with their sides; arrays of shape (rows,)."""

    at: slice
    lower: FloatArray
    upper: FloatArray


class ColumnBounds(Protocol):
    """Bounds and costs of all columns of a program; arrays of shape (N,)."""

    @property
    def lower(self) -> FloatArray:
        """Lower bounds, -inf where there are none."""

    @property
    def upper(self) -> FloatArray:
        """Upper bounds, inf where there are none."""

    @property
    def implied_lower(self) -> FloatArray:
        """What follows from the rows; finite where the certificate needs it."""

    @property
    def implied_upper(self) -> FloatArray:
        """What follows from the rows; finite where the certificate needs it."""

    @property
    def cost(self) -> FloatArray:
        """Coefficients of the objective."""


def column_chunks_of(columns: ColumnBounds) -> Iterator[ColumnChunk]:
    """The columns as chunks, from their arrays."""
    for chunk in blocks(len(columns.cost)):
        yield ColumnChunk(
            chunk,
            columns.lower[chunk],
            columns.upper[chunk],
            columns.implied_lower[chunk],
            columns.implied_upper[chunk],
            columns.cost[chunk],
        )


def row_chunks_of(lower: FloatArray, upper: FloatArray, start: int = 0) -> Iterator[RowChunk]:
    """The rows as chunks, from arrays of their sides; ``start`` is the number of the first row."""
    for chunk in blocks(len(lower)):
        yield RowChunk(slice(start + chunk.start, start + chunk.stop), lower[chunk], upper[chunk])


def unit_changes(chunks: Iterable[ColumnChunk], count: int) -> FloatArray:
    """One unit of each column, or its whole range where that is less; shape (count,)."""
    unit = constant(1.0, count, np.float64)
    for chunk in chunks:
        reach = chunk.reach
        if (reach < 1.0).any():
            unit = unit.copy() if is_constant(unit) else unit
            unit[chunk.at] = np.minimum(1.0, np.where(np.isfinite(reach), reach, 1.0))
    return unit


class ColumnSlices(Protocol):
    """An array over the columns that may be computed slice by slice."""

    def __getitem__(self, chunk: slice, /) -> FloatArray:
        """Those of some columns beside each other."""


class PairedSlices(Protocol):
    """Two arrays over the columns that may be computed slice by slice."""

    def __getitem__(self, chunk: slice, /) -> tuple[FloatArray, FloatArray]:
        """Those of some columns beside each other."""


class Both:
    """Two arrays as `PairedSlices`."""

    def __init__(self, first: ColumnSlices, second: ColumnSlices) -> None:
        self.first, self.second = first, second

    def __getitem__(self, chunk: slice) -> tuple[FloatArray, FloatArray]:
        return self.first[chunk], self.second[chunk]
