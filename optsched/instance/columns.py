"""Job documents to columns, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

import numpy as np

from optsched.arrays import AnyArray, condensed, joined
from optsched.errors import InvalidInput
from optsched.instance.cluster import Cluster, Tenant
from optsched.instance.documents import PLAIN_JOBS, GpuRange, JobDocument
from optsched.instance.interning import OptionInterner, RateInterner
from optsched.instance.rates import OWN_GANG
from optsched.instance.reading import CHUNK, first_places, listed, show, validate_columns
from optsched.instance.references import NOWHERE, check_running, resolve_predecessors
from optsched.instance.running import Place
from optsched.instance.tables import (
    ARRAY_FIELDS,
    DTYPES,
    JobNames,
    JobTable,
    Workload,
)

Value = TypeVar("Value")
Path = Callable[[int], str]
"""Function: position of a job in a list -> its path for messages."""


@dataclass(repr=False, eq=False)
class CheckedJobs:
    """Checked jobs as lists, the input of `JobColumns.add`.

    Attributes
    ----------
    ids : dict of str to int
        Id of each job, with its place among these.
    columns : dict of str to list
        By names of `ARRAY_FIELDS`, among others.
    running : dict
        `JobTable.running`, by places among these.
    after : dict of int to tuple of str
        Names of predecessors, by places among these.
    """

    ids: dict[str, int] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    running: dict[int, Place] = field(default_factory=dict)
    after: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


class JobColumns:
    """Collects jobs into one column per field, for their `JobTable`.

    Jobs that state their own rates may name a workload that is defined nowhere; it is then only a
    label, and new ones are collected in ``labels``. Ids of jobs must not be in ``taken``.
    """

    def __init__(
        self,
        now: float,
        cluster: Cluster,
        workloads: Sequence[Workload],
        tenants: Sequence[Tenant],
        rates: RateInterner,
        taken: Container[str] = frozenset(),
        path: str = "jobs",
    ) -> None:
        self._path = path
        self._default_arrival = min(0.0, now)
        self._cluster = cluster
        self._workload_rows = {workload.name: row for row, workload in enumerate(workloads)}
        self._labels = {workload.name for workload in workloads if workload.label}
        self._tenant_rows = {tenant.name: row for row, tenant in enumerate(tenants)}
        self.rates = rates
        self._taken = taken
        self.options = OptionInterner(cluster)
        self.labels: list[str] = []
        self.rows: dict[str, int] = {}
        self._lists: dict[str, list[Any]] = {name: [] for name in ARRAY_FIELDS}
        self._arrays: dict[str, list[AnyArray]] = {name: [] for name in ARRAY_FIELDS}
        self._level_rows: dict[tuple[int, ...], int] = {}
        self._running: dict[int, Place] = {}
        self._after: dict[int, tuple[str, ...]] = {}

    def read(self, documents: object, elsewhere: JobNames = NOWHERE) -> JobTable:
        """The table of a list of job documents; raises `InvalidInput`."""
        if not isinstance(documents, list | tuple):
            raise InvalidInput(self._path, show(documents), "a list of jobs")
        for start in range(0, len(documents), CHUNK):
            self.add(self.checked(documents[start : start + CHUNK], start))
        return self.table(elsewhere)

    def checked(self, documents: Sequence[object], start: int = 0) -> CheckedJobs:
        """Check jobs and their references, without adding them.

        Parameters
        ----------
        documents : sequence
        start : int
            Number of the first one in its list of documents, for messages.

        Raises
        ------
        InvalidInput
            A field is wrong. Profiles, labels and lists that were interned before the error stay in
            the tables. This is harmless: unused ones are dropped when jobs are joined
            (`compaction`).
        """
        jobs = validate_columns(JobDocument, documents, self._path, PLAIN_JOBS, start)

        def at(place: int) -> str:
            return f"{self._path}[{start + place}]"

        ids = self._ids(jobs["id"], at)
        least, most, levels = self._gpus(jobs["gpus"], at)
        # Jobs with rates or their own options may name a workload that is defined nowhere.
        states_rates = [
            throughput is not None or options is not None
            for throughput, options in zip(jobs["throughput"], jobs["options"], strict=True)
        ]
        named = list(zip(jobs["workload"], states_rates, strict=True))
        workload = _each_once(named, self._workload, at)
        rates = self.rates.add_all(jobs["throughput"], lambda place: f"{at(place)}.throughput")
        options = [
            -1 if options is None else self.options.add(options, f"{at(place)}.options")
            for place, options in enumerate(jobs["options"])
        ]
        tenant = _each_once(jobs["tenant"], self._tenant, at)
        running = {
            place: check_running(running, self._cluster, f"{at(place)}.running")
            for place, running in enumerate(jobs["running"])
            if running is not None
        }
        arrival = [
            self._default_arrival if arrival is None else arrival for arrival in jobs["arrival"]
        ]
        _check_rules(jobs, arrival, least, most, at)
        # The other fields are columns as they are.
        columns = jobs | {
            "workload": workload,
            "rates": rates,
            "options": options,
            "tenant": tenant,
            "gpus_min": least,
            "gpus_max": most,
            "levels": levels,
            "arrival": arrival,
            "deadline": [inf if deadline is None else deadline for deadline in jobs["deadline"]],
            "soft_deadline": [
                deadline is not None and kind == "soft"
                for deadline, kind in zip(jobs["deadline"], jobs["deadline_kind"], strict=True)
            ],
            "isolated_time": [
                0.0 if history is None else history.isolated_time for history in jobs["history"]
            ],
        }
        after = {place: names for place, names in enumerate(jobs["after"]) if names}
        return CheckedJobs(ids, columns, running, after)

    def _ids(self, ids: list[str], at: Path) -> dict[str, int]:
        places = {name: place for place, name in enumerate(ids)}
        repeated = len(places) < len(ids) or not self.rows.keys().isdisjoint(places)
        if repeated or any(map(self._taken.__contains__, ids)):
            seen: set[str] = set()
            for place, name in enumerate(ids):
                if name in seen or name in self.rows or name in self._taken:
                    raise InvalidInput(
                        f"{at(place)}.id", f"{show(name)} a second time", "ids that differ"
                    )
                seen.add(name)
        return places

    def add(self, jobs: CheckedJobs) -> None:
        """Add checked jobs. They must have been checked after all earlier jobs were added."""
        start = len(self.rows)
        self.rows.update(zip(jobs.ids, range(start, start + len(jobs)), strict=True))
        self._running |= {start + place: held for place, held in jobs.running.items()}
        self._after |= {start + place: names for place, names in jobs.after.items()}
        for name, values in self._lists.items():
            values += jobs.columns[name]
        # Arrays take a quarter of the memory of lists; they are made per chunk, because single
        # appends are slow.
        if len(self._lists["steps"]) >= CHUNK:
            self._to_arrays()

    def _to_arrays(self) -> None:
        for name, values in self._lists.items():
            kind = DTYPES[ARRAY_FIELDS[name]]
            # Most columns of most files are the same value throughout, a default.
            same = values.count(values[0]) == len(values) if values else False
            column: AnyArray = (
                np.full(len(values), values[0], kind) if same else np.array(values, kind)
            )
            # Turns -0.0 into 0.0.
            column = column + 0.0 if column.dtype == np.float64 else column
            self._arrays[name].append(column)
            values.clear()

    def _gpus(self, gpus: list[Any], at: Path) -> tuple[list[int], list[int], list[int]]:
        """Least and most GPUs, and the row of the list of levels."""
        # Fast path for chunks that have only gangs, or nothing: an event may have no jobs.
        if set(map(type, gpus)) <= {int}:
            return gpus, gpus, [-1] * len(gpus)
        ranges = [self._range(each, place, at) for place, each in enumerate(gpus)]
        least, most, levels = (list(column) for column in zip(*ranges, strict=True))
        return least, most, levels

    def _range(self, gpus: int | GpuRange, place: int, at: Path) -> tuple[int, int, int]:
        if isinstance(gpus, int):
            return gpus, gpus, -1
        path = f"{at(place)}.gpus"
        if gpus.min > gpus.max:
            raise InvalidInput(path, f"min {gpus.min} above max {gpus.max}", "min at most max")
        if gpus.levels is None:
            return gpus.min, gpus.max, -1
        levels = tuple(sorted(set(gpus.levels)))
        if len(levels) < len(gpus.levels) or levels[0] < gpus.min or levels[-1] > gpus.max:
            raise InvalidInput(
                f"{path}.levels",
                show(list(gpus.levels)),
                f"different counts from {gpus.min} to {gpus.max}",
            )
        return gpus.min, gpus.max, self._level_rows.setdefault(levels, len(self._level_rows))

    def _workload(self, given: tuple[str | None, bool], path: str) -> int:
        """Row of a workload, given its name and whether its jobs bring rates or options."""
        name, brings_own = given
        if name is None:
            if not brings_own:
                raise InvalidInput(path, "no workload, throughput or options", "one of them")
            return -1
        row = self._workload_rows.get(name)
        # A label has no rates.
        if not brings_own and (row is None or name in self._labels):
            raise InvalidInput(
                f"{path}.workload",
                show(name),
                "one of the workloads, or a throughput of the job's own",
            )
        if row is None:
            row = self._workload_rows[name] = len(self._workload_rows)
            self._labels.add(name)
            self.labels.append(name)
        return row

    def _tenant(self, tenant: str | None, path: str) -> int:
        if tenant is None:
            return -1
        if tenant not in self._tenant_rows:
            known = listed(self._tenant_rows) or "(the instance has none)"
            raise InvalidInput(f"{path}.tenant", show(tenant), f"one of the tenants {known}")
        return self._tenant_rows[tenant]

    def smallest_gangs(self, jobs: CheckedJobs) -> list[int]:
        """The fewest GPUs of each checked job."""
        lists = list(self._level_rows)
        least, levels = jobs.columns["gpus_min"], jobs.columns["levels"]
        return [gpus if row < 0 else lists[row][0] for gpus, row in zip(least, levels, strict=True)]

    def table(self, elsewhere: JobNames = NOWHERE) -> JobTable:
        """The table of all added jobs; predecessors may be among the jobs ``elsewhere``."""
        self._to_arrays()
        arrays = {name: condensed(joined(parts)) for name, parts in self._arrays.items()}
        names = JobNames(len(self.rows), tuple(self.rows))
        after, awaits = resolve_predecessors(self._after, names, elsewhere, self._path)
        return JobTable(
            names=names,
            level_lists=tuple(self._level_rows),
            running=dict(self._running),
            after=after,
            awaits=awaits,
            **arrays,
        )


def _check_rules(
    jobs: Mapping[str, list[Any]],
    arrival: list[float],
    least: list[int],
    most: list[int],
    at: Path,
) -> None:
    """Check rules over several fields; `check_jobs` has the same rules for arrays."""
    for place, deadline in enumerate(jobs["deadline"]):
        if deadline is not None and deadline < arrival[place]:
            raise InvalidInput(
                f"{at(place)}.deadline",
                f"{deadline:g}, before the arrival {arrival[place]:g} (job "
                f"{show(jobs['id'][place])})",
                "a deadline not before the arrival",
            )
    for place, throughput in enumerate(jobs["throughput"]):
        if least[place] < most[place] and _has_plain_number(throughput):
            raise InvalidInput(
                f"{at(place)}.throughput",
                f"a plain number in an elastic job (job {show(jobs['id'][place])})",
                'rates by GPU count such as {"1": 9}',
            )


def _has_plain_number(throughput: Any) -> bool:
    """Whether a profile, given as plain numbers by place, as entries or not at all, has a rate
    without a GPU count.
    """
    if isinstance(throughput, dict):
        return bool(throughput)
    return any(count == OWN_GANG for _, count, _, _ in throughput or ())


def _each_once(
    values: Sequence[Value], resolve: Callable[[Value, str], int], at: Path
) -> list[int]:
    """Rows of values; each distinct value is looked up once."""
    if len(values) == 1:
        return [resolve(values[0], at(0))]
    first = first_places(values)
    rows = {value: resolve(value, at(place)) for value, place in first.items()}
    return list(map(rows.__getitem__, values))
