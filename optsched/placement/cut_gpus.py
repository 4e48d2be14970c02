"""GPUs that are cut into slices (MIG): which of them have a layout for one slice more.

What is on a GPU is one number: the counts c_p of its slices, written with their own digits,

    code = sum_p c_p step_p,        step_p = product over q < p of (2 + largest count of q in a layout)

so that whether a layout has these slices is looked up. A GPU with other shares has no slices, and one with
slices no other shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.candidates import NO_SLICE, Slices
from optsched.instance import Layouts

FULL = -1
"""Code of a GPU that can have no slice more: it has other shares, or slices of no layout."""


class SliceCodes(NamedTuple):
    """The layouts of the GPUs of a pool, by their codes.

    Attributes
    ----------
    step : IntArray, shape (profiles,)
    legal : BoolArray, shape (codes,)
        Whether a layout has these slices.
    """

    step: IntArray
    legal: BoolArray

    @classmethod
    def of(cls, layouts: Layouts) -> SliceCodes:
        """All codes up to one slice more of each profile than a GPU can have."""
        digits = layouts.counts.max(axis=0, initial=0) + 2
        step = np.cumprod([1, *digits[:-1]]).astype(np.int64)
        counts = np.stack(np.unravel_index(np.arange(digits.prod()), digits, order="F"), axis=1)
        legal = np.zeros(len(counts), bool)
        for most in layouts.counts:
            legal |= (counts <= most).all(axis=1)
        return cls(step, legal)

    def slices(self, code: int) -> list[int]:
        """The profile of each slice of a GPU with a code that is not `FULL`."""
        counts = (
            np.diff(np.append(0, code % np.append(self.step[1:], len(self.legal)))) // self.step
        )
        return np.repeat(np.arange(len(counts)), counts).tolist()

    def after(self, code: IntArray, profile: int) -> IntArray:
        """Codes with one slice more, or with another share (`NO_SLICE`); `FULL` where that is in no layout."""
        if profile == NO_SLICE:
            return np.full_like(code, FULL)
        more = np.maximum(code, 0) + self.step[profile]
        return np.where((code >= 0) & self.legal[more], more, FULL)


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
