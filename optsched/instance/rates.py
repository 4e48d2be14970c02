"""Rates that an instance states, and their lookup.

Lookup tables are the same in every solve of an instance, and in every round without new rates, so
they are built once per rate table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import (
    FloatArray,
    IntArray,
    blocks,
    constant,
    find_sorted,
    in_order,
    is_constant,
    is_range,
    lengths,
    owners,
    ranges,
    without_repeats,
)
from optsched.arrays.values import cached_property
from optsched.display import Displayed, count

OWN_GANG = 0
"""GPU count of a rate given as a plain number:
at the job's own gang (a job's rate) or on 1 GPU (a workload's).
"""
ANY_SPREAD = 0
"""Nodes spanned by a rate that states none: the fewest that the count needs."""
LEVEL = 2**31
"""Larger than any number of nodes. A rate within one group of level l of the topology (1: the
smallest groups) has ``LEVEL + l`` instead of a number of nodes: it may span as many nodes as it has
GPUs.
"""
STRIDE = 2**32
"""Larger than any number of GPUs or nodes.
Keys are (position in the level above) x `STRIDE` + count: no overflow.
"""
SPARSE = 4
"""A table of all cells may have at most this many cells per entry."""
SMALL_TABLE = 1024
"""A table with at most this many cells is always made."""


@dataclass(frozen=True, repr=False, eq=False)
class RateTable(Displayed):
    """Interned throughput profiles; profile p owns the entries ``indptr[p]:indptr[p + 1]``.

    Attributes
    ----------
    indptr : IntArray, shape (P + 1,)
    place : array of int, shape (E,)
        Index into ``places``, in as few bytes as it needs: the name of a pool, else of a GPU type.
    gpus, nodes : IntArray, shape (E,)
        GPU count (`OWN_GANG`: plain number) and nodes spanned (`ANY_SPREAD`: as few as needed), or
        a level of the topology (`LEVEL`).
    rate : FloatArray, shape (E,)
        steps/s of the whole job; 0 means that it cannot run in this configuration.
    places : tuple of str
    levels : tuple of str
        Names of the levels of the topology, from the smallest groups on.
    """

    indptr: IntArray
    place: IntArray
    gpus: IntArray
    nodes: IntArray
    rate: FloatArray
    places: tuple[str, ...]
    levels: tuple[str, ...] = ()

    def _headline(self) -> str:
        return f"of {count(len(self), 'profile')} in {count(len(self.places), 'place')}"

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def profile(self) -> IntArray:
        """Profile of each entry, shape (E,)."""
        return owners(lengths(self.indptr))

    @property
    def one_by_one(self) -> bool:
        """Whether every profile has its places sorted and without repeats."""
        rises = self.place[1:] > self.place[:-1]
        # The first entry of a profile is not compared with the last one of the previous profile.
        begin = self.indptr[1:-1]
        rises[begin[(begin > 0) & (begin < len(self.place))] - 1] = True
        return bool(rises.all())

    def document(self, profile: int) -> dict[str, Any]:
        """The profile as in an instance file."""
        result: dict[str, Any] = {}
        for entry in range(self.indptr[profile], self.indptr[profile + 1]):
            place, rate = self.places[self.place[entry]], float(self.rate[entry])
            gpus, nodes = int(self.gpus[entry]), int(self.nodes[entry])
            if gpus == OWN_GANG:
                result[place] = rate
            elif nodes == ANY_SPREAD:
                result.setdefault(place, {})[str(gpus)] = rate
            else:
                spread = str(nodes) if nodes < LEVEL else self.levels[nodes - LEVEL - 1]
                result.setdefault(place, {}).setdefault(str(gpus), {})[spread] = rate
        return result

    @cached_property
    def has_plain_numbers(self) -> bool:
        """Whether some rate is a plain number, without a GPU count."""
        return bool((without_repeats(self.gpus) == OWN_GANG).any())

    @cached_property
    def has_counts(self) -> bool:
        """Whether some rate is for a number of GPUs."""
        return bool((without_repeats(self.gpus) != OWN_GANG).any())

    @cached_property
    def has_spreads(self) -> bool:
        """Whether some rate is for a number of nodes spanned."""
        return bool((without_repeats(self.nodes) != ANY_SPREAD).any())

    @cached_property
    def entries(self) -> Entries:
        """The entries, indexed by profile, place, GPU count and nodes spanned."""
        return Entries.of(self)

    @cached_property
    def profile_counts(self) -> IntArray:
        """``profile * STRIDE + count`` of the GPU counts that profiles list for any place,
        sorted.
        """
        counted = self.gpus != OWN_GANG
        return np.unique(self.profile[counted] * STRIDE + self.gpus[counted])


def keys_of(rates: RateTable) -> Iterator[tuple[slice, IntArray]]:
    """Slices of the entries of a table, in blocks, with their keys ``profile * places + place``."""
    for part in blocks(len(rates)):
        # In blocks of profiles, so that not all keys are in memory at once.
        length = lengths(rates.indptr[part.start : part.stop + 1])
        entries = slice(rates.indptr[part.start], rates.indptr[part.stop])
        first = np.arange(part.start, part.stop, dtype=np.int64) * len(rates.places)
        yield entries, first.repeat(length) + rates.place[entries]


def numbered(keys: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct keys, sorted, and the row of each key among them."""
    if not in_order([keys]):
        different, row = np.unique(keys, return_inverse=True)
        return different, row.astype(np.int64)
    # Fast path: most tables are sorted already.
    new = np.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    return keys[new], new.cumsum() - 1


class Places(NamedTuple):
    """The pairs (profile, place) that a rate table has, numbered in order.

    Attributes
    ----------
    places : int
        Number of places.
    cells : NDArray[int32] or None, shape (profiles x places + 1,)
        Number of each pair, -1 for pairs that the table does not have; None if the array would be
        too large.
    keys : IntArray or None
        Used if ``cells`` is None: ``profile * places + place`` of the pairs, sorted.
    """

    places: int
    cells: NDArray[np.int32] | None
    keys: IntArray | None

    @classmethod
    def of(cls, rates: RateTable) -> tuple[Places, IntArray]:
        """The pairs of a table, and the number of the pair of each entry."""
        places = len(rates.places)
        entries = len(rates.place)
        if not rates.one_by_one:
            keys, number = numbered(rates.profile * places + rates.place)
            return cls._of_keys(places, keys, len(rates)), number
        number = np.arange(entries, dtype=np.int64)
        # A table of all cells needs one lookup; sorted keys need a binary search.
        if len(rates) * places > SPARSE * entries + SMALL_TABLE or entries > np.iinfo(np.int32).max:
            return cls(places, None, rates.profile * places + rates.place), number
        cells = np.full(len(rates) * places + 1, -1, np.int32)
        for rows, keys in keys_of(rates):
            cells[keys] = number[rows]
        return cls(places, cells, None), number

    @classmethod
    def _of_keys(cls, places: int, keys: IntArray, profiles: int) -> Places:
        if profiles * places > SPARSE * len(keys) + SMALL_TABLE:
            return cls(places, None, keys)
        cells = np.full(profiles * places + 1, -1, np.int32)
        cells[keys] = np.arange(len(keys))
        return cls(places, cells, None)

    def find(self, profile: IntArray, place: IntArray) -> IntArray:
        """Number of each pair, or -1; profile or place may be -1 as well."""
        key = np.where((profile >= 0) & (place >= 0), profile * self.places + place, -1)
        if self.cells is not None:
            return self.cells[key].astype(np.int64)  # the last cell is for no pair
        assert self.keys is not None
        return find_sorted(self.keys, key)


class RateLevel(NamedTuple):
    """One level of the index: numbers below each entry of the level above.

    Attributes
    ----------
    keys : IntArray or None
        ``place * STRIDE + number``, sorted; None if every place has exactly one number.
    number : IntArray
        Used if ``keys`` is None: the number of each place.
    """

    keys: IntArray | None
    number: IntArray

    @classmethod
    def of(cls, above: IntArray, number: IntArray) -> tuple[RateLevel, IntArray]:
        """Build the level from the place above and the number of each entry; also returns the place
        of each entry.
        """
        if is_range(above, len(above)):
            # Every place has one number: no keys are needed, and equal numbers become a constant.
            alike = len(number) > 0 and (number == number[0]).all()
            return cls(None, constant(number[0], len(number), np.int64) if alike else number), above
        keys, place = numbered(above * STRIDE + number)
        return cls(keys, number), place

    def find(self, above: IntArray, number: IntArray | int) -> IntArray:
        """Place of a number below each place of the level above; -1 if there is none."""
        if self.keys is not None:
            return find_sorted(self.keys, above * STRIDE + number)  # there is no key for -1
        if not len(self.number):
            return np.full(len(above), -1, np.int64)
        # A million jobs with one plain number each: one comparison decides for all.
        if is_constant(self.number) and isinstance(number, int):
            return above if self.number[0] == number else np.full(len(above), -1, np.int64)
        stated = self.number[:1] if is_constant(self.number) else self.number[above]
        return np.where((above >= 0) & (stated == number), above, -1)

    def next(self, above: IntArray, least: IntArray, most: int) -> IntArray:
        """Place of the smallest number below each place of the level above that is at least
        ``least`` and less than ``most``; -1 if there is none.
        """
        keys = self.keys
        if keys is None:
            keys = np.arange(len(self.number), dtype=np.int64) * STRIDE + self.number
        first = keys.searchsorted(above * STRIDE + least)
        found = keys[np.minimum(first, len(keys) - 1)] if len(keys) else np.full(len(first), -1)
        there = (above >= 0) & (first < len(keys)) & (found < above * STRIDE + most)
        return np.where(there, first, -1)

    def above(self, places: IntArray, least: int) -> tuple[IntArray, IntArray]:
        """All numbers larger than ``least`` of the given places: rows of the places, and the
        numbers.
        """
        if self.keys is None:
            rows = np.flatnonzero(places >= 0)
            rows = rows[self.number[places[rows]] > least]
            return rows, self.number[places[rows]]
        first = self.keys.searchsorted(places * STRIDE + least, "right")
        length = self.keys.searchsorted((places + 1) * STRIDE) - first
        rows = owners(length)
        return rows, self.keys[ranges(first, length)] % STRIDE


class Entries(NamedTuple):
    """The entries of a table, level by level:
    (profile, place), then its GPU counts, then the nodes spanned of each.

    Attributes
    ----------
    at : Places
    counts, spreads : RateLevel
    rate : FloatArray
        Rate by the place of the last level.
    """

    at: Places
    counts: RateLevel
    spreads: RateLevel
    rate: FloatArray

    @classmethod
    def of(cls, rates: RateTable) -> Entries:
        """The index of a rate table."""
        # The key of each level is the place in the level above and one number.
        at, owner = Places.of(rates)
        counts, owner = RateLevel.of(owner, rates.gpus)
        spreads, entry = RateLevel.of(owner, rates.nodes)
        rate = rates.rate
        if not is_range(entry, len(entry)):
            rate = np.empty(len(entry))
            rate[entry] = rates.rate
        return cls(at, counts, spreads, rate)


class PlainRates(NamedTuple):
    """Rates of a table with plain numbers only, as a matrix of profiles and places.

    Attributes
    ----------
    places : int
        Number of places.
    cells : FloatArray, shape (profiles x places + 1,)
        NaN if the table has no rate; the last cell is for no profile or no place.
    """

    places: int
    cells: FloatArray

    @classmethod
    def of(cls, rates: RateTable) -> PlainRates | None:
        """The rates of a table;
        None if it has rates by count or spread, or too few entries for a matrix.
        """
        places = len(rates.places)
        entries = len(rates.rate)
        room = len(rates) * places
        if room > SPARSE * entries + SMALL_TABLE or rates.has_counts or rates.has_spreads:
            return None
        if not rates.one_by_one:
            return None
        # Every profile has a rate in every place: the entries are already the matrix.
        if entries == room:
            return cls(places, np.append(rates.rate, np.nan))
        cells = np.full(room + 1, np.nan)
        for part, keys in keys_of(rates):
            cells[keys] = rates.rate[part]
        return cls(places, cells)

    def find(self, profile: IntArray, place: IntArray) -> FloatArray:
        """Rate of each pair, NaN for none; profile or place may be -1 as well."""
        # In place, because with a million jobs each array matters.
        key = profile * self.places
        key += place
        if profile.min(initial=0) < 0 or place.min(initial=0) < 0:
            key[(profile < 0) | (place < 0)] = -1
        return self.cells[key]

    def rows(self, profile: IntArray, place: IntArray) -> FloatArray:
        """Rates of profiles in places, shape (profiles, places);
        NaN for none, also where a place is -1.
        """
        table = self.cells[:-1].reshape(-1, self.places)
        of_profiles = table[profile]
        if len(place) == self.places and is_range(place, self.places):
            return of_profiles
        return np.where(place >= 0, of_profiles[:, place], np.nan)
