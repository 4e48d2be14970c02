"""Columns that were generated: the pairs of jobs, or the configurations, that a solution file names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.program import AllocationProgram
from optsched.solution.document import SolutionDocument
from optsched.solving.column_generation import (
    Chosen,
    ClassPairs,
    ConfigurationPricing,
    PairPricing,
    with_configurations,
    with_pairs,
)

Pricing = PairPricing | ConfigurationPricing


def pricing_of(program: AllocationProgram) -> Pricing:
    """What prices the columns that are on demand; raises `UsageError` where they cannot be priced."""
    pairs = program.classes.candidates.elastic is None
    return PairPricing.of(program) if pairs else ConfigurationPricing.of(program)


def with_columns_in(document: SolutionDocument, pricing: Pricing) -> Classes:
    """The classes with the columns that the file names."""
    if isinstance(pricing, PairPricing):
        return with_pairs(pricing, pairs_in(document, pricing))
    return with_configurations(pricing, configurations_in(document, pricing))[0]


def pairs_in(document: SolutionDocument, pricing: PairPricing) -> ClassPairs:
    """The pairs of classes that rows of the file name, as far as they can share GPUs so; others are no columns."""
    C = pricing.classes
    names, pools = C.instance.jobs_table.names, C.instance.cluster.pool_index
    rows = [
        (
            *(int(C.of_job[names.index(job)]) for job in row.jobs),
            pools[row.pool],
            row.gpus,
            row.nodes,
        )
        for row in document.allocation
        if row.jobs is not None
        and row.pool is not None
        and row.pool in pools
        and all(job in names for job in row.jobs)
    ]
    first, second, pool, gpus, nodes = _numbers(rows, 2)
    return pricing.possible(first, second, pricing.table.find(pool, gpus, nodes))


def configurations_in(document: SolutionDocument, pricing: ConfigurationPricing) -> Chosen:
    """The configurations of classes that rows of the file name, as far as they can be made columns."""
    C = pricing.classes
    names, pools = C.instance.jobs_table.names, C.instance.cluster.pool_index
    rows = [
        (int(C.of_job[names.index(row.job)]), pools[row.pool], row.gpus, row.nodes)
        for row in document.allocation
        if row.job is not None and row.pool is not None and row.pool in pools and row.job in names
    ]
    return pricing.possible(*_numbers(rows, 1))


def _numbers(rows: Sequence[tuple[int, ...]], classes: int) -> IntArray:
    """Rows of numbers, columnwise, of which the first are classes (below 0: not in the program)."""
    there = [row for row in rows if min(row[:classes]) >= 0 and max(row) < np.iinfo(np.int64).max]
    return np.array(there, np.int64).reshape(-1, classes + 3).T
