"""Revise an instance from round to round: jobs arrive and leave, columns and states of nodes
change.

Unchanged parts are not validated or built again. The result is the same as reading the changed
document: the same numbering (`optsched.instance.compaction`), the same `Instance.sha256`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import EMPTY, IntArray, extended, looked_up, take_rows, without_repeats
from optsched.arrays.values import replace
from optsched.errors import InvalidArgument, InvalidInput, UsageError, did_you_mean
from optsched.instance.build import check_deadlines, with_labels
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
from optsched.instance.documents import LARGEST, NODE_STATES
from optsched.instance.instance import Instance
from optsched.instance.interning import RateInterner
from optsched.instance.job_rules import as_array, as_column, check_arrays
from optsched.instance.joining import (
    JobPlaces,
    check_match,
    check_names,
    in_use,
    joined_colocation,
    joined_names,
    joined_predecessors,
    joined_workloads,
    renumbered,
)
from optsched.instance.reading import show
from optsched.instance.references import check_gpus
from optsched.instance.running import RunningJobs
from optsched.instance.tables import ARRAY_FIELDS, JobTable

COLUMNS = tuple(
    name
    for name in ARRAY_FIELDS
    if name not in ("workload", "rates", "options", "levels", "gpus_min", "gpus_max")
)
"""Columns of the job table that `with_columns` can replace: no other table depends on them."""

Running = Mapping[int, tuple[int, tuple[str, ...], float | None]]
"""`JobTable.running`."""


def jobs_of_documents(
    instance: Instance, documents: Sequence[Mapping[str, Any]], path: str = "jobs"
) -> Instance:
    """Validate documents of jobs that are to join an instance.

    Parameters
    ----------
    instance : Instance
        The jobs may name its cluster, workloads and tenants, and have its jobs as predecessors.
        Their ids must differ from those of its jobs.
    documents : sequence of mappings
        ``jobs`` of an instance document.
    path : str
        Name of the list in messages.

    Returns
    -------
    Instance
        An instance with only these jobs, for `with_jobs`. Predecessors in ``instance`` are in
        ``jobs_table.awaits``.

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    columns = columns_beside(instance, instance.jobs_table.names, path)
    return joining(instance, columns, columns.read(documents, instance.jobs_table.names))


def columns_beside(instance: Instance, taken: Container[str], path: str = "jobs") -> JobColumns:
    """An empty `JobColumns` for jobs that may name workloads and tenants of an instance, and must
    not have the ids ``taken``.
    """
    rates = RateInterner(instance.cluster)
    workloads, tenants = instance.workloads, instance.tenants
    return JobColumns(instance.now, instance.cluster, workloads, tenants, rates, taken, path)


def joining(instance: Instance, columns: JobColumns, jobs: JobTable) -> Instance:
    """An instance, for `with_jobs`, from jobs that were collected in `columns_beside`."""
    workloads = with_labels(instance.workloads, columns.labels)
    profiles, of_job, same = columns.rates.table(), jobs.rates, None
    if (workloads.rates >= 0).any():
        of_workloads, workloads, _ = compact_rates(instance.rates, workloads, EMPTY)
        of_job = of_job + np.where(of_job >= 0, len(of_workloads), 0)
        profiles = join_profiles(of_workloads, profiles)
        same = equal_profiles(profiles, len(of_workloads))
    rates, workloads, of_job = compact_rates(profiles, workloads, of_job, same)
    return replace(
        instance,
        jobs_table=replace(jobs, rates=of_job),
        rates=rates,
        options=columns.options.table(),
        workloads=workloads,
        colocation=tuple(entry for entry in instance.colocation if entry.jobs is None),
    )


def with_jobs(instance: Instance, rows: IntArray, added: Instance | None = None) -> Instance:
    """The instance with some of its jobs, and added ones.

    Parameters
    ----------
    instance : Instance
    rows : IntArray
        Jobs that stay, in their new order.
    added : Instance, optional
        Jobs to append, from `jobs_of_documents` or an instance with the same pools and tenants. New
        workloads of it are added too, with its co-location entries for them.

    Returns
    -------
    Instance
        Predecessors that left count as done. Co-location entries of jobs that left are removed, and
        so are labels that only such jobs named (`Workload.label`).

    Raises
    ------
    InvalidInput
        A row that does not exist or comes twice; an added job whose id is in use.
    UsageError
        ``added`` has other pools or tenants, or another definition of a workload.
    """
    moved = JobPlaces.of(rows, len(instance.jobs_table))
    if added is not None and len(added.jobs_table) == 0:
        added = None
    if added is None and moved.everything:
        return instance
    if added is not None:
        check_match(instance, added)
        check_names(instance, moved, added)
    return joined_jobs(instance, moved, added)


def joined_jobs(instance: Instance, moved: JobPlaces, added: Instance | None) -> Instance:
    """The same as `with_jobs`, for jobs that were checked before."""
    table = instance.jobs_table
    names = joined_names(instance, moved, added)
    every_workload, workload_rows = joined_workloads(instance, added)
    arrays = _joined_arrays(instance, moved, added, workload_rows)
    split = len(moved.kept)
    colocation = joined_colocation(instance, moved, added, workload_rows)
    # Remove labels that no job names any more, and renumber the others.
    workloads, number = in_use(every_workload, arrays["workload"], colocation)
    if number is not None:
        arrays["workload"] = looked_up(number, arrays["workload"])
        colocation = renumbered(colocation, number)

    # Equal profiles can only occur if the added jobs or workloads have rates.
    rates, same = instance.rates, None
    if added is not None and (
        (arrays["rates"][split:] >= 0).any() or len(every_workload) > len(instance.workloads)
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
        colocation=colocation,
    )


