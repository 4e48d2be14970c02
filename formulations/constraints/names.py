"""Names in the options of side constraints: found in the instance, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NoReturn

import numpy as np
from pydantic import BeforeValidator, Field

from optsched.arrays import BoolArray, IntArray
from optsched.errors import InvalidArgument, InvalidInput, did_you_mean
from optsched.instance import Instance
from optsched.instance.reading import listed, show

Names = Annotated[
    list[str],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    Field(min_length=1),
]
"""Several names; on the shell one may stand alone: ``pools=v100``."""
Amount = Annotated[float, Field(ge=0.0, le=1e18, allow_inf_nan=False)]
"""A number that may be 0."""
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
"""A fraction of something."""


def pool_rows(kind: str, names: Sequence[str] | None, instance: Instance) -> IntArray:
    """Rows of pools; all of them for None. Raises `UsageError`."""
    known = instance.cluster.pool_index
    if names is None:
        return np.arange(len(known), dtype=np.int64)
    for place, name in enumerate(names):
        if name not in known:
            _refuse_unknown(kind, f"pools[{place}]", name, "pools", list(known))
    return np.unique(np.array([known[name] for name in names], np.int64))


def tenant_row(kind: str, name: str, instance: Instance) -> int:
    """Row of a tenant; raises `UsageError`."""
    known = [tenant.name for tenant in instance.tenants]
    if name not in known:
        _refuse_unknown(kind, "tenant", name, "tenants", known)
    return known.index(name)


def of_tenant(kind: str, name: str, instance: Instance) -> BoolArray:
    """Mask of a tenant's jobs, shape (jobs,); raises `UsageError`."""
    return np.asarray(instance.jobs_table.tenant == tenant_row(kind, name, instance))


def workload_row(kind: str, name: str, instance: Instance) -> int:
    """Row of a workload; raises `UsageError`."""
    known = [workload.name for workload in instance.workloads]
    if name not in known:
        _refuse_unknown(kind, "workload", name, "workloads", known)
    return known.index(name)


def job_rows(kind: str, names: Sequence[str], instance: Instance) -> IntArray:
    """Rows of jobs, each named once; raises `UsageError`."""
    known = instance.jobs_table.names
    rows = np.zeros(len(names), np.int64)
    first: dict[str, int] = {}
    for place, name in enumerate(names):
        try:
            rows[place] = known.index(name)
        except KeyError:
            expected = (
                "the id of a job of the "
                f"instance{did_you_mean(name, (known[row] for row in range(len(known))))}"
            )
            _refuse(kind, f"jobs[{place}]", show(name), expected)
        if first.setdefault(name, place) != place:
            _refuse(kind, f"jobs[{place}]", f"{show(name)} a second time", "each job once")
    return rows


def _refuse_unknown(kind: str, path: str, name: str, what: str, known: Sequence[str]) -> NoReturn:
    one_of = f"one of the {what} {listed(known)}{did_you_mean(name, known)}"
    _refuse(kind, path, show(name), one_of if known else f"none, as the instance has no {what}")


def _refuse(kind: str, path: str, found: str, expected: str) -> NoReturn:
    """Raise `InvalidArgument`;
    its cause has the path that the field has in a constraint of an instance.
    """
    raise InvalidArgument(f"{kind}: {path}", found, expected) from InvalidInput(
        path, found, expected
    )
