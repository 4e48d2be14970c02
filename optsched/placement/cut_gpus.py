"""GPUs that are cut into slices (MIG): which of them have a layout for one slice more.

What is on a GPU is one number: that of its slices among all multisets of slices that some layout has. A table
says which number it is with one slice more. A GPU with other shares has no slices, and one with slices no other
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
"""Code of a GPU that can have no slice more: it has other shares, or slices of no layout."""


class SliceCodes(NamedTuple):
    """The multisets of slices that a GPU of a pool can have; the code of each is its place, 0 that of none.

    Attributes
    ----------
    profiles : sequence of tuple of int
        The profile of each slice of a multiset, sorted.
    more : IntArray, shape (codes, profiles)
        The code with one slice more, or `FULL`.
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
        # Each part of a layout is a layout too, so the multisets are all there.
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
        """Codes with one slice more, or with another share (`NO_SLICE`); `FULL` where that is in no layout."""
        if profile == NO_SLICE:
            return np.full_like(code, FULL)
        return np.where(code >= 0, self.more[np.maximum(code, 0), profile], FULL)


@dataclass(frozen=True, eq=False)
class CutGpus:
    """What is on the GPUs of some nodes.

    Attributes
    ----------
    codes : mapping from pool to SliceCodes
        Of the pools in which something is a slice.
    code : IntArray, contiguous
        Of each GPU, in the shape in which the caller has them.
    """

    codes: Mapping[int, SliceCodes]
    code: IntArray

    @classmethod
    def of(cls, slices: Slices, shape: tuple[int, ...]) -> CutGpus | None:
        """GPUs with nothing on them; None where no column is a slice."""
        if not slices.layouts:
            return None
        codes = {pool: SliceCodes.of(layouts) for pool, layouts in slices.layouts.items()}
        return cls(codes, np.zeros(shape, np.int64))

    def copy(self) -> CutGpus:
        """The same with its own code."""
        return replace(self, code=self.code.copy())

    def add(self, pool: int, gpus: IntArray, profile: int, share: float) -> None:
        """A slice, or another share, on different GPUs of a pool, given as places in ``code``, flat."""
        if pool in self.codes and share < 1.0:
            code = self.code.reshape(-1)
            code[gpus] = self.codes[pool].after(code[gpus], profile)

    def able(self, pool: int, code: IntArray, profile: int, share: float) -> BoolArray:
        """Which GPUs of a pool, with such codes, a layout lets have a slice more, or another share."""
        if pool not in self.codes or share == 1.0:
            return np.ones(code.shape, bool)
        if profile == NO_SLICE:  # shares add up on a GPU that is not cut
            return code <= 0
        found: BoolArray = self.codes[pool].after(code, profile) != FULL
        return found
