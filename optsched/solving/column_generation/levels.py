"""Which programs have columns that levels of jobs can price, and what a level is worth in steps/s."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import FloatArray
from optsched.errors import UsageError
from optsched.program import AllocationProgram, Method

ROUNDING = 1e-12
"""Relative difference of levels from throughputs times numbers."""


def refuse(program: AllocationProgram, *, gone: bool, concave: bool) -> None:
    """Raise `UsageError` if columns cannot be priced by the levels of jobs alone.

    Parameters
    ----------
    program : AllocationProgram
    gone : bool
        Whether columns are no longer on demand.
    concave : bool
        Whether totals of concave utilities can be dealt with.
    """
    utility = program.utility
    plain = (
        utility.method is Method.DIRECT
        and not utility.homogenised
        and (concave or not utility.conic)
    )
    why = (
        "jobs are whole" if program.integral
        else "side constraints have rows" if program.side
        else "there are rows of one's own (extend)" if program.extend is not None
        else "the utility is another one" if not plain
        else "an option changes which columns there are" if gone
        else None
    )  # fmt: skip
    if why is not None:
        raise UsageError(
            f"columns are generated for a smallest level or a total of levels, not where {why}"
        )


def level_scale(program: AllocationProgram) -> FloatArray:
    """Level of each class per steps/s, shape (K,); raises `UsageError` where levels are something else."""
    C, levels = program.classes, program.levels.tocsc()
    some = np.flatnonzero(C.alone & (C.rate_a > 0))
    scale = np.zeros(len(C))
    scale[C.class_a[some]] = np.asarray(levels[C.class_a[some], some]).ravel() / C.rate_a[some]
    off = abs(levels - sp.diags_array(scale) @ C.throughput)
    if off.nnz and off.max() > ROUNDING * abs(levels).max():
        raise UsageError(
            "columns are generated only where the level of a job is its throughput times a number"
        )
    return scale
