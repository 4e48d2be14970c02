"""Dominant resource fairness over several resources, by progressive filling."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp

from formulations.reference_rates import proportional
from formulations.shared_options import ByTenants
from formulations.water_filling import rising
from optsched.arrays import FloatArray, quotient
from optsched.arrays.matrices import scaled_rows, sum_by
from optsched.candidates import Classes
from optsched.formulation import FormulationOptions
from optsched.instance.cluster import PER_NODE
from optsched.program import AllocationProgram


class DominantResourceFairness(ByTenants):
    r"""Max-min fair dominant shares of GPUs, CPUs, memory and other resources:
    the smallest, then the next, and so on.

    Sets
        classes k of n_k equal jobs, columns c, resources r; types of resources: GPUs, CPUs and
        memory of all pools together, and each further resource of the cluster
    Parameters
        d_c       dominant share of column c: the largest share that it holds of any type of
                  resource in the whole cluster (CPUs and memory: of the pools that state them);
                  where two jobs share GPUs, half of that for each
        p_k       weight; tenants e of weight w_e
    Level
        share_k(x) = sum_c member_kc d_c x_c / n_k
    Method
        water filling of the shares, as in `formulations.water_filling`. Without tenants the share
        of a job grows at rate p_k; with tenants at w_e p_k / (sum of p over the tenant's jobs that
        can still grow), or one job at a time at w_e (policy ``fifo``)
    Program
        maximise  sum_k nt_k(x)   s.t.  share_k(x) >= L_k for every class k,  time, capacity

        L_k is the share that water filling reached; nt_k(x) = sum_c T_kc x_c / prop_k is the normalised
        throughput of all jobs of the class, prop_k as in `formulations.max_min_fairness`. So of all
        allocations with these shares it is one with the highest throughput.

    A user with many tasks is a tenant with as many jobs. With tasks <1 CPU, 4 GB> and <3 CPU, 1 GB>
    on <9 CPU, 18 GB> users A and B run 3 and 2 tasks, both with a share of 2/3.

    Options
        tenants    ``true`` (default): capacity is shared among tenants; ``false``: tenants are
                   ignored, only the weights of jobs count.

    References
        A. Ghodsi et al. "Dominant Resource Fairness: Fair Allocation of Multiple Resource Types",
        NSDI 2011, section 4; the share over several pools is that of W. Wang, B. Li, B. Liang.
        "Dominant Resource Fairness in Cloud Computing Systems with Heterogeneous Servers", INFOCOM
        2014.
    """

    name = "drf"
    aliases = ("dominant-resource-fairness",)
    reads = frozenset({"weight", "gang", "tenant", "queue"})
    also_reads = frozenset({"tenant_weight"})
    sense = "max"
    objective_words = (
        "total normalised throughput, with lexicographically max-min fair dominant shares"
    )

    class Options(FormulationOptions):
        """Options of dominant resource fairness."""

        tenants: bool = True

    def build(self, C: Classes) -> AllocationProgram:
        d = dominant_shares(C) / np.where(C.alone, 1.0, 2.0)
        levels = sp.csr_matrix(C.member @ sp.diags_array(d))
        nt = scaled_rows(C.throughput, 1.0 / proportional(C))
        return AllocationProgram(C, rising(C, np.ones(len(C)), self.options.tenants, nt), levels)

    def figures(self, C: Classes, x: FloatArray) -> Mapping[str, FloatArray]:
        """Dominant share of every job."""
        return {"dominant share": self.build(C).level(x)}


def dominant_shares(C: Classes) -> FloatArray:
    """d_c: the largest share that one unit of a column holds of any type
    of resource, shape (N,).
    """
    types, row_type = np.unique(_types(C), return_inverse=True)
    # Rows of one type are summed over the pools: a share is relative to the whole cluster.
    by_type = sum_by(row_type, 1.0, len(types))
    rows_have = np.asarray(by_type @ C.capacity)
    pools_have = _of_all_pools(C)
    total = [pools_have.get(name, have) for name, have in zip(types, rows_have, strict=True)]
    share = sp.diags_array(quotient(1.0, np.array(total))) @ by_type @ C.usage
    return np.asarray(share.max(axis=0).todense()).ravel() if C.columns else np.zeros(0)


def _of_all_pools(C: Classes) -> dict[str, float]:
    """CPUs and memory by type, of the pools that state them.

    Pools whose CPUs or memory no column uses have no row for them, but are part of the cluster.
    """
    instance = C.instance
    return {
        f"node {name}": float(
            np.nansum([pool.total(name, instance.now) for pool in instance.cluster.pools])
        )
        for name in PER_NODE
    }


def _types(C: Classes) -> list[str]:
    """Type of each resource: GPUs, CPUs and memory of different pools are of one type each."""
    pools = [pool.name for pool in C.instance.cluster.pools]
    node = {f"{pool}.{name}": f"node {name}" for pool in pools for name in PER_NODE}
    return [
        "node gpu" if pool >= 0 else node.get(name, name)
        for name, pool in zip(C.resources.names, C.resources.pool.tolist(), strict=True)
    ]
