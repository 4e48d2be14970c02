"""What a picture of the topology shows: the fabric, and who holds which GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from optsched.arrays import IntArray
from optsched.errors import InvalidInput
from optsched.instance import Instance
from optsched.instance.documents import parse_index
from optsched.instance.reading import show
from optsched.report.answers import Answer, count, headline
from optsched.report.fabric import STATES, Fabric, fabric_of
from optsched.report.parts import Held, placement_of


@dataclass(frozen=True)
class TopologyCells:
    """The GPUs of a cluster and the jobs on them.

    Attributes
    ----------
    instance : Instance
    fabric : Fabric
    gpu, job, slot, slots : IntArray, shape (C,)
        A GPU (counted over all hosts) and a job (row of the job table) that holds it, or its ``slot``-th of ``slots``
        equal parts where several do.
    title, subtitle : str
    """

    instance: Instance
    fabric: Fabric
    gpu: IntArray
    job: IntArray
    slot: IntArray
    slots: IntArray
    title: str
    subtitle: str

    @classmethod
    def of_instance(cls, instance: Instance) -> TopologyCells:
        """The cluster as it is now, with the GPUs that running jobs hold."""
        running = instance.jobs_table.running
        held = [Held((job,), gpus) for job, (_, gpus, _) in sorted(running.items())]
        made = _cells(instance, held)
        return cls(instance, *made, f"{instance.name}: cluster and what runs now", _amounts(*made))

    @classmethod
    def of_placement(cls, answer: Answer) -> TopologyCells:
        """The placement of a solution or of a solution file."""
        instance = answer.instance
        made = _cells(instance, placement_of(answer))
        return cls(
            instance, *made, f"{instance.name}: placement on the cluster", headline(answer, _amounts(*made))
        )  # fmt: skip

    @property
    def jobs(self) -> list[int]:
        """Rows of the jobs that hold a GPU, in order."""
        found: list[int] = np.unique(self.job).tolist()
        return found


def _cells(
    instance: Instance, held: Iterable[Held]
) -> tuple[Fabric, IntArray, IntArray, IntArray, IntArray]:
    fabric = fabric_of(instance)
    host = {name: row for row, name in enumerate(fabric.names)}
    found: list[tuple[int, int]] = []
    for place, holder in enumerate(held):
        for position, name in enumerate(holder.gpus):
            node, _, index = name.rpartition("/")
            number = parse_index(index)
            if node not in host or not 0 <= number < fabric.gpus[host[node]]:
                expected = "a GPU of the cluster, written node/index"
                raise InvalidInput(f"placement[{place}].gpus[{position}]", show(name), expected)
            found += [(int(fabric.first[host[node]]) + number, job) for job in holder.jobs]
    table = np.unique(np.array(found, np.int64).reshape(-1, 2), axis=0)
    gpu, job = table[:, 0], table[:, 1]
    begin = np.searchsorted(gpu, gpu, side="left")
    slots = np.searchsorted(gpu, gpu, side="right") - begin
    return fabric, gpu, job, np.arange(len(gpu)) - begin, slots


def _amounts(fabric: Fabric, gpu: IntArray, job: IntArray, *_: IntArray) -> str:
    held, jobs = len(np.unique(gpu)), len(np.unique(job))
    states = np.bincount(fabric.state, minlength=len(STATES))
    off = [
        f"{count(int(states[row]), 'node')} {STATES[row]}"
        for row in range(1, len(STATES))
        if states[row]
    ]
    holders = f"held by {count(jobs, 'job')}" if jobs else "in use"
    return ", ".join([f"{held:,} of {count(fabric.total, 'GPU')} {holders}", *off])
