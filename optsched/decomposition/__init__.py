"""Decomposition as a tool: Dantzig-Wolfe and Lagrangian relaxation. The caller gives a function
that solves the easy part of the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optsched.lazy import lazy_names

if TYPE_CHECKING:
    from optsched.decomposition.branching import branch_and_price
    from optsched.decomposition.bundle import LagrangianBound, Relaxed, Repaired, lagrangian
    from optsched.decomposition.column_generation import Decomposition, dantzig_wolfe
    from optsched.decomposition.diving import dive
    from optsched.decomposition.master import CoupledRows, Master, MasterColumns, Priced
    from optsched.decomposition.rounding import round_by_slots
    from optsched.program.knapsack import best_items
    from optsched.solving.column_loop import ColumnLoop

__all__ = [
    "ColumnLoop",
    "CoupledRows",
    "Decomposition",
    "LagrangianBound",
    "Master",
    "MasterColumns",
    "Priced",
    "Relaxed",
    "Repaired",
    "best_items",
    "branch_and_price",
    "dantzig_wolfe",
    "dive",
    "lagrangian",
    "round_by_slots",
]

__getattr__ = lazy_names(
    __name__,
    {
        "ColumnLoop": "optsched.solving.column_loop",
        "CoupledRows": ".master",
        "Decomposition": ".column_generation",
        "LagrangianBound": ".bundle",
        "Master": ".master",
        "MasterColumns": ".master",
        "Priced": ".master",
        "Relaxed": ".bundle",
        "Repaired": ".bundle",
        "best_items": "optsched.program.knapsack",
        "branch_and_price": ".branching",
        "dantzig_wolfe": ".column_generation",
        "dive": ".diving",
        "lagrangian": ".bundle",
        "round_by_slots": ".rounding",
    },
)
