"""GPUs that are cut into slices (MIG), and whether they have a layout with one more slice.

The slices on a GPU are stored as one number, that of their multiset among all multisets of slices
that some layout has. A table has the number after one more slice. A GPU has either slices or other
shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.candidates import NO_SLICE, Slices
from optsched.instance import Layouts

FULL = -1
"""Code of a GPU that cannot have a further slice: it has other shares, or slices of no layout."""


class SliceCodes(NamedTuple):
    """The multisets of slices that a GPU of a pool can have; their positions are the codes, 0 for
    no slice.

    Attributes
    ----------
    profiles : sequence of tuple of int
        The profile of each slice of a multiset, sorted.
    more : IntArray, shape (codes, profiles)
        The code after one more slice, or `FULL`.
    """

    profiles: Sequence[tuple[int, ...]]
    more: IntArray

    @classmethod
    def of(cls, layouts: Layouts) -> SliceCodes:
        """All multisets of slices of the layouts.

        Raises
        ------
        UsageError
            If there are too many layouts (`Layouts.sets`).
        """
        # Every part of a layout is a layout, so these are all multisets.
        found = (tuple(sorted(at.profile for at in layout)) for layout in layouts.sets)
        code = {profiles: number for number, profiles in enumerate(dict.fromkeys(found))}
        more = np.full((len(code), len(layouts.partitions)), FULL)
        for profiles, after in code.items():
            for place, profile in enumerate(profiles):
                more[code[profiles[:place] + profiles[place + 1 :]], profile] = after
        return cls(tuple(code), more)

    def slices(self, code: int) -> list[int]:
        """The profile of each slice of a GPU with a code that is not `FULL`."""
        return list(self.profiles[code])

    def after(self, code: IntArray, profile: int) -> IntArray:
        """Codes after one more slice, or another share (`NO_SLICE`); `FULL` if no layout has it."""
        if profile == NO_SLICE:
            return np.full_like(code, FULL)
        return np.where(code >= 0, self.more[np.maximum(code, 0), profile], FULL)


@dataclass(frozen=True, eq=False)
class CutGpus:
    """The slices and shares on the GPUs of some nodes.

    Attributes
    ----------
    codes : mapping from pool to SliceCodes
        Those of the pools with slices.
    code : IntArray, contiguous
        Code of each GPU, in any shape.
    """

    codes: Mapping[int, SliceCodes]
    code: IntArray

    @classmethod
    def of(cls, slices: Slices, shape: tuple[int, ...]) -> CutGpus | None:
        """Empty GPUs; None if no column is a slice."""
        if not slices.layouts:
            return None
        codes = {pool: SliceCodes.of(layouts) for pool, layouts in slices.layouts.items()}
        return cls(codes, np.zeros(shape, np.int64))

    def copy(self) -> CutGpus:
        """A copy with a separate code array."""
        return replace(self, code=self.code.copy())

    def add(self, pool: int, gpus: IntArray, profile: int, share: float) -> None:
        """Add a slice, or another share, to each of some GPUs of a pool, given as flat
        positions.
        """
        if pool in self.codes and share < 1.0:
            code = self.code.reshape(-1)
            code[gpus] = self.codes[pool].after(code[gpus], profile)

    def able(self, pool: int, code: IntArray, profile: int, share: float) -> BoolArray:
        """Whether GPUs of a pool with these codes can have one more slice, or another share."""
        if pool not in self.codes or share == 1.0:
            return np.ones(code.shape, bool)
        if profile == NO_SLICE:  # shares are only possible on a GPU without slices
            return code <= 0
        found: BoolArray = self.codes[pool].after(code, profile) != FULL
        return found
