"""Jobs that cannot be preempted keep what they run on."""

from __future__ import annotations

from functools import partial

import numpy as np
import scipy.sparse as sp

from formulations.constraints.moves import NOT_RUNNING
from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.formulation import ConstraintOptions, SideConstraint
from optsched.instance import Instance
from optsched.instance.staying import Running
from optsched.program import SideRows

ANY_SPAN = np.iinfo(np.int64).max
"""Nodes of a column on which a job cannot run where it is."""


class Uninterrupted(SideConstraint):
    """Running jobs that cannot be preempted keep their pool and number of GPUs all the time.

    Let H be the classes of such jobs (``preemptible`` false, ``running`` given), and S_k the
    columns of class k in its present pool on as many GPUs as it holds, on as many nodes (the next
    number for which there is a column, else any: the placement then says that it cannot run on):

        sum_{c in S_k} member_kc x_c  >=  n_k        for every k in H       (uninterrupted)

    A job that no column continues, because its nodes take no new work, is left out, with its GPUs.

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
        """Where a job runs that cannot be preempted: pool, GPUs and nodes."""
        return self._held(instance)[3]

    def rows(self, C: Classes) -> SideRows | None:
        pool, gpus, nodes, label = self._held(C.instance)
        held = np.flatnonzero(C.common(label) != NOT_RUNNING)
        pool, gpus, nodes = pool[C.first], gpus[C.first], nodes[C.first]
        member = C.member.tocoo()
        k, c = member.row, member.col
        # A gang may hold as many GPUs on fewer nodes, and faster there: it would have to move.
        span = np.maximum(C.configurations.nodes[C.configuration[c]], 1)
        span = np.where(span < nodes[k], ANY_SPAN, span)
        stays = (C.pool[c] == pool[k]) & (C.gpus[c] == gpus[k])
        # It may hold GPUs of several racks, at which it has not the rate of one.
        level = C.configurations.levels[C.configuration[c]]
        stays &= Running.of(C.instance).within(C.first[k], span, level)
        least = np.full(len(C), ANY_SPAN)
        np.minimum.at(least, k[stays], span[stays])
        stays &= span == least[k]
        stay = sp.csr_matrix((member.data[stays], (k[stays], c[stays])), shape=member.shape)
        held = held[np.diff(stay.indptr)[held] > 0]
        if len(held) == 0:
            return None
        return SideRows(
            name=self.kind,
            matrix=sp.csr_matrix(stay[held]),
            lower=C.count[held],
            upper=np.full(len(held), np.inf),
            describe=partial(_words, C, held),
        )

    def _held(self, instance: Instance) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Pool, GPUs and nodes of each job that cannot be preempted, and a number for all three."""
        running = Running.of(instance)
        pool, gpus, nodes = running.pool, running.gpus, running.nodes
        kept = running.runs & ~instance.jobs_table.preemptible
        where = (nodes * (gpus.max(initial=0) + 1) + gpus) * len(instance.cluster.pools) + pool
        label = np.where(kept, where, NOT_RUNNING)
        return np.where(kept, pool, NOT_RUNNING), gpus, nodes, label


def _words(C: Classes, of_row: IntArray, row: int) -> str:
    return f"{C.job_name(int(of_row[row]))} cannot be preempted and runs on (uninterrupted)"
