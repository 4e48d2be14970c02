"""Proportional shares: isolated slices by weight, of tenants and of jobs."""

from __future__ import annotations

import numpy as np

from formulations.rule import Deciding, Rule
from formulations.shared_options import ByTenants
from formulations.slices import reference_slices, totals_alone
from optsched.arrays import FloatArray
from optsched.candidates import Classes


class ProportionalShares(ByTenants, Rule):
    """Give every job a slice of each pool in proportion to its weight.

    Parameters
        p_k weight of a job, n_k jobs of the class, s_kj GPUs of the reference column on pool j (the
        gang where there is none), W_j GPUs;  P_e weight of tenant e, J_e its jobs in the program
    Rule
        f_k  = p_k / sum_l n_l p_l                                              without tenants
        f_k  = P_e / sum_e' P_e'  *  p_k / sum_{l in J_e} n_l p_l               of tenant e
        y_kj = f_k W_j / s_kj where the job can run on pool j;
        each row divided by max(1, sum_j f_k W_j / s_kj)

    A tenant counts if it has a job in the program; a job without a tenant is its own tenant, with
    its own weight. Equal weights without tenants give `formulations.isolated`. If CPUs, memory or
    another resource would be exceeded, the columns that use it are scaled down.

    Options
        tenants    whether tenants share by their weights first; otherwise only the weights of jobs
                   count.
        bound      also solve max-throughput with jobs that share time and GPUs, for a bound and a
                   gap.

    References
        D. Narayanan et al., OSDI 2020, repository policy ``isolated``, by weight. C. A.
        Waldspurger, W. E. Weihl, "Lottery Scheduling: Flexible Proportional-Share Resource
        Management", OSDI 1994: shares by tickets, with currencies for groups.
    """

    name = "proportional-shares"
    reads = frozenset({"gang", "weight", "tenant"})
    also_reads = frozenset({"tenant_weight"})
    reads_pairs = False

    class Options(Rule.Options):
        """Options of proportional shares."""

        tenants: bool = True

    def decide(self, C: Classes, seed: int) -> Deciding:
        """y of the class, as totals x over the columns of the classes."""
        yield from ()
        column, y = reference_slices(C, self._parts(C)[:, np.newaxis])
        return self.decision(C, self.build(C).repaired(totals_alone(C, column, y)))

    def _parts(self, C: Classes) -> FloatArray:
        """f of a job of each class, shape (K,)."""
        p, n = C.weight, C.count
        e = C.tenant if self.options.tenants else np.full(len(C), -1, np.int64)
        P = np.array([tenant.weight for tenant in C.instance.tenants], np.float64)
        present = np.unique(e[e >= 0])
        inside = np.bincount(e[e >= 0], (n * p)[e >= 0], minlength=len(P))
        # Jobs without a tenant stand among the tenants with their own weights.
        total = P[present].sum() + (n * p)[e < 0].sum()
        f: FloatArray = p / total
        # Jobs of a tenant share its weight: theirs are scaled to add up to it.
        f[e >= 0] *= (P / np.where(inside > 0, inside, 1.0))[e[e >= 0]]
        return f
