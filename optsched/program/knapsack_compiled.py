"""The loops of `optsched.program.knapsack`, knapsack by knapsack, for numba (the extra ``fast``).

They add the same numbers in the same order, so they find the same items and the same losses.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from optsched.arrays.compiling import compiled_by_name


@cache
def compiled() -> SimpleNamespace | None:
    """The compiled loops by name; None without numba."""
    return compiled_by_name(_best, _losses, error_model="numpy")


def _best(value: Any, weight: Any, room: Any, total: Any, taken: Any) -> None:
    """Write the total value and the items of each knapsack's best set."""
    rows, items = value.shape
    for row in range(rows):
        left = room[row]
        best, better = np.zeros(left + 1), np.zeros((items, left + 1), np.bool_)
        for item in range(items):
            size, worth = weight[row, item], value[row, item]
            if worth <= 0.0:
                continue
            for at in range(left, size - 1, -1):
                with_item = best[at - size] + worth
                if with_item > best[at]:
                    best[at] = with_item
                    better[item, at] = True
        total[row] = best[left]
        for item in range(items - 1, -1, -1):
            taken[row, item] = better[item, left]
            if better[item, left]:
                left -= weight[row, item]


def _losses(value: Any, weight: Any, room: Any, loss: Any, taken: Any) -> None:
    """Write the items of each knapsack's best set, and what it loses if one of them is left out or
    another one is taken; the value of that one is not counted.
    """
    rows, items = value.shape
    for row in range(rows):
        most = room[row]
        before, behind = np.zeros((items + 1, most + 1)), np.zeros((items + 1, most + 1))
        for table, step in ((before, 1), (behind, -1)):
            for place in range(items):
                item = place if step == 1 else items - 1 - place
                size, worth = weight[row, item], value[row, item]
                for at in range(most + 1):
                    table[place + 1, at] = table[place, at]
                    if worth > 0.0 and at >= size:
                        table[place + 1, at] = max(
                            table[place + 1, at], table[place, at - size] + worth
                        )
        left = most
        for item in range(items - 1, -1, -1):
            taken[row, item] = before[item + 1, left] > before[item, left]
            if taken[row, item]:
                left -= weight[row, item]
        for item in range(items):
            others = most if taken[row, item] else most - weight[row, item]
            beside = -np.inf
            for at in range(others + 1):
                beside = max(beside, before[item, at] + behind[items - 1 - item, others - at])
            loss[row, item] = before[items, most] - beside
