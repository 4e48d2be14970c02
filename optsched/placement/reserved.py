"""Whether cells that are reserved for tenants can be where a placement has its jobs.

Independent of the program that reserved them (`optsched.program.space.cells`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optsched.arrays import BoolArray, IntArray, ranges
from optsched.instance import Instance
from optsched.program import LinearArrays, LinearProgram
from optsched.solution.values import NO_OPTIMUM
from optsched.solvers import Limits
from optsched.solvers.highs import Highs

SEARCH_LIMIT = 60.0
"""Seconds for the search for cells: most searches end at the root, within milliseconds."""


class JobsOnGpus(NamedTuple):
    """Which jobs have which GPUs of the cluster; arrays of one entry per job and GPU.

    A GPU of which several jobs have shares has several entries.
    """

    job: IntArray
    gpu: IntArray


class _CellKind(NamedTuple):
    """Cells of one size that a tenant owns.

    Attributes
    ----------
    many : int
        Number of cells.
    must_cover : BoolArray, shape (GPUs,)
        GPUs that jobs of the tenant have in the pools of its cells.
    first : IntArray
        First GPUs of the aligned blocks of ``size`` GPUs on which no other job has a GPU, on nodes
        that take work or where the tenant has GPUs.
    """

    size: int
    many: int
    must_cover: BoolArray
    first: IntArray


def cells_fit(
    instance: Instance, held: JobsOnGpus, constraints: Iterable[Mapping[str, Any]]
) -> bool | None:
    """Whether all reserved cells have aligned GPUs of one node, which hold all jobs of their tenant
    and no others. None if the search ended before it was known.

        z[c,b] in {0, 1}:  sum_b z[c,b] = cells of kind c ;  each GPU in at most one chosen block,
        and each GPU of a tenant's job in a chosen block of that tenant

    Parameters
    ----------
    instance : Instance
    held : JobsOnGpus
    constraints : iterable of mappings
        Those of kind ``cells`` that are reserved.
    """
    kinds = [kind for one in constraints for kind in _cell_kinds(instance, held, one)]
    every = np.arange(len(kinds))
    kind = np.repeat(every, [len(one.first) for one in kinds])
    size = np.array([one.size for one in kinds], np.int64)[kind]
    first = np.concatenate([one.first for one in kinds])
    blocks, gpus = np.arange(len(first)), instance.cluster.numbering.gpus
    gpu = np.repeat(first, size) + np.concatenate([np.zeros(0, int), *map(np.arange, size)])
    inside = sp.csr_matrix((np.ones(len(gpu)), (gpu, np.repeat(blocks, size))), (gpus, len(first)))
    of_kind = sp.csr_matrix((np.ones(len(kind)), (kind, blocks)), (len(kinds), len(first)))
    wanted = np.array([one.many for one in kinds], np.float64)
    must_cover = np.any([one.must_cover for one in kinds], axis=0)
    coverable = np.asarray(inside.sum(axis=1)).ravel() >= must_cover
    enough = np.asarray(of_kind.sum(axis=1)).ravel() >= wanted
    if not (coverable.all() and enough.all()):
        return False
    lp = LinearProgram()
    z = lp.variables(len(first), name="z", upper=1.0, integer=True)
    lp.constrain(of_kind @ z == wanted, name="owned")
    lp.constrain(inside @ z <= np.ones(gpus), name="apart")
    # A GPU of a tenant's job is in no block of another tenant, so its own tenant must cover it.
    lp.constrain(inside @ z >= must_cover.astype(np.float64), name="covered")
    return _has_point(lp.arrays)


def _has_point(arrays: LinearArrays) -> bool | None:
    """Whether a program in bounded whole numbers has a point; None if the solver ended without
    knowing it.
    """
    found = Highs().open(arrays).run(Limits(time=SEARCH_LIMIT))
    if found.x is not None:
        rows = arrays.A @ np.round(found.x)
        if ((rows >= arrays.row_lower) & (rows <= arrays.row_upper)).all():
            return True
    return False if found.termination in NO_OPTIMUM else None


def _cell_kinds(
    instance: Instance, held: JobsOnGpus, constraint: Mapping[str, Any]
) -> list[_CellKind]:
    """The cells of a constraint, by size."""
    cluster = instance.cluster
    numbering = cluster.numbering
    names, allowed = [one.name for one in instance.tenants], constraint.get("pools")
    pools = [row for row, one in enumerate(cluster.pools) if not allowed or one.name in allowed]
    nodes = np.flatnonzero(np.isin(numbering.pool, pools))
    usable = cluster.usable(instance.now)[nodes]
    in_pools = np.isin(numbering.pool[numbering.node_of(np.arange(numbering.gpus))], pools)
    own = instance.jobs_table.tenant[held.job] == names.index(constraint["tenant"])
    of_own, of_others = np.zeros(numbering.gpus, bool), np.zeros(numbering.gpus, bool)
    of_own[held.gpu[own]] = True
    of_others[held.gpu[~own]] = True
    # On the GPUs before each.
    others, owns = (np.append(0, np.cumsum(mask)) for mask in (of_others, of_own))
    kinds = []
    for size, many in ((int(size), int(many)) for size, many in constraint["owns"].items()):
        blocks = np.diff(numbering.start)[nodes] // size
        first = numbering.start[nodes].repeat(blocks) + size * ranges(0, blocks)
        # A node that takes no work has cells around the jobs that stay there.
        fine = usable.repeat(blocks) | (owns[first + size] > owns[first])
        first = first[fine & (others[first + size] == others[first])]
        kinds.append(_CellKind(size, many, of_own & in_pools, first))
    return kinds
