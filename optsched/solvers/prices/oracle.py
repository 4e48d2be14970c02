"""The oracle: the cheapest response of every class that reaches a level at given prices, and the
bound.

For prices p and a level t a member of class k buys the level at the cost c_k(t; p), where c_k is
the lower convex hull of the origin (idle) and the points (a_kj, q_kj), level and cost of place j.
So at most two places are used. On the segment from L to U of the hull, with a_L < t <= a_U,

    slope   y_k = (q_U - q_L) / (a_U - a_L)                   cost of a little more of the level
    rent    u_k = max(0, max_j (a_kj y_k - q_kj))             what a unit of the member's time is worth
    shares  U: (t - a_L) / (a_U - a_L),  L: the rest of the time

and (p . W + sum_k n_k u_k) / sum_k n_k y_k bounds the smallest level from above, whatever the
prices are: divided by that sum, (p, y, u) is feasible in the dual program.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.solvers.prices.kernels import sweeps_for
from optsched.solvers.prices.market import Market, PinnedPoint, Places

SLACK = 1e-13
"""A point this far below a segment, relatively, counts as on it: without this, rounding makes the
search cycle.
"""
CHUNK = 32768
"""Classes that numpy handles at a time: their rows stay in the cache."""
REMEMBERED = 250_000
"""Classes up to which responses remember their segments."""


@dataclass(frozen=True)
class Response:
    """The response of all classes to prices and a level.

    Attributes
    ----------
    prices : FloatArray, shape (R,)
    level : float
    demand : FloatArray, shape (R,)
        Of all classes together.
    slope : float
        sum_k n_k y_k.
    bound : float
        No smallest level is higher.
    point : PinnedPoint, optional
        The allocation, if it is not the response to the prices.
    ends : pair of arrays of int, shape (K,) each, optional
        Lower and upper places, if there are few enough classes to store them: with ties another
        search may end in other places.
    """

    prices: FloatArray
    level: float
    demand: FloatArray
    slope: float
    bound: float
    point: PinnedPoint | None = None
    ends: tuple[Places, Places] | None = None


class Oracle:
    """Computes the responses of a market; each search begins at the segments of the last one.

    Parameters
    ----------
    market : Market
    worth : FloatArray, shape (K, w), optional
        Gain of a unit of a member's time in each place, in addition to the level; it reduces the
        cost. A class that would choose less than the level has the slope 0, which has no meaning
        then.

    Attributes
    ----------
    lower, upper : array of int, shape (K,)
        Places of the ends of each class's segment; -1 for the origin.
    share : FloatArray, shape (K,)
        Part of the time in the upper place, of the last whole response; so are the following.
    slope, rent : FloatArray, shape (K,)
    margin : FloatArray, shape (K,)
        How far each class is from another segment: the least reduced cost of a place outside of it,
        in cost.
    edge : FloatArray, shape (K,)
        How far the level is from an end of the segment.
    """

    def __init__(self, market: Market, worth: FloatArray | None = None) -> None:
        count = len(market)
        self.market, self.worth = market, worth
        self.lower: NDArray[np.int8] = np.full(count, -1, np.int8)
        self.upper: NDArray[np.int8] = np.full(count, -1, np.int8)
        self.share = np.empty(count)
        self.slope, self.rent = np.empty(count), np.empty(count)
        self.margin, self.edge = np.empty(count), np.empty(count)
        self.asked = 0
        # Compiled walks know no costs below 0.
        self.sweeps = sweeps_for(market.level.size) if worth is None else None
        self._last: Response | None = None
        """The last response, if it was a whole one."""

    def ask(self, prices: FloatArray, level: float, whole: bool = False) -> Response:
        """The response to prices and a level of at most ``market.highest``.

        With ``whole`` the attributes hold the response of each class. If the same is asked again
        after a whole response, that response is returned.
        """
        last = self._last
        if last is not None and level == last.level and np.array_equal(prices, last.prices):
            return last
        market = self.market
        warm = self.asked > 0
        cost = market.costs(prices)
        if self.worth is not None:
            cost = cost - self.worth
        self.asked += 1
        time = np.zeros(market.width)
        if self.sweeps is not None:
            wide = np.broadcast_to(cost, market.level.shape)
            slope, rent = self.sweeps.walk(
                market.level,
                wide,
                market.weight,
                level,
                self.lower,
                self.upper,
                self.share,
                self.slope,
                self.rent,
                self.margin,
                self.edge,
                time,
                warm,
                whole or market.good is None,
            )
        else:
            for start in range(0, len(market), CHUNK):
                self._search(slice(start, start + CHUNK), cost, level, warm, whole)
            slope = float((market.weight * self.slope).sum())
            rent = float((market.weight * self.rent).sum())
        if market.good is None or self.sweeps is None:
            weight = market.weight
            demand = market.used(self.lower, self.upper, weight * self.low, weight * self.share)
        else:
            demand = market.held(time)
        if market.pinned_demand is not None:
            # Pinned classes count as one more class, whose cost is linear in the level.
            held, more = market.pinned_demand.alpha, market.pinned_demand.beta
            demand = demand + held + level * more
            slope += float(prices @ more)
            rent -= float(prices @ held)
        bound = (float(prices @ market.capacity) + rent) / slope if slope > 0 else np.inf
        ends = (self.lower.copy(), self.upper.copy()) if len(market) <= REMEMBERED else None
        response = Response(prices, level, demand, slope, bound, None, ends)
        self._last = response if whole else None
        return response

    @property
    def low(self) -> FloatArray:
        """Part of the time in the lower place."""
        return np.where(self.lower >= 0, 1.0 - self.share, 0.0)

    def recall(self, response: Response) -> FloatArray:
        """The allocation of a response, as totals of the program's columns; computed again if the
        response does not store its places.
        """
        market = self.market
        if response.ends is None:
            self.ask(response.prices, response.level)
            lower, upper = self.lower, self.upper
        else:
            lower, upper = response.ends
        low, high = market.levels_at(lower), market.levels_at(upper)
        share = (response.level - low) / (high - low)
        rest = np.where(lower >= 0, 1.0 - share, 0.0)
        return market.spread(lower, upper, market.weight * rest, market.weight * share)

    def _search(self, part: slice, cost: FloatArray, level: float, warm: bool, whole: bool) -> None:
        """Move the segments of some classes down to the hull: the point farthest below a segment
        becomes an end of it.
        """
        table = self.market.by_place
        a = table[:, part]
        q = cost.T if len(cost) == 1 else cost[part].T
        rows = np.arange(a.shape[1])
        of_all = rows + part.start
        lower, upper = self.lower[part].astype(np.int64), self.upper[part].astype(np.int64)
        placed = lower >= 0
        high = _entries(table, upper, of_all)
        low = np.where(placed, _entries(table, lower, of_all), 0.0)
        fresh = rows
        if warm:
            # Only classes whose last segment does not contain the level any more.
            fresh = np.flatnonzero((high < level) | (placed & (low >= level)))
        if len(fresh):
            lower[fresh], low[fresh], placed[fresh] = -1, 0.0, False
            upper[fresh] = _cheapest(_some(a, fresh), _some(q, fresh), level)
            high[fresh] = _entries(table, upper[fresh], of_all[fresh])
        paid = _entries(q, upper, rows)
        saved = np.where(placed, _entries(q, lower, rows), 0.0)
        # If the lower end costs more than the upper one, the segment starts from the origin again.
        dearer = saved > paid
        if dearer.any():
            lower[dearer], low[dearer], saved[dearer] = -1, 0.0, 0.0
        slope, rent = (paid - saved) / (high - low), np.empty(len(rows))
        active: IntArray | slice = slice(None)
        for _ in range(3 * len(a) + 3):
            y = slope[active]
            gain, found = _most_below(_some(a, active), _some(q, active), y)
            line = y * high[active] - paid[active]
            rent[active] = np.maximum(np.maximum(line, gain), 0.0)
            least = line + SLACK * (np.abs(line) + np.abs(paid[active]))
            # The origin is below the segment if even the upper place has a negative value there.
            to_origin = (least < 0.0) & (gain <= 0.0)
            better = np.flatnonzero((gain > np.maximum(least, 0.0)) | to_origin)
            if not len(better):
                break
            active, found = rows[active][better], found[better]
            origin = to_origin[better]
            reach = np.where(origin, 0.0, _entries(table, found, of_all[active]))
            price = np.where(origin, 0.0, _entries(q, found, active))
            place = np.where(origin, -1, found)
            above: BoolArray = reach >= level
            up, down = active[above], active[~above]
            upper[up], high[up], paid[up] = place[above], reach[above], price[above]
            lower[down], low[down], saved[down] = place[~above], reach[~above], price[~above]
            slope[active] = (paid[active] - saved[active]) / (high[active] - low[active])
        slope = np.maximum(slope, 0.0)
        share = (level - low) / (high - low)
        self.lower[part], self.upper[part] = lower, upper
        self.slope[part], self.rent[part] = slope, rent
        self.share[part] = share
        if whole:
            self.edge[part] = np.minimum(share, 1.0 - share) * (high - low)
            self.margin[part] = _margins(a, q, slope, rent, (lower, upper))


def _margins(
    a: FloatArray,
    q: FloatArray,
    slope: FloatArray,
    rent: FloatArray,
    ends: tuple[IntArray, IntArray],
) -> FloatArray:
    """The least reduced cost of a place outside of each class's segment."""
    lower, upper = ends
    nearest = np.where(lower >= 0, rent, np.inf)
    for j in range(len(a)):
        # A place without level that costs something is no better than idleness.
        no_other = (upper == j) | (lower == j) | ((a[j] == 0.0) & (q[j] >= 0.0))
        reduced = q[j] - slope * a[j] + rent
        nearest = np.minimum(nearest, np.where(no_other, np.inf, reduced))
    return nearest


