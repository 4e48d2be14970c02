"""Other values of some job arrays, and other states of some nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from optsched.errors import InvalidArgument, InvalidInput, UsageError, did_you_mean
from optsched.instance.build import check_deadlines
from optsched.instance.documents import LARGEST, NODE_STATES
from optsched.instance.instance import Instance
from optsched.instance.job_rules import as_array, as_column, check_arrays
from optsched.instance.reading import show
from optsched.instance.references import check_gpus
from optsched.instance.tables import ARRAY_FIELDS

COLUMNS = tuple(
    name
    for name in ARRAY_FIELDS
    if name not in ("workload", "rates", "options", "levels", "gpus_min", "gpus_max")
)
"""Columns of the job table that `with_columns` replaces: those that no other table hangs on."""

Running = Mapping[int, tuple[int, tuple[str, ...], float | None]]
"""`JobTable.running`."""


def with_columns(
    instance: Instance, *, now: float | None = None, running: Running | None = None, **arrays: Any
) -> Instance:
    """The instance with other values of some job arrays, at another time, or with jobs that run elsewhere.

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
    """Where jobs run, by row; what stood there before was checked then."""
    table, cluster = instance.jobs_table, instance.cluster
    for row, place in running.items():
        if not 0 <= row < len(table):
            raise InvalidInput("running", f"the row {row}", f"rows of the {len(table)} jobs")
        if place is table.running.get(row):
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
        Name of a node -> ``up``, ``drain``, ``down`` or ``reserved``. Node names are unique in a cluster.

    Returns
    -------
    Instance
        What runs on a node stays there, whatever its state: who stops it also says so (`with_columns`).

    Raises
    ------
    UsageError
        A node or a state that there is not.
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
