"""Jobs that must all be assigned: one that no configuration has room for makes the instance infeasible."""

from __future__ import annotations

from optsched.candidates import Classes
from optsched.candidates.kinds import Absence
from optsched.formulation import SHOWN, Infeasible
from optsched.solution import Conflict


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
