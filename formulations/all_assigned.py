"""Jobs that must all be assigned: one that no configuration has room for makes the instance infeasible."""

from __future__ import annotations

import numpy as np

from optsched.candidates import Candidates, Classes, Drop
from optsched.candidates.kinds import Absence
from optsched.formulation import SHOWN, Infeasible
from optsched.solution import Conflict


def jobs_alone(candidates: Candidates) -> Candidates:
    """The columns of one job each, with options of rate 0: an assignment reads no rates.

    Parameters
    ----------
    candidates : Candidates
    """
    candidates = candidates.admitting(Drop.ZERO_RATE, where=candidates.dropped.option >= 0)
    pair = candidates.columns.partner >= 0
    return candidates.without(np.where(pair, Drop.NOT_CHOSEN, Drop.KEPT).astype(np.uint8))


def refuse_jobs_without_column(C: Classes, block: str) -> None:
    """Raise `Infeasible` for jobs that can run nowhere.

    Parameters
    ----------
    C : Classes
    block : str
        Name of the rows that ask for the jobs.
    """
    candidates = C.candidates
    if not (candidates.absence == Absence.NO_COLUMN).any():
        return
    names = C.instance.jobs_table.names
    conflicts = [
        Conflict(block, -1, f"job {names[job]} {why}")
        for job, why in candidates.unplaced()
        if candidates.absence[job] == Absence.NO_COLUMN
    ]
    raise Infeasible(conflicts[:SHOWN])
