"""Replace workloads and tenants of an instance; its jobs stay.

The result is identical to reading the changed document, to the last bit: see
`optsched.instance.revise`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optsched.arrays import IntArray, looked_up
from optsched.arrays.values import replace
from optsched.errors import InvalidInput
from optsched.instance.build import build_tenant, build_workload
from optsched.instance.compaction import compact_rates, equal_profiles, join_profiles
from optsched.instance.documents import TenantDocument, WorkloadDocument
from optsched.instance.instance import Instance
from optsched.instance.interning import RateInterner
from optsched.instance.joining import in_use, renumbered
from optsched.instance.reading import key, listed, show, validate
from optsched.instance.references import refuse_repeated
from optsched.instance.tables import Colocation, Workload, Workloads


def with_tenants(
    instance: Instance, tenants: Sequence[TenantDocument], remove: Sequence[str] = ()
) -> Instance:
    """The instance with other tenants.

    Parameters
    ----------
    instance : Instance
    tenants : sequence of TenantDocument
        They replace tenants of the same name; new ones are appended.
    remove : sequence of str
        Names of tenants to remove first; they must have no jobs.

    Raises
    ------
    InvalidInput
        A name occurs twice, or a tenant cannot be removed.
    """
    refuse_repeated((tenant.name for tenant in tenants), "tenants[{}].name")
    table = instance.jobs_table
    row = {tenant.name: place for place, tenant in enumerate(instance.tenants)}
    for at, name in _to_remove(remove, row, "tenant"):
        _refuse_jobs(instance, table.tenant == row[name], f"remove[{at}]", f"tenant {show(name)}")
    defined = {tenant.name: tenant for tenant in instance.tenants if tenant.name not in remove}
    defined |= {tenant.name: build_tenant(tenant) for tenant in tenants}
    number = _numbers(row, defined)
    return replace(
        instance,
        tenants=tuple(defined.values()),
        jobs_table=replace(table, tenant=looked_up(number, table.tenant)),
    )


def with_workloads(
    instance: Instance, documents: Mapping[str, Mapping[str, Any]], remove: Sequence[str] = ()
) -> Instance:
    """The instance with other workloads.

    Parameters
    ----------
    instance : Instance
    documents : mapping of str to mapping
        ``workloads`` of an instance document. They replace workloads of the same name; new ones are
        appended.
    remove : sequence of str
        Names of workloads to remove first. A job may name one of them only if it states its own
        rates or options; the name is then only a label (`Workload.label`).

    Raises
    ------
    InvalidInput
        A field is wrong, or a workload cannot be removed.
    """
    table, before = instance.jobs_table, instance.workloads
    row = {workload.name: place for place, workload in enumerate(before) if not workload.label}
    has_rates = (table.rates >= 0) | (table.options >= 0)
    for at, name in _to_remove(remove, row, "workload"):
        path, what = f"remove[{at}]", f"workload {show(name)}"
        _refuse_jobs(instance, (table.workload == row[name]) & ~has_rates, path, what)
        _refuse_colocation(instance.colocation, row[name], path, what)

    interner = RateInterner(instance.cluster)
    new = {}
    for name, document in documents.items():
        checked = validate(WorkloadDocument, document, f"workloads.{key(name)}")
        new[name] = build_workload(name, checked, interner, instance.cluster)
    # New profiles come after those of the instance, so their numbers are shifted.
    rates = join_profiles(instance.rates, interner.table())
    start = len(instance.rates)
    new = {
        name: replace(workload, rates=workload.rates + start) if workload.rates >= 0 else workload
        for name, workload in new.items()
    }
    # Labels come last; `in_use` drops those that no job names.
    defined = {
        workload.name: workload
        for workload in before
        if not workload.label and workload.name not in remove
    } | new
    labels = {workload.name: Workload(workload.name, label=True) for workload in before}
    workloads = {
        **defined,
        **{name: workload for name, workload in labels.items() if name not in defined},
    }
    number = _numbers({workload.name: place for place, workload in enumerate(before)}, workloads)
    of_job = looked_up(number, table.workload)
    colocation = renumbered(instance.colocation, number)
    # A second renumbering: drop labels that no job names, and put the others in order of first use.
    used, moved = in_use(Workloads(workloads.values()), of_job, colocation)
    if moved is not None:
        of_job, colocation = looked_up(moved, of_job), renumbered(colocation, moved)
    rates, used, own_rates = compact_rates(rates, used, table.rates, equal_profiles(rates, start))
    return replace(
        instance,
        workloads=used,
        rates=rates,
        colocation=colocation,
        jobs_table=replace(table, workload=of_job, rates=own_rates),
    )


def _to_remove(
    names: Sequence[str], known: Mapping[str, int], what: str
) -> Iterable[tuple[int, str]]:
    """Rows and names to remove; raises `InvalidInput` for an unknown name."""
    refuse_repeated(names, "remove[{}]")
    for at, name in enumerate(names):
        if name not in known:
            there = listed(known) or "(there is none)"
            raise InvalidInput(f"remove[{at}]", show(name), f"one of the {what}s {there}")
        yield at, name


def _refuse_jobs(instance: Instance, needs: Any, path: str, what: str) -> None:
    jobs = np.flatnonzero(needs)
    if len(jobs):
        name = show(instance.jobs_table.names[int(jobs[0])])
        raise InvalidInput(path, f"{what}, which job {name} needs", "one that no job needs")


def _refuse_colocation(entries: Sequence[Colocation], row: int, path: str, what: str) -> None:
    for at, entry in enumerate(entries):
        if row in (entry.workloads or ()):
            raise InvalidInput(
                path, f"{what}, which colocation[{at}] names", "one that no co-location entry names"
            )


def _numbers(before: Mapping[str, int], after: Iterable[str]) -> IntArray:
    """New row of each old row, by name; the last entry is -1, for none."""
    row = {name: place for place, name in enumerate(after)}
    number = np.full(len(before) + 1, -1, np.int64)
    for name, place in before.items():
        number[place] = row.get(name, -1)
    return number