def _entries(table: FloatArray, place: IntArray | NDArray[np.int8], row: IntArray) -> FloatArray:
    """Entries of some rows at a place of each; a table of one column has the same for all rows."""
    if table.shape[1] == 1:
        return table[:, 0].take(place)
    if not table.flags.c_contiguous:
        return table[place, row]
    # A flat index takes a quarter of the time of two.
    begin = np.multiply(place, table.shape[1], dtype=np.int64)
    return table.ravel().take(begin + row)


def _some(table: FloatArray, rows: IntArray | slice) -> FloatArray:
    """Entries of some rows in all places; a table of one column has the same for all rows."""
    if isinstance(rows, slice) or table.shape[1] == 1:
        return table
    return table.take(rows, axis=1)


def _most_below(
    a: FloatArray, q: FloatArray, slope: FloatArray
) -> tuple[FloatArray, NDArray[np.int8]]:
    """How far the point most below the segment is below it, through the origin; and which it is."""
    gain, found = a[0] * slope - q[0], np.zeros(a.shape[1], np.int8)
    below, better = np.empty_like(gain), np.empty(len(gain), bool)
    for j in range(1, len(a)):
        np.multiply(a[j], slope, out=below)
        below -= q[j]
        np.greater(below, gain, out=better)
        # The last place that is better is the highest number: a maximum takes half of the time of a
        # mask.
        np.maximum(found, better.view(np.int8) * np.int8(j), out=found)
        np.maximum(gain, below, out=gain)
    return gain, found


def _cheapest(a: FloatArray, q: FloatArray, level: float) -> IntArray:
    """The cheapest place that reaches a level, of several the highest.

    Where rounding hides every one, the cheapest of the highest places: of two ends at the same
    height a segment would have no slope.
    """
    reach = a >= level
    none = ~reach.any(axis=0)
    reach[:, none] = a[:, none] == a[:, none].max(axis=0)
    price = np.where(reach, q, np.inf)
    least = price <= price.min(axis=0)
    best: IntArray = np.where(least & reach, a, -1.0).argmax(axis=0)
    return best
