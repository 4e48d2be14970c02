"""Water filling: lexicographic max-min fairness, flat or by tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import scipy.sparse as sp

from formulations.reference_rates import proportional
from formulations.shared_options import ByTenants, MayIgnoreRates
from optsched.arrays import FloatArray
from optsched.arrays.matrices import scaled_rows
from optsched.candidates import Classes
from optsched.formulation import FormulationOptions
from optsched.program import AllocationProgram, LexicographicMinimum


class WaterFilling(MayIgnoreRates, ByTenants):
    r"""Max-min fair normalised throughputs:
    the smallest as large as possible, then the next, and so on.

    Sets, x, T, n, s, p, prop, time and capacity as in `formulations.max_min_fairness`; tenants e of
    weight w_e.
    Parameters
        nt_k(x)   = sum_c T_kc x_c / (n_k prop_k), the normalised throughput
        rate_k    at which a job of class k rises on a common clock while it is not held:
                  without tenant           p_k / s_k
                  tenant, policy fairness  (w_e / s_k) p_k / sum of p over the jobs of e that still rise
                  tenant, policy fifo      w_e / s_k for its first job (by arrival) that still rises, 0 for the others
    Method
        repeat    maximise  c   s.t.  nt_k(x) >= L_k + rate_k c   for the classes that rise,
                                      nt_k(x) >= L_k              for the others,  time, capacity
                  L_k := L_k + rate_k c;   hold the classes whose row has a positive dual (they have
                  this level in every optimal solution), and those that have all the time on their
                  best column;
        until     no job rises
    Program
        maximise  sum_k n_k nt_k(x)   s.t.  nt_k(x) >= L_k for every class k,  time, capacity

    The nt_k are unique: without tenants the lexicographic maximum of the sorted (s_k / p_k) nt_k.
    The duals of all stages prove it (`optsched.program.filling`); prices are those of the last
    program.

    Options
        agnostic   T_kc := 1 per job of the column, hence prop_k = 1; ``"literal"`` also admits pools where the job has
                   no rate.
        tenants    ``true`` (default): capacity is shared among tenants; ``false``: tenants are
                   ignored, only the weights of jobs count.

    References
        D. Narayanan et al., OSDI 2020, section 4.3 and appendix (water filling; there with a
        mixed-integer program for the bottlenecks); B. Radunovic, J.-Y. Le Boudec. "A unified
        framework for max-min and min-max fairness with applications", IEEE/ACM Transactions on
        Networking 15(5), 2007.
    """

    name = "water-filling"
    aliases = ("lexicographic-max-min",)
    reads = frozenset({"weight", "gang", "tenant", "queue"})
    also_reads = frozenset({"tenant_weight"})
    sense = "max"
    objective_words = "total normalised throughput of the lexicographic max-min"

    class Options(FormulationOptions):
        """Options of water filling."""

        agnostic: bool | Literal["literal"] = False
        tenants: bool = True

    def build(self, C: Classes) -> AllocationProgram:
        if self.options.agnostic:
            levels = C.member
        else:
            levels = scaled_rows(C.throughput, 1.0 / proportional(C))
        return AllocationProgram(C, rising(C, C.gang, self.options.tenants), levels)

    def figures(self, C: Classes, x: FloatArray) -> Mapping[str, FloatArray]:
        """Normalised throughput of every job."""
        return {"normalised throughput": self.build(C).level(x)}


def rising(
    C: Classes, gang: FloatArray, by_tenants: bool, then: sp.csr_matrix | None = None
) -> LexicographicMinimum:
    """Which jobs rise how fast: rate_k of the class docstring with s_k = ``gang``;
    ``then`` is for the last program.
    """
    tenants = C.instance.tenants if by_tenants else ()
    return LexicographicMinimum(
        weight=C.weight,
        gang=gang,
        group=C.tenant if tenants else np.full(len(C), -1, np.int64),
        group_weight=np.array([tenant.weight for tenant in tenants], np.float64),
        queued=np.array([tenant.policy == "fifo" for tenant in tenants], bool),
        place=C.queue,
        then=then,
    )
