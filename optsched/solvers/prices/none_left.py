"""Prices of resources of which there is nothing: no market finds them, and duals need them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.program import AllocationProgram


def with_prices_of_nothing(
    program: AllocationProgram, prices: FloatArray, rent: FloatArray, slope: FloatArray
) -> FloatArray:
    """Prices of all resources, those without capacity so dear that nobody wants any.

    Parameters
    ----------
    program : AllocationProgram
    prices : FloatArray, shape (R,)
        Of the resources that there is something of; 0 elsewhere.
    rent, slope : FloatArray, shape (K,)
        Worth of a class's time, and of one unit of ``levels @ x``.
    """
    C = program.classes
    none = np.flatnonzero(C.capacity <= 0)
    if not len(none):
        return prices
    gain = program.levels.T @ slope - rent[C.class_a] - C.usage.T @ prices
    held = sp.coo_matrix(C.usage[none])
    dearest = np.zeros(len(none))
    np.maximum.at(dearest, held.row, gain[held.col] / held.data)
    found = prices.copy()
    found[none] = dearest
    return found
