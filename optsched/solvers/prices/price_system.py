"""The small linear system in the prices to which a step of an interior-point method reduces."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from optsched.arrays import FloatArray

SHIFTS = (1e-14, 1e-12, 1e-10)
"""Relative shifts of the diagonal, of which the least is used with which the system can be
solved."""

BEYOND = 4.0
"""Times what two goods need, as systems have more of them."""


def price_system(
    matrix: FloatArray, of_goods: FloatArray
) -> Callable[[FloatArray], FloatArray] | None:
    """Solves systems of a matrix with so much more on its diagonal; None where it is singular.

    Scaled to a diagonal of 1, as prices are of many orders.
    """
    matrix[np.diag_indices_from(matrix)] += of_goods
    solve = _scaled_solver(matrix) if (np.diag(matrix) > 0).all() else None
    return solve or _scaled_solver(_definite(matrix))


def _scaled_solver(matrix: FloatArray) -> Callable[[FloatArray], FloatArray] | None:
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    solve = _solver_of(matrix * scale[:, np.newaxis] * scale)
    return None if solve is None else lambda right: np.asarray(scale * solve(scale * right))


def _definite(matrix: FloatArray) -> FloatArray:
    """The matrix with as much more on its diagonal as any two goods need to be positive definite.

    Classes whose floors take all that they can have do not answer to prices. Rounding leaves
    something of their large numbers, below 0 too.
    """
    size = np.abs(np.diag(matrix))
    squares = matrix * matrix
    np.fill_diagonal(squares, 0.0)
    needed = (squares / np.maximum(size, 1e-300)).max(axis=1, initial=0.0)
    raised = matrix.copy()
    np.fill_diagonal(raised, np.maximum(size, BEYOND * needed))
    return raised


def _solver_of(matrix: FloatArray) -> Callable[[FloatArray], FloatArray] | None:
    """Solves systems of a matrix with the diagonal 1, by Cholesky's factors; None where it has
    none.

    Goods that run out together, and with the time, leave it singular but for rounding, and then a
    little is added.
    """
    # It takes longer to load than a program of 2,000 jobs to solve, and only concave totals use it.
    from scipy.linalg import cho_factor, cho_solve

    for little in SHIFTS:
        try:
            return partial(cho_solve, cho_factor(matrix + little * np.eye(len(matrix))))
        except (np.linalg.LinAlgError, ValueError):
            continue
    return None


def step_to_boundary(value: FloatArray, change: FloatArray) -> float:
    """Part of a change that takes the first value to 0."""
    return 1.0 / max(float((-change / value).max(initial=0.0)), 1e-300)
