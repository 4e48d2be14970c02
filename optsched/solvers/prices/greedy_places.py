"""What a search for the best places leaves where it is stopped: an allocation that fills the capacities.

All classes ask for the place that is worth most to them beyond its price. A place for which too many ask takes those
that would lose most by their next best place; who is not taken asks again among the places that have something left,
until there is none, or nobody who asks.
"""

from __future__ import annotations

import numpy as np

from optsched.arrays import FloatArray


def filled_places(
    worth: FloatArray, weight: FloatArray, capacity: FloatArray, prices: FloatArray
) -> FloatArray:
    """Parts of their time that classes spend in places, shape (K, w).

    Parameters
    ----------
    worth : FloatArray, shape (K, w)
        Of all the time in a place, for each unit of ``weight``; each place is one good.
    weight : FloatArray, shape (K,)
        What all members of a class hold of a good together.
    capacity, prices : FloatArray, shape (w,)
    """
    time, left = np.zeros(worth.shape), capacity.copy()
    gain = np.where(worth > 0, worth - prices, -np.inf)
    idle = np.arange(len(worth))
    while len(idle):
        open_ = left > 1e-12 * capacity
        asked = np.where(open_, gain[idle], -np.inf)
        place = asked.argmax(axis=1)
        wanted = asked[np.arange(len(idle)), place] > -np.inf
        idle, place, asked = idle[wanted], place[wanted], asked[wanted]
        if not len(idle):
            break
        rows = np.arange(len(idle))
        best = asked[rows, place].copy()
        asked[rows, place] = -np.inf
        loss = best - np.maximum(asked.max(axis=1), 0.0)
        rest = np.zeros(len(idle), bool)
        for j in np.flatnonzero(np.bincount(place, minlength=len(left))):
            mine = np.flatnonzero(place == j)
            mine = mine[np.argsort(-loss[mine], kind="stable")]
            held = weight[idle[mine]]
            before = np.cumsum(held) - held
            part = np.clip((left[j] - before) / held, 0.0, 1.0)
            time[idle[mine], j] = part
            left[j] = left[j] - float(held.sum()) if part[-1] == 1.0 else 0.0
            rest[mine[part == 0.0]] = True
        idle = idle[rest]
    return time
