"""Prices to start from where classes are many: those of a sample that represents all of them.

One class in f is drawn and counts f times. The demand of the whole market is computed once at the
prices of the sample. The difference to the demand of the sample, as a function of the level, is
then added to the sample as pinned demand, so that the sample only models how demand CHANGES with
the prices (a control variate). Two such corrections reduce the error of the plain sample by a
factor of about 1000, and replace many passes over all classes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.arrays.values import replace
from optsched.solvers.prices.market import Market, PinnedDemand
from optsched.solvers.prices.oracle import Oracle
from optsched.solvers.prices.polish import PinnedClasses

CORRECTIONS = 2
LARGE = 200_000
"""Entries of the level table from which a sample saves time."""
PART = 64
"""Classes for each one in the sample, at most."""
LEAST = 1500
"""Classes of a sample for each place, at least: more prices need more classes."""
SMALL = 4
"""Classes for each one in the sample, below which it is hardly smaller than the whole."""


def worth_sampling(market: Market) -> bool:
    """Whether a sample saves more than it takes."""
    return market.level.size >= LARGE and _every(market) >= SMALL


def _every(market: Market) -> int:
    return min(PART, len(market) // (LEAST * market.width))


def sample_size(market: Market) -> int:
    """Classes of a sample."""
    return len(market) // _every(market)


def sample_of(market: Market) -> tuple[IntArray, Market]:
    """One class of every few beside each other, that count for all: which, and their market."""
    every = _every(market)
    begin = np.arange(0, len(market) - every + 1, every)
    # Drawn at random within each stretch, because rows may be periodic.
    drawn = np.random.default_rng(0).integers(0, every, len(begin))
    chosen = begin + drawn
    some = market.part(chosen, market.capacity)
    factor = market.weight.sum() / (some.weight.sum() or 1.0)  # the weight is 0 if jobs need no GPU
    return chosen, replace(some, weight=some.weight * factor)


def sampled(
    oracle: Oracle, solve: Callable[[Market, FloatArray | None], tuple[FloatArray, float]]
) -> FloatArray:
    """Prices near those of the whole market.

    Parameters
    ----------
    oracle : Oracle
        Of the whole market.
    solve : callable
        Prices and level of a market, from prices to start from.
    """
    market = oracle.market
    _, sample = sample_of(market)
    prices, level = solve(sample, None)
    nobody = np.zeros(0, np.int64)
    for _ in range(CORRECTIONS):
        # A fresh oracle: the sample is another market with every correction.
        small = Oracle(sample)
        small.ask(prices, level)
        oracle.ask(prices, level)
        whole = PinnedClasses.but(oracle, nobody).pinned_demand
        part = PinnedClasses.but(small, nobody).pinned_demand
        beyond = PinnedDemand(whole.alpha - part.alpha, whole.beta - part.beta)
        prices, level = solve(replace(sample, pinned_demand=beyond), prices)
    return prices
