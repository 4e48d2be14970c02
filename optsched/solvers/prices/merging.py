"""Merging of classes with equal rows: at any prices they respond in the same way.

A class is its row, what its columns hold, and its weight, what a unit of its members' time counts.
So rows that are equal, to the last bit, become one class of the summed weight, and its response is
split by weight. Nothing is lost, and a search for ten thousand jobs of a hundred sorts becomes one
for a hundred classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray, Groups, IntArray, group_rows, hash_lists
from optsched.arrays.values import replace
from optsched.solvers.prices.market import Market, Places

SAMPLE = 2048
"""Size of the sample of rows: if all of these differ, merging would not help."""
WORTH = 0.7
"""Fraction of the classes that may remain at most for merging to be used."""


@dataclass(frozen=True)
class Merged:
    """A market with equal rows merged.

    Attributes
    ----------
    whole : Market
        That of all K classes.
    market : Market
        That of the G groups, each with its own columns.
    groups : Groups
    """

    whole: Market
    market: Market
    groups: Groups

    def totals(self, x: FloatArray) -> FloatArray:
        """Totals of the whole market's columns, shape (N,),
        from those of the merged one's; what is behind stays.
        """
        whole, group = self.whole, self.groups.inverse
        share = whole.weight / whole.amount / self.market.weight[group]
        behind = x[self.market.columns :]
        found = np.concatenate([np.zeros(whole.columns), behind])
        for j, place in enumerate(whole.place.T):
            some = np.flatnonzero(place >= 0)
            found[place[some]] = x[group[some] * whole.width + j] * share[some]
        return found

    def mean(self, each: FloatArray) -> FloatArray:
        """What the classes of each group do on average, shape (G, w), from what each class does."""
        group, weight = self.groups.inverse, self.whole.weight
        total = [np.bincount(group, weight * part, len(self.market)) for part in each.T]
        return np.asarray(np.stack(total, axis=1) / self.market.weight[:, np.newaxis])

    def of_each(self, value: FloatArray) -> FloatArray:
        """Slopes or rents of the classes, shape (K,), from those of the groups."""
        return np.asarray(self.whole.amount * value[self.groups.inverse])


def merged(market: Market, rows: FloatArray) -> Merged | None:
    """The market with classes merged whose ``rows``, shape (K, w), are equal;
    None where that is not worth it.

    Where places are not goods, what columns hold has to be equal too.
    """
    if not _many_alike(rows):
        return None
    columns = None if market.good is not None else _and_nothing(market.usage)
    held = [] if columns is None else list(_hashes(columns)[market.place].T)
    groups = group_rows([*rows.T, *held], len(rows))
    count = len(groups)
    if count > WORTH * len(rows):
        return None
    if columns is not None and not _hold_the_same(columns, market.place, groups):
        return None
    column = np.arange(count * market.width, dtype=np.int32).reshape(count, market.width)
    place = market.place[groups.first]
    # Rents and slopes of groups are of a unit of weight: the amounts of members may differ.
    small = replace(
        market,
        level=market.level[groups.first],
        amount=np.ones(count),
        place=np.where(place >= 0, column, -1),
        weight=np.bincount(groups.inverse, market.weight, count).astype(np.float64),
        columns=column.size,
        held_by=partial(_held, market, place),
    )
    return Merged(market, small, groups)


def _held(market: Market, place: Places) -> sp.csr_matrix:
    """What the columns of merged classes hold, of which the first one of each has these places."""
    if market.good is None:
        return sp.csr_matrix(_and_nothing(market.usage)[:, place.ravel()])
    good = np.tile(market.good, len(place))
    return sp.csr_matrix(
        (np.ones(place.size), (good, np.arange(place.size))), (len(market.capacity), place.size)
    )


def _and_nothing(usage: sp.csr_matrix) -> sp.csc_matrix:
    """The columns, and one at -1 that holds nothing."""
    columns = sp.csc_matrix(sp.hstack([usage, sp.csr_matrix((usage.shape[0], 1))]))
    columns.sort_indices()
    return columns


def _hashes(columns: sp.csc_matrix) -> IntArray:
    """A number for what each column holds."""
    hashes = hash_lists(columns.indptr.astype(np.int64), [columns.indices, columns.data])
    return hashes.view(np.int64)


def _hold_the_same(columns: sp.csc_matrix, place: Places, groups: Groups) -> bool:
    """Whether the columns of merged classes hold the same: others may have equal hashes."""
    k = np.flatnonzero((groups.count > 1)[groups.inverse])
    own = columns[:, place[k].ravel()]
    of_first = columns[:, place[groups.first[groups.inverse[k]]].ravel()]
    parts = "indptr", "indices", "data"
    return all(np.array_equal(getattr(own, part), getattr(of_first, part)) for part in parts)


def _many_alike(rows: FloatArray) -> bool:
    """Whether some rows of a sample are equal."""
    if len(rows) < 2:
        return False
    some = rows
    if len(rows) > SAMPLE:
        drawn = np.random.default_rng(0).integers(len(rows), size=SAMPLE)
        some = rows[np.unique(drawn)]
    return len(group_rows(list(some.T), len(some))) < len(some)
