"""Join some jobs of one instance with jobs of another: new rows, names, workloads and co-location
entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_, itemgetter
from typing import TypeVar

import numpy as np

from optsched.arrays import BoolArray, IntArray
from optsched.arrays.values import replace
from optsched.errors import InvalidInput, UsageError
from optsched.instance.compaction import first_use
from optsched.instance.instance import Instance
from optsched.instance.reading import show
from optsched.instance.running import RunningJobs
from optsched.instance.tables import Colocation, JobNames, Workload, Workloads

T = TypeVar("T")


@dataclass(frozen=True)
class JobPlaces:
    """New rows of jobs: the kept jobs come first, in the order of ``kept``, then the added ones.

    Attributes
    ----------
    kept : IntArray, shape (jobs that stay,)
        Old row of each kept job.
    place : IntArray, shape (jobs before,)
        New row of each old job, -1 for jobs that leave.
    in_order : bool
        Whether the kept jobs keep their order.
    """

    kept: IntArray
    place: IntArray
    in_order: bool

    @classmethod
    def of(cls, rows: object, count: int) -> JobPlaces:
        """From the rows of the kept jobs (each once), out of ``count``."""
        kept = np.asarray(rows)
        if kept.ndim != 1 or (kept.dtype.kind not in "iu" and kept.size):
            raise InvalidInput(
                "rows", f"an array of {kept.dtype} of shape {kept.shape}", "rows of jobs"
            )
        kept = kept.astype(np.int64)
        wrong = ((kept < 0) | (kept >= count)).nonzero()[0]
        if len(wrong):
            raise InvalidInput(
                f"rows[{wrong[0]}]", f"{kept[wrong[0]]}", f"a row of the {count} jobs"
            )
        place = np.full(count, -1, np.int64)
        place[kept] = np.arange(len(kept))
        twice = (place[kept] != np.arange(len(kept))).nonzero()[0]
        if len(twice):
            raise InvalidInput(
                f"rows[{twice[0]}]", f"{kept[twice[0]]} a second time", "each row once"
            )
        return cls(kept, place, bool((np.diff(kept) > 0).all()))

    @classmethod
    def staying(cls, stays: BoolArray) -> JobPlaces:
        """From a mask of the jobs that stay, in their order."""
        kept = stays.nonzero()[0]
        place = np.full(len(stays), -1, np.int64)
        place[kept] = np.arange(len(kept))
        return cls(kept, place, True)

    @property
    def everything(self) -> bool:
        """Whether all jobs keep their rows."""
        return self.in_order and len(self.kept) == len(self.place)

    def moved(self, by_row: Mapping[int, T]) -> dict[int, T]:
        """A mapping by old rows, changed to new rows and sorted by them; jobs that leave are
        dropped.
        """
        if self.everything or not by_row:
            return dict(by_row)
        after = self.place[np.fromiter(by_row, np.int64, len(by_row))].tolist()
        pairs = [pair for pair in zip(after, by_row.values(), strict=True) if pair[0] >= 0]
        return dict(pairs if self.in_order else sorted(pairs, key=itemgetter(0)))

    def running(self, places: RunningJobs) -> RunningJobs:
        """The running jobs by new rows, without jobs that leave."""
        after = self.place[places.job]
        stay = after >= 0
        if self.in_order:
            return places.kept(stay, after[stay])
        stays = stay.nonzero()[0]
        stays = stays[after[stays].argsort()]
        return places.take(stays, after[stays])

    def names(self, names: JobNames) -> list[str]:
        """Names of the kept jobs."""
        if names.generated:
            return [f"j{row}" for row in self.kept.tolist()]
        written = names.written()
        if not self.in_order:
            return [written[row] for row in self.kept.tolist()]
        kept: list[str] = []
        for run in self._runs():
            kept += written[run]
        return kept

    def _runs(self) -> list[slice]:
        """The kept jobs as slices of old rows, if they keep their order."""
        breaks = (np.diff(self.kept) != 1).nonzero()[0] + 1
        first = self.kept[np.append(0, breaks)].tolist() if len(self.kept) else []
        last = self.kept[np.append(breaks, len(self.kept)) - 1].tolist() if first else []
        return [slice(start, end + 1) for start, end in zip(first, last, strict=True)]


def check_match(instance: Instance, added: Instance) -> None:
    """Refuse instances whose pools or tenants differ."""
    if added.cluster is not instance.cluster:
        ours, theirs = (
            tuple((pool.name, pool.gpu) for pool in each.cluster.pools)
            for each in (instance, added)
        )
        if ours != theirs:
            raise UsageError("jobs of an instance with other pools cannot join this one")
    if added.tenants != instance.tenants:
        raise UsageError("jobs of an instance with other tenants cannot join this one")


def check_names(instance: Instance, rows: JobPlaces, added: Instance) -> None:
    """Refuse added jobs whose ids kept jobs have."""
    new = added.jobs_table.names.written()
    # Look up the many old names among the few new ones, which avoids an index of all old names.
    if twice := set(new).intersection(rows.names(instance.jobs_table.names)):
        row, name = next((row, name) for row, name in enumerate(new) if name in twice)
        path = f"added.jobs[{row}].id"
        raise InvalidInput(path, f"{show(name)} a second time", "ids that differ")


def joined_names(instance: Instance, rows: JobPlaces, added: Instance | None) -> JobNames:
    """Names of the kept and the added jobs."""
    names = instance.jobs_table.names
    # Generated names contain the row. They stay correct only if exactly the first jobs are kept.
    if (
        added is None
        and names.generated
        and rows.in_order
        and len(rows.kept) - 1 == (rows.kept[-1] if len(rows.kept) else -1)
    ):
        return JobNames(len(rows.kept))
    everyone = rows.names(names)
    if added is not None:
        everyone += added.jobs_table.names.written()
    return JobNames(len(everyone), tuple(everyone))


def joined_predecessors(
    instance: Instance, rows: JobPlaces, added: Instance | None
) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[str, ...]]]:
    """`JobTable.after` and `JobTable.awaits` of the joined jobs; predecessors that left count as
    done.
    """
    table, place = instance.jobs_table, rows.place
    after = rows.moved(table.after)
    if after and not rows.everything:
        moved = ((job, tuple(int(place[row]) for row in before)) for job, before in after.items())
        stay = ((job, tuple(row for row in before if row >= 0)) for job, before in moved)
        after = {job: before for job, before in stay if before}
    if added is not None:
        start, new = len(rows.kept), added.jobs_table
        for job in sorted({*new.after, *new.awaits}):
            if job in new.awaits:
                # Names of added jobs are looked up first. A predecessor that left has row -1 and
                # counts as done.
                known = (
                    start + new.names.index(name)
                    if name in new.names
                    else int(place[table.names.index(name)])
                    for name in new.awaits[job]
                    if name in new.names or name in table.names
                )
                before = tuple(row for row in known if row >= 0)
            else:
                before = tuple(start + row for row in new.after[job])
            if before:
                after[start + job] = before
    return after, rows.moved(table.awaits)


def joined_workloads(instance: Instance, added: Instance | None) -> tuple[Workloads, IntArray]:
    """The workloads of an instance, then those that only the other one has; and the new row of each
    workload of the other one (last entry: -1, for none).

    Rates of the other instance come after those of this one.
    """
    ours = instance.workloads
    if added is None:
        return ours, np.array([-1])
    theirs, shift = added.workloads, len(instance.rates)
    # Jobs that were read for this instance share its workload objects: no lookup by name is needed.
    shared = len(theirs) >= len(ours) and all(map(is_, theirs, ours))
    rows = {} if shared else {workload.name: row for row, workload in enumerate(ours)}
    places = list(range(len(ours))) if shared else []
    new: list[Workload] = []
    for workload in theirs[len(places) :]:
        row = rows.get(workload.name)
        if row is None:
            row = len(ours) + len(new)
            new.append(
                replace(workload, rates=workload.rates + shift) if workload.rates >= 0 else workload
            )
        elif not workload.label and not _same(ours[row], workload, instance, added):
            raise UsageError(
                f"a workload {show(workload.name)} of other jobs is not what this "
                "instance says of it"
            )
        places.append(row)
    return Workloads((*ours, *new)) if new else ours, np.array([*places, -1], np.int64)


def _same(first: Workload, second: Workload, instance: Instance, added: Instance) -> bool:
    """Whether two workloads of the same name are equal; their rates are in different tables."""
    rates = [
        None if w.rates < 0 else i.rates.document(w.rates)
        for w, i in ((first, instance), (second, added))
    ]
    return replace(first, rates=-1) == replace(second, rates=-1) and rates[0] == rates[1]


def in_use(
    workloads: Workloads, of_job: IntArray, colocation: tuple[Colocation, ...]
) -> tuple[Workloads, IntArray | None]:
    """The workloads without unused labels.

    Labels come last, in the order in which jobs name them. A label that only a co-location entry
    names becomes a workload.

    Returns
    -------
    workloads : Workloads
    number : IntArray, shape (workloads before + 1,), or None
        New row of each workload, -1 for removed ones and for none; None if no row changes.
    """
    label = workloads.label
    if not label.any():
        return workloads, None
    _, named = first_use(np.where(label[of_job], of_job, -1))
    label = label[:-1]
    gone = label.copy()
    gone[named] = False
    colocated = {row for entry in colocation for row in entry.workloads or () if gone[row]}
    order = [*(~label).nonzero()[0].tolist(), *sorted(colocated), *named.tolist()]
    if not colocated and order == list(range(len(workloads))):
        return workloads, None
    number = np.full(len(workloads) + 1, -1, np.int64)
    number[order] = np.arange(len(order))
    return Workloads(
        Workload(workloads[row].name) if row in colocated else workloads[row] for row in order
    ), number


def joined_colocation(
    instance: Instance, rows: JobPlaces, added: Instance | None, workload: IntArray
) -> tuple[Colocation, ...]:
    """Co-location entries of the kept and the added jobs, with new rows; ``workload`` comes from
    `joined_workloads`.
    """
    kept = []
    for entry in instance.colocation:
        if entry.jobs is not None:
            first, second = (int(rows.place[row]) for row in entry.jobs)
            if first >= 0 and second >= 0:
                kept.append(entry._replace(jobs=(first, second)))
        else:
            kept.append(entry)
    start, known = len(rows.kept), len(instance.workloads)
    for entry in () if added is None else added.colocation:
        if entry.jobs is not None:
            kept.append(entry._replace(jobs=(entry.jobs[0] + start, entry.jobs[1] + start)))
        elif entry.workloads is not None:
            first, second = (int(workload[row]) for row in entry.workloads)
            # For a pair of workloads that both instances have, the entries of the first instance
            # are used.
            if max(first, second) >= known:
                kept.append(entry._replace(workloads=(first, second)))
    return tuple(kept)


def renumbered(entries: Sequence[Colocation], number: IntArray) -> tuple[Colocation, ...]:
    """Co-location entries with new rows of their workloads."""
    return tuple(
        entry
        if entry.workloads is None
        else entry._replace(
            workloads=(int(number[entry.workloads[0]]), int(number[entry.workloads[1]]))
        )
        for entry in entries
    )
