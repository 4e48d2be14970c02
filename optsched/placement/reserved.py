"""Whether cells that are reserved for tenants can be where a placement has its jobs.

Independent of the program that reserved them (`optsched.program.space.cells`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, IntArray
from optsched.instance import Instance
from optsched.program import LinearProgram
from optsched.solvers import Limits
from optsched.solvers.highs import Highs


class _Tenant(NamedTuple):
    """A tenant with cells: masks of its jobs and of the GPUs in its pools, and cells by size."""

    jobs: BoolArray
    in_pools: BoolArray
    owns: Mapping[int, int]


def cells_fit(
    instance: Instance, holder: IntArray, constraints: Iterable[Mapping[str, Any]]
) -> bool:
    """Whether all reserved cells have aligned GPUs of one node, which hold all jobs of their tenant
    and no others.

        z[c,b] in {0, 1}:  sum_b z[c,b] = cells of kind c ;  each GPU in at most one chosen block,
        and each GPU of a tenant's job in a chosen block of that tenant

    Parameters
    ----------
    instance : Instance
    holder : IntArray, shape (GPUs,)
        Job that has each GPU of the cluster, -1 for none.
    constraints : iterable of mappings
        Those of kind ``cells`` that are reserved.
    """
    numbering = instance.cluster.numbering
    kind, first, size, kinds = _blocks(instance, holder, constraints)
    blocks = np.arange(len(first))
    gpu = np.repeat(first, size) + np.concatenate([np.zeros(0, int), *map(np.arange, size)])
    block = np.repeat(blocks, size)
    inside = sp.csr_matrix((np.ones(len(gpu)), (gpu, block)), (numbering.gpus, len(first)))
    least = np.zeros(numbering.gpus)
    for one, _, _ in kinds:
        least[(holder >= 0) & one.jobs[holder] & one.in_pools] = 1.0
    of_kind = sp.csr_matrix((np.ones(len(kind)), (kind, blocks)), (len(kinds), len(first)))
    wanted = np.array([many for _, _, many in kinds], np.float64)
    covered = np.asarray(inside.sum(axis=1)).ravel() >= least
    enough = np.asarray(of_kind.sum(axis=1)).ravel() >= wanted
    if not (covered.all() and enough.all()):
        return False
    lp = LinearProgram()
    z = lp.variables(len(first), name="z", upper=1.0, integer=True)
    lp.constrain(of_kind @ z == wanted, name="owned")
    lp.constrain(inside @ z <= np.ones(numbering.gpus), name="apart")
    lp.constrain(inside @ z >= least, name="covered")
    arrays = lp.arrays
    found = Highs().open(arrays).run(Limits()).x
    if found is None:
        return False
    rows = arrays.A @ np.round(found)
    return bool((rows >= arrays.row_lower).all() and (rows <= arrays.row_upper).all())


def _blocks(
    instance: Instance, holder: IntArray, constraints: Iterable[Mapping[str, Any]]
) -> tuple[IntArray, IntArray, IntArray, list[tuple[_Tenant, int, int]]]:
    """Kind, first GPU and size of all blocks without jobs of others; and the kinds: tenant, size
    and number of cells.
    """
    cluster = instance.cluster
    numbering, tenant = cluster.numbering, instance.jobs_table.tenant
    names = [one.name for one in instance.tenants]
    pool_of_gpu = numbering.pool[numbering.node_of(np.arange(numbering.gpus))]
    usable = cluster.usable(instance.now)
    rows: list[tuple[int, int, int]] = []
    kinds: list[tuple[_Tenant, int, int]] = []
    for constraint in constraints:
        wanted = constraint.get("pools")
        pools = [row for row, one in enumerate(cluster.pools) if not wanted or one.name in wanted]
        owns = {int(size): int(many) for size, many in constraint["owns"].items()}
        jobs = tenant == names.index(constraint["tenant"])
        one = _Tenant(jobs, np.isin(pool_of_gpu, pools), owns)
        others = (holder >= 0) & ~jobs[holder]
        for size, many in owns.items():
            for node in np.flatnonzero(np.isin(numbering.pool, pools) & usable).tolist():
                start, end = int(numbering.start[node]), int(numbering.start[node + 1])
                rows += [
                    (len(kinds), first, size)
                    for first in range(start, end - size + 1, size)
                    if not others[first : first + size].any()
                ]
            kinds.append((one, size, many))
    kind, first, length = np.array(rows, np.int64).reshape(-1, 3).T
    return kind, first, length, kinds
