"""Jobs that cannot be preempted keep what they run on."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from formulations.constraints.moves import NOT_RUNNING, where_it_runs
from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.formulation import ConstraintOptions, SideConstraint
from optsched.instance import Instance
from optsched.program import SideRows


class Uninterrupted(SideConstraint):
    """Running jobs that cannot be preempted keep their pool and number of GPUs all the time.

    Let H be the classes of such jobs (``preemptible`` false, ``running`` given), and S_k the
    columns of class k in its present pool on as many GPUs as it holds:

        sum_{c in S_k} member_kc x_c  >=  n_k        for every k in H       (uninterrupted)

    A job that no column continues, because its nodes take no new work, is left out: its GPUs are
    not in the capacity.

    References
        Non-preemptible jobs are part of every batch scheduler; in Gavel and Sia they keep their
        allocation.
    """

    kind = "uninterrupted"
    also_reads = frozenset({"preemptible", "running"})
    single = True

    class Options(ConstraintOptions):
        """No options."""

    def labels(self, instance: Instance) -> IntArray | None:
        """Where a job runs that cannot be preempted."""
        return self._held(instance)[2]

    def rows(self, C: Classes) -> SideRows | None:
        pool, gpus, label = self._held(C.instance)
        held = np.flatnonzero(C.common(label) != NOT_RUNNING)
        pool, gpus = pool[C.first], gpus[C.first]
        member = C.member.tocoo()
        stays = (C.pool[member.col] == pool[member.row]) & (C.gpus[member.col] == gpus[member.row])
        stay = sp.csr_matrix(
            (member.data[stays], (member.row[stays], member.col[stays])), shape=member.shape
        )
        held = held[np.diff(stay.indptr)[held] > 0]
        if len(held) == 0:
            return None
        return SideRows(
            name=self.kind,
            matrix=sp.csr_matrix(stay[held]),
            lower=C.count[held],
            upper=np.full(len(held), np.inf),
            describe=lambda row: (
                f"{C.job_name(int(held[row]))} cannot be preempted and runs on (uninterrupted)"
            ),
        )

    def _held(self, instance: Instance) -> tuple[IntArray, IntArray, IntArray]:
        pool, gpus = where_it_runs(instance)
        kept = (pool != NOT_RUNNING) & ~instance.jobs_table.preemptible
        label = np.where(kept, pool + len(instance.cluster.pools) * gpus, NOT_RUNNING)
        return np.where(kept, pool, NOT_RUNNING), gpus, label
