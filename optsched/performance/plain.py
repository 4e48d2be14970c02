"""Rate tables of plain numbers alone, as matrices of jobs and pools become: one rate for each profile and place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optsched.arrays import AnyArray, FloatArray, IntArray, is_range, shown
from optsched.instance.tables import ANY_SPREAD, OWN_GANG, RateTable
from optsched.performance.levels import FEW, SPARSE, keys_of


@dataclass(frozen=True)
class PlainRates:
    """The rates of such a table, profile by profile.

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
        if entries == room:
            return cls(places, np.append(rates.rate, np.nan))
        cells = np.full(room + 1, np.nan)
        for own, key in keys_of(rates):
            cells[key] = rates.rate[own]
        return cls(places, cells)

    def find(self, profile: IntArray, place: IntArray) -> FloatArray:
        """Rate of each pair, NaN for none; profile or place may be -1 as well."""
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
