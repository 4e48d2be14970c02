"""Jobs that cannot be preempted keep what they run on."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp

from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.candidates.going_on import continuing, places_of
from optsched.formulation import ConstraintOptions, SideConstraint
from optsched.instance import Instance
from optsched.instance.staying import must_stay
from optsched.program import SideRows


class Uninterrupted(SideConstraint):
    """Running jobs that cannot be preempted keep their pool and number of GPUs all the time.

    Let H be the classes of such jobs (``preemptible`` false, ``running`` given), and S_k the
    columns of class k in its present pool on as many GPUs as it holds, on as many nodes (the next
    number for which there is a column, else any: the placement then says that it cannot run on):

        sum_{c in S_k} member_kc x_c  >=  n_k        for every k in H       (uninterrupted)

    A job that no column continues, because its nodes take no new work, is left out, with its GPUs.
    So is a job on a node that is down: it has stopped.

    References
        Non-preemptible jobs are part of every batch scheduler; in Gavel and Sia they keep their
        allocation.
    """

    kind = "uninterrupted"
    also_reads = frozenset({"preemptible", "running"})
    single = True

    class Options(ConstraintOptions):
        """It has no options of its own."""

    def labels(self, instance: Instance) -> IntArray | None:
        """Where a job runs that cannot be preempted."""
        return places_of(instance, must_stay(instance))

    def rows(self, C: Classes) -> SideRows | None:
        stay = continuing(C)
        held = np.flatnonzero(C.common(must_stay(C.instance)) & (np.diff(stay.indptr) > 0))
        if len(held) == 0:
            return None
        return SideRows(
            name=self.kind,
            matrix=sp.csr_matrix(stay[held]),
            lower=C.count[held],
            upper=np.full(len(held), np.inf),
            describe=partial(_words, C, held),
        )


def _words(C: Classes, of_row: IntArray, row: int) -> str:
    return f"{C.job_name(int(of_row[row]))} cannot be preempted and runs on (uninterrupted)"
