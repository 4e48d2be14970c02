"""From documents to arrays: `build_instance`, and the rules over several fields or objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from optsched.arrays import BoolArray
from optsched.errors import MOST_COUNTED, InvalidInput, all_wrong
from optsched.instance.build_cluster import build_cluster
from optsched.instance.cluster import Cluster, Tenant
from optsched.instance.columns import JobColumns
from optsched.instance.documents import (
    FORMAT,
    PLAIN_JOBS,
    ColocationDocument,
    HeaderDocument,
    InstanceDocument,
    JobDocument,
    TenantDocument,
    WorkloadDocument,
)
from optsched.instance.instance import Instance
from optsched.instance.interning import RateInterner
from optsched.instance.rates import OWN_GANG, RateTable
from optsched.instance.reading import CHUNK, key, show, validate, validate_columns
from optsched.instance.references import check_needs, pool_row, refuse_repeated
from optsched.instance.restart import read_restart_costs
from optsched.instance.tables import Colocation, JobTable, OptionTable, Workload, Workloads

OTHERS = {
    "optsched-round/1": (
        "this is a state: `optsched round STATE --job ID` says why a job waits; its field "
        '"instance" is an instance'
    ),
    "optsched-plan/1": (
        "this is the plan of a round; the state that it follows from has an instance"
    ),
    "optsched-solution/1": "this is a solution: `optsched verify INSTANCE SOLUTION` reads it",
    "optsched-trace/1": "this is a trace: `optsched simulate` reads it",
}
"""Explanations of other documents that may be mistaken for an instance."""


class Header(NamedTuple):
    """Everything of an instance but its jobs, validated;
    ``rates`` has the profiles of workloads; those of jobs are added to it.
    """

    document: HeaderDocument
    cluster: Cluster
    tenants: tuple[Tenant, ...]
    workloads: Workloads
    rates: RateInterner

    def finish(
        self, table: JobTable, rates: RateTable, options: OptionTable, labels: Sequence[str] = ()
    ) -> Instance:
        """The instance with these jobs; ``labels`` are workloads that only jobs name."""
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
            # dict() instead of model_dump(), because the latter makes pydantic build another
            # schema.
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
        known = f" ({OTHERS[kind]})" if isinstance(kind, str) and kind in OTHERS else ""
        raise InvalidInput("format", found, f'"{FORMAT}"{known}')
    try:
        return _build(document)
    except InvalidInput as error:
        raise _with_others(error, document) from None


def _build(document: Mapping[str, Any]) -> Instance:
    """The instance of a document; raises `InvalidInput` for the first part that is wrong."""
    header = build_header(_without_jobs(document))
    if "jobs" not in document:
        raise InvalidInput("jobs", "nothing", "a list of jobs")
    columns = JobColumns(
        header.document.now, header.cluster, header.workloads, header.tenants, header.rates
    )
    table = columns.read(document["jobs"])
    return header.finish(table, header.rates.table(), columns.options.table(), columns.labels)


def _without_jobs(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "jobs"}


def _with_others(error: InvalidInput, document: Mapping[str, Any]) -> InvalidInput:
    """The error that refused a document, together with the errors of its other parts.

    They include wrong fields of all objects, and for each job the first broken rule over several
    fields. If the header is wrong, jobs are checked without references to it.
    """
    jobs = document.get("jobs")
    jobs = jobs if isinstance(jobs, list | tuple) else ()
    more = 0
    try:
        header = build_header(_without_jobs(document))
    except InvalidInput as outside:
        fields = _wrong_fields(jobs)
        wrong = [*outside.one_by_one(), *(fields.one_by_one() if fields is not None else ())]
        more = outside.more + (fields.more if fields is not None else 0)
    else:
        # A generator, so that `islice` ends the search when enough errors are found.
        pieces = range(0, len(jobs), CHUNK)
        found = (_wrong_jobs(header, jobs[start : start + CHUNK], start) for start in pieces)
        wrong = list(islice(chain.from_iterable(found), MOST_COUNTED))
    # A repeated name is not an error of one part alone, so it is added here
    if error.path not in {single.path for single in wrong}:
        wrong = [*error.one_by_one(), *wrong]
    return all_wrong(wrong, len(wrong) + more)


def _wrong_fields(jobs: Sequence[object]) -> InvalidInput | None:
    """The error of wrong fields of jobs, checked without the rest of the document."""
    try:
        for start in range(0, len(jobs), CHUNK):
            piece = jobs[start : start + CHUNK]
            validate_columns(JobDocument, piece, "jobs", PLAIN_JOBS, start)
    except InvalidInput as error:
        return error
    return None


def _wrong_jobs(header: Header, jobs: Sequence[object], first: int) -> Iterator[InvalidInput]:
    """The errors of jobs, the first of which has the number ``first``. It bisects: halves without
    an error are skipped.
    """
    columns = JobColumns(
        header.document.now, header.cluster, header.workloads, header.tenants, header.rates
    )
    try:
        columns.checked(jobs)
    except InvalidInput as error:
        if len(jobs) > 1:
            middle = len(jobs) // 2
            yield from _wrong_jobs(header, jobs[:middle], first)
            yield from _wrong_jobs(header, jobs[middle:], first + middle)
            return
        for single in error.one_by_one():
            path = f"jobs[{first}]{single.path.removeprefix('jobs[0]')}"
            yield InvalidInput(path, single.found, single.expected)


def with_labels(workloads: Workloads, labels: Sequence[str]) -> Workloads:
    """The workloads, followed by those that only jobs name."""
    if not labels:
        return workloads
    return Workloads((*workloads, *(Workload(name, label=True) for name in labels)))


def _workloads(header: HeaderDocument, rates: RateInterner, cluster: Cluster) -> Workloads:
    documents = dict(header.workloads)
    for name, entries in header.throughputs.items():
        # A workload may be defined by its rates under `throughputs` alone, or get its rates from
        # there.
        document = documents.get(name, WorkloadDocument())
        if document.throughput is not None:
            raise InvalidInput(
                f"throughputs.{key(name)}", "a second throughput", "none, as workloads gives one"
            )
        documents[name] = document.model_copy(update={"throughput": entries})
    return Workloads(
        build_workload(name, document, rates, cluster, shorthand=name in header.throughputs)
        for name, document in documents.items()
    )


def build_tenant(document: TenantDocument) -> Tenant:
    """The tenant that a document describes."""
    return Tenant(document.name, document.weight, document.policy)


def build_workload(
    name: str,
    document: WorkloadDocument,
    rates: RateInterner,
    cluster: Cluster,
    shorthand: bool = False,
) -> Workload:
    """A workload with its rates in the profiles; ``shorthand``: they come from ``throughputs``."""
    at = f"workloads.{key(name)}"
    path = f"throughputs.{key(name)}" if shorthand else f"{at}.throughput"
    check_needs(document.demand, cluster, f"{at}.demand", None, consumable=False)
    row = -1 if document.throughput is None else rates.add(document.throughput, path)
    costs = read_restart_costs(document.restart_cost, rates.places, f"{at}.restart_cost")
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
    """Resolve names in co-location entries to rows; an entry must be unique in pair, pool, GPUs and
    nodes.
    """
    workload_rows = {workload.name: row for row, workload in enumerate(workloads)}
    result = []
    seen = set()
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
            _check_counts(entry, jobs, table, f"{path}.gpus")
        elif entry.workloads is not None:
            workload_pair = _pair(
                entry.workloads,
                workload_rows.__getitem__,
                f"{path}.workloads",
                "the name of a workload",
            )
        pair = jobs or workload_pair or (0, 0)
        # A pair is the same in either order.
        place = (jobs is None, *sorted(pair), pool, entry.gpus, entry.nodes)
        if place in seen:
            raise InvalidInput(
                path, "a second entry for the same pair, pool, gpus and nodes", "one entry"
            )
        seen.add(place)
        result.append(Colocation(workload_pair, jobs, pool, entry.gpus, entry.nodes or 0, rates))
    return tuple(result)


def _check_counts(
    entry: ColocationDocument, jobs: tuple[int, int], table: JobTable, path: str
) -> None:
    """Refuse an entry whose number of GPUs one of its jobs cannot have."""
    for job in jobs:
        low, high, levels = table.gpus_min[job], table.gpus_max[job], table.levels[job]
        counts = table.level_lists[levels] if levels >= 0 else range(low, high + 1)
        if entry.gpus not in counts:
            stated = show(list(counts)) if levels >= 0 else f"{low} to {high}"
            allowed = f"{low}" if low == high else stated
            expected = f"a count that job {show(table.names[job])} may have, {allowed}"
            raise InvalidInput(path, str(entry.gpus), expected)


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
    """Check rules over several columns of the job table; raises for the first wrong job."""
    _refuse_first(
        table,
        table.gpus_min > table.gpus_max,
        "gpus",
        lambda row: f"min {table.gpus_min[row]} above max {table.gpus_max[row]}",
        "min at most max",
        path,
    )
    check_deadlines(table, path)
    plain = np.zeros(len(rates) + 1, bool)  # the last entry is for row -1, no rates of its own
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
    """Refuse a deadline before the arrival."""
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
