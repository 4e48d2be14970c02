"""Slices: every job has a part of every pool, and spends its time on them in proportion."""

from __future__ import annotations

import numpy as np

from formulations.reference_rates import pool_gpus, reference_columns
from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes


def reference_slices(C: Classes, part: FloatArray) -> tuple[IntArray, FloatArray]:
    """Reference column of each class on each pool (-1: none)
    and the time y of a job there, both (K, pools).

        y_kj = part_kj W_j / s_kj,   each row divided by max(1, sum_j y_kj)

    with W_j GPUs of the pool and s_kj GPUs of the reference column (the gang where there is none).
    A column without GPUs is no slice of them: y_kj is 1.
    Where the parts of a pool add up to at most 1 over all jobs, its capacity is kept: sum_k n_k
    s_kj y_kj <= W_j.

    Parameters
    ----------
    C : Classes
    part : FloatArray, broadcast to (K, pools)
        Part of the pool that a job of the class has.
    """
    column, _ = reference_columns(C)
    runs = column >= 0
    held = C.gpus * C.configurations.share[C.configuration]
    # Where there is no column, -1 takes some entry, which the gang replaces.
    s = np.where(runs, held[column] if C.columns else 0.0, C.gang[:, np.newaxis])
    y = np.divide(part * pool_gpus(C)[np.newaxis, :], s, out=runs.astype(np.float64), where=s > 0)
    return column, y / np.maximum(1.0, y.sum(axis=1, keepdims=True))


def totals_alone(
    C: Classes, column: IntArray, y: FloatArray, where: BoolArray | None = None
) -> FloatArray:
    """Totals x of the columns when jobs spend their slices alone, shape (N,).

    Left out are pools where a job has no column, and those outside ``where``, shape (K, pools).
    """
    runs = (column >= 0) if where is None else (column >= 0) & where
    x = np.zeros(C.columns)
    x[column[runs]] = (y * C.count[:, np.newaxis])[runs]
    return x
