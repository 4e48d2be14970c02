"""An instance from round to round: jobs come and go, columns and states of nodes change, everything else stays.

Nothing is validated or built again that did not change. What comes out is what reading the changed document would give:
the same numbering (`optsched.instance.compaction`), the same `Instance.sha256`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optsched.arrays import IntArray, joined, looked_up, shown, taken
from optsched.instance.build import check_jobs, with_labels
from optsched.instance.columns import JobColumns
from optsched.instance.compaction import (
    compact_levels,
    compact_options,
    compact_rates,
    equal_options,
    equal_profiles,
    join_options,
    join_profiles,
)
from optsched.instance.instance import Instance
from optsched.instance.interning import RateInterner
from optsched.instance.joining import (
    JoinedWorkloads,
    Rows,
    check_match,
    in_use,
    joined_colocation,
    joined_names,
    joined_predecessors,
    joined_workloads,
)
from optsched.instance.revise_columns import with_columns, with_nodes
from optsched.instance.running import RunningJobs
from optsched.instance.tables import ARRAY_FIELDS, JobTable

__all__ = ["jobs_of_documents", "with_columns", "with_jobs", "with_nodes"]


def jobs_of_documents(
    instance: Instance, documents: Sequence[Mapping[str, Any]], path: str = "jobs"
) -> Instance:
    """Jobs that are to join an instance, validated as in an instance document.

    Parameters
    ----------
    instance : Instance
        Whose cluster, workloads and tenants the jobs may name, and whose jobs they may come ``after``. Ids of its jobs
        are taken.
    documents : sequence of mappings
        ``jobs`` of an instance document.
    path : str
        What messages call the list.

    Returns
    -------
    Instance
        The same but for its jobs, for `with_jobs`. Predecessors in ``instance`` stand in ``jobs_table.awaits``.

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    table = instance.jobs_table
    interner = RateInterner(instance.cluster)
    columns = JobColumns(
        instance.now,
        instance.cluster,
        instance.workloads,
        instance.tenants,
        interner,
        table.names,
        path,
    )
    jobs = columns.read(documents)
    workloads = with_labels(instance.workloads, columns.labels)
    rates, workloads, _ = compact_rates(instance.rates, workloads, np.zeros(0, np.int64))
    if len(own := interner.table()):
        of_job = jobs.rates + np.where(jobs.rates >= 0, len(rates), 0)
        same = equal_profiles(both := join_profiles(rates, own), len(rates))
        rates, workloads, of_job = compact_rates(both, workloads, of_job, same)
        jobs = replace(jobs, rates=of_job)
    check_jobs(jobs, rates, path)
    return replace(
        instance,
        jobs_table=jobs,
        rates=rates,
        options=columns.options.table(),
        workloads=workloads,
        colocation=tuple(entry for entry in instance.colocation if entry.jobs is None),
    )


def with_jobs(instance: Instance, rows: IntArray, added: Instance | None = None) -> Instance:
    """The instance with some of its jobs, and further ones.

    Parameters
    ----------
    instance : Instance
    rows : IntArray
        Jobs that stay, in the order that they are to have.
    added : Instance, optional
        Jobs that come after them, from `jobs_of_documents` or an instance with the same pools and tenants. Workloads
        that it alone has come with them.

    Returns
    -------
    Instance
        Predecessors that left count as done, co-location entries that name a job that left are gone, and so are
        workloads that only such jobs named (`Workload.label`).

    Raises
    ------
    InvalidInput
        A row that there is not or that stands twice; a job that is added with an id that is taken.
    UsageError
        Jobs of an instance with other pools or tenants, or that says something else of a workload.
    """
    table = instance.jobs_table
    moved = Rows.of(rows, len(table))
    if added is not None and len(added.jobs_table) == 0:
        added = None
    if added is None and moved.everything:
        return instance
    if added is not None:
        check_match(instance, added)
    names = joined_names(instance, moved, added)
    both = joined_workloads(instance, added)
    arrays = _joined_arrays(instance, moved, added, both)
    split = len(moved.kept)
    workloads, number = in_use(both.workloads, arrays["workload"], instance.colocation)
    if number is not None:
        arrays["workload"] = looked_up(number, arrays["workload"])

    rates, same = instance.rates, None
    if added is not None and (
        (arrays["rates"][split:] >= 0).any() or len(both.workloads) > len(instance.workloads)
    ):
        rates = join_profiles(rates, added.rates)
        same = equal_profiles(rates, len(instance.rates))
    rates, workloads, arrays["rates"] = compact_rates(rates, workloads, arrays["rates"], same)

    options, same = instance.options, None
    if added is not None and len(added.options):
        options = join_options(options, added.options)
        same = equal_options(options, len(instance.options))
    options, arrays["options"] = compact_options(options, arrays["options"], same)
    lists = (*table.level_lists, *(() if added is None else added.jobs_table.level_lists))
    lists, arrays["levels"] = compact_levels(lists, arrays["levels"])

    running = moved.running(table.places)
    if added is not None and added.jobs_table.running:
        new = {row + split: place for row, place in added.jobs_table.running.items()}
        running = running.and_also(RunningJobs.of(new))
    after, awaits = joined_predecessors(instance, moved, added)
    return replace(
        instance,
        jobs_table=JobTable(
            names=names, level_lists=lists, running=running, after=after, awaits=awaits, **arrays
        ),
        rates=rates,
        options=options,
        workloads=workloads,
        colocation=joined_colocation(instance.colocation, moved, number, added),
    )


def _joined_arrays(
    instance: Instance, moved: Rows, added: Instance | None, workloads: JoinedWorkloads
) -> dict[str, Any]:
    """Columns of the jobs that stay and of those that are added, whose rows in other tables follow the instance's."""
    table = instance.jobs_table
    arrays: dict[str, Any] = {
        name: taken(getattr(table, name), moved.kept) for name in ARRAY_FIELDS
    }
    if added is None:
        return arrays
    new = added.jobs_table
    sizes = {
        "rates": len(instance.rates),
        "options": len(instance.options),
        "levels": len(table.level_lists),
    }
    for name, mine in arrays.items():
        theirs = getattr(new, name)
        if name == "workload":
            theirs = looked_up(workloads.second, theirs)
        elif name in sizes and (shown(theirs) >= 0).any():
            theirs = theirs + np.where(theirs >= 0, sizes[name], 0)
        arrays[name] = joined([mine, theirs])
    return arrays
