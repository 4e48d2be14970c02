"""Prices to start from where classes are many: those of a sample that represents all of them.

Every 1/f-th class is taken f times over. At the prices of that small market the whole one is asked
once; what it holds beyond the sample, as a function of the level, goes into the sample as taken, so
that the sample only has to say how demand CHANGES with the prices (a control variate). Two such
corrections leave errors of about a thousandth of those of the plain sample, in the place of the
many passes over all classes that find the way from prices which know nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from optsched.arrays import FloatArray, IntArray
from optsched.solvers.prices.market import Market, PinnedDemand
from optsched.solvers.prices.oracle import Oracle
from optsched.solvers.prices.polish import PinnedClasses

CORRECTIONS = 2
LARGE = 200_000
"""Entries of the level table from which a sample is worth its while."""
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
    # At random within each stretch: rows may be periodic.
    drawn = np.random.default_rng(0).integers(0, every, len(begin))
    chosen = begin + drawn
    some = market.part(chosen, market.capacity)
    factor = market.weight.sum() / (some.weight.sum() or 1.0)  # jobs may need nothing
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