def _joined_arrays(
    instance: Instance, moved: JobPlaces, added: Instance | None, workload_rows: IntArray
) -> dict[str, Any]:
    """Columns of the kept and the added jobs; indices of the added jobs are shifted, because their
    rows in other tables come after those of the instance.
    """
    table = instance.jobs_table
    kept = moved.kept
    if added is None:
        return {name: take_rows(getattr(table, name), kept) for name in ARRAY_FIELDS}
    new = added.jobs_table
    arrays = {}
    sizes = {
        "rates": len(instance.rates),
        "options": len(instance.options),
        "levels": len(table.level_lists),
    }
    for name in ARRAY_FIELDS:
        added_values = getattr(new, name)
        if name == "workload":
            added_values = looked_up(workload_rows, added_values)
        elif name in sizes and (without_repeats(added_values) >= 0).any():
            added_values = added_values + np.where(added_values >= 0, sizes[name], 0)
        arrays[name] = extended(getattr(table, name), kept, added_values)
    return arrays


# --- other values of the same jobs, other states of nodes -----------------------------------------


def with_columns(
    instance: Instance, *, now: float | None = None, running: Running | None = None, **arrays: Any
) -> Instance:
    """The instance with other values of some job arrays, another clock time, or other running jobs.

    Parameters
    ----------
    instance : Instance
    now : float, optional
        Seconds.
    running : mapping, optional
        Job row -> (pool row, GPU names, since), for all jobs that run.
    **arrays
        By names of `COLUMNS`: arrays of shape (jobs,), or one number for all.

    Raises
    ------
    InvalidInput
        A name or value that cannot be, with the first job that has it.
    """
    table = instance.jobs_table
    count = len(table)
    columns: dict[str, Any] = {}
    for name, values in arrays.items():
        if name not in COLUMNS:
            raise InvalidInput(
                name, "no column that can be replaced", f"one of {', '.join(COLUMNS)}"
            )
        columns[name] = as_column(name, as_array(name, values), ARRAY_FIELDS[name], count)
    limits = {"tenant": len(instance.tenants)} if "tenant" in columns else {}
    check_arrays(columns, limits, table.names, lambda row, field: f"{field}[{row}]")
    if "soft_deadline" in columns or "deadline" in columns:
        given = columns | {
            name: getattr(table, name)
            for name in ("soft_deadline", "deadline")
            if name not in columns
        }
        # If a deadline is removed, so is its mark as soft, as in a document.
        columns["soft_deadline"] = given["soft_deadline"] & np.isfinite(given["deadline"])
    changed = replace(table, **columns) if columns else table
    if "deadline" in columns or "arrival" in columns:
        check_deadlines(changed)
    if running is not None:
        changed = replace(changed, running=_checked_running(instance, running))
    if now is not None:
        if not -LARGEST <= now <= LARGEST:
            raise InvalidInput("now", show(now), f"a number from {-LARGEST:g} to {LARGEST:g}")
        return replace(instance, jobs_table=changed, now=float(now))
    return replace(instance, jobs_table=changed)


def _checked_running(
    instance: Instance, running: Running
) -> dict[int, tuple[int, tuple[str, ...], float | None]]:
    """The running jobs by row; unchanged entries are not checked again."""
    table, cluster = instance.jobs_table, instance.cluster
    for row, place in running.items():
        if not 0 <= row < len(table):
            raise InvalidInput("running", f"the row {row}", f"rows of the {len(table)} jobs")
        # This entry was checked when it was added.
        if place == table.running.get(row):
            continue
        pool, gpus, since = place
        if not 0 <= pool < len(cluster.pools):
            raise InvalidInput(
                f"running[{row}].pool", show(pool), f"a row of the {len(cluster.pools)} pools"
            )
        if not gpus:
            raise InvalidInput(f"running[{row}].gpus", "[]", "at least 1 entry")
        check_gpus(gpus, pool, cluster, f"running[{row}].gpus")
        if since is not None and not -LARGEST <= since <= LARGEST:
            raise InvalidInput(f"running[{row}].since", show(since), "a finite number, or null")
    return dict(sorted(running.items()))


def with_nodes(instance: Instance, states: Mapping[str, str]) -> Instance:
    """The instance with other states of some nodes.

    Parameters
    ----------
    instance : Instance
    states : mapping
        Name of a node -> ``up``, ``drain``, ``down`` or ``reserved``. Node names are unique in a
        cluster.

    Returns
    -------
    Instance
        Running jobs stay on their nodes whatever the new state is. A caller that stops them must
        also change ``running`` (`with_columns`).

    Raises
    ------
    UsageError
        A node or a state is unknown.
    """
    cluster = instance.cluster
    rows: dict[int, list[tuple[int, int]]] = {}
    for name, state in states.items():
        if state not in NODE_STATES:
            raise InvalidArgument(
                f"node {show(name)}", f"state {show(state)}", f"one of {', '.join(NODE_STATES)}"
            )
        pool, row = cluster.find_node(name)
        if pool < 0:
            raise UsageError(f"no node is called {show(name)}{_meant(instance, name)}")
        rows.setdefault(pool, []).append((row, NODE_STATES.index(state)))
    pools = list(cluster.pools)
    for pool, changes in rows.items():
        state_of = pools[pool].node_state.copy()
        nodes, numbers = zip(*changes, strict=True)
        state_of[list(nodes)] = numbers
        pools[pool] = replace(pools[pool], node_state=state_of)
    return replace(instance, cluster=cluster.with_pools(tuple(pools))) if rows else instance


def _meant(instance: Instance, name: str) -> str:
    known = (
        pool.node_name(row) for pool in instance.cluster.pools for row in range(len(pool.node_gpus))
    )
    return did_you_mean(name, known)
