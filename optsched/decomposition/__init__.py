"""Decomposition as a tool: Dantzig-Wolfe for a program whose columns a function of yours makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.decomposition.column_generation import Decomposition, dantzig_wolfe
    from optsched.decomposition.knapsack import best_items
    from optsched.decomposition.master import Master, MasterColumns, Priced

__all__ = ["Decomposition", "Master", "MasterColumns", "Priced", "best_items", "dantzig_wolfe"]

__getattr__ = lazy_names(
    __name__,
    {
        "MasterColumns": ".master",
        "Decomposition": ".column_generation",
        "Master": ".master",
        "Priced": ".master",
        "best_items": ".knapsack",
        "dantzig_wolfe": ".column_generation",
    },
)
