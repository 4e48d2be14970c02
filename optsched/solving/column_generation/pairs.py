"""Pairs of classes that may become columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from optsched.arrays import FloatArray, IntArray, group_rows


@dataclass(frozen=True)
class ClassPairs:
    """Pairs of classes in ways of the table, the lower class first, with what each is worth beyond its cost."""

    first: IntArray
    second: IntArray
    way: IntArray
    value: FloatArray

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: IntArray) -> ClassPairs:
        return ClassPairs(self.first[rows], self.second[rows], self.way[rows], self.value[rows])

    def ordered(self) -> ClassPairs:
        """Each once, in order of (first, second, way)."""
        groups = group_rows((self.first, self.second, self.way), len(self))
        once = groups.first
        return self.take(once[np.lexsort((self.way[once], self.second[once], self.first[once]))])

    def keys(self, classes: int) -> IntArray:
        """A number for each, of so many classes."""
        return (self.way * classes + self.first) * classes + self.second

    @classmethod
    def concatenate(cls, parts: Sequence[ClassPairs]) -> ClassPairs:
        none = np.zeros(0, np.int64)
        parts = (cls(none, none, none, np.zeros(0)), *parts)
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in cls.__annotations__
            )
        )
