"""Small programs with known answers, as the conformance suite gives them to every solver.

The suite keeps them below its facade, as they are its own. Tests of other packages find them here.
"""

from __future__ import annotations

from optsched.conformance.allocation import allocation, scattered
from optsched.conformance.answers import program
from optsched.conformance.integer import hard_knapsacks, knapsack, market_split
from optsched.conformance.integer import infeasible as infeasible_knapsack
from optsched.conformance.linear import covering, dense, infeasible, unbounded

__all__ = [
    "allocation",
    "covering",
    "dense",
    "hard_knapsacks",
    "infeasible",
    "infeasible_knapsack",
    "knapsack",
    "market_split",
    "program",
    "scattered",
    "unbounded",
]
