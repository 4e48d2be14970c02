"""Columns that were generated: the pairs of jobs that a solution file names."""

from __future__ import annotations

import numpy as np

from optsched.decomposition import PairPricing, Pairs
from optsched.solution.document import SolutionDocument


def pairs_in(document: SolutionDocument, pricing: PairPricing) -> Pairs:
    """The pairs of classes that rows of the file name, as far as they can share GPUs so; others are no columns."""
    C = pricing.classes
    names, pools = C.instance.jobs_table.names, C.instance.cluster.pool_index
    rows = [
        (*(int(C.of_job[names.index(job)]) for job in row.jobs), pools[row.pool], row.gpus, row.nodes)
        for row in document.allocation
        if row.jobs is not None and row.pool is not None and row.pool in pools and all(job in names for job in row.jobs)
    ]
    there = [row for row in rows if min(row[:2]) >= 0 and max(row) < np.iinfo(np.int64).max]
    first, second, pool, gpus, nodes = np.array(there, np.int64).reshape(-1, 5).T
    return pricing.possible(first, second, pricing.table.find(pool, gpus, nodes))
