"""Layouts of a GPU that is cut into slices (MIG): which profiles fit together, and where.

A profile takes consecutive memory slices, beginning at one of its allowed starts. A layout is legal
if each of its profiles begins at one of its own starts and no two of them take the same memory
slice. That the sizes add up to the GPU is not enough: two profiles of half the memory and one of a
seventh of the compute do not fit, and neither do two that have only one start.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import cached_property
from optsched.display import Displayed, count
from optsched.display.text import enumerated
from optsched.errors import InvalidInput, UsageError
from optsched.instance.cluster import Partition
from optsched.instance.reading import listed, show

MIG = "mig"
"""Attribute of an option, and of its configuration: the profile of the slice that it runs in."""
MOST_SETS = 200_000
"""Sets of slices that are listed; those of an A100 with all six profiles are 723."""
PART = re.compile(
    r"\s*(?:(?P<times>\d{1,3})\s*x\s*)?(?P<profile>[^@+]+?)\s*(?:@\s*(?P<start>\d{1,3})\s*)?"
)
"""``2x1g.5gb``, ``3g.20gb@4`` or ``7g.40gb``."""


class SliceAt(NamedTuple):
    """A slice of a GPU: the row of its profile, and the memory slice where it starts."""

    profile: int
    start: int


Layout = tuple[SliceAt, ...]
"""The slices of one GPU, by their starts."""


class Layouts(Displayed):
    """The legal layouts of a GPU, enumerated from the starts of its profiles.

    Parameters
    ----------
    partitions : sequence of Partition
        Profiles with different names.
    path : str
        Path of the profiles in their document, for messages.

    Attributes
    ----------
    partitions : tuple of Partition
    memory_slices : int
        Memory slices that some profile can take.

    Raises
    ------
    InvalidInput
        If two profiles have one name.

    References
    ----------
    NVIDIA, "Multi-Instance GPU User Guide", partitioning and placements (``nvidia-smi mig
    -lgipp``).
    """

    def __init__(self, partitions: Sequence[Partition], path: str = "partitions") -> None:
        self.partitions = tuple(partitions)
        self._row: dict[str, int] = {}
        for row, part in enumerate(self.partitions):
            if self._row.setdefault(part.profile, row) != row:
                found = f"{show(part.profile)} a second time"
                raise InvalidInput(f"{path}[{row}].profile", found, "each profile once")
        ends = [max(part.starts) + part.memory_slices for part in self.partitions]
        self.memory_slices = max(ends, default=0)

    def _headline(self) -> str:
        names = ", ".join(self.names)
        return f"{count(len(self.maximal), 'maximal layout')} of {names}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the profiles."""
        return tuple(part.profile for part in self.partitions)

    @property
    def parts(self) -> FloatArray:
        """Part of the memory slices that a slice of each profile takes, shape (profiles,)."""
        return np.array([part.memory_slices / self.memory_slices for part in self.partitions])

    # --- enumeration ------------------------------------------------------------------------------

    @cached_property
    def _places(self) -> tuple[SliceAt, ...]:
        """Every profile at every start, by the starts."""
        places = {
            SliceAt(row, start) for row, part in enumerate(self.partitions) for start in part.starts
        }
        return tuple(sorted(places, key=lambda at: (at.start, at.profile)))

    def end(self, at: SliceAt) -> int:
        """The memory slice after the last one that a slice takes.

        Parameters
        ----------
        at : SliceAt

        Returns
        -------
        int
        """
        return at.start + self.partitions[at.profile].memory_slices

    @cached_property
    def sets(self) -> tuple[Layout, ...]:
        """All legal layouts, the empty one first.

        Raises
        ------
        UsageError
            If there are more than `MOST_SETS`.
        """
        found: list[Layout] = []
        for layout in self._beyond((), 0):
            found.append(layout)
            if len(found) > MOST_SETS:
                raise UsageError(
                    f"the profiles {listed(self.names)} have more than {MOST_SETS:,} layouts"
                )
        return tuple(found)

    def _beyond(self, layout: Layout, free_from: int) -> Iterator[Layout]:
        yield layout
        # Starts increase, so every set of slices is enumerated once.
        for at in self._places:
            if at.start >= free_from:
                yield from self._beyond((*layout, at), self.end(at))

    @cached_property
    def maximal(self) -> tuple[Layout, ...]:
        """Legal layouts to which no slice can be added."""
        return tuple(layout for layout in self.sets if layout and not self._has_room(layout))

    def _has_room(self, layout: Layout) -> bool:
        return any(
            all(self.end(at) <= other.start or self.end(other) <= at.start for other in layout)
            for at in self._places
        )

    def counts_of(self, layout: Layout) -> IntArray:
        """Slices of each profile in a layout.

        Parameters
        ----------
        layout : tuple of SliceAt

        Returns
        -------
        IntArray, shape (profiles,)
        """
        rows = np.array([at.profile for at in layout], np.int64)
        return np.bincount(rows, minlength=len(self.partitions))

    @cached_property
    def counts(self) -> IntArray:
        """Maximal multisets of slices that a GPU can have at once: number of slices of each
        profile, shape (multisets, profiles); in the order of `maximal`.
        """
        unique = dict.fromkeys(tuple(self.counts_of(layout).tolist()) for layout in self.maximal)
        every = np.array(list(unique), np.int64).reshape(-1, len(self.partitions))
        within = (every[:, np.newaxis, :] <= every[np.newaxis, :, :]).all(axis=2)
        largest: IntArray = every[within.sum(axis=1) == 1]  # a multiset is part of itself
        return largest

    def layout_for(self, counts: IntArray) -> Layout | None:
        """A maximal layout with at least these numbers of slices of each profile; None if there is
        none.

        Parameters
        ----------
        counts : IntArray, shape (profiles,)

        Returns
        -------
        tuple of SliceAt, or None
        """
        return next(
            (layout for layout in self.maximal if (self.counts_of(layout) >= counts).all()), None
        )

    # --- what users write -------------------------------------------------------------------------

    def read(self, text: str, path: str) -> IntArray:
        """Number of slices of each profile in a layout given as text.

        Parameters
        ----------
        text : str
            Such as ``3g.20gb+4g.20gb``, ``2x1g.5gb+3g.20gb``, or with starts
            ``4g.20gb@0+3g.20gb@4``.
        path : str
            Path of the text in its document, for messages.

        Returns
        -------
        IntArray, shape (profiles,)

        Raises
        ------
        InvalidInput
            If a profile is unknown, or no GPU can have this layout: the error says why.
        """
        slices: list[tuple[int, int | None]] = []
        for part in text.split("+"):
            match = PART.fullmatch(part)
            if match is None:
                expected = "profiles such as 2x1g.5gb+3g.20gb, with starts 4g.20gb@0+3g.20gb@4"
                raise InvalidInput(path, show(text), expected)
            start = None if match["start"] is None else int(match["start"])
            slices += [(self.row(match["profile"], path), start)] * int(match["times"] or 1)
        why = self.why_not(slices)
        if why:
            raise InvalidInput(path, show(text), f"a layout that a GPU can have: {why}")
        rows = np.array([row for row, _ in slices], np.int64)
        return np.bincount(rows, minlength=len(self.partitions))

    def row(self, profile: object, path: str) -> int:
        """Row of a profile by its name.

        Parameters
        ----------
        profile : object
            The given value; it should be the name of a profile.
        path : str
            Path of the value in its document, for messages.

        Returns
        -------
        int

        Raises
        ------
        InvalidInput
            If there is no such profile.
        """
        row = self._row.get(profile, -1) if isinstance(profile, str) else -1
        if row < 0:
            raise InvalidInput(path, show(profile), f"one of the profiles {listed(self.names)}")
        return row

    def why_not(self, slices: Sequence[tuple[int, int | None]]) -> str:
        """Why no GPU can have these slices together, in a sentence; empty if one can.

        Parameters
        ----------
        slices : sequence of (int, int or None)
            Row of the profile and start of each; None: any of its starts.

        Returns
        -------
        str
        """
        stated = [SliceAt(row, start) for row, start in slices if start is not None]
        for at in stated:
            part = self.partitions[at.profile]
            if at.start not in part.starts:
                return f"{part.profile} cannot start at {at.start}: it starts at {_starts(part)}"
        overlap = self._overlap(stated)
        wanted = Counter(row for row, _ in slices)
        if overlap or self._fits(stated, wanted):
            return overlap
        return self._shortage(wanted, bool(stated))

    def _fits(self, stated: Sequence[SliceAt], wanted: Counter[int]) -> bool:
        need = np.array([wanted[row] for row in range(len(self.partitions))], np.int64)
        return any(
            set(stated) <= set(layout) and (self.counts_of(layout) >= need).all()
            for layout in self.maximal
        )

    def _overlap(self, stated: Sequence[SliceAt]) -> str:
        order = sorted(stated, key=lambda at: at.start)
        for first, second in pairwise(order):
            if second.start < self.end(first):
                names = [f"{self.names[at.profile]}@{at.start}" for at in (first, second)]
                return f"{names[0]} and {names[1]} both take memory slice {second.start}"
        return ""

    def _shortage(self, wanted: Counter[int], some_stated: bool) -> str:
        parts = [f"{times} x {self.names[row]}" for row, times in wanted.items()]
        need = sum(self.partitions[row].memory_slices * times for row, times in wanted.items())
        if need > self.memory_slices:
            total = f"{need} memory slices of {self.memory_slices}"
            return f"{enumerated(parts, 'and')} take {total}"
        for row, times in wanted.items():
            most = int(max(self.counts_of(layout)[row] for layout in self.maximal))
            if times > most:
                part = self.partitions[row]
                return f"a GPU has at most {most} x {part.profile}, which starts at {_starts(part)}"
        beside = " beside the stated ones" if some_stated else ""
        return f"no starts of {enumerated(parts, 'and')} are free of overlap{beside}"

    def words(self, counts: IntArray) -> str:
        """A multiset as text, such as ``2x1g.5gb+3g.20gb``: `read` takes it.

        Parameters
        ----------
        counts : IntArray, shape (profiles,)

        Returns
        -------
        str
        """
        times = zip(self.names, counts.tolist(), strict=True)
        return "+".join(name if many == 1 else f"{many}x{name}" for name, many in times if many)


def _starts(part: Partition) -> str:
    return enumerated([str(start) for start in part.starts], "or")
