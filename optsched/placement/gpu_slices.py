"""The GPU slice in which each job of a plan with layouts (MIG) runs."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from optsched.display import DisplayedTable, TableColumns, columns_of, count
from optsched.errors import UsageError
from optsched.instance import Instance, Layouts
from optsched.instance.arguments import checks_arguments
from optsched.instance.layouts import MIG
from optsched.performance import partitions_of
from optsched.solution import Solution

WHOLE = "whole"
"""Layout of a GPU without slices."""


class GpuSlice(NamedTuple):
    """A slice of a GPU.

    Attributes
    ----------
    gpu, pool : str
    layout : str
        The slices of its GPU, or ``whole``.
    slice : str
        Profile and first memory slice, such as ``3g.20gb@4``; empty for a whole GPU.
    start, end : int
        Memory slices that it takes: from ``start`` on, before ``end``.
    job : str
        Empty where it is idle.
    workload : str or None
        Of the job.
    """

    gpu: str
    pool: str
    layout: str
    slice: str
    start: int
    end: int
    job: str = ""
    workload: str | None = None


@dataclass(frozen=True, repr=False)
class SlicedGpus(DisplayedTable):
    """The GPUs that a plan uses, slice by slice.

    Attributes
    ----------
    slices : tuple of GpuSlice
        GPU by GPU, those of one GPU by their starts.
    memory_slices : mapping from pool to int
        Memory slices of a GPU.
    """

    slices: tuple[GpuSlice, ...]
    memory_slices: Mapping[str, int]

    def _headline(self) -> str:
        used = sum(bool(each.job) for each in self.slices)
        gpus = count(len({each.gpu for each in self.slices}), "GPU")
        return f"{gpus} with {count(len(self.slices), 'slice')}, {used:,} in use"

    def __len__(self) -> int:
        return len(self.slices)

    def to_columns(self, first: int | None = None) -> TableColumns:
        """The slices: GPU, layout, slice, and the job in it with its workload."""
        names = ("gpu", "layout", "slice", "job", "workload")
        return columns_of(
            [{name: getattr(each, name) for name in names} for each in self.slices[:first]]
        )


@checks_arguments
def slices(solution: Solution) -> SlicedGpus:
    """The GPU slice in which each job of a plan with layouts runs.

    The plan has the number of GPUs with each layout, and the jobs in slices of each profile.
    Layouts are assigned to the usable GPUs of a pool in the order of its nodes, jobs to the slices
    of their profile in the order of the plan; whole GPUs come last.

    Parameters
    ----------
    solution : Solution
        Of a formulation that decides layouts, such as ``mig-pack``.

    Returns
    -------
    SlicedGpus

    Raises
    ------
    UsageError
        If the solution decides no layouts.
    """
    if solution.schedule is None or solution.schedule.layouts is None:
        raise UsageError(f"{solution.formulation} decides no layouts of GPUs")
    records = solution.schedule.to_records()
    return sliced_gpus(solution.instance, records, solution.schedule.layouts)


def sliced_gpus(
    instance: Instance,
    rows: Iterable[Mapping[str, Any]],
    layouts: Mapping[str, Mapping[str, int]],
) -> SlicedGpus:
    """As `slices`, from the rows and layouts of a solution file."""
    waiting: dict[tuple[str, str | None], deque[str]] = defaultdict(deque)
    for row in rows:
        if row["pool"] is not None:
            profile = row.get("attributes", {}).get(MIG)
            waiting[row["pool"], profile].append(row["job"])
    found: list[GpuSlice] = []
    memory = {}
    for number, pool in enumerate(instance.cluster.pools):
        free = _usable(instance, number)
        if pool.name in layouts:
            legal = Layouts(partitions_of(pool))
            memory[pool.name] = legal.memory_slices
            for layout, gpus in layouts[pool.name].items():
                for _ in range(gpus):
                    found += _cut(next(free), pool.name, layout, legal, waiting)
        found += [
            GpuSlice(next(free), pool.name, WHOLE, "", 0, memory.get(pool.name, 1), job)
            for job in waiting[pool.name, None]
        ]
    workload = _workloads(instance)
    named = tuple(each._replace(workload=workload(each.job)) for each in found)
    return SlicedGpus(named, memory)


def _usable(instance: Instance, pool: int) -> Iterator[str]:
    """Names of the usable GPUs of a pool, in the order of its nodes."""
    numbering = instance.cluster.numbering
    usable = instance.cluster.usable(instance.now) & (numbering.pool == pool)
    for node in np.flatnonzero(usable).tolist():
        first, stop = numbering.start[node : node + 2].tolist()
        yield from numbering.gpu_names(np.arange(first, stop, dtype=np.int64))


def _cut(
    gpu: str,
    pool: str,
    layout: str,
    legal: Layouts,
    waiting: Mapping[tuple[str, str | None], deque[str]],
) -> Iterator[GpuSlice]:
    """The slices of one GPU, each with the next job of its profile."""
    left = legal.read(layout, f"layouts.{pool}")
    whole = legal.layout_for(left)
    assert whole is not None
    for at in whole:
        # A layout may be a part of a larger one: the slices that it lacks are left out.
        if left[at.profile]:
            left[at.profile] -= 1
            name = legal.names[at.profile]
            jobs = waiting[pool, name]
            job = jobs.popleft() if jobs else ""
            text = f"{name}@{at.start}"
            yield GpuSlice(gpu, pool, layout, text, at.start, legal.end(at), job)


def _workloads(instance: Instance) -> Any:
    table, workloads = instance.jobs_table, instance.workloads

    def name(job: str) -> str | None:
        row = table.names.get(job) if job else -1
        return (
            workloads[table.workload[row]].name if row >= 0 and table.workload[row] >= 0 else None
        )

    return name
