"""Duals of allocation programs by block, with the signs that they can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray
from optsched.program import AllocationProgram


@dataclass(frozen=True)
class Duals:
    """Multipliers of the rows, all >= 0: u of time, p of capacity, y of levels (of a linear total: their weights)."""

    time: FloatArray
    capacity: FloatArray
    levels: FloatArray

    @classmethod
    def of(cls, blocks: Mapping[str, FloatArray], program: AllocationProgram) -> Duals:
        """Those of a program's rows, given as its derivatives."""
        levels = _weights(program)
        if levels is None:
            levels = np.maximum(-blocks["levels"], 0.0)
        return cls(np.maximum(blocks["time"], 0.0), np.maximum(blocks["capacity"], 0.0), levels)

    def towards(self, other: Duals, part: float) -> Duals:
        """A point between these and others."""
        return Duals(
            (1 - part) * self.time + part * other.time,
            (1 - part) * self.capacity + part * other.capacity,
            (1 - part) * self.levels + part * other.levels,
        )

    def rows(self, program: AllocationProgram) -> FloatArray:
        """The way back: derivatives, row by row."""
        levels = [-self.levels] if _weights(program) is None else []
        return np.concatenate([self.time, self.capacity, *levels])


def _weights(program: AllocationProgram) -> FloatArray | None:
    """What a linear total pays for levels; None for other utilities, whose levels have rows."""
    return program.utility.level_prices(program)
