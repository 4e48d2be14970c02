"""Jobs that wait without a claim: those that cannot be preempted hold all of something they need."""

from __future__ import annotations

import numpy as np

from optsched.arrays import BoolArray, IntArray, gathered
from optsched.candidates import Absence, Candidates
from optsched.rounds.view import View
from optsched.solving.warm_start import matched

NOTHING = 1e-9
"""Part of the capacity of a resource that is none."""
BLOCKED = "what it needs is held by jobs that cannot be preempted"


def blocked(view: View, candidates: Candidates) -> BoolArray:
    """Mask of the jobs that every allocation leaves without any time: of something that they need nothing is left.

    Beside them no formulation can say anything of use: a smallest level is 0 whatever the others
    have, and a sum of logarithms has no value. Who can join a job that must not be stopped needs
    only what that does not hold already.
    """
    jobs = view.must
    columns = candidates.columns
    kinds = candidates.kinds
    mask = np.zeros(len(jobs), bool)
    if not jobs.any():
        return mask
    resources = candidates.resources
    left = view.left_beside(jobs, resources)
    gone = resources.renewable & (left <= NOTHING * resources.capacity)
    if not gone.any():
        return mask
    usage = candidates.usage[np.flatnonzero(gone)].toarray()
    needs = np.asarray((usage > 0).any(axis=0))
    for side in (columns.kind, columns.partner):
        pairs = np.flatnonzero(columns.partner >= 0)
        host = _hosts(view, candidates, side[pairs], pairs)
        pairs = pairs[host >= 0]
        host = host[host >= 0]
        # A guest needs only what its host does not hold already.
        more = usage[:, pairs] - usage[:, host] > NOTHING * resources.capacity[gone, None]
        needs[pairs] &= more.any(axis=0)
    # The last entry is written for partner -1 of columns of one job, and never read.
    able = np.zeros(len(kinds) + 1, bool)
    able[columns.kind[~needs]] = able[columns.partner[~needs]] = True
    return np.asarray((candidates.absence == Absence.PRESENT) & ~able[kinds.of_job] & ~jobs)


def _hosts(view: View, candidates: Candidates, kind: IntArray, pairs: IntArray) -> IntArray:
    """For columns of pairs, the column in which one of that kind runs alone that others can join; -1 for none."""
    running = view.running
    columns = candidates.columns
    hosts = np.flatnonzero(view.hosts)
    firm = np.stack([candidates.kinds.of_job[hosts], running.pool[hosts], running.gpus[hosts]])
    alone = np.flatnonzero(columns.partner < 0)
    known = np.stack([columns.kind[alone], columns.pool[alone], columns.gpus[alone]])
    alone = alone[matched(firm, known) >= 0]
    known = np.stack([columns.kind[alone], columns.pool[alone], columns.gpus[alone]])
    place = matched(known, np.stack([kind, columns.pool[pairs], columns.gpus[pairs]]))
    return gathered(alone, place, -1)
