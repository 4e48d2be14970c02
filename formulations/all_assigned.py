"""Jobs that must all be assigned: one that no configuration has room for makes the instance
infeasible."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, IntArray, mask_of
from optsched.candidates import Candidates, Classes, Drop
from optsched.candidates.kinds import Absence
from optsched.formulation import SHOWN, Infeasible
from optsched.program.integers import amount_unit, round_down, round_up
from optsched.solution import Conflict

FITS = 1 + 1e-9
"""Part of a capacity that a column may need."""
OVER = "needs more than the whole capacity in every configuration"


def jobs_alone(candidates: Candidates) -> Candidates:
    """The columns of one job each, with options of rate 0: an assignment reads no rates.

    Parameters
    ----------
    candidates : Candidates
    """
    return without_pairs(candidates.admitting(Drop.ZERO_RATE, where=candidates.dropped.option >= 0))


def without_pairs(candidates: Candidates) -> Candidates:
    """The columns of one job each."""
    pair = candidates.columns.partner >= 0
    return candidates.without(np.where(pair, Drop.NOT_CHOSEN, Drop.KEPT).astype(np.uint8))


def fitting_columns(C: Classes) -> BoolArray:
    """Mask of the columns that need no more of anything than there is; shape (N,)."""
    use = C.usage.tocoo()
    return ~mask_of(use.col[use.data > C.capacity[use.row] * FITS].astype(np.int64), C.columns)


def whole_amounts(
    C: Classes, columns: IntArray, resources: IntArray
) -> tuple[sp.csr_matrix, IntArray]:
    """Usage of resources, shape (resources, columns), and capacity, shape (resources,), in whole
    amounts: use is rounded up, capacity down. The uses of a resource have no common divisor.
    """
    usage = sp.csr_matrix(C.usage.tocsr()[resources][:, columns])
    data, capacity = usage.data.copy(), np.zeros(len(resources), np.int64)
    for row, resource in enumerate(resources.tolist()):
        entries = slice(usage.indptr[row], usage.indptr[row + 1])
        unit = amount_unit(np.append(data[entries], C.capacity[resource]))
        use = round_up(data[entries], unit)
        # Sums of uses are multiples of their divisor: nothing between two of them is used
        divisor = max(int(np.gcd.reduce(use)), 1)
        data[entries] = use // divisor
        capacity[row] = round_down(C.capacity[resource : resource + 1], unit)[0] // divisor
    return sp.csr_matrix((data, usage.indices, usage.indptr), shape=usage.shape), capacity


def nowhere(C: Classes) -> dict[int, str]:
    """Jobs that nothing has room for, whatever the others have, each with the reason."""
    candidates = C.candidates
    without = candidates.absence == Absence.NO_COLUMN
    for aside in candidates.excluded.values():
        without &= ~aside
    found = {}
    if without.any():
        found = {job: why for job, why in candidates.unplaced() if without[job]}
    stuck = ~mask_of(C.class_a[fitting_columns(C)], len(C))
    return found | dict.fromkeys(C.jobs_among(stuck), OVER)


def refuse_jobs_nowhere(C: Classes, block: str) -> None:
    """Raise `Infeasible` for jobs that nothing has room for.

    Parameters
    ----------
    C : Classes
    block : str
        Name of the rows that ask for the jobs.
    """
    names = C.instance.jobs_table.names
    found = nowhere(C).items()
    conflicts = [Conflict(block, -1, f"job {names[job]} {why}") for job, why in found]
    if conflicts:
        raise Infeasible(conflicts[:SHOWN])
