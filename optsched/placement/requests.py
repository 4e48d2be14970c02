"""What must be placed: rows of an allocation that run at the same time, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optsched.arrays import BoolArray, FloatArray, IntArray
from optsched.candidates import Classes, JobRows, column_needs
from optsched.placement.nodes import OWN, renewable_groups

ANTI_AFFINITY = "anti-affinity"
"""Kind of the side constraint that keeps jobs on different nodes."""


@dataclass(frozen=True)
class Requests:
    """P gangs, each of a job or of two jobs that share the same GPUs.

    Attributes
    ----------
    classes : Classes
    row : IntArray, shape (P,)
        Row of the allocation.
    job, partner : IntArray, shape (P,)
        Rows of the job table; partner -1 for a job alone.
    pool, gpus : IntArray, shape (P,)
    span : IntArray, shape (P,)
        Most nodes that it may span: those of its candidate, on which its throughput depends.
    share : FloatArray, shape (P,)
        Share of each GPU, in (0, 1].
    need : FloatArray, shape (P, 2)
        CPUs and memory (GB) per GPU.
    group_need : FloatArray, shape (P, G)
        Of each resource that belongs to some nodes, per GPU on these nodes.
    apart : tuple of tuples of int, length P
        The anti-affinity sets that it belongs to.
    torn : BoolArray, shape (P,)
        Both of its jobs are in one such set, so that it can be placed nowhere.
    """

    classes: Classes
    row: IntArray
    job: IntArray
    partner: IntArray
    pool: IntArray
    gpus: IntArray
    span: IntArray
    share: FloatArray
    need: FloatArray
    group_need: FloatArray
    apart: tuple[tuple[int, ...], ...]
    torn: BoolArray

    @classmethod
    def of(
        cls, classes: Classes, rows: JobRows, wanted: IntArray, constraints: Iterable[Mapping[str, Any]] = ()
    ) -> Requests:
        """Requests of some rows of an allocation; rows without GPUs ask for none and are left out."""
        column = rows.column[wanted]
        keep = (classes.pool[column] >= 0) & (classes.gpus[column] > 0)
        wanted, column = wanted[keep], column[keep]
        configuration = classes.configuration[column]
        gpus = classes.gpus[column]
        sets = anti_affinity_sets(classes, constraints)
        mine = [sets.get(job, frozenset()) for job in rows.job[wanted].tolist()]
        other = [sets.get(job, frozenset()) for job in rows.partner[wanted].tolist()]
        need = _needs(classes, column) / np.maximum(gpus, 1)[:, None]
        return cls(
            classes=classes,
            row=wanted,
            job=rows.job[wanted],
            partner=rows.partner[wanted],
            pool=classes.pool[column],
            gpus=gpus,
            span=np.maximum(classes.configurations.nodes[configuration], 1),
            share=classes.configurations.share[configuration],
            need=need[:, : len(OWN)],
            group_need=need[:, len(OWN) :],
            apart=tuple(tuple(sorted(a | b)) for a, b in zip(mine, other, strict=True)),
            torn=np.array([bool(a & b) for a, b in zip(mine, other, strict=True)], bool),
        )

    def __len__(self) -> int:
        return len(self.row)

    def take(self, rows: IntArray) -> Requests:
        """Some of the requests."""
        names = ("row", "job", "partner", "pool", "gpus", "span", "share", "need", "group_need", "torn")
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in names}
        return replace(self, **arrays, apart=tuple(self.apart[row] for row in rows.tolist()))

    def jobs(self, request: int) -> tuple[int, ...]:
        """The job of a request, or both."""
        partner = int(self.partner[request])
        return (int(self.job[request]),) if partner < 0 else (int(self.job[request]), partner)

    def named(self, request: int) -> str:
        """``job a``, or ``jobs a and b``."""
        names = self.classes.instance.jobs_table.names
        told = [names[job] for job in self.jobs(request)]
        return f"job {told[0]}" if len(told) == 1 else f"jobs {told[0]} and {told[1]}"


def anti_affinity_sets(classes: Classes, constraints: Iterable[Mapping[str, Any]]) -> dict[int, frozenset[int]]:
    """The anti-affinity sets that each job belongs to, by the row of the job."""
    names = classes.instance.jobs_table.names
    sets: dict[int, frozenset[int]] = {}
    documents = (document for document in constraints if document.get("kind") == ANTI_AFFINITY)
    for number, document in enumerate(documents):
        for name in document["jobs"]:
            job = names.index(name)
            sets[job] = sets.get(job, frozenset()) | {number}
    return sets


def _needs(classes: Classes, column: IntArray) -> FloatArray:
    """CPUs, memory and resources of some nodes that whole columns need, shape (columns, 2 + G)."""
    candidates = classes.candidates
    used, inverse = np.unique(classes.kind_column[column], return_inverse=True)
    needs = column_needs(candidates.instance, candidates.kinds, candidates.columns.take(used))
    names = (*OWN, *(group.name for group in renewable_groups(candidates.instance)))
    total = np.zeros((len(used), len(names)))
    for place, name in enumerate(names):
        if name in needs:
            here, amount = needs[name]
            total[here, place] = amount
    return total[inverse]
