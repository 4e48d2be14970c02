"""When a search by prices goes from one phase to the next, and how far it steps; the same for levels and for places."""

from __future__ import annotations

COARSE = 2e-5
"""Gap at which the small program takes over from cutting planes."""
EXACT = 1e-10
"""Gap at which the search ends."""
CLOSED = 1e-9
"""Relative gap of an answer that is called optimal."""
ROUNDS = 12
"""Rounds of the second phase at most."""
QUICK = 0.05
"""Part of the gap that cuts between rounds leave where they go on."""
STEADY = 0.8
"""Part of the best prices in the prices that are asked next; the rest are the master's."""
STEPS = (1.0, 0.4, 0.16, 0.064)
"""Parts of the way from the best prices to those of the small program that are tried."""
PRECISE = 1e-10
"""Tolerance of the small program."""
