"""Generated columns of a solution file: pairs of jobs, or configurations, that its rows name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optsched.arrays import IntArray
from optsched.candidates import Classes
from optsched.program import AllocationProgram
from optsched.solution.document import ColumnsMadeDocument, SolutionDocument
from optsched.solving.column_generation import (
    Chosen,
    ClassPairs,
    ConfigurationPricing,
    PairPricing,
    with_configurations,
    with_pairs,
)
from optsched.verify.findings import Findings

Pricing = PairPricing | ConfigurationPricing


def check_columns_made(
    made: ColumnsMadeDocument,
    pricing: Pricing,
    used: int,
    findings: Findings,
) -> None:
    """How many columns were generated: at least those in use, at most those that there can be."""
    what = pricing.of_what
    possible = pricing.count
    findings.same("columns_made.of", made.of, what)
    findings.same("columns_made.possible", made.possible, possible, f"the {what} there can be")
    if not used <= made.made <= possible:
        most = f"{possible}, which there can be"
        findings.add(
            "columns_made.made",
            f"found {made.made}, expected from {used}, which are in use, to {most}",
        )


def pricing_of(program: AllocationProgram) -> Pricing:
    """The pricing of columns on demand; raises `UsageError` if they cannot be priced."""
    pairs = program.classes.candidates.elastic is None
    return PairPricing.of(program) if pairs else ConfigurationPricing.of(program)


def with_columns_in(document: SolutionDocument, pricing: Pricing) -> Classes:
    """The classes with the columns that the file names."""
    if isinstance(pricing, PairPricing):
        return with_pairs(pricing, pairs_in(document, pricing))
    return with_configurations(pricing, configurations_in(document, pricing))[0]


def pairs_in(document: SolutionDocument, pricing: PairPricing) -> ClassPairs:
    """The pairs of classes that rows of the file name,
    as far as they can share GPUs so; others are no columns.
    """
    C = pricing.classes
    names = C.instance.jobs_table.names
    pools = C.instance.cluster.pool_index
    # Names that do not exist make no column; they are reported where rows are resolved.
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
    """The configurations of classes that rows of the file name,
    as far as they can be made columns.
    """
    C = pricing.classes
    names = C.instance.jobs_table.names
    pools = C.instance.cluster.pool_index
    rows = [
        (int(C.of_job[names.index(row.job)]), pools[row.pool], row.gpus, row.nodes)
        for row in document.allocation
        if row.job is not None and row.pool is not None and row.pool in pools and row.job in names
    ]
    return pricing.possible(*_numbers(rows, 1))


def _numbers(rows: Sequence[tuple[int, ...]], classes: int) -> IntArray:
    """Rows of numbers by column; the first columns are classes (below 0: not in the program)."""
    # A number beyond 64 bits is no configuration of the program.
    there = [row for row in rows if min(row[:classes]) >= 0 and max(row) < np.iinfo(np.int64).max]
    return np.array(there, np.int64).reshape(-1, classes + 3).T
