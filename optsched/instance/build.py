"""Documents to arrays: `build_instance`, with the rules that need more than one field or object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from optsched.arrays import BoolArray
from optsched.errors import InvalidInput
from optsched.instance.build_cluster import build_cluster
from optsched.instance.cluster import Cluster, Tenant
from optsched.instance.columns import JobColumns
from optsched.instance.documents import (
    FORMAT,
    ColocationDocument,
    HeaderDocument,
    InstanceDocument,
    PoolDocument,
    TenantDocument,
    WorkloadDocument,
)
from optsched.instance.instance import Instance
from optsched.instance.interning import RateInterner
from optsched.instance.reading import key, show, validate
from optsched.instance.references import check_needs, pool_row, refuse_repeated
from optsched.instance.restart import read_restart_costs
from optsched.instance.tables import (
    OWN_GANG,
    Colocation,
    JobTable,
    OptionTable,
    RateTable,
    Workload,
)


@dataclass(frozen=True, eq=False)
class Header:
    """Everything of an instance but its jobs, validated;
    ``rates`` has the workloads' profiles and takes the jobs'.
    """

    document: HeaderDocument
    cluster: Cluster
    tenants: tuple[Tenant, ...]
    workloads: tuple[Workload, ...]
    rates: RateInterner

    def finish(
        self, table: JobTable, rates: RateTable, options: OptionTable, labels: Sequence[str] = ()
    ) -> Instance:
        """Put the jobs in; ``labels`` are workloads that only jobs name."""
        check_jobs(table, rates)
        workloads = with_labels(self.workloads, labels)
        return Instance(
            name=self.document.name,
            cluster=self.cluster,
            jobs_table=table,
            rates=rates,
            options=options,
            workloads=workloads,
            tenants=self.tenants,
            colocation=build_colocation(self.document.colocation, self.cluster, workloads, table),
            # dict() and not model_dump(), for which pydantic would build a schema of its own.
            constraints=tuple(dict(constraint) for constraint in self.document.constraints),
            performance=dict(self.document.performance),
            round=self.document.round,
            now=self.document.now,
        )


def build_header(document: Mapping[str, Any]) -> Header:
    """Validate an instance document without its jobs."""
    model = validate(HeaderDocument, document, hints=InstanceDocument)
    cluster = build_cluster(model.cluster)
    tenants = tuple(build_tenant(tenant) for tenant in model.tenants)
    refuse_repeated((tenant.name for tenant in tenants), "tenants[{}].name")
    rates = RateInterner(cluster)
    return Header(model, cluster, tenants, _workloads(model, rates, cluster), rates)


def build_instance(document: object) -> Instance:
    """Validate a parsed ``optsched-instance/1`` document and turn it into arrays.

    Raises
    ------
    InvalidInput
        With the path of the field, what was found and what was expected.
    """
    if not isinstance(document, Mapping):
        raise InvalidInput("", show(document), f'an object with "format": "{FORMAT}"')
    kind = document.get("format")
    if not isinstance(kind, str) or kind != FORMAT:
        found = show(kind) if "format" in document else "nothing"
        raise InvalidInput("format", found, f'"{FORMAT}"')
    jobs = document.get("jobs")
    header = build_header({key: value for key, value in document.items() if key != "jobs"})
    if "jobs" not in document:
        raise InvalidInput("jobs", "nothing", "a list of jobs")
    columns = JobColumns(
        header.document.now, header.cluster, header.workloads, header.tenants, header.rates
    )
    table = columns.read(jobs)
    return header.finish(table, header.rates.table(), columns.options.table(), columns.labels)


def wrong_parts(document: Mapping[str, Any]) -> Iterator[InvalidInput]:
    """All errors of the pools and jobs of a document
    that `build_instance` refused at the first one, but for names that come a second time.

    Each object is checked by itself, and again without the field that was wrong. An error elsewhere
    is not among them.
    """
    pools = document["cluster"]["pools"]
    found = False
    for number, pool in enumerate(pools):
        path = f"cluster.pools[{number}]"
        for error in _wrong_fields(pool, path, partial(validate, PoolDocument, path=path)):
            found = True
            yield error
    if found:
        return
    try:
        header = build_header({key: value for key, value in document.items() if key != "jobs"})
    except InvalidInput:
        return
    yield from _wrong_jobs(header, document["jobs"], 0)


def _wrong_jobs(
    header: Header, jobs: Sequence[Mapping[str, Any]], first: int
) -> Iterator[InvalidInput]:
    """The errors of jobs, the first of which has this number;
    halves without an error are left at once.
    """

    def check(part: Sequence[Mapping[str, Any]], path: str) -> None:
        rates = RateInterner(header.cluster)
        table = JobColumns(
            header.document.now, header.cluster, header.workloads, header.tenants, rates, path=path
        ).read(part)
        check_jobs(table, rates.table(), path)

    if len(jobs) == 1:
        path = f"jobs[{first}]"
        for error in _wrong_fields(jobs[0], "jobs[0]", lambda rest: check([rest], "jobs")):
            yield InvalidInput(
                path + error.path.removeprefix("jobs[0]"), error.found, error.expected
            )
        return
    try:
        check(jobs, "jobs")
    except InvalidInput:
        middle = len(jobs) // 2
        yield from _wrong_jobs(header, jobs[:middle], first)
        yield from _wrong_jobs(header, jobs[middle:], first + middle)


def _wrong_fields(
    document: Mapping[str, Any], path: str, check: Callable[[Mapping[str, Any]], object]
) -> Iterator[InvalidInput]:
    """The errors of the fields of one object."""
    rest = dict(document)
    while True:
        try:
            check(rest)
        except InvalidInput as error:
            yield error
            field = error.path.removeprefix(path).lstrip(".").partition(".")[0]
            # Without a field that there must be, or none, the check would say nothing new
            if rest.pop(field, None) is None or field in ("id", "workload", "name", "nodes"):
                return
        else:
            return


def with_labels(workloads: tuple[Workload, ...], labels: Sequence[str]) -> tuple[Workload, ...]:
    """The workloads, and those that only jobs name."""
    return (*workloads, *(Workload(name, label=True) for name in labels)) if labels else workloads


def _workloads(
    header: HeaderDocument, rates: RateInterner, cluster: Cluster
) -> tuple[Workload, ...]:
    documents: dict[str, WorkloadDocument] = dict(header.workloads)
    for name, entries in header.throughputs.items():
        document = documents.get(name, WorkloadDocument())
        if document.throughput is not None:
            raise InvalidInput(
                f"throughputs.{key(name)}", "a second throughput", "none, as workloads gives one"
            )
        documents[name] = document.model_copy(update={"throughput": entries})
    return tuple(
        build_workload(name, document, rates, cluster, shorthand=name in header.throughputs)
        for name, document in documents.items()
    )


def build_tenant(document: TenantDocument) -> Tenant:
    """A tenant of its document."""
    return Tenant(document.name, document.weight, document.policy)


def build_workload(
    name: str,
    document: WorkloadDocument,
    rates: RateInterner,
    cluster: Cluster,
    shorthand: bool = False,
) -> Workload:
    """A workload with its rates in the profiles; ``shorthand``: they come from ``throughputs``."""
    path = f"throughputs.{key(name)}" if shorthand else f"workloads.{key(name)}.throughput"
    check_needs(document.demand, cluster, f"workloads.{key(name)}.demand", None, consumable=False)
    row = -1 if document.throughput is None else rates.add(document.throughput, path)
    costs = read_restart_costs(
        document.restart_cost, rates.places, f"workloads.{key(name)}.restart_cost"
    )
    return Workload(
        name,
        row,
        document.demand,
        document.gpu_memory,
        document.parameters,
        restart_cost=costs,
    )


def build_colocation(
    entries: Sequence[ColocationDocument],
    cluster: Cluster,
    workloads: Sequence[Workload],
    table: JobTable,
) -> tuple[Colocation, ...]:
    """Resolve co-location entries to rows;
    a pair of jobs or workloads comes once per pool, GPUs and nodes.
    """
    workload_rows = {workload.name: row for row, workload in enumerate(workloads)}
    result: list[Colocation] = []
    seen: set[tuple[object, ...]] = set()
    for row, entry in enumerate(entries):
        path = f"colocation[{row}]"
        if (entry.workloads is None) == (entry.jobs is None):
            found = "neither" if entry.jobs is None else "both"
            raise InvalidInput(path, f"{found} of workloads and jobs", "exactly one of them")
        pool = pool_row(entry.pool, cluster, f"{path}.pool")
        if entry.nodes is not None and entry.nodes > entry.gpus:
            raise InvalidInput(
                f"{path}.nodes", str(entry.nodes), f"at most the entry's {entry.gpus} GPUs"
            )
        jobs = workload_pair = None
        rates = entry.throughput
        if entry.jobs is not None:
            jobs = _pair(entry.jobs, table.names.index, f"{path}.jobs", "the id of a job")
            if jobs[0] == jobs[1]:
                raise InvalidInput(
                    f"{path}.jobs", f"{show(entry.jobs[0])} twice", "two different jobs"
                )
            for end, job in enumerate(jobs):
                low, high, levels = table.gpus_min[job], table.gpus_max[job], table.levels[job]
                counts = table.level_lists[levels] if levels >= 0 else range(low, high + 1)
                if entry.gpus not in counts:
                    allowed = (
                        f"{low}"
                        if low == high
                        else show(list(counts))
                        if levels >= 0
                        else f"{low} to {high}"
                    )
                    expected = f"a count that job {show(entry.jobs[end])} may have, {allowed}"
                    raise InvalidInput(f"{path}.gpus", str(entry.gpus), expected)
        elif entry.workloads is not None:
            workload_pair = _pair(
                entry.workloads,
                workload_rows.__getitem__,
                f"{path}.workloads",
                "the name of a workload",
            )
        pair = jobs or workload_pair or (0, 0)
        place = (jobs is None, *sorted(pair), pool, entry.gpus, entry.nodes)
        if place in seen:
            raise InvalidInput(
                path, "a second entry for the same pair, pool, gpus and nodes", "one entry"
            )
        seen.add(place)
        result.append(Colocation(workload_pair, jobs, pool, entry.gpus, entry.nodes or 0, rates))
    return tuple(result)


def _pair(
    names: tuple[str, str], find: Callable[[str], int], path: str, expected: str
) -> tuple[int, int]:
    rows = []
    for end, name in enumerate(names):
        try:
            rows.append(find(name))
        except KeyError:
            raise InvalidInput(f"{path}[{end}]", show(name), expected) from None
    return rows[0], rows[1]


def check_jobs(table: JobTable, rates: RateTable, path: str = "jobs") -> None:
    """Rules over whole columns of the job table; the first job that breaks one is named."""
    _refuse_first(
        table,
        table.gpus_min > table.gpus_max,
        "gpus",
        lambda row: f"min {table.gpus_min[row]} above max {table.gpus_max[row]}",
        "min at most max",
        path,
    )
    check_deadlines(table, path)
    plain = np.zeros(len(rates) + 1, bool)  # the last one means "no rates of its own", row -1
    elastic = table.gpus_min < table.gpus_max
    if elastic.any():
        plain[rates.profile[rates.gpus == OWN_GANG]] = True
    _refuse_first(
        table,
        plain[table.rates] & elastic,
        "throughput",
        lambda row: "a plain number in an elastic job",
        'rates by GPU count such as {"1": 9}',
        path,
    )


def check_deadlines(table: JobTable, path: str = "jobs") -> None:
    """No job is due before it arrives."""
    _refuse_first(
        table,
        table.deadline < table.arrival,
        "deadline",
        lambda row: f"{table.deadline[row]:g}, before the arrival {table.arrival[row]:g}",
        "a deadline not before the arrival",
        path,
    )


def _refuse_first(
    table: JobTable,
    wrong: BoolArray,
    field: str,
    found: Callable[[int], str],
    expected: str,
    path: str,
) -> None:
    """Raise `InvalidInput` for the first job where ``wrong`` holds."""
    rows = np.flatnonzero(wrong)
    if len(rows):
        row = int(rows[0])
        raise InvalidInput(
            f"{path}[{row}].{field}", f"{found(row)} (job {show(table.names[row])})", expected
        )
