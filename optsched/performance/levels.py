"""Lookups in tables of stated rates: level by level in any table, in one step in one of plain numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import (
    AnyArray,
    FloatArray,
    IntArray,
    blocks,
    constant,
    find_sorted,
    is_constant,
    is_range,
    ranges,
    shown,
)
from optsched.instance.tables import ANY_SPREAD, OWN_GANG, RateTable

STRIDE = 2**32
"""More than any count of GPUs or nodes. Keys are (position in the level above) x `STRIDE` + count: no overflow."""
SPARSE = 4
"""Cells per entry from which on a table of all cells is not worth its memory."""
FEW = 1024
"""Cells that cost nothing."""


def keys_of(rates: RateTable) -> Iterator[tuple[slice, IntArray]]:
    """``profile * places + place`` of the entries of a table, some by some: which, and their keys."""
    for part in blocks(len(rates)):
        # Some profiles at a time: their keys need not be there all at once.
        length = np.diff(rates.indptr[part.start : part.stop + 1])
        own = slice(rates.indptr[part.start], rates.indptr[part.stop])
        first = np.arange(part.start, part.stop, dtype=np.int64) * len(rates.places)
        yield own, np.repeat(first, length) + rates.place[own]


@dataclass(frozen=True)
class Places:
    """The pairs (profile, place) that a rate table has, numbered in order.

    Attributes
    ----------
    places : int
        Places that there are.
    cells : NDArray[int32] or None, shape (profiles x places + 1,)
        Number of each pair, -1 for those that the table has not; None where these are too many.
    keys : IntArray or None
        Then ``profile * places + place`` of the pairs, sorted.
    """

    places: int
    cells: NDArray[np.int32] | None
    keys: IntArray | None

    @classmethod
    def of(cls, rates: RateTable) -> tuple[Places, IntArray]:
        """The pairs of a table, and the number of the pair of each entry."""
        places, entries = len(rates.places), len(rates.place)
        if not rates.one_by_one:
            keys, number = np.unique(rates.profile * places + rates.place, return_inverse=True)
            return cls._of_keys(places, keys, len(rates)), number.astype(np.int64)
        number = np.arange(entries, dtype=np.int64)
        # A table of all cells is a look-up in one step; sorted keys take a binary search.
        if len(rates) * places > SPARSE * entries + FEW or entries > np.iinfo(np.int32).max:
            return cls(places, None, rates.profile * places + rates.place), number
        cells = np.full(len(rates) * places + 1, -1, np.int32)
        for own, key in keys_of(rates):
            cells[key] = number[own]
        return cls(places, cells, None), number

    @classmethod
    def _of_keys(cls, places: int, keys: IntArray, profiles: int) -> Places:
        if profiles * places > SPARSE * len(keys) + FEW:
            return cls(places, None, keys)
        cells = np.full(profiles * places + 1, -1, np.int32)
        cells[keys] = np.arange(len(keys))
        return cls(places, cells, None)

    def find(self, profile: IntArray, place: IntArray) -> IntArray:
        """Number of each pair, or -1; profile or place may be -1 as well."""
        key = np.where((profile >= 0) & (place >= 0), profile * self.places + place, -1)
        if self.cells is not None:
            return self.cells[key].astype(np.int64)  # the last cell is of no pair
        assert self.keys is not None
        return find_sorted(self.keys, key)


@dataclass(frozen=True)
class Level:
    """Numbers below each of the places of the level above.

    Attributes
    ----------
    keys : IntArray or None
        ``place * STRIDE + number``, sorted; None where every place has one number.
    number : IntArray
        Then this number, by place.
    """

    keys: IntArray | None
    number: IntArray

    @classmethod
    def of(cls, above: IntArray, number: IntArray) -> tuple[Level, IntArray]:
        """The level of entries, given by the place above and the number of each, and the place of each entry."""
        if is_range(above, len(above)):
            # One number below each place: keys are not needed, and equal numbers are kept once.
            alike = len(number) > 0 and (number == number[0]).all()
            return cls(None, constant(number[0], len(number), np.int64) if alike else number), above
        keys, place = np.unique(above * STRIDE + number, return_inverse=True)
        return cls(keys, number), place.astype(np.int64)

    def find(self, above: IntArray, number: IntArray | int) -> IntArray:
        """Place of a number below each place of the level above; -1 where there is none."""
        if self.keys is not None:
            return np.where(above >= 0, find_sorted(self.keys, above * STRIDE + number), -1)
        if not len(self.number):
            return np.full(len(above), -1, np.int64)
        # A million jobs with one plain number each: all or none has the number.
        if is_constant(self.number) and isinstance(number, int):
            return above if self.number[0] == number else np.full(len(above), -1, np.int64)
        own = self.number[:1] if is_constant(self.number) else self.number[above]
        return np.where((above >= 0) & (own == number), above, -1)

    def above(self, places: IntArray, least: int) -> tuple[IntArray, IntArray]:
        """All numbers above ``least`` below the places: rows of the places given, and numbers."""
        if self.keys is None:
            rows = np.flatnonzero(places >= 0)
            rows = rows[self.number[places[rows]] > least]
            return rows, self.number[places[rows]]
        first = np.searchsorted(self.keys, places * STRIDE + least, "right")
        length = np.searchsorted(self.keys, (places + 1) * STRIDE) - first
        rows = np.repeat(np.arange(len(places), dtype=np.int64), length)
        return rows, self.keys[ranges(first, length)] % STRIDE


@dataclass(frozen=True)
class Entries:
    """The entries of a table, level by level: (profile, place), then its GPU counts, then the nodes spanned of each.

    Attributes
    ----------
    at : Places
    counts, spreads : Level
    rate : FloatArray
        By the place of the last level.
    """

    at: Places
    counts: Level
    spreads: Level
    rate: FloatArray

    @classmethod
    def of(cls, rates: RateTable) -> Entries:
        """Those of a table."""
        # Each level is found by the place in the level above and one number.
        at, owner = Places.of(rates)
        counts, owner = Level.of(owner, rates.gpus)
        spreads, entry = Level.of(owner, rates.nodes)
        rate = rates.rate
        if not is_range(entry, len(entry)):
            rate = np.empty(len(entry))
            rate[entry] = rates.rate
        return cls(at, counts, spreads, rate)


# --- tables of plain numbers ----------------------------------------------------------------------


@dataclass(frozen=True)
class PlainRates:
    """Rates of a table of plain numbers alone, as matrices of jobs and pools become, profile by profile.

    Attributes
    ----------
    places : int
        Places that there are.
    cells : FloatArray, shape (profiles x places + 1,)
        NaN where the table has none; the last cell is of no profile and no place.
    """

    places: int
    cells: FloatArray

    @classmethod
    def of(cls, rates: RateTable) -> PlainRates | None:
        """The rates of a table; None where it has rates of counts or spreads, or too few for so many places."""
        places, entries = len(rates.places), len(rates.rate)
        room = len(rates) * places
        if room > SPARSE * entries + FEW or not (
            _all(rates.gpus, OWN_GANG) and _all(rates.nodes, ANY_SPREAD)
        ):
            return None
        if not rates.one_by_one:
            return None
        # Every profile has a rate in every place: the entries are the table.
        if entries == room:
            return cls(places, np.append(rates.rate, np.nan))
        cells = np.full(room + 1, np.nan)
        for own, key in keys_of(rates):
            cells[key] = rates.rate[own]
        return cls(places, cells)

    def find(self, profile: IntArray, place: IntArray) -> FloatArray:
        """Rate of each pair, NaN for none; profile or place may be -1 as well."""
        # In place: of a million jobs each array counts.
        key = profile * self.places
        key += place
        if profile.min(initial=0) < 0 or place.min(initial=0) < 0:
            key[(profile < 0) | (place < 0)] = -1
        return self.cells[key]

    def rows(self, profile: IntArray, place: IntArray) -> FloatArray:
        """Rates of profiles in places, shape (profiles, places); NaN for none, also where a place is -1."""
        table = self.cells[:-1].reshape(-1, self.places)
        own = table[profile]
        if len(place) == self.places and is_range(place, self.places):
            return own
        return np.where(place >= 0, own[:, place], np.nan)


def _all(column: AnyArray, value: int) -> bool:
    return bool((shown(column) == value).all())
